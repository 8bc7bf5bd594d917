"""kill -9 of each broker of Apache Kafka in turn while a pipeline follows its topic: nothing is lost or doubled.

Three brokers, three replicas of everything, `min.insync.replicas=2`. A producer with acks=all writes keyed payments all
the time; `foldlog fold run` with the `folds.py` that also runs over a directory keeps a SQL table, counters and the
history in a lake up to date. Each broker dies, the others go on without it, and it comes back; then the next one dies.

Fault model: one broker is dead at a time; the machine, its disk, the producer and the runner are not. What was
acknowledged, what the log holds and what the views hold are compared in the end, the log as an independent client reads
it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import cast

import pytest
from clusters.apache_kafka import ApacheKafka
from confluent_kafka import Consumer, KafkaError, Message, TopicPartition
from confluent_kafka.admin import AdminClient

import foldlog
from fold_commands import (
    PATIENCE_S,
    FoldCommand,
    fold_command,
    run_fold,
    verify_by_runner,
    wait_for_more,
    wait_until,
    wait_until_read,
)
from foldlog import Record
from folds_model import NUMBER
from folds_shop import check_as_shown, check_at_its_bookmark, loaded, write_pipeline
from payment_writer import TOPIC, PaymentWriter

FOLDS = ("table_sqlite", "counters_sqlite", "delta_history")
"""One that keeps the newest, one that adds, and one that keeps everything: a record that comes twice shows in it."""


@pytest.mark.timeout(900)  # two minutes on a quiet machine of two cores
def test_folds_lose_and_double_nothing_while_each_broker_is_killed_and_comes_back(
    kafka_trio: ApacheKafka, tmp_path: Path
) -> None:
    file = write_pipeline(tmp_path / "folds.py", tmp_path / "views", None, FOLDS)
    with foldlog.connect(kafka_trio.url) as log:
        log.create_topic(TOPIC, partitions=3)
        assert log.topic_config(TOPIC)["min.insync.replicas"].value == "2"
        wait_until_replicated(kafka_trio)
        with following(file, kafka_trio, tmp_path) as runner:
            with PaymentWriter(log, seed=6) as writer:
                for broker in kafka_trio.brokers:
                    wait_for_more(runner, writer, file, f"before broker {broker.number} was killed")
                    broker.kill()
                    wait_for_more(runner, writer, file, f"without broker {broker.number}")
                    broker.start()
                    wait_until_replicated(kafka_trio)
            acknowledged = writer.places()
            wait_until_read(runner, file, len(acknowledged))
            verify_by_runner(runner, file, kafka_trio.url)
            assert runner.stop() == 0, runner.said()

        records = read_independently(kafka_trio)
        numbers = {number_of(record): (record.partition, record.offset) for record in records}
        assert len(numbers) == len(records), "a record is in the log twice"
        assert numbers == {number: (one.partition, one.offset) for number, one in acknowledged.items()}
        assert log.offsets(TOPIC) == {number: (0, end) for number, end in ends_of(records).items()}
    for name, fold in loaded(file).items():
        assert check_at_its_bookmark(fold, records) == ends_of(records), name
        check_as_shown(name, records, tmp_path / "views", None)
    verdict = run_fold(tmp_path / "verify.txt", "verify", "counters_sqlite", "-f", file, "--source", kafka_trio.url)
    assert "counters_sqlite is equal" in verdict


@contextmanager
def following(file: Path, kafka: ApacheKafka, scratch: Path) -> Iterator[FoldCommand]:
    arguments = ("run", file, "--source", kafka.url, "--interval", "100ms", "--spark-log", scratch / "spark.txt")
    with fold_command(scratch / "run.txt", *arguments) as command:
        yield command


# --- the cluster, as others see it ----------------------------------------------------------------------------------


def in_sync_replicas(kafka: ApacheKafka) -> list[int]:
    """How many each partition of each topic has, internal ones too."""
    topics = AdminClient({"bootstrap.servers": kafka.bootstrap}).list_topics(timeout=30).topics.values()
    return [len(partition.isrs) for topic in topics for partition in topic.partitions.values()]


def wait_until_replicated(kafka: ApacheKafka) -> None:
    """The broker that was dead has caught up with everything: the next one may die."""
    wait_until(lambda: set(in_sync_replicas(kafka)) == {3}, lambda: f"all in sync: {in_sync_replicas(kafka)}")


def read_independently(kafka: ApacheKafka) -> list[Record]:
    """Everything that the topic holds, by confluent-kafka's own consumer."""
    settings = {"bootstrap.servers": kafka.bootstrap, "group.id": "independent", "enable.auto.commit": False}
    consumer = Consumer({**settings, "enable.partition.eof": True, "auto.offset.reset": "error"})
    found: list[Record] = []
    try:
        left = {0, 1, 2}
        consumer.assign([TopicPartition(TOPIC, number, 0) for number in left])
        while left:
            message = consumer.poll(PATIENCE_S)
            assert message is not None, f"nothing comes from the partitions {left}"
            error = message.error()
            if error is not None:
                assert error.code() == KafkaError._PARTITION_EOF, error
                left.discard(message.partition())
                continue
            found.append(as_record(message))
    finally:
        consumer.close()
    return found


def as_record(message: Message) -> Record:
    partition, offset, (kind, at_ms) = message.partition(), message.offset(), message.timestamp()
    assert partition is not None
    assert offset is not None
    headers = cast("list[tuple[str, bytes]]", message.headers() or [])
    return Record(TOPIC, partition, offset, at_ms, kind, message.key(), message.value(), tuple(headers))


def number_of(record: Record) -> int:
    return next(int(value or b"") for name, value in record.headers if name == NUMBER)


def ends_of(records: list[Record]) -> dict[int, int]:
    return {number: max(one.offset for one in records if one.partition == number) + 1 for number in range(3)}
