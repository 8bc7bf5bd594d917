"""A key or value as something to read: by a decoder with a name, the same ones in the console and on the command line.

A decoder turns bytes into a document (what JSON can hold) or says that they are not of its kind. To add one, add it to
`DECODERS`: everything that shows records knows it then. One that needs a schema is passed in place of its name, by
whoever has the schemas: `registry` is such a one.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Mapping
from datetime import datetime
from types import MappingProxyType
from typing import Any, Final, NoReturn

from foldlog.errors import InvalidArgument, MissingDependency, brief_repr
from foldlog.records.msgpack import Extension, unpacked

Decoder = Callable[[bytes], Any]
"""From bytes to a document. Raises ValueError, with the reason, if they are not of its kind; nothing else."""

AUTO: Final = "auto"
HEX: Final = "hex"

_HEX_ROW: Final = 16


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


def from_json(data: bytes) -> Any:
    """
    >>> from_json(b'{"n": 1}')
    {'n': 1}
    """
    try:
        return json.loads(data.decode(), parse_constant=_refuse_constant)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def from_msgpack(data: bytes) -> Any:
    """MessagePack, with what JSON cannot hold in words: bytes as hexadecimal, times in ISO 8601.

    >>> from_msgpack(bytes([0x81, 0xA1, 0x6B, 0xC4, 0x01, 0xFF]))
    {'k': '0xff'}
    """
    return _documented(unpacked(data))


def _documented(value: Any) -> Any:
    if isinstance(value, dict):
        return {_name(key): _documented(inner) for key, inner in value.items()}
    if isinstance(value, Extension):
        return {"extension": value.code, "data": f"0x{value.data.hex()}"}
    if isinstance(value, list):
        return [_documented(inner) for inner in value]
    if isinstance(value, bytes):
        return f"0x{value.hex()}"
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, float) and (value != value or value in (float("inf"), float("-inf"))):
        return str(value)
    return value


def _name(key: Any) -> str:
    return key if isinstance(key, str) else f"0x{key.hex()}" if isinstance(key, bytes) else str(key)


def from_text(data: bytes) -> Any:
    return data.decode()


def from_hex(data: bytes) -> Any:
    """Rows of sixteen bytes, with their place and what of them is a character.

    >>> print(from_hex(b"tea \\xff"))
    00000000  74 65 61 20 ff                                   tea .
    """
    rows = []
    for at in range(0, len(data), _HEX_ROW):
        piece = data[at : at + _HEX_ROW]
        shown = "".join(chr(byte) if 0x20 <= byte < 0x7F else "." for byte in piece)
        rows.append(f"{at:08x}  {piece.hex(' '):<{3 * _HEX_ROW}} {shown}")
    return "\n".join(rows)


DECODERS: Final[Mapping[str, Decoder]] = MappingProxyType(
    {"json": from_json, "msgpack": from_msgpack, "text": from_text, HEX: from_hex}
)

REGISTRY: Final = "registry"
"""By the schema that a value names: see `client/schemas/values.py`."""

NAMES: Final = (AUTO, *DECODERS, REGISTRY)

How = str | Decoder
"""A decoder, or the name of one that needs no schema."""


class Guessing:
    """`auto` of whoever has schemas: bytes that name a known schema are what that says, all others are guessed."""

    def __init__(self, by_schema: Decoder) -> None:
        self._by_schema = by_schema

    def by_schema(self, data: bytes) -> Any:
        try:
            return self._by_schema(data)
        except MissingDependency as error:  # what is only guessed at need not be installed
            raise ValueError(str(error)) from None

    def __call__(self, data: bytes) -> Any:
        try:
            return self.by_schema(data)
        except ValueError:
            return _guessed(data)


def decoder_named(name: str) -> Decoder | None:
    """The decoder; None for `auto` and `registry`. Raises InvalidArgument if there is no such one."""
    if name not in NAMES:
        raise InvalidArgument(f"{brief_repr(name)} is no way to decode a value; there are {', '.join(NAMES)}")
    return DECODERS.get(name)


def document_of(data: bytes | None, how: How = AUTO) -> Any:
    """What the bytes hold, or None if they are not of that kind. `auto` takes JSON, and MessagePack if it is an object
    or a list: almost any byte alone would be a number."""
    if data is None:
        return None
    if how == AUTO:
        return _guessed(data)
    decoder = decoder_named(how) if isinstance(how, str) else how
    try:
        return None if decoder is None else decoder(data)
    except ValueError:
        return None


def _guessed(data: bytes) -> Any:
    try:
        return from_json(data)
    except ValueError:
        pass
    try:
        found = from_msgpack(data) if data[:1] >= b"\x80" else None
    except ValueError:
        return None
    return found if isinstance(found, dict | list) else None


def readable(data: bytes, how: How = AUTO) -> str:
    """The bytes as a text to read, whatever they are: decoded, else as they are, else in base64.

    >>> readable(b"paid"), readable(bytes([0x81, 0xA1, 0x6E, 0x01])), readable(bytes([0xFF]))
    ('paid', '{"n": 1}', 'base64 /w==')
    """
    found = document_of(data, how)
    if found is not None and (how != AUTO or not _is_text(data)):
        return found if isinstance(found, str) else json.dumps(found, ensure_ascii=False)
    if how == HEX:
        return str(from_hex(data))
    try:
        return data.decode()
    except UnicodeDecodeError:
        return f"base64 {base64.b64encode(data).decode()}"


def _is_text(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True
