"""The sparse index: a seek is a look-up and a short scan; an index that is missing or wrong costs time, not truth."""

from __future__ import annotations

import struct
from collections.abc import Callable
from pathlib import Path

import pytest

import foldlog
from behaviours.steps import numbered, partition_files, put_many, values
from foldlog import limits
from foldlog.files.posix import PosixFile

ENTRY = struct.Struct(">II")
BASE_OFFSET = struct.Struct(">q")


def indexed_log(directory: Path, records: int = 400) -> None:
    """Single-record batches of about a hundred bytes, in several segments, cleanly closed."""
    with foldlog.open(str(directory)) as log:
        log.create_topic("orders", partitions=1, config={"segment.bytes": 16_384, "index.interval.bytes": 1024})
        with log.producer(linger_ms=0, batch_records=1) as producer:
            for number in range(records):
                producer.send("orders", value=b"%d" % number, key=b"k" * 40)


def test_the_index_is_sparse_one_entry_per_interval_of_bytes(directory: Path) -> None:
    indexed_log(directory)
    for log_file, index_file in zip(
        partition_files(directory, "orders", ".log"), partition_files(directory, "orders", ".index"), strict=True
    ):
        entries = len(index_file.read_bytes()) // ENTRY.size
        assert entries <= log_file.stat().st_size // 1024 + 1
        assert entries >= log_file.stat().st_size // 4096


def test_an_index_entry_leads_from_an_offset_to_its_place_in_the_file(directory: Path) -> None:
    indexed_log(directory)
    looked_up = 0
    for log_file, index_file in zip(
        partition_files(directory, "orders", ".log"), partition_files(directory, "orders", ".index"), strict=True
    ):
        segment = log_file.read_bytes()
        for relative_offset, position in ENTRY.iter_unpack(index_file.read_bytes()):
            # One record a batch, so that a batch's last offset is its base offset, which stands first in its header.
            assert BASE_OFFSET.unpack_from(segment, position) == (int(log_file.stem) + relative_offset,)
            looked_up += 1
    assert looked_up > 10


def test_reading_far_into_the_log_does_not_read_what_is_before(
    log: foldlog.Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    log.create_topic("orders", partitions=1)
    put_many(log, "orders", [b"x" * 1000] * 8000)
    read_bytes = 0
    real_read, real_read_into = PosixFile.read, PosixFile.read_into

    def counted_read(file: PosixFile, position: int, length: int) -> bytes:
        nonlocal read_bytes
        data = real_read(file, position, length)
        read_bytes += len(data)
        return data

    def counted_read_into(file: PosixFile, position: int, buffer: bytearray | memoryview) -> int:
        nonlocal read_bytes
        count = real_read_into(file, position, buffer)
        read_bytes += count
        return count

    monkeypatch.setattr(PosixFile, "read", counted_read)
    monkeypatch.setattr(PosixFile, "read_into", counted_read_into)
    costs = []
    for offset in (10, 4000, 7990):
        read_bytes = 0
        (record,) = log.read("orders", 0, start=offset, max_records=1)
        assert record.offset == offset
        costs.append(read_bytes)
    # Eight megabytes lie before the last of them.
    assert max(costs) <= 3 * limits.READ_CHUNK_BYTES


def test_every_offset_is_found_through_the_index(directory: Path) -> None:
    indexed_log(directory)
    with foldlog.open(str(directory)) as log:
        for offset in range(400):
            assert values(log.read("orders", 0, start=offset, max_records=1)) == numbered(1, first=offset)


def remove(file: Path) -> None:
    file.unlink()


def fill_with_nonsense(file: Path) -> None:
    file.write_bytes(bytes((7 * position + 3) % 251 for position in range(file.stat().st_size)))


def point_elsewhere(file: Path) -> None:
    """The last number of each entry is one too many: for .index the position, for .timeindex the offset."""
    entry = struct.Struct(">II" if file.suffix == ".index" else ">qI")
    entries = list(entry.iter_unpack(file.read_bytes()))
    file.write_bytes(b"".join(entry.pack(first, last + 1) for first, last in entries))


def cut_short(file: Path) -> None:
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2 - 3])


@pytest.mark.parametrize("damage", [remove, fill_with_nonsense, point_elsewhere, cut_short])
@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
def test_a_damaged_index_never_leads_to_a_wrong_record(
    directory: Path, damage: Callable[[Path], None], suffix: str
) -> None:
    indexed_log(directory)
    for file in partition_files(directory, "orders", suffix):
        damage(file)
    with foldlog.open(str(directory)) as log:
        for offset in range(0, 400, 7):
            assert values(log.read("orders", 0, start=offset, max_records=1)) == numbered(1, first=offset)
        assert values(log.read("orders", 0)) == numbered(400)
        assert log.offsets_at("orders", timestamp_ms=0) == {0: 0}
