"""Topics and their partitions in one data directory, for its writer and for a reading process.

`WrittenStorage` and `FollowedStorage` are the two kinds (a third, for Kafka's own files, is in `kafka_files`). Both
have the open partitions (`OpenPartitions`), warnings for the owner (`WarningList`), and the state of each partition
(`overview`).
"""

from __future__ import annotations

import logging
import threading
import uuid
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, ClassVar, Final, NamedTuple

from foldlog import limits
from foldlog.broker.access.store import AccessStore
from foldlog.broker.data_directory import CHECKPOINT_NAME, open_for_reading, open_for_writing, settle_journal
from foldlog.broker.dynamic_settings import DynamicSettings
from foldlog.broker.producer_ids import FOREIGN_ID_MAX, ProducerIds
from foldlog.broker.tiers import TierSettings, tiered_partition
from foldlog.broker.topics.catalog import CATALOG_NAME, Catalog, CatalogTopic, RemovedTopic, decode
from foldlog.broker.topics.changes import TopicChanges, keys_of
from foldlog.broker.topics.config import TopicConfig
from foldlog.broker.topics.directories import Settlement
from foldlog.broker.topics.names import (
    OFFSETS_TOPIC,
    SHARE_STATE_TOPIC,
    TRANSACTIONS_TOPIC,
    is_internal,
    partition_directory,
    require_text,
)
from foldlog.clock import Clock
from foldlog.errors import (
    CorruptLog,
    FoldlogError,
    InvalidArgument,
    LogClosed,
    LogNotFound,
    StorageError,
    UnknownPartition,
    UnknownTopic,
    WrongProcess,
    brief_repr,
)
from foldlog.files.base import Files, read_file, storage_error
from foldlog.log.checkpoint import Checkpoint, SlotState
from foldlog.log.durability import Membership, Syncer
from foldlog.log.follower import FollowedPartition, Hurry
from foldlog.log.journal.journal import Journal, JournalSettings
from foldlog.log.journal.recovery import Owner, remove_journal
from foldlog.log.partition import Partition
from foldlog.log.producers import AllProducers
from foldlog.log.retention import outlived_text

if TYPE_CHECKING:
    from foldlog.log.tier.tier import Tier

logger = logging.getLogger("foldlog.broker")

AnyPartition = Partition | FollowedPartition
Key = tuple[str, int]
"""Topic and partition number."""

READ_UNCOMMITTED: Final = "read_uncommitted"
READ_COMMITTED: Final = "read_committed"
ISOLATION_LEVELS: Final = (READ_UNCOMMITTED, READ_COMMITTED)
"""Whether records of open and aborted transactions are read."""

OFFSETS_TOPIC_SETTINGS: Final[Mapping[str, object]] = {
    "cleanup.policy": "compact",
    "max.message.bytes": 32 << 20,  # a group's metadata and assignments, at their limits, in one record
    "segment.bytes": 16 << 20,
}
OFFSETS_TOPIC_PARTITIONS: Final = 1
"""One sync serves the commits of all groups; Kafka's 50 spread them over brokers, and here is only one."""

TRANSACTIONS_TOPIC_SETTINGS: Final[Mapping[str, object]] = {
    **OFFSETS_TOPIC_SETTINGS,
    "flush.messages": 1,  # whatever the broker's default is: a decision is durable before anybody acts on it
}
TRANSACTIONS_TOPIC_PARTITIONS: Final = OFFSETS_TOPIC_PARTITIONS
SHARE_STATE_TOPIC_SETTINGS: Final[Mapping[str, object]] = {
    "cleanup.policy": "delete",  # not compacted: updates add up, see share/records.py
    "retention.ms": -1,
    "retention.bytes": -1,
    "max.message.bytes": 32 << 20,
    "segment.bytes": 16 << 20,
}
SHARE_STATE_TOPIC_PARTITIONS: Final = OFFSETS_TOPIC_PARTITIONS


