"""What a consumer of a cluster commits, by itself and on request; and the librdkafka consumer that it does it with."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from threading import RLock
from typing import TYPE_CHECKING, Final

from foldlog.broker.bookmarks import OffsetAndMetadata
from foldlog.client.assignments import not_assigned
from foldlog.client.assignors import RANGE, ROUND_ROBIN, STICKY
from foldlog.client.consumer_settings import ConsumerSettings
from foldlog.client.evictions import HAS_MEMBERS
from foldlog.client.kafka.bounded import BoundedCalls
from foldlog.client.kafka.cursors import KafkaCursor
from foldlog.client.kafka.faults import Where
from foldlog.client.kafka.groups import KafkaGroups
from foldlog.client.kafka.handles import Handles, Trouble
from foldlog.client.kafka.records import committed_in, place_of
from foldlog.client.positions import TopicPartition
from foldlog.errors import (
    BrokerUnreachable,
    GroupError,
    GroupNotEmpty,
    InvalidArgument,
    LogClosed,
    StorageError,
    UnknownPartition,
    UnknownTopic,
)

if TYPE_CHECKING:
    from confluent_kafka import Consumer as LibraryConsumer

_log = logging.getLogger("foldlog")

_SESSION_MS: Final = 45_000
_HEARTBEATS_PER_SESSION: Final = 15
"""Kafka's defaults: session.timeout.ms, and how often a member shows that it lives within it."""

_RESETS: Final = {"latest": "latest", "earliest": "earliest", "none": "error"}
_STRATEGIES: Final = {STICKY: "cooperative-sticky", RANGE: "range", ROUND_ROBIN: "roundrobin"}
_EITHER: Final = "range,roundrobin"
"""What members of every make understand; librdkafka cannot offer its cooperative assignor beside these."""


