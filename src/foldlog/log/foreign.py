"""A partition that Kafka writes, or wrote: its directory, read without a checkpoint of ours. Nothing in it is changed.

Its start is in Kafka's own checkpoint of log starts, which the caller reads; its end follows from the batches. A last
batch that is not whole is a write under way, or cut off, and is not read; damage with sound batches behind it is
CorruptLog.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from typing import ClassVar, Final, NamedTuple

from foldlog.errors import CorruptLog, StorageError
from foldlog.files.base import DirectoryEntry, Files
from foldlog.limits import POSITION_MAX
from foldlog.log.checkpoint import SlotState, StartReason
from foldlog.log.doctor.salvage import UNKNOWN_END, Piece, Salvage, SalvageBounds
from foldlog.log.doctor.segment_scan import is_room, scan_foreign
from foldlog.log.doctor.soundness import batch_at
from foldlog.log.epochs import NAME as EPOCHS_NAME
from foldlog.log.epochs import Epochs
from foldlog.log.followed_transactions import FollowedTransactions
from foldlog.log.follower import FollowedPartition, Listing, Result
from foldlog.log.layout import SWAP_SUFFIX, read_layout
from foldlog.log.reading import LogView
from foldlog.log.segment import (
    ANY_OFFSET,
    LOG_SUFFIX,
    SNAPSHOT_SUFFIX,
    TRANSACTION_INDEX_SUFFIX,
    Segment,
    segment_stem,
)
from foldlog.log.transactions import (
    Aborted,
)
from foldlog.records.batch import RECORDS_AT

ADVICE: Final = "restore it, or let Kafka fetch it from another replica"
_SETTLE: Final = "start Kafka on it once, which finishes it"
_TRIES: Final = 2000  # with a millisecond between them: longer than any swap takes, short enough for a person to wait
_PAUSE_S: Final = 0.001
_SETTLED: Final = 2
"""By how much the generation rises with each change of names: an even one stands for a consistent list of segments."""

_TELLING: Final = (".log", SWAP_SUFFIX, SNAPSHOT_SUFFIX, TRANSACTION_INDEX_SUFFIX, EPOCHS_NAME)


class _Tail(NamedTuple):
    """How far the last segment was read: the position behind its sound batches, and the offset there."""

    base_offset: int
    position: int
    next_offset: int


class ForeignState:
    """The state that a slot of the checkpoint would hold, derived from the files: see `follower.Published`. Any thread.

    With `committed_only` the log ends where the oldest open transaction begins, as with Kafka's read_committed.
    """

    def __init__(self, files: Files, path: str, log_start: Callable[[], int], *, committed_only: bool = False) -> None:
        self._files = files
        self._path = path
        self._log_start = log_start
        self._committed_only = committed_only
        self._lock = threading.Lock()
        self._entries_seen: list[DirectoryEntry] = []
        self._listed: tuple[dict[int, int], int] | None = None
        self._generation = 0
        self._tail: _Tail | None = None
        self._head = b""
        self._transactions = FollowedTransactions(files, path)
        self._state: SlotState | None = None
        self.written_end = 0
        """Where the log ends with open transactions included, as of the last look."""
        self.aborted = Aborted()

    def load_live(self) -> SlotState:
        with self._lock:
            for _ in range(_TRIES):
                entries = self._entries()
                if _sizes(entries) == _sizes(self._entries_seen) and not self._is_room_used():
                    break
                # Names may change during a listing: only a list that a second one confirms existed.
                if not read_layout(entries).swaps and self._are_still_there(entries) and self._has_looked(entries):
                    break
                time.sleep(_PAUSE_S)
            else:
                raise StorageError(f"{self._path}: a compaction of Kafka's was interrupted; {_SETTLE}")
            if self._state is None:
                raise CorruptLog(self._path, 0, "it holds no segment at all", ADVICE)
            start = min(max(self._log_start(), self._state.log_start_offset), self._state.high_watermark)
            reason = StartReason.UNKNOWN if start else StartReason.WRITTEN
            return self._state._replace(log_start_offset=start, start_reason=reason)

    def _has_looked(self, entries: list[DirectoryEntry]) -> bool:
        """Derive the state from the files; False if Kafka has removed some meanwhile, which is no damage."""
        try:
            self._state = self._look(entries)
        except (FileNotFoundError, CorruptLog) as error:
            self._tail = None  # it may cover part of a segment only
            self._transactions.reset()
            if not self._are_still_there(entries):
                return False
            if isinstance(error, CorruptLog):
                raise
            raise StorageError(f"{self._path} could not be read ({error})") from error
        self._entries_seen = entries
        return True

    def _are_still_there(self, entries: list[DirectoryEntry]) -> bool:
        return _sizes(entries).keys() == _sizes(self._entries()).keys()

    def _entries(self) -> list[DirectoryEntry]:
        """The files that determine what can be read."""
        try:
            entries = self._files.entries(self._path)
        except FileNotFoundError:
            raise CorruptLog(self._path, 0, "the directory is missing", ADVICE) from None
        return [entry for entry in entries if entry.name.endswith(_TELLING)]

    def _is_room_used(self) -> bool:
        """Whether Kafka has written into preallocated room, which does not change a file's size."""
        tail = self._tail
        return tail is not None and self._head_at(tail) != self._head

    def _head_at(self, tail: _Tail) -> bytes:
        """The first bytes behind the last sound batch; usually none."""
        try:
            file = self._files.open(segment_stem(self._path, tail.base_offset) + LOG_SUFFIX)
        except FileNotFoundError:
            return b""
        try:
            return file.read(tail.position, RECORDS_AT)
        finally:
            file.close()

    def _look(self, entries: list[DirectoryEntry]) -> SlotState | None:
        logs = read_layout(entries).logs
        bases = sorted(logs)
        if not bases:
            return None
        sealed = {base: logs[base] for base in bases[:-1]}
        if (sealed, bases[-1]) != self._listed:  # a compacted segment may have the name of its source
            self._listed = (sealed, bases[-1])
            self._generation += _SETTLED
        end = self._end_of_last(bases[-1], logs[bases[-1]])
        self.written_end = end
        if self._committed_only:
            end = self._last_stable_offset(bases, logs, end)
        return SlotState(
            generation=self._generation,
            log_start_offset=bases[0],
            high_watermark=end,
            durable_offset=end,
            synced_offset=end,
            active_base_offset=bases[-1],
            gaps_below=ANY_OFFSET,
            segment_count=len(bases),
            leader_epoch=load_epochs(self._files, self._path).latest,
        )

    def _last_stable_offset(self, bases: list[int], sizes: dict[int, int], end: int) -> int:
        segments = [self._segment(base, sizes[base]) for base in bases]
        try:
            decided = self._transactions.look(segments, end, is_torn=True)
        except CorruptLog as error:
            raise CorruptLog(error.path, error.position, error.reason, ADVICE) from error
        finally:
            for segment in segments:
                segment.forget()
        self.aborted = Aborted(decided.aborted.between(0, ANY_OFFSET))
        return decided.stable_offset

    def _segment(self, base_offset: int, size: int) -> Segment:
        return Segment(self._files, self._path, base_offset, size, writable=False)

    # The end

    def _end_of_last(self, base_offset: int, size: int) -> int:
        """The offset behind the last sound batch, from where the last look ended or from the last index entry."""
        segment = self._segment(base_offset, size)
        try:
            tail = self._tail
            if tail is None or tail.base_offset != base_offset or tail.position > size:
                tail = _Tail(base_offset, 0, base_offset)
                self._transactions.reset()  # also notes of what was cut off
                hint = segment.offset_index.last()
                if hint is not None:
                    named = batch_at(segment.log(), hint[1], size)
                    first = base_offset + hint[0] if named is None else named.base_offset
                    found = self._walked(segment, _Tail(base_offset, hint[1], first))
                    tail = found if found.position > hint[1] else tail
            tail = self._walked(segment, tail)
            if tail.position < size and (behind := self._behind_damage(segment, tail)) is not None:
                tail = behind
            self._tail, self._head = tail, segment.log().read(tail.position, RECORDS_AT)
            return tail.next_offset
        finally:
            segment.forget()

    @staticmethod
    def _walked(segment: Segment, tail: _Tail) -> _Tail:
        """The tail after the sound batches whose offsets ascend and belong into the segment."""
        limit = segment.base_offset + POSITION_MAX
        for position, headers in segment.scan(tail.position, tail.next_offset, limit, stop_at_tear=True):
            last = headers[-1]
            tail = tail._replace(position=position + last.position + last.size, next_offset=last.next_offset)
        return tail

    def _behind_damage(self, segment: Segment, tail: _Tail) -> _Tail | None:
        """The tail behind the last sound batch after `tail`; None if there is none. Reads report the damage between."""
        log = segment.log()
        if is_room(log, tail.position, segment.size):
            return None
        if batch_at(log, tail.position, segment.size) is not None:
            # Not a write that was cut off: a base offset is wrong, perhaps that of a batch before it.
            scan = scan_foreign(self._files, self._path, segment.base_offset, segment.size, None)
            pieces: Sequence[Piece] = scan.pieces
        else:
            bounds = SalvageBounds(tail.position, segment.size, tail.next_offset, UNKNOWN_END, UNKNOWN_END, ())
            pieces = Salvage(log, bounds, exact=False).pieces
        found = [piece for piece in pieces if not piece.is_lost]
        return tail._replace(position=found[-1].end, next_offset=found[-1].next_offset) if found else None


