"""A partition as a process sees it that is not its writer: the files, and the writer's slot in the checkpoint."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import replace
from typing import ClassVar, NamedTuple, Protocol, TypeVar

from foldlog.errors import CorruptLog, FoldlogError, StorageError
from foldlog.files.base import Files, storage_error
from foldlog.limits import READ_CHUNK_BYTES
from foldlog.log.checkpoint import SlotState, StartReason, out_of_range
from foldlog.log.epochs import Epochs
from foldlog.log.layout import read_layout
from foldlog.log.reading import FetchedBatches, LogView, SegmentInfo, first_at_time, read_batches, segment_infos
from foldlog.log.segment import Segment
from foldlog.records.compression import READ_DECOMPRESSED_BYTES

logger = logging.getLogger("foldlog.log")

_TRIES = 2000  # with a millisecond between them: longer than any swap takes, short enough for a person to wait
_PAUSE_S = 0.001

Result = TypeVar("Result")


class Hurry(Protocol):
    """Asks whoever writes the directory to sync."""

    def __call__(self, topic: str, number: int) -> None:
        """Returns once what is written in that partition is durable, or at once where nobody can be asked. Raises
        nothing of the writer's: who calls looks at what is durable then."""
        ...

    def close(self) -> None: ...


class Published(Protocol):
    """Where the writer says how far it is: its slot in the checkpoint."""

    def load_live(self) -> SlotState | None:
        """As of now, while it may be writing."""
        ...


_Key = tuple[int, int]  # generation and leader epoch


class Listing(NamedTuple):
    """The segments as they were at one generation; replaced whole, since any thread may look."""

    key: _Key
    segments: tuple[Segment, ...]
    epochs: Epochs


