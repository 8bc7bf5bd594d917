"""A log in a directory: read from its files here, written through a DirectoryBroker.

Two kinds: `local.LocalBackend`, where that is the Broker of this process, and `served.backend.ServedBackend`, where it
asks the process that writes the directory.
"""

from __future__ import annotations

import weakref
from collections.abc import Generator, Iterable, Mapping, Sequence
from dataclasses import replace
from threading import Lock
from typing import TYPE_CHECKING

from foldlog.broker.broker import Broker
from foldlog.broker.groups.committed import OffsetAndMetadata
from foldlog.broker.storage import READ_COMMITTED
from foldlog.broker.topics.names import OwnTopicChange, refuse_own_topic
from foldlog.client.accumulator import PartitionQueue, RecordAccumulator, compiled_appends, writable_partition
from foldlog.client.backends.backend import Backend, DirectoryBroker, GroupMemberships, backend_of
from foldlog.client.consumer.arrivals import AnyPartition, Arrivals
from foldlog.client.consumer.consumption import Consumption
from foldlog.client.consumer.settings import ConsumerSettings
from foldlog.client.descriptions import (
    ConfigEntry,
    GroupDescription,
    Topic,
    config_entries,
    described_group,
)
from foldlog.client.forks import watch_forks
from foldlog.client.handle_types import RecordMetadata, queue_for
from foldlog.client.isolation import ReadablePartition, readable
from foldlog.client.outgoing import Outgoing, check_size, partition_named_or_by_key
from foldlog.client.positions import Place, TopicPartition, check_one_replica, resolve_place
from foldlog.client.producer import BatchSender, ProducerSettings
from foldlog.client.reader import ReadRequest, Slice
from foldlog.errors import InvalidArgument, WrongProcess
from foldlog.log.compaction import CompactionReport
from foldlog.log.doctor.recompression import RecompressionReport
from foldlog.records.loops import Record, pack

if TYPE_CHECKING:
    import pyarrow as pa

    from foldlog.client.log import Log


def broker_of(log: Log) -> Broker:
    """What a directory's log is made of, for servers and tools that drive it directly.

    Where another process writes the log, it is what reading here is made of, and it refuses to write.
    """
    return directory_of(log).reader


def directory_of(log: Log) -> DirectoryBackend:
    """The backend of a log in a directory. TypeError for a cluster's."""
    backend = backend_of(log)
    if not isinstance(backend, DirectoryBackend):
        raise TypeError(f"the log at {log.path} is in no directory of this machine")
    return backend


def is_directory(log: Log) -> bool:
    """Whether the log's files are read here: not so with a cluster's."""
    return isinstance(backend_of(log), DirectoryBackend)


