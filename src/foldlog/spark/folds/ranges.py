"""Which offsets a fold reads next: pure planning, except for `RangeSizes`, which samples record sizes from the log.

A range is bounded by an estimate of its bytes and shared over the partitions in proportion to what each has left. When
a topic has grown, keys have moved: the records that the older partitions held at that moment are read before any that
were written after it, so that each key's records come in order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final

from foldlog.errors import FoldlogError
from foldlog.spark.origins.origin import Bounds, OffsetRange, Origin, TopicFacts
from foldlog.views.bookmark import Bookmark, Position
from foldlog.views.topic_lists import by_topic, numbered


def reachable_ends(bookmark: Bookmark, facts: TopicFacts, bounds: Mapping[int, Bounds]) -> dict[int, int]:
    """Per partition how far it may be read now: to its end, or to its end when the topic grew.

    Partitions that are missing here wait until the older ones have been read up to a growth.
    """
    if facts.each:
        return _of_each(facts, bounds, lambda one, own, first: reachable_ends(_own(bookmark, own, first), one, own))
    ends = {number: bound.end for number, bound in bounds.items()}
    # The first growth that is not read up to is a barrier. Between two growths a key is in one partition, so the order
    # of partitions does not matter; across a growth it does, as the key's newer records may be in another partition.
    # Assumed: producers route by the number of partitions they know. Records of a producer that still uses the old
    # number after the growth lie behind the remembered ends, and are not put in order.
    for growth in facts.growths or ():
        older = {number: end for number, end in enumerate(growth.ends) if number in bounds}
        if any(_at(bookmark, number, bounds) < end for number, end in older.items()):
            return {number: min(end, ends[number]) for number, end in older.items()}
    return ends


def back_to_growths(offsets: Mapping[int, int], facts: TopicFacts, bounds: Mapping[int, Bounds]) -> dict[int, int]:
    """Extend a rewind to `offsets` to all partitions.

    If records from before a growth are read again, all records from after it have to be read again, too: otherwise an
    older record of a key would replace its newer one, which is in another partition.
    """
    if facts.each:
        return _of_each(
            facts,
            bounds,
            lambda one, own, first: back_to_growths(
                {number: offsets[first + number] for number in own if first + number in offsets}, one, own
            ),
        )
    back = dict(offsets)
    for growth in facts.growths or ():
        older = {number: max(end, bounds[number].start) for number, end in enumerate(growth.ends) if number in bounds}
        if any(back[number] < end for number, end in older.items() if number in back):
            return {
                number: min(offset, older[number] if number in older else bounds[number].start)
                for number, offset in back.items()
                if number in bounds
            }
    return back


def _of_each(
    facts: TopicFacts,
    bounds: Mapping[int, Bounds],
    offsets_of: Callable[[TopicFacts, dict[int, Bounds], int], Mapping[int, int]],
) -> dict[int, int]:
    """Offsets of several topics that are read as one, of which each has grown by itself. `offsets_of` is given a topic
    with its own numbers of partitions, and the number that stands for the first of them."""
    split = by_topic(facts.name, bounds)
    return {
        numbered(topic, number): offset
        for topic, one in enumerate(facts.each)
        for number, offset in offsets_of(one, split[one.name], numbered(topic, 0)).items()
    }


def _own(bookmark: Bookmark, own: Iterable[int], first: int) -> Bookmark:
    """The bookmark's part in one of several topics, of which these are the partitions."""
    positions = {number: bookmark.positions[first + number] for number in own if first + number in bookmark.positions}
    return replace(bookmark, positions=positions)


def _at(bookmark: Bookmark, number: int, bounds: Mapping[int, Bounds]) -> int:
    """The reader's offset. Records that retention has removed count as read."""
    offset = bookmark.offset(number)
    return bounds[number].start if offset is None else max(offset, bounds[number].start)