class Storage(ABC):
    """The part of a data directory that reading needs. Any thread."""

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
        """Open a partition; no other thread is opening it."""

    @abstractmethod
    def checkpointed_state(self, slot: int) -> SlotState | None:
        """The checkpointed state of a partition, without opening it: current if the partition is not open."""

    @abstractmethod
    def close(self) -> None:
        """Idempotent."""

    def topic(self, name: str) -> CatalogTopic:
        try:
            topic = self.catalog().topics.get(name)
        except TypeError:  # a list, say: it cannot be looked up
            topic = None
        if topic is None:
            require_text(name)
            raise UnknownTopic(name, [known for known in self.catalog().topics if not is_internal(known)])
        return topic

    def check_partition(self, name: str, number: int) -> CatalogTopic:
        """Raises UnknownTopic or UnknownPartition if there is no such partition; -1 and True are none."""
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
        """The partitions of the topic of offsets that can be read."""
        return range(self.offsets_partition_count())

    def offsets_partition(self, number: int) -> AnyPartition:
        return self.partitions.get((OFFSETS_TOPIC, number)) or self.partition(OFFSETS_TOPIC, number)

    def look_again(self) -> None:
        """Read the changes of another process. The writer has none to read."""
        return

    def share_state_partitions(self) -> Sequence[AnyPartition]:
        """The partitions of the topic of share groups' states; none while there is no such topic."""
        topic = self.catalog().topics.get(SHARE_STATE_TOPIC)
        numbers = () if topic is None else topic.held_partitions
        return [self.partition(SHARE_STATE_TOPIC, number) for number in numbers]

    def report(self, doing: str, error: Exception) -> None:
        self.warnings.report(doing, error)

    def _directory_of(self, topic: str, number: int) -> str:
        return f"{self.path}/{partition_directory(topic, number)}"


