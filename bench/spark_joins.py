"""Folds of two topics beside the same join in Structured Streaming, with its state in RocksDB.

Both read the same two topics of orders and payments, join them by order, and put the pairs into an SQLite table. The
stream's join keeps its state beside the table, and has no watermark, so that it forgets nothing either; foreachBatch
appends its pairs, and appends them again if a batch is repeated.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench import spark_topics
from bench.measuring import Place, Scale, Turns, timed
from bench.spark_session import STREAM_END_S, cores, with_spark
from bench.table import Row, Table, count, per_second, table_of

import foldlog.spark as fl

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

TITLE = "Folds: joins of two topics"

STATE_SETTINGS = {
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    ),
}


@with_spark(TITLE)
def run(place: Place, scale: Scale, spark: SparkSession) -> Table:
    log = place.fresh()
    orders = max(1, scale.fold_records // 2)
    spark_topics.make_orders(log, orders, cores(spark))
    rows = measure(place, scale, spark, log, orders)
    place.give_back(log)
    notes = [
        f"{count(orders)} orders and as many payments, JSON of 60 bytes, in another order; records of both a second.",
        "'stream' is a stream-stream join of both topics, once, with RocksDB state, whose pairs foreachBatch appends.",
        "A fold's table is exact after every crash, takes back what a tombstone withdraws, and can be verified.",
    ]
    return table_of(TITLE, rows, notes)


def measure(place: Place, scale: Scale, spark: SparkSession, log: Path, orders: int) -> list[Row]:
    fresh = {
        "fold": partial(_fold, place, log, spark, orders),
        "rebuild": partial(_rebuild, place, log, spark, orders),
        "stream": partial(_stream, place, log, spark, orders),
    }
    found = Turns(scale.spark_repeats, fresh, warm_up=scale.spark_warm_up)
    beside = f"stream {per_second(found.speed('stream'))}"
    names = {"inner join, SQLite": "fold", "inner join, SQLite, rebuild": "rebuild"}
    rows = []
    for name, ours in names.items():
        ratio = found.ratio(ours, "stream")
        rows.append(Row(name, per_second(found.speed(ours)), beside, ratio, ">= 1 of it", ratio >= 1))
    return rows


def paid_orders(path: Path) -> Any:
    """The fold."""
    orders = fl.topic(spark_topics.ORDERS, schema=spark_topics.ORDERS_SCHEMA)
    paid = fl.topic(spark_topics.PAID, schema=spark_topics.PAID_SCHEMA)

    def paid_orders(orders: DataFrame, paid: DataFrame) -> Any:
        return fl.join(orders, paid, on="order_id")

    return fl.fold(orders, paid, into=fl.table(path, "pairs"))(paid_orders)


def _fold(place: Place, log: Path, spark: SparkSession, orders: int) -> float:
    home = place.fresh()
    fold = paid_orders(home / "shop.db")
    seconds = timed(lambda: fl.run([fold], log, once=True, spark=spark))
    _check(home / "shop.db", orders)
    fl.drop(fold, log)
    place.give_back(home)
    return 2 * orders / seconds


def _rebuild(place: Place, log: Path, spark: SparkSession, orders: int) -> float:
    home = place.fresh()
    fold = paid_orders(home / "shop.db")
    fl.run([fold], log, once=True, spark=spark)
    seconds = timed(lambda: fl.rebuild(fold, log, spark=spark))
    _check(home / "shop.db", orders)
    fl.drop(fold, log)
    place.give_back(home)
    return 2 * orders / seconds


def _stream(place: Place, log: Path, spark: SparkSession, orders: int) -> float:
    home = place.fresh()
    home.mkdir(parents=True, exist_ok=True)
    with sqlite3.connect(home / "shop.db") as connection:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("CREATE TABLE pairs (order_id, customer, amount, method)")
    seconds = timed(lambda: join_streams(home, log, spark))
    _check(home / "shop.db", orders)
    place.give_back(home)
    return 2 * orders / seconds


def join_streams(home: Path, log: Path, spark: SparkSession) -> None:
    """Both topics, joined by a stream that ends."""

    def write(rows: DataFrame, number: int) -> None:
        found = rows.toArrow()
        lines = zip(*(found[one].to_pylist() for one in ("order_id", "customer", "amount", "method")), strict=True)
        with sqlite3.connect(home / "shop.db") as connection:
            connection.executemany("INSERT INTO pairs VALUES (?, ?, ?, ?)", lines)

    with with_settings(spark, {**STATE_SETTINGS, "spark.sql.shuffle.partitions": str(cores(spark))}):
        orders = _parsed(log, spark, spark_topics.ORDERS, spark_topics.ORDERS_SCHEMA)
        paid = _parsed(log, spark, spark_topics.PAID, spark_topics.PAID_SCHEMA)
        query = (
            orders.join(paid, "order_id")
            .writeStream.foreachBatch(write)
            .option("checkpointLocation", str(home / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        if not query.awaitTermination(STREAM_END_S):
            query.stop()
            raise RuntimeError(f"the stream did not end within {STREAM_END_S} s")


def _parsed(log: Path, spark: SparkSession, topic: str, schema: str) -> DataFrame:
    read = spark.readStream.format("foldlog").option("path", str(log)).option("subscribe", topic)
    values = read.option("startingOffsets", "earliest").load()
    return values.selectExpr(f"from_json(CAST(value AS STRING), '{schema}') AS row").selectExpr("row.*")


@contextmanager
def with_settings(spark: SparkSession, settings: dict[str, str]) -> Iterator[None]:
    before = {name: spark.conf.get(name, None) for name in settings}
    for name, value in settings.items():
        spark.conf.set(name, value)
    try:
        yield
    finally:
        for name, old in before.items():
            if old is None:
                spark.conf.unset(name)
            else:
                spark.conf.set(name, old)


def _check(path: Path, orders: int) -> None:
    with sqlite3.connect(path) as connection:
        ((found,),) = connection.execute("SELECT count(*) FROM pairs")
    if found != orders:
        raise RuntimeError(f"{path} has {found} pairs of {orders}")
