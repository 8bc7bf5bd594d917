"""Spark's rows from the log: by path and by wire, beside the ceiling of Spark's Python API and beside Parquet."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

from bench import broker_process, spark_topics
from bench.measuring import Place, Scale, Turns, timed
from bench.spark_session import cores, stream_to_nowhere, to_nowhere, with_spark
from bench.table import Row, Table, count, per_second, table_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

TITLE = "Spark: from the log to nowhere"
FOUR = "key binary, value binary, partition int, offset bigint"
VALUE_BYTES = (100, 1000)
WAYS = ("batch", "AvailableNow")
AIMS = {"path": 0.8, "wire": 0.6}

_READY_BATCHES = 4
_RECORDS_A_KEY = 20


@dataclass(frozen=True)
class _Topic:
    """What is read: a log that a broker serves, and the same rows as Parquet."""

    spark: SparkSession
    path: Path
    bootstrap: str
    parquet: Path
    records: int

    @property
    def places(self) -> dict[str, dict[str, str]]:
        """The options that say where the log is."""
        return {"path": {"path": str(self.path)}, "wire": {"kafka.bootstrap.servers": self.bootstrap}}


@with_spark(TITLE)
def run(place: Place, scale: Scale, spark: SparkSession) -> Table:
    schemas = {"4 columns": FOUR, "all columns": all_columns()}
    rows = [row for value_bytes in VALUE_BYTES for row in read_topic(place, scale, spark, value_bytes, schemas)]
    rows += read_newest(place, scale, spark)
    notes = [
        f"{scale.spark_value_bytes / 1e6:.3g} MB of values, keys of 12 bytes, cached; {cores(spark)} tasks.",
        "In brackets the slowest and the quickest turn.",
        "'ceiling' is a Python source that has Arrow batches of the same schema and sizes ready, and hands them over.",
        "The broker runs beside Spark, on the same cores. All columns are eight, with the headers; there are none.",
        "AvailableNow is the time of its micro-batches; starting a query takes a second or so more, whatever it reads.",
        "latestPerKey reads the keys of a range first, then ships the newest row of each.",
    ]
    return table_of(TITLE, rows, notes)


def read_topic(
    place: Place,
    scale: Scale,
    spark: SparkSession,
    value_bytes: int,
    schemas: Mapping[str, str],
    ways: Sequence[str] = WAYS,
) -> list[Row]:
    """One topic in several schemas: batch and stream, by path and by wire."""
    from bench import spark_ceiling

    spark_ceiling.register(spark)
    rows: list[Row] = []
    home = place.fresh()
    records = scale.spark_value_bytes // value_bytes
    spark_topics.make_plain(home / "log", records, value_bytes, cores(spark))
    with broker_process.running(home / "log") as broker:
        topic = _Topic(spark, home / "log", "{}:{}".format(*broker.address), home / "parquet", records)
        _log_frame(topic, "path", all_columns()).write.parquet(str(topic.parquet))
        for title, schema in schemas.items():
            rows += _compare(place, scale, topic, f"{value_bytes} B values, {title}", schema, ways)
    place.give_back(home)
    return rows


def all_columns() -> str:
    from foldlog.spark.source.columns import ddl

    return ddl(include_headers=True)


def _compare(place: Place, scale: Scale, topic: _Topic, name: str, schema: str, ways: Sequence[str]) -> list[Row]:
    ready = topic.parquet.parent / f"ready-{len(schema)}.arrow"
    _save_ready(topic, schema, ready)
    frames: dict[str, Callable[[bool], DataFrame]] = {
        "path": lambda is_stream: _log_frame(topic, "path", schema, is_stream=is_stream),
        "wire": lambda is_stream: _log_frame(topic, "wire", schema, is_stream=is_stream),
        "ceiling": lambda is_stream: _ceiling_frame(topic, ready, schema, is_stream=is_stream),
        "Parquet": lambda is_stream: _parquet_frame(topic, schema, is_stream=is_stream),
    }
    runs = {
        "batch": {who: partial(_batch, topic, partial(frame, False)) for who, frame in frames.items()},
        "AvailableNow": {who: partial(_stream, place, topic, partial(frame, True)) for who, frame in frames.items()},
    }
    return [row for way in ways for row in _rows(scale, f"{way}, {name}", runs[way])]


def _rows(scale: Scale, name: str, runs: Mapping[str, Callable[[], float]]) -> list[Row]:
    found = Turns(scale.spark_repeats, runs, warm_up=scale.spark_warm_up)
    rows = [
        Row(
            f"{name}, by {way}", _spread(found, way), f"ceiling {_spread(found, 'ceiling')}",
            found.ratio(way, "ceiling"), f">= {aim} of the ceiling", found.ratio(way, "ceiling") >= aim,
        )
        for way, aim in AIMS.items()
    ]  # fmt: skip
    beside = Row(
        f"{name}, by path", _spread(found, "path"), f"Parquet {_spread(found, 'Parquet')}",
        found.ratio("path", "Parquet"),
    )  # fmt: skip
    return [*rows, beside]


def _spread(found: Turns, name: str) -> str:
    slowest, quickest = found.spread(name)
    return f"{per_second(found.speed(name))} ({count(slowest)}-{count(quickest)})"


def _log_frame(topic: _Topic, way: str, schema: str, *, is_stream: bool = False, **more: str) -> DataFrame:
    reader = topic.spark.readStream if is_stream else topic.spark.read
    options = {**topic.places[way], "subscribe": spark_topics.PLAIN, "startingOffsets": "earliest"}
    return reader.format("foldlog").schema(schema).options(**options, includeHeaders="true", **more).load()


def _ceiling_frame(topic: _Topic, ready: Path, schema: str, *, is_stream: bool = False) -> DataFrame:
    from bench.spark_ceiling import SOURCE

    reader = topic.spark.readStream if is_stream else topic.spark.read
    tasks = cores(topic.spark)
    options = {"file": str(ready), "tasks": str(tasks), "rows": str(topic.records // tasks)}
    return reader.format(SOURCE).schema(schema).options(**options).load()


def _parquet_frame(topic: _Topic, schema: str, *, is_stream: bool = False) -> DataFrame:
    reader = topic.spark.readStream if is_stream else topic.spark.read
    return reader.schema(schema).parquet(str(topic.parquet))


def _batch(topic: _Topic, frame: Callable[[], DataFrame]) -> float:
    return topic.records / timed(lambda: to_nowhere(frame()))


def _stream(place: Place, topic: _Topic, frame: Callable[[], DataFrame]) -> float:
    checkpoint = place.fresh()
    rows, seconds = stream_to_nowhere(frame(), str(checkpoint))
    place.give_back(checkpoint)
    if rows != topic.records:
        raise RuntimeError(f"the stream had {rows} rows, and there are {topic.records}")
    return rows / seconds


def _save_ready(topic: _Topic, schema: str, file: Path) -> None:
    """The first batches as our own reader makes them: the ceiling's have to have the same sizes."""
    from bench.spark_ceiling import save_batches
    from pyspark.sql.types import StructType

    from foldlog.spark.origins.origin import OffsetRange, OriginSpec, open_origin
    from foldlog.spark.source.offsets import PlannedRange
    from foldlog.spark.source.tasks import SourceReader

    parsed = StructType.fromDDL(schema)
    if not isinstance(parsed, StructType):
        raise TypeError(f"{schema} names no columns")
    origin = open_origin(OriginSpec(path=str(topic.path)))
    try:
        bounds = origin.bounds(spark_topics.PLAIN)[0]
        wanted = OffsetRange(spark_topics.PLAIN, 0, bounds.start, bounds.end)
        planned = PlannedRange(wanted, origin.topic(spark_topics.PLAIN).topic_id)
        reader = SourceReader(parsed, fail_on_data_loss=True, latest_per_key=False)
        save_batches(file, list(islice(reader.batches(origin, planned), _READY_BATCHES)))
    finally:
        origin.close()


def read_newest(place: Place, scale: Scale, spark: SparkSession) -> list[Row]:
    """latestPerKey: fewer rows cross into Spark."""
    home = place.fresh()
    records = scale.spark_value_bytes // VALUE_BYTES[0]
    keys = max(1, records // _RECORDS_A_KEY)
    spark_topics.make_plain(home / "log", records, VALUE_BYTES[0], cores(spark), keys)
    topic = _Topic(spark, home / "log", "", home, records)

    def newest() -> DataFrame:
        return _log_frame(topic, "path", FOUR, latestPerKey="true")

    runs = {
        "newest": partial(_batch, topic, newest),
        "all": partial(_batch, topic, lambda: _log_frame(topic, "path", FOUR)),
    }
    shipped = newest().count()
    found = Turns(scale.spark_repeats, runs, warm_up=scale.spark_warm_up)
    place.give_back(home)
    return [
        Row(
            f"latestPerKey, {count(records)} records of {count(keys)} keys, by path",
            f"{_spread(found, 'newest')}, ships {count(shipped)} rows,"
            f" {per_second(found.speed('newest') * shipped / records)}",
            f"every record {_spread(found, 'all')}", found.ratio("newest", "all"),
        )
    ]  # fmt: skip
