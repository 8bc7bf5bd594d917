"""Folds of two topics, run: the view is the join of both logs, the law is checked, every command knows both topics."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

import foldlog
import foldlog.spark as fl
from foldlog.spark.folds.declaration import Fold

Rows = list[tuple[Any, ...]]

ORDERS = fl.topic("orders", key="order_id", schema="customer STRING, amount BIGINT, at TIMESTAMP")
CUSTOMERS = fl.topic("customers", key="customer", schema="name STRING, city STRING")


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    with foldlog.open(tmp_path / "data") as log:
        log.create_topic("orders", partitions=2)
        log.create_topic("customers", partitions=1)
        log.create_topic("rates", partitions=1)
    return tmp_path / "data"


def send(directory: Path, topic: str, *records: tuple[str | None, Mapping[str, object] | None]) -> None:
    with foldlog.open(directory) as log:
        for key, value in records:
            log.append(topic, None if value is None else dict(value), key=key)


def enriched_into(path: Path) -> Fold:
    @fl.fold(ORDERS, CUSTOMERS, into=fl.table(path, "enriched"))
    def enriched(orders: DataFrame, customers: DataFrame) -> Any:
        return fl.join(orders.filter("amount > 0"), customers.drop("city"), on="customer", how="left")

    return enriched


def rows(path: Path, what: str = "order_id, customer, amount, name") -> Rows:
    with closing(sqlite3.connect(path)) as shop:
        return sorted(shop.execute(f"SELECT {what} FROM enriched").fetchall())


def run(fold: Fold, directory: Path, spark: SparkSession, **options: Any) -> None:
    fl.run([fold], directory, once=True, spark=spark, **options)


def test_a_late_side_corrects_what_was_written(directory: Path, tmp_path: Path, spark: SparkSession) -> None:
    views = tmp_path / "views.db"
    fold = enriched_into(views)
    send(directory, "orders", ("o1", {"customer": "ann", "amount": 5}), ("o2", {"customer": "bob", "amount": 7}))
    run(fold, directory, spark)
    assert rows(views) == [("o1", "ann", 5, None), ("o2", "bob", 7, None)]

    send(directory, "customers", ("ann", {"name": "Ann"}), ("bob", {"name": "Bob"}))
    send(directory, "orders", ("o3", {"customer": "ann", "amount": 1}), ("o2", {"customer": "bob", "amount": 0}))
    run(fold, directory, spark)
    assert rows(views) == [("o1", "ann", 5, "Ann"), ("o3", "ann", 1, "Ann")]

    send(directory, "customers", ("ann", None), ("bob", {"name": "Robert"}))
    send(directory, "orders", ("o1", None), ("o2", {"customer": "bob", "amount": 2}))
    run(fold, directory, spark)
    assert rows(views) == [("o2", "bob", 2, "Robert"), ("o3", "ann", 1, None)]
    assert rows(views, "_left, _right") == [("o2", "bob"), ("o3", "")]
    assert fl.verify(fold, directory, spark=spark).answer == "equal"

    with foldlog.open(directory) as log:
        log.append("customers", "no JSON", key="eve")
    assert [part.lag for part in fl.status([fold], directory)[0].topics] == [0, 1]
    run(fold, directory, spark)
    with foldlog.open(directory) as log:
        (letter,) = log.read("enriched.dead")
        assert letter.key == b"customers/0/4"
        assert {place.topic: lag for place, lag in log.lag("fold.enriched").items() if not place.partition} == {
            "orders": 0,
            "customers": 0,
        }
    rewound = fl.rewind(fold, directory, "start")
    assert (rewound.again, len(rewound.each)) == (11, 2)
    assert fl.verify(fold, directory, spark=spark).answer == "not provable"
    run(fold, directory, spark)
    fl.rebuild(fold, directory, spark=spark)
    assert rows(views) == [("o2", "bob", 2, "Robert"), ("o3", "ann", 1, None)]
    fl.drop(fold, directory)
    with closing(sqlite3.connect(views)) as shop:
        assert shop.execute("SELECT name FROM sqlite_master WHERE name LIKE 'enriched%'").fetchall() == []
