"""Checks one segment byte by byte, with its two indexes: what it holds, what is damaged, which hints are wrong. Changes
nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Protocol, TypeVar

from foldlog.files.base import File, Files, read_file
from foldlog.limits import READ_CHUNK_BYTES
from foldlog.log.doctor.salvage import UNKNOWN_END, EpochRun, EpochStarts, Piece, Salvage, SalvageBounds
from foldlog.log.segment import (
    INDEX_SUFFIX,
    LOG_SUFFIX,
    TIME_INDEX_SUFFIX,
    OffsetIndex,
    SparseIndex,
    TimeIndex,
    segment_stem,
)
from foldlog.records.batch import MAX_INT32

USUAL_INTERVAL_BYTES: Final = 4096
UNKNOWN_INTERVAL: Final = 0
"""For indexes of another writer: how dense they have to be is not known, nor what exactly they name."""

_OFFSET_BYTES: Final = 8
"""A batch begins with its base offset; Kafka's indexes hold its distance to the segment's in 31 bits."""

_UNINDEXED_BYTES_MIN: Final = 1 << 16
_UNINDEXED_INTERVALS: Final = 16
"""Beyond both, a look-up rebuilds the index: see Segment._heal_index."""

Item = TypeVar("Item")
Done = TypeVar("Done")


class ForEach(Protocol):
    """Does something with each item, in any order or several at a time; the results are in the items' order."""

    def __call__(self, do: Callable[[Item], Done], items: Sequence[Item], /) -> Iterable[Done]: ...


def one_by_one(do: Callable[[Item], Done], items: Sequence[Item]) -> Iterator[Done]:
    return (do(item) for item in items)


@dataclass(frozen=True, slots=True)
class Damage:
    """A place in a file that is not as it was written, and the offsets [first_offset, next_offset) lost with it.

    `is_mendable`: nothing is lost, only bytes that the CRC does not cover are damaged. `is_loss_unknown`: neither a
    file nor a checkpoint shows which offsets were there. `is_refused`: mendable, but not by foldlog, since the file is
    not its own; until it is mended it is not read.
    """

    path: str
    position: int
    reason: str
    first_offset: int
    next_offset: int
    is_mendable: bool
    is_loss_unknown: bool = False
    is_refused: bool = False

    @property
    def lost_offsets(self) -> int:
        return 0 if self.is_mendable else self.next_offset - self.first_offset


@dataclass(frozen=True, slots=True)
class Stretch:
    """The part of a segment that has to be there. `size` None: the file is missing. `vouched_bytes` None: all bytes.

    `end_offset`: UNKNOWN_END if it is not known. `may_end_early`: offsets may be missing before `end_offset`, as
    Kafka's compaction leaves it.
    """

    base_offset: int
    size: int | None
    vouched_bytes: int | None
    end_offset: int
    may_end_early: bool = False


@dataclass(frozen=True, slots=True)
class SegmentScan:
    """One segment as far as the checkpoint vouches for it. A missing one has size 0 and one lost piece."""

    base_offset: int
    size: int
    end_offset: int
    pieces: tuple[Piece, ...]

    @property
    def is_damaged(self) -> bool:
        return any(piece.reason for piece in self.pieces)

    @property
    def sound_bytes(self) -> int:
        """Where its last piece ends: bytes behind it are above the checkpoint, or were never written whole."""
        return self.pieces[-1].end if self.pieces else 0


@dataclass(frozen=True, slots=True)
class Scanned:
    """The result for all segments of a partition, or for one."""

    segments: tuple[SegmentScan, ...] = ()
    epoch_runs: tuple[EpochRun, ...] = ()
    records: int = 0
    notes: tuple[str, ...] = ()
    wrong_hints: tuple[str, ...] = ()

    def plus(self, other: Scanned) -> Scanned:
        return Scanned(
            self.segments + other.segments,
            self.epoch_runs + other.epoch_runs,
            self.records + other.records,
            self.notes + other.notes,
            self.wrong_hints + other.wrong_hints,
        )

    def damages(self, directory: str, *, is_ours: bool = True) -> list[Damage]:
        """The damages of all segments. In files that are not `is_ours`, reads accept wrong epochs, as Kafka does."""
        return [
            Damage(
                segment_stem(directory, segment.base_offset) + LOG_SUFFIX,
                piece.position,
                piece.reason,
                piece.first_offset,
                piece.next_offset,
                piece.mended is not None,
                piece.is_lost and segment.end_offset == UNKNOWN_END and piece is segment.pieces[-1],
                not is_ours and piece.mended is not None and not piece.is_epoch_only,
            )
            for segment in self.segments
            for piece in segment.pieces
            if piece.reason
        ]


