"""Offsets: 64-bit logical places, counted per partition, stable for as long as the log lives, never used twice."""

from __future__ import annotations

from pathlib import Path

import pytest

import foldlog
from behaviours.steps import DAY_MS, now_ms, numbered, offsets, put, put_many, values
from foldlog.errors import InvalidArgument, OffsetOutOfRange


def test_an_empty_partition_starts_and_ends_at_zero(log: foldlog.Log) -> None:
    log.create_topic("orders", partitions=2)
    assert log.offsets("orders") == {0: (0, 0), 1: (0, 0)}


def test_the_end_offset_is_the_next_one_to_be_written(log: foldlog.Log) -> None:
    log.create_topic("orders", partitions=1)
    for number in range(5):
        _, end = log.offsets("orders")[0]
        assert log.append("orders", b"%d" % number).offset == end
    assert log.offsets("orders") == {0: (0, 5)}


def test_each_partition_counts_for_itself(log: foldlog.Log) -> None:
    log.create_topic("orders", partitions=3)
    put_many(log, "orders", numbered(3), partition=0)
    put_many(log, "orders", numbered(7), partition=2)
    assert log.offsets("orders") == {0: (0, 3), 1: (0, 0), 2: (0, 7)}


def test_an_offset_counts_records_not_bytes(log: foldlog.Log) -> None:
    log.create_topic("orders", partitions=1)
    sizes = [1, 10_000, 3, 50_000, 0]
    assert [put(log, "orders", b"x" * size).offset for size in sizes] == [0, 1, 2, 3, 4]
    assert [len(value or b"") for value in values(log.read("orders", 0))] == sizes


def test_offsets_go_on_after_a_restart(directory: Path) -> None:
    with foldlog.open(str(directory)) as log:
        log.create_topic("orders", partitions=1)
        put_many(log, "orders", numbered(10))
    with foldlog.open(str(directory)) as log:
        assert log.offsets("orders") == {0: (0, 10)}
        assert log.append("orders", b"after").offset == 10
        assert offsets(log.read("orders", 0)) == list(range(11))


def test_an_offset_means_the_same_record_for_as_long_as_it_exists(directory: Path) -> None:
    with foldlog.open(str(directory)) as log:
        log.create_topic("orders", partitions=1, config={"foldlog.segment.records": 4})
        put_many(log, "orders", numbered(4), timestamp_ms=now_ms() - 30 * DAY_MS)
        for number in range(4, 20):
            log.append("orders", b"%d" % number)
        log.enforce_retention()
    with foldlog.open(str(directory)) as log:
        for offset in range(4, 20):
            (record,) = log.read("orders", 0, start=offset, max_records=1)
            assert (record.offset, record.value) == (offset, b"%d" % offset)


def test_offsets_are_never_used_twice_even_after_everything_was_deleted(directory: Path) -> None:
    with foldlog.open(str(directory)) as log:
        log.create_topic("orders", partitions=1, config={"foldlog.segment.records": 2, "retention.ms": DAY_MS})
        put_many(log, "orders", numbered(10), timestamp_ms=now_ms() - 30 * DAY_MS)
        log.enforce_retention()
        assert log.append("orders", b"later").offset == 10
    with foldlog.open(str(directory)) as log:
        assert log.append("orders", b"later still").offset == 11


@pytest.mark.parametrize("start", [-1, 3, 10**15])
def test_an_offset_outside_the_log_is_refused_with_the_range_that_is_there(log: foldlog.Log, start: int) -> None:
    log.create_topic("orders", partitions=1)
    put_many(log, "orders", numbered(2))
    with pytest.raises((OffsetOutOfRange, InvalidArgument)):
        list(log.read("orders", 0, start=start))
