"""Token buckets, with a clock that the test turns: over any time nobody uses more than burst and rate allow."""

from __future__ import annotations

import random

import pytest

from foldlog.broker.access.buckets import DEBT_S_MAX, TokenBucket


def test_a_burst_is_free_and_what_goes_beyond_is_waited_for() -> None:
    bucket = TokenBucket(rate=1000, burst_s=10, now=100)
    bucket.use(10_000, now=100)
    assert bucket.wait_s(now=100) == 0
    bucket.use(500, now=100)
    assert bucket.wait_s(now=100) == 0.5
    assert bucket.wait_s(now=100.25) == 0.25
    assert bucket.wait_s(now=101) == 0


def test_it_never_holds_more_than_its_burst() -> None:
    bucket = TokenBucket(rate=10, burst_s=2, now=0)
    assert bucket.is_full(now=1000)
    bucket.use(25, now=1000)
    assert bucket.wait_s(now=1000) == 0.5
    assert not bucket.is_full(now=1002)
    assert bucket.is_full(now=1002.5)


def test_without_a_burst_every_use_is_waited_for() -> None:
    bucket = TokenBucket(rate=10, burst_s=0, now=0)
    assert bucket.wait_s(now=5) == 0
    bucket.use(10, now=5)
    assert bucket.wait_s(now=5) == 1


def test_a_debt_has_an_end() -> None:
    bucket = TokenBucket(rate=1, burst_s=10, now=0)
    bucket.use(1e12, now=0)
    assert bucket.wait_s(now=0) == DEBT_S_MAX
    short = TokenBucket(rate=1, burst_s=10, now=0, debt_s_max=1)
    short.use(1e12, now=0)
    assert short.wait_s(now=0) == 1


def test_another_rate_keeps_a_debt_as_long_as_it_was() -> None:
    bucket = TokenBucket(rate=10, burst_s=1, now=0)
    bucket.use(50, now=0)
    assert bucket.wait_s(now=0) == 4
    bucket.change_rate(1000, now=0)
    assert bucket.wait_s(now=0) == pytest.approx(4)
    assert bucket.burst == 1000


def test_a_clock_that_stands_still_gives_nothing() -> None:
    bucket = TokenBucket(rate=10, burst_s=1, now=5)
    bucket.use(20, now=5)
    assert bucket.wait_s(now=4) == bucket.wait_s(now=5) == 1


@pytest.mark.parametrize("seed", range(20))
def test_who_waits_as_told_uses_at_most_the_rate_and_one_burst(seed: int) -> None:
    rng = random.Random(seed)
    rate, burst_s, now, used, largest = rng.uniform(1, 1000), rng.uniform(0, 10), 0.0, 0.0, 0.0
    bucket = TokenBucket(rate, burst_s, now)
    for _ in range(500):
        now += rng.choice([0.0, rng.uniform(0, 1), bucket.wait_s(now)])
        if bucket.wait_s(now) == 0:
            amount = rng.uniform(0, rate * 3)
            bucket.use(amount, now)
            used, largest = used + amount, max(largest, amount)
    assert used <= rate * (now + burst_s) + largest + 1e-6
