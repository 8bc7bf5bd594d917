"""Bugs to plant in the log, each of which the simulator has to find within some seeds."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest

from foldlog.files.memory import FileNode
from foldlog.log.partition import Partition
from foldlog.log.producers import ProducerState
from foldlog.log.segment import LOG_SUFFIX
from foldlog.log.transactions import Undecided
from foldlog.testing.power_loss import PowerLossFiles
from scorecard.simulator.run import run
from scorecard.simulator.world import Plan

SEEDS = 12


class SyncsTooLate(PowerLossFiles):
    """What a log that acknowledges before its sync looks like to the disk."""

    def note_sync(self, path: str, node: FileNode) -> None:
        if not path.endswith(LOG_SUFFIX):
            super().note_sync(path, node)


def _acknowledges_before_the_sync(patched: pytest.MonkeyPatch) -> type[PowerLossFiles]:
    return SyncsTooLate


def _readers_see_open_transactions(patched: pytest.MonkeyPatch) -> type[PowerLossFiles]:
    patched.setattr(Undecided, "stable_below", lambda self, high_watermark: high_watermark)
    return PowerLossFiles


def _loses_commit_markers(patched: pytest.MonkeyPatch) -> type[PowerLossFiles]:
    append = Partition.append_marker

    def lossy(self: Partition, *producer: int, commit: bool, transaction_version: int) -> Any:
        if commit and self.label == ("refunds", 0):
            return SimpleNamespace(next_offset=0)
        return append(self, *producer, commit=commit, transaction_version=transaction_version)

    patched.setattr(Partition, "append_marker", lossy)
    return PowerLossFiles


def _takes_duplicates(patched: pytest.MonkeyPatch) -> type[PowerLossFiles]:
    patched.setattr(ProducerState, "duplicate_of", lambda self, headers: None)
    patched.setattr(ProducerState, "_check", lambda self, header: None)
    return PowerLossFiles


def _fold_counts_before_its_bookmark(patched: pytest.MonkeyPatch) -> type[PowerLossFiles]:
    """A view that does not compare the bookmark that a range was read for."""
    from scorecard.simulator import clients

    apply = clients.Told._apply

    def careless(self: Any, bookmark: Any, ranges: Any, counted: Any) -> None:
        newest = self.view.bookmark()
        moved = {number: (newest.positions[number].offset, end) for number, (_, end) in ranges.items()}
        apply(self, newest, {number: one for number, one in moved.items() if one[0] < one[1]} or ranges, counted)

    patched.setattr(clients.Told, "_apply", careless)
    return PowerLossFiles


PLANTED: dict[str, Callable[[pytest.MonkeyPatch], type[PowerLossFiles]]] = {
    "acknowledges before the sync": _acknowledges_before_the_sync,
    "readers see open transactions": _readers_see_open_transactions,
    "loses commit markers of a partition": _loses_commit_markers,
    "takes what was sent twice": _takes_duplicates,
    "a fold that does not compare its bookmark": _fold_counts_before_its_bookmark,
}


@contextmanager
def planted(name: str) -> Iterator[type[PowerLossFiles]]:
    """The log with that bug; the disk to run it on."""
    with pytest.MonkeyPatch.context() as patched:
        yield PLANTED[name](patched)


def failing_seed(name: str, seeds: int = SEEDS, first: int = 1) -> int | None:
    """The first seed that finds it."""
    with planted(name) as disk:
        for seed in range(first, first + seeds):
            if run(Plan(seed), disk).wrong:
                return seed
    return None
