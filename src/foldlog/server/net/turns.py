"""Long work on the event loop, one slice of it in each turn of the loop.

However many connections have sent a large request: between two slices of any of them the loop looks at all connections.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from typing import TypeVar

from foldlog.limits import STEP_ITEMS
from foldlog.wire.codec import Steps

Item = TypeVar("Item")
Result = TypeVar("Result")


class Turns:
    """Gives the turns of the event loop to those who have long work, in the order in which they ask. Event loop only."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._is_due = False

    async def next(self) -> None:
        """Wait for a turn: after the loop has looked at all connections, and behind others that ask."""
        turn: asyncio.Future[None] = self._loop.create_future()
        self._waiting.append(turn)
        if not self._is_due:
            self._is_due = True
            self._loop.call_soon(self._give)
        await turn

    def _give(self) -> None:
        while self._waiting:
            turn = self._waiting.popleft()
            if not turn.done():  # its connection may be gone
                turn.set_result(None)
                break
        self._is_due = bool(self._waiting)
        if self._is_due:
            self._loop.call_soon(self._give)

    async def run(self, steps: Steps[Result]) -> Result:
        """The result of the steps, each of which is a slice."""
        while True:
            try:
                next(steps)
            except StopIteration as done:
                result: Result = done.value
                return result
            await self.next()

    async def each(
        self, function: Callable[[Item], Result], items: Sequence[Item], at_once: int = STEP_ITEMS
    ) -> list[Result]:
        """The results of the function for the items, so many in a slice; few items need no turn."""
        results: list[Result] = []
        for start in range(0, len(items), at_once):
            if start:
                await self.next()
            results += map(function, items[start : start + at_once])
        return results


def at_once(steps: Steps[Result]) -> Result | None:
    """The result, if one step is enough; otherwise None, after that step."""
    try:
        next(steps)
    except StopIteration as done:
        result: Result = done.value
        return result
    return None
