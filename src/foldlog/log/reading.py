"""What a read may see, and how it is read; shared by the writer's partition and by reading processes.

By offset (`read_batches`), by time (`first_at_time`, `latest_record`), and whole sealed segments that are to be
rewritten (`VerifiedSegments`).
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from foldlog.errors import CorruptLog
from foldlog.files.base import Into
from foldlog.limits import READ_CHUNK_BYTES
from foldlog.log.doctor.soundness import batch_at
from foldlog.log.segment import ANY_OFFSET, FoundBatches, Segment
from foldlog.log.transactions import Aborted, AbortedTransaction, spans_without
from foldlog.records.batch import LENGTH_AT
from foldlog.records.loops import BatchHeader, check_epochs, decode, offset_at_time, walk


class FetchedBatches(NamedTuple):
    """Whole verified batches; `next_offset` is where to go on, or the requested offset at the view's end. `aborted`:
    after a read of committed records, the transactions whose batches among these do not count."""

    data: memoryview
    next_offset: int
    aborted: tuple[AbortedTransaction, ...] = ()


@dataclass(frozen=True, slots=True)
class SegmentInfo:
    """One segment, for people and tools."""

    base_offset: int
    path: str
    size_bytes: int
    largest_timestamp_ms: int
    is_active: bool


class BatchLocation(NamedTuple):
    """Where a batch is: its segment, its position there, its header (with position 0) and its bytes."""

    segment: Segment
    position: int
    header: BatchHeader
    data: memoryview


Diagnose = Callable[[Segment, int], CorruptLog | None]
"""The damage of a segment if the batch at a position contradicts those around it; None if it does not."""


@dataclass(frozen=True, slots=True)
class LogView:
    """A consistent list of segments, and the bounds within which they are read and verified.

    Batches of `aborted` transactions are left out. With `diagnose`, offsets may be missing anywhere, also at the end of
    a segment, as Kafka's compaction leaves it: a base offset that is too large is then noticed only by what follows it,
    and `diagnose` decides which of the batches around a position is damaged.
    """

    segments: tuple[Segment, ...]
    epoch_starts: Sequence[tuple[int, int]]
    gaps_below: int
    end_offset: int  # the high watermark: always the end of a batch
    synced_offset: int  # a power cut may have taken what is missing above it: recovery has it from the journal
    aborted: Aborted | None = None
    diagnose: Diagnose | None = None

    def upto(self, end_offset: int) -> LogView:
        """The view that ends at `end_offset`, where a batch ends, if it does not end before."""
        return self if self.end_offset <= end_offset else replace(self, end_offset=end_offset)

    def segment_at(self, offset: int) -> int:
        """Index of the segment that holds `offset`."""
        return max(0, bisect_right(self.segments, offset, key=_base_offset) - 1)


def _base_offset(segment: Segment) -> int:
    return segment.base_offset


def read_batches(view: LogView, offset: int, max_bytes: int, into: Into = None, nowait: bool = False) -> FetchedBatches:
    """The batch that holds `offset` (or the next, where compaction left a gap) and those after it in its segment.

    At most `max_bytes`, but at least one batch below the view's end: a log, compacted or not, ends with a batch, so a
    missing one is damage. Only Kafka's files may have none there. CRC, contiguous offsets and leader epochs are
    checked. `nowait`: see `Segment.locate`. Raises CorruptLog.
    """
    while True:
        found = _read_all(view, offset, max_bytes, into, nowait)
        if not view.aborted or not found.data:
            return found
        kept = _without(view.aborted, found)
        if kept.data:
            return kept
        offset = found.next_offset


def without_aborted(found: FetchedBatches) -> FetchedBatches:
    """Only the committed ones of batches that were read as such. May be none: go on at `next_offset`."""
    return _without(Aborted(found.aborted), found)._replace(aborted=()) if found.aborted else found


def _without(aborted: Aborted, found: FetchedBatches) -> FetchedBatches:
    spans = spans_without(aborted, walk(found.data, check_crc=False).headers)
    if spans == [(0, len(found.data))]:
        return found
    return FetchedBatches(memoryview(b"".join(found.data[start:stop] for start, stop in spans)), found.next_offset)


def _read_all(view: LogView, offset: int, max_bytes: int, into: Into, nowait: bool) -> FetchedBatches:
    """`read_batches`, with batches of aborted transactions."""
    if offset >= view.end_offset:
        return FetchedBatches(memoryview(b""), offset)
    at = view.segment_at(offset)
    while True:
        segment = view.segments[at]
        found = segment.locate(offset, max_bytes, view.gaps_below, view.end_offset, into, nowait)
        taken = _select(found.headers, offset, max_bytes)
        if taken:
            check_leader_epochs(segment, found.position, taken, view.epoch_starts)
            if view.diagnose is not None:
                taken = _not_to_blame(view, view.diagnose, at, found, taken)
            elif at + 1 < len(view.segments) and taken[-1].next_offset > view.segments[at + 1].base_offset:
                # Where gaps are legal, nothing behind the last batch contradicts an offset that is too large.
                check_boundary(segment, taken[-1].next_offset, view.segments[at + 1])
            first, last = taken[0], taken[-1]
            return FetchedBatches(found.data[first.position : last.position + last.size], last.next_offset)
        at += 1
        if at < len(view.segments):
            if view.diagnose is None:
                check_boundary(segment, found.ended_at, view.segments[at])
        elif view.diagnose is None:
            raise _lost_end(view, found.ended_at)
        else:
            return FetchedBatches(memoryview(b""), view.end_offset)


def _lost_end(view: LogView, ended_at: int) -> CorruptLog:
    """The error if the files end before the log does: batches at the end, or a whole segment, are gone."""
    last = view.segments[-1]
    return CorruptLog(
        last.log_path,
        last.size,
        f"it ends at offset {ended_at}, and the log at {view.end_offset}: its end, or a file behind it, is missing",
        # Recovery keeps what is there, and has what was acknowledged from the journal; below it, damage is rot.
        "open the log once for writing, which recovers it" if ended_at >= view.synced_offset else None,
    )


def _not_to_blame(
    view: LogView, diagnose: Diagnose, at: int, found: FoundBatches, taken: list[BatchHeader]
) -> list[BatchHeader]:
    """The batches before the first whose base offset is too large by what follows; raises if there are none."""
    segment, last = view.segments[at], taken[-1]
    limit = view.segments[at + 1].base_offset if at + 1 < len(view.segments) else view.end_offset
    too_far = next((header for header in taken if header.next_offset > limit), None)
    wrong_at = found.position + (last.position + last.size if too_far is None else too_far.position)
    if too_far is None:
        head = segment.log().read(wrong_at, LENGTH_AT) if wrong_at < segment.size else b""
        is_behind = int.from_bytes(head, "big", signed=True) >= last.next_offset
        if len(head) < LENGTH_AT or is_behind or batch_at(segment.log(), wrong_at, segment.size) is None:
            return taken  # what is no whole batch is reported when it is read
    error = diagnose(segment, wrong_at)
    kept = [header for header in taken if error is None or found.position + header.position < error.position]
    if error is not None and not kept:
        raise error
    return kept


def batch_location(view: LogView, offset: int) -> BatchLocation | None:
    """The batch that holds `offset`, or the next one if there is a gap; None if there is none below the view's end."""
    data = read_batches(view, offset, 1).data
    if not data:
        return None
    header = walk(data).headers[0]
    segment = view.segments[view.segment_at(header.base_offset)]
    found = segment.find(header.base_offset, view.gaps_below)
    if found is None:
        raise CorruptLog(segment.log_path, 0, f"the batch at offset {header.base_offset} is not there any more")
    return BatchLocation(segment, found[0], header, data)


