"""Arrow columns as input of COPY, and output of COPY as Arrow columns: CSV, written and read by Arrow.

No Python object per value, except for arrays, structs and maps, and for reading binary. Text is always quoted, and null
never, so that CSV distinguishes "" from null. Values that PostgreSQL cannot store are found before anything is sent.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

from foldlog.errors import FoldError, ViewUnavailable
from foldlog.limits import VIEW_SCAN_ROWS
from foldlog.views.contract import Delta
from foldlog.views.sql.names import TableName, quoted, quoted_list
from foldlog.views.sql.nested import decode_nested, encode_nested
from foldlog.views.storable import columns_where, is_nul, rows_where
from foldlog.views.table.rows import where_first

if TYPE_CHECKING:
    import pyarrow as pa

    from foldlog.views.sql.postgres import Connection

COPY_OPTIONS: Final = "(FORMAT csv, ENCODING 'UTF8')"

_SENT_BYTES: Final = 256 << 10
"""The size of a piece passed to the connection."""

_BATCH_ROWS: Final = 8192

_SCAN_BYTES: Final = 8 << 20
"""The maximum size of a scan's batch."""


def csv_of(rows: pa.Table) -> Iterator[memoryview]:
    """The CSV of rows prepared by `storable`, in pieces of bounded size, which may end inside a row."""
    import pyarrow as pa
    from pyarrow import csv

    sink = pa.BufferOutputStream()
    texts = pa.table([_text(column) for column in rows.columns], names=rows.column_names)
    if any(not len(chunk) for column in texts.columns for chunk in column.chunks):
        texts = texts.combine_chunks()  # of an empty chunk, Arrow 26 writes bytes that happen to be in memory
    options = csv.WriteOptions(include_header=False, quoting_style="needed", batch_size=_BATCH_ROWS)
    csv.write_csv(texts, sink, options)
    whole = memoryview(sink.getvalue())
    for start in range(0, len(whole), _SENT_BYTES):
        yield whole[start : start + _SENT_BYTES]


def copy_in(connection: Connection, table: TableName, rows: pa.Table) -> None:
    """Insert rows prepared by `storable` or `encoded`."""
    if not rows.num_rows:
        return
    statement = f"COPY {table.sql} ({quoted_list(rows.column_names)}) FROM STDIN {COPY_OPTIONS}"
    with connection.cursor() as cursor, cursor.copy(statement.encode()) as copy:
        for piece in csv_of(rows):
            copy.write(piece)


def copy_out(
    connection: Connection, table: TableName, columns: pa.Schema, location: str, wanted: str = ""
) -> Iterator[pa.RecordBatch]:
    """All rows of a table, or those that `wanted` joins."""
    statement = f"COPY (SELECT {select_list(columns)} FROM {table.sql} {wanted}) TO STDOUT {COPY_OPTIONS}"
    lines: list[Any] = []
    size_bytes = 0
    with connection.cursor() as cursor, cursor.copy(statement.encode()) as copy:
        for line in copy:  # the server sends row by row, so a piece never ends inside a row
            lines.append(line)
            size_bytes += len(line)
            if len(lines) >= VIEW_SCAN_ROWS or size_bytes >= _SCAN_BYTES:
                yield batch_of(b"".join(lines), columns, location)
                lines, size_bytes = [], 0
    if lines:
        yield batch_of(b"".join(lines), columns, location)


def storable(delta: Delta, rows: pa.Table, location: str) -> pa.Table:
    """The rows of a change with nested values as JSON; FoldError, with the offset, for text that cannot be stored."""
    for name, _ in columns_where(rows, is_nul):
        where = where_first(delta, name, lambda column: rows_where(column, is_nul))
        raise FoldError(
            f"{location} cannot hold the text in column {name!r} at {where}: it has a character NUL,"
            " which PostgreSQL cannot store; replace it in the fold, or fold into another engine"
        )
    return encoded(rows)


