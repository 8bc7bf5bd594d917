"""Segments: a partition is a directory of files named by their first offset; only the newest grows."""

from __future__ import annotations

from pathlib import Path

import foldlog
from behaviours.steps import numbered, partition_files, put_many, values


def append_one_by_one(log: foldlog.Log, topic: str, count: int) -> None:
    with log.producer(linger_ms=0, batch_records=1) as producer:
        for value in numbered(count):
            producer.send(topic, value=value)


def test_a_partition_is_a_directory_of_its_own(log: foldlog.Log, directory: Path) -> None:
    log.create_topic("orders", partitions=3)
    assert sorted(path.name for path in directory.glob("orders-*")) == ["orders-0", "orders-1", "orders-2"]


def test_a_segment_is_named_by_its_first_offset_and_has_its_index(directory: Path) -> None:
    with foldlog.open(str(directory)) as log:
        log.create_topic("orders", partitions=1, config={"foldlog.segment.records": 1000})
        append_one_by_one(log, "orders", 2500)
    names = [file.name for file in partition_files(directory, "orders", ".log")]
    assert names == ["00000000000000000000.log", "00000000000000001000.log", "00000000000000002000.log"]
    # The active segment's is in memory until it rolls or the log closes.
    assert [file.stem for file in partition_files(directory, "orders", ".index")] == [name[:-4] for name in names]


def test_a_segment_rolls_at_its_size(log: foldlog.Log, directory: Path) -> None:
    log.create_topic("orders", partitions=1, config={"segment.bytes": 2048})
    append_one_by_one(log, "orders", 200)
    files = partition_files(directory, "orders", ".log")
    assert len(files) > 3
    assert all(file.stat().st_size <= 2048 for file in files)
    assert values(log.read("orders", 0)) == numbered(200)


def test_only_the_newest_segment_grows(log: foldlog.Log, directory: Path) -> None:
    log.create_topic("orders", partitions=1, config={"foldlog.segment.records": 10})
    append_one_by_one(log, "orders", 25)
    sealed = {file: file.read_bytes() for file in partition_files(directory, "orders", ".log")[:-1]}
    append_one_by_one(log, "orders", 25)
    assert len(sealed) == 2
    for file, data in sealed.items():
        assert file.read_bytes() == data


def test_segments_meet_without_gap_or_overlap(log: foldlog.Log, directory: Path) -> None:
    log.create_topic("orders", partitions=1, config={"segment.bytes": 4096})
    put_many(log, "orders", numbered(1000))
    put_many(log, "orders", numbered(1000, first=1000))
    bases = [int(file.stem) for file in partition_files(directory, "orders", ".log")]
    assert bases[0] == 0
    for base in bases[1:]:
        assert values(log.read("orders", 0, start=base - 1, max_records=2)) == numbered(2, first=base - 1)
