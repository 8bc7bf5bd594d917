"""Streams of a log for tests: run a query over what is there, and compare what came with what is in the log."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from foldlog.client.log import Log

Place = tuple[str, int, int]
"""Topic, partition, offset."""


def stream(spark: SparkSession, log: Log, schema: str | None = None, **options: object) -> DataFrame:
    """A stream of "orders" from its beginning, unless the options say otherwise."""
    given = {"startingOffsets": "earliest", **options}
    if "kafka.bootstrap.servers" not in given:
        given["path"] = log.path
    if not {"subscribe", "subscribePattern"} & given.keys():
        given["subscribe"] = "orders"
    reader = spark.readStream.format("foldlog").options(**{name: str(value) for name, value in given.items()})
    return (reader if schema is None else reader.schema(schema)).load()


def run(frame: DataFrame, checkpoint: Path, take: Callable[[DataFrame, int], None]) -> StreamingQuery:
    """One run over what is there, batch by batch; the query when it has ended."""
    writer = frame.writeStream.foreachBatch(take).option("checkpointLocation", str(checkpoint))
    query = writer.trigger(availableNow=True).start()
    query.awaitTermination()
    return query


def batches_of(frame: DataFrame, checkpoint: Path) -> list[pa.Table]:
    found: list[pa.Table] = []
    run(frame, checkpoint, lambda rows, _: found.append(rows.toArrow()))
    return found


def places(rows: pa.Table) -> list[Place]:
    return sorted((row["topic"], row["partition"], row["offset"]) for row in rows.to_pylist())


def by_place(rows: pa.Table) -> pa.Table:
    return rows.sort_by([("topic", "ascending"), ("partition", "ascending"), ("offset", "ascending")])


def written(log: Log, *topics: str) -> list[Place]:
    """Every offset there is."""
    return sorted(
        (topic, partition, offset)
        for topic in topics or ("orders",)
        for partition, (start, end) in log.offsets(topic).items()
        for offset in range(start, end)
    )


def fill(log: Log, count: int, topic: str = "orders") -> None:
    with log.producer() as producer:
        for number in range(count):
            key = None if number % 7 == 3 else f"k{number % 5}"
            value = None if number % 11 == 5 else f"value {number}"
            producer.send(topic, value=value, key=key, headers={"n": str(number).encode()} if number % 2 else None)


def offset_of(offset: Any) -> dict[str, Any]:
    """Progress gives offsets as dicts or as texts, by version."""
    found: dict[str, Any] = json.loads(offset) if isinstance(offset, str) else offset
    return found
