"""One consumer group as the coordinator knows it: members, epochs, who owns what, and how a member gets to its target.

Three epochs, each catching up with the one before: the group's rises when members, subscriptions or topics change; the
target's is the group's for which the target assignment was made; a member's is the target's once the member has given
back what it must. No time and no answers here.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple

from foldlog.broker.groups.consumer.assignors import ASSIGNORS, Candidate
from foldlog.broker.groups.consumer.messages import (
    JOIN_EPOCH,
    MemberState,
    TopicIdPartition,
)
from foldlog.broker.groups.consumer.topics import NO_TOPICS, TopicsImage
from foldlog.broker.groups.errors import GroupErrorCode
from foldlog.broker.groups.messages import GroupState

Assigned = Mapping[TopicIdPartition, int]
"""Partitions, each with the member's epoch at which it was assigned (KIP-1251)."""

NO_PARTITIONS: Final[frozenset[TopicIdPartition]] = frozenset()


class ClassicMetadata(NamedTuple):
    """Of a member that speaks the classic protocol: its session timeout, and its protocols in order of preference."""

    session_timeout_ms: int
    protocols: tuple[tuple[str, bytes], ...]


@dataclass(frozen=True, slots=True)
class ConsumerMember:
    """A member of a consumer group. Immutable: a change is another value, which `ConsumerGroup.put` takes in.

    `topics` are sorted, so that the same subscription in another order is no change. `revoking` is what it has to give
    back: it owns that until it reports without it.
    """

    member_id: str
    group_instance_id: str | None = None
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    topics: tuple[str, ...] = ()
    regex: str = ""
    rebalance_timeout_ms: int = -1
    assignor: str | None = None
    classic: ClassicMetadata | None = None
    epoch: int = JOIN_EPOCH
    previous_epoch: int = JOIN_EPOCH
    state: MemberState = MemberState.STABLE
    assigned: Assigned = field(default_factory=dict)
    revoking: Assigned = field(default_factory=dict)

    @property
    def is_classic(self) -> bool:
        return self.classic is not None

    def is_settled_at(self, target_epoch: int) -> bool:
        return self.state is MemberState.STABLE and self.epoch == target_epoch

    def metadata(self) -> tuple[object, ...]:
        """What is stored as its metadata: what it told of itself."""
        return (
            self.group_instance_id,
            self.rack_id,
            self.client_id,
            self.client_host,
            self.topics,
            self.regex,
            self.rebalance_timeout_ms,
            self.assignor,
            self.classic,
        )

    def said_bytes(self) -> int:
        """Bytes of its id and its subscription."""
        return sum(map(len, self.topics)) + len(self.regex) + len(self.member_id)

    def held_bytes(self) -> int:
        """Bytes of what the client chooses the length of, and about what its partitions take."""
        texts = (self.member_id, self.client_id, self.client_host, self.regex, self.rack_id or "", *self.topics)
        classic = 0 if self.classic is None else sum(len(name) + len(data) for name, data in self.classic.protocols)
        return sum(map(len, texts)) + classic + 32 * (len(self.assigned) + len(self.revoking))


def reconciled(
    member: ConsumerMember,
    target_epoch: int,
    target: frozenset[TopicIdPartition],
    is_free: Callable[[TopicIdPartition], bool],
    owned: frozenset[TopicIdPartition] | None,
) -> ConsumerMember:
    """The member one step nearer to its target, or as it is. `owned` is what it reports to read, None if it does not.

    A member first gives back what it must: until it reports without that it keeps its epoch, and gets nothing new,
    since its report cannot be told from one it made before. None reports nothing, so it confirms nothing.
    """
    if member.is_settled_at(target_epoch):
        return member
    epoch = member.epoch
    if member.state is MemberState.UNREVOKED_PARTITIONS:
        if _still_owns(owned, member.revoking):
            return member
        epoch += 1
    kept = {partition: since for partition, since in member.assigned.items() if partition in target}
    revoking = {partition: since for partition, since in member.assigned.items() if partition not in target}
    if revoking and _still_owns(owned, revoking):
        return replace(
            member,
            state=MemberState.UNREVOKED_PARTITIONS,
            epoch=epoch,
            previous_epoch=member.epoch,
            assigned=kept,
            revoking=revoking,
        )
    wanted = target - kept.keys()
    free = {partition for partition in wanted if is_free(partition)}
    state = MemberState.STABLE if len(free) == len(wanted) else MemberState.UNRELEASED_PARTITIONS
    kept.update(dict.fromkeys(free, target_epoch))
    return replace(member, state=state, epoch=target_epoch, previous_epoch=member.epoch, assigned=kept, revoking={})


def _still_owns(owned: frozenset[TopicIdPartition] | None, revoking: Assigned) -> bool:
    return owned is None or not owned.isdisjoint(revoking)


class ResolvedRegex(NamedTuple):
    """The topics that a regular expression found, and when, by the wall clock."""

    topics: frozenset[str]
    resolved_ms: int