class SegmentScanner:
    """Scans segments of one directory; any thread. Does not count records before the offset `records_from`."""

    def __init__(
        self,
        files: Files,
        directory: str,
        gaps_below: int,
        index_interval_bytes: int,
        each: ForEach = one_by_one,
        records_from: int = 0,
    ) -> None:
        self._files = files
        self._directory = directory
        self._gaps_below = gaps_below
        self._interval_bytes = index_interval_bytes
        self._each = each
        self._records_from = records_from

    def scan(self, stretches: Sequence[Stretch], starts: EpochStarts) -> Scanned:
        """Scan all of them. `starts`: the leader epochs that their batches have to carry."""
        total = Scanned()
        for one in self._each(lambda stretch: self._scan_one(stretch, starts), stretches):
            total = total.plus(one)
        return total

    def _scan_one(self, stretch: Stretch, starts: EpochStarts) -> Scanned:
        base, end_offset = stretch.base_offset, stretch.end_offset
        stem = segment_stem(self._directory, base)
        if stretch.size is None:
            # Without a known end it is not known what is lost: nothing can stand in for it.
            known_end = base if end_offset == UNKNOWN_END else end_offset
            lost = Piece(0, 0, base, known_end, "the file is missing")
            return Scanned((SegmentScan(base, 0, end_offset, (lost,)),))
        vouched = stretch.size if stretch.vouched_bytes is None else stretch.vouched_bytes
        hints = _Hints(self._files, stem, base, vouched, end_offset)
        file = self._files.open(stem + LOG_SUFFIX)
        try:
            bounds = SalvageBounds(0, vouched, base, end_offset, self._gaps_below, starts)
            is_ours = self._interval_bytes != UNKNOWN_INTERVAL
            found = Salvage(file, bounds, hints.positions, hints.times, exact=is_ours, records_from=self._records_from)
        finally:
            file.close()
        pieces, notes = found.pieces, []
        if stretch.may_end_early and pieces and pieces[-1].position == pieces[-1].end:
            pieces = pieces[:-1]
        if end_offset == UNKNOWN_END and pieces and pieces[-1].is_lost and self._is_torn(stem, base, pieces[-1]):
            # No checkpoint vouched for these bytes: a torn write, which recovery cuts.
            notes.append(f"{stem}{LOG_SUFFIX}: {self._end_note(stem, pieces[-1])}")
            pieces = pieces[:-1]
        is_sealed = stretch.vouched_bytes is None and end_offset != UNKNOWN_END
        faults = hints.faults(found, self._longest_way_bytes() if is_sealed else None)
        remedy = "it is rebuilt on use" if is_ours else "reads find their way without it"
        notes += [f"{stem}{suffix}: {fault}; {remedy}" for suffix, fault in faults]
        return Scanned(
            (SegmentScan(base, stretch.size, end_offset, tuple(pieces)),),
            tuple(found.epoch_runs),
            found.records,
            tuple(notes),
            tuple(stem + suffix for suffix, _ in faults),
        )

    def _is_torn(self, stem: str, base_offset: int, piece: Piece) -> bool:
        """Whether bytes behind the last sound batch are preallocated room, or the beginning of the next batch. In our
        own directories always: the checkpoint vouches for all that was acknowledged. Kafka has no such checkpoint."""
        if self._interval_bytes != UNKNOWN_INTERVAL:
            return True
        file = self._files.open(stem + LOG_SUFFIX)
        try:
            return is_room(file, piece.position, piece.end) or begins_a_batch(
                bytes(file.read(piece.position, min(_OFFSET_BYTES, piece.end - piece.position))),
                piece.first_offset,
                base_offset + MAX_INT32,
            )
        finally:
            file.close()

    def _end_note(self, stem: str, piece: Piece) -> str:
        """The note about bytes behind the last sound batch."""
        file = self._files.open(stem + LOG_SUFFIX)
        try:
            if is_room(file, piece.position, piece.end):
                return f"{piece.end - piece.position} bytes from {piece.position} on are room that was made ahead"
        finally:
            file.close()
        is_ours = self._interval_bytes != UNKNOWN_INTERVAL
        remedy = "the next open sets that aside" if is_ours else "nothing is read from there on"
        return f"{piece.reason} at byte {piece.position}; {remedy}"

    def _longest_way_bytes(self) -> int | None:
        if self._interval_bytes == UNKNOWN_INTERVAL:
            return None
        return max(_UNINDEXED_BYTES_MIN, _UNINDEXED_INTERVALS * self._interval_bytes)


