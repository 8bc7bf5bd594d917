"""How a consumer without a group reads a cluster: all partitions of its topics, over our own connections."""

from __future__ import annotations

import logging
import time
import weakref
from collections.abc import Mapping
from contextlib import ExitStack, closing
from functools import partial
from threading import RLock
from typing import TYPE_CHECKING, Final, NoReturn

from foldlog.broker.groups.committed import OffsetAndMetadata
from foldlog.client.backends.cluster.cursors import ClusterCursor, CursorTurns, Ending, reads_nothing
from foldlog.client.backends.cluster.handles import Handles
from foldlog.client.consumer.assignments import without_group
from foldlog.client.consumer.settings import ConsumerSettings
from foldlog.client.positions import TopicPartition, checked_timeout_ms
from foldlog.client.wire.background import BackgroundCall
from foldlog.client.wire.leader_fetch import FetchPosition, LeaderFetcher
from foldlog.errors import BrokerUnreachable, FoldlogError, OffsetOutOfRange, UnknownPartition, UnknownTopic
from foldlog.limits import CONSUMER_BUFFER_BYTES, FETCH_BYTES_MIN
from foldlog.records.loops import Record

if TYPE_CHECKING:
    from foldlog.client.backends.cluster.backend import ClusterBackend

_log = logging.getLogger("foldlog")

_PAUSE_S: Final = 0.5
"""How long one wait is: in between, a closed log is noticed, and topics are looked at."""

_GLANCE_S: Final = 0.02
"""How often answers are looked for while there are records to hand out: a busy leader is not to starve the others."""


