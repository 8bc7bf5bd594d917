"""What a member of a group holds, and how partitions are assigned: shared by members of this process's own broker and
of a broker in another process.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from foldlog.broker.groups.committed import OffsetAndMetadata
from foldlog.broker.groups.consumer_protocol import (
    Assignment,
    Subscription,
    decode_assignment,
    decode_subscription,
    encode_assignment,
    encode_sticky_user_data,
    encode_subscription,
)
from foldlog.broker.groups.messages import NO_GENERATION, NO_MEMBER, JoinedMember
from foldlog.broker.topics.catalog import CatalogTopic
from foldlog.client.backends.backend import DirectoryBroker
from foldlog.client.consumer.assignors import ASSIGNORS
from foldlog.client.isolation import readable
from foldlog.client.positions import TopicPartition
from foldlog.errors import (
    CorruptLog,
    FoldlogError,
    IllegalGeneration,
    InvalidArgument,
    MalformedBytes,
    NotAssigned,
    RebalanceInProgress,
    UnknownMember,
    UnknownTopic,
)


class Since(NamedTuple):
    """From when on a partition is held without a break. The generation alone does not tell: those of a group that was
    deleted begin anew."""

    member_id: str
    generation: int


@dataclass(frozen=True, slots=True)
class Held:
    """What a member holds in one generation, and since when."""

    member_id: str
    generation: int
    since: Mapping[TopicPartition, Since]


NOTHING_HELD = Held(NO_MEMBER, NO_GENERATION, {})


@dataclass(eq=False, slots=True)
class Member:
    """One consumer's membership in its group. Written by the thread that drives it; `held` is read by any thread."""

    group: str
    topics: tuple[str, ...]
    assignors: tuple[str, ...]
    instance_id: str | None
    max_poll_interval_ms: int
    wake: Callable[[], None]
    before_rebalance: Callable[[], None]
    """Commits handled records; called on the thread that starts a rebalance, before it does."""
    is_busy: Callable[[], bool]
    """Whether handed-out records are not handled yet. Called on the thread that drives the membership."""
    begins_at_end: bool = False
    """Whether it begins at the end where nothing is committed, by its auto_offset_reset."""
    committed: bool | None = None
    """Whether it reads only committed records, whose end is the last stable offset."""
    held: Held = NOTHING_HELD
    starts: dict[TopicPartition, int] = field(default_factory=dict)
    """The end of each partition when it was assigned to this member: the position of "latest"."""
    refusal: FoldlogError | None = None
    member_id: str = NO_MEMBER
    generation: int = NO_GENERATION
    is_joining: bool = False
    """Nothing is handed out meanwhile: it might be assigned to another member."""
    is_called: bool = False
    """The group rebalances, and waits for this member to be polled."""
    counts: dict[str, int] = field(default_factory=dict)
    """Partition counts of its topics at its last assignment: later partitions are read from their start."""

    def lose_membership(self) -> None:
        """It is no member any more, and holds nothing: it was silent for too long, or left."""
        self.member_id, self.generation = NO_MEMBER, NO_GENERATION
        self.held = NOTHING_HELD
        self.wake()


def beginnings(members: Iterable[Member]) -> dict[TopicPartition, int]:
    """The start offsets of those members that begin at the end."""
    return {
        partition: member.starts[partition]
        for member in members
        if member.begins_at_end
        for partition in member.held.since
        if partition in member.starts
    }


def offered_protocols(member: Member) -> tuple[tuple[str, bytes], ...]:
    """The member's join metadata: for each of its assignors what it wants, and what it holds."""
    held = member.held
    owned = tuple(held.since)
    subscription = Subscription(
        member.topics,
        owned,
        held.generation,
        encode_sticky_user_data(owned, held.generation) if owned else None,
    )
    return tuple((assignor, encode_subscription(subscription)) for assignor in member.assignors)


def subscriptions_of(members: Iterable[JoinedMember]) -> dict[str, Subscription]:
    """All members' subscriptions by member id, for the leader."""
    subscriptions: dict[str, Subscription] = {}
    for one in members:
        try:
            wanted = decode_subscription(one.metadata)
        except MalformedBytes:
            wanted = Subscription(())  # a member with an unknown format gets nothing
        subscriptions[one.member_id] = replace(wanted, group_instance_id=one.group_instance_id)
    return subscriptions


