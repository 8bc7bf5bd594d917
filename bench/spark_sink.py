"""Spark's rows into the log: by path and by wire, beside a writer that throws them away."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from bench import broker_process
from bench.measuring import Place, Scale, Turns, timed
from bench.spark_session import cores, with_spark
from bench.table import Row, Table, count, per_second, table_of

import foldlog

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

TITLE = "Spark: into the log"
VALUE_BYTES = (100, 1000)
TOPIC = "t"


@with_spark(TITLE)
def run(place: Place, scale: Scale, spark: SparkSession) -> Table:
    rows = [row for value_bytes in VALUE_BYTES for row in write_rows(place, scale, spark, value_bytes)]
    notes = [
        f"Spark makes the rows as they are written: keys of 12 bytes; {cores(spark)} tasks, {cores(spark)} partitions.",
        "'thrown away' is an Arrow writer in Python that keeps nothing. Ours is durable at the end.",
        "By path and by wire a batch is written once and whole: rows are staged, synced, and then appended.",
        "By wire the broker runs beside it, and has each row twice; with exactlyOnce=false tasks append.",
    ]
    return table_of(TITLE, rows, notes)


def write_rows(place: Place, scale: Scale, spark: SparkSession, value_bytes: int) -> list[Row]:
    """As many bytes of values whatever their size."""
    from bench import spark_ceiling

    spark_ceiling.register(spark)
    records = scale.spark_sink_records * VALUE_BYTES[0] // value_bytes
    frame = _frame(spark, records, value_bytes)

    def thrown_away() -> float:
        return records / timed(lambda: frame.write.format(spark_ceiling.SOURCE).mode("append").save())

    def by_path() -> float:
        home = place.fresh()
        _create(home, cores(spark))
        seconds = timed(lambda: _write(frame, {"path": str(home)}))
        _check_end(home, records)
        place.give_back(home)
        return records / seconds

    def by_wire(*, exactly_once: bool) -> float:
        home = place.fresh()
        _create(home, cores(spark))
        with broker_process.running(home) as broker:
            options = {
                "kafka.bootstrap.servers": "{}:{}".format(*broker.address),
                "exactlyOnce": str(exactly_once).lower(),
            }
            seconds = timed(lambda: _write(frame, options))
        # The transaction's marker takes an offset of each partition.
        _check_end(home, records + cores(spark) * exactly_once)
        place.give_back(home)
        return records / seconds

    runs: dict[str, Callable[[], float]] = {
        "path": by_path,
        "wire": partial(by_wire, exactly_once=True),
        "wire with exactlyOnce=false": partial(by_wire, exactly_once=False),
        "thrown away": thrown_away,
    }
    found = Turns(scale.spark_repeats, runs, warm_up=scale.spark_warm_up)
    beside = f"thrown away {per_second(found.speed('thrown away'))}"
    return [
        Row(
            f"df.write, {count(records)} rows, {value_bytes} B values, by {way}",
            f"{per_second(found.speed(way))} ({'-'.join(map(count, found.spread(way)))})",
            beside, found.ratio(way, "thrown away"),
        )
        for way in runs
        if way != "thrown away"
    ]  # fmt: skip


def _frame(spark: SparkSession, records: int, value_bytes: int) -> DataFrame:
    """Made from nothing, so that what is measured is the writing."""
    numbered = spark.range(0, records, 1, cores(spark))
    return numbered.selectExpr(
        "CAST(concat('key', lpad(CAST(id AS STRING), 9, '0')) AS BINARY) AS key",
        f"CAST(rpad(CAST(id AS STRING), {value_bytes}, 'x') AS BINARY) AS value",
    )


def _create(path: Path, partitions: int) -> None:
    with foldlog.open(path) as log:
        log.create_topic(TOPIC, partitions)


def _write(frame: DataFrame, place: Mapping[str, str]) -> None:
    frame.write.format("foldlog").mode("append").options(**place, topic=TOPIC).save()


def _check_end(path: Path, offsets: int) -> None:
    """What was measured is in the log."""
    with foldlog.open(path, mode="r") as log:
        found = sum(end - start for start, end in log.offsets(TOPIC).values())
    if found != offsets:
        raise RuntimeError(f"the log has {found} offsets, and {offsets} were to be written")
