"""Run by a test, on a Spark of its own: topic "payments" is streamed into another topic, by path and by wire.

stream_child.py MASTER SCRATCH DATA BOOTSTRAP EXECUTOR_MEMORY

Prints, as JSON, the partition and the offset of every row that each of the two streams gave. The topics that it writes
are called after the scratch directory.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

TOPIC = "payments"


def main(master: str, scratch: Path, data: str, bootstrap: str, executor_memory: str) -> None:
    builder = SparkSession.builder.master(master).appName("foldlog streams").config("spark.ui.enabled", "false")
    spark = builder.config("spark.executor.memory", executor_memory).config("spark.log.level", "OFF").getOrCreate()
    ways = {"by_path": {"path": data}, "by_wire": {"kafka.bootstrap.servers": bootstrap}}
    told = {way: stream(spark, place, scratch, f"{scratch.name}.{way}") for way, place in ways.items()}
    spark.stop()
    print(json.dumps(told))


def stream(spark: SparkSession, place: dict[str, str], scratch: Path, into: str) -> list[list[int]]:
    """Everything there is, in several micro-batches; once to look at it, once into the topic."""
    source = spark.readStream.format("foldlog").options(**place).option("subscribe", TOPIC)
    rows = source.option("startingOffsets", "earliest").option("maxOffsetsPerTrigger", 500).load()
    found: list[list[int]] = []

    def take(batch: DataFrame, number: int) -> None:
        found.extend([row.partition, row.offset] for row in batch.select("partition", "offset").collect())

    looking = rows.writeStream.foreachBatch(take).option("checkpointLocation", str(scratch / f"{into}.looked"))
    looking.trigger(availableNow=True).start().awaitTermination()
    sink = rows.select("key", "value", "partition").writeStream.format("foldlog").options(**place)
    sink = sink.option("topic", into).option("createTopic", 3).option("checkpointLocation", str(scratch / into))
    sink.trigger(availableNow=True).start().awaitTermination()
    return sorted(found)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), *sys.argv[3:])
