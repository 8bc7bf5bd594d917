"""MySQL's values to JSON, by type: from the bytes of the binlog, and from the texts of a snapshot. Both come to the
same: what a change writes of a row is what a snapshot would write of it.

| type | JSON |
| --- | --- |
| integers, year, bit | a number |
| float, double | a number |
| decimal | a string with all digits, or by choice a number with all digits |
| char, varchar, text, enum, set, time, date | a string, as MySQL prints it |
| datetime, timestamp | ISO 8601: `2026-11-18T09:30:00.25`, and in UTC with a `Z` |
| json | the document |
| binary, varbinary, blob, geometry | base64 |
| uuid, inet4, inet6 (MariaDB) | a string |
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address
from json.encoder import encode_basestring as json_text
from struct import Struct
from typing import Any, Final

from foldlog.capture.from_mysql.json_binary import json_document
from foldlog.capture.from_mysql.packed import date_text, datetime_text, decimal_text, time_text, timestamp_text

Read = Callable[[bytes, int], tuple[str, int]]
"""Reads a value of the binlog: the bytes, and where it begins; its JSON, and where the next one begins."""

Encode = Callable[[Any], str]
"""What makes JSON of what a SELECT returned for a column: a text, or bytes."""

DECIMAL, TINY, SHORT, LONG, FLOAT, DOUBLE, TIMESTAMP, LONGLONG, INT24, DATE, TIME, DATETIME, YEAR = (
    0,
    1,
    2,
    3,
    4,
    5,
    7,
    8,
    9,
    10,
    11,
    12,
    13,
)
VARCHAR, BIT, TIMESTAMP2, DATETIME2, TIME2 = 15, 16, 17, 18, 19
JSON, NEWDECIMAL, ENUM, SET, BLOB, VAR_STRING, STRING, GEOMETRY = 245, 246, 247, 248, 252, 253, 254, 255

CODECS: Final = {
    **dict.fromkeys(("utf8", "utf8mb3", "utf8mb4"), "utf-8"),
    "latin1": "cp1252",
    "latin2": "iso8859-2",
    "latin5": "iso8859-9",
    "latin7": "iso8859-13",
    "ascii": "ascii",
    "ucs2": "utf-16-be",
    "utf16": "utf-16-be",
    "utf16le": "utf-16-le",
    "utf32": "utf-32-be",
    "greek": "iso8859-7",
    "hebrew": "iso8859-8",
    "koi8r": "koi8-r",
    "koi8u": "koi8-u",
    "macroman": "mac-roman",
    **{name: name for name in ("cp850", "cp852", "cp866", "cp1250", "cp1251", "cp1256", "cp1257", "cp932", "big5")},
    "gb2312": "gb2312",
    "gbk": "gbk",
    "gb18030": "gb18030",
    "sjis": "shift-jis",
    "ujis": "euc-jp",
    "euckr": "euc-kr",
    "tis620": "tis-620",
    "macce": "mac-latin2",
}
"""Python's name for each character set that it can read."""


@dataclass(slots=True)
class BinlogColumn:
    """A column as the binlog describes it."""

    name: str
    kind: int
    size: int
    """What the type says of its length: bytes of a length, digits of a fraction, the greatest length."""
    scale: int = 0
    is_unsigned: bool = False
    charset: str = ""
    """MySQL's name for it, `binary` where there is none."""
    choices: tuple[str, ...] = ()
    """Of an enum or a set."""


