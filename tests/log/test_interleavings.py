"""Two threads in one partition, one of them stopped at the worst moment: nothing is lost, nobody waits for ever.

The moment is chosen by a hook in what the one thread calls; the other's work is done there, so no test depends on
luck or time. What could hang runs in a thread of its own that the test waits for.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable

import pytest

from foldlog.errors import FoldlogError, LogClosed, OutOfOrderSequence
from foldlog.files.memory import MemoryFile, MemoryFiles
from foldlog.files.posix import PosixFiles
from foldlog.log import cleanup, retention
from foldlog.log.checkpoint import Checkpoint
from foldlog.log.durability import Syncer
from foldlog.log.partition import PartitionCore
from foldlog.log.segment import OPEN_FILES, Segment
from foldlog.records.loops import pack
from log.small_partition import PATH, SmallPartition, numbered, read_all

GIVE_UP_S = 30


def finishes(work: Callable[[], object]) -> bool:
    """Whether `work` comes to an end; a thread that hangs is left behind."""
    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    thread.join(GIVE_UP_S)
    return not thread.is_alive()


def append(small: SmallPartition, value: bytes, timestamp_ms: int = 0) -> int:
    return small.partition.append(pack([(timestamp_ms, None, value, ())])).next_offset


# Retention


@pytest.mark.parametrize("rolls", [False, True])
def test_a_record_that_comes_while_retention_makes_its_plan_is_not_expired(
    monkeypatch: pytest.MonkeyPatch, rolls: bool
) -> None:
    small = SmallPartition(retention_ms=1000)
    small.write(b"old", timestamp_ms=small.clock.now_ms())
    small.clock.advance(10_000)
    plan_retention = retention.plan_retention
    pending = [b"young"]

    def plan_then_append(*arguments: object) -> object:
        plan = plan_retention(*arguments)  # type: ignore[arg-type]
        while pending:
            small.write(pending.pop())
            if rolls:
                small.partition.roll()
        return plan

    monkeypatch.setattr(cleanup, "plan_retention", plan_then_append)
    small.partition.enforce_retention()
    assert b"young" in [record.value for record in read_all(small.partition)]


def test_the_largest_timestamp_is_not_set_back_by_who_looked_before_an_append(monkeypatch: pytest.MonkeyPatch) -> None:
    small = SmallPartition()
    small.write(b"old", timestamp_ms=1000)
    small.close()
    small.reopen()
    look_behind = Segment._look_behind
    appended: list[threading.Thread] = []

    def look_then_append(segment: Segment, entry: tuple[int, int]) -> None:
        look_behind(segment, entry)
        if not appended:
            appended.append(threading.Thread(target=append, args=(small, b"young", 9000)))
            before = segment._largest
            appended[0].start()
            appended[0].join(0.5)
            segment._largest = before

    monkeypatch.setattr(Segment, "_look_behind", look_then_append)
    small.partition.segments()
    appended[0].join()
    assert small.partition.segments()[0].largest_timestamp_ms == 9000


# Callbacks


def test_a_callback_may_append_and_wait() -> None:
    small = SmallPartition()
    done = threading.Event()

    def answer(error: FoldlogError | None) -> None:
        small.write(b"answer")
        done.set()

    def ask() -> None:
        small.partition.on_acknowledged(append(small, b"question"), answer)
        done.wait()

    assert finishes(ask)
    assert [record.value for record in read_all(small.partition)] == [b"question", b"answer"]


def test_a_callback_may_append_also_when_a_roll_made_the_record_durable() -> None:
    small = SmallPartition()
    small.partition._durability._syncer = Syncer(threads=1)
    done = threading.Event()

    def answer(error: FoldlogError | None) -> None:
        small.write(b"answer")
        done.set()

    def ask() -> None:
        next_offset = append(small, b"question")
        small.partition._durability._waiting.add(next_offset, answer)
        small.partition.roll()
        done.wait()

    assert finishes(ask)


def test_a_callback_that_appends_does_not_hold_up_a_close() -> None:
    """As when a topic is deleted while a producer waits: whoever closes holds locks that the callback needs."""
    small = SmallPartition()
    small.syncer = Syncer(threads=0)  # so that the close syncs, and the callbacks are run when the syncer ends
    small.reopen()
    refused: list[FoldlogError] = []

    def answer(error: FoldlogError | None) -> None:
        assert error is None, "the close has synced it"
        try:
            small.write(b"answer")
        except LogClosed as closed:
            refused.append(closed)

    small.partition.on_acknowledged(append(small, b"question"), answer)
    assert finishes(small.partition.close)
    assert finishes(small.syncer.close)
    assert len(refused) == 1


def test_a_callback_that_raises_keeps_nobody_else_from_being_told() -> None:
    small = SmallPartition()
    small.syncer = Syncer(threads=1)
    small.reopen()

    def broken(error: FoldlogError | None) -> None:
        raise RuntimeError("a mistake in somebody's callback")

    def broken_watcher() -> None:
        raise RuntimeError("a mistake in somebody's watcher")

    small.partition.watch(broken_watcher)

    def wait_for(value: bytes) -> None:
        told = threading.Event()
        next_offset = append(small, value)
        small.partition._durability._waiting.add(next_offset, broken)
        small.partition.on_acknowledged(next_offset, lambda error: told.set())
        told.wait()

    assert finishes(lambda: wait_for(b"a"))
    assert finishes(lambda: wait_for(b"b"))
    assert finishes(lambda: small.write(b"c"))


# Names and generations


def test_the_generation_stays_odd_while_names_change_although_a_roll_comes_between() -> None:
    small = SmallPartition()
    small.write(b"a")
    shared = small.partition._core
    generations: list[int] = []
    with shared.changing_names():
        small.partition.roll()
        generations.append(shared.state.generation)
    generations.append(shared.state.generation)
    assert generations[0] & 1
    assert generations[1] & 1 == 0
    assert generations[1] > generations[0]


def test_a_roll_that_saw_the_state_before_names_change_does_not_end_the_change(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The roll has read the generation; the names begin to change; the roll stores its own."""
    small = SmallPartition()
    small.write(b"a")
    shared = small.partition._core
    seen: list[int] = []
    change = PartitionCore.change
    changing = shared.changing_names()

    def late(self: PartitionCore, **changes: object) -> None:
        if "active_base_offset" in changes:
            monkeypatch.setattr(PartitionCore, "change", change)
            changing.__enter__()
            change(self, **changes)  # type: ignore[arg-type]
            seen.append(shared.state.generation)
            return
        change(self, **changes)  # type: ignore[arg-type]

    monkeypatch.setattr(PartitionCore, "change", late)
    small.partition.roll()
    assert seen[0] & 1
    changing.__exit__(None, None, None)


