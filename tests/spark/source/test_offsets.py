"""From options to ranges, on a real log: each rule of Spark's Kafka source; and the cutting into tasks against its
formula, written here a second time in floating point as Spark has it.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import foldlog
from foldlog.errors import InvalidArgument, RecordsMissing, UnknownPartition, UnknownTopic
from foldlog.spark.origins.by_path import PathOrigin
from foldlog.spark.origins.origin import OffsetRange
from foldlog.spark.source.offsets import PlannedRange, plan_batch, split
from foldlog.spark.source.options import batch_options

ROWS = 10


@pytest.fixture
def log(tmp_path: Path) -> Iterator[foldlog.Log]:
    """orders: two partitions, offsets 0 to 9, record n at 1000 * n ms; refunds: one, empty; __hidden is not listed."""
    with foldlog.open(tmp_path, background=False) as log:
        log.create_topic("orders", partitions=2)
        log.create_topic("refunds")
        with log.producer() as producer:
            for number in range(ROWS):
                for partition in (0, 1):
                    producer.send("orders", value=b"v", partition=partition, timestamp_ms=1000 * number)
        yield log


def planned(log: foldlog.Log, **options: str) -> list[OffsetRange]:
    return [one.wanted for one in plans(log, **options)]


def plans(log: foldlog.Log, **options: str) -> list[PlannedRange]:
    chosen = {} if {"assign", "subscribePattern"} & options.keys() else {"subscribe": "orders"}
    checked = batch_options({"path": log.path, **chosen, **options})
    origin = PathOrigin.open(checked.origin)
    try:
        return plan_batch(origin, checked)
    finally:
        origin.close()


def test_everything_that_is_there_by_default_and_nothing_of_empty_partitions(log: foldlog.Log) -> None:
    assert planned(log, subscribe="orders,refunds") == [("orders", 0, 0, 10), ("orders", 1, 0, 10)]


def test_topics_by_pattern_match_whole_names_and_may_be_none(log: foldlog.Log) -> None:
    log.create_topic("reorders")
    log.append("reorders", "x")
    assert {one[0] for one in planned(log, subscribePattern="orders")} == {"orders"}
    assert {one[0] for one in planned(log, subscribePattern=".*orders")} == {"orders", "reorders"}
    assert planned(log, subscribePattern="nothing.*") == []


def test_partitions_by_name(log: foldlog.Log) -> None:
    assert planned(log, assign='{"orders": [1]}') == [("orders", 1, 0, 10)]
    with pytest.raises(UnknownPartition):
        planned(log, assign='{"orders": [1, 2]}')
    with pytest.raises(UnknownTopic, match="there are orders, refunds"):
        planned(log, subscribe="order")


def test_offsets_of_each_partition_with_words_for_both_ends(log: foldlog.Log) -> None:
    log.delete_records("orders", {1: 4})
    found = planned(log, startingOffsets='{"orders": {"0": 3, "1": -2}}', endingOffsets='{"orders": {"0": 7, "1": -1}}')
    assert found == [("orders", 0, 3, 7), ("orders", 1, 4, 10)]


def test_offsets_have_to_name_every_partition_and_no_other(log: foldlog.Log) -> None:
    with pytest.raises(InvalidArgument, match="orders-1 is not among them"):
        planned(log, startingOffsets='{"orders": {"0": 3}}')
    with pytest.raises(InvalidArgument, match="orders-2 is, and is not read"):
        planned(log, endingOffsets='{"orders": {"0": 3, "1": 3, "2": 3}}')
    with pytest.raises(InvalidArgument, match="endingOffsetsByTimestamp has to name every partition"):
        planned(log, endingOffsetsByTimestamp='{"orders": {"0": 3}}')


def test_a_start_beyond_the_stop_reads_nothing(log: foldlog.Log) -> None:
    assert (
        planned(log, startingOffsets='{"orders": {"0": 7, "1": 5}}', endingOffsets='{"orders": {"0": 3, "1": 5}}') == []
    )


def test_a_time_is_the_first_record_at_or_after_it(log: foldlog.Log) -> None:
    assert planned(log, startingTimestamp="3500", endingTimestamp="7000") == [
        ("orders", 0, 4, 7),
        ("orders", 1, 4, 7),
    ]
    found = planned(
        log,
        startingOffsetsByTimestamp='{"orders": {"0": 0, "1": 9000}}',
        endingOffsetsByTimestamp='{"orders": {"0": 1000, "1": 99000}}',
    )
    assert found == [("orders", 0, 0, 1), ("orders", 1, 9, 10)]


def test_a_start_after_the_last_record_is_an_error_unless_the_end_is_meant(log: foldlog.Log) -> None:
    with pytest.raises(InvalidArgument, match="no record at or after 99000 ms"):
        planned(log, startingTimestamp="99000")
    assert planned(log, startingTimestamp="99000", startingOffsetsByTimestampStrategy="latest") == []


def test_only_what_begins_at_the_earliest_offset_may_lose_its_beginning(log: foldlog.Log) -> None:
    assert [one.is_earliest for one in plans(log)] == [True, True]
    by_offset = plans(log, startingOffsets='{"orders": {"0": 0, "1": -2}}')
    assert [one.is_earliest for one in by_offset] == [False, True]
    assert not any(one.is_earliest for one in plans(log, startingTimestamp="0"))
    assert {one.topic_id for one in by_offset} == {log.topic("orders").topic_id}


def test_offsets_that_are_gone_are_an_error_that_says_why(log: foldlog.Log) -> None:
    log.delete_records("orders", {0: 4})
    with pytest.raises(RecordsMissing, match="below offset 4 was deleted on request") as caught:
        planned(log, startingOffsets='{"orders": {"0": 2, "1": 0}}')
    assert caught.value.cause == "deleted"
    assert (caught.value.topic, caught.value.partition, caught.value.wanted) == ("orders", 0, (2, 10))


@pytest.mark.parametrize(
    "options",
    [{"endingOffsets": '{"orders": {"0": 11, "1": 10}}'}, {"startingOffsets": '{"orders": {"0": 11, "1": 0}}'}],
)
def test_offsets_that_were_never_written_are_an_error_too(log: foldlog.Log, options: dict[str, str]) -> None:
    with pytest.raises(RecordsMissing, match="the log ends at offset 10") as caught:
        planned(log, **options)
    assert caught.value.cause == "unwritten"


def test_accepted_losses_are_left_out_and_counted(log: foldlog.Log, caplog: pytest.LogCaptureFixture) -> None:
    log.delete_records("orders", {0: 4})
    with caplog.at_level(logging.WARNING, "foldlog"):
        found = planned(
            log,
            startingOffsets='{"orders": {"0": 1, "1": 0}}',
            endingOffsets='{"orders": {"0": 12, "1": 10}}',
            failOnDataLoss="false",
        )
    assert found == [("orders", 0, 4, 10), ("orders", 1, 0, 10)]
    assert [record.getMessage().split(" were ")[0] for record in caplog.records] == ["5 offsets of orders-0"]


def test_a_stop_that_is_the_end_is_no_loss(log: foldlog.Log) -> None:
    assert planned(log, endingOffsets='{"orders": {"0": 10, "1": 10}}') == planned(log)
    assert planned(log, startingOffsets='{"orders": {"0": 10, "1": 10}}') == []


# --- cutting into tasks -----------------------------------------------------------------------------------------------


def ranges(*sizes: int) -> list[PlannedRange]:
    return [PlannedRange(OffsetRange("t", number, 100, 100 + size), "id") for number, size in enumerate(sizes)]


def model(sizes: list[int], wanted: int) -> list[list[int]]:
    """How many offsets each task of each range gets, as Spark's Kafka source computes it."""

    def parts(size: int, total: int, count: int) -> int:
        return max(math.floor(size / total * count + 0.5), 1)

    total = sum(sizes)
    uncut = [size for size in sizes if parts(size, total, wanted) == 1]
    cut_total, cut_wanted = total - sum(uncut), max(wanted - len(uncut), 1)
    tasks: list[list[int]] = []
    for size in sizes:
        count = 1 if parts(size, total, wanted) == 1 else parts(size, cut_total, cut_wanted)
        left, mine = size, []
        for number in range(count):
            share = left // (count - number)
            left -= share
            mine.append(share)
        tasks.append([share for share in mine if share])
    return tasks


