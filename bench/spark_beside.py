"""Folds beside the same job written with Spark's own means: a Parquet write, and Structured Streaming's foreachBatch.

What is compared reads the same topic into the same engine, and in the end the same rows are there. It is what a person
would write: `format("foldlog")`, `from_json`, and in foreachBatch the engine's own writer. It has none of a fold's
guarantees: a batch that is repeated after a crash is there twice, or not whole.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from bench import spark_topics
from bench.measuring import Place, Scale, Turns, timed
from bench.spark_session import STREAM_END_S, cores, with_spark
from bench.spark_views import Case, cases, payments_fold, postgres_server
from bench.table import Row, Table, count, per_second, table_of

import foldlog.spark as fl

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

TITLE = "Folds: beside Spark's own writers"
WRITE_AIM = 0.8
BATCH_AIM = 1.0

Write = Callable[["DataFrame", int], None]
"""What foreachBatch is given."""


@with_spark(TITLE)
def run(place: Place, scale: Scale, spark: SparkSession) -> Table:
    log = place.fresh()
    spark_topics.make_payments(log, scale.fold_records, cores(spark))
    with postgres_server() as postgres:
        rows = measure(place, scale, spark, log, postgres)
    place.give_back(log)
    notes = [
        f"{count(scale.fold_records)} JSON payments of about 100 bytes, two records a key, one in twenty a tombstone.",
        "'Parquet write' is spark.read, from_json and write.parquet of the same rows; beside it is a rebuild.",
        "'foreachBatch' is a stream of the same topic, once, with the engine's own writer for each batch.",
        "A fold is exact after every crash, and can be verified; foreachBatch, as written here, is neither.",
    ]
    return table_of(TITLE, rows, notes if postgres else [*notes, "There is no PostgreSQL server to start here."])


def measure(place: Place, scale: Scale, spark: SparkSession, log: Path, postgres: str | None) -> list[Row]:
    by_name = {case.name: case for case in cases(postgres)}
    lakes = [by_name[name] for name in ("lake, Parquet", "lake, Delta, append") if name in by_name]
    rows = [_beside_write(place, scale, spark, log, case) for case in lakes]
    for name, writer in _WRITERS.items():
        if name in by_name:
            rows.append(_beside_batches(place, scale, spark, log, by_name[name], partial(writer, postgres)))
    return rows


def _beside_write(place: Place, scale: Scale, spark: SparkSession, log: Path, case: Case) -> Row:
    runs = {
        "rebuild": partial(_rebuild, case, place, log, spark, scale.fold_records),
        "write": partial(_write, place, log, spark, scale.fold_records),
    }
    found = Turns(scale.spark_repeats, runs, warm_up=scale.spark_warm_up)
    return _row(f"{case.name}, rebuild", found, "rebuild", "write", "Parquet write", WRITE_AIM)


def _beside_batches(
    place: Place, scale: Scale, spark: SparkSession, log: Path, case: Case, writer: Callable[[Path], Write]
) -> Row:
    runs = {
        "fold": partial(_fold, case, place, log, spark, scale.fold_records),
        "batches": partial(_batches, writer, place, log, spark, scale.fold_records),
    }
    found = Turns(scale.spark_repeats, runs, warm_up=scale.spark_warm_up)
    return _row(case.name, found, "fold", "batches", "foreachBatch", BATCH_AIM)


def _row(name: str, found: Turns, ours: str, other: str, called: str, aim: float) -> Row:
    ratio = found.ratio(ours, other)
    return Row(
        name, per_second(found.speed(ours)), f"{called} {per_second(found.speed(other))}", ratio,
        f">= {aim} of it", ratio >= aim,
    )  # fmt: skip


def _fold(case: Case, place: Place, log: Path, spark: SparkSession, records: int) -> float:
    home = place.fresh()
    fold = payments_fold(case.make(home))
    seconds = timed(lambda: fl.run([fold], log, once=True, spark=spark))
    fl.drop(fold, log)
    place.give_back(home)
    return records / seconds


def _rebuild(case: Case, place: Place, log: Path, spark: SparkSession, records: int) -> float:
    home = place.fresh()
    fold = payments_fold(case.make(home))
    fl.run([fold], log, once=True, spark=spark)
    seconds = timed(lambda: fl.rebuild(fold, log, spark=spark))
    fl.drop(fold, log)
    place.give_back(home)
    return records / seconds


def _write(place: Place, log: Path, spark: SparkSession, records: int) -> float:
    home = place.fresh()
    read = spark.read.format("foldlog").option("path", str(log)).option("subscribe", spark_topics.PAYMENTS)
    seconds = timed(lambda: parsed(read.load()).write.parquet(str(home / "rows")))
    place.give_back(home)
    return records / seconds


def _batches(writer: Callable[[Path], Write], place: Place, log: Path, spark: SparkSession, records: int) -> float:
    home = place.fresh()
    write = writer(home)
    seconds = timed(lambda: stream_into(write, home, log, spark))
    place.give_back(home)
    return records / seconds


def stream_into(write: Write, home: Path, log: Path, spark: SparkSession) -> None:
    """All of the topic, as a stream that ends."""
    read = spark.readStream.format("foldlog").option("path", str(log)).option("subscribe", spark_topics.PAYMENTS)
    rows = parsed(read.option("startingOffsets", "earliest").load())
    query = (
        rows.writeStream.foreachBatch(write)
        .option("checkpointLocation", str(home / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    if not query.awaitTermination(STREAM_END_S):
        query.stop()
        raise RuntimeError(f"the stream did not end within {STREAM_END_S} s")


def parsed(records: DataFrame) -> DataFrame:
    """Columns of JSON payments, as people write it."""
    return records.selectExpr(
        "CAST(key AS STRING) AS tx_id",
        f"from_json(CAST(value AS STRING), '{spark_topics.PAYMENTS_SCHEMA}') AS row",
        "partition AS _partition",
        "offset AS _offset",
        "timestamp AS _timestamp",
        "value IS NULL AS _deleted",
    ).selectExpr("tx_id", "row.*", "_partition", "_offset", "_timestamp", "_deleted")


# --- what foreachBatch does -----------------------------------------------------------------------------------------


def _to_parquet(_: str | None, home: Path) -> Write:
    return lambda rows, number: rows.write.mode("append").parquet(str(home / "lake"))


def _to_delta(_: str | None, home: Path) -> Write:
    from deltalake import write_deltalake

    return lambda rows, number: write_deltalake(str(home / "lake"), rows.toArrow(), mode="append")


def _to_merged_delta(_: str | None, home: Path) -> Write:
    from deltalake import DeltaTable, write_deltalake

    def write(rows: DataFrame, number: int) -> None:
        newest = _newest(rows).drop("_partition", "_offset", "_timestamp").toArrow()
        path = str(home / "lake")
        if not DeltaTable.is_deltatable(path):
            write_deltalake(path, newest.slice(0, 0).drop_columns(["_deleted"]))
        (
            DeltaTable(path)
            .merge(newest, "stored.tx_id = given.tx_id", source_alias="given", target_alias="stored")
            .when_matched_delete("given._deleted")
            .when_matched_update_all(except_cols=["_deleted"])
            .when_not_matched_insert_all("NOT given._deleted", except_cols=["_deleted"])
            .execute()
        )

    return write


def _to_postgres(url: str | None, home: Path) -> Write:
    import psycopg

    name = f"batches_{uuid.uuid4().hex[:12]}"
    columns = "tx_id, merchant, amount_paise, note, at"
    types = "tx_id text PRIMARY KEY, merchant text, amount_paise bigint, note text, at timestamptz"
    changed = ", ".join(f"{one} = EXCLUDED.{one}" for one in ("merchant", "amount_paise", "note", "at"))
    with psycopg.connect(url or "") as connection:
        connection.execute(f"CREATE TABLE {name} ({types})".encode())

    def write(rows: DataFrame, number: int) -> None:
        found = _newest(rows).toArrow()
        with psycopg.connect(url or "") as connection, connection.cursor() as cursor:
            cursor.execute(f"CREATE TEMP TABLE given (LIKE {name}, _deleted boolean) ON COMMIT DROP".encode())
            with cursor.copy(f"COPY given ({columns}, _deleted) FROM STDIN".encode()) as copy:
                names = [*columns.split(", "), "_deleted"]
                for row in zip(*(found[one].to_pylist() for one in names), strict=True):
                    copy.write_row(row)
            cursor.execute(
                f"DELETE FROM {name} USING given WHERE given._deleted AND {name}.tx_id = given.tx_id".encode()
            )
            cursor.execute(
                f"INSERT INTO {name} SELECT {columns} FROM given WHERE NOT _deleted"
                f" ON CONFLICT (tx_id) DO UPDATE SET {changed}".encode()
            )

    return write


def _to_sqlite(_: str | None, home: Path) -> Write:
    import sqlite3

    home.mkdir(parents=True, exist_ok=True)
    with sqlite3.connect(home / "shop.db") as connection:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("CREATE TABLE payments (tx_id PRIMARY KEY, merchant, amount_paise, note, at) WITHOUT ROWID")

    def write(rows: DataFrame, number: int) -> None:
        found = _newest(rows).toArrow()
        names = ["tx_id", "merchant", "amount_paise", "note", "at", "_deleted"]
        lines = list(zip(*(found[one].to_pylist() for one in names), strict=True))
        with sqlite3.connect(home / "shop.db") as connection:
            connection.executemany("DELETE FROM payments WHERE tx_id = ?", ((one[0],) for one in lines if one[5]))
            connection.executemany(
                "INSERT OR REPLACE INTO payments VALUES (?, ?, ?, ?, ?)",
                ((*one[:4], None if one[4] is None else one[4].isoformat()) for one in lines if not one[5]),
            )

    return write


def _newest(rows: DataFrame) -> DataFrame:
    """The newest row of each key of a batch."""
    names = [name for name in rows.columns if name != "tx_id"]
    packed = f"max_by(struct({', '.join(names)}), _offset) AS row"
    from pyspark.sql import functions

    return rows.groupBy("tx_id").agg(functions.expr(packed)).selectExpr("tx_id", "row.*")


_WRITERS: dict[str, Callable[[str | None, Path], Write]] = {
    "lake, Parquet": _to_parquet,
    "lake, Delta, append": _to_delta,
    "lake, Delta, merge": _to_merged_delta,
    "table, PostgreSQL": _to_postgres,
    "table, SQLite": _to_sqlite,
}
