"""Partitions on their way to being open, for answers that need many of them: a few threads open what is asked for."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any, Final, Protocol, TypeVar

from foldlog.broker.open_partitions import AnyPartition, Key
from foldlog.errors import FoldlogError, StorageError, WaitTimeout

logger = logging.getLogger("foldlog.server")

Result = TypeVar("Result")

_THREADS: Final = 4
"""Of the node's workers: half, so that a directory full of long recoveries leaves some for the rest."""

WAIT_MS: Final = 2000
"""How long an answer waits. A clean partition opens in 0.1 ms: only a recovery takes longer, and clients ask again."""


class OpensPartitions(Protocol):
    """What is needed of a broker."""

    def opened_partition(self, topic: str, number: int) -> AnyPartition | None: ...

    def partition(self, topic: str, number: int) -> AnyPartition: ...


class Runs(Protocol):
    """What is needed of a node: a thread, the way back from it, and somebody to tell."""

    def run(self, function: Callable[..., Result], *arguments: Any) -> asyncio.Future[Result]: ...

    def soon(self, callback: Callable[..., None], *arguments: Any) -> None: ...

    def storage_failed(self, doing: str, topic: str, number: int, error: FoldlogError) -> None: ...


class Openings:
    """The event loop's. A partition that many ask for is opened once, and goes on opening when nobody waits for it."""

    def __init__(self, broker: OpensPartitions, node: Runs) -> None:
        self._broker = broker
        self._node = node
        self._under_way: dict[Key, asyncio.Future[FoldlogError | None]] = {}
        self._queue: deque[Key] = deque()
        self._threads = 0

    async def open(self, keys: Iterable[Key], wait_ms: int = WAIT_MS) -> dict[Key, FoldlogError]:
        """Open these. Returns why some are not: what opening raised, or WaitTimeout if it takes over `wait_ms`."""
        waiting = {key: self._begin(key) for key in keys if self._broker.opened_partition(*key) is None}
        if not waiting:
            return {}
        await asyncio.wait(waiting.values(), timeout=wait_ms / 1000)
        failed: dict[Key, FoldlogError] = {}
        for key, opening in waiting.items():
            error = opening.result() if opening.done() else WaitTimeout(f"{key[0]}-{key[1]} is still being recovered")
            if error is not None:
                failed[key] = error
        return failed

    def _begin(self, key: Key) -> asyncio.Future[FoldlogError | None]:
        opening = self._under_way.get(key)
        if opening is None:
            opening = self._under_way[key] = asyncio.get_running_loop().create_future()
            self._queue.append(key)
            if self._threads < _THREADS:
                self._threads += 1
                self._node.run(self._open_queued).add_done_callback(self._thread_ended)
        return opening

    def _open_queued(self) -> None:
        """On a thread: open one after the other until there is none left."""
        while True:
            try:
                key = self._queue.popleft()
            except IndexError:
                return
            self._node.soon(self._opened, key, self._error_of_opening(key))

    def _error_of_opening(self, key: Key) -> FoldlogError | None:
        try:
            self._broker.partition(*key)
        except FoldlogError as error:
            self._node.storage_failed("its opening", *key, error)
            return error
        except Exception as error:
            # Not one that opening is known to raise; those who wait must hear of it all the same.
            logger.exception("%s-%d could not be opened", *key)
            return StorageError(f"{key[0]}-{key[1]} could not be opened ({error!r})")
        return None

    def _opened(self, key: Key, error: FoldlogError | None) -> None:
        opening = self._under_way.pop(key)
        if not opening.done():
            opening.set_result(error)

    def _thread_ended(self, done: asyncio.Future[None]) -> None:
        self._threads -= 1
        if self._queue and not done.cancelled():
            # One was added after the last look at the queue, while this thread still counted.
            self._threads += 1
            self._node.run(self._open_queued).add_done_callback(self._thread_ended)

    def close(self) -> None:
        """Begin no further one."""
        self._queue.clear()
