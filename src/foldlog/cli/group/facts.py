"""What is known of a group: its state, its members, and its cursors with their lag."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from foldlog.broker.groups.lag import PartitionLag, partition_lags, share_lags, total_lag
from foldlog.broker.groups.messages import GroupType
from foldlog.cli.topic.facts import partitions_of
from foldlog.client.backends.backend import backend_of
from foldlog.client.fold_bulletin import FOLDS_TOPIC, Status
from foldlog.client.fold_runs import FoldRuns, GroupStanding, is_of_a_fold, standing_of
from foldlog.client.groups import OWN_GROUPS, is_of_a_queue
from foldlog.clock import SystemClock
from foldlog.errors import UnknownGroup, UnknownTopic

if TYPE_CHECKING:
    from foldlog.client.descriptions import GroupDescription, MemberDescription
    from foldlog.client.log import Log
    from foldlog.client.positions import TopicPartition


@dataclass(frozen=True, slots=True)
class GroupCursor:
    """One partition of a group: its position, and the member that reads it. None if there is none, or it is unknown."""

    standing: PartitionLag
    metadata: str
    member: MemberDescription | None


@dataclass(frozen=True, slots=True)
class GroupFacts:
    """A group at one moment. `runs` are the live runners of the group's fold; None if it is not a fold's group."""

    description: GroupDescription
    cursors: tuple[GroupCursor, ...]
    runs: tuple[Status, ...] | None = None

    @property
    def name(self) -> str:
        return self.description.group

    @property
    def state(self) -> str:
        return self._standing.state

    @property
    def members(self) -> tuple[MemberDescription, ...]:
        return self.description.members

    @property
    def reader_count(self) -> int:
        return self._standing.reader_count

    @property
    def _standing(self) -> GroupStanding:
        return standing_of(self.description.state, len(self.members), self.runs)

    @property
    def lag(self) -> int | None:
        """The sum over all partitions whose lag is known."""
        return total_lag(cursor.standing for cursor in self.cursors)

    @property
    def uncommitted_count(self) -> int:
        """Partitions whose lag counts from the log's start because nothing is committed."""
        return sum(cursor.standing.is_uncommitted for cursor in self.cursors)

    def row(self) -> dict[str, object]:
        return {
            "group": self.name,
            "type": self.description.group_type,
            "state": self.state,
            "protocol": self.description.protocol or None,
            "members": self.reader_count,
            "lag": self.lag,
            "uncommitted": self.uncommitted_count or None,
            "topics": sorted({cursor.standing.topic for cursor in self.cursors}) or None,
            "epoch": self.description.epoch,
            "assignment_epoch": self.description.assignment_epoch,
        }


def chosen_groups(log: Log, patterns: Iterable[str], *, include_internal: bool = False) -> list[str]:
    """Groups whose names match a pattern, or all. A pattern without * ? [ is a name, and has to exist."""
    known, given = log.groups(), list(patterns)
    if not given and not include_internal:
        return [name for name in known if name not in OWN_GROUPS]
    for name in given:
        if not any(sign in name for sign in "*?[") and name not in known:
            raise UnknownGroup(f"there is no group {name!r}; to see all: foldlog group list")
    return [name for name in known if not given or any(fnmatchcase(name, pattern) for pattern in given)]


def facts_of(log: Log, group: str, runs: FoldRunsOf) -> GroupFacts:
    """UnknownGroup if it has been deleted meanwhile."""
    description = log.describe_group(group)
    is_share = description.group_type == GroupType.SHARE
    committed = {} if is_share else log.committed(group)
    shared = backend_of(log).share_offsets(group) if is_share else {}
    readers = {partition: member for member in description.members for partition in member.assignment}
    bounds: dict[tuple[str, int], tuple[int | None, int | None]] = {}
    for topic in {partition.topic for partition in (*committed, *readers, *shared)}:
        try:
            bounds.update({(topic, one.partition): (one.start, one.end) for one in partitions_of(log, topic)})
        except UnknownTopic:
            continue  # deleted, while the group still has offsets in it: its ends are unknown
    if is_share:
        found = share_lags({(one.topic, one.partition): at for one, at in shared.items()}, bounds)
    else:
        found = partition_lags({partition: one.offset for partition, one in committed.items()}, readers, bounds)
    notes = {(partition.topic, partition.partition): one.metadata for partition, one in committed.items()}
    members = {(partition.topic, partition.partition): member for partition, member in readers.items()}
    cursors = [
        GroupCursor(one, notes.get((one.topic, one.partition), ""), members.get((one.topic, one.partition)))
        for one in found
    ]
    return GroupFacts(description, tuple(cursors), runs.of(group))


def positions_of(log: Log, group: str) -> dict[TopicPartition, int]:
    """Where the next read goes on: the committed offsets, of a share group the first offsets that are not done."""
    if is_of_a_queue(backend_of(log), group):
        return {partition: start for partition, (start, _) in backend_of(log).share_offsets(group).items()}
    return {partition: one.offset for partition, one in log.committed(group).items()}


class FoldRunsOf:
    """The current runners of folds in a log. Read on the first request for a fold's group."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self._found: FoldRuns | None = None

    def of(self, group: str) -> tuple[Status, ...] | None:
        """The live runners of the group's fold; None if it is not a fold's group."""
        if not is_of_a_fold(group):
            return None
        if self._found is None:
            self._found = self._read()
        return self._found.of(group, SystemClock().now_ms())

    def _read(self) -> FoldRuns:
        found = FoldRuns()
        try:
            for record in self._log.read(FOLDS_TOPIC, 0):
                found.hear(record.key, record.value)
        except UnknownTopic:
            pass  # no fold was ever run
        return found


def cursor_rows(group: GroupFacts) -> list[dict[str, object]]:
    return [
        {
            "topic": cursor.standing.topic,
            "partition": cursor.standing.partition,
            "committed": cursor.standing.committed,
            "start": cursor.standing.start,
            "end": cursor.standing.end,
            "lag": cursor.standing.lag,
            "counted_from": cursor.standing.counted_from,
            "client": member_name(cursor.member) if cursor.member else None,
            "member_id": cursor.member.member_id if cursor.member else None,
            "metadata": cursor.metadata or None,
        }
        for cursor in group.cursors
    ]


def member_rows(group: GroupFacts) -> list[dict[str, object]]:
    return [
        {
            "client_id": member.client_id,
            "host": member.host_text,
            "member_id": member.member_id,
            "instance_id": member.instance_id,
            "epoch": member.epoch,
            "partitions": _partition_rows(member.assignment),
            "target": None if member.target is None else _partition_rows(member.target),
        }
        for member in group.members
    ]


def _partition_rows(partitions: Iterable[TopicPartition]) -> list[dict[str, object]]:
    return [{"topic": partition.topic, "partition": partition.partition} for partition in sorted(partitions)]


def member_name(member: MemberDescription) -> str:
    """The name for people: the one its owner gave it, or its client's."""
    return member.instance_id or member.client_id or member.member_id
