"""Reading for the command line: ranges of partitions, the last records of a topic, new records, and as a group."""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence, Sized
from typing import TYPE_CHECKING, Final, NamedTuple

from foldlog.cli.output import remark
from foldlog.client.places import PlaceSpec, Span, moved_starts, resolve
from foldlog.client.positions import Place, TopicPartition
from foldlog.clock import Clock, SystemClock
from foldlog.errors import GroupError, UnknownPartition
from foldlog.records.loops import Record

if TYPE_CHECKING:
    from foldlog.broker.groups.committed import OffsetAndMetadata
    from foldlog.client.consumer.consumer import Consumer
    from foldlog.client.log import Log

POLL_MS: Final = 250
"""How long to wait for a client before checking for Ctrl-C: some of them wait inside C code."""

POLL_RECORDS: Final = 500
COMMIT_MS: Final = 1000
"""How often a group's position is committed while its records are printed: each commit costs a sync."""

_WINDOW_OFFSETS: Final = 64


class Reach(NamedTuple):
    """The wanted span of one partition, and its bounds."""

    partition: TopicPartition
    span: Span
    bounds: tuple[int, int]


def reaches(
    log: Log, topics: Iterable[str], place: PlaceSpec, partitions: Sequence[int] | None = None
) -> tuple[list[Reach], list[str]]:
    """The spans of the place in these topics, in the order of topics and partitions, and notes for the user.

    UnknownPartition names the first that a topic does not have.
    """
    found: list[Reach] = []
    told = [] if place.note is None else [place.note]
    for topic in dict.fromkeys(topics):
        held = log.offsets(topic)
        for number in partitions or ():
            if number not in held:
                raise UnknownPartition(topic, number, len(held))
        bounds = {number: held[number] for number in (held if partitions is None else partitions)}
        spans = resolve(place, log, topic, bounds=bounds)
        found += [Reach(TopicPartition(topic, number), span, bounds[number]) for number, span in spans.items()]
        told += moved_starts(place, topic, bounds)
    return found, told


def read_reaches(log: Log, wanted: Iterable[Reach], max_records: int | None = None) -> Iterator[Record]:
    """The existing records, partition by partition, at most `max_records`."""
    left = max_records
    for (topic, number), span, (start, end) in wanted:
        stop = end if span.stop is None else min(span.stop, end)
        if span.start >= stop:
            continue
        if left is not None and left <= 0:
            return
        # Passed as a name, the start may still move during the read: retention does that.
        begin: Place = "start" if span.start == start else span.start
        records = log.read(topic, number, start=begin, stop=stop, max_records=left)
        if left is None:
            yield from records
            continue
        for record in records:
            left -= 1
            yield record


def last_records(log: Log, wanted: Iterable[Reach], count: int) -> list[Record]:
    """The `count` newest records of all these partitions together, oldest first."""
    if count == 0:
        return []
    each: list[Record] = []
    for reach in wanted:
        each += _last_of(log, reach, count)
    youngest = heapq.nlargest(count, each, key=_age)
    return youngest[::-1]


def _age(record: Record) -> tuple[int, str, int, int]:
    return record.timestamp_ms, record.topic, record.partition, record.offset


def _last_of(log: Log, reach: Reach, count: int) -> list[Record]:
    """The last `count` records of a partition. Compaction leaves gaps, so it may have to look further back."""
    found: deque[Record] = deque()
    for window in windows_back(log, reach):
        missing = count - len(found)
        found.extendleft(reversed(deque(window, maxlen=missing)))
        if len(found) == count:
            break
    return list(found)


def windows_back(log: Log, reach: Reach) -> Iterator[Iterator[Record]]:
    """The partition's records, window by window from its end, each twice as wide as the one before."""
    (topic, number), span, (_, end) = reach
    stop = end if span.stop is None else min(span.stop, end)
    width = _WINDOW_OFFSETS
    while stop > span.start:
        start = max(span.start, stop - width)
        yield log.read(topic, number, start=start, stop=stop)
        stop, width = start, width * 2


