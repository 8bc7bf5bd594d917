"""Every single operation of a workload fails once: the caller gets a FoldlogError, and nothing acknowledged is lost.

The workload appends, rolls, deletes, compacts and reopens, with a journal and without. A first run counts its file
operations. Then it runs again for each of them, with that one failing: with an I/O error, or for want of space with
nothing or half of it written.
What fails must fail with a precise error and leave the rest working: a full disk refuses the append and takes the next;
a failed sync poisons the partition until it is reopened, and reading goes on. At the end the directory is reopened, and
then the power is cut, too: everything acknowledged is there.
"""

from __future__ import annotations

import errno
import random
from collections.abc import Callable

import pytest

from faults.journaled import JournaledDirectory, judge_directory, make_partitions
from faults.one_partition import START_MS, OnePartition, Records, judge_image, make_directory
from foldlog.errors import FoldlogError, LogClosed, PartitionPoisoned, StorageError, StorageFull
from foldlog.files.base import read_file
from foldlog.log.config import LogConfig
from foldlog.records.loops import pack
from foldlog.testing.faulty_files import NEEDS_SPACE, NO_FAULT, Fault, FaultyFiles, Kind, Operation
from foldlog.testing.power_cuts import Violation
from foldlog.testing.power_loss import Fate, PowerLossFiles
from foldlog.testing.sim_clock import SimClock

PLAIN = LogConfig(segment_bytes=1024, retention_bytes=2500, retention_ms=-1, index_interval_bytes=128)
ONE_SEGMENT = LogConfig(index_interval_bytes=128)
COMPACTED = LogConfig(segment_bytes=1024, compact=True, delete=False, index_interval_bytes=128)


class Driver:
    """Runs steps on a disk that may fail, and holds the log to its contract after each failure."""

    def __init__(self, config: LogConfig, seed: int, *, journaled: bool = False) -> None:
        self.config = config
        self.power = PowerLossFiles()
        self.files = FaultyFiles(self.power)
        self.clock = SimClock(START_MS)
        self.directory: JournaledDirectory | None = None
        if journaled:
            make_partitions(self.power, 1)
            self.directory = JournaledDirectory(self.files, config, 1, clock=self.clock)
            self.log: OnePartition = self.directory.logs[0]
        else:
            make_directory(self.power)
            self.log = OnePartition(self.files, config, clock=self.clock)
        self.power.sync_directory("data")
        self.records = Records(seed, keys=3 if config.compact else 0)
        self.errors: list[FoldlogError] = []

    def run(self) -> None:
        for step in range(14):
            self.attempt(self.append)
            if step % 5 == 4:
                self.attempt(self.log.compact if self.config.compact else self.log.enforce_retention)
            if step == 8:
                self.attempt(lambda: self.log.delete_records(self.log.partition.log_start_offset + 1))
            if step in (6, 11):
                self.attempt(self.roll)
            if step == 9:
                self.reopen(cleanly=True)
            if step == 12:
                self.attempt(lambda: self.append(wait=False))
                self.reopen(cleanly=False)

    def attempt(self, step: Callable[[], None]) -> None:
        """One step, which may fail, but only with an error of ours."""
        try:
            step()
        except Violation:
            raise
        except FoldlogError as error:
            self.errors.append(error)
            self.after_failure()

    def append(self, *, wait: bool = True) -> None:
        first = len(self.log.history.sent)
        try:
            self.log.append(self.records.some(), wait=wait)
        except FoldlogError:
            if not self.log.partition.is_poisoned:
                self.log.history.withdrawn(first)
            raise

    def roll(self) -> None:
        self.log.partition.roll()

    def after_failure(self) -> None:
        log = self.log
        if not log.partition.is_poisoned:
            return
        found = log.read_all()
        assert log.partition.high_watermark == log.partition.durable_offset
        assert log.partition.high_watermark >= log.history.acknowledged_end
        log.history.judge(found, log.partition.log_start_offset, log.partition.high_watermark)
        with pytest.raises(PartitionPoisoned):
            log.partition.append(pack([(START_MS, b"k", b"v", ())]))
        with pytest.raises(PartitionPoisoned):
            log.partition.wait_acknowledged(log.partition.log_end_offset + 1)
        self.reopen(cleanly=True)

    def reopen(self, *, cleanly: bool) -> None:
        """May itself fail; the next try must succeed, as a disk that failed once works again."""
        if cleanly:
            try:
                self.log.close()
            except FoldlogError as error:
                self.errors.append(error)
        try:
            self.log.reopen(cleanly=False)
        except FoldlogError as error:
            self.errors.append(error)
            self.log.reopen(cleanly=False)

    def finish(self) -> None:
        """Nothing fails any more: reopened, and then after a power cut, everything promised is there."""
        self.files.fault = NO_FAULT
        self.reopen(cleanly=False)
        history, partition = self.log.history, self.log.partition
        history.judge(self.log.read_all(), partition.log_start_offset, partition.log_end_offset)
        self.log.append(self.records.some())
        units = len(self.power.unsynced())
        for number, fates in enumerate([[Fate.DROPPED] * units, [Fate.KEPT] * units, [Fate.TORN] * units]):
            image = self.power.image(fates, random.Random(number))
            if self.directory is not None:
                judge_directory(image, self.directory)
            else:
                judge_image(image, history, self.config, self.clock)


