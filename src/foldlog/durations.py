"""Durations as people write them, `7d12h`, and as Spark writes them, `1 minute`: both are read wherever one is.

A day is 24 hours, a week 7 days. Months and years have no fixed length, and are none.
"""

from __future__ import annotations

import re
from typing import Final

_SHORT_US: Final = {
    "ms": 1000,
    "s": 1_000_000,
    "m": 60_000_000,
    "h": 3_600_000_000,
    "d": 86_400_000_000,
    "w": 604_800_000_000,
}
_WORDS_US: Final = {
    "microsecond": 1,
    "millisecond": 1000,
    "second": 1_000_000,
    "minute": 60_000_000,
    "hour": 3_600_000_000,
    "day": 86_400_000_000,
    "week": 604_800_000_000,
}
_UNITS_US: Final = {
    **_SHORT_US,
    "us": 1,
    "min": 60_000_000,
    **_WORDS_US,
    **{f"{word}s": unit_us for word, unit_us in _WORDS_US.items()},
}

# Python refuses to read numbers of more than 4300 digits.
_COUNT: Final = r"[0-9]{1,4000}(?:\.[0-9]{1,4000})?"
_PART: Final = re.compile(rf"\s*({_COUNT})\s*([a-z]+)\s*")

SHORT_DURATION: Final = rf"(?:{_COUNT}(?:{'|'.join(_SHORT_US)}))+"
"""A duration in a pattern: only the short units, and no spaces."""


def milliseconds(text: str) -> int | None:
    """How long that is, rounded down; None if it is no duration.

    >>> milliseconds("7d12h"), milliseconds("1.5h"), milliseconds("250ms"), milliseconds("1500us")
    (648000000, 5400000, 250, 1)
    >>> milliseconds("1 minute"), milliseconds("15 seconds"), milliseconds("1 day 12 hours")
    (60000, 15000, 129600000)
    >>> milliseconds("1 month"), milliseconds("soon"), milliseconds("15"), milliseconds("-6h"), milliseconds("")
    (None, None, None, None, None)
    """
    text, at, total_us = text.lower(), 0, 0
    while found := _PART.match(text, at):
        unit_us = _UNITS_US.get(found[2])
        if unit_us is None:
            return None
        # Digits are multiplied as such: a float would lose the last ones of a large number.
        whole, _, fraction = found[1].partition(".")
        total_us += int(whole) * unit_us + (int(fraction) * unit_us // 10 ** len(fraction) if fraction else 0)
        at = found.end()
    return total_us // 1000 if at and at == len(text) else None


def duration_text(duration_ms: int) -> str:
    """The largest unit that it is a whole number of.

    >>> duration_text(604_800_000), duration_text(5_400_000), duration_text(90_061_001)
    ('7d', '90m', '90061001ms')
    """
    units_ms = {name: unit_us // 1000 for name, unit_us in _SHORT_US.items() if name != "w"}
    unit = max((name for name, unit_ms in units_ms.items() if duration_ms % unit_ms == 0), key=units_ms.__getitem__)
    return f"{duration_ms // units_ms[unit]}{unit}" if duration_ms else "0ms"
