"""Syncs on threads that a server lends: begun and settled in two halves, and the same promises as any other sync."""

from __future__ import annotations

import errno
import os
import select
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from foldlog.errors import FoldlogError, PartitionPoisoned
from foldlog.files.base import DurableWrite, aligned_memory
from foldlog.files.posix import PosixFile, PosixFiles
from foldlog.log.journal.format import BLOCK_BYTES
from foldlog.log.journal.journal import JournalSettings
from foldlog.log.partition import Partition
from foldlog.records.loops import pack
from log.small_partition import SmallPartition, read_all

sync_threads = pytest.importorskip("foldlog.files.sync_threads", reason="the compiled parts were not built")

Done = list[tuple[int, int, bool, float]]
NO_DESCRIPTOR = 1 << 20


class Lent:
    """Lends a partition threads whose syncs end when the test says so, with what the test says."""

    def __init__(self) -> None:
        self.submitted: list[tuple[int, int]] = []
        self.over: Done = []

    def submit(self, descriptor: int, ticket: int) -> None:
        self.submitted.append((descriptor, ticket))

    def submit_write(self, direct: int, plain: int, position: int, memory: memoryview, ticket: int) -> None:
        self.submit(plain, ticket)

    def end(self, error_number: int = 0, *, is_nameless: bool = False) -> None:
        _, ticket = self.submitted.pop(0)
        self.over.append((ticket, error_number, is_nameless, 0.001))

    def done(self) -> Done:
        over, self.over = self.over, []
        return over

    def close(self) -> Done:
        while self.submitted:
            self.end()
        return self.done()


JOURNALED = JournalSettings(begin_syncs=1, alone_asks=1 << 30, first_bytes=1 << 20)


@pytest.fixture(params=[None, JOURNALED], ids=["synced", "journaled"])
def small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Iterator[SmallPartition]:
    monkeypatch.chdir(tmp_path)
    small = SmallPartition(PosixFiles(), request.param)
    yield small
    small.close()
    small.syncer.close()


@pytest.fixture
def lent(small: SmallPartition) -> Lent:
    small.write(b"first")  # it is open for appending now
    if small.journal is not None:
        small.journal.work()
        assert small.journal.is_ready
    lent = Lent()
    small.syncer.lend(lent)
    return lent


def append(partition: Partition, value: bytes) -> int:
    return partition.append(pack([(0, None, value, ())])).next_offset


def ask(small: SmallPartition, value: bytes, told: list[object], *, is_quick: bool = True) -> None:
    """Append, and note in `told` what is answered, on which thread."""

    def note(error: FoldlogError | None) -> None:
        told.append((value, error, threading.current_thread()))

    small.partition.on_acknowledged(append(small.partition, value), note, is_quick=is_quick)


def test_nothing_is_acknowledged_before_the_sync_is_settled(small: SmallPartition, lent: Lent) -> None:
    told: list[object] = []
    ask(small, b"a", told)
    assert len(lent.submitted) == 1
    assert small.partition.high_watermark == 1
    assert not told
    lent.end()
    assert small.partition.high_watermark == 1
    assert not told
    small.syncer.settle()
    assert small.partition.durable_offset == small.partition.high_watermark == 2
    assert told == [(b"a", None, threading.current_thread())]


def test_what_is_appended_during_a_sync_shares_the_next(small: SmallPartition, lent: Lent) -> None:
    told: list[object] = []
    for value in (b"a", b"b", b"c"):
        ask(small, value, told)
    assert len(lent.submitted) == 1, "one sync of a partition at a time"
    lent.end()
    small.syncer.settle()
    assert small.partition.durable_offset == 2
    assert len(told) == 1
    assert len(lent.submitted) == 1, "the next begins by itself"
    lent.end()
    small.syncer.settle()
    assert small.partition.durable_offset == 4
    assert len(told) == 3
    assert not lent.submitted


