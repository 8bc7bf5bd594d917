"""Ranges grow on a backlog where the rows do not pass the driver, and are small again when a fold has caught up."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import foldlog.spark as fl
from file_view import FileView
from foldlog.spark.folds import ranges, runner
from foldlog.spark.folds.declaration import Fold
from foldlog.spark.folds.feed import Feed
from foldlog.spark.folds.runner import Runner
from foldlog.spark.origins.ledger import open_ledger
from foldlog.spark.origins.origin import open_origin, origin_spec
from foldlog.testing.sim_clock import SimClock
from folds_model import SCHEMA, append, payment

RECORDS = 400


def _lengths(fold: Fold, directory: Path, spark: SparkSession, range_bytes: int | None = None) -> list[int]:
    """How many offsets each of its ranges had, and at last the size of the next one, in bytes. No time goes by."""
    found: list[int] = []

    def told(feed: Feed) -> None:
        found.append(sum(one.stop - one.start for one in feed.last_ranges))

    origin = open_origin(origin_spec(str(directory)))
    ledger = open_ledger(origin.spec)
    feed = Feed(fold, fold.view)
    clock = SimClock()
    with Runner(spark, origin, ledger, [feed], range_bytes=range_bytes, clock=clock, on_progress=told) as made:
        made.drain()
    ledger.close()
    origin.close()
    return [*found[:-1], feed.grown_bytes or 0]  # the last one told that it has caught up


@pytest.mark.faults
def test_only_ranges_whose_rows_stay_with_the_executors_grow(
    directory: Path, tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runner, "RANGE_BYTES", 2000)
    monkeypatch.setattr(ranges, "RANGE_BYTES", 2000)
    monkeypatch.setattr(ranges, "GROWN_RANGE_BYTES", 8000 // spark.sparkContext.defaultParallelism)
    append(directory, *((f"tx{n}", payment(amount_paise=n)) for n in range(RECORDS)))
    payments = fl.topic("payments", key="tx_id", schema=SCHEMA)
    view = fl.counters(tmp_path / "live.db", by=["merchant"], measures={"paise": fl.sum("amount_paise")})
    counting = fl.fold(payments, into=view, name="counting")(lambda rows: rows)
    *lengths, next_bytes = _lengths(counting, directory, spark)
    assert sum(lengths) == RECORDS
    assert max(lengths) > 3 * lengths[0]  # 2000, 4000, 8000 bytes
    assert max(lengths) < 6 * lengths[0]
    assert next_bytes == 0
    (row,) = view.scan().batches.__next__().to_pylist()
    assert row["paise"] == sum(range(RECORDS))
    view.close()

    measures = {f"m{number}": fl.sum("amount_paise") for number in range(8)}
    view = fl.counters(tmp_path / "each.db", by=["tx_id"], measures=measures)
    each = fl.fold(payments, into=view, name="each")(lambda rows: rows)
    *lengths, _ = _lengths(each, directory, spark)
    assert sum(lengths) == RECORDS
    assert max(lengths) < 2 * lengths[0], "as many groups as records come to the driver, so ranges stay as they are"
    view.close()

    mirror = fl.fold(payments, into=FileView(tmp_path / "view"), name="mirror")(lambda rows: rows)
    *lengths, next_bytes = _lengths(mirror, directory, spark)
    assert max(lengths) < 1.5 * lengths[0]
    assert len(lengths) > RECORDS // lengths[0] - 2


def test_a_size_that_was_chosen_is_kept(directory: Path, tmp_path: Path, spark: SparkSession) -> None:
    append(directory, *((f"tx{n}", payment(amount_paise=n)) for n in range(60)))
    payments = fl.topic("payments", key="tx_id", schema=SCHEMA)
    view = fl.counters(tmp_path / "live.db", by=["merchant"], measures={"paise": fl.sum("amount_paise")})
    counting = fl.fold(payments, into=view, name="counting")(lambda rows: rows)
    *lengths, _ = _lengths(counting, directory, spark, range_bytes=1000)
    assert max(lengths) < 1.5 * lengths[0]
    assert len(lengths) > 3
    view.close()
