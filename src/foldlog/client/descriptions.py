"""Descriptions of topic settings and groups: the same values, wherever the log is."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from foldlog.broker.groups.messages import GroupState, GroupSummary, MemberSummary
from foldlog.broker.topics.config import TopicConfig
from foldlog.client.consumer.protocol import PROTOCOL_TYPE, decode_assignment
from foldlog.client.positions import TopicPartition
from foldlog.errors import GroupNotEmpty, MalformedBytes, UnknownGroup


@dataclass(frozen=True, slots=True)
class ConfigEntry:
    """A setting of a topic as it is in force; `is_default` if the topic does not set it itself.

    >>> ConfigEntry("604800000", is_default=True).value
    '604800000'
    """

    value: str
    is_default: bool


@dataclass(frozen=True, slots=True)
class MemberDescription:
    """A member of a group, and what it reads now.

    >>> MemberDescription("c1-5f", "c1", "/127.0.0.1", None, (TopicPartition("orders", 0),)).name
    'c1/c1-5f'
    """

    member_id: str
    client_id: str
    host: str
    instance_id: str | None
    assignment: tuple[TopicPartition, ...]

    @property
    def name(self) -> str:
        """Its name for people: what it calls itself, and the id that the group knows it by."""
        return f"{self.instance_id or self.client_id}/{self.member_id}"


@dataclass(frozen=True, slots=True)
class GroupDescription:
    """A group at one moment; `state` and `protocol` in Kafka's words.

    >>> import foldlog
    >>> with foldlog.open(":memory:") as log:
    ...     _ = log.create_topic("orders")
    ...     with log.consumer(["orders"], group="fraud"):
    ...         log.describe_group("fraud").state
    'Stable'
    """

    group: str
    state: str
    protocol: str
    members: tuple[MemberDescription, ...]


def config_entries(config: TopicConfig) -> dict[str, ConfigEntry]:
    """Every setting of a topic with its value in force."""
    return {name: ConfigEntry(text, name not in config.settings) for name, text in config.effective().items()}


def assigned_places(found: GroupSummary) -> set[TopicPartition]:
    """The partitions that members are assigned; those in a foreign assignment format are left out."""
    return {partition for member in found.members for partition in _assignment_of(member, found)}


def described_group(found: GroupSummary) -> GroupDescription:
    """The description of a group from the coordinator's summary. Raises UnknownGroup if the group is not known."""
    if found.state is GroupState.DEAD:
        raise unknown_group(found.group)
    members = tuple(
        MemberDescription(
            one.member_id,
            one.client_id,
            one.client_host,
            one.group_instance_id,
            _assignment_of(one, found),
        )
        for one in found.members
    )
    return GroupDescription(found.group, str(found.state), found.protocol, members)


def _assignment_of(member: MemberSummary, group: GroupSummary) -> tuple[TopicPartition, ...]:
    if group.protocol_type not in ("", PROTOCOL_TYPE):
        return ()
    try:
        return tuple(sorted(TopicPartition(*one) for one in decode_assignment(member.assignment).partitions))
    except MalformedBytes:
        return ()  # another assignment format, which only its own members understand


def unknown_group(group: str) -> UnknownGroup:
    return UnknownGroup(f"group {group!r} has neither members nor committed offsets")


def not_empty(group: str, members: Iterable[MemberDescription]) -> GroupNotEmpty:
    """The error that names the members that keep a group from being moved, and what to do about it."""
    names = [one.name for one in members]
    who = f"{len(names)} members ({', '.join(names)})" if len(names) > 1 else f"a member ({', '.join(names)})"
    if not names:
        who = "members"
    return GroupNotEmpty(
        f"group {group!r} has {who}; close them before moving its offsets, or have them leave and come back at the new"
        " ones with reset_group(evict=True)",
        names,
    )
