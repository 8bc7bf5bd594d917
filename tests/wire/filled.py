"""A message with every field of its version set, tagged ones too. Arrays have two items, one in the structs inside."""

from __future__ import annotations

from typing import Any, TypeVar

from foldlog.wire.layout import MessageLayout, layout_of
from foldlog.wire.schema import ApiMessage, Field, Message

AnyMessage = TypeVar("AnyMessage", bound=ApiMessage)

VALUES: dict[str, Any] = {
    "bool": True,
    "int8": 3,
    "int16": 3,
    "uint16": 3,
    "int32": 3,
    "int64": 3,
    "float64": 0.5,
    "string": "abc",
    "bytes": b"abc",
    "uuid": b"0123456789abcdef",
    "records": b"abc",
}


def filled(cls: type[AnyMessage], version: int) -> AnyMessage:
    message = _filled(cls, layout_of(cls, version), item_count=2)
    if not isinstance(message, cls):
        raise TypeError(f"{message!r} is no {cls.__name__}")
    return message


def _filled(cls: type[Message], layout: MessageLayout, *, item_count: int) -> Message:
    message = cls()
    for field in (*layout.fields(cls), *(field for _, field in layout.tagged(cls))):
        value = _value(field, layout)
        setattr(message, field.name, [value] * item_count if field.is_array else value)
    return message


def _value(field: Field, layout: MessageLayout) -> Any:
    return VALUES[field.kind] if field.item is None else _filled(field.item, layout, item_count=1)
