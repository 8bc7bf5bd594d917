"""Copies or compares several partitions at the same time: each has its own leader or its own files, and while one
waits, the others work.

Threads, each with its own connections. One of them at a time reports progress.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import AbstractContextManager, nullcontext
from threading import Event, Lock
from types import MappingProxyType
from typing import TypeAlias, TypeVar

from foldlog.client.copy.check import CopyVerdict, compare
from foldlog.client.copy.offsets import CopyPoint
from foldlog.client.copy.sides import Side
from foldlog.client.copy.targets import Copied, CopySpan, OnProgress, Route, Target
from foldlog.limits import COPY_THREADS_MAX

Done = TypeVar("Done")

OpenSides: TypeAlias = Callable[[], tuple[Side, Target]]
"""Opens the sides for a thread."""

Passing: TypeAlias = Callable[[str], AbstractContextManager[object]]
"""Given a partition's name, it may swallow an error: that partition is then left out."""


class _Stopped(Exception):
    """Another partition has failed, or the copy was interrupted: this one ends, too."""


def copy_in_parallel(
    open_sides: OpenSides, spans: Sequence[CopySpan], on_progress: OnProgress, passing: Passing = nullcontext
) -> dict[Route, Copied]:
    """The result for each partition, all acknowledged; the first error ends all of them."""
    by_route = {span.route: span for span in spans}

    def copied(source: Side, target: Target, route: Route, progress: OnProgress) -> Copied:
        span = by_route[route]
        return target.copy(source, span, target.find(source, span), progress)

    return _in_parallel(open_sides, by_route, copied, on_progress, passing)


def check_in_parallel(
    open_sides: OpenSides,
    copies: Mapping[Route, Copied],
    on_progress: OnProgress,
    passing: Passing = nullcontext,
    since: Mapping[Route, CopyPoint] = MappingProxyType({}),
) -> dict[Route, CopyVerdict]:
    """Compare each with its source, from a point on if it has one; the first error ends all of them."""

    def compared(source: Side, target: Target, route: Route, progress: OnProgress) -> CopyVerdict:
        return compare(source, target.side, route, copies[route], progress, since.get(route))

    return _in_parallel(open_sides, copies, compared, on_progress, passing)


def _in_parallel(
    open_sides: OpenSides,
    routes: Iterable[Route],
    do: Callable[[Side, Target, Route, OnProgress], Done],
    on_progress: OnProgress,
    passing: Passing,
) -> dict[Route, Done]:
    """Run `do` for the routes in order, COPY_THREADS_MAX of them at a time."""
    chosen = list(routes)
    waiting = iter(chosen)
    done: dict[Route, Done] = {}
    lock, stopping = Lock(), Event()

    def progress(offsets: int, size_bytes: int) -> None:
        with lock:
            if stopping.is_set():
                raise _Stopped
            try:
                on_progress(offsets, size_bytes)
            except BaseException:
                stopping.set()  # before another thread gets the lock, and reports more
                raise

    def work() -> None:
        source, target = open_sides()
        try:
            while not stopping.is_set():
                with lock:
                    route = next(waiting, None)
                if route is None:
                    return
                with passing(str(route)):
                    found = do(source, target, route, progress)
                    with lock:
                        done[route] = found
        except _Stopped:
            return  # the thread that stopped it raises the error
        except BaseException:
            stopping.set()
            raise
        finally:
            source.close()
            target.side.close()

    threads = min(COPY_THREADS_MAX, len(chosen))
    pool = ThreadPoolExecutor(threads, thread_name_prefix="foldlog-copy")
    try:
        for ended in as_completed([pool.submit(work) for _ in range(threads)]):
            ended.result()
    finally:
        stopping.set()
        pool.shutdown()
    return {route: done[route] for route in chosen if route in done}
