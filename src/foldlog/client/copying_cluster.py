"""Copies to a broker, which gives offsets itself: the same where the source has no holes, others where it has.

A group (COPY_GROUP) commits the end of the copy, and as the commit's note which offset of the source comes next: before
the first batch, and then with every COPY_SYNC_BYTES that are acknowledged. After a crash, what arrived behind the last
such commit is counted and compared with the source. The note has the producer's id, too, so that the copy goes on with
its sequence numbers: a request of the killed one that arrives late either finds its number taken, or takes it, and then
the repetition is not appended.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final, NamedTuple

from foldlog.broker.bookmarks import OffsetAndMetadata
from foldlog.client.copying_batches import as_sent, count_from, records_in
from foldlog.client.copying_offsets import OffsetMap, Point, Trail
from foldlog.client.copying_sides import ClusterSide, Side, batches
from foldlog.client.copying_targets import (
    Content,
    Copied,
    Numbers,
    OnProgress,
    Resume,
    Route,
    Span,
    check_same_end,
    conflict,
    content,
    nothing_yet,
)
from foldlog.client.positions import TopicPartition
from foldlog.errors import CopyConflict
from foldlog.limits import BATCH_HEADER_BYTES, COPY_SYNC_BYTES
from foldlog.records.batch import MAX_INT32
from foldlog.records.stamping import offset_span

if TYPE_CHECKING:
    from foldlog.client.cluster_produce import ClusterProducer

COPY_GROUP: Final = "foldlog-copy"
"""Its committed offsets are the ends of copies; their notes say of what."""


class Note(NamedTuple):
    """How far a copy has come, as it stands in a commit. `source` and `topic_id` say of what it is a copy."""

    source: str
    topic_id: str
    origin: Point
    at: Point
    numbers: Numbers

    def to_json(self) -> str:
        """
        >>> note = Note("b1", "77", Point(5, 0), Point(9, 4), Numbers(12, 0, 0))
        >>> Note.from_json(note.to_json(), 4) == note
        True
        """
        return json.dumps([self.source, self.topic_id, self.at.source, list(self.origin), list(self.numbers)])

    @classmethod
    def from_json(cls, text: str, target_offset: int) -> Note | None:
        """None if it is not one."""
        try:
            source, topic_id, source_offset, origin, numbers = json.loads(text)
            at = Point(int(source_offset), target_offset)
            return cls(str(source), str(topic_id), Point(*map(int, origin)), at, Numbers(*map(int, numbers)))
        except (ValueError, TypeError):
            return None


class ClusterTarget:
    """A cluster of any make, or a directory that another process serves."""

    keeps_offsets = False

    def __init__(self, side: ClusterSide) -> None:
        self.side = side

    # --- how far an earlier copy came -----------------------------------------------------------------------------

    def find(self, source: Side, span: Span) -> Resume:
        route = span.route
        start, end = self.side.bounds(route.to_topic)[route.partition]
        note = self._noted(route)
        if note is None:
            if start == end:
                return nothing_yet(span, end)
            # Committed offsets expire. A copy without holes can be told by its records.
            if end > span.stop or not check_same_end(self.side, source, span, start, end):
                raise conflict(self.side, route, "holds records that are no copy of the source, as far as one can tell")
            return Resume(Point(end, end), (Point(start, start), Point(end, end)))
        if (note.source, note.topic_id) != self._identity(source, route):
            raise conflict(self.side, route, "is the copy of another topic")
        if end < note.at.target:
            raise conflict(self.side, route, f"ends at offset {end}, and was copied up to {note.at.target}")
        at = note.at if end == note.at.target else self._arrived(source, span, note, end)
        return Resume(at, tuple(dict.fromkeys((note.origin, note.at, at))), note.numbers)

    def _noted(self, route: Route) -> Note | None:
        committed = self.side.cluster.committed_places(COPY_GROUP).get(TopicPartition(route.to_topic, route.partition))
        return None if committed is None else Note.from_json(committed.metadata, committed.offset)

    def _identity(self, source: Side, route: Route) -> tuple[str, str]:
        return source.log.directory_id, source.log.topic(route.topic).topic_id

    def _arrived(self, source: Side, span: Span, note: Note, end: int) -> Point:
        """Where the copy stands, of which more arrived than it had noted."""
        route = span.route
        there = self._contents(route, note.at.target, end)
        offset = note.at.target
        for data, header in batches(source, route.topic, route.partition, note.at.source, span.stop):
            batch = data[header.position : header.position + header.size]
            for record in records_in(batch, note.at.source, span.stop):
                if there.get(offset, content(record)) != content(record):
                    raise conflict(self.side, route, f"has another record at offset {offset} than the source")
                offset += 1
                if offset == end:
                    return Point(record.offset + 1, end)
        raise conflict(self.side, route, f"goes on to offset {end}, and what the source has left ends at {offset}")

    def _contents(self, route: Route, start: int, stop: int) -> dict[int, Content]:
        found: dict[int, Content] = {}
        for data, header in batches(self.side, route.to_topic, route.partition, start, stop):
            batch = data[header.position : header.position + header.size]
            found.update({record.offset: content(record) for record in records_in(batch, start, stop)})
        return found

    # --- copying --------------------------------------------------------------------------------------------------

    def copy(self, source: Side, span: Span, resume: Resume, on_progress: OnProgress) -> Copied:
        route = span.route
        partition = (route.to_topic, route.partition)
        numbers = resume.numbers or Numbers(*self.side.cluster.new_producer_id(), resume.at.target)
        under_way = _UnderWay(self, Note(*self._identity(source, route), resume.points[0], resume.at, numbers), route)
        trail = Trail(list(resume.points))
        limit_bytes = self._limit_bytes(route.to_topic)
        done = Copied(OffsetMap(resume.points, is_kept=False), resume.at)
        at, target_offset = resume.at
        under_way.note(resume.at)
        sequences = {partition: (target_offset - numbers.since) & MAX_INT32}
        with self.side.cluster.producer((numbers.producer_id, numbers.epoch), sequences) as producer:
            unsettled_bytes = 0
            for data, header in batches(source, route.topic, route.partition, at, span.stop):
                for batch in as_sent(data, header, at, limit_bytes):
                    target_offset += offset_span(batch)
                    unsettled_bytes += len(batch)
                    done.size_bytes += len(batch)
                    producer.send(*partition, batch)
                done.records += count_from(data, header, at)
                on_progress(header.next_offset - at)
                at = header.next_offset
                if unsettled_bytes >= COPY_SYNC_BYTES:
                    trail.add(under_way.settled(producer, Point(at, target_offset)))
                    unsettled_bytes = 0
            trail.add(under_way.settled(producer, Point(max(at, span.stop), target_offset)))
        on_progress(max(0, span.stop - at))
        done.offsets = OffsetMap(trail.points(), trail.is_kept())
        return done

    def _limit_bytes(self, topic: str) -> int:
        told = self.side.log.topic_config(topic).get("max.message.bytes")
        return max(BATCH_HEADER_BYTES, int(told.value)) if told is not None else 1 << 20


class _UnderWay:
    """One partition while it is copied: what is sent is waited for, and noted."""

    def __init__(self, target: ClusterTarget, note: Note, route: Route) -> None:
        self._cluster = target.side.cluster
        self._path = target.side.log.path
        self._note = note
        self._route = route

    def note(self, at: Point) -> None:
        partition = TopicPartition(self._route.to_topic, self._route.partition)
        text = self._note._replace(at=at).to_json()
        self._cluster.commit_places(COPY_GROUP, {partition: OffsetAndMetadata(at.target, metadata=text)})

    def settled(self, producer: ClusterProducer, at: Point) -> Point:
        """Returns once everything sent is acknowledged, and that is noted. CopyConflict if more is there by now."""
        producer.flush()
        _, _, partition = self._route
        end = self._cluster.bounds(self._route.to_topic, [partition])[partition].end
        if end > at.target:
            raise CopyConflict(
                f"somebody else writes to {self._route} of {self._path}: it ends at offset {end}, and the copy at"
                f" {at.target}; stop them, delete the topic, and copy again"
            )
        self.note(at)
        return at
