"""Tiers on a real S3 server, over the wire and in the library: moto's, with stock clients."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition

import foldlog
from faulty_s3 import FaultyS3, faulty
from foldlog.broker.broker import Broker
from foldlog.client.backends.local import LocalBackend
from foldlog.files import objects
from object_store import Bucket, bucket, s3_server

__all__ = ["bucket", "s3_server"]

pytestmark = pytest.mark.faults

SETTINGS = {"remote.storage.enable": "true", "local.retention.ms": "0", "segment.bytes": "65536"}


@pytest.fixture
def store(bucket: Bucket, monkeypatch: pytest.MonkeyPatch) -> str:
    for name, value in bucket.options.items():
        monkeypatch.setenv(name, value)
    return bucket.url("tier")


def broker_of(log: foldlog.Log) -> Broker:
    backend = log._backend
    assert isinstance(backend, LocalBackend)
    return backend.reader


def fill(log: foldlog.Log, count: int = 300) -> list[bytes]:
    values = [b"%06d" % number + b"x" * 1000 for number in range(count)]
    with log.producer() as producer:
        for value in values:
            producer.send("orders", value)
            if value.startswith(b"00") and int(value[:6]) % 10 == 9:
                producer.flush()
    return values


def test_a_stock_consumer_reads_history_from_the_bucket(store: str, bucket: Bucket, tmp_path: Path) -> None:
    with foldlog.open(tmp_path / "data", tier=store, listen=True) as log:
        log.create_topic("orders", partitions=1, config=SETTINGS)
        values = fill(log)
        broker = broker_of(log)
        broker.enforce_retention()
        partition = broker.partition("orders", 0)
        assert 0 < partition.local_start_offset < 300
        assert len([key for key in bucket.objects() if key.endswith(".segment")]) > 3
        consumer = Consumer(
            {"bootstrap.servers": log.bootstrap, "group.id": "g", "enable.auto.commit": False, "check.crcs": True}
        )
        consumer.assign([TopicPartition("orders", 0, 0)])
        found: list[bytes | None] = []
        while len(found) < len(values):
            found += [message.value() for message in consumer.consume(500, 10.0) if message.error() is None]
        consumer.close()
        assert found == values
        assert [record.value for record in log.read("orders", 0)] == values
    with foldlog.open(tmp_path / "data", mode="r") as log:
        assert [record.value for record in log.read("orders", 0)] == values


def test_a_store_that_is_not_there_costs_reads_of_history_alone(
    store: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with foldlog.open(tmp_path / "data", tier=store) as log:
        log.create_topic("orders", partitions=1, config=SETTINGS)
        values = fill(log)
        broker_of(log).enforce_retention()
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    with foldlog.open(tmp_path / "data") as log:
        log.append("orders", b"still written")
        start = broker_of(log).partition("orders", 0).local_start_offset
        assert [record.value for record in log.read("orders", 0, start=start)] == [*values[start:], b"still written"]
        with pytest.raises(foldlog.errors.StoreError, match="could not be"):
            list(log.read("orders", 0))


def test_a_deleted_topic_leaves_the_bucket(store: str, bucket: Bucket, tmp_path: Path) -> None:
    with foldlog.open(tmp_path / "data", tier=store) as log:
        log.create_topic("orders", partitions=1, config=SETTINGS)
        fill(log)
        broker_of(log).enforce_retention()
        log.delete_topic("orders")
        broker_of(log).enforce_retention()
    assert bucket.objects() == ["tier/foldlog.json"]


@pytest.fixture
def proxied(store: str, s3_server: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[FaultyS3]:
    """The store, behind a proxy that fails on request."""
    with faulty(s3_server) as proxy:
        monkeypatch.setenv("AWS_ENDPOINT_URL", proxy.url)
        yield proxy


@pytest.mark.parametrize(
    ("kind", "part", "methods"),
    [
        ("503", ".segment", "PUT POST"),
        ("hang up", ".segment", "PUT POST"),
        ("503", ".manifest", "PUT"),
        ("hang up", ".manifest", "PUT"),
        ("503", "", "GET"),
        ("cut", ".segment", "GET"),
        ("cut", ".manifest", "GET"),
        ("flip", ".segment", "GET"),
        ("gone", ".segment", "GET"),
    ],
)
def test_a_store_that_fails_for_a_while_costs_nothing(
    kind: str, part: str, methods: str, store: str, proxied: FaultyS3, tmp_path: Path
) -> None:
    """Twice, in the middle of copying and reading back: the round goes through, or the next one does."""
    with foldlog.open(tmp_path / "data", tier=store, background=False) as log:
        log.create_topic("orders", partitions=1, config=SETTINGS)
        values = fill(log, 120)
        proxied.fail(kind, part=part, methods=methods, times=2)
        for _ in range(4):
            try:
                log.enforce_retention()
            except foldlog.errors.StorageError:
                log.append("orders", b"produced all the same")
                values.append(b"produced all the same")
        proxied.heal()
        log.enforce_retention()
        assert proxied.failed
        assert broker_of(log).partition("orders", 0).local_start_offset > 0
        assert [record.value for record in log.read("orders", 0)] == values


@pytest.mark.parametrize(("kind", "why"), [("flip", "damaged|CRC"), ("gone", "is gone from the store")])
def test_a_store_that_stays_wrong_is_one_sentence(
    kind: str, why: str, store: str, proxied: FaultyS3, tmp_path: Path
) -> None:
    with foldlog.open(tmp_path / "data", tier=store, background=False) as log:
        log.create_topic("orders", partitions=1, config=SETTINGS)
        values = fill(log, 120)
        log.enforce_retention()
        proxied.fail(kind, part=".segment")
        with pytest.raises(foldlog.errors.StorageError, match=why):
            list(log.read("orders", 0))
        proxied.heal()
        assert [record.value for record in log.read("orders", 0)] == values


def test_a_wrong_clock_is_one_sentence_and_goes_on_when_it_is_set(
    store: str, proxied: FaultyS3, tmp_path: Path
) -> None:
    with foldlog.open(tmp_path / "data", tier=store, background=False) as log:
        log.create_topic("orders", partitions=1, config=SETTINGS)
        values = fill(log, 120)
        proxied.fail("skew", part="", methods="GET PUT POST DELETE")
        with pytest.raises(foldlog.errors.StoreError, match="clock of this machine differs too much") as told:
            log.enforce_retention()
        assert "<" not in str(told.value)
        values += fill(log, 10)
        proxied.heal()
        log.enforce_retention()
        start = broker_of(log).partition("orders", 0).local_start_offset
        assert start > 0
        proxied.fail("skew", part="", methods="GET")
        with pytest.raises(foldlog.errors.StoreError, match="clock of this machine differs too much"):
            list(log.read("orders", 0))
        assert [record.value for record in log.read("orders", 0, start=start)] == values[start:]
        proxied.heal()
        assert [record.value for record in log.read("orders", 0)] == values


def test_producers_and_local_readers_do_not_wait_for_a_store_that_does_not_answer(
    store: str, proxied: FaultyS3, tmp_path: Path
) -> None:
    """All of it while a request is held: the proxy lets go when they are done."""
    with foldlog.open(tmp_path / "data", tier=store, background=False) as log:
        log.create_topic("orders", partitions=1, config=SETTINGS)
        values = fill(log, 120)
        proxied.fail("hold", part=".segment", methods="PUT POST")
        copying = threading.Thread(target=lambda: suppressed(log.enforce_retention))
        copying.start()
        assert proxied.held.wait(60)
        values += fill(log, 200)
        assert [record.value for record in log.read("orders", 0)] == values
        assert not proxied.released.is_set()
        assert copying.is_alive()
        proxied.heal()
        copying.join()
        log.enforce_retention()
        assert broker_of(log).partition("orders", 0).local_start_offset > 120
        assert [record.value for record in log.read("orders", 0)] == values


def suppressed(act: Callable[[], object]) -> None:
    with suppress(foldlog.errors.StorageError):
        act()


@pytest.mark.parametrize(("part", "methods"), [(".segment", "GET"), (".segment", "PUT POST"), (".manifest", "PUT")])
def test_a_request_without_an_answer_ends(
    part: str, methods: str, store: str, proxied: FaultyS3, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By itself: the proxy holds it until the error is there."""
    monkeypatch.setattr(objects, "_READ_S", 1)
    monkeypatch.setattr(objects, "_WRITE_S", 1)
    with foldlog.open(tmp_path / "data", tier=store, background=False) as log:
        log.create_topic("orders", partitions=1, config=SETTINGS)
        values = fill(log, 120)
        if methods == "GET":
            log.enforce_retention()
        proxied.fail("hold", part=part, methods=methods)
        with pytest.raises(foldlog.errors.StoreError, match=r"could not be (read|written)"):
            list(log.read("orders", 0)) if methods == "GET" else log.enforce_retention()
        assert not proxied.released.is_set()
        proxied.heal()
        log.enforce_retention()
        assert [record.value for record in log.read("orders", 0)] == values


def test_a_bucket_that_is_not_there_is_no_lost_object(store: str, bucket: Bucket, tmp_path: Path) -> None:
    missing = store.replace(bucket.name, f"{bucket.name}-other")
    with foldlog.open(tmp_path / "data", tier=missing, background=False) as log:
        log.create_topic("orders", partitions=1, config=SETTINGS)
        with pytest.raises(foldlog.errors.StoreError, match="there is no such bucket; create it first"):
            log.enforce_retention()
