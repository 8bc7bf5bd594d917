"""A feed's failures, its progress, and who waits for it: when it is tried again, when not, and what others are told.

Nothing is run: a clock that is a number, futures that the test keeps, no Spark session.
"""

from __future__ import annotations

from concurrent.futures import Future
from pathlib import Path

import pytest

import foldlog.spark as fl
from file_view import FileView
from foldlog.errors import FoldError, ViewUnavailable
from foldlog.spark.folds.feed import SAME_FAILURES_MAX, Feed, State
from foldlog.spark.folds.replay import Rewound
from foldlog.spark.folds.runner import awaited
from foldlog.views.bookmark import Bookmark, Position
from folds_model import SCHEMA


def at(first: int, second: int = 0) -> Bookmark:
    return Bookmark("payments", "id", {0: Position(first), 1: Position(second)}, {0: 0, 1: 0})


@pytest.fixture
def feed(tmp_path: Path) -> Feed:
    payments = fl.topic("payments", key="tx_id", schema=SCHEMA)
    view = FileView(tmp_path / "mirror.json")
    return Feed(fl.fold(payments, into=view, name="mirror")(lambda rows: rows), view, bookmark=at(7))


def task_error(number: int) -> FoldError:
    return FoldError(f"fold 'mirror' failed in Spark: Task {number} in stage {number}.0 failed: no tea")


def test_the_same_error_at_the_same_place_is_tried_with_growing_pauses_and_then_no_more(feed: Feed) -> None:
    pauses: list[float] = []
    for number in range(SAME_FAILURES_MAX - 1):
        feed.fail_again(task_error(number), 0.0)
        assert feed.state is State.WAITING
        pauses.append(feed.retry_at_ms)
    feed.fail_again(task_error(99), 0.0)
    assert feed.state is State.FAILED
    assert f"the same {SAME_FAILURES_MAX} times" in (feed.error or "")
    assert "foldlog fold resume mirror" in (feed.error or "")
    assert pauses == sorted(pauses)
    assert 30_000 < sum(pauses) < 120_000


@pytest.mark.parametrize("change", ["another error", "another place", "success", "an outage"])
def test_what_changes_between_two_failures_makes_them_different_ones(feed: Feed, change: str) -> None:
    for number in range(3 * SAME_FAILURES_MAX):
        feed.fail_again(task_error(number) if change != "another error" else FoldError("ab"[number % 2]), 0.0)
        if change == "another place":
            feed.bookmark = at(7 + number)
        elif change == "success":
            feed.recovered()
        elif change == "an outage":
            feed.fail(ViewUnavailable("the view", "it is away"), 0.0, for_good=False)
            feed.recovered()
        assert feed.state is State.WAITING


def test_a_replay_tells_how_far_it_is(feed: Feed) -> None:
    assert feed.progress == (0, 0)  # it is none
    feed.start, feed.stops, feed.bookmark = at(5), {0: 25, 1: 10}, None
    assert feed.progress == (0, 30)
    feed.bookmark = at(15, 10)
    assert feed.progress == (20, 30)
    feed.bookmark = at(25, 10)
    assert feed.progress == (30, 30)


def test_a_rewind_is_over_when_the_view_is_where_it_was() -> None:
    rewound = Rewound(at(20, 10), at(5, 10))
    assert (rewound.again, rewound.left([at(5, 10)]), rewound.left([at(12, 15)]), rewound.left([at(25, 15)])) == (
        15,
        15,
        8,
        0,
    )


def test_a_runner_says_that_it_is_there_while_spark_takes_its_time() -> None:
    outcome: Future[str] = Future()
    said: list[str] = []

    def say() -> None:
        said.append("still here")
        if len(said) == 3:
            outcome.set_result("done")

    assert awaited(outcome, say, every_s=0.0) == "done"
    assert len(said) == 3
    failed: Future[str] = Future()
    failed.set_exception(TimeoutError("of the work itself"))
    with pytest.raises(TimeoutError, match="of the work itself"):
        awaited(failed, lambda: None)
