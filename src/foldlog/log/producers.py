"""Idempotent and transactional producers: their ids, epochs, sequence numbers and open transactions.

`ProducerState` decides in memory which batch repeats one in the log, which is out of order, and which transactions are
open. `Producers` is the state
of one partition with its snapshots on disk: read when the first batch with a producer id comes, written at roll and
close, with the indexes of aborted transactions. `AllProducers` bounds the number of producers over all partitions.
"""

from __future__ import annotations

import logging
import struct
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple
from weakref import WeakSet

from crc32c import crc32c

from foldlog.errors import (
    CorruptLog,
    InvalidBatch,
    InvalidProducerEpoch,
    OutOfOrderSequence,
    StaleCoordinatorEpoch,
    StorageError,
    TooManyProducers,
    TransactionNotOpen,
    TransactionOpen,
)
from foldlog.files.base import read_file, storage_error
from foldlog.limits import PRODUCER_IDLE_MS, PRODUCER_IDS_MAX, PRODUCER_IDS_OF_ALL_MAX, PRODUCERS_COUNT_MS
from foldlog.log.layout import PartitionLayout, read_layout
from foldlog.log.segment import ANY_OFFSET, SNAPSHOT_SUFFIX, TRANSACTION_INDEX_SUFFIX, Segment, segment_stem
from foldlog.log.transactions import (
    ENTRY_BYTES,
    AbortedIndex,
    AbortedTransaction,
    EndedTransaction,
    Marker,
    Transactions,
    Undecided,
    end_marker,
    format_transaction_index,
    read_transaction_index,
)
from foldlog.records.loops import BatchHeader

if TYPE_CHECKING:
    from foldlog.log.partition import Admitted, PartitionCore
    from foldlog.log.produced import Writable

logger = logging.getLogger("foldlog.log")

REMEMBERED_BATCHES = 5  # a producer may have five requests in flight, so five may come again
EXPIRATION_MS = 24 * 60 * 60 * 1000  # Kafka's default of producer.id.expiration.ms
_SEQUENCE_MAX = (1 << 31) - 1

_HEAD = struct.Struct(">hIi")  # version, CRC-32C of what follows it, number of entries
_ENTRY = struct.Struct(">qhiqiqiq")  # id, epoch, last sequence, last offset, offset delta, timestamp, coordinator, txn
_VERSION = 1
_CRC_END = 6


class SentBatch(NamedTuple):
    """One batch as its producer numbered it and as the log did."""

    first_sequence: int
    last_sequence: int
    base_offset: int
    last_offset: int
    timestamp_ms: int


class ProducerInfo(NamedTuple):
    """What a log remembers of a producer, with the fields of Kafka's DescribeProducers. -1: it has no transaction."""

    producer_id: int
    producer_epoch: int
    last_sequence: int
    last_timestamp_ms: int
    coordinator_epoch: int = -1
    transaction_start_offset: int = -1


class OpenTransaction(NamedTuple):
    """A transaction that no marker has ended yet."""

    producer_id: int
    producer_epoch: int
    first_offset: int
    last_timestamp_ms: int


class SnapshotEntry(NamedTuple):
    """One producer as a .snapshot file has it. -1: no coordinator, no open transaction."""

    producer_id: int
    producer_epoch: int
    last_sequence: int
    last_offset: int
    offset_delta: int
    timestamp_ms: int
    coordinator_epoch: int
    transaction_start_offset: int


def read_snapshot(data: bytes) -> list[SnapshotEntry] | None:
    """The entries of a .snapshot file; None if it is damaged."""
    if len(data) < _HEAD.size:
        return None
    version, crc, count = _HEAD.unpack_from(data)
    if version != _VERSION or crc != crc32c(data[_CRC_END:]) or len(data) != _HEAD.size + count * _ENTRY.size:
        return None
    return [SnapshotEntry(*fields) for fields in _ENTRY.iter_unpack(data[_HEAD.size :])]


