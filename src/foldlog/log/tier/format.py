"""The bytes of tiered storage: an object for each segment, a manifest for each partition, chunks of old entries.

    <topic>-<topic id>/topic.json                            what the catalog says of the topic
    <topic>-<topic id>/<partition>/segments/<base>-<end>-<copy>.segment
    <topic>-<topic id>/<partition>/manifests/<generation>.manifest
    <topic>-<topic id>/<partition>/chunks/<first>-<end>-<copy>.chunk

A **segment's object** is its batches as they are, and behind them what a reader needs, so that nothing else has to be
read: offset index, time index, aborted transactions, producer snapshot, leader epochs, and a footer of a fixed size
with the length and the CRC-32C of each. The aborted transactions are all that have batches in the segment, also those
whose marker is behind it: a segment is copied only when every transaction in it is decided. An object is never
changed: a second copy of the same segment has another name.

An **entry** is what the manifest has of a segment: the footer, and which copy it is.

A **manifest** names every segment in the store. It is replaced by creating the next generation, which only one writer
can. New entries stand in it; the oldest of them move into a chunk, an object that is never changed, which the manifest
names with its first and last offset and its largest timestamp. So a manifest of a hundred thousand segments has some
hundred lines, and a look-up reads one chunk. All numbers are big-endian.
"""

from __future__ import annotations

import struct
import uuid
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from crc32c import crc32c

from foldlog.errors import CorruptLog, NewerVersion
from foldlog.log.checkpoint import StartReason

VERSION: Final = 1
_ADVICE: Final = "the copy on the disk, if it is still there, is not concerned; see 'foldlog check'"

CHUNK_ENTRIES: Final = 256
"""How many entries move into a chunk at a time: 30 KB."""

_FOOTER_MAGIC: Final = b"foldlog segment\n"
_MANIFEST_MAGIC: Final = b"foldlog manifest"
_CHUNK_MAGIC: Final = b"foldlog chunk  \n"
_SECTIONS: Final = 6
_FACTS: Final = struct.Struct(">qqqqi" + "QI" * _SECTIONS)
# magic, version, topic id, partition, facts, CRC of all of it
_FOOTER: Final = struct.Struct(f">16sI16sI{_FACTS.size}sI")
FOOTER_BYTES: Final = _FOOTER.size
_ENTRY: Final = struct.Struct(f">16s{_FACTS.size}s")
# magic, version, topic id, partition, generation, writer, log start, why, end, latest epoch, chunks, entries
_MANIFEST: Final = struct.Struct(">16sI16sIQ16sqBqiII")
_CHUNK_REF: Final = struct.Struct(">16sqqIQqI")
_CHUNK: Final = struct.Struct(">16sI16sII")
_CRC: Final = struct.Struct(">I")


class Section(NamedTuple):
    """A part of a segment's object."""

    size: int
    crc: int


class StoredSegment(NamedTuple):
    """A segment in the store. `end_offset` is where the next one begins."""

    copy: bytes
    base_offset: int
    end_offset: int
    largest_timestamp_ms: int
    gaps_below: int  # only below this may offsets be missing between its batches
    leader_epoch: int  # of its last batch
    batches: Section
    offset_index: Section
    time_index: Section
    aborted: Section
    snapshot: Section
    epochs: Section

    @property
    def sections(self) -> tuple[Section, ...]:
        return self.batches, self.offset_index, self.time_index, self.aborted, self.snapshot, self.epochs

    @property
    def object_bytes(self) -> int:
        """The size of the whole object."""
        return sum(section.size for section in self.sections) + FOOTER_BYTES

    @property
    def name(self) -> str:
        return f"segments/{self.base_offset:020d}-{self.end_offset:020d}-{self.copy.hex()}.segment"

    def position_of(self, section: str) -> int:
        """Where the section of that name begins in the object."""
        names = self._fields[-_SECTIONS:]
        return sum(one.size for one in self.sections[: names.index(section)])


class PartitionId(NamedTuple):
    """Which partition the bytes are of."""

    topic_id: bytes
    number: int


def new_copy() -> bytes:
    """A name that no other copy has."""
    return uuid.uuid4().bytes


def _facts_of(entry: StoredSegment) -> bytes:
    flat = [number for section in entry.sections for number in section]
    return _FACTS.pack(
        entry.base_offset,
        entry.end_offset,
        entry.largest_timestamp_ms,
        entry.gaps_below,
        entry.leader_epoch,
        *flat,
    )


def _entry_of(copy: bytes, facts: bytes) -> StoredSegment:
    base, end, largest, gaps, epoch, *flat = _FACTS.unpack(facts)
    sections = [Section(flat[at], flat[at + 1]) for at in range(0, len(flat), 2)]
    return StoredSegment(copy, base, end, largest, gaps, epoch, *sections)


def format_footer(of: PartitionId, entry: StoredSegment) -> bytes:
    body = _FOOTER.pack(_FOOTER_MAGIC, VERSION, of.topic_id, of.number, _facts_of(entry), 0)[: -_CRC.size]
    return body + _CRC.pack(crc32c(body))


def parse_footer(data: bytes, copy: bytes, path: str) -> tuple[PartitionId, StoredSegment]:
    """The inverse of `format_footer`. Raises CorruptLog or NewerVersion, naming `path`."""
    body = _checked(data, _FOOTER_MAGIC, path)
    if len(data) != FOOTER_BYTES:
        raise CorruptLog(path, 0, "its footer has another length", _ADVICE)
    _, _, topic_id, number, facts, _ = _FOOTER.unpack(body + bytes(_CRC.size))
    return PartitionId(topic_id, number), _entry_of(copy, facts)


