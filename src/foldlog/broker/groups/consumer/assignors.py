"""The assignors of the coordinator: which member of a consumer group should read which partitions. Pure.

`uniform` gives every member as many partitions as any other, as nearly as subscriptions allow, and moves as few as
possible. `range` gives each member neighbouring partitions of each topic, so that topics with equally many partitions
are divided alike: a join of two topics by key finds both sides at one member.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from foldlog.broker.groups.consumer.messages import TopicIdPartition


@dataclass(frozen=True, slots=True)
class Candidate:
    """A member to assign to: the ids of the topics it wants, and its present target."""

    member_id: str
    group_instance_id: str | None
    topics: frozenset[bytes]
    target: frozenset[TopicIdPartition]


Targets = dict[str, frozenset[TopicIdPartition]]
"""By member id; every member is in it."""

PartitionCounts = Mapping[bytes, int]
"""Partitions of each subscribed topic, by its id. In the order of the topics' names."""


def assign_range(members: Iterable[Candidate], counts: PartitionCounts) -> Targets:
    """
    >>> members = [Candidate(name, None, frozenset({b"t"}), frozenset()) for name in ("a", "b")]
    >>> {name: sorted(number for _, number in target) for name, target in assign_range(members, {b"t": 5}).items()}
    {'a': [0, 1, 2], 'b': [3, 4]}
    """
    # Static members first, by what stays the same when they restart.
    ordered = sorted(members, key=lambda one: (one.group_instance_id is None, one.group_instance_id or one.member_id))
    targets: dict[str, set[TopicIdPartition]] = {one.member_id: set() for one in ordered}
    for topic, count in counts.items():
        readers = [one.member_id for one in ordered if topic in one.topics]
        at = 0
        for index, reader in enumerate(readers):
            share = count // len(readers) + (index < count % len(readers))
            targets[reader].update((topic, number) for number in range(at, at + share))
            at += share
    return {member: frozenset(target) for member, target in targets.items()}


def assign_uniform(members: Iterable[Candidate], counts: PartitionCounts) -> Targets:
    """
    >>> members = [Candidate(name, None, frozenset({b"t"}), frozenset()) for name in ("a", "b")]
    >>> {name: len(target) for name, target in assign_uniform(members, {b"t": 5}).items()}
    {'a': 3, 'b': 2}
    """
    ordered = sorted(members, key=lambda one: one.member_id)
    kept = _kept(ordered, counts)
    taken = set().union(*kept.values()) if kept else set()
    free = [(topic, number) for topic, count in counts.items() for number in range(count)]
    free = [partition for partition in free if partition not in taken]
    if all(one.topics >= counts.keys() for one in ordered):
        _deal_evenly(ordered, kept, free)
    else:
        _deal_by_subscription(ordered, kept, free, counts)
    return {member: frozenset(target) for member, target in kept.items()}


def _kept(members: list[Candidate], counts: PartitionCounts) -> dict[str, set[TopicIdPartition]]:
    """What each member has now and may keep: partitions that exist, of topics it wants, each at one member."""
    kept: dict[str, set[TopicIdPartition]] = {}
    seen: set[TopicIdPartition] = set()
    for one in members:
        kept[one.member_id] = {
            (topic, number)
            for topic, number in one.target
            if topic in one.topics and number < counts.get(topic, 0) and (topic, number) not in seen
        }
        seen |= kept[one.member_id]
    return kept


def _deal_evenly(
    members: list[Candidate], kept: dict[str, set[TopicIdPartition]], free: list[TopicIdPartition]
) -> None:
    """All want the same topics: everyone gets the same number, and some get one more."""
    total = len(free) + sum(map(len, kept.values()))
    least, extra = divmod(total, len(members))
    # Who has most now gets the one more: then it has to give back one less.
    quotas: dict[str, int] = {}
    for one in sorted(members, key=lambda one: -len(kept[one.member_id])):
        quotas[one.member_id] = least + (extra > 0)
        extra -= extra > 0
    given_back: list[TopicIdPartition] = []
    for member, quota in quotas.items():
        surplus = sorted(kept[member])[quota:]
        kept[member].difference_update(surplus)
        given_back += surplus
    waiting = sorted(given_back) + free
    # One at a time to each, so that the partitions of one topic are spread.
    hungry = [one.member_id for one in members if len(kept[one.member_id]) < quotas[one.member_id]]
    while waiting:
        for member in hungry:
            if waiting and len(kept[member]) < quotas[member]:
                kept[member].add(waiting.pop(0))
        hungry = [member for member in hungry if len(kept[member]) < quotas[member]]


def _deal_by_subscription(
    members: list[Candidate],
    kept: dict[str, set[TopicIdPartition]],
    free: list[TopicIdPartition],
    counts: PartitionCounts,
) -> None:
    """Each partition to the one with fewest of those who want it; then move some, while that makes it more even."""
    readers = {topic: [one.member_id for one in members if topic in one.topics] for topic in counts}
    for topic, number in free:
        if readers[topic]:
            least = min(readers[topic], key=lambda member: (len(kept[member]), member))
            kept[least].add((topic, number))
    is_moving = True
    while is_moving:  # each move makes the sum of the squares smaller, so this ends
        is_moving = False
        for topic, those in readers.items():
            is_moving |= _even_out(topic, those, kept)


def _even_out(topic: bytes, those: list[str], kept: dict[str, set[TopicIdPartition]]) -> bool:
    """Move partitions of one topic from who has most to who has fewest; whether any was moved."""
    loads = sorted((len(kept[member]), member) for member in those)
    movable = {member: sorted(one for one in kept[member] if one[0] == topic) for member in those}
    has_moved = False
    while True:
        giver = next(((load, member) for load, member in reversed(loads) if movable[member]), None)
        if giver is None or giver[0] - loads[0][0] < 2:
            return has_moved
        taker = loads[0]
        partition = movable[giver[1]].pop()
        kept[giver[1]].discard(partition)
        kept[taker[1]].add(partition)
        movable[taker[1]].append(partition)
        loads.remove(giver)
        loads.remove(taker)
        insort(loads, (giver[0] - 1, giver[1]))
        insort(loads, (taker[0] + 1, taker[1]))
        has_moved = True


ASSIGNORS: Final[Mapping[str, Callable[[Iterable[Candidate], PartitionCounts], Targets]]] = MappingProxyType(
    {"uniform": assign_uniform, "range": assign_range}
)
"""By the name that members and group.consumer.assignors use."""
