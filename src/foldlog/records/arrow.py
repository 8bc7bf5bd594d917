"""Batches to Arrow and back: each buffer of batches becomes one RecordBatch in one compiled pass, without a Python
object per record. Imported only on use, since it needs pyarrow.

Columns are those of Spark's Kafka source: topic, partition, offset, timestamp, timestamp_type (0: set by the
producer, 1: by the log), key, value, headers.
"""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from foldlog.errors import InvalidArgument, SerializationError
from foldlog.limits import ARROW_DECOMPRESSED_BYTES
from foldlog.records import columns as col
from foldlog.records.batch import MAX_INT64
from foldlog.records.columns import PackedBatch
from foldlog.records.compression import READ_DECOMPRESSED_BYTES
from foldlog.records.loops import Record, gather, pack_columns, route_rows

COLUMNS: Final = ("topic", "partition", "offset", "timestamp", "timestamp_type", "key", "value", "headers")

_HEADER_TYPE: Final = pa.struct([pa.field("key", pa.string(), nullable=False), pa.field("value", pa.binary())])
_TYPES: Final[dict[str, pa.DataType]] = {
    "topic": pa.string(),
    "partition": pa.int32(),
    "offset": pa.int64(),
    "timestamp": pa.timestamp("ms", tz="UTC"),
    "timestamp_type": pa.int8(),
    "key": pa.binary(),
    "value": pa.binary(),
    "headers": pa.list_(pa.field("item", _HEADER_TYPE, nullable=False)),
}
_WANTS: Final = {
    "offset": col.WANT_OFFSET,
    "timestamp": col.WANT_TIMESTAMP,
    "timestamp_type": col.WANT_TIMESTAMP_TYPE,
    "key": col.WANT_KEY,
    "value": col.WANT_VALUE,
    "headers": col.WANT_HEADERS,
}
_NULLABLE: Final = frozenset({"key", "value"})

_PACKED_BYTES_PER_CALL: Final = 256 << 10
"""How much one compiled call packs: enough small batches to hide the cost of the call, no more than fits the cache."""


def schema(columns: Sequence[str] = COLUMNS) -> pa.Schema:
    """The types of these columns, in this order.

    >>> schema(["offset", "value"]).names
    ['offset', 'value']
    """
    unknown = [name for name in columns if name not in _TYPES]
    if unknown:
        raise InvalidArgument(f"there is no column {unknown[0]!r}; there are {', '.join(COLUMNS)}")
    if len(set(columns)) != len(columns):
        raise InvalidArgument("a column is asked for twice")
    return pa.schema([pa.field(name, _TYPES[name], nullable=name in _NULLABLE) for name in columns])


def to_arrow(
    buffer: Any,
    *,
    topic: str,
    partition: int,
    start_offset: int = 0,
    end_offset: int = MAX_INT64,
    columns: Sequence[str] = COLUMNS,
    decompressed_limit: int = READ_DECOMPRESSED_BYTES,
    enough_bytes: int = MAX_INT64,
) -> tuple[pa.RecordBatch, int]:
    """The data records with start_offset <= offset < end_offset, and the offset to go on from.

    `buffer` holds whole batches that `walk` has verified. Columns that are not requested are not built. Ends early,
    after the batch with which `enough_bytes` are decompressed.
    """
    wanted_schema = schema(columns)
    wanted = sum(_WANTS.get(name, 0) for name in columns)
    gathered = gather(
        buffer,
        wanted,
        start_offset=start_offset,
        end_offset=end_offset,
        decompressed_limit=decompressed_limit,
        enough_bytes=enough_bytes,
    )
    arrays = [_column(name, gathered, topic, partition) for name in columns]
    if not arrays:
        # Without columns only a struct without fields can carry the number of rows.
        empty = pa.Array.from_buffers(pa.struct([]), gathered.rows, [None])
        return pa.RecordBatch.from_struct_array(empty), gathered.next_offset
    return pa.RecordBatch.from_arrays(arrays, schema=wanted_schema), gathered.next_offset


def arrow_batches(
    buffer: Any,
    *,
    topic: str,
    partition: int,
    start_offset: int = 0,
    end_offset: int = MAX_INT64,
    columns: Sequence[str] = COLUMNS,
    decompressed_limit: int = READ_DECOMPRESSED_BYTES,
    enough_bytes: int = ARROW_DECOMPRESSED_BYTES,
) -> Iterator[pa.RecordBatch]:
    """The records in as many batches as needed for each to have a bounded size, however well they were compressed. None
    is empty. An `end_offset` at the end of the buffer saves a last check for more.
    """
    offset, reached = start_offset - 1, start_offset
    while offset < reached < end_offset:
        offset = reached
        batch, reached = to_arrow(
            buffer,
            topic=topic,
            partition=partition,
            start_offset=offset,
            end_offset=end_offset,
            columns=columns,
            decompressed_limit=decompressed_limit,
            enough_bytes=enough_bytes,
        )
        if batch.num_rows:
            yield batch


