"""What is sound in a segment file and what is not: reading goes on after damage, where the next batch is found again.

Nothing is changed here. Offsets, length, epoch and magic of a batch are not covered by its CRC, but follow from its
neighbours: where only those are damaged, the batch can be mended without a loss. Otherwise its records are lost, and
the piece says which offsets these were.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from foldlog.files.base import File
from foldlog.limits import BATCH_BYTES_MAX, POSITION_MAX, READ_CHUNK_BYTES
from foldlog.log.doctor.soundness import base_offset_of, batch_at, declared_end, first_unsound
from foldlog.records import batch as fmt
from foldlog.records.loops import BatchHeader, check_epochs, decode, walk

UNKNOWN_END: Final = (1 << 63) - 1
_MAGIC_BYTE: Final = bytes([fmt.MAGIC])

EpochStarts = Sequence[tuple[int, int]]


@dataclass(frozen=True, slots=True)
class Piece:
    """Bytes [position, end) of a segment, which hold, or held, the offsets [first_offset, next_offset).

    `reason` is empty where they are sound. `mended` is the batch put right, where that is possible; `is_epoch_only`:
    only its leader epoch had to be.
    """

    position: int
    end: int
    first_offset: int
    next_offset: int
    reason: str = ""
    mended: bytes | None = None
    is_epoch_only: bool = False

    @property
    def is_lost(self) -> bool:
        return bool(self.reason) and self.mended is None


@dataclass(frozen=True, slots=True)
class SalvageBounds:
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
    before the segment's end. And where offsets may be missing, a base offset that is too large, as long as the batches
    after it begin behind it.

    `records` counts those that can be read from the offset `records_from` on: no markers of transactions, and where
    not `exact`, so that nobody mends them, none whose batch would have to be mended.
    """

    def __init__(
        self,
        log: File,
        bounds: SalvageBounds,
        index: Mapping[int, int] | None = None,
        times: Mapping[int, int] | None = None,
        *,
        exact: bool = True,
        records_from: int = 0,
    ) -> None:
        self._log = log
        self._bounds = bounds
        self._index = index or {}
        self._times = sorted((times or {}).items(), reverse=True)
        self._exact = exact
        self._records_from = records_from
        self._last_taken: tuple[BatchHeader, int, int] | None = None  # with its position, and the offset before it
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
                position, expected = self._take(data, position, expected, found.headers)
                wanted = READ_CHUNK_BYTES
            elif not found.problem and wanted < found.needed_bytes <= self._end - position:
                wanted = found.needed_bytes
            elif (blamed := self._blame_last(position)) is not None:
                position, expected = blamed
            elif expected >= self._limit:
                self._lose(Piece(position, self._end, expected, expected, self._ends_here()))
                position = self._end
            else:
                reason = found.problem or self._why_stopped(data)
                position, expected = self._skip_damage(position, expected, reason)
        if expected < bounds.end_offset != UNKNOWN_END:
            reason = f"it ends at offset {expected}, and has to end at {bounds.end_offset}"
            self._lose(Piece(position, position, expected, bounds.end_offset, reason))

    def _take(self, data: memoryview, position: int, expected: int, headers: list[BatchHeader]) -> tuple[int, int]:
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
            fault = self._over_the_end(headers[count], position, headers[count - 1].next_offset if count else expected)
        self._note(headers[:count], position)
        if fault is not None and not (fault.mended and fault.first_offset < headers[count].base_offset):
            self._note([headers[count]], position, is_lost=fault.is_lost)
        if count:
            first, last = headers[0], headers[count - 1]
            before = headers[count - 2].next_offset if count > 1 else expected
            self._last_taken = (last, position + last.position, before)
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
        return replace(_piece_of(header, position, reason), mended=bytes(mended), is_epoch_only=True)

    def _over_the_end(self, header: BatchHeader, position: int, expected: int) -> Piece:
        """Of a batch that reaches over the end: its base offset is too large, if it would fit before what follows."""
        start, end = position + header.position, position + header.position + header.size
        room_ends, why = self._limit, f"the segment has to end at {self._limit}"
        following = batch_at(self._log, end, self._end)
        if following is not None and following.base_offset < self._limit:
            room_ends, why = following.base_offset, f"the batch after it begins at {following.base_offset}"
        count = header.next_offset - header.base_offset
        if header.base_offset > expected and expected + count <= room_ends:
            reason = f"its base offset is {header.base_offset}, and {why}"
            return Piece(start, end, expected, room_ends, reason, self._mend(start, end, expected, room_ends))
        return _piece_of(header, position, self._ends_here(), next_offset=self._limit)

    def _blame_last(self, position: int) -> tuple[int, int] | None:
        """Where a sound batch at `position` begins before the last one taken ends: if that one's base offset is too
        large, put it on the list; where to go on then, and the offset there. None if the batch here is to blame.
        """
        if self._last_taken is None or not self._is_batch(position):
            return None
        last, last_at, before = self._last_taken
        base_offset = base_offset_of(self._log.read(position, fmt.LENGTH_AT))
        count = last.next_offset - last.base_offset
        if last_at + last.size != position or last.base_offset == before or base_offset < before + count:
            return None
        # Either may be wrong. It is the last one if that just fits before this one, or if the next one says so, too.
        if base_offset != before + count and not self._is_next_below(position, last.next_offset):
            return None
        self._unkeep(last, last_at)
        mended = self._mend(last_at, position, before, base_offset)
        reason = f"its base offset is {last.base_offset}, and the batch after it begins at {base_offset}"
        self._lose(Piece(last_at, position, before, base_offset, reason, mended))
        self._last_taken = None
        return position, base_offset

    def _is_next_below(self, position: int, offset: int) -> bool:
        """Whether behind the batch at `position` there is another, which begins before `offset`."""
        behind = declared_end(self._log, position)
        if behind is None or not self._is_batch(behind):
            return False
        return base_offset_of(self._log.read(behind, fmt.LENGTH_AT)) < offset

    def _unkeep(self, header: BatchHeader, position: int) -> None:
        """The last batch taken, from the last piece and from what is counted."""
        piece = self.pieces.pop()
        if piece.position < position:
            before = 0 if self._last_taken is None else self._last_taken[2]
            self.pieces.append(Piece(piece.position, position, piece.first_offset, before))
        self.records -= self._readable_records(header, position - header.position)
        self.epoch_runs[-1].batches -= 1

    def _readable_records(self, header: BatchHeader, position: int) -> int:
        """How many of a batch are at or behind the offset from which on they are counted."""
        if header.is_control or header.next_offset <= self._records_from:
            return 0
        if header.base_offset >= self._records_from:
            return header.record_count
        data = self._log.read(position + header.position, header.size)
        return len(decode(data, "", 0, start_offset=self._records_from)[0])

    def _note(self, headers: Sequence[BatchHeader], position: int, *, is_lost: bool = False) -> None:
        for header in headers:
            self.records += 0 if is_lost else self._readable_records(header, position)
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
            if offset >= begins_at and timestamp_ms == header.max_timestamp:
                self.confirmed_times += 1

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
        if len(data) >= fmt.RECORDS_AT and base_offset_of(data) >= self._limit:
            return f"its base offset is {base_offset_of(data)}, and the segment has to end at {self._limit}"
        return "the batch is cut off"

    # Over damage

    def _skip_damage(self, position: int, expected: int, reason: str) -> tuple[int, int]:
        """Put the damaged stretch on the list; where sound batches go on, and the offset there."""
        end, next_offset = self._resync(position, expected)
        if end == self._end and self._bounds.end_offset == UNKNOWN_END:
            if not self._exact and (whole := self._whole_at_end(position, expected, reason)) is not None:
                self._lose(whole)
                return whole.end, whole.next_offset
            self._lose(Piece(position, end, expected, expected, reason))
            return end, expected
        mended = self._mend(position, end, expected, next_offset)
        self._lose(Piece(position, end, expected, next_offset, reason, mended))
        return end, next_offset

    def _whole_at_end(self, position: int, expected: int, reason: str) -> Piece | None:
        """A batch at the end which is whole but for its base offset: no write that was cut off leaves such a one."""
        end = declared_end(self._log, position)
        if end is None or end > self._end:
            return None
        head = self._log.read(position, fmt.RECORDS_AT)
        last_delta = int.from_bytes(head[fmt.LAST_OFFSET_DELTA_AT : fmt.LAST_OFFSET_DELTA_AT + 4], "big", signed=True)
        mended = self._mend(position, end, expected, expected + last_delta + 1) if last_delta >= 0 else None
        return None if mended is None else Piece(position, end, expected, expected + last_delta + 1, reason, mended)

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
        self._note(found.headers, position, is_lost=not self._exact)
        return bytes(mended)

    def _resync(self, position: int, expected: int) -> tuple[int, int]:
        """Position and offset of the next batch that is surely one of this log; the end of both if there is none."""
        declared = declared_end(self._log, position)
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

    def _next_candidate(self, at: int, expected: int) -> tuple[int, int] | None:
        """The first position from `at` on with a whole batch whose CRC matches and whose offsets may stand here."""
        end = self._end
        while at + fmt.RECORDS_AT <= end:
            window = self._log.read(at, min(READ_CHUNK_BYTES + fmt.RECORDS_AT, end - at))
            found = window.find(_MAGIC_BYTE, fmt.MAGIC_AT)
            while 0 <= found < READ_CHUNK_BYTES + fmt.MAGIC_AT:
                start = found - fmt.MAGIC_AT
                base_offset = base_offset_of(window[start : start + fmt.LENGTH_AT])
                if expected <= base_offset < self._limit and self._is_batch(at + start):
                    return at + start, base_offset
                found = window.find(_MAGIC_BYTE, found + 1)
            at += READ_CHUNK_BYTES
        return None

    def _is_batch(self, position: int) -> bool:
        header = batch_at(self._log, position, self._end)
        return header is not None and header.next_offset <= self._limit

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
                ends_at = declared_end(self._log, position)
                if ends_at is None or jumped:
                    return stopped_at, False
                if ends_at >= end:
                    return stopped_at, base_offset_of(data) == expected
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


def _piece_of(header: BatchHeader, position: int, reason: str, *, next_offset: int | None = None) -> Piece:
    start = position + header.position
    following = header.next_offset if next_offset is None else next_offset
    return Piece(start, start + header.size, header.base_offset, following, reason)
