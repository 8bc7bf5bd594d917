"""Signals while folds run: the first asks to stop after what is under way, another one leaves at once."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from threading import Event
from types import FrameType, TracebackType
from typing import Any

from foldlog.cli.signals import SAME_ASKING_MS, SIGNAL_EXIT
from foldlog.clock import Clock, SystemClock

STOPPING = "stopping after what is under way; once more to leave at once"


class StopOnSignals:
    """In a `with` block of the main thread; `listen` once Spark has started, which sets a handler of its own.

    Until then a signal does what it always does: there is nothing yet to finish.
    """

    def __init__(self, tell: Callable[[str], None], clock: Clock | None = None) -> None:
        self.stop = Event()
        self._tell = tell
        self._clock = clock or SystemClock()
        self._asked_ms = 0.0
        self._before: dict[int, Any] = {}

    @property
    def is_asked(self) -> bool:
        return self.stop.is_set()

    def listen(self) -> None:
        """From here on, a signal asks."""
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            # One that was ignored when the process began (nohup) stays ignored.
            if signal.getsignal(number) is not signal.SIG_IGN:
                self._before[number] = signal.signal(number, self._asked)

    def __enter__(self) -> StopOnSignals:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler if handler is not None else signal.SIG_DFL)

    def _asked(self, number: int, frame: FrameType | None) -> None:
        now_ms = self._clock.monotonic_ms()
        if not self.stop.is_set():
            self._asked_ms = now_ms
            self.stop.set()
            self._tell(STOPPING)
        elif now_ms - self._asked_ms >= SAME_ASKING_MS:
            # Nothing is lost: each view holds its bookmark. Spark's JVM ends when it finds us gone.
            os._exit(SIGNAL_EXIT + number)
