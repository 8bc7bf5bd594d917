"""Cut the power after every file operation of transactions; reopen; each transaction is whole, absent or open.

After each cut the log is opened, and compared with what its own batches say, by a reader that knows nothing of indexes
and snapshots: where the oldest transaction without a marker begins, and which records are committed below. Of what was
acknowledged nothing is missing: no batch, and no end of a transaction. Then every open transaction is aborted, as a
coordinator does it, and the comparison is made again. Every 40th image is cut again during its recovery.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field, replace

import pytest

from budgets import budgets_of
from faults.one_partition import START_MS, OnePartition, make_directory, recover_only
from foldlog.clock import Clock
from foldlog.files.base import Files
from foldlog.log.config import LogConfig
from foldlog.log.partition import Partition
from foldlog.log.reading import without_aborted
from foldlog.log.transactions import Transactions, end_marker
from foldlog.records.loops import decode, pack, walk
from foldlog.testing.disk_image import DiskImage
from foldlog.testing.power_cuts import PowerCuts, Violation
from foldlog.testing.power_loss import PowerLossFiles
from foldlog.testing.sim_clock import SimClock

KEYS = 3
Place = tuple[int, bytes | None, bytes | None]
"""Offset, key and value of a record."""


@dataclass
class Transaction:
    """What was asked for, and what was promised: that it ended, and its batches below `acknowledged`."""

    records: list[Place] = field(default_factory=list)
    ends_as_commit: bool | None = None
    marker: int = -1


class TransactionalLog:
    """One partition with a few transactional producers, and everything that was sent to it."""

    def __init__(self, files: Files, config: LogConfig, clock: SimClock, seed: int) -> None:
        self.log = OnePartition(files, config, clock=clock)
        self.clock = clock
        self.random = random.Random(seed)
        self.plain: list[Place] = []
        self.transactions: list[Transaction] = []
        self.acknowledged = 0
        self.version = 0
        self.compacts = False
        self._producers: dict[int, tuple[int, int, Transaction | None]] = {}

    @property
    def partition(self) -> Partition:
        return self.log.partition

    def _records(self) -> list[Place]:
        end = self.partition.log_end_offset
        more = self.random.randbytes(self.random.choice((0, 20, 90, 300)))
        keys = [b"key-%d" % self.random.randrange(KEYS) for _ in range(self.random.randint(1, 3))]
        return [(end + at, key, b"record %d " % (end + at) + more) for at, key in enumerate(keys)]

    def write(self) -> None:
        records = self._records()
        self.plain += records
        self.version += 1
        self._wait(self.partition.append(pack(rows(records))).next_offset)

    def send(self, producer_id: int, *, wait: bool = True) -> None:
        epoch, sequence, current = self._producers.get(producer_id, (0, 0, None))
        records = self._records()
        begins = current is None
        if current is None:
            current = Transaction()
            self.transactions.append(current)
        current.records += records
        self._producers[producer_id] = (epoch, sequence + len(records), current)
        self.version += 1
        batch = pack(
            rows(records),
            producer_id=producer_id,
            producer_epoch=epoch,
            base_sequence=sequence,
            transactional=True,
        )
        appended = self.partition.append(batch, begins_transaction=begins)
        if wait:
            self._wait(appended.next_offset)

    def end(self, producer_id: int, *, commit: bool, wait: bool = True) -> None:
        epoch, _, current = self._producers[producer_id]
        assert current is not None
        current.ends_as_commit, current.marker = commit, self.partition.log_end_offset
        self._producers[producer_id] = (epoch + 1, 0, None)
        self.version += 1
        marker = self.partition.append_marker(producer_id, epoch + 1, 0, commit=commit, transaction_version=2)
        if wait:
            self._wait(marker.next_offset)

    def _wait(self, next_offset: int) -> None:
        self.partition.wait_acknowledged(next_offset)
        self.acknowledged = max(self.acknowledged, next_offset)
        self.version += 1

    def compact(self) -> None:
        self.compacts = True
        self.partition.compact(force=True)

    def reopen(self, *, cleanly: bool) -> None:
        if cleanly:
            self.close()
        self.log = OnePartition(self.log.files, self.log.config, clock=self.clock)
        self.acknowledged = self.partition.log_end_offset
        self.version += 1

    def close(self) -> None:
        self.log.close()

    # What has to be there

    def judge(self, image: DiskImage, config: LogConfig, clock: Clock) -> None:
        log = OnePartition(image.files(), config, clock=clock)
        found = judge_by_batches(log.partition)
        self._judge_promises(log.partition, found)
        for one in log.partition.open_transactions():
            log.partition.append_marker(one.producer_id, one.producer_epoch + 1, 0, commit=False, transaction_version=2)
        log.partition.sync()
        if log.partition.last_stable_offset != log.partition.high_watermark:
            raise Violation("every transaction was aborted, and the last stable offset is not the end")
        judge_by_batches(log.partition)

    def _judge_promises(self, partition: Partition, committed: list[Place]) -> None:
        end = partition.log_end_offset
        if end < self.acknowledged:
            raise Violation(f"the log ends at {end}, and everything below {self.acknowledged} was acknowledged")
        may_be = {place for one in self.transactions if one.ends_as_commit for place in one.records} | set(self.plain)
        if not set(committed) <= may_be:
            raise Violation(f"{sorted(set(committed) - may_be)} is committed, and nobody committed it")
        stable = partition.last_stable_offset
        ended = [one for one in self.transactions if one.ends_as_commit is not None and one.marker < end]
        still_open = [one.records[0][0] for one in self.transactions if one not in ended and one.records[0][0] < end]
        if stable != min([end, *still_open]):
            raise Violation(f"the last stable offset is {stable} of {end}, and transactions are open from {still_open}")
        must_be = {place for one in ended if one.ends_as_commit for place in one.records} | set(self.plain)
        must_be = {place for place in must_be if place[0] < stable}
        if self.compacts:
            newest = {place[1]: place for place in sorted(must_be)}
            must_be = set(newest.values())
        if not must_be <= set(committed):
            raise Violation(f"{sorted(must_be - set(committed))} was committed, and is not read")


def rows(records: list[Place]) -> list[tuple[int, bytes | None, bytes | None, tuple[()]]]:
    return [(START_MS + offset, key, value, ()) for offset, key, value in records]


def judge_by_batches(partition: Partition) -> list[Place]:
    """The committed records, as the batches say and as the partition does; raises if these differ."""
    transactions, data = Transactions(), []
    aborted: list[tuple[int, int, int]] = []
    offset, end = partition.log_start_offset, partition.high_watermark
    while offset < end:
        piece = partition.read(offset, 2000)
        for header in walk(piece.data).headers:
            batch = piece.data[header.position : header.position + header.size]
            ended = transactions.note(header, end_marker(batch, header) if header.is_control else None)
            if ended is not None and ended.is_aborted:
                aborted.append((ended.producer_id, ended.first_offset, ended.last_offset))
            data.append((header, bytes(batch)))
        offset = piece.next_offset
    first_open = transactions.first_open_offset()
    stable = end if first_open is None else first_open
    if partition.last_stable_offset != stable:
        raise Violation(f"the last stable offset is {partition.last_stable_offset}; by the batches it is {stable}")
    expected: list[Place] = []
    for header, stored in data:
        is_aborted = any(
            header.producer_id == producer and first <= header.base_offset < last for producer, first, last in aborted
        )
        if header.base_offset < stable and not (is_aborted and header.is_transactional):
            expected += [(one.offset, one.key, one.value) for one in decode(memoryview(stored), "events", 0)[0]]
    found: list[Place] = []
    offset = partition.log_start_offset
    while offset < stable:
        piece = partition.read(offset, 2000, committed=True)
        records = decode(without_aborted(piece).data, "events", 0, start_offset=offset)[0]
        found += [(one.offset, one.key, one.value) for one in records]
        offset = piece.next_offset
    if found != expected:
        raise Violation(f"committed are {found}; by the batches {expected}")
    return found


def transactions(log: TransactionalLog) -> None:
    for step in range(6):
        first, second = step % 3, (step + 1) % 3
        log.send(first)
        log.write()
        if log._producers.get(second, (0, 0, None))[2] is None:
            log.send(second, wait=False)
        log.end(first, commit=step % 2 == 0, wait=step % 3 != 1)
        log.end(second, commit=step % 3 == 0)
    log.send(0)
    log.close()


def restarts(log: TransactionalLog) -> None:
    for step in range(4):
        log.send(1)
        log.reopen(cleanly=step % 2 == 0)
        log.send(1, wait=False)
        log.end(1, commit=step == 3, wait=step != 2)
        log.write()
        if step == 1:
            log.reopen(cleanly=False)
    log.close()


def compaction(log: TransactionalLog) -> None:
    for step in range(3):
        log.send(1)
        log.send(2)
        log.end(1, commit=False)
        log.send(2)
        log.end(2, commit=step != 1)
        log.write()
        if step == 1:
            log.send(3)  # stays open: compaction stops there
        log.compact()
        log.clock.advance(1000)
    log.end(3, commit=False)
    log.compact()
    log.clock.advance(1000)
    log.compact()
    log.close()


ROLLING = LogConfig(index_interval_bytes=128, segment_bytes=1024)
COMPACTED = replace(ROLLING, compact=True, delete=False, delete_retention_ms=500)


@dataclass(frozen=True)
class Plan:
    """A workload with its settings, how many random mixes to try at each cut, from which seeds, and at least how many
    images that has to make."""

    workload: Callable[[TransactionalLog], None]
    config: LogConfig
    mixes: int
    seeds: tuple[int, ...]
    images: int


PLANS = {
    "transactions": Plan(transactions, ROLLING, 2, (1,), 3_000),
    "restarts": Plan(restarts, ROLLING, 2, (1,), 2_000),
    "compaction": Plan(compaction, COMPACTED, 4, (1,), 11_000),
}
LONG = ("compaction",)
"""For the long runs."""


def run_with_cuts(plan: Plan, seed: int, *, every: int) -> int:
    """Run one workload with a cut after every operation; the number of images, all of them sound."""
    clock, files = SimClock(START_MS), PowerLossFiles()
    make_directory(files)
    log = TransactionalLog(files, plan.config, clock, seed)
    files.sync_directory("data")
    cuts = PowerCuts(
        lambda image: log.judge(image, plan.config, clock),
        seed=seed,
        mixes=plan.mixes,
        promises=lambda: (log.version, log.compacts),
        recover=recover_only(plan.config, clock),
        every=every,
    )
    cuts.attach(files)
    try:
        plan.workload(log)
    finally:
        # The first broken promise, if there was one, rather than what the workload made of it later.
        images = cuts.finish()
    return images


@pytest.mark.parametrize(("name", "every"), budgets_of(PLANS, long=LONG))
def test_a_power_cut_leaves_each_transaction_whole_absent_or_open(name: str, every: int) -> None:
    plan = PLANS[name]
    images = sum(run_with_cuts(plan, seed, every=every) for seed in plan.seeds)
    print(f"{name}: {images} images")
    assert images >= plan.images // every
