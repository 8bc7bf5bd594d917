"""Gathers a producer's records into batches: a queue for each partition, and the timer that closes batches whose linger
is over. Kafka's producer has the same name for it.

Everything but the timer belongs to one producer and is guarded by its lock, except `PartitionQueue.writing`, which
keeps the order of batches while they are written outside of that lock.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable, Mapping
from contextlib import suppress
from threading import Condition, Lock, Thread
from typing import TYPE_CHECKING

from foldlog.broker.topics.catalog import CatalogTopic
from foldlog.broker.topics.names import KAFKA_OWN_TOPICS, refuse_user_write, require_text
from foldlog.client.backends.backend import DirectoryBroker, WritablePartition
from foldlog.client.handle_types import BatchAck
from foldlog.client.outgoing import emptiest
from foldlog.clock import Clock
from foldlog.environment import PURE_PYTHON
from foldlog.errors import CorruptLog, InvalidArgument, UnknownTopic
from foldlog.log.partition import Partition
from foldlog.records.loops import BatchBuilder

if TYPE_CHECKING:
    from foldlog.log.single_appends import SingleAppends

_SingleAppends: type[SingleAppends] | None = None
if not PURE_PYTHON:
    with suppress(ImportError):  # it is not built everywhere
        from foldlog.log.single_appends import SingleAppends as _SingleAppends

OpensPartition = Callable[[str, int], WritablePartition]

_WAIT_MAX_MS = 3_600_000.0
"""Wake up at least hourly: a deadline years away would overflow what a lock can wait for."""


class ProducerBatch:
    """The records of one batch, and their common acknowledgement. Closed once its queue has another open batch."""

    __slots__ = ("ack", "builder", "size_bytes")

    def __init__(self, ack: BatchAck, builder: BatchBuilder) -> None:
        self.ack = ack
        self.builder = builder
        self.size_bytes = 0  # set when it is sealed


class PartitionQueue:
    """The batches for one partition: at most one open, and the sealed ones that wait to be written in order."""

    __slots__ = ("log", "number", "open", "sealed", "single", "spare", "topic", "writing")

    def __init__(self, topic: str, number: int) -> None:
        self.topic = topic
        self.number = number
        # Opened with the first batch: a damaged partition must not stop the others.
        self.log: WritablePartition | None = None
        self.single: SingleAppends | None = None
        """The compiled way for `log.append`, once a record took it."""
        self.open: ProducerBatch | None = None
        self.sealed: deque[ProducerBatch] = deque()
        self.spare: BatchBuilder | None = None
        self.writing = Lock()

    def start(self, limit_bytes: int, limit_records: int) -> ProducerBatch:
        """Open a batch."""
        builder, self.spare = self.spare, None
        if builder is None or builder.max_bytes != limit_bytes:
            builder = BatchBuilder(limit_bytes, limit_records)
        self.open = ProducerBatch(BatchAck(self.topic, self.number), builder)
        return self.open

    def seal(self) -> ProducerBatch | None:
        """Close the open batch, if there is one; it is written after those sealed before it."""
        batch, self.open = self.open, None
        if batch is not None:
            batch.size_bytes = batch.builder.size_bytes
            self.sealed.append(batch)
        return batch


class TopicInfo:
    """The queues of one topic, what it accepts, and the partition for its next keyless record."""

    __slots__ = (
        "_turn",
        "_usable",
        "count",
        "is_compacted",
        "max_message_bytes",
        "numbers",
        "queues",
        "sticky",
        "topic",
    )

    def __init__(self, topic: CatalogTopic) -> None:
        self.queues: list[PartitionQueue] = []
        self.sticky: PartitionQueue | None = None
        """Where keyless records go now, if that is decided and the topic takes them; for `OpenBatches`."""
        self._usable: list[int] = []
        self._turn = 0
        self.update(topic)

    def update(self, topic: CatalogTopic) -> None:
        """Follow a change of the topic's settings or a growth; existing queues stay."""
        self.topic = topic
        self.count = topic.partition_count
        self.numbers = range(self.count)
        self.is_compacted = topic.config.log.compact
        self.max_message_bytes = topic.config.log.max_message_bytes
        self.queues.extend(PartitionQueue(topic.name, number) for number in range(len(self.queues), self.count))
        self._usable = []
        self.sticky = None

    def refuse_keyless(self) -> None:
        """Raise if the topic is compacted: it keeps the newest record of each key, so a record needs one."""
        if self.is_compacted:
            raise InvalidArgument(f"topic {self.topic.name!r} is compacted: every record in it needs a key")

    def keyless_queue(self, broker: DirectoryBroker) -> PartitionQueue:
        """The queue for keyless records. Starts with the emptiest partition; damaged ones are skipped."""
        if not self._usable:
            self._usable, self._turn = self._choose_usable(broker)
        queue = self.queues[self._usable[self._turn]]
        self.sticky = None if self.is_compacted else queue
        return queue

    def is_keyless_queue(self, queue: PartitionQueue) -> bool:
        return bool(self._usable) and self.queues[self._usable[self._turn]] is queue

    def advance(self) -> None:
        """Send the next keyless record to the next partition."""
        if self._usable:
            self._turn = (self._turn + 1) % len(self._usable)
        self.sticky = None

    def _choose_usable(self, broker: DirectoryBroker) -> tuple[list[int], int]:
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


