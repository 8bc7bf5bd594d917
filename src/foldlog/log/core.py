"""What the parts of a partition share: its segments, its slot, and the view a reader gets of both."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, TypeVar

from foldlog.errors import CorruptLog, LogClosed, OffsetOutOfRange, StorageError
from foldlog.files.base import Files, storage_error
from foldlog.log.checkpoint import Slot, SlotState
from foldlog.log.config import LogConfig
from foldlog.log.epochs import Epochs
from foldlog.log.reading import View
from foldlog.log.segment import Segment
from foldlog.log.waiting import Watchers

_VIEW_TRIES = 16  # each try follows a change of the segment list, which takes a retention or a compaction

Result = TypeVar("Result")


class PartitionCore:
    """State with one rule: `state` and `segments` are immutable values, replaced whole, so reading them needs no lock.

    `change` replaces the state and stores it in the slot; who replaces `segments` holds the append lock or is
    inside `changing_names`.
    """

    def __init__(
        self, files: Files, path: str, label: tuple[str, int], config: LogConfig, slot: Slot, state: SlotState,
        segments: tuple[Segment, ...], epochs: Epochs,
    ) -> None:  # fmt: skip
        self.files = files
        self.path = path
        self.label = label
        self.config = config
        self.segments = segments
        self.epochs = epochs
        self.watchers = Watchers()
        self.is_closed = False
        self.names_are_unsettled = False
        self._slot = slot
        self._state = state
        self._state_lock = threading.Lock()

    @property
    def state(self) -> SlotState:
        return self._state

    def change(self, *, firmly: bool = False, generation: Callable[[int], int] = int, **changes: Any) -> None:
        """Replace the state and store it; `firmly`: durable on return. The slot is no longer a clean one.

        `generation` makes the next one of the present one. StorageError, and the state as it was, if it cannot be
        made durable.
        """
        with self._state_lock:
            state = replace(self._state, **{"clean": False, **changes}, generation=generation(self._state.generation))
            if firmly:
                self._store_firmly(state)
            else:
                self._slot.store(state)
            self._state = state

    def _store_firmly(self, state: SlotState) -> None:
        try:
            self._slot.store_firmly(state)
        except StorageError:
            # Who tries again must not find it done in memory: the newest store is again what was before.
            self._slot.store(self._state)
            raise

    def raise_watermarks(self, high_watermark: int, durable: tuple[int, int, int] | None = None) -> None:
        """Move them up, never down: syncs of different threads may end in any order.

        `durable`: (durable offset, base offset of its segment, position in it).
        """
        with self._state_lock:
            state = self._state
            changes: dict[str, Any] = {"high_watermark": max(high_watermark, state.high_watermark), "clean": False}
            if durable is not None and durable[0] >= state.durable_offset:
                changes |= dict(zip(("durable_offset", "active_base_offset", "active_position"), durable, strict=True))
            self._state = replace(state, **changes)
            self._slot.store(self._state)

    @contextmanager
    def changing_names(self) -> Iterator[None]:
        """The generation is odd inside: reading processes wait, and list the directory again afterwards."""
        self.change(generation=names_change)
        try:
            yield
        finally:
            if not self.names_are_unsettled:
                self.change(generation=names_settled)

    def sync_checkpoint(self) -> None:
        self._slot.sync()

    def segment(self, base_offset: int, size: int) -> Segment:
        interval = self.config.index_interval_bytes
        return Segment(self.files, self.path, base_offset, size, writable=True, index_interval_bytes=interval)

    def refuse_if_closed(self) -> None:
        if self.is_closed:
            raise LogClosed(f"{self.path} was closed; open the log again")

    def with_view(self, look: Callable[[View], Result], offset: int | None = None) -> Result:
        """`look` at a consistent view, with a new one if retention or compaction has replaced a segment meanwhile.

        Raises OffsetOutOfRange if `offset` is given and not in it.
        """
        for _ in range(_VIEW_TRIES):
            self.refuse_if_closed()
            state = self._state  # before the segments: a roll publishes these before a watermark that needs them
            if offset is not None and not state.log_start_offset <= offset <= state.high_watermark:
                raise out_of_range(self.label, offset, state)
            view = View(self.segments, self.epochs.starts, state.gaps_below, state.high_watermark)
            try:
                if view.segments[0].base_offset <= state.log_start_offset:
                    return look(view)
            except CorruptLog:
                if self.segments is view.segments and self._state.gaps_below == state.gaps_below:
                    raise
            except BlockingIOError:
                raise  # not a fault: who asked not to wait asks again elsewhere
            except OSError as error:
                raise storage_error(f"{self.path} could not be read", error) from error
        raise StorageError(f"{self.path} changes faster than it can be read; try again")


def names_change(generation: int) -> int:
    return generation | 1


def names_settled(generation: int) -> int:
    return (generation | 1) + 1


def name_added(generation: int) -> int:
    """Even stays even, and odd odd: a roll may come in the middle of a compaction."""
    return generation + 2


def out_of_range(label: tuple[str, int], offset: int, state: SlotState) -> OffsetOutOfRange:
    why = "it is not written yet" if offset > state.high_watermark else state.start_reason.sentence
    return OffsetOutOfRange(*label, offset, state.log_start_offset, state.high_watermark, why)
