"""Signals while folds run: the first asks to stop after what is under way, another one leaves at once."""

from __future__ import annotations

import os
import signal
from threading import Event
from types import FrameType, TracebackType
from typing import Any

from foldlog.cli.signals import SIGNAL_EXIT


class StopOnSignals:
    """In a `with` block of the main thread, after Spark has started (which sets a handler of its own)."""

    def __init__(self) -> None:
        self.stop = Event()
        self._before: dict[int, Any] = {}

    @property
    def is_asked(self) -> bool:
        return self.stop.is_set()

    def __enter__(self) -> StopOnSignals:
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            if signal.getsignal(number) is not signal.SIG_IGN:
                self._before[number] = signal.signal(number, self._asked)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler if handler is not None else signal.SIG_DFL)

    def _asked(self, number: int, frame: FrameType | None) -> None:
        if self.stop.is_set():
            # Nothing is lost: each view holds its bookmark.
            os._exit(SIGNAL_EXIT + number)
        self.stop.set()
