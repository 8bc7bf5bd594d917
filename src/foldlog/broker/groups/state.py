"""One group as the coordinator knows it: members, votes, and its stored form.

No time and no answers here; `coordinator.py` decides when things happen and who is answered.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from foldlog.broker.groups.errors import GroupErrorCode
from foldlog.broker.groups.messages import (
    NO_MEMBER,
    GroupState,
    GroupSummary,
    JoinedMember,
    JoinReply,
    JoinRequest,
    MemberSummary,
    SyncReply,
)
from foldlog.broker.groups.offsets_format import NO_TIMESTAMP, StoredGroup, StoredMember
from foldlog.broker.kafka_files.bytes import BytesReader
from foldlog.errors import CorruptGroupRecord, MalformedBytes
from foldlog.limits import GROUPS_METADATA_BYTES_MAX

CONSUMER_PROTOCOL_TYPE = "consumer"


@dataclass(slots=True)
class GroupMember:
    """A member of one group. Mutable, owned by the coordinator. At any time it either waits for an answer (`parked_…`)
    or has a session deadline."""

    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocols: dict[str, bytes]
    assignment: bytes = b""
    is_new: bool = True
    parked_join: JoinReply | None = None
    parked_sync: SyncReply | None = None

    @classmethod
    def from_request(cls, member_id: str, request: JoinRequest) -> GroupMember:
        return cls(
            member_id,
            request.group_instance_id,
            request.client_id,
            request.client_host,
            request.session_timeout_ms,
            request.rebalance_timeout_ms,
            dict(request.protocols),
        )

    def update(self, request: JoinRequest) -> None:
        self.client_id = request.client_id
        self.client_host = request.client_host
        self.session_timeout_ms = request.session_timeout_ms
        self.rebalance_timeout_ms = request.rebalance_timeout_ms
        self.protocols = dict(request.protocols)

    def offers_exactly(self, request: JoinRequest) -> bool:
        """Whether protocols, metadata and order of preference are the same as before."""
        return tuple(self.protocols.items()) == request.protocols

    def metadata_bytes(self) -> int:
        return sum(len(name) + len(metadata) for name, metadata in self.protocols.items())


@dataclass(slots=True)
class Group:
    """Mutable, owned by the coordinator. Members are in the order in which they joined."""

    group_id: str
    state: GroupState = GroupState.EMPTY
    state_timestamp_ms: int = NO_TIMESTAMP
    protocol_type: str = ""
    protocol: str | None = None
    generation: int = 0
    leader: str | None = None
    members: dict[str, GroupMember] = field(default_factory=dict)
    static_ids: dict[str, str] = field(default_factory=dict)
    pending_ids: set[str] = field(default_factory=set)
    awaiting_sync: set[str] = field(default_factory=set)
    # How much longer new members may extend the initial delay; None while it does not run.
    initial_delay_left_ms: float | None = None
    joined_during_delay: bool = False

    def add(self, member: GroupMember) -> None:
        self.members[member.member_id] = member
        if member.group_instance_id is not None:
            self.static_ids[member.group_instance_id] = member.member_id
        if self.leader is None:
            self.leader = member.member_id

    def remove(self, member_id: str) -> None:
        member = self.members.pop(member_id)
        if member.group_instance_id is not None and self.static_ids.get(member.group_instance_id) == member_id:
            del self.static_ids[member.group_instance_id]
        self.awaiting_sync.discard(member_id)
        if self.leader == member_id:
            self.leader = next(iter(self.members), None)

    def rename_static(self, old_id: str, new_id: str) -> GroupMember:
        """Give the member a new member id: another process has taken over its instance id."""
        member = self.members[old_id]
        member.member_id = new_id
        self.members = {new_id if key == old_id else key: value for key, value in self.members.items()}
        if member.group_instance_id is not None:
            self.static_ids[member.group_instance_id] = new_id
        if self.leader == old_id:
            self.leader = new_id
        if old_id in self.awaiting_sync:
            self.awaiting_sync.remove(old_id)
            self.awaiting_sync.add(new_id)
        return member

    def check_member(self, member_id: str, group_instance_id: str | None) -> GroupErrorCode:
        """NONE if it is a current member, and the current one of its instance id."""
        if group_instance_id is not None:
            current = self.static_ids.get(group_instance_id)
            if current is None:
                return GroupErrorCode.UNKNOWN_MEMBER_ID
            if current != member_id:
                return GroupErrorCode.FENCED_INSTANCE_ID
        return GroupErrorCode.NONE if member_id in self.members else GroupErrorCode.UNKNOWN_MEMBER_ID

    def is_leader(self, member_id: str) -> bool:
        return self.leader == member_id

    def accepts_protocols(self, protocol_type: str, names: Iterable[str]) -> bool:
        """Whether at least one of `names` is offered by every member."""
        if not self.members:
            return True
        return protocol_type == self.protocol_type and not self._common_protocols().isdisjoint(names)

    def select_protocol(self) -> str | None:
        """Of the protocols that all members offer, the one most prefer; in a tie, the one the leader prefers."""
        common = self._common_protocols()
        votes = dict.fromkeys(common, 0)
        for member in self.members.values():
            choice = next((name for name in member.protocols if name in common), None)
            if choice is not None:
                votes[choice] += 1
        if self.leader is None or not votes:
            return None
        leaders_order = list(self.members[self.leader].protocols)
        return max(common, key=lambda name: (votes[name], -leaders_order.index(name)))

    def _common_protocols(self) -> set[str]:
        offers = [member.protocols.keys() for member in self.members.values()]
        return set(offers[0]).intersection(*offers[1:]) if offers else set()

    def all_joined(self) -> bool:
        return not self.pending_ids and all(member.parked_join is not None for member in self.members.values())

    def elect_joined_leader(self) -> bool:
        """Keep the leader if it has joined again, else take the first member that has. False if there is none."""
        if self.leader is not None and self.members[self.leader].parked_join is not None:
            return True
        joined = next((member.member_id for member in self.members.values() if member.parked_join is not None), None)
        if joined is None:
            return False
        self.leader = joined
        return True

    def begin_generation(self) -> None:
        self.generation += 1
        self.protocol = self.select_protocol()
        self.awaiting_sync.clear()
        if not self.members:
            self.leader = None

    def rebalance_timeout_ms(self) -> int:
        return max((member.rebalance_timeout_ms for member in self.members.values()), default=0)

    def metadata_bytes(self, without: str = NO_MEMBER) -> int:
        return sum(member.metadata_bytes() for member in self.members.values() if member.member_id != without)

    def held_bytes(self) -> int:
        """Bytes of the members' metadata, assignments and names: clients choose how long these are."""
        names = len(self.group_id) + sum(map(len, self.pending_ids))
        return names + sum(
            member.metadata_bytes() + len(member.assignment) + len(member.member_id) + len(member.client_id)
            for member in self.members.values()
        )

    def joined_members(self) -> tuple[JoinedMember, ...]:
        """The members with their metadata, for the leader to assign."""
        return tuple(
            JoinedMember(member.member_id, member.group_instance_id, self.metadata_of(member))
            for member in self.members.values()
        )

    def metadata_of(self, member: GroupMember) -> bytes:
        return member.protocols.get(self.protocol, b"") if self.protocol is not None else b""

    def is_unused(self) -> bool:
        """Whether it never had a generation, and no join is pending: nothing is lost by forgetting it."""
        return self.generation == 0 and not self.members and not self.pending_ids

    def describe(self) -> GroupSummary:
        stable = self.state is GroupState.STABLE
        return GroupSummary(
            self.group_id,
            self.state,
            self.protocol_type,
            (self.protocol or "") if stable else "",
            self.generation,
            self.leader or NO_MEMBER,
            tuple(
                MemberSummary(
                    member.member_id,
                    member.group_instance_id,
                    member.client_id,
                    member.client_host,
                    self.metadata_of(member) if stable else b"",
                    member.assignment if stable else b"",
                )
                for member in self.members.values()
            ),
        )

    def subscribed_topics(self) -> frozenset[str] | None:
        """Topics of all members, or None if their metadata is not ConsumerProtocol's."""
        topics: frozenset[str] = frozenset()
        for member in self.members.values():
            wanted = self.topics_of(member)
            if wanted is None:
                return None
            topics |= wanted
        return topics

    def topics_of(self, member: GroupMember) -> frozenset[str] | None:
        if self.protocol_type != CONSUMER_PROTOCOL_TYPE:
            return None
        protocol = self.protocol if self.protocol is not None else next(iter(member.protocols), "")
        return _consumer_topics(member.protocols.get(protocol, b""))

    def to_stored(self) -> StoredGroup:
        return StoredGroup(
            self.protocol_type,
            self.generation,
            self.protocol,
            self.leader,
            self.state_timestamp_ms,
            tuple(
                StoredMember(
                    member.member_id,
                    member.group_instance_id,
                    member.client_id,
                    member.client_host,
                    member.rebalance_timeout_ms,
                    member.session_timeout_ms,
                    self.metadata_of(member),
                    member.assignment,
                )
                for member in self.members.values()
            ),
        )

    @classmethod
    def from_stored(cls, group_id: str, stored: StoredGroup) -> Group:
        """The group of a record that passed `check_stored`; stable if it has members, since only then it is stored."""
        group = cls(
            group_id,
            GroupState.STABLE if stored.members else GroupState.EMPTY,
            stored.state_timestamp_ms,
            stored.protocol_type,
            stored.protocol,
            stored.generation,
        )
        for kept in stored.members:
            protocols = {stored.protocol or "": kept.subscription}
            group.add(
                GroupMember(
                    kept.member_id,
                    kept.group_instance_id,
                    kept.client_id,
                    kept.client_host,
                    kept.session_timeout_ms,
                    kept.rebalance_timeout_ms,
                    protocols,
                    kept.assignment,
                    is_new=False,
                )
            )
        group.leader = stored.leader if stored.leader in group.members else next(iter(group.members), None)
        return group


