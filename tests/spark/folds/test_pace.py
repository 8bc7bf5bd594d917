"""A view is changed at its own pace while the log is followed: records wait in the log, and the lag tells of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import foldlog.spark as fl
from file_view import FileView
from foldlog.errors import InvalidArgument
from foldlog.spark.folds.feed import Feed, State
from foldlog.spark.folds.runner import Runner
from foldlog.spark.origins.ledger import open_ledger
from foldlog.spark.origins.origin import open_origin, origin_spec
from foldlog.testing.sim_clock import SimClock
from foldlog.views.contract import Pace
from folds_model import SCHEMA, append, payment

Made = tuple[Runner, Feed, SimClock, FileView]


@pytest.fixture
def made(directory: Path, tmp_path: Path, spark: SparkSession) -> Iterator[Made]:
    view = FileView(tmp_path / "view")
    view.pace = Pace(10_000, 4000)
    fold = fl.fold(fl.topic("payments", key="tx_id", schema=SCHEMA), into=view, name="mirror")(lambda rows: rows)
    origin, clock = open_origin(origin_spec(str(directory))), SimClock()
    ledger = open_ledger(origin.spec)
    feed = Feed(fold, view)
    with Runner(spark, origin, ledger, [feed], clock=clock) as runner:
        runner.holds = True
        yield runner, feed, clock, view
    ledger.close()
    origin.close()


def drained(runner: Runner) -> None:
    while runner.step():
        pass


def test_commits_wait_for_time_or_size_and_the_lag_is_true(made: Made, directory: Path) -> None:
    runner, feed, clock, view = made
    clock.advance(1000)
    write = _writer(directory)
    write(1)
    drained(runner)
    assert (len(view.deltas), feed.lag, feed.state) == (1, 0, State.CAUGHT_UP), "the first one does not wait"
    write(3)
    drained(runner)
    clock.advance(9000)
    drained(runner)
    assert (len(view.deltas), feed.lag, feed.state) == (1, 3, State.RUNNING)
    write(2)
    clock.advance(1500)
    drained(runner)
    assert (len(view.deltas), feed.lag, feed.state) == (2, 0, State.CAUGHT_UP), "ten seconds after the last one"
    write(200)
    drained(runner)
    assert (len(view.deltas), feed.lag) == (3, 0), "so much does not wait"
    write(1)
    drained(runner)
    assert feed.lag == 1
    runner.holds = False  # as in a run that ends when everything is read
    drained(runner)
    assert (len(view.deltas), feed.lag) == (4, 0)


def _writer(directory: Path) -> Callable[[int], None]:
    written: list[str] = []

    def write(count: int) -> None:
        keys = [f"tx{len(written) + number}" for number in range(count)]
        append(directory, *((key, payment(amount_paise=1)) for key in keys))
        written.extend(keys)

    return write


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"commit_every": "soon"}, "commit_every='soon' is not a time such as '10s'"),
        ({"commit_every": 10}, "commit_every=10 is not a time such as '10s'"),
        ({"commit_every": "10s", "commit_bytes": "1MiB"}, "commit_bytes='1MiB' is not a number of bytes"),
        ({"commit_every": "10s", "commit_bytes": 0}, "commit_bytes=0 is not a number of bytes"),
    ],
)
def test_what_is_no_pace_is_refused(arguments: dict[str, Any], sentence: str) -> None:
    with pytest.raises(InvalidArgument, match=sentence):
        fl.lake("views/payments", **arguments)
    assert fl.lake("views/payments", commit_every="1m").pace == Pace(60_000, 64 << 20)
