"""What members of share groups ask and hear, and the settings of share groups: plain values, as in Kafka's requests."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import Final, NamedTuple

from foldlog.broker.groups.consumer.messages import TopicIdPartition
from foldlog.limits import GROUP_MEMBERS_MAX


class RecordState(IntEnum):
    """The state of a record in one share group: Kafka's numbers, as stored. ACQUIRED is never stored: whoever finds
    the state after a crash knows nothing of the members from before."""

    AVAILABLE = 0
    ACQUIRED = 1
    ACKNOWLEDGED = 2
    ARCHIVED = 4

    @property
    def is_final(self) -> bool:
        return self in (RecordState.ACKNOWLEDGED, RecordState.ARCHIVED)


class AcknowledgeType(IntEnum):
    """What a member says of a record that it took: Kafka's numbers."""

    GAP = 0  # there is no such record, as after a compaction
    ACCEPT = 1
    RELEASE = 2
    REJECT = 3
    RENEW = 4  # the member needs more time


class AcknowledgedBatch(NamedTuple):
    """Acknowledgements of the offsets from `first` to `last`, both included: one type for all, or one for each."""

    first: int
    last: int
    types: tuple[AcknowledgeType, ...]


class AcquiredRange(NamedTuple):
    """Records from `first` to `last`, both included, that a member has acquired, for the `delivery_count`th time."""

    first: int
    last: int
    delivery_count: int


class StateBatch(NamedTuple):
    """Records from `first` to `last`, both included, and their state as it is stored."""

    first: int
    last: int
    state: RecordState
    delivery_count: int


SharePartitionKey = tuple[str, bytes, int]
"""A partition in a share group: the group, the topic's id and the number."""

NO_OFFSET: Final = -1


@dataclass(frozen=True, slots=True)
class ShareLimits:
    """What bounds a share group's work on a partition, with Kafka's names for the broker in the comments."""

    record_lock_duration_ms: int = 30_000  # group.share.record.lock.duration.ms
    delivery_count_limit: int = 5  # group.share.delivery.count.limit
    record_locks_max: int = 2_000  # group.share.partition.max.record.locks


@dataclass(frozen=True, slots=True)
class ShareGroupSettings:
    """Broker settings of share groups, with Kafka's names in the comments."""

    limits: ShareLimits = ShareLimits()
    record_lock_duration_min_ms: int = 15_000  # group.share.min.record.lock.duration.ms
    record_lock_duration_max_ms: int = 60_000  # group.share.max.record.lock.duration.ms
    session_timeout_ms: int = 45_000  # group.share.session.timeout.ms
    session_timeout_min_ms: int = 100  # group.share.min.session.timeout.ms; Kafka's is 45 s
    session_timeout_max_ms: int = 60_000  # group.share.max.session.timeout.ms
    heartbeat_interval_ms: int = 5_000  # group.share.heartbeat.interval.ms
    heartbeat_interval_min_ms: int = 10  # group.share.min.heartbeat.interval.ms; Kafka's is 5 s
    heartbeat_interval_max_ms: int = 15_000  # group.share.max.heartbeat.interval.ms
    assignment_interval_ms: int = 0  # group.share.assignment.interval.ms; Kafka's is 1 s
    assignment_interval_min_ms: int = 0  # group.share.min.assignment.interval.ms
    assignment_interval_max_ms: int = 15_000  # group.share.max.assignment.interval.ms
    members_max: int = GROUP_MEMBERS_MAX  # group.share.max.size
    sessions_max: int = 2_000  # group.share.max.share.sessions


@dataclass(frozen=True, slots=True)
class ShareHeartbeat:
    """What a member of a share group says of itself; None says that it is as before."""

    group: str
    member_id: str
    member_epoch: int
    rack_id: str | None = None
    topics: tuple[str, ...] | None = None
    client_id: str = ""
    client_host: str = ""


Assigned = frozenset[TopicIdPartition]
