"""The log's columns as those of Spark's Kafka source: exactly Spark's Arrow schema, the same values, batches of a good
size. No Spark session.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import types as T  # noqa: N812
from pyspark.sql.pandas.types import to_arrow_schema

from foldlog import limits
from foldlog.errors import InvalidArgument, SerializationError
from foldlog.records.arrow import schema
from foldlog.spark.source.columns import SparkColumns, check_schema, ddl, resized

HEADERS = T.ArrayType(T.StructType([T.StructField("key", T.StringType()), T.StructField("value", T.BinaryType())]))
TYPES: dict[str, T.DataType] = {
    "key": T.BinaryType(),
    "value": T.BinaryType(),
    "topic": T.StringType(),
    "partition": T.IntegerType(),
    "offset": T.LongType(),
    "timestamp": T.TimestampType(),
    "timestampType": T.IntegerType(),
    "headers": HEADERS,
}


def spark_schema(*names: str) -> T.StructType:
    return T.StructType([T.StructField(name, TYPES[name]) for name in names])


def columns_of(*names: str) -> SparkColumns:
    return SparkColumns(to_arrow_schema(spark_schema(*names), timezone="UTC"), "orders", 3)


def log_batch(columns: Sequence[str], **values: list[object]) -> pa.RecordBatch:
    wanted = schema(columns)
    return pa.RecordBatch.from_arrays(
        [pa.array(values[name], wanted.field(name).type) for name in columns], schema=wanted
    )


def test_names_order_and_types_are_those_of_sparks_kafka_source() -> None:
    parts = dict(part.split(" ", 1) for part in ddl(include_headers=True).split(", "))
    assert parts == {name: kind.simpleString() for name, kind in TYPES.items()}
    assert list(parts) == list(TYPES)
    assert ddl(include_headers=True).startswith(ddl(include_headers=False) + ", headers ")
    assert check_schema(spark_schema(*TYPES)) == tuple(TYPES)


@pytest.mark.parametrize(
    ("field", "sentence"),
    [
        (T.StructField("velue", T.BinaryType()), "no column 'velue'"),
        (T.StructField("value", T.StringType()), "'value' is binary and not string"),
        (T.StructField("offset", T.IntegerType()), "'offset' is bigint and not int"),
        (T.StructField("timestamp", T.TimestampNTZType()), "'timestamp' is timestamp and not timestamp_ntz"),
        (T.StructField("value", T.BinaryType(), nullable=False), "'value' may be null"),
    ],
)
def test_a_schema_with_other_columns_is_refused(field: T.StructField, sentence: str) -> None:
    with pytest.raises(InvalidArgument, match=sentence):
        check_schema(T.StructType([field]))


def test_a_column_twice_or_none_at_all_is_refused() -> None:
    with pytest.raises(InvalidArgument, match="twice"):
        check_schema(spark_schema("key", "key"))
    with pytest.raises(InvalidArgument, match="no column"):
        check_schema(T.StructType([]))


def test_only_the_columns_that_are_needed_are_read() -> None:
    assert columns_of("value", "topic").log_columns == ["value"]
    assert columns_of("timestampType", "offset").log_columns == ["timestamp_type", "offset"]
    assert columns_of("topic", "partition").log_columns == ["offset"]  # to count the rows


def test_every_column_has_sparks_type_and_the_records_value() -> None:
    batch = log_batch(
        ["offset", "timestamp", "timestamp_type", "key", "value", "headers"],
        offset=[7, 9],
        timestamp=[1500, -1],
        timestamp_type=[0, 1],
        key=[b"k", None],
        value=[None, b""],
        headers=[[], [{"key": "a", "value": b"1"}, {"key": "a", "value": None}]],
    )
    converted = columns_of(*TYPES).convert(batch)
    assert converted.schema.equals(to_arrow_schema(spark_schema(*TYPES), timezone="UTC"))
    converted.validate(full=True)
    same = {"topic": "orders", "partition": 3}
    assert converted.to_pylist() == [
        {"key": b"k", "value": None, **same, "offset": 7, "timestamp": datetime(1970, 1, 1, 0, 0, 1, 500_000, UTC)}
        | {"timestampType": 0, "headers": None},
        {"key": None, "value": b"", **same, "offset": 9, "timestamp": datetime(1969, 12, 31, 23, 59, 59, 999_000, UTC)}
        | {"timestampType": 1, "headers": [{"key": "a", "value": b"1"}, {"key": "a", "value": None}]},
    ]


header = st.fixed_dictionaries({"key": st.text(max_size=3), "value": st.none() | st.binary(max_size=3)})


@given(st.lists(st.lists(header, max_size=3), min_size=1, max_size=12), st.integers(0, 5), st.integers(0, 12))
def test_headers_of_slices_are_theirs(rows: list[object], start: int, count: int) -> None:
    batch = log_batch(["headers"], headers=rows).slice(start, count)
    converted = columns_of("headers").convert(batch)
    converted.validate(full=True)
    assert converted.column("headers").to_pylist() == [row or None for row in rows[start : start + count]]


def test_a_time_that_spark_cannot_hold_is_said_in_a_sentence() -> None:
    batch = log_batch(["timestamp"], timestamp=[(1 << 63) - 1])
    with pytest.raises(SerializationError, match="leave the column out"):
        columns_of("timestamp").convert(batch)


@given(st.lists(st.integers(0, 350_000), max_size=8))
def test_batches_are_merged_and_cut_without_losing_a_row(sizes: list[int]) -> None:
    total = sum(sizes)
    numbers = pa.RecordBatch.from_pydict({"offset": pa.array(range(total), pa.int64())})
    starts = [sum(sizes[:at]) for at in range(len(sizes))]
    pieces = [numbers.slice(start, size) for start, size in zip(starts, sizes, strict=True)]
    found = list(resized(pieces))
    assert pa.Table.from_batches(found, numbers.schema).equals(pa.Table.from_batches([numbers]))
    assert all(0 < batch.num_rows <= limits.SPARK_BATCH_ROWS_MAX for batch in found)
    if all(size < limits.SPARK_BATCH_ROWS_MIN for size in sizes):
        assert len(found) <= 1


def test_large_values_are_cut_by_their_bytes() -> None:
    values = pa.RecordBatch.from_pydict({"value": pa.array([b"x" * (1 << 20)] * 40, pa.binary())})
    found = list(resized([values]))
    assert sum(batch.num_rows for batch in found) == 40
    assert max(batch.nbytes for batch in found) <= limits.SPARK_BATCH_BYTES + (1 << 20)
    alone = pa.RecordBatch.from_pydict({"value": pa.array([b"x" * (40 << 20)], pa.binary())})
    assert [batch.num_rows for batch in resized([alone])] == [1]
