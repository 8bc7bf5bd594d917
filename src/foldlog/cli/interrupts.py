"""Ctrl-C where some steps must not be torn apart: it waits for the step's end; a second one does not."""

from __future__ import annotations

import signal
from types import FrameType, TracebackType
from typing import Any

from foldlog.cli.signals import SAME_ASKING_MS
from foldlog.clock import Clock, SystemClock


class Interrupts:
    """In its `with` block, SIGINT raises KeyboardInterrupt, as ever; while `is_put_off` is set, it waits for `check`.

    For the main thread, which is the one that gets signals. One that is ignored (a background job) stays ignored.
    """

    def __init__(self, clock: Clock | None = None) -> None:
        self.is_put_off = False
        self._clock = clock or SystemClock()
        self._asked_ms: float | None = None
        self._before: Any = None

    def check(self) -> None:
        """From here on an interrupt is raised at once; so is one that has waited."""
        self.is_put_off = False
        if self._asked_ms is not None:
            raise KeyboardInterrupt

    def heard(self, number: int, frame: FrameType | None) -> None:
        """The handler. What comes twice in a moment is one Ctrl-C: wrappers pass on what the terminal sends anyway."""
        now_ms = self._clock.monotonic_ms()
        if not self.is_put_off or (self._asked_ms is not None and now_ms - self._asked_ms >= SAME_ASKING_MS):
            raise KeyboardInterrupt
        if self._asked_ms is None:
            self._asked_ms = now_ms

    def __enter__(self) -> Interrupts:
        if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
            self._before = signal.signal(signal.SIGINT, self.heard)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._before is not None:
            signal.signal(signal.SIGINT, self._before)
