"""Slices and tails without a group: what `log.read` gives, where it ends, and what it says about what is not there."""

from __future__ import annotations

import threading
from typing import Any

import pytest

import foldlog
from client.conftest import WAIT_S
from foldlog.errors import (
    InvalidArgument,
    LogClosed,
    OffsetOutOfRange,
    SerializationError,
    UnknownPartition,
    UnknownTopic,
)
from foldlog.files.memory import MemoryFiles
from foldlog.testing.sim_clock import SimClock


def fill(log: foldlog.Log, count: int, first: int = 0, **config: Any) -> None:
    if "orders" not in log.topics():
        log.create_topic("orders", config=config.get("config"))
    with log.producer(batch_records=7) as producer:
        for number in range(first, first + count):
            producer.send("orders", b"%d" % number)


def offsets(records: Any) -> list[int]:
    return [record.offset for record in records]


@pytest.mark.parametrize("start", [0, 1, 6, 7, 8, 49, 50])
@pytest.mark.parametrize("max_records", [None, 1, 3, 10, 100])
def test_a_slice_is_what_a_list_would_give(log: foldlog.Log, start: int, max_records: int | None) -> None:
    fill(log, 50)
    expected = list(range(50))[start : None if max_records is None else start + max_records]
    assert offsets(log.read("orders", 0, start=start, max_records=max_records)) == expected


@pytest.mark.parametrize("stop", [0, 5, 7, 20, 49, 50, 99, "end"])
def test_stop_is_exclusive_and_may_lie_beyond_the_end(log: foldlog.Log, stop: Any) -> None:
    fill(log, 50)
    assert offsets(log.read("orders", 0, start=5, stop=stop)) == list(range(5, 50 if stop == "end" else min(stop, 50)))


def test_a_slice_ends_where_the_log_ended_at_the_call(log: foldlog.Log) -> None:
    fill(log, 5)
    reading = log.read("orders", 0)
    fill(log, 5, first=5)
    assert offsets(reading) == [0, 1, 2, 3, 4]


def test_the_partition_may_be_left_out_only_where_there_is_one(log: foldlog.Log) -> None:
    log.create_topic("orders", partitions=2)
    log.create_topic("single")
    log.append("single", b"x")
    assert offsets(log.read("single")) == [0]
    with pytest.raises(InvalidArgument, match="2 partitions"):
        log.read("orders")


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({"start": 51}, OffsetOutOfRange),
        ({"start": -1}, InvalidArgument),
        ({"start": True}, InvalidArgument),
        ({"start": "middle"}, InvalidArgument),
        ({"start": 1.5}, InvalidArgument),
        ({"stop": -1}, InvalidArgument),
        ({"stop": "start"}, InvalidArgument),
        ({"max_records": 0}, InvalidArgument),
        ({"partition": -1}, UnknownPartition),
        ({"partition": True}, UnknownPartition),
        ({"topic": "nothing"}, UnknownTopic),
        ({"value_deserializer": "pickle"}, InvalidArgument),
    ],
)
def test_what_cannot_be_read_is_refused_at_the_call(
    log: foldlog.Log, arguments: dict[str, Any], error: type[Exception]
) -> None:
    fill(log, 50)
    with pytest.raises(error):
        log.read(**{"topic": "orders", "partition": 0, **arguments})


def test_an_expired_offset_is_refused_with_the_reason_and_start_still_works(log: foldlog.Log, clock: SimClock) -> None:
    fill(log, 20, config={"foldlog.segment.records": 5, "retention.ms": 1000})
    before = log.read("orders", 0, start="start")
    clock.advance(10_000)
    fill(log, 2, first=20)
    log.enforce_retention()
    with pytest.raises(OffsetOutOfRange) as caught:
        log.read("orders", 0, start=3)
    assert (caught.value.wanted, caught.value.start, caught.value.end) == (3, 20, 22)
    assert offsets(log.read("orders", 0)) == [20, 21]
    assert offsets(before) == [], "the start moved beyond what this reader was to read"


def test_a_tail_from_the_end_sees_what_is_written_after_the_call(log: foldlog.Log) -> None:
    fill(log, 8)
    tail = log.read("orders", 0, start="end", follow=True)
    fill(log, 1, first=8)
    assert next(tail).offset == 8
    fill(log, 1, first=9)
    assert next(tail).offset == 9
    tail.close()


def test_a_tail_waits_and_is_woken(log: foldlog.Log) -> None:
    fill(log, 2)
    seen: list[int] = []
    reached = threading.Event()

    def follow() -> None:
        for record in log.read("orders", 0, follow=True, max_records=4):
            seen.append(record.offset)
            if len(seen) == 2:
                reached.set()

    following = threading.Thread(target=follow)
    following.start()
    assert reached.wait(WAIT_S)
    fill(log, 5, first=2)
    following.join(WAIT_S)
    assert seen == [0, 1, 2, 3]


def test_a_tail_ends_when_nothing_comes_in_time(log: foldlog.Log) -> None:
    fill(log, 2)
    assert offsets(log.read("orders", 0, follow=True, timeout_ms=1)) == [0, 1]
    assert offsets(log.read("orders", 0, start="end", follow=True, timeout_ms=0)) == []


def test_a_tail_ends_at_stop(log: foldlog.Log) -> None:
    fill(log, 5)
    assert offsets(log.read("orders", 0, stop=3, follow=True)) == [0, 1, 2]


def test_a_tail_ends_when_the_log_is_closed(clock: SimClock, files: MemoryFiles) -> None:
    log = foldlog.open("data", clock=clock, files=files)
    fill(log, 2)
    seen: list[int] = []
    reached = threading.Event()

    def follow() -> None:
        for record in log.read("orders", 0, follow=True):
            seen.append(record.offset)
            if len(seen) == 2:
                reached.set()

    following = threading.Thread(target=follow)
    following.start()
    assert reached.wait(WAIT_S)
    log.close()
    following.join(WAIT_S)
    assert not following.is_alive()
    assert seen == [0, 1]
    with pytest.raises(LogClosed):
        log.read("orders", 0)


def test_a_tail_follows_from_a_process_that_only_reads(files: MemoryFiles) -> None:
    with foldlog.open("data", files=files) as log, foldlog.open("data", "r", files=files) as reader:
        fill(log, 3)
        tail = reader.read("orders", 0, follow=True)
        assert [next(tail).offset for _ in range(3)] == [0, 1, 2]
        fill(log, 1, first=3)
        assert next(tail).offset == 3
        assert offsets(reader.read("orders", 0, start="end", follow=True, timeout_ms=5)) == []


def test_records_before_one_that_cannot_be_deserialized_are_read(log: foldlog.Log) -> None:
    log.create_topic("orders")
    for value in (b"1", b"2", b"{"):
        log.append("orders", value)
    reading = log.read("orders", value_deserializer="json")
    assert [next(reading).value, next(reading).value] == [1, 2]
    with pytest.raises(SerializationError, match="offset 2 of orders-0"):
        next(reading)


def test_offsets_and_times(log: foldlog.Log) -> None:
    log.create_topic("orders", partitions=3)
    for number in range(6):
        log.append("orders", b"x", partition=number % 2, timestamp_ms=1000 * number)
    assert log.offsets("orders") == {0: (0, 3), 1: (0, 3), 2: (0, 0)}
    assert log.offsets_at("orders", 0) == {0: 0, 1: 0, 2: None}
    assert log.offsets_at("orders", 3000) == {0: 2, 1: 1, 2: None}
    assert log.offsets_at("orders", 5001) == {0: None, 1: None, 2: None}
