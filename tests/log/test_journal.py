"""The journal without power cuts: what goes into a commit, who waits for it, the ring, and what is said of damage."""

from __future__ import annotations

import errno
import logging
import threading
from dataclasses import replace

import pytest

from faults.journaled import (
    DIRECTORY_ID,
    SMALL_JOURNAL,
    TOPIC_ID,
    JournaledDirectory,
    make_partitions,
    path_of,
)
from faults.one_partition import DIRECTORY, START_MS, Records
from foldlog.errors import CorruptLog, FoldlogError, PartitionPoisoned, StorageError
from foldlog.files.base import Files
from foldlog.files.memory import MemoryFiles
from foldlog.limits import JOURNAL_SMALL_ENTRY_BYTES
from foldlog.log.checkpoint import Checkpoint, Slot, SlotState
from foldlog.log.config import LogConfig
from foldlog.log.durability import Membership, Syncer
from foldlog.log.journal.format import BLOCK_BYTES, Entry, commit_bytes, encode_commit, read_use
from foldlog.log.journal.journal import Journal
from foldlog.log.journal.recovery import JournalContents, _is_wanted, journal_files, read_journal, replay
from foldlog.log.partition import Partition
from foldlog.records.loops import pack
from foldlog.testing.faulty_files import Fault, FaultyFiles, Kind, Operation
from foldlog.testing.history import Sent
from foldlog.testing.sim_clock import SimClock

CONFIG = LogConfig(index_interval_bytes=128)


def journaled(files: Files | None = None, count: int = 2, **settings: int) -> JournaledDirectory:
    """Open partitions with a journal that is ready: each partition has had its first sync."""
    files = files or MemoryFiles()
    make_partitions(files, count)
    directory = JournaledDirectory(files, CONFIG, count, settings=replace(SMALL_JOURNAL, **settings))
    records = Records(1)
    for log in directory.logs:
        log.append([records.one()])
    directory.work()
    assert directory.journal.is_ready
    return directory


def find_none(topic_id: bytes, number: int) -> tuple[str, Slot] | None:
    return None


def contents_of(directory: JournaledDirectory) -> JournalContents:
    return read_journal(directory.files, DIRECTORY, DIRECTORY_ID)


def test_one_commit_has_everything_that_all_partitions_were_given() -> None:
    directory, records = journaled(count=3), Records(2)
    directory.append_together({number: [records.one()] for number in range(3)})
    assert directory.journal.counts.commits == 1
    found = contents_of(directory)
    assert sorted(partition for _, partition in found.entries) == [0, 1, 2]


def test_appends_that_follow_on_each_other_are_one_entry() -> None:
    directory, records = journaled(), Records(2)
    log = directory.logs[0]
    ends = [log.append([records.one()], wait=False) for _ in range(3)]
    log.wait(ends[-1])
    ((_, placed),) = contents_of(directory).entries[TOPIC_ID, 0]
    assert (placed.entry.first_offset, placed.entry.next_offset) == (1, 4)


def test_a_large_append_syncs_its_partition_and_not_the_journal() -> None:
    directory, records = journaled(), Records(2)
    large = [replace(records.one(), value=b"x" * 3000)]
    directory.logs[0].append(large)
    assert directory.journal.counts.commits == 0
    state = directory.logs[0].partition._core.state
    assert state.synced_offset == state.durable_offset == 2


def test_what_many_partitions_were_given_is_bulk_too() -> None:
    sizes = {"entry_bytes_max": 3 << 15, "first_bytes": 1 << 20, "file_bytes": 1 << 20}
    directory = journaled(None, 4, **sizes)
    records, large = Records(2), Sent(None, b"." * (JOURNAL_SMALL_ENTRY_BYTES + 100), START_MS)
    directory.append_together({0: [large], 1: [large], 2: [large], 3: [records.one()]})
    # Two of the large ones are as much as a commit takes of such, and the small one goes with them. The third is left
    # to the syncer, which does nothing here, and then to who waits.
    commits = [commit for use in contents_of(directory).uses for commit in use.commits]
    assert [[placed.entry.partition for placed in commit.entries] for commit in commits] == [[0, 1, 3], [2]]


