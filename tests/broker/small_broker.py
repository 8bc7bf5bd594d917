"""A broker without a background, with a clock of its own: what the tests of the broker room share."""

from __future__ import annotations

from foldlog.broker.broker import Broker
from foldlog.broker.groups.committed import OffsetAndMetadata
from foldlog.broker.storage import WrittenStorage
from foldlog.broker.topics.config import DEFAULT_CONFIG
from foldlog.files.base import Files
from foldlog.files.memory import FileNode, MemoryFiles
from foldlog.log.partition import Partition
from foldlog.records.loops import decode, pack
from foldlog.testing.sim_clock import SimClock

DIRECTORY = "data"


def die(files: MemoryFiles) -> None:
    """What the kernel does when the process that writes the directory is killed: its locks are free."""
    for name in (".lock", "checkpoint"):
        node = files.find(f"{DIRECTORY}/{name}")
        assert isinstance(node, FileNode)
        node.is_locked = False


def open_broker(files: Files, clock: SimClock | None = None, *, mode: str = "w") -> Broker:
    return Broker.open(DIRECTORY, files=files, clock=clock or SimClock(), mode=mode, background=False)


def writable(broker: Broker, topic: str, number: int = 0) -> Partition:
    partition = broker.partition(topic, number)
    assert isinstance(partition, Partition)
    return partition


def write(broker: Broker, topic: str, number: int, *values: bytes, key: bytes | None = None) -> int:
    """Append one batch, wait until it is acknowledged; the next offset."""
    partition = writable(broker, topic, number)
    appended = partition.append(pack([(broker.clock.now_ms(), key, value, ()) for value in values]))
    partition.wait_acknowledged(appended.next_offset)
    return appended.next_offset


def read(broker: Broker, topic: str, number: int = 0) -> list[bytes]:
    """All values of a partition."""
    partition = broker.partition(topic, number)
    values: list[bytes] = []
    offset = partition.log_start_offset
    while True:
        data, next_offset, _ = partition.read(offset)
        if next_offset == offset:
            return values
        values += [record.value for record in decode(data, topic, number, start_offset=offset)[0]]
        offset = next_offset


def make_own_topic(broker: Broker, name: str) -> None:
    """A topic that only the log itself may make, without what keeps others from it."""
    assert isinstance(broker._storage, WrittenStorage)
    broker._storage.changes.create(name, 1, DEFAULT_CONFIG)


def at(offset: int, metadata: str = "") -> OffsetAndMetadata:
    return OffsetAndMetadata(offset, metadata=metadata)