def _column(name: str, gathered: col.Gathered, topic: str, partition: int) -> pa.Array:
    rows = gathered.rows
    if name == "topic":
        return pa.repeat(pa.scalar(topic, pa.string()), rows)
    if name == "partition":
        return pa.repeat(pa.scalar(partition, pa.int32()), rows)
    if name == "headers":
        return _headers_array(gathered)
    if name in ("key", "value"):
        return _binary_array(pa.binary(), rows, getattr(gathered, name))
    return pa.Array.from_buffers(_TYPES[name], rows, [None, pa.py_buffer(getattr(gathered, name))])


def _binary_array(kind: pa.DataType, rows: int, column: col.GatheredBinary) -> pa.Array:
    validity = None if column.validity is None else pa.py_buffer(column.validity)
    buffers = [validity, pa.py_buffer(column.offsets), pa.py_buffer(column.data)]
    return pa.Array.from_buffers(kind, rows, buffers, null_count=column.null_count)


def _headers_array(gathered: col.Gathered) -> pa.Array:
    headers = gathered.headers
    if headers is None:
        raise InvalidArgument("the headers were not gathered")
    entries = pa.Array.from_buffers(
        _HEADER_TYPE,
        headers.entries,
        [None],
        children=[
            _binary_array(pa.string(), headers.entries, headers.key),
            _binary_array(pa.binary(), headers.entries, headers.value),
        ],
    )
    offsets = [None, pa.py_buffer(headers.offsets)]
    return pa.Array.from_buffers(_TYPES["headers"], gathered.rows, offsets, null_count=0, children=[entries])


def pack_arrow(
    data: pa.Table | pa.RecordBatch,
    *,
    now_ms: int,
    compression: int = 0,
    level: int | None = None,
    max_batch_bytes: int,
    max_batch_records: int = 1 << 16,
) -> Iterator[PackedBatch]:
    """The rows as batches, in order. `value` is required; `key`, `headers` and `timestamp` are used if present.

    Values and keys may be binary or strings of any layout, or dictionaries of those; a null value is a tombstone.
    Timestamps may have any unit and zone, or be int64 milliseconds; a null one becomes `now_ms`. `first_row` counts
    from the start of the data. A batch is closed before it would exceed `max_batch_bytes` (before compression) or
    `max_batch_records`.
    """
    if "value" not in data.schema.names:
        raise SerializationError(f"there is no column 'value' to append; there are {', '.join(data.schema.names)}")
    pieces = [data] if isinstance(data, pa.RecordBatch) else data.to_batches()
    rows_before = 0
    for piece in pieces:
        names = piece.schema.names
        value = binary_input("value", piece.column("value"))
        key = binary_input("key", piece.column("key")) if "key" in names else None
        headers = _headers_input(piece.column("headers")) if "headers" in names else None
        timestamp = _timestamp_input(piece.column("timestamp")) if "timestamp" in names else None
        row = 0
        while row < piece.num_rows:
            packed = pack_columns(
                value,
                key,
                headers,
                timestamp,
                piece.num_rows,
                first_row=row,
                now_ms=now_ms,
                max_batch_bytes=max_batch_bytes,
                max_batch_records=max_batch_records,
                enough_bytes=_PACKED_BYTES_PER_CALL,
                compression=compression,
                level=level,
            )
            for batch in packed:
                yield batch._replace(first_row=rows_before + batch.first_row) if rows_before else batch
            row = packed[-1].first_row + packed[-1].record_count
        rows_before += piece.num_rows


def _refused(name: str, kind: pa.DataType, allowed: str) -> SerializationError:
    return SerializationError(f"column {name!r} is {kind}; it has to be {allowed}")


def binary_input(name: str, array: pa.Array) -> col.BinaryInput:
    """A column's buffers as the loops take them; layouts other than offsets and bytes are cast, which copies."""
    kind = array.type
    if pa.types.is_dictionary(kind):
        return binary_input(name, array.dictionary_decode())
    if pa.types.is_null(kind):
        array = array.cast(pa.binary())
    elif pa.types.is_fixed_size_binary(kind) or pa.types.is_binary_view(kind):
        array = array.cast(pa.large_binary())
    elif pa.types.is_string_view(kind):
        array = array.cast(pa.large_string())
    wide = pa.types.is_large_binary(array.type) or pa.types.is_large_string(array.type)
    if not wide and not pa.types.is_binary(array.type) and not pa.types.is_string(array.type):
        raise _refused(name, kind, "binary or string (or a dictionary of those); cast it first")
    validity, offsets, data = array.buffers()
    if offsets is None or offsets.size == 0:
        # An array without rows may have no offsets at all.
        offsets = bytes(16)
    return col.BinaryInput(name, offsets, wide, data, validity if array.null_count else None, array.offset)


