"""Cut the power after every file operation of a workload; reopen; nothing promised is broken.

Each workload runs once. After each of its file operations the harness (foldlog.testing.power_cuts) makes the disks that
a cut at this moment could leave, opens each of them, reads everything, seeks, and appends once more. On every one:
it opens; no acknowledged record is lost, none reordered, none invented; the log start is where an acknowledged
retention or deletion put it; offsets go on where they ended; of every key the newest record is there. Every 40th image
is recovered on a disk whose power is cut again, after every operation of the recovery.

Images are counted only if they differ from all before them. PLANS says how many each workload has to reach in
`make test-faults`; `make test` looks at a share of them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import pytest

from budgets import SHORT, budgets_of
from faults.one_partition import (
    START_MS,
    OnePartition,
    Records,
    judge_image,
    make_directory,
    recover_only,
)
from foldlog.log.config import LogConfig
from foldlog.records.batch import Compression
from foldlog.testing.power_cuts import PowerCuts
from foldlog.testing.power_loss import PowerLossFiles
from foldlog.testing.sim_clock import SimClock

Workload = Callable[[OnePartition, int], None]


def appends(log: OnePartition, seed: int) -> None:
    records = Records(seed)
    for _ in range(14):
        log.append(records.some())
    log.close()


def group_commit(log: OnePartition, seed: int) -> None:
    """Several batches wait for one sync; sometimes more is written before the sync is asked for."""
    records = Records(seed)
    for _ in range(4):
        first = log.append(records.some(), wait=False)
        log.append(records.some(2), wait=False)
        last = log.append(records.some(), wait=False)
        log.wait(first)
        log.append(records.some(1), wait=False)
        log.wait(last)
    log.close()


def rolls(log: OnePartition, seed: int) -> None:
    records = Records(seed)
    for step in range(12):
        log.append(records.some(), wait=step % 4 != 1)
        if step == 6:
            log.partition.roll()
    log.close()


def retention(log: OnePartition, seed: int) -> None:
    records = Records(seed)
    for step in range(14):
        log.append(records.some())
        if step % 4 == 3:
            log.enforce_retention()
        if step == 9:
            start, end = log.partition.log_start_offset, log.partition.log_end_offset
            log.delete_records((start + end) // 2)
    log.delete_records(log.partition.log_end_offset)
    log.append(records.some())
    log.close()


def expiry(log: OnePartition, seed: int) -> None:
    """Everything gets too old, the active segment too; offsets go on."""
    records = Records(seed)
    clock = log.clock
    assert isinstance(clock, SimClock)
    for _ in range(3):
        for _ in range(4):
            log.append(records.some())
        clock.advance(10_000_000)
        log.enforce_retention()
    log.append(records.some())
    log.close()


def compaction(log: OnePartition, seed: int) -> None:
    records = Records(seed, keys=3, tombstones=True)
    for _ in range(3):
        for _ in range(6):
            log.append(records.some())
        log.compact()
        log.append(records.some())
    log.close()


def recompression(log: OnePartition, seed: int) -> None:
    """Over the gaps that compaction left; some batches get smaller, some do not."""
    records = Records(seed, keys=3)
    for step in range(4):
        log.append([replace(one, value=(one.value or b"") * 3) for one in records.some()])
        if step == 1:
            log.compact()
    log.recompress(Compression.ZSTD)
    log.append(records.some())
    log.close()


def expiring_tombstones(log: OnePartition, seed: int) -> None:
    records = Records(seed, keys=2, tombstones=True)
    clock = log.clock
    assert isinstance(clock, SimClock)
    for _ in range(4):
        for _ in range(4):
            log.append(records.some())
        log.compact(tombstones_may_go=True)
        clock.advance(1000)
    log.close()


def compaction_and_retention(log: OnePartition, seed: int) -> None:
    records = Records(seed, keys=4)
    for step in range(16):
        log.append(records.some())
        if step % 5 == 4:
            log.compact()
            log.enforce_retention()
    log.close()


def clean_restarts(log: OnePartition, seed: int) -> None:
    records = Records(seed)
    for _ in range(4):
        log.append(records.some())
        log.append(records.some())
        log.reopen(cleanly=True)
    log.append(records.some())
    log.close()


def killed_processes(log: OnePartition, seed: int) -> None:
    """The process dies, not the machine: the next one finds unsynced bytes, keeps the whole batches, and then the
    power goes: what it served must still be there."""
    records = Records(seed)
    for _ in range(4):
        log.append(records.some())
        log.append(records.some(), wait=False)
        log.append(records.some(), wait=False)
        log.reopen(cleanly=False)
    log.append(records.some())
    log.close()


def relaxed_flush(log: OnePartition, seed: int) -> None:
    """Acknowledged when written: a cut may cost what was not synced yet, and nothing else."""
    records = Records(seed)
    for step in range(12):
        log.append(records.some())
        if step % 4 == 3:
            log.partition.sync()
            log.wait(log.partition.log_end_offset)
    log.close()


def idempotent_producer(log: OnePartition, seed: int) -> None:
    """One record a batch, so that the offset is the sequence number; restarts in between, clean and not."""
    records = Records(seed)
    for step in range(12):
        log.append([records.one()], wait=step % 3 != 1)
        if step in (3, 8):
            log.reopen(cleanly=step == 3)
    log.close()


SMALL = LogConfig(index_interval_bytes=128)
ROLLING = replace(SMALL, segment_bytes=1024)
COMPACTED = replace(ROLLING, compact=True, delete=False)


@dataclass(frozen=True)
class Plan:
    """A workload with its settings; how many random mixes to try at each cut, from which seeds; and at least how many
    images that has to make (what it made when written, less a margin for changes of the layout)."""

    workload: Workload
    config: LogConfig
    mixes: int
    seeds: tuple[int, ...]
    images: int
    idempotent: bool = False


PLANS: dict[str, Plan] = {
    "appends": Plan(appends, SMALL, 12, (1, 2, 3, 4), 1_750),
    "group_commit": Plan(group_commit, SMALL, 12, (1, 2, 3, 4), 1_850),
    "rolls": Plan(rolls, ROLLING, 6, (1, 2), 3_200),
    "retention": Plan(retention, replace(ROLLING, retention_bytes=2048, retention_ms=-1), 4, (1,), 4_800),
    "expiry": Plan(expiry, replace(ROLLING, retention_ms=5_000_000), 4, (1,), 3_500),
    "compaction": Plan(compaction, COMPACTED, 4, (1,), 6_600),
    "recompression": Plan(recompression, COMPACTED, 3, (1,), 1_500),
    "expiring_tombstones": Plan(expiring_tombstones, replace(COMPACTED, delete_retention_ms=500), 4, (1,), 8_400),
    "compaction_and_retention": Plan(
        compaction_and_retention, replace(COMPACTED, delete=True, retention_bytes=3000, retention_ms=-1), 4, (1,), 9_000
    ),
    "clean_restarts": Plan(clean_restarts, replace(SMALL, segment_bytes=2048), 6, (1, 2, 3), 3_200),
    "relaxed_flush": Plan(relaxed_flush, replace(ROLLING, flush_messages=1000), 6, (1, 2), 3_500),
    "idempotent_producer": Plan(idempotent_producer, ROLLING, 6, (1, 2), 3_600, idempotent=True),
    "killed_processes": Plan(killed_processes, replace(SMALL, segment_bytes=2048), 6, (1, 2), 3_700),
}


def run_with_cuts(
    plan: Plan,
    seed: int,
    *,
    every: int = SHORT,
    only: tuple[int, int] | None = None,
    files: PowerLossFiles | None = None,
) -> int:
    """Run one workload with a cut after every operation; the number of images, all of them sound."""
    config, clock = plan.config, SimClock(START_MS)
    files = files or PowerLossFiles()
    make_directory(files)
    log = OnePartition(files, config, clock=clock, idempotent=plan.idempotent)
    files.sync_directory("data")
    cuts = PowerCuts(
        lambda image: judge_image(image, log.history, config, clock, idempotent=plan.idempotent),
        seed=seed,
        mixes=plan.mixes,
        promises=lambda: log.history.version,
        recover=recover_only(config, clock),
        every=every,
        only=only,
    )
    cuts.attach(files)
    try:
        plan.workload(log, seed)
    finally:
        # The first broken promise, if there was one, rather than what the workload made of it later.
        images = cuts.finish()
    return images


LONG = ("compaction_and_retention", "expiring_tombstones")
"""For the long runs only: what they do together, others do one at a time."""


WITH_A_JOURNAL = ("recompression", "retention", "rolls", "clean_restarts", "idempotent_producer")
"""In `make test` only so, as logs are: see test_power_loss_journal."""


@pytest.mark.parametrize(("name", "every"), budgets_of(PLANS, long=(*LONG, *WITH_A_JOURNAL)))
def test_a_power_cut_after_any_operation_breaks_no_promise(name: str, every: int) -> None:
    plan = PLANS[name]
    images = [run_with_cuts(plan, seed, every=every) for seed in plan.seeds]
    print(f"{name}: {sum(images)} images")
    assert sum(images) >= plan.images // every


def test_the_workloads_together_make_fifty_thousand_images() -> None:
    assert sum(plan.images for plan in PLANS.values()) >= 50_000
