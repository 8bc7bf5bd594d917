"""Sealed segments go to the store and are read from there; the disk keeps what the settings say."""

from __future__ import annotations

import pytest

from foldlog.errors import OffsetOutOfRange
from foldlog.files.memory import MemoryFiles
from foldlog.log.reading import without_aborted
from log.tier.tiered_log import new_log


def test_segments_leave_the_disk_and_are_read_from_the_store() -> None:
    log = new_log(MemoryFiles())
    for number in range(10):
        log.send(f"a{number}", f"b{number}")
    log.clock.advance(1)
    report = log.work()
    assert (report.copied, report.freed) == (9, 9)
    assert (log.partition.log_start_offset, log.partition.local_start_offset) == (0, 18)
    assert log.partition.segment_count == 1
    assert log.values() == [f"{letter}{number}" for number in range(10) for letter in "ab"]
    assert len(log.objects()) == 9
    log.reopen(cleanly=True)
    assert (log.partition.log_start_offset, log.partition.local_start_offset) == (0, 18)
    assert len(log.values()) == 20
    assert log.work() == (0, 0, 0)
