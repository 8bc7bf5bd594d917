"""Several types of records in one topic, told by a field, a header or a schema id; and record headers as columns.

Of every type, the view is the fold of the records of that type alone, and of the tombstones: recomputed from the log in
plain Python.
"""

from __future__ import annotations

import io
import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

import foldlog
import foldlog.spark as fl
from foldlog.errors import FoldError, InvalidArgument
from foldlog.records import arrow
from foldlog.spark.decoders.headers import last_header
from foldlog.spark.decoders.record_types import RecordType
from folds_model import records_of

Headers = list[tuple[str, bytes | None]]


def batch(*records: tuple[bytes | None, Headers]) -> pa.RecordBatch:
    values, headers = zip(*records, strict=True)
    told = [[{"key": name, "value": value} for name, value in some] for some in headers]
    schema = arrow.schema(["value", "headers"])
    return pa.RecordBatch.from_arrays(
        [pa.array(values, pa.binary()), pa.array(told, schema.field(1).type)], schema=schema
    )


def of(only: RecordType, *records: tuple[bytes | None, Headers]) -> list[bool]:
    flags: list[bool] = only.of(batch(*records)).to_pylist()
    return flags


def test_a_field_tells_the_type_of_a_json_value() -> None:
    values = [b'{"type":"a"}', b'{"type":"b"}', b'{"type":null}', b"{}", b'{"n":1}', b"[", b'{"type":7}', None]
    # What cannot be told is not left out: it becomes a dead letter, or deletes.
    told = of(fl.by_field("type", "a", "c"), *((value, []) for value in values))
    assert told == [True, False, False, False, False, True, True, True]
    assert of(fl.by_field("type", 7), (b'{"type":7}', []), (b'{"type":8}', [])) == [True, False]


def test_the_last_header_of_a_name_tells_the_type() -> None:
    cases: list[tuple[bytes | None, Headers]] = [
        (b"x", [("type", b"a")]),
        (b"x", [("type", b"a"), ("type", b"b")]),
        (b"x", [("other", b"a")]),
        (b"x", []),
        (None, []),
        (None, [("type", b"b")]),
        (None, [("type", b"a"), ("n", None)]),
        (b"x", [("type", None)]),
    ]
    assert of(fl.by_header("type", "a"), *cases) == [True, False, False, False, True, False, True, False]
    sliced = batch(*cases).slice(1, 3).column("headers")
    assert last_header(sliced, "type").to_pylist() == [b"b", None, None]


def test_a_schema_id_tells_the_type_of_a_value_in_confluents_format() -> None:
    values = [b"\0\0\0\0\x07rest", b"\0\0\0\0\x08rest", b"\0\0\0\0\x07", b"\0\0\0", b"json", b"", None]
    assert of(fl.by_schema(7), *((value, []) for value in values)) == [True, False, True, True, True, True, True]


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    with foldlog.open(tmp_path / "data") as log:
        log.create_topic("shop", partitions=2)
    return tmp_path / "data"


def held(view: fl.View, *names: str) -> list[tuple[Any, ...]]:
    return sorted(tuple(row[name] for name in names) for batch in view.scan().batches for row in batch.to_pylist())


@pytest.mark.faults
def test_each_fold_is_of_its_own_type_whatever_shares_the_key(
    directory: Path, tmp_path: Path, spark: SparkSession
) -> None:
    chance = random.Random(7)
    with foldlog.open(directory) as log, log.producer(linger_ms=5) as producer:
        for number in range(120):
            key, kind = f"k{chance.randint(0, 9)}", chance.choice(["order", "visit"])
            headers = [("kind", kind.encode()), ("n", str(number).encode())]
            what = chance.random()
            if what < 0.1:
                producer.send("shop", None, key, headers=headers if what < 0.05 else [])
            elif what < 0.15:
                producer.send("shop", b"poison", key, headers=headers)
            else:
                # A visit has a text where an order has a number: as an order it would not parse.
                value = {"kind": kind, "amount": number} if kind == "order" else {"kind": kind, "amount": "much"}
                producer.send("shop", value, key, headers=headers)

    def topic(kind: str, only: RecordType) -> fl.Topic:
        amount = "BIGINT" if kind == "order" else "STRING"
        return fl.topic("shop", key="id", schema=f"amount {amount}", headers="n INT", only=only)

    def kept(rows: DataFrame) -> DataFrame:
        return rows.select("id", "amount", "n", *fl.META)

    views = {
        name: fl.table(tmp_path / "shop.db", name)
        for name in ("order_field", "visit_field", "order_header", "visit_header")
    }
    folds = []
    for name, view in views.items():
        kind, by = name.split("_")
        only = fl.by_field("kind", kind) if by == "field" else fl.by_header("kind", kind)
        folds.append(fl.fold(topic(kind, only), into=view, name=name)(kept))
    fl.run(folds, directory, once=True, spark=spark, range_bytes=2000)

    for name, view in views.items():
        kind, by = name.split("_")
        rows: dict[str, tuple[Any, ...]] = {}
        for record in records_of(directory, "shop"):
            told = dict(record.headers)
            if record.value == b"poison" or (by == "header" and told.get("kind") not in (None, kind.encode())):
                continue
            assert record.key is not None
            key = record.key.decode()
            if record.value is None:
                rows.pop(key, None)
            elif json.loads(record.value)["kind"] == kind:
                rows[key] = (key, json.loads(record.value)["amount"], int(told["n"] or b""))
        assert len(rows) > 3
        assert held(view, "id", "amount", "n") == sorted(rows.values()), name
    assert fl.verify(folds[2], directory, spark=spark).answer == "equal"


