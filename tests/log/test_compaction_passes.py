"""Compaction keeps the newest record per key and nothing else changes: against a dict, over passes and reopens."""

from __future__ import annotations

from typing import Any, NamedTuple, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foldlog.files.base import Files, read_file
from foldlog.log import compaction
from foldlog.records.loops import BatchBuilder, pack, walk
from foldlog.testing.disk_image import DiskImage, Tree
from foldlog.testing.power_cuts import PowerCuts
from foldlog.testing.power_loss import PowerLossFiles
from log.small_partition import DIRECTORY, PATH, SmallPartition, numbered, read_all

KEYED = st.lists(st.tuples(st.integers(0, 9), st.one_of(st.none(), st.binary(max_size=30))), max_size=120)


def write_keyed(small: SmallPartition, records: list[tuple[int, bytes | None]], per_batch: int) -> None:
    for at in range(0, len(records), per_batch):
        batch = [(small.clock.now_ms(), b"k%d" % key, value, ()) for key, value in records[at : at + per_batch]]
        small.partition.append(pack(batch))
    small.partition.sync()


@given(KEYED, st.integers(1, 7), st.sampled_from([1, 3, 1000]))
def test_the_newest_of_each_key_stays_where_it_was(
    records: list[tuple[int, bytes | None]], per_batch: int, map_size: int
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(compaction, "COMPACTION_KEYS_MAX", map_size)
        small = SmallPartition(segment_bytes=1024, compact=True, delete=False)
        write_keyed(small, records, per_batch)
        expected = {b"k%d" % key: (offset, value) for offset, (key, value) in enumerate(records)}
        for _ in range(2):
            small.partition.compact(force=True)
            found = read_all(small.partition)
            assert {record.key: (record.offset, record.value) for record in found} == expected
            assert len(found) == len(expected)
            assert [record.offset for record in found] == sorted(record.offset for record in found)
            assert small.partition.log_start_offset == 0
            assert small.partition.high_watermark == len(records)
            small.close()
            small.reopen(segment_bytes=1024, compact=True, delete=False)
        assert small.write(b"next", key=b"k").base_offset == len(records)


def test_small_results_become_one_segment_that_ends_where_the_next_begins() -> None:
    small = SmallPartition(segment_bytes=1024, compact=True)
    small.write_all(numbered(60, size=100), key=b"same")
    before = small.partition.segment_count
    report = small.partition.compact(force=True)
    assert (report.records_before, report.records_after) == (60, 1)
    assert report.bytes_after < report.bytes_before
    small.partition.compact(force=True)
    assert small.partition.segment_count < before
    small.reopen(segment_bytes=1024)
    assert [record.offset for record in read_all(small.partition)] == [59]


class SizedSegment(NamedTuple):
    """What grouping looks at."""

    base_offset: int
    size: int = 10


@pytest.mark.parametrize(("beyond", "groups"), [(0, [[0, 5]]), (1, [[0], [5]])])
def test_one_segment_never_has_offsets_that_are_more_than_31_bits_apart(beyond: int, groups: list[list[int]]) -> None:
    """Its indexes could not name them."""
    segments = [SizedSegment(0), SizedSegment(5)]
    end_offset = (1 << 31) - 1 + beyond
    found = compaction.group_segments(cast(Any, segments), end_offset, 1000)
    assert [[segment.base_offset for segment in group] for group in found] == groups


def test_where_offsets_are_far_apart_a_group_begins_anew() -> None:
    segments = [SizedSegment(at << 30) for at in range(6)]
    found = compaction.group_segments(cast(Any, segments), 6 << 30, 1000)
    assert [[segment.base_offset >> 30 for segment in group] for group in found] == [[0], [1], [2], [3], [4], [5]]
    assert len(compaction.group_segments(cast(Any, segments[:1] + segments[1:2]), (1 << 30) + 9, 1000)) == 1


def test_tombstones_outlive_their_cleaning_by_delete_retention() -> None:
    small = SmallPartition(segment_records=2, compact=True, delete_retention_ms=1000)
    small.write(b"value", key=b"k")
    small.write(None, key=b"k")
    small.write(b"other", key=b"other")
    small.partition.compact(force=True)
    assert [(r.offset, r.value) for r in read_all(small.partition)] == [(1, None), (2, b"other")]
    small.clock.advance(999)
    small.partition.compact(force=True)
    assert [r.offset for r in read_all(small.partition)] == [1, 2]
    small.clock.advance(2)
    small.partition.compact(force=True)
    assert [r.offset for r in read_all(small.partition)] == [2]
    assert small.partition.high_watermark == 3


def test_timestamps_survive_a_delete_horizon() -> None:
    small = SmallPartition(segment_records=2, compact=True, delete_retention_ms=10**6)
    small.write(None, key=b"k", timestamp_ms=5000)
    small.write(b"v", key=b"l", timestamp_ms=6000)
    small.partition.compact(force=True)
    assert [record.timestamp_ms for record in read_all(small.partition)] == [5000, 6000]
    assert small.partition.offset_at_time(5500) == (1, 6000)


def test_the_background_only_compacts_what_is_dirty_enough_and_old_enough() -> None:
    small = SmallPartition(segment_records=4, compact=True, min_cleanable_dirty_ratio=0.5, min_compaction_lag_ms=1000)
    small.write_all(numbered(12), key=b"k")
    assert small.partition.compact().segments_before == 0
    small.clock.advance(2000)
    assert small.partition.compact().records_after == 1
    assert small.partition.compact().segments_before == 0


def test_a_record_waits_no_longer_than_the_longest_lag_whatever_the_dirty_ratio() -> None:
    small = SmallPartition(segment_records=4, compact=True, min_cleanable_dirty_ratio=0.9, max_compaction_lag_ms=1000)
    for number in range(40):  # different keys, which compaction keeps
        small.write(b"v", key=str(number).encode(), timestamp_ms=small.clock.now_ms())
    small.partition.compact(force=True)
    for value in numbered(8):
        small.write(value, key=b"0", timestamp_ms=small.clock.now_ms())
    small.clock.advance(1000)
    assert small.partition.compact().segments_before == 0, "it is not dirty enough, and not late"
    small.clock.advance(1)
    assert small.partition.compact().segments_before > 0
    assert small.partition.compact().segments_before == 0, "once is enough"


def test_the_longest_lag_ends_the_active_segment_of_a_compacted_log_only() -> None:
    for compact, count in ((True, 2), (False, 1)):
        small = SmallPartition(compact=compact, max_compaction_lag_ms=1000, segment_ms=5000)
        small.write(b"v", key=b"k", timestamp_ms=small.clock.now_ms())
        small.clock.advance(1001)
        small.write(b"v", key=b"k", timestamp_ms=small.clock.now_ms())
        assert small.partition.segment_count == count


def test_the_active_segment_is_never_touched() -> None:
    small = SmallPartition(segment_records=4, compact=True, min_cleanable_dirty_ratio=0.0)
    small.write_all(numbered(10), key=b"k")
    small.clock.advance(1)
    small.partition.compact()
    assert [record.offset for record in read_all(small.partition)] == [7, 8, 9]


def test_a_policy_of_delete_is_only_compacted_on_request() -> None:
    small = SmallPartition(segment_records=2, min_cleanable_dirty_ratio=0.0)
    small.write_all(numbered(6), key=b"k")
    small.partition.compact()
    assert len(read_all(small.partition)) == 6
    small.partition.compact(force=True)
    assert len(read_all(small.partition)) == 1


def test_records_without_a_key_are_kept() -> None:
    small = SmallPartition(segment_records=2)
    small.write_all(numbered(4))
    small.write_all(numbered(4), key=b"k")
    small.partition.compact(force=True)
    assert [record.key for record in read_all(small.partition)] == [None] * 4 + [b"k"]


def test_the_last_batch_of_a_live_producer_survives_empty() -> None:
    small = SmallPartition(segment_records=1, compact=True)
    builder = BatchBuilder(1 << 20)
    builder.append(small.clock.now_ms(), b"k", b"idempotent")
    small.partition.append(builder.build(producer_id=7, producer_epoch=0, base_sequence=0))
    small.write_all(numbered(3), key=b"k")
    small.partition.compact(force=True)
    assert [record.offset for record in read_all(small.partition)] == [3]
    headers = walk(small.partition.read(0).data).headers
    assert (headers[0].producer_id, headers[0].record_count, headers[0].base_sequence) == (7, 0, 0)


def test_reading_goes_on_through_a_compaction_with_old_and_new_lists() -> None:
    small = SmallPartition(segment_bytes=1024, compact=True)
    small.write_all(numbered(40, size=100), key=b"k")
    reader = small.reader()
    assert len(read_all(reader)) == 40
    small.partition.compact(force=True)
    assert [record.offset for record in read_all(reader)] == [39]
    small.write(b"more", key=b"l")
    assert [record.offset for record in read_all(reader)] == [39, 40]


def test_compacted_and_expired_leaves_the_right_start() -> None:
    small = SmallPartition(segment_records=2, compact=True, retention_ms=1000)
    small.write_all(numbered(6), key=b"k")
    small.partition.compact(force=True)
    small.clock.advance(2000)
    small.write(b"young", key=b"l")
    small.partition.enforce_retention()
    assert small.partition.log_start_offset == 6
    assert [record.offset for record in read_all(small.partition)] == [6]


def test_a_power_cut_while_segments_are_merged_leaves_the_old_ones_or_the_new() -> None:
    """Never the new one beside an old one that it holds: the offsets would be there twice."""
    source = SmallPartition(segment_bytes=4096, compact=True, delete=False)
    for number in range(12):
        source.write(b"%d" % number, key=b"k%d" % (number % 5))
        if number % 3 == 2:
            source.partition.roll()
    newest = {record.key: record.offset for record in read_all(source.partition)}
    source.close()

    def opened(files: Files) -> SmallPartition:
        log = SmallPartition.__new__(SmallPartition)
        log.__dict__.update(source.__dict__)
        log.files = files
        log.reopen(segment_bytes=4096, compact=True, delete=False)
        return log

    def judge(image: DiskImage) -> None:
        log = opened(image.files())
        offsets = [record.offset for record in read_all(log.partition)]
        assert offsets == sorted(set(offsets))
        assert {record.key: record.offset for record in read_all(log.partition)} == newest
        log.close()

    names = [entry.name for entry in source.files.entries(PATH)]
    partition: dict[str, Tree] = {name: read_file(source.files, f"{PATH}/{name}") for name in names}
    checkpoint = read_file(source.files, f"{DIRECTORY}/checkpoint")
    cuts = PowerCuts(judge, seed=3, mixes=4)
    files = cuts.attach(PowerLossFiles(DiskImage({DIRECTORY: {"checkpoint": checkpoint, "events-0": partition}})))
    merged = opened(files)
    assert merged.partition.compact(force=True).segments_before > 2
    assert cuts.finish() > 15
