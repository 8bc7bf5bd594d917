"""Appends that the event loop hands to threads: those that take too long for it, and those that wait for the disk.

A connection has a queue, and one job of a queue runs at a time, so its batches stay in order. Queues take turns, one
job each, so a connection with many jobs delays no other. As a batch's expanded size is not known beforehand, jobs that
open batches never take the last thread: a job that only waits for the disk does not wait behind them. Queues with
batches that expand steeply wait in a line of their own, and the two lines take turns: however many connections send
such batches, one with usual batches waits for one of them.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from foldlog.environment import CORES
from foldlog.server.net.memory import FrameBuffer, Memory, fresh_memory
from foldlog.wire.schema import Records

_OPENING_THREADS_MAX: Final = 4
_QUEUE_JOBS_MAX: Final = 16
_QUEUE_BYTES_MAX: Final = 4 << 20
"""How much one connection may have queued: enough that the thread never waits for the loop."""

_QUEUE_KEPT_BYTES_MAX: Final = _QUEUE_BYTES_MAX + (2 << 20)
"""How much is kept for the next batches, including what is queued: allocating memory costs more than filling it."""

Job = Callable[[], None]
Holding = Callable[[int], None]
"""Called from any thread with how many bytes more, or less, are held."""


class _Job(NamedTuple):
    """The function, and the memory that the batches it opens may take; 0: it opens none."""

    run: Job
    expanded_bytes: int


class Appenders:
    """The threads. They start with the first job, and end with `close`. All but `queue` and `start`: any thread."""

    def __init__(self, holding: Holding = lambda _: None) -> None:
        self._opening_max = max(1, min(_OPENING_THREADS_MAX, CORES - 1))  # one core is the loop's
        self._holding = holding
        # A leaf. Jobs run without it: they append, and that takes the locks of a partition.
        self._changed = threading.Condition()
        self._plain: deque[AppendQueue] = deque()
        self._opening: deque[AppendQueue] = deque()
        self._steep: deque[AppendQueue] = deque()
        self._opening_now = 0
        self._was_steep = False
        self._is_closed = False
        self._threads: list[threading.Thread] = []

    def queue(self, frame: FrameBuffer) -> AppendQueue:
        """The queue of a new connection, whose large frames are received in `frame`."""
        return AppendQueue(self, frame)

    def start(self) -> None:
        """Start the threads. Idempotent; called on the event loop."""
        if not self._threads:
            for number in range(self._opening_max + 1):
                thread = threading.Thread(target=self._run, name=f"foldlog-append-{number}", daemon=True)
                self._threads.append(thread)
                thread.start()

    def add(self, queue: AppendQueue, job: _Job) -> None:
        """Add a job; it runs after those before it in its queue."""
        with self._changed:
            queue.waiting.append(job)
            # Only with its first job: while one of its jobs runs or is in line, `_done` lines up the next. So there are
            # never two threads in the same queue.
            if len(queue.waiting) == 1:
                self._line_up(queue)

    def close(self) -> None:
        """Finish the queued jobs and end the threads."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()
        for thread in self._threads:
            thread.join()

    def _line_up(self, queue: AppendQueue) -> None:
        if not queue.waiting[0].expanded_bytes:
            self._plain.append(queue)
        else:
            (self._steep if queue.is_steep else self._opening).append(queue)
        self._changed.notify()

    def _run(self) -> None:
        while (queue := self._next()) is not None:
            self._run_first(queue)
            del queue  # while waiting for the next one, keep no reference to the last

    def _run_first(self, queue: AppendQueue) -> None:
        run, expanded_bytes = queue.waiting[0]
        if expanded_bytes:
            self._holding(expanded_bytes)
        try:
            run()
        finally:
            if expanded_bytes:
                self._holding(-expanded_bytes)
            self._done(queue, expanded_bytes)

    def _next(self) -> AppendQueue | None:
        """Wait for the queue whose turn it is; None at the end."""
        with self._changed:
            while True:
                if self._plain:
                    return self._plain.popleft()
                if (self._opening or self._steep) and self._opening_now < self._opening_max:
                    self._opening_now += 1
                    return self._next_opening()
                if self._is_closed and not (self._opening or self._steep):
                    return None
                self._changed.wait()

    def _next_opening(self) -> AppendQueue:
        turn, other = (self._opening, self._steep) if self._was_steep else (self._steep, self._opening)
        queue = (turn or other).popleft()
        self._was_steep = queue.is_steep
        return queue

    def _done(self, queue: AppendQueue, expanded_bytes: int) -> None:
        with self._changed:
            self._opening_now -= bool(expanded_bytes)
            queue.waiting.popleft()
            if queue.waiting:
                self._line_up(queue)
            self._changed.notify_all()


