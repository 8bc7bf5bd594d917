"""Heartbeats of the consumer protocol, their answers, and its settings: plain values, as in Kafka's requests."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum, StrEnum
from typing import Final

from foldlog.broker.groups.errors import GroupErrorCode
from foldlog.limits import GROUP_MEMBERS_MAX

JOIN_EPOCH: Final = 0
LEAVE_EPOCH: Final = -1
STATIC_LEAVE_EPOCH: Final = -2
"""A static member goes and will be back: its partitions stay its own until its session ends."""

NO_TIMEOUT: Final = -1

TopicIdPartition = tuple[bytes, int]
"""A partition by its topic's id: a topic that is deleted and created again is another one."""


class MemberState(IntEnum):
    """Where a member is on its way to its target assignment; Kafka's numbers, as stored."""

    STABLE = 0
    UNREVOKED_PARTITIONS = 1  # it has to give some back first
    UNRELEASED_PARTITIONS = 2  # it waits for some that others have to give back
    UNKNOWN = 127


class MigrationPolicy(StrEnum):
    """group.consumer.migration.policy: which way a group may go between the classic and the consumer protocol."""

    BIDIRECTIONAL = "bidirectional"
    UPGRADE = "upgrade"
    DOWNGRADE = "downgrade"
    DISABLED = "disabled"

    @property
    def may_upgrade(self) -> bool:
        return self in (MigrationPolicy.BIDIRECTIONAL, MigrationPolicy.UPGRADE)

    @property
    def may_downgrade(self) -> bool:
        return self in (MigrationPolicy.BIDIRECTIONAL, MigrationPolicy.DOWNGRADE)


@dataclass(frozen=True, slots=True)
class ConsumerGroupSettings:
    """Broker settings, with Kafka's names in the comments. The first of `assignors` is the default."""

    session_timeout_ms: int = 45_000  # group.consumer.session.timeout.ms
    session_timeout_min_ms: int = 100  # group.consumer.min.session.timeout.ms; Kafka's is 45 s
    session_timeout_max_ms: int = 60_000  # group.consumer.max.session.timeout.ms
    heartbeat_interval_ms: int = 5_000  # group.consumer.heartbeat.interval.ms
    heartbeat_interval_min_ms: int = 10  # group.consumer.min.heartbeat.interval.ms; Kafka's is 5 s
    heartbeat_interval_max_ms: int = 15_000  # group.consumer.max.heartbeat.interval.ms
    assignment_interval_ms: int = 0  # group.consumer.assignment.interval.ms; Kafka's is 1 s
    assignment_interval_min_ms: int = 0  # group.consumer.min.assignment.interval.ms
    assignment_interval_max_ms: int = 15_000  # group.consumer.max.assignment.interval.ms
    members_max: int = GROUP_MEMBERS_MAX  # group.consumer.max.size
    assignors: tuple[str, ...] = ("uniform", "range")  # group.consumer.assignors
    migration_policy: MigrationPolicy = MigrationPolicy.BIDIRECTIONAL  # group.consumer.migration.policy


def _sees_all(topic: str) -> bool:
    return True


@dataclass(frozen=True, slots=True)
class MemberHeartbeat:
    """What a member says; None, and -1 for the timeout, say that it is as before.

    `owned` is what it reads now. `sees` tells which topics its regular expression may find.
    """

    group: str
    member_id: str
    member_epoch: int
    group_instance_id: str | None = None
    rack_id: str | None = None
    rebalance_timeout_ms: int = NO_TIMEOUT
    topics: tuple[str, ...] | None = None
    regex: str | None = None
    assignor: str | None = None
    owned: frozenset[TopicIdPartition] | None = None
    client_id: str = ""
    client_host: str = ""
    sees: Callable[[str], bool] = _sees_all

    @property
    def is_full(self) -> bool:
        """Whether it says everything, as after a failed request: the member then wants to hear everything, too."""
        has_subscription = self.topics is not None or self.regex is not None
        is_complete = self.rebalance_timeout_ms != NO_TIMEOUT and has_subscription and self.owned is not None
        return self.member_epoch == JOIN_EPOCH or is_complete


@dataclass(frozen=True, slots=True)
class HeartbeatResult:
    """The answer. `assignment` is None if it is as before; `message` says what was wrong."""

    error: GroupErrorCode
    message: str | None = None
    member_id: str = ""
    member_epoch: int = 0
    heartbeat_interval_ms: int = 0
    assignment: frozenset[TopicIdPartition] | None = None
