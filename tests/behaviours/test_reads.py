"""Reads: a read is a slice of the log from a place the reader names; it removes nothing and changes nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

import foldlog
from behaviours.steps import numbered, offsets, partition_files, put_many, values
from foldlog.errors import UnknownPartition, UnknownTopic


@pytest.mark.parametrize("start", [0, 1, 17, 99, 499])
def test_reading_from_an_offset_gives_exactly_what_is_at_and_after_it(log: foldlog.Log, start: int) -> None:
    log.create_topic("orders", partitions=1)
    put_many(log, "orders", numbered(500))
    records = list(log.read("orders", 0, start=start))
    assert offsets(records) == list(range(start, 500))
    assert values(records) == numbered(500 - start, first=start)


@pytest.mark.parametrize("count", [1, 3, 100])
def test_a_reader_takes_as_many_as_it_asks_for(log: foldlog.Log, count: int) -> None:
    log.create_topic("orders", partitions=1)
    put_many(log, "orders", numbered(100))
    assert values(log.read("orders", 0, start=0, max_records=count)) == numbered(count)


def test_a_read_in_the_middle_of_a_batch_starts_at_the_record_asked_for(log: foldlog.Log) -> None:
    log.create_topic("orders", partitions=1)
    with log.producer(linger_ms=60_000, batch_records=50, compression="zstd") as producer:
        producer.send_batch("orders", [{"value": value} for value in numbered(50)])
        producer.flush()
    assert values(log.read("orders", 0, start=31, max_records=2)) == [b"31", b"32"]


def test_reading_removes_nothing(log: foldlog.Log, directory: Path) -> None:
    log.create_topic("orders", partitions=1)
    put_many(log, "orders", numbered(50))
    before = [file.read_bytes() for file in partition_files(directory, "orders", ".log")]
    first = list(log.read("orders", 0))
    second = list(log.read("orders", 0))
    assert first == second
    assert log.offsets("orders") == {0: (0, 50)}
    assert [file.read_bytes() for file in partition_files(directory, "orders", ".log")] == before


def test_reading_at_the_end_finds_nothing_and_is_no_error(log: foldlog.Log) -> None:
    log.create_topic("orders", partitions=1)
    assert list(log.read("orders", 0)) == []
    put_many(log, "orders", numbered(3))
    assert list(log.read("orders", 0, start=3)) == []


def test_a_read_crosses_from_segment_to_segment(log: foldlog.Log, directory: Path) -> None:
    log.create_topic("orders", partitions=1, config={"foldlog.segment.records": 7})
    for number in range(40):
        log.append("orders", b"%d" % number)
    assert len(partition_files(directory, "orders", ".log")) == 6
    for start in range(40):
        assert values(log.read("orders", 0, start=start)) == numbered(40 - start, first=start)


def test_what_does_not_exist_cannot_be_read(log: foldlog.Log) -> None:
    log.create_topic("orders", partitions=2)
    with pytest.raises(UnknownTopic):
        list(log.read("refunds", 0))
    with pytest.raises(UnknownPartition):
        list(log.read("orders", 2))


@pytest.mark.parametrize("compression", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_what_was_written_is_read_back_whatever_the_compression(log: foldlog.Log, compression: str) -> None:
    log.create_topic("orders", partitions=1)
    with log.producer(compression=compression) as producer:
        producer.send_batch("orders", [{"value": value, "key": b"k"} for value in numbered(300)])
    records = list(log.read("orders", 0))
    assert values(records) == numbered(300)
    assert {record.key for record in records} == {b"k"}


def test_a_table_holds_the_same_records_as_a_read(log: foldlog.Log) -> None:
    log.create_topic("orders", partitions=2)
    put_many(log, "orders", numbered(20), partition=0)
    put_many(log, "orders", numbered(20, first=20), partition=1)
    table = log.read_arrow("orders", start={0: 14}, columns=["offset", "value"])
    expected = values(log.read("orders", 0, start=14))
    assert table.column_names == ["offset", "value"]
    assert table["value"].to_pylist()[:6] == expected
    assert table["offset"].to_pylist()[:6] == list(range(14, 20))
