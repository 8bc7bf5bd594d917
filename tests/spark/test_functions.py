"""The decoders as column functions, in a real Spark: few jobs, since the decoders have their own tests."""

from __future__ import annotations

import io
from datetime import UTC, datetime
from typing import Any

import fastavro
import pytest
from google.protobuf import timestamp_pb2
from pyspark.errors import PythonException
from pyspark.sql import Row, SparkSession
from pyspark.sql import types as T  # noqa: N812

import foldlog.spark as fl
from foldlog.errors import InvalidArgument

SCHEMA = (
    "id BIGINT, price DECIMAL(9,2), at TIMESTAMP, local TIMESTAMP_NTZ, day DATE, raw BINARY, tags ARRAY<STRING>,"
    " who STRUCT<name: STRING, since: TIMESTAMP>, totals MAP<STRING, INT>, ratio FLOAT"
)
DOCUMENT = (
    b'{"id": 7, "price": 1.5, "at": "2024-02-29T12:00:00+02:00", "local": "2024-02-29T12:00:00", "day": "2024-02-29",'
    b' "raw": "YWJj", "tags": ["a", null], "who": {"name": "x", "since": "2024-01-01T00:00:00Z"}, "totals": {"k": 5},'
    b' "ratio": 0.5}'
)


def micros(moment: datetime) -> int:
    return int(moment.timestamp() * 1_000_000)


@pytest.mark.parametrize("zone", ["UTC", "Asia/Kolkata"])
def test_json_becomes_a_struct_of_every_type_in_any_session_zone(spark: SparkSession, zone: str) -> None:
    frame = spark.createDataFrame([(DOCUMENT,), (None,)], "value BINARY")
    spark.conf.set("spark.sql.session.timeZone", zone)
    try:
        parsed = frame.select(fl.from_json("value", SCHEMA).alias("p"))
        assert parsed.schema["p"].dataType.simpleString() == T.StructType.fromDDL(SCHEMA).simpleString()
        shown = parsed.selectExpr(
            "p is null",
            "p.id",
            "p.price",
            "unix_micros(p.at)",
            "cast(p.local as string)",
            "cast(p.day as string)",
            "cast(p.raw as string)",
            "p.tags",
            "p.who.name",
            "unix_micros(p.who.since)",
            "p.totals['k']",
            "p.ratio",
        ).collect()
    finally:
        spark.conf.set("spark.sql.session.timeZone", "UTC")
    at, since = datetime(2024, 2, 29, 10, tzinfo=UTC), datetime(2024, 1, 1, tzinfo=UTC)
    values = [False, 7, "1.50", micros(at), "2024-02-29 12:00:00", "2024-02-29", "abc", ["a", None], "x", micros(since)]
    assert [str(cell) if name == "price" else cell for name, cell in shown[0].asDict().items()] == [*values, 5, 0.5]
    assert list(shown[1]) == [True, *[None] * 11]


def test_a_bad_value_fails_or_is_null_or_keeps_its_reason(spark: SparkSession) -> None:
    frame = spark.createDataFrame([('{"a": 1}',), ("{",), (None,)], "value STRING").coalesce(1)
    both = frame.select(
        fl.from_json("value", "a INT", on_bad="null").alias("n"),
        fl.from_json(frame.value, T.StructType().add("a", T.IntegerType()), on_bad="reason").alias("r"),
    ).collect()
    assert [row.n for row in both] == [Row(a=1), None, None]
    assert both[0].r == Row(a=1, _reason=None)
    assert both[1].r.a is None
    assert both[1].r["_reason"].startswith("not JSON: ")
    assert both[2].r is None
    with pytest.raises(PythonException, match="a value cannot be read: not JSON"):
        frame.select(fl.from_json("value", "a INT")).collect()


def test_avro_and_protobuf_become_structs(spark: SparkSession) -> None:
    schema = {"type": "record", "name": "P", "fields": [{"name": "tags", "type": {"type": "map", "values": "long"}}]}
    stream = io.BytesIO()
    fastavro.schemaless_writer(stream, schema, {"tags": {"a": 5}})
    message: Any = timestamp_pb2.Timestamp(seconds=5)
    values = [(b"\0\0\0\0\1" + stream.getvalue(), message.SerializeToString())]
    frame = spark.createDataFrame(values, "avro BINARY, proto BINARY")
    found = frame.select(
        fl.from_avro("avro", schema, registry={1: schema}).alias("a"),
        fl.from_protobuf("proto", timestamp_pb2.Timestamp).alias("p"),
    ).collect()
    assert found == [Row(a=Row(tags={"a": 5}), p=Row(seconds=5, nanos=0))]


@pytest.mark.parametrize("schema", ["a NOTHING", "BIGINT", "", 5], ids=str)
def test_what_is_no_schema_is_said_so(spark: SparkSession, schema: Any) -> None:
    with pytest.raises(InvalidArgument, match="schema"):
        fl.from_json("value", schema)


def test_what_to_do_with_bad_values_is_one_of_three(spark: SparkSession) -> None:
    with pytest.raises(InvalidArgument, match="on_bad is 'fail', 'null' or 'reason', not 'skip'"):
        fl.from_json("value", "a INT", on_bad="skip")  # type: ignore[arg-type]
    with pytest.raises(InvalidArgument, match="has a field '_reason' already"):
        fl.from_json("value", "_reason INT", on_bad="reason")