def reader_of(column: BinlogColumn, declared: str, *, is_numeric_text: bool) -> Read:
    """What reads a column's values. `declared` is the type that the table's definition names, for those that the
    binlog does not tell apart. ValueError if there is none."""
    kind = column.kind
    if kind in _INTEGERS:
        return _fixed(Struct(_INTEGERS[kind][column.is_unsigned]))
    if kind == INT24:
        return _int24(column.is_unsigned)
    if kind in _BY_KIND:
        return _BY_KIND[kind]
    if kind == NEWDECIMAL:
        return _decimal(column.size, column.scale, is_numeric_text=is_numeric_text)
    if kind in _FRACTIONAL:
        return _FRACTIONAL[kind](column.size)
    if kind == BIT:
        return _big_endian((column.size + 7) // 8)
    if kind in (ENUM, SET):
        return _enum(column) if kind == ENUM else _set(column)
    if kind in (STRING, VAR_STRING, VARCHAR, BLOB, GEOMETRY, JSON):
        width = column.size if kind in (BLOB, GEOMETRY, JSON) else 1 if column.size < 256 else 2
        return _sized(width, _of_bytes(column, declared))
    raise ValueError(f"column {column.name!r} has a type that is not captured (type {kind} of the binlog)")


def encoder_of(declared: str, definition: str, *, is_numeric_text: bool) -> tuple[str, Encode]:
    """For a snapshot: what to select of a column, with {} for its name, and what makes JSON of that. `declared` is the
    type's name, `definition` all that the table says of it."""
    if declared == "decimal":
        plain = _without_zeros if "zerofill" in definition else str
        return "{}", (lambda text: f'"{plain(text)}"') if is_numeric_text else plain
    return _SELECTED.get(declared, ("{}", _text_or_bytes))


def float_text(value: float) -> str:
    """The shortest digits that are this number of four bytes.

    >>> float_text(0.10000000149011612), float_text(16777216.0)
    ('0.1', '16777216.0')
    """
    packed, text = _FLOAT.pack(value), ""
    for digits in (6, 7, 8, 9):
        text = f"{value:.{digits}g}"
        if _FLOAT.pack(float(text)) == packed:
            break
    return repr(float(text))


def document(text: str) -> str:
    """A text that has to be JSON; as a string where it is not, which a table without a check allows."""
    try:
        json.loads(text)
    except ValueError:
        return json_text(text)
    return text.strip()


def decode(data: bytes, charset: str) -> str:
    """
    >>> decode(bytes([0x80, 0x81]), "latin1")
    '€\\x81'
    """
    try:
        return data.decode(CODECS[charset])
    except UnicodeDecodeError:
        if charset != "latin1":
            raise
        # MySQL's latin1 is Windows' code page with the five bytes that it does not use.
        return "".join(bytes((byte,)).decode("cp1252", "ignore") or chr(byte) for byte in data)


_FLOAT: Final = Struct("<f")
_DOUBLE: Final = Struct("<d")
_INTEGERS: Final = {TINY: ("<b", "<B"), SHORT: ("<h", "<H"), LONG: ("<i", "<I"), LONGLONG: ("<q", "<Q")}


def _fixed(form: Struct) -> Read:
    size, unpack = form.size, form.unpack_from
    return lambda data, at: (str(unpack(data, at)[0]), at + size)


def _int24(is_unsigned: bool) -> Read:
    return lambda data, at: (str(int.from_bytes(data[at : at + 3], "little", signed=not is_unsigned)), at + 3)


def _float(data: bytes, at: int) -> tuple[str, int]:
    return float_text(_FLOAT.unpack_from(data, at)[0]), at + 4


def _double(data: bytes, at: int) -> tuple[str, int]:
    return repr(_DOUBLE.unpack_from(data, at)[0]), at + 8


def _year(data: bytes, at: int) -> tuple[str, int]:
    return str(1900 + data[at] if data[at] else 0), at + 1


def _date(data: bytes, at: int) -> tuple[str, int]:
    return f'"{date_text(int.from_bytes(data[at : at + 3], "little"))}"', at + 3


def _old_time(data: bytes, at: int) -> tuple[str, int]:
    """Of servers that still have tables of before 5.6: decimal digits."""
    number = int.from_bytes(data[at : at + 3], "little", signed=True)
    sign, digits = ("-" if number < 0 else ""), f"{abs(number):06}"
    return f'"{sign}{digits[:-4]}:{digits[-4:-2]}:{digits[-2:]}"', at + 3


def _old_datetime(data: bytes, at: int) -> tuple[str, int]:
    text = f"{int.from_bytes(data[at : at + 8], 'little'):014}"
    date, clock = f"{text[:4]}-{text[4:6]}-{text[6:8]}", f"{text[8:10]}:{text[10:12]}:{text[12:]}"
    return f'"{date}T{clock}"', at + 8


def _old_timestamp(data: bytes, at: int) -> tuple[str, int]:
    text = timestamp_text(int.from_bytes(data[at : at + 4], "little"), 0, 0)
    return f'"{text.replace(" ", "T")}Z"', at + 4


_BY_KIND: Final[dict[int, Read]] = {
    FLOAT: _float,
    DOUBLE: _double,
    YEAR: _year,
    DATE: _date,
    TIME: _old_time,
    DATETIME: _old_datetime,
    TIMESTAMP: _old_timestamp,
}


def _micros(data: bytes, at: int, digits: int) -> tuple[int, int]:
    width = (digits + 1) // 2
    return int.from_bytes(data[at : at + width], "big") * 10 ** (6 - 2 * width), at + width


def _datetime2(digits: int) -> Read:
    def read(data: bytes, at: int) -> tuple[str, int]:
        packed = int.from_bytes(data[at : at + 5], "big") - 0x80_0000_0000
        micros, end = _micros(data, at + 5, digits)
        return f'"{datetime_text(packed, micros, digits).replace(" ", "T")}"', end

    return read


def _timestamp2(digits: int) -> Read:
    def read(data: bytes, at: int) -> tuple[str, int]:
        micros, end = _micros(data, at + 4, digits)
        text = timestamp_text(int.from_bytes(data[at : at + 4], "big"), micros, digits)
        return f'"{text.replace(" ", "T")}Z"', end

    return read


def _time2(digits: int) -> Read:
    """Whole and fraction are one number, below the middle where it is negative."""
    width = (digits + 1) // 2

    def read(data: bytes, at: int) -> tuple[str, int]:
        size = 3 + width
        number = int.from_bytes(data[at : at + size], "big") - (1 << (8 * size - 1))
        packed, part = divmod(abs(number), 1 << (8 * width))
        text = time_text(packed, part * 10 ** (6 - 2 * width), digits, is_negative=number < 0)
        return f'"{text}"', at + size

    return read


_FRACTIONAL: Final = {DATETIME2: _datetime2, TIMESTAMP2: _timestamp2, TIME2: _time2}


def _decimal(precision: int, scale: int, *, is_numeric_text: bool) -> Read:
    def read(data: bytes, at: int) -> tuple[str, int]:
        text, end = decimal_text(data, at, precision, scale)
        return (f'"{text}"' if is_numeric_text else text), end

    return read


def _big_endian(width: int) -> Read:
    return lambda data, at: (str(int.from_bytes(data[at : at + width], "big")), at + width)


def _enum(column: BinlogColumn) -> Read:
    """The number 0 is the empty text of a value that was refused without an error."""
    texts, width = ('""', *(json_text(choice) for choice in column.choices)), column.size
    return lambda data, at: (texts[int.from_bytes(data[at : at + width], "little")], at + width)


def _set(column: BinlogColumn) -> Read:
    choices, width = column.choices, column.size

    def read(data: bytes, at: int) -> tuple[str, int]:
        bits = int.from_bytes(data[at : at + width], "little")
        return json_text(",".join(name for bit, name in enumerate(choices) if bits >> bit & 1)), at + width

    return read


def _sized(width: int, encode: Callable[[bytes], str]) -> Read:
    def read(data: bytes, at: int) -> tuple[str, int]:
        start = at + width
        end = start + int.from_bytes(data[at:start], "little")
        return encode(data[start:end]), end

    return read


def _of_bytes(column: BinlogColumn, declared: str) -> Callable[[bytes], str]:
    kind, charset, size = column.kind, column.charset, column.size
    if kind == JSON:
        return json_document
    if declared in _ADDRESSES and charset == "binary":
        return _ADDRESSES[declared]
    if kind == GEOMETRY or charset == "binary":
        if kind == STRING:  # BINARY(n): the binlog leaves out zeros at the end
            return lambda data: _base64(data.ljust(size, b"\0"))
        return _base64
    if charset not in CODECS:
        raise ValueError(f"column {column.name!r} has the character set {charset!r}, which cannot be read")
    if declared == "json":
        return lambda data: document(decode(data, charset))
    if CODECS[charset] == "utf-8":
        return lambda data: json_text(data.decode())
    return lambda data: json_text(decode(data, charset))


def _base64(data: bytes) -> str:
    return f'"{base64.b64encode(data).decode()}"'


def uuid_text(data: bytes) -> str:
    """MariaDB keeps a UUID with its parts in reverse order, unless its version is 6 or more: those are in order.

    >>> uuid_text(bytes.fromhex("00 00 00 00 00 00 80 00 11 ec 9c e7 fa ce 00 01".replace(" ", "")))
    '"face0001-9ce7-11ec-8000-000000000000"'
    """
    data = data.ljust(16, b"\0")
    text = data.hex()
    # In reverse order the byte that tells the variant is the 7th; a version of 6 or more, in order, is there instead.
    if data[6] & 0x80 or not data[8] & 0x80:
        text = text[24:] + text[20:24] + text[16:20] + text[12:16] + text[:12]
    return f'"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"'


def _inet6(data: bytes) -> str:
    """
    >>> _inet6(bytes(10) + bytes([255, 255, 127, 0, 0, 1])), _inet6(bytes(15) + bytes([1]))
    ('"::ffff:127.0.0.1"', '"::1"')
    """
    found = IPv6Address(data.ljust(16, b"\0"))
    return f'"{found if found.ipv4_mapped is None else f"::ffff:{found.ipv4_mapped}"}"'


_ADDRESSES: Final[dict[str, Callable[[bytes], str]]] = {
    "uuid": uuid_text,
    "inet4": lambda data: f'"{IPv4Address(data.ljust(4, bytes(1)))}"',
    "inet6": _inet6,
}
"""MariaDB's types that the binlog has as BINARY."""


def _without_zeros(text: str) -> str:
    sign, digits = ("-", text[1:]) if text.startswith("-") else ("", text)
    whole, dot, part = digits.partition(".")
    return f"{sign}{whole.lstrip('0') or '0'}{dot}{part}"


def _text_or_bytes(value: str | bytes) -> str:
    return json_text(value) if isinstance(value, str) else _base64(value)


_SELECTED: Final[dict[str, tuple[str, Encode]]] = {
    # ZEROFILL prints zeros.
    **dict.fromkeys(("tinyint", "smallint", "mediumint", "int", "bigint", "year"), ("{}", lambda text: str(int(text)))),
    "bit": ("{} + 0", str),
    # As itself it is printed with six digits.
    "float": ("{} + 0e0", lambda text: float_text(float(text))),
    "double": ("{}", lambda text: repr(float(text))),
    "datetime": ("{}", lambda text: f'"{text.replace(" ", "T")}"'),
    "timestamp": ("{}", lambda text: f'"{text.replace(" ", "T")}Z"'),
    "json": ("{}", lambda text: document(text if isinstance(text, str) else text.decode())),
}
"""What a snapshot selects of a type, and what makes JSON of it; of others, the column itself."""
