"""Arrow types as columns of SQL: which ones can be kept exactly, and what each engine calls them.

Arrays, structs and maps are JSON (`nested.py`). SQLite has no exact type for decimals, dates and times: they are text
that sorts in time's order, and `CAST(amount AS REAL)` calculates with a decimal.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from foldlog.errors import InvalidArgument
from foldlog.views.storable import nested_type

if TYPE_CHECKING:
    import pyarrow as pa

_ADVICE = "cast it in the fold, or leave it out"


def kept_schema(columns: pa.Schema) -> pa.Schema:
    """The columns as they are kept and given back: one type for each kind of text, times in UTC, no metadata.

    InvalidArgument names a column whose type cannot be kept.
    """
    import pyarrow as pa

    fields = []
    for field in columns:
        try:
            fields.append(pa.field(field.name, _kept(field.type)))
        except InvalidArgument as error:
            raise InvalidArgument(f"column {field.name!r} cannot be kept in a table: {error}; {_ADVICE}") from None
    return pa.schema(fields)


def is_nested(kind: Any) -> bool:
    """Whether it is kept as JSON."""
    from pyarrow import types

    return bool(types.is_nested(kind))


def is_key_type(kind: Any) -> bool:
    """Whether values are equal exactly if SQL says so: no floats (NaN, -0.0) and no JSON."""
    from pyarrow import types

    return not (types.is_nested(kind) or types.is_floating(kind))


def postgres_type(kind: Any, *, in_key: bool = False) -> str:
    """What PostgreSQL calls it.

    Text in a key is compared byte by byte: that is quicker than any locale, and no update of the system's locales can
    put its index out of order.
    """
    from pyarrow import types

    if types.is_decimal(kind):
        return f"numeric({kind.precision}, {kind.scale})"
    if types.is_timestamp(kind):
        return "timestamptz" if kind.tz is not None else "timestamp"
    if types.is_nested(kind):
        return "jsonb"
    if types.is_string(kind):
        return 'text COLLATE "C"' if in_key else "text"
    names = {
        "bool": "boolean",
        "int8": "smallint",
        "int16": "smallint",
        "int32": "integer",
        "int64": "bigint",
        "float": "real",
        "double": "double precision",
        "binary": "bytea",
        "date32[day]": "date",
    }
    return names[str(kind)]


def sqlite_type(kind: Any) -> str:
    """What SQLite calls it."""
    from pyarrow import types

    if types.is_boolean(kind):
        return "BOOLEAN"
    if types.is_integer(kind):
        return "INTEGER"
    if types.is_floating(kind):
        return "REAL"
    return "BLOB" if types.is_binary(kind) else "TEXT"


def _kept(kind: Any) -> Any:
    import pyarrow as pa
    from pyarrow import types

    if types.is_boolean(kind) or types.is_signed_integer(kind) or types.is_date32(kind):
        return kind
    if types.is_float32(kind) or types.is_float64(kind) or types.is_decimal128(kind):
        return kind
    if types.is_string(kind) or types.is_large_string(kind):
        return pa.string()
    if types.is_binary(kind) or types.is_large_binary(kind):
        return pa.binary()
    if types.is_timestamp(kind) and kind.unit == "us":
        return pa.timestamp("us", None if kind.tz is None else "UTC")
    nested = nested_type(kind, _kept, lambda part: pa.list_(pa.field("element", part)))
    if nested is None:
        raise InvalidArgument(f"SQL has no exact type for {kind}")
    return nested
