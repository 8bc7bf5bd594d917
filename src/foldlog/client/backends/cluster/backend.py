"""A log on a Kafka cluster: Apache Kafka, our own broker on another machine, or anything else that speaks the protocol.

Producers, and consumers with a group, are librdkafka's: producer.py and consumption.py. Everything else goes over our
own connections, consumers without a group among it: direct.py.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from threading import Lock
from typing import TYPE_CHECKING, ClassVar, Final, NoReturn

from foldlog.broker.groups.committed import OffsetAndMetadata
from foldlog.broker.groups.messages import check_group_name
from foldlog.broker.storage import READ_COMMITTED
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
from foldlog.client.backends.cluster.consumption import LibraryConsumption
from foldlog.client.backends.cluster.direct import DirectConsumption
from foldlog.client.backends.cluster.handles import Handles
from foldlog.client.backends.cluster.producer import LibrarySender
from foldlog.client.backends.cluster.reading import ClusterSlice
from foldlog.client.backends.cluster.topics import (
    PartitionOffsets,
    checked_settings,
    cluster_topic,
    setting_text,
)
from foldlog.client.backends.cluster.transactions import ClusterSession
from foldlog.client.backends.cluster.url import parse_url
from foldlog.client.consumer.settings import ConsumerSettings
from foldlog.client.descriptions import ConfigEntry, GroupDescription, OpenProducer, Topic, TransactionDescription
from foldlog.client.handle_types import RecordMetadata
from foldlog.client.outgoing import Outgoing, checked_partition
from foldlog.client.positions import Place, TopicPartition, checked_replication_factor, resolve_place
from foldlog.client.producer import ProducerSettings
from foldlog.client.reader import ReadRequest, resolve_stop
from foldlog.client.wire import admin, questions
from foldlog.client.wire.transactions.requests import init_producer
from foldlog.clock import SystemClock
from foldlog.errors import FoldlogError, InvalidArgument, ReadOnly, UnknownTopic
from foldlog.records.batch import NO_PRODUCER_EPOCH, NO_PRODUCER_ID
from foldlog.records.loops import Record

if TYPE_CHECKING:
    import pyarrow as pa

    from foldlog.broker.broker import Broker
    from foldlog.client.access import AccessAdmin
    from foldlog.client.backends.cluster.queue import ClusterTaking
    from foldlog.client.queue.queue import QueueSettings
    from foldlog.client.wire.links import ClusterLinks, TopicMetadata
    from foldlog.client.wire.questions import Answer, Done, Question

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
        "recompress": "a cluster cannot recompress what is stored{where}; the topic's compression.type applies to"
        " new records",
        "enforce_retention": "retention{where} is enforced by the cluster itself, when it is due; delete_records()"
        " deletes now",
        "Queue.renew": "locks{where} cannot be renewed: librdkafka's share consumer has only accept, release and"
        " reject; set the group's share.record.lock.duration.ms higher",
    }

    def __init__(self, handles: Handles, cluster_id: str) -> None:
        """Use `connect_cluster`."""
        self.clock = SystemClock()
        self._handles = handles
        self._cluster_id = cluster_id
        self._appending = Lock()
        self._appender: LibrarySender | None = None
        self._consumptions: weakref.WeakSet[LibraryConsumption] = weakref.WeakSet()
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

    def transactions(self, transactional_id: str) -> ClusterSession:
        return ClusterSession(self, self._handles, transactional_id)

    def append_table(
        self, topic: str, table: pa.Table | pa.RecordBatch, compression: int, batch_bytes: int
    ) -> dict[int, tuple[int, int]]:
        from foldlog.client.backends.cluster import tables

        self._handles.check_usable()
        refuse_user_write(require_text(topic))
        return tables.append_table(self._handles, self.topic(topic), table, compression, batch_bytes)

    def taking(self, settings: QueueSettings) -> ClusterTaking:
        from foldlog.client.backends.cluster.queue import ClusterTaking, check_share_consumer

        check_share_consumer()
        for name in settings.topics:
            self.check_topic(name)
        settings = settings.of_log(committed=self.properties.get("isolation.level") == READ_COMMITTED)
        if settings.group_settings:
            with self._handles.wire() as links:
                links.ask(questions.alter_group(settings.group, settings.group_settings))
        return ClusterTaking(self._handles, settings, self._cannot("Queue.renew"))

    def reading(self, settings: ConsumerSettings) -> LibraryConsumption | DirectConsumption:
        if settings.group is None:
            self._handles.check_wire()
            return DirectConsumption(self, self._handles, settings)
        made = LibraryConsumption(self, self._handles, settings, settings.group)
        self._consumptions.add(made)
        return made

    def companions(self, one: LibraryConsumption) -> list[LibraryConsumption]:
        """How the other consumers with a group read: they may be members of the same one."""
        return [other for other in list(self._consumptions) if other is not one]

    def read(
        self, topic: str, partition: int | None, request: ReadRequest, *, follow: bool, timeout_ms: float | None
    ) -> Generator[Record, None, None]:
        bounds = self.bounds_of(topic, self._one_partition(topic, partition), request.committed)
        wanted = ClusterSlice(
            self._handles,
            bounds,
            resolve_place(bounds, request.start, "start"),
            None if request.stop is None else resolve_stop(bounds, request.stop),
            request.max_records,
            request.deserializers,
            request.committed,
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
        committed: bool | None,
    ) -> pa.Table:
        from foldlog.client.backends.cluster import tables
        from foldlog.client.bulk import per_partition

        count = self.partition_count(topic)
        chosen = range(count) if partitions is None else partitions
        numbers = sorted({checked_partition(topic, number, count) for number in chosen})
        starts, stops = per_partition(start, numbers, "start"), per_partition(stop, numbers, "stop")
        bounds = self.bounds(((topic, number) for number in numbers), committed)
        ranges = [
            tables.TableRange(
                topic,
                number,
                resolve_place(one, starts.get(number, "start"), "start"),
                min(resolve_stop(one, stops.get(number, "end")), one.high_watermark),
            )
            for (_, number), one in bounds.items()
        ]
        return tables.read_table(self._handles, ranges, columns, committed)

    # --- topics, changed ----------------------------------------------------------------------------------------------

    def create_topic(
        self,
        name: str,
        partitions: int,
        config: Mapping[str, object] | None,
        replication_factor: int | None,
    ) -> Topic:
        """Make a topic. Ready to be used on return; TopicExists, and nothing touched, if there is one of that name.

        `replication_factor` brokers have each record: as many as the cluster's default.replication.factor says, unless
        given, and InvalidArgument if there are fewer brokers. Settings have Kafka's names.
        """
        check_user_topic_name(name)
        check_partition_count(partitions)
        texts = {setting: setting_text(setting, value) for setting, value in checked_settings(config or {}).items()}
        replicas = checked_replication_factor(replication_factor) or questions.REPLICAS_DEFAULT
        with self._handles.wire() as links:
            admin.create_topic(links, name, partitions, texts, replicas)
        self.changes += 1
        return self.topic(name)

    def delete_topic(self, name: str) -> None:
        """Delete a topic and all its records, for good."""
        with self._changeable(name, OwnTopicChange.DELETE) as (links, _):
            admin.delete_topic(links, name)
        self.changes += 1

    def grow_topic(self, name: str, partitions: int) -> Topic:
        """Add partitions until there are `partitions`. Keys move: order per key starts anew."""
        with self._changeable(name, OwnTopicChange.GROW) as (links, _):
            check_partition_count(partitions)
            admin.grow_topic(links, name, partitions)
        self.changes += 1
        return self.topic(name)

    def alter_topic(self, name: str, changes: Mapping[str, object | None]) -> Topic:
        """Change settings; None puts one back to its default. In force on return."""
        with self._changeable(name, OwnTopicChange.ALTER) as (links, _):
            texts = {
                setting: None if value is None else setting_text(setting, value)
                for setting, value in checked_settings(changes).items()
            }
            if texts:
                admin.alter_topic(links, name, texts)
                self.changes += 1
        return self.topic(name)

    @contextmanager
    def _changeable(self, name: str, change: OwnTopicChange) -> Iterator[tuple[ClusterLinks, TopicMetadata]]:
        """A topic that is anybody's, and our connections to change it. Brokers would do as they are told with their
        own, too: without __consumer_offsets every group begins anew."""
        refuse_own_topic(name, change)
        with self._handles.wire() as links:
            found = self._described(links, name)
            if found.is_internal:
                raise kept_by_the_log(name, change.value)
            yield links, found

    # --- topics, described --------------------------------------------------------------------------------------------

    def topics(self, include_internal: bool) -> list[str]:
        """Their names, in order; those that this client may see."""
        with self._handles.wire() as links:
            return _names(links, include_internal=include_internal)

    def topic(self, name: str) -> Topic:
        """A topic's id, partition count and settings; UnknownTopic if there is none of that name."""
        with self._handles.wire() as links:
            return cluster_topic(self._described(links, name), admin.topic_settings(links, name))

    def topic_config(self, name: str) -> dict[str, ConfigEntry]:
        """Every setting in force, by Kafka's name, and whether the topic itself sets it."""
        with self._handles.wire() as links:
            return admin.topic_settings(links, self._described(links, name).name)

    def _described(self, links: ClusterLinks, name: str) -> TopicMetadata:
        try:
            if require_text(name):
                return links.topic(name)
        except UnknownTopic:
            pass
        # Names those that there are, where they can be asked for.
        known: list[str] = []
        with suppress(FoldlogError):
            known = _names(links, include_internal=False)
        raise UnknownTopic(name, known)

    def partition_count(self, name: str) -> int:
        """How many partitions the topic has now: what `topic` tells, without asking for the settings."""
        if self._handles.by_library is not None:
            return self._handles.by_library.partition_count(require_text(name))
        with self._handles.wire() as links:
            return self._described(links, name).partition_count

    def check_topic(self, name: str) -> None:
        self.partition_count(name)

    def check_partitions(self, partitions: Iterable[tuple[str, int]]) -> None:
        counts: dict[str, int] = {}
        for topic, number in partitions:
            if topic not in counts:
                counts[topic] = self.partition_count(topic)
            checked_partition(topic, number, counts[topic])

    # --- offsets --------------------------------------------------------------------------------------------------

    def offsets(self, topic: str, committed: bool | None = None) -> dict[int, tuple[int, int]]:
        """Per partition the log start offset and where reading ends now: what can be read is [start, end).

        The end is the high watermark; for readers of committed records, where the oldest open transaction begins.
        """
        numbers = range(self.partition_count(topic))
        return {
            one.label[1]: (one.log_start_offset, one.high_watermark)
            for one in self.bounds(((topic, number) for number in numbers), committed).values()
        }

    def bounds_of(self, topic: str, number: int, committed: bool | None = None) -> PartitionOffsets:
        """Where one partition begins and ends now; UnknownTopic, UnknownPartition."""
        checked_partition(topic, number, self.partition_count(topic))
        return self.bounds([(topic, number)], committed)[topic, number]

    def offset_at(self, topic: str, number: int, committed: bool | None, timestamp_ms: int) -> int | None:
        """The offset of one partition's first record at or after `timestamp_ms`; None if there is none."""
        with self._handles.wire(committed) as links:
            return admin.offsets_at(links, topic, {number: timestamp_ms})[number]

    def bounds(
        self, partitions: Iterable[tuple[str, int]], committed: bool | None = None
    ) -> dict[tuple[str, int], PartitionOffsets]:
        """Of several, which there are. Through librdkafka alone the end is the high watermark for everybody."""
        chosen = list(partitions)
        library = self._handles.by_library
        if library is not None:
            return {one: PartitionOffsets(one, *library.bounds(*one), leader_epoch=-1) for one in chosen}
        by_topic: dict[str, list[int]] = {}
        for topic, number in chosen:
            by_topic.setdefault(topic, []).append(number)
        with self._handles.wire(committed) as links:
            return {
                (topic, number): PartitionOffsets((topic, number), *found)
                for topic, numbers in by_topic.items()
                for number, found in admin.partition_bounds(links, topic, dict.fromkeys(numbers, -1)).items()
            }

    def offsets_at(self, topic: str, timestamp_ms: int) -> dict[int, int | None]:
        """Per partition the offset of the first record at or after `timestamp_ms`; None where there is none."""
        times_ms = dict.fromkeys(range(self.partition_count(topic)), timestamp_ms)
        with self._handles.wire() as links:
            return admin.offsets_at(links, topic, times_ms)

    def delete_records(self, topic: str, before: Mapping[int, Place]) -> dict[int, int]:
        """Delete everything below an offset, per partition, for good; "end" means all. Answers the new log starts."""
        with self._changeable(topic, OwnTopicChange.DELETE_RECORDS) as (links, found):
            for number in before:
                checked_partition(topic, number, found.partition_count)
            bounds = self.bounds((topic, number) for number in before)
            wanted = {number: resolve_place(bounds[topic, number], at, "before") for number, at in before.items()}
            return admin.delete_records(links, topic, wanted)

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
        with self._handles.wire() as links:
            found = links.metadata()
        told: list[str] = []
        for topic in sorted(found.topics, key=lambda one: one.name or ""):
            for one in sorted(topic.partitions, key=lambda one: one.partition_index):
                partition = f"{topic.name}-{one.partition_index}"
                if one.leader_id < 0:
                    told.append(f"{partition} has no leader: it can be neither read nor written")
                elif len(one.isr_nodes) < len(one.replica_nodes):
                    told.append(f"{partition} has {len(one.isr_nodes)} of {len(one.replica_nodes)} replicas in sync")
        return told

    # --- groups ---------------------------------------------------------------------------------------------------

    def groups(self) -> list[str]:
        """Every group that has members or committed offsets, in order."""
        with self._handles.wire() as links:
            return admin.list_groups(links)

    def move_share_group(self, group: str, offsets: Mapping[TopicPartition, int]) -> None:
        with self._handles.wire() as links:
            links.ask(questions.move_share_group(group, dict(offsets.items())))

    def share_offsets(self, group: str) -> dict[TopicPartition, tuple[int, int]]:
        with self._handles.wire() as links:
            return links.ask(questions.share_offsets(group))

    def describe_group(self, group: str) -> GroupDescription:
        with self._handles.wire() as links:
            return admin.describe_group(links, group)

    def committed(self, group: str) -> dict[TopicPartition, OffsetAndMetadata]:
        check_group_name(group)
        with self._handles.wire() as links:
            committed = links.ask(questions.committed(group))
        # confluent-kafka 2.16 commits the byte that ends a string in C as part of the note.
        return {one: replace(at, metadata=at.metadata.removesuffix("\0")) for one, at in sorted(committed.items())}

    def move_group(self, group: str, offsets: Mapping[TopicPartition, OffsetAndMetadata], *, evict: bool) -> None:
        if not offsets:
            return
        with self._handles.wire() as links:

            def commit() -> None:
                admin.commit(links, group, offsets)

            if evict:
                questions.commit_evicting(links, group, commit)
            else:
                commit()

    def delete_group(self, group: str) -> None:
        with self._handles.wire() as links:
            links.ask(questions.delete_group(group))

    def delete_offsets(self, group: str, partitions: Sequence[TopicPartition]) -> None:
        self.check_partitions(partitions)
        if partitions:
            with self._handles.wire() as links:
                links.ask(questions.delete_offsets(group, partitions))

    # --- transactions, for operators ------------------------------------------------------------------------------

    def list_transactions(self) -> list[TransactionDescription]:
        with self._handles.wire() as links:
            return admin.list_transactions(links)

    def abort_transaction(self, found: TransactionDescription) -> None:
        # Whoever becomes the id's producer aborts what the one before left open.
        fencing = init_producer(found.transactional_id, found.timeout_ms, NO_PRODUCER_ID, NO_PRODUCER_EPOCH)
        with self._handles.wire() as links:
            links.ask(fencing)

    def open_producers(self, topic: str, number: int) -> list[OpenProducer]:
        with self._handles.wire() as links:
            return admin.open_producers(links, topic, number)

    def abort_in_partition(self, topic: str, number: int, producer: OpenProducer) -> None:
        with self._handles.wire() as links:
            admin.abort_in_partition(links, topic, number, producer)

    # --- who may do what ------------------------------------------------------------------------------------------

    def access(self) -> AccessAdmin:
        from foldlog.client.access import AccessAdmin, AskedAccess

        def ask(question: Question[Answer, Done], by_hand: Callable[[Broker], Done]) -> Done:
            with self._handles.wire() as links:
                return links.ask(question)

        return AccessAdmin(AskedAccess(ask))

    # --- closing --------------------------------------------------------------------------------------------------

    def close(self) -> None:
        if self._appender is not None:
            with suppress(FoldlogError):  # each append has raised its own
                self._appender.close()
        self._handles.close()


def _names(links: ClusterLinks, *, include_internal: bool) -> list[str]:
    return sorted(one.name for one in links.all_topics() if include_internal or not is_internal(one.name))
