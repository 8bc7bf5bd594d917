"""What a consumer commits: by itself, and on request."""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Mapping

from foldlog.broker.bookmarks import OffsetAndMetadata
from foldlog.client.assignments import Member, not_assigned, topic_or_none
from foldlog.client.backend import Backend, GroupMemberships
from foldlog.client.consumer_settings import ConsumerSettings
from foldlog.client.cursors import Cursor
from foldlog.client.positions import TopicPartition
from foldlog.errors import (
    GroupError,
    GroupNotEmpty,
    InvalidArgument,
    LogClosed,
    NotAssigned,
    ReadOnly,
    StorageError,
    UnknownMember,
    UnknownPartition,
    UnknownTopic,
)

_log = logging.getLogger("foldlog")


class Commits(ABC):
    """The half of a consumer's state that is committed: its cursors, and how far what they gave was dealt with.

    Belongs to the consumer's thread, but for `commit_handled`, see there.
    """

    def __init__(self, broker: Backend, memberships: GroupMemberships, settings: ConsumerSettings) -> None:
        self._broker = broker
        self._memberships = memberships
        self._settings = settings
        self._group = settings.group
        self._auto_commits = settings.auto_commit and settings.group is not None and not broker.read_only
        self._now_ms = broker.clock.monotonic_ms
        self._cursors: dict[TopicPartition, Cursor] = {}
        self._turns: list[Cursor] = []
        self._served: Cursor | None = None
        self._member: Member | None = None
        self._lost: set[TopicPartition] = set()
        self._next_commit_ms = 0.0

    @abstractmethod
    def _adopt_if_changed(self) -> None:
        """Follow the group, if it has rebalanced."""

    @abstractmethod
    def _follow_topics(self) -> set[TopicPartition]:
        """Follow topics that were deleted or made anew; the partitions that were ours in the old ones."""

    def _topic_id(self, name: str) -> str | None:
        topic = topic_or_none(self._broker, name)
        return None if topic is None else topic.topic_id

    def count_as_handled(self) -> None:
        """What was handed out so far has been dealt with."""
        if self._auto_commits:
            for cursor in self._turns:
                cursor.handled = cursor.position

    def count_last_as_handled(self) -> None:
        """The same after a single record, for a loop that takes one at a time."""
        if self._served is not None:
            self._served.handled = self._served.position

    def commit_handled(self) -> None:
        """Commit what was dealt with, if this consumer commits by itself.

        Called by its own thread, and by one that is about to make the group rebalance: it only reads cursors, whose
        fields are replaced whole, and what it misses is handed out again.
        """
        if not self._auto_commits:
            return
        self._next_commit_ms = self._now_ms() + self._settings.auto_commit_interval_ms
        try:
            try:
                self._commit_moved()
            except (UnknownTopic, UnknownPartition):
                self._commit_moved()  # a topic was deleted since we looked: without it
        except (GroupError, StorageError, LogClosed, UnknownTopic, UnknownPartition) as error:
            # Nothing is lost by it: whoever reads on from the older commit sees these records again.
            _log.warning("auto-commit of group %r failed, and is tried again: %s", self._group, error)

    def _commit_moved(self) -> None:
        # Also where nothing was read yet: who comes back finds what was written since, not a new "latest".
        turns = [one for one in self._turns if one.handled != one.committed and one.problem is None]
        topic_ids = {name: self._topic_id(name) for name in {one.partition.topic for one in turns}}
        moved = {
            cursor.partition: OffsetAndMetadata(cursor.handled, cursor.log.leader_epoch)
            for cursor in turns
            if topic_ids[cursor.partition.topic] == cursor.topic_id
        }
        held = self._member.held.since if self._member is not None else moved
        moved = {partition: place for partition, place in moved.items() if partition in held}
        if moved:
            self._commit(moved)

    def commit_all(self, metadata: str) -> None:
        """Commit all that was handed out and is still ours; NotAssigned names what no longer is."""
        self._check_group()
        self._adopt_if_changed()
        places = {
            cursor.partition: OffsetAndMetadata(cursor.position, cursor.log.leader_epoch, metadata)
            for cursor in self._turns
            if cursor.problem is None
        }
        if places:
            self._commit(places)
        lost, self._lost = self._lost, set()
        if lost:
            raise not_assigned(lost, self._group or "")

    def commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        """Durable on return."""
        self._check_group()
        replaced = sorted(self._follow_topics() & offsets.keys())
        for topic, number in replaced:
            self._broker.topic(topic)  # UnknownTopic, if it was not created again
            raise NotAssigned(
                f"topic {topic!r} was deleted and created again: what was read in {topic}-{number} was the old topic's,"
                " and cannot be committed in the new one"
            )
        self._commit(offsets)

    def _commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        """From any thread, see `commit_handled`."""
        if self._member is not None:
            self._memberships.commit(self._member, offsets)
        else:
            missing = [partition for partition in offsets if partition not in self._cursors]
            for topic, number in missing:
                self._broker.partition(topic, number)  # says what is wrong, if there is no such partition
            if missing:
                raise not_assigned(missing, self._group or "")
            try:
                self._broker.commit_offsets(self._group or "", dict(offsets.items()))
            except UnknownMember as error:
                raise GroupNotEmpty(
                    f"group {self._group!r} has members, so a consumer with partitions of its own cannot commit for it"
                ) from error
        for partition, place in offsets.items():
            cursor = self._cursors.get(partition)
            if cursor is not None:
                cursor.committed = place.offset
                # Or the next commit that happens by itself would take the group back.
                cursor.handled = max(cursor.handled, place.offset)

    def committed(self, partition: TopicPartition) -> OffsetAndMetadata | None:
        self._check_group(reading=True)
        return self._committed([partition]).get(partition)

    def _committed(self, partitions: list[TopicPartition]) -> Mapping[tuple[str, int], OffsetAndMetadata]:
        return self._broker.committed(self._group, partitions) if self._group is not None and partitions else {}

    def _check_group(self, *, reading: bool = False) -> None:
        if self._group is None:
            raise InvalidArgument("this consumer has no group, so it commits nothing; give it one: group='name'")
        if self._broker.read_only and not reading:
            raise ReadOnly(
                "committing writes to the log, which was opened with mode='r'; commit in the process that writes,"
                " or keep the offset with your own state"
            )