# Files


def test_the_active_segment_keeps_its_file_however_many_others_are_used(monkeypatch: pytest.MonkeyPatch) -> None:
    small = SmallPartition()
    small.write(b"a")
    active = small.partition._core.segments[-1]
    file = active.log()
    OPEN_FILES.used(active)  # a reader that looked just before the first append
    active.release_file()
    assert active.log() is file


def test_the_old_list_is_read_from_the_old_files_while_compaction_swaps(monkeypatch: pytest.MonkeyPatch) -> None:
    small = SmallPartition(segment_records=2)
    small.write_all(numbered(8), key=b"same")
    small.partition.roll()
    monkeypatch.setattr(OPEN_FILES, "_limit", 1)
    rename = MemoryFiles.rename
    seen: list[int] = []

    def read_then_rename(files: MemoryFiles, old: str, new: str) -> None:
        rename(files, old, new)
        if new.endswith(".log"):
            seen.append(len(read_all(small.partition)))

    monkeypatch.setattr(MemoryFiles, "rename", read_then_rename)
    small.partition.compact(force=True)
    assert seen == [8]
    assert len(read_all(small.partition)) == 1


def test_a_wrong_index_of_the_segment_being_written_is_not_taken_for_damage() -> None:
    small = SmallPartition(index_interval_bytes=64)
    small.write_all(numbered(60))
    small.close()
    name = small.names(".index")[0]
    small.damage(name, 10 * 8 + 7, 0x01)  # the position of an entry in the middle
    small.reopen(index_interval_bytes=64)
    small.write(b"the last")
    for offset in range(61):
        assert small.partition.read(offset, 64).next_offset > offset


