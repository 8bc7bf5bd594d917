"""Requests that wait for a partition, as in Kafka's purgatory: a Produce for its sync, a Fetch for the next record.

`Syncs` decides when records are synced: as soon as everything that came together is written, or later if no client
waits. A sync for the first batch of many would make the others wait for the next one. So waiting requests are gathered
until the loop has processed every connection, and then one sync serves them all: group commit across connections.
Records sent with acks=1 or acks=0 have to be synced too, since readers see only what is durable, but in no hurry unless
a client reads, or asks where the log ends: an answer never denies what was acknowledged, so it waits for the sync
(`catch_up`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Protocol

from foldlog.errors import FoldlogError, WaitTimeout
from foldlog.limits import SYNC_WAIT_MS

if TYPE_CHECKING:
    from foldlog.log.partition import Partition

_DEFERRED_SYNC_S: Final = 0.01
"""How long a record may stay unsynced while no client waits for it; reading processes look every 20 ms at most."""


class DelayedFetch(Protocol):
    """A Fetch that waits for more records. Woken on the event loop, perhaps for nothing; it no longer waits then."""

    def moved(self) -> None: ...


class _Watch:
    """Watches one partition. Called on any thread that moves its high watermark: it only wakes the loop, once."""

    def __init__(self, partition: Partition, soon: Callable[..., None], wake: Callable[[_Watch], None]) -> None:
        self.partition = partition
        self.waiters: set[DelayedFetch] = set()
        self._soon = soon
        self._wake = wake
        self.is_told = False

    def __call__(self) -> None:
        # Without a lock: two threads that both find it unset wake the loop twice, which costs little. It is reset on
        # the loop before the waiters look, so a move in the meantime wakes the loop again.
        if not self.is_told:
            self.is_told = True
            self._soon(self._wake, self)


class FetchPurgatory:
    """Fetches that wait for a partition to move (long polls). Event loop only, except for the watches."""

    def __init__(self, soon: Callable[..., None]) -> None:
        self._soon = soon
        self._watches: dict[Any, _Watch] = {}

    def wait(self, partition: Partition, waiter: DelayedFetch) -> None:
        """Wake `waiter` at the next move of the partition's high watermark or start, or when it is closed."""
        watch = self._watches.get(partition)
        if watch is None:
            watch = self._watches[partition] = _Watch(partition, self._soon, self._moved)
            partition.watch(watch)
        # The handler reads once more after this: a record between its read and the watch would wake no waiter.
        watch.waiters.add(waiter)

    def are_awaited(self, partition: Partition) -> bool:
        return partition in self._watches

    def forget(self, partition: Partition, waiter: DelayedFetch) -> None:
        watch = self._watches.get(partition)
        if watch is not None:
            watch.waiters.discard(waiter)
            if not watch.waiters:
                del self._watches[partition]
                partition.unwatch(watch)

    def _moved(self, watch: _Watch) -> None:
        watch.is_told = False
        for waiter in tuple(watch.waiters):
            waiter.moved()

    def wake_all(self) -> None:
        """The broker is stopping: wake all waiters."""
        for watch in tuple(self._watches.values()):
            self._moved(watch)


Waiter = Callable[[FoldlogError | None], None]


