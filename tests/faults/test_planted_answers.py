"""Bugs planted in what a broker answers and in what a reader is given: each is found every time, not by luck.

As in test_planted_bugs, each test breaks one thing and expects the check of the same name to fail; that the checks pass
without the bug is said where they stand.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import foldlog
from client.consumer import test_consumer
from foldlog.client.consumer.cursors import Cursor
from foldlog.errors import FoldlogError
from foldlog.log.partition import Partition
from foldlog.server.fetches import fetching
from foldlog.server.fetches.sessions import WantedPartition
from foldlog.server.handlers import produce
from foldlog.server.net.append_queues import AppendQueue
from foldlog.server.produce_fast_path import RunAcknowledgement
from foldlog.spark.folds.runner import Runner
from foldlog.views.bookmark import Bookmark
from foldlog.views.contract import Delta
from foldlog.views.sql.sqlite import runner
from foldlog.views.table.sqlite import SqliteTable
from foldlog.wire.messages.fetch import EpochEndOffset
from server.handlers import test_offsets_by_time_and_epoch as by_epoch
from server.handlers import test_produce as producing
from spark.folds import test_read_ahead as ahead
from views.table import test_table_sqlite as tables


@pytest.mark.parametrize("way", producing.LONG_WAYS)
def test_acknowledging_a_failed_sync_on_the_long_way_is_found(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, way: str
) -> None:
    acknowledged = produce._Acknowledgements._acknowledged
    acknowledged_run = RunAcknowledgement._acknowledged

    def careless(self: Any, outcome: Any, error: FoldlogError | None) -> None:
        acknowledged(self, outcome, None)

    def careless_run(self: Any, error: FoldlogError | None, place: int = 0) -> None:
        acknowledged_run(self, None, place)

    # Compiled, open partitions are appended to as a run, however many there are; without a compiler, by the handler.
    monkeypatch.setattr(produce._Acknowledgements, "_acknowledged", careless)
    monkeypatch.setattr(RunAcknowledgement, "_acknowledged", careless_run)
    with pytest.raises(AssertionError):
        producing.test_a_failed_sync_is_never_acknowledged_on_the_long_way(tmp_path, way)


@pytest.mark.parametrize("by", [-1, 1])
def test_a_divergence_that_is_off_by_one_is_found(monkeypatch: pytest.MonkeyPatch, by: int) -> None:
    def off_by_one(partition: Partition, wanted: WantedPartition) -> EpochEndOffset | None:
        epoch, end_offset = partition.epoch_end_offset(wanted.last_fetched_epoch)
        if epoch == wanted.last_fetched_epoch and end_offset + by >= wanted.fetch_offset:
            return None
        return EpochEndOffset(epoch=epoch, end_offset=end_offset)

    monkeypatch.setattr(fetching, "_divergence", off_by_one)
    epochs, wrong = by_epoch.some_epochs(), 0
    for epoch, offset in by_epoch.DIVERGENCES:
        try:
            by_epoch.test_a_fetch_is_told_of_a_cut_exactly_where_its_epoch_ended(epochs, epoch, offset)
        except AssertionError:
            wrong += 1
    epochs.close()
    assert wrong >= 2


@pytest.mark.parametrize("way", ["fast", "several partitions"])
def test_a_small_batch_that_overtakes_is_found(monkeypatch: pytest.MonkeyPatch, way: str) -> None:
    recount = AppendQueue._recount

    def never_busy(self: AppendQueue) -> None:
        recount(self)
        self.is_busy = False

    monkeypatch.setattr(AppendQueue, "_recount", never_busy)
    assert producing.offsets_in_order(monkeypatch, way) == [2, 1]


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_bookmark_outside_its_transaction_is_found(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, when: str
) -> None:
    def in_two_steps(self: SqliteTable, delta: Delta, expected: Bookmark, new: Bookmark) -> None:
        def move() -> None:
            with self._database.write() as connection:
                self._bookmarks.set_bookmark(runner(connection), self._table.name, new)

        if when == "before":
            move()
        with self._database.write() as connection:
            entry = self._entry(runner(connection))
            assert entry is not None
            self._store(connection, *self._decide(delta, entry.settings))
        if when == "after":
            move()

    monkeypatch.setattr(SqliteTable, "apply", in_two_steps)
    with pytest.raises(AssertionError):
        tables.test_rows_and_bookmark_change_in_one_transaction_at_every_statement(tmp_path)


def test_records_decoded_ahead_that_survive_a_seek_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    seek = Cursor.seek

    def forgetful(self: Cursor, offset: int) -> None:
        kept = getattr(self, "_ahead", [])
        seek(self, offset)
        self._ahead = kept

    monkeypatch.setattr(Cursor, "seek", forgetful)
    for place in range(2, 10):
        with foldlog.open(":memory:") as log, pytest.raises(AssertionError):
            test_consumer.test_a_seek_forgets_what_was_decoded_ahead(log, place)


@pytest.mark.parametrize("how", ahead.STALE)
def test_a_stale_range_that_is_used_is_found(monkeypatch: pytest.MonkeyPatch, how: str) -> None:
    def careless(self: Runner, standings: Any) -> Any:
        return self._ahead.pop() if self._ahead else None

    monkeypatch.setattr(Runner, "_read_ahead", careless)
    with pytest.raises(AssertionError):
        ahead.test_what_was_read_ahead_for_another_place_or_others_is_dropped(how)