class _RememberedProducer:
    """One producer id: its epoch, and its newest batches in that epoch, oldest first. There are none if a marker began
    the epoch, or if the batches have no sequence numbers (those of a coordinator).

    `coordinator_epoch` is that of the last marker, or -1. `seen_ms`: when it last wrote, by our clock, since
    timestamps of records may be anything; None until the next look at the clock if that is not known.
    """

    __slots__ = ("batches", "coordinator_epoch", "epoch", "last_timestamp_ms", "seen_ms")

    def __init__(self, epoch: int, seen_ms: int | None = None, coordinator_epoch: int = -1) -> None:
        self.epoch = epoch
        self.seen_ms = seen_ms
        self.coordinator_epoch = coordinator_epoch
        self.last_timestamp_ms = -1
        self.batches: list[SentBatch] = []  # no deque: its first block is larger than all that most producers need

    @property
    def last_sequence(self) -> int:
        """-1 if it has not numbered a batch in this epoch."""
        return self.batches[-1].last_sequence if self.batches else -1


class ProducersNeed(NamedTuple):
    """What compaction has to know of producers and transactions.

    `last_batches`: base offsets of the batches that carry each producer's last sequence. `last_markers`: producer and
    epoch where a marker alone carries that. `aborted` is None for a log that never had a transaction.
    """

    last_batches: frozenset[int] = frozenset()
    last_markers: frozenset[tuple[int, int]] = frozenset()
    aborted: AbortedIndex | None = None


