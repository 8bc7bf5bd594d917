"""Where keys moved in a topic that nobody remembers to have grown: found in its records, so that those of a key are
read in their order however the ranges are cut.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from random import Random
from typing import Any, cast

import pyarrow as pa
import pytest

import foldlog.spark as fl
from file_view import FileView
from foldlog.client.outgoing import partition_for_key
from foldlog.spark.folds.feed import Feed, ends_of, starting_bookmark
from foldlog.spark.folds.moved_keys import ends_of_moved_keys, with_growths
from foldlog.spark.folds.ranges import after, next_ranges
from foldlog.spark.origins.origin import Bounds, OffsetRange, Origin, TopicFacts

Keys = Mapping[int, Sequence[str | None]]


class Topic:
    """What an origin tells of a topic: the key at each offset of each partition, in batches of three."""

    def __init__(self, keys: Keys) -> None:
        self.keys = keys
        self.reads = 0

    @property
    def facts(self) -> TopicFacts:
        return TopicFacts("orders", "id", len(self.keys), is_compacted=False, growths=None)

    @property
    def bounds(self) -> dict[int, Bounds]:
        return {number: Bounds(0, len(keys), 0) for number, keys in self.keys.items()}

    def read_all(
        self, wanted: Sequence[OffsetRange], columns: Sequence[str], *, topic_id: str | None = None
    ) -> Iterator[tuple[OffsetRange, pa.RecordBatch]]:
        """A batch of each in turn, as several leaders answer."""
        assert (list(columns), topic_id) == (["key", "offset"], "id")
        self.reads += 1
        for start in range(0, max((one.stop for one in wanted), default=0), 3):
            for one in wanted:
                offsets = range(max(start, one.start), min(start + 3, one.stop))
                if offsets:
                    yield one, self._batch(one.partition, offsets)

    def _batch(self, partition: int, offsets: range) -> pa.RecordBatch:
        keys = [self.keys[partition][offset] for offset in offsets]
        encoded = [None if key is None else key.encode() for key in keys]
        return pa.RecordBatch.from_pydict(
            {"key": pa.array(encoded, pa.binary()), "offset": pa.array(offsets, pa.int64())}
        )

    @property
    def origin(self) -> Origin:
        return cast(Origin, self)


def feed_of(tmp_path: Path, **settings: Any) -> Feed:
    view = FileView(tmp_path / "view.json")
    fold = fl.fold(fl.topic("orders", key="id", schema="n INT"), into=view, name="mirror")(lambda rows: rows)
    return Feed(fold, view, **settings)


def home(key: str, partitions: int) -> int:
    return partition_for_key(key.encode(), partitions)


def grown(counts: Sequence[int], per_count: int, seed: int) -> tuple[Topic, dict[tuple[int, int], int]]:
    """A topic that had these numbers of partitions one after the other; and which record came when."""
    choose = Random(seed)
    keys: dict[int, list[str | None]] = {number: [] for number in range(counts[-1])}
    written: dict[tuple[int, int], int] = {}
    for count in counts:
        for _ in range(per_count):
            key = f"k{choose.randrange(20)}"
            number = home(key, count)
            written[number, len(keys[number])] = len(written)
            keys[number].append(key)
    return Topic(keys), written


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("counts", [(1, 2), (2, 3), (2, 5), (3, 4), (4,)])
def test_a_keys_records_are_read_in_their_order_whatever_the_ranges(
    counts: tuple[int, ...], seed: int, tmp_path: Path
) -> None:
    topic, written = grown(counts, 60, seed)
    feed, facts, bounds = feed_of(tmp_path), topic.facts, topic.bounds
    bookmark = starting_bookmark(facts, bounds)
    last: dict[str, int] = {}
    read = 0
    while ranges := next_ranges(
        bookmark, ends_of(feed, bookmark, with_growths(feed, bookmark, topic.origin, facts, bounds), bounds), 9
    ):
        in_this_range: dict[str, int] = {}
        places: dict[str, int] = {}
        for one in ranges:
            for offset in range(one.start, one.stop):
                key = topic.keys[one.partition][offset]
                assert key is not None
                assert places.setdefault(key, one.partition) == one.partition, f"{key} is in one range twice"
                number = written[one.partition, offset]
                assert number > last.get(key, -1), f"{key} of {number} was read after {last[key]}"
                in_this_range[key] = max(number, in_this_range.get(key, -1))
                read += 1
        last |= in_this_range
        bookmark = after(bookmark, ranges, bounds)
    assert read == len(written)
    assert topic.reads == 1, "all partitions are looked at together"


def test_strangers_are_counted_to_the_last_one(tmp_path: Path) -> None:
    here = next(f"k{n}" for n in range(99) if home(f"k{n}", 2) == 0)
    there = next(f"k{n}" for n in range(99) if home(f"k{n}", 2) == 1)
    topic = Topic({0: [here, there, None, here, there, here, here, here], 1: [there, None]})

    def ends(first: tuple[int, int], second: tuple[int, int] = (0, 2)) -> tuple[int, ...]:
        ranges = [OffsetRange("orders", 0, *first), OffsetRange("orders", 1, *second)]
        return ends_of_moved_keys(topic.origin, ranges, "id")

    assert ends((0, 8)) == (5, 0)
    assert ends((2, 4)) == (0, 0)
    assert ends((5, 8)) == (0, 0)
    assert ends((3, 3)) == (0, 0)
    assert ends((3, 3), (2, 2)) == (0, 0)


def test_a_replay_looks_no_further_than_it_reads(tmp_path: Path) -> None:
    """Else it would wait for records behind its end, and be done before it has read all that it was to read."""
    topic, _ = grown((2, 3), 60, 1)
    stops = {number: bound.end // 3 for number, bound in topic.bounds.items()}
    feed, facts = feed_of(tmp_path, stops=stops), topic.facts
    bookmark = starting_bookmark(facts, topic.bounds)
    for growth in with_growths(feed, bookmark, topic.origin, facts, topic.bounds).growths or ():
        assert all(end <= stops[number] for number, end in enumerate(growth.ends))


def test_it_is_looked_for_once_and_again_after_a_rewind(tmp_path: Path) -> None:
    topic, _ = grown((2, 3), 20, 2)
    feed, facts, bounds = feed_of(tmp_path), topic.facts, topic.bounds
    bookmark = starting_bookmark(facts, bounds)
    found = with_growths(feed, bookmark, topic.origin, facts, bounds)
    assert with_growths(feed, bookmark, topic.origin, facts, bounds) == found
    assert topic.reads == 1
    moved = bookmark.moved({})
    assert with_growths(feed, moved, topic.origin, facts, bounds) == found
    assert topic.reads == 2


def test_what_brokers_remember_is_believed(tmp_path: Path) -> None:
    topic, _ = grown((2, 3), 20, 3)
    told = TopicFacts("orders", "id", 3, is_compacted=False, growths=())
    assert (
        with_growths(feed_of(tmp_path), starting_bookmark(told, topic.bounds), topic.origin, told, topic.bounds) is told
    )
    assert topic.reads == 0
