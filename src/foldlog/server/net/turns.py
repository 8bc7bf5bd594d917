"""Long work on the event loop, one slice of it in each turn of the loop.

However many connections have sent a large request: between two slices of any of them the loop looks at all connections.
"""

from __future__ import annotations

import asyncio
import gc
import threading
from collections import deque
from collections.abc import AsyncIterator, Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager
from typing import Final, TypeVar

from foldlog.limits import COLLECTION_DELAY_MAX_S, STEP_ITEMS
from foldlog.wire.codec import Steps
from foldlog.wire.schema import Message

Item = TypeVar("Item")
Name = TypeVar("Name", bound=Hashable)
Outer = TypeVar("Outer")
Result = TypeVar("Result")


class LoopTurns:
    """Gives the turns of the event loop to who has long work, in the order in which they ask. Event loop only."""

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

    @contextmanager
    def long_work(self) -> Iterator[None]:
        """Inside, the collector does not traverse everything there is: with a quarter of a million items that takes
        150 ms, again and again while they are made, and messages have no cycles. New objects it still looks at."""
        _full_collections.postpone(self._loop.time())
        try:
            yield
        finally:
            _full_collections.allow()

    async def let_go(self, held: list[object]) -> None:
        """Free what `items_in` has found in a message that is gone: to free all in one go takes 50 ms."""
        while held:
            del held[-STEP_ITEMS:]
            await self.next()

    async def run(self, steps: Steps[Result]) -> Result:
        """The result of the steps, each of which is a slice."""
        while True:
            try:
                next(steps)
            except StopIteration as done:
                result: Result = done.value
                return result
            await self.next()

    async def over(self, items: Sequence[Item]) -> AsyncIterator[Item]:
        """The items, with a turn between slices of them."""
        for start in range(0, len(items), STEP_ITEMS):
            if start:
                await self.next()
            for item in items[start : start + STEP_ITEMS]:
                yield item

    async def within(
        self, structs: Sequence[Outer], items_of: Callable[[Outer], Sequence[Item]]
    ) -> AsyncIterator[tuple[Outer, Sequence[Item]]]:
        """Each struct with some of its items, and again with the next ones; with a turn between slices of all."""
        looked_at = 0
        for struct in structs:
            items = items_of(struct)
            looked_at += 1
            for start in range(0, len(items), STEP_ITEMS):
                some = items[start : start + STEP_ITEMS]
                looked_at += len(some)
                yield struct, some
                if looked_at >= STEP_ITEMS:
                    looked_at = 0
                    await self.next()

    async def repeated(self, names: Sequence[Name]) -> set[Name]:
        """The names that occur more than once."""
        seen: set[Name] = set()
        twice: set[Name] = set()
        await self.each(lambda name: (twice if name in seen else seen).add(name), names)
        return twice

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


class _FullCollections:
    """Postponed as long as some long work asks for it. One for all loops of the process, as the collector is."""

    _NEVER: Final = 1 << 30

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._asking = 0
        self._since = 0.0
        self._usual = gc.get_threshold()

    def postpone(self, now: float) -> None:
        with self._lock:
            if not self._asking:
                self._since = now
                self._usual = gc.get_threshold()
                gc.set_threshold(*self._usual[:2], self._NEVER)
            elif now - self._since > COLLECTION_DELAY_MAX_S:
                gc.set_threshold(*self._usual)  # large requests without end: what has cycles must go all the same
            self._asking += 1

    def allow(self) -> None:
        with self._lock:
            self._asking -= 1
            if not self._asking:
                gc.set_threshold(*self._usual)


_full_collections: Final = _FullCollections()


def items_in(message: Message) -> Steps[list[object]]:
    """The items of all arrays of a message. The message itself is not changed: some of its lists are others'."""
    found: list[object] = []
    waiting = [message]
    looked_at = 0
    while waiting:
        struct = waiting.pop()
        for field in type(struct).SCHEMA:
            items = getattr(struct, field.name) if field.is_array else None
            if items:
                found += items
                if field.item is not None and any(inner.is_array for inner in field.item.SCHEMA):
                    waiting += items
        looked_at += 1
        if looked_at % STEP_ITEMS == 0:
            yield
    return found


def at_once(steps: Steps[Result]) -> Result | None:
    """The result, if one step is enough; otherwise None, after that step."""
    try:
        next(steps)
    except StopIteration as done:
        result: Result = done.value
        return result
    return None
