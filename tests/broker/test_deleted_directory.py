"""Files that are deleted under a running log: nothing is acknowledged that nobody will find again.

On real files: the operating system keeps a deleted file for who has it open, and takes every write to it.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from foldlog.broker.broker import Broker
from foldlog.errors import PartitionPoisoned, StorageError
from foldlog.log.partition import Partition
from foldlog.records.loops import pack


def append(partition: Partition, value: bytes) -> None:
    partition.wait_acknowledged(partition.append(pack([(0, None, value, ())])).next_offset)


def open_partition(broker: Broker) -> Partition:
    partition = broker.writable_partition("orders", 0)
    append(partition, b"kept")
    return partition


def test_a_record_is_not_acknowledged_once_its_file_is_deleted(tmp_path: Path) -> None:
    with Broker.open(str(tmp_path / "data"), background=False) as broker:
        broker.create_topic("orders")
        partition = open_partition(broker)
        log_file = tmp_path / "data" / "orders-0" / "00000000000000000000.log"
        log_file.unlink()
        with pytest.raises(PartitionPoisoned, match=r"deleted under the log.*00000000000000000000\.log"):
            append(partition, b"lost")
        with pytest.raises(PartitionPoisoned, match="deleted under the log"):
            partition.append(pack([(0, None, b"more", ())]))
        assert (partition.is_poisoned, partition.durable_offset) == (True, 1)


def test_a_topic_is_not_created_in_a_directory_that_was_deleted(tmp_path: Path) -> None:
    broker = Broker.open(str(tmp_path / "data"), background=False)
    broker.create_topic("orders")
    partition = open_partition(broker)
    shutil.rmtree(tmp_path / "data")
    with pytest.raises(StorageError, match="deleted under the log"):
        broker.create_topic("payments")
    with pytest.raises(PartitionPoisoned):
        append(partition, b"lost")
    assert broker.topics() == ["orders"]
    assert not (tmp_path / "data").exists()
    with pytest.raises(StorageError, match="deleted under the log"):
        broker.close()
