"""Transactions in a log: which are open, which were aborted, and up to where all are decided. Without I/O.

A transaction is the batches of one producer up to its next control batch, whose record, the marker, says commit or
abort. The last stable offset is where the oldest open one begins: readers of committed records stop there, and leave
out the batches of aborted ones. Those are kept beside the segment that holds their marker, in entries of 34 bytes:

    .txnindex    int16 0 · int64 producer id · int64 first offset · int64 offset of the abort · int64 last stable offset

A segment without aborted transactions has no such file.
"""

from __future__ import annotations

import struct
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from typing import Final, NamedTuple

from foldlog.errors import InvalidBatch
from foldlog.records import batch as fmt
from foldlog.records.loops import BatchHeader

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
    # Imported here: most logs have no markers, and a server starts without these modules.
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


def end_marker(batch: memoryview, header: BatchHeader) -> Marker | None:
    """The marker in a control batch that ends a transaction; None if it holds none. Raises InvalidBatch."""
    return next((marker for marker in markers_of(batch, header) if marker.coordinator_epoch is not None), None)


class EndedTransaction(NamedTuple):
    """A transaction that the marker at `last_offset` ended. `last_stable_offset`: where the next open one begins, or
    behind the marker."""

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int
    is_aborted: bool

    @property
    def entry(self) -> AbortedTransaction:
        """As the index of aborted transactions has it."""
        return AbortedTransaction(self.producer_id, self.first_offset, self.last_offset, self.last_stable_offset)


class Transactions:
    """The transactions that are open after the batches that were noted, in order. One thread."""

    def __init__(self, still_open: Iterable[tuple[int, int]] = ()) -> None:
        """`still_open`: producer and first offset of each transaction that is open before the first batch."""
        # In the order of their beginnings: batches are noted in order, and the oldest is the first.
        self._open = dict(sorted(still_open, key=lambda one: one[1]))

    def note(self, header: BatchHeader, marker: Marker | None = None) -> EndedTransaction | None:
        """Take in a batch; for a control batch its marker, if it ends a transaction. The transaction it ended."""
        if marker is None:
            if header.is_transactional and not header.is_control:
                self._open.setdefault(header.producer_id, header.base_offset)
            return None
        first_offset = self._open.pop(header.producer_id, None)
        if first_offset is None:
            return None
        following = self.first_open_offset()
        stable = marker.offset + 1 if following is None else following
        is_aborted = marker.kind == fmt.CONTROL_ABORT
        return EndedTransaction(header.producer_id, first_offset, marker.offset, stable, is_aborted)

    def start_of(self, producer_id: int) -> int | None:
        """Where the producer's open transaction begins; None if it has none."""
        return self._open.get(producer_id)

    def first_open_offset(self) -> int | None:
        """Where the oldest open transaction begins; None if none is open."""
        return next(iter(self._open.values()), None)

    def open(self) -> dict[int, int]:
        """Producer and first offset of each, oldest first."""
        return dict(self._open)


class Undecided(NamedTuple):
    """What holds the last stable offset. Immutable: the appender replaces it whole, any thread reads it.

    `ending`: (offset of the marker, first offset) of each transaction that ended, but whose marker was not readable
    yet when this was made.
    """

    first_open: int = fmt.MAX_INT64
    ending: tuple[tuple[int, int], ...] = ()

    def stable_below(self, high_watermark: int) -> int:
        """The last stable offset: where the first transaction begins that no marker below `high_watermark` ends."""
        stable = min(high_watermark, self.first_open)
        for marker, first in self.ending:  # few, and with each fetch: no list of them
            if marker >= high_watermark and first < stable:
                stable = first
        return stable

    def after(self, first_open: int | None, ended: Iterable[EndedTransaction], high_watermark: int) -> Undecided:
        """As of a later append, which ended these transactions."""
        still = [one for one in self.ending if one[0] >= high_watermark]
        ending = (*still, *((one.last_offset, one.first_offset) for one in ended))
        return Undecided(fmt.MAX_INT64 if first_open is None else first_open, ending)


class AbortedIndex:
    """All aborted transactions of a partition in the order of their markers, 32 bytes each. The appender adds at the
    end while any thread reads."""

    def __init__(self, entries: Iterable[AbortedTransaction] = ()) -> None:
        self._producers, self._firsts, self._lasts, self._stables = (array("q") for _ in range(4))
        for entry in sorted(set(entries), key=lambda one: one.last_offset):
            self.append(entry)

    def __len__(self) -> int:
        return len(self._lasts)

    def append(self, entry: AbortedTransaction) -> None:
        # The column that readers search comes last: what it holds, the others hold, too.
        self._producers.append(entry.producer_id)
        self._firsts.append(entry.first_offset)
        self._stables.append(entry.last_stable_offset)
        self._lasts.append(entry.last_offset)

    def between(self, start_offset: int, end_offset: int) -> tuple[AbortedTransaction, ...]:
        """Those that a reader of the batches in [start, end) has to know."""
        size = len(self._lasts)
        begin = bisect_left(self._lasts, start_offset, 0, size)
        stop = begin
        while stop < size:
            stop += 1
            if self._stables[stop - 1] >= end_offset:
                break  # all that ended later also began later
        firsts = self._firsts[begin:stop]
        columns = (self._producers[begin:stop], firsts, self._lasts[begin:stop], self._stables[begin:stop])
        entries = tuple(map(AbortedTransaction, *columns))
        if firsts and max(firsts) >= end_offset:
            return tuple(one for one in entries if one.first_offset < end_offset)
        return entries

    def ended_in(self, start_offset: int, end_offset: int) -> list[AbortedTransaction]:
        """Those whose markers are in [start, end): what the index file of a segment holds."""
        places = range(bisect_left(self._lasts, start_offset), bisect_left(self._lasts, end_offset))
        return [self._entry(at) for at in places]

    def _entry(self, at: int) -> AbortedTransaction:
        return AbortedTransaction(self._producers[at], self._firsts[at], self._lasts[at], self._stables[at])


def format_transaction_index(entries: Iterable[AbortedTransaction]) -> bytes:
    return b"".join(_ENTRY.pack(_VERSION, *entry) for entry in entries)


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
