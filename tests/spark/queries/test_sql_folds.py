"""Folds in SQL: after any ranges, views hold what Spark's own SQL says of the whole topic, and a plain recompute."""

from __future__ import annotations

import json
import random
from collections import defaultdict
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import foldlog
import foldlog.spark as fl
from foldlog.errors import FoldError
from foldlog.spark.queries import sql as sql_folds
from foldlog.views.contract import View
from test_docs import DOCS, blocks_of, page

SCHEMA = "merchant STRING, amount BIGINT, note STRING, at TIMESTAMP, xs ARRAY<INT>"
PAYMENTS = fl.topic("payments", key="tx_id", schema=SCHEMA)

sql = partial(fl.sql, topics=[PAYMENTS])
"""Other tests of this process declare a topic of this name, too."""


def written(directory: Path, count: int, seed: int) -> list[dict[str, Any]]:
    """Random payments; all of them as rows, in order, the tombstones too."""
    chance = random.Random(seed)
    rows: list[dict[str, Any]] = []
    with foldlog.open(directory) as log:
        if "payments" not in log.topics():
            log.create_topic("payments", partitions=2)
        for number in range(count):
            key = f"tx-{chance.randrange(12)}"
            value: dict[str, Any] | None = {
                "merchant": chance.choice(["tea", "books", None]),
                "amount": chance.choice([None, number, -number]),
                "note": chance.choice(["a", "b, c", None]),
                "at": None if chance.random() < 0.1 else f"2026-01-15T{chance.randrange(24):02d}:{number % 60:02d}:00Z",
                "xs": [number, 7],
            }
            if chance.random() < 0.15:
                value = None
            log.append("payments", value, key=key)
            columns = value or dict.fromkeys(["merchant", "amount", "note", "at", "xs"])
            rows.append({"tx_id": key, **columns, "gone": value is None})
    return rows


def held(view: View) -> list[dict[str, Any]]:
    return [row for batch in view.scan().batches for row in batch.to_pylist()]


def in_order(rows: list[dict[str, Any]]) -> list[str]:
    return sorted(json.dumps({name: row[name] for name in sorted(row)}, default=str) for row in rows)


GROUPED = [
    """SELECT merchant, count(*) AS n, sum(amount) AS total, min(note) AS least, max(amount) AS most, avg(amount) AS
    mean, count(note) AS notes, count(DISTINCT note) AS different FROM payments WHERE amount <> 3 OR amount IS NULL
    GROUP BY merchant""",
    """SELECT coalesce(upper(p.merchant), '-') AS m, amount % 2 = 0 AS even, count(*) FILTER (WHERE note = 'b, c') AS b,
    sum(amount * 2) FILTER (WHERE amount > 5) AS twice FROM payments p GROUP BY m, 2""",
    "SELECT sum(amount) AS total, count(1) AS n FROM payments",
    """SELECT merchant, window.start AS window_start, sum(amount) AS total FROM payments
    GROUP BY merchant, window(at, '6 hours')""",
    """SELECT window(at, '6 hours', '3 hours').start AS window_start, count(*) AS n FROM payments
    GROUP BY window(at, '6 hours', '3 hours')""",
]


@pytest.mark.faults  # with the other long runs
def test_views_hold_what_spark_says_of_the_whole_topic(spark: SparkSession, tmp_path: Path) -> None:
    directory = tmp_path / "data"
    rows = written(directory, 60, seed=1)
    folds = [sql(query, into=tmp_path / "x.db", name=f"q{number}") for number, query in enumerate(GROUPED)]
    folds.append(
        sql(
            "SELECT tx_id, lower(merchant) AS m, amount IS DISTINCT FROM 7 AS odd, xs[0] + 1 AS x FROM payments"
            " WHERE amount > -20",
            into=fl.table(tmp_path / "x.db", "mirror"),
        )
    )
    fl.run(folds, directory, once=True, spark=spark)
    rows += written(directory, 25, seed=2)
    fl.run(folds, directory, once=True, spark=spark)
    live = [{name: row[name] for name in row if name != "gone"} for row in rows if not row["gone"]]
    texts = spark.sparkContext.parallelize([json.dumps(one) for one in live])
    spark.read.json(texts, f"tx_id STRING, {SCHEMA}").createOrReplaceTempView("payments")
    try:
        for fold, query in zip(folds, GROUPED, strict=False):
            expected = [row.asDict() for row in spark.sql(query).collect()]
            found = held(fold.view)
            assert len(found) > 0
            for row in [*expected, *found]:
                if "window_start" in row:
                    row["window_start"] = row["window_start"].timestamp()
            assert in_order(found) == in_order(expected), query
    finally:
        spark.catalog.dropTempView("payments")
    newest = {row["tx_id"]: row for row in rows}
    mirror = [
        {
            "tx_id": key,
            "m": row["merchant"] and row["merchant"].lower(),
            "odd": row["amount"] != 7,
            "x": row["xs"][0] + 1,
        }
        for key, row in newest.items()
        if not row["gone"] and row["amount"] is not None and row["amount"] > -20
    ]
    assert in_order(held(folds[-1].view)) == in_order(mirror)
    for fold in (folds[0], folds[-1]):
        assert fl.verify(fold, directory, spark=spark).answer == "equal"