class FollowedPartition:
    """Reads what the writer has published. Any thread.

    The writer's generation is odd while it changes names: the list of segments is read between two equal even
    readings, so it is one that existed. Files that were unlinked since stay readable through their open handles.
    """

    SETTLE: ClassVar = "open it once for writing to repair it"

    def __init__(
        self, files: Files, path: str, slot: Published, label: tuple[str, int], hurry: Hurry | None = None
    ) -> None:
        """`hurry` asks the writer to sync this partition, where somebody can be asked."""
        self.label = label
        self._hurry = hurry
        self.path = path
        self.decompressed_limit = READ_DECOMPRESSED_BYTES  # of one batch; more where its topic allows it
        self._files = files
        self._slot = slot
        self._listing: Listing | None = None
        self._head: tuple[_Key, int] | None = None  # where the first segment begins
        self._told_start = -1  # where the log begins once its first segments were removed by hand, as was said

    @classmethod
    def open(
        cls, files: Files, path: str, slot: Published, *, label: tuple[str, int], hurry: Hurry | None = None
    ) -> FollowedPartition:
        """Nothing is locked and nothing is written. Raises CorruptLog if there is no such partition."""
        if not files.exists(path):
            raise CorruptLog(path, 0, "the directory is missing")
        return cls(files, path, slot, label, hurry)

    def close(self) -> None:
        """Let go of the files."""
        listing, self._listing = self._listing, None
        for segment in listing.segments if listing is not None else ():
            segment.forget()

    def _state(self) -> SlotState:
        state = self._slot.load_live()
        return self._without_slot() if state is None else state

    def _without_slot(self) -> SlotState:
        """The writer has not opened it yet: it is new and empty, or its slot was lost. Then it only looks empty."""
        try:
            logs = read_layout(self._files.entries(self.path)).logs
        except FileNotFoundError:
            return SlotState()  # deleted
        # Looked at again: a writer stores the slot before the first batch, and may have come between.
        state = self._slot.load_live()
        if state is None and any(logs.values()):
            reason = "it holds records, and the checkpoint does not know of them"
            raise CorruptLog(self.path, 0, reason, "open the log once for writing, which recovers it")
        return state or SlotState()

    def _state_and_start(self) -> SlotState:
        """The state, with the start that the files have. Names alone are looked at, once for each generation."""
        state = self._state()
        key, head = _key(state), self._head
        if head is None or head[0] != key:
            try:
                bases = read_layout(self._files.entries(self.path)).logs
            except OSError:
                return state  # reading it will say what is wrong
            if not bases or state.generation & 1 or self._state().generation != state.generation:
                return state  # the writer is changing names: what the slot says is all that is known
            self._head = head = (key, min(bases))
        return self._without_removed(state, head[1])

    def _without_removed(self, state: SlotState, first: int) -> SlotState:
        """Where the first segments were removed by hand, the log starts behind them, as it will for the next writer.

        Retention moves the start in the slot before it removes a file, and the generation around both: files that were
        listed in the state's generation never begin behind its start for any other reason.
        """
        if first <= state.log_start_offset:
            return state
        if self._told_start != first:
            self._told_start = first
            logger.warning(
                "%s: segments before offset %d were removed by hand; it is read from there", self.path, first
            )
        return replace(state, log_start_offset=first, start_reason=StartReason.MISSING)

    @property
    def log_start_offset(self) -> int:
        return self._state_and_start().log_start_offset

    @property
    def high_watermark(self) -> int:
        """All below may be read."""
        return self._state().high_watermark

    def acknowledged_end(self) -> int:
        """Where the log ends for who asks now. A server may have acknowledged (acks=1) what it has not synced yet: then
        the file goes on behind what is durable, and the server is asked to sync it first."""
        if self._hurry is not None and self._has_more():
            self._hurry(*self.label)
        return self.high_watermark

    def _has_more(self) -> bool:
        """Whether the file goes on behind what may be read. One call to the system, and never a wrong no: what was
        acknowledged is in the file that the state names, or in one that a state which is not older names."""
        try:
            state, view = self._view()
        except (FoldlogError, OSError):
            return False  # reading it will say what is wrong
        last = view.segments[-1]
        if state.high_watermark > state.durable_offset:
            return False  # flush.* is relaxed: what is written may be read
        return last.base_offset != state.active_base_offset or last.size > state.active_position

    @property
    def log_end_offset(self) -> int:
        """Seen from here, the log ends where reading does."""
        return self._state().high_watermark

    @property
    def durable_offset(self) -> int:
        """All below is fsynced."""
        return self._state().durable_offset

    @property
    def leader_epoch(self) -> int:
        return self._state().leader_epoch

    @property
    def start_reason(self) -> StartReason:
        """Why the log starts where it does."""
        return self._state_and_start().start_reason

    def load_epoch_starts(self) -> tuple[tuple[int, int], ...]:
        """Ascending pairs of (leader epoch, first offset written in it), read anew: a writer replaces the file without
        telling, but before the first batch of an epoch.
        """
        return self._load_epochs().starts

    @property
    def size_bytes(self) -> int:
        return sum(segment.size for segment in self._view()[1].segments)

    @property
    def segment_count(self) -> int:
        return len(self._view()[1].segments)

    def segments(self) -> list[SegmentInfo]:
        """All segments, oldest first."""
        return self._with_view(segment_infos)

    def read(self, offset: int, max_bytes: int = READ_CHUNK_BYTES, into: bytearray | None = None) -> FetchedBatches:
        """Whole verified batches below the high watermark, from the one that holds `offset` on; at least one, if any.

        With `into`, the data stand there, until the next read into it. Raises OffsetOutOfRange (with the reason) and
        CorruptLog.
        """
        if offset > self.high_watermark:
            self.acknowledged_end()
        return self._with_view(lambda view: read_batches(view, offset, max_bytes, into), offset)

    def offset_at_time(self, timestamp_ms: int) -> tuple[int, int] | None:
        """(offset, timestamp) of the first record at or after `timestamp_ms`; None if there is none."""

        def look(view: LogView) -> tuple[int, int] | None:
            return first_at_time(view, self.log_start_offset, timestamp_ms, self.decompressed_limit)

        seen = self.high_watermark
        found = self._with_view(look)
        if found is None and self.acknowledged_end() > seen:
            found = self._with_view(look)
        return found

    def _with_view(self, look: Callable[[LogView], Result], offset: int | None = None) -> Result:
        for attempt in range(_TRIES):
            state, view = self._view()
            if offset is not None and not state.log_start_offset <= offset <= state.high_watermark:
                raise out_of_range(self.label, offset, state.log_start_offset, state.high_watermark, state.start_reason)
            try:
                return look(view)
            except CorruptLog:
                # Damage is damage only if nothing changed meanwhile; epochs are replaced without a new generation.
                now = self._state()
                if attempt and now.generation == state.generation and now.gaps_below == state.gaps_below:
                    raise
                self._listing = self._head = None
            except OSError as error:
                raise storage_error(f"{self.path} could not be read", error) from error
        raise StorageError(f"{self.path} changes faster than it can be read; try again")

    def _view(self) -> tuple[SlotState, LogView]:
        """The state and a list of segments that belong together."""
        for _ in range(_TRIES):
            state = self._state()
            listing = self._listing
            try:
                if listing is None or listing.key != _key(state):
                    listing = self._list(state)
                    if listing is None:
                        time.sleep(_PAUSE_S)
                        continue
                _grow(listing.segments[-1])
            except OSError as error:
                raise storage_error(f"{self.path} could not be read", error) from error
            first = listing.segments[0].base_offset
            return self._without_removed(state, first), self._view_of(state, listing)
        raise StorageError(f"{self.path}: its writer ended in the middle of a change; {self.SETTLE}")

    def _view_of(self, state: SlotState, listing: Listing) -> LogView:
        return LogView(
            listing.segments, listing.epochs.starts, state.gaps_below, state.high_watermark, state.durable_offset
        )

    def _load_epochs(self) -> Epochs:
        return Epochs.load(self._files, self.path)

    def _list(self, state: SlotState) -> Listing | None:
        """List the segments and open them; None if the writer is changing names.

        A seqlock: even before, equal after, and what was read in between existed at one moment. It rests on the writer
        storing the odd generation before the first rename, and the even one after the last.
        """
        if state.generation & 1:
            return None
        try:
            logs = read_layout(self._files.entries(self.path)).logs
            epochs = self._load_epochs()
        except FileNotFoundError:
            raise CorruptLog(self.path, 0, "the directory is missing") from None
        fresh = [Segment(self._files, self.path, base, logs[base], writable=False) for base in sorted(logs)]
        # Opened before the second look: under the same name a swap puts another file, and a handle that was opened in
        # the generation of the list stays what was listed. Also where it is unlinked later.
        for segment in fresh:
            try:
                segment.log()
            except CorruptLog:
                return None  # gone between the list and here: names are changing
        if self._state().generation != state.generation:
            return None
        if not fresh:
            raise CorruptLog(self.path, 0, "it holds no segment at all")
        before, self._listing = self._listing, Listing(_key(state), tuple(fresh), epochs)
        for segment in before.segments if before is not None else ():
            segment.forget()
        return self._listing


def _key(state: SlotState) -> _Key:
    """What a list of segments is good for. A roll adds 2 to the generation, so a new segment makes a new list, too."""
    return state.generation, state.leader_epoch


def _grow(last: Segment) -> None:
    """The writer appends to the last segment. No other grows: a sealed one changes by being replaced, with its name."""
    size = last.log().size()
    if size > last.size:
        last.grow(size)