class DirectoryBackend(Backend):
    """What both kinds have in common. Any thread."""

    def __init__(
        self, reader: Broker, broker: DirectoryBroker, memberships: GroupMemberships, *, committed: bool = False
    ) -> None:
        """`committed`: readers see only committed records, unless they say otherwise."""
        self.reader = reader
        """What reads the files."""
        self.broker = broker
        """What everything else is asked of."""
        self.clock = broker.clock
        self._memberships = memberships
        self._committed = committed
        self._accumulator = RecordAccumulator(broker)
        self._routing = Lock()
        self._is_forked = False
        self._tails: weakref.WeakSet[Arrivals] = weakref.WeakSet()
        watch_forks(self._forked)

    @property
    def path(self) -> str:
        return self.broker.path

    @property
    def directory_id(self) -> str:
        return self.reader.directory_id

    def check_usable(self) -> None:
        self.broker.check_open()

    # --- records --------------------------------------------------------------------------------------------------

    def append(self, topic: str, record: Outgoing) -> RecordMetadata:
        timestamp_ms, key, value, headers, partition = record
        infos = self._accumulator.known
        queue = (
            None
            if self._is_forked
            else queue_for(self._routing, infos, self.broker, topic, key, value, headers, partition)
        )
        if queue is None:
            queue = self._queue_for(topic, record)
        single = queue.single
        if single is not None and not single.is_closed:
            offset = single.append(timestamp_ms, key, value, headers)
            if offset is not None:
                return RecordMetadata(topic, queue.number, offset, timestamp_ms)
        log = writable_partition(self.broker.writable_partition, topic, queue.number)
        queue.single = compiled_appends(log)
        appended = log.append(pack([record[:4]]), trusted=True)
        log.wait_acknowledged(appended.next_offset)
        if appended.append_time_ms >= 0:
            timestamp_ms = appended.append_time_ms
        return RecordMetadata(topic, queue.number, appended.base_offset, timestamp_ms)

    def _queue_for(self, topic: str, record: Outgoing) -> PartitionQueue:
        """Where a single record goes; keyless ones go round, since each is a batch of its own."""
        if self._is_forked:
            raise WrongProcess(f"the log in {self.path} was opened before a fork; open it again in this process")
        with self._routing:
            info = self._accumulator.of(topic)
            check_size(record, info.max_message_bytes)
            if record.key is None:
                info.refuse_keyless()
            number = partition_named_or_by_key(topic, record.partition, record.key, info.count)
            if number is not None:
                return info.queues[number]
            queue = info.keyless_queue(self.broker)
            info.advance()
            return queue

    def sender(self, settings: ProducerSettings) -> BatchSender:
        return BatchSender(self.broker, settings)

    def append_table(
        self, topic: str, table: pa.Table | pa.RecordBatch, compression: int, batch_bytes: int
    ) -> dict[int, tuple[int, int]]:
        from foldlog.client.bulk import TableAppender

        return TableAppender(self.broker, topic, compression, batch_bytes).append(table)

    def reading(self, settings: ConsumerSettings) -> Consumption:
        if settings.isolation is None and self._committed:
            settings = replace(settings, isolation=READ_COMMITTED)
        return Consumption(self.broker, self._memberships, settings)

    def read(
        self, topic: str, partition: int | None, request: ReadRequest, *, follow: bool, timeout_ms: float | None
    ) -> Generator[Record, None, None]:
        log = self.readable(topic, self._one_partition(topic, partition), request.committed)
        wanted = Slice(log, *request[:-1], self.broker)
        if not follow:
            return wanted.records()
        arrivals = Arrivals()
        self._tails.add(arrivals)
        return wanted.follow(self.clock, arrivals, timeout_ms)

    def readable(self, topic: str, number: int, committed: bool | None = None) -> ReadablePartition:
        """A partition, as readers see it that want that; None: as the log was opened."""
        return readable(self.broker.partition(topic, number), self._committed if committed is None else committed)

    def _one_partition(self, topic: str, partition: int | None) -> int:
        if partition is None:
            count = self.broker.topic(topic).partition_count
            if count != 1:
                raise InvalidArgument(f"topic {topic!r} has {count} partitions; say which, from 0 to {count - 1}")
            partition = 0
        return partition

    def read_table(
        self,
        topic: str,
        partitions: Iterable[int] | None,
        start: Mapping[int, Place] | Place | None,
        stop: Mapping[int, Place] | Place | None,
        columns: Sequence[str],
        committed: bool | None,
    ) -> pa.Table:
        from foldlog.client.bulk import per_partition, plan_ranges, read_table

        chosen = self.broker.topic(topic).held_partitions if partitions is None else partitions
        opened = (self.readable(topic, number, committed) for number in chosen)
        logs = {log.label[1]: log for log in opened}
        ranges = plan_ranges(logs, per_partition(start, logs, "start"), per_partition(stop, logs, "stop"))
        return read_table(ranges, columns)

    # --- topics ---------------------------------------------------------------------------------------------------

    def create_topic(
        self, name: str, partitions: int, config: Mapping[str, object] | None, replication_factor: int | None
    ) -> Topic:
        check_one_replica(replication_factor)
        return Topic.of(self.broker.create_topic(name, partitions, config))

    def delete_topic(self, name: str) -> None:
        self.broker.delete_topic(name)

    def grow_topic(self, name: str, partitions: int) -> Topic:
        return Topic.of(self.broker.grow_topic(name, partitions))

    def alter_topic(self, name: str, changes: Mapping[str, object | None]) -> Topic:
        return Topic.of(self.broker.alter_topic(name, changes))

    def topics(self, include_internal: bool) -> list[str]:
        return self.broker.topics(include_internal)

    def topic(self, name: str) -> Topic:
        return Topic.of(self.broker.topic(name))

    def topic_config(self, name: str) -> dict[str, ConfigEntry]:
        return config_entries(self.broker.topic(name).config)

    def check_topic(self, name: str) -> None:
        self.broker.topic(name)

    def check_partitions(self, partitions: Iterable[tuple[str, int]]) -> None:
        for topic, number in partitions:
            self.broker.partition(topic, number)

    def bounds(self, partitions: Iterable[tuple[str, int]]) -> dict[tuple[str, int], AnyPartition]:
        return {one: self.broker.partition(*one) for one in partitions}

    def offsets(self, topic: str, committed: bool | None) -> dict[int, tuple[int, int]]:
        found: dict[int, tuple[int, int]] = {}
        for number in self.broker.topic(topic).held_partitions:
            log = self.readable(topic, number, committed)
            end = log.acknowledged_end()
            found[number] = (min(log.log_start_offset, end), end)
        return found

    def offsets_at(self, topic: str, timestamp_ms: int) -> dict[int, int | None]:
        found: dict[int, int | None] = {}
        for number in self.broker.topic(topic).held_partitions:
            hit = self.broker.partition(topic, number).offset_at_time(timestamp_ms)
            found[number] = None if hit is None else hit[0]
        return found

    def delete_records(self, topic: str, before: Mapping[int, Place]) -> dict[int, int]:
        refuse_own_topic(topic, OwnTopicChange.DELETE_RECORDS)
        wanted = {
            number: resolve_place(self.broker.partition(topic, number), at, "before") for number, at in before.items()
        }
        return {
            number: writable_partition(self.broker.writable_partition, topic, number).delete_records(at)
            for number, at in wanted.items()
        }

    # --- upkeep ---------------------------------------------------------------------------------------------------

    def compact(self, topic: str | None) -> dict[tuple[str, int], CompactionReport]:
        return self.broker.compact(topic)

    def recompress(self, topic: str, codec: str) -> dict[tuple[str, int], RecompressionReport]:
        return self.broker.recompress(topic, codec)

    def enforce_retention(self, topic: str | None) -> int:
        return self.broker.enforce_retention(topic)

    def warnings(self) -> list[str]:
        return self.broker.warnings()

    # --- groups ---------------------------------------------------------------------------------------------------

    def groups(self) -> list[str]:
        return self.broker.group_names()

    def describe_group(self, group: str) -> GroupDescription:
        return described_group(self.broker.describe_group(group))

    def committed(self, group: str) -> dict[TopicPartition, OffsetAndMetadata]:
        return {TopicPartition(*partition): at for partition, at in self.broker.committed(group).items()}

    def share_offsets(self, group: str) -> dict[TopicPartition, tuple[int, int]]:
        return {TopicPartition(*place): found for place, found in self.broker.share_offsets(group).items()}

    def move_share_group(self, group: str, offsets: Mapping[TopicPartition, int]) -> None:
        self.broker.move_share_group(group, dict(offsets.items()))

    def members_begin(self, group: str) -> dict[tuple[str, int], int]:
        return dict(self._memberships.begins(group).items())

    def move_group(self, group: str, offsets: Mapping[TopicPartition, OffsetAndMetadata], *, evict: bool) -> None:
        self.broker.move_offsets(group, dict(offsets.items()), evict=evict)

    def delete_group(self, group: str) -> None:
        self.broker.delete_group(group)

    def delete_offsets(self, group: str, partitions: Sequence[TopicPartition]) -> None:
        self.broker.delete_offsets(group, partitions)

    # --- closing --------------------------------------------------------------------------------------------------

    def close(self) -> None:
        for arrivals in list(self._tails):
            arrivals.close()
        self.broker.close()

    def _forked(self) -> None:
        """In a forked child: the directory's writer is the parent, and locks may be held by its threads."""
        self._is_forked = True
