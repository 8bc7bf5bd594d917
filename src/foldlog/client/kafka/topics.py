"""A cluster's topics: made, changed, described, and where their partitions begin and end."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

from foldlog.broker.topic_changes import check_partition_count
from foldlog.broker.topic_config import DEFAULT_CONFIG, TopicConfig
from foldlog.broker.topic_names import check_user_topic_name, is_internal, require_text
from foldlog.client.cluster_requests import EARLIEST, LATEST, list_offsets
from foldlog.client.descriptions import ConfigEntry
from foldlog.client.kafka import everywhere
from foldlog.client.kafka.faults import Where, late
from foldlog.client.kafka.handles import Attempt, Handles, confluent
from foldlog.client.partitioners import checked_partition
from foldlog.client.positions import Place, resolve_place
from foldlog.errors import (
    FoldlogError,
    InvalidArgument,
    InvalidConfig,
    ReadOnly,
    TopicExists,
    UnknownTopic,
    brief_repr,
)
from foldlog.records.batch import MAX_INT64

if TYPE_CHECKING:
    from confluent_kafka import TopicPartition as KafkaTopicPartition
    from confluent_kafka.admin import TopicDescription

    from foldlog.client.cluster_links import ClusterLinks

Done = TypeVar("Done")

_OFFSET_INVALID: Final = -1001

_LOW_64_BITS: Final = (1 << 64) - 1

_LOOK_AGAIN_S: Final = 0.02


@dataclass(frozen=True, slots=True)
class KafkaTopic:
    """One topic of a cluster at one moment. `topic_id` is zeros where the cluster has none.

    `config` has the settings that foldlog knows; `KafkaLog.topic_config` tells all.
    """

    name: str
    topic_id: str
    config: TopicConfig
    partition_count: int


class Bounds(NamedTuple):
    """What can be read of one partition at one moment: [log_start_offset, high_watermark)."""

    label: tuple[str, int]
    log_start_offset: int
    high_watermark: int
    leader_epoch: int


class KafkaTopics:
    """The part of a KafkaLog that is about topics. Any thread."""

    _handles: Handles

    # --- changes --------------------------------------------------------------------------------------------------

    def create_topic(self, name: str, partitions: int = 1, config: Mapping[str, object] | None = None) -> KafkaTopic:
        """Make a topic with as many replicas as the cluster has for a default. Ready to be used on return.

        TopicExists, and nothing touched, if there is one of that name. Settings have Kafka's names.
        """
        from confluent_kafka.admin import NewTopic

        check_user_topic_name(name)
        check_partition_count(partitions)
        texts = {setting: setting_text(setting, value) for setting, value in _mapping(config or {}).items()}
        wanted = NewTopic(name, num_partitions=partitions, replication_factor=-1, config=texts)

        def attempt(now: Attempt) -> None:
            made = now.admin.create_topics([wanted], operation_timeout=now.timeout_s, request_timeout=now.timeout_s)
            try:
                self._handles.answer(made[name], now, Where(name))
            except TopicExists:
                if not now.is_repeated:
                    raise

        self._handles.retried(attempt)
        self._wait_until_led(name, partitions, f"making topic {name!r}")
        return self.topic(name)

    def delete_topic(self, name: str) -> None:
        """Delete a topic and all its records, for good."""
        self._described(name)

        def attempt(now: Attempt) -> None:
            gone = now.admin.delete_topics([name], operation_timeout=now.timeout_s, request_timeout=now.timeout_s)
            try:
                self._handles.answer(gone[name], now, Where(name))
            except UnknownTopic:
                if not now.is_repeated:
                    raise

        self._handles.retried(attempt)
        self._wait_until(
            lambda links: everywhere.is_gone(links, name), lambda: self._size(name) < 0, f"deleting topic {name!r}"
        )

    def grow_topic(self, name: str, partitions: int) -> KafkaTopic:
        """Add partitions until there are `partitions`. Keys move: order per key starts anew."""
        from confluent_kafka.admin import NewPartitions

        self._described(name)
        check_partition_count(partitions)

        def attempt(now: Attempt) -> None:
            if now.is_repeated and self.partition_count(name) == partitions:
                return
            grown = now.admin.create_partitions(
                [NewPartitions(name, partitions)], operation_timeout=now.timeout_s, request_timeout=now.timeout_s
            )
            self._handles.answer(grown[name], now, Where(name))

        self._handles.retried(attempt)
        self._wait_until_led(name, partitions, f"growing topic {name!r}")
        return self.topic(name)

    def alter_topic(self, name: str, changes: Mapping[str, object | None]) -> KafkaTopic:
        """Change settings; None puts one back to its default. In force on return."""
        from confluent_kafka.admin import AlterConfigOpType, ConfigResource, ResourceType
        from confluent_kafka.admin import ConfigEntry as Change

        self._described(name)
        texts = {
            setting: None if value is None else setting_text(setting, value)
            for setting, value in _mapping(changes).items()
        }
        changed = [
            Change(
                setting, text, incremental_operation=AlterConfigOpType.DELETE if text is None else AlterConfigOpType.SET
            )
            for setting, text in texts.items()
        ]
        if changed:
            resource = ConfigResource(ResourceType.TOPIC, name, incremental_configs=changed)
            self._handles.ask(
                lambda now: _only(now.admin.incremental_alter_configs([resource], request_timeout=now.timeout_s)),
                Where(name),
            )
            self._wait_until(
                lambda links: everywhere.has_settings(links, name, texts), lambda: True, f"altering topic {name!r}"
            )
        return self.topic(name)

    def _wait_until_led(self, name: str, partitions: int, what: str) -> None:
        """Each of so many partitions has a leader, and whoever is asked next will know."""
        self._wait_until(
            lambda links: everywhere.is_led(links, name, partitions), lambda: self._size(name) >= partitions, what
        )

    def _size(self, name: str) -> int:
        """How many partitions of the topic have a leader, as one of the brokers says; -1 if there is no such topic."""
        try:
            found = self._described(name)
        except UnknownTopic:
            return -1
        return sum(one.leader is not None for one in found.partitions)

    def _wait_until(
        self, is_so_everywhere: Callable[[ClusterLinks], bool], is_so: Callable[[], bool], what: str
    ) -> None:
        """Brokers hear of a change one after the other. librdkafka asks one of them: all are asked over our own
        connections, where these can be made."""
        if not self._handles.speaks_wire:
            self._look_again_until(is_so, what)
            return
        with self._handles.wire() as links:
            self._look_again_until(lambda: links.retried(lambda: is_so_everywhere(links)), what)

    def _look_again_until(self, is_so: Callable[[], bool], what: str) -> None:
        deadline_s = time.monotonic() + self._handles.call_s
        while not is_so():
            if time.monotonic() > deadline_s:
                raise late(what, self._handles.call_s * 1000)
            time.sleep(_LOOK_AGAIN_S)

    # --- descriptions ---------------------------------------------------------------------------------------------

    def topics(self, include_internal: bool = False) -> list[str]:
        """Their names, in order; those that this client may see."""
        names = sorted(self._listed())
        if include_internal:
            return names
        return [name for name in names if not is_internal(name)]

    def _listed(self) -> list[str]:
        return list(self._handles.retried(lambda now: now.admin.list_topics(timeout=now.timeout_s)).topics)

    def topic(self, name: str) -> KafkaTopic:
        """A topic's id, partition count and settings; UnknownTopic if there is none of that name."""
        found = self._described(name)
        return KafkaTopic(
            name, _hexadecimal(found.topic_id), _known_config(self.topic_config(name)), len(found.partitions)
        )

    def topic_config(self, name: str) -> dict[str, ConfigEntry]:
        """Every setting in force, by Kafka's name, and whether the topic itself sets it."""
        from confluent_kafka.admin import ConfigResource, ResourceType

        require_text(name)
        resource = ConfigResource(ResourceType.TOPIC, name)
        try:
            found = self._handles.ask(
                lambda now: _only(now.admin.describe_configs([resource], request_timeout=now.timeout_s)), Where(name)
            )
        except UnknownTopic:
            raise self._unknown(name) from None
        return {
            one.name: ConfigEntry(str(one.value), one.source != everywhere.OWN_SETTING)
            for one in sorted(found.values(), key=lambda entry: entry.name)
            if one.value is not None
        }

    def _described(self, name: str) -> TopicDescription:
        if not require_text(name):
            raise self._unknown(name)
        wanted = confluent().TopicCollection([name])
        try:
            found: TopicDescription = self._handles.ask(
                lambda now: now.admin.describe_topics(wanted, request_timeout=now.timeout_s)[name], Where(name)
            )
        except UnknownTopic:
            raise self._unknown(name) from None
        return found

    def _unknown(self, name: str) -> UnknownTopic:
        """Names those that there are, where they can be asked for."""
        known: list[str] = []
        with suppress(FoldlogError):
            known = self.topics()
        return UnknownTopic(name, known)

    def partition_count(self, name: str) -> int:
        """How many partitions the topic has now: what `topic` tells, without asking for the settings."""
        return len(self._described(name).partitions)

    def warnings(self) -> list[str]:
        """What the owner should know: partitions without a leader, or with replicas that are behind."""
        found = self._handles.retried(lambda now: now.admin.list_topics(timeout=now.timeout_s))
        told: list[str] = []
        for name, topic in sorted(found.topics.items()):
            for number, one in sorted(topic.partitions.items()):
                if one.leader < 0:
                    told.append(f"{name}-{number} has no leader: it can be neither read nor written")
                elif len(one.isrs) < len(one.replicas):
                    told.append(f"{name}-{number} has {len(one.isrs)} of {len(one.replicas)} replicas in sync")
        return told

    # --- offsets --------------------------------------------------------------------------------------------------

    def offsets(self, topic: str) -> dict[int, tuple[int, int]]:
        """Per partition the log start offset and where reading ends now: what can be read is [start, end).

        The end is the high watermark; with isolation.level=read_committed, where the oldest open transaction begins.
        """
        numbers = range(self.partition_count(topic))
        return {
            one.label[1]: (one.log_start_offset, one.high_watermark)
            for one in self.bounds((topic, number) for number in numbers).values()
        }

    def bounds_of(self, topic: str, number: int) -> Bounds:
        """Where one partition begins and ends now; UnknownTopic, UnknownPartition."""
        checked_partition(topic, number, self.partition_count(topic))
        return self.bounds([(topic, number)])[topic, number]

    def offset_at(self, topic: str, number: int, timestamp_ms: int) -> int | None:
        """The offset of one partition's first record at or after `timestamp_ms`; None if there is none."""
        return self.offsets_at(topic, timestamp_ms)[number]

    def bounds(self, partitions: Iterable[tuple[str, int]]) -> dict[tuple[str, int], Bounds]:
        """The same of several, which there are."""
        chosen = list(partitions)
        starts = self._listed_offsets(dict.fromkeys(chosen, EARLIEST))
        ends = self._listed_offsets(dict.fromkeys(chosen, LATEST))
        return {
            one: Bounds(one, min(starts[one][0], ends[one][0]), ends[one][0], max(starts[one][1], ends[one][1]))
            for one in chosen
        }

    def _listed_offsets(self, times_ms: Mapping[tuple[str, int], int]) -> dict[tuple[str, int], tuple[int, int]]:
        """(offset, leader epoch) of each, at a time or EARLIEST or LATEST; the offset is -1 where there is none.

        Over our own connections, which wait for a partition's leader; librdkafka 2.16 answers at once with no offset
        and no error while there is none.
        """
        if not self._handles.speaks_wire:
            return self._offsets_by_library(times_ms)
        by_topic: dict[str, dict[int, int]] = {}
        for (topic, number), at in times_ms.items():
            by_topic.setdefault(topic, {})[number] = at
        with self._handles.wire() as links:
            return {
                (topic, number): (found.offset, found.leader_epoch)
                for topic, wanted in by_topic.items()
                for number, found in list_offsets(links, topic, wanted).items()
            }

    def _offsets_by_library(self, times_ms: Mapping[tuple[str, int], int]) -> dict[tuple[str, int], tuple[int, int]]:
        from confluent_kafka import IsolationLevel, TopicPartition
        from confluent_kafka.admin import OffsetSpec

        if not times_ms:
            return {}
        is_committed = self._handles.url.properties.get("isolation.level") == "read_committed"
        isolation = IsolationLevel.READ_COMMITTED if is_committed else IsolationLevel.READ_UNCOMMITTED
        named: dict[int, Any] = {
            EARLIEST: OffsetSpec.earliest(),  # type: ignore[no-untyped-call]
            LATEST: OffsetSpec.latest(),  # type: ignore[no-untyped-call]
        }
        wanted = {
            TopicPartition(*partition): named.get(at) or OffsetSpec.for_timestamp(at)
            for partition, at in times_ms.items()
        }

        def attempt(now: Attempt) -> dict[tuple[str, int], tuple[int, int]]:
            asked = now.admin.list_offsets(wanted, isolation_level=isolation, request_timeout=now.timeout_s)
            found: dict[tuple[str, int], tuple[int, int]] = {}
            for one, future in asked.items():
                where = Where(one.topic, one.partition)
                answer = self._handles.answer(future, now, where)
                if answer.offset <= _OFFSET_INVALID:
                    raise self._handles.no_leader(where)
                epoch = -1 if answer.leader_epoch is None else answer.leader_epoch
                found[one.topic, one.partition] = (answer.offset, epoch)
            return found

        return self._handles.retried(attempt)

    def offsets_at(self, topic: str, timestamp_ms: int) -> dict[int, int | None]:
        """Per partition the offset of the first record at or after `timestamp_ms`; None where there is none."""
        if type(timestamp_ms) is not int or not -MAX_INT64 <= timestamp_ms <= MAX_INT64:
            raise InvalidArgument(
                f"timestamp_ms {brief_repr(timestamp_ms)} is not a time: an int, milliseconds since 1970, below 2**63"
            )
        partitions = [(topic, number) for number in range(self.partition_count(topic))]
        if timestamp_ms < 0:
            # Brokers take such times for questions of another kind. Every record is at or after it.
            whole = self.bounds(partitions).items()
            return {
                number: one.log_start_offset if one.log_start_offset < one.high_watermark else None
                for (_, number), one in whole
            }
        found = self._listed_offsets(dict.fromkeys(partitions, timestamp_ms))
        return {number: None if offset < 0 else offset for (_, number), (offset, _) in found.items()}

    def delete_records(self, topic: str, before: Mapping[int, Place]) -> dict[int, int]:
        """Delete everything below an offset, per partition, for good; "end" means all. Answers the new log starts."""
        from confluent_kafka import TopicPartition

        if not isinstance(before, Mapping):
            raise InvalidArgument(f"delete_records() takes a dict such as {{0: 'end'}}, not {brief_repr(before)}")
        count = self.partition_count(topic)
        for number in before:
            checked_partition(topic, number, count)
        bounds = self.bounds((topic, number) for number in before)
        wanted: list[KafkaTopicPartition] = [
            TopicPartition(topic, number, resolve_place(bounds[topic, number], at, "before"))
            for number, at in before.items()
        ]
        if not wanted:
            return {}

        def attempt(now: Attempt) -> dict[int, int]:
            asked = now.admin.delete_records(wanted, request_timeout=now.timeout_s, operation_timeout=now.timeout_s)
            return {
                one.partition: self._handles.answer(future, now, Where(topic, one.partition)).low_watermark
                for one, future in asked.items()
            }

        return self._handles.retried(attempt)

    # --- upkeep ---------------------------------------------------------------------------------------------------

    def compact(self, topic: str | None = None) -> dict[tuple[str, int], object]:
        """Not here: the brokers compact when it is due, and nobody can ask them to."""
        raise ReadOnly(f"compaction at {self._handles.url} is done by the cluster itself, when it is due")

    def enforce_retention(self, topic: str | None = None) -> int:
        """Not here: the brokers do it when it is due. `delete_records` is the way to delete now."""
        raise ReadOnly(
            f"retention at {self._handles.url} is enforced by the cluster itself, when it is due; delete_records()"
            " deletes now"
        )


