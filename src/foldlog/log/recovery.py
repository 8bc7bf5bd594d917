"""Opening a partition: compare the checkpoint with the files, and resolve where they disagree.

Bytes below the checkpointed synced offset are taken as they are (reads verify them): damage there is rot, and refused.
Bytes above are not known to be on the disk: what was acknowledged by the journal has been replayed by now
(journal/recovery.py), and everything else was never acknowledged as a whole. Whole batches are kept, but written and
synced again before they are served (after a failed sync a page can be clean in memory and not on disk); the rest is cut
off and kept beside the log, unless the checkpoint says that it was durable: then the partition is refused.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from itertools import pairwise

from foldlog.errors import CorruptLog
from foldlog.files.base import Files
from foldlog.limits import READ_CHUNK_BYTES
from foldlog.log.checkpoint import SlotState, StartReason
from foldlog.log.layout import finish_swaps, free_cut_name, read_layout
from foldlog.log.reading import check_boundary
from foldlog.log.segment import LOG_SUFFIX, Segment, segment_stem
from foldlog.records.loops import walk

logger = logging.getLogger("foldlog.log")

_ANY_GAP = (1 << 63) - 1


@dataclass(frozen=True, slots=True)
class Cut:
    """Bytes of a segment from `position` on that are not whole batches, or follow some that are not."""

    base_offset: int
    position: int
    reason: str


@dataclass(frozen=True, slots=True)
class Scan:
    """Where whole batches above the synced offset end, and what has to be cut behind them."""

    end_offset: int
    end_base_offset: int
    end_position: int
    cut: Cut | None


@dataclass(frozen=True, slots=True)
class Recovered:
    """An open partition's state. `unclean`: it ended uncleanly, or has bytes that no checkpoint vouched for."""

    segments: tuple[Segment, ...]
    state: SlotState
    unclean: bool


def recover(files: Files, directory: str, known: SlotState | None, index_interval_bytes: int) -> Recovered:
    """Bring the directory into a state in which everything in it may be served. Raises CorruptLog."""
    layout = read_layout(files.entries(directory))
    # First: until swaps are finished, the names show neither the log before a compaction nor the one after it, and the
    # comparison with the slot below would call that damage.
    swapped = finish_swaps(files, directory, layout)
    bases = sorted(layout.logs)
    if not bases:
        raise CorruptLog(directory, 0, "it holds no segment at all")
    reason = StartReason.UNKNOWN if bases[0] else StartReason.WRITTEN
    state = known or SlotState(
        log_start_offset=bases[0], segment_count=len(bases), gaps_below=bases[-1], start_reason=reason
    )
    bases = _drop_expired(files, directory, bases, state.local_start_offset, index_interval_bytes)
    segments = [
        Segment(files, directory, base, layout.logs[base], writable=True, index_interval_bytes=index_interval_bytes)
        for base in bases
    ]
    if known is None:
        state, segments = _without_checkpoint(state, segments)
    else:
        state = _check_segments(directory, state, segments, swapped)
    if (
        known is not None
        and not known.poisoned
        and segments[-1].base_offset == state.active_base_offset
        and segments[-1].size == state.active_position
        and state.durable_offset == state.synced_offset
    ):
        # Unclean even if the sizes match: if flush.* is relaxed, records that a power cut took may have been read, and
        # their offsets are used again. An epoch raised without need costs one line of text.
        return Recovered(tuple(segments), _settled(state, state, segments), unclean=not known.clean)
    # After a failed sync not even whole batches are kept: their senders got an error, and memory may hold what the disk
    # does not.
    scan = scan_above(segments, state) if not state.poisoned else _cut_to_synced(state)
    if scan.end_offset < state.durable_offset:
        raise CorruptLog(
            segment_stem(directory, scan.end_base_offset) + LOG_SUFFIX,
            scan.end_position,
            f"records up to offset {state.durable_offset} were durable, and are neither whole here nor in the journal",
        )
    if known is not None and scan.cut is not None:
        check_join(files, directory, state)
    kept = _carry_out(files, directory, segments, state, scan)
    settled = _settled(state, scan, kept)
    is_new = known is None and settled.durable_offset == 0 and scan.cut is None
    if known is None and not is_new:
        # Unknown without a checkpoint: scan the log before an idempotent producer appends, or it could append twice,
        # and before committed records are read.
        settled = settled._replace(has_producers=True, has_transactions=True)
    return Recovered(tuple(kept), settled, unclean=not is_new)


