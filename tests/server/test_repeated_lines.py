"""Warnings that come again and again: one line, then a count; with a clock of the test's own, so nobody waits."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from foldlog.server.process_log import RepeatedLines
from foldlog.testing.sim_clock import SimClock


@pytest.fixture
def clock() -> SimClock:
    return SimClock()


@pytest.fixture
def logged(caplog: pytest.LogCaptureFixture) -> Callable[[], list[str]]:
    """The lines since the last look."""

    def look() -> list[str]:
        lines = [record.getMessage() for record in caplog.records]
        caplog.clear()
        return lines

    return look


def test_the_first_is_logged_and_the_next_are_counted(clock: SimClock, logged: Callable[[], list[str]]) -> None:
    lines = RepeatedLines(clock, interval_ms=10_000)
    for attempt in range(20):
        lines.warn("a", f"attempt {attempt}")
    lines.warn("b", "another")
    assert logged() == ["attempt 0", "another"]
    clock.advance(10_000)
    lines.warn("a", "attempt 20")
    lines.warn("a", "attempt 21")
    assert logged() == ["attempt 20 (and 19 more like it)"]


def test_a_sweep_tells_of_those_that_were_counted_and_forgets_those_that_did_not_come_again(
    clock: SimClock, logged: Callable[[], list[str]]
) -> None:
    lines = RepeatedLines(clock, interval_ms=10_000)
    for attempt in range(3):
        lines.warn("a", f"attempt {attempt}")
    lines.warn("b", "once")
    lines.sweep()
    assert logged() == ["attempt 0", "once"]
    clock.advance(10_000)
    lines.sweep()
    assert logged() == ["attempt 2 (and 1 more like it)"]
    lines.warn("a", "attempt 3")
    lines.warn("b", "twice")
    assert logged() == ["twice"]


def test_no_more_keys_are_remembered_than_allowed_and_no_count_is_lost(
    clock: SimClock, logged: Callable[[], list[str]]
) -> None:
    lines = RepeatedLines(clock, remembered_max=2)
    for key in ("a", "a", "a", "b", "c", "a"):
        lines.warn(key, key)
    assert logged() == ["a", "b", "c", "a (and 1 more like it)", "a"]
