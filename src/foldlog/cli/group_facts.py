"""What can be seen of a group: its state, its members, and its cursors with their lag."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from foldlog.cli.topic_facts import partitions_of
from foldlog.errors import UnknownGroup, UnknownTopic

if TYPE_CHECKING:
    from foldlog.cli.places import AnyLog
    from foldlog.client.descriptions import GroupDescription, MemberDescription


@dataclass(frozen=True, slots=True)
class Cursor:
    """One partition of a group: what it committed, and who reads it. None where there is nothing, or not known."""

    topic: str
    partition: int
    committed: int | None
    start: int | None
    end: int | None
    metadata: str
    member: MemberDescription | None

    @property
    def lag(self) -> int | None:
        """How far it is to the end, as Kafka's tools count it: also over what compaction or retention removed."""
        if self.committed is None or self.end is None:
            return None
        return max(0, self.end - self.committed)


@dataclass(frozen=True, slots=True)
class GroupFacts:
    """A group at one moment."""

    description: GroupDescription
    cursors: tuple[Cursor, ...]

    @property
    def name(self) -> str:
        return self.description.group

    @property
    def state(self) -> str:
        return self.description.state

    @property
    def members(self) -> tuple[MemberDescription, ...]:
        return self.description.members

    @property
    def lag(self) -> int | None:
        """Over all partitions whose lag is known."""
        known = [cursor.lag for cursor in self.cursors if cursor.lag is not None]
        return sum(known) if known else None

    def row(self) -> dict[str, object]:
        return {
            "group": self.name,
            "state": self.state,
            "protocol": self.description.protocol or None,
            "members": len(self.members),
            "lag": self.lag,
            "topics": sorted({cursor.topic for cursor in self.cursors}) or None,
        }


def chosen_groups(log: AnyLog, patterns: Iterable[str]) -> list[str]:
    """Groups whose names match a pattern, or all. A pattern without * ? [ is a name, and has to be there."""
    known, given = log.groups(), list(patterns)
    for name in given:
        if not any(sign in name for sign in "*?[") and name not in known:
            raise UnknownGroup(f"there is no group {name!r}; to see all: foldlog group list")
    return [name for name in known if not given or any(fnmatchcase(name, pattern) for pattern in given)]


def facts_of(log: AnyLog, group: str) -> GroupFacts:
    """UnknownGroup if it is gone meanwhile."""
    description = log.describe_group(group)
    committed = log.committed(group)
    readers = {partition: member for member in description.members for partition in member.assignment}
    bounds: dict[tuple[str, int], tuple[int | None, int | None]] = {}
    for topic in {partition.topic for partition in (*committed, *readers)}:
        try:
            bounds.update({(topic, one.partition): (one.start, one.end) for one in partitions_of(log, topic)})
        except UnknownTopic:
            continue  # it was deleted, and the group still has its offsets: their ends are not known
    cursors = []
    for partition in sorted({*committed, *readers}):
        place = committed.get(partition)
        start, end = bounds.get(partition, (None, None))
        cursors.append(
            Cursor(
                partition.topic,
                partition.partition,
                None if place is None else place.offset,
                start,
                end,
                "" if place is None else place.metadata,
                readers.get(partition),
            )
        )
    return GroupFacts(description, tuple(cursors))


def cursor_rows(group: GroupFacts) -> list[dict[str, object]]:
    return [
        {
            "topic": cursor.topic,
            "partition": cursor.partition,
            "committed": cursor.committed,
            "start": cursor.start,
            "end": cursor.end,
            "lag": cursor.lag,
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
            "host": host_text(member),
            "member_id": member.member_id,
            "instance_id": member.instance_id,
            "partitions": [
                {"topic": partition.topic, "partition": partition.partition} for partition in sorted(member.assignment)
            ],
        }
        for member in group.members
    ]


def member_name(member: MemberDescription) -> str:
    """What a person calls it: the name its owner gave it, or its client's."""
    return member.instance_id or member.client_id or member.member_id


def host_text(member: MemberDescription) -> str:
    """Without the slash that Java puts before an address."""
    return member.host.lstrip("/")