def test_a_roll_and_a_clean_close_leave_nothing_for_the_journal() -> None:
    directory, records = journaled(), Records(2)
    directory.logs[0].append([records.one()])
    directory.logs[0].partition.roll()
    state = directory.logs[0].partition._core.state
    assert state.synced_offset == state.durable_offset == 2
    directory.logs[1].append([records.one()])
    directory.close()
    found = contents_of(directory)
    assert found.entries == {}
    for path, _ in journal_files(directory.files, DIRECTORY):
        directory.files.unlink(path)
    again = JournaledDirectory(directory.files, CONFIG, 2)
    assert [log.partition.log_end_offset for log in again.logs] == [2, 2]


def test_where_no_file_is_free_appends_sync_their_partition() -> None:
    directory, records = journaled(), Records(2)
    directory.has_work = False
    directory.journal.on_work = lambda: None  # nobody releases a file
    log = directory.logs[0]
    for _ in range(20):
        log.append([records.one()])
    assert not directory.journal.is_ready
    assert directory.journal.counts.commits == 6  # three in each of the two files
    assert log.partition.durable_offset == 21
    directory.journal.work()
    log.append([records.one()])
    assert directory.journal.counts.commits == 7


@pytest.mark.parametrize(("together", "blocks"), [(1, 32), (3, 128)])
def test_files_grow_where_a_release_takes_many_syncs_beside_the_commits(together: int, blocks: int) -> None:
    """31 commits fill a file: one partition and two other syncs are less than an eighth of them, three are more."""
    directory = journaled(count=3, first_bytes=32 * BLOCK_BYTES, file_bytes=1000 * BLOCK_BYTES)
    records = Records(2)
    for _ in range(70):
        directory.append_together({number: [records.one()] for number in range(together)})
    directory.work()
    directory.append_together({0: [records.one()]})
    assert {size for _, size in journal_files(directory.files, DIRECTORY)} <= {blocks * BLOCK_BYTES, 32 * BLOCK_BYTES}
    assert max(size for _, size in journal_files(directory.files, DIRECTORY)) == blocks * BLOCK_BYTES


def test_an_interrupted_journal_leaves_no_half_of_a_file() -> None:
    memory = MemoryFiles()
    make_partitions(memory, 1)

    def interrupt(operation: Operation) -> int:
        if operation.kind is Kind.WRITE and "journal" in operation.path:
            directory.journal.interrupt()
        return 0

    directory, records = JournaledDirectory(FaultyFiles(memory, Fault(interrupt)), CONFIG, 1), Records(1)
    directory.logs[0].append([records.one()])
    directory.work()
    assert not directory.journal.is_ready
    assert memory.entries(f"{DIRECTORY}/journal") == []
    directory.logs[0].append([records.one()])
    directory.close()


def test_a_full_disk_means_no_journal_and_one_line(caplog: pytest.LogCaptureFixture) -> None:
    memory = MemoryFiles()
    make_partitions(memory, 1)
    full = Fault(lambda operation: errno.ENOSPC if operation.kind is Kind.WRITE and "journal" in operation.path else 0)
    files = FaultyFiles(memory, full)
    directory, records = JournaledDirectory(files, CONFIG, 1), Records(1)
    with caplog.at_level(logging.WARNING, "foldlog.log"):
        for _ in range(10):
            directory.logs[0].append([records.one()])
    assert directory.logs[0].partition.durable_offset == 10
    assert not directory.journal.is_ready
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert "appends sync their partitions instead" in caplog.text
    assert journal_files(memory, DIRECTORY) == []