def shares(
    backend: DirectoryBroker, protocol: str | None, subscriptions: Mapping[str, Subscription]
) -> dict[str, bytes]:
    """The leader's task: the assignment of each member."""
    counts = counts_of(backend, (topic for wanted in subscriptions.values() for topic in wanted.topics))
    assigned = ASSIGNORS[protocol or ""](subscriptions, counts)
    return {member_id: encode_assignment(Assignment(tuple(partitions))) for member_id, partitions in assigned.items()}


def take_share(backend: DirectoryBroker, member: Member, generation: int, assignment: bytes) -> None:
    """Give the member its assignment; its consumer finds it in `held`, and is to be woken."""
    before = member.held.since if member.held.member_id == member.member_id else {}
    since: dict[TopicPartition, Since] = {}
    for topic, number in decode_assignment(assignment).partitions:
        partition = TopicPartition(topic, number)
        since[partition] = before.get(partition, Since(member.member_id, generation))
        if partition not in before:
            _note_start(backend, member, partition)
    member.counts = counts_of(backend, member.topics)
    member.held = Held(member.member_id, generation, since)


def _note_start(backend: DirectoryBroker, member: Member, partition: TopicPartition) -> None:
    try:
        log = readable(backend.partition(*partition), member.committed)
    except (CorruptLog, UnknownTopic):
        return  # the consumer reports it when it begins to read
    appeared_later = partition.partition >= member.counts.get(partition.topic, partition.partition + 1)
    member.starts[partition] = log.log_start_offset if appeared_later else log.high_watermark


def commit_as_member(
    backend: DirectoryBroker,
    member: Member,
    offsets: Mapping[TopicPartition, OffsetAndMetadata],
    since: Mapping[TopicPartition, Since],
) -> None:
    """See `GroupMemberships.commit`."""
    while True:
        held = member.held
        # It may have lost a partition and have it back by now. What it read before is not to be committed then: the
        # group was moved, or another member has come further.
        lost = [one for one in offsets if one not in held.since or since.get(one, held.since[one]) != held.since[one]]
        if lost:
            raise not_assigned(lost, member.group)
        try:
            # The coordinator accepts it only in the generation in which the member holds them all.
            backend.commit_offsets(
                member.group,
                dict(offsets.items()),
                member_id=held.member_id,
                generation=held.generation,
                instance_id=member.instance_id,
            )
        except (IllegalGeneration, RebalanceInProgress, UnknownMember):
            if member.held is held:
                raise
        else:
            return


def counts_of(backend: DirectoryBroker, topics: Iterable[str]) -> dict[str, int]:
    """How many partitions each of these topics has; deleted ones are left out."""
    known = [topic_or_none(backend, name) for name in topics]
    return {topic.name: topic.partition_count for topic in known if topic is not None}


def topic_or_none(backend: DirectoryBroker, name: str) -> CatalogTopic | None:
    """The topic, or None if it was deleted."""
    try:
        return backend.topic(name)
    except UnknownTopic:
        return None


def not_assigned(partitions: Iterable[TopicPartition], group: str) -> NotAssigned:
    names = ", ".join(f"{topic}-{number}" for topic, number in sorted(partitions))
    return NotAssigned(
        f"{names} is not assigned to this member of group {group!r} any more, so nothing can be committed there;"
        " whoever reads it now goes on from the last commit"
    )


def without_group() -> InvalidArgument:
    return InvalidArgument("this consumer has no group, so it commits nothing; give it one: group='name'")


def commits_by_itself(group: str) -> InvalidArgument:
    return InvalidArgument(
        f"this consumer of group {group!r} commits by itself, and so also what a transaction has not committed; make it"
        " with auto_commit=False"
    )


def weak_call(method: Callable[[], Any]) -> Callable[[], Any]:
    """A call of `method` that does not keep its object alive, and returns None once that is gone: a dropped consumer
    must not live on in its group."""
    weak = weakref.WeakMethod(method)

    def call() -> Any:
        alive = weak()
        return None if alive is None else alive()

    return call
