"""The assignor of share groups, `simple`: which member takes records from which partitions. Pure.

Partitions are shared: every one has at least one member, every member at least one partition of its topics, and the
loads differ by as little as that allows. With more members than partitions each partition has several.
"""

from __future__ import annotations

from collections.abc import Iterable

from foldlog.broker.groups.consumer.assignors import Candidate, PartitionCounts, Targets
from foldlog.broker.groups.consumer.messages import TopicIdPartition


def assign_simple(members: Iterable[Candidate], counts: PartitionCounts) -> Targets:
    """
    >>> members = [Candidate(name, None, frozenset({b"t"}), frozenset()) for name in ("a", "b", "c")]
    >>> {name: sorted(number for _, number in target) for name, target in assign_simple(members, {b"t": 2}).items()}
    {'a': [0, 1], 'b': [0], 'c': [1]}
    """
    ordered = sorted(members, key=lambda one: one.member_id)
    targets: dict[str, set[TopicIdPartition]] = {one.member_id: set() for one in ordered}
    # Topics that the same members want are divided together.
    blocks: dict[tuple[str, ...], list[TopicIdPartition]] = {}
    for topic, count in counts.items():
        readers = tuple(one.member_id for one in ordered if topic in one.topics)
        if readers:
            blocks.setdefault(readers, []).extend((topic, number) for number in range(count))
    before = {one.member_id: one.target for one in ordered}
    for readers, partitions in blocks.items():
        _divide(readers, partitions, before, targets)
    return {member: frozenset(target) for member, target in targets.items()}


def _divide(
    readers: tuple[str, ...],
    partitions: list[TopicIdPartition],
    before: dict[str, frozenset[TopicIdPartition]],
    targets: dict[str, set[TopicIdPartition]],
) -> None:
    sharing = -(-len(readers) // len(partitions))
    least, extra = divmod(sharing * len(partitions), len(readers))
    # Who has most now gets the one more: then it has to give back one less.
    block = frozenset(partitions)
    by_load = sorted(readers, key=lambda member: -len(before[member] & block))
    quotas = {member: least + (index < extra) for index, member in enumerate(by_load)}
    held: dict[str, set[TopicIdPartition]] = {member: set() for member in readers}
    takers: dict[TopicIdPartition, int] = dict.fromkeys(partitions, 0)

    def give(member: str, partition: TopicIdPartition) -> None:
        held[member].add(partition)
        takers[partition] += 1

    for member in readers:
        for partition in sorted(before[member] & block):
            if len(held[member]) < quotas[member] and takers[partition] < sharing:
                give(member, partition)
    for partition in partitions:
        while takers[partition] < sharing:
            free = [member for member in readers if partition not in held[member]]
            give(min(free, key=lambda member: (len(held[member]) - quotas[member], member)), partition)
    for member in readers:
        if not held[member]:
            give(member, min(partitions, key=lambda partition: (takers[partition], partition)))
        targets[member] |= held[member]
