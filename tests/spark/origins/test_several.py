"""Several topics read as one: their partitions have numbers of their own, and everything else is each topic's own."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

import pytest

import foldlog
from foldlog.errors import RecordsMissing, UnknownTopic
from foldlog.spark.folds.ranges import back_to_growths, reachable_ends
from foldlog.spark.origins.origin import OffsetRange, open_origin, origin_spec
from foldlog.views.bookmark import Bookmark, Position

BOTH = "orders-eu,orders-us"
SECOND = 100_000


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    with foldlog.open(tmp_path / "data") as log:
        log.create_topic("orders-eu", partitions=2)
        log.create_topic("orders-us", partitions=1)
        for number in range(4):
            log.append("orders-eu", f"eu {number}", partition=number % 2, timestamp_ms=1000 + number)
        for number in range(3):
            log.append("orders-us", f"us {number}", partition=0, timestamp_ms=2000 + number)
    return tmp_path / "data"


@pytest.mark.parametrize("by", ["path", "wire"])
def test_partitions_are_numbered_through_and_read_from_their_own_topics(directory: Path, by: str) -> None:
    with ExitStack() as stack:
        place: object = directory
        if by == "wire":
            place = stack.enter_context(foldlog.open(directory, listen=True)).bootstrap
        origin = open_origin(origin_spec(place))  # type: ignore[arg-type]
        stack.callback(origin.close)
        facts = origin.topic(BOTH)
        assert facts.topic_id == ",".join(origin.topic(name).topic_id for name in ("orders-eu", "orders-us"))
        assert {number: tuple(bound)[:2] for number, bound in origin.bounds(BOTH).items()} == {
            0: (0, 2),
            1: (0, 2),
            SECOND: (0, 3),
        }
        assert origin.offsets_at(BOTH, {1: 1002, SECOND: 2001}) == {1: 1, SECOND: 1}
        wanted = [OffsetRange(BOTH, SECOND, 1, 3), OffsetRange(BOTH, 1, 0, 1)]
        read = [
            (one.partition, value.as_py())
            for one, batch in origin.read_all(wanted, ["value"], topic_id=facts.topic_id)
            for value in batch.column("value")
        ]
        assert sorted(read) == [(1, b"eu 1"), (SECOND, b"us 1"), (SECOND, b"us 2")]


def test_each_topic_may_be_recreated_deleted_or_cut_by_itself(directory: Path) -> None:
    origin = open_origin(origin_spec(directory))
    try:
        known = origin.topic(BOTH).topic_id
        with foldlog.open(directory) as log:
            log.delete_topic("orders-us")
            log.create_topic("orders-us", partitions=1)
        assert origin.missing(BOTH, known, 1, 2) is None
        assert origin.missing(BOTH, known, SECOND, 0) == "recreated"
        with pytest.raises(RecordsMissing, match="orders-us"):
            list(origin.read(OffsetRange(BOTH, SECOND, 0, 1), ["value"], topic_id=known))
        with pytest.raises(UnknownTopic, match="orders-in"):
            origin.bounds(f"{BOTH},orders-in")
    finally:
        origin.close()


def test_a_topic_that_grew_holds_back_only_itself(directory: Path) -> None:
    with foldlog.open(directory) as log:
        log.grow_topic("orders-us", 2)
        log.append("orders-us", "us 3", partition=1)
    origin = open_origin(origin_spec(directory))
    try:
        facts, bounds = origin.topic(BOTH), origin.bounds(BOTH)
        begun = Bookmark(BOTH, facts.topic_id, {number: Position(0) for number in bounds}, dict.fromkeys(bounds, 0))
        assert reachable_ends(begun, facts, bounds) == {0: 2, 1: 2, SECOND: 3}  # not yet its new partition
        read = begun.advanced({SECOND: Position(3)})
        assert reachable_ends(read, facts, bounds) == {0: 2, 1: 2, SECOND: 3, SECOND + 1: 1}
        back = back_to_growths({0: 1, 1: 2, SECOND: 1, SECOND + 1: 1}, facts, bounds)
        assert back == {0: 1, 1: 2, SECOND: 1, SECOND + 1: 0}
    finally:
        origin.close()
