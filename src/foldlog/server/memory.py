"""How much memory requests and answers may take together, over all connections."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

ANSWER_BYTES_MAX: Final = 8 << 20
"""Of records in one Fetch answer while memory is at hand; what a client asks for beyond it comes with the next."""

ANSWER_BYTES_MIN: Final = 64 << 10
"""The same when memory is short: below this the cost of a fetch is in the call, not in the bytes."""


class MemoryBudget:
    """Bytes that connections hold: frames that are not complete, buffers they keep, answers nobody has read yet.

    The event loop's. What is over the limit is not refused: who wants more waits (incoming) or gets less (outgoing).
    """

    def __init__(self, limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes
        self.used_bytes = 0
        self._waiting: list[Callable[[], None]] = []

    @property
    def is_short(self) -> bool:
        return self.used_bytes >= self.limit_bytes

    @property
    def is_waited_for(self) -> bool:
        return bool(self._waiting)

    def change(self, by_bytes: int) -> None:
        """A connection holds that much more, or less."""
        self.used_bytes += by_bytes
        if by_bytes < 0 and self._waiting and not self.is_short:
            woken, self._waiting = self._waiting, []
            for wake in woken:
                wake()

    def when_not_short(self, wake: Callable[[], None]) -> None:
        self._waiting.append(wake)

    def answer_bytes(self) -> int:
        """How many bytes of records an answer may carry now."""
        return min(ANSWER_BYTES_MAX, max(ANSWER_BYTES_MIN, (self.limit_bytes - self.used_bytes) // 4))
