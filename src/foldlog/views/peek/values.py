"""Values of a view as JSON for a person: exact if possible, and cut if they are long."""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Mapping
from datetime import UTC, date, datetime
from decimal import Decimal
from math import isfinite
from typing import Final

from foldlog.limits import PEEK_TEXT_CHARS_MAX

_EXACT_MAX: Final = 2**53
"""A larger integer is text, as a browser would round it."""

_NESTED_CHARS_MAX: Final = 10 * PEEK_TEXT_CHARS_MAX
_ITEMS_MAX: Final = 100
_DEPTH_MAX: Final = 8


def shown(value: object, depth: int = 0) -> object:
    """A value as JSON. Decimals, times and large integers are text; bytes are {"base64": ...}; long values are cut.

    >>> len(str(shown([["x" * 1000] * 100] * 100)))
    2001
    >>> shown(2**60), shown(float("nan")), shown(datetime(2026, 1, 15, 10, 30)), shown(b"\\x00")
    ('1152921504606846976', 'nan', '2026-01-15T10:30:00', {'base64': 'AA=='})
    """
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int):
        return value if abs(value) <= _EXACT_MAX else str(value)
    if isinstance(value, float):
        return value if isfinite(value) else str(value)
    if isinstance(value, str):
        return value if len(value) <= PEEK_TEXT_CHARS_MAX else f"{value[:PEEK_TEXT_CHARS_MAX]}…"
    if isinstance(value, bytes | bytearray | memoryview):
        return {"base64": b64encode(bytes(value[:PEEK_TEXT_CHARS_MAX])).decode("ascii")}
    if isinstance(value, date):  # includes datetime
        return _moment(value)
    return _cut(_nested(value, depth)) if depth == 0 else _nested(value, depth)


def _cut(value: object) -> object:
    """A nested value, or the beginning of its text if it is too large."""
    text = json.dumps(value, ensure_ascii=False)
    return value if len(text) <= _NESTED_CHARS_MAX else f"{text[:PEEK_TEXT_CHARS_MAX]}…"


def _moment(value: date) -> str:
    if isinstance(value, datetime) and value.tzinfo is not None:
        return value.astimezone(UTC).replace(tzinfo=None).isoformat() + "Z"
    return value.isoformat()


def _nested(value: object, depth: int) -> object:
    if depth >= _DEPTH_MAX:
        return "…"
    if isinstance(value, Mapping):
        return {str(name): shown(one, depth + 1) for name, one in list(value.items())[:_ITEMS_MAX]}
    if isinstance(value, list | tuple):
        return [shown(one, depth + 1) for one in value[:_ITEMS_MAX]]
    return str(value)[:PEEK_TEXT_CHARS_MAX]


def number_of(value: object) -> int | float | None:
    """A number for a chart; None if the value is not a finite number."""
    if isinstance(value, Decimal):
        value = float(value)
    if isinstance(value, bool) or not isinstance(value, int | float) or not isfinite(value):
        return None
    return value
