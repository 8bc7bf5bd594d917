"""A change of several steps that fails in the middle leaves memory and disk telling the same story.

One operation of the file system fails; the call says so with an error of ours. Then the disk works again, the log goes
on, and is opened once more, in some tests after a power cut that drops everything unsynced: every acknowledged record
is there, and nothing is taken for damage.
"""

from __future__ import annotations

import errno
import random
from collections.abc import Callable

import pytest

from foldlog.errors import FoldlogError, PartitionPoisoned, StorageError
from foldlog.files.memory import MemoryFiles
from foldlog.log import follower
from foldlog.log.checkpoint import Checkpoint
from foldlog.log.layout import SWAP_SUFFIX
from foldlog.records.loops import Record, pack
from foldlog.testing.disk_image import DiskImage
from foldlog.testing.faulty_files import NO_FAULT, Fault, FaultyFiles, Kind, Operation
from foldlog.testing.power_loss import Fate, PowerLossFiles
from log.small_partition import DIRECTORY, LABEL, PATH, SmallPartition, numbered, read_all


def once(matches: Callable[[Operation], bool], error: int = errno.EIO) -> Fault:
    """The first operation that matches fails, and no other."""
    spent: list[Operation] = []

    def decide(operation: Operation) -> int:
        if spent or not matches(operation):
            return 0
        spent.append(operation)
        return error

    return Fault(decide)


def faulty(power: PowerLossFiles | None = None, **config: object) -> tuple[FaultyFiles, SmallPartition]:
    files = FaultyFiles(power or MemoryFiles())
    small = SmallPartition(files, **config)
    small.checkpoint.sync()
    files.sync_directory(".")
    files.sync_directory(DIRECTORY)
    return files, small


def after_a_cut(power: PowerLossFiles, small: SmallPartition) -> SmallPartition:
    """That log on what a power cut leaves if nothing unsynced reached the disk."""
    return opened(power.image([Fate.DROPPED] * len(power.unsynced()), random.Random(0)), small)


def opened(image: DiskImage, small: SmallPartition) -> SmallPartition:
    survivor = SmallPartition.__new__(SmallPartition)
    survivor.files = image.files()
    survivor.clock, survivor.syncer = small.clock, small.syncer
    survivor.reopen()
    return survivor


def values(records: list[Record]) -> list[bytes | None]:
    return [record.value for record in records]


def test_an_epoch_that_could_not_be_written_down_has_not_begun() -> None:
    files, small = faulty()
    small.write(b"a")
    small.reopen()  # not closed before: a new leader epoch
    files.fault = once(lambda operation: operation.path.endswith("leader-epoch-checkpoint.tmp"))
    with pytest.raises(StorageError):
        small.write(b"refused")
    small.write(b"b")
    small.close()
    small.reopen()
    assert values(read_all(small.partition)) == [b"a", b"b"]


@pytest.mark.parametrize(
    "matches",
    [
        lambda operation: operation.kind is Kind.SYNC_DIRECTORY,
        lambda operation: operation.kind is Kind.CREATE and operation.path.endswith(".index"),
    ],
    ids=["sync the directory", "create the index"],
)
def test_a_roll_that_failed_leaves_no_segment_behind(matches: Callable[[Operation], bool]) -> None:
    files, small = faulty(segment_bytes=1024)
    small.write(b"x" * 700)
    files.fault = once(matches)
    with pytest.raises(StorageError):
        small.write(b"y" * 700)
    small.write(b"small")  # still fits into the old segment
    for number in range(3):
        small.write(b"%d" % number * 700)
    expected = [b"x" * 700, b"small", *(b"%d" % number * 700 for number in range(3))]
    assert values(read_all(small.reader())) == expected
    small.close()
    small.reopen(segment_bytes=1024)
    assert values(read_all(small.partition)) == expected


def test_a_roll_that_can_not_be_taken_back_poisons() -> None:
    files, small = faulty(segment_bytes=1024)
    small.write(b"x" * 700)
    files.fault = Fault(lambda operation: errno.EIO if operation.kind in (Kind.SYNC_DIRECTORY, Kind.UNLINK) else 0)
    with pytest.raises(StorageError):
        small.write(b"y" * 700)
    files.fault = NO_FAULT
    with pytest.raises(PartitionPoisoned):
        small.write(b"small")
    small.close()
    small.reopen(segment_bytes=1024)
    small.write(b"small")
    assert values(read_all(small.partition)) == [b"x" * 700, b"small"]


