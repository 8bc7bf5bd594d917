"""Windows of event time: how wide "1 minute" is, and where the window of an event begins.

Windows are fixed, do not overlap and begin at 1970-01-01 UTC, so that a window's start says which one it is whoever
computes it, and a late event finds its own. Months and years have no fixed width and are refused.
"""

from __future__ import annotations

import re
from typing import Final

from foldlog.errors import InvalidArgument, brief_repr
from foldlog.views.counters.measures import Window

_UNITS_MS: Final = {
    "millisecond": 1,
    "second": 1000,
    "minute": 60_000,
    "hour": 3_600_000,
    "day": 86_400_000,
    "week": 7 * 86_400_000,
}

WIDTH_MS_MAX: Final = 366 * 86_400_000
"""A wider window is likelier a typing error; a total needs no window at all."""

_WIDTH: Final = re.compile(r"\s*([0-9]{1,12})\s*([a-z]+?)s?\s*", re.IGNORECASE | re.ASCII)


def parse_width_ms(text: object) -> int:
    """
    >>> parse_width_ms("1 minute"), parse_width_ms("15 seconds"), parse_width_ms("1 day")
    (60000, 15000, 86400000)
    """
    match = _WIDTH.fullmatch(text) if isinstance(text, str) else None
    unit_ms = _UNITS_MS.get(match[2].lower()) if match is not None else None
    if match is None or unit_ms is None:
        raise InvalidArgument(
            f"{brief_repr(text)} is no width of a window; say a number and a unit, such as '1 minute', '15 seconds',"
            f" '1 hour' or '1 day' (units: {', '.join(_UNITS_MS)})"
        )
    width_ms = int(match[1]) * unit_ms
    if not 0 < width_ms <= WIDTH_MS_MAX:
        raise InvalidArgument(
            f"a window of {brief_repr(text)} is not between 1 millisecond and 366 days; leave window out for a total"
        )
    return width_ms


def parse_window(window: object) -> Window | None:
    """From what a person writes, `("at", "1 minute")`, or None for no window."""
    if window is None or isinstance(window, Window):
        return window
    if not isinstance(window, tuple | list) or len(window) != 2 or not isinstance(window[0], str) or not window[0]:
        raise InvalidArgument(
            f"window is a timestamp column and a width, such as ('at', '1 minute'), not {brief_repr(window)}"
        )
    return Window(window[0], parse_width_ms(window[1]))


def window_start_us(at_us: int, width_ms: int) -> int:
    """Where the window of an event begins; both in microseconds since 1970, before it too.

    >>> window_start_us(61_000_000, 60_000), window_start_us(-1, 60_000)
    (60000000, -60000000)
    """
    return at_us - at_us % (width_ms * 1000)
