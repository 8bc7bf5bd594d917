"""Partitions that share a journal, driven step by step on one thread, with their histories told of every step.

The journal is tiny: a few commits fill a file, so that a workload goes round the ring several times. What a broker does
on a thread in the background (releasing files, making them) is done between two steps.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from faults.one_partition import DIRECTORY, START_MS, OnePartition, WaitersSync, judge_log
from foldlog.clock import Clock
from foldlog.files.base import Files
from foldlog.log.checkpoint import Checkpoint, Slot
from foldlog.log.config import LogConfig
from foldlog.log.durability import Membership
from foldlog.log.journal.format import BLOCK_BYTES
from foldlog.log.journal.journal import Journal, JournalSettings
from foldlog.log.journal.recovery import mark_replayed, read_journal, replay
from foldlog.log.layout import create_partition
from foldlog.log.partition import Partition
from foldlog.testing.disk_image import DiskImage
from foldlog.testing.history import PartitionHistory, Sent
from foldlog.testing.power_cuts import Violation
from foldlog.testing.sim_clock import SimClock

TOPIC_ID = bytes(range(16))
DIRECTORY_ID = bytes(range(16, 32))
NEVER_ALONE = 1 << 30
SMALL_JOURNAL = JournalSettings(
    begin_syncs=1,
    alone_asks=NEVER_ALONE,
    alone_bytes=1,
    first_bytes=4 * BLOCK_BYTES,
    file_bytes=6 * BLOCK_BYTES,
    files_max=3,
    entry_bytes_max=2000,
)
"""Three commits fill the first files, five the later ones; larger appends than about two records go their own way."""


def path_of(number: int) -> str:
    return f"{DIRECTORY}/events-{number}"


def make_partitions(files: Files, count: int) -> None:
    """Empty partitions, durable with their names."""
    files.make_directory(DIRECTORY)
    files.sync_directory("/")
    checkpoint = Checkpoint.open(files, f"{DIRECTORY}/checkpoint", write=True)
    for number in range(count):
        create_partition(files, path_of(number), topic_id=TOPIC_ID.hex())
        checkpoint.reserve(number)
    checkpoint.sync()
    checkpoint.close()
    files.sync_directory(DIRECTORY)


class JournaledDirectory:
    """Open partitions with one journal."""

    def __init__(
        self,
        files: Files,
        config: LogConfig,
        count: int,
        *,
        clock: Clock | None = None,
        histories: list[PartitionHistory] | None = None,
        settings: JournalSettings = SMALL_JOURNAL,
        idempotent: bool = False,
        is_kept: bool = False,
    ) -> None:
        """`is_kept`: as where some other partition cannot take its entries: no file of the journal is given up, and
        every open finds all that there ever was in them."""
        self.is_kept = is_kept
        self.files = files
        self.config = config
        self.clock = clock or SimClock(START_MS)
        self.settings = settings
        self.has_work = False
        self._open()
        histories = histories or [PartitionHistory() for _ in range(count)]
        self.logs = [JournaledPartition(self, number, history, idempotent) for number, history in enumerate(histories)]

    @property
    def histories(self) -> list[PartitionHistory]:
        return [log.history for log in self.logs]

    def version(self) -> tuple[int, ...]:
        return tuple(log.history.version for log in self.logs)

    def _open(self) -> None:
        self.checkpoint = Checkpoint.open(self.files, f"{DIRECTORY}/checkpoint", write=True)
        contents = read_journal(self.files, DIRECTORY, DIRECTORY_ID)
        if contents.damages:
            raise Violation(f"a power cut looks like damage: {contents.damages}")
        needs_journal = self.checkpoint.needs_journal
        replayed = replay(self.files, contents, self._find, self.checkpoint.sync)
        if replayed.written and not needs_journal:
            raise Violation("the checkpoint lets an older foldlog open it without its journal")
        for error in replayed.refused.values():
            raise error
        if not self.is_kept:
            mark_replayed(self.files, contents, DIRECTORY_ID, self.checkpoint)
        self.syncer = WaitersSync()
        self.journal = Journal(
            self.files,
            DIRECTORY,
            DIRECTORY_ID,
            self.checkpoint,
            self.syncer,
            contents,
            self.settings,
            are_refused=self.is_kept,
        )
        self.journal.on_work = self._wants_work

    def _find(self, topic_id: bytes, number: int) -> tuple[str, Slot] | None:
        return (path_of(number), self.checkpoint.slot(number)) if topic_id == TOPIC_ID else None

    def _wants_work(self) -> None:
        self.has_work = True

    @property
    def is_full(self) -> bool:
        """Whether a file waits for its partitions to be synced."""
        return self.has_work and bool(self.journal._sealed)

    def work(self) -> None:
        """What the background does, if there is something to do."""
        if self.has_work:
            self.has_work = False
            self.journal.work()

    def append_together(self, records: dict[int, Iterable[Sent]]) -> None:
        """To several partitions; one of them waits, and its commit has all of them."""
        ends = {number: self.logs[number].append(some, wait=False) for number, some in records.items()}
        for number, end in ends.items():
            self.logs[number].partition.on_acknowledged(end, lambda error: None)
        for number, end in ends.items():
            self.logs[number].wait(end)

    def close(self) -> None:
        for log in self.logs:
            log.partition.close()
        self.journal.close()
        self.checkpoint.close()

    def reopen(self, *, cleanly: bool) -> None:
        if cleanly:
            self.close()
        self._open()
        for log in self.logs:
            log.open_again()


class JournaledPartition(OnePartition):
    """One of them, as the workloads of a partition know it."""

    def __init__(self, directory: JournaledDirectory, number: int, history: PartitionHistory, idempotent: bool) -> None:
        self.directory = directory
        self.number = number
        super().__init__(
            directory.files, directory.config, clock=directory.clock, history=history, idempotent=idempotent
        )

    def _open(self) -> None:
        directory = self.directory
        self.checkpoint = directory.checkpoint
        self.partition = Partition.open(
            self.files,
            path_of(self.number),
            self.checkpoint.slot(self.number),
            self.config,
            clock=self.clock,
            syncer=directory.syncer,
            label=("events", self.number),
            membership=Membership(directory.journal, TOPIC_ID),
        )

    def open_again(self) -> None:
        self._open()
        self.history.forget_unwritten(self.partition.log_end_offset)

    def append(self, records: Iterable[Sent], *, wait: bool = True) -> int:
        self.directory.work()
        return super().append(records, wait=wait)

    def close(self) -> None:
        self.directory.close()

    def reopen(self, *, cleanly: bool) -> None:
        self.directory.reopen(cleanly=cleanly)


def judge_directory(image: DiskImage, directory: JournaledDirectory, *, idempotent: bool = False) -> None:
    """Open what a cut left, and hold every partition to what was promised of it."""
    found = JournaledDirectory(
        image.files(),
        directory.config,
        len(directory.logs),
        clock=directory.clock,
        settings=directory.settings,
        is_kept=directory.is_kept,
    )
    for log, history in zip(found.logs, directory.histories, strict=True):
        judge_log(log, history, idempotent=idempotent)


def recover_directory(directory: JournaledDirectory) -> Callable[[Files], None]:
    """What runs on a disk whose power is cut again during recovery."""

    def recover(files: Files) -> None:
        JournaledDirectory(
            files,
            directory.config,
            len(directory.logs),
            clock=directory.clock,
            settings=directory.settings,
            is_kept=directory.is_kept,
        ).close()

    return recover
