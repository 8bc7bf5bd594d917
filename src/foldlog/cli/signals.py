"""Signals that ask a process to leave, as commands take them.

`LeaveSignals`, for what serves: the first is told to who waits for it, another ends the process at once.
`Interrupts`, for steps that must not be torn apart: Ctrl-C waits for the step's end; a second one does not.
`StopOnSignals`, for rounds that go on until they are stopped: the first asks to stop after what is under way.
"""

from __future__ import annotations

import os
import queue
import signal
import threading
from collections.abc import Callable
from threading import Event
from types import FrameType, TracebackType
from typing import Any, Final

from foldlog.clock import Clock, SystemClock

SIGNAL_EXIT: Final = 128
"""What shells add to the number of the signal that ended a process."""

SAME_ASKING_MS: Final = 500
"""Signals that come so close together are one asking: `timeout` and others signal a process and then its group, and a
terminal's interrupt reaches the process as well as the wrapper that passes it on."""

_ASKING: Final = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


class LeaveSignals:
    """From here to the end of the process, SIGTERM, SIGINT and SIGHUP end nothing by themselves: `wait` tells of them.

    They are blocked in the thread that makes this and in those it starts afterwards; a thread of its own takes them,
    so another one is heard even while every other thread waits for a disk. They are never let through again: the next
    would then end, with an error, a process that has closed everything. One that was ignored when the process began
    (nohup, a background job of a script) stays ignored.
    """

    def __init__(self, clock: Clock | None = None) -> None:
        self._clock = clock or SystemClock()
        self._signals = {number for number in _ASKING if signal.getsignal(number) is not signal.SIG_IGN}
        self._heard: queue.SimpleQueue[signal.Signals | None] = queue.SimpleQueue()
        signal.pthread_sigmask(signal.SIG_BLOCK, self._signals)
        threading.Thread(target=self._listen, name="foldlog-signals", daemon=True).start()

    def wait(self) -> signal.Signals | None:
        """The signal that asks to leave, or None once somebody called `wake`."""
        return self._heard.get()

    def wake(self) -> None:
        """Let `wait` return: there is another reason to leave. Any thread."""
        self._heard.put(None)

    def _listen(self) -> None:
        first = signal.Signals(signal.sigwait(self._signals))
        while signal.sigpending() & self._signals:
            signal.sigwait(self._signals)  # came with the first, however late this thread gets to see them
        self._heard.put(first)
        asked_ms = self._clock.monotonic_ms()
        while True:
            number = signal.sigwait(self._signals)
            if self._clock.monotonic_ms() - asked_ms >= SAME_ASKING_MS:
                # Nothing is flushed or closed: whoever asks again does not want to wait, and the next start recovers.
                os._exit(SIGNAL_EXIT + number)


# --- Ctrl-C between steps -------------------------------------------------------------------------------------------


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


# --- stopping after what is under way -------------------------------------------------------------------------------


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
