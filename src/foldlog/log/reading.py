"""What a read may see, and the one way to read it: the writer's partition and reading processes share it."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from foldlog.errors import CorruptLog
from foldlog.files.base import Into
from foldlog.limits import READ_CHUNK_BYTES
from foldlog.log.segment import Found, Segment
from foldlog.log.soundness import batch_at
from foldlog.log.transactions import Aborted, spans_without
from foldlog.records.batch import LENGTH_AT
from foldlog.records.loops import BatchHeader, check_epochs, offset_at_time, walk


class Slice(NamedTuple):
    """Whole verified batches; `next_offset` is where to go on, and what was asked for if there was nothing."""

    data: memoryview
    next_offset: int


@dataclass(frozen=True, slots=True)
class SegmentInfo:
    """One segment, for people and tools."""

    base_offset: int
    path: str
    size_bytes: int
    largest_timestamp_ms: int
    is_active: bool


class BatchPlace(NamedTuple):
    """Where a batch stands: its segment, its first byte there, its header, whose position is 0, and its bytes."""

    segment: Segment
    position: int
    header: BatchHeader
    data: memoryview


Diagnose = Callable[[Segment, int], CorruptLog | None]
"""The damage of a segment by which the batch at a position contradicts what is around it; None if it does not."""


@dataclass(frozen=True, slots=True)
class View:
    """A consistent list of segments, and the bounds within which they are read and verified.

    Batches of `aborted` transactions are passed over. With `diagnose` offsets may be missing anywhere, also at the end
    of a segment, as Kafka's compaction leaves it: then a base offset that is too large is seen only by what follows it,
    and `diagnose` says which of the batches around a position is to blame.
    """

    segments: tuple[Segment, ...]
    epoch_starts: Sequence[tuple[int, int]]
    gaps_below: int
    end_offset: int  # the high watermark: always the end of a batch
    aborted: Aborted | None = None
    diagnose: Diagnose | None = None

    def segment_at(self, offset: int) -> int:
        """Index of the segment that holds `offset`."""
        return max(0, bisect_right(self.segments, offset, key=_base_offset) - 1)


def _base_offset(segment: Segment) -> int:
    return segment.base_offset


def read_batches(view: View, offset: int, max_bytes: int, into: Into = None, nowait: bool = False) -> Slice:
    """The batch that holds `offset` (or the next, where compaction left a gap) and those after it in its segment.

    At most `max_bytes`, but at least one batch if there is any below the view's end. CRC, contiguous offsets and
    leader epoch of all of them are checked. `nowait`: see `Segment.locate`. Raises CorruptLog.
    """
    while True:
        found = _read_all(view, offset, max_bytes, into, nowait)
        if not view.aborted or not found.data:
            return found
        kept = _without_aborted(found, view.aborted)
        if kept.data:
            return kept
        offset = found.next_offset


def _without_aborted(found: Slice, aborted: Aborted) -> Slice:
    spans = spans_without(aborted, walk(found.data, check_crc=False).headers)
    if spans == [(0, len(found.data))]:
        return found
    return Slice(memoryview(b"".join(found.data[start:stop] for start, stop in spans)), found.next_offset)


def _read_all(view: View, offset: int, max_bytes: int, into: Into, nowait: bool) -> Slice:
    """The same, whatever transactions the batches are of."""
    at = view.segment_at(offset)
    while offset < view.end_offset and at < len(view.segments):
        segment = view.segments[at]
        found = segment.locate(offset, max_bytes, view.gaps_below, view.end_offset, into, nowait)
        taken = _select(found.headers, offset, max_bytes)
        if taken:
            wrong = check_epochs(taken, view.epoch_starts)
            if wrong is not None:
                header, epoch = wrong
                raise CorruptLog(
                    segment.log_path,
                    found.position + header.position,
                    f"the batch at offset {header.base_offset} has leader epoch {header.leader_epoch}, not {epoch}",
                )
            if view.diagnose is not None:
                taken = _not_to_blame(view, view.diagnose, at, found, taken)
            first, last = taken[0], taken[-1]
            return Slice(found.data[first.position : last.position + last.size], last.next_offset)
        at += 1
        if at < len(view.segments) and view.diagnose is None:
            check_boundary(segment, found.ended_at, view.segments[at])
    return Slice(memoryview(b""), offset)


def _not_to_blame(view: View, diagnose: Diagnose, at: int, found: Found, taken: list[BatchHeader]) -> list[BatchHeader]:
    """Those before the one whose base offset is too large by what follows; raises the diagnosis if it is the first."""
    segment, last = view.segments[at], taken[-1]
    limit = view.segments[at + 1].base_offset if at + 1 < len(view.segments) else view.end_offset
    too_far = next((header for header in taken if header.next_offset > limit), None)
    wrong_at = found.position + (last.position + last.size if too_far is None else too_far.position)
    if too_far is None:
        head = segment.log().read(wrong_at, LENGTH_AT) if wrong_at < segment.size else b""
        is_behind = int.from_bytes(head, "big", signed=True) >= last.next_offset
        if len(head) < LENGTH_AT or is_behind or batch_at(segment.log(), wrong_at, segment.size) is None:
            return taken  # what is no batch is found to be none, or to be half written, when it is read
    error = diagnose(segment, wrong_at)
    kept = [header for header in taken if error is None or found.position + header.position < error.position]
    if error is not None and not kept:
        raise error
    return kept


def batch_place(view: View, offset: int) -> BatchPlace | None:
    """The batch that holds `offset`, or the next one where there is a gap; None if none is below the view's end."""
    data = read_batches(view, offset, 1).data
    if not data:
        return None
    header = walk(data).headers[0]
    segment = view.segments[view.segment_at(header.base_offset)]
    found = segment.find(header.base_offset, view.gaps_below)
    if found is None:
        raise CorruptLog(segment.log_path, 0, f"the batch at offset {header.base_offset} is not there any more")
    return BatchPlace(segment, found[0], header, data)


def segment_infos(view: View) -> list[SegmentInfo]:
    """All segments, oldest first."""
    last = view.segments[-1]
    return [SegmentInfo(s.base_offset, s.log_path, s.size, s.largest_timestamp(), s is last) for s in view.segments]


def check_boundary(segment: Segment, ended_at: int, following: Segment) -> None:
    """A segment ends where the next one begins, also when it was compacted: otherwise one is missing or cut."""
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


def first_at_time(view: View, start_offset: int, timestamp_ms: int) -> tuple[int, int] | None:
    """(offset, timestamp) of the first record at or after `timestamp_ms`, by offset order; None if there is none."""
    for segment in view.segments[view.segment_at(start_offset) :]:
        if segment is not view.segments[-1] and segment.largest_timestamp() < timestamp_ms:
            continue
        offset = max(start_offset, segment.before_time(timestamp_ms))
        while offset < view.end_offset:
            found = read_batches(view, offset, READ_CHUNK_BYTES)
            if not found.data:
                break
            hit = offset_at_time(found.data, timestamp_ms, offset)
            if hit is not None:
                return hit
            offset = found.next_offset
        return None
    return None
