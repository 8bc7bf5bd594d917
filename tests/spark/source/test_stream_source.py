"""`spark.readStream.format("foldlog")` with a real Spark: what a query is given, over triggers, restarts and growth.

What each batch holds is planned without Spark in test_stream_planner.py; here a few queries prove that Spark and the
source understand each other. Almost all of them run with availableNow, which ends by itself.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows, ReadMinRows
from pyspark.sql.types import LongType, StructField, StructType

import foldlog
from foldlog.client.log import Log
from foldlog.errors import UnknownTopic
from foldlog.spark.source.stream import StreamReader, stream_reader
from foldlog.spark.source.tasks import RangeTask
from foldlog.testing.plugin import KafkaBrokerFactory
from spark.source.spark_streams import batches_of, by_place, fill, offset_of, places, run, stream, written


@pytest.fixture
def log(tmp_path: Path) -> Iterator[Log]:
    with foldlog.open(tmp_path / "log") as opened:
        yield opened


def reader_of(log: Log, **options: str) -> StreamReader:
    """The reader itself, as Spark's planning process has it."""
    schema = StructType([StructField("offset", LongType())])
    return stream_reader({"path": log.path, "subscribe": "orders", "startingOffsets": "earliest", **options}, schema)


def test_a_batch_is_split_into_as_many_tasks_as_are_asked_for(log: Log) -> None:
    log.create_topic("orders", 2)
    fill(log, 100)
    for options, tasks in (({}, 2), ({"minPartitions": "5"}, 5), ({"maxRecordsPerPartition": "10"}, 11)):
        reader = reader_of(log, **options)
        start = reader.initialOffset()
        end = reader.latestOffset(start, reader.getDefaultReadLimit())
        planned = reader.partitions(start, end)
        assert len(planned) == tasks
        # What travels to the executors is another reader, which opens the log itself and knows its directory's id.
        elsewhere = pickle.loads(pickle.dumps(reader))
        rows = [row for task in planned for batch in elsewhere.read(task) for row in batch.to_pylist()]
        assert sorted(row["offset"] for row in rows) == sorted(offset for _, _, offset in written(log))
        assert {task.origin.directory_id for task in planned if isinstance(task, RangeTask)} == {log.directory_id}
        reader.stop()


def test_errors_of_planning_leave_without_the_frames_behind_them(log: Log) -> None:
    """Spark prints all frames before the sentence."""
    with pytest.raises(UnknownTopic) as caught:
        reader_of(log).initialOffset()
    assert [entry.path.name for entry in caught.traceback if isinstance(entry.path, Path)][1:] == ["tracebacks.py"]


def test_the_limit_that_spark_hands_back_tells_whether_the_options_hold(log: Log) -> None:
    assert reader_of(log).getDefaultReadLimit() == ReadAllAvailable()
    assert reader_of(log, maxOffsetsPerTrigger="7").getDefaultReadLimit() == ReadMaxRows(7)
    assert reader_of(log, minOffsetsPerTrigger="7").getDefaultReadLimit() == ReadMinRows(7)
    both = reader_of(log, minOffsetsPerTrigger="2", maxOffsetsPerTrigger="7")
    assert both.getDefaultReadLimit() == ReadMaxRows(7)
    log.create_topic("orders")
    fill(log, 20)
    start = both.initialOffset()
    assert both.latestOffset(start, both.getDefaultReadLimit())["orders"] == {"0": 7}
    assert both.latestOffset(start, ReadAllAvailable())["orders"] == {"0": 20}
    assert both.reportLatestOffset() == {"orders": {"0": 20}}
    both.stop()


def test_batch_and_stream_agree_on_every_column(spark: SparkSession, log: Log, tmp_path: Path) -> None:
    log.create_topic("orders", 3)
    fill(log, 200)
    options = {"path": log.path, "subscribe": "orders", "includeHeaders": "true", "minPartitions": "5"}
    in_batch = spark.read.format("foldlog").options(**options).load()
    frame = stream(spark, log, **options)
    assert frame.schema == in_batch.schema
    found: list[pa.Table] = []
    query = run(frame, tmp_path / "checkpoint", lambda rows, _: found.append(rows.toArrow()))
    assert len(found) == 1
    assert by_place(found[0]).equals(by_place(in_batch.toArrow()))
    assert places(found[0]) == written(log)

    (source,) = query.recentProgress[0]["sources"]
    ends = {"orders": {str(partition): end for partition, (_, end) in log.offsets("orders").items()}}
    assert offset_of(source["latestOffset"]) == ends
    assert {**offset_of(source["endOffset"]), **ends} == offset_of(source["endOffset"])


