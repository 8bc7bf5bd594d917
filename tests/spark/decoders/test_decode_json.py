"""JSON to columns means one thing, whichever way it was read.

A model in plain Python (json.loads and exact fractions) says of every value what it means under a schema of all types.
Generated batches mix good records with spoilt ones, so that the quick way through Arrow, the cuts around a bad record
and the exact way all come to be used; each row has to be what the model says, alone and among any neighbours.
"""

from __future__ import annotations

import base64
import json
import pickle
import re
from datetime import UTC, date, datetime
from decimal import Decimal
from fractions import Fraction
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
import pyarrow as pa
import pyarrow.json as pj
import pytest
from hypothesis import given
from hypothesis import strategies as st

from foldlog.environment import PURE_PYTHON
from foldlog.errors import InvalidArgument
from foldlog.spark.decoders import json_nodes
from foldlog.spark.decoders import json_values as decode_json
from foldlog.spark.decoders.decoder import decoder_for
from foldlog.spark.decoders.json_nodes import Misfit, TimeNode, broken_depth
from foldlog.spark.decoders.json_values import JsonDecoder
from foldlog.spark.decoders.text_types import cast_text, sql_name

NESTED = pa.struct([pa.field("x", pa.int16()), pa.field("y", pa.list_(pa.string()))])
SCHEMA = pa.schema(
    [
        pa.field("flag", pa.bool_()),
        pa.field("small", pa.int8()),
        pa.field("big", pa.int64()),
        pa.field("single", pa.float32()),
        pa.field("double", pa.float64()),
        pa.field("money", pa.decimal128(9, 2)),
        pa.field("text", pa.string()),
        pa.field("bytes", pa.binary()),
        pa.field("day", pa.date32()),
        pa.field("at", pa.timestamp("us", tz="UTC")),
        pa.field("local", pa.timestamp("us")),
        pa.field("inner", NESTED),
        pa.field("many", pa.list_(pa.struct([pa.field("at", pa.timestamp("us", tz="UTC"))]))),
    ]
)
WITH_MAP = SCHEMA.append(pa.field("names", pa.map_(pa.string(), pa.int64())))
REQUIRED = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        pa.field("inner", pa.struct([pa.field("x", pa.string(), nullable=False)])),
        pa.field("many", pa.list_(pa.field("element", pa.int64(), nullable=False))),
    ]
)
ISO = re.compile(r"(\d{4}-\d\d-\d\d)(?:[T ](\d\d(?::\d\d(?::\d\d(?:\.\d+)?)?)?)(Z|[+-]\d\d(?::?\d\d)?)?)?", re.ASCII)


class Unfit(Exception):
    """The model refuses a value."""


class Num(str):
    """A number's text."""


class Pairs(list[Any]):
    """An object's members."""


def model(value: bytes, schema: pa.Schema) -> dict[str, Any] | None:
    """What a value means, or None if it does not fit."""
    try:
        document = json.loads(value.decode("utf-8"), object_pairs_hook=Pairs, parse_int=Num, parse_float=Num)
        if not isinstance(document, Pairs):
            return None
        return model_struct(document, list(schema))
    except (Unfit, ValueError):
        return None


def model_struct(members: Any, fields: list[pa.Field]) -> dict[str, Any]:
    if not isinstance(members, Pairs):
        raise Unfit
    found: dict[str, Any] = {}
    for field in fields:
        given_values = [item for name, item in members if name == field.name]
        if len(given_values) > 1:
            raise Unfit
        found[field.name] = model_field(given_values[0] if given_values else None, field)
    return found


def model_field(value: Any, field: pa.Field) -> Any:
    if value is None:
        if not field.nullable:
            raise Unfit
        return None
    return model_value(value, field.type)


def model_value(value: Any, of: pa.DataType) -> Any:
    if pa.types.is_struct(of):
        return model_struct(value, list(of))
    if pa.types.is_list(of):
        if type(value) is not list:
            raise Unfit
        return [model_field(item, of.value_field) for item in value]
    if pa.types.is_map(of):
        if not isinstance(value, Pairs) or len(dict(value)) != len(value):
            raise Unfit
        return [(model_text(name), model_field(item, of.item_field)) for name, item in value]
    if pa.types.is_boolean(of):
        if not isinstance(value, bool):
            raise Unfit
        return value
    if pa.types.is_integer(of) or pa.types.is_floating(of) or pa.types.is_decimal(of):
        return model_number(value, of)
    return model_from_text(model_text(value), of)


def model_text(value: Any) -> str:
    if type(value) is not str:
        raise Unfit
    value.encode()
    return value


