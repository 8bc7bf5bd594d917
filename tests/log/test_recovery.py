"""Opening after a crash: a torn tail is cut and kept, what is kept is written again, rot is refused, epochs rise."""

from __future__ import annotations

import errno
import logging

import pytest

from foldlog.errors import CorruptLog, PartitionPoisoned
from foldlog.files.base import read_file
from foldlog.files.memory import MemoryFiles
from foldlog.log.compaction import CompactionReport
from foldlog.log.layout import CLEANED_SUFFIX, SWAP_SUFFIX
from foldlog.records.loops import pack
from foldlog.testing.faulty_files import Fault, FaultyFiles, Kind
from log.small_partition import PATH, SmallPartition, numbered, read_all

ACTIVE = f"{0:020d}.log"


def append_unsynced(small: SmallPartition, value: bytes) -> None:
    small.partition.append(pack([(0, None, value, ())]))


def write_raw(small: SmallPartition, name: str, data: bytes) -> None:
    file = small.files.open(f"{PATH}/{name}", write=True, create=True)
    file.write(file.size(), [data])


def values(small: SmallPartition) -> list[bytes]:
    return [record.value for record in read_all(small.partition)]


def test_whole_batches_above_the_checkpoint_are_kept() -> None:
    small = SmallPartition()
    small.write(b"durable")
    append_unsynced(small, b"written")
    small.reopen()
    assert values(small) == [b"durable", b"written"]


def test_what_is_kept_above_the_checkpoint_is_written_again_and_synced_before_it_is_served() -> None:
    files = FaultyFiles(MemoryFiles())
    small = SmallPartition(files)
    small.write(b"durable")
    append_unsynced(small, b"written")
    size = files.open(f"{PATH}/{ACTIVE}").size()
    seen = len(files.operations)
    small.reopen()
    on_log = [operation.kind for operation in files.operations[seen:] if operation.path.endswith(ACTIVE)]
    assert on_log[:2] == [Kind.WRITE, Kind.SYNC]
    assert files.open(f"{PATH}/{ACTIVE}").size() == size


def test_a_torn_tail_is_cut_and_kept_beside() -> None:
    small = SmallPartition()
    small.write(b"durable")
    torn = bytes(pack([(0, None, b"never finished", ())], base_offset=1))[:40]
    write_raw(small, ACTIVE, torn)
    small.reopen()
    assert values(small) == [b"durable"]
    beside = small.names(".cut")
    assert len(beside) == 1
    file = small.files.open(f"{PATH}/{beside[0]}")
    assert file.read(0, file.size()) == torn
    assert small.write(b"next").base_offset == 1


def test_a_bad_batch_in_the_middle_of_the_unsynced_tail_takes_what_follows_with_it() -> None:
    small = SmallPartition()
    small.write(b"durable")
    start = small.partition.size_bytes
    append_unsynced(small, b"first")
    append_unsynced(small, b"second")
    small.damage(ACTIVE, start + 30)
    small.reopen()
    assert values(small) == [b"durable"]
    assert small.names(".cut")


def test_a_clean_close_leaves_nothing_to_recover_and_the_epoch_as_it_was() -> None:
    small = SmallPartition()
    small.write(b"a")
    epoch = small.partition.leader_epoch
    small.close()
    small.reopen()
    assert small.partition.leader_epoch == epoch
    assert values(small) == [b"a"]


def test_the_leader_epoch_rises_at_each_unclean_open_and_records_carry_it() -> None:
    small = SmallPartition()
    small.write(b"a")
    small.reopen()
    small.write(b"b")
    small.reopen()
    small.write(b"c")
    assert [record.leader_epoch for record in read_all(small.partition)] == [0, 1, 2]
    assert small.partition.epoch_end_offset(1) == (1, 2)
    assert small.partition.epoch_end_offset(0) == (0, 1)


def test_a_batch_with_another_leader_epoch_is_damage() -> None:
    small = SmallPartition()
    small.write(b"a")
    small.write(b"b")
    small.damage(ACTIVE, 15, 0x01)
    with pytest.raises(CorruptLog, match="leader epoch"):
        read_all(small.partition)


def test_a_base_offset_that_does_not_follow_is_damage() -> None:
    small = SmallPartition()
    small.write(b"a")
    small.write(b"b")
    small.damage(ACTIVE, 7, 0x04)
    with pytest.raises(CorruptLog):
        read_all(small.partition)


def test_durable_bytes_missing_at_the_end_are_refused() -> None:
    small = SmallPartition()
    small.write(b"a")
    small.write(b"b")
    small.close()
    small.files.open(f"{PATH}/{ACTIVE}", write=True).truncate(90)
    with pytest.raises(CorruptLog, match="durable bytes are missing"):
        small.reopen()