def test_a_roll_whose_checkpoint_could_not_be_synced_says_so_with_our_error() -> None:
    files, small = faulty()
    small.write(b"a")
    files.fault = once(lambda operation: operation.kind is Kind.ALLOCATED_SYNC)
    with pytest.raises(StorageError):
        small.partition.roll()
    small.write(b"b")
    small.close()
    small.reopen()
    assert values(read_all(small.partition)) == [b"a", b"b"]


def test_gaps_are_made_only_once_it_is_durable_that_there_may_be_some() -> None:
    power = PowerLossFiles()
    files, small = faulty(power)
    for value in numbered(6):
        small.write(value, key=b"same")
    small.partition.roll()
    files.fault = once(lambda operation: operation.kind is Kind.ALLOCATED_SYNC)
    with pytest.raises(StorageError):
        small.partition.compact(force=True)
    small.partition.compact(force=True)
    survivor = after_a_cut(power, small)
    assert values(read_all(survivor.partition))[-1] == numbered(6)[-1]


def test_a_deletion_that_failed_is_not_done_by_asking_again_without_a_sync() -> None:
    power = PowerLossFiles()
    files, small = faulty(power)
    small.write_all(numbered(6))
    files.fault = once(lambda operation: operation.kind is Kind.ALLOCATED_SYNC)
    with pytest.raises(StorageError):
        small.partition.delete_records(3)
    assert small.partition.delete_records(3) == 3
    assert after_a_cut(power, small).partition.log_start_offset == 3


def test_a_duplicate_is_known_after_a_cut_although_the_first_try_failed() -> None:
    power = PowerLossFiles()
    files, small = faulty(power)

    def send() -> bool:
        batch = pack([(0, None, b"v", ())], producer_id=7, producer_epoch=0, base_sequence=0)
        appended = small.partition.append(batch)
        small.partition.wait_acknowledged(appended.next_offset)
        return appended.is_duplicate

    files.fault = once(lambda operation: operation.kind is Kind.ALLOCATED_SYNC)
    with pytest.raises(StorageError):
        send()
    assert not send()
    small = after_a_cut(power, small)
    assert send()


def test_a_compaction_without_space_leaves_nothing_behind_and_can_be_tried_again() -> None:
    files, small = faulty()
    small.write_all(numbered(6), key=b"same")
    small.partition.roll()
    files.fault = Fault.full_from(len(files.operations), part=0.5)
    with pytest.raises(StorageError):
        small.partition.compact(force=True)
    assert small.names(".cleaned") == []
    files.fault = NO_FAULT
    small.partition.compact(force=True)
    assert values(read_all(small.partition)) == [numbered(6)[-1]]


@pytest.mark.parametrize("kind", [Kind.WRITE, Kind.SYNC, Kind.SYNC_DIRECTORY, Kind.CREATE])
def test_a_compaction_that_could_not_write_says_so_with_our_error(kind: Kind) -> None:
    files, small = faulty()
    small.write_all(numbered(6), key=b"same")
    small.partition.roll()
    files.fault = once(lambda operation: operation.kind is kind)
    with pytest.raises(StorageError):
        small.partition.compact(force=True)
    assert values(read_all(small.partition)) == numbered(6)
    assert small.names(".cleaned") == []


def test_a_compaction_whose_index_could_not_be_written_is_done_all_the_same() -> None:
    files, small = faulty(index_interval_bytes=1)
    for number in range(20):
        small.write(b"v%d" % number, key=b"k%d" % (number % 10))
    small.partition.roll()
    files.fault = Fault(
        lambda operation: errno.ENOSPC if operation.kind is Kind.CREATE and operation.path.endswith("index") else 0
    )
    small.partition.compact(force=True)
    assert values(read_all(small.partition)) == [b"v%d" % number for number in range(10, 20)]
    assert values(read_all(small.reader())) == [b"v%d" % number for number in range(10, 20)]


def test_bytes_that_were_cut_before_stay_when_the_same_place_is_cut_again() -> None:
    small = SmallPartition()
    small.write(b"whole")
    small.close()
    name = small.names(".log")[0]
    for torn in (b"first torn write", b"second"):
        file = small.files.open(f"{PATH}/{name}", write=True)
        file.write(file.size(), [torn])
        small.reopen()
        small.close()
    kept = [small.files.open(f"{PATH}/{beside}") for beside in small.names(".cut")]
    assert sorted(file.read(0, file.size()) for file in kept) == [b"first torn write", b"second"]