class WrittenStorage(Storage):
    """A directory whose one writer is this process: it holds the directory's lock until it is closed. Any thread.

    The lock may be lost meanwhile: `Checkpoint.lost` is checked before anything is written or acknowledged.
    """

    def __init__(
        self,
        files: Files,
        path: str,
        clock: Clock,
        topic_defaults: Mapping[str, str],
        *,
        init: bool = False,
        journal: JournalSettings | None = None,
        tier: TierSettings | None = None,
    ) -> None:
        """`journal`: None for none; what an earlier writer left in one is recovered all the same. `tier`: None for the
        store that the directory names, if it names one."""
        super().__init__(files, path)
        self._clock = clock
        self.on_open: Callable[[Key, Partition], None] = lambda key, partition: None
        self.on_topics_changed: Callable[[], None] = lambda: None
        opened = open_for_writing(files, path, init=init)
        self._lock = opened.lock
        try:
            self.checkpoint = Checkpoint.open(
                files, f"{path}/{CHECKPOINT_NAME}", write=True, directory_lock=opened.lock
            )
            self.dynamic_settings = DynamicSettings(files, path, self.checkpoint.refuse_if_lost)
            self.access = AccessStore(files, path, self.checkpoint.refuse_if_lost)
            self.changes = TopicChanges(files, path, opened.catalog, self.checkpoint, self.report, topic_defaults)
            self.syncer = Syncer()
            self._unreplayed: dict[Owner, FoldlogError] = {}
            self.journal = self._open_journal(journal)
            self.tier = (tier or TierSettings()).open(files, path, write=True)
        except BaseException:
            opened.lock.release()
            raise
        self.producers = AllProducers()
        self.producer_ids = ProducerIds(files, path, self.largest_producer_id)
        self._warn_of(opened.settlement)

    def _open_journal(self, settings: JournalSettings | None) -> Journal | None:
        """Recover what an unclean end left in the journal, before any partition is opened."""
        contents, replayed = settle_journal(self.files, self.path, self.catalog(), self.checkpoint)
        self._unreplayed = replayed.refused
        for damage in contents.damages:
            self.warnings.add(f"{damage.path}: the journal is damaged at byte {damage.position}: {damage.reason}")
        if settings is None:
            if not replayed.refused:
                remove_journal(self.files, self.path)
            return None
        return Journal(
            self.files,
            self.path,
            uuid.UUID(self.catalog().directory_id).bytes,
            self.checkpoint,
            self.syncer,
            contents,
            settings,
            are_refused=bool(replayed.refused),
        )

    def catalog(self) -> Catalog:
        return self.changes.catalog

    def has_tiered_records(self) -> bool:
        """Whether some records are in the store alone."""
        states = [self.checkpointed_state(slot) for topic in self.catalog().topics.values() for slot in topic.slots]
        return any(state is not None and state.local_start_offset > state.log_start_offset for state in states)

    def forget_removed(self, topics: Iterable[RemovedTopic]) -> None:
        self.changes.forget_removed(topics)

    def checkpointed_state(self, slot: int) -> SlotState | None:
        return self.checkpoint.slot(slot).load()

    def publish_address(self, address: str | None) -> None:
        """Publish where this process listens; None: it does not."""
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
        """The largest remembered producer id; -1 if there is none. Opens partitions with idempotent producers."""
        largest = -1
        for topic in self.catalog().topics.values():
            for key, slot in zip(keys_of(topic), topic.slots, strict=True):
                try:
                    state = self.checkpointed_state(slot)
                    infos = self.writable_partition(key).producers_info() if state and state.has_producers else []
                except CorruptLog as error:
                    self.report(f"looking for producer ids in {key[0]}-{key[1]}", error)
                    continue  # its producers are refused, too
                except (UnknownTopic, LogClosed):
                    continue  # deleted meanwhile
                largest = max([largest, *(info.producer_id for info in infos if info.producer_id <= FOREIGN_ID_MAX)])
        return largest

    def create_offsets_topic(self) -> None:
        self._create_own_topic(OFFSETS_TOPIC, OFFSETS_TOPIC_PARTITIONS, OFFSETS_TOPIC_SETTINGS)

    def create_transactions_topic(self) -> None:
        self._create_own_topic(TRANSACTIONS_TOPIC, TRANSACTIONS_TOPIC_PARTITIONS, TRANSACTIONS_TOPIC_SETTINGS)

    def create_share_state_topic(self) -> None:
        self._create_own_topic(SHARE_STATE_TOPIC, SHARE_STATE_TOPIC_PARTITIONS, SHARE_STATE_TOPIC_SETTINGS)

    def _create_own_topic(self, name: str, partitions: int, settings: Mapping[str, object]) -> None:
        self.checkpoint.refuse_if_lost()
        self.changes.create(name, partitions, TopicConfig.parse(settings))
        self.on_topics_changed()

    def _open(self, topic: str, number: int) -> Partition:
        # Looked up again: the topic may have been deleted while this call waited for the key's lock.
        found = self.check_partition(topic, number)
        path = self._directory_of(topic, number)
        topic_id = uuid.UUID(found.topic_id).bytes
        unreplayed = self._unreplayed.get((topic_id, number))
        if unreplayed is not None:
            raise unreplayed
        tier = None if self.tier is None else tiered_partition(self.tier, self.files, found, number)
        try:
            partition = Partition.open(
                self.files,
                path,
                self.checkpoint.slot(found.slots[number]),
                found.config.log,
                clock=self._clock,
                syncer=self.syncer,
                label=(topic, number),
                producers=self.producers,
                membership=None if self.journal is None else Membership(self.journal, topic_id),
                tier=tier if found.config.log.remote else None,
            )
        except FileNotFoundError as error:
            raise CorruptLog(path, 0, f"it is in the catalog, but not all there ({error})") from error
        if tier is not None:
            partition.use_store(tier)
        partition.on_outlived = lambda: self._warn_of_outlived(topic, partition)
        self.on_open((topic, number), partition)
        return partition

    def _warn_of_outlived(self, topic: str, partition: Partition) -> None:
        # The text is the same for all partitions of a topic, so that it is reported once.
        self.warnings.add(outlived_text(topic, partition.config.retention_ms))

    def _warn_of(self, settlement: Settlement) -> None:
        for name in settlement.unknown:
            self.warnings.add(f"{self.path}/{name} is not in the catalog; it was left as it is")
        for name in settlement.missing:
            self.warnings.add(f"{self.path}/{name} is in the catalog, but missing; it is refused until it is restored")

    def close(self) -> None:
        """Close every partition so that the next open has nothing to recover, then release the directory.

        Raises StorageError if one could not be closed; the others are, and the directory is released all the same.
        """
        if self.files.forked:
            self.partitions.abandon()
            return
        self.producer_ids.close()
        faults = self.partitions.close()
        if self.tier is not None:
            self.tier.close()
        try:
            self.syncer.close()
            try:
                if self.journal is not None:
                    self.journal.close()
            finally:
                self.checkpoint.close()
        except (OSError, StorageError) as error:
            faults.append(error)
        finally:
            self._lock.release()
        if faults:
            first = faults[0]
            raise StorageError(f"{self.path} is closed, but the next open has to recover it: {first}") from first