def operations_of(config: LogConfig, *, journaled: bool) -> list[Operation]:
    driver = Driver(config, seed=5, journaled=journaled)
    driver.files.operations.clear()
    driver.run()
    assert driver.errors == []
    return list(driver.files.operations)


def faults_of(operation: Operation) -> list[Fault]:
    faults = [Fault.at(operation.number, errno.EIO)]
    if operation.kind in NEEDS_SPACE:
        faults.append(Fault.at(operation.number, errno.ENOSPC))
    if operation.kind is Kind.WRITE:
        faults.append(Fault.at(operation.number, errno.ENOSPC, part=0.5))
        faults.append(Fault.at(operation.number, errno.EIO, part=0.5))
    return faults


CONFIGS = pytest.mark.parametrize("config", [PLAIN, COMPACTED], ids=["plain", "compacted"])
WAYS = pytest.mark.parametrize("journaled", [False, True], ids=["synced", "journaled"])


@pytest.mark.parametrize(
    ("config", "journaled"),
    [
        pytest.param(PLAIN, False, id="synced-plain"),
        pytest.param(COMPACTED, True, id="journaled-compacted"),
        pytest.param(PLAIN, True, id="journaled-plain", marks=pytest.mark.faults),
        pytest.param(COMPACTED, False, id="synced-compacted", marks=pytest.mark.faults),
    ],
)
def test_one_operation_in_some_may_fail_and_nothing_acknowledged_is_lost(config: LogConfig, journaled: bool) -> None:
    """Of each kind of operation: `make test-faults` has all of them."""
    fail_each(config, every=7 if journaled else 4, journaled=journaled)


@pytest.mark.faults
@CONFIGS
@WAYS
def test_any_one_operation_may_fail_and_nothing_acknowledged_is_lost(config: LogConfig, journaled: bool) -> None:
    fail_each(config, every=1, journaled=journaled)


def fail_each(config: LogConfig, every: int, *, journaled: bool) -> None:
    operations = operations_of(config, journaled=journaled)
    assert {Kind.WRITE, Kind.TRUNCATE, Kind.SYNC, Kind.ALLOCATED_SYNC, Kind.CREATE, Kind.SYNC_DIRECTORY} <= {
        operation.kind for operation in operations
    }
    commits = [one for one in operations if one.kind is Kind.SYNC and "/journal/" in one.path]
    assert (len(commits) > 10) == journaled
    findings: dict[str, str] = {}
    runs = 0
    by_kind = sorted(operations, key=lambda operation: operation.kind.value)
    for operation in by_kind[::every]:
        for fault in faults_of(operation):
            runs += 1
            driver = Driver(config, seed=5, journaled=journaled)
            driver.files.operations.clear()
            driver.files.fault = fault
            try:
                driver.run()
                driver.finish()
                assert driver.files.failed, "the fault never came: the run is not the one that was counted"
            except Exception as error:  # noqa: BLE001 - whatever it is, it is the finding
                name = operation.path.rpartition("/")[2]
                what = f"{operation.kind.value} {name} ({errno.errorcode[fault.decide(operation)]}, part {fault.part})"
                findings.setdefault(f"{type(error).__name__}: {error}"[:300], f"operation {operation.number}: {what}")
    assert runs > 200 // every
    assert not findings, "\n".join(f"{where}\n    {what}" for what, where in findings.items())


