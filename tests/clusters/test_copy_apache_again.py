"""Copies to and from Apache Kafka that are interrupted: the copying process is killed, a broker is killed. Both sides
are the same afterwards, and nothing is in the copy twice."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from clusters.apache_kafka import ApacheKafka

import foldlog
from client.copies import OFTEN, AnyLog, contents, copy, kill_after, note_often
from foldlog.client.copying_targets import OnProgress

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


def fill(log: foldlog.Log, name: str, partitions: int = 1) -> None:
    """Batches that no two are alike of, the first three records gone: offsets are mapped."""
    log.create_topic(name, partitions=partitions, config={"retention.ms": -1})
    for number in range(BATCHES):
        with log.producer(linger_ms=1000) as producer:
            for record in range(PER_BATCH):
                for partition in range(partitions):
                    producer.send(name, f"{number}.{record}".encode(), b"k", None, partition, number + 1)
    log.delete_records(name, dict.fromkeys(range(partitions), 3))


def values(log: AnyLog, name: str, partition: int = 0) -> list[bytes | None]:
    return [value for _, _, value, _ in contents(log, name, partition).values()]


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
    """Each of three is killed once and comes back, under a copy to the cluster and under one from it."""
    partitions = 3
    fill(source, "lost", partitions)
    kills = Kills(kafka_trio)
    with foldlog.connect(kafka_trio.url) as kafka:
        done = copy(source, kafka, "lost", on_progress=kills.at({20: 0, 50: 1}))
        assert done.records == partitions * (BATCHES * PER_BATCH - 3)
        kafka_trio.wait_until_whole()
        with foldlog.open(tmp_path / "back") as back:
            copy(kafka, back, "lost", on_progress=kills.at({5: 2}))
            for partition in range(partitions):
                assert values(kafka, "lost", partition) == values(source, "lost", partition)
                assert contents(back, "lost", partition) == contents(kafka, "lost", partition)
    assert kills.killed == [0, 1, 2]


class Kills:
    """Kills a broker when a copy has come so far, and brings it back so many batches later."""

    BACK_AFTER = 15

    def __init__(self, kafka: ApacheKafka) -> None:
        self.killed: list[int] = []
        self._kafka = kafka

    def at(self, brokers: dict[int, int]) -> OnProgress:
        calls = 0

        def on_progress(offsets: int, size_bytes: int) -> None:
            nonlocal calls
            calls += 1
            if calls in brokers:
                self._kafka.brokers[brokers[calls]].kill()
                self.killed.append(brokers[calls])
            if calls - self.BACK_AFTER in brokers:
                self._kafka.brokers[brokers[calls - self.BACK_AFTER]].start()
                self._kafka.wait_until_whole()

        return on_progress