class FollowedStorage(Storage):
    """A directory that this process only reads, with or without a writer. Takes no lock and changes nothing."""

    def __init__(self, files: Files, path: str, clock: Clock, tier: TierSettings | None = None) -> None:
        super().__init__(files, path)
        self._tier_settings = tier or TierSettings()
        self._tier: Tier | None = None
        self.hurry: Hurry | None = None
        self._follower = CatalogFollower(files, path, clock, self._changed)
        try:
            self._checkpoint = Checkpoint.open(files, f"{path}/{CHECKPOINT_NAME}", write=False)
        except FileNotFoundError:
            raise LogNotFound(f"the log in {path} has no checkpoint yet; open it with mode='w' once") from None

    def catalog(self) -> Catalog:
        return self._follower.catalog

    def checkpointed_state(self, slot: int) -> SlotState | None:
        return self._checkpoint.slot(slot).load_live()

    def topic(self, name: str) -> CatalogTopic:
        require_text(name)
        topic = self._follower.catalog.topics.get(name) or self._follower.refresh().topics.get(name)
        return super().topic(name) if topic is None else topic

    def look_again(self) -> None:
        self._follower.refresh()

    def offsets_partition_count(self) -> int:
        if OFFSETS_TOPIC not in self._follower.known.topics:
            self._follower.refresh()  # a member that was just assigned a partition must not miss the very first commit
        return super().offsets_partition_count()

    def check_partition(self, name: str, number: int) -> CatalogTopic:
        try:
            return super().check_partition(name, number)
        except UnknownPartition:
            self._follower.refresh()  # it may just have been added
            return super().check_partition(name, number)

    def _open(self, topic: str, number: int) -> FollowedPartition:
        # Without reading the file: noticing a change closes partitions, and would wait for this open.
        found = self._follower.known.topics.get(topic)
        if found is None or number >= found.partition_count:
            raise UnknownTopic(topic)
        path = self._directory_of(topic, number)
        try:
            reader = FollowedPartition.open(
                self.files,
                path,
                self._checkpoint.slot(found.slots[number]),
                label=(topic, number),
                hurry=self.hurry,
            )
        except FileNotFoundError as error:
            raise CorruptLog(path, 0, f"it is in the catalog, but not all there ({error})") from error
        reader.decompressed_limit = found.config.log.read_decompressed_limit
        if found.config.log.remote:
            self._tier = self._tier or self._tier_settings.open(self.files, self.path, write=False)
            reader.tier = None if self._tier is None else tiered_partition(self._tier, self.files, found, number)
        return reader

    def _changed(self, older: Catalog, newer: Catalog) -> None:
        """Close partitions of deleted topics, also if there is a new one of the same name."""
        for topic in older.topics.values():
            now = newer.topics.get(topic.name)
            if now is None or now.topic_id != topic.topic_id:
                with self.partitions.closed(keys_of(topic)):
                    pass
            elif now.config != topic.config:
                for number in range(topic.partition_count):
                    reader = self.partitions.get((topic.name, number))
                    if isinstance(reader, FollowedPartition):
                        reader.decompressed_limit = now.config.log.read_decompressed_limit

    def close(self) -> None:
        if self.files.forked:
            self.partitions.abandon()
            return
        if self.hurry is not None:
            self.hurry.close()
        self.partitions.close()
        if self._tier is not None:
            self._tier.close()
        self._checkpoint.close()


