"""What was read of objects lately: blocks of a fixed size, in memory, up to a bound for the whole directory.

A block is asked for once, however many readers wait for it. Who reads one block after the other finds the next one on
its way: the store's latency is paid once, and not with every block.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from typing import Final

from foldlog.errors import FoldlogError, StoreError
from foldlog.log.tier.standing import TierCounts

BLOCK_BYTES: Final = 4 << 20
_AHEAD_THREADS: Final = 2

Key = tuple[str, int]
"""An object and the number of a block in it."""

Load = Callable[[], bytes]


class BlockCache:
    """Any thread. `limit_bytes` bounds what is kept; what readers hold while they use it comes on top."""

    def __init__(self, limit_bytes: int, counts: TierCounts | None = None) -> None:
        self._counts = counts or TierCounts()
        self._limit_bytes = limit_bytes
        self._lock = threading.Lock()  # a leaf: nothing is loaded under it
        self._blocks: OrderedDict[Key, bytes] = OrderedDict()
        self._held_bytes = 0
        self._loading: dict[Key, Future[bytes]] = {}
        self._ahead: ThreadPoolExecutor | None = None
        self._is_closed = False

    @property
    def held_bytes(self) -> int:
        return self._held_bytes

    def has(self, key: Key) -> bool:
        """Takes no lock."""
        return key in self._blocks

    def get(self, key: Key, load: Load) -> bytes:
        """The block, loaded by this thread or by one that already does. Raises what loading raises."""
        with self._lock:
            found = self._blocks.get(key)
            if found is not None:
                self._blocks.move_to_end(key)
            waited = self._loading.get(key)
            mine: Future[bytes] = Future()
            if found is None and waited is None:
                self._loading[key] = mine
        if found is not None:
            self._counts.add(cache_hits=1)
            return found
        self._counts.add(cache_misses=1)
        if waited is not None:
            return waited.result()
        return self._load(key, load, mine)

    def ahead(self, key: Key, load: Load) -> None:
        """Begin to load a block that will be asked for, unless it is here or there is no room for it."""
        with self._lock:
            is_known = key in self._blocks or key in self._loading
            if is_known or self._is_closed or self._limit_bytes < 2 * BLOCK_BYTES:
                return
            if self._ahead is None:
                self._ahead = ThreadPoolExecutor(_AHEAD_THREADS, thread_name_prefix="foldlog-tier-ahead")
            mine: Future[bytes] = Future()
            self._loading[key] = mine
            self._ahead.submit(self._load_ahead, key, load, mine)

    def later(self, work: Callable[[], object]) -> None:
        """Do something ahead of need, on a thread of these; what fails is done, and told, when it is needed."""

        def quietly() -> None:
            with suppress(FoldlogError):
                work()

        with self._lock:
            if self._is_closed or self._limit_bytes < 2 * BLOCK_BYTES:
                return
            if self._ahead is None:
                self._ahead = ThreadPoolExecutor(_AHEAD_THREADS, thread_name_prefix="foldlog-tier-ahead")
            self._ahead.submit(quietly)

    def _load_ahead(self, key: Key, load: Load, mine: Future[bytes]) -> None:
        with suppress(FoldlogError):  # who needs the block asks again, and is told
            self._load(key, load, mine)

    def _load(self, key: Key, load: Load, mine: Future[bytes]) -> bytes:
        try:
            data = load()
        except BaseException as error:
            with self._lock:
                self._loading.pop(key, None)
            told = error if isinstance(error, FoldlogError) else StoreError(f"{key[0]} could not be read: {error}")
            mine.set_exception(told)
            raise
        with self._lock:
            self._loading.pop(key, None)
            self._keep(key, data)
        mine.set_result(data)
        return data

    def _keep(self, key: Key, data: bytes) -> None:
        self._blocks[key] = data
        self._held_bytes += len(data)
        while self._held_bytes > self._limit_bytes and self._blocks:
            _, dropped = self._blocks.popitem(last=False)
            self._held_bytes -= len(dropped)

    def forget(self, name: str) -> None:
        """Drop the blocks of an object: it is gone, or what was read of it is wrong."""
        with self._lock:
            for key in [key for key in self._blocks if key[0] == name]:
                self._held_bytes -= len(self._blocks.pop(key))

    def close(self) -> None:
        with self._lock:
            self._is_closed = True
            self._blocks.clear()
            self._held_bytes = 0
            ahead, self._ahead = self._ahead, None
        if ahead is not None:
            ahead.shutdown(wait=False, cancel_futures=True)
