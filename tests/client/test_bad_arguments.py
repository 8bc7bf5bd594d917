"""What cannot be right is refused with one sentence of ours: never a foreign exception, never a hang, nothing changed.

Each test gives a Log or what it makes an argument of the wrong type, out of range or not to be touched, and looks at
the type of the error and at the words that say what to do.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import foldlog
from foldlog.errors import (
    CorruptLog,
    FoldlogError,
    InvalidArgument,
    InvalidConfig,
    InvalidTopicName,
    LogClosed,
    SerializationError,
    StorageError,
    UnknownPartition,
    UnknownTopic,
)
from foldlog.files.memory import MemoryFiles

OFFSETS = "__consumer_offsets"


def test_users_cannot_write_or_alter_the_topic_that_holds_committed_offsets(log: foldlog.Log) -> None:
    log.create_topic("orders")
    log.append("orders", "paid")
    log.reset_group("fraud", {("orders", 0): 1})
    end = log.offsets(OFFSETS)[0][1]

    with pytest.raises(InvalidTopicName, match=OFFSETS):
        log.alter_topic(OFFSETS, {"cleanup.policy": "delete", "retention.ms": 0})
    with pytest.raises(InvalidTopicName, match="reset_group"):
        log.append(OFFSETS, None, key="k")
    with pytest.raises(InvalidTopicName, match="reset_group"):
        log.append(OFFSETS, None, key="k", partition=0)
    with pytest.raises(InvalidTopicName, match="reset_group"):
        log.append_arrow(OFFSETS, pa.table({"key": ["k"], "value": ["v"]}))
    with log.producer() as producer:
        with pytest.raises(InvalidTopicName, match="reset_group"):
            producer.send(OFFSETS, b"v", key=b"k")
        with pytest.raises(InvalidTopicName, match="reset_group"):
            producer.send_batch(OFFSETS, [{"value": b"v", "key": b"k"}])

    assert log.offsets(OFFSETS)[0][1] == end
    log.enforce_retention(OFFSETS)
    log.compact(OFFSETS)
    log.reset_group("fraud", {("orders", 0): 0})
    assert [place.offset for place in log.committed("fraud").values()] == [0]


@pytest.mark.parametrize("path", [None, 5, b"x", "", "a\0b", "\ud800"])
def test_a_path_that_names_no_directory_is_refused(path: Any) -> None:
    with pytest.raises(InvalidArgument):
        foldlog.open(path)


@pytest.mark.parametrize("name", ["catalog.json", "checkpoint", ".lock"])
def test_a_directory_in_place_of_a_file_of_the_log_is_named(tmp_path: Path, name: str) -> None:
    foldlog.open(tmp_path).close()
    (tmp_path / name).unlink()
    (tmp_path / name).mkdir()
    with pytest.raises(StorageError, match=f"{name} is a directory"):
        foldlog.open(tmp_path)


def test_what_the_system_refuses_is_a_storage_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: str, **_: object) -> None:
        raise PermissionError(13, "Permission denied", path)

    monkeypatch.setattr("os.makedirs", refuse)
    with pytest.raises(StorageError, match="permissions"):
        foldlog.open(tmp_path / "log")


CALLS: dict[str, tuple[type[FoldlogError], Callable[[Any], object]]] = {
    "background": (InvalidArgument, lambda log: foldlog.open(":memory:", background="x")),  # type: ignore[arg-type]
    "clock": (InvalidArgument, lambda log: foldlog.open(":memory:", clock=5)),  # type: ignore[arg-type]
    "topic to read": (InvalidTopicName, lambda log: log.read(["orders"])),
    "topic to append to": (InvalidTopicName, lambda log: log.append(["orders"], "v")),
    "topic to delete": (InvalidTopicName, lambda log: log.delete_topic(["orders"])),
    "topics to consume": (InvalidArgument, lambda log: log.consumer(5)),
    "time as text": (InvalidArgument, lambda log: log.offsets_at("orders", "x")),
    "time as None": (InvalidArgument, lambda log: log.offsets_at("orders", None)),
    "time too far": (InvalidArgument, lambda log: log.offsets_at("orders", 2**70)),
    "timestamp too far": (InvalidArgument, lambda log: log.append("orders", "v", timestamp_ms=2**63 - 1)),
    "max_records": (InvalidArgument, lambda log: log.read("orders", max_records=10**30)),
    "config as text": (InvalidConfig, lambda log: log.create_topic("other", config="str")),
    "config as list": (InvalidConfig, lambda log: log.create_topic("other", config=[1])),
    "changes": (InvalidConfig, lambda log: log.alter_topic("orders", None)),
    "offsets": (InvalidArgument, lambda log: log.reset_group("g", None)),
    "header name": (SerializationError, lambda log: log.append("orders", "v", headers=[("\ud800", b"")])),
    "header value": (SerializationError, lambda log: log.append("orders", "v", headers=[("a", "\ud800")])),
    "table as None": (InvalidArgument, lambda log: log.append_arrow("orders", None)),
    "table as dict": (InvalidArgument, lambda log: log.append_arrow("orders", {"value": ["v"]})),
    "columns twice": (
        SerializationError,
        lambda log: log.append_arrow("orders", pa.table([["a"], ["b"]], names=["value", "value"])),
    ),
    "columns as None": (InvalidArgument, lambda log: log.read_arrow("orders", columns=None)),
    "columns as text": (InvalidArgument, lambda log: log.read_arrow("orders", columns="offset")),
    "partitions": (InvalidArgument, lambda log: log.read_arrow("orders", partitions=5)),
    "partition": (UnknownPartition, lambda log: log.read("orders", "0")),
    "timeout as text": (InvalidArgument, lambda log: log.read("orders", follow=True, timeout_ms="x")),
    "timeout not a number": (InvalidArgument, lambda log: log.read("orders", follow=True, timeout_ms=float("nan"))),
    "auto_commit": (InvalidArgument, lambda log: log.consumer(["orders"], group="g", auto_commit="no")),
    "group": (InvalidArgument, lambda log: log.consumer(["orders"], group="\ud800")),
}


@pytest.mark.parametrize("what", CALLS)
def test_a_bad_argument_is_refused_with_an_error_of_ours(log: foldlog.Log, what: str) -> None:
    log.create_topic("orders")
    kind, call = CALLS[what]
    with pytest.raises(kind):
        call(log)
    assert log.offsets("orders") == {0: (0, 0)}


def test_a_partition_given_as_text_is_told_that_an_int_is_needed(log: foldlog.Log) -> None:
    log.create_topic("orders")
    with pytest.raises(UnknownPartition, match="partition '0'; a partition is an int"):
        log.append("orders", "v", partition="0")  # type: ignore[arg-type]


def test_an_endless_name_is_cut_in_the_sentence_about_it(log: foldlog.Log) -> None:
    with pytest.raises(InvalidArgument, match="UTF-8") as refused:
        log.committed("g" * 40_000)
    assert len(str(refused.value)) < 200


@pytest.mark.parametrize("wait", [1e300, float("inf"), 10**400])
def test_a_wait_beyond_what_a_lock_can_wait_is_a_long_wait(log: foldlog.Log, wait: float) -> None:
    log.create_topic("orders")
    with log.producer(linger_ms=1) as producer:
        sent = producer.send("orders", b"v")
        producer.flush()
        assert sent.result(wait).offset == 0
        with pytest.raises(InvalidArgument, match="seconds"):
            sent.result("x")  # type: ignore[arg-type]
    assert len(list(log.read("orders", follow=True, timeout_ms=wait, max_records=1))) == 1


def test_a_closed_log_makes_neither_producers_nor_consumers() -> None:
    log = foldlog.open(":memory:")
    log.close()
    with pytest.raises(LogClosed):
        log.producer()
    with pytest.raises(LogClosed):
        log.consumer()


@pytest.mark.parametrize("name", ["roundrobin", "round_robin"])
def test_round_robin_may_be_spelled_either_way(log: foldlog.Log, name: str) -> None:
    log.create_topic("orders")
    log.producer(partitioner=name).close()
    log.consumer(["orders"], group="g", assignor=name).close()


def test_a_damaged_partition_does_not_keep_the_others_from_retention() -> None:
    files = MemoryFiles()
    settings = {"retention.bytes": 0, "foldlog.segment.records": 1}
    with foldlog.open("data", files=files, background=False) as log:
        log.create_topic("a", config=settings)
        log.create_topic("b", config=settings)
        for number in range(3):
            log.append("a", str(number))
            log.append("b", str(number))
    for entry in files.entries("data/a-0"):
        files.unlink(f"data/a-0/{entry.name}")
    files.remove_directory("data/a-0")
    with foldlog.open("data", files=files, background=False) as log:
        with pytest.raises(CorruptLog, match="a-0"):
            log.enforce_retention()
        assert log.offsets("b")[0][0] > 0


def test_a_partitioner_that_fails_is_named(log: foldlog.Log) -> None:
    log.create_topic("t")

    def broken(topic: str, key: bytes | None, count: int) -> int:
        raise KeyError("no such shard")

    with log.producer(partitioner=broken) as producer, pytest.raises(InvalidArgument, match="the partitioner failed"):
        producer.send("t", b"value")


@pytest.mark.parametrize(
    "settings",
    [{"linger_ms": float("nan")}, {"linger_ms": None}, {"linger_ms": "x"}, {"batch_records": 1.5}, {"batch_bytes": 0}],
)
def test_a_producers_settings_are_checked(log: foldlog.Log, settings: dict[str, Any]) -> None:
    with pytest.raises(InvalidArgument) as caught:
        log.producer(**settings)
    assert "or None" not in str(caught.value)


@pytest.mark.parametrize("batch", [None, 5, "value", {"value": b"one"}])
def test_a_batch_is_a_list_of_dicts(log: foldlog.Log, batch: Any) -> None:
    log.create_topic("t")
    with log.producer() as producer, pytest.raises(InvalidArgument, match="a batch is a list of dicts, such as"):
        producer.send_batch("t", batch)


@pytest.mark.parametrize("topics", [None, 5])
def test_what_is_subscribed_to_are_names(log: foldlog.Log, topics: Any) -> None:
    with log.consumer() as consumer, pytest.raises(InvalidArgument, match="neither a topic's name nor a list of names"):
        consumer.subscribe(topics)


def test_a_log_is_opened_by_open_and_connect() -> None:
    with pytest.raises(InvalidArgument, match=r"Log\('data/'\) opens nothing; use foldlog.open\(path\)"):
        foldlog.Log("data/")  # type: ignore[arg-type]


def test_a_slice_and_a_tail_of_a_deleted_topic_say_so(log: foldlog.Log) -> None:
    log.create_topic("t")
    log.append("t", b"value")
    begun, tail = log.read("t", 0), log.read("t", 0, start="end", follow=True, timeout_ms=60_000)
    log.delete_topic("t")
    for reader in (begun, tail):
        with pytest.raises(UnknownTopic):
            next(reader)


def test_what_is_not_a_topics_name_cannot_be_sent_to(log: foldlog.Log) -> None:
    with log.producer() as producer, pytest.raises(InvalidTopicName, match="a topic name is a string, not list"):
        producer.send(["t"], b"value")  # type: ignore[arg-type]
