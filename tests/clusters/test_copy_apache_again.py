"""Copies to and from Apache Kafka that are interrupted: the copying process is killed, a broker is killed. Both sides
are the same afterwards, and nothing is in the copy twice."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from clusters.apache_kafka import ApacheKafka, KafkaNode

import foldlog
from client.copy.copies import OFTEN, contents, copy, kill_after, note_often
from foldlog.client.wire.cluster import Cluster

BATCHES = 30
PER_BATCH = 5


@pytest.fixture(scope="module", autouse=True)
def often() -> Iterator[None]:
    """Copies in this module note their progress after every few batches."""
    before = [getattr(module, name) for module, name in OFTEN]
    note_often()
    yield
    for (module, name), value in zip(OFTEN, before, strict=True):
        setattr(module, name, value)


def fill(log: foldlog.Log, name: str) -> None:
    """Batches of which no two are alike, the first three records gone: offsets are mapped."""
    log.create_topic(name, config={"retention.ms": -1})
    for number in range(BATCHES):
        with log.producer(linger_ms=1000) as producer:
            for record in range(PER_BATCH):
                producer.send(name, f"{number}.{record}".encode(), b"k", timestamp_ms=number + 1)
    log.delete_records(name, {0: 3})


def values(log: foldlog.Log, name: str) -> list[bytes | None]:
    return [value for _, _, value, _ in contents(log, name).values()]


@pytest.fixture
def source(tmp_path: Path) -> Iterator[foldlog.Log]:
    with foldlog.open(tmp_path / "source", background=False) as log:
        yield log


def test_a_copying_process_that_is_killed_again_and_again_leaves_the_same_as_one_that_is_not(
    source: foldlog.Log, apache_kafka: ApacheKafka, tmp_path: Path
) -> None:
    """kill -9 to Kafka, then from Kafka, each at several points: right after the first batch, and between notes."""
    fill(source, "killed")
    with foldlog.connect(apache_kafka.url) as kafka:
        for batches in (1, 2, 7, 11):
            kill_after(source.path, apache_kafka.url, "killed", batches)
            arrived = values(kafka, "killed")
            assert arrived == values(source, "killed")[: len(arrived)]
        assert 0 < copy(source, kafka, "killed").records < BATCHES * PER_BATCH
        assert values(kafka, "killed") == values(source, "killed")
        for batches in (1, 9):
            kill_after(apache_kafka.url, str(tmp_path / "back"), "killed", batches)
        with foldlog.open(tmp_path / "back") as back:
            assert 0 < copy(kafka, back, "killed").records < BATCHES * PER_BATCH
            assert contents(back, "killed") == contents(kafka, "killed")


def test_a_copy_rides_out_the_loss_of_a_broker(source: foldlog.Log, kafka_trio: ApacheKafka, tmp_path: Path) -> None:
    """The leader of the partition, under a copy to the cluster; it comes back, and another one goes under a copy from
    it."""
    fill(source, "lost")
    with foldlog.connect(kafka_trio.url) as kafka:
        first = Kill(kafka_trio, "lost")
        assert copy(source, kafka, "lost", on_progress=first).records == BATCHES * PER_BATCH - 3
        assert first.killed is not None
        first.killed.start()
        kafka_trio.wait_until_whole()
        second = Kill(kafka_trio, "lost")
        with foldlog.open(tmp_path / "back") as back:
            copy(kafka, back, "lost", on_progress=second)
            assert values(kafka, "lost") == values(source, "lost")
            assert contents(back, "lost") == contents(kafka, "lost")
        assert second.killed not in (None, first.killed)


class Kill:
    """Kills the broker that leads the only partition, once, when a copy has dealt with so many batches."""

    AFTER = 5

    def __init__(self, kafka: ApacheKafka, topic: str) -> None:
        self.killed: KafkaNode | None = None
        self._kafka = kafka
        self._topic = topic
        self._batches = 0

    def __call__(self, offsets: int, size_bytes: int) -> None:
        self._batches += 1
        if self._batches == self.AFTER:
            with Cluster.open(self._kafka.bootstrap) as cluster:
                leader = cluster.topic(self._topic).leaders[0].node_id
            self.killed = next(node for node in self._kafka.brokers if node.number == leader)
            self.killed.kill()
