"""Folds behind one another: a fold writes its changes into a topic, others read it; the end equals the recompute of
the whole from the first log, in plain Python.
"""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

import foldlog
import foldlog.spark as fl
from foldlog.errors import FoldError, UnlawfulFold
from foldlog.spark.folds.declaration import Fold
from folds_model import append, payment, records_of

PAYMENTS = fl.topic("payments", key="tx_id", schema="merchant STRING, amount_paise BIGINT, note STRING")
LARGE = fl.topic("large", key="tx_id", schema="merchant STRING, amount_paise BIGINT, vat BIGINT")


def large(rows: DataFrame) -> DataFrame:
    return rows.where("_deleted OR amount_paise >= 100").withColumn("vat", F.col("amount_paise") * 18).drop("note")


def loud(rows: DataFrame) -> DataFrame:
    return rows.withColumn("merchant", F.upper("merchant"))


def chain(base: Path) -> list[Fold]:
    """Declared in the wrong order: the runner finds the right one."""
    return [
        fl.fold(LARGE, into=fl.table(base / "views.db", "loud"))(loud),
        fl.fold(PAYMENTS, into=fl.changes("large"))(large),
    ]


def newest(directory: Path, topic: str = "large") -> dict[str, dict[str, object]]:
    """As any reader of committed records has it."""
    rows: dict[str, dict[str, object]] = {}
    for record in records_of(directory, topic, "read_committed"):
        assert record.key is not None
        key = record.key.decode()
        rows.pop(key, None)
        if record.value is not None:
            rows[key] = json.loads(record.value)
    return rows


def recomputed(directory: Path) -> dict[str, dict[str, object]]:
    """Of the first log alone."""
    rows: dict[str, dict[str, object]] = {}
    for record in records_of(directory, "payments"):
        key = (record.key or b"").decode()
        rows.pop(key, None)
        if record.value is None:
            continue
        given = json.loads(record.value)
        if given["amount_paise"] >= 100:
            rows[key] = {
                "tx_id": key,
                "merchant": given["merchant"],
                "amount_paise": given["amount_paise"],
                "vat": given["amount_paise"] * 18,
            }
    return rows


def table(base: Path, name: str = "loud") -> dict[str, dict[str, object]]:
    with sqlite3.connect(base / "views.db") as connection:
        connection.row_factory = sqlite3.Row
        return {row["tx_id"]: dict(row) for row in connection.execute(f"SELECT * FROM {name}")}


def check(base: Path, directory: Path) -> None:
    wanted = recomputed(directory)
    assert newest(directory) == wanted
    loudly = {key: {**row, "merchant": str(row["merchant"]).upper()} for key, row in wanted.items()}
    assert table(base) == loudly


def test_one_run_brings_a_change_through_two_folds(spark: SparkSession, directory: Path, tmp_path: Path) -> None:
    append(directory, *((f"t{n}", payment("tea", n * 40)) for n in range(8)))
    fl.run(chain(tmp_path), directory, once=True, spark=spark)
    check(tmp_path, directory)
    append(directory, ("t3", payment("cake", 700)), ("t5", None), ("t6", payment("tea", 1)), ("t1", payment("x", 5)))
    fl.run(chain(tmp_path), directory, once=True, spark=spark)
    check(tmp_path, directory)
    # Only what changed was written: t3, and that t5 and t6 are gone; of t1 nobody has ever heard.
    written = [(record.key, record.value is None) for record in records_of(directory, "large", "read_committed")]
    assert len(written) == 5 + 3
    assert {(b"t3", False), (b"t5", True), (b"t6", True)} < set(written)


