"""Avro to columns: fastavro's own writer is the other side, and a real HTTP server is the registry.

Records of a schema with every type are written and read back; whatever else the bytes are, a row or a reason comes
out and never an exception.
"""

from __future__ import annotations

import io
import json
import pickle
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

import fastavro
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from foldlog.client.schemas import lookups
from foldlog.client.schemas.lookups import SchemaRegistry
from foldlog.errors import InvalidArgument, RegistryUnavailable
from foldlog.spark.decoders.avro import AvroDecoder
from foldlog.spark.decoders.decoder import decoder_for
from spark.decoders.registry_server import RegistryServer


def record(*fields: tuple[str, Any], name: str = "Payment") -> dict[str, Any]:
    return {"type": "record", "name": name, "namespace": "shop", "fields": [{"name": n, "type": t} for n, t in fields]}


def logical(of: str, kind: str, **more: Any) -> dict[str, Any]:
    return {"type": of, "logicalType": kind, **more}


CARD = record(("number", "string"), name="Card")
CASH = record(("coins", "int"), name="Cash")
STATE = {"type": "enum", "name": "State", "symbols": ["NEW", "PAID"]}
EVERYTHING = record(
    ("flag", "boolean"),
    ("count", "int"),
    ("amount", "long"),
    ("ratio", "float"),
    ("weight", "double"),
    ("data", "bytes"),
    ("name", "string"),
    ("state", STATE),
    ("hash", {"type": "fixed", "name": "Hash", "size": 4}),
    ("price", logical("bytes", "decimal", precision=9, scale=2)),
    ("day", logical("int", "date")),
    ("at", logical("long", "timestamp-millis")),
    ("exactly", logical("long", "timestamp-micros")),
    ("local", logical("long", "local-timestamp-micros")),
    ("clock", logical("long", "time-micros")),
    ("id", logical("string", "uuid")),
    ("note", ["null", "string"]),
    ("paid", ["null", CARD, CASH, "string"]),
    ("number", ["null", "int", "long"]),
    ("tags", {"type": "array", "items": ["null", "string"]}),
    ("states", {"type": "map", "values": "shop.State"}),
    ("history", {"type": "array", "items": record(("at", logical("long", "timestamp-millis")), name="Step")}),
)
COLUMNS = pa.schema(
    [
        ("flag", pa.bool_()),
        ("count", pa.int32()),
        ("amount", pa.int64()),
        ("ratio", pa.float32()),
        ("weight", pa.float64()),
        ("data", pa.binary()),
        ("name", pa.string()),
        ("state", pa.string()),
        ("hash", pa.binary()),
        ("price", pa.decimal128(9, 2)),
        ("day", pa.date32()),
        ("at", pa.timestamp("us", tz="UTC")),
        ("exactly", pa.timestamp("us", tz="UTC")),
        ("local", pa.timestamp("us")),
        ("clock", pa.int64()),
        ("id", pa.string()),
        ("note", pa.string()),
        (
            "paid",
            pa.struct(
                [
                    ("member0", pa.struct([("number", pa.string())])),
                    ("member1", pa.struct([("coins", pa.int32())])),
                    ("member2", pa.string()),
                ]
            ),
        ),
        ("number", pa.int64()),
        ("tags", pa.list_(pa.field("element", pa.string()))),
        ("states", pa.map_(pa.string(), pa.string())),
        ("history", pa.list_(pa.field("element", pa.struct([("at", pa.timestamp("us", tz="UTC"))])))),
    ]
)
SINCE_1970 = datetime(1970, 1, 1, tzinfo=UTC)
millis = st.integers(-(10**13), 10**13).map(lambda number: SINCE_1970 + timedelta(milliseconds=number))
micros = st.integers(-(10**16), 10**16).map(lambda number: SINCE_1970 + timedelta(microseconds=number))
ways_to_pay = [
    (None, None),
    (("shop.Card", {"number": "17"}), {"member0": {"number": "17"}, "member1": None, "member2": None}),
    (("shop.Cash", {"coins": 5}), {"member0": None, "member1": {"coins": 5}, "member2": None}),
    ("cheque", {"member0": None, "member1": None, "member2": "cheque"}),
]


