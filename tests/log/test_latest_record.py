"""The record with the largest timestamp, compared with a plain look at every readable record.

Hypothesis drives one partition with clocks that go anywhere, records that are not synced yet, rolls, deleted heads,
compaction and restarts; after each step the answer is that of the model.
"""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from foldlog.files.base import File
from foldlog.files.memory import MemoryFiles
from foldlog.records.loops import control_batch, pack
from log.small_partition import PATH, SmallPartition, read_all

CONFIG: dict[str, Any] = {"index_interval_bytes": 200, "segment_bytes": 3_000}


def expected(small: SmallPartition) -> tuple[int, int] | None:
    records = [record for record in read_all(small.partition) if record.timestamp_ms >= 0]
    if not records:
        return None
    best = max(records, key=lambda record: (record.timestamp_ms, -record.offset))
    return best.offset, best.timestamp_ms


class LatestRecord(RuleBasedStateMachine):
    """One partition and its readable records."""

    def __init__(self) -> None:
        super().__init__()
        self.small = SmallPartition(**CONFIG)

    @rule(
        times=st.lists(st.sampled_from([-1, 0, 5]) | st.integers(1_000, 1_050), min_size=1, max_size=5),
        size=st.sampled_from([1, 30, 300]),
        synced=st.booleans(),
    )
    def append(self, times: list[int], size: int, synced: bool) -> None:
        records = [(time, b"k%d" % (time % 7), b"v" * size, ()) for time in times]
        appended = self.small.partition.append(pack(records))
        if synced:
            self.small.partition.wait_acknowledged(appended.next_offset)

    @rule()
    def roll(self) -> None:
        self.small.partition.roll()

    @rule(share=st.floats(0, 1))
    def delete_head(self, share: float) -> None:
        partition = self.small.partition
        span = partition.high_watermark - partition.log_start_offset
        partition.delete_records(partition.log_start_offset + int(share * span))

    @rule()
    def compact(self) -> None:
        self.small.partition.compact(force=True)

    @rule()
    def reopen(self) -> None:
        self.small.close()
        self.small.reopen(**CONFIG)

    @invariant()
    def the_answer_is_that_of_a_look_at_all(self) -> None:
        assert self.small.partition.max_timestamp_offset() == expected(self.small)

    def teardown(self) -> None:
        self.small.close()
        self.small.syncer.close()


LatestRecord.TestCase.settings = settings(max_examples=60, stateful_step_count=25)
TestLatestRecord = LatestRecord.TestCase


def test_an_empty_log_has_none() -> None:
    small = SmallPartition()
    assert small.partition.max_timestamp_offset() is None
    small.write(b"a", timestamp_ms=-1)
    assert small.partition.max_timestamp_offset() is None, "nor has one without timestamps"


def test_what_cannot_be_read_yet_does_not_count_until_it_is_acknowledged() -> None:
    small = SmallPartition()
    small.write(b"a", timestamp_ms=500)
    appended = small.partition.append(pack([(900, None, b"b", ())]))
    assert small.partition.max_timestamp_offset() == (0, 500)
    small.partition.acknowledged_early(appended.next_offset)
    assert small.partition.durable_offset == 1
    assert small.partition.max_timestamp_offset() == (1, 900)
    assert small.partition.durable_offset == appended.next_offset


def test_a_marker_of_a_transaction_is_no_record() -> None:
    small = SmallPartition()
    small.write(b"a", timestamp_ms=500)
    small.write(b"b", timestamp_ms=400)
    small.partition.wait_acknowledged(small.partition.append(control_batch(1, 0, 7, 0, 900), trusted=True).next_offset)
    assert small.partition.max_timestamp_offset() == (0, 500)


class CountingFiles(MemoryFiles):
    """Counts the bytes that are read from logs."""

    def __init__(self) -> None:
        super().__init__()
        self.read_bytes = 0

    def open(self, path: str, *, write: bool = False, create: bool = False) -> File:  # type: ignore[override]
        file = super().open(path, write=write, create=create)
        return CountedFile(self, file) if path.endswith(".log") else file


class CountedFile:
    """An open file of CountingFiles."""

    def __init__(self, owner: CountingFiles, file: File) -> None:
        self._owner = owner
        self._file = file
        self.sync_descriptor = file.sync_descriptor
        self.size = file.size
        self.write = file.write
        self.truncate = file.truncate
        self.sync = file.sync
        self.close = file.close

    def read(self, position: int, length: int) -> bytes:
        data = self._file.read(position, length)
        self._owner.read_bytes += len(data)
        return data

    def read_into(self, position: int, buffer: bytearray | memoryview, *, nowait: bool = False) -> int:
        count = self._file.read_into(position, buffer, nowait=nowait)
        self._owner.read_bytes += count
        return count


@pytest.mark.parametrize("unsynced", [0, 3])
def test_a_long_log_is_not_read_for_it(unsynced: int) -> None:
    """Late records grow no time index, so the last entry of it is far from the end."""
    files = CountingFiles()
    small = SmallPartition(files)
    small.write(b"a", timestamp_ms=10_000)
    for number in range(100):
        small.write(b"x" * 50_000, timestamp_ms=number)
    for number in range(unsynced):
        small.partition.append(pack([(20_000 + number, None, b"b", ())]))
    files.read_bytes = 0
    assert small.partition.max_timestamp_offset() == (0, 10_000)
    assert small.files.open(f"{PATH}/{0:020d}.log").size() > 5_000_000
    assert files.read_bytes < 500_000
