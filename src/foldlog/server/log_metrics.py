"""What a scrape looks up in the log: offsets, sizes, groups and their lag. Counted things are in `metrics`.

It may wait for the groups' lock, so it runs on a worker thread; it opens no partition.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from foldlog.broker.broker import MEMORY_PATH
from foldlog.broker.group_messages import GroupState
from foldlog.errors import StorageError
from foldlog.server.exposition import Family, Labels, Sample

if TYPE_CHECKING:
    from foldlog.broker.bookmarks import OffsetAndMetadata
    from foldlog.broker.broker import Broker
    from foldlog.broker.overview import PartitionOverview

_PARTITION_STATES: Final = ("open", "resting", "poisoned", "refused")


class GroupOverview(NamedTuple):
    """A group, and the offsets that it wants next."""

    name: str
    state: str
    member_count: int
    committed: Mapping[tuple[str, int], OffsetAndMetadata]


class GroupPosition(NamedTuple):
    """Where a group stands in a partition, and how far behind."""

    group: str
    topic: str
    number: int
    committed: int
    lag: int


def log_families(broker: Broker, *, per_partition: bool = True) -> list[Family]:
    """All of them. `per_partition` false leaves out what has a time series for each partition: with very many of
    them, sums by topic may be enough."""
    try:
        groups = group_overviews(broker)
    except StorageError:
        groups = []  # the topic of committed offsets is refused, and counted as such; the rest can be told
    partitions = broker.overview()  # after the groups, whose commits it must not be older than
    positions = _positions(groups, partitions)
    families = [*_sums(broker, partitions), *_group_sums(groups, positions), *_disk(broker.path)]
    if per_partition:
        families += [*_partitions(partitions), *_group_partitions(positions)]
    return families


def group_overviews(broker: Broker) -> list[GroupOverview]:
    """Every group. With a lock for each, not one for all: members wait for it."""
    return [GroupOverview(name, *_standing(broker, name), broker.committed(name)) for name in broker.group_names()]


def _standing(broker: Broker, group: str) -> tuple[str, int]:
    with broker.group_lock:
        description = broker.groups.describe(group)
    # The coordinator does not know a group that only ever committed: for everybody else it is an empty one.
    state = GroupState.EMPTY if description.state is GroupState.DEAD else description.state
    return state.value, len(description.members)


def _sums(broker: Broker, partitions: Sequence[PartitionOverview]) -> list[Family]:
    states: Counter[str] = Counter(dict.fromkeys(_PARTITION_STATES, 0))
    sizes: Counter[str] = Counter()
    for partition in partitions:
        states[_state_of(partition)] += 1
        if partition.size_bytes is not None:
            sizes[partition.topic] += partition.size_bytes
    topics = {partition.topic for partition in partitions}
    return [
        Family("foldlog_topics", "gauge", "Topics, internal ones included.", [Sample(len(topics))]),
        Family(
            "foldlog_partitions",
            "gauge",
            "Partitions by state: open, resting (not used yet), poisoned (a sync failed), refused (damaged).",
            [Sample(count, (("state", state),)) for state, count in states.items()],
        ),
        Family(
            "foldlog_topic_size_bytes",
            "gauge",
            "Bytes of the segments of a topic's open partitions.",
            [Sample(size, (("topic", topic),)) for topic, size in sorted(sizes.items())],
        ),
        Family(
            "foldlog_warnings",
            "gauge",
            "Different warnings that the log keeps for its owner.",
            [Sample(len(broker.warnings()))],
        ),
    ]


def _positions(groups: Sequence[GroupOverview], partitions: Sequence[PartitionOverview]) -> list[GroupPosition]:
    """What groups committed in topics that are gone is left out."""
    ends = {(partition.topic, partition.number): partition.high_watermark for partition in partitions}
    return [
        GroupPosition(group.name, *key, committed.offset, max(0, ends[key] - committed.offset))
        for group in groups
        for key, committed in sorted(group.committed.items())
        if key in ends
    ]


def _state_of(partition: PartitionOverview) -> str:
    if partition.refusal is not None:
        return "refused"
    if partition.is_poisoned:
        return "poisoned"
    return "open" if partition.is_open else "resting"


def _partitions(partitions: Sequence[PartitionOverview]) -> list[Family]:
    labelled = [(_partition_labels(partition.topic, partition.number), partition) for partition in partitions]
    opened = [(labels, partition) for labels, partition in labelled if partition.is_open]
    return [
        Family(
            "foldlog_partition_log_start_offset",
            "gauge",
            "The first offset that can still be read.",
            [Sample(partition.log_start_offset, labels) for labels, partition in labelled],
        ),
        Family(
            "foldlog_partition_high_watermark",
            "gauge",
            "All records below may be read.",
            [Sample(partition.high_watermark, labels) for labels, partition in labelled],
        ),
        Family(
            "foldlog_partition_log_end_offset",
            "gauge",
            "The offset that the next record will get.",
            [Sample(partition.log_end_offset, labels) for labels, partition in labelled],
        ),
        Family(
            "foldlog_partition_size_bytes",
            "gauge",
            "Bytes of the segments of an open partition.",
            [Sample(partition.size_bytes or 0, labels) for labels, partition in opened],
        ),
        Family(
            "foldlog_partition_segments",
            "gauge",
            "Segments of an open partition.",
            [Sample(partition.segment_count or 0, labels) for labels, partition in opened],
        ),
    ]


def _group_sums(groups: Sequence[GroupOverview], positions: Sequence[GroupPosition]) -> list[Family]:
    lags: Counter[tuple[str, str]] = Counter()
    for position in positions:
        lags[position.group, position.topic] += position.lag
    return [
        Family(
            "foldlog_group_state",
            "gauge",
            "1 for the state a group is in.",
            [Sample(1, (("group", group.name), ("state", group.state))) for group in groups],
        ),
        Family(
            "foldlog_group_members",
            "gauge",
            "Members of a group.",
            [Sample(group.member_count, (("group", group.name),)) for group in groups],
        ),
        Family(
            "foldlog_group_lag",
            "gauge",
            "Records of a topic that a group has committed in and not read yet, by its commits.",
            [Sample(lag, (("group", group), ("topic", topic))) for (group, topic), lag in lags.items()],
        ),
    ]


def _group_partitions(positions: Sequence[GroupPosition]) -> list[Family]:
    labelled = [
        ((("group", position.group), *_partition_labels(position.topic, position.number)), position)
        for position in positions
    ]
    return [
        Family(
            "foldlog_group_partition_committed_offset",
            "gauge",
            "The next offset that a group wants, by its last commit.",
            [Sample(position.committed, labels) for labels, position in labelled],
        ),
        Family(
            "foldlog_group_partition_lag",
            "gauge",
            "Records between a group's last commit and the high watermark.",
            [Sample(position.lag, labels) for labels, position in labelled],
        ),
    ]


def _partition_labels(topic: str, number: int) -> Labels:
    return (("topic", topic), ("partition", str(number)))


def _disk(path: str) -> list[Family]:
    """Of the file system that the log is on; nothing for a log in memory."""
    if path == MEMORY_PATH:
        return []
    try:
        found = os.statvfs(path)
    except OSError:
        return []
    return [
        Family(
            "foldlog_disk_free_bytes",
            "gauge",
            "Bytes that the broker may still write to the disk of its log.",
            [Sample(found.f_bavail * found.f_frsize)],
        ),
        Family(
            "foldlog_disk_size_bytes",
            "gauge",
            "Size of the disk of the log.",
            [Sample(found.f_blocks * found.f_frsize)],
        ),
    ]
