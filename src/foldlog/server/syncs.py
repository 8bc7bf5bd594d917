"""When what is written is synced: as soon as everything that came together is written, or later if nobody waits.

A sync for the first batch of many would keep the others waiting for the next one. So those who wait are gathered until
the loop has looked at every connection, and then one sync serves them all. What was sent with acks=1 or acks=0 has to
be synced too, since readers see only what is durable, but in no hurry unless somebody reads.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Final

from foldlog.errors import FoldlogError

if TYPE_CHECKING:
    import asyncio

    from foldlog.log.partition import Partition
    from foldlog.server.arrivals import Arrivals

_UNHURRIED_S: Final = 0.01
"""How long a record may wait for its sync while nobody waits for it; reading processes look every 20 ms at most."""

Waiter = Callable[[FoldlogError | None], None]


class Syncs:
    """The event loop's. Waiters are called there, once, with what went wrong or None."""

    def __init__(self, loop: asyncio.AbstractEventLoop, soon: Callable[..., None], arrivals: Arrivals) -> None:
        self._loop = loop
        self._soon = soon
        self._arrivals = arrivals
        self._awaited: dict[Partition, tuple[int, list[Waiter]]] = {}
        self._unhurried: dict[Partition, int] = {}
        self._is_scheduled = False
        self._timer: asyncio.TimerHandle | None = None

    def wait(self, partition: Partition, next_offset: int, waiter: Waiter) -> None:
        """Call `waiter` once everything below `next_offset` is acknowledged by the partition."""
        self._add(partition, next_offset, waiter)

    def written(self, partition: Partition, next_offset: int) -> None:
        """Nobody waits for it: sync it in a while, or now if a fetch waits for the partition."""
        if self._arrivals.are_awaited(partition):
            self._add(partition, next_offset, None)
            return
        # Not simply the last: threads tell of their appends in any order, and a duplicate has the offset it had.
        self._unhurried[partition] = max(next_offset, self._unhurried.get(partition, 0))
        if self._timer is None:
            self._timer = self._loop.call_later(_UNHURRIED_S, self._begin_unhurried)

    def hurry(self, partition: Partition) -> None:
        """Somebody wants to read it."""
        next_offset = self._unhurried.pop(partition, None)
        if next_offset is not None:
            self._add(partition, next_offset, None)

    def finish(self) -> None:
        """The broker leaves, and nobody calls any more: begin every sync that is to come."""
        self._begin_unhurried()
        self._begin()

    def _add(self, partition: Partition, next_offset: int, waiter: Waiter | None) -> None:
        known_offset, waiters = self._awaited.get(partition) or (next_offset, [])
        self._awaited[partition] = (max(known_offset, next_offset), waiters)
        if waiter is not None:
            waiters.append(waiter)
        if not self._is_scheduled:
            self._is_scheduled = True
            self._loop.call_soon(self._begin)

    def _begin_unhurried(self) -> None:
        self._timer = None
        for partition in tuple(self._unhurried):
            self.hurry(partition)

    def _begin(self) -> None:
        self._is_scheduled = False
        awaited, self._awaited = self._awaited, {}
        for partition, (next_offset, waiters) in awaited.items():
            if self._unhurried.get(partition, next_offset) <= next_offset:
                self._unhurried.pop(partition, None)
            partition.on_acknowledged(next_offset, partial(self._soon, _tell, waiters), is_quick=True)


def _tell(waiters: list[Waiter], error: FoldlogError | None) -> None:
    for waiter in waiters:
        waiter(error)