def model_number(value: Any, of: pa.DataType) -> Any:
    if pa.types.is_decimal(of) and type(value) is str:
        if not re.fullmatch(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?", value):
            raise Unfit
    elif not isinstance(value, Num):
        raise Unfit
    exact = Fraction(value)
    if pa.types.is_floating(of):
        with np.errstate(over="ignore"):
            number = float(np.float32(value)) if pa.types.is_float32(of) else float(value)
        if number in (float("inf"), float("-inf")):
            raise Unfit
        return number
    if pa.types.is_integer(of):
        if exact.denominator != 1 or not -(2 ** (of.bit_width - 1)) <= exact < 2 ** (of.bit_width - 1):
            raise Unfit
        return int(exact)
    scaled = exact * 10**of.scale
    if scaled.denominator != 1 or abs(scaled) >= 10**of.precision:
        raise Unfit
    return Decimal(int(scaled)).scaleb(-of.scale)


def model_from_text(text: str, of: pa.DataType) -> Any:
    if pa.types.is_string(of):
        return text
    if pa.types.is_binary(of):
        return base64.b64decode(text, validate=True)
    if pa.types.is_date(of):
        if not re.fullmatch(r"\d{4}-\d\d-\d\d", text, re.ASCII):
            raise Unfit
        return date.fromisoformat(text)
    found = ISO.fullmatch(text)
    if found is None or (found[3] and of.tz is None):
        raise Unfit
    time, _, fraction = (found[2] or "00:00").partition(".")
    zone = "+00:00" if found[3] in (None, "Z") else found[3]
    exact = datetime.fromisoformat(f"{found[1]}T{time}{'.' + fraction[:6].ljust(6, '0') if fraction else ''}{zone}")
    try:
        in_utc = exact.astimezone(UTC)
    except OverflowError:
        raise Unfit from None
    return in_utc if of.tz else in_utc.replace(tzinfo=None)


def rows_of(decoder: JsonDecoder, values: list[bytes | None]) -> list[dict[str, Any] | None]:
    """Each row's columns, None if it has a reason; checks what every answer has to be like."""
    columns, reasons = decoder.decode(pa.array(values, pa.binary()))
    names = decoder.schema.names
    for column, field in zip(columns, decoder.schema, strict=True):
        column.validate(full=True)
        assert column.type == field.type
        assert len(column) == len(values)
    rows = [dict(zip(names, row, strict=True)) for row in zip(*(column.to_pylist() for column in columns), strict=True)]
    if reasons is None:
        return list(rows)
    assert len(reasons) == len(values)
    assert reasons.null_count < len(values), "reasons without a reason"
    for row, reason in zip(rows, reasons.to_pylist(), strict=True):
        assert reason is None or (reason and not any(item is not None for item in row.values()))
    return [row if reason is None else None for row, reason in zip(rows, reasons.to_pylist(), strict=True)]


numbers = st.one_of(
    st.integers(-130, 130).map(str),
    st.integers(-(2**65), 2**65).map(str),
    st.decimals(allow_nan=False, allow_infinity=False, places=2).map(lambda number: format(number, "f")),
    st.floats(allow_nan=False, allow_infinity=False).map(repr),
    st.floats(width=32, allow_nan=False, allow_infinity=False).map(repr),
    st.sampled_from(
        [
            "-0",
            "0.0",
            "-0.0",
            "1.0",
            "1e2",
            "12E-1",
            "1.230",
            "1e-400",
            "1e400",
            "3e39",
            "16777217",
            "0e5",
            "1e30",
            "7.00000000000000000000000000000000000000000000000001",
            "9" * 400,
            "1e-30",
            "9999999.99",
            "9999999.990",
        ]
    ),
)
times = st.sampled_from(
    [
        "2024-02-29T12:34:56Z",
        "2024-02-29 12:34:56.5+05:30",
        "2024-02-29",
        "2024-02-29T12:34:56.123456789Z",
        "2024-02-29T12:34",
        "2023-02-29T00:00:00Z",
        "2024-02-29T12:34:56",
        "0001-01-01T00:00:00+05:00",
        "yesterday",
        "9999-12-31T23:59:59.9999999Z",
        "9999-12-31T23:59:59-01:00",
        "2024-02-29T24:00:00Z",
        "0000-01-01",
        "",
        "2024-02-29T12:34:56.1234567",
        "2024-02-29T12+0530",
        "2024-02-29T12:34:56-05",
        "1709210096",
        " 2024-02-29",
    ]
)
texts = st.one_of(st.text(max_size=8), times, st.sampled_from(["YWJj", "YWI=", "YW", "5", "1.50", ".5", "1_0", " 1"]))
escaped = st.one_of(
    texts.map(json.dumps),
    texts.map(lambda text: json.dumps(text, ensure_ascii=False)),
    st.sampled_from([r'"\ud800"', r'"\udc00x"', r'"\ud83d\ude00"', r'"\u0000"', '"}null{"', '"Infinity, NaN}"']),
)
anything = st.recursive(
    st.one_of(numbers, escaped, st.sampled_from(["true", "false", "null", "NaN", "-Infinity", "Inf", "{}", "[]"])),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3).map(lambda items: f"[{','.join(items)}]"),
        st.lists(st.tuples(st.sampled_from(["x", "y", "at", "z"]), inner), max_size=3).map(
            lambda members: "{" + ", ".join(f'"{name}" : {item}' for name, item in members) + "}"
        ),
    ),
    max_leaves=4,
)
fitting: dict[str, st.SearchStrategy[str]] = {
    "flag": st.sampled_from(["true", "false"]),
    "small": st.integers(-128, 127).map(str),
    "big": st.integers(-(2**63), 2**63 - 1).map(str),
    "single": numbers,
    "double": numbers,
    "money": st.one_of(numbers, st.sampled_from(['"12.30"', "12.3"])),
    "text": st.text(max_size=8).map(json.dumps),
    "bytes": st.binary(max_size=5).map(lambda data: json.dumps(base64.b64encode(data).decode())),
    "day": st.dates().map(lambda day: json.dumps(day.isoformat())),
    "at": times.map(json.dumps),
    "local": st.datetimes().map(lambda at: json.dumps(at.isoformat())),
    "inner": st.sampled_from(['{"x":1,"y":["a",null]}', "{}", '{"y":[],"z":[{}]}', '{"x":null}', '{"x":1,"x":2}']),
    "many": times.map(lambda at: f'[{{"at":{json.dumps(at)}}},null,{{}}]'),
    "names": st.sampled_from(["{}", '{"a":1,"b":null}', '{"a":1,"a":2}', '{"a":"1"}', '{"":2.0}', '{"\\ud800":1}']),
}


