"""Transactions in a log that Kafka wrote: which were aborted, and up to where none is open. Pure functions of bytes.

A transaction is the batches of one producer up to its next control batch, whose record says commit or abort. Kafka
keeps the aborted ones beside each segment, in entries of 34 bytes:

    .txnindex    int16 0 · int64 producer id · int64 first offset · int64 offset of the abort · int64 last stable offset

A segment without aborted transactions has no such file. Our own log has no transactions.
"""

from __future__ import annotations

import struct
from bisect import bisect_right
from collections.abc import Iterable
from typing import Final, NamedTuple

from foldlog.errors import InvalidBatch
from foldlog.records import batch as fmt
from foldlog.records.loops import BatchHeader

TRANSACTION_INDEX_SUFFIX: Final = ".txnindex"
_ENTRY: Final = struct.Struct(">hqqqq")
_VERSION: Final = 0
_MARKER_KEY: Final = struct.Struct(">hh")  # version, type
_MARKER_VALUE: Final = struct.Struct(">hi")  # version, coordinator epoch


class AbortedTransaction(NamedTuple):
    """Batches of `producer_id` from `first_offset` to before the abort marker at `last_offset`."""

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int = -1


class Marker(NamedTuple):
    """The record of a control batch. `coordinator_epoch` is None if it does not end a transaction."""

    offset: int
    timestamp_ms: int
    kind: int
    coordinator_epoch: int | None


ENTRY_BYTES: Final = _ENTRY.size


def read_transaction_index(data: bytes) -> tuple[list[AbortedTransaction], str]:
    """The entries up to the first wrong one, and what is wrong with it; "" if nothing is."""
    found: list[AbortedTransaction] = []
    for at in range(0, len(data) - _ENTRY.size + 1, _ENTRY.size):
        version, *fields = _ENTRY.unpack_from(data, at)
        entry = AbortedTransaction(*fields)
        if version != _VERSION:
            return found, f"entry {len(found)} has version {version}, not {_VERSION}"
        if not 0 <= entry.first_offset < entry.last_offset or entry.producer_id < 0:
            return found, f"entry {len(found)} is of offsets {entry.first_offset} to {entry.last_offset}"
        if found and entry.last_offset <= found[-1].last_offset:
            return found, f"entry {len(found)} ends at offset {entry.last_offset}, not after the one before it"
        found.append(entry)
    if len(data) % _ENTRY.size:
        return found, f"its last {len(data) % _ENTRY.size} bytes are not a whole entry of {_ENTRY.size}"
    return found, ""


def markers_of(batch: memoryview, header: BatchHeader) -> list[Marker]:
    """The records of a control batch, which is never compressed. Raises InvalidBatch if they are malformed."""
    # Imported here: only Apache Kafka's logs have markers, and a server of its own log starts without these modules.
    from foldlog.records.pure.reading import Body, batches_in, field, parse_records

    body = Body(batch, fmt.RECORDS_AT, header.size)
    found: list[Marker] = []
    for parsed in parse_records(body, next(batches_in(batch))):
        key, value = (
            field(body.data, at, size) or b""
            for at, size in ((parsed.key_at, parsed.key_bytes), (parsed.value_at, parsed.value_bytes))
        )
        if len(key) < _MARKER_KEY.size:
            raise InvalidBatch("the key of a control record is not a version and a type", parsed.start)
        kind = _MARKER_KEY.unpack_from(key)[1]
        is_end = kind in (fmt.CONTROL_ABORT, fmt.CONTROL_COMMIT) and len(value) >= _MARKER_VALUE.size
        epoch = _MARKER_VALUE.unpack_from(value)[1] if is_end else None
        timestamp_ms = header.base_timestamp + parsed.timestamp_delta
        found.append(Marker(header.base_offset + parsed.offset_delta, timestamp_ms, kind, epoch))
    return found


class Transactions:
    """Open and aborted transactions as of the batches that were noted, in order. One thread."""

    def __init__(self, still_open: Iterable[tuple[int, int]] = ()) -> None:
        """`still_open`: producer and first offset of each transaction that is open before the first batch."""
        self._open = dict(still_open)
        self.aborted: list[AbortedTransaction] = []

    def note(self, header: BatchHeader, batch: memoryview | None = None) -> None:
        """Take in a batch; for a control batch with its bytes."""
        if not header.is_control:
            if header.is_transactional:
                self._open.setdefault(header.producer_id, header.base_offset)
            return
        first_offset = self._open.get(header.producer_id)
        for marker in markers_of(batch, header) if batch is not None else ():
            if marker.coordinator_epoch is None:
                continue
            self._open.pop(header.producer_id, None)
            if marker.kind == fmt.CONTROL_ABORT and first_offset is not None:
                self.aborted.append(AbortedTransaction(header.producer_id, first_offset, marker.offset))

    def first_open_offset(self) -> int | None:
        """Where the oldest open transaction begins; None if none is open."""
        return min(self._open.values(), default=None)


class Aborted:
    """All aborted transactions of a partition, for leaving out their batches when reading. Immutable."""

    def __init__(self, transactions: Iterable[AbortedTransaction] = ()) -> None:
        # For each producer the first offsets, ascending, and the largest end of the transactions up to each: a damaged
        # index may name some that overlap.
        self._by_producer: dict[int, tuple[list[int], list[int]]] = {}
        for one in sorted(set(transactions), key=lambda one: one.first_offset):
            starts, ends = self._by_producer.setdefault(one.producer_id, ([], []))
            ends.append(max(one.last_offset, ends[-1]) if ends else one.last_offset)
            starts.append(one.first_offset)

    def __bool__(self) -> bool:
        return bool(self._by_producer)

    def holds(self, header: BatchHeader) -> bool:
        """Whether the batch is of an aborted transaction."""
        if not header.is_transactional or header.is_control:
            return False
        starts, ends = self._by_producer.get(header.producer_id, ((), ()))
        begun = bisect_right(starts, header.base_offset)
        return begun > 0 and header.base_offset < ends[begun - 1]


class ToldAborted:
    """Aborted transactions as a broker's Fetch response names them: producer and first offset of each.

    A transaction ends with its producer's next control batch. For one pass over the batches in order, by one thread.
    """

    def __init__(self, told: Iterable[tuple[int, int]]) -> None:
        """`told`: pairs of (first offset, producer)."""
        self._beginning = sorted(told, reverse=True)
        self._open: set[int] = set()

    def holds(self, header: BatchHeader) -> bool:
        while self._beginning and self._beginning[-1][0] <= header.last_offset:
            self._open.add(self._beginning.pop()[1])
        if header.is_control:
            self._open.discard(header.producer_id)
            return False
        return header.is_transactional and header.producer_id in self._open


def spans_without(aborted: Aborted | ToldAborted, headers: Iterable[BatchHeader]) -> list[tuple[int, int]]:
    """Spans of the buffer, as few as possible, with the batches that belong to no aborted transaction."""
    spans: list[tuple[int, int]] = []
    for header in headers:
        if aborted.holds(header):
            continue
        stop = header.position + header.size
        if spans and spans[-1][1] == header.position:
            spans[-1] = (spans[-1][0], stop)
        else:
            spans.append((header.position, stop))
    return spans