@given(st.lists(st.integers(1, 10_000), min_size=1, max_size=8), st.integers(1, 60))
def test_more_tasks_are_cut_in_proportion_as_spark_cuts_them(sizes: list[int], wanted: int) -> None:
    tasks = split(ranges(*sizes), min_partitions=wanted)
    found = [[_size(task) for task in tasks if task.wanted.partition == number] for number in range(len(sizes))]
    assert found == (model(sizes, wanted) if wanted > len(sizes) else [[size] for size in sizes])


@given(
    st.lists(st.integers(0, 10_000), max_size=8),
    st.none() | st.integers(1, 60),
    st.none() | st.integers(1, 20_000),
)
def test_tasks_cover_every_offset_once_in_order_and_none_is_empty_or_too_large(
    sizes: list[int], wanted: int | None, most: int | None
) -> None:
    whole = ranges(*sizes)
    tasks = split(whole, wanted, most)
    assert all(_size(task) > 0 for task in tasks)
    if most is not None:
        assert all(_size(task) <= most for task in tasks)
    for one in whole:
        at = one.wanted.start
        for task in tasks:
            if task.wanted.partition == one.wanted.partition:
                assert task.wanted.start == at
                assert task.topic_id == one.topic_id
                at = task.wanted.stop
        assert at == one.wanted.stop


def test_one_task_a_partition_by_default() -> None:
    assert split(ranges(5, 0, 7)) == [ranges(5)[0], ranges(0, 0, 7)[2]]


def _size(task: PlannedRange) -> int:
    return task.wanted.stop - task.wanted.start