@st.composite
def records(draw: st.DrawFn) -> tuple[dict[str, Any], dict[str, Any]]:
    """What the writer is given, and what the columns have to hold."""
    clock_us = draw(st.integers(0, 86_400_000_000 - 1))
    paid, paid_column = draw(st.sampled_from(ways_to_pay))
    identity = draw(st.uuids())
    states = draw(st.dictionaries(st.text(max_size=3), st.sampled_from(["NEW", "PAID"]), max_size=2))
    steps = draw(st.lists(millis, max_size=2))
    same = {
        "flag": draw(st.booleans()),
        "count": draw(st.integers(-(2**31), 2**31 - 1)),
        "amount": draw(st.integers(-(2**63), 2**63 - 1)),
        "ratio": draw(st.floats(width=32, allow_nan=False)),
        "weight": draw(st.floats(allow_nan=False)),
        "data": draw(st.binary(max_size=5)),
        "name": draw(st.text(max_size=5)),
        "state": draw(st.sampled_from(["NEW", "PAID"])),
        "hash": draw(st.binary(min_size=4, max_size=4)),
        "price": draw(st.decimals(-9_999_999, 9_999_999, places=2)),
        "day": draw(st.dates()),
        "at": draw(millis),
        "exactly": draw(micros),
        "local": draw(micros).replace(tzinfo=None),
        "note": draw(st.none() | st.text(max_size=5)),
        "number": draw(st.none() | st.integers(-(2**63), 2**63 - 1)),
        "tags": draw(st.lists(st.none() | st.text(max_size=3), max_size=3)),
        "history": [{"at": step} for step in steps],
    }
    clock = (datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=clock_us)).time()
    written = {**same, "clock": clock, "id": identity, "paid": paid, "states": states}
    read = {**same, "clock": clock_us, "id": str(identity), "paid": paid_column, "states": list(states.items())}
    return written, read


def encoded(schema: Any, value: Any) -> bytes:
    stream = io.BytesIO()
    fastavro.schemaless_writer(stream, fastavro.parse_schema(schema), value)
    return stream.getvalue()


def framed(schema_id: int, message: bytes) -> bytes:
    return b"\0" + schema_id.to_bytes(4, "big") + message


def rows_of(decoder: Any, *values: bytes | None) -> tuple[list[dict[str, Any]], list[str | None]]:
    columns, reasons = decoder.decode(pa.array(values, pa.binary()))
    for column, field in zip(columns, decoder.schema, strict=True):
        column.validate(full=True)
        assert column.type == field.type
    rows = pa.Table.from_arrays(columns, schema=decoder.schema).to_pylist()
    return rows, [None] * len(values) if reasons is None else reasons.to_pylist()


@given(st.lists(records(), max_size=4))
def test_what_was_written_is_read(pairs: list[tuple[dict[str, Any], dict[str, Any]]]) -> None:
    decoder = AvroDecoder(EVERYTHING)
    assert decoder.schema == COLUMNS
    rows, reasons = rows_of(decoder, None, *(encoded(EVERYTHING, written) for written, _ in pairs))
    assert rows == [dict.fromkeys(COLUMNS.names), *({name: read[name] for name in COLUMNS.names} for _, read in pairs)]
    assert not any(reasons)


@given(records(), st.data())
def test_any_bytes_give_a_row_or_a_reason(pair: tuple[dict[str, Any], Any], data: st.DataObject) -> None:
    good = encoded(EVERYTHING, pair[0])
    at = data.draw(st.integers(0, len(good)))
    bad = good[:at] + data.draw(st.binary(max_size=12)) + good[at + data.draw(st.integers(0, 3)) :]
    rows, reasons = rows_of(AvroDecoder(EVERYTHING), good, bad, good)
    assert rows[0] == rows[2]
    assert reasons[0] is reasons[2] is None
    assert reasons[1] is None or not any(value is not None for value in rows[1].values())


def test_bytes_left_over_are_a_reason() -> None:
    schema = record(("amount", "long"))
    _, reasons = rows_of(AvroDecoder(schema), encoded(schema, {"amount": 5}) + b"xy", b"")
    assert reasons[0] == "not Avro: 2 bytes left over"
    assert reasons[1] is not None
    assert reasons[1].startswith("not Avro: ")


