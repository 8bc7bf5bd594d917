"""A topic that has gained partitions has gained them in its copy at the same places: so whoever goes by keys reads the
older partitions up to there first, in the copy as in the source."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import pytest

import foldlog
from client.copy.copies import Stopped, contents, copy, stopping_after
from foldlog.broker.topics.catalog import Growth
from foldlog.client.backends.directory import is_directory
from foldlog.client.copy.growths import joined, stages_of
from foldlog.client.copy.offsets import CopyPoint, OffsetMap
from foldlog.client.copy.sides import open_side
from foldlog.client.copy.targets import Copied, CopySpan, Route
from foldlog.testing import KafkaBroker


@pytest.fixture
def source() -> Iterator[foldlog.Log]:
    with foldlog.open(":memory:", background=False) as log:
        yield log


@pytest.fixture(params=["directory", "broker"])
def target(request: pytest.FixtureRequest) -> Iterator[foldlog.Log]:
    if request.param == "directory":
        with foldlog.open(":memory:", background=False) as log:
            yield log
    else:
        with KafkaBroker.launch() as running, foldlog.connect(f"kafka://{running}") as log:
            yield log


def fill(log: foldlog.Log, per_partition: int) -> None:
    for partition in range(log.topic("orders").partition_count):
        for number in range(per_partition):
            log.append("orders", f"{partition}.{number}", partition=partition)


def growths_of(log: foldlog.Log) -> tuple[Growth, ...] | None:
    with closing(open_side(log)) as side:
        return side.growths("orders")


def test_growths_are_copied(source: foldlog.Log, target: foldlog.Log) -> None:
    source.create_topic("orders", partitions=1)
    fill(source, 5)
    source.grow_topic("orders", 2)
    fill(source, 3)
    source.grow_topic("orders", 4)
    fill(source, 2)
    done = copy(source, target, "orders")
    assert growths_of(target) == (Growth(2, (5,)), Growth(4, (8, 3))) == growths_of(source)
    assert {str(route): one.records for route, one in done.copied.items()} == {
        "orders-0": 10,
        "orders-1": 5,
        "orders-2": 2,
        "orders-3": 2,
    }
    assert all(one.offsets.is_kept for one in done.copied.values())
    for partition in range(4):
        assert contents(target, "orders", partition) == contents(source, "orders", partition)


def test_a_source_that_grows_between_two_copies_has_not_grown_at_the_end_of_the_first(
    source: foldlog.Log, target: foldlog.Log
) -> None:
    source.create_topic("orders", partitions=1)
    fill(source, 5)
    copy(source, target, "orders")
    fill(source, 4)
    source.grow_topic("orders", 2)
    fill(source, 1)
    copy(source, target, "orders")
    assert growths_of(target) == growths_of(source) == (Growth(2, (9,)),)


def test_growths_are_told_in_the_offsets_of_the_copy_and_survive_a_copy_that_stops(
    source: foldlog.Log, target: foldlog.Log
) -> None:
    source.create_topic("orders", partitions=1)
    fill(source, 20)
    source.delete_records("orders", {0: 6})
    source.grow_topic("orders", 2)
    fill(source, 10)
    for steps in (2, 5, 3, 9):
        with pytest.raises(Stopped):
            copy(source, target, "orders", on_progress=stopping_after(steps))
    copy(source, target, "orders")
    is_kept = is_directory(target)
    assert growths_of(target) == (Growth(2, (20 if is_kept else 14,)),)
    for partition in (0, 1):
        theirs = contents(target, "orders", partition)
        assert list(theirs.values()) == list(contents(source, "orders", partition).values())


def spans(*stops: int) -> list[CopySpan]:
    return [CopySpan(Route("orders", "orders", number), 3, stop) for number, stop in enumerate(stops)]


def test_a_log_that_does_not_remember_has_grown_somewhere_before_its_ends() -> None:
    whole = spans(10, 20, 30)
    first, last = stages_of(whole, 2, None)
    assert (first.partitions, [span.stop for span in first.spans]) == (2, [10, 20])
    assert (last.partitions, last.spans) == (3, whole)
    assert [stage.spans for stage in stages_of(whole, 3, None)] == [whole]


def test_growths_that_the_copy_has_and_that_lie_before_the_log_s_start_are_no_work() -> None:
    growths = (Growth(2, (2,)), Growth(3, (8, 9)))
    first, second, last = stages_of(spans(10, 20, 30), 1, growths)
    assert [span.stop for span in first.spans] == [3]
    assert [span.stop for span in second.spans] == [8, 9]
    assert len(last.spans) == 3
    assert len(stages_of(spans(10, 20, 30), 2, growths)) == 2
    assert len(stages_of(spans(10, 20, 30), 3, growths)) == 1


def test_two_stages_are_told_as_one() -> None:
    first = Copied(OffsetMap((CopyPoint(3, 0), CopyPoint(8, 4)), is_kept=False), CopyPoint(3, 0), 4, 100)
    second = Copied(
        OffsetMap((CopyPoint(3, 0), CopyPoint(8, 4), CopyPoint(20, 9)), is_kept=False), CopyPoint(8, 4), 5, 200
    )
    both = joined(first, second)
    assert both.offsets.points == (CopyPoint(3, 0), CopyPoint(8, 4), CopyPoint(20, 9))
    assert (both.checked_from, both.records, both.size_bytes) == (CopyPoint(3, 0), 9, 300)
    assert joined(None, first) is first
