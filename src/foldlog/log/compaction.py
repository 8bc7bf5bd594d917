"""Keep the newest record per key: choose the part of the log to compact, and rewrite it.

A pass maps the keys of the part that is not cleaned yet to their newest offsets, as many as the map holds, then
rewrites the segments up to there without superseded records. Neighbouring small results become one segment. The active
segment is never touched. Each segment, rewritten or not, ends where the next begins: its last batch stays, without
records if need be. Input is verified as in every read, and output is checked before it becomes part of the log.
"""

from __future__ import annotations

import random
import secrets
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from operator import attrgetter
from typing import Final

from foldlog import limits
from foldlog.errors import CorruptLog, DecompressedTooLarge, InvalidBatch
from foldlog.files.base import File, Files
from foldlog.limits import COMPACTION_KEYS_MAX, POSITION_MAX
from foldlog.log.config import LogConfig
from foldlog.log.layout import CLEANED_SUFFIX
from foldlog.log.reading import VerifiedBatches, VerifiedSegments
from foldlog.log.segment import Segment, segment_stem
from foldlog.records.batch import FAULT_LOST, MAX_INT64
from foldlog.records.compression import READ_DECOMPRESSED_BYTES
from foldlog.records.loops import DroppedSample, KeyMap, check_compacted, compact, key_at, walk

_LOOK_UP_BYTES: Final = 4096
"""Bytes that the look-up of one record reads, beside the batch that holds it."""


@dataclass(frozen=True, slots=True)
class CompactionReport:
    """What compaction did. `cleaned_offset`: everything below holds only the newest record per key, as of then."""

    records_before: int = 0
    records_after: int = 0
    bytes_before: int = 0
    bytes_after: int = 0
    segments_before: int = 0
    segments_after: int = 0
    cleaned_offset: int = 0

    def plus(self, other: CompactionReport) -> CompactionReport:
        """The sum of both."""
        return CompactionReport(
            self.records_before + other.records_before,
            self.records_after + other.records_after,
            self.bytes_before + other.bytes_before,
            self.bytes_after + other.bytes_after,
            self.segments_before + other.segments_before,
            self.segments_after + other.segments_after,
            max(self.cleaned_offset, other.cleaned_offset),
        )


@dataclass(frozen=True, slots=True)
class CleanTime:
    """When a pass runs, how long tombstones outlive their cleaning, and how far a batch may expand."""

    now_ms: int
    delete_retention_ms: int
    decompressed_limit: int = READ_DECOMPRESSED_BYTES


def end_of_cleanable(segments: Sequence[Segment], config: LogConfig, now_ms: int, *, force: bool) -> int:
    """Where compaction must stop: at the active segment, or the first too young for min.compaction.lag.ms."""
    lag_ms = 0 if force else config.min_compaction_lag_ms
    for segment in segments[:-1]:
        if lag_ms and now_ms - segment.largest_timestamp() < lag_ms:
            return segment.base_offset
    return segments[-1].base_offset


def is_worthwhile(segments: Sequence[Segment], cleaned_offset: int, end_offset: int, dirty_ratio: float) -> bool:
    """Whether the part that compaction has not seen is large enough, by min.cleanable.dirty.ratio."""
    cleanable = [segment for segment in segments if segment.base_offset < end_offset]
    dirty = sum(segment.size for segment in cleanable if segment.base_offset >= cleaned_offset)
    total = sum(segment.size for segment in cleanable)
    return dirty > 0 and dirty >= dirty_ratio * total


def is_overdue(segments: Sequence[Segment], cleaned_offset: int, end_offset: int, lag_ms: int, now_ms: int) -> bool:
    """Whether a record has waited max.compaction.lag.ms for compaction. A segment's first batch counts, as in Kafka."""
    waiting = (segment for segment in segments if cleaned_offset <= segment.base_offset < end_offset)
    return lag_ms < MAX_INT64 and any(now_ms - segment.begun_ms(now_ms) > lag_ms for segment in waiting)


