"""The columns of Spark's Kafka source: their names and types, and the conversion of the log's Arrow columns.

Columns that are the same in every row (topic, partition) are built once and sliced. Only columns in the schema are
built. A record without headers has null, as in Spark's Kafka source; one without a timestamp has -1 ms.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

from foldlog.errors import InvalidArgument, SerializationError
from foldlog.limits import SPARK_BATCH_BYTES, SPARK_BATCH_ROWS_MAX, SPARK_BATCH_ROWS_MIN

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

SPARK_TYPES: Final = {
    "key": "binary",
    "value": "binary",
    "topic": "string",
    "partition": "int",
    "offset": "bigint",
    "timestamp": "timestamp",
    "timestampType": "int",
    "headers": "array<struct<key:string,value:binary>>",
}
"""In the order of Spark's Kafka source; `headers` only with includeHeaders."""

_LOG_NAMES: Final = {"timestampType": "timestamp_type"}
_CONSTANT: Final = frozenset({"topic", "partition"})
_MAY_BE_NULL: Final = frozenset({"key", "value", "headers"})


def ddl(*, include_headers: bool) -> str:
    """The schema as Spark writes it.

    >>> ddl(include_headers=False)
    'key binary, value binary, topic string, partition int, offset bigint, timestamp timestamp, timestampType int'
    """
    names = [name for name in SPARK_TYPES if include_headers or name != "headers"]
    return ", ".join(f"{name} {SPARK_TYPES[name]}" for name in names)


def check_schema(schema: StructType) -> tuple[str, ...]:
    """The names of a user's schema; InvalidArgument unless each is a column of the source with its type."""
    names: list[str] = []
    for column in schema.fields:
        wanted = SPARK_TYPES.get(column.name)
        if wanted is None:
            raise InvalidArgument(f"there is no column {column.name!r} to read; there are {', '.join(SPARK_TYPES)}")
        found = column.dataType.simpleString()
        if found != wanted:
            raise InvalidArgument(
                f"column {column.name!r} is {wanted} and not {found}; read it as that, and cast it afterwards"
            )
        if not column.nullable and column.name in _MAY_BE_NULL:
            raise InvalidArgument(f"column {column.name!r} may be null: leave NOT NULL out of its schema")
        if column.name in names:
            raise InvalidArgument(f"column {column.name!r} is in the schema twice")
        names.append(column.name)
    if not names:
        raise InvalidArgument(f"the schema names no column; there are {', '.join(SPARK_TYPES)}")
    return tuple(names)


def log_columns(names: Sequence[str]) -> list[str]:
    """The log's columns that are needed for these: constant ones are not read, but at least one is, to count rows."""
    found = [_LOG_NAMES.get(name, name) for name in names if name not in _CONSTANT]
    return found or ["offset"]


class SparkColumns:
    """Converts one partition's batches into batches of exactly `schema`, Spark's Arrow schema. One thread."""

    def __init__(self, schema: pa.Schema, topic: str, partition: int) -> None:
        self._schema = schema
        self._constants: dict[str, object] = {"topic": topic, "partition": partition}
        self._made: dict[str, pa.Array] = {}

    @property
    def log_columns(self) -> list[str]:
        """The columns that a batch must have to be converted."""
        return log_columns(self._schema.names)

    def convert(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        import pyarrow as pa

        arrays = [self._column(field, batch) for field in self._schema]
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)

    def _column(self, field: pa.Field, batch: pa.RecordBatch) -> pa.Array:
        if field.name in _CONSTANT:
            return self._constant(field, batch.num_rows)
        array = batch.column(_LOG_NAMES.get(field.name, field.name))
        if field.name == "timestamp":
            return _in_microseconds(array, field.type)
        if field.name == "headers":
            return _nullable_headers(array, field.type)
        return array if array.type == field.type else array.cast(field.type)

    def _constant(self, field: pa.Field, rows: int) -> pa.Array:
        import pyarrow as pa

        made = self._made.get(field.name)
        if made is None or len(made) < rows:
            made = pa.repeat(pa.scalar(self._constants[field.name], field.type), max(rows, SPARK_BATCH_ROWS_MIN))
            self._made[field.name] = made
        return made.slice(0, rows)


def _in_microseconds(array: pa.Array, wanted: pa.DataType) -> pa.Array:
    import pyarrow as pa

    try:
        return array.cast(wanted)
    except pa.ArrowInvalid as error:
        raise SerializationError(
            "a record's timestamp is beyond what Spark can hold (year 294247); leave the column out, as in"
            " .schema('key binary, value binary, offset bigint')"
        ) from error


def _nullable_headers(array: pa.Array, wanted: pa.DataType) -> pa.Array:
    """Headers in Spark's type, null if there are none."""
    import pyarrow as pa
    import pyarrow.compute as pc

    rows = len(array)
    entries = array.flatten()
    if not len(entries):
        return pa.nulls(rows, wanted)
    is_present = pc.greater(pc.list_value_length(array), 0)
    pieces: list[Any] = [entries.field(0), entries.field(1)]
    element = pa.StructArray.from_arrays(pieces, fields=list(wanted.value_type))
    # For a slice, `flatten` returns only its entries, while the offsets still count from the start of the whole array.
    offsets = pc.subtract(array.offsets, array.offsets[0]) if array.offset else array.offsets
    return pa.ListArray.from_arrays(offsets, element, type=wanted, mask=pc.invert(is_present))


def resized(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Rows in batches of a good size for Spark, as each batch has a cost: small ones merged, large ones sliced.

    Between SPARK_BATCH_ROWS_MIN and SPARK_BATCH_ROWS_MAX rows and at most about SPARK_BATCH_BYTES, if rows allow.
    """
    held: list[pa.RecordBatch] = []
    held_rows = held_bytes = 0
    for batch in batches:
        size_bytes = batch.nbytes
        if held and (held_rows + batch.num_rows > SPARK_BATCH_ROWS_MAX or held_bytes + size_bytes > SPARK_BATCH_BYTES):
            yield _merged(held)
            held, held_rows, held_bytes = [], 0, 0
        if batch.num_rows >= SPARK_BATCH_ROWS_MIN or size_bytes >= SPARK_BATCH_BYTES:
            if held:
                yield _merged(held)
                held, held_rows, held_bytes = [], 0, 0
            yield from _sliced(batch, size_bytes)
        elif batch.num_rows:
            held.append(batch)
            held_rows += batch.num_rows
            held_bytes += size_bytes
    if held:
        yield _merged(held)


def _merged(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    if len(batches) == 1:
        return batches[0]
    import pyarrow as pa

    (merged,) = pa.Table.from_batches(batches).combine_chunks().to_batches()
    return merged


def _sliced(batch: pa.RecordBatch, size_bytes: int) -> Iterator[pa.RecordBatch]:
    rows = batch.num_rows
    pieces = max(-(-rows // SPARK_BATCH_ROWS_MAX), min(rows, -(-size_bytes // SPARK_BATCH_BYTES)), 1)
    for piece in range(pieces):
        start, stop = rows * piece // pieces, rows * (piece + 1) // pieces
        yield batch.slice(start, stop - start)
