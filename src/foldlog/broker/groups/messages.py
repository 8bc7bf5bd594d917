"""Requests to the coordinator and its answers: plain values, as in Kafka's requests."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from foldlog.broker.groups.consumer.messages import ConsumerGroupSettings
from foldlog.broker.groups.errors import GroupErrorCode
from foldlog.broker.share.messages import ShareGroupSettings
from foldlog.errors import InvalidArgument, brief_repr
from foldlog.limits import (
    GROUP_MEMBERS_MAX,
    GROUP_PENDING_MEMBERS_MAX,
    GROUP_PROTOCOLS_MAX,
    GROUPS_MAX,
    MEMBER_METADATA_BYTES_MAX,
)

NO_MEMBER = ""
NO_GENERATION = -1

TIMEOUT_MAX_MS = (1 << 31) - 1
GROUP_NAME_BYTES_MAX = (1 << 15) - 1
LABEL_BYTES_MAX = 1 << 14
"""For ids, hosts and protocol names: an int16 holds their length, and a member id adds a UUID to one of them."""


class GroupState(StrEnum):
    """Kafka's names of the states, as in DescribeGroups."""

    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    ASSIGNING = "Assigning"  # of a consumer group: its target assignment is older than its epoch
    RECONCILING = "Reconciling"  # of a consumer group: members are on their way to the target
    STABLE = "Stable"
    DEAD = "Dead"


class GroupType(StrEnum):
    """Kafka's names of the protocols: in the classic one members assign partitions, in the others the coordinator. In a
    share group partitions have several readers, and each record goes to one of them."""

    CLASSIC = "classic"
    CONSUMER = "consumer"
    SHARE = "share"


@dataclass(frozen=True, slots=True)
class GroupSettings:
    """Broker settings, with Kafka's names in the comments where it has them."""

    initial_rebalance_delay_ms: int = 0  # group.initial.rebalance.delay.ms; Kafka waits 3 s for more members
    session_timeout_min_ms: int = (
        100  # group.min.session.timeout.ms; Kafka's 6 s is for networks, a library may be quick
    )
    session_timeout_max_ms: int = 1_800_000  # group.max.session.timeout.ms
    members_max: int = GROUP_MEMBERS_MAX  # group.max.size
    pending_members_max: int = GROUP_PENDING_MEMBERS_MAX
    groups_max: int = GROUPS_MAX
    consumer: ConsumerGroupSettings = field(default_factory=ConsumerGroupSettings)
    share: ShareGroupSettings = field(default_factory=ShareGroupSettings)


@dataclass(frozen=True, slots=True)
class JoinRequest:
    """`protocols` in order of preference; their metadata is opaque to the coordinator.

    `require_known_member_id` is KIP-394, for clients behind a network: the first join only hands out an id.
    `supports_skipping_assignment` is JoinGroup v9 (KIP-814).
    """

    group: str
    protocol_type: str
    protocols: tuple[tuple[str, bytes], ...]
    session_timeout_ms: int
    rebalance_timeout_ms: int
    member_id: str = NO_MEMBER
    group_instance_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    require_known_member_id: bool = False
    supports_skipping_assignment: bool = False

    def metadata_bytes(self) -> int:
        return sum(len(name) + len(metadata) for name, metadata in self.protocols)


@dataclass(frozen=True, slots=True)
class JoinedMember:
    """A member in the answer to the leader."""

    member_id: str
    group_instance_id: str | None
    metadata: bytes


@dataclass(frozen=True, slots=True)
class JoinResult:
    """`members` is filled for the leader only: the member whose `member_id` is `leader_id`."""

    error: GroupErrorCode
    member_id: str = NO_MEMBER
    generation: int = NO_GENERATION
    protocol_type: str | None = None
    protocol: str | None = None
    leader_id: str = NO_MEMBER
    members: tuple[JoinedMember, ...] = ()
    skip_assignment: bool = False

    @property
    def is_leader(self) -> bool:
        return self.error is GroupErrorCode.NONE and self.member_id == self.leader_id


@dataclass(frozen=True, slots=True)
class SyncRequest:
    """`assignments` by member id, from the leader; empty from the others."""

    group: str
    member_id: str
    generation: int
    assignments: Mapping[str, bytes] = field(default_factory=dict)
    group_instance_id: str | None = None
    protocol_type: str | None = None
    protocol: str | None = None