@pytest.mark.faults
def test_avro_keys_and_schema_ids(directory: Path, tmp_path: Path, spark: SparkSession) -> None:
    def record(name: str, **fields: str) -> dict[str, Any]:
        return {"type": "record", "name": name, "fields": [{"name": n, "type": kind} for n, kind in fields.items()]}

    def written(schema: dict[str, Any], value: dict[str, Any], number: int | None = None) -> bytes:
        message = io.BytesIO()
        fastavro.schemaless_writer(message, schema, value)
        return (b"" if number is None else b"\0" + number.to_bytes(4, "big")) + message.getvalue()

    keys, order, visit = (
        record("Key", shop="string", id="long"),
        record("Order", paise="long"),
        record("Visit", page="string"),
    )
    one, other = (written(keys, {"shop": "tea", "id": number}) for number in (1, 2))
    with foldlog.open(directory) as log:
        for key, value in [
            (one, written(order, {"paise": 5}, 7)),
            (one, written(visit, {"page": "/"}, 8)),
            (other, written(order, {"paise": 6}, 7)),
            (other, None),
        ]:
            log.append("shop", value, key=key)
    topic = fl.topic(
        "shop",
        key=["id", "shop"],
        key_format="avro",
        key_options={"reader_schema": keys},
        format="avro",
        reader_schema=order,
        registry={7: order},
        only=fl.by_schema(7),
    )
    view = fl.table(tmp_path / "shop.db", "orders")
    (feed,) = fl.run([fl.fold(topic, into=view, name="orders")(lambda rows: rows)], directory, once=True, spark=spark)
    assert held(view, "shop", "id", "paise") == [("tea", 1, 5)]
    assert feed.dead == 0
    for change, message in (
        ({"key": ["nothing"]}, "no field 'nothing'; they have shop, id"),
        ({"schema": "id INT"}, "is bigint"),
    ):
        given = {"key": ["id"], "format": "avro", "reader_schema": order, **change}
        wrong = fl.topic("shop", key_format="avro", key_options={"reader_schema": keys}, **given)  # type: ignore[arg-type]
        with pytest.raises(FoldError, match=message):
            fl.run([fl.fold(wrong, into=view, name="wrong")(lambda rows: rows)], directory, once=True, spark=spark)


@pytest.mark.faults
def test_a_header_that_does_not_parse_makes_a_dead_letter_and_a_clash_of_columns_is_told(
    directory: Path, tmp_path: Path, spark: SparkSession
) -> None:
    with foldlog.open(directory) as log:
        log.append("shop", {"a": 1}, key="x", headers=[("n", b"one")])
        log.append("shop", {"a": 2}, key="y", headers=[("n", b"2"), ("trace-id", b"\xff")])
    topic = fl.topic("shop", key="id", schema="a INT", headers="n INT, `trace-id` BINARY")
    view = fl.table(tmp_path / "shop.db", "it")
    (feed,) = fl.run([fl.fold(topic, into=view, name="it")(lambda rows: rows)], directory, once=True, spark=spark)
    assert held(view, "id", "a", "n", "trace-id") == [("y", 2, 2, b"\xff")]
    with foldlog.open(directory, mode="r") as log:
        (letter,) = log.read("it.dead")
    assert (feed.dead, dict(letter.headers)["reason"]) == (1, b"header n: not a INT")
    clash = fl.fold(fl.topic("shop", key="id", schema="a INT", headers="a INT"), into=view, name="clash")(lambda r: r)
    with pytest.raises(FoldError, match="has the column 'a' from its values or keys, and from a header, too"):
        fl.run([clash], directory, once=True, spark=spark)


MISTAKES: list[tuple[Callable[[], object], str]] = [
    (lambda: fl.by_field("type"), r"needs the values of the type that you want: by_field\('type', 'order'\)"),
    (lambda: fl.by_field("", "a"), "takes the name of a field"),
    (lambda: fl.by_field("type", "a", 7), "takes texts, or whole numbers"),
    (lambda: fl.by_header("type", 7), "takes texts or bytes"),  # type: ignore[arg-type]
    (fl.by_schema, "takes ids of schemas"),
    (lambda: fl.by_schema(-1), "takes ids of schemas"),
    (lambda: fl.topic("t", schema="a INT", only="order"), "only='order' of topic 't' is not a type of records"),  # type: ignore[arg-type]
    (lambda: fl.topic("t", format="text", only=fl.by_field("a", "b")), "by_field.. reads JSON; use by_schema"),
    (lambda: fl.topic("t", schema="a INT", headers=["n"]), "headers of topic 't' are columns, as in headers="),  # type: ignore[arg-type]
]


@pytest.mark.parametrize(("mistake", "message"), MISTAKES)
def test_a_mistake_is_told_in_one_sentence(mistake: Callable[[], object], message: str) -> None:
    with pytest.raises(InvalidArgument, match=message):
        mistake()
