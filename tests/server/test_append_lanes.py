"""A lane keeps the order of its jobs, says when it is full, and keeps no memory of a connection that is gone."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from foldlog.server.append_lanes import Appenders
from foldlog.server.buffers import FrameBuffer

MIB = 1 << 20


@pytest.fixture
def appenders() -> Iterator[Appenders]:
    made = Appenders()
    yield made
    made.close()


def test_jobs_of_a_lane_run_in_order(appenders: Appenders) -> None:
    lane = appenders.lane(FrameBuffer())
    seen: list[int] = []
    for number in range(100):
        lane.submit(lambda number=number: seen.append(number), 1)  # type: ignore[misc]
    done = threading.Event()
    lane.submit(done.set, 1)
    assert done.wait(10)
    assert seen == list(range(100))


def test_records_are_copied_out_of_memory_that_others_share(appenders: Appenders) -> None:
    lane = appenders.lane(FrameBuffer())
    shared = bytearray(b"records of one request")
    (owned,) = lane.own([memoryview(shared)[:7]])
    shared[:7] = b"another"
    assert bytes(owned) == b"records"


def test_a_frame_that_stands_alone_is_handed_over_and_not_copied(appenders: Appenders) -> None:
    frame = FrameBuffer()
    frame.begin(memoryview(b"0123456789"), 10)
    view, memory = frame.view(), frame.data
    frame.finish()
    first, second = appenders.lane(frame).own([view[2:4], view[5:7]])
    assert first.obj is memory
    assert second.obj is memory
    assert frame.data is not memory
    assert (bytes(first), bytes(second)) == (b"23", b"56")


def test_a_lane_is_full_by_jobs_or_by_bytes_until_they_are_done(appenders: Appenders) -> None:
    lane = appenders.lane(FrameBuffer())
    views = lane.own([memoryview(bytearray(5 * MIB))])
    assert (lane.is_busy, lane.is_full) == (False, False)
    lane.submit(lambda: None, 5 * MIB)
    assert (lane.is_busy, lane.is_full) == (True, True)
    lane.done(views, 5 * MIB)
    assert (lane.is_busy, lane.is_full) == (False, False)


def test_memory_is_used_again_and_its_sum_is_bounded(appenders: Appenders) -> None:
    lane = appenders.lane(FrameBuffer())
    for _ in range(20):
        views = lane.own([memoryview(bytearray(MIB))])
        lane.submit(lambda: None, MIB)
        lane.done(views, MIB)
        assert lane.own([memoryview(bytearray(10))])[0].obj is views[0].obj
        lane.done(views, 0)
    assert lane.capacity_bytes <= 6 * MIB


def test_nothing_is_kept_for_a_connection_that_is_gone(appenders: Appenders) -> None:
    lane = appenders.lane(FrameBuffer())
    views = lane.own([memoryview(bytearray(MIB)), memoryview(bytearray(MIB))])
    lane.submit(lambda: None, 2 * MIB)
    lane.close()
    lane.done(views, 2 * MIB)
    assert lane.capacity_bytes == 0
