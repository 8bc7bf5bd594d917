"""`df.write` and `df.writeStream` with a real Spark: that it and the sinks understand each other.

Few jobs: what rows become, how commits fare and what is refused is tested without Spark in the other test_sink_*.py.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import DataFrame, SparkSession

import foldlog
from foldlog.spark.sink.writers import finish_writes
from foldlog.testing.plugin import KafkaBrokerFactory

TOPIC = "orders"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    with foldlog.open(tmp_path / "log") as log:
        log.create_topic(TOPIC, partitions=3)
    return tmp_path / "log"


def read(path: Path, topic: str = TOPIC) -> list[dict[str, Any]]:
    with foldlog.open(path, "r") as log:
        return [dict(row) for row in log.read_arrow(topic).to_pylist()]


def texts(path: Path, topic: str = TOPIC) -> list[str]:
    return [row["value"].decode() for row in read(path, topic)]


def save(rows: DataFrame, path: Path, **options: str) -> None:
    rows.write.format("foldlog").mode("append").options(**options).save(str(path))


def test_a_batch_write_keeps_every_column_and_the_order_of_tasks_and_rows(spark: SparkSession, path: Path) -> None:
    rows = spark.range(0, 4000, 1, 4).selectExpr(
        "'orders' AS topic",
        "CAST(id AS STRING) AS key",
        "IF(id % 10 = 0, NULL, concat('v', id)) AS value",
        "CAST(id % 3 AS INT) AS partition",
        "timestamp_millis(1700000000000 + id) AS timestamp",
        "IF(id % 2 = 0, array(named_struct('key', 'n', 'value', CAST(CAST(id AS STRING) AS BINARY))), NULL) AS headers",
        "id AS offset",
    )
    save(rows, path, compression="zstd")
    found = read(path)
    assert [int(row["key"]) for row in found] == [n for partition in range(3) for n in range(partition, 4000, 3)]
    for row in found:
        number = int(row["key"])
        assert row["value"] == (None if number % 10 == 0 else f"v{number}".encode())
        assert row["timestamp"] == datetime.fromtimestamp((1_700_000_000_000 + number) / 1000, UTC)
        assert row["headers"] == ([{"key": "n", "value": str(number).encode()}] if number % 2 == 0 else [])
    assert sorted(entry.name for entry in (path / ".staged").iterdir()) == ["commits.json", "lock"]


def test_a_write_that_has_a_name_and_a_version_is_made_once(spark: SparkSession, path: Path) -> None:
    rows = spark.createDataFrame([("a",), ("b",)], "value string").coalesce(1)
    for version in ("1", "2", "1"):
        save(rows, path, topic=TOPIC, txnAppId="nightly", txnVersion=version)
    assert sorted(texts(path)) == ["a", "a", "b", "b"]
    assert finish_writes(str(path)) == 0


def test_the_error_at_a_new_path_names_the_option_that_makes_a_log_there(spark: SparkSession, tmp_path: Path) -> None:
    rows = spark.createDataFrame([("a",)], "value string")
    with pytest.raises(AnalysisException, match=r'to write to; .* option\("createTopic", <number of partitions>\)'):
        save(rows, tmp_path / "new", topic=TOPIC)
    save(rows, tmp_path / "new", topic=TOPIC, createTopic="1")
    assert texts(tmp_path / "new") == ["a"]


def test_a_job_that_fails_appends_nothing_and_leaves_nothing(spark: SparkSession, path: Path) -> None:
    # One task: another that ends after the job has failed leaves its file until the next write sweeps it.
    rows = spark.range(0, 100, 1, 1).selectExpr("IF(id = 99, NULL, 'orders') AS topic", "CAST(id AS STRING) AS value")
    with pytest.raises(PySparkException, match="the column 'topic' is null in a row; fill it"):
        save(rows, path)
    assert read(path) == []
    assert list((path / ".staged").rglob("*.batches")) == []


def test_modes_columns_and_topics_that_cannot_be_are_told_before_a_job_runs(spark: SparkSession, path: Path) -> None:
    rows = spark.range(3).selectExpr("CAST(id AS STRING) AS value")
    with pytest.raises(AnalysisException, match="a log is only appended to"):
        rows.write.format("foldlog").mode("overwrite").option("topic", TOPIC).save(str(path))
    with pytest.raises(AnalysisException, match="Append"):  # Spark's own sentence, for every source in Python
        rows.write.format("foldlog").option("topic", TOPIC).save(str(path))
    with pytest.raises(AnalysisException, match="no topic 'nothing'; there are orders"):
        save(rows, path, topic="nothing")
    with pytest.raises(AnalysisException, match="column 'id' would be lost"):
        save(spark.range(3).selectExpr("id", "CAST(id AS STRING) AS value"), path, topic=TOPIC)
    assert read(path) == []


@pytest.fixture
def lines(tmp_path: Path) -> Path:
    """Three files of lines: a stream that is given one at a time has three batches."""
    folder = tmp_path / "lines"
    folder.mkdir()
    for number in range(3):
        add_lines(folder, number)
    return folder


def add_lines(folder: Path, number: int) -> None:
    text = "".join(f"{number}/{line}\n" for line in range(10))
    draft = folder.parent / "draft"
    draft.write_text(text)
    draft.rename(folder / f"{number:03d}.txt")


def stream_once(spark: SparkSession, lines: Path, checkpoint: Path, **options: str) -> None:
    """All that is there, a file a batch."""
    query = (
        spark.readStream.option("maxFilesPerTrigger", 1)
        .text(str(lines))
        .writeStream.format("foldlog")
        .options(topic=TOPIC, checkpointLocation=str(checkpoint), **options)
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination(120)
    assert not query.isActive


def all_lines(count: int) -> list[str]:
    return sorted(f"{number}/{line}" for number in range(count) for line in range(10))


def forget_last_batch(checkpoint: Path, number: int) -> None:
    """As if the driver had died after the sink's commit and before Spark's."""
    for note in (checkpoint / "commits" / f"{number}", checkpoint / "commits" / f".{number}.crc"):
        note.unlink(missing_ok=True)


def test_a_batch_that_spark_repeats_is_in_the_log_once(spark: SparkSession, path: Path, lines: Path) -> None:
    checkpoint = lines.parent / "checkpoint"
    stream_once(spark, lines, checkpoint, path=str(path))
    assert sorted(texts(path)) == all_lines(3)
    forget_last_batch(checkpoint, 2)
    add_lines(lines, 3)
    stream_once(spark, lines, checkpoint, path=str(path))
    assert sorted(texts(path)) == all_lines(4)
    assert sorted(entry.name for entry in (path / ".staged").iterdir()) == ["commits.json", "lock"]


@pytest.fixture
def served(path: Path) -> Iterator[str]:
    with foldlog.open(path, listen=True) as log:
        assert log.bootstrap is not None
        yield log.bootstrap


def test_by_path_a_directory_that_is_served_is_written_through_its_server(
    spark: SparkSession, path: Path, served: str
) -> None:
    save(spark.range(0, 500, 1, 2).selectExpr("CAST(id AS STRING) AS value"), path, topic=TOPIC)
    assert sorted(map(int, texts(path))) == list(range(500))


@pytest.fixture
def place(path: Path, kafka_broker_factory: KafkaBrokerFactory) -> dict[str, str]:
    return {"kafka.bootstrap.servers": str(kafka_broker_factory(path=path))}


def test_by_wire_a_batch_is_written_as_one_or_not_at_all(
    spark: SparkSession, path: Path, place: dict[str, str]
) -> None:
    def save_by_wire(rows: DataFrame, **options: str) -> None:
        rows.write.format("foldlog").mode("append").options(**place, **options).save()

    rows = spark.range(0, 900, 1, 3).selectExpr("'made' AS topic", "CAST(id AS STRING) AS key", "NULL AS value")
    save_by_wire(rows, createTopic="2")
    with pytest.raises(PySparkException, match="the column 'topic' is null in a row; fill it"):
        save_by_wire(rows.selectExpr("IF(key = '899', NULL, topic) AS topic", "key", "value"))
    for version in ("7", "6", "7"):
        save_by_wire(rows.limit(1), txnAppId="nightly", txnVersion=version)
    found = read(path, "made")
    assert sorted(int(row["key"]) for row in found) == [0, *range(900)]
    assert {row["partition"] for row in found} == {0, 1}
    save_by_wire(rows.limit(1), exactlyOnce="false")
    assert len(read(path, "made")) == 902
    with pytest.raises(AnalysisException, match="no topic 'nothing'"):
        save_by_wire(rows.drop("topic"), topic="nothing")


@pytest.mark.faults
def test_by_wire_a_batch_that_spark_repeats_is_in_the_log_once(
    spark: SparkSession, path: Path, lines: Path, place: dict[str, str]
) -> None:
    checkpoint = lines.parent / "checkpoint"
    stream_once(spark, lines, checkpoint, **place)
    assert sorted(texts(path)) == all_lines(3)
    forget_last_batch(checkpoint, 2)
    add_lines(lines, 3)
    stream_once(spark, lines, checkpoint, **place)
    assert sorted(texts(path)) == all_lines(4)
