"""Damage of every kind, cut out: the rest stays readable at its offsets, and nothing is deleted.

Each test writes a small partition in memory, damages its files, and lets `inspect` look and `cut_out` repair. What must
hold afterwards, always: the partition opens; every record whose batch was not damaged reads back at its old offset;
no record is invented; the log ends where it ended; what was cut lies byte for byte in .cut files. One test flips every
byte of a log in turn, one cuts the power after every file operation of a repair.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from foldlog.errors import CorruptLog, StorageError
from foldlog.files.base import Files, read_file
from foldlog.files.memory import MemoryFiles
from foldlog.log.checkpoint import Checkpoint
from foldlog.log.doctor.inspection import Inspection, inspect, inspect_live
from foldlog.log.doctor.repair import RepairReport, cut_out
from foldlog.records.loops import Record, pack, walk
from foldlog.testing.power_cuts import PowerCuts
from foldlog.testing.power_loss import DiskImage, PowerLossFiles, Tree
from log.small_partition import DIRECTORY, PATH, SmallPartition, numbered, read_all

FIRST = "00000000000000000000.log"
TOPIC_ID = "00000000000000000000000000000001"


def segments_of(log: SmallPartition) -> list[str]:
    return log.names(".log")


def written(count: int = 12, *, size: int = 40) -> SmallPartition:
    """One record a batch, several segments, closed."""
    log = SmallPartition(segment_bytes=1024, index_interval_bytes=200)
    log.write_all(numbered(count, size))
    log.close()
    return log


def look(log: SmallPartition) -> Inspection:
    checkpoint = Checkpoint.open(log.files, f"{DIRECTORY}/checkpoint", write=False)
    try:
        return inspect(log.files, PATH, checkpoint.slot(0).load())
    finally:
        checkpoint.close()


def repair_files(files: Files) -> RepairReport:
    checkpoint = Checkpoint.open(files, f"{DIRECTORY}/checkpoint", write=True)
    try:
        return cut_out(files, PATH, checkpoint.slot(0), topic_id=TOPIC_ID)
    finally:
        checkpoint.close()


def repair(log: SmallPartition) -> RepairReport:
    return repair_files(log.files)


def values(records: list[Record]) -> dict[int, bytes]:
    return {record.offset: record.value for record in records}


def expected(count: int, *lost: int, size: int = 40) -> dict[int, bytes]:
    return {offset: value for offset, value in enumerate(numbered(count, size)) if offset not in lost}


def batch_position(log: SmallPartition, name: str, number: int) -> int:
    return walk(read_file(log.files, f"{PATH}/{name}")).headers[number].position


def check_goes_on(log: SmallPartition, count: int, *lost: int, size: int = 40) -> None:
    """It opens, reads back all that is not lost, appends at the old end, and is whole by every account."""
    partition = log.reopen(segment_bytes=1024, index_interval_bytes=200)
    assert values(read_all(partition)) == expected(count, *lost, size=size)
    assert partition.log_end_offset == count
    assert log.write(b"after").base_offset == count
    log.close()
    assert not look(log).damages
    again = log.reopen(segment_bytes=1024, index_interval_bytes=200)
    assert values(read_all(again)) == {**expected(count, *lost, size=size), count: b"after"}
    log.close()


def test_a_sound_partition_has_nothing_to_report_and_nothing_to_repair() -> None:
    log = written()
    found = look(log)
    assert (found.damages, found.notes, found.records) == ((), (), 12)
    assert repair(log) == RepairReport((), ())
    assert log.names(".cut") == []


def test_a_batch_with_a_wrong_byte_is_cut_out_and_only_that_batch() -> None:
    log = written()
    name = segments_of(log)[0]
    position = batch_position(log, name, 2)
    before = read_file(log.files, f"{PATH}/{name}")
    log.damage(name, position + 70)
    (damage,) = look(log).damages
    assert (damage.path, damage.position) == (f"{PATH}/{name}", position)
    assert "CRC" in damage.reason
    assert (damage.first_offset, damage.next_offset, damage.lost_offsets) == (2, 3, 1)

    report = repair(log)

    assert report.kept_aside == (f"{PATH}/{name}.{position}.cut",)
    size = walk(before).headers[2].size
    kept = read_file(log.files, report.kept_aside[0])
    assert len(kept) == size
    assert sum(one != other for one, other in zip(kept, before[position : position + size], strict=True)) == 1
    check_goes_on(log, 12, 2)


@pytest.mark.parametrize(
    ("field", "what"), [(7, "base offset"), (11, "length"), (8, "length"), (15, "epoch"), (12, "epoch"), (16, "magic")]
)
@pytest.mark.parametrize("number", [0, 2])
def test_damage_that_the_crc_does_not_cover_is_mended_without_a_loss(field: int, what: str, number: int) -> None:
    log = written()
    name = segments_of(log)[1]
    log.damage(name, batch_position(log, name, number) + field, mask=0x05)
    (damage,) = look(log).damages
    assert damage.is_mendable, what
    assert damage.lost_offsets == 0
    assert repair(log).kept_aside
    check_goes_on(log, 12)


@pytest.mark.parametrize("segment", [0, 1, -1])
@pytest.mark.parametrize("keep", [0, 1, 90, -1])
def test_a_segment_that_was_cut_short_ends_with_a_batch_without_records(segment: int, keep: int) -> None:
    log = written()
    name = segments_of(log)[segment]
    headers = walk(read_file(log.files, f"{PATH}/{name}")).headers
    file = log.files.open(f"{PATH}/{name}", write=True)
    size = keep if keep >= 0 else file.size() - 1
    file.truncate(size)
    lost = [header.base_offset for header in headers if header.position + header.size > size]
    assert look(log).damages
    if segment == -1:
        with pytest.raises(CorruptLog):
            log.reopen()
        log.checkpoint.close()
    repair(log)
    check_goes_on(log, 12, *lost)


@pytest.mark.parametrize("segment", [1, -1])
def test_a_missing_segment_becomes_a_gap_that_is_explained(segment: int) -> None:
    log = written()
    name = segments_of(log)[segment]
    headers = walk(read_file(log.files, f"{PATH}/{name}")).headers
    log.files.unlink(f"{PATH}/{name}")
    (damage,) = look(log).damages
    assert damage.lost_offsets == len(headers)
    repair(log)
    check_goes_on(log, 12, *(header.base_offset for header in headers))


def test_a_partition_without_any_file_goes_on_at_the_next_offset() -> None:
    log = written()
    for name in segments_of(log):
        log.files.unlink(f"{PATH}/{name}")
    repair(log)
    partition = log.reopen()
    assert (partition.log_end_offset, read_all(partition)) == (12, [])
    assert log.write(b"after").base_offset == 12


def test_a_missing_directory_is_made_again_and_offsets_go_on() -> None:
    log = written()
    for entry in log.files.entries(PATH):
        log.files.unlink(f"{PATH}/{entry.name}")
    log.files.remove_directory(PATH)
    checkpoint = Checkpoint.open(log.files, f"{DIRECTORY}/checkpoint", write=False)
    with pytest.raises(CorruptLog, match="missing"):
        inspect_live(log.files, PATH, checkpoint.slot(0))
    repair(log)
    assert log.reopen().log_end_offset == 12
    assert log.write(b"after").base_offset == 12


def test_several_damages_in_one_segment_lose_only_their_own_batches() -> None:
    log = SmallPartition(index_interval_bytes=200)
    log.write_all(numbered(30, 40))
    log.close()
    headers = walk(read_file(log.files, f"{PATH}/{FIRST}")).headers
    for number in (3, 4, 9, 20, 29):
        log.damage(FIRST, headers[number].position + 65)
    assert [damage.first_offset for damage in look(log).damages] == [3, 9, 20, 29]
    repair(log)
    check_goes_on(log, 30, 3, 4, 9, 20, 29)


def test_sound_batches_between_two_broken_lengths_are_found_with_the_help_of_the_index() -> None:
    log = SmallPartition(index_interval_bytes=200)
    log.write_all(numbered(30, 40))
    log.close()
    headers = walk(read_file(log.files, f"{PATH}/{FIRST}")).headers
    for number in (5, 25):
        log.damage(FIRST, headers[number].position + 9, mask=0x7F)
        log.damage(FIRST, headers[number].position + 70)
    assert [damage.first_offset for damage in look(log).damages] == [5, 25]
    repair(log)
    check_goes_on(log, 30, 5, 25)


def test_a_batch_inside_a_value_is_never_taken_for_one_of_the_log() -> None:
    """A record's value holds a batch with plausible offsets; the batch around it loses its length and its CRC."""
    log = SmallPartition()
    log.write_all(numbered(3))
    forged = pack([(0, None, b"forged", ())], base_offset=3)
    log.write(b"before" + bytes(forged) + b"behind")
    log.write_all(numbered(2))
    log.close()
    header = walk(read_file(log.files, f"{PATH}/{FIRST}")).headers[3]
    log.damage(FIRST, header.position + 9, mask=0x7F)
    log.damage(FIRST, header.position + 66)
    repair(log)
    found = values(read_all(log.reopen()))
    assert b"forged" not in found.values()
    assert sorted(found) == [0, 1, 2, 4, 5]


