"""A log that another log serves works like the one that serves it.

Both are in this process, on real files: the second is refused the lock, finds the address in the lock file, reads the
files and asks over a socket for everything else, as it would from another process. What is done through one is seen
through the other at once; what is refused is refused with the same error in the same words.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pytest

import foldlog
from foldlog.errors import (
    DirectoryLocked,
    FoldlogError,
    ReadOnly,
    RecordTooLarge,
    UnknownTopic,
)
from foldlog.testing.sim_clock import SimClock


@dataclass
class Pair:
    """One directory, open twice."""

    writer: foldlog.Log
    remote: foldlog.Log


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[Pair]:
    path = tmp_path / "data"
    with foldlog.open(path, listen=True, background=False) as writer, foldlog.open(path) as remote:
        assert (writer.is_remote, remote.is_remote) == (False, True)
        yield Pair(writer, remote)


def values(log: foldlog.Log, topic: str, partition: int = 0) -> list[bytes]:
    return [record.value for record in log.read(topic, partition)]


# --- writing ----------------------------------------------------------------------------------------------------------


def test_every_append_can_be_read_at_once_by_who_wrote_it(pair: Pair) -> None:
    pair.remote.create_topic("orders")
    for number in range(50):
        placed = pair.remote.append("orders", str(number), key="k", headers={"n": b"1"}, timestamp_ms=number + 1)
        assert placed == foldlog.RecordMetadata("orders", 0, number, number + 1)
        (read,) = pair.remote.read("orders", start=number)
        assert (read.value, read.key, read.headers) == (str(number).encode(), b"k", (("n", b"1"),))
    assert values(pair.writer, "orders") == [str(number).encode() for number in range(50)]


def test_appends_of_both_take_turns_in_one_order(pair: Pair) -> None:
    pair.writer.create_topic("orders")
    for number in range(10):
        log = pair.writer if number % 2 else pair.remote
        assert log.append("orders", str(number)).offset == number
    assert values(pair.remote, "orders") == values(pair.writer, "orders") == [b"%d" % n for n in range(10)]


@pytest.mark.parametrize("compression", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_a_producer_sends_batches_in_order(pair: Pair, compression: str) -> None:
    pair.remote.create_topic("orders", partitions=3)
    with pair.remote.producer(batch_records=7, compression=compression) as producer:
        sent = [producer.send("orders", str(number), key=str(number % 10)) for number in range(1000)]
    placed = [future.result(0) for future in sent]
    for partition in range(3):
        mine = [(place.offset, number) for number, place in enumerate(placed) if place.partition == partition]
        read = [(record.offset, int(record.value)) for record in pair.writer.read("orders", partition)]
        assert read == mine, "every record once, in the order of the sends"


def test_a_table_is_appended_and_read_back(pair: Pair) -> None:
    pair.remote.create_topic("orders", partitions=2)
    rows = [f"{number:08d}".encode() * 20 for number in range(30_000)]
    partitions = pa.array([number % 2 for number in range(30_000)], pa.int32())
    placed = pair.remote.append_arrow("orders", pa.table({"value": rows, "partition": partitions}))
    assert placed == {0: (0, 15_000), 1: (0, 15_000)}
    read = pair.remote.read_arrow("orders", columns=["value"]).column("value").to_pylist()
    assert read == rows[0::2] + rows[1::2]


def test_the_log_append_time_of_the_writer_is_told(pair: Pair) -> None:
    pair.remote.create_topic("orders", config={"message.timestamp.type": "LogAppendTime"})
    placed = pair.remote.append("orders", "x", timestamp_ms=5)
    (record,) = pair.remote.read("orders")
    assert placed.timestamp_ms == record.timestamp_ms > 5


def test_a_failed_batch_takes_no_other_with_it(pair: Pair) -> None:
    """What was sent after it was numbered as its successor, and has to be numbered anew."""
    pair.writer.create_topic("orders", config={"max.message.bytes": 2000})
    # On a clock that stands still nobody looks at the topics again, so the producer does not know of the new limit.
    with foldlog.open(pair.writer.path, clock=SimClock()) as remote:
        producer = remote.producer(batch_records=1, linger_ms=0)
        producer.send("orders", b"first").result()
        pair.writer.alter_topic("orders", {"max.message.bytes": 500})
        sent = [producer.send("orders", b"x" * (1000 if number % 4 == 0 else 10)) for number in range(40)]
        with pytest.raises(RecordTooLarge):
            producer.flush()
        failed = [number for number, future in enumerate(sent) if isinstance(future.exception(), RecordTooLarge)]
        offsets = [future.result().offset for number, future in enumerate(sent) if number not in failed]
        assert failed == list(range(0, 40, 4))
        assert offsets == list(range(1, 31)), "in order, without a gap"


def test_what_was_sent_to_a_deleted_topic_fails_and_says_so(pair: Pair) -> None:
    pair.remote.create_topic("orders")
    producer = pair.remote.producer(linger_ms=60_000)
    sent = producer.send("orders", b"too late")
    pair.writer.delete_topic("orders")
    pair.writer.create_topic("orders")
    with pytest.raises(UnknownTopic):
        producer.flush()
    assert isinstance(sent.exception(), UnknownTopic)
    assert values(pair.writer, "orders") == [], "a topic of the same name is another topic"


def test_a_size_that_the_writer_allows_by_default_is_not_refused_here(tmp_path: Path) -> None:
    from foldlog.broker.broker import Broker
    from foldlog.server.config.settings import ServerSettings
    from foldlog.server.server import Server

    settings = ServerSettings.parse({"listeners": "127.0.0.1:0", "message.max.bytes": 5_000_000})
    path = str(tmp_path / "data")
    with (
        Broker.open(path, topic_defaults=settings.topic_defaults) as broker,
        Server.start(broker, settings) as server,
    ):
        broker.publish_address(*server.addresses[0])
        with foldlog.open(path) as remote:
            remote.create_topic("orders")
            assert remote.append("orders", b"x" * 4_000_000).offset == 0
            with pytest.raises(RecordTooLarge, match="5000000"):
                remote.append("orders", b"x" * 6_000_000)


# --- topics and groups ------------------------------------------------------------------------------------------------


def test_topics_are_made_changed_and_deleted(pair: Pair) -> None:
    remote, writer = pair.remote, pair.writer
    made = remote.create_topic("orders", partitions=2, config={"retention.ms": 1000, "cleanup.policy": ["compact"]})
    assert made == writer.topic("orders") == remote.topic("orders")
    assert (made.partition_count, made.config.log.retention_ms, made.config.log.compact) == (2, 1000, True)
    assert remote.grow_topic("orders", 5).partition_count == writer.topic("orders").partition_count == 5
    assert remote.alter_topic("orders", {"retention.ms": None, "segment.ms": 5}).config.settings == {
        "cleanup.policy": "compact",
        "segment.ms": "5",
    }
    assert remote.topics() == ["orders"]
    remote.delete_topic("orders")
    assert remote.topics() == writer.topics() == []


def test_a_group_goes_on_in_the_other_process_where_it_stopped(pair: Pair) -> None:
    pair.writer.create_topic("orders")
    for number in range(10):
        pair.writer.append("orders", str(number))
    for log, expected in ((pair.remote, [b"0", b"1"]), (pair.writer, [b"2", b"3"]), (pair.remote, [b"4", b"5"])):
        with log.consumer(["orders"], group="fraud", auto_offset_reset="earliest", max_records=2) as consumer:
            assert [record.value for record in consumer.poll(timeout_ms=10_000)] == expected
            consumer.commit(metadata="so far")
    assert pair.remote.committed("fraud") == pair.writer.committed("fraud")
    assert pair.remote.committed("fraud")[foldlog.TopicPartition("orders", 0)].metadata == "so far"
    assert pair.remote.lag("fraud") == {("orders", 0): 4}


def test_groups_are_moved_listed_and_deleted(pair: Pair) -> None:
    remote = pair.remote
    remote.create_topic("orders", partitions=2)
    remote.append("orders", "x", partition=0)
    remote.reset_group("fraud", {("orders", 0): "end", ("orders", 1): "start"})
    assert {place: found.offset for place, found in pair.writer.committed("fraud").items()} == {
        ("orders", 0): 1,
        ("orders", 1): 0,
    }
    remote.delete_offsets("fraud", [("orders", 1)])
    assert set(remote.committed("fraud")) == {("orders", 0)}
    assert remote.groups() == ["fraud"]
    remote.delete_group("fraud")
    assert remote.groups() == pair.writer.groups() == []


def test_records_are_deleted_from_the_head(pair: Pair) -> None:
    pair.remote.create_topic("orders")
    for number in range(10):
        pair.remote.append("orders", str(number))
    assert pair.remote.delete_records("orders", {0: 4}) == {0: 4}
    assert pair.remote.offsets("orders") == pair.writer.offsets("orders") == {0: (4, 10)}
    assert pair.remote.delete_records("orders", {0: "end"}) == {0: 10}


REFUSED: dict[str, Callable[[foldlog.Log], object]] = {
    "a topic that exists": lambda log: log.create_topic("orders"),
    "a topic that differs in a dot": lambda log: log.create_topic("dot_ted"),
    "a bad name": lambda log: log.create_topic("a/b"),
    "the log's own topic": lambda log: log.create_topic("__consumer_offsets"),
    "no partitions": lambda log: log.create_topic("other", partitions=0),
    "an unknown setting": lambda log: log.create_topic("other", config={"retention": 1}),
    "a bad value": lambda log: log.create_topic("other", config={"retention.ms": "soon"}),
    "deleting what is not there": lambda log: log.delete_topic("nothing"),
    "deleting the log's own topic": lambda log: log.delete_topic("__consumer_offsets"),
    "growing what is not there": lambda log: log.grow_topic("nothing", 3),
    "growing to too many": lambda log: log.grow_topic("orders", 100_000),
    "altering what is not there": lambda log: log.alter_topic("nothing", {"retention.ms": 1}),
    "altering to a bad value": lambda log: log.alter_topic("orders", {"retention.ms": "soon"}),
    "appending to what is not there": lambda log: log.append("nothing", "x"),
    "appending to a partition that is not there": lambda log: log.append("orders", "x", partition=9),
    "appending to the log's own topic": lambda log: log.append("__consumer_offsets", "x"),
    "too large a record": lambda log: log.append("orders", b"x" * 2_000_000),
    "a keyless record on a compacted topic": lambda log: log.append("dot.ted", "x"),
    "deleting an unknown group": lambda log: log.delete_group("nobody"),
    "deleting a busy group": lambda log: log.delete_group("busy"),
    "moving a busy group": lambda log: log.reset_group("busy", {("orders", 0): "start"}),
    "deleting offsets of a busy group": lambda log: log.delete_offsets("busy", [("orders", 0)]),
    "deleting records that are not there": lambda log: log.delete_records("orders", {0: 99}),
    "reading what is not there": lambda log: list(log.read("nothing")),
    "committing where nothing is": lambda log: log.reset_group("fraud", {("nothing", 0): "start"}),
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_is_refused_is_refused_in_the_same_words(pair: Pair, what: str) -> None:
    pair.writer.create_topic("orders")
    pair.writer.create_topic("dot.ted", config={"cleanup.policy": "compact"})
    busy = pair.writer.consumer(["orders"], group="busy")
    said: list[tuple[type[FoldlogError], str]] = []
    for log in (pair.writer, pair.remote):
        with pytest.raises(FoldlogError) as refused:
            REFUSED[what](log)
        said.append((type(refused.value), str(refused.value)))
    assert said[0] == said[1]
    busy.close()


def test_what_only_the_writer_can_do_is_left_to_it(pair: Pair) -> None:
    for act in (pair.remote.compact, pair.remote.enforce_retention):
        with pytest.raises(ReadOnly, match="done by process"):
            act()


# --- opening and closing ----------------------------------------------------------------------------------------------


def test_a_log_opened_to_read_stays_one_beside_a_listener(pair: Pair) -> None:
    with foldlog.open(pair.writer.path, mode="r") as reader:
        assert not reader.is_remote
        pair.writer.create_topic("orders")
        with pytest.raises(ReadOnly):
            reader.append("orders", "x")
        with pytest.raises(ReadOnly):
            reader.consumer(["orders"], group="fraud")


def test_a_writer_that_does_not_listen_is_named_with_the_way_out(tmp_path: Path) -> None:
    with (
        foldlog.open(tmp_path / "data"),
        pytest.raises(DirectoryLocked, match=r"process \d+, which does not listen; .*listen=True.*foldlog serve"),
    ):
        foldlog.open(tmp_path / "data")


def test_closing_a_remote_log_leaves_the_writer_alone(pair: Pair) -> None:
    pair.remote.create_topic("orders")
    producer = pair.remote.producer(linger_ms=60_000)
    sent = producer.send("orders", b"flushed by closing")
    pair.remote.close()
    assert sent.result(0).offset == 0
    pair.remote.close()
    with pytest.raises(foldlog.errors.LogClosed):
        pair.remote.append("orders", "x")
    assert values(pair.writer, "orders") == [b"flushed by closing"]
