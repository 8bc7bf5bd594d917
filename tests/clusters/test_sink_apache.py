"""Spark's sink by wire at Apache Kafka: every batch once, as one, with Spark and with drivers that are left behind.

The topics of the sink itself are shared by all tests of the broker, so that queries here have names of their own.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from clusters.apache_kafka import ApacheKafka
from pyspark.sql import SparkSession

import foldlog
from foldlog import errors
from foldlog.client.wire.admin import list_transactions
from foldlog.client.wire.cluster import Cluster
from foldlog.records.loops import pack
from foldlog.spark.sink.options import SinkOptions
from foldlog.spark.sink.wire_commits import last_version
from foldlog.spark.sink.wire_committing import TRANSACTIONAL_ID_PREFIX, WireCommitter
from spark.sink.test_sink_spark import add_lines, all_lines, forget_last_batch, stream_once
from spark.sink.wire_batches import PARTITIONS, QUERY, TOPIC, expected, options, read, stage, write

pytestmark = pytest.mark.timeout(600)


@pytest.fixture
def bootstrap(apache_kafka: ApacheKafka) -> Iterator[str]:
    """With an empty topic."""
    with foldlog.connect(apache_kafka.url) as log:
        log.create_topic(TOPIC, PARTITIONS)
        yield apache_kafka.bootstrap
        log.delete_topic(TOPIC)


@pytest.fixture
def told(bootstrap: str) -> SinkOptions:
    return options(bootstrap)


def test_batches_are_written_once_whoever_was_left_behind(bootstrap: str, told: SinkOptions) -> None:
    write(told, 0)
    with Cluster.open(bootstrap) as cluster:
        zombie = cluster.transaction(TRANSACTIONAL_ID_PREFIX + QUERY, 60_000)
        zombie.send_all([(TOPIC, 0, pack([(0, None, b"zombie/0/000", None)]))])
        zombie._sender.flush()
        assert "zombie/0/000" in read(bootstrap, "read_uncommitted")
        write(told, 1)
        with pytest.raises(errors.ProducerFenced, match="another process has taken over"):
            zombie.commit()
        for batch in (1, 0, 2):
            write(told, batch)
        assert last_version(cluster, QUERY) == 2
    assert read(bootstrap, is_of_one_query=True) == expected(0, 1, 2)


def test_a_commit_that_takes_too_long_or_asks_for_too_long_is_told(bootstrap: str, told: SinkOptions) -> None:
    staged = stage(told, 0)
    with pytest.raises(errors.InvalidTransactionTimeout, match=r"set kafka\.transaction\.timeout\.ms to at most"):
        WireCommitter(options(bootstrap, transaction_timeout_ms="900001")).commit(staged, "long", "long", 0)
    with Cluster.open(bootstrap) as cluster, cluster.transaction("slow", 1) as transaction:
        transaction.send_all([(TOPIC, 0, pack([(0, None, b"late/0/000", None)]))])
        while any(one.transactional_id == "slow" and one.partitions for one in list_transactions(cluster._links)):
            pass
        with pytest.raises(errors.ProducerFenced, match=r"longer than transaction\.timeout\.ms=1, or another process"):
            transaction.commit()
    assert read(bootstrap) == []


def test_who_was_too_slow_with_a_transaction_of_the_library_is_told_so(apache_kafka: ApacheKafka) -> None:
    with foldlog.connect(apache_kafka.url) as log:
        log.create_topic("slow-orders")
        tx = log.transaction("slow-etl", timeout_ms=1000)
        tx.send("slow-orders", "too slow").result(60)
        while any(one.transactional_id == "slow-etl" and one.partitions for one in log._backend.list_transactions()):
            pass
        with pytest.raises(errors.ProducerFenced, match=r"^the transaction of 'slow-etl' was open for longer than"):
            tx.commit()
        with log.transaction("slow-etl") as tx:
            tx.send("slow-orders", "quick")
        assert [one.value for one in log.read("slow-orders", isolation="read_committed")] == [b"quick"]


def test_a_batch_that_spark_repeats_is_there_once(spark: SparkSession, bootstrap: str, tmp_path: Path) -> None:
    lines, checkpoint = tmp_path / "lines", tmp_path / "checkpoint"
    lines.mkdir()
    for number in range(3):
        add_lines(lines, number)
    place = {"kafka.bootstrap.servers": bootstrap}
    stream_once(spark, lines, checkpoint, **place)
    forget_last_batch(checkpoint, 2)
    add_lines(lines, 3)
    stream_once(spark, lines, checkpoint, **place)
    assert read(bootstrap) == all_lines(4)
    rows = spark.range(0, 50, 1, 2).selectExpr("concat('range/', id) AS value")
    for version in ("1", "1"):
        named = {"txnAppId": "nightly", "txnVersion": version, "topic": TOPIC}
        rows.write.format("foldlog").mode("append").options(**place, **named).save()
    assert read(bootstrap) == sorted([*all_lines(4), *(f"range/{number}" for number in range(50))])
