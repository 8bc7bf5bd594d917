"""Arrow columns as values that SQLite stores, and back. Whole columns at a time; the engine's interface needs a Python
object per value.

Decimals, dates and times are text; NaN, which the engine would store as null, is the text 'NaN'.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from foldlog.errors import ViewUnavailable
from foldlog.views.sql.nested import decode_nested, encode_nested

if TYPE_CHECKING:
    import pyarrow as pa


def to_values(column: Any) -> list[Any]:
    """The values to bind for a column, one for each row."""
    import pyarrow as pa
    import pyarrow.compute as pc
    from pyarrow import types

    kind = column.type
    if types.is_nested(kind):
        column = encode_nested(column)
    elif types.is_floating(kind):
        values: list[Any] = column.to_pylist()
        if not pc.any(pc.is_nan(column)).as_py():
            return values
        return ["NaN" if value != value else value for value in values]  # only NaN differs from itself
    elif types.is_timestamp(kind):
        column = column.cast(pa.timestamp("us")).cast(pa.string())  # with its zone it would take twenty times as long
        if kind.tz is not None:
            column = pc.binary_join_element_wise(column, "Z", "")
    elif types.is_decimal(kind) or types.is_date(kind):
        column = column.cast(pa.string())
    bound: list[Any] = column.to_pylist()
    return bound


def from_values(rows: Sequence[tuple[Any, ...]], columns: pa.Schema, location: str) -> pa.RecordBatch:
    """A batch of rows that were read."""
    import pyarrow as pa

    by_column = list(zip(*rows, strict=True)) if rows else [()] * len(columns)
    arrays = []
    for values, field in zip(by_column, columns, strict=True):
        try:
            arrays.append(_array(values, field.type))
        except (ValueError, TypeError, KeyError, AttributeError) as error:  # Arrow's errors derive from these
            why = f"its column {field.name!r} holds what no fold wrote ({error}); rebuild it"
            raise ViewUnavailable(location, why) from error
    return pa.RecordBatch.from_arrays(arrays, schema=columns)


def _array(values: Sequence[Any], kind: Any) -> Any:
    import pyarrow as pa
    from pyarrow import types

    if types.is_nested(kind):
        return decode_nested(values, kind)
    if types.is_floating(kind):
        return pa.array([float(value) if isinstance(value, str) else value for value in values], pa.float64()).cast(
            kind
        )
    if types.is_boolean(kind):
        return pa.array(values, pa.int8()).cast(kind)
    if types.is_decimal(kind) or types.is_temporal(kind):
        return pa.array(values, pa.string()).cast(kind)
    return pa.array(values, kind)
