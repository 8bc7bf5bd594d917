"""What a fold reads next: planning against a model, and the order of keys when a topic has grown."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from foldlog.spark.folds.ranges import after, back_to_growths, lag, next_ranges, reachable_ends, split_for_tasks
from foldlog.spark.origins.origin import Bounds, OffsetRange, TopicFacts, TopicGrowth
from foldlog.views.bookmark import Bookmark, Position

Ends = dict[int, int]

lags = st.dictionaries(st.integers(0, 5), st.tuples(st.integers(0, 1000), st.integers(0, 5000)), min_size=1)


def bookmark_at(offsets: Ends) -> Bookmark:
    return Bookmark("t", "id", {number: Position(at) for number, at in offsets.items()}, dict.fromkeys(offsets, 0))


def bounds_of(ends: Ends, starts: Ends | None = None) -> dict[int, Bounds]:
    return {number: Bounds((starts or {}).get(number, 0), end, 0) for number, end in ends.items()}


@given(lags, st.integers(1, 10_000))
def test_ranges_begin_at_the_bookmark_stay_below_the_ends_and_always_get_somewhere(
    partitions: dict[int, tuple[int, int]], budget: int
) -> None:
    bookmark = bookmark_at({number: at for number, (at, _) in partitions.items()})
    ends = {number: at + left for number, (at, left) in partitions.items()}
    ranges = next_ranges(bookmark, ends, budget)
    for one in ranges:
        assert one.start == bookmark.positions[one.partition].offset
        assert one.start < one.stop <= ends[one.partition]
    read = sum(one.stop - one.start for one in ranges)
    assert read < budget + len(ranges)  # each gets one at least, which its share may not have given it
    assert bool(ranges) == any(left for _, left in partitions.values())
    if sum(left for _, left in partitions.values()) <= budget:
        assert {one.partition: one.stop for one in ranges} == {n: e for n, e in ends.items() if partitions[n][1]}


@given(lags, st.integers(1, 500))
def test_reading_range_after_range_reaches_every_end_and_no_offset_twice(
    partitions: dict[int, tuple[int, int]], budget: int
) -> None:
    bookmark = bookmark_at({number: at for number, (at, _) in partitions.items()})
    ends = {number: at + left for number, (at, left) in partitions.items()}
    bounds = bounds_of(ends)
    while ranges := next_ranges(bookmark, ends, budget):
        bookmark = after(bookmark, ranges, bounds)
    assert {number: at.offset for number, at in bookmark.positions.items()} == ends
    assert lag(bookmark, bounds) == 0


@given(
    st.lists(st.tuples(st.integers(0, 3), st.integers(0, 100), st.integers(1, 400)), max_size=6),
    st.integers(1, 8),
    st.integers(1, 100),
)
def test_tasks_together_read_exactly_the_ranges_in_order(
    given_ranges: list[tuple[int, int, int]], tasks: int, smallest: int
) -> None:
    ranges = [OffsetRange("t", number, start, start + count) for number, start, count in given_ranges]
    lists = split_for_tasks(ranges, tasks, smallest)
    assert 1 <= len(lists) <= tasks
    assert _offsets(one for pieces in lists for one in pieces) == _offsets(ranges)
    if len(lists) > 1:
        lengths = [sum(one.stop - one.start for one in pieces) for pieces in lists]
        assert max(lengths) - lengths[0] == 0  # all but the last are equally long
        assert lengths[0] >= smallest


def _offsets(ranges: object) -> list[tuple[int, int]]:
    assert not isinstance(ranges, int)
    return [(one.partition, at) for one in ranges for at in range(one.start, one.stop)]  # type: ignore[attr-defined]


def test_after_a_growth_the_older_partitions_are_finished_before_anything_newer_is_read() -> None:
    facts = TopicFacts("t", "id", 3, False, (TopicGrowth(3, (10, 20)),))
    bounds = bounds_of({0: 50, 1: 60, 2: 5})
    assert reachable_ends(bookmark_at({0: 0, 1: 0, 2: 0}), facts, bounds) == {0: 10, 1: 20}
    assert reachable_ends(bookmark_at({0: 10, 1: 19, 2: 0}), facts, bounds) == {0: 10, 1: 20}
    assert reachable_ends(bookmark_at({0: 10, 1: 20, 2: 0}), facts, bounds) == {0: 50, 1: 60, 2: 5}


def test_each_of_several_growths_is_waited_for_in_turn() -> None:
    facts = TopicFacts("t", "id", 4, False, (TopicGrowth(2, (10,)), TopicGrowth(4, (30, 7))))
    bounds = bounds_of({0: 50, 1: 50, 2: 50, 3: 50})
    assert reachable_ends(bookmark_at({0: 0, 1: 0}), facts, bounds) == {0: 10}
    assert reachable_ends(bookmark_at({0: 10, 1: 0}), facts, bounds) == {0: 30, 1: 7}
    assert reachable_ends(bookmark_at({0: 30, 1: 7}), facts, bounds) == {0: 50, 1: 50, 2: 50, 3: 50}


def test_what_retention_has_taken_before_a_growth_is_not_waited_for() -> None:
    facts = TopicFacts("t", "id", 2, False, (TopicGrowth(2, (10,)),))
    bounds = bounds_of({0: 50, 1: 5}, {0: 12})
    assert reachable_ends(bookmark_at({0: 0, 1: 0}), facts, bounds) == {0: 50, 1: 5}


def test_who_goes_back_behind_a_growth_reads_all_again_that_came_after_it() -> None:
    facts = TopicFacts("t", "id", 4, False, (TopicGrowth(2, (10,)), TopicGrowth(4, (30, 7))))
    bounds = bounds_of({0: 50, 1: 50, 2: 50, 3: 50}, {3: 2})
    assert back_to_growths({0: 5, 1: 50, 2: 50, 3: 50}, facts, bounds) == {0: 5, 1: 0, 2: 0, 3: 2}
    assert back_to_growths({0: 50, 1: 3, 2: 50, 3: 50}, facts, bounds) == {0: 30, 1: 3, 2: 0, 3: 2}
    assert back_to_growths({0: 40, 1: 20, 2: 9, 3: 50}, facts, bounds) == {0: 40, 1: 20, 2: 9, 3: 50}
    unknown = TopicFacts("t", "id", 4, False, None)
    assert back_to_growths({0: 5, 1: 50}, unknown, bounds) == {0: 5, 1: 50}


@given(
    st.lists(st.tuples(st.integers(0, 30), st.integers(0, 30)), min_size=1, max_size=4),
    st.lists(st.integers(0, 30), min_size=4, max_size=4),
    st.lists(st.integers(0, 30), min_size=4, max_size=4),
)
def test_after_going_back_no_record_is_read_again_without_those_that_were_written_after_it(
    grown: list[tuple[int, int]], read: list[int], back: list[int]
) -> None:
    """A model: each growth adds one partition, and what came before it is below its ends."""
    growths, ends = [], [0]
    for first, more in grown:
        ends = [end + first for end in ends]
        growths.append(TopicGrowth(len(ends) + 1, tuple(ends)))
        ends = [end + more for end in ends] + [more]
    facts = TopicFacts("t", "id", len(ends), False, tuple(growths))
    bounds = bounds_of(dict(enumerate(ends)))
    wanted = {number: min(end, read[number % 4], back[number % 4]) for number, end in enumerate(ends)}
    found = back_to_growths(wanted, facts, bounds)
    assert all(found[number] <= wanted[number] for number in wanted)
    for growth in growths:
        is_read_again = any(found[number] < end for number, end in enumerate(growth.ends))
        if is_read_again:
            for number in wanted:
                assert found[number] <= (growth.ends[number] if number < len(growth.ends) else 0)


@given(st.lists(st.integers(0, 2000), min_size=1, max_size=6), st.integers(1, 8))
def test_a_skewed_topic_is_as_many_equal_tasks_as_an_even_one(lengths: list[int], tasks: int) -> None:
    """A partition with nearly all records is split by offset: no task waits for one that has it all."""
    ranges = [OffsetRange("t", number, 7, 7 + length) for number, length in enumerate([*lengths, 100_000])]
    lists = split_for_tasks(ranges, tasks, 1000)
    assert len(lists) == tasks
    sizes = [sum(one.stop - one.start for one in some) for some in lists]
    assert max(sizes) - min(sizes) <= tasks
