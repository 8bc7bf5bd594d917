"""A cluster's groups: who is in them, what they committed, and how they are moved."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Final

from foldlog.broker.bookmarks import OffsetAndMetadata
from foldlog.broker.group_messages import check_group_name
from foldlog.client.descriptions import GroupDescription, MemberDescription, not_empty, unknown_group
from foldlog.client.kafka.faults import Where
from foldlog.client.kafka.handles import Attempt
from foldlog.client.kafka.records import committed_in, place_of
from foldlog.client.kafka.topics import KafkaTopics
from foldlog.client.partitioners import checked_partition
from foldlog.client.positions import Place, TopicPartition, checked_partitions, resolve_place
from foldlog.errors import (
    GroupNotEmpty,
    IllegalGeneration,
    InvalidArgument,
    RebalanceInProgress,
    UnknownGroup,
    UnknownMember,
    brief_repr,
)

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

HAS_MEMBERS: Final = (UnknownMember, IllegalGeneration, RebalanceInProgress, GroupNotEmpty)
"""What a commit from outside is refused with while a group has members, by one broker or another."""


class KafkaGroups(KafkaTopics):
    """The part of a KafkaLog that is about groups. Any thread."""

    def groups(self) -> list[str]:
        """Every group that has members or committed offsets, in order."""

        def attempt(now: Attempt) -> list[str]:
            listed = self._handles.answer(now.admin.list_consumer_groups(request_timeout=now.timeout_s), now)
            if listed.errors:  # of one broker of several: the groups that it looks after would be missing
                raise self._handles.kafka_exception(listed.errors[0])
            return sorted({one.group_id for one in listed.valid})

        return self._handles.retried(attempt)

    def describe_group(self, group: str) -> GroupDescription:
        """State, protocol and members; UnknownGroup if it has neither members nor committed offsets."""
        check_group_name(group)
        found: ConsumerGroupDescription = self._handles.ask(
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

    def committed(self, group: str) -> dict[TopicPartition, OffsetAndMetadata]:
        """What a group has committed."""
        from confluent_kafka import ConsumerGroupTopicPartitions

        check_group_name(group)
        wanted = [ConsumerGroupTopicPartitions(group)]
        try:
            found = self._handles.ask(
                lambda now: now.admin.list_consumer_group_offsets(wanted, request_timeout=now.timeout_s)[group],
                Where(group=group),
            )
        except UnknownGroup:
            return {}
        except UnicodeDecodeError:
            # confluent-kafka 2.16 reads beyond the end of a note, and may find there what is no text.
            from foldlog.client.kafka.moving import committed

            return dict(sorted(committed(self._handles.url, group).items()))
        return {
            TopicPartition(one.topic, one.partition): committed_in(one)
            for one in sorted(found.topic_partitions or (), key=lambda place: (place.topic, place.partition))
            if one.offset >= 0 and one.error is None
        }

    def lag(self, group: str) -> dict[TopicPartition, int]:
        """How many offsets lie between what a group has committed and the end, per partition it has committed in."""
        places = self.committed(group)
        bounds = self.bounds(places)
        return {
            partition: max(0, bounds[partition].high_watermark - place.offset)
            for partition, place in sorted(places.items())
        }

    def reset_group(self, group: str, offsets: Mapping[tuple[str, int], Place]) -> None:
        """Move a group without members: the next that joins reads on from these offsets.

        GroupNotEmpty, which names them, while it has members: they would overwrite it with their own next commit.
        """
        self.move_group(group, offsets)

    def move_group(self, group: str, offsets: Mapping[tuple[str, int], Place], *, evict: bool = False) -> None:
        """Move a group; with `evict` also one that has members, who are made to leave and come back at these offsets.

        Without it, GroupNotEmpty names them. See `Log.move_group`.
        """
        places = self._resolved(group, offsets)
        try:
            self._commit_outside(group, places)
        except HAS_MEMBERS as error:
            if not evict:
                raise not_empty(group, self.describe_group(group).members) from error
            from foldlog.client.kafka.moving import move_evicting

            move_evicting(self._handles.url, group, places)

    def _resolved(
        self, group: str, offsets: Mapping[tuple[str, int], Place]
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        check_group_name(group)
        if not isinstance(offsets, Mapping):
            raise InvalidArgument(
                f"a group is moved to a dict such as {{('orders', 0): 'start'}}, not to {brief_repr(offsets)}"
            )
        partitions = checked_partitions(offsets)
        counts = {topic: self.partition_count(topic) for topic in {one.topic: None for one in partitions}}
        for topic, number in partitions:
            checked_partition(topic, number, counts[topic])
        bounds = self.bounds(partitions)
        return {
            one: OffsetAndMetadata(resolve_place(bounds[one], offsets[one], "offset"), bounds[one].leader_epoch)
            for one in partitions
        }

    def _commit_outside(self, group: str, places: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        """As nobody's member."""
        from confluent_kafka import ConsumerGroupTopicPartitions

        if not places:
            return
        wanted = [ConsumerGroupTopicPartitions(group, [place_of(one, place) for one, place in places.items()])]

        def attempt(now: Attempt) -> None:
            asked = now.admin.alter_consumer_group_offsets(wanted, request_timeout=now.timeout_s)
            for one in self._handles.answer(asked[group], now, Where(group=group)).topic_partitions or ():
                if one.error is not None:
                    error = self._handles.kafka_exception(one.error)
                    raise self._handles.told(error, Where(one.topic, one.partition, group))

        self._handles.retried(attempt)

    def delete_group(self, group: str) -> None:
        """Forget a group without members, and all it committed. UnknownGroup, GroupNotEmpty."""
        check_group_name(group)

        def attempt(now: Attempt) -> None:
            asked = now.admin.delete_consumer_groups([group], request_timeout=now.timeout_s)
            try:
                self._handles.answer(asked[group], now, Where(group=group))
            except UnknownGroup:
                if not now.is_repeated:
                    raise

        self._handles.retried(attempt)

    def delete_offsets(self, group: str, partitions: Iterable[tuple[str, int]]) -> None:
        """Forget what a group committed in these partitions. GroupNotEmpty while it reads them."""
        from foldlog.client.kafka.moving import delete_offsets

        check_group_name(group)
        chosen = checked_partitions(partitions)
        if chosen:
            delete_offsets(self._handles.url, group, chosen)
