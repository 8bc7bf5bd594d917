"""Handling of signals that ask a process to leave.

`LeaveSignals`, for servers: the first one is returned by `wait`, another ends the process at once. `Interrupts`, for
steps that must not be torn apart: Ctrl-C waits for the step's end; a second one does not. `StopOnSignals`, for rounds
that run until they are stopped: the first asks to stop after the current one.
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
"""Shells add the number of the signal that ended a process."""

SAME_ASKING_MS: Final = 500
"""Signals this close together count as one: `timeout` and others signal a process and then its group, and a terminal's
interrupt reaches the process as well as the wrapper that forwards it."""

_ASKING: Final = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


class LeaveSignals:
    """From here to the end of the process, SIGTERM, SIGINT and SIGHUP do not end it: `wait` returns them. With
    `reloads`, SIGHUP asks for something else: `on_hangup` is called, on a thread of its own, as often as it comes.

    They are blocked in the thread that makes this and in those it starts afterwards; a separate thread takes them, so
    another one is noticed even while every other thread waits for a disk. They are never unblocked: the next one would
    then end, with an error, a process that has closed everything. A signal that was ignored when the process began
    (nohup, a background job of a script) stays ignored.
    """

    def __init__(self, clock: Clock | None = None, *, reloads: bool = False) -> None:
        self._clock = clock or SystemClock()
        self._reloads = reloads
        self.on_hangup: Callable[[], None] = lambda: None
        self._signals = {number for number in _ASKING if signal.getsignal(number) is not signal.SIG_IGN}
        self._heard: queue.SimpleQueue[signal.Signals | None] = queue.SimpleQueue()
        signal.pthread_sigmask(signal.SIG_BLOCK, self._signals)
        threading.Thread(target=self._listen, name="foldlog-signals", daemon=True).start()

    def wait(self) -> signal.Signals | None:
        """The signal that asks to leave, or None after `wake`."""
        return self._heard.get()

    def wake(self) -> None:
        """Let `wait` return: there is another reason to leave. Any thread."""
        self._heard.put(None)

    def _listen(self) -> None:
        first = self._next()
        while signal.sigpending() & self._signals:
            signal.sigwait(self._signals)  # came with the first, however late this thread gets to see them
        self._heard.put(first)
        asked_ms = self._clock.monotonic_ms()
        while True:
            number = self._next()
            if self._clock.monotonic_ms() - asked_ms >= SAME_ASKING_MS:
                # Nothing is flushed or closed: the user does not want to wait, and the next start recovers.
                os._exit(SIGNAL_EXIT + number)

    def _next(self) -> signal.Signals:
        """The next signal that asks to leave."""
        while True:
            number = signal.Signals(signal.sigwait(self._signals))
            if not self._reloads or number != signal.SIGHUP:
                return number
            self.on_hangup()


# --- Ctrl-C between steps -------------------------------------------------------------------------------------------


class Interrupts:
    """In its `with` block, SIGINT raises KeyboardInterrupt as usual; while `is_put_off` is set, it waits for `check`.

    For the main thread, which gets the signals. An ignored signal (a background job) stays ignored.
    """

    def __init__(self, clock: Clock | None = None) -> None:
        self.is_put_off = False
        self._clock = clock or SystemClock()
        self._asked_ms: float | None = None
        self._before: Any = None

    def check(self) -> None:
        """From here on an interrupt is raised at once; a deferred one is raised now."""
        self.is_put_off = False
        if self._asked_ms is not None:
            raise KeyboardInterrupt

    def heard(self, number: int, frame: FrameType | None) -> None:
        """The handler. Signals close together are one Ctrl-C: wrappers forward what the terminal sends anyway."""
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


# --- stopping after the current round ---------------------------------------------------------------------------------


STOPPING = "stopping after the current work; a second signal stops it at once"


class StopOnSignals:
    """In a `with` block of the main thread; call `listen` once Spark has started, which sets its own handler.

    Until then a signal has its default effect: there is nothing to finish yet.
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
        """From here on, a signal asks to stop."""
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            # A signal that was ignored when the process began (nohup) stays ignored.
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
            # Nothing is lost: each view holds its bookmark. Spark's JVM exits when this process is gone.
            os._exit(SIGNAL_EXIT + number)