@pytest.mark.faults
def test_a_replay_of_what_did_not_change_writes_nothing(spark: SparkSession, directory: Path, tmp_path: Path) -> None:
    append(directory, *((f"t{n % 5}", payment("tea", n * 40)) for n in range(9)), ("t3", None))
    fl.run(chain(tmp_path), directory, once=True, spark=spark)
    mirror, changed = chain(tmp_path)
    assert fl.verify(changed, directory, spark=spark).answer == "equal"
    assert fl.verify(mirror, directory, spark=spark).answer == "equal"
    with foldlog.open(directory) as log:
        ends = log.offsets("large", isolation="read_committed")
    fl.rebuild(changed, directory, spark=spark)
    fl.rewind(changed, directory, "start")
    fl.run(chain(tmp_path), directory, once=True, spark=spark)
    with foldlog.open(directory) as log:
        assert log.offsets("large", isolation="read_committed") == ends
    check(tmp_path, directory)


@pytest.mark.faults  # with the other long runs
def test_a_join_feeds_folds_behind_it(spark: SparkSession, directory: Path, tmp_path: Path) -> None:
    with foldlog.open(directory) as log:
        log.create_topic("merchants", partitions=1)
        log.append("merchants", {"city": "Pune"}, key="tea")
    append(directory, ("t1", payment("tea", 5)), ("t2", payment("books", 7)), ("t3", payment("tea", 9)))
    merchants = fl.topic("merchants", key="merchant", schema="city STRING")
    placed = fl.topic("placed", key="tx_id", schema="merchant STRING, amount_paise BIGINT, city STRING")
    measures = {"payments": fl.count(), "paise": fl.sum("amount_paise")}
    join = fl.fold(PAYMENTS, merchants, into=fl.changes("placed"), name="place")(
        lambda rows, merchants: fl.join(rows.drop("note"), merchants, on="merchant", how="left")
    )
    counters = fl.counters(tmp_path / "views.db", by=["city"], measures=measures, over="current", name="cities")
    folds = [fl.fold(placed, into=counters, name="cities")(lambda rows: rows), join]
    fl.run(folds, directory, once=True, spark=spark)
    assert {key: row["city"] for key, row in newest(directory, "placed").items()} == {
        "t1": "Pune",
        "t2": None,
        "t3": "Pune",
    }
    with foldlog.open(directory) as log:
        log.append("merchants", {"city": "Goa"}, key="books")  # late
        log.append("merchants", None, key="tea")
    append(directory, ("t3", None))
    fl.run(folds, directory, once=True, spark=spark)
    with sqlite3.connect(tmp_path / "views.db") as views:
        counted = views.execute("SELECT city, payments, paise FROM cities ORDER BY city").fetchall()
    assert counted == [(None, 1, 5), ("Goa", 1, 7)]
    assert fl.verify(join, directory, spark=spark).answer == "equal"
    reads = [one.topic for one in fl.explain(join, directory, spark=spark)]
    assert reads == ["payments", "merchants"]
    fl.drop(join, directory)
    with foldlog.open(directory, mode="r") as log:
        assert [name for name in log.topics(include_internal=True) if "placed" in name] == []


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    with foldlog.open(tmp_path / "data") as log:
        log.create_topic("payments", partitions=2)
    return tmp_path / "data"


def test_adding_up_changes_is_refused_before_spark_starts(directory: Path, tmp_path: Path) -> None:
    folds = chain(tmp_path)
    view = fl.counters(tmp_path / "n.db", by=["merchant"], measures={"n": fl.count()})
    counted = fl.fold(LARGE, into=view, name="counted")(lambda rows: rows)
    with pytest.raises(UnlawfulFold, match=r"'counted' breaks the law.*depends on how the log was split.*fl.table"):
        fl.run([*folds, counted], directory, once=True, spark=_no_spark)


def _no_spark() -> SparkSession:
    raise AssertionError("Spark was started")


def test_a_circle_is_refused_before_anything_runs(tmp_path: Path) -> None:
    a, b = (fl.topic(name, key="id", schema="v BIGINT") for name in ("a", "b"))
    one = fl.fold(a, into=fl.changes("b"), name="one")(lambda rows: rows)
    other = fl.fold(b, into=fl.changes("a"), name="other")(lambda rows: rows)
    with pytest.raises(FoldError, match=r"in a circle .one <- other <- one."):
        fl.run([one, other], tmp_path, spark=_no_spark)
