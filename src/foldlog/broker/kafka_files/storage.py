"""A directory of Apache Kafka as a log to read: while Kafka writes it, after it was stopped, or after a crash.

Takes no lock and changes nothing. Reads everything in Kafka's files, even if replicas have not confirmed it; of a topic
on several brokers only the partitions of this one.
"""

from __future__ import annotations

import threading

from foldlog import limits
from foldlog.broker.groups.offsets_format import is_newer_group_key
from foldlog.broker.kafka_files.directory import KafkaDirectory, read_catalog, read_log_starts
from foldlog.broker.kafka_files.settings import read_topic_settings
from foldlog.broker.storage import READ_COMMITTED, AnyPartition, Storage
from foldlog.broker.topics.catalog import ABSENT, Catalog
from foldlog.broker.topics.names import OFFSETS_TOPIC
from foldlog.clock import Clock
from foldlog.errors import (
    CorruptGroupRecord,
    MalformedBytes,
    PartitionElsewhere,
    UnknownTopic,
)
from foldlog.files.base import Files
from foldlog.log.checkpoint import SlotState
from foldlog.log.foreign import ForeignPartition, ForeignState


class KafkaStorage(Storage):
    """Any thread. Looks for changed topics as often as a reader of our own log does."""

    how_to_write = "it is Apache Kafka's, and only read here: copy it with 'foldlog copy' and write to the copy"

    def __init__(self, files: Files, kafka: KafkaDirectory, clock: Clock, isolation_level: str) -> None:
        super().__init__(files, kafka.path)
        self._kafka = kafka
        self._clock = clock
        self._committed_only = isolation_level == READ_COMMITTED
        self._lock = threading.Lock()
        self._looked_ms = float("-inf")
        self._log_starts: dict[tuple[str, int], int] = {}
        self._settings = read_topic_settings(files, kafka)
        self._entries: set[tuple[str, int]] | None = None
        self._catalog = Catalog("", {})
        self._catalog = self._look()

    def catalog(self) -> Catalog:
        if self._clock.monotonic_ms() - self._looked_ms >= limits.READER_POLL_MAX_MS:
            self.look_again()
        return self._catalog

    def look_again(self) -> None:
        with self._lock:
            older, newer = self._catalog, self._look()
            if newer == older:
                return  # the same object as long as nothing changes
            self._catalog = newer
        for topic in older.topics.values():
            now = newer.topics.get(topic.name)
            if now is None or now.topic_id != topic.topic_id:
                with self.partitions.closed((topic.name, number) for number in range(topic.partition_count)):
                    pass

    def _look(self) -> Catalog:
        self._looked_ms = self._clock.monotonic_ms()
        try:
            self._log_starts = read_log_starts(self.files, self._kafka)
        except MalformedBytes as error:
            self.report("reading where logs start", error)
        settled_ms = self._clock.now_ms() - limits.READER_POLL_MAX_MS
        entries = {(entry.name, entry.modified_ms) for entry in self.files.entries(self.path) if entry.is_directory}
        if entries == self._entries:
            return self._catalog  # nothing was created, renamed or removed in any of them
        found = read_catalog(self.files, self._kafka, self._settings)
        # Directory times come from a clock that ticks every few milliseconds: a directory that was changed just now may
        # change again and keep its time.
        is_settled = all(modified_ms < settled_ms for _, modified_ms in entries)
        self._entries = entries if is_settled else None
        return found

    def report(self, doing: str, error: Exception) -> None:
        is_newer = isinstance(error, CorruptGroupRecord) and error.key is not None and is_newer_group_key(error.key)
        if not is_newer:  # Kafka's newer group protocols: their commits are in records of the old kind
            super().report(doing, error)

    def checkpointed_state(self, slot: int) -> SlotState | None:
        for topic in self._catalog.topics.values():
            if slot in topic.slots:
                return self._state_of(topic.name, topic.slots.index(slot)).load_live()
        return None

    def offsets_partition_numbers(self) -> list[int]:
        topic = self.catalog().topics.get(OFFSETS_TOPIC)
        return [] if topic is None else list(topic.held_partitions)

    def _open(self, topic: str, number: int) -> AnyPartition:
        # Without another look: noticing a change closes partitions, and would wait for this open.
        found = self._catalog.topics.get(topic)
        if found is None or number >= found.partition_count:
            raise UnknownTopic(topic)
        if found.slots[number] == ABSENT:
            raise PartitionElsewhere(self.path, topic, number)
        path = self._kafka.partition_path(topic, number)
        return ForeignPartition(self.files, path, self._state_of(topic, number), (topic, number))

    def _state_of(self, topic: str, number: int) -> ForeignState:
        def log_start() -> int:
            self.catalog()
            return self._log_starts.get((topic, number), 0)

        path = self._kafka.partition_path(topic, number)
        # Groups tell by themselves which transactions were committed, and see commits behind an open one, too.
        committed_only = self._committed_only and topic != OFFSETS_TOPIC
        return ForeignState(self.files, path, log_start, committed_only=committed_only)

    def close(self) -> None:
        if self.files.forked:
            self.partitions.abandon()
        else:
            self.partitions.close()
