"""Whether an answer tells of an error, for whichever API: looked for where its schema has error codes."""

from __future__ import annotations

from collections.abc import Callable
from operator import attrgetter
from typing import Any, Final

from foldlog.wire.schema import Message

_CODE: Final = "error_code"


def has_error(answer: Message) -> bool:
    """Whether the answer, or a part of it, has an error code other than 0.

    >>> from foldlog.wire.messages.heartbeat import HeartbeatResponse
    >>> has_error(HeartbeatResponse(error_code=27)), has_error(HeartbeatResponse())
    (True, False)
    """
    find = _finder_of(type(answer))
    return find is not None and bool(find(answer))


_Finder = Callable[[Any], object]
"""Gives something true for a message with an error code."""


_finders: dict[type, _Finder | None] = {}
"""By class: its schema is walked once, and not for every answer."""


def _finder_of(kind: type[Message]) -> _Finder | None:
    if kind not in _finders:
        _finders[kind] = _make_finder(kind)
    return _finders[kind]


def _make_finder(kind: type[Message]) -> _Finder | None:
    """What looks for a code in messages of this class; None if there can be none."""
    parts: dict[str, tuple[bool, _Finder]] = {}
    for field in kind.SCHEMA:
        find = None if field.item is None else _finder_of(field.item)
        if find is not None:
            parts[field.name] = (field.is_array, find)
    has_code = any(field.name == _CODE for field in kind.SCHEMA)
    if not parts:
        # Nothing but a getter, as most are: `any(map(...))` over a hundred partitions then runs without Python code.
        return attrgetter(_CODE) if has_code else None

    def find_code(message: Any) -> bool:
        if has_code and message.error_code:
            return True
        for name, (is_array, find) in parts.items():
            part = getattr(message, name)
            if part and (any(map(find, part)) if is_array else find(part)):
                return True
        return False

    return find_code
