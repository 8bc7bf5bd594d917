"""Recompression changes how records are stored and nothing else: the same records at the same offsets, with the same
epochs and producer fields, for writers and readers, before and after a reopen; and no batch ever gets larger."""

from __future__ import annotations

import errno
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foldlog.errors import CorruptLog, StorageError
from foldlog.files.memory import MemoryFiles
from foldlog.log.follower import FollowedPartition
from foldlog.log.partition import Partition
from foldlog.records import batch as fmt
from foldlog.records.batch import Compression
from foldlog.records.loops import BatchHeader, control_batch, pack, walk
from foldlog.testing.faulty_files import NO_FAULT, Fault, FaultyFiles, Kind
from log.small_partition import PATH, SmallPartition, numbered, read_all

CODECS = st.sampled_from(list(Compression))
VALUES = st.one_of(st.none(), st.binary(max_size=40), st.integers(0, 400).map(lambda size: b"same " * size))
BATCH = st.tuples(CODECS, st.lists(st.tuples(st.sampled_from([b"a", b"b", b"c"]), VALUES), min_size=1, max_size=6))
SETTINGS: dict[str, Any] = {"segment_bytes": 1024, "index_interval_bytes": 128, "compact": True, "delete": False}
FIRST = f"{0:020d}.log"


def headers_of(partition: Partition | FollowedPartition) -> list[BatchHeader]:
    """Of every batch from the log start on."""
    found: list[BatchHeader] = []
    offset = partition.log_start_offset
    while offset < partition.high_watermark:
        piece = partition.read(offset)
        found += walk(piece.data).headers
        offset = piece.next_offset
    return found


def identity(header: BatchHeader) -> tuple[int, ...]:
    """What of a batch may not change."""
    return (
        header.base_offset, header.last_offset, header.leader_epoch, header.record_count, header.base_timestamp,
        header.max_timestamp, header.producer_id, header.producer_epoch, header.base_sequence,
        header.attributes & ~fmt.COMPRESSION_MASK,
    )  # fmt: skip


@given(st.lists(BATCH, min_size=1, max_size=12), CODECS, st.booleans())
def test_records_and_what_identifies_their_batches_are_equal_before_and_after(
    batches: list[tuple[Compression, list[tuple[bytes, bytes | None]]]], codec: Compression, compacted: bool
) -> None:
    small = SmallPartition(**SETTINGS)
    sequence, rows = 0, []
    for produced_in, records in batches:
        small.clock.advance(7)
        rows = [(small.clock.now_ms(), key, value, ()) for key, value in records]
        batch = pack(rows, produced_in, producer_id=4711, producer_epoch=0, base_sequence=sequence)
        small.partition.append(batch)
        sequence += len(records)
    small.partition.append(control_batch(fmt.CONTROL_COMMIT, 1, 9, 0, small.clock.now_ms()), trusted=True)
    small.partition.sync()
    if compacted:
        small.partition.compact(force=True)  # gaps, empty batches and delete horizons
    reader = small.reader()
    records_before, headers_before = read_all(small.partition), headers_of(small.partition)
    report = small.partition.recompress(codec)
    for partition in (small.partition, reader):
        assert read_all(partition) == records_before
        assert [identity(header) for header in headers_of(partition)] == [identity(header) for header in headers_before]
    sizes = [(before.size, after.size) for before, after in zip(headers_before, headers_of(reader), strict=True)]
    assert all(after <= before for before, after in sizes)
    assert report.batches_rewritten == sum(after < before for before, after in sizes)
    assert report.bytes_before - report.bytes_after == sum(before - after for before, after in sizes)
    small.close()
    small.reopen(**SETTINGS)
    assert read_all(small.partition) == records_before
    last = pack(rows, producer_id=4711, producer_epoch=0, base_sequence=sequence - len(rows))
    assert small.partition.append(last).is_duplicate, "its producer is known by what is stored"