def test_a_field_that_the_writer_did_not_have_takes_its_default_and_one_that_is_not_read_is_skipped() -> None:
    writer = record(("amount", "int"), ("secret", "string"))
    reader = {**record(("amount", "long")), "fields": [{"name": "amount", "type": "long"}]}
    reader["fields"].append({"name": "currency", "type": "string", "default": "INR"})
    rows, _ = rows_of(AvroDecoder(reader, writer), encoded(writer, {"amount": 5, "secret": "x"}))
    assert rows == [{"amount": 5, "currency": "INR"}]


@pytest.mark.parametrize(
    ("written_type", "value", "read_type", "expected"),
    [
        (logical("long", "timestamp-millis"), 1500, logical("long", "timestamp-micros"), timedelta(seconds=1.5)),
        ("long", 1500, logical("long", "timestamp-millis"), timedelta(seconds=1.5)),
        ("long", 1500, logical("long", "timestamp-micros"), timedelta(microseconds=1500)),
    ],
    ids=["millis as micros", "plain as millis", "plain as micros"],
)
def test_a_timestamp_keeps_its_meaning_whatever_unit_it_was_written_in(
    written_type: Any, value: int, read_type: Any, expected: timedelta
) -> None:
    data = encoded(record(("at", "long")), {"at": value})
    rows, _ = rows_of(AvroDecoder(record(("at", read_type)), record(("at", written_type))), data)
    assert rows == [{"at": SINCE_1970 + expected}]


@pytest.mark.parametrize(
    ("written_type", "read_type", "reason"),
    [
        (logical("long", "timestamp-millis"), "long", "at: written as a datetime, to be read as a number"),
        (
            logical("long", "timestamp-millis"),
            logical("long", "local-timestamp-millis"),
            "at: written as a timestamp with a zone and read without, or the other way round",
        ),
        ("long", logical("long", "timestamp-millis"), f"at: {2**62} is not a timestamp of the years 1 to 9999"),
        ("long", "string", "does not resolve: "),
    ],
    ids=["as a number", "without its zone", "out of range", "as text"],
)
def test_what_cannot_keep_its_meaning_has_a_reason(written_type: Any, read_type: Any, reason: str) -> None:
    data = encoded(record(("at", "long")), {"at": 2**62 if written_type == "long" else 0})
    _, reasons = rows_of(AvroDecoder(record(("at", read_type)), record(("at", written_type))), data)
    assert reasons[0] is not None
    assert reasons[0].startswith(reason)


def test_a_union_of_the_writer_resolves_to_the_plain_type_of_the_reader() -> None:
    writer = record(("paid", ["null", CARD]), ("state", ["null", STATE]))
    reader = record(("paid", CARD), ("state", STATE))
    data = encoded(writer, {"paid": {"number": "17"}, "state": "NEW"})
    assert rows_of(AvroDecoder(reader, writer), data)[0] == [{"paid": {"number": "17"}, "state": "NEW"}]


@pytest.mark.parametrize(
    ("schema", "sentence"),
    [
        (None, "needs a reader_schema"),
        ("{", "not an Avro schema"),
        ('{"type": "record"}', "not an Avro schema"),
        ("[]", "columns come from an Avro record"),
        ('"string"', "columns come from an Avro record"),
        (record(), "has no fields"),
        (record(("next", ["null", "shop.Payment"])), "contains itself"),
        (record(("many", {"type": "array", "items": "null"})), "could have any length"),
        (record(("many", {"type": "array", "items": record(name="Nothing")})), "could have any length"),
        (record(("at", logical("long", "timestamp-nanos"))), "'at' is in nanoseconds"),
        (record(("x", "null")), "'x' of type 'null' has no column type"),
        (record(("x", ["null"])), "'x' is always null"),
        (record(("x", ["int", "long", "string"])), "cannot be told apart"),
        (record(("x", logical("bytes", "decimal", precision=40, scale=2))), "decimal of 40 digits"),
        (record(("x", record(name="Empty"))), "has no fields"),
    ],
    ids=str,
)
def test_a_schema_that_has_no_columns_is_refused_at_once(schema: Any, sentence: str) -> None:
    with pytest.raises(InvalidArgument, match=sentence):
        AvroDecoder(schema)


