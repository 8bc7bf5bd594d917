"""How a consumer of a directory reads: its cursors, their turns, its membership in the group, and its commits."""

from __future__ import annotations

import logging
import weakref
from collections import deque
from collections.abc import Iterable, Mapping
from contextlib import suppress
from threading import RLock

from foldlog.broker.groups.committed import OffsetAndMetadata
from foldlog.broker.topics.catalog import CatalogTopic
from foldlog.client.backends.backend import DirectoryBroker, GroupMemberships
from foldlog.client.consumer.arrivals import Arrivals
from foldlog.client.consumer.assignments import (
    NOTHING_HELD,
    Held,
    Member,
    Since,
    commits_by_itself,
    not_assigned,
    topic_or_none,
    weak_call,
    without_group,
)
from foldlog.client.consumer.cursors import Cursor
from foldlog.client.consumer.settings import ConsumerSettings
from foldlog.client.isolation import ReadablePartition, plain, readable
from foldlog.client.positions import GroupOffsets, TopicPartition
from foldlog.client.serializers import deserializer
from foldlog.errors import (
    CorruptLog,
    FoldlogError,
    GroupError,
    GroupNotEmpty,
    InvalidArgument,
    LogClosed,
    NotAssigned,
    OffsetOutOfRange,
    ReadOnly,
    StorageError,
    UnknownMember,
    UnknownPartition,
    UnknownTopic,
)
from foldlog.limits import CONSUMER_BUFFER_BYTES, FETCH_BYTES_MIN, READ_CHUNK_BYTES
from foldlog.records.loops import Record

_log = logging.getLogger("foldlog")

_SERVE_INTERVAL_MS = 500.0
"""How often polls send a sign of life to the group: taking the group's lock at every poll would cost more."""


_BUSY_WAIT_S = 0.05
"""Reading holds the lock for less; a thread that closes the consumer holds it while it waits for the caller of this."""

_LOOK_INTERVAL_MS = 20.0
"""How often a `for` loop checks for grown topics, its group, and due commits."""


