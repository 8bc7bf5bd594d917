"""Keep the newest record per key: which part of the log to go through, and the rewriting of it.

A pass maps the keys of the not yet cleaned part to their newest offsets, as many as the map holds, then rewrites
the segments up to there without what is superseded. Neighbouring small results become one segment. The active
segment is never touched. Each segment, also a rewritten one, ends where the next begins: its last batch stays,
without records if need be.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from foldlog.errors import CorruptLog
from foldlog.files.base import Files
from foldlog.limits import COMPACTION_KEYS_MAX, POSITION_MAX, READ_CHUNK_BYTES
from foldlog.log.config import LogConfig
from foldlog.log.layout import CLEANED_SUFFIX
from foldlog.log.segment import Segment, segment_stem
from foldlog.records.loops import KeyMap, compact, walk


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
    """When a pass runs, and how long tombstones outlive their cleaning."""

    now_ms: int
    delete_retention_ms: int


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


def map_keys(segments: Sequence[Segment], start_offset: int, end_offset: int) -> tuple[KeyMap, int]:
    """The newest offset of each key in [start, end), and the offset up to which all of them fitted into the map."""
    keys = KeyMap(min(COMPACTION_KEYS_MAX, max(1, end_offset - start_offset)))
    mapped_end = start_offset
    for segment in segments:
        if segment.base_offset >= end_offset:
            break
        for data, next_offset in read_whole_batches(segment, start_offset):
            mapped_end = min(keys.add(data, start_offset=start_offset, end_offset=end_offset), end_offset)
            if mapped_end < min(next_offset, end_offset):
                return keys, mapped_end
    return keys, end_offset


def read_whole_batches(segment: Segment, start_offset: int = 0) -> Iterator[tuple[memoryview, int]]:
    """The segment from the batch that holds `start_offset`, in pieces of whole batches, with the offset after each."""
    offset = max(start_offset, segment.base_offset)
    found = segment.find(offset)
    if found is None:
        return
    log, position, wanted = segment.log(), found[0], READ_CHUNK_BYTES
    while position < segment.size:
        data = memoryview(log.read(position, min(wanted, segment.size - position)))
        batches = walk(data)
        if batches.problem:
            raise CorruptLog(segment.log_path, position + batches.end, batches.problem)
        if batches.headers:
            yield data[: batches.end], batches.headers[-1].next_offset
            position += batches.end
        elif wanted < batches.needed_bytes <= segment.size - position:
            wanted = batches.needed_bytes
        else:
            raise CorruptLog(segment.log_path, position, "the last batch is cut off")


def group_segments(segments: Sequence[Segment], end_offset: int, segment_bytes: int) -> list[list[Segment]]:
    """Neighbours that together still make one segment: compaction would otherwise leave many small files.

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


def rewrite(
    files: Files,
    directory: str,
    group: Sequence[Segment],
    keys: KeyMap,
    mapped_end: int,
    time: CleanTime,
    keep: frozenset[int],
) -> tuple[int, CompactionReport]:
    """Write the group without what is superseded into `<base>.log.cleaned`, synced. Returns its size and the counts."""
    path = segment_stem(directory, group[0].base_offset) + CLEANED_SUFFIX
    target = files.open(path, write=True, create=True)
    target.truncate(0)
    position = 0
    report = CompactionReport(segments_before=len(group), segments_after=1)
    for data, is_last in _with_last(piece for segment in group for piece, _ in read_whole_batches(segment)):
        kept, stats = compact(
            data, keys, now_ms=time.now_ms, delete_retention_ms=time.delete_retention_ms, mapped_end=mapped_end,
            keep_batches=keep, keep_last=is_last,
        )  # fmt: skip
        position += target.write(position, [kept])
        report = report.plus(CompactionReport(stats.records_in, stats.records_out, stats.bytes_in, stats.bytes_out))
    target.sync()
    files.sync_directory(directory)
    return position, report


def _with_last(pieces: Iterator[memoryview]) -> Iterator[tuple[memoryview, bool]]:
    """Each piece with whether it is the last."""
    previous: memoryview | None = None
    for piece in pieces:
        if previous is not None:
            yield previous, False
        previous = piece
    if previous is not None:
        yield previous, True