def test_a_schema_picks_columns_and_so_leaves_out_what_has_no_column() -> None:
    avro = record(("next", logical("long", "timestamp-nanos")), ("amount", "long"), ("name", "string"))
    wanted = pa.schema([("name", pa.string()), ("amount", pa.int64())])
    decoder = decoder_for("avro", wanted, reader_schema=avro)
    assert decoder.schema == wanted
    assert rows_of(decoder, encoded(avro, {"next": 1, "amount": 2, "name": "x"}))[0] == [{"name": "x", "amount": 2}]
    with pytest.raises(InvalidArgument, match=r"has no field 'id'"):
        decoder_for("avro", pa.schema([("id", pa.string())]), reader_schema=avro)
    with pytest.raises(
        InvalidArgument, match=r"'amount' of Avro record 'shop.Payment' is BIGINT, and the schema says INT"
    ):
        decoder_for("avro", pa.schema([("amount", pa.int32())]), reader_schema=avro)


def test_each_value_is_read_by_its_own_schema_of_the_registry() -> None:
    old, new = record(("amount", "int")), record(("amount", "long"), ("name", "string"))
    reader = {**new, "fields": [new["fields"][0], {"name": "name", "type": ["null", "string"], "default": None}]}
    decoder = AvroDecoder(reader, registry={1: old, 2: json.dumps(new), 3: "{", 4: record(("amount", "string"))})
    rows, reasons = rows_of(
        pickle.loads(pickle.dumps(decoder)),
        framed(1, encoded(old, {"amount": 5})),
        framed(2, encoded(new, {"amount": 6, "name": "x"})),
        framed(3, b""),
        framed(4, b"\x02x"),
        framed(9, b"\x02"),
        b"\0\0",
        b"\x01\0\0\0\1x",
        None,
    )
    assert rows[:2] == [{"amount": 5, "name": None}, {"amount": 6, "name": "x"}]
    assert [reason and reason[:40] for reason in reasons] == [
        None,
        None,
        "schema 3: this is not an Avro schema: Ex",
        "does not resolve: Schema mismatch: strin",
        "schema 9 is not registered",
        "2 bytes are too few for a schema id",
        "begins with byte 1 instead of 0 and a sc",
        None,
    ]


def test_a_writer_whose_values_are_of_several_records_is_read_for_the_one_that_is_asked_for() -> None:
    both = [CARD, CASH]
    rows, reasons = rows_of(
        AvroDecoder(CARD, registry={1: both}),
        framed(1, encoded(both, ("shop.Card", {"number": "7"}))),
        framed(1, encoded(both, ("shop.Cash", {"coins": 7}))),
    )
    assert rows[0] == {"number": "7"}
    assert reasons[0] is None
    assert reasons[1] is not None
    assert reasons[1].startswith("does not resolve")


def test_nanoseconds_of_a_writer_never_pass_for_microseconds() -> None:
    reader = record(("at", logical("long", "timestamp-micros")))
    writer = record(("at", logical("long", "timestamp-nanos")))
    _, reasons = rows_of(AvroDecoder(reader, registry={1: writer}), framed(1, b"\x02"))
    assert reasons == ["schema 1: it was written with nanoseconds; read timestamps as 'long' in the reader schema"]
    with pytest.raises(InvalidArgument, match="nanoseconds"):
        AvroDecoder(reader, writer)


def test_a_writer_schema_and_a_registry_are_one_too_many() -> None:
    with pytest.raises(InvalidArgument, match="not both"):
        AvroDecoder(EVERYTHING, EVERYTHING, registry={})


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[RegistryServer]:
    # The process remembers schemas by address, and a port may come again.
    monkeypatch.setattr(lookups, "_known", {})
    with RegistryServer() as server:
        yield server


def test_a_registry_is_asked_once_per_id_and_process(server: RegistryServer) -> None:
    server.schemas[7] = json.dumps(record(("amount", "long")))
    for _ in range(2):
        decoder = pickle.loads(pickle.dumps(AvroDecoder(record(("amount", "long")), registry=server.url)))
        rows, _ = rows_of(decoder, framed(7, b"\x0a"), framed(7, b"\x0c"))
        assert rows == [{"amount": 5}, {"amount": 6}]
    assert server.asked == ["/schemas/ids/7"]


