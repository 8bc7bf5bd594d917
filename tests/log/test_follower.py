"""A reading process beside the writer: sees what is published, as it moves, and explains what is gone."""

from __future__ import annotations

import pytest

from foldlog.errors import CorruptLog, OffsetOutOfRange, StorageError
from foldlog.log import follower
from foldlog.log.follower import FollowedPartition
from foldlog.records.loops import pack
from log.small_partition import SmallPartition, numbered, read_all


def test_it_follows_appends_and_rolls() -> None:
    small = SmallPartition(segment_bytes=1024)
    reader = small.reader()
    assert read_all(reader) == []
    for upto in range(1, 60):
        small.write(numbered(upto, size=100)[-1])
        assert reader.high_watermark == upto
        assert len(read_all(reader)) == upto
    assert reader.segment_count == small.partition.segment_count
    assert reader.size_bytes == small.partition.size_bytes


def test_it_does_not_see_what_is_not_durable() -> None:
    small = SmallPartition()
    small.write(b"durable")
    small.partition.append(pack([(0, None, b"only written", ())]))
    reader = small.reader()
    assert [record.value for record in read_all(reader)] == [b"durable"]
    assert bytes(reader.read(1).data) == b""
    small.partition.sync()
    assert [record.value for record in read_all(reader)] == [b"durable", b"only written"]


def test_it_explains_an_expired_offset() -> None:
    small = SmallPartition(segment_bytes=1024, retention_bytes=1024)
    small.write_all(numbered(40, size=100))
    reader = small.reader()
    assert reader.read(0).next_offset > 0
    small.partition.enforce_retention()
    with pytest.raises(OffsetOutOfRange, match=r"expired by retention\.bytes"):
        reader.read(0)
    assert read_all(reader)[0].offset == small.partition.log_start_offset


def test_it_finds_times_and_reads_beyond_its_index() -> None:
    small = SmallPartition()
    reader = small.reader()
    for at in range(300):
        small.write(b"x" * 100, timestamp_ms=1000 + at)
        if at % 50 == 0:
            assert reader.offset_at_time(1000 + at) == (at, 1000 + at)


def test_it_waits_while_names_change_and_says_so_if_they_never_settle(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(follower, "_TRIES", 3)
    small = SmallPartition()
    small.write(b"a")
    slot = small.checkpoint.slot(0)
    state = slot.load()
    assert state is not None
    slot.store(state._replace(generation=state.generation | 1))
    with pytest.raises(StorageError, match="in the middle of a change"):
        small.reader().read(0)
    small.reopen()
    assert [record.value for record in read_all(small.reader())] == [b"a"]


def test_damage_is_damage_to_a_reader_too() -> None:
    small = SmallPartition()
    small.write_all(numbered(5))
    small.damage(f"{0:020d}.log", 70)
    with pytest.raises(CorruptLog):
        read_all(small.reader())


def test_a_missing_directory_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    small = SmallPartition()
    with pytest.raises(CorruptLog, match="directory is missing"):
        FollowedPartition.open(small.files, "data/nowhere-0", small.checkpoint.slot(9), label=("nowhere", 0))


def test_what_a_crash_left_behind_a_clean_slot_is_read_once_the_writer_is_open_again() -> None:
    small = SmallPartition()
    small.close()
    small.reopen()
    small.partition.append(pack([(small.clock.now_ms(), None, b"unsynced", ())]))
    small.reopen()
    assert small.reader().high_watermark == small.partition.high_watermark == 1