def segment_infos(view: LogView) -> list[SegmentInfo]:
    """All segments, oldest first."""
    last = view.segments[-1]
    return [SegmentInfo(s.base_offset, s.log_path, s.size, s.largest_timestamp(), s is last) for s in view.segments]


def largest_timestamp(view: LogView, at: int) -> int:
    """The largest timestamp of the segment at index `at`. CorruptLog if its end is lost: that may be the latest."""
    segment = view.segments[at]
    largest_ms = segment.largest_timestamp()
    if view.diagnose is None and at + 1 < len(view.segments):
        check_boundary(segment, segment.latest_looked_to(), view.segments[at + 1])
    return largest_ms


def check_leader_epochs(
    segment: Segment, position: int, headers: list[BatchHeader], starts: Sequence[tuple[int, int]]
) -> None:
    """Raise CorruptLog if a batch has another leader epoch than its offset. Headers count from `position`."""
    wrong = check_epochs(headers, starts)
    if wrong is not None:
        header, epoch = wrong
        raise CorruptLog(
            segment.log_path,
            position + header.position,
            f"the batch at offset {header.base_offset} has leader epoch {header.leader_epoch}, not {epoch}",
        )


def check_boundary(segment: Segment, ended_at: int, following: Segment) -> None:
    """Raise CorruptLog unless the segment, compacted or not, ends where the next begins: else one is missing or cut."""
    if ended_at != following.base_offset:
        raise CorruptLog(
            segment.log_path,
            segment.size,
            f"it ends at offset {ended_at} and the next segment begins at {following.base_offset}",
        )


