"""Confluent's wire format: which schema a key or a value was written with. Pure.

A value begins with a zero byte and the id of its writer's schema in four bytes, big-endian. In Protobuf, the path to
the message type follows, as a count and indexes in zigzag varints. The rest is the message.
"""

from __future__ import annotations

from typing import Final, NamedTuple

HEADER_BYTES: Final = 5
_INDEXES_MAX: Final = 64
_VARINT_BYTES_MAX: Final = 10


class NotFramed(Exception):
    """A value is not in the wire format; the message is the reason."""


class Framed(NamedTuple):
    """The header of a message, and where the message begins."""

    schema_id: int
    start: int


def read_header(value: bytes) -> Framed:
    """The schema id; NotFramed if the value does not begin with a header."""
    if len(value) < HEADER_BYTES:
        raise NotFramed(f"{len(value)} bytes are too few for a schema id")
    if value[0] != 0:
        raise NotFramed(f"begins with byte {value[0]} instead of 0 and a schema id")
    return Framed(int.from_bytes(value[1:HEADER_BYTES], "big"), HEADER_BYTES)


def read_message_path(value: bytes, start: int) -> tuple[tuple[int, ...], int]:
    """Protobuf's path to the message type in its file, and where the message begins.

    >>> read_message_path(bytes([0, 42]), 0)
    ((0,), 1)
    >>> read_message_path(bytes([4, 2, 0, 42]), 0)
    ((1, 0), 3)
    """
    count, at = _read_zigzag(value, start)
    if count == 0:  # short for the file's first message, the usual case
        return (0,), at
    if not 0 < count <= _INDEXES_MAX:
        raise NotFramed(f"a path of {count} message indexes")
    path: list[int] = []
    for _ in range(count):
        index, at = _read_zigzag(value, at)
        path.append(index)
    return tuple(path), at


def _read_zigzag(value: bytes, at: int) -> tuple[int, int]:
    number = 0
    for position in range(_VARINT_BYTES_MAX):
        if at + position >= len(value):
            raise NotFramed("ends inside the message indexes")
        byte = value[at + position]
        number |= (byte & 0x7F) << (7 * position)
        if byte < 0x80:
            return (number >> 1) ^ -(number & 1), at + position + 1
    raise NotFramed("a message index without an end")
