"""Share groups on disk: gives records of the log to members, and keeps the topic that stores what became of them.

To follow a take: `take` (where to read, the read, what of it is locked), then `_save`. Of an acknowledgement:
`acknowledge`, `_save`, and whoever waits for `Saved`. Every change is appended to `__share_group_state` at once.
Members hear that a record is accepted only when that is durable. That one was acquired, and how often, is not waited
for: after a power cut the newest counts may be lost, after a crash of the process none.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple, Protocol

from foldlog.broker.groups.group_settings import EARLIEST, LATEST, GroupConfigs, ShareGroupConfig
from foldlog.broker.groups.messages import check_group_name
from foldlog.broker.groups.store import pack_records
from foldlog.broker.groups.timers import Timers
from foldlog.broker.share.messages import (
    NO_OFFSET,
    AcknowledgedBatch,
    AcknowledgeType,
    AcquiredRange,
    ShareLimits,
    SharePartitionKey,
)
from foldlog.broker.share.partition import NEVER_MS, ReadBatches, SharePartition
from foldlog.broker.share.records import (
    Record,
    StoredShare,
    StoredUpdate,
    decode_record,
    snapshot_record,
    tombstone,
    update_record,
)
from foldlog.broker.topics.catalog import Catalog, CatalogTopic
from foldlog.broker.topics.names import SHARE_STATE_TOPIC
from foldlog.clock import Clock
from foldlog.errors import (
    CorruptGroupRecord,
    FoldlogError,
    GroupFull,
    InvalidArgument,
    InvalidRecordState,
    LogClosed,
    OffsetOutOfRange,
    ReadOnly,
    UnknownTopic,
    brief_repr,
)
from foldlog.files.base import Into
from foldlog.limits import SHARE_STATE_RECORDS_MAX, SHARE_STATES_MAX, SHARE_UPDATES_PER_SNAPSHOT
from foldlog.log.follower import FollowedPartition
from foldlog.log.partition import Partition
from foldlog.log.transactions import Aborted
from foldlog.records.loops import BatchHeader, decode, walk

_READ_BYTES: Final = 1 << 20

_TAKE_RECORD_BYTES: Final = 1 << 10
_TAKE_BYTES_MIN: Final = 64 << 10
_TAKE_BYTES_MAX: Final = 1 << 20
"""What one look into the log reads for a take: a kilobyte for each record that is wanted, within bounds. Records that
are larger come in more takes."""

TopicPartition = tuple[str, int]


class ShareHome(Protocol):
    """How the store reads topics."""

    def catalog(self) -> Catalog: ...

    def topic(self, name: str) -> CatalogTopic: ...

    def check_partition(self, name: str, number: int) -> CatalogTopic: ...

    def partition(self, name: str, number: int) -> Partition | FollowedPartition: ...

    def share_state_partitions(self) -> Sequence[Partition | FollowedPartition]: ...

    def report(self, doing: str, error: Exception) -> None: ...


class ShareWriter(Protocol):
    """How the store writes its topic, and gets at the partitions that it gives records of."""

    def create_share_state_topic(self) -> None: ...

    def writable_partition(self, key: TopicPartition) -> Partition: ...


@dataclass(slots=True)
class _Share:
    """A partition in a share group, as it is in memory, and what was stored of it last."""

    key: SharePartitionKey
    state: SharePartition
    snapshot_epoch: int
    state_epoch: int
    created_ms: int
    stored_start: int = NO_OFFSET
    snapshot_offset: int = NO_OFFSET
    updates: int = SHARE_UPDATES_PER_SNAPSHOT  # so that the next save is a snapshot
    durable_from: int = 0  # records may be given when the state topic is durable up to here: see `_begin`

    def stored(self, leader_epoch: int) -> StoredShare:
        return StoredShare(
            self.snapshot_epoch,
            self.state_epoch,
            leader_epoch,
            self.state.start_offset,
            self.created_ms,
            tuple(self.state.state_batches()),
        )


class Saved(NamedTuple):
    """What was appended to the topic of states. Not durable yet."""

    partition: Partition
    next_offset: int

    def wait(self) -> None:
        """Return once it is durable. Raises PartitionPoisoned."""
        self.partition.wait_acknowledged(self.next_offset)


class Taken(NamedTuple):
    """Batches of the log, and which of their records the taker has acquired. `saved`: to be durable before they may be
    used; None if there is nothing to wait for."""

    data: memoryview
    acquired: list[AcquiredRange]
    lock_duration_ms: int
    saved: Saved | None = None

    @property
    def record_count(self) -> int:
        return sum(one.last - one.first + 1 for one in self.acquired)


class _Wanted(NamedTuple):
    """What a member takes: see `ShareStore.take`. `size` bounds one read."""

    member: str
    size: int
    records_max: int
    whole_batches: bool
    into: Into
    nowait: bool


class ShareOffset(NamedTuple):
    """Where a share group is in a partition. `lag` counts the records that it has not done with."""

    topic: str
    topic_id: bytes
    partition: int
    start_offset: int
    leader_epoch: int
    lag: int


Watcher = Callable[[str, bytes, int], None]


class ShareStore:
    """Any thread; everything happens under `lock`, but for reading the log and for waiting.

    Lock order: after the groups' and before the topics', see broker.py. Loaded from its topic at the first call.
    Without a `writer` another process writes, so the topic is read again with each call. `on_deadline` is called with
    the milliseconds until `tick` has to be called; `watchers` with each partition that has records available again.
    """

    def __init__(
        self,
        home: ShareHome,
        clock: Clock,
        writer: ShareWriter | None,
        configs: GroupConfigs,
        wait_joined: Callable[[str], None] = lambda group: None,
    ) -> None:
        """`wait_joined` returns once it is durable that there is such a group."""
        self.lock = threading.RLock()
        self.configs = configs
        self._wait_joined = wait_joined
        self.on_deadline: Callable[[float], None] = lambda in_ms: None
        self.watchers: list[Watcher] = []
        self._home = home
        self._clock = clock
        self._writer = writer
        self._shares: dict[SharePartitionKey, _Share] = {}
        self._timers: Timers[SharePartitionKey] = Timers()
        self._gone: deque[tuple[str, str]] = deque()
        self._loaded = False
        self._closed = False

    # --- members ------------------------------------------------------------------------------------------------------

    def begin(self, group: str, partitions: Iterable[TopicPartition]) -> None:
        """Fix where the group begins in these partitions, if it was never there. Durable on return, as is the group: a
        power cut must not leave what it did without it."""
        with self.lock:
            shares = [self._share(group, topic, number) for topic, number in partitions]
            saved = [one for share in shares if (one := self._undurable(share)) is not None]
        for one in saved:
            one.wait()
        self._wait_joined(group)

    def has_begun(self, group: str, partitions: Iterable[TopicPartition]) -> bool:
        """Whether the group was in all these partitions before."""
        with self.lock:
            self._ready()
            return all((group, self._topic_id(topic), number) in self._shares for topic, number in partitions)

    def take(
        self,
        group: str,
        member: str,
        topic: str,
        number: int,
        *,
        max_bytes: int,
        records_max: int,
        whole_batches: bool = False,
        into: Into = None,
        nowait: bool = False,
    ) -> Taken:
        """Acquire available records for a member. They are read up to the end of the last batch that fits, and at
        least one batch. With `into`, the data are in that buffer until the next read into it. `nowait`: raises
        BlockingIOError, with nothing acquired, if the disk would have to be waited for."""
        config = self.configs.share(group)
        partition = self._writable().writable_partition((topic, number))
        # Not all that fits in an answer: with few large batches before them, a few records would cost as much as it.
        size = min(max_bytes, max(_TAKE_BYTES_MIN, min(records_max * _TAKE_RECORD_BYTES, _TAKE_BYTES_MAX)))
        wanted = _Wanted(member, max(1, size), records_max, whole_batches, into, nowait)
        for _ in range(max(1, max_bytes // wanted.size)):
            taken = self._take(group, (topic, number), partition, wanted)
            if taken is not None:
                return taken
        return Taken(memoryview(b""), [], config.limits.record_lock_duration_ms)

    def _take(self, group: str, key: TopicPartition, partition: Partition, wanted: _Wanted) -> Taken | None:
        """One read; None if it has found nothing but what nobody is given, so that there may be something behind."""
        config = self.configs.share(group)
        limits, committed = config.limits, config.read_committed
        nothing = Taken(memoryview(b""), [], limits.record_lock_duration_ms)
        with self.lock:
            share = self._share(group, *key, nowait=wanted.nowait)
            self._bring_up_to_date(share, limits, partition.log_start_offset)
            if not share.state.may_acquire(limits):
                return nothing
            first = share.state.next_fetch_offset()
        if first >= (partition.last_stable_offset if committed else partition.high_watermark):
            return nothing
        try:
            read = partition.read(first, wanted.size, wanted.into, nowait=wanted.nowait, committed=committed)
        except OffsetOutOfRange:
            return nothing  # expired meanwhile: the next call begins where the log does
        headers, aborted = walk(read.data, check_crc=False).headers, Aborted(read.aborted)
        given = [one for one in headers if _is_read(one) and not aborted.holds(one)]
        found = ReadBatches(first, read.next_offset, [(one.base_offset, one.next_offset - 1) for one in given])
        with self.lock:
            if self._shares.get(share.key) is not share:
                return nothing  # the group was deleted, or reset, meanwhile
            acquired = share.state.acquire(
                wanted.member,
                found,
                limits,
                self._clock.monotonic_ms(),
                records_max=wanted.records_max,
                whole_batches=wanted.whole_batches,
            )
            self._save(share, partition.leader_epoch)
            self._time(share)
            if not acquired and share.state.next_fetch_offset() > first:
                return None
            return Taken(_cut(read.data, headers, acquired), acquired, nothing.lock_duration_ms, self._undurable(share))

    def acknowledge(
        self, group: str, member: str, topic: str, number: int, batches: Sequence[AcknowledgedBatch]
    ) -> Saved | None:
        """Take in what a member says of records. All or nothing; it counts once what is returned is durable. Raises
        InvalidRecordState if one of them is not acquired by the member any more, InvalidArgument if it asks for more
        time and the group is set not to give any."""
        config = self.configs.share(group)
        limits = config.limits
        if not config.may_renew and any(AcknowledgeType.RENEW in one.types for one in batches):
            raise InvalidArgument(
                f"group {brief_repr(group)} does not allow renewing locks: its share.renew.acknowledge.enable is false"
            )
        partition = self._writable().writable_partition((topic, number))
        with self.lock:
            self._ready()
            share = self._shares.get((group, self._topic_id(topic), number))
            if share is not None:
                self._bring_up_to_date(share, limits, partition.log_start_offset)
            now_ms = self._clock.monotonic_ms()
            if share is None or not share.state.acknowledge(member, batches, limits, now_ms):
                raise InvalidRecordState(
                    f"group {brief_repr(group)} has not given these records of {topic}-{number} to this member, or its"
                    " locks of them have timed out; they are, or were, given to others"
                )
            saved = self._save(share, partition.leader_epoch)
            self._time(share)
            self._tell(share)
            return saved

    def release(self, group: str, member: str, keep: Collection[TopicPartition] = ()) -> None:
        """The member has gone: what it has acquired is available to others, but for partitions to `keep`."""
        with self.lock:
            if not self._loaded or self._closed:
                return
            limits = self.configs.share(group).limits
            kept = {(self._topic_id(topic), number) for topic, number in keep}
            for share in self._of_group(group):
                if share.key[1:] not in kept and share.state.release(member, limits):
                    self._changed(share)

    def member_gone(self, group: str, member: str) -> None:
        """As `release`, soon, and from any thread, whatever locks it holds."""
        self._gone.append((group, member))
        self.on_deadline(0.0)

    def tick(self) -> float | None:
        """Release what was acquired for too long; returns in how many milliseconds to call again."""
        with self.lock:
            if self._closed or not self._loaded:
                self._gone.clear()
                return None
            while self._gone:
                self.release(*self._gone.popleft())
            for key in list(self._timers.due(self._clock.monotonic_ms())):
                share = self._shares.get(key)
                if share is not None:
                    self._expire(share, self.configs.share(key[0]).limits)
                    self._time(share)
            self._prune()
            deadline_ms = self._timers.next_deadline_ms()
            return None if deadline_ms is None else max(0.0, deadline_ms - self._clock.monotonic_ms())

    # --- administrators -----------------------------------------------------------------------------------------------

    def groups(self) -> list[str]:
        """Every group that has a state here."""
        with self.lock:
            self._ready()
            return sorted({group for group, _, _ in self._shares})

    def describe(self, group: str) -> list[ShareOffset]:
        """Where the group is, in order of topic and partition."""
        with self.lock:
            self._ready()
            names = {bytes.fromhex(topic.topic_id): topic.name for topic in self._home.catalog().topics.values()}
            shares = [(names[share.key[1]], share) for share in self._of_group(group) if share.key[1] in names]
            shares.sort(key=lambda one: (one[0], one[1].key[2]))
            return [self._described(name, share) for name, share in shares]

    def _described(self, name: str, share: _Share) -> ShareOffset:
        partition = self._home.partition(name, share.key[2])
        start_offset = max(share.state.start_offset, partition.log_start_offset)
        lag = max(0, partition.high_watermark - start_offset - share.state.done_count(start_offset))
        return ShareOffset(name, *share.key[1:], start_offset, partition.leader_epoch, lag)

    def alter(self, group: str, offsets: Mapping[TopicPartition, int]) -> None:
        """Let the group begin anew at these offsets, whatever was done from there on. Durable on return. The caller has
        seen that the group has no members."""
        check_group_name(group)
        saved: Saved | None = None
        for (topic, number), offset in offsets.items():
            partition = self._writable().writable_partition((topic, number))
            if not partition.log_start_offset <= offset <= partition.high_watermark:
                raise InvalidArgument(
                    f"offset {offset} is not in {topic}-{number}, which has those from {partition.log_start_offset} to"
                    f" {partition.high_watermark}"
                )
        with self.lock:
            self._ready()
            for (topic, number), offset in offsets.items():
                saved = self._reset(group, topic, number, offset)
        if saved is not None:
            saved.wait()

    def delete(self, group: str, topics: Collection[str] | None = None) -> None:
        """Forget what the group did, in these topics or in all. Durable on return."""
        with self.lock:
            self._ready()
            ids = None if topics is None else {self._topic_id(topic) for topic in topics}
            saved = self._forget(share.key for share in self._of_group(group) if ids is None or share.key[1] in ids)
        if saved is not None:
            saved.wait()

    def forget_deleted(self) -> None:
        """Forget what groups did in topics that do not exist any more. Durable on return."""
        with self.lock:
            if self._closed or not self._home.share_state_partitions():
                return
            self._ready()
            known = {bytes.fromhex(topic.topic_id) for topic in self._home.catalog().topics.values()}
            saved = self._forget(key for key in self._shares if key[1] not in known)
        if saved is not None:
            saved.wait()

    def close(self) -> None:
        """Calls raise LogClosed from now on; closing a partition syncs what was appended."""
        with self.lock:
            self._closed = True

    # --- states -------------------------------------------------------------------------------------------------------

    def _share(self, group: str, topic: str, number: int, *, nowait: bool = False) -> _Share:
        """The group's state in a partition. A group that was never there begins as its settings say."""
        self._ready()
        found = self._shares.get((group, self._topic_id(topic), number))
        if found is not None:
            return found
        if nowait:
            raise BlockingIOError  # it may have to look for a time in the log, and to create the topic of states
        check_group_name(group)
        self._home.check_partition(topic, number)
        partition = self._writable().writable_partition((topic, number))
        begins = _first_offset(partition, self.configs.share(group), self._clock.now_ms())
        share = self._add(group, topic, number, begins)
        # A crash must not let the group begin anew, at another end of the log: members might already have been given
        # records before it.
        saved = self._save(share, partition.leader_epoch)
        share.durable_from = 0 if saved is None else saved.next_offset
        return share

    def _add(self, group: str, topic: str, number: int, start_offset: int, state_epoch: int = 0) -> _Share:
        key = (group, self._topic_id(topic), number)
        if key not in self._shares and len(self._shares) >= SHARE_STATES_MAX:
            raise GroupFull(
                f"share groups are in {len(self._shares)} partitions already, which is the most; delete some groups"
            )
        share = _Share(key, SharePartition(start_offset), 0, state_epoch, self._clock.now_ms())
        self._shares[key] = share
        return share

    def _reset(self, group: str, topic: str, number: int, offset: int) -> Saved | None:
        known = self._shares.get((group, self._topic_id(topic), number))
        share = self._add(group, topic, number, offset, 0 if known is None else known.state_epoch + 1)
        if known is not None:
            share.snapshot_epoch = known.snapshot_epoch + 1
        self._timers.cancel(share.key)
        partition = self._writable().writable_partition((topic, number))
        return self._save(share, partition.leader_epoch)

    def _forget(self, keys: Iterable[SharePartitionKey]) -> Saved | None:
        gone = list(keys)
        for key in gone:
            self._timers.cancel(key)
            del self._shares[key]
        return self._append([tombstone(key) for key in gone]) if gone else None

    def _of_group(self, group: str) -> list[_Share]:
        return [share for key, share in self._shares.items() if key[0] == group]

    def _topic_id(self, name: str) -> bytes:
        topic = self._home.catalog().topics.get(name)
        if topic is None:
            raise UnknownTopic(name)
        return bytes.fromhex(topic.topic_id)

    def _bring_up_to_date(self, share: _Share, limits: ShareLimits, log_start_offset: int) -> None:
        while self._gone:
            self.release(*self._gone.popleft())
        share.state.move_log_start(log_start_offset)
        self._expire(share, limits)

    def _expire(self, share: _Share, limits: ShareLimits) -> None:
        if share.state.expire(limits, self._clock.monotonic_ms()):
            self._changed(share)

    def _changed(self, share: _Share) -> None:
        """Records were released without their member: store it, and tell who waits for them."""
        self._save(share, -1)
        self._time(share)
        self._tell(share)

    def _tell(self, share: _Share) -> None:
        if share.state.next_fetch_offset() < share.state.end_offset:
            for watcher in self.watchers:
                watcher(*share.key)

    def _time(self, share: _Share) -> None:
        deadline_ms = share.state.next_deadline_ms()
        if deadline_ms == NEVER_MS:
            self._timers.cancel(share.key)
            return
        self._timers.set(share.key, deadline_ms)
        self.on_deadline(max(0.0, deadline_ms - self._clock.monotonic_ms()))

    # --- the topic ----------------------------------------------------------------------------------------------------

    def _writable(self) -> ShareWriter:
        if self._writer is None:
            raise ReadOnly("the log was opened with mode='r'; open it with mode='w' to take records with a share group")
        return self._writer

    def _ready(self) -> None:
        if self._closed:
            raise LogClosed("the log is closed; open it again")
        if self._loaded and self._writer is not None:
            return
        self._shares = self._load()
        self._loaded = True

    def _load(self) -> dict[SharePartitionKey, _Share]:
        found: dict[SharePartitionKey, tuple[StoredShare, int]] = {}
        for partition in self._home.share_state_partitions():
            for offset, key, value in _records(partition):
                try:
                    named, said = decode_record(key or b"", value)
                except CorruptGroupRecord as error:
                    self._home.report("loading share groups", error)
                    continue
                if said is None:
                    found.pop(named, None)
                elif isinstance(said, StoredShare):
                    found[named] = (said, offset)
                elif named in found:
                    known, snapshot_offset = found[named]
                    found[named] = (known.updated(said), snapshot_offset)
        return {
            key: _Share(
                key,
                SharePartition(stored.start_offset, stored.batches),
                stored.snapshot_epoch,
                stored.state_epoch,
                stored.created_ms,
                stored.start_offset,
                snapshot_offset,
            )
            for key, (stored, snapshot_offset) in found.items()
            if stored.start_offset != NO_OFFSET  # of Kafka's: nobody has read with the group yet
        }

    def _save(self, share: _Share, leader_epoch: int) -> Saved | None:
        """Append what has changed; None if nothing has."""
        changes = share.state.take_changes()
        if not changes and share.state.start_offset == share.stored_start:
            return None
        if share.updates >= SHARE_UPDATES_PER_SNAPSHOT:
            return self._snapshot([share], leader_epoch)
        update = StoredUpdate(share.snapshot_epoch, leader_epoch, share.state.start_offset, tuple(changes))
        saved = self._append([update_record(share.key, update, share.state.done_count())])
        share.updates += 1
        share.stored_start = share.state.start_offset
        return saved

    def _snapshot(self, shares: Iterable[_Share], leader_epoch: int = -1) -> Saved:
        listed = list(shares)
        now_ms = self._clock.now_ms()
        for share in listed:
            share.snapshot_epoch += 1
        saved = self._append(
            [snapshot_record(one.key, one.stored(leader_epoch), one.state.done_count(), now_ms) for one in listed]
        )
        for index, share in enumerate(listed):
            share.state.take_changes()
            share.updates = 0
            share.stored_start = share.state.start_offset
            share.snapshot_offset = saved.next_offset - len(listed) + index
        return saved

    def _append(self, records: list[Record]) -> Saved:
        writer = self._writable()
        if SHARE_STATE_TOPIC not in self._home.catalog().topics:
            writer.create_share_state_topic()
        partition = writer.writable_partition((SHARE_STATE_TOPIC, 0))
        appended = partition.append(pack_records(records, self._clock.now_ms()), trusted=True)
        return Saved(partition, appended.next_offset)

    def _undurable(self, share: _Share) -> Saved | None:
        """What has to be durable before records may be given; None if it is."""
        if not share.durable_from:
            return None
        partition = self._writable().writable_partition((SHARE_STATE_TOPIC, 0))
        if partition.high_watermark >= share.durable_from:
            share.durable_from = 0
            return None
        return Saved(partition, share.durable_from)

    def _prune(self) -> None:
        """Cut off the head of the topic, once it is long: what lies before the oldest snapshot that counts."""
        if SHARE_STATE_TOPIC not in self._home.catalog().topics:
            return
        partition = self._writable().writable_partition((SHARE_STATE_TOPIC, 0))
        if partition.log_end_offset - partition.log_start_offset < SHARE_STATE_RECORDS_MAX:
            return
        try:
            old = partition.log_end_offset - SHARE_STATE_RECORDS_MAX // 2
            stale = [share for share in self._shares.values() if share.snapshot_offset < old]
            if stale:
                self._snapshot(stale)
            partition.wait_acknowledged(partition.log_end_offset)
            oldest = min((share.snapshot_offset for share in self._shares.values()), default=partition.log_end_offset)
            partition.delete_records(oldest)
        except (FoldlogError, OSError) as error:
            self._home.report("cutting off old states of share groups", error)


