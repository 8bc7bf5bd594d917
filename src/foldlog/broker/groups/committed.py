"""Committed offsets of all groups, as a state machine without I/O.

`plan_…` decides and returns the records to append to `__consumer_offsets`; `apply` takes them in once they are durable,
and on loading. So what `fetch` returns survives a power cut.

Offsets that are committed in a transaction are held back (`hold`) until its marker is durable (`end_transaction`). Of
two commits in one partition the one whose record is later in the log counts, as it does for compaction: a commit that
was held back does not replace one that was made after it.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple, Protocol

from foldlog.broker.groups.offsets_format import (
    NO_EPOCH,
    NO_TIMESTAMP,
    CommittedOffset,
    OffsetKey,
    decode_key,
    decode_offset_value,
    encode_offset_key,
    encode_offset_value,
)
from foldlog.errors import CorruptGroupRecord, InvalidArgument, MetadataTooLarge, TooManyOffsets
from foldlog.limits import COMMITTED_OFFSETS_BYTES_MAX, OFFSET_METADATA_BYTES_MAX, OFFSETS_RETENTION_MS

TopicPartition = tuple[str, int]
GroupRecord = tuple[bytes, bytes | None]
"""Key and value of a record of `__consumer_offsets`; no value is a tombstone."""


_OFFSET_BYTES: Final = 256

NO_PRODUCER: Final = -1
BEFORE_ALL: Final = -1
"""An offset in `__consumer_offsets` that is lower than any."""


class LoggedRecord(NamedTuple):
    """A record of `__consumer_offsets` where it stands in the log."""

    offset: int
    key: bytes | None
    value: bytes | None


class LoggedBatch(NamedTuple):
    """What loading needs of a batch: its records, or how it ends the transaction of `producer_id`.

    `producer_id` is NO_PRODUCER outside of transactions. `commits` is None unless it is a marker.
    """

    partition: int
    records: Sequence[LoggedRecord] = ()
    producer_id: int = NO_PRODUCER
    commits: bool | None = None
    offset: int = BEFORE_ALL


@dataclass(frozen=True, slots=True)
class _Held:
    """A commit in an open transaction, and the offset of its record."""

    offset: int
    key: bytes
    value: bytes | None
    cost_bytes: int


HeldName = tuple[str, TopicPartition]
"""Group, and the partition that it committed in."""


@dataclass(frozen=True, slots=True)
class OffsetAndMetadata:
    """A commit of a reader: the next offset it wants, and a note of its own.

    >>> OffsetAndMetadata(42, metadata="by the nightly job").offset
    42
    """

    offset: int
    leader_epoch: int = NO_EPOCH
    metadata: str = ""


def check_offsets(offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
    """Raises InvalidArgument for an offset below 0. For callers of the library: see `CommittedOffsets` for clients."""
    for (topic, number), committed in offsets.items():
        if committed.offset < 0:
            raise InvalidArgument(f"cannot commit offset {committed.offset} of {topic}-{number}: offsets start at 0")


def java_string_hash(text: str) -> int:
    """`String.hashCode()`: over UTF-16 units, in 32 bits, signed.

    >>> java_string_hash("fraud")
    97692260
    """
    value = 0
    raw = text.encode("utf-16-be", "surrogatepass")
    for index in range(0, len(raw), 2):
        value = (31 * value + (raw[index] << 8 | raw[index + 1])) & 0xFFFFFFFF
    return value - (1 << 32) if value >= 1 << 31 else value


def partition_for_group(group: str, partitions: int) -> int:
    """Which partition of `__consumer_offsets` holds the group, as Kafka chooses it.

    >>> partition_for_group("fraud", 50)
    10
    """
    value = java_string_hash(group)
    # Java's abs() of the smallest int is itself; Kafka takes 0 there.
    return 0 if value == -(1 << 31) else abs(value) % partitions


class CommittedOffsets:
    """Every group's committed offsets, by topic and partition. One owner at a time: the driver locks.

    The `plan_…` methods change nothing. Not checked: whether the member may commit (`GroupCoordinator.validate_commit`
    checks that), whether the topic exists, and whether the offset is one: as in Kafka a client may commit -2 or -1, by
    which KafkaJS means the earliest and the latest, and which count as no commit.
    """

    def __init__(
        self,
        metadata_bytes_max: int = OFFSET_METADATA_BYTES_MAX,
        retention_ms: int = OFFSETS_RETENTION_MS,
    ) -> None:
        self._metadata_bytes_max = metadata_bytes_max
        self._retention_ms = retention_ms
        self._groups: dict[str, dict[TopicPartition, CommittedOffset]] = {}
        self._logged_at: dict[HeldName, int] = {}
        # By partition of `__consumer_offsets` and producer: a marker ends a transaction in one partition.
        self._transactions: dict[tuple[int, int], dict[HeldName, _Held]] = {}
        self._open_count: dict[HeldName, int] = {}
        self._held_bytes = 0

    def check(self, partition: TopicPartition, committed: OffsetAndMetadata) -> None:
        """Raise the error of `plan_commit` for this one partition."""
        topic, number = partition
        if not topic or number < 0:
            raise InvalidArgument(f"cannot commit partition {number} of topic {topic!r}: there is no such partition")
        size_bytes = len(committed.metadata.encode("utf-8"))
        if size_bytes > self._metadata_bytes_max:
            raise MetadataTooLarge(size_bytes, self._metadata_bytes_max)

    def plan_commit(
        self, group: str, offsets: Mapping[TopicPartition, OffsetAndMetadata], now_ms: int
    ) -> list[GroupRecord]:
        """The records that commit `offsets`; all are refused if one is invalid."""
        for partition, committed in offsets.items():
            self.check(partition, committed)
        known = self._groups.get(group, {})
        more_bytes = sum(
            _cost_bytes(group, committed) - (_cost_bytes(group, known[partition]) if partition in known else 0)
            for partition, committed in offsets.items()
        )
        if more_bytes > 0 and self._held_bytes + more_bytes > COMMITTED_OFFSETS_BYTES_MAX:
            raise TooManyOffsets(group, COMMITTED_OFFSETS_BYTES_MAX)
        return [
            (
                encode_offset_key(OffsetKey(group, topic, number)),
                encode_offset_value(
                    CommittedOffset(committed.offset, committed.leader_epoch, committed.metadata, now_ms)
                ),
            )
            for (topic, number), committed in offsets.items()
        ]

    def apply(self, key: bytes | None, value: bytes | None, offset: int = BEFORE_ALL) -> bool:
        """Take in a durable record, which stands at `offset`. False if it is group metadata, which is the
        coordinator's.

        Raises `CorruptGroupRecord` and changes nothing if the record is malformed.
        """
        if key is None:
            raise CorruptGroupRecord(key, "it has no key")
        decoded = decode_key(key)
        if not isinstance(decoded, OffsetKey):
            return False
        partition = (decoded.topic, decoded.partition)
        name = (decoded.group, partition)
        if value is not None:
            committed = decode_offset_value(key, value)
            known = self._groups.setdefault(decoded.group, {})
            self._held_bytes += _cost_bytes(decoded.group, committed)
            if partition in known:
                self._held_bytes -= _cost_bytes(decoded.group, known[partition])
            known[partition] = committed
            self._logged_at[name] = offset
            return True
        self._drop(name)
        # What was committed before the deletion, and is still held back, must not come back with its marker.
        for held in list(self._transactions.values()):
            if name in held and held[name].offset < offset:
                self._release(held, name)
        return True

    def _drop(self, name: HeldName) -> None:
        group, partition = name
        offsets = self._groups.get(group)
        if offsets is not None:
            gone = offsets.pop(partition, None)
            if gone is not None:
                self._held_bytes -= _cost_bytes(group, gone)
                self._logged_at.pop(name, None)
            if not offsets:
                del self._groups[group]

    # --- transactions -----------------------------------------------------------------------------------------------

    def hold(self, partition: int, producer_id: int, key: bytes | None, value: bytes | None, offset: int) -> None:
        """Hold back a record that the producer wrote in a transaction, in `partition` of `__consumer_offsets`.

        Raises `CorruptGroupRecord` and changes nothing if it is not a committed offset.
        """
        if key is None:
            raise CorruptGroupRecord(key, "it has no key")
        decoded = decode_key(key)
        if not isinstance(decoded, OffsetKey):
            raise CorruptGroupRecord(key, "group metadata is never part of a transaction")
        cost_bytes = 0 if value is None else _cost_bytes(decoded.group, decode_offset_value(key, value))
        name = (decoded.group, (decoded.topic, decoded.partition))
        held = self._transactions.setdefault((partition, producer_id), {})
        if name in held:
            self._release(held, name)
        held[name] = _Held(offset, key, value, cost_bytes)
        self._open_count[name] = self._open_count.get(name, 0) + 1
        self._held_bytes += cost_bytes

    def end_transaction(self, partition: int, producer_id: int, *, commit: bool, offset: int) -> None:
        """Take in a durable marker, which stands at `offset`: what the producer wrote before it counts, or is gone."""
        held = self._transactions.get((partition, producer_id))
        if held is None:
            return
        for name, one in list(held.items()):
            if one.offset < offset:
                self._release(held, name)
                if commit and one.offset > self._logged_at.get(name, BEFORE_ALL):
                    self.apply(one.key, one.value, one.offset)
        if not held:
            del self._transactions[partition, producer_id]

    def _release(self, held: dict[HeldName, _Held], name: HeldName) -> None:
        self._held_bytes -= held.pop(name).cost_bytes
        self._open_count[name] -= 1
        if not self._open_count[name]:
            del self._open_count[name]

    def unstable(self, group: str, partitions: Iterable[TopicPartition] | None = None) -> set[TopicPartition]:
        """Of `partitions`, or of all, those in which the group has commits in open transactions."""
        if partitions is None:
            return {partition for name, partition in self._open_count if name == group}
        return {partition for partition in partitions if (group, partition) in self._open_count}

    def fetch(
        self, group: str, partitions: Iterable[TopicPartition] | None = None
    ) -> dict[TopicPartition, CommittedOffset]:
        """The group's committed offsets, for `partitions` or for all; a partition without a commit is left out."""
        offsets = self._groups.get(group, {})
        if partitions is None:
            return dict(offsets)
        return {partition: offsets[partition] for partition in partitions if partition in offsets}

    def groups(self) -> list[str]:
        """Groups with at least one committed offset, also in an open transaction, in order of name."""
        return sorted({*self._groups, *(group for group, _ in self._open_count)})

    def has_offsets(self, group: str) -> bool:
        return group in self._groups or any(name == group for name, _ in self._open_count)

    def plan_delete_group(self, group: str) -> list[GroupRecord]:
        """Tombstones for all commits of the group."""
        return self.plan_delete_offsets(group, [*self._groups.get(group, {}), *self.unstable(group)])

    def plan_delete_offsets(self, group: str, partitions: Iterable[TopicPartition]) -> list[GroupRecord]:
        """Tombstones for the group's commits in `partitions`, those in open transactions too."""
        offsets = self._groups.get(group, {})
        return [
            (encode_offset_key(OffsetKey(group, topic, number)), None)
            for topic, number in dict.fromkeys(partitions)
            if (topic, number) in offsets or (group, (topic, number)) in self._open_count
        ]

    def plan_delete_topics(self, topics: Container[str]) -> list[tuple[str, list[GroupRecord]]]:
        """Per group, tombstones for its commits in `topics`: a topic of that name may be created again."""
        plans = []
        for group in self.groups():
            known = [*self._groups.get(group, {}), *self.unstable(group)]
            records = self.plan_delete_offsets(group, [partition for partition in known if partition[0] in topics])
            if records:
                plans.append((group, records))
        return plans

    def plan_expire(
        self, now_ms: int, empty_since_ms: Callable[[str], int | None]
    ) -> list[tuple[str, list[GroupRecord]]]:
        """Per group, tombstones for offsets older than offsets.retention.minutes.

        `empty_since_ms(group)` (see `GroupCoordinator.empty_since_ms`) is None while the group has members, and then
        none of its offsets expires. Age counts from the later of that moment and the commit; if the wall clock was set
        back the age is negative, so nothing is deleted early.
        """
        plans = []
        for group, offsets in self._groups.items():
            since_ms = empty_since_ms(group)
            if since_ms is None:
                continue
            # One with a commit in an open transaction is in use.
            expired = [
                partition
                for partition, committed in offsets.items()
                if (group, partition) not in self._open_count and self._is_expired(committed, since_ms, now_ms)
            ]
            if expired:
                plans.append((group, self.plan_delete_offsets(group, expired)))
        return plans

    def _is_expired(self, committed: CommittedOffset, since_ms: int, now_ms: int) -> bool:
        if committed.expire_timestamp_ms != NO_TIMESTAMP:
            return now_ms >= committed.expire_timestamp_ms
        return now_ms - max(since_ms, committed.commit_timestamp_ms) >= self._retention_ms