@st.composite
def documents(draw: st.DrawFn) -> bytes:
    """A JSON object, mostly fitting, sometimes with members that do not fit, are unknown, or stand there twice."""
    names = draw(st.lists(st.sampled_from([*fitting, "unknown"]), max_size=4, unique=draw(st.integers(0, 9)) > 0))
    members = []
    for name in names:
        strategy = fitting.get(name, anything) if draw(st.integers(0, 7)) else anything
        members.append(f"{json.dumps(name)}:{draw(strategy)}")
    return ("{" + ",".join(members) + "}").encode("utf-8", "surrogatepass")


@st.composite
def spoilt(draw: st.DrawFn) -> bytes:
    """A document with something cut out or put in, or something else altogether."""
    document = draw(documents())
    at = draw(st.integers(0, len(document)))
    until = draw(st.integers(at, min(len(document), at + 3)))
    junk = st.sampled_from(
        [b"", b"{", b"}", b"[", b",", b'"', b"\n", b"\xff", b"\xed\xa0\x80", b"null", b"}null{", b"\0", b" "]
    )
    other = st.sampled_from(
        [b"", b" ", b"null", b"5", b'"a"', b"[{}]", b"{}{}", b"{}null{}", b"{} {}", b"\xef\xbb\xbf{}", b"{},{}"]
    )
    return document[:at] + draw(junk) + document[until:] if draw(st.booleans()) else draw(other)


batches = st.lists(st.one_of(documents(), documents(), documents(), st.none(), spoilt()), max_size=12)
Batch = list[bytes | None]


def expected(values: Batch, schema: pa.Schema) -> list[dict[str, Any] | None]:
    nothing: dict[str, Any] = dict.fromkeys(schema.names)
    return [nothing if value is None else model(value, schema) for value in values]


def lenient(value: bytes | None) -> bool:
    """Whether Arrow is known to read what json.loads calls broken: Inf, in a field that nobody looks at."""
    return value is not None and b"Inf" in value.replace(b"Infinity", b"")


@pytest.mark.parametrize("schema", [SCHEMA, WITH_MAP, REQUIRED], ids=["all types", "with a map", "not null"])
@given(values=batches)
def test_every_row_is_what_the_model_says(schema: pa.Schema, values: Batch) -> None:
    values = [value for value in values if not lenient(value)]
    assert rows_of(JsonDecoder(schema), values) == expected(values, schema)


@given(values=batches, size=st.integers(1, 5))
def test_a_row_does_not_depend_on_its_neighbours(values: Batch, size: int) -> None:
    decoder = JsonDecoder(SCHEMA)
    whole = rows_of(decoder, values)
    assert [row for at in range(0, len(values), size) for row in rows_of(decoder, values[at : at + size])] == whole
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(decode_json, "JSON_EXACT_ROWS", size)
        patch.setattr(decode_json, "JSON_CHUNK_BYTES", 40 * size)
        assert rows_of(decoder, values) == whole


