"""The messages of pgoutput, version 1: bytes to values. PostgreSQL's manual has the format, "Logical Replication
Message Formats". Texts only: nothing asks for binary values.
"""

from __future__ import annotations

from struct import Struct
from struct import error as StructError  # noqa: N812 it is an exception
from typing import Final, NamedTuple

from foldlog.errors import MalformedBytes

_BEGIN: Final = Struct(">qqI")
_COMMIT: Final = Struct(">Bqqq")
_RELATION: Final = Struct(">I")
_COUNT: Final = Struct(">H")
_COLUMN: Final = Struct(">Ii")
_TRUNCATE: Final = Struct(">IB")

EPOCH_MS: Final = 946_684_800_000
"""2000-01-01, from which PostgreSQL counts microseconds."""

Values = list[bytes | None]
"""The texts of a row; NULL is None, and a value that was left out because it did not change is `MISSING`."""

MISSING: Final = b"\xff"
"""No text of UTF-8. Compared by identity."""


class BeginMessage(NamedTuple):
    """A transaction begins. `position` is its commit's."""

    position: int
    committed_ms: int
    number: int


class CommitMessage(NamedTuple):
    """A transaction ends. `end` is where WAL goes on after it."""

    position: int
    end: int


class RelationColumn(NamedTuple):
    """`is_identity`: part of what identifies old rows."""

    name: str
    type_oid: int
    is_identity: bool


class RelationMessage(NamedTuple):
    """A table as it is from now on. `identity` is d (its primary key), i (an index), f (all columns) or n (nothing)."""

    oid: int
    schema: str
    name: str
    identity: str
    columns: tuple[RelationColumn, ...]


class RowMessage(NamedTuple):
    """A row was inserted (I), updated (U) or deleted (D). `old` is the whole row before if `is_old_whole`, else what
    identified it; None if that did not change."""

    kind: str
    oid: int
    old: Values | None
    new: Values | None
    is_old_whole: bool


class TruncateMessage(NamedTuple):
    """These tables are empty now."""

    oids: tuple[int, ...]


Message = BeginMessage | CommitMessage | RelationMessage | RowMessage | TruncateMessage


def parse(data: bytes) -> Message | None:
    """One message; None for those that say nothing of rows (types, origins, messages of programs)."""
    kind = data[:1]
    try:
        if kind in (b"I", b"U", b"D"):
            return _row(kind, data)
        if kind == b"B":
            position, time_us, number = _BEGIN.unpack_from(data, 1)
            return BeginMessage(position, EPOCH_MS + time_us // 1000, number)
        if kind == b"C":
            _, position, end, _ = _COMMIT.unpack_from(data, 1)
            return CommitMessage(position, end)
        if kind == b"R":
            return _relation(data)
        if kind == b"T":
            count, _ = _TRUNCATE.unpack_from(data, 1)
            return TruncateMessage(tuple(_RELATION.unpack_from(data, 6 + 4 * index)[0] for index in range(count)))
    except (ValueError, IndexError, StructError) as error:
        raise MalformedBytes("message of pgoutput", str(error), 0) from error
    return None


def _row(kind: bytes, data: bytes) -> RowMessage:
    (oid,) = _RELATION.unpack_from(data, 1)
    old: Values | None = None
    part = data[5:6]
    at = 6
    is_whole = part == b"O"
    if part in (b"K", b"O"):
        old, at = _tuple(data, at)
        if kind == b"D":
            return RowMessage("D", oid, old, None, is_whole)
        at += 1
    new, _ = _tuple(data, at)
    return RowMessage(kind.decode(), oid, old, new, is_whole)


def _tuple(data: bytes, at: int) -> tuple[Values, int]:
    (count,) = _COUNT.unpack_from(data, at)
    at += 2
    values: Values = []
    for _ in range(count):
        kind = data[at]
        at += 1
        if kind == 0x74:  # t, a text
            end = at + 4 + int.from_bytes(data[at : at + 4], "big")
            values.append(data[at + 4 : end])
            at = end
        elif kind == 0x6E:  # n
            values.append(None)
        elif kind == 0x75:  # u
            values.append(MISSING)
        else:
            raise ValueError(f"a column of kind {chr(kind)!r}")
    if at > len(data):
        raise ValueError("it ends within a value")
    return values, at


def _relation(data: bytes) -> RelationMessage:
    (oid,) = _RELATION.unpack_from(data, 1)
    schema, at = _name(data, 5)
    name, at = _name(data, at)
    identity = chr(data[at])
    (count,) = _COUNT.unpack_from(data, at + 1)
    at += 3
    columns: list[RelationColumn] = []
    for _ in range(count):
        flags = data[at]
        column, at = _name(data, at + 1)
        type_oid, _ = _COLUMN.unpack_from(data, at)
        at += _COLUMN.size
        columns.append(RelationColumn(column, type_oid, bool(flags & 1)))
    return RelationMessage(oid, schema or "pg_catalog", name, identity, tuple(columns))


def _name(data: bytes, at: int) -> tuple[str, int]:
    end = data.index(0, at)
    return data[at:end].decode(), end + 1
