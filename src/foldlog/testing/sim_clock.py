"""Clocks that a test controls."""

from __future__ import annotations

from foldlog.clock import SystemClock


class SimClock:
    """Time stands still until it is advanced. `now_ms` may be set to anything; monotonic time only grows.

    >>> clock = SimClock(now_ms=1000)
    >>> clock.advance(5)
    >>> clock.now_ms(), clock.monotonic_ms()
    (1005, 5.0)
    >>> clock.set_wall(10)
    >>> clock.now_ms(), clock.monotonic_ms()
    (10, 5.0)
    """

    def __init__(self, now_ms: int = 1_700_000_000_000) -> None:
        self._now_ms = now_ms
        self._monotonic_ms = 0.0

    def now_ms(self) -> int:
        return self._now_ms

    def monotonic_ms(self) -> float:
        return self._monotonic_ms

    def advance(self, by_ms: int) -> None:
        """Advance both clocks."""
        self._now_ms += by_ms
        self._monotonic_ms += max(by_ms, 0)

    def set_wall(self, now_ms: int) -> None:
        """Set the wall clock, perhaps back; monotonic time is not affected."""
        self._now_ms = now_ms


class MovedClock:
    """The machine's clocks, and what a test has added to them. Any thread.

    >>> clock = MovedClock()
    >>> before = clock.monotonic_ms()
    >>> clock.move(3_600_000)
    >>> clock.monotonic_ms() - before >= 3_600_000
    True
    """

    def __init__(self) -> None:
        self._clock = SystemClock()
        self._wall_ms = 0
        self._monotonic_ms = 0

    def now_ms(self) -> int:
        return self._clock.now_ms() + self._wall_ms

    def monotonic_ms(self) -> float:
        return self._clock.monotonic_ms() + self._monotonic_ms

    def move(self, by_ms: int) -> None:
        """Move both clocks; back only that of the wall, as on a machine whose clock is set."""
        self._wall_ms += by_ms
        self._monotonic_ms += max(by_ms, 0)

    def set_right(self) -> None:
        """Show the machine's own time again. Monotonic time stays ahead."""
        self._wall_ms = 0
