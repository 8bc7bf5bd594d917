"""A stream over a log that loses what the query was to read, and a query that fails in the middle: with a real Spark.

What counts as a loss is decided without Spark in test_stream_losses.py; here it is seen as a user of Spark sees it:
the query fails with one sentence that says what became of the records and what to do, or goes on and counts.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

import foldlog
from foldlog.client.log import Log
from foldlog.spark.source.stream_offset import OURS
from spark.source.spark_streams import batches_of, offset_of, places, run, stream, written

SCHEMA = "topic string, partition int, offset bigint"


@pytest.fixture
def log(tmp_path: Path) -> Iterator[Log]:
    with foldlog.open(tmp_path / "log") as opened:
        yield opened


def append(log: Log, count: int, topic: str = "orders") -> None:
    for number in range(count):
        log.append(topic, str(number), partition=0)


def read_so_far(spark: SparkSession, log: Log, tmp_path: Path) -> tuple[Path, Path]:
    """Run a query over what is there, and give its checkpoint twice: for who fails, and for who goes on."""
    batches_of(stream(spark, log, SCHEMA), tmp_path / "checkpoint")
    shutil.copytree(tmp_path / "checkpoint", tmp_path / "copy")
    return tmp_path / "checkpoint", tmp_path / "copy"


@pytest.mark.faults
def test_retention_that_overtakes_a_stopped_query(spark: SparkSession, log: Log, tmp_path: Path) -> None:
    log.create_topic("orders", config={"segment.bytes": 1024, "retention.bytes": 2048})
    append(log, 3)
    strict, lenient = read_so_far(spark, log, tmp_path)
    append(log, 200)
    log.enforce_retention("orders")
    first, end = log.offsets("orders")[0]
    assert first > 3

    with pytest.raises(StreamingQueryException) as caught:
        batches_of(stream(spark, log, SCHEMA), strict)
    told = str(caught.value)
    assert f"RecordsMissing: offsets 3 to {first} of orders-0 cannot be read" in told
    assert f"the records before offset {first} were removed by retention" in told
    assert "new checkpointLocation" in told
    assert f"failOnDataLoss=false to go on from offset {first}" in told

    found: list[pa.Table] = []
    frame = stream(spark, log, SCHEMA, failOnDataLoss="false")
    query = run(frame, lenient, lambda rows, _: found.append(rows.toArrow()))
    assert [place[2] for place in places(pa.concat_tables(found))] == list(range(first, end))
    (source,) = query.recentProgress[-1]["sources"]
    assert offset_of(source["endOffset"])[OURS]["skipped"] == first - 3


@pytest.mark.faults
def test_a_recreated_topic_against_an_old_checkpoint(spark: SparkSession, log: Log, tmp_path: Path) -> None:
    log.create_topic("orders")
    append(log, 3)
    strict, lenient = read_so_far(spark, log, tmp_path)
    log.delete_topic("orders")
    log.create_topic("orders")
    append(log, 8)
    with pytest.raises(StreamingQueryException, match=r"made again: its id was \w+ and is \w+.*new checkpointLocation"):
        batches_of(stream(spark, log, SCHEMA), strict)
    found = batches_of(stream(spark, log, SCHEMA, failOnDataLoss="false"), lenient)
    assert places(pa.concat_tables(found)) == written(log)


@pytest.mark.faults
def test_records_that_vanish_between_planning_and_reading(spark: SparkSession, log: Log, tmp_path: Path) -> None:
    """The planner saw them, the task does not: it fails as clearly, or gives what is left."""
    log.create_topic("orders")
    append(log, 10)
    found: list[pa.Table] = []
    faults: list[str] = []

    def take(rows: DataFrame, _: int) -> None:
        log.delete_records("orders", {0: 6})
        try:
            found.append(rows.toArrow())
        except PySparkException as error:
            faults.append(str(error))

    run(stream(spark, log, SCHEMA), tmp_path / "strict", take)
    assert len(faults) == 1
    assert "RecordsMissing" in faults[0]
    assert "everything below offset 6 was deleted on request" in faults[0]
    assert found == []

    log.delete_topic("orders")
    log.create_topic("orders")
    append(log, 10)
    run(stream(spark, log, SCHEMA, failOnDataLoss="false"), tmp_path / "lenient", take)
    assert [place[2] for place in places(found[0])] == [6, 7, 8, 9]


@pytest.mark.faults
def test_a_batch_that_failed_is_given_again_as_it_was(spark: SparkSession, log: Log, tmp_path: Path) -> None:
    """What has come since is not in it, so that a sink which knows the batch by its number can leave it out."""
    log.create_topic("orders", 2)
    append(log, 6)
    attempts: list[tuple[int, list[tuple[str, int, int]]]] = []

    def take(rows: DataFrame, batch: int) -> None:
        attempts.append((batch, places(rows.toArrow())))
        if len(attempts) == 2:
            raise RuntimeError("the sink is down")

    frame = stream(spark, log, SCHEMA, maxOffsetsPerTrigger=4)
    with pytest.raises(StreamingQueryException, match="the sink is down"):
        run(frame, tmp_path / "checkpoint", take)
    append(log, 5)
    log.grow_topic("orders", 3)
    run(stream(spark, log, SCHEMA), tmp_path / "checkpoint", take)
    assert attempts[1] == attempts[2]
    assert [batch for batch, _ in attempts] == [0, 1, 1, 2]
    assert sorted(place for _, rows in attempts[:1] + attempts[2:] for place in rows) == written(log)


def test_a_topic_that_does_not_exist_is_told_in_one_sentence(spark: SparkSession, log: Log, tmp_path: Path) -> None:
    log.create_topic("orders")
    with pytest.raises(StreamingQueryException, match="no topic 'ordres'; there are orders"):
        batches_of(stream(spark, log, subscribe="ordres"), tmp_path / "checkpoint")
