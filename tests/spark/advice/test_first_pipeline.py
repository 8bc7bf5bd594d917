"""`foldlog fold init` writes a file that runs, and `foldlog fold explain` says what a run of it does."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

import foldlog
import foldlog.spark as fl
from foldlog.cli.fold.first import explanation_lines
from foldlog.cli.main import main
from foldlog.errors import UnlawfulFold
from foldlog.spark.advice.explanation import steps_of
from foldlog.spark.folds.commands import explain
from foldlog.spark.folds.declaration import load_folds

Command = Callable[..., tuple[int, str, str]]
ROWS = [
    {"tx": f"t{n}", "merchant": ("tea", "chai")[n % 2], "paise": n % 5, "at": "2024-02-29T12:00:00Z"} for n in range(30)
]


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    with foldlog.open("data") as log:
        log.create_topic("payments", partitions=2)
        log.create_topic("visits")
        log.create_topic("nothing")
        for row in ROWS:
            log.append("payments", row, key=row["tx"])
            log.append("visits", f"{row['merchant']},{row['paise']}".encode())
    return tmp_path


@pytest.fixture
def fold(shop: Path, capsys: pytest.CaptureFixture[str]) -> Command:
    def run(*arguments: str) -> tuple[int, str, str]:
        code = main(["fold", *arguments])
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return run


@pytest.mark.faults
def test_the_file_that_is_written_runs(fold: Command, shop: Path, spark: SparkSession) -> None:
    code, out, _ = fold("init", "payments", "-d", "data")
    assert (code, out.splitlines()[0]) == (0, "wrote folds.py: json, 4 columns, the key is tx")
    code, _, err = fold("init", "payments", "-d", "data")
    assert (code, err) == (
        5,
        "foldlog: there is a file folds.py already; write another, --file FILE, or replace it, --force\n",
    )
    assert fold("init", "visits", "-d", "data", "--file", "visits.py")[0] == 0
    folds = [*load_folds(shop / "folds.py"), *load_folds(shop / "visits.py")]
    feeds = fl.run(folds, shop / "data", once=True, spark=spark)
    assert [feed.dead for feed in feeds] == [0] * 3
    with closing(sqlite3.connect(shop / "views" / "payments.db")) as database:
        assert sorted(database.execute("SELECT tx, merchant, paise FROM payments")) == sorted(
            (row["tx"], row["merchant"], row["paise"]) for row in ROWS
        )
    visits = [(row["c1"], row["c2"]) for row in folds[-1].view.peek(100)]
    assert sorted(visits) == sorted((row["merchant"], row["paise"]) for row in ROWS)


def test_a_topic_without_records_or_that_is_not_there_is_told(fold: Command) -> None:
    code, _, err = fold("init", "nothing", "-d", "data")
    assert (code, "topic 'nothing' has no records with a value to learn its schema from" in err) == (1, True)
    assert fold("init", "payment", "-d", "data")[0] == 3


def test_what_a_run_would_do_is_said_and_nothing_is_done(shop: Path, spark: SparkSession) -> None:
    payments = fl.topic("payments", key="tx", schema="merchant STRING, paise BIGINT, at TIMESTAMP")
    names = spark.createDataFrame([("tea", "Tea")], "merchant STRING, shown STRING")

    @fl.fold(payments, into=fl.table(str(shop / "shop.db"), "payments"))
    def mirror(rows: DataFrame) -> DataFrame:
        return rows.join(F.broadcast(names), "merchant", "left").drop("at")

    (found,) = explain(mirror, shop / "data", spark=spark)
    assert (found.records, found.partitions, found.ranges, found.is_new) == (30, 2, 1, True)
    assert found.columns_read == ["tx", "merchant", "paise"]
    assert found.columns_unread == ["at"]
    assert found.steps == {"broadcast": 1}
    assert (found.key, found.writers) == (["tx"], "the driver")
    assert sorted(found.columns_written) == ["merchant", "paise", "shown", "tx"]
    assert (
        explanation_lines(found)[1] == "  reads     30 records from the start, of 2 partitions, in about 1 range; json"
    )
    assert not (shop / "shop.db").exists()
    fl.run([mirror], shop / "data", once=True, spark=spark)
    (after,) = explain(mirror, shop / "data", spark=spark)
    assert (after.records, after.ranges, after.is_new) == (0, 0, False)
    json.dumps(after.steps)


def test_shuffles_are_found_and_what_is_unlawful_is_refused(shop: Path, spark: SparkSession) -> None:
    payments = fl.topic("payments", key="tx", schema="merchant STRING, paise BIGINT")

    @fl.fold(payments, into=fl.counters(str(shop / "live.db"), by=["merchant"], measures={"n": fl.count()}))
    def counted(rows: DataFrame) -> DataFrame:
        return rows

    (found,) = explain(counted, shop / "data", spark=spark)
    assert found.steps == {}  # so few records are read by one task, which has every group
    assert steps_of(spark.range(9, numPartitions=2).groupBy(F.expr("id % 3")).count()) == {"shuffle": 1}
    assert found.columns_unread == ["tx", "paise"]

    @fl.fold(payments, into=fl.table(str(shop / "shop.db"), "grouped"))
    def grouped(rows: DataFrame) -> DataFrame:
        return rows.groupBy("tx").count()

    with pytest.raises(UnlawfulFold):
        explain(grouped, shop / "data", spark=spark)
