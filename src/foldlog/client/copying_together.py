"""Several partitions copied at the same time, where a cluster is one of the sides: each has a leader of its own, and
while one is waited for, the others work.

Threads, each with connections of its own. Progress is told by one of them at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import AbstractContextManager, nullcontext
from threading import Event, Lock

from foldlog.client.copying_sides import Side
from foldlog.client.copying_targets import Copied, OnProgress, Route, Span, Target
from foldlog.limits import COPY_TOGETHER_MAX


class _Stopped(Exception):
    """Another partition has failed, or the copy was interrupted: this one ends here, too."""


def copy_together(
    open_sides: Callable[[], tuple[Side, Target]],
    spans: Sequence[Span],
    on_progress: OnProgress,
    passing: Callable[[str], AbstractContextManager[object]] = nullcontext,
) -> dict[Route, Copied]:
    """What became of each, all acknowledged; the first error ends all of them. Each thread calls `open_sides`.

    `passing`, given the partition's name, may swallow an error: that partition is left out then.
    """
    waiting = iter(spans)
    done: dict[Route, Copied] = {}
    lock, stopping = Lock(), Event()

    def progress(offsets: int, size_bytes: int) -> None:
        with lock:
            if stopping.is_set():
                raise _Stopped
            on_progress(offsets, size_bytes)

    def work() -> None:
        source, target = open_sides()
        try:
            while not stopping.is_set():
                with lock:
                    span = next(waiting, None)
                if span is None:
                    return
                with passing(str(span.route)):
                    copied = target.copy(source, span, target.find(source, span), progress)
                    with lock:
                        done[span.route] = copied
        finally:
            source.close()
            target.side.close()

    pool = ThreadPoolExecutor(min(COPY_TOGETHER_MAX, len(spans)), thread_name_prefix="foldlog-copy")
    try:
        for ended in as_completed([pool.submit(work) for _ in range(min(COPY_TOGETHER_MAX, len(spans)))]):
            ended.result()
    finally:
        stopping.set()
        pool.shutdown()
    return {span.route: done[span.route] for span in spans if span.route in done}
