"""Who has sent what: the ids, epochs and sequence numbers of idempotent producers."""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from crc32c import crc32c

from foldlog.errors import InvalidProducerEpoch, OutOfOrderSequence
from foldlog.records.loops import BatchHeader

REMEMBERED_BATCHES = 5  # a producer may have five requests in flight, so five may come again
EXPIRATION_MS = 24 * 60 * 60 * 1000  # Kafka's producer.id.expiration.ms
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
    """What a log remembers of a producer, as Kafka's DescribeProducers tells it. -1: it has no transaction."""

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


class _Producer:
    """One producer id: its epoch, and its newest batches in that epoch, oldest first; never empty once noted.

    `seen_ms`: when it was last known to write, by our clock, as timestamps of records may be of any time; None
    since the last look at the clock.
    """

    __slots__ = ("batches", "epoch", "seen_ms")

    def __init__(self, epoch: int, seen_ms: int | None = None) -> None:
        self.epoch = epoch
        self.seen_ms = seen_ms
        self.batches: deque[SentBatch] = deque(maxlen=REMEMBERED_BATCHES)


class ProducerState:
    """The newest batches of every producer id. Owned by the partition's appender.

    Snapshots are in Kafka's .snapshot format, which keeps one batch a producer: after a restart only the newest
    batch is known as a duplicate, an older one is out of order.
    """

    def __init__(self) -> None:
        self._producers: dict[int, _Producer] = {}

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
        if header.producer_epoch > known.epoch:
            if header.base_sequence != 0:
                raise _out_of_order(header, 0)
            return
        expected = _after(known.batches[-1].last_sequence, 1)
        if header.base_sequence != expected:
            raise _out_of_order(header, expected)

    def note(self, header: BatchHeader) -> None:
        """The batch is in the log."""
        if header.producer_id < 0 or header.is_control or header.base_sequence < 0:
            return
        known = self._producers.get(header.producer_id)
        if known is None or known.epoch != header.producer_epoch:
            known = self._producers[header.producer_id] = _Producer(header.producer_epoch)
        known.seen_ms = None
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

    def expire(self, now_ms: int) -> None:
        """Forget producers that have been silent for a day."""
        for pid, known in list(self._producers.items()):
            if known.seen_ms is None:
                known.seen_ms = now_ms
            elif now_ms - known.seen_ms > EXPIRATION_MS:
                del self._producers[pid]

    def snapshot(self) -> bytes:
        entries = b"".join(
            _ENTRY.pack(
                pid, known.epoch, batch.last_sequence, batch.last_offset, batch.last_offset - batch.base_offset,
                batch.timestamp_ms if known.seen_ms is None else known.seen_ms, -1, -1,
            )
            for pid, known in self._producers.items()
            for batch in (known.batches[-1],)
        )  # fmt: skip
        body = struct.pack(">i", len(self._producers)) + entries
        return struct.pack(">hI", _VERSION, crc32c(body)) + body

    @classmethod
    def from_snapshot(cls, data: bytes) -> ProducerState | None:
        """None if it is damaged: the state is then rebuilt from the log."""
        entries = read_snapshot(data)
        if entries is None:
            return None
        state = cls()
        for pid, epoch, sequence, offset, delta, timestamp, _, _ in entries:
            known = state._producers[pid] = _Producer(epoch, seen_ms=timestamp)
            first = sequence - delta if sequence >= delta else sequence - delta + _SEQUENCE_MAX + 1
            known.batches.append(SentBatch(first, sequence, offset - delta, offset, timestamp))
        return state

    def replay(self, headers: Iterable[BatchHeader]) -> None:
        for header in headers:
            self.note(header)


def _after(sequence: int, count: int) -> int:
    """Sequences wrap around at 2^31."""
    return (sequence + count) & _SEQUENCE_MAX


def _last_sequence(header: BatchHeader) -> int:
    return _after(header.base_sequence, header.last_offset_delta)


def _out_of_order(header: BatchHeader, expected: int) -> OutOfOrderSequence:
    return OutOfOrderSequence(
        f"producer {header.producer_id} sent sequence {header.base_sequence}, but {expected} comes next;"
        " a batch before it was lost or refused: start a new producer epoch"
    )
