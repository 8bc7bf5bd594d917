"""Idempotent producers: their ids, epochs and sequence numbers.

`ProducerState` decides in memory which batch repeats one in the log and which is out of order. `Producers` is the state
of one partition with its snapshots on disk: read when the first batch with a producer id comes, written at roll and
close. `AllProducers` bounds the number of producers over all partitions.
"""

from __future__ import annotations

import struct
import threading
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple
from weakref import WeakSet

from crc32c import crc32c

from foldlog.errors import InvalidProducerEpoch, OutOfOrderSequence, TooManyProducers
from foldlog.files.base import read_file, storage_error
from foldlog.limits import PRODUCER_IDLE_MS, PRODUCER_IDS_MAX, PRODUCER_IDS_OF_ALL_MAX, PRODUCERS_COUNT_MS
from foldlog.log.layout import read_layout
from foldlog.log.segment import SNAPSHOT_SUFFIX, segment_stem
from foldlog.records.loops import BatchHeader

if TYPE_CHECKING:
    from foldlog.log.partition import PartitionCore

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
    """One producer id: its epoch, and its newest batches in that epoch, oldest first; never empty once noted.

    `seen_ms`: when it last wrote, by our clock, since timestamps of records may be anything; None until the next look
    at the clock if that is not known.
    """

    __slots__ = ("batches", "epoch", "seen_ms")

    def __init__(self, epoch: int, seen_ms: int | None = None) -> None:
        self.epoch = epoch
        self.seen_ms = seen_ms
        self.batches: list[SentBatch] = []  # no deque: its first block is larger than all that most producers need


