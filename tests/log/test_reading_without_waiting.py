"""`Partition.read(nowait=True)` gives what a plain read gives, or BlockingIOError, and never does slow work itself.

Files whose pages come and go stand in for a disk: a read that may not wait is refused while the chosen pages are out.
Every step at which a read can meet the disk is refused once, and the same read without `nowait` then answers.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foldlog.errors import CorruptLog, OffsetOutOfRange, StorageError
from foldlog.files.base import File, Files, would_block
from foldlog.files.memory import MemoryFiles
from foldlog.files.posix import PosixFiles
from log.small_partition import PATH, SmallPartition, numbered

InMemory = Callable[[int, int], bool]


class ColdFiles(MemoryFiles):
    """Memory files that refuse to read without waiting where `in_memory(position, length)` is false."""

    def __init__(self) -> None:
        super().__init__()
        self.in_memory: InMemory = lambda position, length: True
        self.refused = 0
        self.fault: OSError | None = None

    def open(self, path: str, *, write: bool = False, create: bool = False) -> File:  # type: ignore[override]
        return ColdFile(self, super().open(path, write=write, create=create), path)


class ColdFile:
    """An open file of ColdFiles."""

    def __init__(self, owner: ColdFiles, file: File, path: str) -> None:
        self._owner = owner
        self._file = file
        self._path = path
        self.sync_descriptor = file.sync_descriptor
        self.size = file.size
        self.read = file.read
        self.write = file.write
        self.truncate = file.truncate
        self.sync = file.sync
        self.close = file.close

    def read_into(self, position: int, buffer: bytearray | memoryview, *, nowait: bool = False) -> int:
        if self._owner.fault is not None:
            raise self._owner.fault
        if nowait and not self._owner.in_memory(position, len(buffer)):
            self._owner.refused += 1
            raise would_block(self._path)
        return self._file.read_into(position, buffer)


def filled(files: Files | None = None, batches: int = 60, **config: int) -> SmallPartition:
    small = SmallPartition(files, index_interval_bytes=256, **config)
    small.write_all(numbered(batches, 50))
    return small


def test_what_is_in_memory_is_read_at_once() -> None:
    small = filled()
    for offset in range(60):
        assert small.partition.read(offset, 400, nowait=True) == small.partition.read(offset, 400)
    assert small.partition.read(60, nowait=True).next_offset == 60


def test_what_is_not_in_memory_is_refused_and_read_by_who_waits() -> None:
    files = ColdFiles()
    small = filled(files)
    files.in_memory = lambda position, length: False
    with pytest.raises(BlockingIOError):
        small.partition.read(30, nowait=True)
    assert small.partition.read(30).next_offset > 30


def test_a_cold_batch_header_that_an_index_entry_leads_to_is_refused_too() -> None:
    files = ColdFiles()
    small = filled(files)
    files.in_memory = lambda position, length: length > 100
    with pytest.raises(BlockingIOError):
        small.partition.read(31, nowait=True)  # not an entry's own offset
    assert files.refused == 1


def test_a_batch_larger_than_what_was_asked_for_is_refused_where_only_its_beginning_is_in_memory() -> None:
    files = ColdFiles()
    small = SmallPartition(files)
    small.write(b"x" * 20_000)
    files.in_memory = lambda position, length: position + length <= 8_192
    with pytest.raises(BlockingIOError):
        small.partition.read(0, 100, nowait=True)
    assert len(small.partition.read(0, 100).data) > 20_000


def test_a_segment_that_is_not_open_is_opened_by_who_waits() -> None:
    small = filled(segment_records=20)
    small.close()
    small.reopen(index_interval_bytes=256)
    with pytest.raises(BlockingIOError):
        small.partition.read(5, nowait=True)
    expected = small.partition.read(5, 500)
    assert small.partition.read(5, 500, nowait=True) == expected


def test_a_wrong_index_is_made_anew_by_who_waits() -> None:
    small = filled(segment_records=50)
    small.close()
    small.damage(f"{0:020d}.index", 7, 0x01)  # the first entry leads into the middle of a batch
    small.reopen(index_interval_bytes=256)
    small.partition.read(49)  # opens the segment and its index, and uses another entry
    with pytest.raises(BlockingIOError):
        small.partition.read(4, nowait=True)
    expected = small.partition.read(4, 300)
    assert small.partition.read(4, 300, nowait=True) == expected


def test_a_missing_index_is_made_anew_by_who_waits() -> None:
    small = SmallPartition(index_interval_bytes=256, segment_records=3000)
    small.write_all(numbered(3010, 50))
    small.close()
    index = small.files.open(f"{PATH}/{0:020d}.index", write=True)
    index.truncate(0)
    small.reopen(index_interval_bytes=256)
    small.partition.read(0, 100)  # opens the segment; finds the first batch without an index
    with pytest.raises(BlockingIOError):
        small.partition.read(2900, 100, nowait=True)
    small.partition.read(2900, 100)
    assert small.partition.read(2900, 100, nowait=True).next_offset > 2900


def test_other_faults_are_what_they_are_without_nowait() -> None:
    files = ColdFiles()
    small = filled(files)
    with pytest.raises(OffsetOutOfRange):
        small.partition.read(61, nowait=True)
    files.fault = OSError(5, "the disk is gone")
    with pytest.raises(StorageError, match="the disk is gone"):
        small.partition.read(30, nowait=True)
    files.fault = None
    small.damage(f"{0:020d}.log", 100)
    with pytest.raises(CorruptLog):
        small.partition.read(0, 4096, nowait=True)


def test_data_stand_where_the_caller_wants_them_also_in_a_slice_of_its_memory() -> None:
    small = filled()
    frame = bytearray(10_000)
    found = small.partition.read(30, 500, memoryview(frame)[100:], nowait=True)
    assert found == small.partition.read(30, 500)
    assert bytes(found.data) in bytes(frame[100:])


def test_real_files_give_the_same_answers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    small = filled(PosixFiles(), segment_records=25)
    try:
        for offset in range(60):
            expected = small.partition.read(offset, 400)
            assert small.partition.read(offset, 400, nowait=True) == expected, "just read, so in memory"
    finally:
        small.close()
        small.syncer.close()


@given(
    cold_pages=st.sets(st.integers(0, 20)),
    offset=st.integers(0, 60),
    max_bytes=st.integers(1, 6_000),
    segment_records=st.sampled_from([0, 7, 30]),
)
def test_a_read_without_waiting_gives_what_a_plain_one_gives_or_nothing(
    cold_pages: set[int], offset: int, max_bytes: int, segment_records: int
) -> None:
    files = ColdFiles()
    small = filled(files, segment_records=segment_records)
    expected = small.partition.read(offset, max_bytes)
    files.in_memory = lambda position, length: (
        not cold_pages & set(range(position // 256, (position + length - 1) // 256 + 1))
    )
    try:
        assert small.partition.read(offset, max_bytes, nowait=True) == expected
    except BlockingIOError:
        assert files.refused
