"""A producer's batches: a Lane for each partition it sends to, a Route for each topic, and the Routes it knows.

All belong to one Producer and are guarded by its lock, `Lane.writing` apart, which keeps the order of batches while
they are written outside of it.
"""

from __future__ import annotations

from collections import deque
from threading import Lock

from foldlog.broker.catalog import Topic
from foldlog.broker.topic_names import refuse_user_write, require_text
from foldlog.client.backend import Backend, WritablePartition
from foldlog.client.handle_types import BatchAck
from foldlog.client.partitioners import emptiest
from foldlog.errors import CorruptLog, InvalidArgument, UnknownTopic
from foldlog.records.loops import BatchBuilder


class OpenBatch:
    """Records on their way into one batch, and the fate they will share. Closed once `Lane.open` is another."""

    __slots__ = ("ack", "append", "builder", "size_bytes")

    def __init__(self, ack: BatchAck, builder: BatchBuilder) -> None:
        self.ack = ack
        self.builder = builder
        self.append = builder.append  # bound once: send() runs this for every record
        self.size_bytes = 0  # known once it is sealed


class Lane:
    """The way to one partition: at most one open batch, and the sealed ones that wait to be written in order."""

    __slots__ = ("log", "number", "open", "sealed", "spare", "topic", "writing")

    def __init__(self, topic: str, number: int) -> None:
        self.topic = topic
        self.number = number
        self.log: WritablePartition | None = (
            None  # opened for the first batch: a damaged one must not stop its neighbours
        )
        self.open: OpenBatch | None = None
        self.sealed: deque[OpenBatch] = deque()
        self.spare: BatchBuilder | None = None
        self.writing = Lock()

    def start(self, limit_bytes: int, limit_records: int) -> OpenBatch:
        """Open a batch."""
        builder, self.spare = self.spare, None
        if builder is None or builder.max_bytes != limit_bytes:
            builder = BatchBuilder(limit_bytes, limit_records)
        self.open = OpenBatch(BatchAck(self.topic, self.number), builder)
        return self.open

    def seal(self) -> OpenBatch | None:
        """Close the open batch, if there is one; it is written after those sealed before it."""
        batch, self.open = self.open, None
        if batch is not None:
            batch.size_bytes = batch.builder.size_bytes
            self.sealed.append(batch)
        return batch


class Route:
    """The lanes of one topic, what it accepts, and where its next keyless record goes."""

    __slots__ = ("_turn", "_usable", "count", "is_compacted", "lanes", "max_message_bytes", "numbers", "topic")

    def __init__(self, topic: Topic) -> None:
        self.lanes: list[Lane] = []
        self._usable: list[int] = []
        self._turn = 0
        self.update(topic)

    def update(self, topic: Topic) -> None:
        """Follow a change of the topic's settings or a growth; lanes that exist stay."""
        self.topic = topic
        self.count = topic.partition_count
        self.numbers = range(self.count)
        self.is_compacted = topic.config.log.compact
        self.max_message_bytes = topic.config.log.max_message_bytes
        self.lanes.extend(Lane(topic.name, number) for number in range(len(self.lanes), self.count))
        self._usable = []

    def check_key(self, key: bytes | None) -> None:
        """A compacted topic keeps the newest record of each key, so a record without one could never be kept."""
        if key is None and self.is_compacted:
            raise InvalidArgument(f"topic {self.topic.name!r} is compacted: every record in it needs a key")

    def keyless_lane(self, broker: Backend) -> Lane:
        """Where keyless records go now. Starts at the emptiest partition; a damaged one is passed over."""
        if not self._usable:
            self._usable, self._turn = self._choose_usable(broker)
        return self.lanes[self._usable[self._turn]]

    def is_keyless_lane(self, lane: Lane) -> bool:
        return bool(self._usable) and self.lanes[self._usable[self._turn]] is lane

    def advance(self) -> None:
        """The next keyless record goes to the next partition."""
        if self._usable:
            self._turn = (self._turn + 1) % len(self._usable)

    def _choose_usable(self, broker: Backend) -> tuple[list[int], int]:
        usable: list[int] = []
        ends: list[int] = []
        damaged: CorruptLog | None = None
        for number in range(self.count):
            try:
                ends.append(broker.partition(self.topic.name, number).log_end_offset)
                usable.append(number)
            except CorruptLog as error:
                damaged = error
        if damaged is not None and not usable:
            raise damaged
        return usable, emptiest(ends)


class Routes:
    """The topics a producer has sent to. They follow growth, new settings and deletion whenever a batch is opened."""

    def __init__(self, broker: Backend) -> None:
        self._broker = broker
        self._routes: dict[str, Route] = {}
        self._gone: list[Lane] = []
        self.known = self._routes.get
        """The topic's route as of the last batch that was opened, or None: send() runs this for every record."""

    def of(self, topic: str) -> Route:
        """The topic's route as the catalog has it now; UnknownTopic if it has none."""
        refuse_user_write(require_text(topic))
        route = self._routes.get(topic)
        try:
            now = self._broker.topic(topic)
        except UnknownTopic:
            self._forget(topic)
            raise
        if route is None or route.topic.topic_id != now.topic_id:
            self._forget(topic)
            route = self._routes[topic] = Route(now)
        elif route.topic is not now:
            route.update(now)
        return route

    def open_log(self, lane: Lane) -> WritablePartition:
        """The lane's partition, opened if it is not yet."""
        if lane.log is None:
            lane.log = writable_partition(self._broker, lane.topic, lane.number)
        return lane.log

    def busy_lanes(self) -> list[Lane]:
        """Those with a batch that is not written yet."""
        known = [lane for route in self._routes.values() for lane in route.lanes]
        return [lane for lane in known + self._gone if lane.open is not None or lane.sealed]

    def sticky_moved(self, lane: Lane) -> None:
        """A batch of this lane closed: if keyless records stuck to it, they go to the next from now on."""
        route = self._routes.get(lane.topic)
        if route is not None and route.is_keyless_lane(lane):
            route.advance()

    def _forget(self, topic: str) -> None:
        """The topic was deleted: what waits in its lanes will fail, and has to be told so."""
        route = self._routes.pop(topic, None)
        if route is not None:
            self._gone = [lane for lane in [*self._gone, *route.lanes] if lane.open is not None or lane.sealed]


def writable_partition(broker: Backend, topic: str, number: int) -> WritablePartition:
    """A partition that users may append to; ReadOnly where the log was opened to be read."""
    refuse_user_write(topic)
    return broker.writable_partition(topic, number)
