"""Topics and their partitions in one data directory: as its writer has them, and as a reading process sees them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import ClassVar, Final

from foldlog.broker.catalog import Catalog, Topic
from foldlog.broker.catalog_follower import CatalogFollower
from foldlog.broker.data_directory import CHECKPOINT_NAME, open_for_writing
from foldlog.broker.open_partitions import AnyPartition, Key, OpenPartitions
from foldlog.broker.producer_ids import FOREIGN_ID_MAX, ProducerIds
from foldlog.broker.topic_changes import TopicChanges, keys_of
from foldlog.broker.topic_config import TopicConfig
from foldlog.broker.topic_directories import Settlement
from foldlog.broker.topic_names import OFFSETS_TOPIC, is_internal, partition_directory, require_text
from foldlog.broker.warning_list import WarningList
from foldlog.clock import Clock
from foldlog.errors import (
    CorruptLog,
    LogClosed,
    LogNotFound,
    StorageError,
    UnknownPartition,
    UnknownTopic,
    WrongProcess,
)
from foldlog.files.base import Files, storage_error
from foldlog.log.checkpoint import Checkpoint, SlotState
from foldlog.log.follower import PartitionReader
from foldlog.log.partition import Partition
from foldlog.log.syncer import Syncer

OFFSETS_TOPIC_SETTINGS: Final[Mapping[str, object]] = {
    "cleanup.policy": "compact",
    "max.message.bytes": 32 << 20,  # a group's metadata and assignments, at their limits, in one record
    "segment.bytes": 16 << 20,
}
OFFSETS_TOPIC_PARTITIONS: Final = 1
"""One sync serves the commits of all groups; Kafka's 50 spread them over brokers, of which there is one."""


class Storage(ABC):
    """What reading needs of a data directory. Any thread."""

    how_to_write: ClassVar = "it was opened with mode='r': open it with mode='w' to change it"

    def __init__(self, files: Files, path: str) -> None:
        self.files = files
        self.path = path
        self.warnings = WarningList()
        self.partitions = OpenPartitions(self._open)

    @abstractmethod
    def catalog(self) -> Catalog:
        """All topics, as of now."""

    @abstractmethod
    def _open(self, topic: str, number: int) -> AnyPartition:
        """Open a partition; nobody else is opening it."""

    @abstractmethod
    def resting_state(self, slot: int) -> SlotState | None:
        """What the checkpoint says of a partition: good where it is not open, and nothing is opened for it."""

    @abstractmethod
    def close(self) -> None:
        """Idempotent."""

    def topic(self, name: str) -> Topic:
        topic = self.catalog().topics.get(require_text(name))
        if topic is None:
            raise UnknownTopic(name, [known for known in self.catalog().topics if not is_internal(known)])
        return topic

    def check_partition(self, name: str, number: int) -> Topic:
        """UnknownTopic or UnknownPartition if there is no such partition; -1 and True are none."""
        topic = self.topic(name)
        if type(number) is not int or not 0 <= number < topic.partition_count:
            raise UnknownPartition(name, number, topic.partition_count)
        return topic

    def partition(self, name: str, number: int) -> AnyPartition:
        """The partition, opened now if this is its first use."""
        self.check_partition(name, number)
        if self.files.forked:
            raise WrongProcess(f"{self.path} was opened before a fork; open the log again in this process")
        return self.partitions.open((name, number))

    def offsets_partition_count(self) -> int:
        topic = self.catalog().topics.get(OFFSETS_TOPIC)
        return 0 if topic is None else topic.partition_count

    def offsets_partition_numbers(self) -> Sequence[int]:
        """Those of its partitions that can be read."""
        return range(self.offsets_partition_count())

    def offsets_partition(self, number: int) -> AnyPartition:
        return self.partitions.get((OFFSETS_TOPIC, number)) or self.partition(OFFSETS_TOPIC, number)

    def look_again(self) -> None:
        """Take in what another process has changed. The writer knows it already."""
        return

    def report(self, doing: str, error: Exception) -> None:
        self.warnings.report(doing, error)

    def _directory_of(self, topic: str, number: int) -> str:
        return f"{self.path}/{partition_directory(topic, number)}"