class ProducerState:
    """The newest batches of each producer id, in the order of last writes, for at most PRODUCER_IDS_MAX ids. Owned by
    the partition's appender.

    Snapshots are in Kafka's .snapshot format, which keeps one batch per producer: after a restart only the newest batch
    is recognized as a duplicate, an older one is out of order.
    """

    def __init__(self) -> None:
        self._producers: dict[int, _RememberedProducer] = {}
        self.transactions = Transactions()

    def __len__(self) -> int:
        return len(self._producers)

    def duplicate_of(self, headers: Sequence[BatchHeader]) -> SentBatch | None:
        """The batch already in the log that these repeat; None if they are the producer's next.

        Raises OutOfOrderSequence or InvalidProducerEpoch if they are neither.
        """
        if len(headers) == 1:  # as a client sends them
            header = headers[0]
            batch = self._repeated(header)
            if batch is None and header.producer_id >= 0 and not header.is_control:
                self._check(header)
            return batch
        repeated = [batch for header in headers if (batch := self._repeated(header)) is not None]
        if repeated:
            if len(repeated) < len(headers):
                raise OutOfOrderSequence(
                    f"of {len(headers)} batches sent together, {len(repeated)} are in the log already and the others"
                    " are not; send only the others"
                )
            first, last = repeated[0], repeated[-1]
            return last._replace(first_sequence=first.first_sequence, base_offset=first.base_offset)
        self._check_order(headers)
        return None

    def takes_next(self, producer_id: int, epoch: int, first_sequence: int, *, in_transaction: bool) -> bool:
        """Whether batches that are numbered from there on are just the next of a producer that is remembered in this
        epoch, in the transaction that is open or outside of any: then nothing else has to be checked."""
        known = self._producers.get(producer_id)
        if known is None or known.epoch != epoch or not known.batches:
            return False
        return (
            first_sequence == known.batches[-1].last_sequence + 1
            and (self.transactions.start_of(producer_id) is not None) == in_transaction
        )

    def note_next(self, producer_id: int, sent: Sequence[SentBatch], now_ms: int) -> None:
        """Remember the last batches of those that `takes_next` was asked about."""
        known = self._producers.pop(producer_id)
        self._producers[producer_id] = known  # the dict's order is that of last writes
        known.seen_ms = now_ms
        known.last_timestamp_ms = sent[-1].timestamp_ms
        known.batches = [*known.batches, *sent][-REMEMBERED_BATCHES:]

    def _repeated(self, header: BatchHeader) -> SentBatch | None:
        known = self._producers.get(header.producer_id)
        if known is None or header.is_control or header.producer_epoch != known.epoch:
            return None
        first_sequence = header.base_sequence
        for batch in known.batches:
            if batch.first_sequence == first_sequence and batch.last_sequence == _last_sequence(header):
                return batch
        return None

    def _check_order(self, headers: Sequence[BatchHeader]) -> None:
        following: dict[int, tuple[int, int]] = {}
        for header in headers:
            if header.producer_id < 0 or header.is_control:
                continue
            if header.base_sequence < 0 or header.producer_id not in following:
                self._check(header)
            else:
                epoch, last = following[header.producer_id]
                expected = 0 if header.producer_epoch > epoch else _after(last, 1)
                if header.producer_epoch < epoch or header.base_sequence != expected:
                    raise _out_of_order(header, expected)
            if header.base_sequence >= 0:
                following[header.producer_id] = (header.producer_epoch, _last_sequence(header))

    def _check(self, header: BatchHeader) -> None:
        known = self._producers.get(header.producer_id)
        if known is None:
            return  # forgotten or new: any sequence starts it, as in Kafka
        if header.producer_epoch < known.epoch:
            raise InvalidProducerEpoch(
                f"producer {header.producer_id} sent epoch {header.producer_epoch}, but {known.epoch} has taken over"
            )
        if header.base_sequence < 0:
            return  # of a coordinator: it does not number its batches
        # A new epoch begins at sequence 0: anything else means that a batch of it was lost on the way.
        if header.producer_epoch > known.epoch:
            if header.base_sequence != 0:
                raise _out_of_order(header, 0)
            return
        expected = _after(known.last_sequence, 1)
        if header.base_sequence != expected:
            raise _out_of_order(header, expected)

    def check_transactions(self, headers: Sequence[BatchHeader], begins: bool) -> None:
        """Raise TransactionNotOpen for a batch of a transaction that is not open here, unless it `begins` there;
        TransactionOpen for one outside of transactions, from a producer that has one open."""
        for header in headers:
            if header.is_control or header.producer_id < 0:
                continue
            first_offset = self.transactions.start_of(header.producer_id)
            if not header.is_transactional:
                if first_offset is not None:
                    raise TransactionOpen(
                        f"producer {header.producer_id} sent a batch outside of transactions, and its transaction from"
                        f" offset {first_offset} is open; end that first"
                    )
            elif not begins and (
                first_offset is None or self._producers[header.producer_id].epoch != header.producer_epoch
            ):
                raise TransactionNotOpen(
                    f"producer {header.producer_id} has no transaction open in this partition in epoch"
                    f" {header.producer_epoch}; add the partition to its transaction first"
                )

    def check_marker(
        self, producer_id: int, producer_epoch: int, coordinator_epoch: int, transaction_version: int
    ) -> None:
        """Raise InvalidProducerEpoch or StaleCoordinatorEpoch if the marker is one that came too late."""
        known = self._producers.get(producer_id)
        if known is None:
            return
        # Version 2 raises the epoch with each end: a marker in the epoch of an open transaction is of one before it.
        is_open = self.transactions.start_of(producer_id) is not None
        if producer_epoch < known.epoch or (transaction_version >= 2 and is_open and producer_epoch == known.epoch):
            raise InvalidProducerEpoch(
                f"a marker for producer {producer_id} has epoch {producer_epoch}, but {known.epoch} has taken over"
            )
        if coordinator_epoch < known.coordinator_epoch:
            raise StaleCoordinatorEpoch(
                f"a marker for producer {producer_id} has coordinator epoch {coordinator_epoch}, but"
                f" {known.coordinator_epoch} has taken over"
            )

    def make_room(
        self, headers: Sequence[BatchHeader], now_ms: int, are_all_full: Callable[[int], bool] = lambda _: False
    ) -> None:
        """Before a new producer is added at the limit, forget the one that is silent longest. The limit is this
        partition's, or that of all partitions if `are_all_full`.

        Raises TooManyProducers if that one wrote in the last minutes: its batches may come again, and would be taken
        for new.
        """
        for header in headers:
            if header.producer_id < 0 or header.producer_id in self._producers:
                continue
            if len(self._producers) >= PRODUCER_IDS_MAX:
                if not self.forget_silent(now_ms, 1):
                    raise TooManyProducers(header.producer_id, PRODUCER_IDS_MAX)
            elif not are_all_full(now_ms):
                return
            elif not self.forget_silent(now_ms, 1):
                raise TooManyProducers(header.producer_id, PRODUCER_IDS_OF_ALL_MAX, of_all=True)

    def forget_silent(self, now_ms: int, count_max: int) -> int:
        """Forget up to `count_max` producers that have not written in the last minutes, the longest silent first; how
        many."""
        silent: list[int] = []
        for producer_id, oldest in self._producers.items():
            if len(silent) >= count_max:
                break
            if oldest.seen_ms is None:
                oldest.seen_ms = now_ms
            if now_ms - oldest.seen_ms < PRODUCER_IDLE_MS:
                break
            if self.transactions.start_of(producer_id) is None:  # the marker of an open one is still to come
                silent.append(producer_id)
        for producer_id in silent:
            del self._producers[producer_id]
        return len(silent)

    def note(
        self, header: BatchHeader, now_ms: int | None = None, marker: Marker | None = None
    ) -> EndedTransaction | None:
        """Remember a batch of the log; returns the transaction that it ended. `now_ms`: when it was written, by our
        clock, if known. `marker`: of a control batch that ends a transaction."""
        if header.producer_id < 0:
            return None
        if marker is None and (header.is_control or (header.base_sequence < 0 and not header.is_transactional)):
            return None
        # Removed and inserted again: the dict's order is that of last writes, the longest silent first.
        known = self._producers.pop(header.producer_id, None)
        if known is None and len(self._producers) >= PRODUCER_IDS_MAX:
            self._forget_oldest()
        if known is None or known.epoch != header.producer_epoch:
            known = _RememberedProducer(
                header.producer_epoch, coordinator_epoch=-1 if known is None else known.coordinator_epoch
            )
        self._producers[header.producer_id] = known
        known.seen_ms = now_ms
        known.last_timestamp_ms = header.max_timestamp
        if marker is not None and marker.coordinator_epoch is not None:
            known.coordinator_epoch = marker.coordinator_epoch
        elif header.base_sequence >= 0:
            del known.batches[: -(REMEMBERED_BATCHES - 1)]
            known.batches.append(
                SentBatch(
                    header.base_sequence,
                    _last_sequence(header),
                    header.base_offset,
                    header.last_offset,
                    header.max_timestamp,
                )
            )
        return self.transactions.note(header, marker) if header.is_transactional else None

    def _forget_oldest(self) -> None:
        for producer_id in self._producers:
            if self.transactions.start_of(producer_id) is None:
                del self._producers[producer_id]
                return

    def needed(self) -> ProducersNeed:
        """What compaction has to keep for this state to be found again in the log."""
        last_batches = [known.batches[-1].base_offset for known in self._producers.values() if known.batches]
        last_markers = [(pid, known.epoch) for pid, known in self._producers.items() if not known.batches]
        return ProducersNeed(frozenset(last_batches), frozenset(last_markers))

    def infos(self) -> list[ProducerInfo]:
        return [
            ProducerInfo(
                pid,
                known.epoch,
                known.last_sequence,
                known.last_timestamp_ms,
                known.coordinator_epoch,
                self._start_or_none(pid),
            )
            for pid, known in sorted(self._producers.items())
        ]

    def _start_or_none(self, producer_id: int) -> int:
        first_offset = self.transactions.start_of(producer_id)
        return -1 if first_offset is None else first_offset

    def open_transactions(self) -> list[OpenTransaction]:
        """Oldest first."""
        return [
            OpenTransaction(pid, self._producers[pid].epoch, first, self._producers[pid].last_timestamp_ms)
            for pid, first in self.transactions.open().items()
        ]

    def expire(self, now_ms: int, expiration_ms: int = EXPIRATION_MS) -> None:
        """Forget producers that have been silent for longer and have no open transaction."""
        for pid, known in list(self._producers.items()):
            if known.seen_ms is None:
                known.seen_ms = now_ms
            elif now_ms - known.seen_ms > expiration_ms and self.transactions.start_of(pid) is None:
                del self._producers[pid]

    def snapshot(self) -> bytes:
        entries = b"".join(
            _ENTRY.pack(
                pid,
                known.epoch,
                batch.last_sequence,
                batch.last_offset,
                batch.last_offset - batch.base_offset,
                known.last_timestamp_ms if known.seen_ms is None else known.seen_ms,
                known.coordinator_epoch,
                self._start_or_none(pid),
            )
            for pid, known in self._producers.items()
            for batch in (known.batches[-1] if known.batches else _NO_BATCH,)
        )
        body = struct.pack(">i", len(self._producers)) + entries
        return struct.pack(">hI", _VERSION, crc32c(body)) + body

    @classmethod
    def from_snapshot(cls, data: bytes) -> ProducerState | None:
        """The state of a snapshot; None if it is damaged: the state is then rebuilt from the log."""
        entries = read_snapshot(data)
        if entries is None:
            return None
        state = cls()
        state.transactions = Transactions(
            (one.producer_id, one.transaction_start_offset) for one in entries if one.transaction_start_offset >= 0
        )
        for pid, epoch, sequence, offset, delta, timestamp, coordinator_epoch, _ in entries:
            known = state._producers[pid] = _RememberedProducer(epoch, timestamp, coordinator_epoch)
            known.last_timestamp_ms = timestamp
            if offset < 0:
                continue
            first = sequence - delta if sequence >= delta else sequence - delta + _SEQUENCE_MAX + 1
            known.batches.append(SentBatch(first, sequence, offset - delta, offset, timestamp))
        return state


