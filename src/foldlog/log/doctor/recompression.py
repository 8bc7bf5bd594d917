"""Recompression: sealed segments are rewritten in another codec one at a time, as compaction rewrites them.

A batch is replaced only if that makes it smaller; all others are copied unchanged, as are control batches, empty ones,
and those in that codec already. Offsets, epochs, timestamps and producer fields stay the same, so that readers,
bookmarks and producers see no difference. The active segment is never touched.
"""

from __future__ import annotations

from dataclasses import dataclass

from foldlog.files.base import Files
from foldlog.log.compaction import as_stored, not_as_read
from foldlog.log.layout import CLEANED_SUFFIX
from foldlog.log.reading import VerifiedBatches, VerifiedSegments
from foldlog.log.segment import Segment
from foldlog.records.batch import COMPRESSION_MASK, FAULT_CHANGED, RECORDS_AT, Compression
from foldlog.records.compression import decompress
from foldlog.records.loops import BatchHeader, recompress, walk


@dataclass(frozen=True, slots=True)
class RecompressionReport:
    """What recompression did to the sealed segments: how many there are, and how many of them were rewritten."""

    segments: int = 0
    segments_rewritten: int = 0
    batches: int = 0
    batches_rewritten: int = 0
    bytes_before: int = 0
    bytes_after: int = 0

    def plus(self, other: RecompressionReport) -> RecompressionReport:
        """The sum of both."""
        return RecompressionReport(
            self.segments + other.segments,
            self.segments_rewritten + other.segments_rewritten,
            self.batches + other.batches,
            self.batches_rewritten + other.batches_rewritten,
            self.bytes_before + other.bytes_before,
            self.bytes_after + other.bytes_after,
        )


def untouched(
    source: VerifiedSegments, segment: Segment, following: Segment, codec: Compression
) -> RecompressionReport | None:
    """The report for a segment with nothing in another codec; None if it has something. Reads and verifies the segment,
    but writes nothing. Raises CorruptLog."""
    batches = 0
    may_change = False
    for piece in source.pieces(segment, following):
        may_change = may_change or any(_may_change(header, codec) for header in piece.headers)
        batches += len(piece.headers)
    return None if may_change else RecompressionReport(1, 0, batches, 0, segment.size, segment.size)


def _may_change(header: BatchHeader, codec: Compression) -> bool:
    return header.compression != codec and header.record_count > 0 and not header.is_control


def rewrite(
    files: Files,
    directory: str,
    source: VerifiedSegments,
    segment: Segment,
    following: Segment,
    codec: Compression,
    decompressed_limit: int,
) -> RecompressionReport:
    """Write the segment in the codec into `<base>.log.cleaned`, synced and checked. Raises CorruptLog and
    DecompressedTooLarge."""
    path = segment.stem + CLEANED_SUFFIX
    target = files.open(path, write=True, create=True)
    try:
        target.truncate(0)
        written = batches = replaced = 0
        for piece in source.pieces(segment, following):
            with as_stored(segment, piece.position):
                made, batch_count, made_smaller = smaller(piece.data, codec, decompressed_limit)
            target.write(written, [made])
            _check(path, piece, memoryview(target.read(written, len(made))), decompressed_limit)
            written += len(made)
            batches += batch_count
            replaced += made_smaller
        target.sync()
    finally:
        target.close()
    files.sync_directory(directory)
    return RecompressionReport(1, int(replaced > 0), batches, replaced, segment.size, written)


def _check(path: str, piece: VerifiedBatches, written: memoryview, limit: int) -> None:
    """Check that what was written for a piece holds the same batches with the same records."""
    found = walk(written)
    if found.problem or found.end != len(written) or len(found.headers) != len(piece.headers):
        raise not_as_read(path, found.problem or "it holds other batches")
    for before, after in zip(piece.headers, found.headers, strict=True):
        old, new = _bytes_of(piece.data, before), _bytes_of(written, after)
        if before.size == after.size and bytearray(old) == new:
            continue
        # A bytearray compares bytes; two views would be compared value by value.
        records = bytearray(decompress(before.compression, old[RECORDS_AT:], limit, briefly=True))
        same_records = records == decompress(after.compression, new[RECORDS_AT:], limit, briefly=True)
        if not same_records or _identity(before) != _identity(after):
            raise not_as_read(path, FAULT_CHANGED)


def _identity(header: BatchHeader) -> tuple[int, ...]:
    """The fields of a batch that may not change."""
    return (
        header.base_offset,
        header.last_offset,
        header.leader_epoch,
        header.record_count,
        header.base_timestamp,
        header.max_timestamp,
        header.producer_id,
        header.producer_epoch,
        header.base_sequence,
        header.attributes & ~COMPRESSION_MASK,
    )


def _bytes_of(data: memoryview, header: BatchHeader) -> memoryview:
    return data[header.position : header.position + header.size]


def smaller(data: memoryview, codec: Compression, decompressed_limit: int) -> tuple[bytes | bytearray, int, int]:
    """The batches, each in the codec if that is smaller; how many there are, and how many were replaced."""
    made = recompress(data, codec, decompressed_limit=decompressed_limit)
    pairs = list(zip(walk(data).headers, walk(made).headers, strict=True))
    replaced = sum(after.size < before.size for before, after in pairs)
    if all(after.size < before.size or not _may_change(before, codec) for before, after in pairs):
        return made, len(pairs), replaced
    view = memoryview(made)
    chosen = [
        view[after.position : after.position + after.size]
        if after.size < before.size
        else data[before.position : before.position + before.size]
        for before, after in pairs
    ]
    return b"".join(chosen), len(pairs), replaced
