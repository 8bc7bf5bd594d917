"""MySQL's binary JSON, as the binlog holds it, printed as the server prints it. MariaDB keeps JSON as text.

An object or array begins with the number of its elements and its size in bytes, 2 bytes each or 4 if it is large. Then
come entries of its keys (where, and how long), entries of its values (a type, and where or what), the keys, the values.
"""

from __future__ import annotations

import base64
from json.encoder import encode_basestring as json_text
from struct import Struct
from typing import Final

from foldlog.capture.from_mysql.packed import datetime_text, decimal_text, time_text

_SMALL_OBJECT, _LARGE_OBJECT, _SMALL_ARRAY, _LARGE_ARRAY, _LITERAL = 0, 1, 2, 3, 4
_INT16, _UINT16, _INT32, _UINT32, _INT64, _UINT64, _DOUBLE, _STRING, _OPAQUE = 5, 6, 7, 8, 9, 10, 11, 12, 15

_LITERALS: Final = {0: "null", 1: "true", 2: "false"}
_NUMBERS: Final = {
    _INT16: Struct("<h"),
    _UINT16: Struct("<H"),
    _INT32: Struct("<i"),
    _UINT32: Struct("<I"),
    _INT64: Struct("<q"),
    _UINT64: Struct("<Q"),
}
_DOUBLES: Final = Struct("<d")

_NEWDECIMAL: Final = 246
_TIME: Final = 11
_DATES: Final = frozenset({7, 10, 12})
"""Types of columns that a value of JSON can have come from: timestamp, date, datetime."""


def json_document(data: bytes) -> str:
    """A column's value. An empty one, which older servers wrote, is null.

    >>> json_document(bytes.fromhex("00 01 00 0d 00 0b 00 02 00 05 07 00 6964"))
    '{"id": 7}'
    """
    return _value(data[0], data, 1) if data else "null"


def _value(kind: int, data: bytes, at: int) -> str:
    if kind in (_SMALL_OBJECT, _LARGE_OBJECT, _SMALL_ARRAY, _LARGE_ARRAY):
        width = 2 if kind in (_SMALL_OBJECT, _SMALL_ARRAY) else 4
        return _container(data, at, is_object=kind <= _LARGE_OBJECT, width=width)
    if kind == _LITERAL:
        return _LITERALS[data[at]]
    if kind in _NUMBERS:
        return str(_NUMBERS[kind].unpack_from(data, at)[0])
    if kind == _DOUBLE:
        return _double(_DOUBLES.unpack_from(data, at)[0])
    if kind == _STRING:
        size, at = _length(data, at)
        return json_text(data[at : at + size].decode())
    if kind == _OPAQUE:
        size, start = _length(data, at + 1)
        return _opaque(data[at], data[start : start + size])
    raise ValueError(f"a value of JSON of kind {kind}")


def _container(data: bytes, start: int, *, is_object: bool, width: int) -> str:
    """Offsets in it count from its own start."""

    def number(at: int, size: int) -> int:
        return int.from_bytes(data[start + at : start + at + size], "little")

    count = number(0, width)
    at = 2 * width
    keys: list[str] = []
    if is_object:
        for _ in range(count):
            place, size = start + number(at, width), number(at + width, 2)
            keys.append(json_text(data[place : place + size].decode()))
            at += width + 2
    values: list[str] = []
    for _ in range(count):
        kind = number(at, 1)
        is_inline = kind in (_LITERAL, _INT16, _UINT16) or (width == 4 and kind in (_INT32, _UINT32))
        values.append(_value(kind, data, start + at + 1 if is_inline else start + number(at + 1, width)))
        at += width + 1
    if is_object:
        return "{" + ", ".join(f"{key}: {value}" for key, value in zip(keys, values, strict=True)) + "}"
    return f"[{', '.join(values)}]"


def _length(data: bytes, at: int) -> tuple[int, int]:
    """Seven bits a byte, the lowest first; and where the bytes begin."""
    size = shift = 0
    while True:
        size |= (data[at] & 0x7F) << shift
        at += 1
        if data[at - 1] < 0x80:
            return size, at
        shift += 7


def _double(value: float) -> str:
    """
    >>> _double(1.0), _double(1e20), _double(1.5e-9)
    ('1.0', '1e20', '1.5e-9')
    """
    mantissa, e, exponent = repr(value).partition("e")
    return f"{mantissa}e{int(exponent)}" if e else mantissa


def _opaque(kind: int, data: bytes) -> str:
    """A value that came from a column of SQL: exact numbers, times; all else is printed in base64."""
    if kind == _NEWDECIMAL:
        return decimal_text(data, 2, data[0], data[1])[0]
    packed = int.from_bytes(data, "little", signed=True) if len(data) == 8 else 0
    if kind == _TIME:
        return f'"{time_text(abs(packed) >> 24, abs(packed) & 0xFFFFFF, 6, is_negative=packed < 0)}"'
    if kind in _DATES:
        text = datetime_text(packed >> 24, packed & 0xFFFFFF, 6)
        return f'"{text[:10] if kind == 10 else text}"'
    return f'"base64:type{kind}:{base64.b64encode(data).decode()}"'
