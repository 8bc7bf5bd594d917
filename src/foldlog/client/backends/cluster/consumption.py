"""How a consumer with a group reads a cluster: librdkafka's consumer, our cursors over it, and what is committed.

librdkafka fetches, heartbeats and takes part in rebalances; where reading begins, what counts as dealt with and when it
is committed is decided here, by the rules of the log's own consumer. Its callbacks run inside polls, on the thread that
polls, which holds the lock.
"""

from __future__ import annotations

import logging
import time
import weakref
from collections.abc import Callable, Mapping
from concurrent.futures import Future, wait
from functools import partial
from threading import RLock, Thread
from typing import TYPE_CHECKING, Any, Final, TypeVar

from foldlog.broker.groups.committed import OffsetAndMetadata
from foldlog.client.backends.cluster.cursors import ClusterCursor, CursorTurns, Ending, reads_nothing
from foldlog.client.backends.cluster.faults import Where, unreachable
from foldlog.client.backends.cluster.handles import Handles, Trouble
from foldlog.client.backends.cluster.records import committed_in, offset_to_commit, record_of
from foldlog.client.consumer.assignments import not_assigned
from foldlog.client.consumer.assignors import RANGE, ROUND_ROBIN, STICKY
from foldlog.client.consumer.settings import ConsumerSettings
from foldlog.client.groups import HAS_MEMBERS
from foldlog.client.positions import TopicPartition, checked_timeout_ms
from foldlog.errors import (
    BrokerUnreachable,
    FoldlogError,
    GroupError,
    GroupNotEmpty,
    InvalidArgument,
    LogClosed,
    OffsetOutOfRange,
    StorageError,
    UnknownPartition,
    UnknownTopic,
)
from foldlog.limits import KAFKA_JOIN_WAIT_MS
from foldlog.log.checkpoint import out_of_range
from foldlog.records.loops import Record

if TYPE_CHECKING:
    from confluent_kafka import Consumer as LibraryConsumer
    from confluent_kafka import KafkaError, Message

    from foldlog.client.backends.cluster.backend import ClusterBackend

_log = logging.getLogger("foldlog")

Done = TypeVar("Done")

_PAUSE_S: Final = 0.1
"""How long one wait is: in between, another thread may close the consumer, and Ctrl-C is heard."""

_SEEK_WAIT_S: Final = 5.0
"""librdkafka begins to fetch a partition a moment after it was assigned, and moves it only then."""

_PASSING: Final = frozenset({"_TRANSPORT", "_ALL_BROKERS_DOWN", "_TIMED_OUT", "_RESOLVE", "_MAX_POLL_EXCEEDED"})

_SESSION_MS: Final = 45_000
_HEARTBEATS_PER_SESSION: Final = 15
"""Kafka's defaults: session.timeout.ms, and how often a member shows that it lives within it."""

_RESETS: Final = {"latest": "latest", "earliest": "earliest", "none": "error"}
_STRATEGIES: Final = {STICKY: "cooperative-sticky", RANGE: "range", ROUND_ROBIN: "roundrobin"}
_EITHER: Final = "range,roundrobin"
"""What members of every make understand; librdkafka cannot offer its cooperative assignor beside these."""