def _timestamp_input(array: pa.Array) -> col.Int64Input:
    kind = array.type
    if pa.types.is_dictionary(kind):
        return _timestamp_input(array.dictionary_decode())
    if pa.types.is_null(kind):
        array = array.cast(pa.int64())
    elif pa.types.is_timestamp(kind):
        # Finer units are cut to milliseconds: a record has no finer ones.
        unit_ms = pa.timestamp("ms", tz=kind.tz)
        try:
            array = pc.cast(array, unit_ms, safe=False) if kind.unit in ("us", "ns") else array.cast(unit_ms)
        except pa.ArrowInvalid as error:
            raise SerializationError(f"column 'timestamp' holds a time that is out of range: {error}") from error
    elif not pa.types.is_int64(kind):
        raise _refused("timestamp", kind, "a timestamp, or int64 milliseconds since 1970")
    validity, data = array.buffers()
    return col.Int64Input("timestamp", data or b"", validity if array.null_count else None, array.offset)


def _headers_input(array: pa.Array) -> col.HeadersInput | None:
    kind = array.type
    if pa.types.is_null(kind):
        return None
    wide = pa.types.is_large_list(kind)
    allowed = "list<struct<key: string, value: binary>>"
    if not wide and not pa.types.is_list(kind) and not pa.types.is_map(kind):
        raise _refused("headers", kind, allowed)
    entry_type = kind.value_type if not pa.types.is_map(kind) else pa.struct([kind.key_field, kind.item_field])
    if not pa.types.is_struct(entry_type) or entry_type.num_fields != 2:
        raise _refused("headers", kind, allowed)
    validity, offsets = array.buffers()[:2]
    entries = (
        pa.StructArray.from_arrays([array.keys, array.items], ["key", "value"])
        if pa.types.is_map(kind)
        else array.values
    )
    if entries.null_count:
        raise SerializationError("column 'headers' holds a header that is null")
    return col.HeadersInput(
        offsets or bytes(16),
        wide,
        validity if array.null_count else None,
        array.offset,
        len(entries),
        _header_field("headers.key", entries, "key", 0),
        _header_field("headers.value", entries, "value", 1),
    )


def _header_field(name: str, entries: pa.StructArray, field: str, position: int) -> col.BinaryInput:
    """A field of the entries by name, else by position."""
    index = entries.type.get_field_index(field)
    column = entries.field(index if index >= 0 else position)
    if field == "key" and not pa.types.is_null(column.type):
        # A header's key is text, so bytes have to be UTF-8.
        try:
            column = column.cast(pa.large_string())
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            raise SerializationError(f"column {name!r} is not text: {error}") from error
    return binary_input(name, column)


def route(batch: pa.RecordBatch, partitions: int) -> list[tuple[int, pa.RecordBatch]]:
    """The rows by partition, ascending, in order within each.

    The column `partition` decides if it is present and not null; else the key, as Java clients hash it; rows with
    neither come first, with partition -1: the caller chooses where they go.
    """
    names = batch.schema.names
    key = binary_input("key", batch.column("key")) if "key" in names else None
    partition = _partition_input(batch.column("partition")) if "partition" in names else None
    found = route_rows(key, partition, batch.num_rows, partitions)
    if len(found) == 1:
        return [(found[0][0], batch)]
    return [(number, batch.take(_indices(rows))) for number, rows in found]


def _indices(rows: Any) -> pa.Array:
    buffer = pa.py_buffer(rows)
    return pa.Array.from_buffers(pa.int64(), buffer.size // 8, [None, buffer])


def _partition_input(array: pa.Array) -> col.Int64Input:
    if not pa.types.is_integer(array.type) and not pa.types.is_null(array.type):
        raise _refused("partition", array.type, "an integer")
    numbers = array.cast(pa.int64())
    validity, data = numbers.buffers()
    return col.Int64Input("partition", data or b"", validity if numbers.null_count else None, numbers.offset)


# --- single records ---------------------------------------------------------------------------------------------------


def parquet_of(records: Sequence[Record]) -> bytes:
    """A Parquet file of a few records, with the columns of `schema`.

    >>> parquet_of([Record("orders", 0, 7, 5, 0, b"u1", b"paid")])[:4]
    b'PAR1'
    """
    import pyarrow.parquet as pq  # loads much that reading does not need

    columns: dict[str, list[Any]] = {
        "topic": [one.topic for one in records],
        "partition": [one.partition for one in records],
        "offset": [one.offset for one in records],
        "timestamp": [one.timestamp_ms for one in records],
        "timestamp_type": [one.timestamp_type for one in records],
        "key": [one.key for one in records],
        "value": [one.value for one in records],
        "headers": [[{"key": name, "value": value} for name, value in one.headers] for one in records],
    }
    kinds = schema(list(columns))
    arrays = [pa.array(values, kinds.field(name).type) for name, values in columns.items()]
    file = io.BytesIO()
    pq.write_table(pa.Table.from_arrays(arrays, schema=kinds), file)
    return file.getvalue()
