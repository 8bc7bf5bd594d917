"""The threads that make partitions durable for those who do not want to wait themselves."""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable
from typing import Protocol

from foldlog.limits import SYNC_THREADS

logger = logging.getLogger("foldlog.log")


class Syncable(Protocol):
    """What the pool can sync; each is synced by one thread at a time."""

    def sync(self) -> None:
        """Make everything appended so far durable and tell who waits; a fault is told to them too."""
        ...


OnSynced = Callable[[float, int, int], None]
"""Seconds that a sync took, bytes and records that it made durable."""


class Syncer:
    """A small pool. Threads start with the first request and sleep without a timer when there is nothing to do.

    A partition is queued at most once: what is appended while it waits for its turn shares the one sync. `on_synced`
    is told of every sync of a partition, also of those that did not need the pool, on the thread that ran it and under
    the partition's lock: it must be quick.
    """

    def __init__(self, threads: int = SYNC_THREADS) -> None:
        self.on_synced: OnSynced | None = None
        self._limit = threads
        self._ready = threading.Condition(threading.Lock())
        self._queue: deque[Syncable] = deque()
        self._queued: set[int] = set()
        self._threads: list[threading.Thread] = []
        self._idle = 0
        self._closed = False

    def request(self, partition: Syncable) -> None:
        """Sync `partition` soon, on another thread."""
        with self._ready:
            if id(partition) in self._queued:
                return
            self._queued.add(id(partition))
            self._queue.append(partition)
            if self._idle:
                self._idle -= 1  # here, not by the thread that wakes: the next request must not count on it too
                self._ready.notify()
            elif len(self._threads) < self._limit and not self._closed:
                thread = threading.Thread(target=self._run, name=f"foldlog-sync-{len(self._threads)}", daemon=True)
                self._threads.append(thread)
                thread.start()

    def _run(self) -> None:
        while True:
            with self._ready:
                while not self._queue:
                    if self._closed:
                        return
                    self._idle += 1
                    self._ready.wait()
                partition = self._queue.popleft()
                # From here on a new append must queue again: this sync may not cover it.
                self._queued.discard(id(partition))
            _sync(partition)

    def close(self) -> None:
        """Finish what is queued and end the threads."""
        with self._ready:
            self._closed = True
            self._ready.notify_all()
        for thread in self._threads:
            if thread is not threading.current_thread():
                thread.join()
        while self._queue:  # requested after the last thread looked
            _sync(self._queue.popleft())


def _sync(partition: Syncable) -> None:
    try:
        partition.sync()
    except Exception:
        # A fault of the disk is told to who waits. Whatever else it is, the other partitions need this thread.
        logger.exception("a partition could not be synced")
