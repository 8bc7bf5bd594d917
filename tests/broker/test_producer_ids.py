"""Producer ids: each is given out once for ever. Through restarts, kill -9, power cuts after every file operation, a
disk that fails at every operation, and topics that came from another directory with producers of their own.
"""

from __future__ import annotations

import errno
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from broker.small_broker import DIRECTORY, open_broker, writable
from faults.processes import child, next_line
from foldlog.broker import producer_ids
from foldlog.broker.broker import Broker
from foldlog.broker.producer_ids import FOREIGN_ID_MAX, PRODUCER_IDS_NAME
from foldlog.errors import CorruptLog, LogClosed, ReadOnly, StorageError
from foldlog.files.base import Files, read_file
from foldlog.files.memory import MemoryFiles
from foldlog.limits import PRODUCER_ID_BLOCK
from foldlog.log.partition import Partition
from foldlog.records.loops import pack
from foldlog.testing.faulty_files import NO_FAULT, Fault, FaultyFiles
from foldlog.testing.power_cuts import PowerCuts, Violation
from foldlog.testing.power_loss import DiskImage, PowerLossFiles

PATH = f"{DIRECTORY}/{PRODUCER_IDS_NAME}"

TAKE = """
from foldlog.broker.broker import Broker
broker = Broker.open(sys.argv[1])
while True:
    say(str(broker.allocate_producer_id()))
"""


def send(partition: Partition, producer_id: int, sequence: int = 0) -> None:
    batch = pack([(0, None, b"v", ())], producer_id=producer_id, producer_epoch=0, base_sequence=sequence)
    partition.wait_acknowledged(partition.append(batch, foreign=True).next_offset)


def test_ids_are_counted_up_from_zero() -> None:
    with open_broker(MemoryFiles()) as broker:
        taken = [broker.allocate_producer_id() for _ in range(2 * PRODUCER_ID_BLOCK + 1)]
    assert taken == list(range(2 * PRODUCER_ID_BLOCK + 1))


def test_a_restart_goes_on_after_the_last_block() -> None:
    files = MemoryFiles()
    for run in range(3):
        with open_broker(files) as broker:
            assert broker.allocate_producer_id() == run * PRODUCER_ID_BLOCK


def test_opening_a_log_takes_no_ids_and_writes_no_file() -> None:
    files = MemoryFiles()
    open_broker(files).close()
    assert not files.exists(PATH)


def test_a_killed_process_leaves_no_id_to_be_given_out_again(tmp_path: Path) -> None:
    path, taken = str(tmp_path / "data"), set[int]()
    for _ in range(2):
        with child(TAKE, path) as process:
            ids = [int(next_line(process)) for _ in range(PRODUCER_ID_BLOCK + 20)]
            process.kill()
            process.wait()
        assert taken.isdisjoint(ids)
        taken.update(ids)
    with Broker.open(path) as broker:
        # What the child took after this process stopped listening is below the end of its last block.
        assert broker.allocate_producer_id() > max(taken)


def test_many_threads_get_different_ids() -> None:
    with open_broker(MemoryFiles()) as broker, ThreadPoolExecutor(8) as threads:
        taken = list(threads.map(lambda _: broker.allocate_producer_id(), range(3 * PRODUCER_ID_BLOCK)))
    assert sorted(taken) == list(range(3 * PRODUCER_ID_BLOCK))


def test_who_must_not_wait_is_served_from_the_block_at_hand_and_refused_without_one() -> None:
    with open_broker(MemoryFiles()) as broker:
        with pytest.raises(BlockingIOError):
            broker.allocate_producer_id(nowait=True)
        assert broker.allocate_producer_id() == 0
        assert [broker.allocate_producer_id(nowait=True) for _ in range(3)] == [1, 2, 3]
        for _ in range(PRODUCER_ID_BLOCK - 4):
            broker.allocate_producer_id(nowait=True)
        with pytest.raises(BlockingIOError):
            broker.allocate_producer_id(nowait=True)
        assert broker.allocate_producer_id() == PRODUCER_ID_BLOCK


def test_ids_of_topics_that_came_from_elsewhere_are_not_given_out() -> None:
    files = MemoryFiles()
    with open_broker(files) as broker:
        broker.create_topic("copied", 2)
        broker.create_topic("plain")
        send(writable(broker, "copied", 1), 4711)
        send(writable(broker, "copied", 0), 12)
        send(writable(broker, "copied", 0), FOREIGN_ID_MAX + 1)
    with open_broker(files) as broker:
        assert broker.allocate_producer_id() == 4712


