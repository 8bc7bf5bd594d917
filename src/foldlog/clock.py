"""Time comes in through here, so that a test can own it."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """Wall time for timestamps and retention, monotonic time for waiting."""

    def now_ms(self) -> int:
        """Milliseconds since 1970, by the wall clock; it may go backward."""
        ...

    def monotonic_ms(self) -> float:
        """Milliseconds that never go backward; only differences mean anything."""
        ...


class SystemClock:
    """The machine's own clocks."""

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic_ms(self) -> float:
        return time.monotonic() * 1000.0