def map_keys(
    source: VerifiedSegments,
    segments: Sequence[Segment],
    start_offset: int,
    end_offset: int,
    decompressed_limit: int = READ_DECOMPRESSED_BYTES,
) -> tuple[KeyMap, int]:
    """The newest offset of each key in [start, end), and the offset up to which all of them fitted into the map.

    Also reads what is before `start_offset`, and the rest of a segment in which the map got full: all that the pass
    rewrites is verified before it changes anything. Raises CorruptLog.
    """
    # Bounded: if the keys do not fit, the pass covers the offsets that did, and the next begins there. A record is
    # dropped only for a newer one in the map, so records from `mapped_end` on make nothing obsolete yet.
    keys = KeyMap(min(COMPACTION_KEYS_MAX, max(1, end_offset - start_offset)))
    mapped_end = end_offset
    for segment, following in pairwise(segments):
        if segment.base_offset >= mapped_end:
            break
        for piece in source.pieces(segment, following):
            if start_offset < piece.next_offset and mapped_end == end_offset:
                with as_stored(segment, piece):
                    noted = keys.add(
                        piece.data,
                        start_offset=start_offset,
                        end_offset=end_offset,
                        decompressed_limit=decompressed_limit,
                    )
                if noted < min(piece.next_offset, end_offset):
                    mapped_end = noted
    return keys, mapped_end


@contextmanager
def as_stored(segment: Segment, piece: VerifiedBatches) -> Iterator[None]:
    """Raise CorruptLog for a batch with a good CRC and broken content: it was stored so, though no log accepts it."""
    try:
        yield
    except DecompressedTooLarge:
        raise
    except InvalidBatch as error:
        raise CorruptLog(segment.log_path, piece.position + error.position, error.reason) from error


def group_segments(segments: Sequence[Segment], end_offset: int, segment_bytes: int) -> list[list[Segment]]:
    """Group neighbours that together still fit one segment: compaction would otherwise leave many small files.

    `end_offset` is where the last of them ends.
    """
    groups: list[list[Segment]] = []
    size = 0
    ends = [*(segment.base_offset for segment in segments[1:]), end_offset]
    for segment, ends_at in zip(segments, ends, strict=True):
        if (
            groups
            and size + segment.size <= segment_bytes
            and ends_at - groups[-1][0].base_offset <= POSITION_MAX  # relative offsets have 31 bits
        ):
            groups[-1].append(segment)
            size += segment.size
        else:
            groups.append([segment])
            size = segment.size
    return groups


