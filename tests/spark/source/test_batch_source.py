"""`spark.read.format("foldlog")` in a real Spark: it finds what `read_arrow` finds, in the columns of Spark's Kafka
source, for each option; what is wrong is told in a sentence; filters reach the log where Spark lets them. Found by its
name alone: nothing here registers it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

import foldlog

ROWS = 40
PUSHDOWN = "spark.sql.python.filterPushdown.enabled"
WORKER_LOGS = "spark.sql.pyspark.worker.logging.enabled"


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Iterator[foldlog.Log]:
    """orders: two partitions of 20 records, some without key, value or headers, compressed and not."""
    with foldlog.open(tmp_path_factory.mktemp("source") / "log", background=False) as log:
        log.create_topic("orders", partitions=2)
        log.create_topic("refunds")
        for compression in ("none", "zstd"):
            with log.producer(compression=compression) as producer:
                for number in range(ROWS // 2):
                    producer.send(
                        "orders",
                        key=None if number % 7 == 0 else f"k{number % 5}",
                        value=None if number % 6 == 0 else f"{compression}-{number}",
                        headers={"source": "web"} if number % 3 == 0 else None,
                        partition=number % 2,
                        timestamp_ms=1_700_000_000_000 + 1000 * number,
                    )
        yield log


def read(spark: SparkSession, log: foldlog.Log, schema: str | None = None, **options: str) -> DataFrame:
    chosen = {} if {"assign", "subscribePattern"} & options.keys() else {"subscribe": "orders"}
    reader = spark.read.format("foldlog").options(**{**chosen, **options})
    return (reader if schema is None else reader.schema(schema)).load(log.path)


def expected(log: foldlog.Log) -> pa.Table:
    """What the log holds, in Spark's columns."""
    table = log.read_arrow("orders")
    headers = [entries or None for entries in table.column("headers").to_pylist()]
    return table.set_column(table.column_names.index("headers"), "headers", pa.array(headers, table["headers"].type))


def test_every_column_is_that_of_sparks_kafka_source_and_holds_what_the_log_holds(
    spark: SparkSession, log: foldlog.Log
) -> None:
    frame = read(spark, log, includeHeaders="true")
    assert frame.schema.simpleString() == (
        "struct<key:binary,value:binary,topic:string,partition:int,offset:bigint,timestamp:timestamp,timestampType:int,"
        "headers:array<struct<key:string,value:binary>>>"
    )
    assert all(field.nullable for field in frame.schema.fields)
    found = frame.orderBy("partition", "offset").toArrow().to_pylist()
    wanted = [
        {("timestampType" if name == "timestamp_type" else name): value for name, value in row.items()}
        for row in expected(log).to_pylist()
    ]
    assert found == [{name: row[name] for name in frame.columns} for row in wanted]
    assert read(spark, log).columns == frame.columns[:-1]


def test_a_narrower_schema_reads_only_those_columns(spark: SparkSession, log: foldlog.Log) -> None:
    frame = read(spark, log, "value binary, offset bigint", assign='{"orders": [1]}')
    assert frame.columns == ["value", "offset"]
    held = log.read_arrow("orders", partitions=[1], columns=["value", "offset"])
    assert frame.orderBy("offset").toArrow().to_pylist() == held.to_pylist()