def test_a_failed_sync_poisons_the_partition(small: SmallPartition, lent: Lent) -> None:
    told = threading.Event()
    errors: list[FoldlogError | None] = []

    def note(error: FoldlogError | None) -> None:
        errors.append(error)
        told.set()

    small.partition.on_acknowledged(append(small.partition, b"lost"), note, is_quick=True)
    lent.end(errno.EIO)
    small.syncer.settle()
    assert told.wait(10)
    assert isinstance(errors[0], PartitionPoisoned)
    assert os.strerror(errno.EIO) in str(errors[0])
    assert small.partition.durable_offset == 1
    with pytest.raises(PartitionPoisoned):
        append(small.partition, b"more")


def test_a_file_without_a_name_is_not_durable(small: SmallPartition, lent: Lent) -> None:
    append(small.partition, b"lost")
    small.partition.on_acknowledged(2, lambda error: None, is_quick=True)
    lent.end(is_nameless=True)
    small.syncer.settle()
    assert small.partition.is_poisoned
    assert small.partition.durable_offset == 1


def test_a_callback_that_may_take_long_is_not_run_by_who_settles(small: SmallPartition, lent: Lent) -> None:
    told: list[tuple[object, ...]] = []
    done = threading.Event()

    def slow(error: FoldlogError | None) -> None:
        told.append((error, threading.current_thread()))
        done.set()

    small.partition.on_acknowledged(append(small.partition, b"a"), slow)
    lent.end()
    small.syncer.settle()
    assert done.wait(10)
    ((error, thread),) = told
    assert error is None
    assert thread is not threading.current_thread()


@pytest.mark.parametrize("waits", ["wait", "roll", "sync", "close"])
def test_who_waits_for_the_partition_needs_nobody_else_to_settle(small: SmallPartition, lent: Lent, waits: str) -> None:
    told: list[object] = []
    ask(small, b"a", told)
    lent.end()  # it is over, and no event loop comes to settle it
    act = {
        "wait": lambda: small.partition.wait_acknowledged(2),
        "roll": small.partition.roll,
        "sync": small.partition.sync,
        "close": small.partition.close,
    }[waits]
    thread = threading.Thread(target=act, daemon=True)
    thread.start()
    thread.join(10)
    assert not thread.is_alive()
    assert small.partition.durable_offset == 2
    small.syncer.close()  # the pool has run what was left to it
    assert len(told) == 1


def test_who_settles_a_sync_that_covers_its_offset_does_not_sync_again(small: SmallPartition, lent: Lent) -> None:
    """More was written meanwhile, and nobody waits for that."""
    syncs: list[int] = []
    small.syncer.on_synced = lambda seconds, size, records: syncs.append(records)
    ask(small, b"a", [])
    append(small.partition, b"b")
    lent.end()
    small.partition.wait_acknowledged(2)
    assert syncs == [1]
    assert small.partition.durable_offset == 2
    if lent.submitted:  # a journal may have gone on with it already
        lent.end()
    small.partition.wait_acknowledged(3)
    assert syncs == [1, 1]


def in_time(act: Callable[[], object]) -> None:
    thread = threading.Thread(target=act, daemon=True)
    thread.start()
    thread.join(10)
    assert not thread.is_alive()


@pytest.fixture
def tiny(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[SmallPartition, Lent]]:
    """A partition with a journal of two files, each of which takes one commit."""
    monkeypatch.chdir(tmp_path)
    small = SmallPartition(
        PosixFiles(), JournalSettings(begin_syncs=1, alone_asks=1 << 30, first_bytes=2 * BLOCK_BYTES)
    )
    small.write(b"first")
    assert small.journal is not None
    small.journal.work()
    lent = Lent()
    small.syncer.lend(lent)
    yield small, lent
    small.syncer.give_back()
    small.close()
    small.syncer.close()


def test_where_the_journal_has_no_room_the_partition_is_synced_on_a_lent_thread(
    tiny: tuple[SmallPartition, Lent],
) -> None:
    small, lent = tiny
    told: list[object] = []
    for value in (b"a", b"b", b"c"):  # nobody releases a file
        in_time(lambda value=value: ask(small, value, told))  # type: ignore[misc]
        lent.end()
        small.syncer.settle()
    assert small.journal is not None
    assert small.journal.counts.commits == 2
    assert small.partition.durable_offset == 4
    assert len(told) == 3


