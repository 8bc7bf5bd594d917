"""Metrics that are looked up for a scrape: offsets, sizes, groups and lags of the log, and the usual metrics of a
process under their usual names. Counters are in `metrics`.

May wait for the groups' lock, so it runs on a worker thread; opens no partition except that of `__folds`, if there is a
group of a fold.
"""

from __future__ import annotations

import os
import platform
import resource
import time
from collections import Counter
from collections.abc import Mapping, Sequence, Set
from typing import TYPE_CHECKING, Final, NamedTuple

from foldlog import __version__
from foldlog.broker.groups.lag import partition_lags
from foldlog.broker.groups.messages import GroupState
from foldlog.client.descriptions import assigned_partitions
from foldlog.client.fold_runs import standing_of
from foldlog.client.groups import OWN_GROUPS
from foldlog.errors import StorageError
from foldlog.exposition import Family, Labels, Sample
from foldlog.server.problems import problems, space_of

if TYPE_CHECKING:
    from foldlog.broker.broker import Broker
    from foldlog.broker.groups.committed import OffsetAndMetadata
    from foldlog.broker.storage import PartitionOverview
    from foldlog.broker.tiers import TierOverview
    from foldlog.server.folds_reader import ServedFoldRuns

_PARTITION_STATES: Final = ("open", "resting", "poisoned", "refused")


class GroupOverview(NamedTuple):
    """A group, its committed offsets, and the partitions of its members."""

    name: str
    state: str
    member_count: int
    assigned: Set[tuple[str, int]]
    committed: Mapping[tuple[str, int], OffsetAndMetadata]
    begins: Mapping[tuple[str, int], int]


class GroupPosition(NamedTuple):
    """A group's committed offset in a partition, None if there is none, and its lag."""

    group: str
    topic: str
    number: int
    committed: int | None
    lag: int


def log_families(broker: Broker, fold_runs: ServedFoldRuns, *, per_partition: bool = True) -> list[Family]:
    """All families. `per_partition` false leaves out time series of single partitions: with very many of them, sums by
    topic may be enough."""
    try:
        groups = group_overviews(broker, fold_runs)
    except StorageError:
        groups = []  # the topic of committed offsets is refused, and counted as such; the rest is available
    partitions = broker.overview()  # after the groups: it must not be older than their commits
    positions = _positions(groups, partitions)
    families = [
        *_sums(broker, partitions),
        *_group_sums(groups, positions),
        *_disk(broker.path),
        *_store(broker.tier_overview()),
        _problems(broker, fold_runs, partitions, positions),
    ]
    if per_partition:
        families += [*_partitions(partitions), *_group_partitions(positions)]
    return families


def group_overviews(broker: Broker, fold_runs: ServedFoldRuns) -> list[GroupOverview]:
    """Every group. The lock is taken for each, not once for all: members wait for it."""
    return [
        GroupOverview(name, *_standing(broker, name, fold_runs), broker.committed(name), broker.members_begin(name))
        for name in broker.group_names()
    ]


def _standing(broker: Broker, group: str, fold_runs: ServedFoldRuns) -> tuple[str, int, Set[tuple[str, int]]]:
    with broker.group_lock:
        description = broker.groups.describe(group)
    # The coordinator does not know a group that only ever committed: shown as an empty one.
    state = GroupState.EMPTY if description.state is GroupState.DEAD else description.state
    return *standing_of(state.value, len(description.members), fold_runs.of(group)), assigned_partitions(description)


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
            "foldlog_compaction_stopped_partitions",
            "gauge",
            "Partitions that are not compacted any more, since compaction found damage in them.",
            [Sample(sum(partition.cleaning_fault is not None for partition in partitions))],
        ),
        Family(
            "foldlog_topic_size_bytes",
            "gauge",
            "Bytes of the segments of a topic's open partitions.",
            [Sample(size, (("topic", topic),)) for topic, size in sorted(sizes.items())],
        ),
        *_journal(broker),
        Family(
            "foldlog_warnings",
            "gauge",
            "Different warnings that the log keeps for its owner.",
            [Sample(len(broker.warnings()))],
        ),
    ]