class AppendQueue:
    """The appends of one connection that are under way, in order. Used on the event loop.

    Every request of the connection reads `is_busy`, `is_full` and `capacity_bytes`, and most connections never use
    their queue: so they are attributes, set by `_recount` after every change.
    """

    def __init__(self, appenders: Appenders, frame: FrameBuffer) -> None:
        self.waiting: deque[_Job] = deque()  # used by the appenders; includes the running one
        self.is_steep = False  # a queued batch expands steeply; those behind it were not checked
        self._appenders = appenders
        self._frame = frame
        self._jobs = 0
        self._bytes = 0
        self._free: list[Memory] = []
        self._is_closed = False
        self._when_empty: Job | None = None
        self.is_busy = False  # a later batch must not overtake what is under way
        self.is_full = False
        self.capacity_bytes = 0  # under way, and kept for the next batches

    def _recount(self) -> None:
        self.is_busy = self._jobs > 0 or self._bytes > 0
        self.is_full = self._jobs >= _QUEUE_JOBS_MAX or self._bytes >= _QUEUE_BYTES_MAX
        self.capacity_bytes = self._bytes + sum(map(len, self._free))

    def own(self, records: Sequence[Records]) -> list[memoryview]:
        """Move the records of one request into memory of this queue: the connection reuses its own for the next frame.

        A frame that came in pieces is alone in its memory, which is exchanged for another; others are copied. Held
        until `done`.
        """
        # The connection goes on receiving while the batches wait, so they cannot stay in its receive buffer.
        views = [memoryview(one) for one in records]
        self._bytes += sum(map(len, views))
        if any(view.obj is self._frame.data for view in views):
            self._frame.exchange(self._kept(self._frame.capacity_bytes) or bytearray())
        else:
            views = [self._copy(view) for view in views]
        self._recount()
        return views

    def _copy(self, records: memoryview) -> memoryview:
        view = memoryview(self._kept(len(records)) or fresh_memory(len(records)))[: len(records)]
        view[:] = records
        return view

    def _kept(self, size: int) -> Memory | None:
        for number, buffer in enumerate(self._free):
            if len(buffer) >= size:
                del self._free[number]
                return buffer
        return None

    def submit(self, job: Job, expanded_bytes: int = 0) -> None:
        """Run a job on a thread, after those before it. It has to have `done` called on the loop at its end.
        `expanded_bytes`: how much memory the batches that it opens may take."""
        self._appenders.start()
        self.begin()
        self._appenders.add(self, _Job(job, expanded_bytes))

    def begin(self) -> None:
        """Count a job. One that is not submitted runs elsewhere: what comes after it has to wait for its end."""
        self._jobs += 1
        self._recount()

    def done(self, views: list[memoryview]) -> None:
        """A job has ended: its records' memory is free again."""
        self._jobs -= 1
        self._bytes -= sum(map(len, views))
        self._recount()
        if not self.is_busy:
            self.is_steep = False
        if self._is_closed:
            if self._when_empty is not None and not self._jobs:
                self._when_empty()
            return
        for buffer in {id(view.obj): view.obj for view in views}.values():
            if isinstance(buffer, Memory) and self.capacity_bytes + len(buffer) <= _QUEUE_KEPT_BYTES_MAX:
                self._free.append(buffer)
                self._recount()

    def release(self) -> None:
        """Release the memory that is kept for the next batches."""
        if self._free:
            self._free = []
            self._recount()

    def close(self, when_empty: Job) -> None:
        """The connection is closed: queued appends are still written, then `when_empty` is called."""
        self._is_closed = True
        self.release()
        if self._jobs:
            self._when_empty = when_empty
        else:
            when_empty()