class ForeignPartition(FollowedPartition):
    """Reads a partition of Kafka's, all of it or as far as its transactions are decided. Any thread."""

    SETTLE: ClassVar = _SETTLE

    def __init__(self, files: Files, path: str, state: ForeignState, label: tuple[str, int]) -> None:
        super().__init__(files, path, state, label)
        self._foreign = state

    @property
    def undecided(self) -> tuple[int, int]:
        """The offsets [start, end) from the oldest open transaction on, which are not read."""
        stable = self.high_watermark
        return stable, max(stable, self._foreign.written_end)

    def _load_epochs(self) -> Epochs:
        return load_epochs(self._files, self.path)

    def _with_view(self, look: Callable[[LogView], Result], offset: int | None = None) -> Result:
        try:
            return super()._with_view(look, offset)
        except CorruptLog as error:
            for segment in self._segments:
                if segment.log_path == error.path and (found := self._diagnose(segment, error.position)) is not None:
                    raise found from error
            raise CorruptLog(error.path, error.position, error.reason, ADVICE) from error

    def _diagnose(self, segment: Segment, position: int) -> CorruptLog | None:
        """The damage that `foldlog check` finds there: one batch seldom shows whether it or its neighbour is wrong."""
        following = min(
            (one.base_offset for one in self._segments if one.base_offset > segment.base_offset), default=None
        )
        scan = scan_foreign(self._files, self.path, segment.base_offset, segment.size, following)
        damaged = [piece for piece in scan.pieces if piece.reason and piece.position <= position <= piece.end]
        return CorruptLog(segment.log_path, damaged[-1].position, damaged[-1].reason, ADVICE) if damaged else None

    @property
    def _segments(self) -> tuple[Segment, ...]:
        return () if self._listing is None else self._listing.segments

    def _state_and_start(self) -> SlotState:
        return self._state()  # already derived from the files

    def _without_removed(self, state: SlotState, first: int) -> SlotState:
        return state

    def _view_of(self, state: SlotState, listing: Listing) -> LogView:
        # Kafka does not compare its epochs with the batches, so neither do reads; `foldlog check` reports differences.
        end = state.high_watermark
        return LogView(listing.segments, (), state.gaps_below, end, end, self._foreign.aborted, self._diagnose)


def load_epochs(files: Files, directory: str) -> Epochs:
    """The epochs in the file; none if it does not exist: Kafka creates it with the first batch."""
    if not files.exists(f"{directory}/{EPOCHS_NAME}"):
        return Epochs(files, directory, ())
    return Epochs.load(files, directory)


def _sizes(entries: list[DirectoryEntry]) -> dict[str, int]:
    """File sizes by name. Times are left out: they prove nothing."""
    return {entry.name: entry.size_bytes for entry in entries}
