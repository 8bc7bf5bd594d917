"""How a consumer of a cluster reads: librdkafka's consumer, our cursors over it, and what is committed.

librdkafka fetches, heartbeats and takes part in rebalances; where reading begins, what counts as dealt with and when it
is committed is decided here, by the rules of the log's own consumer. Its callbacks run inside polls, on the thread that
polls, which holds the lock.
"""

from __future__ import annotations

import logging
import time
import weakref
from collections.abc import Iterable
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from foldlog.client.assignors import STICKY
from foldlog.client.consumer_settings import ConsumerSettings
from foldlog.client.kafka.bell import Bell
from foldlog.client.kafka.commits import KafkaCommits
from foldlog.client.kafka.cursors import KafkaCursor, PartitionNow
from foldlog.client.kafka.faults import Where
from foldlog.client.kafka.groups import KafkaGroups
from foldlog.client.kafka.handles import Handles
from foldlog.client.kafka.reading import out_of_range
from foldlog.client.kafka.records import record_of
from foldlog.client.positions import TopicPartition, checked_timeout_ms
from foldlog.client.serializers import deserializer
from foldlog.errors import (
    BrokerUnreachable,
    FoldlogError,
    InvalidArgument,
    NotAssigned,
    OffsetOutOfRange,
    UnknownTopic,
)
from foldlog.limits import KAFKA_JOIN_WAIT_MS
from foldlog.records.loops import Record

if TYPE_CHECKING:
    from confluent_kafka import Consumer as LibraryConsumer
    from confluent_kafka import KafkaError, Message

_log = logging.getLogger("foldlog")

_PAUSE_S: Final = 0.1
"""How long one wait is: in between, another thread may close the consumer, and Ctrl-C is heard."""

_SEEK_WAIT_S: Final = 5.0
"""librdkafka begins to fetch a partition a moment after it was assigned, and moves it only then."""

_PASSING: Final = frozenset({"_TRANSPORT", "_ALL_BROKERS_DOWN", "_TIMED_OUT", "_RESOLVE", "_MAX_POLL_EXCEEDED"})