class Syncs:
    """Begins the syncs of all partitions. Event loop only; waiters are called there, once, with the error or None.

    Waiting requests need no timer: `call_soon` runs after the callbacks of every socket that was readable in this turn
    of the loop, so all that had arrived by then is written and shares the sync. What arrives during the sync is
    gathered for the next one. This assumes that only the loop appends small batches; a queued append reports to the
    loop with `soon`, and so joins the same gathering.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, soon: Callable[..., None], fetches: FetchPurgatory) -> None:
        self._loop = loop
        self._soon = soon
        self._fetches = fetches
        self._awaited: dict[Partition, tuple[int, list[Waiter]]] = {}
        self._deferred: dict[Partition, int] = {}
        self._is_scheduled = False
        self._timer: asyncio.TimerHandle | None = None

    def wait(self, partition: Partition, next_offset: int, waiter: Waiter) -> None:
        """Call `waiter` once the partition has acknowledged everything below `next_offset`."""
        self._add(partition, next_offset, waiter)

    def written(self, partition: Partition, next_offset: int) -> None:
        """Records were acknowledged before they are durable, and no client waits: sync them in a while, or now if a
        fetch waits for the partition. Requests for the end of the log wait for this offset from now on."""
        partition.acknowledged_early(next_offset)
        if self._fetches.are_awaited(partition):
            self._add(partition, next_offset, None)
            return
        # The largest, not the last: threads report their appends in any order, and a duplicate has its old offset.
        self._deferred[partition] = max(next_offset, self._deferred.get(partition, 0))
        if self._timer is None:
            self._timer = self._loop.call_later(_DEFERRED_SYNC_S, self._begin_deferred)

    def sync_now(self, partition: Partition) -> None:
        """Begin a deferred sync now: a client wants to read."""
        next_offset = self._deferred.pop(partition, None)
        if next_offset is not None:
            self._add(partition, next_offset, None)

    async def catch_up(
        self, partitions: Iterable[Partition], timeout_ms: int | None = None
    ) -> dict[Partition, FoldlogError]:
        """Wait until everything acknowledged in these partitions is durable, for answers that say where they end.
        Returns for each that is not the error of its sync, or WaitTimeout if it takes too long."""
        behind = {one: self._loop.create_future() for one in partitions if one.high_watermark < one.acknowledged_offset}
        if not behind:
            return {}
        timeout_ms = SYNC_WAIT_MS if timeout_ms is None else timeout_ms
        for partition, reached in behind.items():
            self.wait(partition, partition.acknowledged_offset, partial(_resolve, reached))
        await asyncio.wait(behind.values(), timeout=timeout_ms / 1000)
        failed: dict[Partition, FoldlogError] = {}
        for partition, reached in behind.items():
            if not reached.done():
                reached.cancel()
                failed[partition] = WaitTimeout(f"{partition.path} was not synced within {timeout_ms} ms; ask again")
            elif (error := reached.result()) is not None:
                failed[partition] = error
        return failed

    def finish(self) -> None:
        """The broker stops, and the loop makes no more calls: begin every pending sync."""
        self._begin_deferred()
        self._begin()

    def _add(self, partition: Partition, next_offset: int, waiter: Waiter | None) -> None:
        # One callback for all waiters of a partition, at the largest of their offsets: they share the sync anyway, and
        # a list of callbacks with an offset each would be scanned for each record.
        known_offset, waiters = self._awaited.get(partition) or (next_offset, [])
        self._awaited[partition] = (max(known_offset, next_offset), waiters)
        if waiter is not None:
            waiters.append(waiter)
        if not self._is_scheduled:
            self._is_scheduled = True
            self._loop.call_soon(self._begin)

    def _begin_deferred(self) -> None:
        self._timer = None
        for partition in tuple(self._deferred):
            self.sync_now(partition)

    def _begin(self) -> None:
        self._is_scheduled = False
        # Taken whole before the first sync: a waiter that is called at once may add the next batch.
        awaited, self._awaited = self._awaited, {}
        for partition, (next_offset, waiters) in awaited.items():
            # This sync covers deferred records up to the awaited offset; those beyond it keep their timer.
            if self._deferred.get(partition, next_offset) <= next_offset:
                self._deferred.pop(partition, None)
            partition.on_acknowledged(next_offset, partial(self._soon, _tell, waiters), is_quick=True)


def _resolve(reached: asyncio.Future[FoldlogError | None], error: FoldlogError | None) -> None:
    if not reached.done():
        reached.set_result(error)


def _tell(waiters: list[Waiter], error: FoldlogError | None) -> None:
    for waiter in waiters:
        waiter(error)