def test_a_damaged_topic_keeps_nobody_from_getting_an_id() -> None:
    files = MemoryFiles()
    with open_broker(files) as broker:
        broker.create_topic("damaged")
        broker.create_topic("sound")
        send(writable(broker, "damaged"), 100)
        send(writable(broker, "sound"), 7)
    files.open(f"{DIRECTORY}/damaged-0/{0:020d}.log", write=True).truncate(3)
    with open_broker(files) as broker:
        assert broker.allocate_producer_id() == 8
        assert any("damaged-0" in warning for warning in broker.warnings())


@pytest.mark.parametrize("damaged", [b"", b"next id: 7\n", b"next id: 5000\ncrc32c: 00000000\n", b"\x00" * 40])
def test_a_damaged_file_is_refused_and_says_the_way_out(damaged: bytes) -> None:
    files = MemoryFiles()
    with open_broker(files) as broker:
        broker.create_topic("a")
        send(writable(broker, "a"), broker.allocate_producer_id())
    file = files.open(PATH, write=True)
    file.truncate(0)
    file.write(0, [damaged])
    with open_broker(files) as broker:
        for _ in range(2):
            with pytest.raises(CorruptLog, match="remove the file"):
                broker.allocate_producer_id()
        files.unlink(PATH)
        assert broker.allocate_producer_id() == 1


def test_only_an_open_writer_gives_out_ids() -> None:
    files = MemoryFiles()
    broker = open_broker(files)
    with open_broker(files, mode="r") as reader, pytest.raises(ReadOnly):
        reader.allocate_producer_id()
    broker.allocate_producer_id()
    storage = broker._storage
    broker.close()
    with pytest.raises(LogClosed):
        broker.allocate_producer_id()
    with pytest.raises(LogClosed):
        storage.producer_ids.allocate()  # type: ignore[attr-defined]  # a call that was under way when it was closed


@pytest.mark.parametrize("number", [errno.EIO, errno.ENOSPC])
def test_a_disk_that_fails_at_any_step_repeats_no_id(number: int) -> None:
    files = FaultyFiles(MemoryFiles())
    broker = open_broker(files)
    taken = [broker.allocate_producer_id() for _ in range(PRODUCER_ID_BLOCK)]
    failures = 0
    for step in range(10):
        first = len(files.operations)
        files.fault = Fault.at(first + step, number)
        try:
            taken.append(broker.allocate_producer_id())
        except StorageError:
            failures += 1
        files.fault = NO_FAULT
        taken += [broker.allocate_producer_id() for _ in range(PRODUCER_ID_BLOCK)]
        while True:
            try:
                taken.append(broker.allocate_producer_id(nowait=True))
            except BlockingIOError:
                break
    assert failures >= 4, "truncate, write, sync, rename and sync of the directory"
    broker.close()
    with open_broker(files) as broker:
        taken.append(broker.allocate_producer_id())
    assert len(set(taken)) == len(taken)


class Taken:
    """Ids that were given out; no disk that a cut leaves may give one of them out again."""

    def __init__(self) -> None:
        self.largest = -1
        self.version = 0

    def check(self, image: DiskImage) -> None:
        with open_broker(image.files()) as broker:
            assert broker.allocate_producer_id() > self.largest


def take_under_cuts() -> int:
    taken = Taken()
    cuts = PowerCuts(taken.check, seed=1, mixes=2, promises=lambda: taken.version)
    files = cuts.attach(PowerLossFiles())
    for _ in range(2):
        with open_broker(files) as broker:
            for _ in range(2 * PRODUCER_ID_BLOCK):
                taken.largest = broker.allocate_producer_id()
                if taken.largest % PRODUCER_ID_BLOCK == 0:
                    taken.version += 1
    return cuts.finish()


def test_a_power_cut_leaves_no_id_to_be_given_out_again() -> None:
    assert take_under_cuts() > 20


def replace_lazily(files: Files, path: str, data: bytes) -> None:
    file = files.open(path, write=True, create=True)
    file.write(0, [data])
    file.close()


def test_the_cuts_find_a_file_that_is_not_synced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(producer_ids, "replace_file", replace_lazily)
    with pytest.raises((Violation, CorruptLog)):
        take_under_cuts()


def test_the_file_is_text_that_a_person_can_read() -> None:
    files = MemoryFiles()
    with open_broker(files) as broker:
        broker.allocate_producer_id()
    assert read_file(files, PATH).startswith(b"next id: 1000\ncrc32c: ")