# --- new records ----------------------------------------------------------------------------------------------------


def follow(log: Log, wanted: Sequence[Reach], *, whole_topics: bool) -> Iterator[list[Record]]:
    """The records from each span's start on, as they arrive, until every span has reached its stop; else forever.

    With `whole_topics`, partitions that a topic gains later are read as well.
    """
    with log.consumer(auto_offset_reset="earliest") as consumer:
        if whole_topics:
            consumer.subscribe(list(dict.fromkeys(reach.partition.topic for reach in wanted)))
        else:
            consumer.assign([reach.partition for reach in wanted])
        stops: dict[TopicPartition, int] = {}
        for (topic, number), span, _ in wanted:
            consumer.seek(topic, number, span.start)
            if span.stop is not None:
                stops[TopicPartition(topic, number)] = span.stop
        outages = Outages(log, consumer)
        while len(stops) < len(wanted) or _is_any_before(consumer, stops):
            records = consumer.poll(max_records=POLL_RECORDS, timeout_ms=POLL_MS)
            outages.look(records)
            yield _before(records, stops) if stops else records


def _is_any_before(consumer: Consumer, stops: Mapping[TopicPartition, int]) -> bool:
    return any(consumer.position(*partition) < stop for partition, stop in stops.items())


def _before(records: list[Record], stops: Mapping[TopicPartition, int]) -> list[Record]:
    return [
        record
        for record in records
        if record.offset < stops.get(TopicPartition(record.topic, record.partition), record.offset + 1)
    ]


# --- as a group -----------------------------------------------------------------------------------------------------


class GroupReading:
    """Reads as a group's member, from the group's position. Printed records are committed each second and at the end.

    After a crash, records are printed again, and none is lost. Used by one thread.
    """

    def __init__(self, consumer: Consumer, clock: Clock | None = None) -> None:
        self._consumer = consumer
        self._clock = clock or SystemClock()
        self._printed: dict[TopicPartition, int] = {}
        self._kept_ms = self._clock.monotonic_ms()

    def poll(self, max_records: int) -> list[Record]:
        return self._consumer.poll(max_records=max_records, timeout_ms=POLL_MS)

    def printed(self, records: Iterable[Record]) -> None:
        """These records are printed; commit if it is time to."""
        for record in records:
            self._printed[TopicPartition(record.topic, record.partition)] = record.offset + 1
        if self._clock.monotonic_ms() - self._kept_ms >= COMMIT_MS:
            self.keep()

    def keep(self) -> GroupError | None:
        """Commit what was printed. Returns the error if the group refused it: others will then see these again."""
        self._kept_ms = self._clock.monotonic_ms()
        held = self._consumer.assignment()
        offsets: dict[tuple[str, int], int | OffsetAndMetadata] = {
            partition: offset for partition, offset in self._printed.items() if partition in held
        }
        self._printed.clear()
        if not offsets:
            return None
        try:
            self._consumer.commit(offsets)
        except GroupError as error:
            return error
        return None

    def is_at(self, ends: Mapping[TopicPartition, int]) -> bool:
        """Whether it has read its assigned partitions up to these ends."""
        held = self._consumer.assignment()
        return all(self._consumer.position(*partition) >= ends.get(partition, 0) for partition in held)


# --- outages --------------------------------------------------------------------------------------------------------


class Outages:
    """Tells the user about unreachable brokers while nothing arrives. Reading continues by itself."""

    def __init__(self, log: Log, consumer: Consumer) -> None:
        self._where = log.bootstrap
        self._consumer = consumer
        self._is_cut_off = False

    def look(self, polled: Sized) -> None:
        """Called after each poll: if records came, the brokers are reachable."""
        is_cut_off = not polled and self._consumer.is_cut_off()
        if is_cut_off == self._is_cut_off:
            return
        self._is_cut_off = is_cut_off
        if is_cut_off:
            remark(
                f"note: nobody answers at {self._where} any more; reading goes on when somebody does, Ctrl-C ends it"
            )
        else:
            remark(f"note: {self._where} answers again")
