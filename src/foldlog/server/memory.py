"""How much memory requests and answers may take together, over all connections."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final

from foldlog.limits import CONNECTION_STALL_MS, MEMORY_TURN_STALL_MS, MEMORY_TURN_SWEEPS

ANSWER_BYTES_MAX: Final = 8 << 20
"""Of records in one Fetch answer while memory is at hand; what a client asks for beyond it comes with the next."""

ANSWER_BYTES_MIN: Final = 64 << 10
"""The same when memory is short: below this the cost of a fetch is in the call, not in the bytes."""


class MemoryBudget:
    """Bytes that connections hold: frames that are not complete, buffers they keep, answers nobody has read yet.

    The event loop's. What is over the limit is not refused: who wants more waits (incoming) or gets less (outgoing).

    If everybody waited, and what is held were frames that are not complete, nothing would ever be given back. So there
    are turns: above the limit one connection goes on until its frame is complete and dealt with, then the next that
    waits. Together they hold no more than the limit, one request, and what each has received at once.
    """

    def __init__(self, limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes
        self.used_bytes = 0
        self._waiting: deque[HeldMemory] = deque()
        self._in_turn: HeldMemory | None = None
        self._is_received = False  # of whose turn it is, the frame
        self._turn_sweeps = 0

    @property
    def is_short(self) -> bool:
        return self.used_bytes >= self.limit_bytes

    @property
    def is_waited_for(self) -> bool:
        return bool(self._waiting)

    @property
    def in_turn(self) -> HeldMemory | None:
        """Who may exceed the limit now."""
        return self._in_turn

    def change(self, by_bytes: int) -> None:
        """A connection holds that much more, or less."""
        self.used_bytes += by_bytes
        if by_bytes < 0:
            self._wake()

    def must_wait(self, holder: HeldMemory) -> bool:
        """Whether the holder's frame may not become larger now."""
        if not self.is_short:
            return False
        if self._in_turn is None:
            self._begin_turn(holder)
            return False
        if self._in_turn is holder and not self._is_received:
            return False
        self._waiting.append(holder)
        return True

    def received(self, holder: HeldMemory) -> None:
        """The holder's frame is complete; the next one is for another turn."""
        if self._in_turn is holder:
            self._is_received = True

    def given_back(self, holder: HeldMemory) -> None:
        """The holder has no frame that is being dealt with."""
        if self._in_turn is holder and self._is_received:
            self._end_turn()

    def forget(self, holder: HeldMemory) -> None:
        """The connection is gone, with all it held."""
        if holder in self._waiting:
            self._waiting.remove(holder)
        if self._in_turn is holder:
            self._end_turn()

    def sweep(self) -> None:
        """About once a second: who takes long does not keep the others waiting for ever."""
        self._turn_sweeps += 1
        if self._in_turn is not None and self._turn_sweeps > MEMORY_TURN_SWEEPS:
            self._end_turn()

    def _begin_turn(self, holder: HeldMemory) -> None:
        self._in_turn = holder
        self._is_received = False
        self._turn_sweeps = 0

    def _end_turn(self) -> None:
        self._in_turn = None
        self._wake()

    def _wake(self) -> None:
        if not self.is_short:
            self._in_turn = None  # there are no turns while there is enough
            woken, self._waiting = self._waiting, deque()
            for holder in woken:
                holder.wake()
        elif self._in_turn is None and self._waiting:
            holder = self._waiting.popleft()
            self._begin_turn(holder)
            holder.wake()

    def answer_bytes(self) -> int:
        """How many bytes of records an answer may carry now."""
        return min(ANSWER_BYTES_MAX, max(ANSWER_BYTES_MIN, (self.limit_bytes - self.used_bytes) // 4))


class HeldMemory:
    """What one connection holds of the budget. The event loop's. `go_on` is called when its frame may become larger."""

    def __init__(self, budget: MemoryBudget, go_on: Callable[[], None]) -> None:
        self._budget = budget
        self._go_on = go_on
        self.held_bytes = 0
        self.is_waiting = False

    def account(self, held_bytes: int, *, is_idle: bool) -> None:
        """It holds that much now; idle, if no frame of it is being dealt with."""
        if held_bytes != self.held_bytes:
            change, self.held_bytes = held_bytes - self.held_bytes, held_bytes
            self._budget.change(change)
        if is_idle:
            self._budget.given_back(self)

    def must_wait(self) -> bool:
        """Whether its frame may not become larger now."""
        self.is_waiting = self.is_waiting or self._budget.must_wait(self)
        return self.is_waiting

    def wake(self) -> None:
        self.is_waiting = False
        self._go_on()

    def received(self) -> None:
        """Its frame is complete."""
        self._budget.received(self)

    def is_in_the_way(self, idle_ms: float, *, is_sent: bool) -> bool:
        """Whether others wait for what it holds, and it is the client who does not go on."""
        if not self.held_bytes or not self._budget.is_waited_for or (self.is_waiting and is_sent):
            return False
        return idle_ms > (MEMORY_TURN_STALL_MS if self._budget.in_turn is self else CONNECTION_STALL_MS)

    def close(self) -> None:
        self.account(0, is_idle=False)
        self._budget.forget(self)
