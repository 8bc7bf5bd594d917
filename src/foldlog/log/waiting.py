"""Who waits for an offset to be acknowledged, and who wants to know that the log has moved."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from foldlog.errors import FoldlogError

logger = logging.getLogger("foldlog.log")

OnAcknowledged = Callable[[FoldlogError | None], None]


class Waiting:
    """Callbacks by the offset they wait for. Any thread; callbacks run outside the lock, on whoever reached it.

    One that raises is logged: the others, and the thread, have nothing to do with it.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._pending: list[tuple[int, OnAcknowledged, bool]] = []

    def __bool__(self) -> bool:
        """Whether anybody waits."""
        return bool(self._pending)

    def add(self, next_offset: int, callback: OnAcknowledged, is_quick: bool = False) -> None:
        with self._lock:
            self._pending.append((next_offset, callback, is_quick))

    def reached(self, offset: int, *, only_quick: bool = False) -> bool:
        """Everything below `offset` is acknowledged. Returns whether somebody was left to be told who is not quick."""
        if not self._pending:
            return False
        with self._lock:
            due = [one for one in self._pending if one[0] <= offset]
            ready = [one for one in due if one[2] or not only_quick]
            self._pending = [one for one in self._pending if one[0] > offset or (only_quick and not one[2])]
        for _, callback, _ in ready:
            _call(callback, None)
        return len(ready) < len(due)

    def fail(self, error: FoldlogError) -> None:
        """Nothing more will be acknowledged."""
        with self._lock:
            pending, self._pending = self._pending, []
        for _, callback, _ in pending:
            _call(callback, error)


def _call(callback: OnAcknowledged, error: FoldlogError | None) -> None:
    try:
        callback(error)
    except Exception:
        logger.exception("a callback that waited for an acknowledgement failed")


class _Turn:
    """One thread that waits: for which offset, and whether it was woken to sync."""

    __slots__ = ("leads", "next_offset", "woken")

    def __init__(self, next_offset: int) -> None:
        self.next_offset = next_offset
        self.leads = False
        self.woken = threading.Lock()
        self.woken.acquire()


class Turns:
    """Whose turn it is to sync for all who wait. Any thread.

    Who waits is woken when its offset is reached, or to run the next sync, and otherwise left asleep. A queue for the
    sync's own lock would keep those who were served standing through the next sync; a condition would wake everybody
    after each (measured with 100 threads: 3 to 5 records a sync either way).
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting: list[_Turn] = []
        self._is_taken = False

    def take(self, next_offset: int, reached: Callable[[], int]) -> bool:
        """True: the caller has to sync, and then to `pass_on`. False: everything below `next_offset` is reached."""
        with self._lock:
            if reached() >= next_offset:
                return False
            if not self._is_taken:
                self._is_taken = True
                return True
            turn = _Turn(next_offset)
            self._waiting.append(turn)
        turn.woken.acquire()
        return turn.leads

    def pass_on(self, reached_offset: int) -> None:
        """Wake those who are served, and one who is not: the next sync is its."""
        with self._lock:
            woken = [turn for turn in self._waiting if turn.next_offset <= reached_offset]
            self._waiting = [turn for turn in self._waiting if turn.next_offset > reached_offset]
            if self._waiting:
                leader = self._waiting.pop(0)
                leader.leads = True
                woken.append(leader)
            else:
                self._is_taken = False
        for turn in woken:
            turn.woken.release()


class Watchers:
    """Callbacks for every move of the high watermark or the log start. Must be quick; any thread."""

    def __init__(self) -> None:
        self._callbacks: tuple[Callable[[], None], ...] = ()
        self._lock = threading.Lock()

    def add(self, callback: Callable[[], None]) -> None:
        with self._lock:
            self._callbacks = (*self._callbacks, callback)

    def remove(self, callback: Callable[[], None]) -> None:
        with self._lock:
            self._callbacks = tuple(known for known in self._callbacks if known != callback)

    def tell(self) -> None:
        for callback in self._callbacks:
            try:
                callback()
            except Exception:
                logger.exception("a callback that watches a partition failed")
