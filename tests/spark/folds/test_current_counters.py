"""Counters of current rows, run by Spark: what plain Python counts of the newest row of each key, under any split,
rewind and rebuild; behind a topic of changes, too.
"""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

import foldlog
import foldlog.spark as fl
from foldlog.spark.folds.declaration import Fold
from foldlog.testing.folds import FoldTester

SCHEMA = "status STRING, paise BIGINT"
Sent = list[tuple[str, dict[str, Any] | None]]


def send(log: Path, sent: Sent, records: Sent) -> None:
    with foldlog.open(log) as opened:
        for key, row in records:
            opened.append("orders", None if row is None else json.dumps(row).encode(), key=key)
    sent.extend(records)


def some(chance: random.Random, count: int) -> Sent:
    return [
        (
            f"o{chance.randrange(9)}",
            None
            if chance.random() < 0.15
            else {"status": chance.choice(["open", "paid", "void"]), "paise": chance.choice([None, 0, 5, 70])},
        )
        for _ in range(count)
    ]


def expected(sent: Sent) -> set[tuple[Any, ...]]:
    groups: dict[str, list[int | None]] = {}
    for row in dict(sent).values():
        if row is not None and row["status"] != "void":
            groups.setdefault(row["status"], []).append(row["paise"])
    return {
        (status, len(found), sum(known) if (known := [one for one in found if one is not None]) else None)
        for status, found in groups.items()
    }


def held(fold: Fold) -> set[tuple[Any, ...]]:
    rows = [row for batch in fold.view.scan().batches for row in batch.to_pylist()]
    found = {(row["status"], row["orders"], row["paise"]) for row in rows}
    assert len(found) == len(rows)
    return found


def valid(rows: DataFrame) -> DataFrame:
    return rows.where("status <> 'void'")


def as_it_is(rows: DataFrame) -> DataFrame:
    return rows


def current(place: object, name: str = "counters") -> Any:
    measures = {"orders": fl.count(), "paise": fl.sum("paise")}
    return fl.counters(place, by=["status"], measures=measures, name=name, over="current")  # type: ignore[arg-type]


@pytest.mark.faults
@pytest.mark.parametrize("engine", ["sqlite", "postgresql"])
def test_counters_of_current_rows_are_those_of_the_newest_records(
    tmp_path: Path, spark: SparkSession, request: pytest.FixtureRequest, engine: str
) -> None:
    place = tmp_path / "live.db" if engine == "sqlite" else request.getfixturevalue("postgres_url")
    log, sent, chance = tmp_path / "data", Sent(), random.Random(18)
    with foldlog.open(log) as opened:
        opened.create_topic("orders", partitions=2)
    topic = fl.topic("orders", key="order_id", schema=SCHEMA)
    fold = fl.fold(topic, into=current(place), name="by_status")(valid)
    changed = fl.fold(topic, into=fl.changes("valid_orders"), name="to_changes")(valid)
    read = fl.topic("valid_orders", key="order_id", schema=SCHEMA)
    behind = fl.fold(read, into=current(place, "behind"), name="behind")(as_it_is)
    for turn in range(4):
        send(log, sent, some(chance, 40))
        range_bytes = chance.choice([300, 900, 1 << 20])
        fl.run([fold, changed, behind], log, once=True, range_bytes=range_bytes, spark=spark)
        assert held(fold) == held(behind) == expected(sent)
        if turn == 1:
            fl.rewind(fold, log, "start")
            fl.run([fold], log, once=True, range_bytes=500, spark=spark)
            assert held(fold) == expected(sent)
        if turn == 2:
            fl.rebuild(fold, log, spark=spark)
            assert held(fold) == expected(sent)
    assert fl.verify(fold, log, spark=spark).answer == "equal"


def test_the_test_kit_counts_current_rows(tmp_path: Path) -> None:
    topic = fl.topic("orders", key="order_id", schema=SCHEMA)
    fold = fl.fold(topic, into=current(tmp_path / "live.db"), name="by_status")(as_it_is)
    given: list[dict[str, Any]] = [
        {"order_id": "o1", "status": "open", "paise": 5},
        {"order_id": "o2", "status": "open", "paise": None},
        {"order_id": "o1", "status": "paid", "paise": 5},
    ]
    rows = FoldTester()(fold, given)
    assert rows == [{"status": "open", "orders": 1, "paise": None}, {"status": "paid", "orders": 1, "paise": 5}]
    FoldTester().check_law(fold, given, tries=3)