def test_a_failed_sync_of_the_journal_poisons_who_waits_and_nobody_else() -> None:
    files = FaultyFiles(MemoryFiles())
    directory, records = journaled(files), Records(2)
    directory.logs[1].append([records.one()])
    files.fault = Fault(
        lambda operation: errno.EIO if operation.kind is Kind.SYNC and "journal" in operation.path else 0
    )
    with pytest.raises(PartitionPoisoned):
        directory.logs[0].append([records.one()])
    files.fault = Fault(lambda _: 0)
    directory.logs[1].append([records.one()])
    assert directory.logs[0].partition.is_poisoned
    assert not directory.logs[1].partition.is_poisoned
    directory.logs[0].history.withdrawn(1)
    directory.reopen(cleanly=True)
    assert [log.partition.log_end_offset for log in directory.logs] == [1, 3]
    directory.logs[0].append([records.one()])


def test_entries_of_deleted_topics_are_passed_over() -> None:
    directory, records = journaled(), Records(2)
    directory.logs[0].append([records.one()])
    found = contents_of(directory)
    replayed = replay(directory.files, found, find_none, lambda: None)
    assert (replayed.written, replayed.refused) == (0, {})


def test_a_partition_that_lacks_what_comes_before_its_entries_is_refused_and_not_changed() -> None:
    directory, records = journaled(), Records(2)
    log = directory.logs[0]
    log.append([records.one()])
    log.append([records.one()])
    found = contents_of(directory)
    found.entries[TOPIC_ID, 0].pop(0)
    segment = f"{path_of(0)}/{0:020d}.log"
    size = log.partition._core.state.active_position
    directory.files.open(segment, write=True).truncate(size)
    checkpoint = Checkpoint.open(directory.files, f"{DIRECTORY}/checkpoint", write=True)
    replayed = replay(
        directory.files, found, lambda topic_id, number: (path_of(number), checkpoint.slot(number)), checkpoint.sync
    )
    (error,) = replayed.refused.values()
    assert isinstance(error, CorruptLog)
    assert "bytes are missing between it and what the journal has from offset 2 on" in str(error)
    assert directory.files.open(segment).size() == size


def damaged(directory: JournaledDirectory, commit: int, byte: int) -> JournalContents:
    """What is found after a byte of one commit has changed; they take a block each."""
    (path,) = [use.path for use in contents_of(directory).uses if use.commits]
    file = directory.files.open(path, write=True)
    position = (1 + commit) * BLOCK_BYTES + byte
    (old,) = file.read(position, 1)
    file.write(position, [bytes([old ^ 0xFF])])
    return contents_of(directory)


@pytest.mark.parametrize("byte", [20, 90, 200])
def test_damage_with_a_later_commit_behind_it_is_said(byte: int) -> None:
    directory, records = journaled(first_bytes=8 * BLOCK_BYTES), Records(2)
    for _ in range(4):
        directory.logs[0].append([replace(records.one(), value=b"x" * 400)])
    found = damaged(directory, 1, byte)
    assert [(damage.position >= 2 * BLOCK_BYTES) for damage in found.damages] == [True]
    assert len(found.entries[TOPIC_ID, 0]) == 3


@pytest.mark.parametrize("byte", [20, 90, 200])
def test_a_last_commit_that_is_not_whole_was_not_acknowledged(byte: int) -> None:
    directory, records = journaled(first_bytes=8 * BLOCK_BYTES), Records(2)
    for _ in range(4):
        directory.logs[0].append([replace(records.one(), value=b"x" * 400)])
    found = damaged(directory, 3, byte)
    assert found.damages == []
    assert len(found.entries[TOPIC_ID, 0]) == 3


def test_a_slot_that_vouches_for_more_than_there_is_refuses_the_partition() -> None:
    """The journal was removed by hand, and then the power went."""
    directory, records = journaled(), Records(2)
    log = directory.logs[0]
    log.append([records.one()])
    state = log.partition._core.state
    assert state.durable_offset > state.synced_offset
    for path, _ in journal_files(directory.files, DIRECTORY):
        directory.files.unlink(path)
    directory.files.open(f"{path_of(0)}/{0:020d}.log", write=True).truncate(state.active_position)
    with pytest.raises(CorruptLog, match="records up to offset 2 were durable"):
        JournaledDirectory(directory.files, CONFIG, 2)


