"""Descriptions of topics, their settings, and groups: the same values, wherever the log is."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from foldlog.broker.groups.consumer_protocol import PROTOCOL_TYPE, decode_assignment
from foldlog.broker.groups.messages import GroupState, GroupSummary, GroupType, MemberSummary
from foldlog.broker.share.membership import SHARE_PROTOCOL_TYPE
from foldlog.broker.topics.catalog import CatalogTopic, Growth
from foldlog.broker.topics.config import TopicConfig
from foldlog.client.positions import TopicPartition
from foldlog.errors import GroupNotEmpty, MalformedBytes, UnknownGroup

_MEMBERS_NAMED: Final = 5


@dataclass(frozen=True, slots=True)
class Topic:
    """One topic at one moment. `config` has the settings that foldlog knows; `Log.topic_config` tells all.

    `growths` says where the older partitions ended when some were added; None on a cluster, which does not remember
    that. `topic_id` is zeros where a cluster has none.

    >>> import foldlog
    >>> with foldlog.open(":memory:") as log:
    ...     _ = log.create_topic("orders", partitions=2)
    ...     log.grow_topic("orders", 3).growths
    (Growth(partitions=3, ends=(0, 0)),)
    """

    name: str
    topic_id: str
    config: TopicConfig
    partition_count: int
    growths: tuple[Growth, ...] | None

    @classmethod
    def of(cls, entry: CatalogTopic) -> Topic:
        """A directory's topic, without its slot in the checkpoint."""
        return cls(entry.name, entry.topic_id, entry.config, entry.partition_count, entry.growths)


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
    """A member of a group, and what it reads now. `host` is as the broker gives it; Java puts a slash before.

    >>> MemberDescription("c1-5f", "c1", "/127.0.0.1", None, (TopicPartition("orders", 0),)).name
    'c1/c1-5f'
    """

    member_id: str
    client_id: str
    host: str
    instance_id: str | None
    assignment: tuple[TopicPartition, ...]
    epoch: int | None = None
    """Of a member of a consumer group: the epoch of the target assignment that it has reached."""
    target: tuple[TopicPartition, ...] | None = None
    """Of a member of a consumer group: what it is to read once others have given it back."""

    @property
    def name(self) -> str:
        """The client id and the member id, to show to people."""
        return full_name(self.instance_id, self.client_id, self.member_id)

    @property
    def host_text(self) -> str:
        """The host without the slash that Java puts before an address."""
        return self.host.removeprefix("/")


@dataclass(frozen=True, slots=True)
class GroupDescription:
    """A group at one moment; `state`, `protocol` and `group_type` in Kafka's words.

    Of a consumer group (KIP-848) `protocol` is the assignor of its coordinator; `epoch` rises with each change of
    members, subscriptions and topics, and `assignment_epoch` follows when partitions are assigned anew.

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
    group_type: str = "classic"
    epoch: int | None = None
    assignment_epoch: int | None = None


def config_entries(config: TopicConfig) -> dict[str, ConfigEntry]:
    """Every setting of a topic with its value in force."""
    return {name: ConfigEntry(text, name not in config.settings) for name, text in config.effective().items()}


def assigned_partitions(found: GroupSummary) -> set[TopicPartition]:
    """The partitions that members are assigned; those in a foreign assignment format are left out."""
    return {partition for member in found.members for partition in _assignment_of(member, found)}


def described_group(found: GroupSummary) -> GroupDescription:
    """The description of a group from the coordinator's summary. Raises UnknownGroup if the group is not known."""
    if found.state is GroupState.DEAD:
        raise unknown_group(found.group)
    is_consumer = found.group_type in (GroupType.CONSUMER, GroupType.SHARE)
    return GroupDescription(
        found.group,
        str(found.state),
        found.protocol,
        described_members(found),
        str(found.group_type),
        found.generation if is_consumer else None,
        found.assignment_epoch if is_consumer else None,
    )


def described_members(found: GroupSummary) -> tuple[MemberDescription, ...]:
    return tuple(
        MemberDescription(
            one.member_id,
            one.client_id,
            one.client_host,
            one.group_instance_id,
            _assignment_of(one, found),
            None if one.consumer is None else one.consumer.member_epoch,
            None if one.consumer is None else _places(one.consumer.target),
        )
        for one in found.members
    )


def _places(partitions: Iterable[tuple[bytes, str, int]]) -> tuple[TopicPartition, ...]:
    return tuple(sorted(TopicPartition(topic, number) for _, topic, number in partitions))


def full_name(instance_id: str | None, client_id: str, member_id: str) -> str:
    """What a member calls itself says more to people; the id tells two of that name apart."""
    own = instance_id or client_id
    return f"{own}/{member_id}" if own else member_id


def _assignment_of(member: MemberSummary, group: GroupSummary) -> tuple[TopicPartition, ...]:
    if group.protocol_type not in ("", PROTOCOL_TYPE, SHARE_PROTOCOL_TYPE):
        return ()
    try:
        return tuple(sorted(TopicPartition(*one) for one in decode_assignment(member.assignment).partitions))
    except MalformedBytes:
        return ()  # another assignment format, which only its own members understand


def unknown_group(group: str) -> UnknownGroup:
    return UnknownGroup(f"group {group!r} has neither members nor committed offsets")


def has_members(group: str, members: Sequence[MemberDescription]) -> str:
    """The beginning of a sentence that says who is in the way, so that people know what to stop.

    >>> has_members("fraud", [MemberDescription("c1-5f", "c1", "/127.0.0.1", None, ())])
    "group 'fraud' has 1 member: c1/c1-5f (127.0.0.1)"
    """
    if not members:
        return f"group {group!r} waits for members"
    named = [f"{one.name} ({one.host_text})" if one.host_text else one.name for one in members[:_MEMBERS_NAMED]]
    more = f" and {len(members) - len(named)} more" if len(members) > len(named) else ""
    count = "1 member" if len(members) == 1 else f"{len(members)} members"
    return f"group {group!r} has {count}: {', '.join(named)}{more}"


def not_empty(group: str, members: Sequence[MemberDescription], evict: str, *, is_queue: bool = False) -> GroupNotEmpty:
    """Who is in the way of moving a group, and what to do about it; `evict` is how one says that they may be evicted,
    empty where that was said and they came back."""
    if is_queue:
        way_on = (
            "members of a queue cannot be evicted: close them; a dead member is gone after its"
            " share.session.timeout.ms, 45 s unless that is set"
        )
    elif evict:
        way_on = f"stop them, or say {evict} to make them rejoin at the new place"
    else:
        way_on = "they came back each time they were removed: stop them"
    return GroupNotEmpty(f"{has_members(group, members)}; {way_on}", [one.name for one in members])


@dataclass(frozen=True, slots=True)
class TransactionDescription:
    """A transactional id as its coordinator knows it. `start_ms` is None, and `partitions` empty, if no transaction of
    it is open."""

    transactional_id: str
    state: str
    producer_id: int
    producer_epoch: int
    timeout_ms: int
    start_ms: int | None
    partitions: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True)
class UserDescription:
    """A user who logs in with a password. `iterations` has how often it is hashed, by mechanism."""

    name: str
    iterations: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class OpenProducer:
    """A producer whose transaction is open in a partition."""

    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    first_offset: int
    last_timestamp_ms: int
