"""Requests from plain words: an API by Kafka's name, structs as dictionaries, any field of any version."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from foldlog.wire.frames import request_class
from foldlog.wire.messages import APIS, NAMES
from foldlog.wire.schema import Message, Request

KEYS: Final = {NAMES[key]: key for key in APIS}
"""The key of each API that there are messages for, by its name."""


def made(api: str, fields: Mapping[str, Any]) -> Request:
    """The request of this API; a field that the version it is sent in does not have is left out then."""
    message = _made(request_class(KEYS[api]), fields)
    assert isinstance(message, Request)
    return message


def _made(kind: type[Message], fields: Mapping[str, Any]) -> Message:
    structs = {field.name: field.item for field in kind.SCHEMA if field.item is not None}
    return kind(**{name: _value(structs.get(name), value) for name, value in fields.items()})


def _value(item: type[Message] | None, value: Any) -> Any:
    if item is None or value is None:
        return value
    return _made(item, value) if isinstance(value, Mapping) else [_made(item, one) for one in value]