class LibraryConsumption:
    """The state of one consumer. Belongs to its thread, but for `let_go`, and `stir`, see there.

    Its lock is held while librdkafka is asked, which waits a tenth of a second at most at a time.
    """

    def __init__(self, cluster: ClusterBackend, handles: Handles, settings: ConsumerSettings, group: str) -> None:
        self._cluster = cluster
        self._handles = handles
        self._settings = settings
        self._group = group
        self._auto_commits = settings.auto_commit
        self._lock = RLock()
        self._trouble = Trouble()
        self._consumer: LibraryConsumer | None = None
        self._turns = CursorTurns(cluster, settings, weakref.proxy(self))
        self._cursors = self._turns.cursors
        self._topics: tuple[str, ...] = ()
        self._lost: set[TopicPartition] = set()
        self._next_commit_s = 0.0
        self._commits = BoundedCalls()
        self.arrivals = Ending()
        self._set_aside: dict[TopicPartition, ClusterCursor] = {}
        self._counts: dict[str, int] = {}
        self._problem: FoldlogError | None = None
        self._has_share = False
        self._unpositioned: list[TopicPartition] = []  # ours, but where to begin could not be asked

    # --- what is read ---------------------------------------------------------------------------------------------

    def subscribe(self, topics: tuple[str, ...]) -> None:
        """Read the group's share of these topics. Waits for it as long as joining may take."""
        self.let_go()
        with self._lock:
            self._topics = topics
            self._counts = {name: self._cluster.partition_count(name) for name in topics}
            consumer = self._library()
            mine = weakref.ref(self)
            consumer.subscribe(
                list(topics),
                on_assign=partial(_if_alive, mine, "assigned"),
                on_revoke=partial(_if_alive, mine, "revoked"),
                on_lost=partial(_if_alive, mine, "lost"),
            )
            self._next_commit_s = time.monotonic() + self._settings.auto_commit_interval_ms / 1000
        self._wait_for_share()

    def _wait_for_share(self) -> None:
        """Until the group has given this member its share. Those of this process take part meanwhile, whoever polls
        them: else one thread with two members would wait for itself."""
        deadline_s = time.monotonic() + KAFKA_JOIN_WAIT_MS / 1000
        companions = [one for one in self._cluster.companions(self) if one._group == self._group]
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
            self._add_cursors(partitions)
            self._assign_all()
            self._has_share = True
            self._next_commit_s = time.monotonic() + self._settings.auto_commit_interval_ms / 1000

    def _assign_all(self) -> None:
        from confluent_kafka import TopicPartition as Assigned

        positions = [Assigned(*one.partition, one.fetched_to) for one in self._cursors.values()]
        self._library().assign(positions)

    def let_go(self) -> None:
        """Read nothing: commit what was dealt with, leave the group, forget the cursors. From any thread."""
        with self._lock:
            consumer = self._consumer
            if consumer is not None:
                try:
                    self.commit_handled()
                finally:
                    self._commits.when_idle(consumer.close)
                    self._consumer, self._commits = None, BoundedCalls()
            self._turns.clear()
            self._set_aside.clear()
            self._problem, self._has_share = None, False
            self._unpositioned = []
            self._topics, self._counts = (), {}
            self._lost.clear()

    def assignment(self) -> set[TopicPartition]:
        with self._lock:
            return set(self._cursors)

    def cursor(self, topic: str, number: int) -> ClusterCursor:
        return self._turns.cursor(topic, number)

    def chosen(self, partitions: list[TopicPartition]) -> list[ClusterCursor]:
        with self._lock:
            return self._turns.chosen(partitions)

    # --- where reading begins -------------------------------------------------------------------------------------

    def _add_cursors(self, partitions: list[TopicPartition]) -> None:
        """At what the group committed, else where auto_offset_reset says as of now."""
        committed = self._committed(partitions)
        missing = [one for one in partitions if one not in committed]
        bounds = self._cluster.bounds(missing)
        for partition in partitions:
            at = committed.get(partition)
            if at is not None:
                cursor = self._turns.add(partition, at.offset)
                cursor.committed = at.offset
                continue
            start, end = bounds[partition].log_start_offset, bounds[partition].high_watermark
            # Partitions that a topic gained since the subscription are read from their start.
            is_new = partition.partition >= self._counts.get(partition.topic, partition.partition + 1)
            at_end = self._settings.auto_offset_reset == "latest" and not is_new
            cursor = self._turns.add(partition, end if at_end else start)
            if self._settings.auto_offset_reset == "none":
                cursor.problem = OffsetOutOfRange(
                    *partition,
                    cursor.position,
                    start,
                    end,
                    f"group {self._group!r} has committed nothing here and auto_offset_reset is 'none'; seek()"
                    " somewhere",
                )

    def moved(self, cursor: ClusterCursor) -> None:
        """Have librdkafka fetch from the cursor's position on."""
        from confluent_kafka import TopicPartition as LibraryPartition

        with self._lock:
            deadline_s = time.monotonic() + _SEEK_WAIT_S
            while True:
                try:
                    self._library().seek(LibraryPartition(*cursor.partition, cursor.position))
                except self._handles.kafka_exception as error:
                    if error.args[0].name() not in ("_STATE", "_PREV_IN_PROGRESS") or time.monotonic() > deadline_s:
                        raise self._handles.fault(error, Where(*cursor.partition), self._trouble) from error
                    time.sleep(0.005)
                else:
                    return

    def paused(self, cursor: ClusterCursor) -> None:
        from confluent_kafka import TopicPartition as LibraryPartition

        with self._lock:
            change = self._library().pause if cursor.is_paused else self._library().resume
            change([LibraryPartition(*cursor.partition)])

    def refill(self, cursor: ClusterCursor) -> None:
        """All that librdkafka gave was handed on already."""

    # --- the group ------------------------------------------------------------------------------------------------

    def reads_through(self, consumer: LibraryConsumer) -> bool:
        """Whether this is the consumer in use, and not one that was let go."""
        return consumer is self._consumer

    def assigned(self, consumer: LibraryConsumer, partitions: list[TopicPartition]) -> None:
        """The group has given these to this member, in addition with cooperative-sticky. Inside a poll."""
        from confluent_kafka import TopicPartition as Assigned

        self._unpositioned = []
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
            self._unpositioned = [one for one in partitions if one not in self._cursors]
        self._set_aside.clear()
        positions = [Assigned(*one, self._cursors[one].fetched_to) for one in partitions if one in self._cursors]
        if self._is_cooperative:
            consumer.incremental_assign(positions)
        else:
            consumer.assign(positions)
        for cursor in self._cursors.values():
            if cursor.is_paused:
                self.paused(cursor)
        self._has_share = True
        self._counts.update({one.topic: max(self._counts.get(one.topic, 0), one.partition + 1) for one in partitions})

    def revoked(self, consumer: LibraryConsumer, partitions: list[TopicPartition]) -> None:
        """The group rebalances: commit what was dealt with, and have nothing until it says what is ours."""
        self.commit_handled(in_callback=True)
        self._drop(partitions, set_aside=True)

    def lost(self, consumer: LibraryConsumer, partitions: list[TopicPartition]) -> None:
        """The group has gone on without this member: what it held is somebody else's already."""
        self._drop(partitions, set_aside=False)

    def _drop(self, partitions: list[TopicPartition], *, set_aside: bool) -> None:
        self._unpositioned = [one for one in self._unpositioned if one not in partitions]
        for partition in partitions:
            cursor = self._turns.pop(partition)
            if cursor is None:
                continue
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
                    raise reads_nothing()
                self._look_around()
                # Joining a group takes a record along, if there is one: the others may be there, too.
                ahead = sum(cursor.ahead for cursor in self._cursors.values())
                if 0 < ahead < limit:
                    self._fetch(limit - ahead, 0.0)
                records = self._turns.take(limit)
                if not records and self._consumer is not None:
                    self._fetch(limit, pause_s)
                    records = self._turns.take(limit)
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

    def _fetch(self, limit: int, timeout_s: float) -> None:
        """Take what librdkafka has, after waiting for a first message. Rebalances happen in here."""
        if self._consumer is None or not self._commits.is_idle(timeout_s):
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
                record = record_of(one)
                cursor.give([record], record.offset + 1)

    def _complaint(
        self, error: KafkaError, message: Message[Any, Any], partition: TopicPartition, cursor: ClusterCursor | None
    ) -> None:
        name = error.name()
        if name == "_PARTITION_EOF":
            if cursor is not None:
                cursor.give([], message.offset() or 0)
        elif name in ("_AUTO_OFFSET_RESET", "OFFSET_OUT_OF_RANGE"):
            if cursor is not None:
                bounds = self._cluster.bounds_of(*partition)
                start, end = bounds.log_start_offset, bounds.high_watermark
                cursor.problem = out_of_range(partition, cursor.fetched_to, start, end)
        elif name in ("UNKNOWN_TOPIC_OR_PART", "UNKNOWN_TOPIC_ID", "_UNKNOWN_PARTITION", "_UNKNOWN_TOPIC"):
            if self._topics:
                self._turns.pop(partition)  # who subscribed finds that the assignment has shrunk
            elif self._turns.pop(partition) is not None:
                self._problem = UnknownTopic(partition.topic)
        elif not error.retriable() and name not in _PASSING:
            where = Where(partition.topic or None, partition.partition if partition.topic else None, self._group)
            self._problem = self._handles.fault(self._handles.kafka_exception(error), where, self._trouble)

    def _look_around(self) -> None:
        """What every poll looks after: what has no position yet, and commits that are due."""
        if self._unpositioned:
            self._position_again()
        if self._auto_commits and time.monotonic() >= self._next_commit_s and self._consumer is not None:
            self.commit_handled()

    def _position_again(self) -> None:
        """Ask once more where to begin in what the group gave us; raises what keeps it from being known."""
        from confluent_kafka import TopicPartition as Assigned

        partitions = self._unpositioned
        self._add_cursors(partitions)
        self._unpositioned = []
        if self._is_cooperative:
            self._library().incremental_assign([Assigned(*one, self._cursors[one].fetched_to) for one in partitions])
        else:
            self._assign_all()

    # --- committing -----------------------------------------------------------------------------------------------

    def count_as_handled(self) -> None:
        """What was handed out so far has been dealt with."""
        if self._auto_commits:
            with self._lock:
                for cursor in self._cursors.values():
                    cursor.handled = cursor.position

    def count_last_as_handled(self) -> None:
        self._turns.count_last_as_handled()

    def commit_handled(self, in_callback: bool = False) -> None:
        """Commit what was dealt with, if this consumer commits by itself. What fails is tried again.

        In a callback of librdkafka's the answer cannot be waited for, and need not be: the coordinator takes requests
        of one connection in turn, so the commit comes before what the callback's end sends, that these partitions are
        free. Should it fail, whoever gets them begins at the commit before.
        """
        if not self._auto_commits:
            return
        self._next_commit_s = time.monotonic() + self._settings.auto_commit_interval_ms / 1000
        moved = {
            one.partition: OffsetAndMetadata(one.handled, one.leader_epoch)
            for one in self._cursors.values()
            if one.handled != one.committed and one.problem is None
        }
        if not moved:
            return
        if in_callback:
            try:
                self._library().commit(offsets=[offset_to_commit(*one) for one in moved.items()], asynchronous=True)
            except self._handles.kafka_exception as error:  # not even sent; it must not end the poll that calls back
                _tell_if_failed(self._group, error.args[0], None)
            else:
                self._note_committed(moved)
            return
        try:
            self._commit(moved)
        except (GroupError, StorageError, BrokerUnreachable, LogClosed, UnknownTopic, UnknownPartition) as error:
            # Nothing is lost by it: whoever reads on from the older commit sees these records again.
            _log.warning("auto-commit of group %r failed, and is tried again: %s", self._group, error)

    def commit_all(self, metadata: str) -> None:
        """Commit all that was handed out and is still ours; NotAssigned names what no longer is."""
        with self._lock:
            positions = {
                one.partition: OffsetAndMetadata(one.position, one.leader_epoch, metadata)
                for one in self._cursors.values()
                if one.problem is None
            }
            if positions:
                self._commit(positions)
            lost, self._lost = self._lost, set()
        if lost:
            raise not_assigned(lost, self._group)

    def commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        """Acknowledged by the group's coordinator on return."""
        with self._lock:
            missing = [partition for partition in offsets if partition not in self._cursors]
            for partition in missing:
                self._cluster.bounds_of(*partition)  # says what is wrong, if there is no such partition
            if missing:
                raise not_assigned(missing, self._group)
            self._commit(offsets)

    def _commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        for (topic, number), at in offsets.items():
            if at.offset < 0:
                raise InvalidArgument(f"cannot commit offset {at.offset} of {topic}-{number}: offsets start at 0")
        wanted = [offset_to_commit(one, at) for one, at in offsets.items()]

        def attempt(left_s: float) -> None:
            deadline_s = time.monotonic() + left_s
            consumer = self._library(left_s)
            still_s = deadline_s - time.monotonic()
            for answer in self._commits.run(lambda: consumer.commit(offsets=wanted, asynchronous=False), still_s):
                if answer.error is not None:
                    raise self._handles.kafka_exception(answer.error)

        try:
            self._handles.patiently(attempt, Where(group=self._group), self._trouble)
        except HAS_MEMBERS as fault:
            if self._topics:
                raise
            raise GroupNotEmpty(
                f"group {self._group!r} has members, so a consumer with partitions of its own cannot commit for it"
            ) from fault
        self._note_committed(offsets)

    def _note_committed(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        for partition, at in offsets.items():
            cursor = self._cursors.get(partition)
            if cursor is not None:
                cursor.committed = at.offset
                # Or the next commit that happens by itself would take the group back.
                cursor.handled = max(cursor.handled, at.offset)

    def committed(self, partition: TopicPartition) -> OffsetAndMetadata | None:
        return self._committed([partition]).get(partition)

    def _committed(self, partitions: list[TopicPartition]) -> dict[TopicPartition, OffsetAndMetadata]:
        from confluent_kafka import TopicPartition as LibraryPartition

        if not partitions:
            return {}

        def attempt(left_s: float) -> list[LibraryPartition]:
            found = self._library(left_s).committed([LibraryPartition(*one) for one in partitions], timeout=left_s)
            for one in found:
                if one.error is not None:  # to take it for "nothing committed" would be to read from elsewhere
                    raise self._handles.kafka_exception(one.error)
            return found

        found = self._handles.patiently(attempt, Where(group=self._group), self._trouble)
        return {TopicPartition(one.topic, one.partition): committed_in(one) for one in found if one.offset >= 0}

    # --- librdkafka's consumer ----------------------------------------------------------------------------------------

    def _library(self, timeout_s: float = 0.0) -> LibraryConsumer:
        """Made when there is something to read, and again after it was let go of. BrokerUnreachable if a commit keeps
        it busy for longer than that."""
        if not self._commits.is_idle(timeout_s):
            raise unreachable(self._handles.url, self._trouble.last or "a commit is still waiting for its answer")
        if self._consumer is None:
            self._consumer = self._handles.consumer(self._library_settings(), self._trouble)
        return self._consumer

    def is_cut_off(self) -> bool:
        return self._handles.is_cut_off(self._trouble)

    def _library_settings(self) -> dict[str, object]:
        given, settings = self._handles.url.properties, self._settings
        made: dict[str, object] = {
            "group.id": self._group,
            "enable.auto.commit": "false",
            "enable.auto.offset.store": "false",
            "enable.partition.eof": "true",
            "auto.offset.reset": _RESETS[settings.auto_offset_reset],
            "on_commit": partial(_tell_if_failed, self._group),
            "max.poll.interval.ms": settings.max_poll_interval_ms,
        }
        if settings.group_instance_id is not None:
            made["group.instance.id"] = settings.group_instance_id
        if not self._is_shared_out_by_brokers:  # there they set all of these
            session_ms = int(given.get("session.timeout.ms", min(_SESSION_MS, settings.max_poll_interval_ms)))
            made["session.timeout.ms"] = session_ms
            made["heartbeat.interval.ms"] = given.get("heartbeat.interval.ms", session_ms // _HEARTBEATS_PER_SESSION)
            made["partition.assignment.strategy"] = _STRATEGIES.get(settings.assignor or "", _EITHER)
        return made

    @property
    def _is_shared_out_by_brokers(self) -> bool:
        """Whether the group has the protocol of KIP-848, not the older one in which members share partitions."""
        return self._handles.url.properties.get("group.protocol", "classic").lower() == "consumer"

    def forked(self) -> None:
        """Nothing of librdkafka's may be touched in the child; the consumer refuses everything before it gets here."""


def _if_alive(
    mine: weakref.ref[LibraryConsumption], what: str, consumer: LibraryConsumer, partitions: list[Any]
) -> None:
    """A callback that keeps no dropped consumer alive, and passes over one that leaves late, as its commit hung."""
    alive = mine()
    if alive is not None and alive.reads_through(consumer):
        getattr(alive, what)(consumer, [TopicPartition(one.topic, one.partition) for one in partitions])


def _tell_if_failed(group: str, error: KafkaError | None, _offsets: object) -> None:
    """What librdkafka calls back with once a commit that nobody waits for was answered."""
    if error is not None:
        # Nothing is lost by it: whoever reads on from the older commit sees these records again.
        _log.warning("auto-commit of group %r failed in a rebalance: %s", group, error.str())


class BoundedCalls:
    """Runs them one at a time, each on a thread of its own, which is left behind if the call takes too long.

    Used by one thread at a time. librdkafka 2.16 commits synchronously for as long as a broker says nothing, and cannot
    be told to give up; of a commit that is not waited for it tells in a poll, which hands out records and partitions.

    Not for a callback, and nobody else may use the consumer until `is_idle`: since confluent-kafka 2.16 a consumer lets
    in one thread at a time, and whoever comes second waits without a limit, here for the poll that calls back.
    """

    def __init__(self) -> None:
        self._under_way: Future[Any] | None = None

    def run(self, call: Callable[[], Done], timeout_s: float) -> Done:
        """What the call gives or raises; TimeoutError if it takes longer. It may yet be done."""
        future: Future[Done] = Future()
        self._under_way = future
        # A daemon: who is told that nobody answers may end the process.
        Thread(target=_carry_out, args=(future, call), name="foldlog-kafka-call", daemon=True).start()
        return future.result(timeout_s)

    def is_idle(self, timeout_s: float = 0.0) -> bool:
        """Whether nothing is under way any more, after waiting for it that long."""
        return self._under_way is None or not wait([self._under_way], timeout_s).not_done

    def when_idle(self, then: Callable[[], object]) -> None:
        """Now; or, without waiting for it, once what is under way has ended: what it works with must not be closed
        before."""
        if self._under_way is None or self._under_way.done():
            then()
        else:
            self._under_way.add_done_callback(lambda _: then())


def _carry_out(future: Future[Done], call: Callable[[], Done]) -> None:
    try:
        done = call()
    except BaseException as error:  # noqa: BLE001 raised where it is waited for
        future.set_exception(error)
    else:
        future.set_result(done)