def test_head_segments_removed_by_hand_move_the_log_start_with_one_warning(caplog: pytest.LogCaptureFixture) -> None:
    small = SmallPartition(segment_bytes=1024)
    small.write_all(numbered(40, size=100))
    small.close()
    first, second = small.names(".log")[:2]
    small.files.unlink(f"{PATH}/{first}")
    with caplog.at_level(logging.WARNING):
        small.reopen()
    assert len([record for record in caplog.records if "removed by hand" in record.message]) == 1
    assert small.partition.log_start_offset == int(second[:20])
    assert values(small) == numbered(40, size=100)[int(second[:20]) :]


def test_a_hole_in_the_middle_is_refused() -> None:
    small = SmallPartition(segment_bytes=1024)
    small.write_all(numbered(40, size=100))
    small.close()
    small.files.unlink(f"{PATH}/{small.names('.log')[1]}")
    with pytest.raises(CorruptLog, match="the next segment begins at"):
        small.reopen()


def test_a_missing_active_segment_is_refused() -> None:
    small = SmallPartition(segment_bytes=1024)
    small.write_all(numbered(40, size=100))
    small.close()
    small.files.unlink(f"{PATH}/{small.names('.log')[-1]}")
    with pytest.raises(CorruptLog, match="is missing"):
        small.reopen()


def test_a_lost_checkpoint_costs_a_scan_and_nothing_else() -> None:
    small = SmallPartition(segment_bytes=1024)
    small.write_all(numbered(40, size=100))
    small.close()
    small.files.unlink("data/checkpoint")
    small.reopen()
    assert values(small) == numbered(40, size=100)
    assert small.write(b"next").base_offset == 40


def test_a_missing_epoch_file_is_made_again_from_the_batches() -> None:
    small = SmallPartition()
    small.write(b"a")
    small.reopen()
    small.write(b"b")
    small.close()
    small.files.unlink(f"{PATH}/leader-epoch-checkpoint")
    small.reopen()
    assert [record.leader_epoch for record in read_all(small.partition)] == [0, 1]


def test_a_failed_sync_poisons_until_reopened_which_cuts_to_the_durable_offset() -> None:
    files = FaultyFiles(MemoryFiles())
    small = SmallPartition(files)
    small.write(b"durable")
    fail_next_sync(files)
    with pytest.raises(PartitionPoisoned, match="not acknowledged"):
        small.write(b"lost")
    with pytest.raises(PartitionPoisoned):
        small.write(b"refused")
    assert values(small) == [b"durable"]
    small.close()
    small.reopen()
    assert values(small) == [b"durable"]
    assert small.names(".cut")
    assert small.write(b"again").base_offset == 1


def test_a_cleaned_file_that_was_not_swapped_in_goes_and_a_swap_is_finished() -> None:
    small = SmallPartition(segment_bytes=1024)
    small.write_all(numbered(40, size=100))
    small.close()
    first, second = small.names(".log")[:2]
    stem = f"{PATH}/{first[:20]}"
    merged = b"".join(_read(small, name) for name in (first, second))
    write_raw(small, f"{first[:20]}{SWAP_SUFFIX}", merged)
    write_raw(small, f"{second[:20]}{CLEANED_SUFFIX}", b"half")
    small.reopen()
    assert not small.files.exists(stem + SWAP_SUFFIX)
    assert small.names(CLEANED_SUFFIX) == []
    assert second not in small.names(".log")
    assert values(small) == numbered(40, size=100)


def fail_next_sync(files: FaultyFiles) -> None:
    files.fault = Fault(lambda operation: errno.EIO if operation.kind is Kind.SYNC and not files.failed else 0)


def _read(small: SmallPartition, name: str) -> bytes:
    file = small.files.open(f"{PATH}/{name}")
    return file.read(0, file.size())


@pytest.mark.parametrize("line", ["-1 0", "0 -1", "0 0\n0 5", "1 5\n2 5", "0 x", "0", "0 0 0"])
def test_epochs_that_cannot_be_are_made_anew(line: str, caplog: pytest.LogCaptureFixture) -> None:
    log = SmallPartition()
    log.write_all(numbered(3))
    log.close()
    path = f"{PATH}/leader-epoch-checkpoint"
    file = log.files.open(path, write=True)
    file.truncate(0)
    file.write(0, [f"0\n{line.count(chr(10)) + 1}\n{line}\n".encode()])
    file.close()
    assert log.reopen().leader_epoch == 0
    assert read_file(log.files, path) == b"0\n1\n0 0\n"
    assert any(path in message for message in caplog.messages)


def test_a_report_of_nothing_is_all_zeros() -> None:
    assert CompactionReport() == CompactionReport(0, 0, 0, 0, 0, 0, 0)
