"""A topic that grows in the very moment in which a runner looks at it: a key's newest record wins all the same.

Keys move when a topic grows, so a runner has to read what the older partitions held before anything newer. It asks the
log several things before it plans a range. Here the topic grows, and every key gets a newer record, after each of
those questions in turn. Where nobody remembers where the older partitions ended, the fold stops instead.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import foldlog
import foldlog.spark as fl
from file_view import FileView
from foldlog import Log
from foldlog.spark.folds.feed import Feed, State
from foldlog.spark.folds.replay import rebuild_feeds
from foldlog.spark.folds.runner import Runner
from foldlog.spark.origins.ledger import open_ledger
from foldlog.spark.origins.origin import Origin, TopicFacts, open_origin, origin_spec
from folds_model import SCHEMA, fill, payment


@pytest.fixture
def log(tmp_path: Path) -> Iterator[Log]:
    with foldlog.open(tmp_path / "data", listen=True) as opened:
        opened.create_topic("payments", partitions=2)
        yield opened


class Interrupted:
    """An origin at which something happens right after it has answered one of the first questions."""

    def __init__(self, origin: Origin, question: int, happens: Callable[[], None]) -> None:
        self._origin = origin
        self._left = question
        self._happens = happens

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._origin, name)
        return self._asked(found) if name in ("topic", "bounds", "missing") else found

    def _asked(self, method: Callable[..., Any]) -> Callable[..., Any]:
        def ask(*arguments: Any) -> Any:
            answer = method(*arguments)
            self._left -= 1
            if self._left == 0:
                self._happens()
            return answer

        return ask


@pytest.mark.parametrize("question", [*(pytest.param(number, marks=pytest.mark.faults) for number in (1, 2)), 3])
def test_a_topic_that_grows_between_two_looks_keeps_the_order_of_its_keys(
    question: int, log: Log, tmp_path: Path, spark: SparkSession
) -> None:
    view = FileView(tmp_path / "mirror.json")
    fold = fl.fold(fl.topic("payments", key="tx_id", schema=SCHEMA), into=view, name="mirror")(lambda rows: rows)
    fill(log, "payments", [(f"tx{n % 12}", payment(amount_paise=n)) for n in range(60)])

    def grow() -> None:
        log.grow_topic("payments", 3)
        fill(log, "payments", [(f"tx{n % 12}", payment(amount_paise=n)) for n in range(60, 72)])

    plain = open_origin(origin_spec(log.path))
    origin: Any = Interrupted(plain, question, grow)
    ledger = open_ledger(plain.spec)
    with Runner(spark, origin, ledger, [Feed(fold, view)], range_bytes=2000) as runner:
        runner.drain()
    ledger.close()
    plain.close()
    assert {key: row["amount_paise"] for key, row in view.rows().items()} == {f"tx{n % 12}": n for n in range(60, 72)}
    assert len(view.deltas) > 2


class Forgetful:
    """An origin whose brokers do not remember when a topic grew, as Kafka's do not."""

    def __init__(self, origin: Origin) -> None:
        self._origin = origin

    def __getattr__(self, name: str) -> Any:
        return getattr(self._origin, name)

    def topic(self, name: str) -> TopicFacts:
        return replace(self._origin.topic(name), growths=None)


def test_where_growths_are_not_known_a_keyed_fold_stops_and_is_rebuilt(
    log: Log, tmp_path: Path, spark: SparkSession
) -> None:
    view = FileView(tmp_path / "mirror.json")
    fold = fl.fold(fl.topic("payments", key="tx_id", schema=SCHEMA), into=view, name="mirror")(lambda rows: rows)
    fill(log, "payments", [(f"tx{n}", payment(amount_paise=n)) for n in range(4)])
    plain = open_origin(origin_spec(log.path))
    origin: Any = Forgetful(plain)
    ledger = open_ledger(plain.spec)
    feed = Feed(fold, view)
    with Runner(spark, origin, ledger, [feed]) as runner:
        runner.drain()
        log.grow_topic("payments", 3)
        runner.drain()
        assert feed.state is State.FAILED
        assert feed.error is not None
        assert "gained partitions (2 before, 3 now)" in feed.error
        assert feed.error.endswith("foldlog fold rebuild mirror")
    with Runner(spark, origin, ledger, rebuild_feeds(fold, origin, on_swapped=lambda: None)) as runner:
        runner.drain()
    ledger.close()
    plain.close()
    assert len(view.rows()) == 4
    stored = view.bookmark()
    assert stored is not None
    assert sorted(stored.positions) == [0, 1, 2]