def next_ranges(bookmark: Bookmark, ends: Mapping[int, int], budget: int) -> list[OffsetRange]:
    """Up to about `budget` offsets from the bookmark on, in proportion; at least one per partition with any left."""
    left = {
        number: end - position.offset
        for number, end in sorted(ends.items())
        if (position := bookmark.positions.get(number)) is not None and end > position.offset
    }
    total = sum(left.values())
    if not total:
        return []
    # In proportion, so that all partitions reach their ends together: no partition in the view is far ahead of another,
    # and the last ranges are as wide as the first, with a task for each core.
    share = min(1.0, max(1, budget) / total)
    ranges: list[OffsetRange] = []
    for number, lag in left.items():
        start = bookmark.positions[number].offset
        count = lag if share >= 1.0 else max(1, int(lag * share))
        ranges.append(OffsetRange(bookmark.topic, number, start, start + count))
    return ranges


def after(bookmark: Bookmark, ranges: Sequence[OffsetRange], bounds: Mapping[int, Bounds]) -> Bookmark:
    """The bookmark once these ranges are in the view: computed from the ranges, never from the rows."""
    # There may be no rows (filtered, compacted, tombstones), or the last ones may be dead letters: a bookmark taken
    # from the rows would stay behind what was read, and the range would be read for ever.
    return bookmark.advanced({one.partition: Position(one.stop, bounds[one.partition].leader_epoch) for one in ranges})


