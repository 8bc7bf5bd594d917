"""Which offsets a fold reads next: pure planning, no I/O.

A range is bounded by an estimate of its bytes and shared over the partitions in proportion to what each has left. When
a topic has grown, keys have moved: what the older partitions held at that moment is finished before anything that was
written after it is read, so that a key's records come in order.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from foldlog.spark.origins.origin import Bounds, OffsetRange, TopicFacts
from foldlog.views.bookmark import Bookmark, Position


def reachable_ends(bookmark: Bookmark, facts: TopicFacts, bounds: Mapping[int, Bounds]) -> dict[int, int]:
    """Per partition how far may be read now: to its end, or to where it ended when the topic grew.

    Partitions that are not among them wait until the older ones have been read up to a growth.
    """
    ends = {number: bound.end for number, bound in bounds.items()}
    for growth in facts.growths or ():
        older = {number: end for number, end in enumerate(growth.ends) if number in bounds}
        if any(_at(bookmark, number, bounds) < end for number, end in older.items()):
            return {number: min(end, ends[number]) for number, end in older.items()}
    return ends


def back_to_growths(offsets: Mapping[int, int], facts: TopicFacts, bounds: Mapping[int, Bounds]) -> dict[int, int]:
    """Where a reader that goes back to `offsets` has to go back to in all partitions.

    Who reads again what was written before a growth has to read all again that was written after it: an older record
    of a key would else stay over its newer one, which is in another partition.
    """
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


def _at(bookmark: Bookmark, number: int, bounds: Mapping[int, Bounds]) -> int:
    """Where the reader stands: what retention has taken counts as read, as nobody can read it any more."""
    offset = bookmark.offset(number)
    return bounds[number].start if offset is None else max(offset, bounds[number].start)


def next_ranges(bookmark: Bookmark, ends: Mapping[int, int], budget: int) -> list[OffsetRange]:
    """Up to about `budget` offsets from the bookmark on, shared in proportion; at least one where there is any."""
    left = {
        number: end - position.offset
        for number, end in sorted(ends.items())
        if (position := bookmark.positions.get(number)) is not None and end > position.offset
    }
    total = sum(left.values())
    if not total:
        return []
    share = min(1.0, max(1, budget) / total)
    ranges: list[OffsetRange] = []
    for number, lag in left.items():
        start = bookmark.positions[number].offset
        count = lag if share >= 1.0 else max(1, int(lag * share))
        ranges.append(OffsetRange(bookmark.topic, number, start, start + count))
    return ranges


def after(bookmark: Bookmark, ranges: Sequence[OffsetRange], bounds: Mapping[int, Bounds]) -> Bookmark:
    """The bookmark once these ranges are in the view: it comes from the ranges, never from the rows."""
    return bookmark.advanced({one.partition: Position(one.stop, bounds[one.partition].leader_epoch) for one in ranges})


def split_for_tasks(ranges: Sequence[OffsetRange], tasks: int, smallest: int) -> list[list[OffsetRange]]:
    """The ranges cut into at most `tasks` lists of about equal length, in order; none shorter than `smallest` offsets.

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


def lag(bookmark: Bookmark, bounds: Mapping[int, Bounds]) -> int:
    """How many offsets lie between the bookmark and the end."""
    return sum(max(0, bound.end - _at(bookmark, number, bounds)) for number, bound in bounds.items())