def _journal(broker: Broker) -> list[Family]:
    counts = broker.journal_counts()
    return [
        Family("foldlog_journal_syncs_total", "counter", "Syncs of the journal.", [Sample(counts.commits)]),
        Family("foldlog_journal_bytes_total", "counter", "Bytes of batches they held.", [Sample(counts.bytes)]),
        Family("foldlog_journal_files", "gauge", "Files of the journal.", [Sample(counts.files)]),
    ]


def _positions(groups: Sequence[GroupOverview], partitions: Sequence[PartitionOverview]) -> list[GroupPosition]:
    """Commits in deleted topics are left out. Lag counts to the log end: records that are not durable yet are lag, too,
    and a scrape waits for no sync."""
    bounds = {(one.topic, one.number): (one.log_start_offset, one.log_end_offset) for one in partitions}
    found: list[GroupPosition] = []
    for group in groups:
        if group.name in OWN_GROUPS:
            continue  # notes of a copy: no reader continues from there, and no alert should fire
        committed = {partition: at.offset for partition, at in group.committed.items()}
        found += [
            GroupPosition(group.name, one.topic, one.partition, one.committed, one.lag)
            for one in partition_lags(committed, group.assigned, bounds, group.begins)
            if one.lag is not None
        ]
    return found


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
    uncommitted: Counter[tuple[str, str]] = Counter()
    for position in positions:
        lags[position.group, position.topic] += position.lag
        uncommitted[position.group, position.topic] += position.committed is None
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
            "Members of a group, and runners of the fold whose place it shows.",
            [Sample(group.member_count, (("group", group.name),)) for group in groups],
        ),
        Family(
            "foldlog_group_lag",
            "gauge",
            "Records of a topic that a group has not read yet, by its commits; from the log's start where it has none.",
            [Sample(lag, (("group", group), ("topic", topic))) for (group, topic), lag in lags.items()],
        ),
        Family(
            "foldlog_group_uncommitted_partitions",
            "gauge",
            "Partitions that members have and the group has no commit in: their lag counts from the log's start.",
            [Sample(count, (("group", group), ("topic", topic))) for (group, topic), count in uncommitted.items()],
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
            [Sample(position.committed, labels) for labels, position in labelled if position.committed is not None],
        ),
        Family(
            "foldlog_group_partition_lag",
            "gauge",
            "Records between a group's last commit, or the log's start if it has none, and the log's end.",
            [Sample(position.lag, labels) for labels, position in labelled],
        ),
    ]


def _partition_labels(topic: str, number: int) -> Labels:
    return (("topic", topic), ("partition", str(number)))


def _problems(
    broker: Broker,
    fold_runs: ServedFoldRuns,
    partitions: Sequence[PartitionOverview],
    positions: Sequence[GroupPosition],
) -> Family:
    lags: Counter[str] = Counter()
    for position in positions:
        lags[position.group] += position.lag
    try:
        found = problems(broker, fold_runs, partitions, lags)
    except StorageError:
        found = []  # of the topic of committed offsets; it is counted as refused
    return Family(
        "foldlog_problems",
        "gauge",
        "1 for each problem that somebody should look at: its kind, and the topic, group or fold that has it.",
        [Sample(1, (("kind", kind), ("name", name))) for kind, name in dict.fromkeys(one.label for one in found)],
    )


def _disk(path: str) -> list[Family]:
    """Space of the file system of the log; nothing for a log in memory."""
    found = space_of(path)
    if found is None:
        return []
    return [
        Family(
            "foldlog_disk_free_bytes",
            "gauge",
            "Bytes that the broker may still write to the disk of its log.",
            [Sample(found.free_bytes)],
        ),
        Family(
            "foldlog_disk_size_bytes",
            "gauge",
            "Size of the disk of the log.",
            [Sample(found.size_bytes)],
        ),
    ]


