"""`foldlog copy` and Apache Kafka, in every direction: to it, from it, through our broker, and within it. Everything a
record may be arrives as it was, read back by librdkafka; and what Kafka alone has (transactions, its own compaction,
its own settings) is copied as docs/move.md says."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from clusters.apache_kafka import ApacheKafka
from confluent_kafka import Producer

import foldlog
from client.copy.copies import Content, contents, copy, ignored
from foldlog.client.copy import cluster as copying_cluster
from foldlog.client.copy.batches import as_sent
from foldlog.client.copy.copying import Copying, Pair, Prepared
from foldlog.client.copy.targets import Route
from foldlog.client.positions import TopicPartition
from foldlog.errors import CopyConflict, FoldlogError
from foldlog.records.loops import BatchHeader, pack, walk
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
def kafka(apache_kafka: ApacheKafka) -> Iterator[foldlog.Log]:
    with foldlog.connect(apache_kafka.url) as log:
        yield log


@pytest.fixture(scope="module")
def broker() -> Iterator[foldlog.Log]:
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


def fill_orders(log: foldlog.Log, name: str) -> None:
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


def records(log: foldlog.Log, topic: str, partition: int = 0) -> list[Content]:
    return list(contents(log, topic, partition).values())


def prepared(source: foldlog.Log, target: foldlog.Log, topic: str, to_topic: str) -> Prepared:
    with Copying(source, target, [Pair(topic, to_topic)]) as copying:
        return copying.prepare()[0]


# --- what a directory has -------------------------------------------------------------------------------------------


def test_a_directory_s_records_arrive_and_come_back(
    directory: foldlog.Log, kafka: foldlog.Log, broker: foldlog.Log, tmp_path: Path
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
    directory: foldlog.Log, kafka: foldlog.Log, apache_kafka: ApacheKafka, tmp_path: Path
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
    data = segment.read_bytes()
    return [data[one.position : one.position + one.size] for one in walk(memoryview(data)).headers]


def test_times_that_the_log_set_are_kept(directory: foldlog.Log, kafka: foldlog.Log, tmp_path: Path) -> None:
    """From LogAppendTime of either side to the other, which must not put its own into them."""
    stamping = {**FOREVER, "message.timestamp.type": "LogAppendTime"}
    for log, name in ((directory, "stamped.here"), (kafka, "stamped.there")):
        log.create_topic(name, config=stamping)
        for number in range(5):
            log.append(name, str(number), timestamp_ms=OLD_MS)
    left = prepared(directory, kafka, "stamped.here", "stamped.here").left
    assert left == {"message.timestamp.type": "records keep the times they have"}
    copy(directory, kafka, "stamped.here")
    copy(kafka, directory, "stamped.there")
    copy(kafka, kafka, "stamped.there=stamped.again")
    for name in ("stamped.here", "stamped.there"):
        assert contents(directory, name) == contents(kafka, name)
        assert min(timestamp_ms for timestamp_ms, *_ in records(kafka, name)) > OLD_MS
    assert contents(kafka, "stamped.again") == contents(kafka, "stamped.there")
    kafka.create_topic("stamped.target", config=stamping)
    with pytest.raises(CopyConflict, match="would put its own time into every record"):
        copy(kafka, kafka, "stamped.there=stamped.target")


def test_the_last_check_finds_what_kafka_has_not_or_has_otherwise(
    directory: foldlog.Log, kafka: foldlog.Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a copy that loses a batch on the way, and one that changes a record, at kept and at mapped offsets."""
    for name, trimmed in (("wrong.kept", 0), ("wrong.mapped", 2)):
        directory.create_topic(name, config=FOREVER)
        for number in range(6):
            directory.append(name, f"value {number}", key="k", timestamp_ms=OLD_MS + number)
        directory.delete_records(name, {0: trimmed})
        for fault, told in (("lost", "missing"), ("changed", "other records than the source|missing")):
            monkeypatch.setattr(copying_cluster, "as_sent", faulty(fault))
            with Copying(directory, kafka, [Pair(name, f"{name}.{fault}")]) as copying:
                copying.prepare()
                (verdict,) = copying.check_all(copying.copy_all(ignored), ignored).values()
            assert not verdict.is_same
            assert re.search(told, verdict.difference or ""), verdict


def faulty(fault: str) -> Callable[[memoryview, BatchHeader, int, int], list[bytearray]]:
    def as_sent_wrongly(data: memoryview, header: BatchHeader, from_offset: int, limit_bytes: int) -> list[bytearray]:
        batches = as_sent(data, header, from_offset, limit_bytes)
        if header.base_offset != 4:
            return batches
        return [] if fault == "lost" else [pack([(OLD_MS + 4, b"k", b"value 9", ())])]

    return as_sent_wrongly


# --- what only Kafka has --------------------------------------------------------------------------------------------


