"""Reads an object of the store back, all of it, and says whether it is the segment that the manifest names.

What is removed from the disk was seen here before. Nothing of the cache is used, and nothing of what was known when the
object was written but its entry: the batches are walked as a log is, with every CRC.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from crc32c import crc32c

from foldlog.errors import CorruptLog, ObjectMissing, StorageError, StoreError
from foldlog.log.epochs import parse_epochs
from foldlog.log.tier.format import FOOTER_BYTES, StoredSegment, parse_footer
from foldlog.log.tier.partition import TieredPartition
from foldlog.log.transactions import read_transaction_index
from foldlog.records.loops import check_epochs, walk

_READ_BYTES: Final = 8 << 20
_ADVICE: Final = "nothing was removed from the disk for it; remove the object, or restore it"


class VerifiedStore(NamedTuple):
    """What the store has of a partition, and what is wrong with it."""

    start_offset: int
    end_offset: int
    segments: int
    size_bytes: int
    faults: tuple[StorageError, ...]


def verify_partition(tier: TieredPartition, start_offset: int, boundary: int) -> VerifiedStore:
    """Read all that the store has of a partition. It has to hold everything from `start_offset` to `boundary`, which is
    no longer on the disk. Raises StoreError where the store does not answer, and CorruptLog for a damaged manifest."""
    tier.committed(None)
    manifest = tier.manifest()
    faults: list[StorageError] = []
    segments = size_bytes = 0
    expected = first = max(manifest.log_start_offset, manifest.first_offset)
    for entry in tier.entries(manifest.log_start_offset):
        if entry.base_offset > expected:
            faults.append(_hole(tier, expected, entry.base_offset))
        expected = entry.end_offset
        segments += 1
        try:
            size_bytes += verify_object(tier, entry)
        except (CorruptLog, ObjectMissing) as error:
            faults.append(error)
    if start_offset < boundary and not first <= start_offset <= boundary <= expected:
        faults.append(_hole(tier, start_offset, boundary))
    return VerifiedStore(first, expected, segments, size_bytes, tuple(faults))


def _hole(tier: TieredPartition, start: int, end: int) -> StoreError:
    return StoreError(f"{tier.tier.url}/{tier.prefix} has no segment of offsets {start} to {end - 1}")


def verify_object(tier: TieredPartition, entry: StoredSegment) -> int:
    """How many bytes it has. Raises CorruptLog if one of them is wrong, ObjectMissing and StoreError."""
    key = tier.prefix + entry.name
    path = f"{tier.tier.url}/{key}"
    footer_at = entry.object_bytes - FOOTER_BYTES
    of, found = parse_footer(tier.tier.read(key, footer_at, FOOTER_BYTES), entry.copy, path)
    if of != tier.of or found != entry:
        raise CorruptLog(path, footer_at, "its footer is not what the manifest says of it", _ADVICE)
    sections: dict[str, bytes] = {}
    for name in ("offset_index", "time_index", "aborted", "snapshot", "epochs"):
        section, position = getattr(entry, name), entry.position_of(name)
        data = tier.tier.read(key, position, section.size) if section.size else b""
        if crc32c(data) != section.crc:
            raise CorruptLog(path, position, "the CRC-32C of a section does not match its bytes", _ADVICE)
        sections[name] = data
    try:
        starts = parse_epochs(sections["epochs"])
    except ValueError as error:
        raise CorruptLog(path, entry.position_of("epochs"), f"no leader epochs ({error})", _ADVICE) from None
    _, problem = read_transaction_index(sections["aborted"])
    if problem:
        raise CorruptLog(path, entry.position_of("aborted"), problem, _ADVICE)
    _verify_batches(tier, key, path, entry, starts)
    return entry.object_bytes


def _verify_batches(
    tier: TieredPartition, key: str, path: str, entry: StoredSegment, starts: tuple[tuple[int, int], ...]
) -> None:
    section = entry.batches
    position, expected, crc, read_to = 0, entry.base_offset, 0, 0
    wanted = _READ_BYTES
    while position < section.size:
        data = tier.tier.read(key, position, min(wanted, section.size - position))
        fresh = position + len(data) - read_to
        if fresh > 0:
            crc, read_to = crc32c(data[len(data) - fresh :], crc), read_to + fresh
        found = walk(data, expected_offset=expected, gaps_below=entry.gaps_below)
        if found.problem:
            raise CorruptLog(path, position, found.problem, _ADVICE)
        wrong = check_epochs(found.headers, starts)
        if wrong is not None:
            raise CorruptLog(path, position + wrong[0].position, "a batch has another leader epoch", _ADVICE)
        if found.headers:
            position += found.end
            expected = found.headers[-1].next_offset
            wanted = max(_READ_BYTES, found.needed_bytes)
        elif wanted < found.needed_bytes <= section.size - position:
            wanted = found.needed_bytes
        else:
            raise CorruptLog(path, position, "the last batch is cut off", _ADVICE)
    if expected != entry.end_offset:
        raise CorruptLog(path, section.size, f"it ends at offset {expected}, not {entry.end_offset}", _ADVICE)
    if crc != section.crc:
        raise CorruptLog(path, 0, "the CRC-32C of its batches is another one", _ADVICE)
