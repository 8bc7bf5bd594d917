"""Spark: our source beside Spark's own Kafka connector, each at both brokers, in one session.

Batch and AvailableNow to nowhere, and the same foreachBatch upsert into SQLite whoever brings the rows.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import product
from pathlib import Path
from socket import socket
from typing import TYPE_CHECKING, Final

from bench.broker_load import ask, connect
from bench.kafka.recorder import Figures, Recorder, watched
from bench.kafka.results import Case
from bench.kafka.sides import FOLDLOG, KAFKA, Side, both
from bench.measuring import timed
from bench.spark_session import STREAM_END_S, session, stream_to_nowhere, to_nowhere
from clusters.maven import SPARK_KAFKA, fetch

from foldlog.clock import SystemClock
from foldlog.records.loops import pack
from foldlog.wire.error_codes import ErrorCode
from foldlog.wire.messages import produce

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

BATCH, STREAM, UPSERT = "batch", "AvailableNow", "foreachBatch upsert"
KEY_AND_VALUE, ALL = "key and value", "all columns"
VALUE_BYTES: Final = (100, 1000)
PARTITIONS: Final = 4
UPSERT_VALUE_BYTES: Final = 100
RECORDS_A_KEY: Final = 2

PATH, OURS_FOLDLOG, OURS_KAFKA = "path", "source-foldlog", "source-kafka"
CONNECTOR_FOLDLOG, CONNECTOR_KAFKA = "connector-foldlog", "connector-kafka"
READER_LABELS: Final = {
    PATH: "our source, path",
    OURS_FOLDLOG: "our source, foldlog",
    OURS_KAFKA: "our source, Kafka",
    CONNECTOR_FOLDLOG: "connector, foldlog",
    CONNECTOR_KAFKA: "connector, Kafka",
}

_BATCH_RECORDS = 500
_DRIVER_MEMORY = "2g"
_NEEDED_JARS = ("spark-sql-kafka", "spark-token-provider-kafka", "kafka-clients", "commons-pool2")


@dataclass(frozen=True)
class Reader:
    """One way to the rows of a topic: Spark's format, and where the topic is."""

    spark: SparkSession
    name: str
    place: dict[str, str]
    side: Side | None

    def frame(self, topic: str, columns: str, *, is_stream: bool) -> DataFrame:
        reader = self.spark.readStream if is_stream else self.spark.read
        options = {**self.place, "subscribe": topic, "startingOffsets": "earliest", "includeHeaders": "true"}
        if "connector" in self.name:
            frame = reader.format("kafka").options(**options).load()
            return frame.select("key", "value") if columns == KEY_AND_VALUE else frame
        return reader.format("foldlog").schema(_schema(columns)).options(**options).load()

    def watched(self, work: Callable[[], Figures]) -> Figures:
        """With what its broker used, where it reads through one."""
        return work() if self.side is None else watched(self.side.pid, work)


def run(recorder: Recorder, directory: Path) -> None:
    os.environ["PYSPARK_SUBMIT_ARGS"] = f"--driver-memory {_DRIVER_MEMORY} --jars {_jars()} pyspark-shell"
    spark = session()
    try:
        with both(directory) as sides:
            readers = _readers(spark, sides)
            for value_bytes in VALUE_BYTES:
                _read(recorder, sides, readers, value_bytes)
            _upsert(recorder, sides, readers)
    finally:
        spark.stop()


def _jars() -> str:
    """The connector and what Spark has not got; the rest of what Maven brings along is in Spark already."""
    found = sorted(jar for jar in fetch(SPARK_KAFKA).glob("*.jar") if jar.name.startswith(_NEEDED_JARS))
    return ",".join(map(str, found))


def _readers(spark: SparkSession, sides: dict[str, Side]) -> list[Reader]:
    wire = {name: {"kafka.bootstrap.servers": sides[name].bootstrap} for name in (KAFKA, FOLDLOG)}
    return [
        Reader(spark, PATH, {"path": str(sides[FOLDLOG].data)}, None),
        Reader(spark, OURS_FOLDLOG, wire[FOLDLOG], sides[FOLDLOG]),
        Reader(spark, OURS_KAFKA, wire[KAFKA], sides[KAFKA]),
        Reader(spark, CONNECTOR_FOLDLOG, wire[FOLDLOG], sides[FOLDLOG]),
        Reader(spark, CONNECTOR_KAFKA, wire[KAFKA], sides[KAFKA]),
    ]


def _schema(columns: str) -> str:
    from foldlog.spark.source.columns import ddl

    return "key binary, value binary" if columns == KEY_AND_VALUE else ddl(include_headers=True)