def test_threads_of_several_partitions_share_commits() -> None:
    files = MemoryFiles()
    make_partitions(files, 4)
    checkpoint = Checkpoint.open(files, f"{DIRECTORY}/checkpoint", write=True)
    syncer = Syncer(threads=2)
    settings = replace(SMALL_JOURNAL, first_bytes=1 << 20, file_bytes=1 << 20, entry_bytes_max=1 << 16)
    journal = Journal(files, DIRECTORY, DIRECTORY_ID, checkpoint, syncer, JournalContents(DIRECTORY), settings)
    partitions = [
        Partition.open(
            files,
            path_of(number),
            checkpoint.slot(number),
            CONFIG,
            clock=SimClock(),
            syncer=syncer,
            label=("events", number),
            membership=Membership(journal, TOPIC_ID),
        )
        for number in range(4)
    ]
    for partition in partitions:
        partition.wait_acknowledged(partition.append(pack([(0, None, b"first", ())])).next_offset)
    journal.work()
    told: list[FoldlogError | None] = []

    def run(partition: Partition, number: int) -> None:
        for step in range(50):
            end = partition.append(pack([(0, None, b"%d %d" % (number, step), ())])).next_offset
            if step % 5 == 4:
                partition.on_acknowledged(end, told.append)
            partition.wait_acknowledged(end)
            assert partition.durable_offset >= end

    threads = [threading.Thread(target=run, args=(partitions[number % 4], number)) for number in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    syncer.close()
    assert [partition.durable_offset for partition in partitions] == [151] * 4
    assert told == [None] * 120
    assert 0 < journal.counts.commits <= 600
    for partition in partitions:
        partition.close()


def test_a_commit_takes_whole_blocks_and_reads_back() -> None:
    files = MemoryFiles()
    file = files.open("one", write=True, create=True)
    file.write(0, [bytes(BLOCK_BYTES)])
    assert read_use(file, "one") is None
    memory = memoryview(bytearray(b"old" * BLOCK_BYTES))[: commit_bytes(0, 0)]
    encode_commit(memory, 7, 6, 41, 40, [])
    assert len(memory) == BLOCK_BYTES
    file.write(BLOCK_BYTES, [memory])
    found = read_use(file, "one")
    assert found is not None
    assert (found.use, found.needed, [commit.number for commit in found.commits]) == (7, 6, [41])


def test_the_journal_of_another_directory_is_not_replayed() -> None:
    directory, records = journaled(), Records(2)
    directory.logs[0].append([records.one()])
    assert read_journal(directory.files, DIRECTORY, bytes(16)).entries == {}


def test_a_failed_write_into_a_segment_is_synced_before_the_journal_takes_more() -> None:
    """Its remains behind the end would follow on what the journal writes there after a power cut."""
    files = FaultyFiles(MemoryFiles())
    directory, records = journaled(files), Records(2)
    log = directory.logs[0]
    files.fault = Fault(
        lambda operation: errno.EIO if operation.kind is Kind.WRITE and operation.path.endswith(".log") else 0, part=0.5
    )
    with pytest.raises(StorageError):
        log.append([records.one()])
    log.history.withdrawn(1)
    files.fault = Fault(lambda _: 0)
    before = directory.journal.counts.commits
    log.append([records.one()])
    state = log.partition._core.state
    assert (directory.journal.counts.commits, state.synced_offset) == (before, 2)
    log.append([records.one()])
    assert directory.journal.counts.commits == before + 1


@pytest.mark.parametrize(
    ("starts", "is_wanted"),
    [([(0, 0)], True), ([(0, 0), (1, 8)], True), ([(0, 0), (1, 7)], False), ([(0, 0), (1, 5)], False), ([], True)],
)
def test_what_was_cut_before_a_newer_epoch_is_not_replayed_even_if_the_slot_is_older(
    starts: list[tuple[int, int]], is_wanted: bool
) -> None:
    """The slot on disk may be a second old. The list of epochs is durable before the first batch of one."""
    entry = Entry(bytes(16), 0, 0, 0, 100, 5, 8, 90, 0)
    state = SlotState(leader_epoch=0, synced_offset=5, durable_offset=5, high_watermark=5)
    assert _is_wanted(entry, state, starts) is is_wanted