def _cost_bytes(group: str, committed: OffsetAndMetadata | CommittedOffset) -> int:
    """Approximate memory of a committed offset: the offset, its entries in two tables, names and the note."""
    return _OFFSET_BYTES + len(group) + len(committed.metadata)


class RestoresGroups(Protocol):
    """The part of the coordinator that loading needs."""

    def restore(self, key: bytes, value: bytes | None) -> None: ...

    def restored(self, *, is_final: bool) -> None: ...


def load_records(
    batches: Iterable[LoggedBatch], offsets: CommittedOffsets, groups: RestoresGroups, *, is_final: bool = True
) -> list[CorruptGroupRecord]:
    """Rebuild both state machines from the batches of `__consumer_offsets`, in log order.

    A malformed record is skipped and returned, so that one of them costs one committed offset and not all groups.
    Without `is_final` another call brings what was written since.
    """
    skipped: list[CorruptGroupRecord] = []
    newest_metadata: dict[bytes, bytes | None] = {}
    for batch in batches:
        if batch.commits is not None:
            offsets.end_transaction(batch.partition, batch.producer_id, commit=batch.commits, offset=batch.offset)
        for offset, key, value in batch.records:
            try:
                if batch.producer_id != NO_PRODUCER:
                    offsets.hold(batch.partition, batch.producer_id, key, value, offset)
                elif not offsets.apply(key, value, offset) and key is not None:
                    newest_metadata[key] = value
            except CorruptGroupRecord as error:
                skipped.append(error)
    for key, value in newest_metadata.items():
        try:
            groups.restore(key, value)
        except CorruptGroupRecord as error:
            skipped.append(error)
    groups.restored(is_final=is_final)
    return skipped
