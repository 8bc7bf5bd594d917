"""A log on a Kafka cluster: Apache Kafka, our own broker on another machine, or anything else that speaks the protocol.

Topics are changed and described through librdkafka's admin client, and offsets, groups and tables asked for over our
own connections. Producers and consumers are librdkafka's: producer.py and consumption.py.
"""

from __future__ import annotations

import time
import weakref
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import replace
from threading import Lock
from typing import TYPE_CHECKING, Any, ClassVar, Final, NoReturn, TypeVar

from foldlog.broker.groups.committed import OffsetAndMetadata
from foldlog.broker.groups.messages import check_group_name
from foldlog.broker.topics.changes import check_partition_count
from foldlog.broker.topics.names import (
    OwnTopicChange,
    check_user_topic_name,
    is_internal,
    kept_by_the_log,
    refuse_own_topic,
    refuse_user_write,
    require_text,
)
from foldlog.client.backends.backend import Backend
from foldlog.client.backends.cluster import propagation
from foldlog.client.backends.cluster.consumption import ClusterConsumption
from foldlog.client.backends.cluster.faults import Where, late
from foldlog.client.backends.cluster.handles import Attempt, Handles, confluent
from foldlog.client.backends.cluster.producer import LibrarySender
from foldlog.client.backends.cluster.reading import ClusterSlice
from foldlog.client.backends.cluster.topics import (
    ClusterTopic,
    PartitionOffsets,
    checked_settings,
    cluster_topic,
    setting_text,
)
from foldlog.client.backends.cluster.url import parse_url
from foldlog.client.consumer.settings import ConsumerSettings
from foldlog.client.descriptions import ConfigEntry, GroupDescription
from foldlog.client.groups import commit_evicting
from foldlog.client.handle_types import RecordMetadata
from foldlog.client.outgoing import Outgoing, checked_partition
from foldlog.client.positions import Place, TopicPartition, checked_replication_factor, resolve_place
from foldlog.client.producer import ProducerSettings
from foldlog.client.reader import ReadRequest, resolve_stop
from foldlog.client.wire import groups
from foldlog.client.wire.requests import EARLIEST, LATEST, delete_group, list_offsets
from foldlog.clock import SystemClock
from foldlog.errors import FoldlogError, InvalidArgument, ReadOnly, TopicExists, UnknownTopic
from foldlog.records.loops import Record

if TYPE_CHECKING:
    import pyarrow as pa
    from confluent_kafka import TopicPartition as KafkaTopicPartition
    from confluent_kafka.admin import TopicDescription

    from foldlog.client.wire.links import ClusterLinks

Done = TypeVar("Done")

_LOOK_AGAIN_S: Final = 0.02

_AS_THE_CLUSTER_SAYS: Final = -1

_OFFSET_INVALID: Final = -1001

_SINGLE_RECORDS: Final = ProducerSettings(linger_ms=0, partitioner="round_robin")
"""What `append` sends with: one record is a batch, so keyless ones go round."""


def connect_cluster(url: str, properties: Mapping[str, object] | None = None) -> ClusterBackend:
    """The cluster that `foldlog.connect` names: see there."""
    handles = Handles(parse_url(url, properties))
    return ClusterBackend(handles, handles.find_cluster())