class ProducerState:
    """The newest batches of each producer id, in the order of last writes, for at most PRODUCER_IDS_MAX ids. Owned by
    the partition's appender.

    Snapshots are in Kafka's .snapshot format, which keeps one batch per producer: after a restart only the newest batch
    is recognized as a duplicate, an older one is out of order.
    """

    def __init__(self) -> None:
        self._producers: dict[int, _RememberedProducer] = {}

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
            if header.producer_id in following:
                epoch, last = following[header.producer_id]
                if header.producer_epoch != epoch or header.base_sequence != _after(last, 1):
                    raise _out_of_order(header, _after(last, 1))
            else:
                self._check(header)
            following[header.producer_id] = (header.producer_epoch, _last_sequence(header))

    def _check(self, header: BatchHeader) -> None:
        known = self._producers.get(header.producer_id)
        if known is None:
            return  # forgotten or new: any sequence starts it, as in Kafka
        if header.producer_epoch < known.epoch:
            raise InvalidProducerEpoch(
                f"producer {header.producer_id} sent epoch {header.producer_epoch}, but {known.epoch} has taken over"
            )
        # A new epoch begins at sequence 0: anything else means that a batch of it was lost on the way.
        if header.producer_epoch > known.epoch:
            if header.base_sequence != 0:
                raise _out_of_order(header, 0)
            return
        expected = _after(known.batches[-1].last_sequence, 1)
        if header.base_sequence != expected:
            raise _out_of_order(header, expected)

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
        forgotten = 0
        while self._producers and forgotten < count_max:
            producer_id, oldest = next(iter(self._producers.items()))
            if oldest.seen_ms is None:
                oldest.seen_ms = now_ms
            if now_ms - oldest.seen_ms < PRODUCER_IDLE_MS:
                break
            del self._producers[producer_id]
            forgotten += 1
        return forgotten

    def note(self, header: BatchHeader, now_ms: int | None = None) -> None:
        """Remember a batch of the log; `now_ms`: when it was written, by our clock, if known."""
        if header.producer_id < 0 or header.is_control or header.base_sequence < 0:
            return
        # Removed and inserted again: the dict's order is that of last writes, the longest silent first.
        known = self._producers.pop(header.producer_id, None)
        if known is None and len(self._producers) >= PRODUCER_IDS_MAX:
            del self._producers[next(iter(self._producers))]
        if known is None or known.epoch != header.producer_epoch:
            known = _RememberedProducer(header.producer_epoch)
        self._producers[header.producer_id] = known
        known.seen_ms = now_ms
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

    def last_batches(self) -> frozenset[int]:
        """Base offsets of the batches that carry each producer's last sequence: compaction keeps these."""
        return frozenset(producer.batches[-1].base_offset for producer in self._producers.values())

    def infos(self) -> list[ProducerInfo]:
        return [
            ProducerInfo(pid, known.epoch, known.batches[-1].last_sequence, known.batches[-1].timestamp_ms)
            for pid, known in sorted(self._producers.items())
        ]

    def expire(self, now_ms: int, expiration_ms: int = EXPIRATION_MS) -> None:
        """Forget producers that have been silent for longer."""
        for pid, known in list(self._producers.items()):
            if known.seen_ms is None:
                known.seen_ms = now_ms
            elif now_ms - known.seen_ms > expiration_ms:
                del self._producers[pid]

    def snapshot(self) -> bytes:
        entries = b"".join(
            _ENTRY.pack(
                pid,
                known.epoch,
                batch.last_sequence,
                batch.last_offset,
                batch.last_offset - batch.base_offset,
                batch.timestamp_ms if known.seen_ms is None else known.seen_ms,
                -1,
                -1,
            )
            for pid, known in self._producers.items()
            for batch in (known.batches[-1],)
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
        for pid, epoch, sequence, offset, delta, timestamp, _, _ in entries:
            known = state._producers[pid] = _RememberedProducer(epoch, seen_ms=timestamp)
            first = sequence - delta if sequence >= delta else sequence - delta + _SEQUENCE_MAX + 1
            known.batches.append(SentBatch(first, sequence, offset - delta, offset, timestamp))
        return state

    def replay(self, headers: Iterable[BatchHeader], now_ms: int | None = None) -> None:
        for header in headers:
            self.note(header, now_ms)


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
    producers, and scans no log that never had one."""

    def __init__(self, core: PartitionCore, lock: threading.Lock, everybody: AllProducers) -> None:
        self._core = core
        self._lock = lock
        self._everybody = everybody
        self._state: ProducerState | None = None

    def duplicate_of(self, headers: Sequence[BatchHeader], end_offset: int) -> SentBatch | None:
        """The batch in the log that these repeat, or None; see ProducerState. One of them has a producer id."""
        return self.load(end_offset).duplicate_of(headers)

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

    def must_wait(self) -> bool:
        """Whether a batch with a producer id has to wait for the disk: to read the state, or, for the first one ever,
        to store firmly that there is one."""
        return self._state is None or not self._core.state.has_producers

    def expect(self) -> None:
        """Before the first batch with a producer id: note in the slot that the next open has to look for such."""
        # Durable before the batch: an open that finds the batch but no flag would take a repetition of it for new.
        if not self._core.state.has_producers:
            self._core.change(firmly=True, has_producers=True)

    def note(self, headers: Sequence[BatchHeader], now_ms: int) -> None:
        """Remember batches that were written."""
        if self._state is not None:
            before = len(self._state)
            self._state.replay(headers, now_ms)
            if len(self._state) > before:
                self._everybody.added(self, len(self._state) - before)

    def load(self, end_offset: int) -> ProducerState:
        """The state as of `end_offset`: the newest good snapshot, and the batches since."""
        if self._state is None:
            try:
                self._state = self._read(end_offset) if self._core.state.has_producers else ProducerState()
            except OSError as error:
                raise storage_error(f"what producers sent to {self._core.path} cannot be read", error) from error
            self._everybody.added(self, len(self._state))
        return self._state

    def _read(self, end_offset: int) -> ProducerState:
        state, offset = ProducerState(), self._core.state.log_start_offset
        for snapshot_offset in sorted(self._snapshots(), reverse=True):
            if snapshot_offset <= end_offset:
                known = ProducerState.from_snapshot(read_file(self._core.files, self._path(snapshot_offset)))
                if known is not None:
                    state, offset = known, max(offset, snapshot_offset)
                    break
        # A snapshot is a hint like an index: the batches since then, or since the log start, decide.
        for segment in self._core.segments:
            following = [other.base_offset for other in self._core.segments if other.base_offset > segment.base_offset]
            if following and following[0] <= offset:
                continue
            found = segment.find(offset) if offset > segment.base_offset else (0, None)
            if found is not None:
                expected = segment.base_offset if found[0] == 0 else -1
                for _, headers in segment.scan(found[0], expected, self._core.state.gaps_below):
                    state.replay(header for header in headers if header.base_offset >= offset)
        return state

    def write_snapshot(self, end_offset: int, now_ms: int) -> None:
        """Write a snapshot. Not synced: it carries a CRC, and a lost one is made again from the log."""
        if self._state is None:
            return
        self._state.expire(now_ms, self._everybody.expiration_ms)
        file = self._core.files.open(self._path(end_offset), write=True, create=True)
        data = self._state.snapshot()
        file.truncate(0)
        file.write(0, [data])
        for old in sorted(self._snapshots())[:-_SNAPSHOTS_KEPT]:
            self._core.files.unlink(self._path(old))

    def _snapshots(self) -> list[int]:
        return list(read_layout(self._core.files.entries(self._core.path)).snapshots)

    def _path(self, offset: int) -> str:
        return segment_stem(self._core.path, offset) + SNAPSHOT_SUFFIX