def _read(recorder: Recorder, sides: dict[str, Side], readers: Sequence[Reader], value_bytes: int) -> None:
    topic = f"spark-{value_bytes}"
    records = write_keyed(sides, topic, recorder.effort.spark_bytes // value_bytes, value_bytes)
    recorder.settle()
    for reader in readers:  # not counted: everybody has seen the work, and has every row
        _check_count(reader, topic, records)
        _to_nowhere(recorder, reader, topic, ALL, STREAM, records)
    every = list(product((KEY_AND_VALUE, ALL), (BATCH, STREAM)))
    for columns, way in every if recorder.effort.every_combination else (every[0], every[-1]):
        case: Case = {"way": way, "value_bytes": value_bytes, "columns": columns}
        runs: dict[str, Callable[[], Figures]] = {
            reader.name: partial(_to_nowhere, recorder, reader, topic, columns, way, records) for reader in readers
        }
        recorder.in_turns(case, runs, rounds=recorder.effort.spark_rounds)


def _check_count(reader: Reader, topic: str, records: int) -> None:
    found = reader.frame(topic, KEY_AND_VALUE, is_stream=False).count()
    if found != records:
        raise RuntimeError(f"{READER_LABELS[reader.name]} has {found} rows of {topic}, and there are {records}")


def _to_nowhere(recorder: Recorder, reader: Reader, topic: str, columns: str, way: str, records: int) -> Figures:
    def work() -> Figures:
        if way == BATCH:
            return {"rows_per_s": records / timed(lambda: to_nowhere(reader.frame(topic, columns, is_stream=False)))}
        checkpoint = recorder.place.fresh()
        rows, seconds = stream_to_nowhere(reader.frame(topic, columns, is_stream=True), str(checkpoint))
        recorder.place.give_back(checkpoint)
        return _rows_per_s(rows, records, seconds)

    return reader.watched(work)


def _rows_per_s(rows: int, records: int, seconds: float) -> Figures:
    if rows != records:
        raise RuntimeError(f"the stream had {rows} rows, and there are {records}")
    return {"rows_per_s": rows / seconds}


def _upsert(recorder: Recorder, sides: dict[str, Side], readers: Sequence[Reader]) -> None:
    topic, records = "spark-upsert", recorder.effort.upsert_records
    keys = max(1, records // RECORDS_A_KEY)
    write_keyed(sides, topic, records, UPSERT_VALUE_BYTES, keys)
    case: Case = {"way": UPSERT, "value_bytes": UPSERT_VALUE_BYTES, "columns": KEY_AND_VALUE}
    runs: dict[str, Callable[[], Figures]] = {
        reader.name: partial(_upserted, recorder, reader, topic, records, keys) for reader in readers
    }
    for first in runs.values():
        first()
    recorder.in_turns(case, runs, rounds=recorder.effort.spark_rounds)


def _upserted(recorder: Recorder, reader: Reader, topic: str, records: int, keys: int) -> Figures:
    """What a user writes, the same for every source: newest value by key, into a table."""
    home = recorder.place.fresh()
    database = home / "view.db"
    with sqlite3.connect(database) as opened:
        opened.execute("PRAGMA journal_mode=WAL")
        opened.execute("CREATE TABLE view (key BLOB PRIMARY KEY, value BLOB) WITHOUT ROWID")
    opened.close()

    def upsert(frame: DataFrame, _: int) -> None:
        table = frame.select("key", "value").toArrow()
        into = sqlite3.connect(database)
        with into:
            into.executemany(
                "INSERT INTO view VALUES (?, ?) ON CONFLICT (key) DO UPDATE SET value = excluded.value",
                zip(table["key"].to_pylist(), table["value"].to_pylist(), strict=True),
            )
        into.close()

    def work() -> Figures:
        writer = reader.frame(topic, KEY_AND_VALUE, is_stream=True).writeStream.foreachBatch(upsert)
        query = writer.option("checkpointLocation", str(home / "checkpoint")).trigger(availableNow=True).start()
        return _rows_per_s(*_ended(query, records))

    figures = reader.watched(work)
    opened = sqlite3.connect(database)
    (found,) = opened.execute("SELECT count(*) FROM view").fetchone()
    opened.close()
    if found != keys:
        raise RuntimeError(f"{READER_LABELS[reader.name]} made {found} rows of {keys} keys")
    recorder.place.give_back(home)
    return figures


def _ended(query: StreamingQuery, records: int) -> tuple[int, int, float]:
    if not query.awaitTermination(STREAM_END_S):
        query.stop()
        raise RuntimeError(f"the stream did not end within {STREAM_END_S} s")
    progress = [one for one in query.recentProgress if one["numInputRows"]]
    rows = sum(int(one["numInputRows"]) for one in progress)
    return rows, records, sum(int(one["durationMs"]["triggerExecution"]) for one in progress) / 1000


def write_keyed(sides: dict[str, Side], topic: str, records: int, value_bytes: int, keys: int | None = None) -> int:
    """Equal records to both, under keys of 12 bytes of which there are `keys` (None: as many as records)."""
    for name in (KAFKA, FOLDLOG):
        sides[name].create_topic(topic, PARTITIONS)
    filler = os.urandom(value_bytes + _BATCH_RECORDS)
    now_ms = SystemClock().now_ms()
    opened = [connect(sides[name].address) for name in (KAFKA, FOLDLOG)]
    for number, first in enumerate(range(0, records, _BATCH_RECORDS)):
        rows = []
        for at, one in enumerate(range(first, min(first + _BATCH_RECORDS, records))):
            # A prime step visits every key before it visits one again.
            key = one if keys is None else one * 7_919 % keys
            rows.append((now_ms, b"key%09d" % key, filler[at : at + value_bytes], ()))
        for broker in opened:
            _write(broker, topic, number % PARTITIONS, bytes(pack(rows, 0)))
    for broker in opened:
        broker.close()
    return records


def _write(broker: socket, topic: str, partition: int, batch: bytes) -> None:
    data = produce.PartitionProduceData(index=partition, records=batch)
    topic_data = produce.TopicProduceData(name=topic, partition_data=[data])
    request = produce.ProduceRequest(acks=1, timeout_ms=10_000, topic_data=[topic_data])
    answer = ask(broker, request, 9, produce.RESPONSE)
    codes = [part.error_code for each in answer.responses for part in each.partition_responses]
    if codes != [ErrorCode.NONE]:
        raise RuntimeError(f"a batch was refused: {codes}")
