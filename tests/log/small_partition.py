"""A partition in memory with a clock of its own: what the tests of the log room share."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from foldlog.files.base import Files
from foldlog.files.memory import MemoryFiles
from foldlog.log.checkpoint import Checkpoint
from foldlog.log.config import LogConfig
from foldlog.log.durability import Membership, Syncer
from foldlog.log.follower import FollowedPartition
from foldlog.log.journal.journal import Journal, JournalSettings
from foldlog.log.journal.recovery import JournalContents
from foldlog.log.layout import create_partition
from foldlog.log.partition import Appended, Partition
from foldlog.records.loops import Record, decode, pack
from foldlog.testing.sim_clock import SimClock

DIRECTORY = "data"
PATH = "data/events-0"
LABEL = ("events", 0)
TOPIC_ID = bytes([*bytes(15), 1])


class SmallPartition:
    """Opens, crashes and reopens one partition on any Files."""

    journal: Journal | None = None
    _journal_settings: JournalSettings | None = None

    def __init__(self, files: Files | None = None, journal: JournalSettings | None = None, /, **config: Any) -> None:
        """`journal`: of a journal; it is ready after a first sync and `journal.work()`."""
        self._journal_settings = journal
        self.files: Files = files or MemoryFiles()
        self.clock = SimClock()
        self.syncer = Syncer(threads=2)
        self.files.make_directory(DIRECTORY)
        create_partition(self.files, PATH, topic_id=TOPIC_ID.hex())
        self.reopen(**config)

    def reopen(self, **config: Any) -> Partition:
        """Open from what the files hold, as after a crash if it was not closed before."""
        self.checkpoint = Checkpoint.open(self.files, f"{DIRECTORY}/checkpoint", write=True)
        if self._journal_settings is not None:
            contents = JournalContents(DIRECTORY)
            self.journal = Journal(
                self.files, DIRECTORY, bytes(16), self.checkpoint, self.syncer, contents, self._journal_settings
            )
        self.partition = Partition.open(
            self.files,
            PATH,
            self.checkpoint.slot(0),
            LogConfig(**config),
            clock=self.clock,
            syncer=self.syncer,
            label=LABEL,
            membership=None if self.journal is None else Membership(self.journal, TOPIC_ID),
        )
        return self.partition

    def close(self) -> None:
        self.partition.close()
        if self.journal is not None:
            self.journal.close()
        self.checkpoint.close()

    def reader(self) -> FollowedPartition:
        checkpoint = Checkpoint.open(self.files, f"{DIRECTORY}/checkpoint", write=False)
        return FollowedPartition.open(self.files, PATH, checkpoint.slot(0), label=LABEL)

    def write(self, *values: bytes | None, key: bytes | None = None, timestamp_ms: int | None = None) -> Appended:
        """Append one batch and wait for its acknowledgement."""
        now_ms = self.clock.now_ms() if timestamp_ms is None else timestamp_ms
        appended = self.partition.append(pack([(now_ms, key, value, ()) for value in values]))
        self.partition.wait_acknowledged(appended.next_offset)
        return appended

    def write_all(self, values: Iterable[bytes], key: bytes | None = None) -> None:
        for value in values:
            self.write(value, key=key)

    def names(self, suffix: str) -> list[str]:
        return sorted(entry.name for entry in self.files.entries(PATH) if entry.name.endswith(suffix))

    def damage(self, name: str, position: int, mask: int = 0xFF) -> None:
        """Flip bits of one byte on disk."""
        file = self.files.open(f"{PATH}/{name}", write=True)
        byte = file.read(position, 1)[0]
        file.write(position, [bytes([byte ^ mask])])
        file.close()


def read_all(partition: Partition | FollowedPartition) -> list[Record]:
    """Everything from the log start to the high watermark."""
    records: list[Record] = []
    offset = partition.log_start_offset
    while offset < partition.high_watermark:
        found = partition.read(offset)
        decoded, _ = decode(found.data, *LABEL, start_offset=offset)
        records += decoded
        offset = found.next_offset
    return records


def numbered(count: int, size: int = 10) -> list[bytes]:
    return [f"value-{number}".encode().ljust(size, b".") for number in range(count)]