def test_bytes_between_batches_are_cut_out_and_cost_no_offset() -> None:
    log = written()
    name = segments_of(log)[0]
    data = read_file(log.files, f"{PATH}/{name}")
    position = batch_position(log, name, 3)
    file = log.files.open(f"{PATH}/{name}", write=True)
    file.write(0, [data[:position] + b"\x02 not a batch, but in between \x02" + data[position:]])
    (damage,) = look(log).damages
    assert (damage.position, damage.lost_offsets) == (position, 0)
    repair(log)
    check_goes_on(log, 12)


def test_bytes_after_a_sealed_segments_end_are_cut_out() -> None:
    log = written()
    name = segments_of(log)[0]
    size = len(read_file(log.files, f"{PATH}/{name}"))
    log.files.open(f"{PATH}/{name}", write=True).write(size, [pack([(0, None, b"who are you", ())], base_offset=99)])
    assert [damage.position for damage in look(log).damages] == [size]
    repair(log)
    check_goes_on(log, 12)


def test_damage_in_the_active_segment_keeps_what_stands_above_the_checkpoint() -> None:
    """Records that were written and not synced when the process was killed are found, whole, behind the damage."""
    log = SmallPartition(index_interval_bytes=200)
    log.write_all(numbered(5, 40))
    log.partition.append(pack([(0, None, value, ()) for value in numbered(7, 40)[5:7]]))
    log.checkpoint.close()  # and nothing else: as after kill -9
    log.damage(FIRST, batch_position(log, FIRST, 1) + 70)
    repair(log)
    check_goes_on(log, 7, 1)


