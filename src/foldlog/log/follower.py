"""A partition as a process sees it that is not its writer: the files, and the writer's slot in the checkpoint."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import ClassVar, Protocol, TypeVar

from foldlog.errors import CorruptLog, StorageError
from foldlog.files.base import Files
from foldlog.limits import READ_CHUNK_BYTES
from foldlog.log.checkpoint import SlotState, StartReason
from foldlog.log.core import out_of_range
from foldlog.log.epochs import Epochs
from foldlog.log.layout import read_layout
from foldlog.log.reading import Slice, View, first_at_time, read_batches
from foldlog.log.segment import Segment

_TRIES = 2000  # with a millisecond between them: longer than any swap takes, short enough for a person to wait
_PAUSE_S = 0.001

Result = TypeVar("Result")


class Published(Protocol):
    """Where the writer says how far it is: its slot in the checkpoint."""

    def load_live(self) -> SlotState | None:
        """As of now, while it may be writing."""
        ...


class PartitionReader:
    """Reads what the writer has published. Any thread.

    The writer's generation is odd while it changes names: the list of segments is read between two equal even
    readings, so it is one that existed. Files that were unlinked since stay readable through their open handles.
    """

    SETTLE: ClassVar = "open it once for writing to repair it"

    def __init__(self, files: Files, path: str, slot: Published, label: tuple[str, int]) -> None:
        self.label = label
        self.path = path
        self._files = files
        self._slot = slot
        self._segments: tuple[Segment, ...] = ()
        self._epochs: Epochs | None = None
        self._listed: tuple[int, int] | None = None  # generation and leader epoch of the list

    @classmethod
    def open(cls, files: Files, path: str, slot: Published, *, label: tuple[str, int]) -> PartitionReader:
        """Nothing is locked and nothing is written. Raises CorruptLog if there is no such partition."""
        if not files.exists(path):
            raise CorruptLog(path, 0, "the directory is missing")
        return cls(files, path, slot, label)

    def close(self) -> None:
        """Let go of the files."""
        for segment in self._segments:
            segment.forget()
        self._segments, self._listed = (), None

    def _state(self) -> SlotState:
        return self._slot.load_live() or SlotState()

    @property
    def log_start_offset(self) -> int:
        return self._state().log_start_offset

    @property
    def high_watermark(self) -> int:
        """All below may be read."""
        return self._state().high_watermark

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
        return self._state().start_reason

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

    def read(self, offset: int, max_bytes: int = READ_CHUNK_BYTES, into: bytearray | None = None) -> Slice:
        """Whole verified batches below the high watermark, from the one that holds `offset` on; at least one, if any.

        With `into`, the data stand there, until the next read into it. Raises OffsetOutOfRange (with the reason) and
        CorruptLog.
        """
        return self._with_view(lambda view: read_batches(view, offset, max_bytes, into), offset)

    def offset_at_time(self, timestamp_ms: int) -> tuple[int, int] | None:
        """(offset, timestamp) of the first record at or after `timestamp_ms`; None if there is none."""
        return self._with_view(lambda view: first_at_time(view, self.log_start_offset, timestamp_ms))

    def _with_view(self, look: Callable[[View], Result], offset: int | None = None) -> Result:
        for attempt in range(_TRIES):
            state, view = self._view()
            if offset is not None and not state.log_start_offset <= offset <= state.high_watermark:
                raise out_of_range(self.label, offset, state)
            try:
                return look(view)
            except CorruptLog:
                # Damage is damage only if nothing changed meanwhile; epochs are replaced without a new generation.
                now = self._state()
                if attempt and now.generation == state.generation and now.gaps_below == state.gaps_below:
                    raise
                self._listed = None
            except OSError as error:
                raise StorageError(f"{self.path} could not be read ({error})") from error
        raise StorageError(f"{self.path} changes faster than it can be read; try again")

    def _view(self) -> tuple[SlotState, View]:
        """The state and a list of segments that belong together."""
        for _ in range(_TRIES):
            state = self._state()
            key = (state.generation, state.leader_epoch)
            if self._listed != key or self._epochs is None:
                if not self._list(state):
                    time.sleep(_PAUSE_S)
                    continue
                self._listed = key
            self._grow_last(state)
            return state, self._view_of(state)
        raise StorageError(f"{self.path}: its writer ended in the middle of a change; {self.SETTLE}")

    def _view_of(self, state: SlotState) -> View:
        starts = self._epochs.starts if self._epochs else ()
        return View(self._segments, starts, state.gaps_below, state.high_watermark)

    def _load_epochs(self) -> Epochs:
        return Epochs.load(self._files, self.path)

    def _list(self, state: SlotState) -> bool:
        """List the segments, keeping those already open; False if the writer is changing names."""
        if state.generation & 1:
            return False
        try:
            logs = read_layout(self._files.entries(self.path)).logs
            epochs = self._load_epochs()
        except FileNotFoundError:
            raise CorruptLog(self.path, 0, "the directory is missing") from None
        fresh = [Segment(self._files, self.path, base, logs[base], writable=False) for base in sorted(logs)]
        for segment in fresh:
            try:
                segment.log()
            except CorruptLog:
                return False
        if self._state().generation != state.generation:
            return False
        if not fresh:
            raise CorruptLog(self.path, 0, "it holds no segment at all")
        for segment in self._segments:
            segment.forget()
        self._segments, self._epochs = tuple(fresh), epochs
        return True

    def _grow_last(self, state: SlotState) -> None:
        """The writer appends to the last segment."""
        last = self._segments[-1]
        size = last.log().size()
        if size > last.size:
            last.grow(size)