def split_for_tasks(ranges: Sequence[OffsetRange], tasks: int, smallest: int) -> list[list[OffsetRange]]:
    """The ranges cut into at most `tasks` lists of equal length, at least `smallest` offsets; the last may be shorter.

    >>> split_for_tasks([OffsetRange("t", 0, 0, 10), OffsetRange("t", 1, 5, 15)], 2, 1)[1]
    [OffsetRange(topic='t', partition=1, start=5, stop=15)]
    """
    total = sum(one.stop - one.start for one in ranges)
    wanted = max(1, min(tasks, total // max(1, smallest)))
    each = -(-total // wanted)
    lists: list[list[OffsetRange]] = [[]]
    room = each
    for one in ranges:
        start = one.start
        while start < one.stop:
            if room == 0:
                lists.append([])
                room = each
            stop = min(one.stop, start + room)
            lists[-1].append(one._replace(start=start, stop=stop))
            room -= stop - start
            start = stop
    return lists


def last_ranges(topic: str, bounds: Mapping[int, Bounds], offsets: int) -> list[OffsetRange]:
    """The last offsets of a topic, so many in all, in equal shares; a partition with fewer leaves its share to others.

    >>> last_ranges("t", {0: Bounds(0, 50, 0), 1: Bounds(7, 9, 0)}, 10)
    [OffsetRange(topic='t', partition=0, start=42, stop=50), OffsetRange(topic='t', partition=1, start=7, stop=9)]
    """
    found: list[OffsetRange] = []
    shortest_first = sorted(bounds, key=lambda number: bounds[number].end - bounds[number].start)
    for left, number in enumerate(shortest_first):
        start, end, _ = bounds[number]
        count = min(end - start, offsets // (len(bounds) - left))
        offsets -= count
        if count:
            found.append(OffsetRange(topic, number, end - count, end))
    return sorted(found)


def lag(bookmark: Bookmark, bounds: Mapping[int, Bounds]) -> int:
    """How many offsets lie between the bookmark and the end."""
    return sum(max(0, bound.end - _at(bookmark, number, bounds)) for number, bound in bounds.items())


RANGE_BYTES: Final = 64 << 20
"""The approximate size of a range. The driver holds one that is being applied, and one or two read ahead."""

GROWN_RANGE_BYTES: Final = 256 << 20
"""What a range whose rows do not pass the driver grows to, for each core of Spark's."""

GROWS_WITHIN_MS: Final = 5000
"""A range grows as long as computing one takes less: between two ranges the runner takes commands, and a range that
fails is read again."""


def grown_bytes(range_bytes: int, took_ms: float, cores: int) -> int:
    """The size of the next range, after one of this size that took so long and left more to read. So a backlog is read
    in ranges of some seconds, however many cores there are, and not in as many jobs as it has times 64 MiB.

    >>> grown_bytes(64 << 20, 900.0, 8) >> 20, grown_bytes(1 << 30, 16_000.0, 8) >> 20
    (128, 512)
    """
    if took_ms < GROWS_WITHIN_MS:
        return max(range_bytes, min(2 * range_bytes, GROWN_RANGE_BYTES * cores))
    return max(RANGE_BYTES, range_bytes // 2) if took_ms > 3 * GROWS_WITHIN_MS else range_bytes


def held_bytes(range_bytes: int, read_bytes: int, driver_bytes: int) -> int:
    """The size of the next range, so that what comes to the driver of it, such as the groups of counters, is not more
    than of a range whose rows pass it. Of the last one, `driver_bytes` came of the `read_bytes` that were read.

    >>> held_bytes(1 << 30, 100 << 20, 1 << 20) >> 20, held_bytes(1 << 30, 100 << 20, 50 << 20) >> 20
    (1024, 128)
    """
    if not read_bytes or not driver_bytes:
        return range_bytes
    return min(range_bytes, max(RANGE_BYTES // 4, RANGE_BYTES * read_bytes // driver_bytes))


_SAMPLE_OFFSETS: Final = 256
_FIRST_GUESS_BYTES: Final = 256.0


class RangeSizes:
    """Bytes per offset of each topic, as sampled and as measured. For one thread."""

    def __init__(self, origin: Origin) -> None:
        self._origin = origin
        self._met: dict[str, float] = {}

    def budget(self, bookmark: Bookmark, ends: Mapping[int, int], range_bytes: int) -> int:
        """About how many offsets from the bookmark on hold `range_bytes`; at least 1.

        Records may be small here and large further on: where the first guess is a long range, its far end is
        sampled too, and the larger size counts.
        """
        left = {number: end - bookmark.positions[number].offset for number, end in ends.items()}
        number = max(left, key=left.__getitem__, default=None)
        if number is None or left[number] <= 0:
            return 1
        start = bookmark.positions[number].offset
        # The larger of the measured and the sampled size: a range that is too small costs a little time, one that is
        # too large costs memory of the driver, and of one task.
        size = max(
            self._met.get(bookmark.topic, 0.0), self._sample(OffsetRange(bookmark.topic, number, start, ends[number]))
        )
        count = int(range_bytes / size)
        if count > _SAMPLE_OFFSETS:
            share = min(left[number], max(1, count * left[number] // sum(left.values())))
            for at in (start + share // 2, start + share - _SAMPLE_OFFSETS):
                if start < at:
                    size = max(size, self._sample(OffsetRange(bookmark.topic, number, at, ends[number])))
        return max(1, int(range_bytes / size))

    def of_offset(self, topic: str) -> float:
        """About how many bytes an offset holds, as far as it is known without a look into the log."""
        return self._met.get(topic, _FIRST_GUESS_BYTES)

    def met(self, topic: str, offsets: int, size_bytes: int) -> None:
        """Record the size of a range that was read: it is the best guess for the next."""
        if offsets > 0:
            self._met[topic] = max(1.0, size_bytes / offsets)

    def _sample(self, wanted: OffsetRange) -> float:
        stop = min(wanted.stop, wanted.start + _SAMPLE_OFFSETS)
        try:
            batch = next(iter(self._origin.read(wanted._replace(stop=stop), ["offset", "key", "value"])), None)
        except FoldlogError:
            batch = None  # damaged or gone: reading the range will raise it, and folds of other topics continue
        if batch is None:
            return _FIRST_GUESS_BYTES
        span = int(batch.column("offset")[-1].as_py()) - wanted.start + 1
        return max(1.0, float(batch.nbytes) / max(1, span))


def beyond(ranges: Sequence[OffsetRange], spans: Iterable[OffsetRange]) -> Iterator[OffsetRange]:
    """The parts of the ranges that are in none of the spans.

    >>> list(beyond([OffsetRange("t", 0, 0, 9)], [OffsetRange("t", 0, 5, 7), OffsetRange("t", 0, 0, 2)]))
    [OffsetRange(topic='t', partition=0, start=2, stop=5), OffsetRange(topic='t', partition=0, start=7, stop=9)]
    """
    by_partition: dict[int, list[tuple[int, int]]] = {}
    for one in spans:
        by_partition.setdefault(one.partition, []).append((one.start, one.stop))
    for one in ranges:
        start = one.start
        for first, stop in sorted(by_partition.get(one.partition, ())):
            if start < min(first, one.stop):
                yield one._replace(start=start, stop=min(first, one.stop))
            start = max(start, stop)
        if start < one.stop:
            yield one._replace(start=start)
