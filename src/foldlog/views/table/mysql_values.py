"""Arrow columns as values and types of MySQL and MariaDB, and back. Whole columns at a time.

Times are DATETIME(6) in UTC: a TIMESTAMP ends in 2038. Text of a key is compared by its characters alone, with the
spaces at its end: other collations hold 'a' and 'A ' for the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from foldlog.errors import InvalidArgument, ViewUnavailable
from foldlog.views.sql.names import quoted
from foldlog.views.sql.nested import decode_nested, encode_nested
from foldlog.views.table.shape import TableShape

if TYPE_CHECKING:
    import pyarrow as pa

KEY_BYTES: Final = 3072
"""The most that InnoDB puts into an index."""

_OTHER_BYTES: Final = 20
"""At least as much as a column of a key takes that is no text."""

_SCALE_MAX: Final = 30

_TYPES: Final = {
    "bool": "BOOLEAN",
    "int8": "TINYINT",
    "int16": "SMALLINT",
    "int32": "INT",
    "int64": "BIGINT",
    "float": "FLOAT",
    "double": "DOUBLE",
    "date32[day]": "DATE",
}


def mysql_type(kind: Any, *, key_characters: int | None, is_mariadb: bool) -> str:
    """The engine's name of a type; text and binary of a key are as long as the index allows."""
    from pyarrow import types

    if types.is_decimal(kind):
        if not 0 <= kind.scale <= min(_SCALE_MAX, kind.precision):
            raise InvalidArgument(f"MySQL has no {kind}: it keeps up to {_SCALE_MAX} digits after the point")
        return f"DECIMAL({kind.precision}, {kind.scale})"
    if types.is_timestamp(kind):
        return "DATETIME(6)"
    if types.is_nested(kind):
        return "JSON"
    if types.is_string(kind):
        name = "LONGTEXT" if key_characters is None else f"VARCHAR({key_characters})"
        collation = "utf8mb4_nopad_bin" if is_mariadb else "utf8mb4_0900_bin"
        return f"{name} CHARACTER SET utf8mb4 COLLATE {collation}"
    if types.is_binary(kind):
        return "LONGBLOB" if key_characters is None else f"VARBINARY({key_characters * 4})"
    return _TYPES[str(kind)]


def key_lengths(key: Sequence[str], columns: pa.Schema) -> dict[str, int]:
    """How many characters each text of an index may have; a binary column, four times as many bytes."""
    texts = [name for name in key if _has_length(columns.field(name).type)]
    if not texts:
        return {}
    room = KEY_BYTES - _OTHER_BYTES * (len(key) - len(texts))
    return dict.fromkeys(texts, room // 4 // len(texts))


def indexed_lengths(shape: TableShape) -> dict[str, int]:
    """Of the columns of the primary key, and of those that rows are found by."""
    found = key_lengths(shape.key, shape.columns)
    if shape.record_key is not None and shape.record_key not in found:
        found |= key_lengths((shape.record_key,), shape.columns)
    return found


def too_long(keys: pa.Table) -> Any:
    """Flags the rows of key columns with a value that is too long; None if there are none."""
    import pyarrow.compute as pc
    from pyarrow import types

    flags: Any = None
    for name, length in key_lengths(keys.column_names, keys.schema).items():
        column = keys[name]
        is_text = not types.is_binary(column.type) and not types.is_large_binary(column.type)
        size = pc.utf8_length(column) if is_text else pc.binary_length(column)
        found = pc.fill_null(pc.greater(size, length if is_text else length * 4), False)
        flags = found if flags is None else pc.or_(flags, found)
    return flags if flags is not None and pc.any(flags).as_py() else None


def _has_length(kind: Any) -> bool:
    from pyarrow import types

    return bool(
        types.is_string(kind) or types.is_large_string(kind) or types.is_binary(kind) or types.is_large_binary(kind)
    )


def to_values(column: Any) -> list[Any]:
    """The values to bind for a column, one for each row."""
    import pyarrow as pa
    from pyarrow import types

    kind = column.type
    if types.is_nested(kind):
        column = encode_nested(column)
    elif types.is_timestamp(kind):
        column = column.cast(pa.timestamp("us")).cast(pa.string())
    elif types.is_decimal(kind) or types.is_date(kind):
        column = column.cast(pa.string())
    bound: list[Any] = column.to_pylist()
    return bound


def selected(columns: pa.Schema) -> str:
    """What to select of each column. A FLOAT by itself would be printed with six digits."""
    from pyarrow import types

    return ", ".join(
        f"{quoted(field.name)} + 0e0" if types.is_float32(field.type) else quoted(field.name) for field in columns
    )


def from_values(rows: Sequence[tuple[Any, ...]], columns: pa.Schema, location: str) -> pa.RecordBatch:
    """A batch of rows that were read, as texts and bytes."""
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
    if types.is_string(kind) or types.is_binary(kind):
        return pa.array(values, kind)
    texts = pa.array(values, pa.string())
    if types.is_boolean(kind):
        return texts.cast(pa.int8()).cast(kind)
    if types.is_timestamp(kind):
        return texts.cast(pa.timestamp("us")).cast(kind)
    if types.is_float32(kind):
        return texts.cast(pa.float64()).cast(kind)
    return texts.cast(kind)