def test_an_entry_that_leads_into_a_batch_does_not_keep_anybody_from_appending() -> None:
    small = SmallPartition(index_interval_bytes=64)
    small.write_all(numbered(20))
    small.close()
    name = small.names(".index")[0]
    file = small.files.open(f"{PATH}/{name}", write=True)
    small.damage(name, file.size() - 1, 0x01)  # the position of the last entry
    small.reopen(index_interval_bytes=64)
    assert small.write(b"more").base_offset == 20
    assert len(read_all(small.partition)) == 21


def test_the_checkpoint_grows_without_keeping_descriptors(tmp_path: object) -> None:
    files = PosixFiles()
    checkpoint = Checkpoint.open(files, f"{tmp_path}/checkpoint", write=True)
    before = len(os.listdir("/proc/self/fd")) if os.path.exists("/proc/self/fd") else 0
    for number in range(0, 64 * 20, 64):
        checkpoint.slot(number)
    after = len(os.listdir("/proc/self/fd")) if os.path.exists("/proc/self/fd") else 0
    assert after <= before + 2
    checkpoint.close()


def test_a_forked_child_can_open_files_whatever_other_threads_were_doing() -> None:
    with OPEN_FILES._lock:
        child = os.fork()
        if child == 0:
            os._exit(0 if OPEN_FILES._lock.acquire(timeout=1) else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


# Producers


def test_new_batches_beside_a_repeated_one_are_not_swallowed() -> None:
    small = SmallPartition()

    def batch(sequence: int) -> bytearray:
        return pack([(0, None, b"%d" % sequence, ())], producer_id=7, producer_epoch=0, base_sequence=sequence)

    small.partition.append(batch(0))
    with pytest.raises(OutOfOrderSequence):
        small.partition.append(batch(0) + batch(1))
    small.partition.append(batch(1))
    again = small.partition.append(batch(0) + batch(1))
    assert again.is_duplicate
    assert (again.base_offset, again.next_offset) == (0, 2)
    assert small.partition.log_end_offset == 2


def test_a_producer_of_old_records_is_remembered_over_a_roll() -> None:
    small = SmallPartition()
    batch = pack([(1, None, b"from 1970", ())], producer_id=7, producer_epoch=0, base_sequence=0)
    small.partition.append(bytearray(batch))
    small.partition.roll()
    assert small.partition.append(bytearray(batch)).is_duplicate
    small.close()
    small.reopen()
    assert small.partition.append(bytearray(batch)).is_duplicate


# Reading beside a writer


def test_a_reader_does_not_walk_the_whole_active_segment_again_for_each_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    small = SmallPartition(index_interval_bytes=64)
    small.write_all(numbered(3000))
    reader = small.reader()
    read_all(reader)
    size = reader.size_bytes
    walked = 0
    plain = MemoryFile.read

    def counted(file: MemoryFile, position: int, length: int) -> bytes:
        nonlocal walked
        data = plain(file, position, length)
        walked += len(data)
        return data

    monkeypatch.setattr(MemoryFile, "read", counted)
    for number in range(20):
        small.write(b"more %d" % number)
        assert reader.read(3000 + number, 64).next_offset == 3001 + number
    assert walked < size


def test_a_reader_names_a_failing_disk_with_our_error(monkeypatch: pytest.MonkeyPatch) -> None:
    small = SmallPartition()
    small.write(b"a")
    reader = small.reader()
    read_all(reader)

    def fail(*arguments: object) -> bytes:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(MemoryFile, "read", fail)
    with pytest.raises(FoldlogError):
        reader.read(0)
