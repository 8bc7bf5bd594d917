"""Bugs planted on purpose, each of which has lost data in some system before: the power-loss harness finds them all.

A harness that passes a correct log proves little unless it fails a wrong one. Each test takes the log as it is, breaks
one thing in it (through the files it is given, or by replacing one function), runs a workload of test_power_loss and
expects a violation. That the same workloads pass without the bug is test_power_loss itself.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from functools import partial

import pytest

from faults import test_power_loss_topics as topics
from faults.one_partition import OnePartition, Records
from faults.test_power_loss import PLANS, Plan, run_with_cuts
from foldlog.broker.topics import catalog
from foldlog.files.base import Files
from foldlog.files.memory import FileNode
from foldlog.log import cleanup, layout, recovery, segment
from foldlog.log.checkpoint import Slot
from foldlog.log.segment import LOG_SUFFIX, Segment, segment_stem
from foldlog.records.loops import walk
from foldlog.testing.power_cuts import Violation
from foldlog.testing.power_loss import PowerLossFiles


def expect_violation(plan: Plan, files: type[PowerLossFiles] = PowerLossFiles) -> None:
    """The harness finds something, with some seed of the plan."""
    for seed in plan.seeds:
        try:
            run_with_cuts(plan, seed, files=files())
        except Violation:
            return
    raise AssertionError("the bug was not found")


class AcknowledgesBeforeSync(PowerLossFiles):
    """What a log that does not wait for its sync looks like to the disk: the sync comes too late to matter."""

    def note_sync(self, path: str, node: FileNode) -> None:
        if not path.endswith(LOG_SUFFIX):
            super().note_sync(path, node)


def test_acknowledging_before_the_sync_is_found() -> None:
    expect_violation(PLANS["appends"], AcknowledgesBeforeSync)


class NeverSyncsDirectories(PowerLossFiles):
    """Once the partition is in use: the test itself makes the empty one durable."""

    in_use = False

    def sync_directory(self, path: str) -> None:
        if not self.in_use:
            super().sync_directory(path)


def test_leaving_out_the_sync_of_the_directory_is_found() -> None:
    def in_use(log: OnePartition, seed: int) -> None:
        assert isinstance(log.files, NeverSyncsDirectories)
        log.files.in_use = True
        PLANS["rolls"].workload(log, seed)

    expect_violation(replace(PLANS["rolls"], workload=in_use), NeverSyncsDirectories)


def test_not_checking_the_crc_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (recovery, segment):
        monkeypatch.setattr(module, "walk", partial(walk, check_crc=False))
    expect_violation(PLANS["group_commit"])


def test_trusting_the_index_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def trusting(
        self: Segment, offset: int, max_bytes: int, gaps_below: int, end_offset: int = 1 << 62
    ) -> segment.FoundBatches:
        """Where the index leads, there the batch is."""
        position, _ = self._hint(offset)
        data = memoryview(self.log().read(position, self.size - position))
        headers = walk(data, before_offset=end_offset).headers
        return segment.FoundBatches(headers, data, position, headers[-1].next_offset if headers else self.base_offset)

    monkeypatch.setattr(Segment, "locate", trusting)
    expect_violation(PLANS["clean_restarts"])


def test_swapping_in_the_wrong_order_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def hasty(files: Files, directory: str, base_offset: int, replaced: Iterable[int]) -> None:
        """The new segment takes its name before the old ones are gone."""
        stem = segment_stem(directory, base_offset)
        files.rename(stem + layout.SWAP_SUFFIX, stem + LOG_SUFFIX)
        files.sync_directory(directory)
        for base in replaced:
            files.unlink(segment_stem(directory, base) + LOG_SUFFIX)
        files.sync_directory(directory)

    monkeypatch.setattr(cleanup, "swap_in", hasty)
    monkeypatch.setattr(layout, "swap_in", hasty)
    expect_violation(PLANS["expiring_tombstones"])


class RetriesFailedSyncs(PowerLossFiles):
    """After an error from fsync, what a log does that simply tries again: the second one says that all is well."""

    def note_sync(self, path: str, node: FileNode) -> None:
        try:
            super().note_sync(path, node)
        except OSError:
            super().note_sync(path, node)


def test_trying_a_failed_sync_again_is_found() -> None:
    def one_sync_fails(log: OnePartition, seed: int) -> None:
        assert isinstance(log.files, PowerLossFiles)
        records = Records(seed)
        for step in range(6):
            if step == 3:
                log.files.fail_next_sync()
            log.append(records.some())

    expect_violation(replace(PLANS["appends"], workload=one_sync_fails), RetriesFailedSyncs)


def test_a_log_start_that_is_not_durable_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Slot, "store_firmly", Slot.store)
    expect_violation(PLANS["retention"])


def test_serving_what_a_dead_process_left_without_syncing_it_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def careless(segment: Segment, start: int, end: int) -> None:
        """It is in the file, so it must be on the disk."""
        if segment.size > end:
            segment.log().truncate(end)
            segment.size = end
        segment.release_file()

    monkeypatch.setattr(recovery, "_settle", careless)
    expect_violation(PLANS["killed_processes"])


def test_replacing_the_catalog_without_syncing_its_bytes_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def careless(files: Files, path: str, data: bytes) -> None:
        draft = files.open(path + ".tmp", write=True, create=True)
        draft.truncate(0)
        draft.write(0, [data])
        files.rename(path + ".tmp", path)
        files.sync_directory(path.rpartition("/")[0])

    monkeypatch.setattr(catalog, "replace_file", careless)
    with pytest.raises(Violation):
        topics.run_with_cuts("first_topics", seed=11)