def test_restarts_and_growth_give_each_record_once(spark: SparkSession, log: Log, tmp_path: Path) -> None:
    """A parquet sink, which takes each batch once: what is in it at the end is what is in the log."""
    log.create_topic("orders", 2)
    fill(log, 50)
    schema = "topic string, partition int, offset bigint"
    for round_number in range(3):
        # The checkpoint says where to go on, whatever startingOffsets says by then.
        where = "earliest" if round_number == 0 else "latest"
        frame = stream(spark, log, schema, startingOffsets=where, maxOffsetsPerTrigger=40)
        writer = frame.writeStream.format("parquet").option("checkpointLocation", str(tmp_path / "checkpoint"))
        writer.trigger(availableNow=True).start(str(tmp_path / "rows")).awaitTermination()
        log.grow_topic("orders", 3 + round_number)
        if round_number < 2:
            fill(log, 30)
    assert places(spark.read.parquet(str(tmp_path / "rows")).toArrow()) == written(log)


def test_available_now_reads_what_was_there_in_batches_within_the_limit(
    spark: SparkSession, log: Log, tmp_path: Path
) -> None:
    log.create_topic("orders", 2)
    fill(log, 25)
    before = written(log)
    found: list[pa.Table] = []

    def take(rows: DataFrame, _: int) -> None:
        fill(log, 5)  # more comes all the time: it is for the next run
        found.append(rows.toArrow())

    frame = stream(spark, log, "topic string, partition int, offset bigint", maxOffsetsPerTrigger=10)
    run(frame, tmp_path / "checkpoint", take)
    assert [batch.num_rows <= 10 for batch in found] == [True] * 3
    assert sorted(place for batch in found for place in places(batch)) == before


def test_the_newest_record_of_each_key_is_enough_for_an_upsert(spark: SparkSession, log: Log, tmp_path: Path) -> None:
    log.create_topic("orders")
    for number in range(30):
        log.append("orders", str(number), key=f"k{number % 3}")
    (rows,) = batches_of(stream(spark, log, "value binary", latestPerKey="true"), tmp_path / "checkpoint")
    assert sorted(rows.to_pylist(), key=str) == [{"value": b"27"}, {"value": b"28"}, {"value": b"29"}]


def test_a_running_query_meets_new_records_partitions_and_topics(spark: SparkSession, log: Log, tmp_path: Path) -> None:
    log.create_topic("orders-a")
    fill(log, 5, "orders-a")
    frame = stream(spark, log, subscribePattern="orders-.*", startingOffsets="latest")
    found: list[pa.Table] = []
    writer = frame.writeStream.foreachBatch(lambda rows, _: found.append(rows.toArrow()))
    query = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).start()
    try:
        query.processAllAvailable()
        assert sum(batch.num_rows for batch in found) == 0
        fill(log, 4, "orders-a")
        query.processAllAvailable()
        log.grow_topic("orders-a", 2)
        log.append("orders-a", "in the new one", partition=1)
        log.create_topic("orders-b")
        fill(log, 3, "orders-b")
        log.create_topic("payments")
        fill(log, 3, "payments")
        query.processAllAvailable()
    finally:
        query.stop()
    expected = [
        place for place in written(log, "orders-a", "orders-b") if place[:2] != ("orders-a", 0) or place[2] >= 5
    ]
    assert sorted(place for batch in found for place in places(batch)) == expected


@pytest.mark.faults
def test_path_and_wire_agree(spark: SparkSession, kafka_broker_factory: KafkaBrokerFactory, tmp_path: Path) -> None:
    broker = kafka_broker_factory(path=tmp_path / "served")
    broker.log.create_topic("orders", 2)
    fill(broker.log, 60)
    found = []
    for name, place in (("path", {}), ("wire", {"kafka.bootstrap.servers": str(broker)})):
        frame = stream(spark, broker.log, includeHeaders="true", **place)
        (rows,) = batches_of(frame, tmp_path / name)
        found.append(by_place(rows))
    assert places(found[0]) == written(broker.log)
    assert found[0].equals(found[1])
