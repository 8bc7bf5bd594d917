"""A queue keeps the order of its jobs, says when it is full, and keeps no memory of a connection that is gone."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Iterator
from functools import partial

import pytest

from foldlog.server.net.append_queues import Appenders
from foldlog.server.net.memory import FrameBuffer

MIB = 1 << 20


def _wait_for(event: threading.Event) -> None:
    assert event.wait(30)


@pytest.fixture
def appenders() -> Iterator[Appenders]:
    made = Appenders()
    yield made
    made.close()


def test_jobs_of_a_lane_run_in_order(appenders: Appenders) -> None:
    queue = appenders.queue(FrameBuffer())
    seen: list[int] = []
    for number in range(100):
        queue.submit(lambda number=number: seen.append(number))  # type: ignore[misc]
    done = threading.Event()
    queue.submit(done.set)
    assert done.wait(10)
    assert seen == list(range(100))


def test_records_are_copied_out_of_memory_that_others_share(appenders: Appenders) -> None:
    queue = appenders.queue(FrameBuffer())
    shared = bytearray(b"records of one request")
    (owned,) = queue.own([memoryview(shared)[:7]])
    shared[:7] = b"another"
    assert bytes(owned) == b"records"


def test_a_frame_that_stands_alone_is_handed_over_and_not_copied(appenders: Appenders) -> None:
    frame = FrameBuffer()
    frame.begin(memoryview(b"0123456789"), 10)
    view, memory = frame.view(), frame.data
    frame.finish()
    first, second = appenders.queue(frame).own([view[2:4], view[5:7]])
    assert first.obj is memory
    assert second.obj is memory
    assert frame.data is not memory
    assert (bytes(first), bytes(second)) == (b"23", b"56")


def test_a_lane_is_full_by_jobs_or_by_bytes_until_they_are_done(appenders: Appenders) -> None:
    queue = appenders.queue(FrameBuffer())
    views = queue.own([memoryview(bytearray(5 * MIB))])
    assert (queue.is_busy, queue.is_full) == (True, True), "before it is submitted, too"
    queue.submit(lambda: None)
    assert (queue.is_busy, queue.is_full) == (True, True)
    queue.done(views)
    assert (queue.is_busy, queue.is_full) == (False, False)


def test_memory_is_used_again_and_its_sum_is_bounded(appenders: Appenders) -> None:
    queue = appenders.queue(FrameBuffer())
    for _ in range(20):
        views = queue.own([memoryview(bytearray(MIB))])
        queue.submit(lambda: None)
        queue.done(views)
        small = queue.own([memoryview(bytearray(10))])
        assert small[0].obj is views[0].obj
        queue.submit(lambda: None)
        queue.done(small)
    assert queue.capacity_bytes <= 6 * MIB


def test_nothing_is_kept_for_a_connection_that_is_gone(appenders: Appenders) -> None:
    queue = appenders.queue(FrameBuffer())
    views = queue.own([memoryview(bytearray(MIB)), memoryview(bytearray(MIB))])
    queue.submit(lambda: None)
    empty: list[int] = []
    queue.close(lambda: empty.append(queue.capacity_bytes))
    assert (queue.capacity_bytes, empty) == (2 * MIB, []), "what is on its way still counts"
    queue.done(views)
    assert (queue.capacity_bytes, empty) == (0, [0])


def test_a_thread_that_waits_keeps_nothing_of_its_last_job(appenders: Appenders) -> None:
    class Records:
        """What a job has in its hands."""

    def run(records: Records, ended: threading.Event) -> None:
        ended.set()

    ended, gone = threading.Event(), threading.Event()
    records = Records()
    weakref.finalize(records, gone.set)
    appenders.queue(FrameBuffer()).submit(partial(run, records, ended))
    assert ended.wait(30)
    del records
    assert gone.wait(30)


def test_connections_take_turns_a_job_each(appenders: Appenders) -> None:
    """However much one connection has waiting, another's job comes after one more of it, not after all."""
    seen: list[str] = []
    may_go, done = threading.Event(), threading.Event()
    busy = [appenders.queue(FrameBuffer()) for _ in range(20)]
    for queue in busy:  # every thread that may open batches has one
        queue.submit(partial(_wait_for, may_go), MIB)
    for number, queue in enumerate(busy):
        for _ in range(10):
            queue.submit(lambda number=number: seen.append(f"greedy {number}"), MIB)  # type: ignore[misc]
    modest = appenders.queue(FrameBuffer())
    modest.submit(lambda: seen.append("modest"), MIB)
    modest.submit(done.set, MIB)
    may_go.set()
    assert done.wait(30)
    # One job of each of the others may go before it, and what ran at the same time.
    assert seen.index("modest") <= 2 * len(busy)


def test_usual_batches_take_turns_with_all_that_expand_steeply_together(appenders: Appenders) -> None:
    """However many connections send what expands steeply, a usual batch comes after one more of them."""
    seen: list[str] = []
    may_go, done = threading.Event(), threading.Event()
    for _ in range(20):
        appenders.queue(FrameBuffer()).submit(partial(_wait_for, may_go), MIB)
    for _ in range(100):
        steep = appenders.queue(FrameBuffer())
        steep.is_steep = True
        steep.submit(lambda: seen.append("steep"), MIB)
    for _ in range(3):
        appenders.queue(FrameBuffer()).submit(lambda: seen.append("usual"), MIB)
    last = appenders.queue(FrameBuffer())
    last.submit(lambda: seen.append("last"), MIB)
    last.submit(done.set, MIB)
    may_go.set()
    assert done.wait(30)
    # Each of the twenty, the three and the last one has let one go before it, and what ran at the same time.
    before = seen[: seen.index("last")]
    assert before.count("usual") == 3
    assert before.count("steep") <= 24 + 4


def test_a_lane_expands_steeply_until_it_is_empty(appenders: Appenders) -> None:
    queue = appenders.queue(FrameBuffer())
    queue.is_steep = True
    first, second = queue.own([memoryview(bytearray(10))]), queue.own([memoryview(bytearray(10))])
    queue.submit(lambda: None)
    queue.submit(lambda: None)
    queue.done(first)
    assert queue.is_steep
    queue.done(second)
    assert not queue.is_steep


def test_what_only_waits_for_the_disk_does_not_wait_for_those_who_open_batches(appenders: Appenders) -> None:
    may_go, done = threading.Event(), threading.Event()
    for _ in range(20):
        appenders.queue(FrameBuffer()).submit(partial(_wait_for, may_go), MIB)
    appenders.queue(FrameBuffer()).submit(done.set)
    assert done.wait(30)
    may_go.set()


def test_what_is_expanded_counts_while_it_is_there() -> None:
    held: list[int] = []
    appenders = Appenders(held.append)
    inside: list[int] = []
    appenders.queue(FrameBuffer()).submit(lambda: inside.append(sum(held)), 5 * MIB)
    appenders.queue(FrameBuffer()).submit(lambda: None)
    appenders.close()
    assert (inside, sum(held)) == ([5 * MIB], 0)
