"""Bugs planted in transactions: test_exactly_once and test_power_loss_whole_transactions find each of them.

That the same runs pass without the bug is said there.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from faults.exactly_once import ARGUMENTS, pipeline_on
from faults.served import ServedDirectory
from faults.test_exactly_once import revive_a_zombie
from faults.test_power_loss_whole_transactions import run_with_cuts, wait_for_each
from foldlog.broker.transactions.coordinator import complete_of
from foldlog.broker.transactions.state_format import TransactionMetadata
from foldlog.broker.transactions.store import TransactionStore
from foldlog.log.partition import PartitionCore
from foldlog.testing.power_cuts import Violation

LOST_MARKERS = """
from types import SimpleNamespace
from foldlog.log.partition import Partition
appended = Partition.append_marker
def append_marker(self, *producer, commit, transaction_version):
    if commit is {lost} and self.label[0] == "target":
        return SimpleNamespace(next_offset=0)
    return appended(self, *producer, commit=commit, transaction_version=transaction_version)
Partition.append_marker = append_marker
"""

STABLE_TOO_HIGH = """
from foldlog.log.transactions import Undecided
Undecided.stable_below = lambda self, high_watermark: high_watermark
"""

OFFSETS_OUTSIDE = """
from foldlog.broker.transactions.store import TransactionStore
def commit_offsets(self, transactional_id, producer_id, producer_epoch, group, offsets, *, add, **member):
    self._groups.commit(group, offsets, **member)
TransactionStore.commit_offsets = commit_offsets
"""

NO_FENCING = """
from foldlog.broker.transactions.coordinator import TransactionCoordinator
from foldlog.log.producers import ProducerState
def unfenced(method):
    def call(self, transactional_id, producer_id, producer_epoch, *rest, **how):
        return method(self, transactional_id, producer_id, self.get(transactional_id).producer_epoch, *rest, **how)
    return call
for name in ("add", "verify", "end"):
    setattr(TransactionCoordinator, name, unfenced(getattr(TransactionCoordinator, name)))
checked = ProducerState._check
def check(self, header):
    known = self._producers.get(header.producer_id)
    if known is None or header.producer_epoch >= known.epoch:
        checked(self, header)
ProducerState._check = check
"""

PATIENCE_S = 20.0
"""A wrong broker may lose records, which never come."""


@pytest.mark.faults
@pytest.mark.parametrize(
    "planted",
    [LOST_MARKERS.format(lost=True), LOST_MARKERS.format(lost=False), STABLE_TOO_HIGH, OFFSETS_OUTSIDE],
    ids=["commit markers lost", "abort markers lost", "last stable offset too high", "offsets outside"],
)
def test_a_broker_that_breaks_transactions_is_found(tmp_path: Path, planted: str) -> None:
    with (
        ServedDirectory(tmp_path, *ARGUMENTS, planted=planted) as served,
        pipeline_on(served, 1500) as pipeline,
    ):
        pipeline.start()
        with pytest.raises(AssertionError, match=r"everything is copied|too many|a reader was given"):
            pipeline.finish(PATIENCE_S)


@pytest.mark.faults
@pytest.mark.parametrize("moment", ["begun", "written", "offsets"])
def test_a_broker_that_fences_nobody_is_found(tmp_path: Path, moment: str) -> None:
    with (
        ServedDirectory(tmp_path, *ARGUMENTS, planted=NO_FENCING) as served,
        pytest.raises(AssertionError, match="committed"),
    ):
        revive_a_zombie(served, "aiokafka", moment)


# --- power cuts -------------------------------------------------------------------------------------------------------


def test_completing_a_transaction_before_its_markers_are_durable_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def hasty(self: TransactionStore, metadata: TransactionMetadata) -> bool:
        name = metadata.transactional_id
        with self.lock:
            if self._coordinator.get(name) is metadata:
                self._append_markers(metadata)
                written = self._markers.pop(name)
                self._store(self._coordinator.complete(name)).wait()
                wait_for_each({key: one for key, one in written.items() if one is not None})
        return True

    monkeypatch.setattr(TransactionStore, "_complete", hasty)
    with pytest.raises(Violation, match=r"not fenced|in part|is not there|the group is at None"):
        run_with_cuts("one_transaction", 2)


def test_writing_markers_before_the_decision_is_durable_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def hasty(self: TransactionStore, name: str, *producer: int, commit: bool, client_version: int) -> tuple[int, int]:
        with self._writing():
            metadata = self._coordinator.end(name, *producer, commit=commit, client_version=client_version)
            stored = self._store(metadata)
            self._complete(metadata)
        stored.wait()
        ended = complete_of(metadata)
        return ended.producer_id, ended.producer_epoch

    monkeypatch.setattr(TransactionStore, "end", hasty)
    with pytest.raises(Violation, match=r"the group is at|in part"):
        run_with_cuts("one_transaction", 2)


def test_an_open_that_writes_no_missing_markers_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(TransactionStore, "recover", lambda self: None)
    with pytest.raises(Violation, match="decided and not ended"):
        run_with_cuts("one_transaction", 2)


def test_beginning_in_a_partition_before_that_is_durable_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def add_partitions(
        self: TransactionStore, name: str, producer_id: int, epoch: int, partitions: Any, *, client_version: int = 2
    ) -> None:
        with self._writing():
            self._stored_or_known(self._coordinator.add(name, producer_id, epoch, partitions, client_version))

    monkeypatch.setattr(TransactionStore, "add_partitions", add_partitions)
    with pytest.raises(Violation, match=r"not fenced|held back"):
        run_with_cuts("one_transaction", 2)


def test_a_flag_of_transactions_that_is_not_durable_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    change = PartitionCore.change

    def careless(self: PartitionCore, *, firmly: bool = False, **changes: Any) -> None:
        change(self, firmly=firmly and "has_transactions" not in changes, **changes)

    monkeypatch.setattr(PartitionCore, "change", careless)
    with pytest.raises(Violation, match="never to be committed"):
        run_with_cuts("one_transaction", 2)
