"""One damaged partition of a topic: it refuses, the library says so, and its neighbours go on as if nothing were."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import foldlog
from foldlog.errors import CorruptLog


@pytest.fixture
def log(tmp_path: Path) -> Iterator[foldlog.Log]:
    with foldlog.open(tmp_path) as log:
        log.create_topic("orders", partitions=3)
        for partition in range(3):
            for number in range(5):
                log.append("orders", b"%d" % number, partition=partition)
    (file,) = (tmp_path / "orders-1").glob("*.log")
    file.write_bytes(file.read_bytes()[:100])
    with foldlog.open(tmp_path) as log:
        with pytest.raises(CorruptLog):
            list(log.read("orders", 1))
        yield log


@pytest.mark.parametrize("group", [None, "fraud"])
def test_a_consumer_is_told_once_and_reads_the_others(log: foldlog.Log, group: str | None) -> None:
    consumer = log.consumer(["orders"], group=group, auto_offset_reset="earliest")
    with pytest.raises(CorruptLog):
        consumer.poll()
    assert {record.partition for record in consumer.poll()} == {0, 2}
    consumer.close()


@pytest.mark.parametrize("group", [None, "fraud"])
def test_it_is_not_said_again_when_the_topic_grows(log: foldlog.Log, group: str | None) -> None:
    log.create_topic("other")
    consumer = log.consumer(["orders", "other"], group=group, auto_offset_reset="earliest")
    with pytest.raises(CorruptLog):
        consumer.poll()
    log.grow_topic("other", 2)
    log.append("other", b"in the new one", partition=1)
    read = [(record.topic, record.partition) for record in consumer.poll()]
    assert set(read) == {("orders", 0), ("orders", 2), ("other", 1)}
    assert set(consumer.lag().values()) == {0}
    consumer.close()


def test_each_of_several_is_named(tmp_path: Path) -> None:
    with foldlog.open(tmp_path) as log:
        log.create_topic("orders", partitions=3)
        for partition in range(3):
            for _ in range(3):
                log.append("orders", b"x" * 50, partition=partition)
    for number in (0, 2):
        (file,) = (tmp_path / f"orders-{number}").glob("*.log")
        file.write_bytes(file.read_bytes()[:100])
    with foldlog.open(tmp_path) as log, log.consumer(["orders"], auto_offset_reset="earliest") as consumer:
        for number in (0, 2):
            with pytest.raises(CorruptLog, match=f"orders-{number}"):
                consumer.poll()
        assert {record.partition for record in consumer.poll()} == {1}


def test_assigning_it_is_refused(log: foldlog.Log) -> None:
    consumer = log.consumer()
    with pytest.raises(CorruptLog):
        consumer.assign([("orders", 0), ("orders", 1)])
    assert consumer.assignment() == set()


def test_keyless_records_pass_it_by(log: foldlog.Log) -> None:
    with log.producer(batch_records=1) as producer:
        sent = [producer.send("orders", b"x") for _ in range(4)]
        with pytest.raises(CorruptLog):
            producer.send("orders", b"x", partition=1)
    assert {future.result().partition for future in sent} == {0, 2}
    assert {log.append("orders", b"x").partition for _ in range(4)} == {0, 2}
