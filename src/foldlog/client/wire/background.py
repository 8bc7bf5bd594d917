"""Calls of a reader that may take long, on threads of their own: the reader goes on, and is woken when one is over."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from types import TracebackType
from typing import Final, Generic, Self, TypeVar

Done = TypeVar("Done")

THREAD_NAME: Final = "foldlog-background"

_DRAIN_BYTES: Final = 4096


class Wakeup:
    """Wakes whoever waits for several connections at once: for a selector it is one of them. Any thread may wake it,
    also after it was closed."""

    def __init__(self) -> None:
        self._reader, self._writer = socket.socketpair()
        self._reader.setblocking(False)
        self._writer.setblocking(False)
        # A number that is free again may be another file's: nobody writes to it while it is closed. The garbage
        # collector may close it in the middle of anything, so whoever holds the lock may have it again.
        self._lock = threading.RLock()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def fileno(self) -> int:
        return self._reader.fileno()

    def wake(self) -> None:
        with self._lock, suppress(OSError):  # it is closed, or was woken more often than anybody could miss
            self._writer.send(b"!")

    def reset(self) -> None:
        """Before looking what it was woken for."""
        with suppress(BlockingIOError):
            self._reader.recv(_DRAIN_BYTES)

    def close(self) -> None:
        with self._lock:
            self._reader.close()
            self._writer.close()

    def forked(self) -> None:
        """In a forked child: let go of our copies. Whoever held the lock is in the parent."""
        self._lock = threading.RLock()
        self.close()


class BackgroundCall(Generic[Done]):
    """One call, on a thread that does not keep the process from ending. To be asked by one thread."""

    def __init__(
        self, call: Callable[[], Done], wakeup: Wakeup, if_abandoned: Callable[[Done], object] | None = None
    ) -> None:
        """Wakes `wakeup` once it is over. What it gave is for `if_abandoned`, if nobody wants it any more."""
        self._call = call
        self._wakeup = wakeup
        self._if_abandoned = if_abandoned
        self._lock = threading.RLock()  # as in Wakeup
        self._is_abandoned = False
        self._done: list[Done] = []
        self._error: BaseException | None = None
        threading.Thread(target=self._run, name=THREAD_NAME, daemon=True).start()

    @property
    def is_over(self) -> bool:
        return bool(self._done) or self._error is not None

    def result(self) -> Done:
        """Once it is over: what the call gave, or what it raised is raised."""
        if self._error is not None:
            raise self._error
        if not self._done:
            raise RuntimeError("the call is not over")
        return self._done[0]

    def abandon(self) -> None:
        """Nobody will ask for the result."""
        with self._lock:
            self._is_abandoned = True
            self._let_go()

    def _run(self) -> None:
        try:
            done = self._call()
        except BaseException as error:  # noqa: BLE001 whoever asks for the result gets it
            self._error = error
        else:
            with self._lock:
                self._done.append(done)
                if self._is_abandoned:
                    self._let_go()
        self._wakeup.wake()

    def _let_go(self) -> None:
        while self._done:
            done = self._done.pop()
            if self._if_abandoned is not None:
                self._if_abandoned(done)