def check_join(files: Files, directory: str, state: SlotState) -> None:
    """Raise CorruptLog unless the active segment's batches end where the slot says that they are synced.

    For whoever is about to cut or overwrite what follows: if they do not, the file is not the one that the slot speaks
    of, and the cut would go through the middle of a batch.
    """
    active = Segment(files, directory, state.active_base_offset, state.active_position, writable=False)
    try:
        ended_at = active.next_offset(state.gaps_below)
    finally:
        active.forget()
    if ended_at != state.synced_offset:
        reason = f"its batches end at offset {ended_at} there, and offset {state.synced_offset} was synced"
        raise CorruptLog(active.log_path, state.active_position, reason)


def _drop_expired(files: Files, directory: str, bases: list[int], local_start: int, interval: int) -> list[int]:
    """Finish a retention that a crash interrupted: the start had moved past these."""
    while len(bases) > 1 and bases[1] <= local_start:
        Segment(files, directory, bases[0], 0, writable=True, index_interval_bytes=interval).unlink()
        bases = bases[1:]
    return bases


def _without_checkpoint(state: SlotState, segments: list[Segment]) -> tuple[SlotState, list[Segment]]:
    """Without a slot (torn, or lost with its file): verify all but the last segment, which is then scanned whole."""
    for segment, following in pairwise(segments):
        check_boundary(segment, _verified_end(segment), following)
    active = segments[-1]
    return state._replace(
        durable_offset=active.base_offset,
        synced_offset=active.base_offset,
        active_base_offset=active.base_offset,
        active_position=0,
    ), segments


def _verified_end(segment: Segment) -> int:
    ends_at = segment.base_offset
    for _, headers in segment.scan(0, segment.base_offset, gaps_below=_ANY_GAP):
        ends_at = headers[-1].next_offset
    return ends_at


def _check_segments(directory: str, state: SlotState, segments: list[Segment], swapped: bool) -> SlotState:
    """Compare the names with the checkpoint: head segments may be gone, with a warning; nothing else may."""
    upto = [segment for segment in segments if segment.base_offset <= state.active_base_offset]
    if not upto or upto[-1].base_offset != state.active_base_offset:
        raise CorruptLog(directory, 0, f"the segment at offset {state.active_base_offset} is missing")
    if upto[-1].size < state.active_position:
        raise CorruptLog(
            upto[-1].log_path,
            upto[-1].size,
            f"{state.active_position - upto[-1].size} durable bytes are missing at its end",
        )
    if len(upto) == state.segment_count and not swapped:
        return state
    for segment, following in pairwise(upto):
        check_boundary(segment, segment.next_offset(state.gaps_below), following)
    if upto[0].base_offset > state.local_start_offset:
        logger.warning(
            "%s: segments before offset %d were removed by hand; the log now starts there",
            directory,
            upto[0].base_offset,
        )
        return state._replace(log_start_offset=upto[0].base_offset, start_reason=StartReason.MISSING)
    return state


def scan_above(segments: list[Segment], state: SlotState) -> Scan:
    """Walk the batches that follow the synced offset, as far as they are whole."""
    end_offset, position = state.synced_offset, state.active_position
    last_base, last_end = state.active_base_offset, state.active_position
    for segment in (segment for segment in segments if segment.base_offset >= state.active_base_offset):
        if segment.base_offset > state.active_base_offset:
            if segment.base_offset != end_offset:
                return Scan(
                    end_offset, last_base, last_end, Cut(segment.base_offset, 0, f"offset {end_offset} was expected")
                )
            position = 0
        ended_at, position, problem = _scan_segment(segment, position, end_offset, state.gaps_below)
        end_offset, last_base, last_end = ended_at, segment.base_offset, position
        if problem:
            return Scan(end_offset, last_base, last_end, Cut(segment.base_offset, position, problem))
    return Scan(end_offset, last_base, last_end, None)