class ClusterBackend(Backend):
    """One cluster. Any thread."""

    LIMITS: ClassVar[Mapping[str, str]] = {
        "compact": "compaction{where} is done by the cluster itself, when it is due",
        "recompress": "what is stored{where} stays as the cluster has compressed it; the topic's compression.type is"
        " for records that come",
        "enforce_retention": "retention{where} is enforced by the cluster itself, when it is due; delete_records()"
        " deletes now",
    }

    def __init__(self, handles: Handles, cluster_id: str) -> None:
        """Use `connect_cluster`."""
        self.clock = SystemClock()
        self._handles = handles
        self._cluster_id = cluster_id
        self._appending = Lock()
        self._appender: LibrarySender | None = None
        self._consumptions: weakref.WeakSet[ClusterConsumption] = weakref.WeakSet()
        self.changes = 0
        """How often this log has changed a topic: what is remembered of one from before may not be so any more."""

    @property
    def path(self) -> str:
        return str(self._handles.url)

    @property
    def directory_id(self) -> str:
        return self._cluster_id

    @property
    def bootstrap(self) -> str:
        return self._handles.url.bootstrap

    @property
    def properties(self) -> Mapping[str, str]:
        """What was given to reach it, passwords among them."""
        return self._handles.url.properties

    @property
    def is_remote(self) -> bool:
        return True

    def check_usable(self) -> None:
        self._handles.check_usable()

    # --- records --------------------------------------------------------------------------------------------------

    def append(self, topic: str, record: Outgoing) -> RecordMetadata:
        self._handles.check_usable()
        with self._appending:
            if self._appender is None:
                self._appender = self.sender(_SINGLE_RECORDS)
        return self._appender.enqueue(topic, *record).result()

    def sender(self, settings: ProducerSettings) -> LibrarySender:
        return LibrarySender(self, self._handles, settings)

    def append_table(
        self, topic: str, table: pa.Table | pa.RecordBatch, compression: int, batch_bytes: int
    ) -> dict[int, tuple[int, int]]:
        from foldlog.client.backends.cluster import tables

        self._handles.check_usable()
        refuse_user_write(require_text(topic))
        return tables.append_table(self._handles, self.topic(topic), table, compression, batch_bytes)

    def reading(self, settings: ConsumerSettings) -> ClusterConsumption:
        made = ClusterConsumption(self, self._handles, settings)
        self._consumptions.add(made)
        return made

    def companions(self, one: ClusterConsumption) -> list[ClusterConsumption]:
        """How the other consumers of this log read: they may be members of the same group."""
        return [other for other in list(self._consumptions) if other is not one]

    def read(
        self, topic: str, partition: int | None, request: ReadRequest, *, follow: bool, timeout_ms: float | None
    ) -> Generator[Record, None, None]:
        bounds = self.bounds_of(topic, self._one_partition(topic, partition))
        wanted = ClusterSlice(
            self._handles,
            bounds,
            resolve_place(bounds, request.start, "start"),
            None if request.stop is None else resolve_stop(bounds, request.stop),
            request.max_records,
            request.deserializers,
            self.bounds_of,
        )
        return wanted.follow(timeout_ms) if follow else wanted.records()

    def _one_partition(self, topic: str, partition: int | None) -> int:
        count = self.partition_count(topic)
        if partition is None and count != 1:
            raise InvalidArgument(f"topic {topic!r} has {count} partitions; say which, from 0 to {count - 1}")
        return checked_partition(topic, 0 if partition is None else partition, count)

    def read_table(
        self,
        topic: str,
        partitions: Iterable[int] | None,
        start: Mapping[int, Place] | Place | None,
        stop: Mapping[int, Place] | Place | None,
        columns: Sequence[str],
    ) -> pa.Table:
        from foldlog.client.backends.cluster import tables
        from foldlog.client.bulk import per_partition

        count = self.partition_count(topic)
        chosen = range(count) if partitions is None else partitions
        numbers = sorted({checked_partition(topic, number, count) for number in chosen})
        starts, stops = per_partition(start, numbers, "start"), per_partition(stop, numbers, "stop")
        bounds = self.bounds((topic, number) for number in numbers)
        ranges = [
            tables.TableRange(
                topic,
                number,
                resolve_place(one, starts.get(number, "start"), "start"),
                min(resolve_stop(one, stops.get(number, "end")), one.high_watermark),
            )
            for (_, number), one in bounds.items()
        ]
        return tables.read_table(self._handles, ranges, columns)

    # --- topics, changed ----------------------------------------------------------------------------------------------

    def create_topic(
        self,
        name: str,
        partitions: int,
        config: Mapping[str, object] | None,
        replication_factor: int | None,
    ) -> ClusterTopic:
        """Make a topic. Ready to be used on return; TopicExists, and nothing touched, if there is one of that name.

        `replication_factor` brokers have each record: as many as the cluster's default.replication.factor says, unless
        given, and InvalidArgument if there are fewer brokers. Settings have Kafka's names.
        """
        from confluent_kafka.admin import NewTopic

        check_user_topic_name(name)
        check_partition_count(partitions)
        texts = {setting: setting_text(setting, value) for setting, value in checked_settings(config or {}).items()}
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
                        lambda links: propagation.is_known(links, name),
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
            lambda links: propagation.is_gone(links, name), lambda: self._size(name) < 0, f"deleting topic {name!r}"
        )

    def grow_topic(self, name: str, partitions: int) -> ClusterTopic:
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

    def alter_topic(self, name: str, changes: Mapping[str, object | None]) -> ClusterTopic:
        """Change settings; None puts one back to its default. In force on return."""
        from confluent_kafka.admin import AlterConfigOpType, ConfigResource, ResourceType
        from confluent_kafka.admin import ConfigEntry as Change

        self._changeable(name, OwnTopicChange.ALTER)
        texts = {
            setting: None if value is None else setting_text(setting, value)
            for setting, value in checked_settings(changes).items()
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
                lambda links: propagation.has_settings(links, name, texts), lambda: True, f"altering topic {name!r}"
            )
            self.changes += 1
        return self.topic(name)

    def _wait_until_led(self, name: str, partitions: int, what: str) -> None:
        """Each of so many partitions has a leader, and whoever is asked next will know."""
        self._wait_until(
            lambda links: propagation.is_led(links, name, partitions), lambda: self._size(name) >= partitions, what
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

    # --- topics, described --------------------------------------------------------------------------------------------

    def topics(self, include_internal: bool) -> list[str]:
        """Their names, in order; those that this client may see."""
        names = sorted(self._listed())
        if include_internal:
            return names
        return [name for name in names if not is_internal(name)]

    def _listed(self) -> list[str]:
        return list(self._handles.retried(lambda now: now.admin.list_topics(timeout=now.timeout_s)).topics)

    def topic(self, name: str) -> ClusterTopic:
        """A topic's id, partition count and settings; UnknownTopic if there is none of that name."""
        found = self._described(name)
        return cluster_topic(name, found.topic_id, len(found.partitions), self.topic_config(name))

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
            one.name: ConfigEntry(str(one.value), one.source != propagation.OWN_SETTING)
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
        """`_described` of a topic that is anybody's. Brokers would do as they are told with their own, too: without
        __consumer_offsets every group begins anew."""
        refuse_own_topic(name, change)
        found = self._described(name)
        if found.is_internal:
            raise kept_by_the_log(name, change.value)
        return found

    def _unknown(self, name: str) -> UnknownTopic:
        """Names those that there are, where they can be asked for."""
        known: list[str] = []
        with suppress(FoldlogError):
            known = self.topics(include_internal=False)
        return UnknownTopic(name, known)

    def partition_count(self, name: str) -> int:
        """How many partitions the topic has now: what `topic` tells, without asking for the settings."""
        return len(self._described(name).partitions)

    def check_topic(self, name: str) -> None:
        self._described(name)

    def check_partitions(self, partitions: Iterable[tuple[str, int]]) -> None:
        counts: dict[str, int] = {}
        for topic, number in partitions:
            if topic not in counts:
                counts[topic] = self.partition_count(topic)
            checked_partition(topic, number, counts[topic])

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

    def bounds_of(self, topic: str, number: int) -> PartitionOffsets:
        """Where one partition begins and ends now; UnknownTopic, UnknownPartition."""
        checked_partition(topic, number, self.partition_count(topic))
        return self.bounds([(topic, number)])[topic, number]

    def offset_at(self, topic: str, number: int, timestamp_ms: int) -> int | None:
        """The offset of one partition's first record at or after `timestamp_ms`; None if there is none."""
        return self.offsets_at(topic, timestamp_ms)[number]

    def bounds(self, partitions: Iterable[tuple[str, int]]) -> dict[tuple[str, int], PartitionOffsets]:
        """Of several, which there are."""
        chosen = list(partitions)
        starts = self._listed_offsets(dict.fromkeys(chosen, EARLIEST))
        ends = self._listed_offsets(dict.fromkeys(chosen, LATEST))
        found: dict[tuple[str, int], PartitionOffsets] = {}
        for one in chosen:
            (start, start_epoch), (end, end_epoch) = starts[one], ends[one]
            found[one] = PartitionOffsets(one, min(start, end), end, max(start_epoch, end_epoch))
        return found

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

        count = len(self._changeable(topic, OwnTopicChange.DELETE_RECORDS).partitions)
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

    def compact(self, topic: str | None) -> NoReturn:
        raise self._cannot("compact")

    def recompress(self, topic: str, codec: str) -> NoReturn:
        raise self._cannot("recompress")

    def enforce_retention(self, topic: str | None) -> NoReturn:
        raise self._cannot("enforce_retention")

    def _cannot(self, method: str) -> ReadOnly:
        return ReadOnly(self.LIMITS[method].format(where=f" at {self._handles.url}"))

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

    # --- groups ---------------------------------------------------------------------------------------------------

    def groups(self) -> list[str]:
        """Every group that has members or committed offsets, in order."""

        def attempt(now: Attempt) -> list[str]:
            listed = self._handles.answer(now.admin.list_consumer_groups(request_timeout=now.timeout_s), now)
            if listed.errors:  # of one broker of several: the groups that it looks after would be missing
                raise self._handles.kafka_exception(listed.errors[0])
            return sorted({one.group_id for one in listed.valid})

        return self._handles.retried(attempt)

    def describe_group(self, group: str) -> GroupDescription:
        with self._handles.wire() as links:
            return groups.describe_group(links, group)

    def committed(self, group: str) -> dict[TopicPartition, OffsetAndMetadata]:
        check_group_name(group)
        with self._handles.wire() as links:
            places = groups.committed_places(links, group)
        # confluent-kafka 2.16 commits the byte that ends a string in C as part of the note.
        return {one: replace(at, metadata=at.metadata.removesuffix("\0")) for one, at in sorted(places.items())}

    def move_group(self, group: str, offsets: Mapping[TopicPartition, OffsetAndMetadata], *, evict: bool) -> None:
        if not offsets:
            return
        with self._handles.wire() as links:

            def commit() -> None:
                groups.commit_places(links, group, offsets)

            if evict:
                commit_evicting(commit, lambda: groups.evict_members(links, group))
            else:
                commit()

    def delete_group(self, group: str) -> None:
        with self._handles.wire() as links:
            delete_group(links, group)

    def delete_offsets(self, group: str, partitions: Sequence[TopicPartition]) -> None:
        self.check_partitions(partitions)
        if partitions:
            with self._handles.wire() as links:
                groups.delete_offsets(links, group, partitions)

    # --- closing --------------------------------------------------------------------------------------------------

    def close(self) -> None:
        if self._appender is not None:
            with suppress(FoldlogError):  # each append has raised its own
                self._appender.close()
        self._handles.close()


def _only(asked: Mapping[Any, Future[Done]]) -> Future[Done]:
    (future,) = asked.values()
    return future
