"""A range that the driver reads itself gives what tasks give, and needs none where Spark can do without."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import LongType, StructType

import foldlog
import foldlog.spark as fl
from file_view import FileView
from foldlog.spark.driver_rows import evaluated, local_frame
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


def _timed(rows: DataFrame) -> DataFrame:
    """Some of them without a time."""
    return rows.withColumn("at", F.expr("CASE WHEN amount_paise % 7 > 0 THEN timestamp_seconds(amount_paise * 97) END"))


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
    windows: dict[str, Any] = {
        "minutes": ("at", "1 minute"),
        "months": fl.window("at", "1 month", zone="Asia/Kolkata"),
        "hopping": fl.window("at", "10 minutes", every="3 minutes"),
        "sessions": fl.sessions("at", "3 minutes"),
    }
    for name, window in windows.items():
        view = fl.counters(home / f"{name}.db", by=["merchant"], window=window, measures=measures)
        folds[name] = fl.fold(payments, into=view, name=name)(_timed)
    everything = fl.counters(home / "all.db", measures=measures)
    folds["all"] = fl.fold(payments, into=everything, name="all")(lambda rows: rows.filter("amount_paise > 40"))
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


@pytest.mark.parametrize(
    "kind", ["filtering", *(pytest.param(one, marks=pytest.mark.faults) for one in ("plain", "changing", "in sql"))]
)
def test_a_short_range_needs_no_task(directory: Path, tmp_path: Path, spark: SparkSession, kind: str) -> None:
    payments = fl.topic("payments", key="tx_id", schema=SCHEMA)
    view = FileView(tmp_path / "view")
    fold = fl.fold(payments, into=view, name="mirror")(FUNCTIONS[kind])
    append(directory, *((f"tx{n}", payment(amount_paise=n)) for n in range(20)))
    fl.run([fold], directory, once=True, spark=spark)
    append(directory, ("tx3", None), ("tx50", payment(amount_paise=70)), ("tx19", payment(amount_paise=1)))
    before = _jobs(spark)
    fl.run([fold], directory, once=True, spark=spark)
    assert _jobs(spark) == before
    assert ("tx50" in view.rows()) == (kind != "in sql")
    if kind in ("plain", "filtering"):
        least = 20 if kind == "filtering" else -1
        assert view.rows() == mirror_of(directory, "payments", lambda row: row["amount_paise"] > least)


@pytest.mark.faults
def test_counters_of_a_short_range_need_no_task(directory: Path, tmp_path: Path, spark: SparkSession) -> None:
    folds = _folds(tmp_path / "views")
    chosen = [folds[name] for name in ("counting", "minutes", "months", "sessions")]
    append(directory, *((f"tx{n}", payment(amount_paise=n)) for n in range(20)))
    fl.run(chosen, directory, once=True, spark=spark)
    append(directory, ("tx3", None), ("tx50", payment(amount_paise=70)), ("tx19", payment(amount_paise=1)))
    before = _jobs(spark)
    fl.run(chosen, directory, once=True, spark=spark)
    assert _jobs(spark) == before
    assert [sum(row["payments"] for row in _held(fold)) for fold in chosen] == [17, 22, 22, 22]
    assert [fl.verify(fold, directory, spark=spark).answer for fold in chosen[:2]] == ["equal", "equal"]


@pytest.mark.faults
def test_rows_that_need_no_job_are_those_of_a_job(spark: SparkSession) -> None:
    """Of all types, with nulls, and of more than go with a call."""
    schema = StructType.fromDDL(
        "t STRING, b BINARY, n BIGINT, s SMALLINT, f DOUBLE, d DECIMAL(20,3), o BOOLEAN, day DATE, at TIMESTAMP,"
        " local TIMESTAMP_NTZ, m MAP<STRING, INT>, a ARRAY<STRUCT<x: INT, y: STRING>>"
    )
    full: dict[str, Any] = {
        "t": "caf\u00e9 \U0001f375", "b": b"\0\xff", "n": -(2**63), "s": 7, "f": -0.0, "d": Decimal("12.340"),
        "o": True, "day": date(1, 1, 1), "at": datetime(2026, 1, 1, 5, tzinfo=UTC), "local": datetime(1969, 12, 31),  # noqa: DTZ001
        "m": [("k", None)], "a": [{"x": 1, "y": None}],
    }  # fmt: skip
    assert isinstance(schema, StructType)
    arrow = to_arrow_schema(schema, timezone="UTC")
    some: list[list[dict[str, Any]]] = [
        [],
        [full],
        [full, dict.fromkeys(full), {**full, "t": "x" * 2_000_000}],
        [full] * 6000,
    ]
    for rows in some:
        table = pa.Table.from_pylist(rows, arrow)
        given = local_frame(spark, table, schema)
        assert given.schema == schema
        changed = given.where("n IS NULL OR n < 5").withColumn("more", F.expr("upper(t) || ' ' || CAST(at AS STRING)"))
        found = evaluated(changed)
        assert (found is None) == (len(rows) == 6000)
        wanted = spark.createDataFrame(table, schema).where("n IS NULL OR n < 5").toArrow()
        if found is not None:
            assert found.drop_columns(["more"]).equals(wanted)
            assert found.schema == changed.toArrow().schema


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