def _only(asked: Mapping[Any, Future[Done]]) -> Future[Done]:
    (future,) = asked.values()
    return future


def _hexadecimal(topic_id: Any) -> str:
    """A Uuid of librdkafka, as a directory's catalog writes it."""
    high, low = topic_id.get_most_significant_bits(), topic_id.get_least_significant_bits()
    return f"{high & _LOW_64_BITS:016x}{low & _LOW_64_BITS:016x}"


def setting_text(name: object, value: object) -> str:
    """A value as Kafka reads it.

    >>> setting_text("cleanup.policy", ["compact", "delete"]), setting_text("preallocate", True)
    ('compact,delete', 'true')
    """
    if not isinstance(name, str) or not name:
        raise InvalidConfig(f"there is no topic setting {brief_repr(name)}")
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str | int | float):
        return str(value)
    if isinstance(value, list | tuple):
        return ",".join(str(one) for one in value)
    raise InvalidConfig(f"{name}={brief_repr(value)} is not allowed; a setting is a str, a number or a list")


def _mapping(settings: Mapping[str, object | None]) -> Mapping[str, object | None]:
    if not isinstance(settings, Mapping):
        raise InvalidConfig(
            f"topic settings are a dict such as {{'retention.ms': 1000}}, not {brief_repr(settings)};"
            " names and values are Kafka's"
        )
    return settings


def _known_config(entries: Mapping[str, ConfigEntry]) -> TopicConfig:
    """The settings that foldlog knows: a cluster may have more, and newer values of the ones that it knows."""
    own: dict[str, object] = {}
    defaults: dict[str, str] = {}
    for name, entry in entries.items():
        with suppress(InvalidConfig):
            parsed = DEFAULT_CONFIG.with_changes({name: entry.value}).settings
            if entry.is_default:
                defaults.update(parsed)
            else:
                own.update(parsed)
    return TopicConfig.parse(own).with_defaults(defaults)
