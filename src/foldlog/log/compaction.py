"""Keep the newest record per key: choose the part of the log to compact, and rewrite it.

A pass maps the keys of the part that is not cleaned yet to their newest offsets, as many as the map holds, then
rewrites the segments up to there without superseded records. Neighbouring small results become one segment. The active
segment is never touched, nor is anything from the last stable offset on. Records of aborted transactions go, and so do
markers whose transaction has no batches left, once their delete horizon has passed. Each segment, rewritten or not,
ends where the next begins: its last batch stays, without records if need be. Input is verified as in every read, and
output is checked before it becomes part of the log.
"""

from __future__ import annotations

import random
import secrets
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum
from itertools import pairwise
from operator import attrgetter
from typing import Final, NamedTuple

from foldlog import limits
from foldlog.errors import CorruptLog, DecompressedTooLarge, InvalidBatch
from foldlog.files.base import File, Files
from foldlog.limits import COMPACTION_KEYS_MAX, POSITION_MAX
from foldlog.log.config import LogConfig
from foldlog.log.layout import CLEANED_SUFFIX
from foldlog.log.producers import ProducersNeed
from foldlog.log.reading import VerifiedBatches, VerifiedSegments
from foldlog.log.segment import ANY_OFFSET, Segment, segment_stem
from foldlog.log.transactions import Aborted, AbortedIndex, Marker, end_marker, markers_of
from foldlog.records.batch import CONTROL_ABORT, FAULT_CHANGED, FAULT_LOST, MAX_INT64, RECORDS_AT
from foldlog.records.compression import READ_DECOMPRESSED_BYTES
from foldlog.records.loops import (
    BatchHeader,
    DroppedSample,
    KeyMap,
    check_compacted,
    compact,
    empty_batch,
    key_at,
    walk,
)

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


def end_of_cleanable(
    segments: Sequence[Segment], config: LogConfig, now_ms: int, stable_offset: int, *, force: bool
) -> int:
    """Where compaction must stop: at the active segment, the first too young for min.compaction.lag.ms, or the first
    that is not wholly below the last stable offset."""
    lag_ms = 0 if force else config.min_compaction_lag_ms
    for segment, following in pairwise(segments):
        if following.base_offset > stable_offset:
            return segment.base_offset
        if lag_ms and now_ms - segment.largest_timestamp() < lag_ms:
            return segment.base_offset
    return segments[-1].base_offset


def is_worthwhile(segments: Sequence[Segment], cleaned_offset: int, end_offset: int, dirty_ratio: float) -> bool:
    """Whether the part that compaction has not seen is large enough, by min.cleanable.dirty.ratio."""
    cleanable = [segment for segment in segments if segment.base_offset < end_offset]
    dirty = sum(segment.size for segment in cleanable if segment.base_offset >= cleaned_offset)
    total = sum(segment.size for segment in cleanable)
    return dirty > 0 and dirty >= dirty_ratio * total


def map_keys(
    source: VerifiedSegments,
    segments: Sequence[Segment],
    start_offset: int,
    end_offset: int,
    decompressed_limit: int = READ_DECOMPRESSED_BYTES,
    aborted: AbortedIndex | None = None,
) -> tuple[KeyMap, int]:
    """The newest offset of each key in [start, end), and the offset up to which all of them fitted into the map.

    Records of aborted transactions are left out; that these were aborted, and no others, is compared with the markers.
    Also reads what is before `start_offset`, and the rest of a segment in which the map got full: all that the pass
    rewrites is verified before it changes anything. Raises CorruptLog.
    """
    # Bounded: if the keys do not fit, the pass covers the offsets that did, and the next begins there. A record is
    # dropped only for a newer one in the map, so records from `mapped_end` on make nothing obsolete yet.
    keys = KeyMap(min(COMPACTION_KEYS_MAX, max(1, end_offset - start_offset)))
    mapped_end = end_offset
    transactions = None if aborted is None else CleanedTransactions(aborted)
    read = 0
    for segment, following in pairwise(segments):
        if segment.base_offset >= mapped_end:
            break
        read += 1
        for piece in source.pieces(segment, following):
            for run in _runs(transactions, segment, piece):
                if run.kind is RunKind.DATA and start_offset < run.next_offset and mapped_end == end_offset:
                    with as_stored(segment, run.position):
                        noted = keys.add(
                            run.data,
                            start_offset=start_offset,
                            end_offset=end_offset,
                            decompressed_limit=decompressed_limit,
                        )
                    if noted < min(run.next_offset, end_offset):
                        mapped_end = noted
    if transactions is not None:
        transactions.check_rest(segments[read:])
    return keys, mapped_end


