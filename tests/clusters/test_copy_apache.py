"""`foldlog copy` and Apache Kafka, in every direction: to it, from it, through our broker, and within it. Everything a
record may be arrives as it was, read back by librdkafka; and what Kafka alone has (transactions, its own compaction,
its own settings) is copied as docs/move.md says."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from clusters.apache_kafka import ApacheKafka
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

import foldlog
from client.copies import AnyLog, Content, contents, copy
from foldlog.client.copying import Copying, Pair, Prepared
from foldlog.client.positions import TopicPartition
from foldlog.errors import CopyConflict, FoldlogError
from foldlog.testing import KafkaBroker

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
KEYS = (None, b"", b"tx_1", b"\x00\xff")
VALUES = (None, b"", b"paid", bytes(2000))
HEADERS: tuple[tuple[tuple[str, bytes | None], ...], ...] = (
    (),
    (("trace", None),),
    (("trace", b"1"), ("trace", b""), ("trace", b"1"), ("grüße", b"\xff")),
)
OLD_MS = 1_600_000_000_000
FOREVER = {"retention.ms": "-1"}
TIMEOUT_S = 60


@pytest.fixture(scope="module")
def kafka(apache_kafka: ApacheKafka) -> Iterator[AnyLog]:
    with foldlog.connect(apache_kafka.url) as log:
        yield log


@pytest.fixture(scope="module")
def broker() -> Iterator[AnyLog]:
    """Ours."""
    with KafkaBroker.launch() as running, foldlog.connect(f"kafka://{running}") as log:
        yield log


@pytest.fixture
def directory(tmp_path: Path) -> Iterator[foldlog.Log]:
    with foldlog.open(tmp_path / "data", background=False) as log:
        yield log


def every_kind() -> list[Content]:
    """Records of every kind, their times going back and forth."""
    kinds = [(key, value, headers) for key in KEYS for value in VALUES for headers in HEADERS]
    return [(OLD_MS + (number * 37) % 100, *kind) for number, kind in enumerate(kinds)]


def fill_orders(log: AnyLog, name: str) -> None:
    """Two partitions with every kind of record in every codec, in batches of several sizes; one begins at 30."""
    log.create_topic(name, partitions=2, config=FOREVER)
    for codec in CODECS:
        with log.producer(linger_ms=1000, batch_records=20, compression=codec) as producer:
            for timestamp_ms, key, value, headers in every_kind():
                for partition in (0, 1):
                    producer.send(name, value, key, list(headers), partition, timestamp_ms)
    log.delete_records(name, {1: 30})


def fill_prices(log: foldlog.Log, name: str) -> None:
    """A compacted topic with holes between batches, in them, and at the end, and with tombstones."""
    log.create_topic(name, config={"cleanup.policy": "compact", "foldlog.segment.records": 40})
    with log.producer(linger_ms=1000, batch_records=10) as producer:
        for number in range(200):
            value = None if number % 23 == 0 else str(number).encode()
            producer.send(name, value, f"k{number % 7 if number % 50 else number}".encode(), timestamp_ms=OLD_MS)
    log.compact(name)
    start, end = log.offsets(name)[0]
    assert len(contents(log, name)) < end - start


def records(log: AnyLog, topic: str, partition: int = 0) -> list[Content]:
    return list(contents(log, topic, partition).values())


def prepared(source: AnyLog, target: AnyLog, topic: str, to_topic: str) -> Prepared:
    with Copying(source, target, [Pair(topic, to_topic)]) as copying:
        return copying.prepare()[0]


# --- what a directory has -------------------------------------------------------------------------------------------


def test_a_directory_s_records_arrive_and_come_back(
    directory: foldlog.Log, kafka: AnyLog, broker: AnyLog, tmp_path: Path
) -> None:
    """To Kafka, to another name of it, to our broker, back to Kafka, and into a directory: as they were at first."""
    fill_orders(directory, "kept.orders")
    fill_prices(directory, "kept.prices")
    done = copy(directory, kafka, "kept.orders", "kept.prices")
    assert {str(route): one.offsets.is_kept for route, one in done.copied.items()} == {
        "kept.orders-0": True,
        "kept.orders-1": False,
        "kept.prices-0": False,
    }
    copy(kafka, kafka, "kept.orders=kept.orders.2", "kept.prices=kept.prices.2")
    copy(kafka, broker, "kept.orders.2=kept.orders", "kept.prices.2=kept.prices")
    copy(broker, kafka, "kept.orders=kept.orders.3", "kept.prices=kept.prices.3")
    with foldlog.open(tmp_path / "back") as back:
        copy(kafka, back, "kept.orders.3=kept.orders", "kept.prices.3=kept.prices")
        for topic, partition in (("kept.orders", 0), ("kept.orders", 1), ("kept.prices", 0)):
            wanted = records(directory, topic, partition)
            assert records(kafka, topic, partition) == wanted
            assert records(kafka, f"{topic}.2", partition) == wanted
            assert records(broker, topic, partition) == wanted
            assert contents(back, topic, partition) == contents(kafka, f"{topic}.3", partition)
            assert records(back, topic, partition) == wanted


def test_batches_go_to_kafka_as_they_are(
    directory: foldlog.Log, kafka: AnyLog, apache_kafka: ApacheKafka, tmp_path: Path
) -> None:
    """Up to the largest that the topic takes. Byte for byte behind what a broker and a producer write into a header."""
    directory.create_topic("bytes", config={**FOREVER, "max.message.bytes": 5 << 20})
    for codec in CODECS:
        with directory.producer(linger_ms=1000, batch_bytes=(5 << 20) - 1000, compression=codec) as producer:
            for number in range(11):
                producer.send("bytes", bytes([number]) * 1_000_000, timestamp_ms=OLD_MS)
    copy(directory, kafka, "bytes")
    with foldlog.open(tmp_path / "back") as back:
        copy(kafka, back, "bytes")
        (ours,), (theirs,) = (sorted(Path(log.path, "bytes-0").glob("*.log")) for log in (directory, back))
    first, second = batches_of(ours), batches_of(theirs)
    assert max(map(len, first)) > 4 << 20
    assert [batch[61:] for batch in first] == [batch[61:] for batch in second]
    assert kafka.topic_config("bytes")["max.message.bytes"].value == str(5 << 20)


def batches_of(segment: Path) -> list[bytes]:
    from foldlog.records.loops import walk

    data = segment.read_bytes()
    return [data[one.position : one.position + one.size] for one in walk(memoryview(data)).headers]
