"""The thread that closes batches whose time is over.

One per producer, so that deadlines come in order and a dictionary is queue enough. It starts with the first batch that
has to be watched, holds nothing of the producer while no batch is open, and ends with `stop`.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from threading import Condition, Thread

from foldlog.clock import Clock

_WAIT_MAX_MS = 3_600_000.0
"""Look at the clock at least hourly: a deadline years away would overflow what a lock can wait for."""


class LingerTimer:
    """Calls back when a deadline has passed, unless it was cancelled. Any thread; all delays are the same."""

    def __init__(self, clock: Clock, delay_ms: float) -> None:
        self._clock = clock
        self._delay_ms = min(delay_ms, 1e15)  # an int that no float can hold would fail where it is added
        self._changed = Condition()
        self._due: dict[Hashable, tuple[float, Callable[[], None]]] = {}
        self._thread: Thread | None = None
        self._stopped = False

    def schedule(self, name: Hashable, callback: Callable[[], None]) -> None:
        """Call `callback` on the timer's thread once the delay is over."""
        with self._changed:
            self._due[name] = (self._clock.monotonic_ms() + self._delay_ms, callback)
            if len(self._due) == 1:
                self._changed.notify()
            if self._thread is None and not self._stopped:
                self._thread = Thread(target=self._run, name="foldlog-linger", daemon=True)
                self._thread.start()

    def cancel(self, name: Hashable) -> None:
        """It happened by other means. The thread is not woken: it will find the next deadline by itself."""
        with self._changed:
            self._due.pop(name, None)

    def stop(self) -> None:
        """End the thread; callbacks that are not due are dropped."""
        with self._changed:
            self._stopped = True
            self._due.clear()
            self._changed.notify()

    def _run(self) -> None:
        while True:
            callback = self._next()
            if callback is None:
                return
            callback()
            del callback  # or an idle thread would keep the last batch, and through it the producer

    def _next(self) -> Callable[[], None] | None:
        with self._changed:
            while not self._stopped:
                if not self._due:
                    self._changed.wait()
                    continue
                name, (deadline_ms, callback) = next(iter(self._due.items()))
                remaining_ms = deadline_ms - self._clock.monotonic_ms()
                if remaining_ms <= 0:
                    del self._due[name]
                    return callback
                del name, callback  # nor may a waiting one
                self._changed.wait(min(max(remaining_ms, 1.0), _WAIT_MAX_MS) / 1000)
            return None