class RunKind(Enum):
    """How compaction treats a batch: by its keys; as one whose records were aborted; or as a marker."""

    DATA = "data"
    ABORTED = "aborted"
    MARKER = "marker"


class Run(NamedTuple):
    """Batches of a piece, one after the other, that are treated alike; `position` is that in the segment's file."""

    kind: RunKind
    data: memoryview
    headers: Sequence[BatchHeader]
    position: int

    @property
    def next_offset(self) -> int:
        return self.headers[-1].next_offset

    def batch(self, header: BatchHeader) -> memoryview:
        """The bytes of one of them."""
        at = header.position - self.headers[0].position
        return self.data[at : at + header.size]


def _runs(transactions: CleanedTransactions | None, segment: Segment, piece: VerifiedBatches) -> Iterator[Run]:
    """The runs of a piece. Each marker is one: what becomes of it depends on the batches before it."""
    if transactions is None:
        yield Run(RunKind.DATA, piece.data, piece.headers, piece.position)
        return
    gathered: list[BatchHeader] = []
    kind = RunKind.DATA
    for header in piece.headers:
        if header.is_control:
            found = RunKind.MARKER
        else:
            found = RunKind.ABORTED if transactions.is_aborted(segment, header) else RunKind.DATA
        if gathered and (found is not kind or found is RunKind.MARKER):
            yield _run(kind, piece, gathered)
            gathered = []
        kind = found
        gathered.append(header)
        if found is RunKind.MARKER:
            run = _run(kind, piece, gathered)
            with as_stored(segment, run.position):
                marker = end_marker(run.data, header)
            transactions.read_marker(segment, header, marker)
    yield _run(kind, piece, gathered)


def _run(kind: RunKind, piece: VerifiedBatches, headers: Sequence[BatchHeader]) -> Run:
    start, last = headers[0].position, headers[-1]
    return Run(kind, piece.data[start : last.position + last.size], headers, piece.position + start)


class CleanedTransactions:
    """Follows transactions through the log, in the order of offsets: which batches were aborted, and which markers have
    no batches left. One thread.

    The index of aborted transactions is a hint, and to drop a record for a wrong entry would lose it: each entry is
    compared with the marker, and so is the lack of one. Raises CorruptLog if they contradict each other.
    """

    def __init__(self, aborted: AbortedIndex) -> None:
        self._aborted = Aborted(aborted.between(0, ANY_OFFSET))
        self._open: dict[int, bool] = {}  # producers whose batches were read: whether the index calls them aborted
        self.idle_markers: set[int] = set()
        """Offsets of the markers whose transaction has no batches left."""
        self.needed_aborts: set[int] = set()
        """Offsets of the markers of aborted transactions that had batches: their index entries stay."""

    def is_aborted(self, segment: Segment, header: BatchHeader) -> bool:
        """Whether a batch, which is no control batch, belongs to an aborted transaction."""
        if not header.is_transactional:
            return False
        is_aborted = self._aborted.holds(header)
        if self._open.setdefault(header.producer_id, is_aborted) != is_aborted:
            raise _contradicted(segment, header)
        return is_aborted

    def read_marker(self, segment: Segment, header: BatchHeader, marker: Marker | None) -> None:
        """Take in a control batch; `marker` is None if it ends no transaction."""
        if marker is None:
            return
        was_aborted = self._open.pop(header.producer_id, None)
        if was_aborted is None:
            self.idle_markers.add(header.base_offset)
        elif was_aborted != (marker.kind == CONTROL_ABORT):
            raise _contradicted(segment, header)
        elif was_aborted:
            self.needed_aborts.add(header.base_offset)

    def check_rest(self, segments: Sequence[Segment]) -> None:
        """Compare the transactions whose markers are behind what was read; all are below the last stable offset."""
        for segment in segments:
            for position, headers in segment.scan(0, segment.base_offset, ANY_OFFSET):
                for header in headers:
                    if not self._open:
                        return
                    if header.is_control and header.producer_id in self._open:
                        self.read_marker(segment, header, end_marker(segment.read_batch(position, header), header))
        if self._open:
            producer_id = next(iter(self._open))
            reason = f"it holds no marker for a transaction of producer {producer_id} below the last stable offset"
            raise CorruptLog(segments[-1].log_path, segments[-1].size, reason)


