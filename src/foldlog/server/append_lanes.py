"""Appends that the event loop does not wait for: what it would be busy with for too long, and what waits for the disk.

A connection keeps to one thread, so its batches stay in order. While a thread is at work the loop serves the others.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from itertools import cycle
from queue import SimpleQueue
from typing import Final

from foldlog.server.buffers import FrameBuffer
from foldlog.wire.schema import Records

_THREADS_MAX: Final = 4
_LANE_JOBS_MAX: Final = 16
_LANE_BYTES_MAX: Final = 4 << 20
"""What one connection may have waiting: enough that the thread never waits for the loop."""

_LANE_KEPT_BYTES_MAX: Final = _LANE_BYTES_MAX + (2 << 20)
"""What is kept for the next batches, with what is on its way: fresh memory costs more than filling it."""

Job = Callable[[], None]


class Appenders:
    """The threads. They start with the first job, and end with `close`."""

    def __init__(self) -> None:
        count = min(_THREADS_MAX, os.cpu_count() or 1)
        self._queues: list[SimpleQueue[Job | None]] = [SimpleQueue() for _ in range(count)]
        self._next = cycle(self._queues)
        self._threads: list[threading.Thread] = []

    def lane(self, frame: FrameBuffer) -> AppendLane:
        """For a new connection, whose large frames are received in `frame`."""
        return AppendLane(self, next(self._next), frame)

    def start(self) -> None:
        """Idempotent."""
        if not self._threads:
            for number, queue in enumerate(self._queues):
                thread = threading.Thread(target=_run, args=(queue,), name=f"foldlog-append-{number}", daemon=True)
                self._threads.append(thread)
                thread.start()

    def close(self) -> None:
        """Finish what is queued."""
        for queue in self._queues:
            queue.put(None)
        for thread in self._threads:
            thread.join()


def _run(queue: SimpleQueue[Job | None]) -> None:
    while (job := queue.get()) is not None:
        job()


class AppendLane:
    """The appends of one connection that are on their way, in order. The event loop's."""

    def __init__(self, appenders: Appenders, queue: SimpleQueue[Job | None], frame: FrameBuffer) -> None:
        self._appenders = appenders
        self._queue = queue
        self._frame = frame
        self._jobs = 0
        self._bytes = 0
        self._free: list[bytearray] = []
        self._is_closed = False

    @property
    def is_busy(self) -> bool:
        """Whether something is on its way that a later batch must not overtake."""
        return self._jobs > 0

    @property
    def is_full(self) -> bool:
        return self._jobs >= _LANE_JOBS_MAX or self._bytes >= _LANE_BYTES_MAX

    @property
    def capacity_bytes(self) -> int:
        return self._bytes + sum(map(len, self._free))

    def own(self, records: Sequence[Records]) -> list[memoryview]:
        """The records of one request in memory of this lane: the connection's own receives the next frame meanwhile.

        A frame that came in pieces stands alone in its memory, which is exchanged for another; others are copied.
        """
        views = [memoryview(one) for one in records]
        if any(view.obj is self._frame.data for view in views):
            self._frame.exchange(self._spare(self._frame.capacity_bytes))
            return views
        return [self._copy(view) for view in views]

    def _copy(self, records: memoryview) -> memoryview:
        view = memoryview(self._spare(len(records)))[: len(records)]
        view[:] = records
        return view

    def _spare(self, size: int) -> bytearray:
        for number, buffer in enumerate(self._free):
            if len(buffer) >= size:
                del self._free[number]
                return buffer
        return bytearray(size)

    def submit(self, job: Job, size_bytes: int) -> None:
        """Run it on the lane's thread, after those before it. It ends by having `done` called on the loop."""
        self._appenders.start()
        self._jobs += 1
        self._bytes += size_bytes
        self._queue.put(job)

    def done(self, views: list[memoryview], size_bytes: int) -> None:
        """A job is over, and the memory of its copies free again."""
        self._jobs -= 1
        self._bytes -= size_bytes
        if self._is_closed:
            return
        for buffer in {id(view.obj): view.obj for view in views}.values():
            if isinstance(buffer, bytearray) and self.capacity_bytes + len(buffer) <= _LANE_KEPT_BYTES_MAX:
                self._free.append(buffer)

    def release(self) -> None:
        """Give back what is kept for the next batches."""
        self._free = []

    def close(self) -> None:
        """The connection is gone: what is on its way is still written, and its memory given back with it."""
        self._is_closed = True
        self._free = []
