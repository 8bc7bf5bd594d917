"""Retention: the plan is a pure function of sizes, timestamps and settings; carrying it out never reuses an offset."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foldlog.errors import OffsetOutOfRange
from foldlog.log.checkpoint import StartReason
from foldlog.log.config import LogConfig
from foldlog.log.retention import SegmentAge, plan_retention
from log.small_partition import SmallPartition, numbered, read_all

AGES = st.lists(st.builds(SegmentAge, st.integers(1, 100), st.integers(-1, 1000)), min_size=1, max_size=8)


@given(AGES, st.integers(-1, 400), st.integers(-1, 500), st.integers(0, 2000))
def test_what_is_kept_satisfies_both_limits_and_what_goes_violates_one(
    ages: list[SegmentAge], retention_bytes: int, retention_ms: int, now_ms: int
) -> None:
    config = LogConfig(retention_bytes=retention_bytes, retention_ms=retention_ms)
    count = plan_retention(ages, config, now_ms).count
    kept = ages[count:]
    if kept:
        head = kept[0]
        rest = sum(age.size_bytes for age in kept) - head.size_bytes
        assert retention_bytes < 0 or rest < retention_bytes
        expired = head.largest_timestamp_ms >= 0 and now_ms - head.largest_timestamp_ms > retention_ms
        assert retention_ms < 0 or not expired
    for at in range(count):
        after = sum(age.size_bytes for age in ages[at + 1 :])
        by_size = 0 <= retention_bytes <= after
        by_time = retention_ms >= 0 and now_ms - ages[at].largest_timestamp_ms > retention_ms
        assert by_size or by_time


def test_without_delete_in_the_policy_nothing_expires() -> None:
    config = LogConfig(retention_bytes=0, retention_ms=0, delete=False, compact=True)
    assert plan_retention([SegmentAge(10, 0)] * 3, config, 10**9).count == 0


def test_segments_go_from_the_head_and_offsets_stay() -> None:
    small = SmallPartition(segment_bytes=1024, retention_bytes=2048)
    small.write_all(numbered(60, size=100))
    assert small.partition.enforce_retention() > 0
    start = small.partition.log_start_offset
    assert 0 < start < 60
    assert 2048 <= small.partition.size_bytes < 2048 + 1024
    assert [(r.offset, r.value) for r in read_all(small.partition)] == list(enumerate(numbered(60, size=100)))[start:]
    with pytest.raises(OffsetOutOfRange, match=r"expired by retention\.bytes"):
        small.partition.read(start - 1)


def test_time_is_counted_from_the_newest_record_of_a_segment() -> None:
    small = SmallPartition(segment_records=2, retention_ms=1000)
    small.write(b"old")
    small.clock.advance(900)
    small.write(b"younger")
    small.write(b"next segment")
    small.clock.advance(900)
    assert small.partition.enforce_retention() == 0
    small.clock.advance(200)
    assert small.partition.enforce_retention() == 2
    assert small.partition.log_start_offset == small.partition.high_watermark == 3
    with pytest.raises(OffsetOutOfRange, match=r"expired by retention\.ms"):
        small.partition.read(0)


def test_a_clock_that_went_backward_deletes_nothing_early() -> None:
    small = SmallPartition(retention_ms=1000)
    small.write(b"a")
    small.clock.set_wall(0)
    small.write(b"b")
    small.clock.advance(2000)
    assert small.partition.enforce_retention() == 0


def test_an_emptied_log_goes_on_where_it_was_also_after_a_restart() -> None:
    small = SmallPartition(retention_ms=0)
    small.write_all(numbered(5))
    small.clock.advance(10)
    small.partition.enforce_retention()
    assert small.partition.log_start_offset == 5
    small.close()
    small.reopen(retention_ms=0)
    assert (small.partition.log_start_offset, small.partition.high_watermark) == (5, 5)
    assert small.write(b"next").base_offset == 5


def test_a_crash_before_the_unlink_is_finished_at_the_next_open() -> None:
    small = SmallPartition(segment_bytes=1024)
    small.write_all(numbered(40, size=100))
    second = int(small.names(".log")[1][:20])
    slot = small.checkpoint.slot(0)
    known = slot.load()
    assert known is not None
    slot.store(known._replace(log_start_offset=second, start_reason=StartReason.RETENTION_TIME))
    small.reopen()
    assert small.partition.log_start_offset == second
    assert int(small.names(".log")[0][:20]) == second


def test_deleting_records_moves_the_start_into_the_middle_of_a_segment() -> None:
    small = SmallPartition()
    small.write_all(numbered(10))
    assert small.partition.delete_records(4) == 4
    assert [record.offset for record in read_all(small.partition)] == [4, 5, 6, 7, 8, 9]
    small.reopen()
    assert small.partition.log_start_offset == 4
    assert small.partition.delete_records(10) == 10
    assert read_all(small.partition) == []
    assert small.partition.size_bytes == 0
    with pytest.raises(OffsetOutOfRange, match="not written yet"):
        small.partition.delete_records(11)


def test_a_segment_that_is_exactly_as_old_as_allowed_stays_for_another_millisecond() -> None:
    config = LogConfig(retention_ms=100)
    ages = [SegmentAge(10, 900), SegmentAge(10, 5000)]
    assert [plan_retention(ages, config, now_ms).count for now_ms in (999, 1000, 1001)] == [0, 0, 1]