def scan_foreign(files: Files, directory: str, base_offset: int, size: int, following: int | None) -> SegmentScan:
    """Scan one segment that Kafka wrote, as `foldlog check` does, without leader epochs; `following` is where the next
    one begins, if there is one."""
    stretch = Stretch(base_offset, size, None, UNKNOWN_END if following is None else following, following is not None)
    return SegmentScanner(files, directory, UNKNOWN_END, UNKNOWN_INTERVAL).scan([stretch], ()).segments[0]


class _Hints:
    """The entries of a segment's two indexes that point to bytes the checkpoint vouches for. One thread.

    Not trusted: a wrong entry is reported, and nothing is mended by it alone.
    """

    def __init__(self, files: Files, stem: str, base_offset: int, below: int, below_offset: int) -> None:
        self._is_used = below > 0
        self._offsets, self._offsets_fault = _read(files, stem + INDEX_SUFFIX, OffsetIndex)
        self._timestamps, self._timestamps_fault = _read(files, stem + TIME_INDEX_SUFFIX, TimeIndex)
        offsets = (self._offsets[at] for at in range(len(self._offsets)))
        timestamps = (self._timestamps[at] for at in range(len(self._timestamps)))
        self.positions = {position: base_offset + relative for relative, position in offsets if position < below}
        self.times = {
            base_offset + relative: timestamp_ms
            for timestamp_ms, relative in timestamps
            if base_offset + relative < below_offset
        }

    def faults(self, found: Salvage, longest_way_bytes: int | None) -> list[tuple[str, str]]:
        """(suffix, what is wrong) of each index that the batches contradict."""
        if not self._is_used:
            return []
        offsets, timestamps = self._offsets_fault, self._timestamps_fault
        if found.confirmed_entries < len(self.positions):
            offsets = "some entries lead elsewhere"
        elif not offsets and longest_way_bytes is not None and found.unindexed_bytes > longest_way_bytes:
            offsets = f"it leads no nearer than {found.unindexed_bytes} bytes to some batches"
        if found.confirmed_times < len(self.times):
            timestamps = "some entries lead elsewhere"
        named = ((INDEX_SUFFIX, offsets), (TIME_INDEX_SUFFIX, timestamps))
        return [(suffix, fault) for suffix, fault in named if fault]


def is_room(file: File, position: int, end: int) -> bool:
    """Whether bytes [position, end) are zeroes, as Kafka preallocates them."""
    while position < end:
        data = file.read(position, min(READ_CHUNK_BYTES, end - position))
        if not data or data.strip(b"\0"):
            return not data
        position += len(data)
    return True


def begins_a_batch(data: bytes, least_offset: int, most_offset: int) -> bool:
    """Whether `data` can be the beginning of a batch with a base offset in this range: that offset, or part of it.

    >>> begins_a_batch((7).to_bytes(8), 7, 100), begins_a_batch(b"\\0\\0", 7, 100), begins_a_batch(b"garbage!", 7, 100)
    (True, True, False)
    """
    least, most = (int.from_bytes(data[:_OFFSET_BYTES].ljust(_OFFSET_BYTES, fill)) for fill in (b"\0", b"\xff"))
    return least <= most_offset and most >= least_offset


Index = TypeVar("Index", bound=SparseIndex)


def _read(files: Files, path: str, kind: type[Index]) -> tuple[Index, str]:
    """The entries as far as they ascend, and what is wrong with the file."""
    try:
        data = read_file(files, path)
    except FileNotFoundError:
        return kind(), "the file is missing"
    index = kind.parse(data)
    rest = data[len(index) * kind.ENTRY.size :]
    # Kafka preallocates zeroes. Part of an entry is one that is being written.
    if len(rest) >= kind.ENTRY.size and rest.strip(b"\0"):  # 10 MB of them, too many to look at one by one
        return index, f"its entries do not ascend after number {len(index)}"
    return index, ""
