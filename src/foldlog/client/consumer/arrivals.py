"""Waiting for records without busy polling.

In the writing process, partitions call back when they have moved. A reading process gets no calls: it looks at the
checkpoint again after a pause, short at first, longer while nothing happens.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from threading import Event

from foldlog.limits import READER_POLL_MAX_MS, READER_POLL_MIN_MS
from foldlog.log.follower import FollowedPartition
from foldlog.log.partition import Partition

AnyPartition = Partition | FollowedPartition


class Arrivals:
    """Wakes one waiting reader. `ring` may be called from any thread; the rest belongs to the reader.

    To miss nothing: `reset`, then look, then `wait`.
    """

    def __init__(self) -> None:
        self._arrived = Event()
        self.ring: Callable[[], None] = self._arrived.set
        self._watched: set[Partition] = set()
        self._must_poll = False
        self.is_closed = False
        self._pause_ms = READER_POLL_MIN_MS
        # Partitions outlive a reader that is dropped without being closed.
        self._end = weakref.finalize(self, _unwatch_all, self._watched, self.ring)
        self._end.atexit = False

    def watch(self, partition: AnyPartition) -> None:
        """Ring whenever this partition has something new."""
        if isinstance(partition, Partition):
            if partition not in self._watched:
                self._watched.add(partition)
                partition.watch(self.ring)
        else:
            self._must_poll = True

    def unwatch(self, partition: AnyPartition) -> None:
        if isinstance(partition, Partition) and partition in self._watched:
            self._watched.discard(partition)
            partition.unwatch(self.ring)

    def close(self) -> None:
        """Unwatch all partitions, and wake the waiting thread."""
        self._end()
        self.is_closed = True
        self._arrived.set()

    def reset(self) -> None:
        self._arrived.clear()

    def found(self) -> None:
        """There was something: look again soon."""
        self._pause_ms = READER_POLL_MIN_MS

    def wait(self, timeout_ms: float | None) -> bool:
        """Wait until there may be something. False once `timeout_ms` have passed (None: no limit)."""
        if not self._must_poll:
            return self._arrived.wait(None if timeout_ms is None else max(timeout_ms, 0.0) / 1000)
        pause_ms = self._pause_ms
        self._pause_ms = min(pause_ms * 2, READER_POLL_MAX_MS)
        if timeout_ms is not None and timeout_ms <= pause_ms:
            return self._arrived.wait(max(timeout_ms, 0.0) / 1000)
        self._arrived.wait(pause_ms / 1000)
        return True


def _unwatch_all(watched: set[Partition], ring: Callable[[], None]) -> None:
    for partition in list(watched):
        partition.unwatch(ring)
    watched.clear()
