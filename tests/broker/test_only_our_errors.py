"""Whatever a disk refuses, and whatever stands in the directory, users get a FoldlogError: no OSError, no struct.error.

Every file operation of a call fails in turn, in four ways; and every file of a log is replaced by rubbish in turn.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator

import pytest

from broker.small_broker import DIRECTORY, open_broker
from foldlog.broker.broker import Broker
from foldlog.broker.groups.committed import OffsetAndMetadata
from foldlog.errors import FoldlogError, OffsetOutOfRange, StorageError, StorageFull, UnknownGroup
from foldlog.files.memory import DirectoryNode, FileNode, MemoryFiles
from foldlog.log.partition import Partition
from foldlog.records.loops import decode, pack
from foldlog.testing.faulty_files import NO_FAULT, Fault, FaultyFiles

ERRORS = [errno.EIO, errno.ENOSPC, errno.EACCES, errno.EMFILE]
TOLD_APART = [
    errno.EIO,
    errno.ENOSPC,
    *(pytest.param(number, marks=pytest.mark.faults) for number in (errno.EACCES, errno.EMFILE)),
]
"""For every call: a full disk, and any other error. Opening a log meets all of them in every run."""
RUBBISH = [b"", b"\0" * 600, b"\xff\xfe" * 300, b"{}", b"0\n1\n", b"[" * 100_000, b"9" * 5000]
READ_RUBBISH = (RUBBISH[1], RUBBISH[3], RUBBISH[5])
"""What readers meet in every run, and not only who writes."""


def partition(broker: Broker, topic: str = "orders") -> Partition:
    return broker.writable_partition(topic, 0)


def append(broker: Broker) -> None:
    log = partition(broker)
    log.wait_acknowledged(log.append(pack([(5, b"k", b"v", ())])).next_offset)


def read(broker: Broker) -> None:
    log = broker.partition("orders", 0)
    decode(log.read(0).data, "orders", 0)
    log.offset_at_time(3)


CALLS: dict[str, Callable[[Broker], object]] = {
    "create": lambda broker: broker.create_topic("new", 3),
    "grow": lambda broker: broker.grow_topic("orders", 3),
    "alter": lambda broker: broker.alter_topic("orders", {"retention.ms": 7}),
    "delete": lambda broker: broker.delete_topic("orders"),
    "append": append,
    "roll": lambda broker: partition(broker).roll(),
    "read": read,
    "commit": lambda broker: broker.commit_offsets("readers", {("orders", 0): OffsetAndMetadata(1)}),
    "compact": lambda broker: broker.compact("orders"),
    "recompress": lambda broker: broker.recompress("orders", "zstd"),
    "delete records": lambda broker: partition(broker).delete_records(1),
    "producer id": lambda broker: broker.allocate_producer_id(),
    "delete group": lambda broker: broker.delete_group("others"),
    "close": lambda broker: broker.close(),
}


def prepared() -> tuple[MemoryFiles, FaultyFiles]:
    disk = MemoryFiles()
    files = FaultyFiles(disk)
    with open_broker(files) as broker:
        broker.create_topic("orders", 1, {"segment.bytes": 1024})
        for _ in range(3):
            append(broker)
            partition(broker).roll()
    return disk, files


def names(files: MemoryFiles) -> set[str]:
    return {entry.name for entry in files.entries(DIRECTORY)}


@pytest.mark.parametrize("error", ERRORS)
def test_an_open_that_a_disk_refuses_is_an_error_of_ours(error: int) -> None:
    for is_new in (True, False):
        number, failed = 0, 1
        while failed:
            files = FaultyFiles(MemoryFiles()) if is_new else prepared()[1]
            files.fault = Fault.at(len(files.operations) + number, error)
            try:
                open_broker(files).close()
            except FoldlogError:
                pass
            failed = len(files.failed)
            number += 1
            files.fault = NO_FAULT
            open_broker(files).close()
        assert number > 1 + 3 * is_new


@pytest.mark.parametrize("error", TOLD_APART)
@pytest.mark.parametrize("name", sorted(CALLS))
def test_a_call_that_a_disk_refuses_is_an_error_of_ours(name: str, error: int) -> None:
    number, failed = 0, 1
    while failed:
        _, files = prepared()
        broker = open_broker(files)
        if name not in ("append", "commit"):
            append(broker)
        files.fault = Fault.at(len(files.operations) + number, error)
        try:
            CALLS[name](broker)
        except (StorageError, UnknownGroup):
            pass
        failed = len(files.failed)
        number += 1
        files.fault = NO_FAULT
        try:
            broker.close()
        except FoldlogError:
            continue
        open_broker(files).close()


@pytest.mark.parametrize("error", TOLD_APART)
def test_a_topic_that_could_not_be_made_leaves_no_directories(error: int) -> None:
    """The catalog is what makes a topic: what was made before it goes again. What was there before stays."""
    for call, topic in ((CALLS["create"], "new"), (CALLS["grow"], "orders")):
        number, failed = 0, 1
        while failed:
            disk, files = prepared()
            with open_broker(files) as broker:
                append(broker)
                before = names(disk)
                files.fault = Fault.at(len(files.operations) + number, error)
                try:
                    call(broker)
                except FoldlogError:
                    files.fault = NO_FAULT
                    left = {name for name in names(disk) - before if not name.endswith(".tmp")}
                    assert not left, (files.failed, left)
                failed = len(files.failed)
                number += 1
                files.fault = NO_FAULT
                if topic not in broker.topics() or broker.topic(topic).partition_count == 1:
                    call(broker)
            with open_broker(files) as broker:
                assert broker.warnings() == []
                assert broker.topic(topic).partition_count == 3
        assert number > 5


def test_a_directory_of_others_in_the_way_of_a_new_topic_stays_as_it_is() -> None:
    disk, files = prepared()
    disk.make_directory(f"{DIRECTORY}/new-1")
    disk.open(f"{DIRECTORY}/new-1/notes.txt", write=True, create=True).write(0, [b"mine"])
    with open_broker(files) as broker:
        with pytest.raises(StorageError, match=r"notes\.txt"):
            CALLS["create"](broker)
        assert "new-0" not in names(disk)
        assert disk.open(f"{DIRECTORY}/new-1/notes.txt").read(0, 9) == b"mine"


def test_groups_on_a_full_disk_are_told_that_it_is_full() -> None:
    _, files = prepared()
    with open_broker(files) as broker:
        files.fault = Fault.full_from(len(files.operations))
        with pytest.raises(StorageFull):
            CALLS["commit"](broker)
        files.fault = NO_FAULT
        CALLS["commit"](broker)
        assert broker.committed("readers")["orders", 0].offset == 1


def test_a_log_that_is_removed_under_a_reader_is_an_error_of_ours() -> None:
    for name in ("catalog.json", "orders-0/00000000000000000000.log", "orders-0/leader-epoch-checkpoint"):
        disk, _ = prepared()
        with open_broker(disk, mode="r") as broker:
            broker.topics()
            disk.unlink(f"{DIRECTORY}/{name}")
            for call in (Broker.look_again, read, Broker.overview):
                try:
                    call(broker)
                except StorageError as error:
                    assert DIRECTORY in str(error)  # noqa: PT017 any of them may answer
                except OffsetOutOfRange as error:
                    assert "removed by hand" in str(error)  # noqa: PT017 the first segment, that is


def each_file(node: DirectoryNode, path: str) -> Iterator[tuple[str, FileNode]]:
    for name, child in sorted(node.names.items()):
        if isinstance(child, DirectoryNode):
            yield from each_file(child, f"{path}/{name}")
        else:
            yield f"{path}/{name}", child


def full_log() -> MemoryFiles:
    disk, files = prepared()
    with open_broker(files) as broker:
        append(broker)
        partition(broker).append(pack([(6, None, b"v", ())], producer_id=3, producer_epoch=0, base_sequence=0))
        CALLS["commit"](broker)
        CALLS["producer id"](broker)
    return disk


def use(files: MemoryFiles, mode: str) -> None:
    with open_broker(files, mode=mode) as broker:
        broker.topics()
        calls: list[Callable[[Broker], object]] = [
            read,
            lambda broker: broker.committed("readers"),
            lambda broker: broker.overview(),
        ]
        if mode == "w":
            calls += [append, CALLS["commit"], CALLS["producer id"], CALLS["compact"], CALLS["create"]]
        for call in calls:
            try:
                call(broker)
            except FoldlogError:
                continue


@pytest.mark.parametrize(
    ("rubbish", "mode"),
    [
        pytest.param(rubbish, mode, marks=[pytest.mark.faults] if mode == "r" and rubbish not in READ_RUBBISH else [])
        for rubbish in RUBBISH
        for mode in ("w", "r")
    ],
)
def test_rubbish_in_any_file_is_an_error_of_ours_or_harmless(rubbish: bytes, mode: str) -> None:
    paths = [path for path, _ in each_file(full_log().root, "")]
    assert len(paths) > 15
    for path in paths:
        for content in (rubbish, None):
            disk = full_log()
            node = disk.find(path)
            assert isinstance(node, FileNode)
            data = node.writable()
            if content is None:
                data[len(data) // 2 :] = rubbish[: len(data)]  # its second half only
            else:
                data[:] = content
            try:
                use(disk, mode)
            except FoldlogError:
                continue


@pytest.mark.parametrize("mode", ["w", "r"])
def test_a_directory_in_the_place_of_any_file_is_an_error_of_ours(mode: str) -> None:
    for path, _ in each_file(full_log().root, ""):
        disk = full_log()
        disk.unlink(path)
        disk.make_directory(path)
        try:
            use(disk, mode)
        except FoldlogError:
            continue