def open_log(config: LogConfig = ONE_SEGMENT) -> Driver:
    driver = Driver(config, seed=1)
    for _ in range(3):
        driver.append()
    return driver


def test_a_full_disk_refuses_appends_and_takes_them_again_when_space_returns() -> None:
    driver = open_log()
    end = driver.log.partition.log_end_offset
    driver.files.fault = Fault.full_from(0, part=0.7)
    for _ in range(3):
        with pytest.raises(StorageFull):
            driver.append()
    assert driver.log.partition.log_end_offset == end
    assert len(driver.log.read_all()) == end
    driver.files.fault = NO_FAULT
    driver.append()
    driver.finish()


def test_a_disk_too_full_for_a_new_segment_says_so() -> None:
    driver = open_log(LogConfig(segment_records=1))
    driver.files.fault = Fault.full_from(0)
    for _ in range(3):
        with pytest.raises(StorageFull):
            driver.append()
    driver.files.fault = NO_FAULT
    driver.append()
    driver.finish()


def test_half_a_batch_that_was_taken_back_does_not_return_after_a_roll_and_a_power_cut() -> None:
    """The bytes were cut off again, but that cut was never synced: nothing new was to be acknowledged in that file."""
    driver = open_log()
    driver.files.fault = Fault.full_from(0, part=0.5)
    with pytest.raises(StorageFull):
        driver.append()
    driver.files.fault = NO_FAULT
    driver.log.partition.roll()
    driver.append()
    for seed in range(20):
        rng = random.Random(seed)
        image = driver.power.image(rng.choices(list(Fate), k=len(driver.power.unsynced())), rng)
        judge_image(image, driver.log.history, driver.config, driver.clock)


def test_a_failed_sync_poisons_until_reopened_and_the_bytes_are_kept_beside() -> None:
    driver = open_log()
    durable = driver.log.partition.durable_offset
    driver.files.fault = Fault(lambda operation: errno.EIO if operation.kind is Kind.SYNC else 0)
    told: list[FoldlogError | None] = []
    driver.log.append(driver.records.some(), wait=False)
    driver.log.partition.on_acknowledged(driver.log.partition.log_end_offset, told.append)
    with pytest.raises(PartitionPoisoned):
        driver.log.wait(driver.log.partition.log_end_offset)
    assert [type(error) for error in told] == [PartitionPoisoned]
    driver.files.fault = NO_FAULT
    with pytest.raises(PartitionPoisoned):
        driver.log.wait(driver.log.partition.log_end_offset)  # a sync that now works would prove nothing
    with pytest.raises(PartitionPoisoned):
        driver.append()
    assert driver.log.partition.high_watermark == durable
    assert len(driver.log.read_all()) == durable
    driver.log.reopen(cleanly=True)
    assert driver.log.partition.log_end_offset == durable, "reopening cuts to the durable offset"
    beside = [entry for entry in driver.power.entries("data/events-0") if entry.name.endswith(".cut")]
    assert beside, "and keeps the bytes"
    assert all(read_file(driver.power, f"data/events-0/{entry.name}") for entry in beside)
    driver.append()
    driver.finish()


def test_a_closed_log_says_so() -> None:
    driver = open_log()
    driver.log.close()
    driver.log.close()
    with pytest.raises(LogClosed):
        driver.log.partition.append(pack([(START_MS, b"k", b"v", ())]))
    with pytest.raises((LogClosed, StorageError)):
        driver.log.partition.read(0)
