"""Reads MessagePack (https://github.com/msgpack/msgpack/blob/master/spec.md) into plain Python values. Pure.

For showing values to people, so nothing is written here. Any bytes end with a value or a ValueError: no depth and no
announced length makes it recurse or allocate more than the bytes it was given hold.
"""

from __future__ import annotations

import struct
from datetime import UTC, datetime, timedelta
from typing import Any, Final, NamedTuple

DEPTH_MAX: Final = 64

_NUMBERS: Final = {
    0xCA: struct.Struct(">f"),
    0xCB: struct.Struct(">d"),
    0xCC: struct.Struct(">B"),
    0xCD: struct.Struct(">H"),
    0xCE: struct.Struct(">I"),
    0xCF: struct.Struct(">Q"),
    0xD0: struct.Struct(">b"),
    0xD1: struct.Struct(">h"),
    0xD2: struct.Struct(">i"),
    0xD3: struct.Struct(">q"),
}
_WORDS: Final = {0xC0: None, 0xC2: False, 0xC3: True}
_LENGTHS: Final = {0: 1, 1: 2, 2: 4}
_TIMESTAMP: Final = -1
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


class Extension(NamedTuple):
    """A value of a type that an application has made up."""

    code: int
    data: bytes


def unpacked(data: bytes) -> Any:
    """The one value that the bytes hold. Raises ValueError if they hold none, or more.

    >>> unpacked(bytes([0x82, 0xA1, 0x61, 0x01, 0xA1, 0x62, 0x93, 0xC0, 0xC3, 0xCB, *bytes(8)]))
    {'a': 1, 'b': [None, True, 0.0]}
    """
    reader = _Reader(data)
    found = reader.value(0)
    if reader.at != len(data):
        raise ValueError(f"{len(data) - reader.at} bytes follow the value")
    return found


class _Reader:
    """Where one is in the bytes."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self.at = 0

    def _take(self, count: int) -> bytes:
        piece = self._data[self.at : self.at + count]
        if len(piece) < count:
            raise ValueError("it ends in the middle of a value")
        self.at += count
        return piece

    def _length(self, size: int) -> int:
        return int.from_bytes(self._take(size), "big")

    def value(self, depth: int) -> Any:
        if depth > DEPTH_MAX:
            raise ValueError(f"it is nested deeper than {DEPTH_MAX}")
        mark = self._take(1)[0]
        if mark < 0x80:
            return mark
        if mark >= 0xE0:
            return mark - 0x100
        if mark < 0x90:
            return self._map(mark & 0x0F, depth)
        if mark < 0xA0:
            return self._array(mark & 0x0F, depth)
        if mark < 0xC0:
            return self._text(mark & 0x1F)
        if mark in _WORDS:
            return _WORDS[mark]
        if mark in _NUMBERS:
            number = _NUMBERS[mark]
            return number.unpack(self._take(number.size))[0]
        return self._sized(mark, depth)

    def _sized(self, mark: int, depth: int) -> Any:
        """Values whose length is given: binary, extensions, texts, arrays and maps."""
        if 0xC4 <= mark <= 0xC6:
            return self._take(self._length(_LENGTHS[mark - 0xC4]))
        if 0xC7 <= mark <= 0xC9:
            return self._extension(self._length(_LENGTHS[mark - 0xC7]))
        if 0xD4 <= mark <= 0xD8:
            return self._extension(1 << (mark - 0xD4))
        if 0xD9 <= mark <= 0xDB:
            return self._text(self._length(_LENGTHS[mark - 0xD9]))
        if mark in (0xDC, 0xDD):
            return self._array(self._length(2 if mark == 0xDC else 4), depth)
        if mark in (0xDE, 0xDF):
            return self._map(self._length(2 if mark == 0xDE else 4), depth)
        raise ValueError(f"no value begins with 0x{mark:02x}")

    def _text(self, size: int) -> str | bytes:
        piece = self._take(size)
        try:
            return piece.decode()
        except UnicodeDecodeError:
            return piece  # older writers put bytes into texts

    def _array(self, count: int, depth: int) -> list[Any]:
        self._refuse_long(count)
        return [self.value(depth + 1) for _ in range(count)]

    def _map(self, count: int, depth: int) -> dict[Any, Any]:
        self._refuse_long(2 * count)
        found: dict[Any, Any] = {}
        for _ in range(count):
            key = self.value(depth + 1)
            found[key if isinstance(key, str | int | float | bytes | None) else repr(key)] = self.value(depth + 1)
        return found

    def _refuse_long(self, count: int) -> None:
        if count > len(self._data) - self.at:  # each takes a byte at least
            raise ValueError("it ends in the middle of a value")

    def _extension(self, size: int) -> Any:
        code = struct.unpack(">b", self._take(1))[0]
        piece = self._take(size)
        return _timestamp(piece) if code == _TIMESTAMP else Extension(code, piece)


def _timestamp(data: bytes) -> datetime | Extension:
    """The only type that is not an application's own: seconds, and nanoseconds if they matter."""
    if len(data) == 4:
        seconds, nanoseconds = struct.unpack(">I", data)[0], 0
    elif len(data) == 8:
        both = struct.unpack(">Q", data)[0]
        seconds, nanoseconds = both & ((1 << 34) - 1), both >> 34
    elif len(data) == 12:
        nanoseconds, seconds = struct.unpack(">Iq", data)
    else:
        raise ValueError(f"a timestamp has 4, 8 or 12 bytes, not {len(data)}")
    try:
        return _EPOCH + timedelta(seconds=seconds, microseconds=nanoseconds // 1000)
    except OverflowError:
        return Extension(_TIMESTAMP, data)
