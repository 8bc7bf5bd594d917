"""Session counters beside Structured Streaming's `session_window`, whose state is in RocksDB.

Both count payments by merchant in sessions, from the same topic. The fold's sessions are in a SQLite file, where a late
payment may join two of them whenever it comes. The stream's are in its state store; what is later than its watermark is
dropped, and finished sessions go to nowhere (`noop`).
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from bench import spark_topics
from bench.measuring import Place, Scale, Turns, timed
from bench.spark_beside import parsed
from bench.spark_session import STREAM_END_S, cores, with_spark
from bench.spark_views import payments_fold
from bench.table import Row, Table, count, per_second, table_of

import foldlog.spark as fl

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TITLE = "Folds: session counters beside Structured Streaming"
GAP = "2 seconds"
_PROVIDER = "spark.sql.streaming.stateStore.providerClass"
_ROCKS = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"


@with_spark(TITLE)
def run(place: Place, scale: Scale, spark: SparkSession) -> Table:
    log = place.fresh()
    spark_topics.make_payments(log, scale.fold_records, cores(spark))
    row = measure(place, scale, spark, log)
    place.give_back(log)
    notes = [
        f"{count(scale.fold_records)} JSON payments, counted and summed by merchant in sessions with a gap of {GAP}.",
        "'session_window' is a stream of the same topic, once, with its state in RocksDB and a watermark of an hour.",
    ]
    return table_of(TITLE, [row], notes)


def measure(place: Place, scale: Scale, spark: SparkSession, log: Path) -> Row:
    runs = {
        "fold": partial(_fold, place, log, spark, scale.fold_records),
        "stream": partial(_stream, place, log, spark, scale.fold_records),
    }
    found = Turns(scale.spark_repeats, runs, warm_up=scale.spark_warm_up)
    ratio = found.ratio("fold", "stream")
    return Row(
        "counters, SQLite, sessions", per_second(found.speed("fold")),
        f"session_window {per_second(found.speed('stream'))}", ratio, ">= 1.0 of it", ratio >= 1.0,
    )  # fmt: skip


def _fold(place: Place, log: Path, spark: SparkSession, records: int) -> float:
    home = place.fresh()
    measures = {"payments": fl.count(), "paise": fl.sum("amount_paise")}
    view = fl.counters(str(home / "live.db"), by=["merchant"], window=fl.sessions("at", GAP), measures=measures)
    fold = payments_fold(view)
    seconds = timed(lambda: fl.run([fold], log, once=True, spark=spark))
    fl.drop(fold, log)
    place.give_back(home)
    return records / seconds


def _stream(place: Place, log: Path, spark: SparkSession, records: int) -> float:
    home = place.fresh()
    before = spark.conf.get(_PROVIDER)
    spark.conf.set(_PROVIDER, _ROCKS)
    try:
        seconds = timed(lambda: stream_of_sessions(home, log, spark))
    finally:
        spark.conf.set(_PROVIDER, before or "")
    place.give_back(home)
    return records / seconds


def stream_of_sessions(home: Path, log: Path, spark: SparkSession) -> int:
    """All of the topic, as a stream that ends; how many sessions its state had at once."""
    from pyspark.sql import functions

    read = spark.readStream.format("foldlog").option("path", str(log)).option("subscribe", spark_topics.PAYMENTS)
    rows = parsed(read.option("startingOffsets", "earliest").load()).filter("NOT _deleted AND amount_paise > 0")
    grouped = rows.withWatermark("at", "1 hour").groupBy("merchant", functions.session_window("at", GAP))
    query = (
        grouped.agg(functions.expr("count(*) AS payments"), functions.expr("sum(amount_paise) AS paise"))
        .writeStream.format("noop")
        .outputMode("append")
        .option("checkpointLocation", str(home / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    if not query.awaitTermination(STREAM_END_S):
        query.stop()
        raise RuntimeError(f"the stream did not end within {STREAM_END_S} s")
    found: list[int] = [state["numRowsTotal"] for one in query.recentProgress for state in one["stateOperators"]]
    return max(found)