def encoded(rows: pa.Table) -> pa.Table:
    """The rows with nested values as JSON."""
    from pyarrow import types

    for number, name in enumerate(rows.column_names):
        if types.is_nested(rows.column(number).type):
            rows = rows.set_column(number, name, encode_nested(rows.column(number)))
    return rows


def select_list(columns: pa.Schema) -> str:
    """The columns of a SELECT whose CSV `batch_of` reads. Times come without their zone, which is UTC."""
    from pyarrow import types

    return ", ".join(
        f"{quoted(field.name)} AT TIME ZONE 'UTC'"
        if types.is_timestamp(field.type) and field.type.tz is not None
        else quoted(field.name)
        for field in columns
    )


def batch_of(data: bytes, columns: pa.Schema, location: str) -> pa.RecordBatch:
    """Complete lines of CSV as a batch."""
    import pyarrow as pa
    from pyarrow import csv

    read = csv.ReadOptions(column_names=columns.names, block_size=max(len(data) + 1, 1 << 20), use_threads=False)
    parse = csv.ParseOptions(newlines_in_values=True, ignore_empty_lines=False)
    convert = csv.ConvertOptions(
        column_types={field.name: _read_type(field.type) for field in columns},
        null_values=[""],
        true_values=["t"],
        false_values=["f"],
        strings_can_be_null=True,
        quoted_strings_can_be_null=False,
    )
    try:
        found = csv.read_csv(pa.BufferReader(data), read, parse, convert).combine_chunks()
        arrays = [_from_text(found[field.name].combine_chunks(), field.type) for field in columns]
    except (ValueError, TypeError, KeyError, AttributeError) as error:  # Arrow's errors derive from these
        raise ViewUnavailable(location, f"it holds what no fold wrote ({error}); rebuild it") from error
    return pa.RecordBatch.from_arrays(arrays, schema=columns)


def _text(column: Any) -> Any:
    """A column whose CSV PostgreSQL reads as the same value."""
    import pyarrow as pa
    from pyarrow import types

    kind = column.type
    if types.is_binary(kind):
        return pa.chunked_array([_hex(chunk) for chunk in column.chunks], pa.large_string())
    if types.is_timestamp(kind):
        return column.cast(pa.timestamp("us"))  # with its zone, which is UTC, this would take twenty times as long
    return column


def _hex(chunk: Any) -> Any:
    r"""Bytes as the text \x0aff. All bytes of the column become digits in one call; the offsets just double."""
    import pyarrow as pa
    import pyarrow.compute as pc

    flat = pa.concat_arrays([chunk]) if chunk.offset == 0 else pa.array(chunk.to_pylist(), pa.binary())
    offsets = pa.Array.from_buffers(pa.int32(), len(flat) + 1, [None, flat.buffers()[1]])
    begin, end = (offsets[0].as_py(), offsets[len(flat)].as_py()) if len(flat) else (0, 0)
    data = flat.buffers()[2]
    digits = memoryview(data)[begin:end].hex().encode() if data is not None else b""
    doubled = pc.multiply(pc.subtract(offsets.cast(pa.int64()), begin), 2)
    texts = pa.Array.from_buffers(
        pa.large_string(), len(flat), [flat.buffers()[0], doubled.buffers()[1], pa.py_buffer(digits)], flat.null_count
    )
    prefix, nothing = pa.scalar("\\x", pa.large_string()), pa.scalar("", pa.large_string())
    return pc.binary_join_element_wise(prefix, texts, nothing)


def _read_type(kind: Any) -> Any:
    import pyarrow as pa
    from pyarrow import types

    if types.is_nested(kind) or types.is_binary(kind):
        return pa.string()
    if types.is_timestamp(kind):
        return pa.timestamp("us")
    return kind


def _from_text(column: Any, kind: Any) -> Any:
    import pyarrow as pa
    from pyarrow import types

    if types.is_nested(kind):
        return decode_nested(column.to_pylist(), kind)
    if types.is_binary(kind):
        return pa.array([None if text is None else bytes.fromhex(text[2:]) for text in column.to_pylist()], kind)
    return column.cast(kind)
