"""A slot holds what was stored; a torn sector leaves the other one; zeroes and rubbish are not a state."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foldlog.errors import CorruptLog, NewerVersion
from foldlog.files.base import read_file
from foldlog.files.memory import MemoryFiles
from foldlog.limits import SECTOR_BYTES
from foldlog.log import checkpoint as checkpoints
from foldlog.log.checkpoint import Checkpoint, SlotState, StartReason
from log.small_partition import DIRECTORY, SmallPartition, read_all

PATH = "data/checkpoint"
OFFSETS = st.integers(0, 2**63 - 1)


def open_checkpoint(files: MemoryFiles, *, write: bool = True) -> Checkpoint:
    if not files.exists("data"):
        files.make_directory("data")
    return Checkpoint.open(files, PATH, write=write)


def tear(files: MemoryFiles, sector: int) -> None:
    file = files.open(PATH, write=True)
    file.write(sector * SECTOR_BYTES + 8, [b"\xaa" * 40])


@given(
    st.builds(
        SlotState,
        generation=st.integers(0, 2**64 - 1),
        log_start_offset=OFFSETS,
        high_watermark=OFFSETS,
        synced_offset=OFFSETS,
        active_base_offset=OFFSETS,
        active_position=OFFSETS,
        cleaned_offset=OFFSETS,
        gaps_below=OFFSETS,
        segment_count=st.integers(0, 2**32 - 1),
        leader_epoch=st.integers(0, 2**31 - 1),
        start_reason=st.sampled_from(StartReason),
        clean=st.booleans(),
        poisoned=st.booleans(),
        has_producers=st.booleans(),
        tiered_below=OFFSETS,
    ),
    st.none() | st.tuples(st.integers(1, 2**40), OFFSETS),
)
def test_every_state_comes_back_as_it_was_stored(state: SlotState, journaled: tuple[int, int] | None) -> None:
    """With what the journal holds above the segments, or without."""
    if journaled is None:
        state = state._replace(durable_offset=state.synced_offset, durable_position=state.active_position)
    else:
        state = state._replace(
            synced_offset=min(state.synced_offset, 2**62),
            durable_offset=min(state.synced_offset, 2**62) + journaled[0],
            durable_position=journaled[1],
        )
    files = MemoryFiles()
    open_checkpoint(files).slot(3).store(state)
    assert open_checkpoint(files).slot(3).load() == state
    assert open_checkpoint(files, write=False).slot(3).load_live() == state


def test_a_slot_that_was_never_stored_says_nothing() -> None:
    checkpoint = open_checkpoint(MemoryFiles())
    assert checkpoint.slot(0).load() is None
    assert checkpoint.slot(500).load() is None


def test_a_torn_hot_sector_leaves_what_was_stored_firmly() -> None:
    files = MemoryFiles()
    slot = open_checkpoint(files).slot(0)
    firm = SlotState(log_start_offset=7)
    slot.store_firmly(firm)
    slot.store(SlotState(log_start_offset=7, durable_offset=99))
    tear(files, 1)
    assert open_checkpoint(files).slot(0).load() == firm


def test_a_torn_firm_sector_leaves_the_hot_one() -> None:
    files = MemoryFiles()
    slot = open_checkpoint(files).slot(0)
    slot.store_firmly(SlotState(durable_offset=5))
    tear(files, 2)
    assert open_checkpoint(files).slot(0).load() == SlotState(durable_offset=5)


def test_a_hot_sector_that_missed_the_last_stores_gives_way_to_the_firm_one() -> None:
    files = MemoryFiles()
    slot = open_checkpoint(files).slot(0)
    slot.store(SlotState(log_start_offset=0))
    file = files.open(PATH, write=True)
    stale = file.read(SECTOR_BYTES, SECTOR_BYTES)
    slot.store_firmly(SlotState(log_start_offset=7))
    file.write(SECTOR_BYTES, [stale])
    again = open_checkpoint(files).slot(0)
    assert again.load() == SlotState(log_start_offset=7)
    again.store(SlotState(log_start_offset=8))
    assert open_checkpoint(files).slot(0).load() == SlotState(log_start_offset=8)


def test_slots_do_not_share_sectors() -> None:
    files = MemoryFiles()
    checkpoint = open_checkpoint(files)
    for number in range(3):
        checkpoint.slot(number).store_firmly(SlotState(durable_offset=number))
    tear(files, 3)
    tear(files, 4)
    again = open_checkpoint(files)
    assert again.slot(0).load() == SlotState(durable_offset=0)
    assert again.slot(1).load() is None
    assert again.slot(2).load() == SlotState(durable_offset=2)


def test_a_reader_sees_stores_at_once_and_slots_that_came_later() -> None:
    files = MemoryFiles()
    writer = open_checkpoint(files)
    writer.slot(0).store(SlotState(durable_offset=1))
    reader = open_checkpoint(files, write=False)
    late = reader.slot(200)
    with pytest.raises(CorruptLog, match="cut short"):
        late.load_live()  # a catalog names no slot before the file holds it
    writer.slot(200).store(SlotState(durable_offset=4))
    assert late.load_live() == SlotState(durable_offset=4)


def test_a_cleared_slot_is_forgotten_for_good() -> None:
    files = MemoryFiles()
    checkpoint = open_checkpoint(files)
    checkpoint.slot(0).store_firmly(SlotState(durable_offset=1))
    checkpoint.clear(0)
    assert open_checkpoint(files).slot(0).load() is None


def test_a_checkpoint_of_a_newer_version_is_not_called_damaged() -> None:
    files = MemoryFiles()
    files.make_directory("data")
    content = b"foldlog checkpoint 3\n" + bytes(range(256)) * 4
    files.open(PATH, write=True, create=True).write(0, [content])
    for write in (False, True):
        with pytest.raises(NewerVersion, match=r"newer foldlog .*version 3.*upgrade foldlog") as refused:
            open_checkpoint(files, write=write)
        assert "damaged" not in str(refused.value)
        assert "cut-out" not in str(refused.value)
    assert read_file(files, PATH) == content


def test_while_the_journal_is_needed_the_file_has_a_version_that_older_ones_refuse(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    files = MemoryFiles()
    checkpoint = open_checkpoint(files)
    assert read_file(files, PATH).startswith(b"foldlog checkpoint 1\n")
    checkpoint.begin_journal()
    again = open_checkpoint(files)  # as after a crash: nothing was replayed yet
    assert again.needs_journal
    with monkeypatch.context() as older:
        older.setattr(checkpoints, "VERSION", 1)
        with pytest.raises(NewerVersion, match=r"newer foldlog .*version 2.*upgrade foldlog"):
            open_checkpoint(files)
    again.end_journal()
    assert read_file(files, PATH).startswith(b"foldlog checkpoint 1\n")
    assert not open_checkpoint(files).needs_journal


def test_a_reason_that_a_newer_version_knows_is_told_as_unknown() -> None:
    assert StartReason(200) is StartReason.UNKNOWN
    assert StartReason(200).sentence


def test_a_file_that_is_not_a_checkpoint_is_refused() -> None:
    files = MemoryFiles()
    files.make_directory("data")
    files.open(PATH, write=True, create=True).write(0, [b"not a checkpoint at all, by any reading"])
    with pytest.raises(CorruptLog, match="not a checkpoint file"):
        open_checkpoint(files)


@pytest.mark.parametrize("sectors", [1, 2])
def test_a_reader_refuses_a_slot_that_is_not_whole_rather_than_show_an_older_log(sectors: int) -> None:
    small = SmallPartition()
    small.write(b"a")
    small.partition._core.change(firmly=True)
    small.write(b"b")
    small.close()
    file = small.files.open(f"{DIRECTORY}/checkpoint", write=True)
    for sector in range(sectors):
        file.write(512 + 512 * sector + 40, [b"damage"])
    with pytest.raises(CorruptLog):
        small.reader().read(0)
    small.reopen()
    assert [record.value for record in read_all(small.reader())] == [b"a", b"b"]
