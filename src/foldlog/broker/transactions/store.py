"""Transactions on disk: drives the coordinator, keeps the topic that stores its states, and writes the markers.

The life of a transaction, and what is durable before what:

    1. add         the partition is in the stored state before the first batch is appended there: whoever opens the log
                   after a crash knows where markers are missing
    2. end         what a commit is about is durable before the Prepare record, and that before the first marker is
                   appended: it is the commit point
    3. markers     every marker is durable before the Complete record is appended: until then a crash finds Prepare, and
                   the next open writes the markers again
    4. Complete    not waited for: the next transaction's first record comes after it in the same partition

A partition tells by itself whether a batch belongs to a transaction that is open there, and only asks here
(`TransactionStore.append`) for the first batch of a transaction. So a batch can begin a transaction in a partition only
under the lock, while the state is Ongoing; none is left behind without a marker.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from typing import Final, NamedTuple, Protocol, TypeVar

from foldlog.broker.groups.committed import OffsetAndMetadata, partition_for_group
from foldlog.broker.groups.store import GroupStore
from foldlog.broker.regular_expressions import compile_regex
from foldlog.broker.topics.catalog import Catalog
from foldlog.broker.topics.names import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from foldlog.broker.transactions.coordinator import (
    VERSION_2,
    TransactionCoordinator,
    TransactionSettings,
    complete_of,
    select,
)
from foldlog.broker.transactions.state_format import (
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    TopicPartition,
    TransactionMetadata,
    encode_key,
    encode_value,
)
from foldlog.clock import Clock
from foldlog.errors import (
    ConcurrentTransactions,
    CorruptTransactionRecord,
    FoldlogError,
    InvalidArgument,
    InvalidProducerEpoch,
    LogClosed,
    PartitionElsewhere,
    ReadOnly,
    StaleCoordinatorEpoch,
    StorageError,
    TransactionNotOpen,
    UnknownPartition,
    UnknownTopic,
    brief_repr,
)
from foldlog.files.base import Buffer
from foldlog.log.follower import FollowedPartition
from foldlog.log.partition import Appended, Partition
from foldlog.records.loops import decode, pack, walk

_READ_BYTES: Final = 1 << 20
_UNCOMPACTED_MAX: Final = 1000
"""Records of the topic beyond a few for each id: reading so many takes some ten milliseconds, at every open."""

_INIT_TRIES: Final = 3  # each after an abort; a new transaction that begins in between has to be aborted, too
_MARKER_TRIES: Final = 2  # the second after a topic was deleted in the middle of the first


Name = TypeVar("Name", bound=Hashable)
_MarkerResults = list[dict[TopicPartition, FoldlogError | None]]


class TransactionsReader(Protocol):
    """How the store reads the topic."""

    def catalog(self) -> Catalog: ...

    def partition(self, name: str, number: int) -> Partition | FollowedPartition: ...

    def check_partition(self, name: str, number: int) -> object:
        """Raises UnknownTopic or UnknownPartition."""
        ...

    def report(self, doing: str, error: Exception) -> None: ...


class TransactionsWriter(Protocol):
    """How the store writes the topic, and markers into others."""

    def create_transactions_topic(self) -> None: ...

    def writable_partition(self, key: TopicPartition) -> Partition: ...


class _Written(NamedTuple):
    """Something appended that has to be durable before the next step."""

    partition: Partition
    next_offset: int

    def wait(self) -> None:
        self.partition.wait_acknowledged(self.next_offset)
        if self.partition.durable_offset < self.next_offset:
            self.partition.sync()  # the topic relaxed flush.*: it acknowledges before it syncs


class MarkersToWrite(NamedTuple):
    """How the transaction of one producer ends in some partitions: WriteTxnMarkers."""

    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    commit: bool
    partitions: tuple[TopicPartition, ...]
    transaction_version: int = 1


class TransactionAt(NamedTuple):
    """A transaction that is open in a partition; `transactional_id` is None if no id here has its producer."""

    transactional_id: str | None
    producer_id: int
    producer_epoch: int
    first_offset: int
    last_timestamp_ms: int


class TransactionStore:
    """Any thread; everything is decided under `lock`, and waited for outside of it.

    Lock order: `lock` before the groups' and all others. Loaded from the topic at the first call. Without a `writer`
    another process writes the topic, so new records are read with each call. `on_deadline` is called with the
    milliseconds until `tick` has to be called.
    """

    def __init__(
        self,
        home: TransactionsReader,
        clock: Clock,
        writer: TransactionsWriter | None,
        groups: GroupStore,
        new_producer_id: Callable[[], int],
        settings: TransactionSettings | None = None,
    ) -> None:
        # First in broker.py's order: a commit of offsets in a transaction takes the groups' lock under it. Re-entrant:
        # requests are made of steps that are requests, too.
        self.lock = threading.RLock()
        self._home = home
        self._clock = clock
        self._writer = writer
        self._groups = groups
        self._coordinator = TransactionCoordinator(clock, new_producer_id, settings)
        self.on_deadline: Callable[[float], None] = lambda in_ms: None
        # Where the last record of each id ends: what a client is told about the id waits for it.
        self._stored: dict[str, _Written] = {}
        # Markers of prepared transactions that are appended; None: the partition needs none.
        self._markers: dict[str, dict[TopicPartition, _Written | None]] = {}
        self._read_to: dict[int, int] = {}
        self._overgrown: list[int] = []
        """Partitions of the topic that held far more records than ids when they were read."""
        self._loaded = False
        self._closed = False

    @property
    def expiry_check_ms(self) -> int:
        """How often `expire` is to be called."""
        return self._coordinator.settings.expiry_check_ms

    # --- requests of producers ----------------------------------------------------------------------------------------

    def init_producer(
        self,
        transactional_id: str,
        timeout_ms: int,
        *,
        producer_id: int = NO_PRODUCER_ID,
        producer_epoch: int = NO_PRODUCER_EPOCH,
        client_version: int = VERSION_2,
    ) -> tuple[int, int]:
        """Make the caller the one producer of the id: its producer id and epoch. Durable on return.

        An open transaction of the producer before it is aborted first. A producer that continues after an error gives
        its id and epoch, and gets ProducerFenced if another one came since.
        """
        for _ in range(_INIT_TRIES):
            self._catch_up(transactional_id)
            with self._writing():
                metadata = self._coordinator.init(
                    transactional_id, timeout_ms, producer_id, producer_epoch, client_version
                )
                stored = self._store(metadata)
            if not metadata.state.is_prepared:
                stored.wait()
                return metadata.producer_id, metadata.producer_epoch
            self._finish(transactional_id)
        raise ConcurrentTransactions(
            f"other producers keep beginning transactions of transactional id {brief_repr(transactional_id)}; give each"
            " producer an id of its own"
        )

    def add_partitions(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: Collection[TopicPartition],
        *,
        client_version: int = VERSION_2,
    ) -> None:
        """Add partitions to the producer's transaction, which begins with the first. Durable on return; all or none."""
        self._catch_up(transactional_id)
        with self._writing():
            for topic, number in partitions:
                self._home.check_partition(topic, number)
            metadata = self._coordinator.add(transactional_id, producer_id, producer_epoch, partitions, client_version)
            stored = self._stored_or_known(metadata)
        if stored is not None:
            stored.wait()

    def verify(
        self, transactional_id: str, producer_id: int, producer_epoch: int, partitions: Collection[TopicPartition]
    ) -> dict[TopicPartition, FoldlogError | None]:
        """For each partition None if it is in the producer's open transaction, or why nothing may be written there."""
        self._catch_up(transactional_id)
        with self._writing():
            return dict(self._coordinator.verify(transactional_id, producer_id, producer_epoch, partitions))

    def append(self, transactional_id: str | None, partition: Partition, records: Buffer, *, add: bool) -> Appended:
        """Append a transactional batch of a client. Not durable yet, as with `Partition.append`.

        The first one of a transaction in a partition is only taken if the partition was added; with `add`, as of
        transaction version 2, that is done here.
        """
        try:
            return partition.append(records, foreign=True)
        except TransactionNotOpen:
            if transactional_id is None:
                raise InvalidArgument(
                    f"a transactional batch for {partition.label[0]}-{partition.label[1]} comes without a transactional"
                    " id; set transactional.id in the producer"
                ) from None
        producer = _producer_of(records)
        if add:
            self.add_partitions(transactional_id, *producer, [partition.label])
        else:
            self._catch_up(transactional_id)
        with self._writing():
            self._check_added(transactional_id, *producer, partition.label)
            return partition.append(records, foreign=True, begins_transaction=True)

    def add_offsets(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        group: str,
        *,
        client_version: int = VERSION_2,
    ) -> None:
        """Announce that the transaction will commit offsets of the group. Durable on return."""
        partitions = [self._groups.partition_of(group)]
        self.add_partitions(transactional_id, producer_id, producer_epoch, partitions, client_version=client_version)

    def commit_offsets(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        group: str,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        *,
        member_id: str = "",
        generation: int = -1,
        instance_id: str | None = None,
        add: bool = False,
    ) -> None:
        """Commit offsets of a group in the transaction: they count when it is committed. Durable on return.

        With `add`, as of transaction version 2, the group need not be announced.
        """
        if add:
            self.add_offsets(transactional_id, producer_id, producer_epoch, group)
        else:
            self._catch_up(transactional_id)
        with self._writing():
            self._check_added(transactional_id, producer_id, producer_epoch, self._groups.partition_of(group))
            partition, next_offset = self._groups.append_in_transaction(
                group,
                offsets,
                producer_id,
                producer_epoch,
                member_id=member_id,
                generation=generation,
                instance_id=instance_id,
            )
        partition.wait_acknowledged(next_offset)

    def end(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        *,
        commit: bool,
        client_version: int = VERSION_2,
    ) -> tuple[int, int]:
        """Commit or abort the producer's transaction; returns its producer id and epoch from then on.

        The decision is durable on return, and so are the markers, unless a partition cannot take its own now: that one
        gets it later, and its readers of committed records wait there.
        """
        self._catch_up(transactional_id)
        if commit:
            self._sync_relaxed(transactional_id)
        with self._writing():
            metadata = self._coordinator.end(
                transactional_id, producer_id, producer_epoch, commit=commit, client_version=client_version
            )
            stored = self._stored_or_known(metadata)
        if stored is not None:
            stored.wait()
        self._finish(transactional_id)
        ended = complete_of(metadata)
        return ended.producer_id, ended.producer_epoch

    def _sync_relaxed(self, transactional_id: str) -> None:
        """Before a commit is decided: make durable what topics that relaxed flush.* have only written."""
        with self.lock:
            metadata, writer = self._coordinator.get(transactional_id), self._writer
        if metadata is None or writer is None:
            return
        for key in metadata.partitions:
            try:
                partition = writer.writable_partition(key)
                if partition.acks_when_written:
                    partition.sync()
            except (UnknownTopic, UnknownPartition, LogClosed):
                continue  # deleted since

    # --- requests of operators ----------------------------------------------------------------------------------------

    def describe(self, transactional_ids: Iterable[str]) -> list[TransactionMetadata | FoldlogError]:
        """The state of each id, or UnknownTransactionalId."""
        found: list[TransactionMetadata | FoldlogError] = []
        with self.lock:
            self._ready()
            for transactional_id in transactional_ids:
                try:
                    found.append(self._coordinator.describe(transactional_id))
                except FoldlogError as error:
                    found.append(error)
        return found

    def list(
        self,
        *,
        states: Collection[str] = (),
        producer_ids: Collection[int] = (),
        min_duration_ms: int = -1,
        id_pattern: str | None = None,
    ) -> list[TransactionMetadata]:
        """The ids in one of the states, of one of the producers, whose transactions are open for longer than
        `min_duration_ms`, and which `id_pattern` matches as a whole. Raises InvalidArgument for a wrong pattern."""
        is_wanted = compile_regex(id_pattern).fullmatch if id_pattern else bool
        with self.lock:
            self._ready()
            known = self._coordinator.all()
        return select(
            known,
            self._clock.now_ms(),
            states=states,
            producer_ids=producer_ids,
            min_duration_ms=min_duration_ms,
            is_wanted=is_wanted,
        )

    def abort(self, transactional_id: str) -> None:
        """Abort the open transaction, whoever began it: its producer is fenced. As `end`, but for the producer."""
        self._catch_up(transactional_id)
        with self._writing():
            stored = self._store(self._coordinator.fence(transactional_id))
        stored.wait()
        self._finish(transactional_id)

    def write_markers(self, wanted: Sequence[MarkersToWrite]) -> Sequence[dict[TopicPartition, FoldlogError | None]]:
        """Write markers as told, whatever the ids' states are: for transactions that hang without one. Durable on
        return; for each partition the error, or None."""
        results: _MarkerResults = []
        written: dict[tuple[int, TopicPartition], _Written] = {}
        with self._writing():
            for index, one in enumerate(wanted):
                results.append(dict.fromkeys(one.partitions))
                for key in results[index]:
                    try:
                        written[index, key] = self._append_marker(key, one)
                    except FoldlogError as error:
                        results[index][key] = error
        for (index, key), failed in _wait_for_all(written).items():
            results[index][key] = failed
        return results

    def open_at(self, topic: str, number: int) -> Sequence[TransactionAt]:
        """The transactions that are open in a partition; the first one is where committed records end."""
        self._home.check_partition(topic, number)
        if self._writer is None:
            raise self._read_only()
        partition = self._writer.writable_partition((topic, number))
        found = sorted(partition.open_transactions(), key=lambda one: one.first_offset)
        with self._writing():
            return [
                TransactionAt(
                    self._coordinator.id_of_producer(one.producer_id),
                    one.producer_id,
                    one.producer_epoch,
                    one.first_offset,
                    one.last_timestamp_ms,
                )
                for one in found
            ]

    # --- what the broker does by itself -------------------------------------------------------------------------------

    def recover(self) -> None:
        """Load, and write the markers that a crash left out. Called at the open: before that, the partitions concerned
        hold back what was committed."""
        if TRANSACTIONS_TOPIC in self._home.catalog().topics:
            with self.lock:
                self._ready()
            self._finish_all()
            self._schedule_tick()
            self._compact_overgrown()

    def _compact_overgrown(self) -> None:
        """Who writes a directory for a moment only has no background that compacts, and reads all of it each time."""
        overgrown, self._overgrown = self._overgrown, []
        if self._writer is None:
            return
        for number in overgrown:
            try:
                self._writer.writable_partition((TRANSACTIONS_TOPIC, number)).compact(force=True)
            except FoldlogError as error:
                self._home.report("compacting transactions", error)

    def tick(self) -> float | None:
        """Abort what takes too long, and try again to write missing markers; returns in how many milliseconds to call
        again."""
        with self.lock:
            if self._closed or not self._loaded:
                return None
            for transactional_id in self._coordinator.due():
                self._store(self._coordinator.fence(transactional_id))
        self._finish_all()
        with self.lock:
            return self._next_tick_ms()

    def expire(self) -> None:
        """Forget ids that nobody has used for transactional.id.expiration.ms."""
        with self.lock:
            if self._closed or not self._loaded:
                return
            for transactional_id in self._coordinator.expired():
                self._append(transactional_id, None)
                self._coordinator.forget(transactional_id)
                self._stored.pop(transactional_id, None)

    def close(self) -> None:
        """Calls raise LogClosed from now on; closing a partition syncs what was appended."""
        with self.lock:
            self._closed = True

    def _next_tick_ms(self) -> float | None:
        if self._coordinator.prepared():
            return self._coordinator.settings.abort_check_ms
        deadline_ms = self._coordinator.next_deadline_ms()
        return None if deadline_ms is None else max(0.0, deadline_ms - self._clock.monotonic_ms())

    def _schedule_tick(self) -> None:
        with self.lock:
            in_ms = self._next_tick_ms()
        if in_ms is not None:
            self.on_deadline(in_ms)

    # --- the end of a transaction -------------------------------------------------------------------------------------

    def _catch_up(self, transactional_id: str) -> None:
        """Before a request: abort the id's transaction if its time is over, and complete what is decided."""
        with self._writing():
            metadata = self._coordinator.get(transactional_id)
            if metadata is not None and self._coordinator.is_due(transactional_id):
                metadata = self._coordinator.fence(transactional_id)
                self._store(metadata)
        if metadata is not None and metadata.state.is_prepared:
            self._finish(transactional_id)

    def _finish_all(self) -> None:
        with self.lock:
            prepared = self._coordinator.prepared()
        for transactional_id in prepared:
            try:
                self._finish(transactional_id)
            except FoldlogError as error:
                self._home.report(f"ending a transaction of {transactional_id!r}", error)

    def _finish(self, transactional_id: str) -> None:
        """Write the markers of a decided transaction, wait for them, and store that it is complete.

        What cannot be done now is reported, and tried again by `tick`. Several threads may do it at once: each marker
        is appended by one of them, and Complete by the first whose wait ends. Raises only if the decision itself cannot
        be made durable.
        """
        with self.lock:
            metadata, stored = self._coordinator.get(transactional_id), self._stored.get(transactional_id)
        if metadata is None or not metadata.state.is_prepared:
            return
        if stored is not None:
            stored.wait()
        try:
            if not self._complete(metadata):
                self._schedule_tick()
        except LogClosed:
            return  # it is decided; the next open completes it
        except StorageError as error:
            self._home.report(f"storing that a transaction of {transactional_id!r} is complete", error)
            self._schedule_tick()

    def _complete(self, metadata: TransactionMetadata) -> bool:
        """Whether it is complete now."""
        name = metadata.transactional_id
        for _ in range(_MARKER_TRIES):
            with self.lock:
                if self._closed or self._coordinator.get(name) is not metadata:
                    return True
                are_all = self._append_markers(metadata)
                placed = self._markers[name]
                written = {key: one for key, one in placed.items() if one is not None}
            failed = _wait_for_all(written)
            with self.lock:
                if self._coordinator.get(name) is not metadata:
                    return True
                for key in failed:
                    placed.pop(key, None)
                if are_all and not failed:
                    del self._markers[name]
                    self._store(self._coordinator.complete(name))
                    return True
        return False

    def _append_markers(self, metadata: TransactionMetadata) -> bool:
        """Append the markers that are missing; False if one could not be."""
        placed = self._markers.setdefault(metadata.transactional_id, {})
        marker = MarkersToWrite(
            metadata.producer_id,
            metadata.producer_epoch,
            self._state_partition(metadata.transactional_id).leader_epoch,
            metadata.is_committing,
            (),
            metadata.client_version,
        )
        are_all = True
        for topic, number in sorted(metadata.partitions - placed.keys()):
            doing = f"ending a transaction of {metadata.transactional_id!r} in {topic}-{number}"
            try:
                placed[topic, number] = self._append_marker((topic, number), marker)
            except (UnknownTopic, UnknownPartition):
                placed[topic, number] = None  # deleted since: nothing is left there to be ended
            except (InvalidProducerEpoch, StaleCoordinatorEpoch) as error:
                # Somebody else ended it there (WriteTxnMarkers), with a newer epoch.
                self._home.report(doing, error)
                placed[topic, number] = None
            except LogClosed:
                are_all = False  # the topic is being deleted, or the log closed
            except (StorageError, OSError) as error:
                self._home.report(doing, error)
                are_all = False
        return are_all

    def _append_marker(self, key: TopicPartition, marker: MarkersToWrite) -> _Written:
        if self._writer is None:
            raise self._read_only()
        self._home.check_partition(*key)
        partition = self._writer.writable_partition(key)
        producer = (marker.producer_id, marker.producer_epoch, marker.coordinator_epoch)
        version = marker.transaction_version
        if key[0] == OFFSETS_TOPIC:
            appended = self._groups.append_marker(key[1], *producer, commit=marker.commit, transaction_version=version)
        else:
            appended = partition.append_marker(*producer, commit=marker.commit, transaction_version=version)
        return _Written(partition, appended.next_offset)

    # --- the topic ----------------------------------------------------------------------------------------------------

    @contextmanager
    def _writing(self) -> Iterator[None]:
        """For a request of a producer: under the lock, and loaded. Raises ReadOnly where another process writes."""
        if self._writer is None:
            raise self._read_only()
        with self.lock:
            self._ready()
            yield

    def _read_only(self) -> ReadOnly:
        return ReadOnly("the log was opened with mode='r'; open it with mode='w' for transactions")

    def _ready(self) -> None:
        if self._closed:
            raise LogClosed("the log is closed; open it again")
        if self._loaded and self._writer is not None:
            return
        topic = self._home.catalog().topics.get(TRANSACTIONS_TOPIC)
        for number in range(0 if topic is None else topic.partition_count):
            with suppress(PartitionElsewhere):  # another broker of Kafka's has it
                self._read(number)
        self._loaded = True

    def _read(self, number: int) -> None:
        """Take in the records of one partition from where the last call ended."""
        partition = self._home.partition(TRANSACTIONS_TOPIC, number)
        first = offset = max(self._read_to.get(number, 0), partition.log_start_offset)
        # A busy id has hundreds of records between two compactions: only its last one that can be read is taken in.
        known: dict[bytes | None, list[bytes | None]] = {}
        while True:
            found = partition.read(offset, _READ_BYTES)
            if found.next_offset == offset:
                break
            for record in decode(found.data, TRANSACTIONS_TOPIC, number, start_offset=offset)[0]:
                known.setdefault(record.key, []).append(record.value)
            offset = found.next_offset
        for key, values in known.items():
            while values and not self._restored(key, values.pop()):
                pass
        self._read_to[number] = offset
        if offset - first > _UNCOMPACTED_MAX + 8 * len(known):
            self._overgrown.append(number)

    def _restored(self, key: bytes | None, value: bytes | None) -> bool:
        try:
            self._coordinator.restore(key, value)
        except CorruptTransactionRecord as error:
            self._home.report("loading transactions", error)
            return False
        return True

    def _check_added(self, transactional_id: str, producer_id: int, producer_epoch: int, key: TopicPartition) -> None:
        """Raises why the producer may not begin its transaction in this partition."""
        error = self._coordinator.verify(transactional_id, producer_id, producer_epoch, [key])[key]
        if error is not None:
            raise error

    def _stored_or_known(self, metadata: TransactionMetadata) -> _Written | None:
        """Store a new state; for the present one, what has to be waited for until it is durable."""
        if self._coordinator.get(metadata.transactional_id) is metadata:
            return self._stored.get(metadata.transactional_id)
        return self._store(metadata)

    def _store(self, metadata: TransactionMetadata) -> _Written:
        """Append a state and let it count."""
        stored = self._append(metadata.transactional_id, encode_value(metadata))
        self._coordinator.apply(metadata)
        self._stored[metadata.transactional_id] = stored
        self._schedule_tick()
        return stored

    def _append(self, transactional_id: str, value: bytes | None) -> _Written:
        partition = self._state_partition(transactional_id)
        packed = pack([(self._clock.now_ms(), encode_key(transactional_id), value, ())])
        return _Written(partition, partition.append(packed, trusted=True).next_offset)

    def _state_partition(self, transactional_id: str) -> Partition:
        if self._writer is None:
            raise self._read_only()
        if TRANSACTIONS_TOPIC not in self._home.catalog().topics:
            self._writer.create_transactions_topic()
        count = self._home.catalog().topics[TRANSACTIONS_TOPIC].partition_count
        return self._writer.writable_partition((TRANSACTIONS_TOPIC, partition_for_group(transactional_id, count)))


