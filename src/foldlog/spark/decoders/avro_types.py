"""Avro schemas as Arrow types, and the conversions from fastavro's values to Arrow's."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from datetime import date, datetime, time
from decimal import Decimal
from typing import Any, Final
from uuid import UUID

import pyarrow as pa

from foldlog.client.schemas.lookups import RegisteredSchema
from foldlog.errors import InvalidArgument, MissingDependency
from foldlog.spark.decoders.row_columns import Unreadable
from foldlog.spark.decoders.text_types import NAIVE_MICROS, UTC_MICROS, is_within_calendar

Convert = Callable[[Any], Any]

_PRIMITIVES: Final[dict[str, pa.DataType]] = {
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "bytes": pa.binary(),
    "string": pa.string(),
}
_LOGICAL: Final[dict[tuple[str, str], pa.DataType]] = {
    ("int", "date"): pa.date32(),
    ("long", "timestamp-millis"): UTC_MICROS,
    ("long", "timestamp-micros"): UTC_MICROS,
    ("long", "local-timestamp-millis"): NAIVE_MICROS,
    ("long", "local-timestamp-micros"): NAIVE_MICROS,
    ("int", "time-millis"): pa.int32(),
    ("long", "time-micros"): pa.int64(),
    ("string", "uuid"): pa.string(),
}
_NANOS: Final = ("timestamp-nanos", "local-timestamp-nanos")
_WIDENED: Final = {frozenset({"int", "long"}): "long", frozenset({"float", "double"}): "double"}
_DECIMAL_DIGITS_MAX: Final = 38
_DAY_US: Final = 86_400_000_000
_KINDS: Final[dict[str, type]] = {
    "boolean": bool,
    "int": int,
    "long": int,
    "float": float,
    "double": float,
    "bytes": bytes,
    "string": str,
    "array": list,
    "map": dict,
}


def parse_avro(schema: Any) -> tuple[Any, dict[str, Any]]:
    """A schema (JSON text, the result of json.loads, or a registry's) as fastavro wants it, and the types it names.

    InvalidArgument for schemas that cannot be columns or cannot be read safely: recursive types, and arrays of items
    that take no bytes, for which a few bytes could announce any length.
    """
    try:
        import fastavro
        from fastavro.schema import SchemaParseException, UnknownType
    except ImportError as error:
        raise MissingDependency("decoding Avro", "fastavro", "decoders") from error
    named: dict[str, Any] = {}
    references: tuple[str, ...] = ()
    if isinstance(schema, RegisteredSchema):
        schema, references = schema.text, schema.references
    try:
        for text in references:
            fastavro.parse_schema(json.loads(text), named_schemas=named)
        given = json.loads(schema) if isinstance(schema, str) else schema
        parsed = fastavro.parse_schema(given, named_schemas=named)
    except (SchemaParseException, UnknownType, ValueError, KeyError, TypeError, AttributeError) as error:
        raise InvalidArgument(f"this is not an Avro schema: {str(error)[:200] or type(error).__name__}") from error
    _check(parsed, named, ())
    return parsed, named


def _check(schema: Any, named: dict[str, Any], inside: tuple[str, ...]) -> bool:
    """Whether its values always take at least one byte; InvalidArgument if the schema is not allowed."""
    schema = resolved(schema, named)
    if isinstance(schema, str):
        return schema != "null"
    if isinstance(schema, list):
        for branch in schema:
            _check(branch, named, inside)
        return True
    kind = schema["type"]
    if kind in ("record", "error"):
        name = schema["name"]
        if name in inside:
            raise InvalidArgument(f"Avro type {name!r} contains itself: columns cannot")
        take_bytes = [_check(field["type"], named, (*inside, name)) for field in schema["fields"]]
        return any(take_bytes)
    if kind in ("array", "map"):
        takes_bytes = _check(schema["items" if kind == "array" else "values"], named, inside)
        if kind == "array" and not takes_bytes:
            raise InvalidArgument("an Avro array of items that take no bytes could have any length")
        return True
    if kind == "fixed":
        return bool(schema["size"] > 0)
    return bool(kind != "null")


def resolved(schema: Any, named: dict[str, Any]) -> Any:
    """Resolve a named type, and unwrap a type that is only wrapped."""
    while True:
        if isinstance(schema, str) and schema in named:
            schema = named[schema]
        elif isinstance(schema, dict) and isinstance(schema["type"], dict | list):
            schema = schema["type"]
        elif isinstance(schema, dict) and schema["type"] in named and schema["type"] not in _PRIMITIVES:
            schema = named[schema["type"]]
        else:
            return schema


def logical_types(schema: Any, named: dict[str, Any]) -> Iterator[str]:
    """The names of all logical types inside."""
    schema = resolved(schema, named)
    if isinstance(schema, list):
        for branch in schema:
            yield from logical_types(branch, named)
    elif isinstance(schema, dict):
        if "logicalType" in schema:
            yield str(schema["logicalType"])
        for field in schema.get("fields", ()):
            yield from logical_types(field["type"], named)
        for part in ("items", "values"):
            if part in schema:
                yield from logical_types(schema[part], named)


def has_nanos(schema: Any, named: dict[str, Any]) -> bool:
    """Whether a type has nanoseconds: fastavro does not know them and returns numbers that look like microseconds."""
    return any(name in _NANOS for name in logical_types(schema, named))


def arrow_type(schema: Any, named: dict[str, Any], path: str) -> tuple[pa.DataType, Convert | None]:
    """The type of a column, and the conversion from fastavro's values; None if Arrow takes them as they are."""
    schema = resolved(schema, named)
    if isinstance(schema, list):
        return _union(schema, named, path)
    if isinstance(schema, str):
        schema = {"type": schema}
    kind = schema["type"]
    if kind in ("record", "error"):
        return _record(schema, named, path)
    if kind == "enum":
        return pa.string(), _unnamed
    if kind == "array":
        of, convert = arrow_type(schema["items"], named, f"{path}[]")
        return pa.list_(pa.field("element", of)), None if convert is None else _each(convert)
    if kind == "map":
        of, convert = arrow_type(schema["values"], named, f"{path}{{}}")
        return pa.map_(pa.string(), of), _items(convert)
    if schema.get("logicalType") == "decimal" and kind in ("bytes", "fixed"):
        return _decimal(schema, path), _unnamed if kind == "fixed" else None
    if kind == "fixed":
        return pa.binary(), _unnamed
    if kind in _PRIMITIVES:
        return _primitive(kind, schema.get("logicalType"), path)
    raise InvalidArgument(f"Avro field {path!r} of type {kind!r} has no column type; leave it out of the schema")


def _primitive(kind: str, logical: str | None, path: str) -> tuple[pa.DataType, Convert | None]:
    if logical in _NANOS:
        raise InvalidArgument(
            f"Avro field {path!r} is in nanoseconds, and columns are in microseconds; write 'long' in the reader schema"
        )
    of = _LOGICAL.get((kind, logical or ""))
    if of is None:
        return _PRIMITIVES[kind], _plain_number if kind in ("int", "long") else None
    if pa.types.is_timestamp(of):
        return of, _timestamp(1000 if str(logical).endswith("millis") else 1, has_zone=of.tz is not None)
    if pa.types.is_date(of):
        return of, _date
    if logical == "uuid":
        return of, _uuid_text
    return of, _time_number(1000 if logical == "time-millis" else 1)


def _record(schema: Any, named: dict[str, Any], path: str) -> tuple[pa.DataType, Convert | None]:
    if not schema["fields"]:
        raise InvalidArgument(f"Avro record {path!r} has no fields, and a struct needs one; leave it out of the schema")
    fields: list[pa.Field] = []
    converts: list[tuple[str, Convert]] = []
    for one in schema["fields"]:
        of, convert = arrow_type(one["type"], named, f"{path}.{one['name']}")
        fields.append(pa.field(one["name"], of))
        if convert is not None:
            converts.append((one["name"], convert))

    def convert_record(record: Any) -> Any:
        record = _unnamed(record)
        for name, convert in converts:
            if record[name] is not None:
                record[name] = convert(record[name])
        return record

    return pa.struct(fields), convert_record if converts else _unnamed


def _union(branches: list[Any], named: dict[str, Any], path: str) -> tuple[pa.DataType, Convert | None]:
    some = [resolved(branch, named) for branch in branches if branch != "null"]
    if not some:
        raise InvalidArgument(f"Avro field {path!r} is always null; leave it out of the schema")
    if len(some) == 1:
        return arrow_type(some[0], named, path)
    plain = frozenset(branch for branch in some if isinstance(branch, str))
    if len(plain) == len(some) and plain in _WIDENED:
        return arrow_type(_WIDENED[plain], named, path)
    return _members(some, named, path)


def _members(some: list[Any], named: dict[str, Any], path: str) -> tuple[pa.DataType, Convert]:
    """A struct member0, member1, ... with one member filled, as in Spark's own Avro reader."""
    fields: list[pa.Field] = []
    by_key: dict[object, tuple[str, Convert | None]] = {}
    for number, branch in enumerate(some):
        of, convert = arrow_type(branch, named, f"{path}.member{number}")
        fields.append(pa.field(f"member{number}", of))
        key = _branch_key(branch)
        if key in by_key:
            raise InvalidArgument(f"the union of {path!r} has two branches that cannot be told apart")
        by_key[key] = f"member{number}", convert

    def convert_union(value: Any) -> Any:
        key: object = type(value)
        if isinstance(value, tuple):
            key, value = value
        found = by_key.get(key)
        if found is None:
            raise Unreadable(f"{path}: no branch of the union for a {getattr(key, '__name__', key)}")
        name, convert = found
        return {name: value if convert is None else convert(value)}

    return pa.struct(fields), convert_union


def _branch_key(branch: Any) -> object:
    """The key of a branch in fastavro's values: the name of a named type, otherwise the Python type."""
    if isinstance(branch, str):
        return _KINDS[branch]
    if branch["type"] in ("record", "error", "enum", "fixed"):
        return Decimal if branch.get("logicalType") == "decimal" else branch["name"]
    of = _LOGICAL.get((branch["type"], branch.get("logicalType", "")))
    if of is not None and pa.types.is_timestamp(of):
        return datetime
    if of is not None and pa.types.is_date(of):
        return date
    logical = {"time-millis": time, "time-micros": time, "uuid": UUID, "decimal": Decimal}
    return logical.get(branch.get("logicalType", ""), _KINDS[branch["type"]])


def _decimal(schema: Any, path: str) -> pa.DataType:
    precision, scale = schema.get("precision", 0), schema.get("scale", 0)
    if not 0 < precision <= _DECIMAL_DIGITS_MAX or not 0 <= scale <= precision:
        raise InvalidArgument(
            f"Avro field {path!r} is a decimal of {precision} digits; DECIMAL has up to {_DECIMAL_DIGITS_MAX}"
        )
    return pa.decimal128(precision, scale)


def _each(convert: Convert) -> Convert:
    return lambda items: [None if item is None else convert(item) for item in items]


def _items(convert: Convert | None) -> Convert:
    if convert is None:
        return lambda items: list(items.items())
    return lambda items: [(name, None if item is None else convert(item)) for name, item in items.items()]


def _unnamed(value: Any) -> Any:
    """The value of a writer's union: fastavro returns values of named types in unions as (name, value)."""
    return value[1] if isinstance(value, tuple) else value


def _plain_number(value: Any) -> Any:
    # Written with a logical type and read without one.
    if isinstance(value, int):
        return value
    raise Unreadable(f"written as a {type(value).__name__}, to be read as a number")


def _timestamp(micros_per_unit: int, *, has_zone: bool) -> Convert:
    def convert(value: Any) -> Any:
        if isinstance(value, datetime):
            # Timestamps with and without a zone are different types: neither is converted to the other.
            if (value.tzinfo is not None) == has_zone:
                return value
            raise Unreadable("written as a timestamp with a zone and read without, or the other way round")
        if isinstance(value, int) and is_within_calendar(value * micros_per_unit):
            return value * micros_per_unit
        raise Unreadable(f"{value} is not a timestamp of the years 1 to 9999")

    return convert


def _date(value: Any) -> Any:
    if isinstance(value, date) or (isinstance(value, int) and is_within_calendar(value * _DAY_US)):
        return value
    raise Unreadable(f"{value} is not a date of the years 1 to 9999")


def _time_number(micros_per_unit: int) -> Convert:
    def convert(value: Any) -> Any:
        if isinstance(value, time):
            seconds = (value.hour * 60 + value.minute) * 60 + value.second
            return (seconds * 1_000_000 + value.microsecond) // micros_per_unit
        return value

    return convert


def _uuid_text(value: Any) -> Any:
    return str(value) if isinstance(value, UUID) else value
