"""Groups and committed offsets on disk: drives both state machines, and keeps the topic that stores them.

A commit is decided, appended to `__consumer_offsets` and, once it is durable, applied; so what `committed` returns
survives a power cut. One sync serves all waiting commits. Group metadata is appended too but not waited for: members of
a group that lost it just join again. Only a new share group is (`wait_stored`): another topic has what its members do.

Commits in transactions are batches of their producers, held back until a marker ends the transaction in that partition.
The transaction coordinator says which producer may write, and when it is ended (`transactions/store.py`).
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final, Protocol

from foldlog.broker.groups.committed import (
    NO_PRODUCER,
    CommittedOffsets,
    GroupRecord,
    LoggedBatch,
    LoggedRecord,
    OffsetAndMetadata,
    TopicPartition,
    load_records,
    partition_for_group,
)
from foldlog.broker.groups.consumer.topics import NO_TOPICS, TopicsImage
from foldlog.broker.groups.coordinator import GroupCoordinator
from foldlog.broker.groups.errors import GroupErrorCode, raise_for
from foldlog.broker.groups.group_settings import GroupConfigs
from foldlog.broker.groups.messages import (
    GroupListing,
    GroupSettings,
    GroupState,
    GroupSummary,
    check_group_name,
)
from foldlog.broker.groups.offsets_format import CommittedOffset, OffsetKey, ShareKey, decode_key
from foldlog.broker.topics.catalog import Catalog
from foldlog.broker.topics.names import OFFSETS_TOPIC
from foldlog.clock import Clock
from foldlog.errors import FoldlogError, LogClosed, ReadOnly, StorageError, UnstableOffsets, brief_repr
from foldlog.files.base import Buffer
from foldlog.log.follower import FollowedPartition
from foldlog.log.partition import Appended, Partition
from foldlog.log.transactions import markers_of
from foldlog.records.batch import CONTROL_COMMIT
from foldlog.records.loops import BatchBuilder, BatchHeader, decode, walk

_BATCH_BYTES: Final = 1 << 20
_READ_BYTES: Final = 1 << 20

Acknowledged = Callable[[FoldlogError | None], None]


class OffsetsReader(Protocol):
    """How the store reads the topic."""

    def offsets_partition_count(self) -> int:
        """Partitions of `__consumer_offsets`; 0 while there is no such topic."""
        ...

    def offsets_partition_numbers(self) -> Sequence[int]:
        """The partitions that can be read."""
        ...

    def offsets_partition(self, number: int) -> Partition | FollowedPartition: ...

    def catalog(self) -> Catalog:
        """All topics: the same object until they change."""
        ...

    def check_partition(self, name: str, number: int) -> object:
        """Raises UnknownTopic or UnknownPartition."""
        ...

    def report(self, doing: str, error: Exception) -> None: ...


class OffsetsWriter(Protocol):
    """How the store writes the topic."""

    def create_offsets_topic(self) -> None: ...

    def writable_partition(self, key: TopicPartition) -> Partition: ...


@dataclass(slots=True)
class _Pending:
    """Appended records that are not known to be durable yet, or with `commits` a marker of `producer_id`.

    Records of a transaction are held back from the moment they are appended, so there is nothing to apply."""

    partition: Partition
    base_offset: int
    next_offset: int
    records: Sequence[GroupRecord] = ()
    producer_id: int = NO_PRODUCER
    commits: bool | None = None


class GroupStore:
    """Any thread; everything happens under `lock`, but for waiting until a commit is durable.

    Lock order: `lock` before the broker's and the partitions' own. Loaded from the topic at the first call. Without a
    `writer` another process writes the topic, so new records are read with each call. `on_deadline` is called with the
    milliseconds until `tick` has to be called.
    """

    def __init__(
        self,
        home: OffsetsReader,
        clock: Clock,
        writer: OffsetsWriter | None,
        settings: GroupSettings | None = None,
        offsets: CommittedOffsets | None = None,
        configs: GroupConfigs | None = None,
    ) -> None:
        # Second in broker.py's order. Re-entrant: a reply, which runs inside the block, may call the coordinator again.
        self.lock = threading.RLock()
        self._home = home
        self._clock = clock
        self._writer = writer
        self.on_deadline: Callable[[float], None] = lambda in_ms: None
        self._image: tuple[Catalog | None, TopicsImage] = (None, NO_TOPICS)
        self._offsets = CommittedOffsets() if offsets is None else offsets
        self._coordinator = GroupCoordinator(
            clock, settings, topics=self._topics, configs=configs, has_commits=self._has_commits
        )
        self._read_to: dict[int, int] = {}
        self._loaded = False
        self._closed = False
        self._pending: deque[_Pending] = deque()
        self._unwritten: dict[bytes, bytes | None] = {}

    def _topics(self) -> TopicsImage:
        catalog = self._home.catalog()
        if self._image[0] is not catalog:
            self._image = (catalog, TopicsImage.of(catalog))
        return self._image[1]

    def _has_commits(self, group: str) -> bool:
        """Also those that are not durable yet, and those of open transactions."""
        self._take_in()
        return (
            self._offsets.has_offsets(group)
            or bool(self._offsets.unstable(group, None))
            or any(_commits(group, *record) for pending in self._pending for record in pending.records)
        )

    # --- groups ---------------------------------------------------------------------------------------------------

    @contextmanager
    def coordinator(self) -> Iterator[GroupCoordinator]:
        """The coordinator, for this thread alone and up to date with the clock.

        Its decisions are appended when the block ends. Replies run inside the block, and those of timers inside `tick`:
        a reply to another process has to be held back until `lock` was released, so that no member learns of a
        generation that a crash could give out again.
        """
        with self.lock:
            self._ready()
            self._coordinator.tick()
            # Also after an exception: earlier decisions stand, and replies may have announced them.
            try:
                yield self._coordinator
            finally:
                self._append_group_writes()
                self._schedule_tick()

    def watch_share_members(self, on_gone: Callable[[str, str], None]) -> None:
        """Call `on_gone` with the group and the id of each member that leaves a share group, under `lock`."""
        self._coordinator.share.on_gone = on_gone

    def wait_stored(self, group: str) -> None:
        """Return once what was decided about the group so far is durable. Raises PartitionPoisoned."""
        with self.lock:
            self._ready()
            partition = self._own_partition(group)
            ends = [pending.next_offset for pending in self._pending if pending.partition is partition]
        if ends:
            partition.wait_acknowledged(max(ends))

    def loaded_coordinator(self) -> GroupCoordinator:
        with self.lock:
            self._ready()
            return self._coordinator

    def tick(self) -> float | None:
        """Process what is due; returns in how many milliseconds to call again."""
        with self.lock:
            if self._closed or not self._loaded:
                return None
            self._coordinator.tick()
            self._append_group_writes()
            deadline_ms = self._coordinator.next_deadline_ms()
            return None if deadline_ms is None else max(0.0, deadline_ms - self._clock.monotonic_ms())

    def _schedule_tick(self) -> None:
        deadline_ms = self._coordinator.next_deadline_ms()
        if deadline_ms is not None:
            self.on_deadline(max(0.0, deadline_ms - self._clock.monotonic_ms()))

    def delete_group(self, group: str) -> None:
        """Delete a group without members, and its offsets. Durable on return. Raises UnknownGroup, GroupNotEmpty."""
        with self.lock:
            self._ready()
            self._settle()
            code = self._coordinator.delete(group)
            if code is not GroupErrorCode.GROUP_ID_NOT_FOUND or not self._offsets.has_offsets(group):
                raise_for(code, group)
            records = self._coordinator.take_writes() + self._offsets.plan_delete_group(group)
            self._append(group, records)
            for key, _ in records:
                self._unwritten.pop(key, None)  # what could not be written before must not bring it back
            self._settle()

    def delete_offsets(self, group: str, partitions: Iterable[TopicPartition]) -> None:
        """Delete a group's commits in these partitions. Durable on return. Raises UnknownGroup, and GroupNotEmpty while
        members read them."""
        partitions = list(partitions)
        with self.lock:
            self._ready()
            self._settle()
            if self._described(group).state is GroupState.DEAD:
                raise_for(GroupErrorCode.GROUP_ID_NOT_FOUND, group)
            subscribed = self._coordinator.subscribed_topics(group)
            if subscribed is None or any(topic in subscribed for topic, _ in partitions):
                raise_for(GroupErrorCode.GROUP_SUBSCRIBED_TO_TOPIC, group)
            self._append(group, self._offsets.plan_delete_offsets(group, partitions))
            self._settle()

    def list_groups(self) -> list[GroupListing]:
        """Every group that has members, a generation or committed offsets, in order of name."""
        with self.lock:
            self._ready()
            self._take_in()
            listings = {group: GroupListing(group, "", GroupState.EMPTY) for group in self._offsets.groups()}
            listings.update((listing.group, listing) for listing in self._coordinator.list_groups())
        return [listings[group] for group in sorted(listings)]

    def describe_group(self, group: str) -> GroupSummary:
        """A group without members but with committed offsets is Empty; an unknown one is Dead."""
        with self.lock:
            self._ready()
            self._take_in()
            return self._described(group)

    def _described(self, group: str) -> GroupSummary:
        description = self._coordinator.describe(group)
        if description.state is GroupState.DEAD and self._offsets.has_offsets(group):
            return GroupSummary(group, GroupState.EMPTY)
        return description

    # --- offsets --------------------------------------------------------------------------------------------------

    def commit(
        self,
        group: str,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        *,
        member_id: str = "",
        generation: int = -1,
        instance_id: str | None = None,
    ) -> None:
        """Returns once the commit is durable and visible to `committed`."""
        pending = self._begin_commit(group, offsets, member_id, generation, instance_id)
        # Outside the lock: commits of other threads are appended meanwhile, and share the sync.
        if pending is not None:
            pending.partition.wait_acknowledged(pending.next_offset)

    def begin_commit(
        self,
        group: str,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        acknowledged: Acknowledged,
        *,
        member_id: str = "",
        generation: int = -1,
        instance_id: str | None = None,
    ) -> None:
        """As `commit`, without waiting: `acknowledged` is called once, from any thread, with the error or None.

        It may be called under the partition's locks: it must be quick, and must not call the log again.
        """
        pending = self._begin_commit(group, offsets, member_id, generation, instance_id)
        if pending is None:
            acknowledged(None)
        else:
            pending.partition.on_acknowledged(pending.next_offset, acknowledged, is_quick=True)

    def _begin_commit(
        self,
        group: str,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        member_id: str,
        generation: int,
        instance_id: str | None,
    ) -> _Pending | None:
        with self.lock:
            return self._append(group, self._plan_commit(group, offsets, member_id, generation, instance_id))

    def _plan_commit(
        self,
        group: str,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        member_id: str,
        generation: int,
        instance_id: str | None,
        *,
        transactional: bool = False,
    ) -> list[GroupRecord]:
        check_group_name(group)
        self._ready()
        self._coordinator.tick()
        self._append_group_writes()
        # Under the lock, so that the topic cannot be deleted between this check and the append: see forget_topics.
        for topic, number in offsets:
            self._home.check_partition(topic, number)
        code = self._coordinator.validate_commit(
            group, member_id, instance_id, generation, offsets, transactional=transactional
        )
        self._schedule_tick()
        raise_for(code, group)
        self._take_in()
        return self._offsets.plan_commit(group, offsets, self._clock.now_ms())

    # --- offsets in transactions ------------------------------------------------------------------------------------

    def partition_of(self, group: str) -> TopicPartition:
        """The partition of `__consumer_offsets` that the group's commits go to; the topic is made if there is none."""
        check_group_name(group)
        with self.lock:
            self._ready()
            return self._own_partition(group).label

    def append_in_transaction(
        self,
        group: str,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        producer_id: int,
        producer_epoch: int,
        *,
        member_id: str = "",
        generation: int = -1,
        instance_id: str | None = None,
    ) -> tuple[Partition, int]:
        """Append commits that count when the producer's transaction is committed. Returns the partition, and the offset
        to wait for: not durable yet. The caller is the transaction coordinator, which has verified the producer."""
        with self.lock:
            records = self._plan_commit(group, offsets, member_id, generation, instance_id, transactional=True)
            partition = self._own_partition(group)
            if not records:
                return partition, partition.high_watermark
            packed = pack_records(records, self._clock.now_ms(), producer_id, producer_epoch)
            appended = partition.append(packed, trusted=True, begins_transaction=True)
            for offset, (key, value) in enumerate(records, appended.base_offset):
                self._offsets.hold(partition.label[1], producer_id, key, value, offset)
            self._pending.append(_Pending(partition, appended.base_offset, appended.next_offset))
            return partition, appended.next_offset

    def append_marker(
        self,
        number: int,
        producer_id: int,
        producer_epoch: int,
        coordinator_epoch: int,
        *,
        commit: bool,
        transaction_version: int,
    ) -> Appended:
        """End the producer's transaction in this partition of `__consumer_offsets`. Once the marker is durable, what
        was committed in it counts, or is gone."""
        with self.lock:
            self._ready()
            partition = self._writing().writable_partition((OFFSETS_TOPIC, number))
            self._take_in()
            appended = partition.append_marker(
                producer_id, producer_epoch, coordinator_epoch, commit=commit, transaction_version=transaction_version
            )
            self._pending.append(
                _Pending(partition, appended.base_offset, appended.next_offset, (), producer_id, commit)
            )
            return appended

    def unstable(self, group: str, partitions: Iterable[TopicPartition] | None = None) -> set[TopicPartition]:
        """Of `partitions`, or of all, those in which the group has commits in transactions that are not ended."""
        check_group_name(group)
        with self.lock:
            self._ready()
            self._take_in()
            return self._offsets.unstable(group, partitions)

    # --- what is committed ------------------------------------------------------------------------------------------

    def committed(
        self,
        group: str,
        partitions: Iterable[TopicPartition] | None = None,
        *,
        with_negative: bool = False,
        require_stable: bool = False,
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """The group's durable commits; partitions without one are left out.

        With `require_stable` UnstableOffsets is raised if one of them has a commit in a transaction that is not ended.
        """
        partitions = None if partitions is None else list(partitions)
        with self.lock:
            unstable = self.unstable(group, partitions) if require_stable else ()
            if unstable:
                topic, number = min(unstable)
                raise UnstableOffsets(
                    f"group {brief_repr(group)} has committed in {topic}-{number} in a transaction that is not ended;"
                    " try again when it is"
                )
            commits = self.commits(group, partitions)
        return {
            partition: OffsetAndMetadata(offset.offset, offset.leader_epoch, offset.metadata)
            for partition, offset in commits.items()
            if with_negative or offset.offset >= 0
        }

    def commits(
        self, group: str, partitions: Iterable[TopicPartition] | None = None
    ) -> dict[TopicPartition, CommittedOffset]:
        """The group's commits as stored, with the time of each."""
        check_group_name(group)
        with self.lock:
            self._ready()
            self._take_in()
            return self._offsets.fetch(group, partitions)

    def forget_topics(self, topics: Container[str]) -> None:
        """Delete the commits in deleted topics: a new one of the same name must not inherit them. Durable on return."""
        with self.lock:
            if self._closed or not self._home.offsets_partition_count():
                return
            self._ready()
            self._settle()
            for group, records in self._offsets.plan_delete_topics(topics):
                self._append(group, records)
            self._settle()

    def expire(self) -> None:
        """Delete offsets older than offsets.retention.minutes, and groups that have none left."""
        with self.lock:
            if self._closed or not self._home.offsets_partition_count():
                return
            self._ready()
            # A commit under way would look like the older one it replaces, and the tombstone would come after it.
            self._settle()
            for group, records in self._offsets.plan_expire(self._clock.now_ms(), self._coordinator.empty_since_ms):
                self._append(group, records)
            self._settle()
            self._coordinator.sweep(self._offsets.has_offsets)
            self._append_group_writes()

    def close(self) -> None:
        """Answer waiting members. Calls raise LogClosed from now on; closing a partition syncs what was appended."""
        with self.lock:
            if not self._closed:
                self._closed = True
                self._coordinator.close()

    # --- the topic ------------------------------------------------------------------------------------------------

    def _ready(self) -> None:
        """Load at the first call. A process that only reads reads the writer's new records each time."""
        if self._closed:
            raise LogClosed("the log is closed; open it again")
        if self._loaded and self._writer is not None:
            return
        batches = (batch for number in self._home.offsets_partition_numbers() for batch in self._read(number))
        is_final = self._writer is not None
        for skipped in load_records(batches, self._offsets, self._coordinator, is_final=is_final):
            self._home.report("loading groups", skipped)
        self._loaded = True
        self._schedule_tick()

    def _read(self, number: int) -> Iterator[LoggedBatch]:
        """The batches of one partition from where the last call ended."""
        partition = self._home.offsets_partition(number)
        offset = max(self._read_to.get(number, 0), partition.log_start_offset)
        while True:
            data, next_offset, _ = partition.read(offset, _READ_BYTES)
            if next_offset == offset:
                break
            headers = walk(data, check_crc=False).headers
            if any(header.is_transactional or header.is_control for header in headers):
                for header in headers:
                    yield _logged(memoryview(data)[header.position : header.position + header.size], header, number)
            else:
                yield LoggedBatch(number, _records(data, number, offset))
            offset = next_offset
        self._read_to[number] = offset

    def _writing(self) -> OffsetsWriter:
        if self._writer is None:
            raise ReadOnly("the log was opened with mode='r'; open it with mode='w' to commit offsets")
        return self._writer

    def _own_partition(self, group: str) -> Partition:
        """Where the group's records are appended; the topic is made if there is none."""
        writer = self._writing()
        if not self._home.offsets_partition_count():
            writer.create_offsets_topic()
        number = partition_for_group(group, self._home.offsets_partition_count())
        return writer.writable_partition((OFFSETS_TOPIC, number))

    def _append(self, group: str, records: list[GroupRecord]) -> _Pending | None:
        """Append the records, all or none, to the group's partition. They count once they are acknowledged."""
        if not records:
            return None
        partition = self._own_partition(group)
        self._take_in()
        appended = partition.append(pack_records(records, self._clock.now_ms()), trusted=True)
        pending = _Pending(partition, appended.base_offset, appended.next_offset, records)
        self._pending.append(pending)
        return pending

    def _take_in(self) -> None:
        """Apply newly durable records, in the order of the log.

        Called before reading, not by the syncing thread: that one may hold the partition's locks.
        """
        # Records that a poisoned partition has not acknowledged are dropped: their committer got the error, and the
        # next open decides whether they are on disk.
        waiting: deque[_Pending] = deque()
        for pending in self._pending:
            if pending.next_offset <= pending.partition.high_watermark:
                self._apply(pending)
            elif not pending.partition.is_poisoned:
                waiting.append(pending)
        self._pending = waiting

    def _apply(self, pending: _Pending) -> None:
        for offset, (key, value) in enumerate(pending.records, pending.base_offset):
            self._offsets.apply(key, value, offset)
        if pending.commits is not None:
            number = pending.partition.label[1]
            self._offsets.end_transaction(
                number, pending.producer_id, commit=pending.commits, offset=pending.base_offset
            )

    def _settle(self) -> None:
        """Wait until everything appended is durable, and apply it."""
        for pending in self._pending:
            pending.partition.wait_acknowledged(pending.next_offset)
        self._take_in()

    def _append_group_writes(self) -> None:
        # The newest of each key is enough; those of earlier calls are there if they could not be appended.
        self._unwritten.update(self._coordinator.take_writes())
        try:
            for group, records in _by_group(self._unwritten.items()):
                pending = self._append(group, records)
                for key, _ in records:
                    del self._unwritten[key]
                if pending is not None and isinstance(decode_key(records[0][0]), ShareKey):
                    # No commit of a share group syncs its metadata, so that readers would not hear of it.
                    pending.partition.on_acknowledged(pending.next_offset, lambda error: None, is_quick=True)
        except (StorageError, OSError) as error:
            # The groups go on in memory, and the records are tried again with the next ones.
            self._home.report("storing group metadata", error)


def pack_records(
    records: list[GroupRecord], now_ms: int, producer_id: int = NO_PRODUCER, producer_epoch: int = -1
) -> bytearray:
    """Pack the records into batches; with a producer id they belong to its transaction."""
    packed = bytearray()
    builder = BatchBuilder(_BATCH_BYTES)

    def built() -> bytearray:
        is_transactional = producer_id != NO_PRODUCER
        return builder.build(producer_id=producer_id, producer_epoch=producer_epoch, transactional=is_transactional)

    for key, value in records:
        if builder.append(now_ms, key, value) < 0:
            packed += built()
            builder.clear()
            builder.append(now_ms, key, value)
    packed += built()
    return packed


def _commits(group: str, key: bytes, value: bytes | None) -> bool:
    decoded = decode_key(key)
    return value is not None and isinstance(decoded, OffsetKey) and decoded.group == group


def _logged(batch: memoryview, header: BatchHeader, number: int) -> LoggedBatch:
    producer_id = header.producer_id if header.is_transactional else NO_PRODUCER
    if not header.is_control:
        return LoggedBatch(number, _records(batch, number, header.base_offset), producer_id)
    ends = [marker for marker in markers_of(batch, header) if marker.coordinator_epoch is not None]
    commits = ends[-1].kind == CONTROL_COMMIT if ends else None
    return LoggedBatch(number, (), producer_id, commits, header.base_offset)


def _records(data: Buffer, number: int, offset: int) -> list[LoggedRecord]:
    found = decode(data, OFFSETS_TOPIC, number, start_offset=offset)[0]
    return [LoggedRecord(record.offset, record.key, record.value) for record in found]


def _by_group(records: Iterable[GroupRecord]) -> list[tuple[str, list[GroupRecord]]]:
    grouped: dict[str, list[GroupRecord]] = {}
    for key, value in records:
        grouped.setdefault(decode_key(key).group, []).append((key, value))
    return list(grouped.items())
