"""Who watches a log sees every partition as it stands and every sync, and opens nothing by looking.

The same directory is looked at while partitions are open, after a restart, beside its writer, and with a damaged and
a poisoned partition in it.
"""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from foldlog.broker.broker import Broker
from foldlog.errors import CorruptLog, LogClosed, PartitionPoisoned, ReadOnly
from foldlog.files.memory import MemoryFiles
from foldlog.log.partition import Partition
from foldlog.records.loops import BatchBuilder
from foldlog.testing.faulty_files import Fault, FaultyFiles, Kind


def batch(*values: bytes) -> bytearray:
    builder = BatchBuilder(1 << 20)
    for value in values:
        builder.append(1_700_000_000_000, None, value)
    return builder.build()


def append(broker: Broker, topic: str, number: int, *values: bytes) -> None:
    partition = broker.partition(topic, number)
    assert isinstance(partition, Partition)
    partition.wait_acknowledged(partition.append(batch(*values)).next_offset)


def test_open_partitions_show_their_offsets_and_sizes() -> None:
    with Broker.open(":memory:", background=False) as broker:
        broker.create_topic("orders", 2)
        append(broker, "orders", 1, b"a", b"b", b"c")
        first, second = broker.overview()
        assert (first.topic, first.number, first.is_open, first.log_end_offset) == ("orders", 0, False, 0)
        assert (second.number, second.is_open, second.segment_count) == (1, True, 1)
        assert (second.log_start_offset, second.log_end_offset, second.high_watermark) == (0, 3, 3)
        assert second.size_bytes == broker.partition("orders", 1).size_bytes > 0
        assert not second.is_poisoned
        assert second.refusal is None


def test_after_a_restart_the_offsets_are_known_and_nothing_is_opened(tmp_path: Path) -> None:
    with Broker.open(str(tmp_path), background=False) as broker:
        broker.create_topic("orders", 1)
        append(broker, "orders", 0, b"a", b"b", b"c")
        partition = broker.partition("orders", 0)
        assert isinstance(partition, Partition)
        partition.roll()
        partition.delete_records(2)
    for mode in ("w", "r"):
        with Broker.open(str(tmp_path), background=False, mode=mode) as broker:
            (found,) = broker.overview()
            assert (found.log_start_offset, found.high_watermark, found.log_end_offset) == (2, 3, 3)
            assert not found.is_open
            assert broker.opened_partitions() == []


def test_a_reading_process_sees_the_sizes_of_what_it_has_open(tmp_path: Path) -> None:
    with Broker.open(str(tmp_path), background=False) as writer:
        writer.create_topic("orders", 1)
        append(writer, "orders", 0, b"a")
        with Broker.open(str(tmp_path), background=False, mode="r") as reader:
            reader.partition("orders", 0)
            (found,) = reader.overview()
            assert found.size_bytes == writer.partition("orders", 0).size_bytes
            with pytest.raises(ReadOnly):
                reader.watch_syncs(None)


def test_a_refused_partition_tells_why_and_the_others_go_on(tmp_path: Path) -> None:
    with Broker.open(str(tmp_path), background=False) as broker:
        broker.create_topic("orders", 2)
        append(broker, "orders", 0, b"a")
    next((tmp_path / "orders-0").glob("*.log")).unlink()
    with Broker.open(str(tmp_path), background=False) as broker:
        with pytest.raises(CorruptLog):
            broker.partition("orders", 0)
        first, second = broker.overview()
        assert first.refusal is not None
        assert str(tmp_path / "orders-0") in str(first.refusal)
        assert second.refusal is None


def test_a_partition_whose_sync_failed_is_poisoned() -> None:
    files = FaultyFiles(MemoryFiles())
    with Broker.open("data", files=files, background=False) as broker:
        broker.create_topic("orders", 1)
        append(broker, "orders", 0, b"a")
        files.fault = Fault(lambda operation: errno.EIO if operation.kind is Kind.SYNC else 0)
        with pytest.raises(PartitionPoisoned):
            append(broker, "orders", 0, b"b")
        (found,) = broker.overview()
        assert found.is_poisoned


def test_every_sync_is_told_with_what_it_made_durable() -> None:
    with Broker.open(":memory:", background=False) as broker:
        broker.create_topic("orders", 1)
        told: list[tuple[float, int, int]] = []
        broker.watch_syncs(lambda seconds, size_bytes, records: told.append((seconds, size_bytes, records)))
        first, second = batch(b"a", b"b"), batch(b"c")
        partition = broker.partition("orders", 0)
        assert isinstance(partition, Partition)
        for data in (first, second):
            partition.append(data)
        partition.sync()
        partition.sync()  # nothing is left to do
        partition.append(batch(b"d"))
        partition.roll()
        append(broker, "orders", 0, b"e")
        assert [row[1:] for row in told] == [
            (len(first) + len(second), 3),
            (len(batch(b"d")), 1),
            (len(batch(b"e")), 1),
        ]
        assert all(seconds >= 0 for seconds, _, _ in told)
        broker.watch_syncs(None)
        append(broker, "orders", 0, b"f")
        assert len(told) == 3


def test_a_closed_log_gives_no_overview() -> None:
    broker = Broker.open(":memory:", background=False)
    broker.close()
    with pytest.raises(LogClosed):
        broker.overview()