class OpenPartitions:
    """Open partitions by topic and number. Any thread.

    Opening holds the lock of that partition only: the recovery of one never delays another. One that fails with
    CorruptLog stays refused until the log is reopened; it is not scanned again at each call.
    """

    def __init__(self, open_one: Callable[[str, int], AnyPartition]) -> None:
        self._open_one = open_one
        self._partitions: dict[Key, AnyPartition] = {}
        self.get = self._partitions.get
        """The partition if it is open, else None. Takes no lock: every append and read calls this."""
        self._refused: dict[Key, CorruptLog] = {}
        # Third in broker.py's order. Two are held at a time only in `closed`, inside a change of the catalog, of which
        # there is one at a time: so no two threads wait for each other.
        self._key_locks: dict[Key, threading.Lock] = {}
        self._lock = threading.Lock()  # guards the table of locks; a leaf
        self._closed = False

    def open(self, key: Key) -> AnyPartition:
        """The partition, opened now if it is not yet. Raises the errors of opening it."""
        with self._key_lock(key):
            partition = self._partitions.get(key)
            if partition is not None:
                return partition
            if self._closed:
                raise LogClosed("the log is closed; open it again")
            refused = self._refused.get(key)
            if refused is not None:
                raise CorruptLog(refused.path, refused.position, refused.reason)
            try:
                partition = self._open_one(*key)
            except CorruptLog as error:
                self._refused[key] = error
                raise
            self._partitions[key] = partition
            return partition

    def each_open(self, keys: Iterable[Key]) -> Iterator[AnyPartition]:
        """The open partitions among `keys`, each under its lock: none is just being opened."""
        for key in keys:
            with self._key_lock(key):
                partition = self._partitions.get(key)
                if partition is not None:
                    yield partition

    def opened(self) -> list[AnyPartition]:
        """All open partitions. Takes no lock."""
        return list(self._partitions.values())

    def refusal_of(self, key: Key) -> CorruptLog | None:
        return self._refused.get(key)

    def refusals(self) -> list[CorruptLog]:
        return list(self._refused.values())

    @contextmanager
    def closed(self, keys: Iterable[Key]) -> Iterator[None]:
        """Close these partitions and keep them from being opened inside the block."""
        keys = list(keys)
        with ExitStack() as stack:
            for key in keys:
                stack.enter_context(self._key_lock(key))
            for key in keys:
                partition = self._partitions.get(key)
                if partition is not None:
                    partition.close()
                    del self._partitions[key]
                self._refused.pop(key, None)
            yield

    def close(self) -> list[Exception]:
        """Close all, for good. Returns the errors; one does not keep the others from closing."""
        # Under the lock that gives out the keys' locks: a thread that got one before is waited for below, and its
        # partition closed; one that gets one later finds `_closed`. No partition is opened in between and stays open.
        with self._lock:
            self._closed = True
            keys = list(self._key_locks)
        faults: list[Exception] = []
        for key in keys:
            with self._key_lock(key):
                partition = self._partitions.pop(key, None)
                if partition is not None:
                    try:
                        partition.close()
                    except Exception as error:  # noqa: BLE001  reported by the caller once all are closed
                        faults.append(error)
        return faults

    def abandon(self) -> None:
        """In a forked child: forget all without touching them or waiting for a lock of a thread that is gone."""
        self._closed = True
        self._partitions.clear()

    def _key_lock(self, key: Key) -> threading.Lock:
        with self._lock:
            lock = self._key_locks.get(key)
            if lock is None:
                lock = self._key_locks[key] = threading.Lock()
            return lock