def _select(headers: list[BatchHeader], offset: int, max_bytes: int) -> list[BatchHeader]:
    first = bisect_right(headers, offset, key=_next_offset)
    total = 0
    for at in range(first, len(headers)):
        total += headers[at].size
        if total > max_bytes and at > first:
            return headers[first:at]
    return headers[first:]


def _next_offset(header: BatchHeader) -> int:
    return header.next_offset


def first_at_time(
    view: LogView, start_offset: int, timestamp_ms: int, decompressed_limit: int
) -> tuple[int, int] | None:
    """(offset, timestamp) of the first record at or after `timestamp_ms`, by offset order; None if there is none."""
    for at in range(view.segment_at(start_offset), len(view.segments)):
        segment = view.segments[at]
        if segment is not view.segments[-1] and largest_timestamp(view, at) < timestamp_ms:
            continue
        offset = max(start_offset, segment.before_time(timestamp_ms))
        while offset < view.end_offset:
            found = read_batches(view, offset, READ_CHUNK_BYTES)
            if not found.data:
                break
            hit = offset_at_time(found.data, timestamp_ms, offset, decompressed_limit=decompressed_limit)
            if hit is not None:
                return hit
            offset = found.next_offset
        return None
    return None


Hit = tuple[int, int]
"""Offset and timestamp of a record."""


def latest_record(view: LogView, start_offset: int, decompressed_limit: int) -> Hit | None:
    """(offset, timestamp) of the first record with the largest timestamp from `start_offset` on: by the time indexes,
    scanning only what they do not cover.

    None if no record has a timestamp. Segments are searched in the order of the largest timestamp they can hold, so
    usually one. Raises CorruptLog and DecompressedTooLarge.
    """
    visible = [
        (at, segment)
        for at, segment in enumerate(view.segments)
        if at >= view.segment_at(start_offset) and segment.base_offset < view.end_offset
    ]
    at_most = sorted((-largest_timestamp(view, at), segment.base_offset, segment) for at, segment in visible)
    best: Hit | None = None
    for negative_ms, base_offset, segment in at_most:
        if best is not None and (best[1] > -negative_ms or (best[1] == -negative_ms and best[0] < base_offset)):
            break
        best = better(best, _latest_in(view, segment, start_offset, decompressed_limit))
    return best if best is not None and best[1] >= 0 else None


def better(one: Hit | None, other: Hit | None) -> Hit | None:
    """The later one; the first, if they are of the same time."""
    if one is None or other is None:
        return one or other
    return max(one, other, key=lambda hit: (hit[1], -hit[0]))


def _latest_in(view: LogView, segment: Segment, start_offset: int, decompressed_limit: int) -> Hit | None:
    """As `latest_record`, for the records of one segment."""
    batch = _latest_batch(segment, view.end_offset)
    if batch is not None and batch.base_offset >= start_offset:
        data = read_batches(view, batch.base_offset, 1).data
        hit = offset_at_time(data, batch.max_timestamp, decompressed_limit=decompressed_limit)
        if hit is not None:
            return hit
    # Its record was deleted or compacted away, or is a transaction marker: the index does not cover the rest.
    return _latest_by_scan(view, segment, start_offset, decompressed_limit)


