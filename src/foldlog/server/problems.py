"""What is wrong with a log that somebody should look at, in sentences: for the console and for `/metrics`.

A problem is something that does not go away by itself. A group whose members left, and a fold that was stopped, are
not problems, however far behind: somebody wanted it so. On a worker thread: it may wait for the groups' lock.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Final, Literal, NamedTuple

from foldlog.broker.broker import MEMORY_PATH
from foldlog.client.fold_bulletin import FOLD_GROUP_PREFIX
from foldlog.files.paths import DiskSpace, disk_space
from foldlog.limits import CONSOLE_PROBLEMS_MAX

if TYPE_CHECKING:
    from foldlog.broker.broker import Broker
    from foldlog.broker.storage import PartitionOverview
    from foldlog.broker.tiers import TierOverview
    from foldlog.client.fold_bulletin import Status
    from foldlog.server.folds_reader import ServedFoldRuns

Resource = Literal["fold", "group", "topic", "cluster"]

KINDS: Final = (
    "partition_poisoned",
    "partition_refused",
    "store_damaged",
    "store_failing",
    "compaction_stopped",
    "disk_low",
    "fold_lost",
    "fold_failing",
    "group_died",
)
"""Worst first. The names are values of a label of `foldlog_problems`."""

_LOW_SHARE: Final = 0.05


class Problem(NamedTuple):
    """`resource` and `name` are what it is a problem of: who may describe that may know of it. `since_ms` is None if
    nobody knows since when, `lag` if it has none. `file` declares a fold."""

    kind: str
    resource: Resource
    name: str
    sentence: str
    since_ms: int | None = None
    lag: int | None = None
    file: str | None = None

    @property
    def label(self) -> tuple[str, str]:
        """What tells it from others: its kind and its name."""
        return self.kind, self.name


def problems(
    broker: Broker, fold_runs: ServedFoldRuns, partitions: Iterable[PartitionOverview], lags: Mapping[str, int]
) -> list[Problem]:
    """All of them, worst first. `lags` are the records that each group has not read, by its name."""
    found = [
        *_of_partitions(partitions),
        *_of_store(broker.tier_overview()),
        *_of_disk(space_of(broker.path)),
        *(_of_fold(status, lags.get(FOLD_GROUP_PREFIX + status.fold)) for status in fold_runs.troubled()),
        *_of_groups(broker, lags),
    ]
    return sorted(found, key=lambda one: (KINDS.index(one.kind), one.name))[:CONSOLE_PROBLEMS_MAX]


def space_of(path: str) -> DiskSpace | None:
    """The disk of a log; None for a log in memory, and if the system does not say."""
    if path == MEMORY_PATH:
        return None
    try:
        return disk_space(path)
    except OSError:
        return None


def _of_partitions(partitions: Iterable[PartitionOverview]) -> list[Problem]:
    found: list[Problem] = []
    for one in partitions:
        name = f"{one.topic}-{one.number}"
        if one.is_poisoned:
            sentence = f"{name} cannot be written since a sync failed; restart the broker to recover"
            found.append(Problem("partition_poisoned", "topic", one.topic, sentence))
        if one.refusal is not None:
            found.append(Problem("partition_refused", "topic", one.topic, f"{name} is damaged: {one.refusal}"))
        if one.cleaning_fault is not None:
            sentence = f"{name} is not compacted any more, and only grows: {one.cleaning_fault}"
            found.append(Problem("compaction_stopped", "topic", one.topic, sentence))
    return found


def _of_store(tier: TierOverview | None) -> list[Problem]:
    """One for each topic, and one for the store itself."""
    found: dict[tuple[str, str | None], Problem] = {}
    for fault in () if tier is None else tier.faults:
        kind = "store_damaged" if fault.is_damage else "store_failing"
        resource: Resource = "cluster" if fault.topic is None else "topic"
        problem = Problem(kind, resource, fault.topic or "store", fault.sentence, fault.since_ms)
        found.setdefault((kind, fault.topic), problem)
    return list(found.values())


def _of_disk(space: DiskSpace | None) -> list[Problem]:
    if space is None or space.free_bytes >= _LOW_SHARE * space.size_bytes:
        return []
    share = 100 * space.free_bytes / max(1, space.size_bytes)
    sentence = f"the disk of the log has {share:.1f} % left; when it is full, nothing can be written"
    return [Problem("disk_low", "cluster", "disk", sentence)]


def _of_fold(status: Status, lag: int | None) -> Problem:
    if status.error:
        return Problem("fold_failing", "fold", status.fold, status.error, status.updated_ms, lag, status.file)
    sentence = f"its runner {status.runner} fell silent without saying that it stops: it died, or cannot reach the log"
    return Problem("fold_lost", "fold", status.fold, sentence, status.updated_ms, lag, status.file)


def _of_groups(broker: Broker, lags: Mapping[str, int]) -> list[Problem]:
    sentence = "its last member fell silent without leaving the group, and nobody reads on"
    return [
        Problem("group_died", "group", group, sentence, died_ms, lags[group])
        for group, died_ms in broker.died_groups().items()
        if lags.get(group, 0) > 0
    ]
