"""The same records in another codec: sealed segments are rewritten one at a time, as compaction rewrites them.

A batch is replaced only where that makes it smaller; every other one is copied as it stands, and so are control
batches, empty ones, and those in that codec already. Offsets, epochs, timestamps and producer fields stay what they
were, so that no reader, bookmark or producer can tell. The active segment is never touched.
"""

from __future__ import annotations

from dataclasses import dataclass

from foldlog.errors import CorruptLog, InvalidBatch
from foldlog.files.base import Files
from foldlog.log.compaction import read_whole_batches
from foldlog.log.layout import CLEANED_SUFFIX
from foldlog.log.segment import Segment
from foldlog.records.batch import Compression
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
        return RecompressionReport(
            self.segments + other.segments,
            self.segments_rewritten + other.segments_rewritten,
            self.batches + other.batches,
            self.batches_rewritten + other.batches_rewritten,
            self.bytes_before + other.bytes_before,
            self.bytes_after + other.bytes_after,
        )


def untouched(segment: Segment, codec: Compression) -> RecompressionReport | None:
    """The report of a segment in which nothing is in another codec; None if something is. Only headers are looked at,
    so that asking a second time costs no writing."""
    batches = 0
    for data, _ in read_whole_batches(segment):
        headers = walk(data).headers
        if any(_may_change(header, codec) for header in headers):
            return None
        batches += len(headers)
    return RecompressionReport(1, 0, batches, 0, segment.size, segment.size)


def _may_change(header: BatchHeader, codec: Compression) -> bool:
    return header.compression != codec and header.record_count > 0 and not header.is_control


def rewrite(files: Files, directory: str, segment: Segment, codec: Compression) -> RecompressionReport:
    """Write the segment in the codec into `<base>.log.cleaned`, synced. Raises CorruptLog."""
    target = files.open(segment.stem + CLEANED_SUFFIX, write=True, create=True)
    try:
        target.truncate(0)
        read = written = batches = replaced = 0
        for data, _ in read_whole_batches(segment):
            try:
                made, batch_count, made_smaller = smaller(data, codec)
            except InvalidBatch as error:
                # Its CRC is right, so this is how it was stored: no log takes such a batch.
                raise CorruptLog(segment.log_path, read + error.position, error.reason) from error
            written += target.write(written, [made])
            read += len(data)
            batches += batch_count
            replaced += made_smaller
        target.sync()
    finally:
        target.close()
    files.sync_directory(directory)
    return RecompressionReport(1, int(replaced > 0), batches, replaced, read, written)


def smaller(data: memoryview, codec: Compression) -> tuple[bytes | bytearray, int, int]:
    """Whole batches, each in the codec if that is smaller; how many there are, and how many were replaced."""
    made = recompress(data, codec)
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