def test_a_torn_write_above_the_checkpoint_is_no_damage_and_is_left_to_recovery() -> None:
    log = written()
    name = segments_of(log)[-1]
    size = len(read_file(log.files, f"{PATH}/{name}"))
    log.files.open(f"{PATH}/{name}", write=True).write(size, [pack([(0, None, b"torn", ())], base_offset=12)[:50]])
    found = look(log)
    assert not found.damages
    assert any("50 bytes are not in the checkpoint" in note for note in found.notes)
    assert repair(log).damages == ()
    check_goes_on(log, 12)


def test_a_torn_write_behind_damage_is_set_aside_too() -> None:
    log = written()
    name = segments_of(log)[-1]
    data = read_file(log.files, f"{PATH}/{name}")
    torn = bytes(pack([(0, None, b"torn", ())], base_offset=12)[:50])
    log.files.open(f"{PATH}/{name}", write=True).write(len(data), [torn])
    log.damage(name, 70)
    report = repair(log)
    assert read_file(log.files, report.kept_aside[-1]) == torn
    check_goes_on(log, 12, walk(data).headers[0].base_offset)


def test_what_compaction_left_out_stays_left_out() -> None:
    log = SmallPartition(segment_bytes=1024, compact=True)
    for number in range(24):
        log.write(b"%d" % number + b"." * 90, key=b"k%d" % (number % 3 if number % 4 else number))
    log.partition.compact(force=True)
    before = read_all(log.partition)
    assert len(before) < 12
    log.close()
    name = segments_of(log)[0]
    headers = walk(read_file(log.files, f"{PATH}/{name}")).headers
    hit = next(header for header in headers if header.record_count)
    log.damage(name, hit.position + 75)
    lost = range(hit.base_offset, hit.next_offset)
    repair(log)
    assert read_all(log.reopen(compact=True)) == [record for record in before if record.offset not in lost]