class DirectConsumption:
    """The state of one consumer. Belongs to its thread, but for `let_go`. Its lock is held while it waits: whoever
    wants it closes `arrivals` first."""

    def __init__(self, cluster: ClusterBackend, handles: Handles, settings: ConsumerSettings) -> None:
        self._cluster = cluster
        self._handles = handles
        self._reset = settings.auto_offset_reset
        self._committed = settings.committed
        self._lock = RLock()
        self._turns = CursorTurns(cluster, settings, weakref.proxy(self))
        self._cursors = self._turns.cursors
        self._positions: dict[TopicPartition, FetchPosition] = {}
        self._fetcher: LeaderFetcher | None = None
        self._unclosed: weakref.finalize[[], DirectConsumption] | None = None
        self._topics: tuple[str, ...] = ()
        self._counts: dict[str, int] = {}
        self._growth: BackgroundCall[dict[TopicPartition, int]] | None = None
        self._next_look_s = 0.0
        self._next_glance_s = 0.0
        self._has_refilled = False
        self._problem: FoldlogError | None = None
        self.arrivals = Ending()

    def is_cut_off(self) -> bool:
        """The cluster is asked where a broker was lost and none has answered since."""
        return self._fetcher is not None and self._fetcher.is_troubled and not self._handles.is_answered()

    # --- what is read ---------------------------------------------------------------------------------------------

    def subscribe(self, topics: tuple[str, ...]) -> None:
        """Read all of these topics."""
        self.let_go()
        with self._lock:
            self._counts = {name: self._cluster.partition_count(name) for name in topics}
            self._topics = topics
            self._begin([TopicPartition(name, one) for name, count in self._counts.items() for one in range(count)])

    def assign(self, partitions: list[TopicPartition]) -> None:
        """Read exactly these."""
        self.let_go()
        with self._lock:
            self._begin(partitions)

    def _begin(self, partitions: list[TopicPartition]) -> None:
        """Where auto_offset_reset says, as of now."""
        bounds = self._cluster.bounds(partitions, self._committed)
        stack = ExitStack()
        links = stack.enter_context(self._handles.wire(self._committed))
        self._fetcher = stack.enter_context(closing(LeaderFetcher(links)))
        self._unclosed = weakref.finalize(self, stack.close)
        self._unclosed.atexit = False
        self.arrivals.on_close = self._fetcher.wake
        for one in partitions:
            is_at_end = self._reset == "latest"
            self._read_from(one, bounds[one].high_watermark if is_at_end else bounds[one].log_start_offset)
        self._next_look_s = time.monotonic() + self._handles.look_s

    def _read_from(self, partition: TopicPartition, offset: int) -> None:
        if self._fetcher is not None:
            self._turns.add(partition, offset)
            self._positions[partition] = self._fetcher.add(*partition, offset)

    def let_go(self) -> None:
        """Read nothing. From any thread."""
        with self._lock:
            if self._growth is not None:
                self._growth.abandon()
            if self._unclosed is not None:
                self._unclosed()
            self.arrivals.on_close = None
            self._fetcher = self._unclosed = self._growth = self._problem = None
            self._positions.clear()
            self._turns.clear()
            self._topics, self._counts = (), {}

    def forked(self) -> None:
        """In the child the connections are the parent's: they are left as they are."""
        if self._unclosed is not None:
            self._unclosed.detach()
        if self._fetcher is not None:
            self._fetcher.forked()

    def assignment(self) -> set[TopicPartition]:
        return set(self._cursors)

    def cursor(self, topic: str, number: int) -> ClusterCursor:
        return self._turns.cursor(topic, number)

    def chosen(self, partitions: list[TopicPartition]) -> list[ClusterCursor]:
        return self._turns.chosen(partitions)

    # --- what cursors ask for -------------------------------------------------------------------------------------

    def moved(self, cursor: ClusterCursor) -> None:
        self._positions[cursor.partition].seek(cursor.position)

    def paused(self, cursor: ClusterCursor) -> None:
        self._positions[cursor.partition].is_paused = cursor.is_paused

    def refill(self, cursor: ClusterCursor) -> None:
        position = self._positions[cursor.partition]
        enough_bytes = max(FETCH_BYTES_MIN, CONSUMER_BUFFER_BYTES // len(self._positions))
        records = position.take(enough_bytes)
        cursor.give(records, position.read_to)
        self._has_refilled = True

    # --- reading --------------------------------------------------------------------------------------------------

    def next_records(self, limit: int, timeout_ms: float | None) -> list[Record]:
        """Up to `limit` records; waits up to `timeout_ms` for the first, and returns [] if none came."""
        timeout_ms = checked_timeout_ms(timeout_ms)
        now_s = time.monotonic()
        deadline_s = None if timeout_ms is None else now_s + timeout_ms / 1000
        wait_s = 0.0
        while True:
            with self._lock:
                if self.arrivals.is_closed:
                    return []
                self._handles.check_usable()
                if timeout_ms is None and not (self._topics or self._cursors):
                    raise reads_nothing()
                records = self._found(limit, now_s, wait_s)
            if records:
                return records
            now_s = time.monotonic()
            wait_s = _PAUSE_S
            if deadline_s is not None:
                wait_s = min(_PAUSE_S, deadline_s - now_s)
                if wait_s <= 0:
                    return []
            if self._fetcher is None and self.arrivals.wait(wait_s):
                return []

    def next_record(self) -> Record | None:
        """The next record, however long it takes; None once the consumer is closed."""
        if time.monotonic() < self._next_glance_s:  # all else is looked at often enough without it
            with self._lock:
                records = [] if self._fetcher is None else self._taken(self._fetcher, 1)
            if records:
                return records[0]
        records = self.next_records(1, None)
        return records[0] if records else None

    def _found(self, limit: int, now_s: float, wait_s: float) -> list[Record]:
        """What is there, or comes within that time; raises the problem that there is instead."""
        fetcher = self._fetcher
        if fetcher is None:
            return []
        self._look_around(fetcher, now_s)
        if now_s >= self._next_glance_s:
            self._fetch(fetcher, 0.0)
        records = self._taken(fetcher, limit)
        if not records and self._problem is None:
            self._fetch(fetcher, wait_s)
            records = self._taken(fetcher, limit)
        if not records and self._problem is not None:
            problem, self._problem = self._problem, None
            raise problem
        return records

    def _taken(self, fetcher: LeaderFetcher, limit: int) -> list[Record]:
        """What is there. Whose answer is decoded is asked for the next: the brokers work while the caller does."""
        try:
            return self._turns.take(limit)
        finally:
            if self._has_refilled:
                self._has_refilled = False
                self._complain(fetcher.ask())

    def _fetch(self, fetcher: LeaderFetcher, wait_s: float) -> None:
        self._complain(fetcher.poll(wait_s))
        self._next_glance_s = time.monotonic() + _GLANCE_S

    def _complain(self, news: list[FetchPosition]) -> None:
        """What became of the partitions that have a problem."""
        for position in news:
            problem = position.problem
            cursor = self._cursors.get(TopicPartition(position.topic, position.number))
            if problem is None or cursor is None:
                continue
            if isinstance(problem, OffsetOutOfRange):
                self._leave_range(cursor, position, problem)
            elif isinstance(problem, UnknownTopic | UnknownPartition):
                self._drop(cursor.partition)
                if not self._topics:  # who subscribed finds that the assignment has shrunk
                    self._problem = UnknownTopic(position.topic)
            else:
                self._problem = problem
                position.go_on()

    def _leave_range(self, cursor: ClusterCursor, position: FetchPosition, error: OffsetOutOfRange) -> None:
        """The log no longer holds what comes next: go where auto_offset_reset says, or have the cursor raise."""
        if self._reset == "none":
            cursor.problem = error
            return
        offset = error.start if self._reset == "earliest" else error.end
        position.seek(offset)
        cursor.go_on_at(offset)
        _log.warning("%s; going on at %d, as auto_offset_reset=%r says", error, offset, self._reset)

    def _drop(self, partition: TopicPartition) -> None:
        self._turns.pop(partition)
        position = self._positions.pop(partition, None)
        if position is not None and self._fetcher is not None:
            self._fetcher.remove(position)

    def _look_around(self, fetcher: LeaderFetcher, now_s: float) -> None:
        """Read what the topics have gained, from its start. Another thread asks: the cluster may be away."""
        growth = self._growth
        if growth is not None and growth.is_over:
            self._growth = None
            for partition, start in growth.result().items():
                self._counts[partition.topic] = max(self._counts[partition.topic], partition.partition + 1)
                self._read_from(partition, start)
        elif growth is None and self._topics and now_s >= self._next_look_s:
            self._next_look_s = now_s + self._handles.look_s
            self._growth = BackgroundCall(partial(_gained, self._cluster, dict(self._counts)), fetcher.wakeup)

    # --- committing -----------------------------------------------------------------------------------------------

    def count_as_handled(self) -> None:
        """Nothing is committed."""

    def count_last_as_handled(self) -> None:
        """Nothing is committed."""

    def group_offsets(self) -> NoReturn:
        raise without_group()

    def count_as_committed(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        """Nothing is committed."""

    def commit_all(self, metadata: str) -> NoReturn:
        raise without_group()

    def commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> NoReturn:
        raise without_group()

    def committed(self, partition: TopicPartition) -> NoReturn:
        raise without_group()


def _gained(cluster: ClusterBackend, counts: Mapping[str, int]) -> dict[TopicPartition, int]:
    """The partitions that topics have beyond these, and where they begin. None while the cluster is away."""
    gained: list[TopicPartition] = []
    for name, known in counts.items():
        try:
            gained += [TopicPartition(name, number) for number in range(known, cluster.partition_count(name))]
        except UnknownTopic:
            continue  # told by who leads it
        except BrokerUnreachable:
            return {}
    try:
        bounds = cluster.bounds(gained)
    except (UnknownTopic, BrokerUnreachable):
        return {}
    return {one: bounds[one].log_start_offset for one in gained}
