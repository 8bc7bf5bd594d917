"""Durability: one sync serves all who wait, nobody is told too early, a relaxed topic is told at once."""

from __future__ import annotations

import errno
import threading

import pytest

from foldlog.errors import FoldlogError, InvalidArgument, LogClosed, PartitionPoisoned, StorageError, StorageFull
from foldlog.files.base import File
from foldlog.files.memory import MemoryFile, MemoryFiles
from foldlog.log import durability
from foldlog.log.checkpoint import Slot, SlotState
from foldlog.log.durability import Turns
from foldlog.records.batch import Compression
from foldlog.records.loops import pack
from foldlog.testing.faulty_files import Fault, FaultyFiles, Kind
from log.small_partition import SmallPartition, read_all


class GatedSync:
    """Holds every sync of a .log file until it is let go, and counts them."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.count = 0
        self.entered = threading.Semaphore(0)
        self.gate = threading.Semaphore(0)
        self.armed = False
        plain = MemoryFile.sync

        def sync(file: File) -> None:
            if self.armed:
                self.count += 1
                self.entered.release()
                self.gate.acquire()
            plain(file)  # type: ignore[arg-type]

        monkeypatch.setattr(MemoryFile, "sync", sync)


def append(small: SmallPartition, value: bytes) -> int:
    return small.partition.append(pack([(0, None, value, ())])).next_offset


def test_those_who_come_during_a_sync_share_the_next_one(monkeypatch: pytest.MonkeyPatch) -> None:
    small = SmallPartition()
    sync = GatedSync(monkeypatch)
    sync.armed = True
    first = threading.Thread(target=small.partition.wait_acknowledged, args=(append(small, b"first"),))
    first.start()
    sync.entered.acquire()
    appended = threading.Barrier(51)

    def late(number: int) -> None:
        offset = append(small, b"late %d" % number)
        appended.wait()
        small.partition.wait_acknowledged(offset)

    others = [threading.Thread(target=late, args=(number,)) for number in range(50)]
    for thread in others:
        thread.start()
    appended.wait()
    assert small.partition.high_watermark == 0
    sync.gate.release(2)
    for thread in [first, *others]:
        thread.join()
    assert sync.count == 2
    assert len(read_all(small.partition)) == 51


def test_who_was_served_does_not_wait_for_the_next_sync(monkeypatch: pytest.MonkeyPatch) -> None:
    small = SmallPartition()
    sync = GatedSync(monkeypatch)
    sync.armed = True
    offsets = [append(small, b"a"), append(small, b"b")]
    served = [threading.Thread(target=small.partition.wait_acknowledged, args=(offset,)) for offset in offsets]
    for thread in served:
        thread.start()
    sync.entered.acquire()
    late = threading.Thread(target=small.partition.wait_acknowledged, args=(append(small, b"late"),))
    late.start()
    sync.gate.release()
    sync.entered.acquire()  # the second sync runs, and is held
    for thread in served:
        thread.join()
    sync.gate.release()
    late.join()
    assert sync.count == 2


def never() -> int:
    return 0


def test_the_leader_waits_for_those_whom_the_last_sync_served(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(durability, "_GATHER_MAX_S", 60.0)  # nobody waits so long: they come
    turns, offset = Turns(), 0
    leads: list[bool] = []

    def follow() -> None:
        leads.append(turns.take(1, lambda: offset))

    def followers() -> list[threading.Thread]:
        threads = [threading.Thread(target=follow) for _ in range(9)]
        for thread in threads:
            thread.start()
        return threads

    assert turns.take(1, never)
    first = followers()
    while len(turns._waiting) < 9:
        first[0].join(0.001)
    offset = 1
    turns.pass_on()
    for thread in first:
        thread.join()
    offset, turns._last_s = 0, 3600.0
    assert turns.take(1, never)
    second = followers()
    turns.gather()
    assert len(turns._waiting) == 9
    offset = 1
    turns.pass_on()
    for thread in second:
        thread.join()
    assert leads == [False] * 18


def test_the_leader_does_not_wait_for_those_who_stay_away() -> None:
    turns = Turns()
    turns._company = 100
    assert turns.take(1, never)
    turns.gather()
    turns.pass_on()
    assert turns._company == 1


def test_waiting_for_what_was_never_written_is_refused() -> None:
    small = SmallPartition()
    small.write(b"a")
    with pytest.raises(InvalidArgument, match="nothing was written at offset 1"):
        small.partition.wait_acknowledged(2)


def test_a_callback_comes_only_after_the_sync(monkeypatch: pytest.MonkeyPatch) -> None:
    small = SmallPartition()
    sync = GatedSync(monkeypatch)
    sync.armed = True
    told: list[FoldlogError | None] = []
    done = threading.Event()

    def callback(error: FoldlogError | None) -> None:
        told.append(error)
        done.set()

    small.partition.on_acknowledged(append(small, b"a"), callback)
    sync.entered.acquire()
    assert told == []
    assert read_all(small.partition) == []
    sync.gate.release()
    done.wait()
    assert told == [None]
    assert [record.value for record in read_all(small.partition)] == [b"a"]


def test_what_is_durable_already_is_acknowledged_at_once() -> None:
    small = SmallPartition()
    told: list[FoldlogError | None] = []
    small.write(b"a")
    small.partition.on_acknowledged(1, told.append)
    assert told == [None]


def test_a_failed_sync_is_told_to_all_who_wait_and_never_tried_again() -> None:
    files = FaultyFiles(MemoryFiles())
    small = SmallPartition(files)
    files.fault = Fault(lambda operation: errno.EIO if operation.kind is Kind.SYNC else 0)
    told: list[FoldlogError | None] = []
    done = threading.Event()

    def callback(error: FoldlogError | None) -> None:
        told.append(error)
        done.set()

    append(small, b"a")
    small.partition.on_acknowledged(append(small, b"b"), callback)
    done.wait()
    files.fault = Fault(lambda _: 0)
    assert isinstance(told[0], PartitionPoisoned)
    with pytest.raises(PartitionPoisoned):
        small.partition.wait_acknowledged(1)
    assert small.partition.durable_offset == 0


@pytest.mark.parametrize("part", [0.0, 0.5])
def test_a_full_disk_is_an_error_to_the_producer_and_appending_resumes(part: float) -> None:
    files = FaultyFiles(MemoryFiles())
    small = SmallPartition(files)
    small.write(b"before")
    files.fault = Fault.full_from(0, part=part)
    with pytest.raises(StorageFull):
        small.write(b"does not fit")
    files.fault = Fault(lambda _: 0)
    assert small.write(b"after").base_offset == 1
    small.reopen()
    assert [record.value for record in read_all(small.partition)] == [b"before", b"after"]


def test_a_write_fault_is_taken_back() -> None:
    files = FaultyFiles(MemoryFiles())
    small = SmallPartition(files)
    files.fault = Fault(lambda operation: errno.EIO if operation.kind is Kind.WRITE else 0, part=0.5)
    with pytest.raises(StorageError, match="nothing was kept"):
        append(small, b"x")
    files.fault = Fault(lambda _: 0)
    assert small.write(b"y").base_offset == 0


def test_a_relaxed_topic_acknowledges_and_shows_what_is_written(monkeypatch: pytest.MonkeyPatch) -> None:
    small = SmallPartition(flush_messages=1000)
    sync = GatedSync(monkeypatch)
    sync.armed = True
    small.write(b"a")
    assert sync.count == 0
    assert (small.partition.high_watermark, small.partition.durable_offset) == (1, 0)
    assert small.partition.unsynced_since_ms is not None
    assert [record.value for record in read_all(small.partition)] == [b"a"]
    assert [record.value for record in read_all(small.reader())] == [b"a"]


def test_a_relaxed_topic_syncs_when_enough_has_come() -> None:
    small = SmallPartition(flush_messages=10)
    moved = threading.Event()
    small.partition.watch(lambda: moved.set() if small.partition.durable_offset >= 10 else None)
    for _ in range(10):
        small.write(b"a")
    assert moved.wait(30)


def test_watchers_hear_of_every_move_until_they_leave() -> None:
    small = SmallPartition()
    heard: list[int] = []

    def watcher() -> None:
        heard.append(small.partition.high_watermark)

    small.partition.watch(watcher)
    small.write(b"a")
    small.write(b"b")
    small.partition.unwatch(watcher)
    small.write(b"c")
    assert heard == [1, 2]


def test_closing_twice_is_fine_and_a_closed_partition_says_so() -> None:
    small = SmallPartition()
    small.write(b"a")
    small.close()
    small.partition.close()
    with pytest.raises(LogClosed):
        small.write(b"b")
    with pytest.raises(LogClosed):
        small.partition.read(0)


def test_a_sync_that_ends_late_takes_back_nothing_that_could_be_read(monkeypatch: pytest.MonkeyPatch) -> None:
    small = SmallPartition(flush_messages=1000)
    sync = GatedSync(monkeypatch)
    append(small, b"first")
    sync.armed = True
    syncing = threading.Thread(target=small.partition.sync)
    syncing.start()
    sync.entered.acquire()
    append(small, b"second")
    assert small.partition.high_watermark == 2
    sync.armed = False
    sync.gate.release()
    syncing.join()
    assert (small.partition.durable_offset, small.partition.high_watermark) == (1, 2)


def test_what_the_slot_does_not_say_is_neither_acknowledged_nor_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reading processes go by the slot."""
    small = SmallPartition()
    small.write(b"first")

    def full(slot: Slot, state: SlotState) -> None:
        raise StorageFull("no room")

    monkeypatch.setattr(Slot, "store", full)
    with pytest.raises(PartitionPoisoned):
        small.write(b"second")
    assert small.partition.high_watermark == 1
    assert [record.value for record in read_all(small.partition)] == [b"first"]


def test_who_watches_is_told_of_what_a_roll_made_durable() -> None:
    small = SmallPartition()
    seen: list[int] = []
    small.partition.watch(lambda: seen.append(small.partition.high_watermark))
    append(small, b"first")
    assert seen == []
    small.partition.roll()
    assert seen[-1] == 1


def test_a_closed_partition_is_not_cleaned_up() -> None:
    small = SmallPartition(compact=True)
    small.write(b"first", key=b"k")
    small.close()
    partition = small.partition
    for clean in (
        partition.enforce_retention,
        lambda: partition.delete_records(1),
        lambda: partition.compact(force=True),
        lambda: partition.recompress(Compression.ZSTD),
    ):
        with pytest.raises(LogClosed):
            clean()
