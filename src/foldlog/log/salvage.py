"""What is sound in a segment file and what is not: reading goes on after damage, where the next batch is found again.

Nothing is changed here. Offsets, length, epoch and magic of a batch are not covered by its CRC, but follow from its
neighbours: where only those are damaged, the batch can be mended without a loss. Otherwise its records are lost, and
the piece says which offsets these were.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from foldlog.errors import FoldlogError
from foldlog.files.base import File
from foldlog.limits import BATCH_BYTES_MAX, DECOMPRESSED_BYTES_MAX, POSITION_MAX, READ_CHUNK_BYTES
from foldlog.records import batch as fmt
from foldlog.records.loops import BatchHeader, check_epochs, decode, validate, walk

UNKNOWN_END: Final = (1 << 63) - 1
_MAGIC_BYTE: Final = bytes([fmt.MAGIC])

EpochStarts = Sequence[tuple[int, int]]


@dataclass(frozen=True, slots=True)
class Piece:
    """Bytes [position, end) of a segment, which hold, or held, the offsets [first_offset, next_offset).

    `reason` is empty where they are sound. `mended` is the batch put right, where that is possible.
    """

    position: int
    end: int
    first_offset: int
    next_offset: int
    reason: str = ""
    mended: bytes | None = None

    @property
    def is_lost(self) -> bool:
        return bool(self.reason) and self.mended is None


@dataclass(frozen=True, slots=True)
class Bounds:
    """What a stretch of a segment has to hold: bytes [start, end), offsets [first_offset, end_offset).

    UNKNOWN_END: nobody knows where it ended, so bytes at its end that are no batch are a torn write, not a loss.
    """

    start: int
    end: int
    first_offset: int
    end_offset: int
    gaps_below: int
    epoch_starts: EpochStarts


@dataclass(slots=True)
class EpochRun:
    """Neighbouring batches that carry the same leader epoch."""

    epoch: int
    first_offset: int
    batches: int


class Salvage:
    """One pass over a stretch of a segment; `pieces` is the result. One thread.

    `index` (position → last offset of the batch there) is used as a witness: it is made from nothing but the
    positions of batches, so what it confirms is a batch of this log, and not one inside a record's value. Of it and of
    `times` (last offset of a batch → its largest timestamp) it is counted how many entries the batches confirm. Not
    `exact`: as Kafka's compaction writes them, an entry may name the last of several batches that begin there, and any
    offset of a batch.
    What cannot be told apart: a batch that somebody stored as a value, in a batch whose length is damaged, right
    before the segment's end.
    """

    def __init__(
        self,
        log: File,
        bounds: Bounds,
        index: Mapping[int, int] | None = None,
        times: Mapping[int, int] | None = None,
        *,
        exact: bool = True,
    ) -> None:
        self._log = log
        self._bounds = bounds
        self._index = index or {}
        self._times = sorted((times or {}).items(), reverse=True)
        self._exact = exact
        self._end = min(bounds.end, log.size())
        # Relative offsets fit in 31 bits, so even an unknown end is not that far away.
        self._limit = min(bounds.end_offset, bounds.first_offset + POSITION_MAX)
        self.pieces: list[Piece] = []
        self.epoch_runs: list[EpochRun] = []
        self.records = 0
        self.confirmed_entries = 0
        self.confirmed_times = 0
        self.unindexed_bytes = 0  # the longest way from an entry of the index over whole batches to the next
        self._since_entry = (0, 0)
        self._scan()

    # Forward, as far as batches are sound

    def _scan(self) -> None:
        bounds = self._bounds
        position, expected, wanted = bounds.start, bounds.first_offset, READ_CHUNK_BYTES
        while position < self._end:
            data = memoryview(self._log.read(position, min(wanted, self._end - position)))
            found = walk(data, expected_offset=expected, gaps_below=bounds.gaps_below, before_offset=self._limit)
            if found.headers:
                position, expected = self._take(data, position, found.headers)
                wanted = READ_CHUNK_BYTES
            elif not found.problem and wanted < found.needed_bytes <= self._end - position:
                wanted = found.needed_bytes
            elif expected >= self._limit:
                self._lose(Piece(position, self._end, expected, expected, self._ends_here()))
                position = self._end
            else:
                reason = found.problem or self._why_stopped(data)
                position, expected = self._skip_damage(position, expected, reason)
        if expected < bounds.end_offset != UNKNOWN_END:
            reason = f"it ends at offset {expected}, and has to end at {bounds.end_offset}"
            self._lose(Piece(position, position, expected, bounds.end_offset, reason))

    def _take(self, data: memoryview, position: int, headers: list[BatchHeader]) -> tuple[int, int]:
        """Take sound batches up to the first that is not, and that one; where to go on, and the offset there."""
        count, fault = len(headers), None
        wrong = check_epochs(headers, self._bounds.epoch_starts)
        if wrong is not None:
            header, epoch = wrong
            count = headers.index(header)
            fault = self._with_epoch(data, position, header, epoch)
        unsound = first_unsound(data, headers[:count])
        if unsound is not None:
            count, reason = unsound
            fault = _piece_of(headers[count], position, reason)
        elif fault is None and headers[-1].next_offset > self._limit:
            count = len(headers) - 1
            fault = _piece_of(headers[count], position, self._ends_here(), next_offset=self._limit)
        self._note(headers[: count + (fault is not None)], position)
        if count:
            first, last = headers[0], headers[count - 1]
            self._keep(
                Piece(
                    position + first.position,
                    position + last.position + last.size,
                    first.base_offset,
                    last.next_offset,
                )
            )
        if fault is not None:
            self._lose(fault)
        last_piece = self.pieces[-1]
        return last_piece.end, last_piece.next_offset

    def _with_epoch(self, data: memoryview, position: int, header: BatchHeader, epoch: int) -> Piece:
        mended = bytearray(data[header.position : header.position + header.size])
        mended[fmt.LEADER_EPOCH_AT : fmt.MAGIC_AT] = epoch.to_bytes(4, "big", signed=True)
        reason = f"the batch at offset {header.base_offset} has leader epoch {header.leader_epoch}, not {epoch}"
        return _piece_of(header, position, reason, mended=bytes(mended))

    def _note(self, headers: Sequence[BatchHeader], position: int) -> None:
        for header in headers:
            self.records += header.record_count
            if not self.epoch_runs or self.epoch_runs[-1].epoch != header.leader_epoch:
                self.epoch_runs.append(EpochRun(header.leader_epoch, header.base_offset, 0))
            self.epoch_runs[-1].batches += 1
            self._compare_with_indexes(header, position)

    def _compare_with_indexes(self, header: BatchHeader, position: int) -> None:
        size, batches = self._since_entry
        if self._index and self._is_confirmed(header, position):
            self.confirmed_entries += 1
            size, batches = 0, 0
        self._since_entry = (size + header.size, batches + 1)
        if batches > 1:  # one batch a look-up may walk, however large it is
            self.unindexed_bytes = max(self.unindexed_bytes, size + header.size)
        while self._times and self._times[-1][0] <= header.last_offset:
            offset, timestamp_ms = self._times.pop()
            begins_at = header.last_offset if self._exact else header.base_offset
            self.confirmed_times += offset >= begins_at and timestamp_ms == header.max_timestamp

    def _keep(self, piece: Piece) -> None:
        if self.pieces and not self.pieces[-1].reason and self.pieces[-1].end == piece.position:
            before = self.pieces.pop()
            piece = Piece(before.position, piece.end, before.first_offset, piece.next_offset)
        self.pieces.append(piece)

    def _lose(self, piece: Piece) -> None:
        self.pieces.append(piece)

    def _ends_here(self) -> str:
        return f"it has to end at offset {self._limit}, and bytes follow"

    def _why_stopped(self, data: memoryview) -> str:
        if len(data) >= fmt.RECORDS_AT and _base_offset(data) >= self._limit:
            return f"its base offset is {_base_offset(data)}, and the segment has to end at {self._limit}"
        return "the batch is cut off"

    # Over damage

    def _skip_damage(self, position: int, expected: int, reason: str) -> tuple[int, int]:
        """Put the damaged stretch on the list; where sound batches go on, and the offset there."""
        end, next_offset = self._resync(position, expected)
        if end == self._end and self._bounds.end_offset == UNKNOWN_END:
            self._lose(Piece(position, end, expected, expected, reason))
            return end, expected
        mended = self._mend(position, end, expected, next_offset)
        self._lose(Piece(position, end, expected, next_offset, reason, mended))
        return end, next_offset

    def _mend(self, position: int, end: int, expected: int, next_offset: int) -> bytes | None:
        """The damaged stretch as the one batch that fits exactly here, if its CRC says that it is one."""
        size = end - position
        if not fmt.RECORDS_AT <= size <= BATCH_BYTES_MAX:
            return None
        mended = bytearray(self._log.read(position, size))
        mended[: fmt.LENGTH_AT] = expected.to_bytes(8, "big")
        mended[fmt.LENGTH_AT : fmt.LEADER_EPOCH_AT] = (size - fmt.LENGTH_PREFIX_BYTES).to_bytes(4, "big")
        mended[fmt.LEADER_EPOCH_AT : fmt.MAGIC_AT] = epoch_at(self._bounds.epoch_starts, expected).to_bytes(
            4, "big", signed=True
        )
        mended[fmt.MAGIC_AT] = fmt.MAGIC
        found = walk(mended, expected_offset=expected)
        if len(found.headers) != 1 or found.headers[0].next_offset != next_offset:
            return None
        if first_unsound(memoryview(mended), found.headers) is not None:
            return None
        self._note(found.headers, position)
        return bytes(mended)

    def _resync(self, position: int, expected: int) -> tuple[int, int]:
        """Position and offset of the next batch that is surely one of this log; the end of both if there is none."""
        declared = self._declared_end(position)
        at = position + 1
        while True:
            candidate = self._next_candidate(at, expected)
            if candidate is None:
                return self._end, self._bounds.end_offset
            at, base_offset = candidate
            stopped_at, proven = self._follow(at)
            if proven or at == declared:
                return at, base_offset
            at = max(stopped_at, at + 1)

    def _declared_end(self, position: int) -> int | None:
        """Where the batch at `position` ends by its own account."""
        head = self._log.read(position, fmt.RECORDS_AT)
        if len(head) < fmt.RECORDS_AT or head[fmt.MAGIC_AT] != fmt.MAGIC:
            return None
        size = fmt.LENGTH_PREFIX_BYTES + int.from_bytes(head[fmt.LENGTH_AT : fmt.LEADER_EPOCH_AT], "big", signed=True)
        return position + size if fmt.RECORDS_AT <= size <= BATCH_BYTES_MAX else None

    def _next_candidate(self, at: int, expected: int) -> tuple[int, int] | None:
        """The first position from `at` on with a whole batch whose CRC matches and whose offsets may stand here."""
        end = self._end
        while at + fmt.RECORDS_AT <= end:
            window = self._log.read(at, min(READ_CHUNK_BYTES + fmt.RECORDS_AT, end - at))
            found = window.find(_MAGIC_BYTE, fmt.MAGIC_AT)
            while 0 <= found < READ_CHUNK_BYTES + fmt.MAGIC_AT:
                start = found - fmt.MAGIC_AT
                base_offset = _base_offset(memoryview(window)[start : start + fmt.LENGTH_AT])
                if expected <= base_offset < self._limit and self._is_batch(at + start):
                    return at + start, base_offset
                found = window.find(_MAGIC_BYTE, found + 1)
            at += READ_CHUNK_BYTES
        return None

    def _is_batch(self, position: int) -> bool:
        ends_at = self._declared_end(position)
        if ends_at is None or ends_at > self._end:
            return False
        headers = walk(self._log.read(position, ends_at - position)).headers
        return len(headers) == 1 and headers[0].next_offset <= self._limit

    def _follow(self, position: int) -> tuple[int, bool]:
        """Follow batches from `position`: where they first stop, and whether they are surely this log's own.

        They are if the index knows one of them, or if they lead to the very end of the segment: a batch inside a
        record's value is followed by the rest of that record.
        """
        end, expected, wanted = self._end, -1, READ_CHUNK_BYTES
        stopped_at, jumped = -1, False
        while position < end:
            data = self._log.read(position, min(wanted, end - position))
            found = walk(data, expected_offset=expected, gaps_below=self._bounds.gaps_below)
            if any(self._is_confirmed(header, position) for header in found.headers):
                return position, True
            if found.headers:
                position += found.end
                expected, jumped, wanted = found.headers[-1].next_offset, False, READ_CHUNK_BYTES
            elif not found.problem and wanted < found.needed_bytes <= end - position:
                wanted = found.needed_bytes
            else:
                stopped_at = position if stopped_at < 0 else stopped_at
                ends_at = self._declared_end(position)
                if ends_at is None or jumped:
                    return stopped_at, False
                if ends_at >= end:
                    return stopped_at, _base_offset(memoryview(data)) == expected
                position, expected, jumped = ends_at, -1, True
        return (stopped_at if stopped_at >= 0 else end), True

    def _is_confirmed(self, header: BatchHeader, position: int) -> bool:
        offset = self._index.get(position + header.position)
        if offset is None or self._exact:
            return offset == header.last_offset
        return header.base_offset <= offset


def epoch_at(starts: EpochStarts, offset: int) -> int:
    """The leader epoch that wrote `offset`; 0 if it is from before all that are known."""
    at = bisect_right(starts, offset, key=lambda start: start[1])
    return starts[at - 1][0] if at else 0


def first_unsound(data: memoryview, headers: Sequence[BatchHeader]) -> tuple[int, str] | None:
    """The first of these batches whose records are not what its header says: its number, and the reason."""
    if not headers:
        return None
    first, last = headers[0], headers[-1]
    try:
        validate(
            data[first.position : last.position + last.size],
            max_batch_bytes=BATCH_BYTES_MAX,
            decompressed_limit=DECOMPRESSED_BYTES_MAX,
        )
    except FoldlogError:
        # Compacted and control batches are not as a producer sends them: look at each for what it is.
        for number, header in enumerate(headers):
            reason = _fault_of(data[header.position : header.position + header.size], header)
            if reason:
                return number, reason
    return None


def _fault_of(data: memoryview, header: BatchHeader) -> str:
    """What is wrong with the records of a batch, wherever they come from; empty if nothing is."""
    if header.record_count == 0:
        return "" if header.size == fmt.RECORDS_AT else fmt.FAULT_LEFT_OVER
    if header.is_control:
        return ""
    try:
        records, _ = decode(data, "", 0)
    except FoldlogError as error:
        return getattr(error, "reason", str(error))
    offsets = [record.offset for record in records]
    if len(offsets) != header.record_count or offsets != sorted(set(offsets)):
        return fmt.FAULT_COUNT
    return "" if header.base_offset <= offsets[0] and offsets[-1] <= header.last_offset else fmt.FAULT_OFFSET_DELTA


def _piece_of(
    header: BatchHeader, position: int, reason: str, *, next_offset: int | None = None, mended: bytes | None = None
) -> Piece:
    start = position + header.position
    following = header.next_offset if next_offset is None else next_offset
    return Piece(start, start + header.size, header.base_offset, following, reason, mended)


def _base_offset(data: memoryview) -> int:
    return int.from_bytes(data[: fmt.LENGTH_AT], "big", signed=True)
