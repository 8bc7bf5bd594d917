"""Packed numbers and times of the binlog, as the server prints them. Dates that are none, such as 0000-00-00, keep
their digits."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Final

_DIGIT_BYTES: Final = (0, 1, 1, 2, 2, 3, 3, 4, 4, 4)
"""How many bytes so many digits take."""

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)

_ZERO: Final = "0000-00-00 00:00:00"


def date_text(packed: int) -> str:
    """
    >>> date_text((2026 << 9) | (11 << 5) | 18), date_text(0)
    ('2026-11-18', '0000-00-00')
    """
    return f"{packed >> 9:04}-{(packed >> 5) & 15:02}-{packed & 31:02}"


def datetime_text(packed: int, micros: int, digits: int) -> str:
    """Of the packed form of DATETIME: year and month by thirteen, day, and the time.

    >>> datetime_text(((2026 * 13 + 11) << 22) | (18 << 17) | (9 << 12) | (30 << 6), 250_000, 2)
    '2026-11-18 09:30:00.25'
    """
    months, clock = packed >> 22, packed & 0x1FFFF
    day = (packed >> 17) & 31
    return (
        f"{months // 13:04}-{months % 13:02}-{day:02} {clock >> 12:02}:{(clock >> 6) & 63:02}:{clock & 63:02}"
        + fraction(micros, digits)
    )


def timestamp_text(seconds: int, micros: int, digits: int) -> str:
    """In UTC. Zero is no time, but the server's 0000-00-00.

    >>> timestamp_text(1_000_000_000, 0, 0), timestamp_text(0, 0, 3)
    ('2001-09-09 01:46:40', '0000-00-00 00:00:00.000')
    """
    if seconds == 0:
        return _ZERO + fraction(0, digits)
    text = (_EPOCH + timedelta(seconds=seconds)).strftime("%Y-%m-%d %H:%M:%S")
    return text + fraction(micros, digits)


def time_text(packed: int, micros: int, digits: int, *, is_negative: bool) -> str:
    """Of the packed form of TIME, which is a span: up to 838 hours, either way.

    >>> time_text((838 << 12) | (59 << 6) | 59, 0, 0, is_negative=True)
    '-838:59:59'
    """
    sign = "-" if is_negative else ""
    return f"{sign}{packed >> 12:02}:{(packed >> 6) & 63:02}:{packed & 63:02}{fraction(micros, digits)}"


def fraction(micros: int, digits: int) -> str:
    return f".{micros:06}"[: digits + 1] if digits else ""


def decimal_text(data: bytes, at: int, precision: int, scale: int) -> tuple[str, int]:
    """Nine digits in four bytes, what is left of them in fewer; a negative number has its bits inverted.

    >>> decimal_text(bytes.fromhex("80 01 0a"), 0, 6, 2), decimal_text(bytes.fromhex("7f fe f5"), 0, 6, 2)
    (('1.10', 3), ('-1.10', 3))
    """
    whole, whole_left = divmod(precision - scale, 9)
    parts, parts_left = divmod(scale, 9)
    size = whole * 4 + _DIGIT_BYTES[whole_left] + parts * 4 + _DIGIT_BYTES[parts_left]
    raw = bytearray(data[at : at + size])
    is_negative = raw[0] < 0x80
    raw[0] ^= 0x80
    if is_negative:
        raw = bytearray(byte ^ 0xFF for byte in raw)
    place, digits = 0, ""
    for count, width in ((whole_left, _DIGIT_BYTES[whole_left]), *(((9, 4),) * whole)):
        digits += f"{int.from_bytes(raw[place : place + width], 'big'):0{count}}" if count else ""
        place += width
    after = ""
    for count, width in (*(((9, 4),) * parts), (parts_left, _DIGIT_BYTES[parts_left])):
        after += f"{int.from_bytes(raw[place : place + width], 'big'):0{count}}" if count else ""
        place += width
    text = (digits.lstrip("0") or "0") + (f".{after}" if scale else "")
    return (f"-{text}" if is_negative else text), at + size