def _contradicted(segment: Segment, header: BatchHeader) -> CorruptLog:
    reason = (
        f"the batch at offset {header.base_offset} contradicts the index of aborted transactions of producer"
        f" {header.producer_id}"
    )
    return CorruptLog(segment.log_path, 0, reason, "have the index made again with 'foldlog check --repair'")


@contextmanager
def as_stored(segment: Segment, position: int) -> Iterator[None]:
    """Raise CorruptLog for a batch with a good CRC and broken content: it was stored so, though no log accepts it.
    `position` is that of the batches in the segment."""
    try:
        yield
    except DecompressedTooLarge:
        raise
    except InvalidBatch as error:
        raise CorruptLog(segment.log_path, position + error.position, error.reason) from error


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
        need: ProducersNeed,
    ) -> None:
        self._source = source
        self._segments = segments
        self._gaps_below = gaps_below
        self._keys = keys
        self._mapped = mapped
        self._time = time
        self._need = need
        self.transactions = None if need.aborted is None else CleanedTransactions(need.aborted)
        self._open_in_output: set[int] = set()  # producers of batches whose marker was not written yet
        self._newest = keys.newest_offsets()
        self._random = random.Random(secrets.randbits(64))
        self._seen = 0  # how many of the newest offsets the rewritten segments held so far

    def rewrite(
        self, files: Files, directory: str, group: Sequence[Segment], following: Segment
    ) -> tuple[int, CompactionReport, bool]:
        """Write the group without what is superseded into `<base>.log.cleaned`, synced and checked. Returns its size,
        the counts, and whether it differs from the group."""
        path = segment_stem(directory, group[0].base_offset) + CLEANED_SUFFIX
        target = files.open(path, write=True, create=True)
        try:
            target.truncate(0)
            position, ended_at, is_changed = 0, group[0].base_offset, len(group) > 1
            report = CompactionReport(segments_before=len(group), segments_after=1)
            dropped = DroppedSample(
                limits.COMPACTION_SAMPLE_MAX, limits.COMPACTION_SAMPLE_KEY_BYTES_MAX, self._random.getrandbits(64)
            )
            for segment, piece, is_last in _with_last(self._pieces(group, following)):
                for run in _runs(self.transactions, segment, piece):
                    with as_stored(segment, run.position):
                        kept, counts = self._clean(run, is_last and run.headers[-1] is piece.headers[-1])
                    target.write(position, [kept])
                    ended_at = self._check(path, target, position, len(kept), run, ended_at, dropped)
                    position += len(kept)
                    report = report.plus(counts)
                    is_changed = is_changed or kept != bytes(run.data)
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
        return position, report, is_changed

    def _pieces(self, group: Sequence[Segment], following: Segment) -> Iterator[tuple[Segment, VerifiedBatches]]:
        for segment, after in pairwise((*group, following)):
            for piece in self._source.pieces(segment, after):
                yield segment, piece

    def _clean(self, run: Run, is_last: bool) -> tuple[bytes | bytearray, CompactionReport]:
        """What stays of a run. `is_last`: its last batch ends the segment, and stays in any case."""
        if run.kind is RunKind.DATA:
            kept, stats = compact(
                run.data,
                self._keys,
                now_ms=self._time.now_ms,
                delete_retention_ms=self._time.delete_retention_ms,
                mapped_end=self._mapped.stop,
                keep_batches=self._need.last_batches,
                keep_last=is_last,
                decompressed_limit=self._time.decompressed_limit,
            )
            return kept, CompactionReport(stats.records_in, stats.records_out, stats.bytes_in, stats.bytes_out)
        out, records = bytearray(), 0
        for header in run.headers:
            must_stay = is_last and header is run.headers[-1]
            batch = run.batch(header)
            if run.kind is RunKind.MARKER:
                marker = self._cleaned_marker(header, batch, must_stay)
                records += header.record_count if len(marker) > RECORDS_AT else 0
                out += marker
            elif must_stay or header.base_offset in self._need.last_batches:
                out += empty_batch(header) if header.record_count else batch
        records_before = sum(header.record_count for header in run.headers)
        return out, CompactionReport(records_before, records, len(run.data), len(out))

    def _cleaned_marker(self, header: BatchHeader, batch: memoryview, must_stay: bool) -> bytes | memoryview:
        """A marker stays until its transaction has no batches left, and delete.retention.ms longer: whoever reads the
        log from its start meanwhile has to learn how transactions ended that it has begun to read."""
        if header.record_count == 0:
            return batch if must_stay else b""
        # The last marker of a producer that sent nothing since has its epoch, which keeps others from writing.
        is_last_of_producer = (header.producer_id, header.producer_epoch) in self._need.last_markers
        is_idle = self.transactions is not None and header.base_offset in self.transactions.idle_markers
        if not is_idle or is_last_of_producer:
            return batch
        if not header.has_delete_horizon:
            # Not at the top: a server with compiled loops does without those in Python, and markers are few.
            from foldlog.records.pure.compaction import with_delete_horizon

            horizon_ms = min(self._time.now_ms + self._time.delete_retention_ms, MAX_INT64)
            return bytes(with_delete_horizon(batch, horizon_ms))
        if self._time.now_ms < header.base_timestamp:
            return batch
        return empty_batch(header) if must_stay else b""

    def _check(
        self, path: str, target: File, position: int, size: int, run: Run, expected: int, dropped: DroppedSample
    ) -> int:
        """Check that what was written for a run holds all that has to stay; returns the next offset."""
        # Read back through the page cache: this finds our mistakes and bits flipped in memory, not faults of the disk.
        written = target.read(position, size)
        found = walk(written, expected_offset=expected, gaps_below=run.next_offset)
        if found.problem or found.end != size:
            raise not_as_read(path, found.problem or "it is shorter than what was written")
        try:
            if run.kind is RunKind.DATA:
                self._seen = check_compacted(
                    run.data,
                    written,
                    self._keys,
                    self._newest,
                    self._seen,
                    mapped_start=self._mapped.start,
                    mapped_end=self._mapped.stop,
                    now_ms=self._time.now_ms,
                    keep_batches=self._need.last_batches,
                    dropped=dropped,
                    decompressed_limit=self._time.decompressed_limit,
                )
            else:
                self._check_transactional(path, run, found.headers, memoryview(written))
        except InvalidBatch as error:
            raise not_as_read(path, error.reason) from error
        if self.transactions is not None and run.kind is not RunKind.MARKER:
            self._open_in_output.update(one.producer_id for one in found.headers if one.is_transactional)
        return found.headers[-1].next_offset if found.headers else expected

    def _check_transactional(self, path: str, run: Run, made: Sequence[BatchHeader], written: memoryview) -> None:
        """Check what was made of aborted batches, or of a marker: gone, without records, or as it was. A marker stays
        as it was while batches of its transaction are in the new file."""
        left = {header.base_offset: header for header in made}
        for old in run.headers:
            new = left.pop(old.base_offset, None)
            is_same = new is not None and written[new.position : new.position + new.size] == run.batch(old)
            if run.kind is RunKind.MARKER and old.record_count:
                if not is_same and old.producer_id in self._open_in_output:
                    raise not_as_read(path, FAULT_LOST)
                self._open_in_output.discard(old.producer_id)
            if new is None:
                if old.base_offset in self._need.last_batches:
                    raise not_as_read(path, FAULT_LOST)
                continue
            if (old.producer_id, old.producer_epoch, old.last_offset_delta, old.leader_epoch, old.is_control) != (
                (new.producer_id, new.producer_epoch, new.last_offset_delta, new.leader_epoch, new.is_control)
            ) or old.base_sequence != new.base_sequence:
                raise not_as_read(path, FAULT_CHANGED)
            if new.record_count and run.kind is RunKind.ABORTED:
                raise not_as_read(path, FAULT_CHANGED)
            if new.record_count and markers_of(written[new.position : new.position + new.size], new) != markers_of(
                run.batch(old), old
            ):
                raise not_as_read(path, FAULT_CHANGED)
        if left:
            raise not_as_read(path, FAULT_CHANGED)

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
