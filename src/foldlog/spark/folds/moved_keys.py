"""Infers from a topic's keys where it grew, if its brokers do not remember that.

The home of a key is the partition that its hash selects with the current number of partitions. A record elsewhere was
written before a growth, so it is older than its key's records at home. The offset after the last such record of each
partition can stand for its end at the growth: once all partitions are read up to there, each key's records come in
order.

This takes one pass over the keys of the records to be read, in all partitions at once. After several growths, of a
key that has moved more than once only the newest partition is sure to be read last. If partitions are chosen by another
rule, nearly all records count as moved, and almost nothing is held back.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from foldlog.spark.origins.origin import Bounds, OffsetRange, Origin, TopicFacts, TopicGrowth
from foldlog.views.bookmark import Bookmark
from foldlog.views.topic_lists import by_topic, numbered

if TYPE_CHECKING:
    import pyarrow as pa

    from foldlog.spark.folds.feed import Feed


def with_growths(
    feed: Feed, base: Bookmark, origin: Origin, facts: TopicFacts, bounds: Mapping[int, Bounds]
) -> TopicFacts:
    """The facts, with a growth inferred from moved keys if the view follows keys and the brokers remember no growths.

    Computed once per bookmark epoch, so again after a rewind. A growth while the fold runs is an error: see
    `checked_bookmark`.
    """
    if facts.each:
        split = by_topic(facts.name, bounds)
        each = [
            _with_growths(feed, base, origin, one, split[one.name], numbered(topic, 0))
            for topic, one in enumerate(facts.each)
        ]
        return replace(facts, each=tuple(each))
    return _with_growths(feed, base, origin, facts, bounds, 0)


def _with_growths(
    feed: Feed, base: Bookmark, origin: Origin, facts: TopicFacts, bounds: Mapping[int, Bounds], first: int
) -> TopicFacts:
    """`with_growths` of one topic, whose partitions the bookmark counts from `first` on."""
    if facts.growths is not None or not feed.fold.view.follows_keys or len(bounds) < 2:
        return facts
    known = feed.moved_keys.get(facts.topic_id)
    if known is None or known[0] != base.epoch:
        stops = feed.stops or {}
        ranges = [
            OffsetRange(
                facts.name,
                number,
                base.offset(first + number) or 0,
                min(bound.end, stops.get(first + number, bound.end)),
            )
            for number, bound in sorted(bounds.items())
        ]
        ends = ends_of_moved_keys(origin, ranges, facts.topic_id)
        known = feed.moved_keys[facts.topic_id] = (
            base.epoch,
            (TopicGrowth(len(bounds), ends),) if any(ends) else (),
        )
    return replace(facts, growths=known[1])


def ends_of_moved_keys(origin: Origin, ranges: Sequence[OffsetRange], topic_id: str | None = None) -> tuple[int, ...]:
    """For one range per partition: one past its last record whose key is at home in another; 0 if there is none."""
    ends = {one.partition: 0 for one in ranges}
    unread = [one for one in ranges if one.start < one.stop]
    for wanted, batch in origin.read_all(unread, ["key", "offset"], topic_id=topic_id):
        row = _last_moved_key(batch.column("key"), wanted.partition, len(ranges))
        if row >= 0:
            ends[wanted.partition] = batch.column("offset")[row].as_py() + 1
    return tuple(ends.values())


def _last_moved_key(keys: pa.Array, partition: int, partitions: int) -> int:
    """The last row whose key is at home in another partition; -1 if there is none. Records without key have no home."""
    import numpy as np

    from foldlog.records.arrow import binary_input
    from foldlog.records.loops import route_rows

    homes = route_rows(binary_input("key", keys), None, len(keys), partitions)
    last = [np.frombuffer(memoryview(rows), np.int64)[-1] for number, rows in homes if number not in (partition, -1)]
    return int(max(last, default=-1))
