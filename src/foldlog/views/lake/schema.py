"""The columns of a lake table: which Arrow types it has, how it grows, and how rows are converted to them.

Open table formats have one type for text, one for bytes and one for lists, whatever Arrow's layout, and times in
microseconds. So a schema is normalized to that form before it is stored or compared. Every column is nullable.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from foldlog.errors import InvalidArgument, SchemaChanged
from foldlog.limits import VIEW_SCAN_ROWS
from foldlog.views.contract import DELETED, OFFSET, PARTITION, TIMESTAMP

if TYPE_CHECKING:
    import pyarrow as pa

LITTLE_AHEAD: Final[dict[str, Any]] = {"batch_size": VIEW_SCAN_ROWS, "batch_readahead": 4, "fragment_readahead": 1}
"""How Arrow reads a lake's files: its default would keep 64 batches of 131 072 rows in memory."""


class LakeFiles(NamedTuple):
    """Some Parquet files of a lake table, newest first; the columns of the whole table, and the number of its rows,
    None if that would take long to find out."""

    schema: pa.Schema
    paths: list[str]
    row_count: int | None
    constants: Sequence[Mapping[str, object]] = ()
    """For each file what all of its rows have in the columns that are not in the file; empty if all are."""


def lake_schema(columns: pa.Schema, *, is_history: bool, int_bits_min: int = 8) -> pa.Schema:
    """The columns of a fold in a lake's types; a history has the coordinates of the records after them.

    `int_bits_min` is for formats without smaller integers.
    """
    import pyarrow as pa

    fields = [pa.field(field.name, lake_type(field.type, field.name, int_bits_min)) for field in columns]
    if is_history:
        fields += [
            pa.field(PARTITION, pa.int32()),
            pa.field(OFFSET, pa.int64()),
            pa.field(TIMESTAMP, pa.timestamp("us", "UTC")),
            pa.field(DELETED, pa.bool_()),
        ]
    return pa.schema(fields)


def lake_type(kind: Any, column: str, int_bits_min: int = 8) -> Any:
    """The type in which a lake stores values of `kind`; InvalidArgument, with the column's name, if there is none."""
    import pyarrow as pa
    from pyarrow import types

    if types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind):
        return pa.string()
    if types.is_binary(kind) or types.is_large_binary(kind) or types.is_binary_view(kind):
        return pa.binary()
    if types.is_timestamp(kind):
        return pa.timestamp("us", None if kind.tz is None else "UTC")
    if types.is_date(kind):
        return pa.date32()
    if types.is_decimal(kind) and kind.precision <= 38 and kind.scale >= 0:
        return pa.decimal128(kind.precision, kind.scale)
    if types.is_signed_integer(kind):
        return kind if kind.bit_width >= int_bits_min else pa.int32()
    if kind in (pa.bool_(), pa.float32(), pa.float64()):
        return kind
    nested = _nested_type(kind, column, int_bits_min)
    if nested is None:
        raise InvalidArgument(f"a lake has no type for column {column!r} of type {kind}; cast it in the fold")
    return nested


def _nested_type(kind: Any, column: str, int_bits_min: int) -> Any:
    import pyarrow as pa
    from pyarrow import types

    def inner(kind: Any, name: str) -> Any:
        return lake_type(kind, f"{column}.{name}", int_bits_min)

    if types.is_struct(kind):
        return pa.struct([pa.field(field.name, inner(field.type, field.name)) for field in kind])
    if types.is_map(kind):
        return pa.map_(inner(kind.key_type, "key"), inner(kind.item_type, "value"))
    if types.is_list(kind) or types.is_large_list(kind):
        return pa.list_(pa.field("element", inner(kind.value_type, "element")))
    return None


def missing_fields(stored: pa.Schema, wanted: pa.Schema, location: str) -> list[pa.Field]:
    """The columns that `stored` lacks; SchemaChanged if a column has another type now."""
    missing = []
    for field in wanted:
        number = stored.get_field_index(field.name)
        if number < 0:
            missing.append(field)
            continue
        found = lake_type(stored.field(number).type, field.name)
        if found != field.type:
            raise SchemaChanged(location, f"column {field.name!r} is {found} there and {field.type} here")
    return missing


def fitted(rows: pa.Table, stored: pa.Schema, location: str) -> pa.Table:
    """The rows with the columns of `stored`, in its order; null if the rows have no such column."""
    import pyarrow as pa

    unknown = [name for name in rows.column_names if stored.get_field_index(name) < 0]
    if unknown:
        raise SchemaChanged(location, f"it has no column {unknown[0]!r}")
    columns = []
    for field in stored:
        if rows.schema.get_field_index(field.name) < 0:
            columns.append(pa.nulls(rows.num_rows, field.type))
        else:
            columns.append(rows[field.name].cast(field.type))
    return pa.table(columns, schema=stored)