def test_of_transactions_only_what_was_committed_is_copied(
    apache_kafka: ApacheKafka, kafka: foldlog.Log, broker: foldlog.Log, directory: foldlog.Log
) -> None:
    """Aborted ones are not, and an open one is once it has ended; what came behind it waits with it."""
    kafka.create_topic("transactions", config=FOREVER)
    plain = Producer({"bootstrap.servers": apache_kafka.bootstrap, "compression.type": "lz4"})
    paying = transactional(apache_kafka, "transactions")
    for step, (outcome, codec) in enumerate(zip("ccaacaca", "abcdefgh", strict=True)):
        paying.begin_transaction()
        for number in range(3):
            paying.produce("transactions", f"{outcome} {codec}{number}".encode())
            paying.flush(TIMEOUT_S)
            plain.produce("transactions", f"plain {step}.{number}".encode())
            plain.flush(TIMEOUT_S)
        if outcome == "c":
            paying.commit_transaction(TIMEOUT_S)
        else:
            paying.abort_transaction(TIMEOUT_S)
    paying.begin_transaction()
    paying.produce("transactions", b"c open")
    paying.flush(TIMEOUT_S)
    plain.produce("transactions", b"plain behind it")
    plain.flush(TIMEOUT_S)
    targets: list[tuple[foldlog.Log, str]] = [
        (directory, "transactions"),
        (broker, "transactions"),
        (kafka, "transactions.2"),
    ]
    for target, name in targets:
        done = copy(kafka, target, f"transactions={name}")
        assert done.records == 24 + 12
    check_what_is_undecided(apache_kafka, directory)
    paying.commit_transaction(TIMEOUT_S)
    wanted = [value for _, _, value, _ in records(committed_only(apache_kafka), "transactions")]
    assert len(wanted) == 24 + 12 + 2
    for target, name in targets:
        assert copy(kafka, target, f"transactions={name}").records == 2
        assert [value for _, _, value, _ in records(target, name)] == wanted
    kept = contents(committed_only(apache_kafka), "transactions")
    assert contents(directory, "transactions") == kept, "with the places of what was aborted, and of the markers"
    assert directory.offsets("transactions") == kafka.offsets("transactions")


def check_what_is_undecided(apache_kafka: ApacheKafka, directory: foldlog.Log) -> None:
    """The open transaction and the record behind it are named; who asks for all gets them, with what was aborted."""
    with foldlog.connect(apache_kafka.url) as log, Copying(log, directory, [Pair("transactions", "none")]) as copying:
        end = log.offsets("transactions")[0][1]
        assert copying.undecided() == {Route("transactions", "none", 0): (end - 2, end)}
    with foldlog.connect(f"{apache_kafka.url}?isolation.level=read_uncommitted") as log:
        with Copying(log, directory, [Pair("transactions", "all")]) as copying:
            assert copying.undecided() == {}
        copy(log, directory, "transactions=all")
        assert contents(directory, "all") == contents(log, "transactions")


def transactional(apache_kafka: ApacheKafka, name: str) -> Producer:
    producer = Producer(
        {"bootstrap.servers": apache_kafka.bootstrap, "transactional.id": name, "compression.type": "zstd"}
    )
    producer.init_transactions(TIMEOUT_S)
    return producer


def committed_only(apache_kafka: ApacheKafka) -> foldlog.Log:
    """As librdkafka reads it: the judge."""
    return foldlog.connect(f"{apache_kafka.url}?isolation.level=read_committed")


def test_a_topic_that_kafka_has_compacted_and_trimmed(
    kafka: foldlog.Log, broker: foldlog.Log, directory: foldlog.Log
) -> None:
    """Its cleaner leaves holes in batches, between them and at the log's start."""
    config = {
        **FOREVER,
        "cleanup.policy": "compact,delete",
        "min.cleanable.dirty.ratio": "0.001",
        "segment.ms": "1",
        "delete.retention.ms": "86400000",
    }
    kafka.create_topic("prices", config=config)
    for codec in ("none", "zstd"):
        with kafka.producer(linger_ms=1000, batch_records=25, compression=codec) as producer:
            for number in range(100):
                value = None if number % 9 == 0 else f"{codec} {number}".encode()
                producer.send("prices", value, f"k{number % 30}".encode(), timestamp_ms=OLD_MS + number)
    for _ in range(2):
        kafka.append("prices", "the last", key="the last")  # the cleaner leaves the newest segment alone
    while len(contents(kafka, "prices")) > 60:
        pass  # it reads the topic from its start each time, until the cleaner has been there
    kafka.alter_topic("prices", {"min.cleanable.dirty.ratio": "1"})  # from here on it stays as it is
    kafka.delete_records("prices", {0: min(contents(kafka, "prices")) + 1})
    kafka.reset_group("readers", {("prices", 0): max(contents(kafka, "prices")) - 3})
    copy(kafka, directory, "prices")
    assert contents(directory, "prices") == contents(kafka, "prices")
    assert directory.offsets("prices") == kafka.offsets("prices")
    assert directory.topic_config("prices")["cleanup.policy"].value == "compact,delete"
    for target, name in ((broker, "prices"), (kafka, "prices.2")):
        done = copy(kafka, target, f"prices={name}")
        there = contents(target, name)
        assert list(there.values()) == records(kafka, "prices")
        assert list(there) == list(range(len(there)))
        (move,) = done.groups
        assert move.target_offset is not None
        behind = [offset for offset in contents(kafka, "prices") if offset >= move.source_offset]
        assert target.offsets(name)[0][1] - move.target_offset == len(behind)
        assert target.committed("readers")[TopicPartition(name, 0)].offset == move.target_offset


