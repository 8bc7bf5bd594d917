"""Copies to a broker, which assigns offsets itself: the same ones if the source has no holes, others if it has.

The group COPY_GROUP commits the end of the copy, with the next offset of the source in the commit's metadata: before
the first batch, and then with every COPY_SYNC_BYTES that are acknowledged. After a crash, records behind the last such
commit are counted and compared with the source. The metadata has the producer's id, too, so that the copy continues its
sequence numbers: a request of the killed copy that arrives late either finds its number taken, or takes it, and then
the repetition is not appended.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

from foldlog.broker.groups.committed import OffsetAndMetadata
from foldlog.client.copy.batches import as_sent, count_from, records_in
from foldlog.client.copy.notes import Note, identity
from foldlog.client.copy.offsets import CopyPoint, CopyPoints, OffsetMap
from foldlog.client.copy.sides import ClusterSide, Side, batches, compacts, count_records
from foldlog.client.copy.targets import (
    Content,
    Copied,
    CopyNumbers,
    CopySpan,
    OnProgress,
    Resume,
    Route,
    check_same_end,
    conflict,
    content,
    contents,
    nothing_yet,
)
from foldlog.client.groups import COPY_GROUP
from foldlog.client.positions import TopicPartition
from foldlog.errors import CopyConflict, InvalidTimestamp, RecordTooLarge, RefusedBatch
from foldlog.limits import BATCH_HEADER_BYTES, COPY_SYNC_BYTES
from foldlog.records.batch import MAX_INT32
from foldlog.records.stamping import offset_span

if TYPE_CHECKING:
    from foldlog.client.wire.produce import ClusterProducer


class ClusterTarget:
    """A Kafka cluster of any kind, or a directory that another process serves."""

    keeps_offsets = False

    def __init__(self, side: ClusterSide) -> None:
        self.side = side

    # --- how far an earlier copy came -----------------------------------------------------------------------------

    def find(self, source: Side, span: CopySpan) -> Resume:
        route = span.route
        start, end = self.side.bounds(route.to_topic)[route.partition]
        note = self._noted(route)
        if note is None:
            if start == end:
                return nothing_yet(span, end)
            # Committed offsets expire. A copy with the source's offsets can be recognized by its records.
            is_same = end <= span.stop and check_same_end(self.side, source, span, start, end, is_known=False)
            if not (is_same and self._lines_up(source, span, start, end)):
                raise conflict(self.side, route, "holds records that are no copy of the source, as far as one can tell")
            return Resume(CopyPoint(end, end), (CopyPoint(start, start), CopyPoint(end, end)))
        if (note.source, note.topic_id) != identity(source, route):
            raise conflict(self.side, route, "is the copy of another topic")
        if end < note.at.target:
            raise conflict(self.side, route, f"ends at offset {end}, and was copied up to {note.at.target}")
        at = note.at if end == note.at.target else self._arrived(source, span, note, end)
        return Resume(at, tuple(dict.fromkeys((note.origin, note.at, at))), note.numbers)

    def _lines_up(self, source: Side, span: CopySpan, start: int, end: int) -> bool:
        """Whether a copy that ends at `end` surely has the source's offsets, and not others where there happen to be
        the same records: then its last record would be elsewhere in the source.

        Holes are never filled again: a source without any had none when it was copied.
        """
        topic, to_topic, partition = span.route
        if start == span.start == 0 and count_records(source, topic, partition, 0, end) == end:
            return True
        last = contents(self.side, to_topic, partition, end - 1, end)
        found = [
            record.offset
            for data, header in batches(source, topic, partition, span.start, span.stop)
            for record in records_in(data[header.position : header.position + header.size], span.start, span.stop)
            if content(record) in last.values()
        ]
        return found == [end - 1]

    def _noted(self, route: Route) -> Note | None:
        committed = self.side.cluster.committed(COPY_GROUP).get(TopicPartition(route.to_topic, route.partition))
        return None if committed is None else Note.from_json(committed.metadata, committed.offset)

    def _arrived(self, source: Side, span: CopySpan, note: Note, end: int) -> CopyPoint:
        """The position of a copy in which more arrived than it had noted."""
        route = span.route
        there = contents(self.side, route.to_topic, route.partition, note.at.target, end)
        ours = _first_contents(source, span, note.at.source, end - note.at.target)
        can_lose = span.start > note.at.source or compacts(source, route.topic)
        at = _counted(ours, there, note.at.target, end)
        if can_lose and (at is None or span.start > note.at.source or _repeats(there)):
            at = _matched(ours, there, span.stop) if len(there) == end - note.at.target else None
        if at is None:
            raise conflict(self.side, route, f"has other records than the source from offset {note.at.target} on")
        return CopyPoint(at, end)

    # --- copying --------------------------------------------------------------------------------------------------

    def copy(self, source: Side, span: CopySpan, resume: Resume, on_progress: OnProgress) -> Copied:
        route = span.route
        partition = (route.to_topic, route.partition)
        numbers = resume.numbers or CopyNumbers(*self.side.cluster.new_producer_id(), resume.at.target)
        under_way = _UnderWay(self, Note(*identity(source, route), resume.points[0], resume.at, numbers), route)
        points = CopyPoints(list(resume.points))
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
                    with under_way.explaining(at):
                        producer.send(*partition, batch)
                done.records += count_from(data, header, at)
                on_progress(header.next_offset - at, header.size)
                at = header.next_offset
                if unsettled_bytes >= COPY_SYNC_BYTES:
                    points.add(under_way.settled(producer, CopyPoint(at, target_offset)))
                    unsettled_bytes = 0
            points.add(under_way.settled(producer, CopyPoint(max(at, span.stop), target_offset)))
        on_progress(max(0, span.stop - at), 0)
        done.offsets = OffsetMap(points.points(), points.is_kept())
        return done

    def _limit_bytes(self, topic: str) -> int:
        told = self.side.log.topic_config(topic).get("max.message.bytes")
        return max(BATCH_HEADER_BYTES, int(told.value)) if told is not None else 1 << 20


def _first_contents(source: Side, span: CopySpan, start: int, count: int) -> dict[int, Content]:
    """The first records from an offset on, at most `count`."""
    found: dict[int, Content] = {}
    for data, header in batches(source, span.route.topic, span.route.partition, start, span.stop):
        for record in records_in(data[header.position : header.position + header.size], start, span.stop):
            if len(found) == count:
                return found
            found[record.offset] = content(record)
    return found


def _counted(ours: Mapping[int, Content], there: Mapping[int, Content], start: int, end: int) -> int | None:
    """The source's offset after the arrived records, if these come first in the source; None if they do not.

    Records that the target has already compacted cannot be compared.
    """
    if len(ours) != end - start:
        return None
    for target_offset, one in zip(range(start, end), ours.values(), strict=True):
        if there.get(target_offset, one) != one:
            return None
    return max(ours) + 1


def _matched(ours: Mapping[int, Content], there: Mapping[int, Content], stop: int) -> int | None:
    """How far it got, if the source has lost some of it: the offset of the first that did not arrive, else `stop`.

    None if they do not match, or if equal records make it ambiguous.
    """
    if _repeats(there) or _repeats(ours):
        return None
    offsets = {one: offset for offset, one in there.items()}
    found = [offsets.get(one) for one in ours.values()]
    arrived = [offset for offset in found if offset is not None]
    if found[: len(arrived)] != arrived or arrived != sorted(arrived):
        return None
    if len(arrived) < len(ours):
        return list(ours)[len(arrived)]
    return max(ours) + 1 if len(ours) == len(there) else stop


def _repeats(records: Mapping[int, Content]) -> bool:
    return len(set(records.values())) < len(records)


class _UnderWay:
    """One partition while it is copied: waits for what was sent, and notes the progress."""

    def __init__(self, target: ClusterTarget, note: Note, route: Route) -> None:
        self._cluster = target.side.cluster
        self._path = target.side.log.path
        self._note = note
        self._route = route

    def note(self, at: CopyPoint) -> None:
        partition = TopicPartition(self._route.to_topic, self._route.partition)
        text = self._note._replace(at=at).to_json()
        self._cluster.commit_offsets(COPY_GROUP, {partition: OffsetAndMetadata(at.target, metadata=text)})

    @contextmanager
    def explaining(self, offset: int) -> Iterator[None]:
        """Explain a refusal: the broker's own words name neither the topic nor the setting."""
        try:
            yield
        except RecordTooLarge as error:
            raise self._refused(offset, "it is over max.message.bytes; raise that for the topic") from error
        except InvalidTimestamp as error:
            why = "its time is beyond message.timestamp.before.max.ms or message.timestamp.after.max.ms; raise that"
            raise self._refused(offset, why) from error
        except RefusedBatch as error:
            raise self._refused(offset, f"{str(error).rstrip('.')}; change the topic's settings") from error

    def _refused(self, offset: int, why: str) -> CopyConflict:
        return CopyConflict(
            f"{self._route} of {self._path} refuses a record that lies before offset {offset} of the source, or there:"
            f" {why}, and copy again"
        )

    def settled(self, producer: ClusterProducer, at: CopyPoint) -> CopyPoint:
        """Returns once everything sent is acknowledged and noted. Raises CopyConflict if others have written, too."""
        with self.explaining(at.source):
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