@dataclass(frozen=True, slots=True)
class SyncResult:
    """The member's assignment, opaque, and the protocol it is written in."""

    error: GroupErrorCode
    assignment: bytes = b""
    protocol_type: str | None = None
    protocol: str | None = None


@dataclass(frozen=True, slots=True)
class MemberIdentity:
    """A member that leaves: by member id, or, for a static member, by instance id alone."""

    member_id: str = NO_MEMBER
    group_instance_id: str | None = None


@dataclass(frozen=True, slots=True)
class LeaveResult:
    """The result for one member that leaves."""

    member: MemberIdentity
    error: GroupErrorCode


@dataclass(frozen=True, slots=True)
class GroupListing:
    """A line of ListGroups."""

    group: str
    protocol_type: str
    state: GroupState
    group_type: GroupType = GroupType.CLASSIC


@dataclass(frozen=True, slots=True)
class ConsumerMemberSummary:
    """What is known of a member of a consumer or share group only. Partitions are topic id, topic name and number."""

    member_epoch: int
    topics: tuple[str, ...]
    regex: str
    rack_id: str | None
    current: tuple[tuple[bytes, str, int], ...]
    target: tuple[tuple[bytes, str, int], ...]
    is_classic: bool


@dataclass(frozen=True, slots=True)
class MemberSummary:
    """A member as the coordinator knows it, with opaque bytes. `metadata` and `assignment` are filled only while the
    group is stable. MemberDescription is the form for users."""

    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    metadata: bytes
    assignment: bytes
    consumer: ConsumerMemberSummary | None = None


@dataclass(frozen=True, slots=True)
class GroupSummary:
    """A group as in DescribeGroups; `protocol` is filled only while it is stable. GroupDescription is the form for
    users, with the assignments decoded. Of a consumer group `protocol` is its assignor and `generation` its epoch."""

    group: str
    state: GroupState
    protocol_type: str = ""
    protocol: str = ""
    generation: int = NO_GENERATION
    leader: str = NO_MEMBER
    members: tuple[MemberSummary, ...] = ()
    group_type: GroupType = GroupType.CLASSIC
    assignment_epoch: int = NO_GENERATION


JoinReply = Callable[[JoinResult], None]
SyncReply = Callable[[SyncResult], None]


def check_group_name(group: object) -> str:
    """The name, if it is valid; else raises InvalidArgument with what is wrong."""
    if not isinstance(group, str) or not group:
        raise InvalidArgument(f"a group's name is a string and not empty, but {brief_repr(group)} was given")
    if not fits(group, GROUP_NAME_BYTES_MAX):
        raise InvalidArgument(
            f"{brief_repr(group)} cannot be a group's name: it has to be UTF-8 of at most {GROUP_NAME_BYTES_MAX} bytes"
        )
    return group


def refuse_malformed(request: JoinRequest, settings: GroupSettings) -> GroupErrorCode:
    """The code for a request that no group accepts, checked before anything is stored; else NONE."""
    if not request.group or not fits(request.group, GROUP_NAME_BYTES_MAX):
        return GroupErrorCode.INVALID_GROUP_ID
    if not settings.session_timeout_min_ms <= request.session_timeout_ms <= settings.session_timeout_max_ms:
        return GroupErrorCode.INVALID_SESSION_TIMEOUT
    if not 1 <= request.rebalance_timeout_ms <= TIMEOUT_MAX_MS:
        return GroupErrorCode.INVALID_SESSION_TIMEOUT
    names = [name for name, _ in request.protocols]
    if not request.protocol_type or not names or len(set(names)) != len(names):
        return GroupErrorCode.INCONSISTENT_GROUP_PROTOCOL
    labels = (request.protocol_type, request.client_id, request.client_host, request.group_instance_id or "", *names)
    if len(names) > GROUP_PROTOCOLS_MAX or not all(fits(label, LABEL_BYTES_MAX) for label in labels):
        return GroupErrorCode.INVALID_REQUEST
    if request.metadata_bytes() > MEMBER_METADATA_BYTES_MAX:
        return GroupErrorCode.INVALID_REQUEST
    return GroupErrorCode.NONE


def fits(text: str, bytes_max: int) -> bool:
    """Whether the text can be written as a Kafka string of at most that many bytes."""
    try:
        return len(text.encode("utf-8")) <= bytes_max
    except UnicodeEncodeError:
        return False