def _records(partition: Partition | FollowedPartition) -> Iterator[tuple[int, bytes | None, bytes | None]]:
    topic, number = SHARE_STATE_TOPIC, 0
    offset = partition.log_start_offset
    while True:
        data, next_offset, _ = partition.read(offset, _READ_BYTES)
        if next_offset == offset:
            return
        for record in decode(data, topic, number, start_offset=offset)[0]:
            yield record.offset, record.key, record.value
        offset = next_offset


def _first_offset(partition: Partition, config: ShareGroupConfig, now_ms: int) -> int:
    """Where a group begins that was never there."""
    if config.auto_offset_reset == EARLIEST:
        return partition.log_start_offset
    end = partition.acknowledged_end()
    if config.read_committed:
        end = partition.last_stable_offset
    if config.auto_offset_reset == LATEST:
        return end
    found = partition.offset_at_time(now_ms - config.reset_ms, committed=config.read_committed)
    return end if found is None else found[0]


def _is_read(header: BatchHeader) -> bool:
    """Whether members are given its records: not a marker of a transaction, and not emptied by a compaction."""
    return not header.is_control and header.record_count > 0


def _cut(data: memoryview, headers: Sequence[BatchHeader], acquired: Sequence[AcquiredRange]) -> memoryview:
    """The batches from the one with the first acquired record to the one with the last."""
    if not acquired:
        return data[:0]
    first, last = acquired[0].first, acquired[-1].last
    wanted = [one for one in headers if one.next_offset > first and one.base_offset <= last]
    return data[wanted[0].position : wanted[-1].position + wanted[-1].size]