class Consumption:
    """The state of one consumer. Belongs to its thread, except `let_go`, `is_busy` and `commit_handled`, see there.

    Its lock is held while records are looked for, not while they are waited for; it comes before the group's lock.
    """

    def __init__(self, broker: DirectoryBroker, memberships: GroupMemberships, settings: ConsumerSettings) -> None:
        self._broker = broker
        self._memberships = memberships
        self._settings = settings
        self._group = settings.group
        self._auto_commits = settings.auto_commit and settings.group is not None and not broker.read_only
        self._now_ms = broker.clock.monotonic_ms
        self._cursors: dict[TopicPartition, Cursor] = {}
        self._turns: list[Cursor] = []
        self._served: Cursor | None = None
        self._member: Member | None = None
        self._lost: set[TopicPartition] = set()
        self._next_commit_ms = 0.0
        self.arrivals = Arrivals()
        self._lock = RLock()
        self._deserializers = (deserializer(settings.key_deserializer), deserializer(settings.value_deserializer))
        self._turn = 0
        self._topics: tuple[str, ...] = ()
        self._topics_seen: list[CatalogTopic | None] = []
        self._adopted: Held = NOTHING_HELD
        self._problems: deque[FoldlogError] = deque()
        self._topic_ids: dict[str, str] = {}
        # Assigned, but there is nowhere to begin yet: their topic was deleted, and may be created again; or a
        # transaction that is not ended has committed an offset there.
        self._awaited: set[TopicPartition] = set()
        self._damaged: set[TopicPartition] = set()  # assigned, but refused; already reported
        self._next_look_ms = 0.0
        self._next_serve_ms = 0.0
        self._unclosed: weakref.finalize[[Member], Consumption] | None = None

    def is_cut_off(self) -> bool:
        """Never: the files are there."""
        return False

    # --- what is read ---------------------------------------------------------------------------------------------

    def subscribe(self, topics: tuple[str, ...]) -> None:
        """Read all of these topics, or the group's assignment of them."""
        if self._group is not None and self._broker.read_only:
            raise ReadOnly(
                "joining a group writes to the log, which was opened with mode='r'; assign() partitions to read on from"
                " what the group committed, or subscribe in the process that writes"
            )
        self.let_go()
        self._topics = topics
        self._topics_seen = self._topics_now()
        if self._group is None:
            self._add_cursors(self._partitions_of(topics), {})
            return
        member = Member(
            self._group,
            topics,
            self._settings.assignors,
            self._settings.group_instance_id,
            self._settings.max_poll_interval_ms,
            self.arrivals.ring,
            weak_call(self.commit_handled),
            weak_call(self.is_busy),
            begins_at_end=self._settings.auto_offset_reset == "latest",
            committed=self._settings.committed,
        )
        self._memberships.join(member)
        self._member = member
        self._unclosed = weakref.finalize(self, self._memberships.abandon, member)
        self._unclosed.atexit = False
        self._next_serve_ms = self._now_ms() + _SERVE_INTERVAL_MS
        self._next_commit_ms = self._now_ms() + self._settings.auto_commit_interval_ms
        self._adopt(member)

    def assign(self, partitions: list[TopicPartition]) -> None:
        """Read exactly these, whatever the group's members read."""
        self.let_go()
        self._add_cursors(partitions, {})
        self._next_commit_ms = self._now_ms() + self._settings.auto_commit_interval_ms

    def let_go(self) -> None:
        """Read nothing: commit handled records, leave the group, drop the cursors. Any thread."""
        with self._lock:
            try:
                self.commit_handled()
            finally:
                self._leave()

    def _leave(self) -> None:
        member, self._member = self._member, None
        if self._unclosed is not None:
            self._unclosed.detach()
        if member is not None:
            try:
                self._memberships.leave(member)
            except LogClosed:
                pass  # the log was closed, and its groups with it
        for cursor in list(self._cursors.values()):
            self._drop_cursor(cursor)
        self._topics = ()
        self._adopted = NOTHING_HELD
        self._lost.clear()
        self._topic_ids.clear()
        self._awaited.clear()
        self._damaged.clear()
        self._problems.clear()

    def is_busy(self) -> bool:
        """Whether handed-out records are not all handled: committed or, with auto-commit, followed by another poll.
        Called on the thread that drives the membership, which must not wait for a consumer that is just being
        closed."""
        if not self._lock.acquire(timeout=_BUSY_WAIT_S):
            return True
        try:
            if self._auto_commits:
                return any(cursor.position != cursor.handled for cursor in self._turns)
            return any(cursor.position not in (cursor.committed, cursor.started_at) for cursor in self._turns)
        finally:
            self._lock.release()

    def forked(self) -> None:
        if self._unclosed is not None:
            self._unclosed.detach()

    def assignment(self) -> set[TopicPartition]:
        if self._member is None:
            return set(self._cursors)
        self._memberships.bury_abandoned()
        return set(self._member.held.since)

    def cursor(self, topic: str, number: int) -> Cursor:
        """The cursor of an assigned partition. Raises NotAssigned if it is not assigned."""
        self._adopt_if_changed()
        partition = TopicPartition(topic, number)
        # True is 1 to a dictionary, and no partition.
        cursor = self._cursors.get(partition) if type(number) is int else None
        if cursor is None:
            self._broker.partition(topic, number)  # raises if there is no such partition
            raise NotAssigned(f"{topic}-{number} is not assigned to this consumer; assignment() shows what is")
        return cursor

    def chosen(self, partitions: list[TopicPartition]) -> list[Cursor]:
        """The cursors of these partitions, or of all that are assigned if none are named."""
        self._adopt_if_changed()
        if not partitions:
            return list(self._cursors.values())
        return [self.cursor(*partition) for partition in partitions]

    # --- reading --------------------------------------------------------------------------------------------------

    def next_records(self, limit: int, timeout_ms: float | None) -> list[Record]:
        """Up to `limit` records; waits up to `timeout_ms` for the first, and returns [] if none came."""
        deadline_ms = None if timeout_ms is None else self._now_ms() + timeout_ms
        has_asked = False
        while True:
            self.arrivals.reset()
            with self._lock:
                if self.arrivals.is_closed:
                    return []
                self._look_around()
                if self._problems:
                    raise self._problems.popleft()
                if timeout_ms is None and not (self._topics or self._cursors or self._awaited):
                    raise InvalidArgument(
                        "this consumer reads nothing, so it would wait for ever; subscribe() to topics or assign()"
                        " partitions first"
                    )
                records = self._take(limit)
                if self._problems and not records:
                    raise self._problems.popleft()
            if records:
                self.arrivals.found()
                return records
            if not has_asked:
                has_asked = True  # once is enough: later acknowledgements came after this call
                if self._has_acknowledged():
                    continue
            remaining_ms = None if deadline_ms is None else deadline_ms - self._now_ms()
            if remaining_ms is not None and remaining_ms <= 0:
                return []
            # Groups, and topics that grow or are deleted, are checked while waiting, too.
            pause_ms = _SERVE_INTERVAL_MS if remaining_ms is None else min(remaining_ms, _SERVE_INTERVAL_MS)
            if not self.arrivals.wait(pause_ms) and pause_ms == remaining_ms:
                return []

    def _has_acknowledged(self) -> bool:
        """Whether there are acknowledged records ahead of this consumer that became durable only by this call: a poll
        that finds nothing must not deny them."""
        if self._member is not None and self._member.is_joining:
            return False
        return any(not one.is_paused and one.problem is None and one.is_behind() for one in self._turns)

    def next_record(self) -> Record | None:
        """The next record, however long it takes; None once the consumer is closed.

        Between two full checks, which cost more than a record, only a changed assignment is noticed.
        """
        if self._now_ms() < self._next_look_ms and (self._member is None or self._member.held is self._adopted):
            with self._lock:
                records = self._take(1)
            if records:
                return records[0]
        records = self.next_records(1, None)
        self._next_look_ms = self._now_ms() + _LOOK_INTERVAL_MS
        return records[0] if records else None

    def _take(self, limit: int) -> list[Record]:
        """Up to `limit` records, beginning with the partition whose turn it is."""
        if self._member is not None and self._member.is_joining:
            return []  # partitions are being reassigned: another member might get these records, too
        turns = self._turns
        taken: list[Record] = []
        fetch_bytes = max(FETCH_BYTES_MIN, min(READ_CHUNK_BYTES, CONSUMER_BUFFER_BYTES // (len(turns) or 1)))
        idle = 0  # consecutive partitions without records
        while limit > 0 and idle < len(turns):
            cursor = turns[self._turn % len(turns)]
            self._turn += 1
            idle += 1
            if cursor.is_paused:
                continue
            try:
                found = cursor.take(limit, fetch_bytes)
            except FoldlogError as error:
                if taken:
                    self._turn -= 1  # it comes first next time, and raises then
                    break
                if cursor.partition in self._follow_topics():
                    return self._take(limit)
                if not isinstance(error, LogClosed):
                    raise
                # The log is open, since its topics could be read, so this topic is just being deleted.
                found = self._reopened(cursor)
            if found:
                idle = 0
                self._served = cursor
                taken = taken + found if taken else found
                limit -= len(found)
        return taken

    def _reopened(self, cursor: Cursor) -> list[Record]:
        """Returns nothing yet. If the deletion fails, its partitions are opened again: read on there."""
        with suppress(UnknownTopic, UnknownPartition):
            log = self._log(cursor.partition)
            if plain(log) is not plain(cursor.log) and self._topic_id(cursor.partition.topic) == cursor.topic_id:
                self.arrivals.unwatch(plain(cursor.log))
                cursor.log = log
                self.arrivals.watch(plain(log))
        return []

    # --- the group, and topics that grow --------------------------------------------------------------------------

    def _look_around(self) -> None:
        """The checks of every poll: the group, topics that grew, due commits."""
        self._follow_topics()
        topics_now = self._topics_now()
        if topics_now != self._topics_seen:
            before, self._topics_seen = self._topics_seen, topics_now
            self._next_serve_ms = 0.0
            if self._member is None:
                self._read_new_partitions({topic.topic_id for topic in before if topic is not None})
        member = self._member
        if member is not None:
            now_ms = self._now_ms()
            if now_ms >= self._next_serve_ms or member.is_called:
                self._memberships.serve(member)
                self._next_serve_ms = now_ms + min(_SERVE_INTERVAL_MS, self._settings.max_poll_interval_ms / 3)
            self._adopt_if_changed()
        if self._auto_commits and self._now_ms() >= self._next_commit_ms:
            self.commit_handled()

    def _read_new_partitions(self, known_ids: set[str]) -> None:
        """Without a group: read partitions that subscribed topics have gained, from their start.

        A topic that was deleted and created again has gained nothing: it is another one, for auto_offset_reset.
        """
        for topic in self._topics_seen:
            if topic is not None:
                ours = [TopicPartition(topic.name, number) for number in range(topic.partition_count)]
                new = [one for one in ours if one not in self._cursors and one not in self._damaged]
                self._add_cursors(new, dict.fromkeys(new, 0) if topic.topic_id in known_ids else {})

    def _follow_topics(self) -> set[TopicPartition]:
        """Drop cursors of deleted topics, and begin anew in topics that were created again under their names.

        Returns the partitions of dropped cursors. Nothing known of an old topic holds for the new one.
        """
        gone = [name for name, topic_id in list(self._topic_ids.items()) if self._topic_id(name) != topic_id]
        dropped: set[TopicPartition] = set()
        for name in gone:
            self._topic_ids.pop(name, None)
            for cursor in [one for one in self._turns if one.partition.topic == name]:
                self._drop_cursor(cursor)
                dropped.add(cursor.partition)
            self._awaited.update(dropped, (one for one in self._damaged if one.topic == name))
            self._damaged -= self._awaited
            if not self._topics and self._topic_id(name) is None:
                # Reported if the partition was assigned explicitly; a subscriber sees that the assignment has shrunk.
                self._problems.append(UnknownTopic(name))
        if self._awaited:
            known = {name: topic_or_none(self._broker, name) for name in {one.topic for one in self._awaited}}
            counts = {name: topic.partition_count for name, topic in known.items() if topic is not None}
            back = sorted(one for one in self._awaited if one.partition < counts.get(one.topic, 0))
            self._awaited.difference_update(back)
            self._add_cursors(back, {} if self._member is None else self._member.starts)
        return dropped

    def _topics_now(self) -> list[CatalogTopic | None]:
        return [topic_or_none(self._broker, name) for name in self._topics]

    def _adopt_if_changed(self) -> None:
        self._follow_topics()
        member = self._member
        if member is not None and member.held is not self._adopted:
            self._adopt(member)

    def _adopt(self, member: Member) -> None:
        """Follow the group: drop cursors of lost partitions, add cursors for new ones, keep the others as they are."""
        held = member.held
        self._adopted = held
        for cursor in list(self._cursors.values()):
            if held.since.get(cursor.partition) != cursor.since:
                if cursor.position not in (cursor.committed, cursor.started_at):
                    self._lost.add(cursor.partition)
                self._drop_cursor(cursor)
        self._awaited.clear()
        self._damaged &= held.since.keys()
        new = [one for one in sorted(held.since) if one not in self._cursors and one not in self._damaged]
        self._add_cursors(new, member.starts)

    def _add_cursors(self, partitions: list[TopicPartition], latest: Mapping[TopicPartition, int]) -> None:
        """Begin to read these. The next poll reports a damaged one, once; the others are read meanwhile."""
        # The ids first: if a topic is replaced meanwhile, the cursors belong to the old one, and are dropped soon.
        for name in {partition.topic for partition in partitions}:
            topic_id = self._topic_id(name)
            if topic_id is not None:
                self._topic_ids.setdefault(name, topic_id)
        unstable = self._unstable(partitions)
        committed = self._committed(partitions)
        for partition in partitions:
            if partition in unstable:
                self._awaited.add(partition)
                continue
            try:
                begin = self._reset_offset(partition, latest.get(partition))
                self._add_cursor(partition, committed.get(partition), begin)
            except CorruptLog as error:
                self._damaged.add(partition)
                self._problems.append(error)
            except (UnknownTopic, UnknownPartition):
                self._awaited.add(partition)

    def _add_cursor(self, partition: TopicPartition, committed: OffsetAndMetadata | None, reset_offset: int) -> Cursor:
        log = self._log(partition)
        position = committed.offset if committed is not None else reset_offset
        reset = self._settings.auto_offset_reset
        topic_id = self._topic_ids.get(partition.topic, "")
        cursor = Cursor(partition, topic_id, log, position, reset, self._deserializers)
        cursor.since = self._adopted.since.get(partition)
        if committed is not None:
            cursor.committed = committed.offset
        elif self._group is not None and self._settings.auto_offset_reset == "none":
            cursor.problem = OffsetOutOfRange(
                *partition,
                position,
                log.log_start_offset,
                log.high_watermark,
                f"group {self._group!r} has committed nothing here and auto_offset_reset is 'none'; seek() somewhere",
            )
        self._cursors[partition] = cursor
        self._turns = list(self._cursors.values())
        self.arrivals.watch(plain(log))
        return cursor

    def _drop_cursor(self, cursor: Cursor) -> None:
        if self._served is cursor:
            self._served = None
        del self._cursors[cursor.partition]
        self._turns = list(self._cursors.values())
        self.arrivals.unwatch(plain(cursor.log))

    def _log(self, partition: TopicPartition) -> ReadablePartition:
        return readable(self._broker.partition(*partition), self._settings.committed)

    def _reset_offset(self, partition: TopicPartition, latest: int | None = None) -> int:
        """Where auto_offset_reset begins; `latest` is where the end was when the partition was assigned."""
        log = self._log(partition)
        if self._settings.auto_offset_reset != "latest":
            return log.log_start_offset
        return log.acknowledged_end() if latest is None else max(latest, log.log_start_offset)

    def _partitions_of(self, topics: Iterable[str]) -> list[TopicPartition]:
        return [
            TopicPartition(topic, number)
            for topic in topics
            for number in range(self._broker.topic(topic).partition_count)
        ]

    # --- committing -----------------------------------------------------------------------------------------------

    def _topic_id(self, name: str) -> str | None:
        topic = topic_or_none(self._broker, name)
        return None if topic is None else topic.topic_id

    def count_as_handled(self) -> None:
        """Mark all records handed out so far as handled."""
        if self._auto_commits:
            for cursor in self._turns:
                cursor.handled = cursor.position

    def count_last_as_handled(self) -> None:
        """Mark the last record as handled, in a loop that takes one at a time."""
        if self._served is not None:
            self._served.handled = self._served.position

    def commit_handled(self) -> None:
        """Commit handled records, if this consumer auto-commits.

        Called by its own thread, and by one that is about to start a rebalance: it only reads cursors, whose fields are
        replaced whole, and what it misses is handed out again.
        """
        if not self._auto_commits:
            return
        self._next_commit_ms = self._now_ms() + self._settings.auto_commit_interval_ms
        try:
            try:
                self._commit_moved()
            except (UnknownTopic, UnknownPartition):
                self._commit_moved()  # a topic was deleted since the check: without it
        except (GroupError, StorageError, LogClosed, UnknownTopic, UnknownPartition) as error:
            # Nothing is lost: a reader that continues from the older commit sees these records again.
            _log.warning("auto-commit of group %r failed, and is tried again: %s", self._group, error)

    def _commit_moved(self) -> None:
        # Also if nothing was read yet: a returning member finds what was written since, not a new "latest".
        turns = [one for one in self._turns if one.handled != one.committed and one.problem is None]
        topic_ids = {name: self._topic_id(name) for name in {one.partition.topic for one in turns}}
        moved = {
            cursor: OffsetAndMetadata(cursor.handled, cursor.log.leader_epoch)
            for cursor in turns
            if topic_ids[cursor.partition.topic] == cursor.topic_id
        }
        if self._member is not None:
            held = self._member.held.since
            moved = {cursor: at for cursor, at in moved.items() if held.get(cursor.partition) == cursor.since}
        if moved:
            since = {cursor.partition: cursor.since for cursor in moved if cursor.since is not None}
            self._commit({cursor.partition: at for cursor, at in moved.items()}, since)
        for cursor, at in moved.items():
            cursor.committed = at.offset

    def commit_all(self, metadata: str) -> None:
        """Commit all that was handed out and is still assigned; raises NotAssigned with the partitions that are not."""
        self._check_group()
        self._adopt_if_changed()
        offsets = {
            cursor.partition: OffsetAndMetadata(cursor.position, cursor.log.leader_epoch, metadata)
            for cursor in self._turns
            if cursor.problem is None
        }
        if offsets:
            self._commit(offsets, self._adopted.since)
            self.count_as_committed(offsets)
        lost, self._lost = self._lost, set()
        if lost:
            raise not_assigned(lost, self._group or "")

    def group_offsets(self) -> GroupOffsets:
        """See `Reading`."""
        self._check_group()
        group = self._group or ""
        if self._auto_commits:
            raise commits_by_itself(group)
        self._adopt_if_changed()
        lost, self._lost = self._lost, set()
        if lost:
            raise not_assigned(lost, group)
        offsets = {
            cursor.partition: OffsetAndMetadata(cursor.position, cursor.log.leader_epoch)
            for cursor in self._turns
            if cursor.problem is None
        }
        if self._member is None:
            return GroupOffsets(group, offsets)
        held = self._adopted
        return GroupOffsets(group, offsets, held.member_id, held.generation, self._member.instance_id)

    def count_as_committed(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        """See `Reading`."""
        for partition, at in offsets.items():
            cursor = self._cursors.get(partition)
            if cursor is not None:
                cursor.committed = at.offset
                # Else the next auto-commit would take the group back.
                cursor.handled = max(cursor.handled, at.offset)

    def commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        """Durable on return."""
        self._check_group()
        replaced = sorted(self._follow_topics() & offsets.keys())
        for topic, number in replaced:
            self._broker.topic(topic)  # raises UnknownTopic, if it was not created again
            raise NotAssigned(
                f"topic {topic!r} was deleted and created again: what was read in {topic}-{number} was the old topic's,"
                " and cannot be committed in the new one"
            )
        self._commit(offsets, self._adopted.since)
        self.count_as_committed(offsets)

    def _commit(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata], since: Mapping[TopicPartition, Since]
    ) -> None:
        """What was read while these partitions were held `since` then. Any thread, see `commit_handled`."""
        if self._member is not None:
            self._memberships.commit(self._member, offsets, since)
        else:
            missing = [partition for partition in offsets if partition not in self._cursors]
            for topic, number in missing:
                self._broker.partition(topic, number)  # raises if there is no such partition
            if missing:
                raise not_assigned(missing, self._group or "")
            try:
                self._broker.commit_offsets(self._group or "", dict(offsets.items()))
            except UnknownMember as error:
                raise GroupNotEmpty(
                    f"group {self._group!r} has members, so a consumer with partitions of its own cannot commit for it"
                ) from error

    def committed(self, partition: TopicPartition) -> OffsetAndMetadata | None:
        self._check_group(reading=True)
        return self._committed([partition]).get(partition)

    def _unstable(self, partitions: list[TopicPartition]) -> set[tuple[str, int]]:
        """Where the group begins only after a transaction is ended. As in Kafka, only readers of committed records
        look: they may come after a member whose last transaction is not decided."""
        if self._group is None or not partitions or not self._settings.committed:
            return set()
        return self._broker.unstable_offsets(self._group, partitions)

    def _committed(self, partitions: list[TopicPartition]) -> Mapping[tuple[str, int], OffsetAndMetadata]:
        return self._broker.committed(self._group, partitions) if self._group is not None and partitions else {}

    def _check_group(self, *, reading: bool = False) -> None:
        if self._group is None:
            raise without_group()
        if self._broker.read_only and not reading:
            raise ReadOnly(
                "committing writes to the log, which was opened with mode='r'; commit in the process that writes,"
                " or keep the offset with your own state"
            )
