"""What a directory remembers: topics, settings, partitions, records and bookmarks, all as they were."""

from __future__ import annotations

from pathlib import Path

import pytest

import foldlog
from behaviours.steps import numbered, partition_files, poll_records, put, put_many, values
from foldlog.errors import DirectoryLocked, ReadOnly, UnknownTopic


def test_topics_and_their_records_are_there_after_a_restart(directory: Path) -> None:
    with foldlog.open(str(directory)) as log:
        log.create_topic("orders", partitions=2)
        log.create_topic("refunds", partitions=1)
        put(log, "orders", b"v", key=b"k", headers=[("h", b"1")], partition=1, timestamp_ms=1_736_937_000_000)
        before = list(log.read("orders", 1))
    with foldlog.open(str(directory)) as log:
        assert log.offsets("orders") == {0: (0, 0), 1: (0, 1)}
        assert log.offsets("refunds") == {0: (0, 0)}
        assert list(log.read("orders", 1)) == before


def test_a_log_in_memory_behaves_the_same_and_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with foldlog.open(":memory:") as log:
        log.create_topic("orders", partitions=1, config={"foldlog.segment.records": 10})
        put_many(log, "orders", numbered(55))
        assert values(log.read("orders", 0, start=50)) == numbered(5, first=50)
        with log.consumer(["orders"], group="g", auto_offset_reset="earliest") as consumer:
            assert len(poll_records(consumer, 55)) == 55
    assert list(tmp_path.iterdir()) == []
    with foldlog.open(":memory:") as log, pytest.raises(UnknownTopic):
        log.offsets("orders")


def test_a_directory_has_one_writer(log: foldlog.Log, directory: Path) -> None:
    with pytest.raises(DirectoryLocked):
        foldlog.open(str(directory))


def test_a_log_opened_for_reading_cannot_be_written(log: foldlog.Log, directory: Path) -> None:
    log.create_topic("orders", partitions=1)
    put_many(log, "orders", numbered(3))
    with foldlog.open(str(directory), mode="r") as reader:
        assert values(reader.read("orders", 0)) == numbered(3)
        with pytest.raises(ReadOnly):
            reader.append("orders", b"x")
    assert log.offsets("orders") == {0: (0, 3)}


def test_a_topic_is_one_name_and_cannot_leave_its_directory(log: foldlog.Log, directory: Path) -> None:
    before = sorted(directory.parent.rglob("*"))
    for name in ("", ".", "..", "../evil", "a/b", "a\x00b", "x" * 250):
        with pytest.raises(foldlog.errors.FoldlogError):
            log.create_topic(name, partitions=1)
    assert sorted(directory.parent.rglob("*")) == before
    assert not partition_files(directory, "..", ".log")
