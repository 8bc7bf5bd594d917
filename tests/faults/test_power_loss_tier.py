"""The power goes, or the process is killed, at any moment of tiering: nothing acknowledged is lost, nothing is half."""

from __future__ import annotations

import pytest

from faults.one_partition import START_MS, judge_log, make_directory
from foldlog.errors import StoreError
from foldlog.files.base import Files
from foldlog.files.memory import MemoryFiles
from foldlog.files.objects import DirectoryObjects
from foldlog.log.config import LogConfig
from foldlog.testing.disk_image import DiskImage
from foldlog.testing.history import Sent
from foldlog.testing.power_cuts import PowerCuts, Violation
from foldlog.testing.power_loss import PowerLossFiles
from foldlog.testing.sim_clock import SimClock
from log.tier.faulty_store import FaultyStore, Killed
from log.tier.tiered_log import STORE, TieredLog, tier_config

CONFIG = tier_config(segment_records=2, retention_ms=50_000, local_retention_ms=100)


def workload(log: TieredLog, clock: SimClock) -> None:
    """Every step of tiering: copies, a chunk, local retention, retention, a deletion, a reopening."""
    for part in range(3):
        for number in range(4):
            log.append([Sent(b"k", b"%d %d" % (part, number), clock.now_ms())] * (1 + number % 2))
            clock.advance(1)
        log.work()
        clock.advance(200)
        log.work()
    log.delete_records(log.partition.log_start_offset + 1)
    log.work()
    log.reopen(cleanly=False)
    clock.advance(60_000)
    log.append([Sent(b"k", b"young", clock.now_ms())] * 2)
    log.append([Sent(b"k", b"last", clock.now_ms())])
    log.work()


def judge_store(log: TieredLog) -> None:
    """After the next round the store has what the manifest names, and nothing else."""
    log.history.start_at_most = log.partition.log_end_offset
    log.tiering.work(log.clock.now_ms())
    named = sorted(entry.name.removeprefix("segments/") for entry in log.tier.entries(log.partition.log_start_offset))
    if log.objects() != named:
        raise Violation(f"the store has {log.objects()}, and the manifest names {named}")
    for record in log.read_all():
        if record.value is None:
            raise Violation(f"{record} was never sent")


def judge(files: Files, log: TieredLog, clock: SimClock) -> None:
    opened = TieredLog(files, CONFIG, clock=SimClock(clock.now_ms()))
    judge_log(opened, log.history)
    judge_store(opened)


@pytest.mark.faults
def run_with_cuts(seed: int, *, every: int) -> int:
    """The number of images, all of them sound."""
    files, clock = PowerLossFiles(), SimClock(START_MS)
    make_directory(files)
    files.make_directory(STORE)
    files.sync_directory("/")
    log = TieredLog(files, CONFIG, clock=clock)
    files.sync_directory("data")

    def check(image: DiskImage) -> None:
        judge(image.files(), log, clock)

    cuts = PowerCuts(check, seed=seed, mixes=1, promises=lambda: log.history.version, every=every)
    cuts.attach(files)
    workload(log, clock)
    return cuts.finish()


@pytest.mark.parametrize("seed", [1, 2])
def test_the_power_goes_at_every_operation(seed: int) -> None:
    assert run_with_cuts(seed, every=6) > 500


def killed_at(number: int, config: LogConfig) -> bool:
    """Whether there was a change of the store of that number to be killed at."""
    files, clock = MemoryFiles(), SimClock(START_MS)
    make_directory(files)
    store = FaultyStore(DirectoryObjects(files, STORE))
    log = TieredLog(files, config, clock=clock, store=store)
    store.kill_at(number)
    try:
        workload(log, clock)
    except Killed:
        log.history.start_at_most = log.partition.log_end_offset
        judge(files, log, clock)
        return True
    return False


@pytest.mark.faults
def test_the_process_is_killed_before_every_change_of_the_store(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("foldlog.log.tier.tiering.CHUNK_ENTRIES", 2)
    number = 0
    while killed_at(number, CONFIG):
        number += 1
    assert number > 40


@pytest.mark.faults
@pytest.mark.parametrize("lost", [False, True], ids=["refused", "answer lost"])
def test_every_change_of_the_store_fails_once(lost: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Refused, or done with its answer lost: the next round goes on, and nothing is left over."""
    monkeypatch.setattr("foldlog.log.tier.tiering.CHUNK_ENTRIES", 2)
    files, clock = MemoryFiles(), SimClock(START_MS)
    make_directory(files)
    store = FaultyStore(DirectoryObjects(files, STORE))
    log = TieredLog(files, CONFIG, clock=clock, store=store)
    failed: set[str] = set()

    def fail(step: str, key: str) -> None:
        kind = f"{step} {key.split('/')[-2] if '/' in key else key} {clock.now_ms()}"
        if step not in ("read", "list") and kind not in failed:
            failed.add(kind)
            raise StoreError(f"{store.url}/{key}: 503")

    if lost:
        store.after = fail
    else:
        store.before = fail
    history_work = log.work

    def stubborn() -> None:
        for _ in range(12):
            try:
                history_work()
            except StoreError:
                continue
            return
        raise Violation("it never came through")

    monkeypatch.setattr(log, "work", stubborn)
    workload(log, clock)
    store.heal()
    judge(files, log, clock)
    assert len(failed) > 10