class WrittenStorage(Storage):
    """The directory's one writer."""

    def __init__(self, files: Files, path: str, clock: Clock, topic_defaults: Mapping[str, str]) -> None:
        super().__init__(files, path)
        self._clock = clock
        self.on_open: Callable[[Key, Partition], None] = lambda key, partition: None
        self.on_topics_changed: Callable[[], None] = lambda: None
        opened = open_for_writing(files, path)
        self._lock = opened.lock
        try:
            self.checkpoint = Checkpoint.open(files, f"{path}/{CHECKPOINT_NAME}", write=True)
            self.changes = TopicChanges(files, path, opened.catalog, self.checkpoint, self.report, topic_defaults)
        except BaseException:
            opened.lock.release()
            raise
        self.syncer = Syncer()
        self.producer_ids = ProducerIds(files, path, self.largest_producer_id)
        self._warn_of(opened.settlement)

    def catalog(self) -> Catalog:
        return self.changes.catalog

    def resting_state(self, slot: int) -> SlotState | None:
        return self.checkpoint.slot(slot).load()

    def publish_address(self, address: str | None) -> None:
        """Tell other processes where this one listens; None: nowhere."""
        try:
            self._lock.publish(address)
        except OSError as error:
            raise storage_error(f"{self.path}: the address cannot be put into the lock file", error) from error

    def writable_partition(self, key: Key) -> Partition:
        partition = self.partitions.get(key) or self.partition(*key)
        if not isinstance(partition, Partition):
            raise TypeError(f"{key} was opened for reading")
        return partition

    def largest_producer_id(self) -> int:
        """Of all producers that a partition remembers; -1 if none does. Opens those that had such producers."""
        largest = -1
        for topic in self.catalog().topics.values():
            for key, slot in zip(keys_of(topic), topic.slots, strict=True):
                try:
                    state = self.resting_state(slot)
                    infos = self.writable_partition(key).producers_info() if state and state.has_producers else []
                except CorruptLog as error:
                    self.report(f"looking for producer ids in {key[0]}-{key[1]}", error)
                    continue  # it is refused to its producers, too
                except (UnknownTopic, LogClosed):
                    continue  # deleted meanwhile
                largest = max([largest, *(info.producer_id for info in infos if info.producer_id <= FOREIGN_ID_MAX)])
        return largest

    def create_offsets_topic(self) -> None:
        config = TopicConfig.parse(OFFSETS_TOPIC_SETTINGS)
        self.changes.create(OFFSETS_TOPIC, OFFSETS_TOPIC_PARTITIONS, config)
        self.on_topics_changed()

    def _open(self, topic: str, number: int) -> Partition:
        # Looked up again: the topic may have been deleted while this call waited for its turn.
        found = self.check_partition(topic, number)
        path = self._directory_of(topic, number)
        try:
            partition = Partition.open(
                self.files,
                path,
                self.checkpoint.slot(found.slots[number]),
                found.config.log,
                clock=self._clock,
                syncer=self.syncer,
                label=(topic, number),
            )
        except FileNotFoundError as error:
            raise CorruptLog(path, 0, f"it is in the catalog, but not all there ({error})") from error
        self.on_open((topic, number), partition)
        return partition

    def _warn_of(self, settlement: Settlement) -> None:
        for name in settlement.unknown:
            self.warnings.add(f"{self.path}/{name} is not in the catalog; it was left as it is")
        for name in settlement.missing:
            self.warnings.add(f"{self.path}/{name} is in the catalog, but missing; it is refused until it is restored")

    def close(self) -> None:
        """Leave every partition so that the next open has nothing to recover, then let go of the directory.

        StorageError if one could not be; the others are, and the directory is let go of all the same.
        """
        if self.files.forked:
            self.partitions.abandon()
            return
        self.producer_ids.close()
        faults = self.partitions.close()
        try:
            self.syncer.close()
            self.checkpoint.close()
        except (OSError, StorageError) as error:
            faults.append(error)
        finally:
            self._lock.release()
        if faults:
            first = faults[0]
            raise StorageError(f"{self.path} is closed, but the next open has to recover it: {first}") from first


class FollowedStorage(Storage):
    """Beside a writer in another process, or without one. Takes no lock and changes nothing."""

    def __init__(self, files: Files, path: str, clock: Clock) -> None:
        super().__init__(files, path)
        self._follower = CatalogFollower(files, path, clock, self._changed)
        try:
            self._checkpoint = Checkpoint.open(files, f"{path}/{CHECKPOINT_NAME}", write=False)
        except FileNotFoundError:
            raise LogNotFound(f"the log in {path} has no checkpoint yet; open it with mode='w' once") from None

    def catalog(self) -> Catalog:
        return self._follower.catalog

    def resting_state(self, slot: int) -> SlotState | None:
        return self._checkpoint.slot(slot).load_live()

    def topic(self, name: str) -> Topic:
        require_text(name)
        topic = self._follower.catalog.topics.get(name) or self._follower.refresh().topics.get(name)
        return super().topic(name) if topic is None else topic

    def look_again(self) -> None:
        self._follower.refresh()

    def offsets_partition_count(self) -> int:
        if OFFSETS_TOPIC not in self._follower.known.topics:
            self._follower.refresh()  # who was just given a partition must not miss the first commit there ever was
        return super().offsets_partition_count()

    def check_partition(self, name: str, number: int) -> Topic:
        try:
            return super().check_partition(name, number)
        except UnknownPartition:
            self._follower.refresh()  # it may just have been added
            return super().check_partition(name, number)

    def _open(self, topic: str, number: int) -> PartitionReader:
        # Without a look at the file: what notices a change closes partitions, and waits for this one to be open.
        found = self._follower.known.topics.get(topic)
        if found is None or number >= found.partition_count:
            raise UnknownTopic(topic)
        path = self._directory_of(topic, number)
        try:
            return PartitionReader.open(
                self.files, path, self._checkpoint.slot(found.slots[number]), label=(topic, number)
            )
        except FileNotFoundError as error:
            raise CorruptLog(path, 0, f"it is in the catalog, but not all there ({error})") from error

    def _changed(self, older: Catalog, newer: Catalog) -> None:
        """Let go of partitions of topics that were deleted, also where one of the same name came after."""
        for topic in older.topics.values():
            now = newer.topics.get(topic.name)
            if now is None or now.topic_id != topic.topic_id:
                with self.partitions.closed(keys_of(topic)):
                    pass

    def close(self) -> None:
        if self.files.forked:
            self.partitions.abandon()
            return
        self.partitions.close()
        self._checkpoint.close()