@dataclass(slots=True)
class ConsumerGroup:
    """Mutable, owned by the coordinator. Members are in the order in which they joined.

    `owners` has the one member that owns a partition, assigned or not given back yet: that no partition has two is
    decided here. `seen` is the image of topics that the group's epoch takes into account. `assigned_ms` is when the
    target was made, in the clock's monotonic time; None if that was before a restart, or never.
    """

    group_id: str
    epoch: int = 0
    target_epoch: int = 0
    topics_hash: int = 0
    members: dict[str, ConsumerMember] = field(default_factory=dict)
    targets: dict[str, frozenset[TopicIdPartition]] = field(default_factory=dict)
    owners: dict[TopicIdPartition, str] = field(default_factory=dict)
    static_ids: dict[str, str] = field(default_factory=dict)
    regexes: dict[str, ResolvedRegex] = field(default_factory=dict)
    seen: TopicsImage | None = None
    assigned_ms: float | None = None
    empty_since_ms: int = -1

    @property
    def state(self) -> GroupState:
        if not self.members:
            return GroupState.EMPTY
        if self.epoch > self.target_epoch:
            return GroupState.ASSIGNING
        if all(member.is_settled_at(self.target_epoch) for member in self.members.values()):
            return GroupState.STABLE
        return GroupState.RECONCILING

    # --- members ------------------------------------------------------------------------------------------------------

    def put(self, member: ConsumerMember) -> None:
        """Take in a new member or a newer value of one. Its partitions must be free, or its own."""
        known = self.members.get(member.member_id)
        if known is not None:
            self._release(known)
        for partition in (*member.assigned, *member.revoking):
            owner = self.owners.setdefault(partition, member.member_id)
            if owner != member.member_id:
                raise AssertionError(f"{partition} has two owners in group {self.group_id!r}")
        self.members[member.member_id] = member
        if member.group_instance_id is not None:
            self.static_ids[member.group_instance_id] = member.member_id

    def remove(self, member_id: str) -> ConsumerMember:
        member = self.members.pop(member_id)
        self._release(member)
        self.targets.pop(member_id, None)
        if member.group_instance_id is not None and self.static_ids.get(member.group_instance_id) == member_id:
            del self.static_ids[member.group_instance_id]
        return member

    def _release(self, member: ConsumerMember) -> None:
        for partition in (*member.assigned, *member.revoking):
            self.owners.pop(partition, None)

    def is_free_for(self, member_id: str) -> Callable[[TopicIdPartition], bool]:
        return lambda partition: self.owners.get(partition, member_id) == member_id

    def check_member(self, member_id: str, group_instance_id: str | None) -> GroupErrorCode:
        """NONE if it is a current member, and the current one of its instance id."""
        if group_instance_id is not None:
            current = self.static_ids.get(group_instance_id)
            if current is None:
                return GroupErrorCode.UNKNOWN_MEMBER_ID
            if current != member_id:
                return GroupErrorCode.FENCED_INSTANCE_ID
        return GroupErrorCode.NONE if member_id in self.members else GroupErrorCode.UNKNOWN_MEMBER_ID

    def is_all_classic(self) -> bool:
        return bool(self.members) and all(member.is_classic for member in self.members.values())

    def common_classic_protocols(self) -> set[str] | None:
        """Protocols that all classic members offer; None if there are no such members."""
        offers = [{name for name, _ in member.classic.protocols} for member in self.members.values() if member.classic]
        return set.intersection(*offers) if offers else None

    def waits_for_others(self, member: ConsumerMember) -> bool:
        """Whether a partition of its target still has another owner."""
        is_free = self.is_free_for(member.member_id)
        target = self.targets.get(member.member_id, NO_PARTITIONS)
        return any(partition not in member.assigned and not is_free(partition) for partition in target)

    def has_to_rejoin(self, member: ConsumerMember) -> bool:
        """Whether a member of the classic protocol has to join again to get on."""
        if member.epoch < self.epoch or member.state is MemberState.UNREVOKED_PARTITIONS:
            return True
        return member.state is MemberState.UNRELEASED_PARTITIONS and not self.waits_for_others(member)

    # --- subscriptions and targets ------------------------------------------------------------------------------------

    def topics_of(self, member: ConsumerMember) -> frozenset[str]:
        found = self.regexes.get(member.regex)
        return frozenset(member.topics) | (found.topics if found is not None else frozenset())

    def subscribed_topics(self) -> frozenset[str]:
        return frozenset().union(*(self.topics_of(member) for member in self.members.values()))

    def assignor(self, default: str) -> str:
        """The one that most of the members who name one prefer; of equals the one that was named first."""
        votes = Counter(member.assignor for member in self.members.values() if member.assignor is not None)
        named = [name for name, _ in votes.most_common() if name in ASSIGNORS]
        return named[0] if named else default

    def new_targets(self, image: TopicsImage, default_assignor: str) -> dict[str, frozenset[TopicIdPartition]]:
        """The target of every member for the topics as they are now."""
        candidates = [
            Candidate(
                member.member_id,
                member.group_instance_id,
                image.ids(self.topics_of(member)),
                self.targets.get(member.member_id, NO_PARTITIONS),
            )
            for member in self.members.values()
        ]
        return ASSIGNORS[self.assignor(default_assignor)](candidates, image.counts(self.subscribed_topics()))

    # --- limits -------------------------------------------------------------------------------------------------------

    def held_bytes(self) -> int:
        regexes = sum(len(regex) + sum(map(len, found.topics)) for regex, found in self.regexes.items())
        return len(self.group_id) + regexes + sum(member.held_bytes() for member in self.members.values())


def named(partitions: Iterable[TopicIdPartition], image: TopicsImage = NO_TOPICS) -> tuple[tuple[str, int], ...]:
    """Partitions by the names of their topics; those of deleted topics are left out."""
    found = ((image.names.get(topic_id), number) for topic_id, number in partitions)
    return tuple(sorted((name, number) for name, number in found if name is not None))