class RecordAccumulator:
    """The topics that a producer has sent to. Growth, new settings and deletion are noticed when a batch is opened."""

    def __init__(self, broker: DirectoryBroker, opens: OpensPartition | None = None) -> None:
        """`opens`: how partitions are opened to append to, if not by the broker."""
        self._broker = broker
        self._opens = opens or broker.writable_partition
        self._infos: dict[str, TopicInfo] = {}
        self._gone: list[PartitionQueue] = []
        self.known: Mapping[str, TopicInfo] = self._infos
        """Topics as of the last opened batch: send() looks into this for every record."""

    def of(self, topic: str) -> TopicInfo:
        """The topic as it is in the catalog now. Raises UnknownTopic if it is not there."""
        try:
            info = self._infos.get(topic)
        except TypeError:  # a list, say: it cannot be a dictionary key
            info = None
        if info is None:
            refuse_user_write(require_text(topic))
        try:
            now = self._broker.topic(topic)
        except UnknownTopic:
            self._forget(topic)
            raise
        if info is None or info.topic.topic_id != now.topic_id:
            self._forget(topic)
            info = self._infos[topic] = TopicInfo(now)
        elif info.topic is not now:
            info.update(now)
        return info

    def open_log(self, queue: PartitionQueue) -> WritablePartition:
        """The queue's partition, opened if it is not yet."""
        if queue.log is None:
            queue.log = writable_partition(self._opens, queue.topic, queue.number)
        return queue.log

    def busy_queues(self) -> list[PartitionQueue]:
        """The queues with a batch that is not written yet."""
        known = [queue for info in self._infos.values() for queue in info.queues]
        return [queue for queue in known + self._gone if queue.open is not None or queue.sealed]

    def sticky_moved(self, queue: PartitionQueue) -> None:
        """A batch of this queue was closed: keyless records that went there go to the next partition from now on."""
        info = self._infos.get(queue.topic)
        if info is not None and info.is_keyless_queue(queue):
            info.advance()

    def _forget(self, topic: str) -> None:
        """The topic was deleted: keep queues with waiting batches, whose futures have to fail."""
        info = self._infos.pop(topic, None)
        if info is not None:
            self._gone = [queue for queue in [*self._gone, *info.queues] if queue.open is not None or queue.sealed]


def writable_partition(opens: OpensPartition, topic: str, number: int) -> WritablePartition:
    """A partition that users may append to. Raises ReadOnly if the log was opened for reading."""
    if type(topic) is str and topic in KAFKA_OWN_TOPICS:
        refuse_user_write(topic)
    return opens(topic, number)


def compiled_appends(log: WritablePartition) -> SingleAppends | None:
    """The compiled way of a single record into this partition; None if it was not built, or another process writes."""
    return None if _SingleAppends is None or not isinstance(log, Partition) else _SingleAppends(log)


class LingerTimer:
    """Calls back after a deadline, on its own thread, unless cancelled: closes batches whose linger is over.

    One per producer. All delays are the same, so deadlines come in order and a dictionary serves as queue. The thread
    starts with the first open batch, keeps no reference to the producer while no batch is open, and ends with `stop`.
    Any thread may call it.
    """

    def __init__(self, clock: Clock, delay_ms: float) -> None:
        self._clock = clock
        self._delay_ms = min(delay_ms, 1e15)  # a huge int would fail where a float is added
        self._changed = Condition()
        self._due: dict[Hashable, tuple[float, Callable[[], None]]] = {}
        self._thread: Thread | None = None
        self._stopped = False

    def schedule(self, name: Hashable, callback: Callable[[], None]) -> None:
        """Call `callback` on the timer's thread once the delay is over."""
        with self._changed:
            self._due[name] = (self._clock.monotonic_ms() + self._delay_ms, callback)
            if len(self._due) == 1:
                self._changed.notify()
            if self._thread is None and not self._stopped:
                self._thread = Thread(target=self._run, name="foldlog-linger", daemon=True)
                self._thread.start()

    def cancel(self, name: Hashable) -> None:
        """Drop the callback. The thread is not woken: it finds the next deadline by itself."""
        with self._changed:
            self._due.pop(name, None)

    def stop(self) -> None:
        """End the thread; callbacks that are not due are dropped."""
        with self._changed:
            self._stopped = True
            self._due.clear()
            self._changed.notify()

    def _run(self) -> None:
        while True:
            callback = self._next()
            if callback is None:
                return
            callback()
            del callback  # an idle thread would keep the last batch, and through it the producer

    def _next(self) -> Callable[[], None] | None:
        with self._changed:
            while not self._stopped:
                if not self._due:
                    self._changed.wait()
                    continue
                name, (deadline_ms, callback) = next(iter(self._due.items()))
                remaining_ms = deadline_ms - self._clock.monotonic_ms()
                if remaining_ms <= 0:
                    del self._due[name]
                    return callback
                del name, callback  # nor may a waiting thread
                self._changed.wait(min(max(remaining_ms, 1.0), _WAIT_MAX_MS) / 1000)
            return None
