"""PostgreSQL's texts to JSON, by type. Both streams give texts: pgoutput and COPY print by the same functions.

| type | JSON |
| --- | --- |
| boolean | true, false |
| smallint, integer, bigint, oid | a number |
| real, double precision | a number; NaN and the infinities a string |
| numeric | a string with all digits, or by choice a number with all digits |
| json, jsonb | itself, as PostgreSQL prints it |
| timestamp, timestamptz | ISO 8601: `2026-11-18T09:30:00.25`, and in UTC with a `Z` |
| bytea | base64 |
| an array | an array, of what its elements are |
| a domain | what its base type is |
| all others: text, uuid, date, interval, enums, ranges, … | a string, as PostgreSQL prints it |

The session prints dates as ISO, times in UTC, intervals as ISO 8601 and floats with all digits: see `SESSION`.
"""

from __future__ import annotations

import base64
from collections.abc import Callable
from json.encoder import encode_basestring as json_text
from typing import Final, NamedTuple

Encode = Callable[[str], str]

SESSION: Final = (
    "-c DateStyle=ISO,YMD -c TimeZone=UTC -c IntervalStyle=iso_8601 -c bytea_output=hex -c extra_float_digits=1"
    " -c statement_timeout=0 -c idle_in_transaction_session_timeout=0"
)
"""Options of every connection whose texts are read here. A snapshot takes its time, and keeps what exported it open."""

_NUMBERS: Final = frozenset({20, 21, 23, 26})
_FLOATS: Final = frozenset({700, 701})
_NUMERIC: Final = 1700
_BOOLEAN: Final = 16
_BYTEA: Final = 17
_DOCUMENTS: Final = frozenset({114, 3802})
_TIMESTAMP: Final = 1114
_TIMESTAMPTZ: Final = 1184
_NOT_FINITE: Final = frozenset({"NaN", "Infinity", "-Infinity"})


class TypeInfo(NamedTuple):
    """A row of pg_type. `element` is 0 unless it is an array, `base` unless it is a domain."""

    element: int
    base: int
    delimiter: str


def encoder_of(oid: int, look_up: Callable[[int], TypeInfo | None], *, is_numeric_text: bool) -> Encode:
    """What makes JSON of a type's texts. `look_up` finds types that are not PostgreSQL's own scalars."""
    if oid in _SIMPLE:
        return _SIMPLE[oid]
    if oid == _NUMERIC:
        return json_text if is_numeric_text else _float
    info = look_up(oid)
    if info is not None and info.base:
        return encoder_of(info.base, look_up, is_numeric_text=is_numeric_text)
    if info is not None and info.element:
        element = encoder_of(info.element, look_up, is_numeric_text=is_numeric_text)
        delimiter = info.delimiter
        return lambda text: array_json(text, element, delimiter)
    return json_text


def _same(text: str) -> str:
    return text


def _boolean(text: str) -> str:
    return "true" if text == "t" else "false"


def _float(text: str) -> str:
    return json_text(text) if text in _NOT_FINITE else text


def _bytea(text: str) -> str:
    """
    >>> _bytea(chr(92) + "x00ff")
    '"AP8="'
    """
    return f'"{base64.b64encode(bytes.fromhex(text[2:])).decode()}"'


def _timestamp(text: str) -> str:
    """
    >>> _timestamp("2026-11-18 09:30:00.25"), _timestamp("infinity"), _timestamp("0044-03-15 00:00:00 BC")
    ('"2026-11-18T09:30:00.25"', '"infinity"', '"0044-03-15 00:00:00 BC"')
    """
    return json_text(text if text.endswith("BC") else text.replace(" ", "T", 1))


def _timestamptz(text: str) -> str:
    """
    >>> _timestamptz("2026-11-18 09:30:00.25+00")
    '"2026-11-18T09:30:00.25Z"'
    """
    return _timestamp(f"{text[:-3]}Z" if text.endswith("+00") else text)


def array_json(text: str, element: Encode, delimiter: str = ",") -> str:
    """An array as PostgreSQL prints it; lower bounds other than 1 are left out.

    >>> array_json('{{1,NULL},{3,4}}', _same), array_json('[0:1]={"a \\\\"b",c}', json_text)
    ('[[1,null],[3,4]]', '["a \\\\"b","c"]')
    """
    out: list[str] = []
    at = text.index("{")
    end = len(text)
    while at < end:
        char = text[at]
        if char == "{":
            out.append("[")
        elif char == "}":
            out.append("]")
        elif char == delimiter:
            out.append(",")
        elif char == '"':
            value, at = _quoted(text, at + 1)
            out.append(element(value))
            continue
        else:
            start = at
            while text[at] not in (delimiter, "}"):
                at += 1
            value = text[start:at]
            out.append("null" if value == "NULL" else element(value))
            continue
        at += 1
    return "".join(out)


def _quoted(text: str, at: int) -> tuple[str, int]:
    """The element whose first quote is before `at`, and where it goes on after the last."""
    parts: list[str] = []
    start = at
    while text[at] != '"':
        if text[at] == "\\":
            parts.append(text[start:at])
            at += 1
            start = at
        at += 1
    parts.append(text[start:at])
    return "".join(parts), at + 1


_SIMPLE: Final[dict[int, Encode]] = {
    **dict.fromkeys(_NUMBERS, _same),
    **dict.fromkeys(_DOCUMENTS, str.strip),  # json keeps the spaces around it
    **dict.fromkeys(_FLOATS, _float),
    _BOOLEAN: _boolean,
    _BYTEA: _bytea,
    _TIMESTAMP: _timestamp,
    _TIMESTAMPTZ: _timestamptz,
}
