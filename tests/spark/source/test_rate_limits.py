"""The rate limits of a stream, as pure functions: what a batch takes of each partition, and when it is due.

Hypothesis draws backlogs and limits; a clock that the test owns stands for time. No Spark is started.
"""

from __future__ import annotations

from fractions import Fraction

from hypothesis import given
from hypothesis import strategies as st

from foldlog.spark.source.options import TopicPartition
from foldlog.spark.source.stream_planner import RateLimits, TriggerPace, shares
from foldlog.testing.sim_clock import SimClock

PLACES = st.tuples(st.sampled_from(["orders", "payments"]), st.integers(0, 9))
BACKLOGS = st.dictionaries(PLACES, st.integers(0, 2**62), max_size=20)
LIMITS = st.integers(1, 2**62)


@given(LIMITS, BACKLOGS)
def test_a_share_is_the_proportion_rounded_down_but_at_least_one(
    limit: int, waiting: dict[TopicPartition, int]
) -> None:
    total = sum(waiting.values())
    taken = shares(limit, waiting)
    assert taken.keys() == {place for place, count in waiting.items() if count}
    for place, count in taken.items():
        exact = Fraction(limit) * Fraction(waiting[place], total)
        assert count == min(waiting[place], max(1, exact.numerator // exact.denominator))


@given(LIMITS, BACKLOGS)
def test_a_batch_is_within_the_limit_but_for_the_partitions_that_would_be_starved(
    limit: int, waiting: dict[TopicPartition, int]
) -> None:
    total = sum(waiting.values())
    taken = shares(limit, waiting)
    starved = [place for place in taken if limit * waiting[place] < total]
    assert sum(taken.values()) <= limit + len(starved)
    if not starved:
        assert sum(taken.values()) <= limit


@given(st.integers(1, 200), st.dictionaries(PLACES, st.integers(0, 300), max_size=6))
def test_taking_shares_again_and_again_takes_everything_once(limit: int, waiting: dict[TopicPartition, int]) -> None:
    left = dict(waiting)
    for _ in range(sum(waiting.values())):
        taken = shares(limit, left)
        if not taken:
            break
        assert all(1 <= count <= left[place] for place, count in taken.items())
        left = {place: count - taken.get(place, 0) for place, count in left.items()}
    assert not any(left.values())


@given(BACKLOGS)
def test_a_limit_that_everything_fits_into_takes_everything(waiting: dict[TopicPartition, int]) -> None:
    total = sum(waiting.values())
    assert shares(max(1, total), waiting) == {place: count for place, count in waiting.items() if count}


def test_no_float_rounds_a_share_up_or_down() -> None:
    waiting = {("t", 0): 2**53 + 1, ("t", 1): 2**53 + 1}
    assert shares(2**54 + 2, waiting) == waiting
    assert shares(2 * 3, {("t", 0): 1, ("t", 1): 2}) == {("t", 0): 1, ("t", 1): 2}
    assert sum(shares(100, {("t", number): 7 for number in range(3)}).values()) == 21


def test_the_first_batch_is_due_as_soon_as_anything_waits() -> None:
    pace = TriggerPace(RateLimits(min_offsets=100), SimClock())
    assert not pace.is_due(0)
    assert pace.is_due(1)


def test_later_batches_wait_for_enough_or_for_the_delay() -> None:
    clock = SimClock()
    pace = TriggerPace(RateLimits(min_offsets=100, max_delay_ms=60_000), clock)
    assert pace.is_due(5)
    clock.advance(59_999)
    assert not pace.is_due(99)
    assert pace.is_due(100)  # enough is there, whatever the time
    clock.advance(59_999)
    assert not pace.is_due(99)
    clock.advance(1)
    assert pace.is_due(1)
    assert not pace.is_due(1)  # the delay begins anew with each batch


def test_a_trigger_that_finds_nothing_does_not_begin_the_delay_anew() -> None:
    clock = SimClock()
    pace = TriggerPace(RateLimits(min_offsets=100, max_delay_ms=60_000), clock)
    assert pace.is_due(5)
    clock.advance(60_000)
    assert not pace.is_due(0)
    clock.advance(1)
    assert pace.is_due(1)


def test_a_wall_clock_that_is_set_back_delays_nothing() -> None:
    clock = SimClock()
    pace = TriggerPace(RateLimits(min_offsets=100, max_delay_ms=60_000), clock)
    assert pace.is_due(5)
    clock.advance(60_000)
    clock.set_wall(0)
    assert pace.is_due(1)


@given(st.lists(st.integers(0, 50), max_size=40), st.integers(1, 30))
def test_without_a_minimum_every_trigger_that_finds_something_is_due(waiting: list[int], step_ms: int) -> None:
    clock = SimClock()
    pace = TriggerPace(RateLimits(max_offsets=7), clock)
    for count in waiting:
        assert pace.is_due(count) is (count > 0)
        clock.advance(step_ms)


def test_limits_know_whether_they_limit_anything() -> None:
    assert RateLimits().is_unlimited
    assert not RateLimits(max_offsets=1).is_unlimited
    assert not RateLimits(min_offsets=1).is_unlimited