def replay(
    state: ProducerState,
    segment: Segment,
    batches: Iterable[tuple[int, Sequence[BatchHeader]]],
    start_offset: int,
    end_offset: int,
) -> Iterator[EndedTransaction]:
    """Note those batches of a segment, as `Segment.scan` gives them, that begin in [start, end); the transactions that
    ended there. Raises CorruptLog."""
    for position, headers in batches:
        for header in headers:
            if start_offset <= header.base_offset < end_offset:
                try:
                    marker = end_marker(segment.read_batch(position, header), header) if header.is_control else None
                except InvalidBatch as error:
                    raise CorruptLog(segment.log_path, position + header.position, error.reason) from error
                ended = state.note(header, None, marker)
                if ended is not None:
                    yield ended


def _any_transactional(headers: Sequence[BatchHeader]) -> bool:
    if len(headers) == 1:  # as a client sends them
        return headers[0].is_transactional
    return any(header.is_transactional for header in headers)


def marker_in(data: Writable, header: BatchHeader) -> Marker | None:
    """The marker of a control batch that ends a transaction; `header` as it was found in `data`."""
    return end_marker(memoryview(data)[header.position : header.position + header.size], header)


_NO_BATCH = SentBatch(-1, -1, -1, -1, -1)


def _after(sequence: int, count: int) -> int:
    """The sequence number `count` later; sequences wrap around at 2^31."""
    return (sequence + count) & _SEQUENCE_MAX