def test_every_record_is_found_by_offset_and_by_time_in_the_smaller_file() -> None:
    small = SmallPartition(**SETTINGS)
    for value in numbered(60, size=300):
        small.clock.advance(10)
        small.write(value, key=b"k")
    report = small.partition.recompress(Compression.ZSTD)
    assert report.bytes_after < report.bytes_before / 1.5
    assert report.segments == report.segments_rewritten > 10
    for record in read_all(small.partition):
        assert small.partition.offset_at_time(record.timestamp_ms) == (record.offset, record.timestamp_ms)
        assert small.partition.read(record.offset, 1).data[:8] == record.offset.to_bytes(8, "big")


def test_the_active_segment_is_sealed_first_and_what_is_appended_later_is_left() -> None:
    small = SmallPartition()
    small.write(b"a" * 1000)
    report = small.partition.recompress(Compression.LZ4)
    assert (report.segments, report.batches_rewritten) == (1, 1)
    small.write(b"a" * 1000)
    assert [header.compression for header in headers_of(small.partition)] == [Compression.LZ4, Compression.NONE]


def test_what_would_not_get_smaller_or_is_in_that_codec_stays_byte_for_byte() -> None:
    small = SmallPartition()
    small.write(b"tiny")
    small.partition.append(pack([(0, None, b"b" * 1000, ())], Compression.ZSTD))
    small.partition.sync()
    before = bytes(small.partition.read(0).data)
    report = small.partition.recompress(Compression.ZSTD)
    assert (report.batches, report.batches_rewritten, report.segments_rewritten) == (2, 0, 0)
    assert bytes(small.partition.read(0).data) == before
    assert small.names(".cleaned") == []


def test_a_second_time_writes_nothing() -> None:
    small = SmallPartition()
    small.write(b"c" * 1000)
    first = small.partition.recompress(Compression.GZIP)
    names, generation = small.names(".log"), small.checkpoint.slot(0).load()
    second = small.partition.recompress(Compression.GZIP)
    assert (second.bytes_before, second.bytes_after) == (first.bytes_after, first.bytes_after)
    assert (second.batches_rewritten, small.names(".log")) == (0, names)
    assert small.checkpoint.slot(0).load() == generation


def test_damage_is_named_and_nothing_is_changed() -> None:
    small = SmallPartition(segment_records=1)
    small.write_all([b"d" * 1000, b"e" * 1000])
    small.damage(FIRST, 500)
    with pytest.raises(CorruptLog) as caught:
        small.partition.recompress(Compression.ZSTD)
    assert (caught.value.path, caught.value.position) == (f"{PATH}/{FIRST}", 0)
    assert small.names(".cleaned") == small.names(".swap") == []
    assert small.partition.read(1).next_offset == 2


def test_whichever_operation_fails_every_record_is_read_on_and_after_a_reopen() -> None:
    """The operations of one recompression are counted, then each fails once: for want of space, or altogether."""
    values = [b"%d" % number * 600 for number in range(3)]

    def prepared() -> tuple[FaultyFiles, SmallPartition]:
        files = FaultyFiles(MemoryFiles())
        small = SmallPartition(files, segment_records=1)
        small.write_all(values)
        files.operations.clear()
        return files, small

    files, small = prepared()
    small.partition.recompress(Compression.ZSTD)
    operations = list(files.operations)
    assert {Kind.WRITE, Kind.SYNC, Kind.RENAME, Kind.UNLINK, Kind.SYNC_DIRECTORY} <= {one.kind for one in operations}
    refused = 0
    for operation in operations:
        for number in (errno.EIO, errno.ENOSPC):
            files, small = prepared()
            files.fault = Fault.at(operation.number, number)
            try:
                small.partition.recompress(Compression.ZSTD)
            except StorageError:
                refused += 1
            assert [record.value for record in read_all(small.partition)] == values
            files.fault = NO_FAULT
            small.reopen()
            assert [record.value for record in read_all(small.partition)] == values
            assert small.names(".cleaned") == small.names(".swap") == []
            assert small.write(b"more").base_offset == 3
    assert refused > len(operations)