class KafkaCommits:
    """The half of a consumer's state that is committed: its cursors, and how far what they gave was dealt with."""

    def __init__(self, log: KafkaGroups, handles: Handles, settings: ConsumerSettings) -> None:
        self._topics_of = log
        self._handles = handles
        self._settings = settings
        self._group = settings.group
        self._auto_commits = settings.auto_commit and settings.group is not None
        self._lock = RLock()
        self._trouble = Trouble()
        self._consumer: LibraryConsumer | None = None
        self._cursors: dict[TopicPartition, KafkaCursor] = {}
        self._served: KafkaCursor | None = None
        self._topics: tuple[str, ...] = ()
        self._lost: set[TopicPartition] = set()
        self._next_commit_s = 0.0
        self._commits = BoundedCalls()

    def _library(self) -> LibraryConsumer:
        """Made when there is something to read, and again after it was let go of."""
        if self._consumer is None:
            self._consumer = self._handles.consumer(self._library_settings(), self._trouble)
        return self._consumer

    def is_cut_off(self) -> bool:
        return self._handles.is_cut_off(self._trouble)

    def _library_settings(self) -> dict[str, object]:
        given, settings = self._handles.url.properties, self._settings
        made: dict[str, object] = {
            "group.id": self._group or "foldlog-reader",  # librdkafka wants one; without a group it is not used
            "enable.auto.commit": "false",
            "enable.auto.offset.store": "false",
            "enable.partition.eof": "true",
            "auto.offset.reset": _RESETS[settings.auto_offset_reset],
        }
        if self._group is None:
            return made
        made["max.poll.interval.ms"] = settings.max_poll_interval_ms
        if settings.group_instance_id is not None:
            made["group.instance.id"] = settings.group_instance_id
        if not self._is_shared_out_by_brokers:  # there they set all of these
            session_ms = int(given.get("session.timeout.ms", min(_SESSION_MS, settings.max_poll_interval_ms)))
            made["session.timeout.ms"] = session_ms
            made["heartbeat.interval.ms"] = given.get("heartbeat.interval.ms", session_ms // _HEARTBEATS_PER_SESSION)
            made["partition.assignment.strategy"] = _STRATEGIES.get(settings.assignor or "", _EITHER)
        return made

    @property
    def _is_shared_out_by_brokers(self) -> bool:
        """Whether the group has the protocol of KIP-848, not the older one in which members share partitions."""
        return self._handles.url.properties.get("group.protocol", "classic").lower() == "consumer"

    # --- committing -----------------------------------------------------------------------------------------------

    def count_as_handled(self) -> None:
        """What was handed out so far has been dealt with."""
        if self._auto_commits:
            with self._lock:
                for cursor in self._cursors.values():
                    cursor.handled = cursor.position

    def count_last_as_handled(self) -> None:
        """The same after a single record, for a loop that takes one at a time."""
        if self._served is not None:
            self._served.handled = self._served.position

    def commit_handled(self) -> None:
        """Commit what was dealt with, if this consumer commits by itself. What fails is tried again."""
        if not self._auto_commits:
            return
        self._next_commit_s = time.monotonic() + self._settings.auto_commit_interval_ms / 1000
        moved = {
            one.partition: OffsetAndMetadata(one.handled, one.leader_epoch)
            for one in self._cursors.values()
            if one.handled != one.committed and one.problem is None
        }
        if not moved:
            return
        try:
            self._commit(moved)
        except (GroupError, StorageError, BrokerUnreachable, LogClosed, UnknownTopic, UnknownPartition) as error:
            # Nothing is lost by it: whoever reads on from the older commit sees these records again.
            _log.warning("auto-commit of group %r failed, and is tried again: %s", self._group, error)

    def commit_all(self, metadata: str) -> None:
        """Commit all that was handed out and is still ours; NotAssigned names what no longer is."""
        self._check_group()
        with self._lock:
            places = {
                one.partition: OffsetAndMetadata(one.position, one.leader_epoch, metadata)
                for one in self._cursors.values()
                if one.problem is None
            }
            if places:
                self._commit(places)
            lost, self._lost = self._lost, set()
        if lost:
            raise not_assigned(lost, self._group or "")

    def commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        """Acknowledged by the group's coordinator on return."""
        self._check_group()
        with self._lock:
            missing = [partition for partition in offsets if partition not in self._cursors]
            for partition in missing:
                self._topics_of.bounds_of(*partition)  # says what is wrong, if there is no such partition
            if missing:
                raise not_assigned(missing, self._group or "")
            self._commit(offsets)

    def _commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        for (topic, number), place in offsets.items():
            if place.offset < 0:
                raise InvalidArgument(f"cannot commit offset {place.offset} of {topic}-{number}: offsets start at 0")
        wanted = [place_of(one, place) for one, place in offsets.items()]

        def attempt(left_s: float) -> None:
            consumer = self._library()
            for answer in self._commits.run(lambda: consumer.commit(offsets=wanted, asynchronous=False), left_s):
                if answer.error is not None:
                    raise self._handles.kafka_exception(answer.error)

        try:
            self._handles.patiently(attempt, Where(group=self._group), self._trouble)
        except HAS_MEMBERS as fault:
            if self._topics:
                raise
            raise GroupNotEmpty(
                f"group {self._group!r} has members, so a consumer with partitions of its own cannot commit for it"
            ) from fault
        for partition, place in offsets.items():
            cursor = self._cursors.get(partition)
            if cursor is not None:
                cursor.committed = place.offset
                # Or the next commit that happens by itself would take the group back.
                cursor.handled = max(cursor.handled, place.offset)

    def committed(self, partition: TopicPartition) -> OffsetAndMetadata | None:
        self._check_group()
        return self._committed([partition]).get(partition)

    def _committed(self, partitions: list[TopicPartition]) -> dict[TopicPartition, OffsetAndMetadata]:
        from confluent_kafka import TopicPartition as Place

        if self._group is None or not partitions:
            return {}

        def attempt(left_s: float) -> list[Place]:
            found = self._library().committed([Place(*one) for one in partitions], timeout=left_s)
            for one in found:
                if one.error is not None:  # to take it for "nothing committed" would be to read from elsewhere
                    raise self._handles.kafka_exception(one.error)
            return found

        found = self._handles.patiently(attempt, Where(group=self._group), self._trouble)
        return {TopicPartition(one.topic, one.partition): committed_in(one) for one in found if one.offset >= 0}

    def _check_group(self) -> None:
        if self._group is None:
            raise InvalidArgument("this consumer has no group, so it commits nothing; give it one: group='name'")
