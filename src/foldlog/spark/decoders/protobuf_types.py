"""Protobuf descriptors as Arrow types, and the conversions from a parsed message to Arrow's values."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import pyarrow as pa

from foldlog.errors import InvalidArgument
from foldlog.spark.decoders.row_columns import Unreadable
from foldlog.spark.decoders.text_types import UTC_MICROS, is_within_calendar

Convert = Callable[[Any], Any]

_UINT64: Final = pa.decimal128(20, 0)
_WRAPPERS: Final = {
    "google.protobuf.DoubleValue": pa.float64(),
    "google.protobuf.FloatValue": pa.float32(),
    "google.protobuf.Int64Value": pa.int64(),
    "google.protobuf.UInt64Value": _UINT64,
    "google.protobuf.Int32Value": pa.int32(),
    "google.protobuf.UInt32Value": pa.int64(),
    "google.protobuf.BoolValue": pa.bool_(),
    "google.protobuf.StringValue": pa.string(),
    "google.protobuf.BytesValue": pa.binary(),
}
_JSON_LIKE: Final = ("google.protobuf.Struct", "google.protobuf.Value", "google.protobuf.ListValue")


def column(field: Any) -> tuple[pa.DataType, Convert]:
    """The type of a field's column, and a function from its message to the value: null if the field is not set.

    A field without presence (proto3's plain scalars) is never null: unset means the default.
    """
    of, convert = _field_type(field, ())
    return of, _getter(field, convert)


def _field_type(field: Any, inside: tuple[str, ...]) -> tuple[pa.DataType, Convert | None]:
    """The type including lists and maps, and the conversion of the field's value."""
    if is_map(field):
        key, item = field.message_type.fields_by_name["key"], field.message_type.fields_by_name["value"]
        key_type, _ = _single_type(key, inside)
        item_type, convert = _single_type(item, inside)
        return pa.map_(key_type, item_type), _map_items(convert)
    of, convert = _single_type(field, inside)
    if is_repeated(field):
        return pa.list_(pa.field("element", of)), _list_items(convert)
    return of, convert


def is_repeated(field: Any) -> bool:
    """Newer versions of protobuf have a property, and have dropped the label of older ones."""
    found = getattr(field, "is_repeated", None)
    return bool(field.label == field.LABEL_REPEATED) if found is None else bool(found)


def is_map(field: Any) -> bool:
    return field.message_type is not None and bool(field.message_type.GetOptions().map_entry)


def _single_type(field: Any, inside: tuple[str, ...]) -> tuple[pa.DataType, Convert | None]:
    if field.message_type is not None:
        return _message_type(field, inside)
    if field.enum_type is not None:
        names = {value.number: value.name for value in reversed(field.enum_type.values)}
        # A number that this descriptor does not know yet is kept as text.
        return pa.string(), lambda number: names.get(number, str(number))
    types = {
        field.CPPTYPE_INT32: pa.int32(),
        field.CPPTYPE_INT64: pa.int64(),
        field.CPPTYPE_UINT32: pa.int64(),
        field.CPPTYPE_UINT64: _UINT64,
        field.CPPTYPE_DOUBLE: pa.float64(),
        field.CPPTYPE_FLOAT: pa.float32(),
        field.CPPTYPE_BOOL: pa.bool_(),
    }
    if field.cpp_type == field.CPPTYPE_STRING:
        return pa.binary() if field.type == field.TYPE_BYTES else pa.string(), None
    return types[field.cpp_type], None


def _message_type(field: Any, inside: tuple[str, ...]) -> tuple[pa.DataType, Convert | None]:
    message, name = field.message_type, field.message_type.full_name
    if name == "google.protobuf.Timestamp":
        return UTC_MICROS, _timestamp_us
    if name == "google.protobuf.Duration":
        return pa.duration("us"), _duration_us
    if name in _WRAPPERS:
        return _WRAPPERS[name], lambda wrapper: wrapper.value
    if name in _JSON_LIKE:
        return pa.string(), _json_text
    if name in inside:
        raise InvalidArgument(
            f"Protobuf message {name!r} contains itself, in field {field.full_name!r}: columns cannot"
        )
    if not message.fields:
        raise InvalidArgument(
            f"Protobuf field {field.full_name!r} has a message without fields, and a struct needs one"
        )
    fields: list[pa.Field] = []
    getters: list[tuple[str, Convert]] = []
    for one in message.fields:
        of, convert = _field_type(one, (*inside, name))
        fields.append(pa.field(one.name, of))
        getters.append((one.name, _getter(one, convert)))
    return pa.struct(fields), lambda value: {key: get(value) for key, get in getters}


def _getter(field: Any, convert: Convert | None) -> Convert:
    name = field.name
    if field.has_presence:
        if convert is None:
            return lambda message: getattr(message, name) if message.HasField(name) else None
        return lambda message: convert(getattr(message, name)) if message.HasField(name) else None
    if convert is None:
        return lambda message: getattr(message, name)
    return lambda message: convert(getattr(message, name))


def _list_items(convert: Convert | None) -> Convert:
    if convert is None:
        return list
    return lambda items: [convert(item) for item in items]


def _map_items(convert: Convert | None) -> Convert:
    # Sorted by key: the order on the wire has no meaning, and a replay must give the same result.
    if convert is None:
        return lambda items: sorted(items.items(), key=_by_key)
    return lambda items: [(key, convert(item)) for key, item in sorted(items.items(), key=_by_key)]


def _by_key(item: tuple[Any, Any]) -> Any:
    return item[0]


def _timestamp_us(value: Any) -> int:
    time_us: int = value.seconds * 1_000_000 + value.nanos // 1000
    if is_within_calendar(time_us):
        return time_us
    raise Unreadable(f"{value.seconds} seconds is not a timestamp of the years 1 to 9999")


def _duration_us(value: Any) -> int:
    nanos: int = value.seconds * 1_000_000_000 + value.nanos
    return nanos // 1000 if nanos >= 0 else -(-nanos // 1000)


def _json_text(value: Any) -> str:
    from google.protobuf import json_format

    try:
        return str(json_format.MessageToJson(value, indent=None, sort_keys=True, ensure_ascii=False))
    except (ValueError, json_format.Error) as error:
        raise Unreadable(f"it has no JSON form ({str(error)[:60]})") from None