class ChunkRef(NamedTuple):
    """A chunk as the manifest names it."""

    copy: bytes
    first_offset: int
    end_offset: int
    segments: int
    size_bytes: int  # of the batches of its segments
    largest_timestamp_ms: int
    crc: int

    @property
    def name(self) -> str:
        return f"chunks/{self.first_offset:020d}-{self.end_offset:020d}-{self.copy.hex()}.chunk"


class PartitionManifest(NamedTuple):
    """What one generation says. Entries and chunks ascend by offset, without a hole between them; those that end at
    or below the log start are gone, or going."""

    of: PartitionId
    generation: int = 0
    writer: bytes = bytes(16)
    log_start_offset: int = 0
    start_reason: StartReason = StartReason.WRITTEN
    end_offset: int = 0  # where the next segment to copy begins
    leader_epoch: int = -1
    chunks: tuple[ChunkRef, ...] = ()
    entries: tuple[StoredSegment, ...] = ()

    @property
    def is_empty(self) -> bool:
        return not self.chunks and not self.entries

    @property
    def first_offset(self) -> int:
        """Where the first of its segments begins; where it ends, if it has none."""
        if self.chunks:
            return self.chunks[0].first_offset
        return self.entries[0].base_offset if self.entries else self.end_offset

    @property
    def segment_count(self) -> int:
        return sum(chunk.segments for chunk in self.chunks) + len(self.entries)


def manifest_name(generation: int) -> str:
    return f"manifests/{generation:020d}.manifest"


def generation_of(key: str) -> int:
    """The generation in a manifest's key; -1 if it is none."""
    number, _, kind = key.rpartition("/")[2].partition(".")
    return int(number) if kind == "manifest" and number.isdigit() else -1


def format_manifest(manifest: PartitionManifest) -> bytes:
    head = _MANIFEST.pack(
        _MANIFEST_MAGIC,
        VERSION,
        manifest.of.topic_id,
        manifest.of.number,
        manifest.generation,
        manifest.writer,
        manifest.log_start_offset,
        manifest.start_reason,
        manifest.end_offset,
        manifest.leader_epoch,
        len(manifest.chunks),
        len(manifest.entries),
    )
    chunks = b"".join(_CHUNK_REF.pack(*chunk) for chunk in manifest.chunks)
    return _sealed(head + chunks + _format_entries(manifest.entries))


def parse_manifest(data: bytes, path: str) -> PartitionManifest:
    """The inverse of `format_manifest`. Raises CorruptLog or NewerVersion, naming `path`."""
    body = _checked(data, _MANIFEST_MAGIC, path)
    fields = _MANIFEST.unpack_from(body)
    _, _, topic_id, number, generation, writer, start, reason, end, epoch, chunk_count, entry_count = fields
    behind = _MANIFEST.size + chunk_count * _CHUNK_REF.size
    if len(body) != behind + entry_count * _ENTRY.size:
        raise CorruptLog(path, len(body), "it is not as long as it says", _ADVICE)
    chunks = tuple(map(ChunkRef._make, _CHUNK_REF.iter_unpack(body[_MANIFEST.size : behind])))
    of = PartitionId(topic_id, number)
    entries = _parse_entries(body[behind:])
    return PartitionManifest(of, generation, writer, start, StartReason(reason), end, epoch, chunks, entries)


def make_chunk(of: PartitionId, entries: Sequence[StoredSegment]) -> tuple[ChunkRef, bytes]:
    """A chunk with these entries: as the manifest names it, and its bytes."""
    data = _sealed(_CHUNK.pack(_CHUNK_MAGIC, VERSION, of.topic_id, of.number, len(entries)) + _format_entries(entries))
    ref = ChunkRef(
        new_copy(),
        entries[0].base_offset,
        entries[-1].end_offset,
        len(entries),
        sum(entry.batches.size for entry in entries),
        max(entry.largest_timestamp_ms for entry in entries),
        crc32c(data),
    )
    return ref, data


def parse_chunk(data: bytes, ref: ChunkRef, path: str) -> tuple[StoredSegment, ...]:
    """The entries of a chunk. Raises CorruptLog or NewerVersion, naming `path`."""
    body = _checked(data, _CHUNK_MAGIC, path)
    if crc32c(data) != ref.crc or len(body) != _CHUNK.size + ref.segments * _ENTRY.size:
        raise CorruptLog(path, 0, "it is not the chunk that the manifest names", _ADVICE)
    return _parse_entries(body[_CHUNK.size :])


def _format_entries(entries: Iterable[StoredSegment]) -> bytes:
    return b"".join(_ENTRY.pack(entry.copy, _facts_of(entry)) for entry in entries)


def _parse_entries(data: bytes) -> tuple[StoredSegment, ...]:
    return tuple(_entry_of(copy, facts) for copy, facts in _ENTRY.iter_unpack(data))


def _sealed(body: bytes) -> bytes:
    return body + _CRC.pack(crc32c(body))


def _checked(data: bytes, magic: bytes, path: str) -> bytes:
    """The bytes before the CRC. Raises CorruptLog if they are not what was written, NewerVersion if they are newer."""
    if len(data) < len(magic) + 2 * _CRC.size or data[: len(magic)] != magic:
        raise CorruptLog(path, 0, "it does not begin as it should", _ADVICE)
    body = data[: -_CRC.size]
    if _CRC.unpack(data[-_CRC.size :])[0] != crc32c(body):
        raise CorruptLog(path, 0, "its CRC-32C does not match its bytes", _ADVICE)
    version = _CRC.unpack_from(body, len(magic))[0]
    if version != VERSION:
        raise NewerVersion(path, version, VERSION)
    return body