class Pass:
    """One pass over the log: rewrites groups of segments in the order of their offsets. One thread.

    Everything that is written is read again and compared with its source, by code that decides independently what has
    to stay (`check_compacted`): a mistake made here must not become the log. Both learn from the key map which record
    is a key's newest; so a random sample of the dropped records is looked up by whole keys.

    `segments` are those of the log when the pass began; gaps were legal below `gaps_below`.
    """

    def __init__(
        self,
        source: VerifiedSegments,
        segments: Sequence[Segment],
        gaps_below: int,
        keys: KeyMap,
        mapped: range,
        time: CleanTime,
        keep: frozenset[int],
    ) -> None:
        self._source = source
        self._segments = segments
        self._gaps_below = gaps_below
        self._keys = keys
        self._mapped = mapped
        self._time = time
        self._keep = keep
        self._newest = keys.newest_offsets()
        self._random = random.Random(secrets.randbits(64))
        self._seen = 0  # how many of the newest offsets the rewritten segments held so far

    def rewrite(
        self, files: Files, directory: str, group: Sequence[Segment], following: Segment
    ) -> tuple[int, CompactionReport]:
        """Write the group without what is superseded into `<base>.log.cleaned`, synced and checked. Returns its size
        and the counts."""
        path = segment_stem(directory, group[0].base_offset) + CLEANED_SUFFIX
        target = files.open(path, write=True, create=True)
        try:
            target.truncate(0)
            position, ended_at = 0, group[0].base_offset
            report = CompactionReport(segments_before=len(group), segments_after=1)
            dropped = DroppedSample(
                limits.COMPACTION_SAMPLE_MAX, limits.COMPACTION_SAMPLE_KEY_BYTES_MAX, self._random.getrandbits(64)
            )
            for segment, piece, is_last in _with_last(self._pieces(group, following)):
                with as_stored(segment, piece):
                    kept, stats = compact(
                        piece.data,
                        self._keys,
                        now_ms=self._time.now_ms,
                        delete_retention_ms=self._time.delete_retention_ms,
                        mapped_end=self._mapped.stop,
                        keep_batches=self._keep,
                        keep_last=is_last,
                        decompressed_limit=self._time.decompressed_limit,
                    )
                target.write(position, [kept])
                ended_at = self._check(path, target, position, len(kept), piece, ended_at, dropped)
                position += len(kept)
                report = report.plus(
                    CompactionReport(stats.records_in, stats.records_out, stats.bytes_in, stats.bytes_out)
                )
            # A missing file is detected by the offsets on both sides of it. So a segment ends where the next begins,
            # even if its last records were dropped: a gap there would look like a missing file.
            if ended_at != following.base_offset:
                raise not_as_read(path, f"it ends at offset {ended_at}, not at {following.base_offset}")
            # Eight bytes an offset. By the end of the pass each newest offset was met, or its record is lost.
            if following.base_offset >= self._mapped.stop and 8 * self._seen != len(self._newest):
                raise not_as_read(path, FAULT_LOST)
            self._check_dropped(path, dropped)
            target.sync()
        finally:
            target.close()
        # Bytes and name are durable before it is renamed to .swap: that name promises a whole file.
        files.sync_directory(directory)
        return position, report

    def _pieces(self, group: Sequence[Segment], following: Segment) -> Iterator[tuple[Segment, VerifiedBatches]]:
        for segment, after in pairwise((*group, following)):
            for piece in self._source.pieces(segment, after):
                yield segment, piece

    def _check(
        self,
        path: str,
        target: File,
        position: int,
        size: int,
        piece: VerifiedBatches,
        expected: int,
        dropped: DroppedSample,
    ) -> int:
        """Check that what was written for a piece holds all that has to stay; returns the next offset."""
        # Read back through the page cache: this finds our mistakes and bits flipped in memory, not faults of the disk.
        written = target.read(position, size)
        found = walk(written, expected_offset=expected, gaps_below=piece.next_offset)
        if found.problem or found.end != size:
            raise not_as_read(path, found.problem or "it is shorter than what was written")
        try:
            self._seen = check_compacted(
                piece.data,
                written,
                self._keys,
                self._newest,
                self._seen,
                mapped_start=self._mapped.start,
                mapped_end=self._mapped.stop,
                now_ms=self._time.now_ms,
                keep_batches=self._keep,
                dropped=dropped,
                decompressed_limit=self._time.decompressed_limit,
            )
        except InvalidBatch as error:
            raise not_as_read(path, error.reason) from error
        return found.headers[-1].next_offset if found.headers else expected

    def _check_dropped(self, path: str, dropped: DroppedSample) -> None:
        """Check for a sample of dropped records that each has a newer one with the same key, byte by byte.

        The map gives the newer one's offset, and is trusted no further: the record has to be there in the log that is
        still in place. It is one of the newest, and `check_compacted` sees for each of these that it stays (or goes for
        its delete horizon), in this group or in its own.
        """
        found = dropped.records()
        wanted = max(limits.COMPACTION_SAMPLE_MIN, dropped.seen // limits.COMPACTION_SAMPLE_SHARE)
        chosen = found if len(found) <= wanted else self._random.sample(found, wanted)
        newest = memoryview(self._newest).cast("q")
        # In the order of the log, so that the disk is read forwards.
        for at, offset, key in sorted((self._keys.newest(key), offset, key) for offset, key in chosen):
            place = bisect_left(newest, at)
            is_one = place < len(newest) and newest[place] == at
            if at <= offset or not is_one or self._key_at(at) != key:
                raise not_as_read(path, FAULT_LOST)

    def _key_at(self, offset: int) -> bytes | None:
        segment = self._segments[bisect_right(self._segments, offset, key=attrgetter("base_offset")) - 1]
        found = segment.locate(offset, _LOOK_UP_BYTES, self._gaps_below)
        holder = next((header for header in found.headers if header.next_offset > offset), None)
        if holder is None:
            return None
        batch = found.data[holder.position : holder.position + holder.size]
        return key_at(batch, offset, decompressed_limit=self._time.decompressed_limit)


def not_as_read(path: str, reason: str) -> CorruptLog:
    """The error for a rewritten segment that does not hold its source's records. It never becomes part of the log."""
    return CorruptLog(path, 0, reason, "test this machine's memory, and if it is sound, report a bug")


def _with_last(pieces: Iterator[tuple[Segment, VerifiedBatches]]) -> Iterator[tuple[Segment, VerifiedBatches, bool]]:
    """Each piece with whether it is the last."""
    previous: tuple[Segment, VerifiedBatches] | None = None
    for piece in pieces:
        if previous is not None:
            yield *previous, False
        previous = piece
    if previous is not None:
        yield *previous, True
