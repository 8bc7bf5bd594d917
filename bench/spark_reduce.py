"""States of one's own beside the same state machine in Structured Streaming: `transformWithState`, in RocksDB.

Both read a topic of payments, keep the number and the sum of each key's payments in Python, and put them into an SQLite
table. The stream's states are in RocksDB beside the table; foreachBatch writes those that have changed.
"""

from __future__ import annotations

import sqlite3
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench import spark_topics
from bench.measuring import Place, Scale, Turns, timed
from bench.spark_joins import STATE_SETTINGS, with_settings
from bench.spark_session import STREAM_END_S, cores, with_spark
from bench.table import Row, Table, count, per_second, table_of

import foldlog.spark as fl

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

TITLE = "Folds: states of your own"


@with_spark(TITLE)
def run(place: Place, scale: Scale, spark: SparkSession) -> Table:
    log = place.fresh()
    # A stream in Python takes a tenth of a millisecond for each key: fewer records, so that it ends.
    records = max(2, scale.fold_records // 10)
    spark_topics.make_payments(log, records, cores(spark))
    rows = measure(place, scale, spark, log)
    place.give_back(log)
    notes = [
        f"{count(records)} payments, JSON of about 100 bytes, two of a key; records a second, into SQLite.",
        "'stream' is transformWithState with RocksDB, once, in rows of Python; foreachBatch upserts what has changed.",
        "A fold's states are exact after every crash, are rebuilt, and can be verified.",
    ]
    return table_of(TITLE, rows, notes)


def measure(place: Place, scale: Scale, spark: SparkSession, log: Path) -> list[Row]:
    fresh = {
        "rows": partial(_fold, place, log, spark, add_rows),
        "each row": partial(_fold, place, log, spark, fl.each_row(add_row)),
        "stream": partial(_stream, place, log, spark),
    }
    found = Turns(scale.spark_repeats, fresh, warm_up=scale.spark_warm_up)
    beside = f"stream {per_second(found.speed('stream'))}"
    rows = []
    for name, ours in {"step(state, rows)": "rows", "each_row(step)": "each row"}.items():
        ratio = found.ratio(ours, "stream")
        speed = per_second(found.speed(ours))
        rows.append(Row(f"reduce, SQLite, {name}", speed, beside, ratio, ">= 1 of it", ratio >= 1))
    return rows


def add_rows(state: dict[str, Any], rows: Any) -> dict[str, Any]:
    amounts = rows["amount_paise"].drop_null().to_pylist()
    return {"n": state["n"] + len(amounts), "paise": state["paise"] + sum(amounts)}


def add_row(state: dict[str, Any], row: dict[str, Any]) -> dict[str, Any]:
    amount = row["amount_paise"]
    return state if amount is None else {"n": state["n"] + 1, "paise": state["paise"] + amount}


def _fold(place: Place, log: Path, spark: SparkSession, step: Any) -> float:
    home = place.fresh()
    payments = fl.topic(spark_topics.PAYMENTS, key="tx_id", schema=spark_topics.PAYMENTS_SCHEMA)
    zero = {"n": 0, "paise": 0}
    state = "n INT, paise BIGINT"
    view = fl.reduce(home / "shop.db", "states", state=state, zero=zero, step=step, tombstones="step")
    fold = fl.fold(payments, into=view, name="states")(lambda rows: rows)
    seconds = timed(lambda: fl.run([fold], log, once=True, spark=spark))
    records = _check(home / "shop.db", log, spark)
    fl.drop(fold, log)
    place.give_back(home)
    return records / seconds


def _stream(place: Place, log: Path, spark: SparkSession) -> float:
    home = place.fresh()
    home.mkdir(parents=True, exist_ok=True)
    with sqlite3.connect(home / "shop.db") as connection:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("CREATE TABLE states (tx_id PRIMARY KEY, n, paise)")
    seconds = timed(lambda: keep_states(home, log, spark))
    records = _check(home / "shop.db", log, spark)
    place.give_back(home)
    return records / seconds


def keep_states(home: Path, log: Path, spark: SparkSession) -> None:
    """The states of a stream that ends."""
    from pyspark.sql import Row as SparkRow
    from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

    class Adding(StatefulProcessor):
        def init(self, handle: StatefulProcessorHandle) -> None:
            self.state = handle.getValueState("sums", "n INT, paise BIGINT")

        def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Any:  # noqa: N802, N803 Spark's names
            n, paise = self.state.get() or (0, 0)
            for row in rows:
                n, paise = n + 1, paise + row.amount_paise
            self.state.update((n, paise))
            yield SparkRow(tx_id=key[0], n=n, paise=paise)

    def write(rows: DataFrame, number: int) -> None:
        found = rows.toArrow()
        lines = zip(*(found[one].to_pylist() for one in ("tx_id", "n", "paise")), strict=True)
        with sqlite3.connect(home / "shop.db") as connection:
            connection.executemany("INSERT OR REPLACE INTO states VALUES (?, ?, ?)", lines)

    schema = spark_topics.PAYMENTS_SCHEMA
    with with_settings(spark, {**STATE_SETTINGS, "spark.sql.shuffle.partitions": str(cores(spark))}):
        read = spark.readStream.format("foldlog").option("path", str(log)).option("subscribe", spark_topics.PAYMENTS)
        parsed = (
            read.option("startingOffsets", "earliest")
            .load()
            .where("value IS NOT NULL")
            .selectExpr("CAST(key AS STRING) AS tx_id", f"from_json(CAST(value AS STRING), '{schema}') AS row")
            .selectExpr("tx_id", "row.amount_paise")
        )
        query = (
            parsed.groupBy("tx_id")
            .transformWithState(Adding(), "tx_id STRING, n INT, paise BIGINT", "Update", "None")
            .writeStream.outputMode("update")
            .foreachBatch(write)
            .option("checkpointLocation", str(home / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        if not query.awaitTermination(STREAM_END_S):
            query.stop()
            raise RuntimeError(f"the stream did not end within {STREAM_END_S} s")


def _check(path: Path, log: Path, spark: SparkSession) -> int:
    """The number of the topic's records; RuntimeError if the states are not of all its payments."""
    read = spark.read.format("foldlog").option("path", str(log)).option("subscribe", spark_topics.PAYMENTS).load()
    records, payments = read.count(), read.where("value IS NOT NULL").count()
    with sqlite3.connect(path) as connection:
        ((found,),) = connection.execute("SELECT sum(n) FROM states")
    if found != payments:
        raise RuntimeError(f"{path} has states of {found} payments of {payments}")
    return int(records)