def _store(tier: TierOverview | None) -> list[Family]:
    """The store of segments; nothing where there is none. The store is not asked."""
    if tier is None:
        return []
    gauges: dict[str, Counter[str]] = {name: Counter() for name, _, _ in _STORE_GAUGES}
    for (topic, _), standing in tier.standings.items():
        for name, field, _ in _STORE_GAUGES:
            gauges[name][topic] += getattr(standing, field)
    failing = Counter(dict.fromkeys(gauges["segments"], 0))
    failing.update(fault.topic or "" for fault in tier.faults)
    return [
        *(
            Family(
                f"foldlog_store_{name}", "gauge", text, [Sample(n, (("topic", t),)) for t, n in gauges[name].items()]
            )
            for name, _, text in _STORE_GAUGES
        ),
        Family(
            "foldlog_store_faults",
            "gauge",
            "What is wrong with the store now, by topic; without a topic for the store itself.",
            [Sample(count, (("topic", topic),)) for topic, count in failing.items()],
        ),
        Family(
            "foldlog_store_failures_total",
            "counter",
            "Rounds over a partition that failed; each is tried again.",
            [Sample(tier.failures)],
        ),
        *(
            Family(f"foldlog_store_{name}_total", "counter", text, [Sample(getattr(tier.counts, name))])
            for name, text in _STORE_COUNTERS
        ),
        Family(
            "foldlog_store_cache_bytes",
            "gauge",
            "Memory of what was read from the store lately.",
            [Sample(tier.cache_bytes)],
        ),
    ]


_STORE_GAUGES: Final = (
    ("segments", "segments", "Segments of a topic in the store."),
    ("size_bytes", "size_bytes", "Bytes of their batches."),
    ("lag_segments", "waiting_segments", "Sealed segments of a topic that are not in the store yet."),
    ("lag_bytes", "waiting_bytes", "Bytes of those segments."),
)
"""Name, what of a partition it is the sum of, and what it tells."""

_STORE_COUNTERS: Final = (
    ("copied_segments", "Segments that were copied to the store."),
    ("copied_bytes", "Bytes of the objects that were written for them."),
    ("removed_segments", "Segments that left the store: by retention, by a deletion, with their topic's setting."),
    ("reads", "Requests for ranges of objects; those that verify a copy, too."),
    ("read_bytes", "Bytes that they brought."),
    ("read_failures", "Requests for ranges that failed; most are repeated."),
    ("cache_hits", "Blocks that a reader found in memory."),
    ("cache_misses", "Blocks that a reader had to wait for."),
)


# --- the process ------------------------------------------------------------------------------------------------------

_STATM: Final = "/proc/self/statm"
_DESCRIPTORS: Final = "/proc/self/fd"


def process_families() -> list[Family]:
    """CPU everywhere; memory and descriptors where there is /proc. Cheap enough for the event loop."""
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    families = [
        Family(
            "process_cpu_seconds_total", "counter", "CPU time used, user and system.", [Sample(time.process_time())]
        ),
        Family("process_max_fds", "gauge", "Descriptors the process may have open.", [Sample(limit)]),
    ]
    resident_bytes = _resident_bytes()
    if resident_bytes is not None:
        text = "Memory of the process that is in RAM."
        families.append(Family("process_resident_memory_bytes", "gauge", text, [Sample(resident_bytes)]))
    descriptors = _open_descriptors()
    if descriptors is not None:
        families.append(Family("process_open_fds", "gauge", "Descriptors that are open.", [Sample(descriptors)]))
    return families


def build_family() -> Family:
    labels = (("version", __version__), ("python", platform.python_version()))
    return Family("foldlog_build_info", "gauge", "1; what runs is in the labels.", [Sample(1, labels)])


def _resident_bytes() -> int | None:
    try:
        with open(_STATM, encoding="ascii") as statm:
            return int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return None


def _open_descriptors() -> int | None:
    try:
        return len(os.listdir(_DESCRIPTORS)) - 1  # without the one that lists them
    except OSError:
        return None
