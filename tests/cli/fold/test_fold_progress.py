"""How running folds look, and what signals mean to them: a table over itself, lines, one asking and the next.

Feeds are filled by hand; the terminal is one that remembers what stands on it.
"""

from __future__ import annotations

import io
import logging
import os
import signal
from pathlib import Path

import pytest
from rich.console import Console

import foldlog.spark as fl
from cli.screen import Terminal
from file_view import FileView
from foldlog.cli.fold.progress import Lines, LiveBoard, board, progress_for
from foldlog.cli.signals import STOPPING, StopOnSignals
from foldlog.spark.folds.feed import Feed, State
from foldlog.spark.origins.origin import OffsetRange
from foldlog.testing.sim_clock import SimClock


@pytest.fixture
def feed(tmp_path: Path) -> Feed:
    @fl.fold(fl.topic("orders", key="id", format="text"), into=FileView(tmp_path / "view.json"))
    def mirror(rows):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202 nobody calls it
        return rows

    return Feed(mirror, mirror.view)


def stored(feed: Feed, stop: int, *, lag: int = 0) -> Feed:
    """As after a range."""
    feed.last_ranges = (OffsetRange("orders", 0, 0, stop),)
    feed.records, feed.rows_per_s, feed.range_s, feed.lag, feed.state = stop, 1234.5, 0.414, lag, State.RUNNING
    return feed


def caught_up(feed: Feed) -> Feed:
    feed.rows_per_s, feed.state, feed.lag = 0.0, State.CAUGHT_UP, 0
    return feed


def failed(feed: Feed, state: State, error: str) -> Feed:
    feed.state, feed.error = state, error
    return feed


def test_elsewhere_than_on_a_terminal_there_is_a_line_per_range(feed: Feed) -> None:
    stream = io.StringIO()
    clock = SimClock(1_763_456_789_012)
    lines = Lines(stream, clock)
    lines.show(stored(feed, 10, lag=5))
    clock.advance(61_000)
    lines.show(stored(feed, 15))
    lines.show(caught_up(feed))
    lines.show(failed(feed, State.WAITING, "the table is away"))
    lines.show(failed(feed, State.FAILED, "the table is gone"))
    assert stream.getvalue().splitlines() == [
        "2025-11-18T09:06:29.012Z mirror: 0=0:10  10 records in all, 1234 rows/s, 0.41 s, lag 5",
        "2025-11-18T09:07:30.012Z mirror: 0=0:15  15 records in all, 1234 rows/s, 0.41 s, lag 0",
        "2025-11-18T09:07:30.012Z mirror: waiting: the table is away; it is tried again",
        "2025-11-18T09:07:30.012Z mirror: failed: the table is gone",
    ]


def test_a_fold_with_nothing_to_read_says_once_that_it_has_caught_up(feed: Feed) -> None:
    stream = io.StringIO()
    lines = Lines(stream)
    for _ in range(3):
        lines.show(caught_up(feed))
    assert stream.getvalue().endswith("Z mirror: caught up\n")
    assert stream.getvalue().count("\n") == 1


def test_dead_letters_are_told(feed: Feed) -> None:
    stream = io.StringIO()
    feed.dead = 2
    Lines(stream).show(stored(feed, 10))
    assert stream.getvalue().endswith(", lag 0, 2 dead\n")


@pytest.fixture(autouse=True)
def _size(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (("TERM", "xterm"), ("COLUMNS", "80"), ("LINES", "25")):
        monkeypatch.setenv(name, value)


def test_on_a_terminal_the_table_is_drawn_over_itself(feed: Feed) -> None:
    stream = Terminal()
    table = LiveBoard(stream, ["mirror"])
    table.doing("starting Spark")
    assert [line.split()[:2] for line in stream.lines()[1:]] == [["mirror", "starting"], ["starting", "Spark"]]
    table.show(caught_up(stored(feed, 10)))
    assert len(stream.lines()) == 2
    assert "caught up" in stream.lines()[1]
    assert "starting" not in stream.lines()[1]
    table.finish()
    assert len(stream.lines()) == 2


def test_what_a_signal_means_stands_below_the_table_until_it_ends(feed: Feed) -> None:
    stream = Terminal()
    table = LiveBoard(stream, ["mirror"])
    table.show(caught_up(stored(feed, 10)))
    table.hear(STOPPING)
    table.show(caught_up(stored(feed, 15)))
    assert stream.lines()[2:] == [STOPPING]
    table.finish()
    assert len(stream.lines()) == 2


def test_a_table_that_was_never_drawn_leaves_nothing_behind() -> None:
    stream = Terminal()
    with progress_for(stream, ["mirror"]):
        pass
    assert stream.getvalue() == ""


def test_a_long_error_is_wrapped_and_no_line_is_wider_than_the_terminal(feed: Feed) -> None:
    failed(stored(feed, 10), State.FAILED, "the table cannot be used: " + "it really cannot " * 20)
    stream = Terminal()
    Console(file=stream, width=60).print(board({"mirror": feed}))
    lines = stream.lines()
    assert max(map(len, lines)) <= 60
    assert " ".join(lines[2:]).endswith("it really cannot")


def test_a_table_is_never_higher_than_the_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LINES", "6")
    stream = Terminal()
    table = LiveBoard(stream, [f"fold{number}" for number in range(50)])
    table.doing("starting Spark")
    assert len(stream.lines()) <= 6
    table.finish()


@pytest.mark.parametrize("stream", [io.StringIO(), Terminal()], ids=["lines", "terminal"])
def test_warnings_of_the_package_become_part_of_what_is_shown(feed: Feed, stream: io.StringIO) -> None:
    with progress_for(stream) as progress:
        progress.show(stored(feed, 10))
        logging.getLogger("foldlog").warning("the status of %s cannot be published", "mirror")
    assert "the status of mirror cannot be published\n" in stream.getvalue()
    assert not [one for one in logging.getLogger("foldlog").handlers if type(one).__name__ == "_Notes"]


def test_the_first_signal_asks_and_one_that_belongs_to_it_does_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    left: list[int] = []
    monkeypatch.setattr(os, "_exit", left.append)
    told: list[str] = []
    clock = SimClock()
    before = signal.getsignal(signal.SIGTERM)
    with StopOnSignals(told.append, clock) as signals:
        signals.listen()
        signal.raise_signal(signal.SIGTERM)
        assert signals.is_asked
        clock.advance(100)
        signal.raise_signal(signal.SIGTERM)  # `timeout` signals the process, and then its group
        assert left == []
        clock.advance(1000)
        signal.raise_signal(signal.SIGINT)
        assert left == [130]
    assert told == [STOPPING]
    assert signal.getsignal(signal.SIGTERM) is before


def test_a_signal_that_was_ignored_stays_ignored() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with StopOnSignals(lambda text: None) as signals:
            signals.listen()
            signal.raise_signal(signal.SIGHUP)
            assert not signals.is_asked
    finally:
        signal.signal(signal.SIGHUP, before)