def test_a_schema_may_refer_to_others(server: RegistryServer) -> None:
    server.schemas[1] = json.dumps(record(("paid", "shop.Card")))
    server.references[1] = [{"name": "shop.Card", "subject": "cards/v", "version": 2}]
    server.subjects["cards/v", 2] = json.dumps(record(("state", "shop.State"), name="Card"))
    server.subject_references["cards/v", 2] = [{"name": "shop.State", "subject": "states", "version": 1}]
    server.subjects["states", 1] = json.dumps({**STATE, "namespace": "shop"})
    registered = SchemaRegistry(server.url).schema(1)
    assert registered is not None
    rows, reasons = rows_of(AvroDecoder(registered, registry=server.url), framed(1, b"\x02"))
    assert (rows, reasons) == ([{"paid": {"state": "PAID"}}], [None])


def test_a_registry_that_knows_no_such_id_makes_a_reason_and_one_that_fails_an_error(server: RegistryServer) -> None:
    decoder = AvroDecoder(record(("amount", "long")), registry=server.url)
    assert rows_of(decoder, framed(8, b"\x02"))[1] == ["schema 8 is not registered"]
    for status, body, sentence in [
        (404, b"<html>", r"it answers 404 \(Not Found\) to /schemas/ids/9"),
        (500, b"{}", "it answers 500"),
        (401, b'{"error_code": 401}', "it answers 401"),
        (200, b"[]", "not a JSON object"),
        (200, b"{}", "holds no schema"),
        (200, b" " * (5 << 20), "more than"),
    ]:
        server.answer = (status, body)
        with pytest.raises(RegistryUnavailable, match=sentence):
            decoder.decode(pa.array([framed(9, b"\x02")], pa.binary()))


def test_a_registry_that_is_not_there_is_named() -> None:
    with RegistryServer() as gone:
        url = gone.url
    with pytest.raises(RegistryUnavailable, match=f"the schema registry {url} cannot be used"):
        SchemaRegistry(url).schema(1)


def test_the_password_goes_to_the_registry_and_nowhere_else(server: RegistryServer) -> None:
    server.schemas[5] = '"string"'
    registry = SchemaRegistry(server.url.replace("http://", "http://me:s%3Acret@"))
    assert registry.schema(5) is not None
    assert server.authorizations == ["Basic bWU6czpjcmV0"]
    assert "cret" not in repr(registry) + registry.location
    other = SchemaRegistry(server.url + "/", user_info="you:other")
    assert other.location == server.url


def test_schemas_may_lie_in_a_directory(tmp_path: Any) -> None:
    (tmp_path / "3.avsc").write_text(json.dumps(record(("amount", "long"))))
    registry = pickle.loads(pickle.dumps(SchemaRegistry(tmp_path)))
    found = registry.schema(3)
    assert found is not None
    assert json.loads(found.text)["name"] == "Payment"
    assert registry.schema(4) is None
    (tmp_path / "5.json").write_bytes(b"\xff")
    with pytest.raises(RegistryUnavailable, match=r"5\.json cannot be read"):
        registry.schema(5)


@pytest.mark.parametrize("source", ["ftp://host/", "http://", "/no/such/directory", {-1: "{}"}, {"1": "{}"}, 5])
def test_what_is_no_registry_is_refused(source: Any) -> None:
    with pytest.raises(InvalidArgument):
        SchemaRegistry(source)


def test_types_of_python_are_those_that_were_meant() -> None:
    """The oracle above compares equal things; a UUID or a datetime in place of text would pass a looser one."""
    rows, _ = rows_of(
        AvroDecoder(
            record(("id", logical("string", "uuid")), ("price", logical("bytes", "decimal", precision=4, scale=2)))
        ),
        encoded(
            record(("id", logical("string", "uuid")), ("price", logical("bytes", "decimal", precision=4, scale=2))),
            {"id": UUID(int=5), "price": Decimal("1.5")},
        ),
    )
    assert rows == [{"id": "00000000-0000-0000-0000-000000000005", "price": Decimal("1.50")}]
    day = record(("day", logical("int", "date")))
    assert rows_of(AvroDecoder(day), encoded(day, {"day": date(2024, 2, 29)}))[0] == [{"day": date(2024, 2, 29)}]
