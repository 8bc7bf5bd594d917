"""Times and sizes as people write them: 7d12h, 1.5h, 250ms, 1GiB, 64M.

Sizes count in steps of 1024, with or without the `iB`: that is how disks, and Kafka's defaults, are measured.
"""

from __future__ import annotations

import re
from typing import Final

from foldlog.durations import milliseconds
from foldlog.errors import InvalidArgument, brief_repr

_AMOUNT: Final = re.compile(r"(?P<count>[0-9]{1,4000}(?:\.[0-9]{1,4000})?)\s*(?P<unit>[a-zA-Z]*)")
_SIZES: Final = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")
_SIZE_BYTES: Final = {
    name: 1024**power
    for power, long in enumerate(_SIZES)
    for name in {long.lower(), long[0].lower(), f"{long[0]}b".lower()}
} | {"": 1}


def parse_duration_ms(text: str, what: str = "a time") -> int:
    """
    >>> parse_duration_ms("7d12h"), parse_duration_ms("250ms")
    (648000000, 250)
    """
    found = milliseconds(text)
    if found is None:
        raise _refusal(text, what, "a time, such as 250ms, 30s, 6h or 7d12h")
    return found


def parse_seconds(text: str, what: str) -> float:
    """A time for which a number alone means seconds.

    >>> parse_seconds("250ms", "--interval"), parse_seconds("2", "--interval")
    (0.25, 2.0)
    """
    is_number = text.replace(".", "", 1).isdecimal()
    return parse_duration_ms(f"{text}s" if is_number else text, what) / 1000


def parse_size_bytes(text: str, what: str = "a size") -> int:
    """
    >>> parse_size_bytes("1GiB"), parse_size_bytes("64M"), parse_size_bytes("10")
    (1073741824, 67108864, 10)
    """
    found = _AMOUNT.fullmatch(text.strip())
    scale = None if found is None else _SIZE_BYTES.get(found["unit"].lower())
    if found is None or scale is None:
        raise _refusal(text, what, "a size, such as 512KiB, 64MiB or 1GiB")
    # Digits are multiplied as such: a float would lose the last ones of a large number.
    whole, _, fraction = found["count"].partition(".")
    size_bytes: int = int(whole) * scale + (int(fraction) * scale // 10 ** len(fraction) if fraction else 0)
    return size_bytes


def _refusal(text: str, what: str, example: str) -> InvalidArgument:
    sign = "" if what.endswith("=") else " "
    return InvalidArgument(f"{what}{sign}{brief_repr(text)} is not {example}")


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
