"""Long polls: who waits for which partition to move."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from foldlog.log.partition import Partition


class Waiter(Protocol):
    """Woken on the event loop, perhaps for nothing; it waits no longer then."""

    def moved(self) -> None: ...


class _Watch:
    """Of one partition. Called by whoever moves its high watermark, on any thread: it only tells the loop, once."""

    def __init__(self, partition: Partition, soon: Callable[..., None], wake: Callable[[_Watch], None]) -> None:
        self.partition = partition
        self.waiters: set[Waiter] = set()
        self._soon = soon
        self._wake = wake
        self.is_told = False

    def __call__(self) -> None:
        if not self.is_told:
            self.is_told = True
            self._soon(self._wake, self)


class Arrivals:
    """The event loop's, but for the watches."""

    def __init__(self, soon: Callable[..., None]) -> None:
        self._soon = soon
        self._watches: dict[Any, _Watch] = {}

    def wait(self, partition: Partition, waiter: Waiter) -> None:
        """Wake `waiter` at the next move of the partition's high watermark or start, or when it is closed."""
        watch = self._watches.get(partition)
        if watch is None:
            watch = self._watches[partition] = _Watch(partition, self._soon, self._moved)
            partition.watch(watch)
        watch.waiters.add(waiter)

    def are_awaited(self, partition: Partition) -> bool:
        return partition in self._watches

    def forget(self, partition: Partition, waiter: Waiter) -> None:
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
        """The broker is leaving: nobody waits any longer."""
        for watch in tuple(self._watches.values()):
            self._moved(watch)