def test_a_relaxed_topic_never_gives_an_offset_twice_in_one_leader_epoch() -> None:
    power = PowerLossFiles()
    _, small = faulty(power, flush_messages=1000)
    small.write(b"kept")
    small.close()
    # Opened after a clean close, and cut within the second in which the checkpoint is not synced yet.
    small.reopen(flush_messages=1000)
    small.write(b"read by somebody, then lost")
    epoch_read = small.partition.leader_epoch
    survivor = after_a_cut(power, small)
    assert survivor.partition.log_end_offset == 1
    assert survivor.partition.leader_epoch > epoch_read


def test_a_sync_that_fails_is_told_to_who_asked_for_it() -> None:
    files, small = faulty(flush_messages=1000)
    small.write(b"a")
    files.fault = once(lambda operation: operation.kind is Kind.SYNC)
    with pytest.raises(PartitionPoisoned):
        small.partition.sync()


def test_a_topic_that_gets_strict_makes_durable_what_can_be_read() -> None:
    _, small = faulty(flush_messages=1000)
    small.write(b"a")
    config = type(small.partition.config)()
    small.partition.reconfigure(config)
    assert small.partition.durable_offset == small.partition.high_watermark == 1


def test_opening_a_partition_on_a_failing_disk_says_so_with_our_error() -> None:
    files, small = faulty()
    small.partition.append(pack([(0, None, b"v", ())]))
    files.fault = once(lambda operation: operation.kind in (Kind.WRITE, Kind.SYNC))
    with pytest.raises(FoldlogError):
        small.reopen()


def test_a_slot_is_what_it_was_when_its_store_failed() -> None:
    files, small = faulty()
    small.write_all(numbered(3))
    files.fault = once(lambda operation: operation.kind is Kind.ALLOCATED_SYNC)
    with pytest.raises(StorageError):
        small.partition.delete_records(2)
    assert small.partition.log_start_offset == 0
    assert values(read_all(small.partition)) == numbered(3)
    assert Checkpoint.open(files, f"{DIRECTORY}/checkpoint", write=False).slot(0).load_live() is not None
    assert small.partition.label == LABEL


@pytest.mark.parametrize("reopened", [False, True])
def test_part_of_a_write_that_was_taken_back_does_not_end_a_sealed_segment_after_a_cut(reopened: bool) -> None:
    power = PowerLossFiles()
    files, small = faulty(power)
    small.write(b"a")
    files.fault = Fault.full_from(0, part=0.5)
    with pytest.raises(StorageError):
        small.write(b"does not fit")
    files.fault = NO_FAULT
    # The size of the file now: as long as the torn write, unless somebody has synced that it was cut off again.
    if reopened:
        small.reopen()
    small.partition.roll()
    small.write(b"b")
    for seed in range(20):
        rng = random.Random(seed)
        image = power.image(rng.choices(list(Fate), k=len(power.unsynced())), rng)
        assert values(read_all(opened(image, small).partition)) == [b"a", b"b"]


def test_what_is_acknowledged_after_a_poisoned_log_was_opened_again_survives_a_cut() -> None:
    power = PowerLossFiles()
    files, small = faulty(power)
    small.write(b"a")
    files.fault = once(lambda operation: operation.kind is Kind.SYNC)
    with pytest.raises(PartitionPoisoned):
        small.write(b"not acknowledged")
    small.close()
    small.reopen()
    small.write(b"b")
    assert values(read_all(after_a_cut(power, small).partition)) == [b"a", b"b"]


def test_a_swap_that_fails_halfway_makes_readers_wait_for_the_next_open(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(follower, "_TRIES", 3)
    files, small = faulty(segment_bytes=1024)
    small.write_all(numbered(40, size=100), key=b"k")
    reader = small.reader()
    files.fault = once(lambda operation: operation.kind is Kind.RENAME and operation.path.endswith(SWAP_SUFFIX))
    with pytest.raises(StorageError):
        small.partition.compact(force=True)
    files.fault = NO_FAULT
    with pytest.raises(StorageError, match="in the middle of a change"):
        read_all(reader)
    small.close()
    small.reopen(segment_bytes=1024)
    assert read_all(reader)[-1].offset == 39
    assert read_all(small.partition)[-1].offset == 39
