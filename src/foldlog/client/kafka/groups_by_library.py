"""A cluster's groups, asked through librdkafka: for logins that our own connections, groups_by_wire.py, do not have."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from foldlog.broker.bookmarks import OffsetAndMetadata
from foldlog.client.descriptions import GroupDescription, MemberDescription, unknown_group
from foldlog.client.kafka.faults import Where
from foldlog.client.kafka.handles import Attempt, Handles
from foldlog.client.kafka.records import committed_in, place_of
from foldlog.client.positions import TopicPartition
from foldlog.errors import UnknownGroup

if TYPE_CHECKING:
    from confluent_kafka.admin import ConsumerGroupDescription

_STATES: Final = {
    "PREPARING_REBALANCING": "PreparingRebalance",
    "COMPLETING_REBALANCING": "CompletingRebalance",
    "STABLE": "Stable",
    "DEAD": "Dead",
    "EMPTY": "Empty",
}
"""Kafka's words for them, by librdkafka's."""


def describe_group(handles: Handles, group: str) -> GroupDescription:
    """UnknownGroup if the cluster knows nothing of it."""
    found: ConsumerGroupDescription = handles.ask(
        lambda now: now.admin.describe_consumer_groups([group], request_timeout=now.timeout_s)[group],
        Where(group=group),
    )
    state = _STATES.get(found.state.name, found.state.name.title().replace("_", ""))
    if state == "Dead":
        raise unknown_group(group)
    members = tuple(
        MemberDescription(
            one.member_id,
            one.client_id,
            one.host,
            one.group_instance_id,
            tuple(sorted(TopicPartition(tp.topic, tp.partition) for tp in one.assignment.topic_partitions)),
        )
        for one in found.members
    )
    return GroupDescription(group, state, found.partition_assignor or "", members)


def committed(handles: Handles, group: str) -> dict[TopicPartition, OffsetAndMetadata]:
    """What a group has committed; nothing, if there is no such group."""
    from confluent_kafka import ConsumerGroupTopicPartitions

    wanted = [ConsumerGroupTopicPartitions(group)]
    try:
        found = handles.ask(
            lambda now: now.admin.list_consumer_group_offsets(wanted, request_timeout=now.timeout_s)[group],
            Where(group=group),
        )
    except UnknownGroup:
        return {}
    return {
        TopicPartition(one.topic, one.partition): committed_in(one)
        for one in found.topic_partitions or ()
        if one.offset >= 0 and one.error is None
    }


def commit(handles: Handles, group: str, places: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
    """As nobody's member."""
    from confluent_kafka import ConsumerGroupTopicPartitions

    wanted = [ConsumerGroupTopicPartitions(group, [place_of(one, place) for one, place in places.items()])]

    def attempt(now: Attempt) -> None:
        asked = now.admin.alter_consumer_group_offsets(wanted, request_timeout=now.timeout_s)
        for one in handles.answer(asked[group], now, Where(group=group)).topic_partitions or ():
            if one.error is not None:
                error = handles.kafka_exception(one.error)
                raise handles.told(error, Where(one.topic, one.partition, group))

    handles.retried(attempt)


def delete_group(handles: Handles, group: str) -> None:
    """UnknownGroup, GroupNotEmpty."""

    def attempt(now: Attempt) -> None:
        asked = now.admin.delete_consumer_groups([group], request_timeout=now.timeout_s)
        try:
            handles.answer(asked[group], now, Where(group=group))
        except UnknownGroup:
            if not now.is_repeated:
                raise

    handles.retried(attempt)
