"""Poison: how much longer a range takes of which some records do not parse, beside the same one without them.

Reading and decoding is measured as processor time in this process, with the dead letters at the end, as a task and the
driver do it; a fold with everything around it by the clock, into a view that throws away.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
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
from foldlog.spark.decoders.json_values import JsonDecoder
from foldlog.spark.decoders.text_types import UTC_MICROS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TITLE = "Poison: records that do not parse"
FOLD = "fold"
KINDS: dict[str, Callable[[bytes], bytes]] = {
    "no JSON": lambda good: b"not a payment",
    "cut off": lambda good: good[:50],
    "followed by more": lambda good: good + b" and more}",
    "text for a number": lambda good: good.replace(b'"amount_paise":', b'"amount_paise":"x","a":'),
    "a number that is too large": lambda good: good.replace(b'"amount_paise":', b'"amount_paise":99999999999999999999'),
    "no such hour": lambda good: good.replace(b"T", b"T99"),
    "a field twice": lambda good: good[:-1] + b',"note":""}',
    "not UTF-8": lambda good: good.replace(b"merchant-", b"merchant\xff"),
    "a NUL byte": lambda good: good.replace(b"merchant-", b"merchant\0"),
    "nested 5,000 deep and cut off": lambda good: good[:-1] + b',"a":' + b"[" * 5_000,
    "nested 2,500 deep, closed, and broken": lambda good: good[:-1] + b',"a":' + b"[" * 2_500 + b"]" * 2_500 + b"x}",
}
"""What a bad record is, made of a good one."""

DECODED_PARTS = {100: "1 %", 10: "10 %", 2: "50 %"}
PARTS = {5_000: ("0.02 %", 1.2), 100: ("1 %", 2.0)}
"""One record of so many is bad: how to write that, and how many times as long it may take at most."""


@with_spark(TITLE)
def run(place: Place, scale: Scale, spark: SparkSession) -> Table:
    notes = [
        f"{count(scale.fold_records)} JSON payments of about 100 bytes; the bad ones are no JSON, evenly spread.",
        "The ratio is of speeds: 0.83 is 1.2 times as long. 'decode' and 'read and decode' are processor time.",
        "'decode' is JSON to columns alone; 'read and decode' has the dead letters.",
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
    rows = _kinds(scale)
    for way, measured in ways.items():
        runs = {str(one_of): partial(measured, log) for one_of, log in logs.items()}
        found = Turns(scale.spark_repeats, runs, warm_up=True)
        rows += [_row(found, way, one_of) for one_of in PARTS]
    for log in logs.values():
        place.give_back(log)
    return rows


def _kinds(scale: Scale) -> list[Row]:
    """JSON to columns alone, with each kind of poison, and with all of them in turn."""
    import pyarrow as pa

    good = [spark_topics.payment(number) for number in range(0, scale.fold_records // 2, 20)] * 10
    schema = pa.schema(
        [("merchant", pa.string()), ("amount_paise", pa.int64()), ("note", pa.string()), ("at", UTC_MICROS)]
    )

    def decoded(values: list[bytes]) -> Callable[[], float]:
        column = pa.array(values, pa.binary())

        def run_once() -> float:
            start = time.process_time()
            JsonDecoder(schema).decode(column)
            return len(values) / (time.process_time() - start)

        return run_once

    def spoilt(kinds: Sequence[Callable[[bytes], bytes]], one_of: int) -> list[bytes]:
        values = list(good)
        for number, row in enumerate(range(one_of // 2, len(values), one_of)):
            values[row] = kinds[number % len(kinds)](values[row])
        return values

    runs = {"clean": decoded(good)}
    runs |= {kind: decoded(spoilt([made], 100)) for kind, made in KINDS.items()}
    runs |= {part: decoded(spoilt(list(KINDS.values()), one_of)) for one_of, part in DECODED_PARTS.items()}
    found = Turns(scale.spark_repeats, runs, warm_up=True)
    clean = f"none bad {per_second(found.speed('clean'))}"
    rows = []
    for name in list(runs)[1:]:
        ratio = found.ratio(name, "clean")
        what = f"decode, 1 % {name}" if name in KINDS else f"decode, {name} bad, of all these kinds"
        row = Row(what, per_second(found.speed(name)), clean, ratio)
        is_bound = name in KINDS or name == DECODED_PARTS[100]
        rows.append(replace(row, target=">= 0.5 of clean", met=ratio >= 0.5) if is_bound else row)
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