def test_an_epoch_file_that_contradicts_the_batches_is_made_anew() -> None:
    log = written()
    path = f"{PATH}/leader-epoch-checkpoint"
    before = read_file(log.files, path)
    log.files.open(path, write=True).write(0, [before.replace(b"0 0\n", b"3 0\n")])
    (damage,) = look(log).damages
    assert damage.path == path
    assert repair(log).kept_aside == (f"{path}.0.cut",)
    check_goes_on(log, 12)


def test_an_index_that_leads_elsewhere_is_a_note_and_no_damage() -> None:
    log = written()
    name = log.names(".index")[0]
    log.damage(name, 7, mask=0x10)
    found = look(log)
    assert not found.damages
    assert any(name in note for note in found.notes)


def test_without_its_slot_a_partition_is_verified_whole_and_repaired() -> None:
    log = written()
    log.files.unlink(f"{DIRECTORY}/checkpoint")
    first, last = segments_of(log)[0], segments_of(log)[-1]
    lost = [walk(read_file(log.files, f"{PATH}/{name}")).headers[0].base_offset for name in (first, last)]
    for name in (first, last):
        log.damage(name, 70)
    assert [damage.first_offset for damage in inspect(log.files, PATH, None).damages] == lost
    repair(log)
    check_goes_on(log, 12, *lost)


def test_a_damaged_swap_file_is_set_aside_and_what_it_was_made_from_is_kept() -> None:
    log = written()
    name = segments_of(log)[0]
    swap = log.files.open(f"{PATH}/{name}.swap", write=True, create=True)
    swap.write(0, [b"\x01" * 200])
    assert repair(log).kept_aside == (f"{PATH}/{name}.swap.0.cut",)
    check_goes_on(log, 12)


def test_what_an_earlier_repair_kept_is_never_overwritten() -> None:
    log = written()
    name = segments_of(log)[0]
    log.damage(name, 70)
    (first,) = repair(log).kept_aside
    before = read_file(log.files, first)
    log.damage(name, 22)
    (second,) = repair(log).kept_aside
    assert second != first
    assert read_file(log.files, first) == before


def test_the_leader_epoch_rises_after_a_repair() -> None:
    log = written()
    epoch = log.reopen(segment_bytes=1024).leader_epoch
    log.close()
    log.damage(segments_of(log)[0], 70)
    repair(log)
    assert log.reopen(segment_bytes=1024).leader_epoch == epoch + 1


def test_beside_a_writer_that_appends_rolls_and_compacts_nothing_looks_damaged() -> None:
    log = SmallPartition(segment_bytes=1024, compact=True)
    checkpoint = Checkpoint.open(log.files, f"{DIRECTORY}/checkpoint", write=False)
    for number in range(40):
        log.write(b"%d" % number + b"." * 80, key=b"k%d" % (number % 4))
        if number % 10 == 9:
            log.partition.compact(force=True)
        assert not inspect_live(log.files, PATH, checkpoint.slot(0)).damages


def test_a_change_that_was_interrupted_is_told_apart_from_damage() -> None:
    log = written()
    name = segments_of(log)[1]
    log.files.unlink(f"{PATH}/{name}")
    checkpoint = Checkpoint.open(log.files, f"{DIRECTORY}/checkpoint", write=True)
    slot = checkpoint.slot(0)
    state = slot.load()
    assert state is not None
    slot.store(state._replace(generation=7))
    with pytest.raises(StorageError, match="in the middle of a change"):
        inspect_live(log.files, PATH, slot)


def test_every_byte_flipped_in_turn_is_found_and_repaired() -> None:
    """Nothing but the batch that was hit is ever lost, and never is a record invented."""
    log = written(6, size=120)
    count, files = 6, log.files
    clean = {name: read_file(files, f"{PATH}/{name}") for name in segments_of(log)}
    assert len(clean) >= 2
    for name, data in clean.items():
        headers = walk(data).headers
        for position in range(len(data)):
            hit = next(one for one in headers if one.position <= position < one.position + one.size)
            log.files = _copy_of(files)
            log.damage(name, position, mask=1 << position % 8)
            assert look(log).damages, f"{name}: byte {position}"
            repair(log)
            found = values(read_all(log.reopen(segment_bytes=1024)))
            log.close()
            whole = expected(count, size=120)
            assert found in (whole, {k: v for k, v in whole.items() if k != hit.base_offset}), f"{name}: {position}"


