"""The progress of a long task: one line on a terminal that is redrawn, and nothing anywhere else."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, NamedTuple, TextIO

from foldlog.cli.units import size_text
from foldlog.clock import Clock, SystemClock

if TYPE_CHECKING:
    from rich.progress import Progress

_REDRAW_MS: Final = 100
_BAR_CELLS: Final = 24
_SETTLED_MS: Final = 1000
"""Before that, the speed is a guess, and so is the time left."""


class ProgressBar:
    """A progress bar on a terminal. Any thread may report; the reporting thread draws when due.

    It may count something other than bytes: then `amount` formats the count, `unit` names it, and the bytes are
    reported beside it. rich is loaded on first drawing, so a short task does not load it.
    """

    def __init__(
        self,
        stream: TextIO | None,
        doing: str,
        total_bytes: int,
        clock: Clock | None = None,
        *,
        amount: Callable[[int], str] = size_text,
        unit: str = "",
    ) -> None:
        self._stream = stream if stream is not None and redraws(stream) else None
        self._doing = doing
        self._total_bytes = total_bytes
        self._amount = amount
        self._unit = unit
        self._carried_bytes = 0
        self._clock = clock or SystemClock()
        self._lock = threading.Lock()
        self._done_bytes = 0
        self._began_ms = self._drawn_ms = self._clock.monotonic_ms()
        self._drawn: Progress | None = None

    def advance(self, count_bytes: int, carried_bytes: int = 0) -> None:
        """`carried_bytes` are the bytes that belong to a count of something else."""
        with self._lock:
            self._done_bytes += count_bytes
            self._carried_bytes += carried_bytes
            now_ms = self._clock.monotonic_ms()
            if self._stream is not None and now_ms - self._drawn_ms >= _REDRAW_MS:
                self._drawn_ms = now_ms
                self._draw(self._stream, now_ms - self._began_ms)

    def hide(self) -> None:
        """Make room for other output. The next `advance` draws it again."""
        with self._lock:
            if self._drawn is not None:
                self._drawn.stop()
                self._drawn = None
                self._drawn_ms -= _REDRAW_MS  # so that it is drawn again at once

    def _draw(self, stream: TextIO, elapsed_ms: float) -> None:
        carried = Carried(self._carried_bytes, self._unit) if self._unit else None
        told = progress_text(self._done_bytes, self._total_bytes, elapsed_ms, self._amount, carried)
        if self._drawn is None:
            from rich.console import Console
            from rich.progress import BarColumn, Progress, TextColumn

            self._drawn = Progress(
                TextColumn(self._doing, markup=False),
                BarColumn(_BAR_CELLS),
                TextColumn("{task.fields[told]}", markup=False),
                console=Console(file=stream, highlight=False),
                auto_refresh=False,
                transient=True,
                redirect_stdout=False,
                redirect_stderr=False,
            )
            self._drawn.add_task(self._doing, total=self._total_bytes, completed=self._done_bytes, told=told)
            self._drawn.start()
            self._drawn.console.show_cursor(True)  # so that a killed process leaves a terminal with a cursor
        else:
            self._drawn.update(self._drawn.task_ids[0], completed=self._done_bytes, told=told)
            self._drawn.refresh()


def redraws(stream: TextIO) -> bool:
    """Whether output on the stream can be overwritten."""
    return stream.isatty() and os.environ.get("TERM") != "dumb"


class Carried(NamedTuple):
    """Bytes that belong to a count of something else, and the unit of that."""

    size_bytes: int
    unit: str


def progress_text(
    done_bytes: int,
    total_bytes: int,
    elapsed_ms: float,
    amount: Callable[[int], str] = size_text,
    carried: Carried | None = None,
) -> str:
    """The text after the bar.

    >>> progress_text(1 << 30, 4 << 30, 2000.0)
    '25%  1.0 GiB of 4.0 GiB  512.0 MiB/s  6s left'
    >>> progress_text(50, 200, 2000.0, str, Carried(1 << 20, "offsets"))
    '25%  50 of 200 offsets, 1.0 MiB  512.0 KiB/s  6s left'
    """
    share = min(1.0, done_bytes / total_bytes) if total_bytes else 1.0
    text = f"{int(share * 100)}%  {amount(min(done_bytes, total_bytes))} of {amount(total_bytes)}"
    if carried is not None:
        text += f" {carried.unit}, {size_text(carried.size_bytes)}"
    if elapsed_ms < _SETTLED_MS or not done_bytes:
        return text
    per_s = done_bytes * 1000 / elapsed_ms
    left_s = max(0, total_bytes - done_bytes) / per_s
    left = f"{left_s:.0f}s" if left_s < 120 else f"{left_s / 60:.0f}min"
    speed = amount(int(per_s)) if carried is None else size_text(int(carried.size_bytes * 1000 / elapsed_ms))
    return f"{text}  {speed}/s  {left} left"