def test_the_path_may_be_an_option_and_a_view_in_sql_works(spark: SparkSession, log: foldlog.Log) -> None:
    spark.sql(
        f"CREATE OR REPLACE TEMPORARY VIEW orders_of_log USING foldlog OPTIONS (path '{log.path}', SUBSCRIBE 'orders')"
    )
    try:
        assert spark.sql("SELECT count(*), max(offset) FROM orders_of_log").collect() == [(ROWS, ROWS // 2 - 1)]
    finally:
        spark.catalog.dropTempView("orders_of_log")


def test_ranges_of_offsets_and_times_and_tasks_of_their_own(spark: SparkSession, log: foldlog.Log) -> None:
    cut = read(spark, log, "partition int, offset bigint", minPartitions="7")
    assert cut.rdd.getNumPartitions() == 8  # each partition is half of it, and 3.5 is four
    assert sorted(map(tuple, cut.collect())) == [(number, offset) for number in (0, 1) for offset in range(ROWS // 2)]
    some = read(
        spark,
        log,
        "partition int, offset bigint",
        startingOffsets='{"orders": {"0": 5, "1": -2}}',
        endingOffsets='{"orders": {"0": 8, "1": 2}}',
        maxRecordsPerPartition="1",
    )
    assert some.rdd.getNumPartitions() == 5
    assert sorted(map(tuple, some.collect())) == [(0, 5), (0, 6), (0, 7), (1, 0), (1, 1)]
    # From the first record that is as late on, earlier ones that were written after it included.
    assert read(spark, log, "offset bigint", startingTimestamp="1700000018000").count() == 2 * 11


def test_nothing_to_read_is_an_empty_frame(spark: SparkSession, log: foldlog.Log) -> None:
    assert read(spark, log, subscribe="refunds").collect() == []
    assert read(spark, log, subscribePattern="nothing-.*").count() == 0


def test_the_newest_record_of_each_key_is_found_inside_the_reader(spark: SparkSession, log: foldlog.Log) -> None:
    found = read(spark, log, "partition int, offset bigint", latestPerKey="true").collect()
    table = log.read_arrow("orders", columns=["partition", "offset", "key"]).to_pylist()
    newest = {(row["partition"], row["key"]): row["offset"] for row in table}
    wanted = [
        (row["partition"], row["offset"])
        for row in table
        if row["key"] is None or newest[row["partition"], row["key"]] == row["offset"]
    ]
    assert sorted(map(tuple, found)) == sorted(wanted)


def test_filters_reach_the_log_where_spark_lets_them(spark: SparkSession, log: foldlog.Log) -> None:
    condition = "partition = 1 AND offset >= 3 AND offset < 6 AND timestamp >= timestamp'2023-11-14 22:13:20'"
    wanted = [(1, 3), (1, 4), (1, 5)]
    columns = "partition int, offset bigint, timestamp timestamp"
    plain = read(spark, log, columns).where(condition).select("partition", "offset")
    assert sorted(map(tuple, plain.collect())) == wanted
    spark.conf.set(PUSHDOWN, "true")
    try:
        pushed = read(spark, log, columns, minPartitions="9").where(condition).select("partition", "offset")
        assert sorted(map(tuple, pushed.collect())) == wanted
        assert pushed.rdd.getNumPartitions() == 3  # a task for each of three offsets: nothing else was planned
        plan = pushed._jdf.queryExecution().executedPlan().toString()
        assert "timestamp" in plan.split("Filter")[1]  # applied again
        assert "offset" not in plan.split("Filter")[1].split("\n")[0]  # exact
        assert read(spark, log, columns).count() == ROWS  # without a filter
    finally:
        spark.conf.unset(PUSHDOWN)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"startingOffsets": "latest"}, "startingOffsets cannot be 'latest' in a batch"),
        ({"startingOffsets": '{"orders": {"0": 1}}'}, "startingOffsets has to name every partition"),
        ({"subscribe": "order"}, "no topic 'order'; there are orders, refunds"),
        ({"kafka.bootstrap.servers": "localhost:1"}, "give either path or kafka.bootstrap.servers"),
        ({"endingOffsets": '{"orders": {"0": 1, "1": 99}}'}, "the log ends at offset 20"),
    ],
)
def test_what_is_wrong_is_told_in_a_sentence_without_a_java_stack(
    spark: SparkSession, log: foldlog.Log, options: dict[str, str], sentence: str
) -> None:
    told = refusal(lambda: read(spark, log, **options).collect())
    assert sentence in told
    assert len(told.splitlines()) <= 6
    assert "at org.apache" not in told


def test_a_schema_of_other_columns_is_told_in_a_sentence(spark: SparkSession, log: foldlog.Log) -> None:
    assert "there is no column 'velue' to read" in refusal(lambda: read(spark, log, "velue binary").collect())
    assert "column 'value' is binary and not string" in refusal(lambda: read(spark, log, "value string").collect())


@pytest.mark.faults
def test_records_that_vanish_are_explained_or_counted(spark: SparkSession, tmp_path: Path) -> None:
    with foldlog.open(tmp_path, background=False) as log:
        log.create_topic("orders")
        for number in range(6):
            log.append("orders", str(number))
        wanted = {"startingOffsets": '{"orders": {"0": 0}}'}
        strict = read(spark, log, "offset bigint", **wanted)
        lenient = read(spark, log, "offset bigint", failOnDataLoss="false", **wanted)
        for frame in (strict, lenient):
            frame._jdf.queryExecution().executedPlan()  # planned before, read after
        log.delete_records("orders", {0: 2})
        told = refusal(strict.collect)
        assert "offsets 0 to 6 of orders-0 cannot be read: everything below offset 2 was deleted on request" in told
        assert "at org.apache" not in told
        spark.conf.set(WORKER_LOGS, "true")
        try:
            again = read(spark, log, "offset bigint", failOnDataLoss="false", **wanted)
            assert [row.offset for row in lenient.collect()] == [2, 3, 4, 5]
            assert [row.offset for row in again.collect()] == [2, 3, 4, 5]
            logged = spark.tvf.python_worker_logs().where("logger = 'foldlog'").collect()
            assert any(row.msg.startswith("2 offsets of orders-0 were skipped") for row in logged)
        finally:
            spark.conf.unset(WORKER_LOGS)


def refusal(act: Callable[[], object]) -> str:
    with pytest.raises(PySparkException) as caught:
        act()
    return str(caught.value)


def test_times_are_instants_whatever_the_sessions_zone(spark: SparkSession, log: foldlog.Log) -> None:
    spark.conf.set("spark.sql.session.timeZone", "Asia/Kolkata")
    try:
        first = read(spark, log, "timestamp timestamp").selectExpr("min(timestamp) = timestamp'2023-11-15 03:43:20'")
        assert first.collect() == [(True,)]
    finally:
        spark.conf.set("spark.sql.session.timeZone", "UTC")
