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

    def begin_sync(self) -> int | None:
        """The same in two halves: the descriptor to sync. None, and nothing begun, where `sync` has to do it."""
        ...

    def end_sync(self, error_number: int, is_nameless: bool, seconds: float) -> None:
        """That descriptor was synced, or could not be."""
        ...


class DescriptorThreads(Protocol):
    """`files.sync_threads.SyncThreads`: what runs the first half's sync without the interpreter's lock."""

    def submit(self, descriptor: int, ticket: int) -> None: ...

    def done(self) -> list[tuple[int, int, bool, float]]: ...

    def close(self) -> list[tuple[int, int, bool, float]]: ...


OnSynced = Callable[[float, int, int], None]
"""Seconds that a sync took, bytes and records that it made durable."""


class Syncer:
    """A small pool. Threads start with the first request and sleep without a timer when there is nothing to do.

    A partition is queued at most once, and synced by one thread at a time: what is appended while it waits for its
    turn shares the one sync, and what is appended during a sync shares the next. Of the threads that sleep the last is
    woken first: one that is enough for the work does all of it. (Measured with one busy partition: when others waited
    for its lock and took turns, a sync cost twenty futex calls.)

    Who has an event loop may lend it other threads, which sync descriptors without the interpreter's lock, and calls
    `settle` when one is through.

    `on_synced` is told of every sync of a partition, also of those that did not need the pool, on the thread that ran
    it and under the partition's lock: it must be quick.
    """

    def __init__(self, threads: int = SYNC_THREADS) -> None:
        self.on_synced: OnSynced | None = None
        self._limit = threads
        self._lock = threading.Lock()
        self._queue: deque[Syncable] = deque()
        self._queued: set[int] = set()
        self._again: dict[int, bool] = {}  # of those that are being synced: whether that was asked for meanwhile
        self._threads: list[threading.Thread] = []
        self._asleep: list[threading.Lock] = []
        self._closed = False
        self._lent: DescriptorThreads | None = None
        self._under_way: dict[int, Syncable] = {}  # on lent threads
        self._over: deque[tuple[int, int, bool, float]] = deque()  # what they are through with, until it is settled

    def lend(self, threads: DescriptorThreads) -> bool:
        """Sync with these from now on, where that is possible, until `give_back`. Not if others are lent already."""
        with self._lock:
            if self._lent is not None:
                return False
            self._lent = threads
            return True

    def give_back(self) -> None:
        """Returns when what the lent threads do is done, and settled here; they are closed then."""
        with self._lock:
            threads, self._lent = self._lent, None
        if threads is not None:
            self._over.extend(threads.close())
            self._settle()

    def settle(self) -> None:
        """Lent threads may be through with something. Any thread, whatever locks it holds."""
        threads = self._lent
        if threads is not None:
            self._over.extend(threads.done())
            self._settle()

    def request(self, partition: Syncable) -> None:
        """Sync `partition` soon, on another thread."""
        with self._lock:
            if id(partition) in self._again:
                self._again[id(partition)] = True  # the sync that runs may not cover it
            elif id(partition) not in self._queued and not self._begin(partition):
                self._enqueue(partition)
                self._find_thread()

    def _begin(self, partition: Syncable) -> bool:
        """On a lent thread, if that can be."""
        threads = self._lent
        if threads is None:
            return False
        descriptor = partition.begin_sync()
        if descriptor is None:
            return False
        self._under_way[id(partition)] = partition
        self._again[id(partition)] = False
        threads.submit(descriptor, id(partition))
        return True

    def _settle(self) -> None:
        """One after the other, by whoever comes: an interrupt in the middle loses none of the rest."""
        while self._over:
            try:
                ticket, error_number, is_nameless, seconds = self._over.popleft()
            except IndexError:
                return  # another thread was quicker
            partition = self._under_way.pop(ticket)
            try:
                partition.end_sync(error_number, is_nameless, seconds)
            except Exception:
                logger.exception("a partition could not be synced")
            finally:
                with self._lock:
                    if self._again.pop(ticket) and not self._begin(partition):
                        self._enqueue(partition)
                        self._find_thread()

    def _enqueue(self, partition: Syncable) -> None:
        self._queued.add(id(partition))
        self._queue.append(partition)

    def _find_thread(self) -> None:
        if self._asleep:
            self._asleep.pop().release()
        elif len(self._threads) < self._limit and not self._closed:
            thread = threading.Thread(target=self._run, name=f"foldlog-sync-{len(self._threads)}", daemon=True)
            self._threads.append(thread)
            thread.start()

    def _run(self) -> None:
        woken = threading.Lock()
        woken.acquire()
        while True:
            self._lock.acquire()
            if self._queue:
                partition = self._queue.popleft()
                self._queued.discard(id(partition))
                self._again[id(partition)] = False
                self._lock.release()
                _sync(partition)
                with self._lock:
                    if self._again.pop(id(partition)) and not self._begin(partition):
                        self._enqueue(partition)  # behind the others that wait; this thread goes on with the first
            elif self._closed:
                self._lock.release()
                return
            else:
                self._asleep.append(woken)
                self._lock.release()
                woken.acquire()

    def close(self) -> None:
        """Finish what is queued and end the threads."""
        self.give_back()
        with self._lock:
            self._closed = True
            for woken in self._asleep:
                woken.release()
            self._asleep = []
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
