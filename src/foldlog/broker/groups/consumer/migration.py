"""A group changes its protocol and keeps its members: classic to consumer, and back. Pure.

Upwards, each member stays at its generation, which becomes its epoch, with what it was assigned; the member of the
consumer protocol that made it happen then raises the epoch. Downwards, the group is stable with what each member has,
and is rebalanced by its members next.
"""

from __future__ import annotations

from foldlog.broker.groups.consumer.messages import ConsumerGroupSettings, TopicIdPartition
from foldlog.broker.groups.consumer.state import ClassicMetadata, ConsumerGroup, ConsumerMember, named
from foldlog.broker.groups.consumer.topics import TopicsImage
from foldlog.broker.groups.consumer_protocol import (
    PROTOCOL_TYPE,
    Assignment,
    decode_assignment,
    decode_subscription,
    encode_assignment,
)
from foldlog.broker.groups.messages import GroupState
from foldlog.broker.groups.state import Group, GroupMember


def why_not_upgrade(group: Group, settings: ConsumerGroupSettings) -> str | None:
    """What keeps a classic group with members from becoming a consumer group; None if nothing does."""
    if not settings.migration_policy.may_upgrade:
        return f"it is a classic group, and group.consumer.migration.policy is {settings.migration_policy}"
    if group.protocol_type != PROTOCOL_TYPE:
        return f"it is a classic group of protocol type {group.protocol_type!r}, which consumers do not speak"
    if len(group.members) >= settings.members_max:
        return f"it is a classic group with {len(group.members)} members, and {settings.members_max} are allowed"
    return None


def upgraded(group: Group, image: TopicsImage) -> ConsumerGroup:
    """The classic group as a consumer group. Raises MalformedBytes if a member's metadata is not ConsumerProtocol's."""
    made = ConsumerGroup(group.group_id, group.generation, group.generation)
    for member in group.members.values():
        data = group.metadata_of(member) or next(iter(member.protocols.values()), b"")
        subscription = decode_subscription(data)
        assigned: dict[TopicIdPartition, int] = {}
        is_free = made.is_free_for(member.member_id)
        for topic, number in decode_assignment(member.assignment).partitions:
            known = image.by_name.get(topic)
            # What a leader gave to two members stays with the first.
            if known is not None and is_free((known.topic_id, number)):
                assigned[known.topic_id, number] = group.generation
        made.targets[member.member_id] = frozenset(assigned)
        made.put(
            ConsumerMember(
                member.member_id,
                member.group_instance_id,
                subscription.rack or None,
                member.client_id,
                member.client_host,
                tuple(sorted(set(subscription.topics))),
                rebalance_timeout_ms=member.rebalance_timeout_ms,
                classic=ClassicMetadata(member.session_timeout_ms, tuple(member.protocols.items())),
                epoch=group.generation,
                previous_epoch=group.generation,
                assigned=assigned,
            )
        )
    return made


def downgraded(group: ConsumerGroup, image: TopicsImage, now_ms: int) -> Group:
    """The group, whose members all speak the classic protocol, as a classic one."""
    made = Group(group.group_id, GroupState.STABLE, now_ms, PROTOCOL_TYPE, generation=group.epoch)
    for member in group.members.values():
        if member.classic is not None:
            made.add(
                GroupMember(
                    member.member_id,
                    member.group_instance_id,
                    member.client_id,
                    member.client_host,
                    member.classic.session_timeout_ms,
                    member.rebalance_timeout_ms,
                    dict(member.classic.protocols),
                    encode_assignment(Assignment(named(member.assigned, image))),
                    is_new=False,
                )
            )
    made.protocol = made.select_protocol()
    return made
