"""The thread that closes batches whose time is over.

One per producer, so that deadlines come in order and a queue will do. It starts with the first batch that has to be
watched, holds nothing of the producer while no batch is open, and ends with `stop`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from threading import Condition, Thread

from foldlog.clock import Clock


class LingerTimer:
    """Calls back when a deadline has passed. `schedule` may be called from any thread, with rising deadlines."""

    def __init__(self, clock: Clock, name: str) -> None:
        self._clock = clock
        self._name = name
        self._changed = Condition()
        self._due: deque[tuple[float, Callable[[], None]]] = deque()
        self._thread: Thread | None = None
        self._stopped = False

    def schedule(self, delay_ms: float, callback: Callable[[], None]) -> None:
        """Call `callback` on the timer's thread `delay_ms` from now; the delay is the same in all calls."""
        with self._changed:
            self._due.append((self._clock.monotonic_ms() + delay_ms, callback))
            if len(self._due) == 1:
                self._changed.notify()
            if self._thread is None and not self._stopped:
                self._thread = Thread(target=self._run, name=self._name, daemon=True)
                self._thread.start()

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
                remaining_ms = self._due[0][0] - self._clock.monotonic_ms()
                if remaining_ms <= 0:
                    return self._due.popleft()[1]
                self._changed.wait(max(remaining_ms, 1.0) / 1000)
            return None
