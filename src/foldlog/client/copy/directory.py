"""Copies into a directory: whole batches as they are, at their own offsets.

Holes of the source are filled with batches without records, so the target's end says where to go on. An appended batch
is on disk whole or not at all, so a killed copy goes on after its last whole batch. Before the first one, a note says
what this is a copy of; without it, records that both sides have show it.
"""

from __future__ import annotations

from foldlog.broker.groups.committed import OffsetAndMetadata
from foldlog.client.backends.directory import directory_of
from foldlog.client.copy.batches import OffsetBatch, as_stored, count_from, stand_ins
from foldlog.client.copy.notes import Note, identity
from foldlog.client.copy.offsets import CopyPoint, OffsetMap
from foldlog.client.copy.sides import DirectorySide, Side, batches
from foldlog.client.copy.targets import (
    Copied,
    CopyNumbers,
    CopySpan,
    OnProgress,
    Resume,
    Route,
    check_same_end,
    conflict,
    nothing_yet,
)
from foldlog.client.groups import COPY_GROUP
from foldlog.client.positions import TopicPartition
from foldlog.errors import CopyConflict
from foldlog.limits import COPY_SYNC_BYTES, COPY_WRITE_BYTES
from foldlog.log.partition import Partition
from foldlog.records.batch import NO_PRODUCER_EPOCH, NO_PRODUCER_ID
from foldlog.records.stamping import offset_span


class DirectoryTarget:
    """A directory that this process writes."""

    keeps_offsets = True

    def __init__(self, side: DirectorySide) -> None:
        self.side = side

    def find(self, source: Side, span: CopySpan) -> Resume:
        route = span.route
        start, end = self.side.bounds(route.to_topic)[route.partition]
        note = self._noted(route)
        if note is not None and (note.source, note.topic_id) != identity(source, route):
            raise conflict(self.side, route, "is the copy of another topic")
        if end > span.stop:
            raise conflict(self.side, route, f"goes on to offset {end}, and its source ends at {span.stop}")
        if start == end or not check_same_end(self.side, source, span, start, end, is_known=note is not None):
            return nothing_yet(span._replace(start=max(span.start, end)), max(span.start, end))
        return Resume(CopyPoint(end, end), (CopyPoint(start, start), CopyPoint(end, end)))

    def _noted(self, route: Route) -> Note | None:
        committed = self.side.log.committed(COPY_GROUP).get(TopicPartition(route.to_topic, route.partition))
        return None if committed is None else Note.from_json(committed.metadata, committed.offset)

    def _note(self, source: Side, route: Route, at: CopyPoint) -> None:
        text = Note(
            *identity(source, route), at, at, CopyNumbers(NO_PRODUCER_ID, NO_PRODUCER_EPOCH, at.target)
        ).to_json()
        committed = OffsetAndMetadata(at.target, metadata=text)
        directory_of(self.side.log).broker.commit_offsets(COPY_GROUP, {(route.to_topic, route.partition): committed})

    def copy(self, source: Side, span: CopySpan, resume: Resume, on_progress: OnProgress) -> Copied:
        route = span.route
        log = directory_of(self.side.log).broker.writable_partition(route.to_topic, route.partition)
        if not isinstance(log, Partition):
            raise CopyConflict(f"{self.side.log.path} is written by another process; copy through its broker")
        writer = _Writer(log)
        self._note(source, route, resume.at)
        if resume.is_hollow and resume.at.target > log.log_start_offset:
            writer.fill(resume.at.target)
            writer.sync()
            log.delete_records(resume.at.target)
        first = resume.points[0]
        done = Copied(OffsetMap((first,), is_kept=True), first)
        at = resume.at.source
        for data, header in batches(source, route.topic, route.partition, at, span.stop):
            for batch in as_stored(data, header, writer.end):
                writer.put(batch)
                done.size_bytes += len(batch.data)
            done.records += count_from(data, header, at)
            on_progress(header.next_offset - at, header.size)
            at = header.next_offset
        writer.fill(span.stop)
        writer.sync()
        on_progress(max(0, span.stop - at), 0)
        done.offsets = OffsetMap((first, CopyPoint(writer.end, writer.end)), is_kept=True)
        return done


class _Writer:
    """Appends batches at their own offsets, some at a time."""

    def __init__(self, log: Partition) -> None:
        self.end = log.log_end_offset
        self._log = log
        self._waiting: list[bytearray] = []
        self._waiting_bytes = 0
        self._unsynced_bytes = 0
        self._write_bytes = min(COPY_WRITE_BYTES, log.config.segment_bytes)

    def put(self, batch: OffsetBatch) -> None:
        """Add one batch, at or after the end."""
        self.fill(batch.base_offset)
        self._add(batch)

    def fill(self, offset: int) -> None:
        """Make `offset` the next one. Holes are written one by one: a segment cannot count over two large ones."""
        for batch in stand_ins(self.end, offset):
            self._write()
            self._add(batch)
            self._write()

    def _add(self, batch: OffsetBatch) -> None:
        if self._waiting and self._waiting_bytes + len(batch.data) > self._write_bytes:
            self._write()
        self._waiting.append(batch.data)
        self._waiting_bytes += len(batch.data)
        self.end = batch.base_offset + offset_span(batch.data)

    def _write(self) -> None:
        if not self._waiting:
            return
        appended = self._log.append(*self._waiting, stored=True)
        if appended.next_offset != self.end:
            topic, number = self._log.label
            raise CopyConflict(f"somebody else writes to {topic}-{number}; copy into a topic that nobody writes to")
        self._waiting = []
        self._unsynced_bytes += self._waiting_bytes
        self._waiting_bytes = 0
        if self._unsynced_bytes >= COPY_SYNC_BYTES:
            self.sync()

    def sync(self) -> None:
        """Returns once all batches are durable."""
        self._write()
        self._log.wait_acknowledged(self.end)
        self._unsynced_bytes = 0