def searched(schema: pa.Schema, values: Batch) -> tuple[list[Any], list[str | None]]:
    """What is found without the screen, by cutting around what does not parse; with the reasons."""
    decoder = JsonDecoder(schema)
    decoder._screen = None
    return decoded(decoder, values)


def decoded(decoder: JsonDecoder, values: Batch) -> tuple[list[Any], list[str | None]]:
    columns, reasons = decoder.decode(pa.array(values, pa.binary()))
    return [column.to_pylist() for column in columns], [] if reasons is None else reasons.to_pylist()


@pytest.mark.parametrize("schema", [SCHEMA, REQUIRED], ids=["all types", "not null"])
@given(values=batches, is_wary=st.booleans(), chunk_bytes=st.integers(20, 400))
def test_the_screen_changes_nothing_but_the_time_it_takes(
    schema: pa.Schema, values: Batch, is_wary: bool, chunk_bytes: int
) -> None:
    oracle = searched(schema, values)
    decoder = JsonDecoder(schema)
    decoder._wary_chunks = 3 if is_wary else 0
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(decode_json, "JSON_CHUNK_BYTES", chunk_bytes)
        assert decoded(decoder, values) == oracle


POISON = {
    "not JSON": b'{"big": oops}',
    "cut off": b'{"big": 1, "text": "a',
    "another kind": b'{"big": "1"}',
    "a fraction": b'{"big": 1.5}',
    "out of range": b'{"small": 300}',
    "too many digits": b'{"money": "12345678.90"}',
    "no date": b'{"day": "yesterday"}',
    "no such day": b'{"at": "2023-02-29T00:00:00Z"}',
    "not base64": b'{"bytes": "?"}',
    "twice": b'{"big": 1, "big": 2}',
    "deep inside": b'{"many": [{"at": "2024-01-01"}, {"at": 5}]}',
    "not UTF-8": b'{"text": "\xff"}',
    "half a surrogate pair": b'{"text": "\\ud800"}',
    "a newline in a text": b'{"text": "a\nb"}',
    "an array": b"[1]",
    "empty": b"",
}


MORE_POISON = {
    "trailing": b'{"big": 1} and more}',
    "two documents": b'{"big": 1}{"big": 2}',
    "NUL": b'{"text": "a\0b"}',
    "NUL behind": b'{"big": 1}\0',
    "no such hour": b'{"at": "2024-02-29T99:00:00Z"}',
    "a zone where there is none": b'{"local": "2024-02-29T09:00:00Z"}',
    "before the year 1": b'{"at": "0001-01-01T00:00:00+05:00"}',
    "huge": b'{"double": 1e999}',
    "huge, skipped": b'{"unknown": 1e999, "big": 2}',
    "many digits, skipped": b'{"unknown": ' + b"9" * 400 + b"}",
    "infinite, skipped": b'{"unknown": Inf, "big": "x"}',
    "deep and cut off": b'{"unknown": ' + b"[" * 3_000,
    "deep and followed by more": b'{"unknown": ' + b"[" * 3_000 + b"]" * 3_000 + b"x}",
    "deep and no text": b'{"text": ' + b"[" * 3_000 + b"]" * 3_000 + b"}",
    "deep, skipped": b'{"unknown": ' + b"[" * 3_000 + b"]" * 3_000 + b', "big": 2}',
    "a byte order mark": b'\xef\xbb\xbf{"big": 1}',
    "an escaped name": b'{"b\\u0069g": "x"}',
}