def _scan_segment(segment: Segment, position: int, expected: int, gaps_below: int) -> tuple[int, int, str | None]:
    log = segment.log()
    wanted = READ_CHUNK_BYTES
    while position < segment.size:
        data = log.read(position, min(wanted, segment.size - position))
        found = walk(data, expected_offset=expected, gaps_below=gaps_below)
        position += found.end
        if found.headers:
            expected = found.headers[-1].next_offset
        if found.problem:
            return expected, position, found.problem
        if not found.headers:
            if not wanted < found.needed_bytes <= segment.size - position:
                return expected, position, "the batch is cut off"
            wanted = found.needed_bytes
    return expected, position, None


def _cut_to_synced(state: SlotState) -> Scan:
    cut = Cut(state.active_base_offset, state.active_position, "a sync failed after it was written")
    return Scan(state.synced_offset, state.active_base_offset, state.active_position, cut)


def _carry_out(files: Files, directory: str, segments: list[Segment], state: SlotState, scan: Scan) -> list[Segment]:
    kept = [segment for segment in segments if segment.base_offset <= scan.end_base_offset]
    dropped = [segment for segment in segments if segment.base_offset > scan.end_base_offset]
    if scan.cut is not None:
        for segment in dropped:
            set_aside(files, segment, 0, scan.cut.reason)
        set_aside(files, kept[-1], scan.end_position, scan.cut.reason)
        # The copies have durable names before the first original is removed: what is cut may be the last copy of a
        # record.
        files.sync_directory(directory)
        for segment in dropped:
            segment.forget()
            segment.unlink()
    for segment in kept:
        if segment.base_offset >= state.active_base_offset:
            start = state.active_position if segment.base_offset == state.active_base_offset else 0
            _settle(segment, start, scan.end_position if segment is kept[-1] else segment.size)
    files.sync_directory(directory)
    return kept


def set_aside(files: Files, segment: Segment, position: int, reason: str) -> None:
    """Keep the bytes from `position` on in a file of their own. Durable once the directory is synced."""
    size = segment.size - position
    if size <= 0:
        return
    beside = free_cut_name(files, segment.log_path, position)
    source, target = segment.log(), files.open(beside, write=True, create=True)
    target.truncate(0)
    for at in range(0, size, READ_CHUNK_BYTES):
        target.write(at, [source.read(position + at, min(READ_CHUNK_BYTES, size - at))])
    target.sync()
    logger.warning("%s: cut %d bytes at %d (%s), kept in %s", segment.log_path, size, position, reason, beside)


def _settle(segment: Segment, start: int, end: int) -> None:
    """Cut the segment at `end`, and write the bytes from `start` again: a page clean in memory may not be on disk."""
    log = segment.log()
    if segment.size > end:
        log.truncate(end)
        segment.size = end
    for position in range(start, end, READ_CHUNK_BYTES):
        log.write(position, [log.read(position, min(READ_CHUNK_BYTES, end - position))])
    log.sync()
    segment.release_file()


def _settled(state: SlotState, scan: Scan | SlotState, segments: list[Segment]) -> SlotState:
    end_offset = scan.end_offset if isinstance(scan, Scan) else state.synced_offset
    # The next even generation, even if it was even: a reading process may have listed what was cut here, or know the
    # size of a file that is shorter now.
    return state._replace(
        generation=(state.generation | 1) + 1,
        high_watermark=end_offset,
        durable_offset=end_offset,
        durable_position=segments[-1].size,
        synced_offset=end_offset,
        active_base_offset=segments[-1].base_offset,
        active_position=segments[-1].size,
        segment_count=len(segments),
        clean=False,
        poisoned=False,
    )