def _wait_for_all(written: Mapping[Name, _Written]) -> dict[Name, FoldlogError]:
    """Wait until all is durable, in all partitions at once; returns what went wrong with some."""
    failed: dict[Name, FoldlogError] = {}
    settled = threading.Semaphore(0)

    def settle(name: Name, error: FoldlogError | None) -> None:
        if error is not None:
            failed[name] = error
        settled.release()

    # The syncs of all but one are begun on other threads. The callback is quick: it may run under a partition's locks.
    names = list(written)
    for name in names[1:]:
        one = written[name]
        one.partition.on_acknowledged(one.next_offset, partial(settle, name), is_quick=True)
    for name in names[:1]:
        try:
            written[name].wait()
        except FoldlogError as error:
            failed[name] = error
    for _ in names[1:]:
        settled.acquire()
    for name in names[1:]:
        if name not in failed:
            try:
                written[name].wait()  # at once, unless the topic relaxed flush.*
            except FoldlogError as error:
                failed[name] = error
    return failed


def _producer_of(records: Buffer) -> tuple[int, int]:
    """Producer id and epoch of the batches. Raises InvalidArgument if they are of several producers: each would have to
    be verified."""
    found = {(header.producer_id, header.producer_epoch) for header in walk(records, check_crc=False).headers}
    if len(found) != 1:
        raise InvalidArgument("batches of several producers were sent for one partition; send one batch at a time")
    return found.pop()
