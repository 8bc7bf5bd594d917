"""Cut the power after every file operation of a log with a journal; reopen; nothing promised is broken.

The harness of test_power_loss, with its fault model: a journal writes over blocks that hold older commits, and of an
unsynced block each sector is there in its old form, in its new one or torn, whatever becomes of its neighbours. All
workloads of one partition run with a journal as they do without; others have several partitions with one, go round the
ring, mix small appends with large ones, kill the process, and fail syncs of the journal and of partitions.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace

import pytest

from budgets import BUDGETS, SHORT, budgets_of
from faults.journaled import (
    NEVER_ALONE,
    SMALL_JOURNAL,
    JournaledDirectory,
    judge_directory,
    make_partitions,
    recover_directory,
)
from faults.one_partition import START_MS, Records
from faults.test_power_loss import LONG, PLANS, ROLLING, SMALL, Plan
from foldlog.errors import PartitionPoisoned
from foldlog.log.config import LogConfig
from foldlog.testing.power_cuts import PowerCuts
from foldlog.testing.power_loss import PowerLossFiles
from foldlog.testing.sim_clock import SimClock

Workload = Callable[[JournaledDirectory, int], None]


def shared_commits(directory: JournaledDirectory, seed: int) -> None:
    """Every commit has several partitions, and the ring goes round."""
    records = Records(seed)
    for step in range(10):
        directory.append_together({0: [records.one()], 1: [records.one()], 2: [records.one()]})
        if step % 3 == 2:
            directory.logs[1].append([records.one()])
    directory.close()


def some_rest(directory: JournaledDirectory, seed: int) -> None:
    """A partition that was written once is synced in the background, before the file with its record is used again."""
    records = Records(seed)
    for number in (2, 1):
        directory.logs[number].append([records.one()])
        directory.logs[number].append([records.one()])
    for _ in range(14):
        directory.logs[0].append([records.one()])
    directory.close()


def small_and_large(directory: JournaledDirectory, seed: int) -> None:
    """Large appends sync their partition, and so what was small before them; small ones follow."""
    records = Records(seed)
    for step in range(7):
        directory.logs[0].append([records.one()])
        large = [replace(one, value=bytes([step + 1]) * 900) for one in records.some(1) * 3]
        directory.logs[step % 2].append(large)
        directory.logs[1].append([records.one()])
    directory.close()


def now_and_then_alone(directory: JournaledDirectory, seed: int) -> None:
    """A partition that is alone for a while syncs its own file, with what the journal has of it from before; then the
    other one is back, and both go into the journal again."""
    records = Records(seed)
    for step in range(5):
        directory.append_together({0: [records.one()], 1: [records.one()]})
        for _ in range(5):
            directory.logs[step % 2].append([records.one()])
        directory.logs[1 - step % 2].append([records.one()])
        directory.work()
        if step == 3:
            directory.reopen(cleanly=False)
    directory.close()


def killed(directory: JournaledDirectory, seed: int) -> None:
    """The process dies, not the machine; then the power goes as well."""
    records = Records(seed)
    for _ in range(4):
        directory.append_together({0: [records.one()], 1: [records.one()]})
        directory.logs[0].append([records.one()], wait=False)
        directory.logs[1].append([records.one()])
        directory.reopen(cleanly=False)
        directory.logs[0].append([records.one()])
    directory.close()


def closed_and_opened(directory: JournaledDirectory, seed: int) -> None:
    records = Records(seed)
    for step in range(5):
        directory.append_together({0: [records.one()], 1: [records.one()]})
        directory.reopen(cleanly=step != 3)
    directory.close()


def failed_commits(directory: JournaledDirectory, seed: int) -> None:
    """A sync of the journal fails: the partition is cut to what was durable, and goes on in a new epoch. What the
    failed commit left in the journal is older than what then takes its offsets."""
    files, records = directory.files, Records(seed)
    assert isinstance(files, PowerLossFiles)
    for step in range(4):
        for _ in range(2):
            directory.logs[0].append([records.one()])
            directory.logs[1].append([records.one()])
        directory.work()
        files.fail_next_sync(reaches_disk=step % 2 == 0)
        with suppress(PartitionPoisoned):
            directory.logs[0].append([records.one()])
        if step > 1:
            directory.logs[1].append([records.one()])  # the next commit follows on the last that was durable
        directory.reopen(cleanly=True)
        directory.logs[0].append([records.one()])
        directory.logs[0].append([records.one()])
    directory.close()


def failed_partition_syncs(directory: JournaledDirectory, seed: int) -> None:
    """In the background, before a file is used again: what the journal has of that partition stays until it is opened
    again. The other partition goes on."""
    files, records = directory.files, Records(seed)
    assert isinstance(files, PowerLossFiles)
    for step in range(3):
        for _ in range(2):
            directory.logs[1].append([records.one()])
        while not directory.is_full:
            directory.logs[0].append([records.one()])
        files.fail_next_sync(reaches_disk=step == 1)
        directory.work()
        working = next(log for log in directory.logs if not log.partition.is_poisoned)
        for _ in range(9):
            working.append([records.one()])
        directory.reopen(cleanly=True)
    directory.close()


@dataclass(frozen=True)
class JournalPlan:
    """A workload, how many partitions it has, and how many images it has to make in the whole run."""

    workload: Workload
    config: LogConfig
    partitions: int
    mixes: int
    seeds: tuple[int, ...]
    images: int
    is_kept: bool = False
    alone_asks: int = NEVER_ALONE


JOURNAL_PLANS: dict[str, JournalPlan] = {
    "shared_commits": JournalPlan(shared_commits, SMALL, 3, 4, (1,), 9_400),
    "some_rest": JournalPlan(some_rest, SMALL, 3, 4, (1,), 3_700),
    "small_and_large": JournalPlan(small_and_large, SMALL, 2, 4, (1,), 3_100),
    "now_and_then_alone": JournalPlan(now_and_then_alone, SMALL, 2, 4, (1,), 1_000, alone_asks=3),
    "killed": JournalPlan(killed, ROLLING, 2, 4, (1,), 7_300),
    "closed_and_opened": JournalPlan(closed_and_opened, SMALL, 2, 4, (1,), 1_800),
    "failed_commits": JournalPlan(failed_commits, SMALL, 2, 4, (1,), 9_800),
    "failed_commits_kept": JournalPlan(failed_commits, SMALL, 2, 4, (1,), 9_600, is_kept=True),
    "failed_partition_syncs": JournalPlan(failed_partition_syncs, SMALL, 2, 4, (1,), 11_000),
}


def run_with_cuts(
    plan: JournalPlan,
    seed: int,
    *,
    every: int = SHORT,
    only: tuple[int, int] | None = None,
    files: PowerLossFiles | None = None,
    idempotent: bool = False,
) -> int:
    files = files or PowerLossFiles()
    make_partitions(files, plan.partitions)
    directory = JournaledDirectory(
        files,
        plan.config,
        plan.partitions,
        clock=SimClock(START_MS),
        settings=replace(
            SMALL_JOURNAL,
            files_max=20 if plan.is_kept else SMALL_JOURNAL.files_max,
            alone_asks=plan.alone_asks,
        ),
        idempotent=idempotent,
        is_kept=plan.is_kept,
    )
    files.sync_directory("data")
    cuts = PowerCuts(
        lambda image: judge_directory(image, directory, idempotent=idempotent),
        seed=seed,
        mixes=plan.mixes,
        promises=directory.version,
        recover=recover_directory(directory),
        every=every,
        only=only,
    )
    cuts.attach(files)
    try:
        plan.workload(directory, seed)
    finally:
        images = cuts.finish()
    return images


def as_journaled(plan: Plan) -> JournalPlan:
    """A workload of one partition, with a journal."""
    return JournalPlan(
        lambda directory, seed: plan.workload(directory.logs[0], seed), plan.config, 1, 3, plan.seeds[:1], 0
    )


@pytest.mark.parametrize("every", BUDGETS)
@pytest.mark.parametrize("name", JOURNAL_PLANS)
def test_a_power_cut_costs_nothing_that_the_journal_acknowledged(name: str, every: int) -> None:
    plan = JOURNAL_PLANS[name]
    images = [run_with_cuts(plan, seed, every=every) for seed in plan.seeds]
    print(f"{name}: {sum(images)} images")
    assert sum(images) >= plan.images // every


@pytest.mark.parametrize(("name", "every"), budgets_of(PLANS, long=LONG))
def test_the_workloads_of_one_partition_survive_power_cuts_with_a_journal(name: str, every: int) -> None:
    plan = PLANS[name]
    journaled = as_journaled(plan)
    images = sum(run_with_cuts(journaled, seed, every=every, idempotent=plan.idempotent) for seed in journaled.seeds)
    print(f"{name}: {images} images")
