"""A topic of changes on Apache Kafka keeps the contract of views, and two folds behind one another, run by Spark, equal
the recompute of the first topic; another client reads the same.
"""

from __future__ import annotations

import json
import sqlite3
import uuid
from pathlib import Path

import confluent_kafka
import pytest
from clusters.apache_kafka import ApacheKafka
from pyspark.sql import DataFrame, SparkSession

import foldlog
import foldlog.spark as fl
from foldlog.spark.change_topics.changes import ChangesTopic
from foldlog.spark.origins.origin import origin_spec
from views.view_contract import ViewCase, ViewContract


def bound(apache_kafka: ApacheKafka, topic: str) -> ChangesTopic:
    view = fl.changes(topic, partitions=2)
    view.bind(origin_spec(f"kafka://{apache_kafka.bootstrap}"))
    return view


class TestChangesOnApacheKafka(ViewContract):
    @pytest.fixture
    def case(self, apache_kafka: ApacheKafka) -> ViewCase:
        topic = f"mirrored-{uuid.uuid4().hex[:8]}"
        return ViewCase(lambda: bound(apache_kafka, topic))


def keep_large(rows: DataFrame) -> DataFrame:
    return rows.where("_deleted OR amount >= 10")


def mirror(rows: DataFrame) -> DataFrame:
    return rows


def committed(apache_kafka: ApacheKafka, topic: str) -> dict[str, int]:
    """By librdkafka, as any program reads it."""
    settings = {
        "bootstrap.servers": apache_kafka.bootstrap,
        "group.id": uuid.uuid4().hex,
        "auto.offset.reset": "earliest",
        "isolation.level": "read_committed",
        "enable.partition.eof": True,
    }
    consumer = confluent_kafka.Consumer(settings)
    numbers = consumer.list_topics(topic).topics[topic].partitions
    consumer.assign([confluent_kafka.TopicPartition(topic, number, 0) for number in numbers])
    rows: dict[str, int] = {}
    ended = 0
    while ended < len(numbers):
        message = consumer.poll(30)
        assert message is not None
        error = message.error()
        if error is not None:
            assert error.code() == confluent_kafka.KafkaError._PARTITION_EOF
            ended += 1
            continue
        key = (message.key() or b"").decode()
        rows.pop(key, None)
        value = message.value()
        if value is not None:
            rows[key] = json.loads(value)["amount"]
    consumer.close()
    return rows


def test_two_folds_behind_one_another(apache_kafka: ApacheKafka, spark: SparkSession, tmp_path: Path) -> None:
    source, large = f"orders-{uuid.uuid4().hex[:8]}", f"large-{uuid.uuid4().hex[:8]}"
    schema = "amount BIGINT"
    folds = [
        fl.fold(fl.topic(large, key="id", schema=schema), into=fl.table(tmp_path / "v.db", "large"))(mirror),
        fl.fold(fl.topic(source, key="id", schema=schema), into=fl.changes(large))(keep_large),
    ]
    wanted: dict[str, int] = {}
    with foldlog.connect(f"kafka://{apache_kafka.bootstrap}") as log:
        log.create_topic(source, 2)
        for step in range(2):
            with log.producer() as producer:
                for number in range(30):
                    key, amount = f"o{number % 11}", (number * 7 + step * 5) % 23
                    gone = number % 13 == 5
                    producer.send(source, None if gone else {"amount": amount}, key=key)
                    wanted.pop(key, None)
                    if not gone and amount >= 10:
                        wanted[key] = amount
            fl.run(folds, f"kafka://{apache_kafka.bootstrap}", once=True, spark=spark)
            assert committed(apache_kafka, large) == wanted
            with sqlite3.connect(tmp_path / "v.db") as connection:
                assert dict(connection.execute("SELECT id, amount FROM large")) == wanted
    fl.rebuild(folds[1], f"kafka://{apache_kafka.bootstrap}", spark=spark)
    assert committed(apache_kafka, large) == wanted
    assert fl.verify(folds[1], f"kafka://{apache_kafka.bootstrap}", spark=spark).answer == "equal"
