"""Poison: how much longer a range takes of which some records do not parse, beside the same one without them.

Reading and decoding is measured as processor time in this process, with the dead letters at the end, as a task and the
driver do it; a fold with everything around it by the clock, into a view that throws away.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from bench import spark_topics
from bench.measuring import Place, Scale, Turns, timed
from bench.spark_session import cores, with_spark
from bench.spark_views import nowhere_like, payments_fold
from bench.table import Row, Table, count, per_second, table_of

import foldlog.spark as fl

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TITLE = "Poison: records that do not parse"
FOLD = "fold"
PARTS = {5_000: ("0.02 %", 1.2), 100: ("1 %", 2.0)}
"""One record of so many is bad: how to write that, and how many times as long it may take at most."""


@with_spark(TITLE)
def run(place: Place, scale: Scale, spark: SparkSession) -> Table:
    notes = [
        f"{count(scale.fold_records)} JSON payments of about 100 bytes; the bad ones are no JSON, evenly spread.",
        "The ratio is of speeds: 0.83 is 1.2 times as long. 'read and decode' is processor time, and has the letters.",
    ]
    return table_of(TITLE, measure(place, scale, spark), notes)


def measure(place: Place, scale: Scale, spark: SparkSession) -> list[Row]:
    logs = {one_of: place.fresh() for one_of in (0, *PARTS)}
    for one_of, log in logs.items():
        spark_topics.make_payments(log, scale.fold_records, cores(spark), one_of)
    ways: dict[str, Callable[[Path], float]] = {
        "read and decode": partial(_decode, spark, scale.fold_records),
        FOLD: partial(_fold, place, spark, scale.fold_records),
    }
    rows = []
    for way, measured in ways.items():
        runs = {str(one_of): partial(measured, log) for one_of, log in logs.items()}
        found = Turns(scale.spark_repeats, runs, warm_up=True)
        rows += [_row(found, way, one_of) for one_of in PARTS]
    for log in logs.values():
        place.give_back(log)
    return rows


def _row(found: Turns, way: str, one_of: int) -> Row:
    part, most = PARTS[one_of]
    ratio = found.ratio(str(one_of), "0")
    ours, clean = (per_second(found.speed(name)) for name in (str(one_of), "0"))
    row = Row(f"{way}, {part} bad", ours, f"none bad {clean}", ratio)
    if way == FOLD:  # with the trial, a topic that is made and letters that are synced: fixed costs, for the eye
        return row
    return replace(row, target=f"<= {most} times as long", met=ratio >= 1 / most)


def _decode(spark: SparkSession, records: int, log: Path) -> float:
    from foldlog.spark.folds.reading import TopicFrames
    from foldlog.spark.origins.origin import OffsetRange, open_origin, origin_spec

    topic = fl.topic(spark_topics.PAYMENTS, key="tx_id", schema=spark_topics.PAYMENTS_SCHEMA)
    origin = open_origin(origin_spec(log))
    frames = TopicFrames(spark, topic, origin.spec, origin.topic(topic.name).topic_id)
    ranges = [OffsetRange(topic.name, number, at.start, at.end) for number, at in origin.bounds(topic.name).items()]
    origin.close()
    seen = frames.count()
    reader = frames.reader(ranges, seen, needs_key=True)
    start = time.process_time()
    for _ in reader.read(range(len(reader.tasks))):
        pass
    frames.met_dead(ranges, seen.value, needs_key=True)
    return records / (time.process_time() - start)


def _fold(place: Place, spark: SparkSession, records: int, log: Path) -> float:
    home = place.fresh()
    fold = payments_fold(nowhere_like(fl.table(home / "shop.db", "payments")))
    seconds = timed(lambda: fl.run([fold], log, once=True, spark=spark))
    place.give_back(home)
    return records / seconds