@pytest.mark.parametrize("small", [JOURNALED], indirect=True)
def test_a_journal_that_cannot_be_written_poisons_the_partition_and_holds_nobody(
    small: SmallPartition, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert small.journal is not None
    small.write(b"first")
    small.journal.work()
    threads = sync_threads.SyncThreads(2)
    small.syncer.lend(threads)

    def durable_write(file: PosixFile, position: int, memory: memoryview) -> DurableWrite:
        return DurableWrite(NO_DESCRIPTOR, NO_DESCRIPTOR, position, memory)

    monkeypatch.setattr(PosixFile, "durable_write", durable_write)
    told = threading.Event()
    errors: list[FoldlogError | None] = []

    def note(error: FoldlogError | None) -> None:
        errors.append(error)
        told.set()

    end = append(small.partition, b"lost")
    in_time(lambda: small.partition.on_acknowledged(end, note, is_quick=True))
    assert select.select([threads.event], [], [], 10)[0]
    small.syncer.settle()
    assert told.wait(10)
    assert isinstance(errors[0], PartitionPoisoned)
    assert os.strerror(errno.EBADF) in str(errors[0])
    assert small.partition.durable_offset == 1
    with pytest.raises(PartitionPoisoned):
        append(small.partition, b"more")


def test_threads_are_given_back_when_their_syncs_are_settled(small: SmallPartition, lent: Lent) -> None:
    told: list[object] = []
    ask(small, b"a", told)
    ask(small, b"b", told)
    small.syncer.give_back()
    small.partition.wait_acknowledged(3)
    assert not lent.submitted, "the pool of Python threads syncs again"
    assert small.write(b"c").next_offset == small.partition.durable_offset == 4


def test_the_compiled_threads_sync_a_partition(small: SmallPartition) -> None:
    small.write(b"first")
    threads = sync_threads.SyncThreads(4)
    small.syncer.lend(threads)
    told: list[object] = []
    for number in range(100):
        ask(small, b"%d" % number, told)
        while len(told) <= number:
            assert select.select([threads.event], [], [], 10)[0]
            small.syncer.settle()
    assert small.partition.durable_offset == 101
    assert [record.value for record in read_all(small.partition)][1:] == [b"%d" % number for number in range(100)]


# The threads themselves


def wait_for(threads: object, count: int) -> Done:
    found: Done = []
    while len(found) < count:
        assert select.select([threads.event], [], [], 10)[0]  # type: ignore[attr-defined]
        found += threads.done()  # type: ignore[attr-defined]
    return found


def test_each_ticket_is_done_once_with_what_became_of_its_file(tmp_path: Path) -> None:
    threads = sync_threads.SyncThreads(2)
    kept, gone = (os.open(tmp_path / name, os.O_CREAT | os.O_RDWR) for name in ("kept", "gone"))
    (tmp_path / "gone").unlink()
    jobs = [(kept, 0, False), (gone, 0, True), (NO_DESCRIPTOR, errno.EBADF, False)] * 20
    for ticket, (descriptor, _, _) in enumerate(jobs):
        threads.submit(descriptor, ticket)
    found = sorted(wait_for(threads, len(jobs)))
    assert [one[:3] for one in found] == [(ticket, *expected) for ticket, (_, *expected) in enumerate(jobs)]
    assert all(seconds >= 0 for *_, seconds in found)
    assert threads.done() == []
    for descriptor in (kept, gone):
        os.close(descriptor)


@pytest.mark.parametrize("way", ["direct", "no direct descriptor", "direct refused"])
def test_memory_is_written_and_durable_whichever_way_the_file_system_knows(tmp_path: Path, way: str) -> None:
    (tmp_path / "file").write_bytes(bytes(3 * BLOCK_BYTES))
    file = PosixFiles().open(str(tmp_path / "file"), write=True)
    memory = aligned_memory(2 * BLOCK_BYTES)
    memory[:] = os.urandom(len(memory))
    part, at = memory[:BLOCK_BYTES], BLOCK_BYTES
    direct, plain, position, _ = file.durable_write(at, part)
    if way == "no direct descriptor":
        direct = -1
    elif way == "direct refused":
        part = memory[1 : 1 + BLOCK_BYTES]  # no disk is written from there
    threads = sync_threads.SyncThreads(1)
    threads.submit_write(direct, plain, position, part, 7)
    assert wait_for(threads, 1)[0][:3] == (7, 0, False)
    assert (tmp_path / "file").read_bytes() == bytes(at) + bytes(part) + bytes(BLOCK_BYTES)
    os.unlink(tmp_path / "file")
    threads.submit_write(direct, plain, position, part, 8)
    assert wait_for(threads, 1)[0][:3] == (8, 0, True)
    threads.close()


def test_a_write_that_fails_says_why(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(bytes(BLOCK_BYTES))
    readonly = os.open(tmp_path / "file", os.O_RDONLY)
    threads = sync_threads.SyncThreads(1)
    for direct in (-1, readonly, NO_DESCRIPTOR):
        threads.submit_write(direct, readonly, 0, aligned_memory(BLOCK_BYTES), 7)
        assert wait_for(threads, 1)[0][1] == errno.EBADF
    threads.close()
    os.close(readonly)


def test_closing_finishes_what_was_submitted(tmp_path: Path) -> None:
    threads = sync_threads.SyncThreads(1)
    descriptor = os.open(tmp_path / "file", os.O_CREAT | os.O_RDWR)
    for ticket in range(50):
        threads.submit(descriptor, ticket)
    assert [one[0] for one in threads.close()] == list(range(50))
    assert threads.close() == []
    assert threads.done() == []
    assert threads.event == -1
    os.close(descriptor)


def test_a_forked_child_leaves_the_threads_alone(tmp_path: Path) -> None:
    threads = sync_threads.SyncThreads(1)
    descriptor = os.open(tmp_path / "file", os.O_CREAT | os.O_RDWR)
    child = os.fork()
    if not child:
        threads.submit(descriptor, 1)
        os._exit(len(threads.done()) + len(threads.close()))
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    threads.submit(descriptor, 2)
    assert wait_for(threads, 1)[0][0] == 2
    os.close(descriptor)


def test_who_may_take_long_is_told_however_much_is_written(small: SmallPartition, lent: Lent) -> None:
    """A sync after which somebody wants a thread is followed by one on a thread, also while others keep appending."""
    told: list[object] = []
    heard = threading.Event()
    small.partition.on_acknowledged(append(small.partition, b"slow"), lambda _: heard.set())
    for number in range(1000):
        ask(small, str(number).encode(), told)
        if lent.submitted:
            lent.end()
        small.syncer.settle()
        if not lent.submitted:
            heard.wait(10)  # no sync is under way: a thread has it
        if heard.is_set():
            break
    else:
        pytest.fail("not told while others appended a thousand times")
    small.syncer.give_back()


def test_a_segment_that_cannot_be_opened_holds_no_lock(
    small: SmallPartition, lent: Lent, monkeypatch: pytest.MonkeyPatch
) -> None:
    segment = type(small.partition._durability.tail.segment)
    with monkeypatch.context() as patch:
        patch.setattr(segment, "log", lambda _: (_ for _ in ()).throw(OSError(errno.EMFILE, "too many")))
        assert small.partition._durability.begin_sync() is None
    small.write(b"a")  # waits for the lock
    assert small.partition.durable_offset == 2


def test_threads_are_lent_by_one_at_a_time(small: SmallPartition, lent: Lent) -> None:
    assert not small.syncer.lend(Lent())
    told: list[object] = []
    ask(small, b"a", told)
    assert len(lent.submitted) == 1
    small.syncer.give_back()
    assert len(told) == 1
    assert small.syncer.lend(Lent())