def test_a_plain_recompute_agrees(spark: SparkSession, tmp_path: Path) -> None:
    directory = tmp_path / "data"
    rows = written(directory, 40, seed=3)
    fold = sql(
        "SELECT merchant, sum(amount) AS total, count(*) AS n FROM payments WHERE note = 'a' GROUP BY merchant",
        into=tmp_path / "x.db",
        name="totals",
    )
    fl.run([fold], directory, once=True, spark=spark, range_bytes=2000)
    groups: dict[Any, list[Any]] = defaultdict(list)
    for row in rows:
        if not row["gone"] and row["note"] == "a":
            groups[row["merchant"]].append(row["amount"])
    expected = []
    for merchant, amounts in groups.items():
        there = [one for one in amounts if one is not None]
        expected.append({"merchant": merchant, "total": sum(there) if there else None, "n": len(amounts)})
    assert in_order(held(fold.view)) == in_order(expected)
    fl.rebuild(fold, directory, spark=spark)
    assert in_order(held(fold.view)) == in_order(expected)


def test_a_dropped_condition_is_found(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A planted bug: the WHERE of a query is lost, and the comparison with Spark's own answer finds it."""
    call = sql_folds.SqlFunction.__call__

    def forgetful(self: Any, given: Any) -> Any:
        monkeypatch.setattr(self._query, "where", None)
        return call(self, given)

    monkeypatch.setattr(sql_folds.SqlFunction, "__call__", forgetful)
    with pytest.raises(AssertionError):
        test_a_plain_recompute_agrees(spark, tmp_path)


def test_what_spark_knows_better_is_said_before_anything_is_stored(spark: SparkSession, tmp_path: Path) -> None:
    directory = tmp_path / "data"
    written(directory, 3, seed=4)
    for query, why in (
        ("SELECT tx_id, nosuch(amount) AS a FROM payments", "nosuch"),
        ("SELECT sum(merchant) AS a FROM payments", "merchant|sum|__0"),
    ):
        with pytest.raises(FoldError, match=why):
            fl.run([sql(query, into=tmp_path / "x.db", name="x")], directory, once=True, spark=spark)


def test_the_page_about_sql_is_true(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (block, *_) = [block for block in blocks_of(page(DOCS / "sql_folds.md")) if block.language == "python"]
    (tmp_path / "folds.py").write_text(block.code)
    folds = fl.load_folds("folds.py")
    with foldlog.open("data") as log:
        log.create_topic("payments", partitions=2)
        for number in range(12):
            paid = {"merchant": ["tea", "books"][number % 2], "paise": number, "at": "2026-01-15T10:00:00Z"}
            log.append("payments", paid, key=f"tx-{number % 8}")
    fl.run(folds, "data", once=True, spark=spark)
    found = {fold.name: held(fold.view) for fold in folds}
    assert sorted((row["merchant"], row["paise"]) for row in found["totals"]) == [("books", 36), ("tea", 30)]
    assert [row["payments"] for row in found["per_hour"]] == [12]
    assert {row["tx_id"] for row in found["large"]} == {"tx-0", "tx-1", "tx-2", "tx-3", "tx-5", "tx-6", "tx-7"}