class KafkaConsumption(KafkaCommits):
    """The state of one consumer. Belongs to its thread, but for `let_go`, and `stir`, see there.

    Its lock is held while librdkafka is asked, which waits a tenth of a second at most at a time.
    """

    def __init__(self, log: KafkaGroups, handles: Handles, settings: ConsumerSettings) -> None:
        super().__init__(log, handles, settings)
        self.arrivals = Bell()
        self._deserializers = (deserializer(settings.key_deserializer), deserializer(settings.value_deserializer))
        self._set_aside: dict[TopicPartition, KafkaCursor] = {}
        self._turn = 0
        self._counts: dict[str, int] = {}
        self._problem: FoldlogError | None = None
        self._has_share = False
        self._unplaced: list[TopicPartition] = []  # ours, but where to begin could not be asked
        self._next_look_s = 0.0

    # --- what is read ---------------------------------------------------------------------------------------------

    def subscribe(self, topics: tuple[str, ...]) -> None:
        """Read all of these topics, or the group's share of them. Waits for the share as long as joining may take."""
        self.let_go()
        with self._lock:
            self._topics = topics
            self._counts = {name: self._topics_of.partition_count(name) for name in topics}
            if self._group is None:
                self._read_directly(
                    [TopicPartition(name, number) for name, count in self._counts.items() for number in range(count)]
                )
                return
            consumer = self._library()
            mine = weakref.ref(self)
            consumer.subscribe(
                list(topics),
                on_assign=partial(_if_alive, mine, "assigned"),
                on_revoke=partial(_if_alive, mine, "revoked"),
                on_lost=partial(_if_alive, mine, "lost"),
            )
            self._next_commit_s = time.monotonic() + self._settings.auto_commit_interval_ms / 1000

    def wait_for_share(self, others: Iterable[KafkaConsumption]) -> None:
        """Until the group has given this member its share. Those of this process take part meanwhile, whoever polls
        them: else one thread with two members would wait for itself."""
        deadline_s = time.monotonic() + KAFKA_JOIN_WAIT_MS / 1000
        companions = [one for one in others if one is not self and one._group == self._group]
        while not self._has_share and time.monotonic() < deadline_s and not self.arrivals.is_closed:
            with self._lock:
                self._fetch(1, 0.02 if companions else _PAUSE_S)
                if self._problem is not None:
                    problem, self._problem = self._problem, None
                    raise problem
            for one in companions:
                one.stir()

    def stir(self) -> None:
        """Let librdkafka do what is due, unless records are being worked on. From another thread: never waits."""
        if not self._lock.acquire(blocking=False):
            return
        try:
            if self._consumer is not None and not self.arrivals.is_closed and not self._is_busy():
                self._fetch(1, 0)
        finally:
            self._lock.release()

    def _is_busy(self) -> bool:
        """Whether what was handed out is not all dealt with."""
        if self._auto_commits:
            return any(one.position != one.handled for one in self._cursors.values())
        return any(one.position not in (one.committed, one.started_at) for one in self._cursors.values())

    def assign(self, partitions: list[TopicPartition]) -> None:
        """Read exactly these, whatever the group's members read."""
        self.let_go()
        with self._lock:
            self._read_directly(partitions)
            self._next_commit_s = time.monotonic() + self._settings.auto_commit_interval_ms / 1000

    def _read_directly(self, partitions: list[TopicPartition]) -> None:
        self._add_cursors(partitions)
        self._assign_all()
        self._has_share = True
        self._next_look_s = time.monotonic() + self._handles.look_s

    def _assign_all(self) -> None:
        from confluent_kafka import TopicPartition as Assigned

        places = [Assigned(*one.partition, one.fetched_to) for one in self._cursors.values()]
        self._library().assign(places)

    def let_go(self) -> None:
        """Read nothing: commit what was dealt with, leave the group, forget the cursors. From any thread."""
        with self._lock:
            consumer = self._consumer
            if consumer is not None:
                try:
                    self.commit_handled()
                finally:
                    self._commits.when_idle(consumer.close)
                    self._consumer = None
            self._cursors.clear()
            self._set_aside.clear()
            self._served, self._problem, self._has_share = None, None, False
            self._unplaced = []
            self._topics, self._counts = (), {}
            self._lost.clear()

    def assignment(self) -> set[TopicPartition]:
        with self._lock:
            return set(self._cursors)

    def cursor(self, topic: str, number: int) -> KafkaCursor:
        """The cursor of an assigned partition; NotAssigned if it is not."""
        cursor = self._cursors.get(TopicPartition(topic, number)) if type(number) is int else None
        if cursor is None:
            self._topics_of.bounds_of(topic, number)  # says what is wrong, if there is no such partition
            raise NotAssigned(f"{topic}-{number} is not assigned to this consumer; assignment() tells what is")
        return cursor

    def chosen(self, partitions: list[TopicPartition]) -> list[KafkaCursor]:
        """The cursors of these partitions, or of all that are assigned if none are named."""
        with self._lock:
            if not partitions:
                return list(self._cursors.values())
            return [self.cursor(*partition) for partition in partitions]

    # --- where reading begins -------------------------------------------------------------------------------------

    def _add_cursors(self, partitions: list[TopicPartition], committed_known: bool = True) -> None:
        """At what the group committed, else where auto_offset_reset says as of now."""
        committed = self._committed(partitions) if committed_known else {}
        missing = [one for one in partitions if one not in committed]
        bounds = self._topics_of.bounds(missing)
        for partition in partitions:
            place = committed.get(partition)
            if place is not None:
                cursor = self._new_cursor(partition, place.offset)
                cursor.committed = place.offset
                continue
            start, end = bounds[partition].log_start_offset, bounds[partition].high_watermark
            # Partitions that a topic gained since the subscription are read from their start.
            is_new = partition.partition >= self._counts.get(partition.topic, partition.partition + 1)
            at_end = self._settings.auto_offset_reset == "latest" and not is_new
            cursor = self._new_cursor(partition, end if at_end else start)
            if self._group is not None and self._settings.auto_offset_reset == "none":
                cursor.problem = OffsetOutOfRange(
                    *partition,
                    cursor.position,
                    start,
                    end,
                    f"group {self._group!r} has committed nothing here and auto_offset_reset is 'none'; seek()"
                    " somewhere",
                )

    def _new_cursor(self, partition: TopicPartition, position: int) -> KafkaCursor:
        log = PartitionNow(
            partial(self._topics_of.bounds_of, *partition), partial(self._topics_of.offset_at, *partition)
        )
        cursor = KafkaCursor(partition, log, position, self._deserializers, weakref.proxy(self))
        self._cursors[partition] = cursor
        return cursor

    def moved(self, cursor: KafkaCursor) -> None:
        """Have librdkafka fetch from the cursor's position on."""
        from confluent_kafka import TopicPartition as Place

        with self._lock:
            deadline_s = time.monotonic() + _SEEK_WAIT_S
            while True:
                try:
                    self._library().seek(Place(*cursor.partition, cursor.position))
                except self._handles.kafka_exception as error:
                    if error.args[0].name() not in ("_STATE", "_PREV_IN_PROGRESS") or time.monotonic() > deadline_s:
                        raise self._handles.fault(error, Where(*cursor.partition), self._trouble) from error
                    time.sleep(0.005)
                else:
                    return

    def paused(self, cursor: KafkaCursor) -> None:
        from confluent_kafka import TopicPartition as Place

        with self._lock:
            change = self._library().pause if cursor.is_paused else self._library().resume
            change([Place(*cursor.partition)])

    # --- the group ------------------------------------------------------------------------------------------------

    def assigned(self, consumer: LibraryConsumer, partitions: list[TopicPartition]) -> None:
        """The group has given these to this member, in addition with cooperative-sticky. Inside a poll."""
        from confluent_kafka import TopicPartition as Assigned

        self._unplaced = []
        try:
            committed = self._committed(partitions)
            kept = {one: self._set_aside[one] for one in partitions if one in self._set_aside}
            # Nobody has moved the group meanwhile: what was handed out here need not be handed out again.
            kept = {
                one: cursor
                for one, cursor in kept.items()
                if cursor.committed == (committed[one].offset if one in committed else -1)
            }
            self._cursors.update(kept)
            self._lost.difference_update(kept)
            self._add_cursors([one for one in partitions if one not in kept])
        except FoldlogError as error:
            self._problem = error  # raised by the poll that this runs in: librdkafka would lose it
            self._unplaced = [one for one in partitions if one not in self._cursors]
        self._set_aside.clear()
        places = [Assigned(*one, self._cursors[one].fetched_to) for one in partitions if one in self._cursors]
        if self._is_cooperative:
            consumer.incremental_assign(places)
        else:
            consumer.assign(places)
        for cursor in self._cursors.values():
            if cursor.is_paused:
                self.paused(cursor)
        self._has_share = True
        self._counts.update({one.topic: max(self._counts.get(one.topic, 0), one.partition + 1) for one in partitions})

    def revoked(self, consumer: LibraryConsumer, partitions: list[TopicPartition]) -> None:
        """The group rebalances: commit what was dealt with, and have nothing until it says what is ours."""
        self.commit_handled()
        self._drop(partitions, set_aside=True)

    def lost(self, consumer: LibraryConsumer, partitions: list[TopicPartition]) -> None:
        """The group has gone on without this member: what it held is somebody else's already."""
        self._drop(partitions, set_aside=False)

    def _drop(self, partitions: list[TopicPartition], *, set_aside: bool) -> None:
        self._unplaced = [one for one in self._unplaced if one not in partitions]
        for partition in partitions:
            cursor = self._cursors.pop(partition, None)
            if cursor is None:
                continue
            if self._served is cursor:
                self._served = None
            if cursor.position not in (cursor.committed, cursor.started_at):
                self._lost.add(partition)
            if set_aside:
                self._set_aside[partition] = cursor

    @property
    def _is_cooperative(self) -> bool:
        return self._settings.assignor == STICKY or self._is_shared_out_by_brokers

    # --- reading --------------------------------------------------------------------------------------------------

    def next_records(self, limit: int, timeout_ms: float | None) -> list[Record]:
        """Up to `limit` records; waits up to `timeout_ms` for the first, and returns [] if none came."""
        timeout_ms = checked_timeout_ms(timeout_ms)
        deadline_s = None if timeout_ms is None else time.monotonic() + timeout_ms / 1000
        pause_s = 0.0
        while True:
            with self._lock:
                if self.arrivals.is_closed:
                    return []
                self._handles.check_usable()
                if timeout_ms is None and not (self._topics or self._cursors):
                    raise InvalidArgument(
                        "this consumer reads nothing, so it would wait for ever; subscribe() to topics or assign()"
                        " partitions first"
                    )
                self._look_around()
                # Joining a group takes a record along, if there is one: the others may be there, too.
                ahead = sum(cursor.ahead for cursor in self._cursors.values())
                if 0 < ahead < limit:
                    self._fetch(limit - ahead, 0.0)
                records = self._take(limit)
                if not records and self._consumer is not None:
                    self._fetch(limit, pause_s)
                    records = self._take(limit)
                if not records and self._problem is not None:
                    problem, self._problem = self._problem, None
                    raise problem
            if records:
                return records
            pause_s = _PAUSE_S
            if deadline_s is not None:
                pause_s = min(_PAUSE_S, deadline_s - time.monotonic())
                if pause_s <= 0:
                    return []
            if self._consumer is None and self.arrivals.wait(pause_s):
                return []

    def next_record(self) -> Record | None:
        """The next record, however long it takes; None once the consumer is closed."""
        records = self.next_records(1, None)
        return records[0] if records else None

    def _take(self, limit: int) -> list[Record]:
        """Up to `limit` of what librdkafka has given, beginning with the partition whose turn it is."""
        turns = list(self._cursors.values())
        taken: list[Record] = []
        for step in range(len(turns)):
            cursor = turns[(self._turn + step) % len(turns)]
            if limit <= 0:
                self._turn = (self._turn + step) % len(turns)
                break
            if cursor.is_paused or not (cursor.has_records() or cursor.problem is not None):
                continue
            try:
                found = cursor.take(limit)
            except FoldlogError:
                if taken:
                    break  # raised when it is its turn again
                raise
            if found:
                self._served = cursor
                taken.extend(found)
                limit -= len(found)
        return taken

    def _fetch(self, limit: int, timeout_s: float) -> None:
        """Take what librdkafka has, after waiting for a first message. Rebalances happen in here."""
        if self._consumer is None:
            return
        message = self._consumer.poll(timeout_s)
        if message is None or self._consumer is None:
            return
        more = self._consumer.consume(limit - 1, timeout=0) if limit > 1 else []
        for one in (message, *more):
            error = one.error()
            partition = TopicPartition(one.topic() or "", -1 if (number := one.partition()) is None else number)
            cursor = self._cursors.get(partition)
            if error is not None:
                self._complaint(error, one, partition, cursor)
            elif cursor is not None:
                cursor.give(record_of(one))

    def _complaint(
        self, error: KafkaError, message: Message[Any, Any], partition: TopicPartition, cursor: KafkaCursor | None
    ) -> None:
        name = error.name()
        if name == "_PARTITION_EOF":
            if cursor is not None:
                cursor.reached_end(message.offset() or 0)
        elif name in ("_AUTO_OFFSET_RESET", "OFFSET_OUT_OF_RANGE"):
            if cursor is not None:
                cursor.problem = out_of_range(self._topics_of.bounds_of(*partition), cursor.fetched_to)
        elif name in ("UNKNOWN_TOPIC_OR_PART", "UNKNOWN_TOPIC_ID", "_UNKNOWN_PARTITION", "_UNKNOWN_TOPIC"):
            if self._topics:
                self._cursors.pop(partition, None)  # who subscribed finds that the assignment has shrunk
            elif self._cursors.pop(partition, None) is not None:
                self._problem = UnknownTopic(partition.topic)
        elif not error.retriable() and name not in _PASSING:
            where = Where(partition.topic or None, partition.partition if partition.topic else None, self._group)
            self._problem = self._handles.fault(self._handles.kafka_exception(error), where, self._trouble)

    def _look_around(self) -> None:
        """What every poll looks after: commits that are due, and partitions that topics without a group gained."""
        now_s = time.monotonic()
        if self._unplaced:
            self._place_again()
        if self._auto_commits and now_s >= self._next_commit_s and self._consumer is not None:
            self.commit_handled()
        if self._group is None and self._topics and now_s >= self._next_look_s:
            self._next_look_s = now_s + self._handles.look_s
            self._read_new_partitions()

    def _place_again(self) -> None:
        """Ask once more where to begin in what the group gave us; raises what keeps it from being known."""
        from confluent_kafka import TopicPartition as Assigned

        placed = self._unplaced
        self._add_cursors(placed)
        self._unplaced = []
        if self._is_cooperative:
            self._library().incremental_assign([Assigned(*one, self._cursors[one].fetched_to) for one in placed])
        else:
            self._assign_all()

    def _read_new_partitions(self) -> None:
        gained: list[TopicPartition] = []
        for name, known in self._counts.items():
            try:
                count = self._topics_of.partition_count(name)
            except (UnknownTopic, BrokerUnreachable):
                continue  # the one is told by librdkafka, the other passes
            gained += [TopicPartition(name, number) for number in range(known, count)]
        if gained:
            self._add_cursors(gained)
            for one in gained:
                self._counts[one.topic] = max(self._counts[one.topic], one.partition + 1)
            self._assign_all()

    def forked(self) -> None:
        """Nothing of librdkafka's may be touched in the child; the consumer refuses everything before it gets here."""


def _if_alive(mine: weakref.ref[KafkaConsumption], what: str, consumer: LibraryConsumer, partitions: list[Any]) -> None:
    """A callback that does not keep a dropped consumer alive."""
    alive = mine()
    if alive is not None:
        getattr(alive, what)(consumer, [TopicPartition(one.topic, one.partition) for one in partitions])
