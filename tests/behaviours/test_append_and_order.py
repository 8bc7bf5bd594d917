"""Append and order: a record is put at the end, gets its place there once and for all, and is never changed.

Through the public API on a log in a temporary directory; immutability is also shown on the bytes of the files.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path

import pytest

import foldlog
from behaviours.steps import WAIT_S, numbered, offsets, partition_files, put, put_many, values
from foldlog.files.base import Buffer
from foldlog.files.posix import PosixFile


def test_append_returns_the_place_of_the_record(log: foldlog.Log) -> None:
    log.create_topic("orders", partitions=1)
    first = log.append("orders", b"order-1", key=b"k")
    second = log.append("orders", b"order-2", key=b"k")
    assert (first.topic, first.partition, first.offset) == ("orders", 0, 0)
    assert (second.topic, second.partition, second.offset) == ("orders", 0, 1)
    assert second.timestamp_ms >= first.timestamp_ms > 0


def test_offsets_count_up_by_one_record_by_record(log: foldlog.Log) -> None:
    log.create_topic("orders", partitions=1)
    assert [one.offset for one in put_many(log, "orders", numbered(1000))] == list(range(1000))
    assert offsets(log.read("orders", 0)) == list(range(1000))


def test_every_reader_sees_the_order_of_writing(log: foldlog.Log) -> None:
    log.create_topic("orders", partitions=1)
    put_many(log, "orders", numbered(200))
    readings = [values(log.read("orders", 0)) for _ in range(3)]
    assert readings == [numbered(200)] * 3


def test_concurrent_producers_are_put_into_one_total_order(log: foldlog.Log) -> None:
    log.create_topic("orders", partitions=1)
    placed: dict[int, list[int]] = {}

    def produce(writer: int) -> None:
        sent = put_many(log, "orders", [b"%d:%d" % (writer, number) for number in range(250)])
        placed[writer] = [one.offset for one in sent]

    threads = [threading.Thread(target=produce, args=(writer,)) for writer in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(WAIT_S)

    assert sorted(offset for own in placed.values() for offset in own) == list(range(1000))
    for writer, own in placed.items():
        assert own == sorted(own), f"records of writer {writer} were reordered"
    records = {record.offset: record.value for record in log.read("orders", 0)}
    for writer, own in placed.items():
        assert [records[offset] for offset in own] == [b"%d:%d" % (writer, number) for number in range(250)]


def test_an_update_is_a_new_record_and_the_old_one_stays(log: foldlog.Log) -> None:
    log.create_topic("orders", partitions=1)
    log.append("orders", b"placed", key=b"order-47")
    log.append("orders", b"shipped", key=b"order-47")
    assert values(log.read("orders", 0)) == [b"placed", b"shipped"]
    assert values(log.read("orders", 0, start=0, max_records=1)) == [b"placed"]


def test_bytes_once_written_never_change(log: foldlog.Log, directory: Path) -> None:
    log.create_topic("orders", partitions=1, config={"foldlog.segment.records": 5})
    seen: dict[Path, bytes] = {}
    for number in range(20):
        log.append("orders", b"order-%d" % number)
        for file in partition_files(directory, "orders", ".log"):
            now = file.read_bytes()
            assert now.startswith(seen.get(file, b"")), f"{file.name} changed after it was written"
            seen[file] = now


def test_appending_only_ever_writes_at_the_end_of_the_newest_file(
    log: foldlog.Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    writes: list[tuple[str, int, int]] = []
    real_write = PosixFile.write

    def recorded_write(self: PosixFile, position: int, buffers: Sequence[Buffer]) -> int:
        count = real_write(self, position, buffers)
        if self.path.endswith(".log"):
            writes.append((self.path, position, count))
        return count

    log.create_topic("orders", partitions=1, config={"foldlog.segment.records": 10})
    monkeypatch.setattr(PosixFile, "write", recorded_write)
    for number in range(35):
        log.append("orders", b"order-%d" % number)

    ends: dict[str, int] = {}
    newest = ""
    for path, position, count in writes:
        assert path >= newest, "an older segment was written to"
        assert position == ends.get(path, 0), "a write was not at the end"
        newest, ends[path] = path, position + count
    assert len(ends) == 4


def test_a_record_carries_key_value_headers_timestamp_and_its_place(log: foldlog.Log) -> None:
    log.create_topic("orders", partitions=2)
    put(log, "orders", b"v", key=b"k", headers=[("trace", b"1"), ("trace", b"2")], partition=1, timestamp_ms=1_700_000)
    (record,) = log.read("orders", 1)
    assert (record.topic, record.partition, record.offset) == ("orders", 1, 0)
    assert (record.key, record.value, record.timestamp_ms) == (b"k", b"v", 1_700_000)
    assert list(record.headers) == [("trace", b"1"), ("trace", b"2")]


def test_key_value_and_headers_may_be_absent(log: foldlog.Log) -> None:
    log.create_topic("orders", partitions=1)
    put(log, "orders", None, key=b"gone")
    put(log, "orders", b"")
    tombstone, empty = log.read("orders", 0)
    assert (tombstone.key, tombstone.value, list(tombstone.headers)) == (b"gone", None, [])
    assert (empty.key, empty.value) == (None, b"")


def test_a_record_is_stamped_with_the_time_of_sending_unless_it_brings_its_own(log: foldlog.Log) -> None:
    log.create_topic("orders", partitions=1)
    stamped = put(log, "orders", b"now")
    brought = put(log, "orders", b"then", timestamp_ms=1_736_937_000_000)
    assert stamped.timestamp_ms > 1_736_937_000_000
    assert brought.timestamp_ms == 1_736_937_000_000
    assert [record.timestamp_ms for record in log.read("orders", 0)] == [stamped.timestamp_ms, 1_736_937_000_000]


def test_dicts_and_text_go_in_without_ceremony(log: foldlog.Log) -> None:
    log.create_topic("payments", partitions=1)
    log.append("payments", {"tx_id": "tx_001", "amount_paise": 1999900}, key="tx_001")
    log.append("payments", "plain text")
    first, second = log.read("payments", 0)
    assert first.json() == {"tx_id": "tx_001", "amount_paise": 1999900}
    assert first.key == b"tx_001"
    assert second.text() == "plain text"
