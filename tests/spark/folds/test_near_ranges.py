"""A range that the driver reads itself gives what tasks give, and needs none where Spark can do without."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import LongType

import foldlog
import foldlog.spark as fl
from file_view import FileView
from foldlog.spark.folds import runner
from foldlog.spark.folds.declaration import Fold
from foldlog.spark.folds.reading import NearFrames, TopicFrames
from foldlog.spark.folds.replay import Verdict
from folds_model import SCHEMA, append, mirror_of, payment

FUNCTIONS: dict[str, Callable[[DataFrame], DataFrame]] = {
    "plain": lambda rows: rows,
    "filtering": lambda rows: rows.filter("amount_paise > 20"),
    "changing": lambda rows: rows.withColumn("note", F.upper("merchant")),
    "in python": lambda rows: rows.withColumn(
        "amount_paise", F.udf(lambda one: one and 2 * one, LongType())("amount_paise")
    ),
    "moving rows": lambda rows: rows.repartition(3).filter("amount_paise % 3 != 0"),
    "caching": lambda rows: rows.cache().filter("amount_paise % 2 = 0"),
    "in sql": lambda rows: rows.sparkSession.sql("SELECT * FROM {given} WHERE merchant <> 'tea'", given=rows),
    "failing": lambda rows: rows.withColumn("amount_paise", F.expr("1000 div (amount_paise - 40)")),
}


def _folds(home: Path) -> dict[str, Fold]:
    payments = fl.topic("payments", key="tx_id", schema=SCHEMA)
    home.mkdir()
    folds = {
        name: fl.fold(payments, into=FileView(home / name), name=name.replace(" ", "-"))(function)
        for name, function in FUNCTIONS.items()
    }
    measures = {"payments": fl.count(), "paise": fl.sum("amount_paise"), "least": fl.min("amount_paise")}
    counters = fl.counters(home / "live.db", by=["merchant"], measures=measures)
    folds["counting"] = fl.fold(payments, into=counters, name="counting")(lambda rows: rows.filter("amount_paise > 3"))
    renamed = fl.table(home / "renamed.db", "renamed")
    folds["renaming"] = fl.fold(payments, into=renamed, name="renaming")(
        lambda rows: rows.selectExpr("upper(tx_id) AS tx_id", "amount_paise", *fl.META)
    )
    return folds


def _held(fold: Fold) -> Any:
    if isinstance(fold.view, FileView):
        return fold.view.rows()
    rows = [row for batch in fold.view.scan().batches for row in batch.to_pylist()]
    fold.view.close()
    return sorted(rows, key=lambda row: json.dumps(row, default=str))


def _records(first: int, count: int) -> list[tuple[str | None, bytes | None]]:
    """Payments, of which some are tombstones, one has no key and one does not parse."""
    found: list[tuple[str | None, bytes | None]] = [
        (f"tx{n % 11}", None if n % 9 == 0 else payment("tea" if n % 2 else "books", n))
        for n in range(first, first + count)
    ]
    return [*found, (None, payment()), ("poison", b"no payment")]


def _dead(directory: Path, fold: Fold) -> list[tuple[str | None, bytes | None]]:
    with foldlog.open(directory, mode="r") as log:
        if fold.dead_letters not in log.topics(include_internal=True):
            return []
        return sorted((str(one.key), one.value) for one in log.read(fold.dead_letters, 0))


@pytest.mark.faults
def test_what_the_driver_reads_gives_what_tasks_give(
    directory: Path, tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    near, by_tasks = _folds(tmp_path / "near"), _folds(tmp_path / "tasks")
    made: list[NearFrames] = []
    whole = TopicFrames.near

    def counted(*given: Any, **named: Any) -> NearFrames:
        made.append(whole(*given, **named))
        return made[-1]

    monkeypatch.setattr(TopicFrames, "near", counted)
    for first, count in ((0, 20), (20, 26)):  # the first is tried, by tasks
        append(directory, *_records(first, count))
        fl.run(list(near.values()), directory, once=True, spark=spark)
        with monkeypatch.context() as patched:
            patched.setattr(runner, "FOLD_NEAR_OFFSETS", 0)
            before = len(made)
            fl.run(list(by_tasks.values()), directory, once=True, spark=spark)
            assert len(made) == before
    assert made
    for name, fold in near.items():
        assert _held(fold) == _held(by_tasks[name]), name
    letters = {name: _dead(directory, fold) for name, fold in near.items()}
    assert any(letters.values())
    assert _held(near["plain"]) == mirror_of(directory, "payments")
    assert _held(near["filtering"]) == mirror_of(directory, "payments", lambda row: row["amount_paise"] > 20)
    assert len(letters["failing"]) > len(letters["plain"])  # the record of 40 paise is set aside, once for each run
    # Nothing of the ranges stays in Spark's memory.
    assert spark._jsparkSession.sharedState().cacheManager().isEmpty()
    verdict: Verdict = fl.verify(near["renaming"], directory, spark=spark)
    assert verdict.answer == "equal"


def test_a_fold_that_returns_its_rows_needs_no_task_for_a_short_range(
    directory: Path, tmp_path: Path, spark: SparkSession
) -> None:
    payments = fl.topic("payments", key="tx_id", schema=SCHEMA)
    view = FileView(tmp_path / "view")
    fold = fl.fold(payments, into=view, name="mirror")(lambda rows: rows)
    append(directory, *((f"tx{n}", payment(amount_paise=n)) for n in range(20)))
    fl.run([fold], directory, once=True, spark=spark)
    append(directory, ("tx3", None), ("tx50", payment(amount_paise=7)))
    before = _jobs(spark)
    fl.run([fold], directory, once=True, spark=spark)
    assert _jobs(spark) == before
    assert view.rows() == mirror_of(directory, "payments")


def _jobs(spark: SparkSession) -> int:
    """How many jobs there have been."""
    return int(spark.sparkContext._jsc.sc().dagScheduler().numTotalJobs())


def test_few_large_records_are_no_short_range(
    directory: Path, tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    payments = fl.topic("payments", key="tx_id", schema=SCHEMA)
    view = FileView(tmp_path / "view")
    fold = fl.fold(payments, into=view, name="mirror")(lambda rows: rows)
    append(directory, *((f"tx{n}", payment(amount_paise=n)) for n in range(20)))
    fl.run([fold], directory, once=True, spark=spark)
    monkeypatch.setattr(runner, "FOLD_NEAR_BYTES", 10_000)
    monkeypatch.setattr(TopicFrames, "near", lambda *given, **named: pytest.fail("read by the driver"))
    append(directory, *((f"tx{n}", payment(note="x" * 5000)) for n in range(4)))
    fl.run([fold], directory, once=True, spark=spark)
    assert view.rows() == mirror_of(directory, "payments")
