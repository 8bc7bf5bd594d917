"""Calls of librdkafka that have no time limit of their own, given one."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import Future
from threading import Thread
from typing import Any, TypeVar

Done = TypeVar("Done")


class BoundedCalls:
    """Runs them one at a time, each on a thread of its own, which is left behind if the call takes too long.

    Used by one thread at a time. librdkafka 2.16 commits synchronously for as long as a broker says nothing, and cannot
    be told to give up; of a commit that is not waited for it tells in a poll, which hands out records and partitions.
    """

    def __init__(self) -> None:
        self._under_way: Future[Any] | None = None

    def run(self, call: Callable[[], Done], timeout_s: float) -> Done:
        """What the call gives or raises; TimeoutError if it, or the one before it, takes longer. It may yet be done."""
        deadline_s = time.monotonic() + timeout_s
        if self._under_way is not None:
            self._under_way.exception(timeout_s)
        future: Future[Done] = Future()
        self._under_way = future
        # A daemon: who is told that nobody answers may end the process.
        Thread(target=_carry_out, args=(future, call), name="foldlog-kafka-call", daemon=True).start()
        return future.result(deadline_s - time.monotonic())

    def when_idle(self, then: Callable[[], object]) -> None:
        """Now; or, without waiting for it, once what is under way has ended: what it works with must not be closed
        before."""
        if self._under_way is None or self._under_way.done():
            then()
        else:
            self._under_way.add_done_callback(lambda _: then())


def _carry_out(future: Future[Done], call: Callable[[], Done]) -> None:
    try:
        done = call()
    except BaseException as error:  # noqa: BLE001 raised where it is waited for
        future.set_exception(error)
    else:
        future.set_result(done)
