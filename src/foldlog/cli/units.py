"""Times and sizes as people write them: 7d, 1.5h, 250ms, 1GiB, 64M.

A day is 24 hours, a week 7 days. Sizes count in steps of 1024, with or without the `iB`: that is how disks, and Kafka's
defaults, are measured.
"""

from __future__ import annotations

import re
from typing import Final

from foldlog.errors import InvalidArgument, brief_repr

_AMOUNT: Final = re.compile(r"(?P<count>[0-9]+(?:\.[0-9]+)?)\s*(?P<unit>[a-zA-Z]*)")
_TIME_MS: Final = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000}
_SIZES: Final = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")
_SIZE_BYTES: Final = {
    name: 1024**power
    for power, long in enumerate(_SIZES)
    for name in {long.lower(), long[0].lower(), f"{long[0]}b".lower()}
}


def parse_duration_ms(text: str, what: str = "a time") -> int:
    """
    >>> parse_duration_ms("7d"), parse_duration_ms("1.5h"), parse_duration_ms("250ms")
    (604800000, 5400000, 250)
    """
    return _parsed(text, _TIME_MS, what, "a time, such as 250ms, 30s, 6h or 7d")


def parse_size_bytes(text: str, what: str = "a size") -> int:
    """
    >>> parse_size_bytes("1GiB"), parse_size_bytes("64M"), parse_size_bytes("10")
    (1073741824, 67108864, 10)
    """
    return _parsed(text, {**_SIZE_BYTES, "": 1}, what, "a size, such as 512KiB, 64MiB or 1GiB")


def _parsed(text: str, units: dict[str, int], what: str, example: str) -> int:
    found = _AMOUNT.fullmatch(text.strip())
    scale = None if found is None else units.get(found["unit"].lower())
    if found is None or scale is None:
        sign = "" if what.endswith("=") else " "
        raise InvalidArgument(f"{what}{sign}{brief_repr(text)} is not {example}")
    # Computed on integers: a float would lose the last digits of a large number.
    whole, _, fraction = found["count"].partition(".")
    return int(whole) * scale + (int(fraction) * scale // 10 ** len(fraction) if fraction else 0)


def size_text(size_bytes: int) -> str:
    """
    >>> size_text(0), size_text(3970), size_text(1 << 30)
    ('0 B', '3.9 KiB', '1.0 GiB')
    """
    amount = float(size_bytes)
    for unit in _SIZES[:-1]:
        if amount < 1024:
            return f"{amount:.0f} {unit}" if unit == "B" else f"{amount:.1f} {unit}"
        amount /= 1024
    return f"{amount:.1f} {_SIZES[-1]}"


def duration_text(duration_ms: int) -> str:
    """In the largest unit that gives an integer.

    >>> duration_text(604_800_000), duration_text(5_400_000), duration_text(90_061_001)
    ('7d', '90m', '90061001ms')
    """
    unit = max(
        (name for name, scale in _TIME_MS.items() if name != "w" and duration_ms % scale == 0), key=_TIME_MS.__getitem__
    )
    return f"{duration_ms // _TIME_MS[unit]}{unit}" if duration_ms else "0ms"
