"""Bugs planted in the journal on purpose: the power-loss harness finds each of them.

As in test_planted_bugs: the log as it is, with one thing broken, under a workload of test_power_loss_journal, which
passes without the bug.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from faults.test_power_loss_journal import JOURNAL_PLANS, run_with_cuts
from foldlog.files.memory import FileNode
from foldlog.log import durability
from foldlog.log.checkpoint import Checkpoint, SlotState
from foldlog.log.journal import format as journal_format
from foldlog.log.journal import recovery as journal_recovery
from foldlog.log.journal.format import JOURNAL_SUFFIX, Entry, Placed
from foldlog.log.journal.journal import Journal, JournalFile, PendingCommit
from foldlog.log.journal.recovery import JournalContents
from foldlog.testing.power_cuts import Violation
from foldlog.testing.power_loss import PowerLossFiles


def expect_violation(name: str, files: type[PowerLossFiles] = PowerLossFiles) -> None:
    plan = JOURNAL_PLANS[name]
    for seed in (*plan.seeds, 2, 3):
        try:
            run_with_cuts(plan, seed, files=files())
        except Violation:
            return
    raise AssertionError("the bug was not found")


class NeverSyncsTheJournal(PowerLossFiles):
    """What a journal that acknowledges before its sync looks like to the disk."""

    def note_sync(self, path: str, node: FileNode) -> None:
        if JOURNAL_SUFFIX not in path:
            super().note_sync(path, node)


def test_acknowledging_before_the_sync_of_the_journal_is_found() -> None:
    expect_violation("shared_commits", NeverSyncsTheJournal)


def test_using_a_file_again_before_its_partitions_were_synced_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def hasty(self: Journal, file: JournalFile) -> None:
        """It is full, so begin again."""
        file.members.clear()
        self._sealed.remove(file)
        self._unprepared.append(file)

    monkeypatch.setattr(Journal, "_release", hasty)
    expect_violation("some_rest")


def test_believing_a_torn_entry_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = journal_format._entries

    def trusting(data: bytes, count: int, position: int) -> Iterator[Placed]:
        for placed in whole(data, count, position):
            yield placed._replace(is_whole=True)

    monkeypatch.setattr(journal_format, "_entries", trusting)
    expect_violation("shared_commits")


def test_replaying_over_a_newer_epoch_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def forgetful(entry: Entry, known: SlotState | None, starts: object) -> bool:
        """Whatever is above the slot is new, up to where a failed sync cut the log."""
        if known is not None and known.poisoned and entry.next_offset > known.durable_offset:
            return False
        return known is None or entry.next_offset > known.synced_offset

    monkeypatch.setattr(journal_recovery, "_is_wanted", forgetful)
    expect_violation("failed_commits_kept")


def test_replaying_out_of_order_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    in_order = journal_recovery._gather

    def backwards(contents: JournalContents) -> None:
        in_order(contents)
        for entries in contents.entries.values():
            entries.reverse()

    monkeypatch.setattr(journal_recovery, "_gather", backwards)
    expect_violation("shared_commits")


def test_syncing_the_wrong_file_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    plain = Journal._sync_and_end

    def other(self: Journal, commit: PendingCommit) -> list[durability.Durability]:
        """The file that is used next."""
        wrong = next(iter(self._free), commit.file)
        members = plain(self, commit._replace(file=wrong))
        commit.file.members.update(wrong.members)
        if wrong is not commit.file:
            wrong.members.clear()
        return members

    monkeypatch.setattr(Journal, "_sync_and_end", other)
    expect_violation("shared_commits")


def test_a_file_that_was_not_zeroed_and_synced_first_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def sparse(self: Journal, size: int) -> JournalFile:
        """The first commit makes it as large as it needs to be."""
        self._files.make_directory(self._directory)
        path = f"{self._directory}/{len(self._files.entries(self._directory)) + 1:08d}{JOURNAL_SUFFIX}"
        return JournalFile(path, size, self._files.open(path, write=True, create=True))

    monkeypatch.setattr(Journal, "_make_file", sparse)
    expect_violation("shared_commits")


def test_going_on_in_a_file_whose_sync_failed_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """A later sync of the file says that all is well, and the failed pages are not on the disk."""

    def careless(self: Journal, commit: PendingCommit, error: Exception) -> None:
        self._end(commit, 0.0)

    monkeypatch.setattr(Journal, "_fail", careless)
    expect_violation("failed_commits")


def test_taking_a_failed_sync_of_a_partition_for_a_release_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def hasty(self: Journal, file: JournalFile) -> None:
        for member in file.members:
            member.sync()
        file.members.clear()
        self._sealed.remove(file)
        self._unprepared.append(file)

    monkeypatch.setattr(Journal, "_release", hasty)
    expect_violation("failed_partition_syncs")


def test_a_checkpoint_that_does_not_say_that_the_journal_is_needed_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """An older foldlog would take what only the journal holds for lost."""

    def lazy(self: Checkpoint) -> None:
        self.store(0, b"foldlog checkpoint 2\n")  # durable with the next sync, of whatever

    monkeypatch.setattr(Checkpoint, "begin_journal", lazy)
    expect_violation("shared_commits")
