"""The bytes of a journal file, and what can be read of one that a crash left behind.

A file is a block of header, then commits, each from the beginning of a block: so no write touches a block that an
earlier commit acknowledged. A commit has a head, a table of entries, the entries' bytes one after the other, and zeroes
up to the next block.

The file is used again and again, and what it held before stays behind the newest commit: the use number in head and
header tells them apart. Commits are numbered through all files. One is written when the one before it is durable, so
only the newest can be torn, and was then not acknowledged: whatever else is not whole is damage.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Final, NamedTuple

from crc32c import crc32c

from foldlog.errors import NewerVersion
from foldlog.files.base import Buffer, File

BLOCK_BYTES: Final = 4096
"""What no two commits share. A multiple of every sector and page that a disk or a file system writes at once."""

JOURNAL_SUFFIX: Final = ".journal"
VERSION: Final = 1

_MAGIC: Final = b"foldlog journal\n"
_HEADER = struct.Struct(">16sI16sQQ")  # magic, version, directory id, use number, first use needed
_COMMIT_MAGIC: Final = b"FLJC"
_HEAD = struct.Struct(">4sQQQQII")  # magic, use number, first use needed, number, number before, entries, data bytes
_ENTRY = struct.Struct(
    ">16siiqqqqII"
)  # topic id, partition, epoch, segment, position, offsets, length, CRC of the bytes
_CRC = struct.Struct(">I")
_ZEROES: Final = memoryview(bytes(BLOCK_BYTES))


class Header(NamedTuple):
    """Which use of the file is the present one, and the first use of any file whose commits a recovery has to read."""

    directory_id: bytes
    use: int
    needed: int


class Entry(NamedTuple):
    """Bytes of a segment at their position: the batches from `first_offset` to before `next_offset`."""

    topic_id: bytes
    partition: int
    leader_epoch: int
    base_offset: int
    position: int
    first_offset: int
    next_offset: int
    length: int
    crc: int

    @property
    def end(self) -> int:
        return self.position + self.length


class Placed(NamedTuple):
    """An entry, and where its bytes are in the journal file."""

    entry: Entry
    position: int
    is_whole: bool


@dataclass(frozen=True, slots=True)
class JournalCommit:
    """A commit that was read. `previous`: the number of the last one before it that was durable."""

    number: int
    previous: int
    needed: int
    position: int
    entries: tuple[Placed, ...]

    @property
    def is_whole(self) -> bool:
        return all(entry.is_whole for entry in self.entries)


@dataclass(frozen=True, slots=True)
class JournalDamage:
    """A place in a journal file where a commit was durable and is no longer whole."""

    path: str
    position: int
    reason: str


@dataclass(slots=True)
class JournalUse:
    """What one file holds of its present use; the newest commit may be torn."""

    path: str
    size: int
    use: int
    needed: int
    directory_id: bytes | None
    commits: list[JournalCommit] = field(default_factory=list)
    damages: list[JournalDamage] = field(default_factory=list)


def checksum(data: Buffer, before: int = 0) -> int:
    # Inverted, so that zeroes are not valid.
    return crc32c(data, before) ^ 0xFFFFFFFF


def padded(size: int) -> int:
    """`size` up to the end of its block."""
    return -(-size // BLOCK_BYTES) * BLOCK_BYTES


def commit_bytes(entries: int, data_bytes: int) -> int:
    """How many bytes of a file a commit takes."""
    return padded(_HEAD.size + entries * _ENTRY.size + _CRC.size + data_bytes)


def encode_header(header: Header) -> bytes:
    body = _HEADER.pack(_MAGIC, VERSION, header.directory_id, header.use, header.needed)
    return (body + _CRC.pack(checksum(body))).ljust(BLOCK_BYTES, b"\0")


def encode_commit(
    memory: memoryview, use: int, needed: int, number: int, previous: int, parts: Sequence[tuple[Entry, bytes]]
) -> None:
    """Fill `memory`, which has `commit_bytes`, with a commit. The CRC of an entry is filled in here."""
    table_end = _HEAD.size + len(parts) * _ENTRY.size
    start = end = table_end + _CRC.size
    for place, (entry, data) in enumerate(parts):
        _ENTRY.pack_into(memory, _HEAD.size + place * _ENTRY.size, *entry[:8], checksum(data))
        memory[end : end + len(data)] = data
        end += len(data)
    _HEAD.pack_into(memory, 0, _COMMIT_MAGIC, use, needed, number, previous, len(parts), end - start)
    _CRC.pack_into(memory, table_end, checksum(memory[:table_end]))
    memory[end:] = _ZEROES[: len(memory) - end]


def read_header(file: File, path: str) -> Header | None:
    """The header; None if it is not whole. Raises NewerVersion."""
    data = file.read(0, _HEADER.size + _CRC.size)
    if len(data) < _HEADER.size + _CRC.size or _CRC.unpack_from(data, _HEADER.size)[0] != checksum(
        data[: _HEADER.size]
    ):
        return None
    magic, version, directory_id, use, needed = _HEADER.unpack_from(data)
    if magic != _MAGIC:
        return None
    if version > VERSION:
        raise NewerVersion(path, version, VERSION)
    return Header(directory_id, use, needed)


def read_use(file: File, path: str) -> JournalUse | None:
    """Everything the present use of a file holds, in the order in which it was written; None if it was never used.

    A header that is not whole was torn when the file was prepared for its next use, and nobody needs what is in it; or
    it has rotted, and then the first commit names the use.
    """
    size = file.size()
    header = read_header(file, path)
    if header is None:
        first = _read_commit(file, BLOCK_BYTES, None, size)
        if first is None:
            return None
        found = JournalUse(path, size, first[0], first[1].needed, None)
    else:
        found = JournalUse(path, size, header.use, header.needed, header.directory_id)
    position, number = BLOCK_BYTES, None
    while True:
        read = _read_commit(file, position, found.use, size)
        if read is None or (number is not None and read[1].number <= number):
            following = _search(file, position + BLOCK_BYTES, found.use, number, size)
            if following is None:
                break
            reason = f"commit {following.number} follows it, and what is here is no commit"
            found.damages.append(JournalDamage(path, position, reason))
            position, number = following.position, following.number - 1  # said once
            continue
        _, commit, length = read
        if number is not None and commit.number != number + 1:
            found.damages.append(JournalDamage(path, position, f"commit {commit.number} follows commit {number}"))
        found.commits.append(commit)
        position, number = position + length, commit.number
    return found


def _read_commit(file: File, position: int, use: int | None, size: int) -> tuple[int, JournalCommit, int] | None:
    """(use, commit, bytes that it takes) if there is one of that use, or of any; None if there is none."""
    data = file.read(position, BLOCK_BYTES)
    if len(data) < BLOCK_BYTES or not data.startswith(_COMMIT_MAGIC):
        return None
    _, found_use, needed, number, previous, count, data_bytes = _HEAD.unpack_from(data)
    length = commit_bytes(count, data_bytes)
    if use not in (None, found_use) or position + length > size:
        return None
    if length > BLOCK_BYTES:
        data += file.read(position + BLOCK_BYTES, length - BLOCK_BYTES)
    table_end = _HEAD.size + count * _ENTRY.size
    if _CRC.unpack_from(data, table_end)[0] != checksum(data[:table_end]):
        return None
    return found_use, JournalCommit(number, previous, needed, position, tuple(_entries(data, count, position))), length


def _entries(data: bytes, count: int, position: int) -> Iterator[Placed]:
    at, view = _HEAD.size + count * _ENTRY.size + _CRC.size, memoryview(data)
    for number in range(count):
        entry = Entry(*_ENTRY.unpack_from(data, _HEAD.size + number * _ENTRY.size))
        yield Placed(entry, position + at, checksum(view[at : at + entry.length]) == entry.crc)
        at += entry.length


def _search(file: File, start: int, use: int, after: int | None, size: int) -> JournalCommit | None:
    """The next commit of this use behind a place that holds none: it shows that the place did."""
    # Only heads are read: most of a file may be what earlier uses left.
    for position in range(start, size, BLOCK_BYTES):
        head = file.read(position, _HEAD.size)
        if head.startswith(_COMMIT_MAGIC) and len(head) == _HEAD.size and _HEAD.unpack(head)[1] == use:
            read = _read_commit(file, position, use, size)
            if read is not None and (after is None or read[1].number > after):
                return read[1]
    return None


def find_breaks(uses: Iterable[JournalUse]) -> list[JournalDamage]:
    """Where the last commits of a file are gone, though a later file follows on them."""
    ordered = sorted((one for one in uses if one.commits), key=lambda one: one.use)
    found = []
    for one, following in pairwise(ordered):
        expected, last = following.commits[0].previous, one.commits[-1]
        if following.use == one.use + 1 and last.number < expected:
            reason = f"commit {expected} was durable, and commit {last.number} is the last here"
            found.append(JournalDamage(one.path, last.position, reason))
    return found