def _latest_batch(segment: Segment, end_offset: int) -> BatchHeader | None:
    """The segment's first batch with the largest timestamp below `end_offset`; None if that is not known.

    While records wait for their sync, one of them may have the largest timestamp of all. Then the time index gives the
    largest as of each entry of the offset index, and the batches after the last of these are scanned.
    """
    latest = segment.latest()
    if latest is None or latest[1] < end_offset:
        found = None if latest is None else segment.find(latest[1])
        return None if found is None else found[1]
    best: BatchHeader | None = None
    relative_end = end_offset - segment.base_offset
    time_entry = segment.time_index.below(relative_end)
    if time_entry is not None:
        found = segment.find(segment.base_offset + time_entry[1])
        if found is None or found[1].max_timestamp != time_entry[0]:
            return None
        best = found[1]
    offset_entry = segment.offset_index.floor(relative_end - 1)
    for _, headers in segment.scan(offset_entry[1] if offset_entry else 0, -1, ANY_OFFSET, stop_at_tear=True):
        for header in headers:
            if header.base_offset >= end_offset:
                return best
            if best is None or header.max_timestamp > best.max_timestamp:
                best = header
    return best


def _latest_by_scan(view: LogView, segment: Segment, start_offset: int, decompressed_limit: int) -> Hit | None:
    """As `_latest_in`, by scanning the batches."""
    best: Hit | None = None
    offset = max(start_offset, segment.base_offset)
    following = [other.base_offset for other in view.segments if other.base_offset > segment.base_offset]
    end_offset = min(following[0] if following else view.end_offset, view.end_offset)
    while offset < end_offset:
        found = read_batches(view, offset, READ_CHUNK_BYTES)
        if not found.data:
            break
        for header in walk(found.data, check_crc=False).headers:
            if header.base_offset < end_offset and (best is None or header.max_timestamp > best[1]):
                batch = found.data[header.position : header.position + header.size]
                records, _ = decode(batch, "", 0, start_offset=start_offset, decompressed_limit=decompressed_limit)
                for record in records:
                    best = better(best, (record.offset, record.timestamp_ms))
        offset = found.next_offset
    return best


class VerifiedBatches(NamedTuple):
    """Whole verified batches at `position` of a segment's file; positions in `headers` are in `data`."""

    data: memoryview
    headers: list[BatchHeader]
    position: int

    @property
    def next_offset(self) -> int:
        return self.headers[-1].next_offset


class VerifiedSegments:
    """Reads sealed segments whole, with all checks of a read, for code that rewrites them. One thread.

    A batch's CRC does not cover its base offset and leader epoch. Rewriting them unchecked would make damage final that
    `foldlog check` could have mended: so each batch has to begin where the one before it ended (or, after compaction,
    behind it) and carry the epoch of its offset, and the last has to end where the next segment begins.

    Uses the bounds of one moment: `gaps_below` must not move up before the segments below it were read.

    `before_each` is called before each piece; it may raise to end a long read.
    """

    def __init__(
        self, gaps_below: int, epoch_starts: Sequence[tuple[int, int]], before_each: Callable[[], None]
    ) -> None:
        self._gaps_below = gaps_below
        self._epoch_starts = epoch_starts
        self._before_each = before_each

    def pieces(self, segment: Segment, following: Segment) -> Iterator[VerifiedBatches]:
        """All batches of a segment that ends where `following` begins. Raises CorruptLog."""
        log, position, wanted, expected = segment.log(), 0, READ_CHUNK_BYTES, segment.base_offset
        while position < segment.size:
            self._before_each()
            data = memoryview(log.read(position, min(wanted, segment.size - position)))
            found = walk(data, expected_offset=expected, gaps_below=self._gaps_below)
            if not found.headers:
                if not found.problem and wanted < found.needed_bytes <= segment.size - position:
                    wanted = found.needed_bytes
                    continue
                raise CorruptLog(segment.log_path, position, found.problem or "the last batch is cut off")
            check_leader_epochs(segment, position, found.headers, self._epoch_starts)
            expected = found.headers[-1].next_offset
            if expected > following.base_offset:
                break
            yield VerifiedBatches(data[: found.end], found.headers, position)
            position += found.end
            wanted = max(READ_CHUNK_BYTES, found.needed_bytes)
        check_boundary(segment, expected, following)
