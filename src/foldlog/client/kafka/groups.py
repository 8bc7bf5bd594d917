"""A cluster's groups: who is in them, what they committed, and how they are moved."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Protocol

from foldlog.broker.bookmarks import OffsetAndMetadata
from foldlog.broker.group_messages import check_group_name
from foldlog.client.descriptions import GroupDescription, not_empty
from foldlog.client.evictions import HAS_MEMBERS, commit_evicting
from foldlog.client.kafka import groups_by_library, groups_by_wire
from foldlog.client.kafka.handles import Attempt, Handles
from foldlog.client.kafka.offsets import KafkaOffsets
from foldlog.client.partitioners import checked_partition
from foldlog.client.positions import Place, TopicPartition, checked_partitions, resolve_place
from foldlog.errors import InvalidArgument, brief_repr


class GroupCalls(Protocol):
    """What can be asked about groups, over our own connections or through librdkafka."""

    def describe_group(self, handles: Handles, group: str) -> GroupDescription: ...

    def committed(self, handles: Handles, group: str) -> dict[TopicPartition, OffsetAndMetadata]: ...

    def commit(self, handles: Handles, group: str, places: Mapping[TopicPartition, OffsetAndMetadata]) -> None: ...

    def delete_group(self, handles: Handles, group: str) -> None: ...


class KafkaGroups(KafkaOffsets):
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
        return self._asked.describe_group(self._handles, group)

    def committed(self, group: str) -> dict[TopicPartition, OffsetAndMetadata]:
        """What a group has committed."""
        check_group_name(group)
        return dict(sorted(self._asked.committed(self._handles, group).items()))

    @property
    def _asked(self) -> GroupCalls:
        return groups_by_wire if self._handles.speaks_wire else groups_by_library

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
        if not places:
            return

        def commit() -> None:
            self._asked.commit(self._handles, group, places)

        try:
            if evict:
                commit_evicting(commit, lambda: groups_by_wire.evict_members(self._handles, group))
            else:
                commit()
        except HAS_MEMBERS as error:
            raise not_empty(group, self.describe_group(group).members) from error

    def _resolved(
        self, group: str, offsets: Mapping[tuple[str, int], Place]
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        check_group_name(group)
        if not isinstance(offsets, Mapping):
            raise InvalidArgument(
                f"a group is moved to a dict such as {{('orders', 0): 'start'}}, not to {brief_repr(offsets)}"
            )
        partitions = self._checked(offsets)
        bounds = self.bounds(partitions)
        return {
            one: OffsetAndMetadata(resolve_place(bounds[one], offsets[one], "offset"), bounds[one].leader_epoch)
            for one in partitions
        }

    def _checked(self, named: Iterable[tuple[str, int]]) -> list[TopicPartition]:
        """Partitions that there are; UnknownTopic, UnknownPartition."""
        partitions = checked_partitions(named)
        counts = {topic: self.partition_count(topic) for topic in {one.topic: None for one in partitions}}
        for topic, number in partitions:
            checked_partition(topic, number, counts[topic])
        return partitions

    def delete_group(self, group: str) -> None:
        """Forget a group without members, and all it committed. UnknownGroup, GroupNotEmpty."""
        check_group_name(group)
        self._asked.delete_group(self._handles, group)

    def delete_offsets(self, group: str, partitions: Iterable[tuple[str, int]]) -> None:
        """Forget what a group committed in these partitions. UnknownGroup, and GroupNotEmpty while it reads them."""
        check_group_name(group)
        chosen = self._checked(partitions)
        if chosen:
            groups_by_wire.delete_offsets(self._handles, group, chosen)
