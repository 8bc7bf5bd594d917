"""Records as JSON lines, both ways: what `topic consume --format json` prints, `topic produce --format json` takes.

    {"topic":"orders","partition":0,"offset":7,"timestamp":1700000000000,"key":"u1","value":{"n":1},"headers":[["a","b"]]}

Bytes are restored exactly, to the last space:

- JSON is embedded as it is written, character by character: objects and arrays in keys and values, numbers and
  booleans in values;
- other text is a string, and so is JSON that would not be restored: with line breaks inside or spaces around it,
  a JSON string (its quotes are part of the text), `null`, and an object that looks like the next item;
- bytes that are not UTF-8 are {"base64": "..."};
- null is null: a missing key, a tombstone, a header without a value.

Not promised: that bytes are restored if a program in between writes the JSON again.
"""

from __future__ import annotations

import json
import re
from base64 import b64decode, b64encode
from collections.abc import Iterable
from json.encoder import encode_basestring
from typing import Any, Final, NamedTuple

from foldlog.errors import FoldlogError, brief_repr
from foldlog.records.loops import Record

BASE64: Final = "base64"
FIELDS: Final = ("topic", "partition", "offset", "timestamp", "key", "value", "headers")

_IS_SPACE: Final = re.compile(r"[ \t\n\r]*").match
_DOCUMENTS: Final = frozenset("{[")
_DOCUMENTS_AND_SCALARS: Final = frozenset("{[-0123456789tf")
_ACTING: Final = re.compile("[\x7f-\x9f]")
_NOTHING: Final = frozenset[str]()
_CLOSING: Final = frozenset("}]0123456789e")


class UnreadableLine(FoldlogError):
    """A line of input is not a record. Its message is only the reason at first; the caller adds which line it is."""


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


_scan: Final = json.JSONDecoder(parse_constant=_refuse_constant).raw_decode


# --- records to lines -----------------------------------------------------------------------------------------------


def record_lines(records: Iterable[Record]) -> bytes:
    """The records, a line each.

    >>> record_lines([Record("orders", 0, 7, 5, 0, b"u1", b'{"n": 1}')])
    b'{"topic":"orders","partition":0,"offset":7,"timestamp":5,"key":"u1","value":{"n": 1},"headers":[]}\\n'
    """
    return "".join([record_line(record) for record in records]).encode()


def record_lines_for_terminal(records: Iterable[Record]) -> bytes:
    """Lines of JSON without characters that a terminal acts on; embedded JSON may be spelled differently."""
    lines = record_lines(records).decode().replace("\r", " ")
    return _ACTING.sub(lambda found: f"\\u{ord(found[0]):04x}", lines).encode()


def record_line(record: Record) -> str:
    value, key, headers = record.value, record.key, record.headers
    return (
        f'{{"topic":"{record.topic}","partition":{record.partition},"offset":{record.offset},'
        f'"timestamp":{record.timestamp_ms},"key":{json_text(key)},"value":{json_text(value, _DOCUMENTS_AND_SCALARS)},'
        f'"headers":{_headers_text(headers) if headers else "[]"}}}\n'
    )


def json_text(data: bytes | None, embedded: frozenset[str] = _DOCUMENTS) -> str:
    """Bytes as JSON; `embedded` are the first characters of JSON that may be embedded.

    >>> json_text(b"u1"), json_text(b"[1]"), json_text(None), json_text(bytes([255]))
    ('"u1"', '[1]', 'null', '{"base64":"/w=="}')
    """
    if data is None:
        return "null"
    try:
        text = str(data, "utf-8")
    except UnicodeDecodeError:
        return f'{{"base64":"{b64encode(data).decode()}"}}'
    if text[:1] in embedded and text[-1] in _CLOSING and _comes_back(text):
        return text
    return encode_basestring(text)


def _comes_back(text: str) -> bool:
    """Whether the text is JSON that can be in a line and is then read as the same text."""
    if "\n" in text:
        return False
    try:
        found, end = _scan(text, 0)
    except (ValueError, RecursionError):
        return False
    if end != len(text):
        return False
    return not (type(found) is dict and len(found) == 1 and BASE64 in found)


def _headers_text(headers: Iterable[tuple[str, bytes | None]]) -> str:
    pairs = [f"[{encode_basestring(name)},{json_text(value, _NOTHING)}]" for name, value in headers]
    return f"[{','.join(pairs)}]"


# --- lines to records -----------------------------------------------------------------------------------------------


Headers = tuple[tuple[str, bytes | None], ...]


class ParsedRecord(NamedTuple):
    """The contents of a line. partition and timestamp are None if the line leaves them open."""

    key: bytes | None
    value: bytes | None
    headers: Headers
    partition: int | None
    timestamp_ms: int | None


def parse_line(line: bytes) -> ParsedRecord:
    """The record of a line; UnreadableLine says what is wrong with it. `topic` and `offset` are ignored.

    >>> parse_line(b'{"key":"u1","value":{"n": 1}}')
    ParsedRecord(key=b'u1', value=b'{"n": 1}', headers=(), partition=None, timestamp_ms=None)
    """
    text = _text_of(line)
    printed = _as_printed(text)
    if printed is not None:
        return printed
    fields = _members(text)
    for name in fields:
        if name not in FIELDS:
            raise UnreadableLine(f"has a field {brief_repr(name)}; a record has {', '.join(FIELDS)}")
    if "value" not in fields:
        raise UnreadableLine('has no "value"; a record that deletes its key says "value": null')
    return ParsedRecord(
        _bytes_of("key", *fields.get("key", _NULL)),
        _bytes_of("value", *fields["value"]),
        _headers_of(*fields["headers"]) if "headers" in fields else (),
        _number_of("partition", fields),
        _number_of("timestamp", fields),
    )


