"""Bugs planted in transactions: the checks of test_exactly_once and test_power_loss_transactions find each of them.

That the same runs pass without the bug is said there.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from faults.exactly_once import ARGUMENTS, pipeline_on
from faults.served import ServedDirectory
from faults.test_exactly_once import revive_a_zombie

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
        pytest.raises(AssertionError),
    ):
        pipeline.start()
        pipeline.wait_for_all(PATIENCE_S)
        pipeline.judge()


@pytest.mark.faults
@pytest.mark.parametrize("moment", ["begun", "written", "offsets"])
def test_a_broker_that_fences_nobody_is_found(tmp_path: Path, moment: str) -> None:
    with (
        ServedDirectory(tmp_path, *ARGUMENTS, planted=NO_FENCING) as served,
        pytest.raises(AssertionError),
    ):
        revive_a_zombie(served, "aiokafka", moment)