@pytest.mark.parametrize(
    ("poison", "one_of"),
    [
        pytest.param(poison, one_of, marks=[] if one_of == 10 or poison == "all of them" else [pytest.mark.faults])
        for poison in [*POISON, *MORE_POISON, "all of them"]
        for one_of in (100, 10, 2)
    ],
)
def test_however_many_are_bad_each_is_what_it_is_alone(poison: str, one_of: int) -> None:
    """Beside others, by whatever way, and alone without the screen: the same columns and the same reason."""
    kinds = POISON | MORE_POISON
    chosen = list(kinds.values()) if poison == "all of them" else [kinds[poison]]
    good = [b'{"big": %d, "text": "t", "at": "2024-02-29T12:00:00Z", "money": "1.50"}' % at for at in range(7)]
    values: Batch = [good[number % len(good)] for number in range(1_000)]
    for number, row in enumerate(range(one_of // 2, len(values), one_of)):
        values[row] = chosen[number % len(chosen)]
    alone = {value: searched(SCHEMA, [value]) for value in set(values)}
    decoder = JsonDecoder(SCHEMA)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(decode_json, "JSON_CHUNK_BYTES", 20_000)
        columns, reasons = decoded(decoder, values)
    for row, value in enumerate(values):
        own_columns, own_reasons = alone[value]
        assert [column[row] for column in columns] == [column[0] for column in own_columns]
        assert (reasons[row] if reasons else None) == (own_reasons[0] if own_reasons else None)


@pytest.mark.skipif(JsonDecoder(SCHEMA)._screen is None, reason="the screen was not compiled")
@pytest.mark.parametrize("poison", POISON.values(), ids=POISON)
def test_good_records_around_bad_ones_are_read_by_one_call_a_chunk(
    poison: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One bad record in a hundred, and Arrow's reader is asked once for each chunk, and once more to notice."""
    values: Batch = [
        f'{{"big": {number}, "text": "t", "at": "2024-02-29T12:00:00Z"}}'.encode() for number in range(4000)
    ]
    values[50::100] = [poison] * 40
    asked: list[int] = []
    read_json = pj.read_json

    def counted(*args: Any) -> Any:
        asked.append(1)
        return read_json(*args)

    monkeypatch.setattr(pj, "read_json", counted)
    monkeypatch.setattr(decode_json, "JSON_CHUNK_BYTES", 60_000)
    _, reasons = JsonDecoder(SCHEMA).decode(pa.array(values, pa.binary()))
    assert reasons is not None
    assert [row for row, reason in enumerate(reasons.to_pylist()) if reason] == list(range(50, 4000, 100))
    chunks = len(decode_json._chunks(pa.array(values, pa.binary())))
    assert 3 <= chunks <= 5
    assert len(asked) <= chunks + 1


GOOD = b'{"big": 1}'
BIG_ONLY = pa.schema([pa.field("big", pa.int64()), pa.field("text", pa.string())])


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (b"", "empty"),
        (b"null", "a JSON null, not an object"),
        (b"[1]", "a JSON array, not an object"),
        (b'"{}"', "a JSON string, not an object"),
        (b"17", "a JSON number, not an object"),
        (b'{"big": "17"}', 'big: "17" is not a BIGINT'),
        (b'{"big": 1.5}', "big: 1.5 is not a BIGINT"),
        (b'{"big": 9223372036854775808}', "big: 9223372036854775808 is not a BIGINT"),
        (b'{"big": NaN}', "big: NaN is not a BIGINT"),
        (b'{"big": 1, "big": 1}', "big: stands there twice"),
        (b'{"big": {}}', "big: a JSON object, not a BIGINT"),
        (b'{"text": 5}', "text: 5 is not a STRING"),
        (b'{"text": "\\ud800"}', "text: half of a surrogate pair"),
        (b'{"text": "\xff"}', "not UTF-8 at byte 10"),
        (b'{"big": 1', "not JSON: Expecting ',' delimiter at character 9"),
        (b"{} {}", "not JSON: Extra data at character 3"),
        (b"{}null{}", "not JSON: Extra data at character 2"),
    ],
)
def test_a_reason_is_given_in_a_few_words(value: bytes, reason: str) -> None:
    _, reasons = JsonDecoder(BIG_ONLY).decode(pa.array([GOOD, value, GOOD], pa.binary()))
    assert reasons is not None
    assert reasons.to_pylist() == [None, reason, None]


@pytest.mark.parametrize(
    ("type_", "text", "reason"),
    [
        (pa.timestamp("us", tz="UTC"), '"noon"', "f: 'noon' is not a TIMESTAMP"),
        (pa.timestamp("us", tz="UTC"), "1709210096", "f: 1709210096 is not a TIMESTAMP"),
        (pa.timestamp("us"), '"2024-01-01T00:00:00Z"', "f: '2024-01-01T00:00:00Z' is not a TIMESTAMP_NTZ"),
        (pa.date32(), '"2024-13-01"', "f: '2024-13-01' is not a DATE"),
        (pa.binary(), '"%"', "f: not base64"),
        (pa.decimal128(4, 2), "1.005", "f: 1.005 is not a DECIMAL(4,2)"),
        (pa.decimal128(4, 2), "100", "f: 100 is not a DECIMAL(4,2)"),
        (pa.float32(), "1e39", "f: 1e39 is not a FLOAT"),
        (pa.list_(pa.int64()), '[1, "x"]', 'f.1: "x" is not a BIGINT'),
        (pa.struct([("g", pa.int64())]), '{"g": true}', "f.g: true is not a BIGINT"),
    ],
    ids=str,
)
def test_a_reason_names_the_field_and_the_type(type_: pa.DataType, text: str, reason: str) -> None:
    decoder = JsonDecoder(pa.schema([pa.field("f", type_)]))
    _, reasons = decoder.decode(pa.array([b"{}", f'{{"f": {text}}}'.encode()], pa.binary()))
    assert reasons is not None
    assert reasons.to_pylist() == [None, reason]


@pytest.mark.parametrize("text", ["1.5" + "0" * 60, '"1.5' + "0" * 60 + '"', "15" + "0" * 60 + "e-61"])
def test_a_decimal_may_be_written_with_any_number_of_zeros(text: str) -> None:
    decoder = JsonDecoder(pa.schema([pa.field("f", pa.decimal128(4, 2))]))
    value = f'{{"f": {text}}}'.encode()
    assert rows_of(decoder, [value]) == [{"f": Decimal("1.50")}]
    assert rows_of(decoder, [value, b"", value]) == [{"f": Decimal("1.50")}, None, {"f": Decimal("1.50")}]


def test_two_halves_of_a_document_are_two_bad_records() -> None:
    """Joined by a newline they would be one document, and a pair elsewhere would make the count right again."""
    values: Batch = [b'{"big":', b"1}", b'{"big":2}{"big":3}', b'{"big":4}']
    assert rows_of(JsonDecoder(BIG_ONLY), values) == [None, None, None, {"big": 4, "text": None}]


def test_a_poison_record_among_many_is_found() -> None:
    values: Batch = [f'{{"big": {number}}}'.encode() for number in range(20_000)]
    values[12_345] = b'{"big": oops}'
    _, reasons = JsonDecoder(BIG_ONLY).decode(pa.array(values, pa.binary()))
    assert reasons is not None
    assert [row for row, reason in enumerate(reasons.to_pylist()) if reason] == [12_345]


def test_a_document_nested_deeper_than_python_follows_is_read_alike_alone_and_beside_a_bad_one() -> None:
    deep = b'{"skipped":' + b"[" * 100_000 + b"]" * 100_000 + b', "big": 7}'
    alone = rows_of(JsonDecoder(BIG_ONLY), [deep])
    assert alone == [{"big": 7, "text": None}]
    assert rows_of(JsonDecoder(BIG_ONLY), [GOOD, deep, b"", deep]) == [{"big": 1, "text": None}, *alone, None, *alone]


def test_a_deeply_nested_document_that_is_broken_is_told_of_without_following_it() -> None:
    """Python's parser and Arrow's would go down all levels, once more for each cut of a search."""
    closed = b'{"skipped":' + b"[" * 5_000 + b"]" * 5_000
    values = [GOOD, closed + b"x}", closed + b",}", closed + b']"big": 7}', b'{"skipped":' + b'{"a":' * 5_000, GOOD]
    if PURE_PYTHON:
        pytest.skip("needs the compiled screen")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(json_nodes, "_parsed", lambda text: pytest.fail("it was followed"))
        assert [reason_of(value) for value in values[1:-1]] == ["nested too deeply"] * 4
    _, reasons = JsonDecoder(BIG_ONLY).decode(pa.array(values, pa.binary()))
    assert reasons is not None
    assert reasons.to_pylist() == [None, *["nested too deeply"] * 4, None]


def reason_of(value: bytes) -> str:
    with pytest.raises(Misfit) as refused:
        json_nodes.parse_document(value)
    assert not isinstance(refused.value, json_nodes.TooDeep), "Arrow's reader is asked about those"
    return refused.value.why


def test_any_number_of_deeply_nested_documents_may_stand_behind_a_bad_one() -> None:
    """More of them than Python has levels of recursion."""
    deep = b'{"skipped":' + b"[" * 9_000 + b"]" * 9_000 + b', "big": 7}'
    wrong = b'{"big":' + b"[" * 2_000 + b"]" * 2_000 + b"}"
    _, reasons = JsonDecoder(BIG_ONLY).decode(pa.array([b"{oops}", *[deep] * 1_200, wrong, deep], pa.binary()))
    assert reasons is not None
    assert [(row, reason) for row, reason in enumerate(reasons.to_pylist()) if reason] == [
        (0, "not JSON: Expecting property name enclosed in double quotes at character 1"),
        (1_201, "nested too deeply"),
    ]


NEARLY_JSON = st.text(alphabet='{}[]",:1a\\ \n', max_size=12).map(str.encode) | st.lists(
    st.sampled_from([b"{", b"}", b"[", b"]", b'"a"', b'"a":', b",", b":", b"1", b"NaN", b"-Inf", b"null", b" "])
).map(b"".join)


@given(inside=NEARLY_JSON)
def test_what_is_called_broken_is_accepted_by_no_reader(inside: bytes) -> None:
    """And what is not JSON for its brackets alone is called so, however deep it is."""
    value = b'{"big":1,"skipped":' + inside + b"}"
    if broken_depth(value):
        assert rows_of(JsonDecoder(BIG_ONLY), [value]) == [None]
        with pytest.raises(ValueError):
            json.loads(value)
    deep = b'{"skipped":' + b"[" * 2_000 + inside + b"]" * 2_000 + b"}"
    if broken_depth(deep):
        assert broken_depth(deep) > 2_000
        assert rows_of(JsonDecoder(BIG_ONLY), [deep]) == [None]


@pytest.mark.parametrize("constant", ["Inf", "-Inf", "NaN", "-NaN", "Infinity", "-Infinity"])
def test_an_infinity_in_a_skipped_field_is_read_alike_alone_and_beside_a_bad_one(constant: str) -> None:
    value = f'{{"skipped": [{constant}, "\\"{constant}"], "big": 7, "text": "a {constant}"}}'.encode()
    fine = {"big": 7, "text": f"a {constant}"}
    assert rows_of(JsonDecoder(BIG_ONLY), [value]) == [fine]
    assert rows_of(JsonDecoder(BIG_ONLY), [value, b"", value]) == [fine, None, fine]
    declared = f'{{"big": {constant}}}'.encode()
    assert rows_of(JsonDecoder(BIG_ONLY), [declared, value]) == [None, fine]


near_times = st.builds(
    lambda day, time, zone: day + time + zone,
    st.sampled_from(["0001-01-01", "9999-12-31", "2023-02-29", "2024-02-29", "1900-02-29", "0000-01-01", "2024-1-01"]),
    st.sampled_from(
        ["", "T00", " 23", "T24", "T05:29", "T05:31:00", "T18:30:00.1234567", "T23:59:60", "T1:00", "T12:3", "T12.5"]
    ),
    st.sampled_from(["", "Z", "+05:30", "-0530", "+05", "-00:01", "+24:00", "+05:60", "+5", "z", " ", "+05:3"]),
)


@pytest.mark.parametrize("of", [pa.date32(), pa.timestamp("us", tz="UTC"), pa.timestamp("us")], ids=str)
@given(text=st.one_of(near_times, times, st.datetimes().map(str), st.from_regex(ISO, fullmatch=True)))
def test_the_exact_way_takes_the_times_that_arrow_converts(of: pa.DataType, text: str) -> None:
    try:
        cast_text(pa.array([text]), of)
        is_time = True
    except pa.ArrowInvalid:
        is_time = False
    try:
        assert TimeNode(sql_name(of)).read(text) == text
        assert is_time
    except Misfit:
        assert not is_time


def test_a_value_of_many_megabytes_is_read() -> None:
    text = "x" * (8 << 20)
    assert rows_of(JsonDecoder(BIG_ONLY), [GOOD, json.dumps({"text": text}).encode(), GOOD])[1] == {
        "big": None,
        "text": text,
    }


def test_a_slice_of_an_array_is_decoded_as_it_stands() -> None:
    values = pa.array([None, b"", b'{"big":1}', None, b'{"big":2}', b"x"], pa.binary()).slice(2, 3)
    columns, reasons = JsonDecoder(BIG_ONLY).decode(values)
    assert columns[0].to_pylist() == [1, None, 2]
    assert reasons is None


def test_no_values_give_empty_columns() -> None:
    columns, reasons = JsonDecoder(WITH_MAP).decode(pa.array([], pa.binary()))
    assert [column.type for column in columns] == WITH_MAP.types
    assert reasons is None


def test_a_decoder_travels() -> None:
    decoder = pickle.loads(pickle.dumps(decoder_for("json", WITH_MAP)))
    assert decoder.schema == WITH_MAP
    assert decoder.decode(pa.array([b'{"names":{"a":1}}'], pa.binary()))[0][-1].to_pylist() == [[("a", 1)]]


@pytest.mark.parametrize(
    ("schema", "sentence"),
    [
        (pa.schema([]), "at least one field"),
        (pa.schema([("a", pa.int64()), ("a", pa.string())]), "'a' stands twice"),
        (pa.schema([("a", pa.duration("us"))]), "field 'a': there is no reading duration"),
        (pa.schema([("a", pa.map_(pa.int64(), pa.string()))]), "names in a JSON object are STRING"),
    ],
    ids=["empty", "twice", "duration", "keys"],
)
def test_a_schema_that_json_cannot_fill_is_refused_at_once(schema: pa.Schema, sentence: str) -> None:
    with pytest.raises(InvalidArgument, match=sentence):
        JsonDecoder(schema)


@pytest.mark.parametrize("one_of", [3, 40, 100, 700])
@pytest.mark.parametrize("space", [b"", b"\n"], ids=["bare", "with space around"])
def test_each_record_stands_where_it_stood_however_many_are_bad(one_of: int, space: bytes) -> None:
    """Few bad ones are put between the others in another way than many; and space around an object is no poison."""
    odd = [b"not json", b"[1]", b'{"big": "x"}', b'{"big": 1}{"big": 2}', b"", b'{"big": 7', b' {"big": 5} ']
    values = [space + b'{"big": %d}' % number + space for number in range(4000)]
    for place in range(one_of // 2, len(values), one_of):
        values[place] = odd[place // one_of % len(odd)]
    (big,), reasons = JsonDecoder(pa.schema([("big", pa.int64())])).decode(pa.array(values, pa.binary()))
    assert reasons is not None
    for number, (value, found, reason) in enumerate(zip(values, big.to_pylist(), reasons.to_pylist(), strict=True)):
        if value == odd[-1]:
            assert (found, reason) == (5, None)
        elif value in odd:
            assert found is None
            assert reason
        else:
            assert (found, reason) == (number, None)


# --- time zones, and fields that the schema does not name -------------------------------------------------------------

BERLIN = "Europe/Berlin"
ZONED = pa.schema([("at", pa.timestamp("us", tz="UTC")), ("many", pa.list_(pa.timestamp("us", tz="UTC")))])


@given(st.lists(st.datetimes(datetime(1950, 1, 1), datetime(2037, 1, 1)), min_size=1, max_size=5))  # noqa: DTZ001 as clocks show it
def test_times_without_a_zone_are_those_of_clocks_there(shown: list[datetime]) -> None:
    decoder = pickle.loads(pickle.dumps(decoder_for("json", ZONED, timezone=BERLIN)))
    values = [json.dumps({"at": one.isoformat(), "many": [one.isoformat()]}).encode() for one in shown]
    (at, many), reasons = decoder.decode(pa.array(values, pa.binary()))
    for number, one in enumerate(shown):
        times = {one.replace(tzinfo=ZoneInfo(BERLIN), fold=fold).astimezone(UTC) for fold in (0, 1)}
        if len(times) == 1:
            assert [at[number].as_py()] == many[number].as_py() == list(times)
        else:
            assert reasons[number].as_py().endswith("was shown twice or never by clocks in Europe/Berlin")


def test_an_hour_that_clocks_showed_twice_or_never_is_no_time() -> None:
    twice, never = b'{"at": "2024-10-27T02:30:00"}', b'{"at": "2024-03-31T02:30:00"}'
    said, fine = b'{"at": "2024-10-27T02:30:00+02:00"}', b'{"at": "2024-10-27 04:30"}'
    (at, _), reasons = decoder_for("json", ZONED, timezone=BERLIN).decode(pa.array([twice, never, said, fine]))
    assert reasons is not None
    assert [reason is not None for reason in reasons.to_pylist()] == [True, True, False, False]
    assert at.to_pylist()[2:] == [datetime(2024, 10, 27, 0, 30, tzinfo=UTC), datetime(2024, 10, 27, 3, 30, tzinfo=UTC)]


def test_a_zone_that_is_none_is_refused() -> None:
    with pytest.raises(InvalidArgument, match="there is no time zone 'CET/Nowhere'"):
        decoder_for("json", ZONED, timezone="CET/Nowhere")


def test_fields_that_the_schema_does_not_name_are_skipped_refused_or_kept() -> None:
    schema = pa.schema([("a", pa.int64())])
    values = pa.array([b'{"a": 1}', b'{"a": 2, "z": {"q": 1.50, "b": null}, "b": "x"}'])
    (a,), reasons = decoder_for("json", schema).decode(values)
    assert (a.to_pylist(), reasons) == ([1, 2], None)
    (a,), reasons = decoder_for("json", schema, on_new_column="fail").decode(values)
    assert a.to_pylist() == [1, None]
    assert reasons is not None
    assert reasons.to_pylist() == [None, "z: a new column, which the schema does not name"]
    for rule in ("keep", "add"):
        (a, more), reasons = decoder_for("json", schema, on_new_column=rule).decode(values)
        assert (a.to_pylist(), reasons) == ([1, 2], None)
        assert more.to_pylist() == [None, [("b", '"x"'), ("z", '{"b":null,"q":1.50}')]]


def test_a_rule_that_there_is_not_is_refused() -> None:
    with pytest.raises(InvalidArgument, match="is not one of ignore, fail, keep, add"):
        decoder_for("json", pa.schema([("a", pa.int64())]), on_new_column="drop")