def test_internal_topics_are_not_copied(kafka: foldlog.Log, apache_kafka: ApacheKafka) -> None:
    transactional(apache_kafka, "makes the topic of transactions").list_topics()
    kafka.reset_group("makes the topic of offsets", {})
    names = kafka.topics()
    assert [name for name in names if name.startswith("__")] == []
    for name in ("__transaction_state", "__consumer_offsets"):
        with pytest.raises(FoldlogError, match=name):
            copy(kafka, kafka, f"{name}=mine")
    assert "mine" not in kafka.topics()


# --- what is there already ------------------------------------------------------------------------------------------


def test_settings_are_brought_and_those_that_are_not_are_named(kafka: foldlog.Log, directory: foldlog.Log) -> None:
    config = {"retention.ms": "1000000000", "cleanup.policy": "compact,delete", "segment.bytes": str(2 << 20)}
    directory.create_topic("settings.here", config={**config, "foldlog.segment.records": 1000})
    there = prepared(directory, kafka, "settings.here", "settings.here")
    assert there.is_made
    assert there.settings == config
    assert there.left == {"foldlog.segment.records": "the target does not know it"}
    throttled = {"leader.replication.throttled.replicas": "*", "unclean.leader.election.enable": "true"}
    kafka.create_topic("settings.there", config={**config, **throttled})
    back = prepared(kafka, directory, "settings.there", "settings.there")
    assert (back.settings, back.left) == ({**config, **throttled}, {}), "a directory knows all that Kafka knows"


def test_a_topic_that_is_there_is_used_if_it_is_empty_or_a_copy_and_else_left_alone(
    kafka: foldlog.Log, directory: foldlog.Log
) -> None:
    directory.create_topic("there", partitions=3, config=FOREVER)
    for number in range(30):
        directory.append("there", str(number), partition=number % 3)
    kafka.create_topic("fewer", partitions=2, config={"retention.ms": "5000000000"})
    copy(directory, kafka, "there=fewer")
    assert [records(kafka, "fewer", number) for number in range(3)] == [
        records(directory, "there", number) for number in range(3)
    ]
    assert kafka.topic_config("fewer")["retention.ms"].value == "-1"
    kafka.alter_topic("fewer", {"retention.ms": "6000000000"})
    directory.append("there", "later", partition=1)
    assert copy(directory, kafka, "there=fewer").records == 1
    assert kafka.topic_config("fewer")["retention.ms"].value == "6000000000", "it is the target's own by now"
    kafka.create_topic("more", partitions=4)
    with pytest.raises(CopyConflict, match="has 4 partitions, and its source 3"):
        copy(directory, kafka, "there=more")
    kafka.create_topic("other", partitions=3)
    kafka.append("other", "something else", partition=2)
    with pytest.raises(CopyConflict, match=r"other-2 of kafka://.* has another record at offset 0 than the source"):
        copy(directory, kafka, "there=other")
    assert [len(records(kafka, "other", number)) for number in range(3)] == [0, 0, 1], "nothing was written"


def test_what_kafka_would_refuse_is_one_sentence(kafka: foldlog.Log, directory: foldlog.Log) -> None:
    """A record over what the target takes, and one from the future: what is before it has arrived."""
    directory.create_topic("future", config={**FOREVER, "message.timestamp.after.max.ms": (1 << 63) - 1})
    directory.append("future", "now")
    directory.append("future", "in the year 2100", timestamp_ms=4_102_444_800_000)
    directory.alter_topic("future", {"message.timestamp.after.max.ms": None})  # else the copy would have it too
    with pytest.raises(FoldlogError, match=r"message.timestamp.after.max.ms") as refused:
        copy(directory, kafka, "future")
    assert len(str(refused.value).splitlines()) == 1
    kafka.alter_topic("future", {"message.timestamp.after.max.ms": str((1 << 63) - 1)})
    copy(directory, kafka, "future")
    assert records(kafka, "future") == records(directory, "future")
    directory.create_topic("heavy", config={**FOREVER, "max.message.bytes": 3 << 20})
    kafka.create_topic("heavy")
    kafka.append("heavy", "first")
    directory.append("heavy", "first", timestamp_ms=records(kafka, "heavy")[0][0])
    directory.append("heavy", bytes(2 << 20))
    with pytest.raises(FoldlogError, match=r"max.message.bytes") as refused:
        copy(directory, kafka, "heavy")
    assert len(str(refused.value).splitlines()) == 1
    kafka.alter_topic("heavy", {"max.message.bytes": 3 << 20})
    copy(directory, kafka, "heavy")
    assert records(kafka, "heavy") == records(directory, "heavy")
