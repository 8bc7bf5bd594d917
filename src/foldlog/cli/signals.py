"""Signals that ask a process to leave: the first is told to who waits for it, another ends the process at once."""

from __future__ import annotations

import os
import queue
import signal
import threading
from typing import Final

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
        self._heard.put(signal.Signals(signal.sigwait(self._signals)))
        asked_ms = self._clock.monotonic_ms()
        while True:
            number = signal.sigwait(self._signals)
            if self._clock.monotonic_ms() - asked_ms >= SAME_ASKING_MS:
                # Nothing is flushed or closed: whoever asks again does not want to wait, and the next start recovers.
                os._exit(SIGNAL_EXIT + number)