def _last_sequence(header: BatchHeader) -> int:
    return _after(header.base_sequence, header.last_offset_delta)


def _out_of_order(header: BatchHeader, expected: int) -> OutOfOrderSequence:
    return OutOfOrderSequence(
        f"producer {header.producer_id} sent sequence {header.base_sequence}, but {expected} comes next;"
        " a batch before it was lost or refused: start a new producer epoch"
    )


_SNAPSHOTS_KEPT = 2


class AllProducers:
    """How many producers all open partitions of a directory remember together, and for how long. Any thread.

    Counted anew only when the limit may be reached: forgotten producers and closed partitions need not be reported.
    `on_added` is called, under the append lock of a partition, when there is another one: it must be quick.
    """

    def __init__(self, expiration_ms: int = EXPIRATION_MS) -> None:
        self.expiration_ms = expiration_ms
        self.on_added: Callable[[], None] = lambda: None
        self._partitions: WeakSet[Producers] = WeakSet()
        self._count = 0  # an upper bound: some may be gone
        self._counted_ms: int | None = None
        # Taken under the append lock of the asking partition. The locks of the others are only tried under it, or two
        # partitions that ask at the same time would wait for each other.
        self._lock = threading.Lock()

    def added(self, partition: Producers, count: int) -> None:
        with self._lock:
            self._partitions.add(partition)
            self._count += count
        if count:
            self.on_added()

    def expire(self, now_ms: int) -> int:
        """Forget producers that have been silent for `expiration_ms`; how many are left. Waits for appends."""
        with self._lock:
            partitions = list(self._partitions)
        # Without the lock: an append holds its partition's, and takes this one to report a new producer.
        return sum(partition.expire(now_ms) for partition in partitions)

    def are_full(self, now_ms: int) -> bool:
        """Whether the limit is reached, after forgetting silent producers in partitions that no append has locked."""
        if self._count < PRODUCER_IDS_OF_ALL_MAX:
            return False
        with self._lock:
            if self._counted_ms is None or not 0 <= now_ms - self._counted_ms < PRODUCERS_COUNT_MS:
                self._counted_ms = now_ms
                self._count = sum(partition.count_heard(now_ms) for partition in self._partitions)
            return self._count >= PRODUCER_IDS_OF_ALL_MAX