class MetadataBudget:
    """What the groups of a coordinator hold of what clients choose the length of, and whether there is room for more.

    One owner at a time: the coordinator's.
    """

    def __init__(self) -> None:
        self._held: dict[str, int] = {}
        self._held_bytes = 0

    def has_room(self, more_bytes: int) -> bool:
        return more_bytes <= 0 or self._held_bytes + more_bytes <= GROUPS_METADATA_BYTES_MAX

    def count(self, group_id: str, held_bytes: int) -> None:
        """Note what a group holds now, instead of what it held."""
        self._held_bytes += held_bytes - self._held.pop(group_id, 0)
        if held_bytes:
            self._held[group_id] = held_bytes


def check_stored(key: bytes, stored: StoredGroup) -> None:
    """Refuse a record that the coordinator never writes: it could not continue from it."""
    if stored.generation < 0:
        raise CorruptGroupRecord(key, f"generation {stored.generation} cannot exist")
    if stored.members and (not stored.protocol or not stored.protocol_type):
        raise CorruptGroupRecord(key, "it has members and no protocol")
    if any(member.session_timeout_ms <= 0 or member.rebalance_timeout_ms <= 0 for member in stored.members):
        raise CorruptGroupRecord(key, "a member has no timeout")
    instances = [member.group_instance_id for member in stored.members if member.group_instance_id is not None]
    if len(set(instances)) != len(instances) or not all(member.member_id for member in stored.members):
        raise CorruptGroupRecord(key, "its members cannot be told apart")


def _consumer_topics(metadata: bytes) -> frozenset[str] | None:
    """The topics of a ConsumerProtocol subscription; they come first in every version of it."""
    reader = BytesReader(metadata, "consumer subscription")
    try:
        reader.int16()
        return frozenset(reader.string() for _ in range(reader.array_count(item_bytes_min=2)))
    except MalformedBytes:
        return None
