"""The partitions in use: each is opened, and recovered if need be, when it is first asked for."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager

from foldlog.errors import CorruptLog, LogClosed
from foldlog.log.follower import PartitionReader
from foldlog.log.partition import Partition

AnyPartition = Partition | PartitionReader
Key = tuple[str, int]
"""Topic and partition number."""


class OpenPartitions:
    """Open partitions by topic and number. Any thread.

    Opening holds a lock of that partition only: the recovery of one never keeps another waiting. One that
    refuses with CorruptLog stays refused until the log is reopened; it is not scanned again at each call.
    """

    def __init__(self, open_one: Callable[[str, int], AnyPartition]) -> None:
        self._open_one = open_one
        self._partitions: dict[Key, AnyPartition] = {}
        self._refused: dict[Key, CorruptLog] = {}
        self._key_locks: dict[Key, threading.Lock] = {}
        self._lock = threading.Lock()
        self._closed = False

    def get(self, key: Key) -> AnyPartition | None:
        """The partition if it is open. Takes no lock: this is what every append and read goes through."""
        return self._partitions.get(key)

    def open(self, key: Key) -> AnyPartition:
        """The partition, opened now if it is not yet. Raises what opening it raises."""
        with self._key_lock(key):
            partition = self._partitions.get(key)
            if partition is not None:
                return partition
            if self._closed:
                raise LogClosed("the log is closed; open it again")
            refused = self._refused.get(key)
            if refused is not None:
                raise CorruptLog(refused.path, refused.position, refused.reason)
            try:
                partition = self._open_one(*key)
            except CorruptLog as error:
                self._refused[key] = error
                raise
            self._partitions[key] = partition
            return partition

    def each_open(self, keys: Iterable[Key]) -> Iterator[AnyPartition]:
        """Those of `keys` that are open, each while nobody is just opening it."""
        for key in keys:
            with self._key_lock(key):
                partition = self._partitions.get(key)
                if partition is not None:
                    yield partition

    def open_count(self) -> int:
        return len(self._partitions)

    def opened(self) -> list[AnyPartition]:
        """All that are open now. Takes no lock."""
        return list(self._partitions.values())

    def refusal_of(self, key: Key) -> CorruptLog | None:
        return self._refused.get(key)

    def refusals(self) -> list[CorruptLog]:
        return list(self._refused.values())

    @contextmanager
    def closed(self, keys: Iterable[Key]) -> Iterator[None]:
        """Close these partitions and keep anybody from opening them inside the block."""
        keys = list(keys)
        with ExitStack() as stack:
            for key in keys:
                stack.enter_context(self._key_lock(key))
            for key in keys:
                partition = self._partitions.get(key)
                if partition is not None:
                    partition.close()
                    del self._partitions[key]
                self._refused.pop(key, None)
            yield

    def close(self) -> list[Exception]:
        """Close all, for good. Returns what went wrong; a fault of one does not keep another from closing."""
        with self._lock:
            self._closed = True
            keys = list(self._key_locks)
        faults: list[Exception] = []
        for key in keys:
            with self._key_lock(key):
                partition = self._partitions.pop(key, None)
                if partition is not None:
                    try:
                        partition.close()
                    except Exception as error:  # noqa: BLE001  reported by the caller once all are closed
                        faults.append(error)
        return faults

    def abandon(self) -> None:
        """In a forked child: forget all without touching them or waiting for a lock that another thread held."""
        self._closed = True
        self._partitions.clear()

    def _key_lock(self, key: Key) -> threading.Lock:
        with self._lock:
            lock = self._key_locks.get(key)
            if lock is None:
                lock = self._key_locks[key] = threading.Lock()
            return lock