class Producers:
    """The producer state of one partition. Owned by the appender, which holds `lock`. Costs nothing without idempotent
    producers, and scans no log that never had one.

    With the state come `undecided` and `aborted`, which any thread may read: what readers of committed records need.
    A snapshot vouches for the index entries of all markers below it: they are synced before it is written. What came
    since is found again by a scan, and so are entries that a crash lost.
    """

    def __init__(self, core: PartitionCore, lock: threading.Lock, everybody: AllProducers) -> None:
        self._core = core
        self._lock = lock
        self._everybody = everybody
        self._state: ProducerState | None = None
        self.undecided: Undecided | None = None
        """None until the state is loaded."""
        self.aborted = AbortedIndex()
        self._indexed = 0  # below this offset every aborted transaction is in its index file
        self._synced = 0  # and below this durably

    def duplicate_of(self, headers: Sequence[BatchHeader], end_offset: int) -> SentBatch | None:
        """The batch in the log that these repeat, or None; see ProducerState. One of them has a producer id."""
        return self.load(end_offset).duplicate_of(headers)

    def check_transactions(self, headers: Sequence[BatchHeader], begins: bool) -> None:
        """See ProducerState."""
        if self._state is not None and (self._core.state.has_transactions or _any_transactional(headers)):
            self._state.check_transactions(headers, begins)

    @staticmethod
    def refuse_malformed_markers(admitted: Sequence[Admitted]) -> None:
        """Refuse control batches whose records cannot be read: once they are written, that would be too late."""
        for data, headers in admitted:
            for header in headers:
                if header.is_control:
                    marker_in(data, header)

    def make_room(self, headers: Sequence[BatchHeader], now_ms: int) -> None:
        """Forget silent producers before new ones are written; see ProducerState. Raises TooManyProducers."""
        if self._state is not None:
            self._state.make_room(headers, now_ms, self._everybody.are_full)

    def count_heard(self, now_ms: int) -> int:
        """How many are remembered; silent ones are forgotten first, unless an append holds the lock. Never waits."""
        state = self._state
        if state is None or self._core.is_closed:
            return 0
        # The calling partition holds its own lock and counts with its silent ones: `make_room` handles those.
        if self._lock.acquire(blocking=False):
            try:
                state.forget_silent(now_ms, len(state))
            finally:
                self._lock.release()
        return len(state)

    def expire(self, now_ms: int) -> int:
        """Forget producers that have been silent for too long; how many are left."""
        with self._lock:
            if self._state is None or self._core.is_closed:
                return 0
            self._state.expire(now_ms, self._everybody.expiration_ms)
            return len(self._state)

    def must_wait(self, headers: Sequence[BatchHeader]) -> bool:
        """Whether batches with a producer id have to wait for the disk: to read the state, or, for the first one ever,
        and the first of a transaction, to store firmly that there is one."""
        state = self._core.state
        return (
            self._state is None
            or not state.has_producers
            or (not state.has_transactions and _any_transactional(headers))
        )

    def expect(self, headers: Sequence[BatchHeader]) -> None:
        """Before the first batch with a producer id, and the first of a transaction: note in the slot that the next
        open has to look for such."""
        # Durable before the batch: an open that finds the batch but no flag would take a repetition of it for new, and
        # an open transaction for committed records.
        state = self._core.state
        if not state.has_producers or (not state.has_transactions and _any_transactional(headers)):
            with_transactions = state.has_transactions or _any_transactional(headers)
            self._core.change(firmly=True, has_producers=True, has_transactions=with_transactions)

    def stable_below(self, high_watermark: int) -> int:
        """The last stable offset with that high watermark, once the state is loaded."""
        return high_watermark if self.undecided is None else self.undecided.stable_below(high_watermark)

    def note(self, admitted: Sequence[Admitted], now_ms: int) -> None:
        """Remember batches that were written, before readers may see them."""
        state = self._state
        if state is None:
            return
        before = len(state)
        ended: list[EndedTransaction] = []
        for data, headers in admitted:
            for header in headers:
                done = state.note(header, now_ms, marker_in(data, header) if header.is_control else None)
                if done is not None:
                    ended.append(done)
        self._noted(state, before, ended)

    def takes_next(self, producer_id: int, epoch: int, first_sequence: int, *, in_transaction: bool) -> bool:
        """See ProducerState; false if that is not loaded, or something has to be stored first."""
        state = self._core.state
        return (
            self._state is not None
            and state.has_producers
            and (state.has_transactions or not in_transaction)
            and self._state.takes_next(producer_id, epoch, first_sequence, in_transaction=in_transaction)
        )

    def note_next(self, producer_id: int, sent: Sequence[tuple[int, int, int, int, int]], now_ms: int) -> None:
        """See ProducerState. What is undecided stays so: the transaction was open before."""
        if self._state is not None:
            self._state.note_next(producer_id, [SentBatch(*one) for one in sent], now_ms)

    def note_headers(self, headers: Sequence[BatchHeader], now_ms: int) -> None:
        """As `note`, of batches of clients, among which are no markers."""
        state = self._state
        if state is None:
            return
        before = len(state)
        for header in headers:
            state.note(header, now_ms)
        self._noted(state, before, ())

    def _noted(self, state: ProducerState, before: int, ended: Sequence[EndedTransaction]) -> None:
        for one in ended:
            if one.is_aborted:
                self.aborted.append(one.entry)
        if self._core.state.has_transactions and self.undecided is not None:
            first_open = state.transactions.first_open_offset()
            self.undecided = self.undecided.after(first_open, ended, self._core.state.high_watermark)
        if len(state) > before:
            self._everybody.added(self, len(state) - before)

    def drop_aborted(self, is_dropped: Callable[[AbortedTransaction], bool]) -> None:
        """Forget aborted transactions that have no batches left in the log. The caller holds the lock."""
        entries = self.aborted.between(0, ANY_OFFSET)
        self.aborted = AbortedIndex(entry for entry in entries if not is_dropped(entry))

    # Loading

    def load(self, end_offset: int) -> ProducerState:
        """The state as of `end_offset`: the newest good snapshot, and the batches since."""
        if self._state is None:
            try:
                state = self._read(end_offset) if self._core.state.has_producers else ProducerState()
            except OSError as error:
                raise storage_error(f"what producers sent to {self._core.path} cannot be read", error) from error
            # Every marker in the log is from before the partition was opened, and so below the high watermark: none is
            # appended before the state is loaded.
            self.undecided = Undecided().after(state.transactions.first_open_offset(), (), 0)
            self._state = state
            self._everybody.added(self, len(state))
        return self._state

    def try_to_load(self, end_offset: int) -> None:
        """As `load`. If the log is damaged where the state is, who needs it later is told."""
        try:
            self.load(end_offset)
        except StorageError as error:
            logger.warning("%s: open transactions are not known (%s)", self._core.path, error)

    def _read(self, end_offset: int) -> ProducerState:
        state, offset = self._newest_snapshot(end_offset)
        aborted = self._read_indexes(offset)
        if aborted is None:  # one is damaged: the log itself has all
            # Before the entries go that they vouch for: a crash could come before these are written again.
            self._drop_snapshots()
            state, offset, aborted = ProducerState(), self._core.state.local_start_offset, []
        self._trim_indexes(offset)
        # A snapshot is a hint like an index: the batches since then, or since the log start, decide.
        aborted += [ended.entry for ended in self._replay(state, offset) if ended.is_aborted]
        self.aborted = AbortedIndex(aborted)
        self._indexed = self._synced = offset
        return state

    def _newest_snapshot(self, end_offset: int) -> tuple[ProducerState, int]:
        """The state of the newest good snapshot, and the offset from which batches have to be replayed."""
        start = self._core.state.local_start_offset
        for snapshot_offset in sorted(self._snapshots(), reverse=True):
            if snapshot_offset <= end_offset:
                known = ProducerState.from_snapshot(read_file(self._core.files, self._path(snapshot_offset)))
                if known is not None:
                    return known, max(start, snapshot_offset)
        return ProducerState(), start

    def _drop_snapshots(self) -> None:
        """Durably; the next open begins with the log itself."""
        for offset in self._snapshots():
            self._core.files.unlink(self._path(offset))
        self._core.files.sync_directory(self._core.path)

    def _read_indexes(self, before_offset: int) -> list[AbortedTransaction] | None:
        """The aborted transactions that ended before an offset, as the index files say; None if one is damaged."""
        found: list[AbortedTransaction] = []
        if not self._core.state.has_transactions:
            return found
        for base_offset, size in self._layout().transaction_indexes.items():
            entries, _ = read_transaction_index(read_file(self._core.files, self._index_path(base_offset)))
            ends_early = base_offset < before_offset and (not entries or entries[-1].last_offset < before_offset)
            # Half an entry at the end is a write that a power cut interrupted: no snapshot vouches for it.
            if ends_early and len(entries) < size // ENTRY_BYTES:
                return None
            found += [entry for entry in entries if entry.last_offset < before_offset]
        return found

    def _trim_indexes(self, offset: int) -> None:
        """Cut off the entries of markers from an offset on: the log may have lost them, and what it has is noted again.
        Nothing is left that a later snapshot would vouch for."""
        if not self._core.state.has_transactions:
            return
        for base_offset, size in self._layout().transaction_indexes.items():
            path = self._index_path(base_offset)
            entries, _ = read_transaction_index(read_file(self._core.files, path))
            kept_bytes = ENTRY_BYTES * sum(1 for entry in entries if entry.last_offset < offset)
            if kept_bytes < size:
                self._core.files.open(path, write=True).truncate(kept_bytes)

    def _replay(self, state: ProducerState, offset: int) -> Iterator[EndedTransaction]:
        """Note the batches from an offset on; the transactions that ended there."""
        for segment in self._core.segments:
            following = [other.base_offset for other in self._core.segments if other.base_offset > segment.base_offset]
            if following and following[0] <= offset:
                continue
            found = segment.find(offset) if offset > segment.base_offset else (0, None)
            if found is None:
                continue
            expected = segment.base_offset if found[0] == 0 else -1
            batches = segment.scan(found[0], expected, self._core.state.gaps_below)
            yield from replay(state, segment, batches, offset, ANY_OFFSET)

    # Writing

    def write_snapshot(self, end_offset: int, now_ms: int) -> None:
        """Write the index entries of aborted transactions, synced, and a snapshot. That is not synced: it carries a
        CRC, and a lost one is made again from the log."""
        if self._state is None:
            return
        self._write_indexes(end_offset)
        start = self._core.state.local_start_offset  # an object in the store has those of its own batches
        if self.aborted.ended_in(0, start):
            self.drop_aborted(lambda entry: entry.last_offset < start)
        self._state.expire(now_ms, self._everybody.expiration_ms)
        file = self._core.files.open(self._path(end_offset), write=True, create=True)
        data = self._state.snapshot()
        file.truncate(0)
        file.write(0, [data])
        for old in sorted(self._snapshots())[:-_SNAPSHOTS_KEPT]:
            self._core.files.unlink(self._path(old))

    def note_aborted(self, end_offset: int) -> None:
        """Write the entries of transactions that were aborted before an offset. Not synced, and tried again later if it
        fails: until a snapshot comes, the log itself has all."""
        try:
            self._write_entries(end_offset)
        except (OSError, StorageError) as error:
            logger.warning("%s: an aborted transaction was not indexed (%s); tried again", self._core.path, error)

    def _write_entries(self, end_offset: int) -> bool:
        """Write what no file has yet; whether there was any."""
        if not self.aborted.ended_in(self._indexed, end_offset):
            self._indexed = max(self._indexed, end_offset)
            return False
        for segment, stop in self._ranges(end_offset):
            old = len(self.aborted.ended_in(segment.base_offset, self._indexed))
            fresh = self.aborted.ended_in(max(segment.base_offset, self._indexed), stop)
            if fresh:
                file = self._core.files.open(self._index_path(segment.base_offset), write=True, create=True)
                file.truncate(old * ENTRY_BYTES)
                file.write(old * ENTRY_BYTES, [format_transaction_index(fresh)])
        self._indexed = end_offset
        return True

    def _write_indexes(self, end_offset: int) -> None:
        """Bring the index files up to an offset, durably."""
        self._write_entries(end_offset)
        unsynced = False
        for segment, stop in self._ranges(end_offset):
            if self.aborted.ended_in(max(segment.base_offset, self._synced), stop):
                self._core.files.open(self._index_path(segment.base_offset), write=True).sync()
                unsynced = True
        if unsynced:
            self._core.files.sync_directory(self._core.path)
        self._synced = end_offset

    def _ranges(self, end_offset: int) -> list[tuple[Segment, int]]:
        """The segments, each with the offset where it ends."""
        segments = self._core.segments
        return list(zip(segments, [*(one.base_offset for one in segments[1:]), end_offset], strict=True))

    def _snapshots(self) -> list[int]:
        return list(self._layout().snapshots)

    def _layout(self) -> PartitionLayout:
        return read_layout(self._core.files.entries(self._core.path))

    def _path(self, offset: int) -> str:
        return segment_stem(self._core.path, offset) + SNAPSHOT_SUFFIX

    def _index_path(self, base_offset: int) -> str:
        return segment_stem(self._core.path, base_offset) + TRANSACTION_INDEX_SUFFIX
