"""Committed offsets of all groups, as a state machine without I/O.

`plan_…` decides and returns the records to append to `__consumer_offsets`; `apply` takes them in once they are durable,
and on loading. So what `fetch` returns survives a power cut.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping
from dataclasses import dataclass
from typing import Final, Protocol

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

    def apply(self, key: bytes | None, value: bytes | None) -> bool:
        """Take in a durable record. False if it is group metadata, which is the coordinator's.

        Raises `CorruptGroupRecord` and changes nothing if the record is malformed.
        """
        if key is None:
            raise CorruptGroupRecord(key, "it has no key")
        decoded = decode_key(key)
        if not isinstance(decoded, OffsetKey):
            return False
        partition = (decoded.topic, decoded.partition)
        if value is not None:
            committed = decode_offset_value(key, value)
            known = self._groups.setdefault(decoded.group, {})
            self._held_bytes += _cost_bytes(decoded.group, committed)
            if partition in known:
                self._held_bytes -= _cost_bytes(decoded.group, known[partition])
            known[partition] = committed
            return True
        offsets = self._groups.get(decoded.group)
        if offsets is not None:
            gone = offsets.pop(partition, None)
            if gone is not None:
                self._held_bytes -= _cost_bytes(decoded.group, gone)
            if not offsets:
                del self._groups[decoded.group]
        return True

    def fetch(
        self, group: str, partitions: Iterable[TopicPartition] | None = None
    ) -> dict[TopicPartition, CommittedOffset]:
        """The group's committed offsets, for `partitions` or for all; a partition without a commit is left out."""
        offsets = self._groups.get(group, {})
        if partitions is None:
            return dict(offsets)
        return {partition: offsets[partition] for partition in partitions if partition in offsets}

    def groups(self) -> list[str]:
        """Groups with at least one committed offset, in order of name."""
        return sorted(self._groups)

    def has_offsets(self, group: str) -> bool:
        return group in self._groups

    def plan_delete_group(self, group: str) -> list[GroupRecord]:
        """Tombstones for all commits of the group."""
        return self.plan_delete_offsets(group, self._groups.get(group, {}))

    def plan_delete_offsets(self, group: str, partitions: Iterable[TopicPartition]) -> list[GroupRecord]:
        """Tombstones for the group's commits in `partitions`."""
        offsets = self._groups.get(group, {})
        return [
            (encode_offset_key(OffsetKey(group, topic, number)), None)
            for topic, number in partitions
            if (topic, number) in offsets
        ]

    def plan_delete_topics(self, topics: Container[str]) -> list[tuple[str, list[GroupRecord]]]:
        """Per group, tombstones for its commits in `topics`: a topic of that name may be created again."""
        plans = []
        for group, offsets in self._groups.items():
            records = self.plan_delete_offsets(group, [partition for partition in offsets if partition[0] in topics])
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
            expired = [
                partition for partition, committed in offsets.items() if self._is_expired(committed, since_ms, now_ms)
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
    records: Iterable[tuple[bytes | None, bytes | None]],
    offsets: CommittedOffsets,
    groups: RestoresGroups,
    *,
    is_final: bool = True,
) -> list[CorruptGroupRecord]:
    """Rebuild both state machines from the records of `__consumer_offsets`, in log order.

    A malformed record is skipped and returned, so that one of them costs one committed offset and not all groups.
    Without `is_final` another call brings what was written since.
    """
    skipped: list[CorruptGroupRecord] = []
    newest_metadata: dict[bytes, bytes | None] = {}
    for key, value in records:
        try:
            if not offsets.apply(key, value) and key is not None:
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