class CatalogFollower:
    """The catalog in a process that only reads: as the writer last stored it, read again every now and then.

    Any thread. `catalog` is at most limits.READER_POLL_MAX_MS old.

    `on_change` is called with the older and the newer catalog, on the thread that noticed the change.
    """

    def __init__(self, files: Files, path: str, clock: Clock, on_change: Callable[[Catalog, Catalog], None]) -> None:
        self._files = files
        self._path = f"{path}/{CATALOG_NAME}"
        self._clock = clock
        self._on_change = on_change
        self._lock = threading.Lock()
        self._catalog = open_for_reading(files, path)
        self._data = b""
        self._looked_ms = float("-inf")

    @property
    def known(self) -> Catalog:
        """The catalog as of the last look."""
        return self._catalog

    @property
    def catalog(self) -> Catalog:
        if self._clock.monotonic_ms() - self._looked_ms >= limits.READER_POLL_MAX_MS:
            self.refresh()
        return self._catalog

    def refresh(self) -> Catalog:
        """Read the file now. The writer replaces it whole, so it is always there unless it was removed by hand:
        StorageError then."""
        with self._lock:
            self._looked_ms = self._clock.monotonic_ms()
            try:
                data = read_file(self._files, self._path)
            except OSError as error:
                raise storage_error(f"{self._path} cannot be read; restore it, then open again", error) from error
            if data != self._data:
                older, self._catalog = self._catalog, decode(data, self._path)
                self._data = data
                self._on_change(older, self._catalog)
            return self._catalog


class WarningList:
    """Warnings for the owner of a log about things that no caller waits for.

    The newest limits.WARNINGS_MAX different warnings, oldest first. Any thread. Each is logged when it is new."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._texts: dict[str, None] = {}

    def add(self, text: str) -> None:
        with self._lock:
            if text in self._texts:
                return
            self._texts[text] = None
            if len(self._texts) > limits.WARNINGS_MAX:
                del self._texts[next(iter(self._texts))]
        logger.warning("%s", text)

    def report(self, doing: str, error: Exception) -> None:
        """Add a warning about a failure that no caller waits for."""
        what = str(error) or type(error).__name__
        self.add(f"{doing} failed: {what}" if doing else what)

    def texts(self) -> list[str]:
        with self._lock:
            return list(self._texts)


class PartitionOverview(NamedTuple):
    """The state of a partition. If it is not open, the state is the checkpoint's, and there is no size."""

    topic: str
    number: int
    log_start_offset: int
    log_end_offset: int
    high_watermark: int
    size_bytes: int | None = None
    segment_count: int | None = None
    is_poisoned: bool = False
    refusal: CorruptLog | None = None
    cleaning_fault: FoldlogError | None = None  # why it is not compacted any more

    @property
    def is_open(self) -> bool:
        return self.size_bytes is not None


def overview(storage: Storage) -> Iterator[PartitionOverview]:
    """All partitions in order of topic and number, for metrics, health and the console; those deleted meanwhile are
    left out. Opens nothing."""
    for _, topic in sorted(storage.catalog().topics.items()):
        for number, slot in enumerate(topic.slots):
            key = (topic.name, number)
            partition = storage.partitions.get(key)
            found = None if partition is None else _opened_overview(*key, partition)
            found = found or _unopened_overview(*key, slot, storage)
            refusal = storage.partitions.refusal_of(key)
            yield found if refusal is None else found._replace(refusal=refusal)


def _unopened_overview(topic: str, number: int, slot: int, storage: Storage) -> PartitionOverview:
    try:
        state = storage.checkpointed_state(slot) or SlotState()
    except CorruptLog as error:
        return PartitionOverview(topic, number, 0, 0, 0, refusal=error)
    # The log end is not known, so it is the high watermark: recovery decides about bytes above it.
    return PartitionOverview(topic, number, state.log_start_offset, state.high_watermark, state.high_watermark)


def _opened_overview(topic: str, number: int, partition: AnyPartition) -> PartitionOverview | None:
    try:
        return PartitionOverview(
            topic,
            number,
            partition.log_start_offset,
            partition.log_end_offset,
            partition.high_watermark,
            partition.size_bytes,
            partition.segment_count,
            isinstance(partition, Partition) and partition.is_poisoned,
            cleaning_fault=partition.cleaning_fault if isinstance(partition, Partition) else None,
        )
    except (StorageError, LogClosed):
        return None  # a reading process finds files gone or damaged: the checkpoint says the rest


def check_isolation_level(level: object) -> str:
    """Raises InvalidArgument if Kafka has no isolation level of that name."""
    if level not in ISOLATION_LEVELS:
        known = " or ".join(map(repr, ISOLATION_LEVELS))
        raise InvalidArgument(f"isolation_level={brief_repr(level)} is not allowed; it is {known}")
    return str(level)
