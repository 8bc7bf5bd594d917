"""A cluster's topics: made, changed, described, and where their partitions begin and end."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeVar

from foldlog.broker.topic_changes import check_partition_count
from foldlog.broker.topic_config import DEFAULT_CONFIG, TopicConfig
from foldlog.broker.topic_names import (
    KAFKA_OWN_TOPICS,
    OwnTopicChange,
    check_user_topic_name,
    is_internal,
    kept_by_the_log,
    refuse_own_topic,
    require_text,
)
from foldlog.client.descriptions import ConfigEntry
from foldlog.client.kafka import everywhere
from foldlog.client.kafka.faults import Where, late
from foldlog.client.kafka.handles import Attempt, Handles, confluent
from foldlog.client.positions import checked_replication_factor
from foldlog.errors import (
    FoldlogError,
    InvalidConfig,
    TopicExists,
    UnknownTopic,
    brief_repr,
)

if TYPE_CHECKING:
    from confluent_kafka.admin import TopicDescription

    from foldlog.client.cluster_links import ClusterLinks

Done = TypeVar("Done")

_LOW_64_BITS: Final = (1 << 64) - 1

_LOOK_AGAIN_S: Final = 0.02

_AS_THE_CLUSTER_SAYS: Final = -1


@dataclass(frozen=True, slots=True)
class KafkaTopic:
    """One topic of a cluster at one moment. `topic_id` is zeros where the cluster has none.

    `config` has the settings that foldlog knows; `KafkaLog.topic_config` tells all. `growths` is None: a cluster does
    not remember how many partitions there were when a record came.
    """

    name: str
    topic_id: str
    config: TopicConfig
    partition_count: int
    growths: None = None

    @property
    def held_partitions(self) -> Sequence[int]:
        """The numbers of those that can be asked for: all."""
        return range(self.partition_count)


class KafkaTopics:
    """The part of a KafkaLog that is about topics. Any thread."""

    _handles: Handles

    changes = 0
    """How often this log has changed a topic: what is remembered of one from before may not be so any more."""

    # --- changes --------------------------------------------------------------------------------------------------

    def create_topic(
        self,
        name: str,
        partitions: int = 1,
        config: Mapping[str, object] | None = None,
        *,
        replication_factor: int | None = None,
    ) -> KafkaTopic:
        """Make a topic. Ready to be used on return; TopicExists, and nothing touched, if there is one of that name.

        `replication_factor` brokers have each record: as many as the cluster's default.replication.factor says, unless
        given, and InvalidArgument if there are fewer brokers. Settings have Kafka's names.
        """
        from confluent_kafka.admin import NewTopic

        check_user_topic_name(name)
        check_partition_count(partitions)
        texts = {setting: setting_text(setting, value) for setting, value in _mapping(config or {}).items()}
        replicas = checked_replication_factor(replication_factor) or _AS_THE_CLUSTER_SAYS
        wanted = NewTopic(name, num_partitions=partitions, replication_factor=replicas, config=texts)

        def attempt(now: Attempt) -> None:
            made = now.admin.create_topics([wanted], operation_timeout=now.timeout_s, request_timeout=now.timeout_s)
            try:
                self._handles.answer(made[name], now, Where(name))
            except TopicExists:
                if not now.is_repeated:
                    # Made a moment ago, perhaps: who is told that it is there finds it.
                    self._wait_until(
                        lambda links: everywhere.is_known(links, name),
                        lambda: self._size(name) >= 0,
                        f"finding topic {name!r}, which is being made",
                    )
                    raise

        self._handles.retried(attempt)
        self.changes += 1
        self._wait_until_led(name, partitions, f"making topic {name!r}")
        return self.topic(name)

    def delete_topic(self, name: str) -> None:
        """Delete a topic and all its records, for good."""
        self._changeable(name, OwnTopicChange.DELETE)

        def attempt(now: Attempt) -> None:
            gone = now.admin.delete_topics([name], operation_timeout=now.timeout_s, request_timeout=now.timeout_s)
            try:
                self._handles.answer(gone[name], now, Where(name))
            except UnknownTopic:
                if not now.is_repeated:
                    raise

        self._handles.retried(attempt)
        self.changes += 1
        self._wait_until(
            lambda links: everywhere.is_gone(links, name), lambda: self._size(name) < 0, f"deleting topic {name!r}"
        )

    def grow_topic(self, name: str, partitions: int) -> KafkaTopic:
        """Add partitions until there are `partitions`. Keys move: order per key starts anew."""
        from confluent_kafka.admin import NewPartitions

        self._changeable(name, OwnTopicChange.GROW)
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
        self.changes += 1
        return self.topic(name)

    def alter_topic(self, name: str, changes: Mapping[str, object | None]) -> KafkaTopic:
        """Change settings; None puts one back to its default. In force on return."""
        from confluent_kafka.admin import AlterConfigOpType, ConfigResource, ResourceType
        from confluent_kafka.admin import ConfigEntry as Change

        self._changeable(name, OwnTopicChange.ALTER)
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
            self.changes += 1
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

    def _changeable(self, name: str, change: OwnTopicChange) -> TopicDescription:
        """The same of a topic that is anybody's. Brokers would do as they are told with their own, too: without
        __consumer_offsets every group begins anew."""
        refuse_own_topic(name, change, KAFKA_OWN_TOPICS)
        found = self._described(name)
        if found.is_internal:
            raise kept_by_the_log(name, change.value)
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
