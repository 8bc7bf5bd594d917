"""Partitions and keys: which partition a record goes to, and what order means across them."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

import foldlog
from behaviours.steps import WAIT_S, numbered, put, put_many, values
from foldlog.errors import FoldlogError

# Kafka's murmur2 of these keys, as its own tests give them.
MURMUR2 = {
    b"21": -973932308,
    b"foobar": -790332482,
    b"a-little-bit-long-string": -985981536,
    b"a-little-bit-longer-string": -1486304829,
    b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
    b"abc": 479470107,
}


def test_an_explicit_partition_is_obeyed(log: foldlog.Log) -> None:
    log.create_topic("orders", partitions=3)
    for partition in (2, 0, 1, 2):
        assert put(log, "orders", b"x", key=b"same", partition=partition).partition == partition


def test_the_same_key_always_goes_to_the_same_partition(directory: Path) -> None:
    keys = [b"user-%d" % number for number in range(50)]
    with foldlog.open(str(directory)) as log:
        log.create_topic("orders", partitions=7)
        first = {key: put(log, "orders", b"1", key=key).partition for key in keys}
        assert {key: put(log, "orders", b"2", key=key).partition for key in keys} == first
    with foldlog.open(str(directory)) as log:
        assert {key: put(log, "orders", b"3", key=key).partition for key in keys} == first
    assert len(set(first.values())) == 7


def test_keys_are_placed_as_kafka_clients_place_them(log: foldlog.Log) -> None:
    log.create_topic("orders", partitions=100)
    for key, hashed in MURMUR2.items():
        assert put(log, "orders", b"x", key=key).partition == (hashed & 0x7FFFFFFF) % 100


def test_keyless_records_go_round_when_asked(log: foldlog.Log) -> None:
    log.create_topic("orders", partitions=3)
    with log.producer(partitioner="round_robin") as producer:
        sent = [producer.send("orders", value=value) for value in numbered(9)]
        producer.flush()
        partitions = [one.result(WAIT_S).partition for one in sent]
    assert partitions[:3] != partitions[1:4]
    assert Counter(partitions) == {0: 3, 1: 3, 2: 3}
    assert partitions[:3] == partitions[3:6] == partitions[6:]


def test_keyless_records_of_one_batch_stay_together(log: foldlog.Log) -> None:
    log.create_topic("orders", partitions=3)
    with log.producer(linger_ms=60_000, batch_records=50) as producer:
        sent = producer.send_batch("orders", [{"value": value} for value in numbered(50)])
        producer.flush()
        assert len({one.result(WAIT_S).partition for one in sent}) == 1


def test_keyless_records_reach_every_partition_in_time(log: foldlog.Log) -> None:
    log.create_topic("orders", partitions=3)
    with log.producer(linger_ms=0, batch_records=10) as producer:
        for first in range(0, 2000, 10):
            producer.send_batch("orders", [{"value": value} for value in numbered(10, first)])
            producer.flush()
    assert all(end > 0 for _, end in log.offsets("orders").values())


def test_order_is_kept_per_key(log: foldlog.Log) -> None:
    log.create_topic("orders", partitions=4)
    with log.producer() as producer:
        for number in range(600):
            producer.send("orders", value=b"%d" % number, key=b"user-%d" % (number % 11))
    per_key: dict[bytes | None, list[int]] = {}
    for partition in range(4):
        for record in log.read("orders", partition):
            per_key.setdefault(record.key, []).append(int(record.value or b""))
    assert len(per_key) == 11
    assert all(numbers == sorted(numbers) for numbers in per_key.values())


def test_partitions_are_independent_logs(log: foldlog.Log) -> None:
    log.create_topic("orders", partitions=2)
    put_many(log, "orders", numbered(5), partition=0)
    put_many(log, "orders", numbered(2, first=100), partition=1)
    assert values(log.read("orders", 0)) == numbered(5)
    assert values(log.read("orders", 1)) == numbered(2, first=100)


@pytest.mark.parametrize("partition", [3, 99])
def test_a_partition_that_does_not_exist_is_refused(log: foldlog.Log, partition: int) -> None:
    log.create_topic("orders", partitions=3)
    with pytest.raises(FoldlogError):
        put(log, "orders", b"x", partition=partition)
    assert log.offsets("orders") == {0: (0, 0), 1: (0, 0), 2: (0, 0)}
