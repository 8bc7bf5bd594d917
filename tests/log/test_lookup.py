"""Seeking: any offset and any time is found, whatever state the indexes are in, and by reading little."""

from __future__ import annotations

import struct

import pytest

from foldlog.errors import CorruptLog, OffsetOutOfRange
from foldlog.files.base import File
from foldlog.files.memory import MemoryFile
from foldlog.log.segment import Segment
from foldlog.records.loops import decode, pack
from log.small_partition import PATH, SmallPartition, numbered, read_all

VALUES = numbered(400, size=120)


@pytest.fixture
def small() -> SmallPartition:
    small = SmallPartition(segment_bytes=1 << 20)
    for at, value in enumerate(VALUES):
        small.write(value, timestamp_ms=1000 + 10 * at)
    return small


def first_at(small: SmallPartition, offset: int) -> bytes:
    found = small.partition.read(offset, 1)
    records, _ = decode(found.data, "events", 0, start_offset=offset)
    return bytes(records[0].value)


def test_every_offset_is_found(small: SmallPartition) -> None:
    assert [first_at(small, offset) for offset in range(400)] == VALUES


def test_a_wrong_base_offset_is_found_by_whomever_comes_across_it(small: SmallPartition) -> None:
    """Also by a read that begins with a batch which the index names, and so knows no offset from before it."""
    size = small.partition.size_bytes // len(VALUES)
    small.close()
    small.reopen()
    named, _ = Segment(small.files, PATH, 0, len(VALUES) * size, writable=False).offset_index[0]
    small.damage(small.names(".log")[0], (named + 2) * size + 7, 0x01)
    for offset in range(named - 1, named + 2):
        assert small.partition.read(offset).next_offset == named + 2
    with pytest.raises(CorruptLog, match="its base offset is"):
        small.partition.read(named + 2)


@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
def test_a_missing_index_is_made_again(small: SmallPartition, suffix: str) -> None:
    small.close()
    small.files.unlink(f"{PATH}/{small.names(suffix)[0]}")
    small.reopen()
    assert [first_at(small, offset) for offset in range(0, 400, 7)] == VALUES[::7]
    assert small.partition.offset_at_time(1000 + 10 * 250) == (250, 3500)


def test_an_index_that_leads_elsewhere_is_made_again(small: SmallPartition) -> None:
    small.close()
    for position in range(64):
        small.damage(small.names(".index")[0], position, 0x15)
    small.reopen()
    assert [first_at(small, offset) for offset in range(400)] == VALUES


@pytest.mark.parametrize("mask", [0x01, 0x80, 0xFF])
@pytest.mark.parametrize("position", range(32))
def test_any_byte_of_an_index_may_be_wrong(small: SmallPartition, position: int, mask: int) -> None:
    small.close()
    small.damage(small.names(".index")[0], position, mask)
    small.reopen()
    wanted = (0, 30, 33, 40, 80, 200, 399)
    assert [first_at(small, offset) for offset in wanted] == [VALUES[offset] for offset in wanted]


@pytest.mark.parametrize("position", range(36))
def test_a_time_index_that_lies_is_found_out(small: SmallPartition, position: int) -> None:
    small.close()
    small.damage(small.names(".timeindex")[0], position, 0x01)
    small.reopen()
    for at in (0, 33, 34, 35, 70, 399):
        assert small.partition.offset_at_time(1000 + 10 * at) == (at, 1000 + 10 * at)


@pytest.mark.parametrize("sealed", [True, False])
def test_a_time_index_that_lost_its_end_hides_nothing(small: SmallPartition, sealed: bool) -> None:
    if sealed:
        small.partition.roll()
    small.close()
    small.files.open(f"{PATH}/{small.names('.timeindex')[0]}", write=True).truncate(12)
    small.reopen()
    assert small.partition.offset_at_time(4990) == (399, 4990)
    assert small.partition.offset_at_time(3000) == (200, 3000)
    assert small.partition.enforce_retention(now_ms=4990 + 604_800_000) == 0


def test_the_first_record_at_or_after_a_time(small: SmallPartition) -> None:
    assert small.partition.offset_at_time(0) == (0, 1000)
    assert small.partition.offset_at_time(1001) == (1, 1010)
    assert small.partition.offset_at_time(4990) == (399, 4990)
    assert small.partition.offset_at_time(4991) is None


def test_a_time_inside_a_batch_gives_the_record_not_the_batch() -> None:
    small = SmallPartition()
    small.partition.append(pack([(10, None, b"a", ()), (30, None, b"b", ()), (20, None, b"c", ())]))
    small.partition.sync()
    assert small.partition.offset_at_time(15) == (1, 30)


def test_an_offset_before_the_start_or_past_the_end_says_why(small: SmallPartition) -> None:
    small.partition.delete_records(10)
    with pytest.raises(OffsetOutOfRange, match="deleted on request"):
        small.partition.read(9)
    with pytest.raises(OffsetOutOfRange, match="not written yet"):
        small.partition.read(401)
    assert small.partition.read(400).next_offset == 400


def test_a_look_up_reads_one_interval_not_the_segment(small: SmallPartition, monkeypatch: pytest.MonkeyPatch) -> None:
    small.close()
    small.reopen()
    first_at(small, 0)
    read_bytes = []
    plain = MemoryFile.read

    def counting(self: File, position: int, length: int) -> bytes:
        data = plain(self, position, length)  # type: ignore[arg-type]
        read_bytes.append(len(data))
        return data

    monkeypatch.setattr(MemoryFile, "read", counting)
    assert first_at(small, 390) == VALUES[390]
    assert sum(read_bytes) < 3 * 4096


def test_large_batches_do_not_make_an_index_look_useless(monkeypatch: pytest.MonkeyPatch) -> None:
    small = SmallPartition(max_message_bytes=1 << 20)
    for value in range(20):
        small.write(bytes([value]) * 200_000)
    small.close()
    small.reopen()
    rebuilt: list[Segment] = []
    monkeypatch.setattr(Segment, "rebuild_indexes", rebuilt.append)
    assert [first_at(small, offset)[0] for offset in range(20)] == list(range(20))
    assert rebuilt == []


def test_damage_below_the_durable_offset_is_refused_and_named(small: SmallPartition) -> None:
    small.close()
    position = small.partition.size_bytes // 2
    small.damage("00000000000000000000.log", position)
    small.reopen()
    with pytest.raises(CorruptLog) as caught:
        read_all(small.partition)
    assert caught.value.path.endswith("00000000000000000000.log")
    assert position - 200 < caught.value.position <= position


@pytest.mark.parametrize("by", [-1, 1, 5])
def test_an_entry_that_leads_to_another_whole_batch_is_found_out(small: SmallPartition, by: int) -> None:
    """The offset that it names is not passed over, nor is one before it served."""
    size = small.partition.size_bytes // len(VALUES)
    small.close()
    name = f"{PATH}/{small.names('.index')[0]}"
    file = small.files.open(name, write=True)
    offset, position = struct.unpack(">II", file.read(0, 8))
    file.write(0, [struct.pack(">II", offset, position + by * size)])
    file.truncate(8)
    file.close()
    small.reopen()
    assert [first_at(small, one) for one in range(offset - 2, offset + 9)] == VALUES[offset - 2 : offset + 9]


def test_every_record_is_found_by_its_own_time(small: SmallPartition) -> None:
    found = [small.partition.offset_at_time(1000 + 10 * at) for at in range(len(VALUES))]
    assert found == [(at, 1000 + 10 * at) for at in range(len(VALUES))]