_NULL: Final = (None, "null")
_PRINTED: Final = re.compile(
    r'\{"topic":"[^"\\]*","partition":([0-9]{1,9}),"offset":[0-9]+,"timestamp":([0-9]{1,18}),"key":'
)


def _as_printed(text: str) -> ParsedRecord | None:
    """The record of a line in the exact form of `record_line`; None for every other line.

    Gives the result of the general parser below in a third of the time: most lines have this form.
    """
    found = _PRINTED.match(text)
    if found is None:
        return None
    try:
        at = found.end()
        key, end = _scan(text, at)
        key_text = text[at:end]
        if not text.startswith(',"value":', end):
            return None
        at = end + len(',"value":')
        value, end = _scan(text, at)
        value_text = text[at:end]
        headers: Headers = ()
        if not text.endswith(',"headers":[]}') or len(text) != end + len(',"headers":[]}'):
            if not text.startswith(',"headers":[', end):
                return None
            at = end + len(',"headers":')
            pairs, end = _scan(text, at)
            if text[end:] != "}":
                return None
            headers = _headers_of(pairs, text[at:end])
    except (ValueError, RecursionError):
        return None  # the general parser reports what is wrong, and where
    return ParsedRecord(
        _bytes_of("key", key, key_text), _bytes_of("value", value, value_text), headers, int(found[1]), int(found[2])
    )


def _text_of(line: bytes) -> str:
    try:
        return str(line, "utf-8")
    except UnicodeDecodeError as error:
        raise UnreadableLine(f"is not UTF-8 (byte {error.start + 1} of the line)") from None


def _members(text: str) -> dict[str, tuple[Any, str]]:
    """The fields of an object, each with its source text."""
    fields: dict[str, tuple[Any, str]] = {}
    at = _after_space(text, 0)
    if text[at : at + 1] != "{":
        raise UnreadableLine('is not a JSON object such as {"key": "u1", "value": {"n": 1}}')
    at = _after_space(text, at + 1)
    is_over = text[at : at + 1] == "}"
    while not is_over:
        if text[at : at + 1] != '"':
            raise _not_json(at, "a field's name in quotes is expected")
        name, at = _scanned(text, at)
        at = _after_space(text, at)
        if text[at : at + 1] != ":":
            raise _not_json(at, "a colon is expected")
        start = _after_space(text, at + 1)
        value, at = _scanned(text, start)
        if name in fields:
            raise UnreadableLine(f"has the field {brief_repr(name)} twice")
        fields[name] = (value, text[start:at])
        at = _after_space(text, at)
        is_over = text[at : at + 1] == "}"
        if not is_over:
            if text[at : at + 1] != ",":
                raise _not_json(at, "a comma or } is expected")
            at = _after_space(text, at + 1)
    if _after_space(text, at + 1) != len(text):
        raise _not_json(at + 1, "something follows the object")
    return fields


def _after_space(text: str, at: int) -> int:
    found = _IS_SPACE(text, at)
    return at if found is None else found.end()


def _scanned(text: str, at: int) -> tuple[Any, int]:
    try:
        value, end = _scan(text, at)
    except json.JSONDecodeError as error:
        raise _not_json(error.pos, error.msg[0].lower() + error.msg[1:]) from None
    except ValueError as error:
        raise UnreadableLine(f"is not JSON: {error}") from None
    except RecursionError:
        raise UnreadableLine("is nested too deeply") from None
    return value, end


def _not_json(at: int, why: str) -> UnreadableLine:
    return UnreadableLine(f"is not JSON: {why} at character {at + 1}")


def _bytes_of(what: str, value: Any, text: str) -> bytes | None:
    """The bytes for a field: see the module's docstring."""
    if value is None:
        return None
    try:
        if type(value) is str:
            return value.encode()
        if type(value) is dict and len(value) == 1 and BASE64 in value:
            return b64decode(value[BASE64], validate=True)
        return text.encode()
    except UnicodeEncodeError:
        raise UnreadableLine(f'has a "{what}" with half a surrogate pair, which UTF-8 cannot express') from None
    except (ValueError, TypeError):
        raise UnreadableLine(f'has a "{what}" whose base64 is not base64') from None


def _headers_of(value: Any, text: str) -> Headers:
    """A list of pairs, as printed, or an object of names and values, as people write it."""
    if value is None:
        return ()
    if type(value) is dict:
        return tuple((name, _bytes_of("headers", *member)) for name, member in _members(text).items())
    headers: list[tuple[str, bytes | None]] = []
    for pair in value if type(value) is list else [value]:
        if type(pair) is not list or len(pair) != 2 or type(pair[0]) is not str:
            raise UnreadableLine('has "headers" that are not pairs such as [["source", "web"]]')
        # Serialized again, as the position of a pair in the text is unknown. Printed lines have only strings here.
        headers.append((pair[0], _bytes_of("headers", pair[1], json.dumps(pair[1], ensure_ascii=False))))
    return tuple(headers)


def _number_of(name: str, fields: dict[str, tuple[Any, str]]) -> int | None:
    value, _ = fields.get(name, _NULL)
    if value is None or (type(value) is int and value >= 0):
        return value
    if value == -1 and name == "timestamp":
        return None  # Kafka's value for a record without a timestamp
    raise UnreadableLine(f'has a "{name}" of {brief_repr(value)}; it is a whole number, 0 or more')
