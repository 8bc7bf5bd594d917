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