def _copy_of(files: Files) -> MemoryFiles:
    copy = MemoryFiles()
    copy.make_directory(PATH)
    for directory in (DIRECTORY, PATH):
        for entry in files.entries(directory):
            if not entry.is_directory:
                path = f"{directory}/{entry.name}"
                copy.open(path, write=True, create=True).write(0, [read_file(files, path)])
    return copy


def _image_of(files: Files) -> DiskImage:
    partition: dict[str, Tree] = {entry.name: read_file(files, f"{PATH}/{entry.name}") for entry in files.entries(PATH)}
    checkpoint = read_file(files, f"{DIRECTORY}/checkpoint")
    return DiskImage({DIRECTORY: {"checkpoint": checkpoint, "events-0": partition}})


def damage_sealed(log: SmallPartition) -> list[int]:
    log.damage(segments_of(log)[0], 70)
    log.damage(segments_of(log)[1], 70)
    return [0, walk(read_file(log.files, f"{PATH}/{segments_of(log)[1]}"), check_crc=False).headers[0].base_offset]


def damage_active(log: SmallPartition) -> list[int]:
    name = segments_of(log)[-1]
    log.damage(name, 70)
    return [int(name[:20])]


def cut_active_short(log: SmallPartition) -> list[int]:
    name = segments_of(log)[-1]
    headers = walk(read_file(log.files, f"{PATH}/{name}")).headers
    log.files.open(f"{PATH}/{name}", write=True).truncate(headers[-1].position + 20)
    return [headers[-1].base_offset]


def damage_epochs(log: SmallPartition) -> list[int]:
    path = f"{PATH}/leader-epoch-checkpoint"
    log.files.open(path, write=True).write(0, [read_file(log.files, path).replace(b"0 0\n", b"3 0\n")])
    return []


@pytest.mark.parametrize("damage", [damage_sealed, damage_active, cut_active_short, damage_epochs])
def test_a_power_cut_during_a_repair_leaves_what_a_second_repair_finishes(
    damage: Callable[[SmallPartition], list[int]],
) -> None:
    source = written(14, size=60)
    lost = damage(source)
    whole = expected(14, *lost, size=60)

    def judge(image: DiskImage) -> None:
        log = SmallPartition.__new__(SmallPartition)
        log.__dict__.update(source.__dict__)
        log.files = image.files()
        repair(log)
        partition = log.reopen(segment_bytes=1024)
        assert values(read_all(partition)) == whole
        assert partition.log_end_offset == 14
        log.close()

    cuts = PowerCuts(judge, seed=7, mixes=2)
    repair_files(cuts.attach(PowerLossFiles(_image_of(source.files))))
    assert cuts.finish() > 15


def test_a_partition_of_which_nothing_is_left_starts_empty_again() -> None:
    log = written()
    for name in [*segments_of(log), "leader-epoch-checkpoint"]:
        log.files.unlink(f"{PATH}/{name}")
    log.files.unlink(f"{DIRECTORY}/checkpoint")
    found = inspect(log.files, PATH, None)
    assert [(damage.lost_offsets, damage.is_loss_unknown) for damage in found.damages] == [(0, True)]
    assert found.end_offset == 0
    repair(log)
    partition = log.reopen(segment_bytes=1024, index_interval_bytes=200)
    assert (partition.log_end_offset, log.write(b"first").base_offset) == (0, 0)
    log.close()


def test_without_a_slot_the_log_ends_where_its_batches_end() -> None:
    log = written()
    found = inspect(log.files, PATH, None)
    assert (found.end_offset, found.records) == (12, 12)
    assert look(log).end_offset == 12


def test_epochs_that_are_made_anew_are_named_with_their_file(caplog: pytest.LogCaptureFixture) -> None:
    log = written()
    path = f"{PATH}/leader-epoch-checkpoint"
    log.files.unlink(path)
    log.reopen(segment_bytes=1024, index_interval_bytes=200)
    log.close()
    assert f"{path}: the file is missing; rebuilt from the batches" in caplog.messages
