"""When a segment ends: by bytes, by count, by age, before 32 bits overflow; and what a roll leaves durable."""

from __future__ import annotations

import itertools

import pytest

from foldlog.errors import InvalidBatch, RecordTooLarge
from foldlog.log import partition as partition_module
from foldlog.records.loops import pack
from log.small_partition import PATH, SmallPartition, numbered, read_all


def bases(small: SmallPartition) -> list[int]:
    return [segment.base_offset for segment in small.partition.segments()]


def test_a_segment_never_grows_past_segment_bytes() -> None:
    small = SmallPartition(segment_bytes=1024)
    small.write_all(numbered(60, size=100))
    assert small.partition.segment_count > 5
    assert all(segment.size_bytes <= 1024 for segment in small.partition.segments())
    assert [record.value for record in read_all(small.partition)] == numbered(60, size=100)


def test_a_batch_larger_than_a_segment_gets_one_of_its_own() -> None:
    small = SmallPartition(segment_bytes=1024)
    small.write(b"small")
    small.write(b"x" * 5000)
    small.write(b"small")
    assert bases(small) == [0, 1, 2]


def test_segment_records_rolls_by_count_as_the_texts_draw_it() -> None:
    small = SmallPartition(segment_records=1000)
    for _ in range(21):
        small.write(*numbered(100))
    assert small.names(".log") == [f"{base:020d}.log" for base in (0, 1000, 2000)]


def test_an_old_segment_rolls_at_the_next_append() -> None:
    small = SmallPartition(segment_ms=1000)
    small.write(b"a")
    small.clock.advance(1000)
    small.write(b"b")
    small.clock.advance(1)
    small.write(b"c")
    assert bases(small) == [0, 2]


def test_a_clock_that_goes_backward_rolls_nothing_and_keeps_order() -> None:
    small = SmallPartition(segment_ms=1000)
    small.write(b"a")
    small.clock.set_wall(5)
    small.write(b"b")
    assert bases(small) == [0]
    assert [record.value for record in read_all(small.partition)] == [b"a", b"b"]


def test_it_rolls_before_a_position_would_overflow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(partition_module, "POSITION_MAX", 500)
    small = SmallPartition()
    small.write_all(numbered(20, size=100))
    assert all(segment.size_bytes <= 500 for segment in small.partition.segments())


def test_it_rolls_before_a_relative_offset_would_overflow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(partition_module, "POSITION_MAX", 2000)
    small = SmallPartition()
    for _ in range(5):
        small.write(*[None] * 150)
    infos = small.partition.segments()
    assert len(infos) > 1
    assert all(b.base_offset - a.base_offset <= 2000 for a, b in itertools.pairwise(infos))


def test_rolling_an_empty_segment_does_nothing() -> None:
    small = SmallPartition()
    small.partition.roll()
    small.write(b"a")
    small.partition.roll()
    small.partition.roll()
    assert bases(small) == [0, 1]


def test_a_batch_over_max_message_bytes_is_refused_and_nothing_is_kept() -> None:
    small = SmallPartition(max_message_bytes=200)
    for trusted in (False, True):
        with pytest.raises(RecordTooLarge, match=r"max\.message\.bytes=200"):
            small.partition.append(pack([(0, None, b"x" * 300, ())]), trusted=trusted)
    assert small.partition.log_end_offset == 0
    assert small.files.open(f"{PATH}/{0:020d}.log").size() == 0


def test_a_record_without_a_key_cannot_go_to_a_compacted_log() -> None:
    small = SmallPartition(compact=True)
    with pytest.raises(InvalidBatch, match="without a key"):
        small.partition.append(pack([(0, b"k", b"v", ()), (0, None, b"v", ())]), trusted=True)


def test_append_time_replaces_the_producers_timestamps() -> None:
    small = SmallPartition(log_append_time=True)
    small.clock.set_wall(77_000)
    appended = small.write(b"a", timestamp_ms=5)
    assert appended.append_time_ms == 77_000
    record = read_all(small.partition)[0]
    assert (record.timestamp_ms, record.timestamp_type) == (77_000, 1)


def test_a_topics_compression_replaces_the_producers() -> None:
    small = SmallPartition(compression=4)
    small.partition.append(pack([(0, None, b"z" * 1000, ())], compression=1))
    small.partition.append(pack([(0, None, b"z" * 1000, ())]))
    small.partition.sync()
    assert [record.value for record in read_all(small.partition)] == [b"z" * 1000] * 2
    assert small.partition.size_bytes < 400
