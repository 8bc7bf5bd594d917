"""One partition driven step by step, with its history told of every step: what the fault tests share.

Everything runs on the calling thread: who waits for an acknowledgement runs the sync itself, and the threads that would
do it for others never start. So a workload is the same sequence of file operations each time.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable

from foldlog.clock import Clock
from foldlog.files.base import Files
from foldlog.log.checkpoint import Checkpoint
from foldlog.log.config import LogConfig
from foldlog.log.durability import Syncable, Syncer
from foldlog.log.layout import create_partition
from foldlog.log.partition import Partition
from foldlog.records.batch import Compression
from foldlog.records.loops import decode, pack
from foldlog.testing.disk_image import DiskImage
from foldlog.testing.history import Found, PartitionHistory, Sent
from foldlog.testing.power_cuts import Violation
from foldlog.testing.sim_clock import SimClock

DIRECTORY = "data"
PATH = f"{DIRECTORY}/events-0"
TOPIC_ID = "0123456789abcdef0123456789abcdef"
START_MS = 1_700_000_000_000
PRODUCER_ID = 4711


class WaitersSync(Syncer):
    """No threads: a partition is synced by whoever waits for it."""

    def request(self, partition: Syncable) -> None:
        pass


def make_directory(files: Files) -> None:
    """An empty partition, durable with its names."""
    files.make_directory(DIRECTORY)
    files.sync_directory("/")
    create_partition(files, PATH, topic_id=TOPIC_ID)
    checkpoint = Checkpoint.open(files, f"{DIRECTORY}/checkpoint", write=True)
    checkpoint.reserve(0)
    checkpoint.sync()
    checkpoint.close()
    files.sync_directory(DIRECTORY)


def pack_batch(records: Iterable[Sent], sequence: int | None = None) -> bytearray:
    """One batch; of an idempotent producer if it has a sequence number."""
    rows = [(record.timestamp_ms, record.key, record.value, ()) for record in records]
    if sequence is None:
        return pack(rows)
    return pack(rows, producer_id=PRODUCER_ID, producer_epoch=0, base_sequence=sequence)


class OnePartition:
    """An open partition, what was sent to it, and what it promised."""

    def __init__(
        self,
        files: Files,
        config: LogConfig,
        *,
        clock: Clock | None = None,
        history: PartitionHistory | None = None,
        idempotent: bool = False,
    ) -> None:
        self.idempotent = idempotent
        self.files = files
        self.config = config
        self.clock = clock or SimClock(START_MS)
        self.history = history or PartitionHistory()
        self._open()

    def _open(self) -> None:
        self.checkpoint = Checkpoint.open(self.files, f"{DIRECTORY}/checkpoint", write=True)
        self.partition = Partition.open(
            self.files,
            PATH,
            self.checkpoint.slot(0),
            self.config,
            clock=self.clock,
            syncer=WaitersSync(),
            label=("events", 0),
        )

    def append(self, records: Iterable[Sent], *, wait: bool = True) -> int:
        """One batch; returns the offset after it, acknowledged if waited for."""
        records = list(records)
        expected = self.history.sending(records)
        appended = self.partition.append(self._batch(records, expected))
        if (appended.base_offset, appended.next_offset) != (expected, expected + len(records)):
            raise Violation(f"records that had to get offset {expected} got {appended}")
        if wait:
            self.wait(appended.next_offset)
        return appended.next_offset

    def _batch(self, records: list[Sent], sequence: int) -> bytearray:
        return pack_batch(records, sequence if self.idempotent else None)

    def wait(self, next_offset: int) -> None:
        self.partition.wait_acknowledged(next_offset)
        # Where flush.* is relaxed an acknowledgement promises nothing about a power cut; the durable offset does.
        self.history.acknowledged(self.partition.durable_offset if self.partition.acks_when_written else next_offset)

    def enforce_retention(self) -> None:
        self.history.removing_below(self.partition.log_end_offset)
        self.partition.enforce_retention()
        self.history.removed_below(self.partition.log_start_offset)

    def delete_records(self, before_offset: int) -> None:
        self.history.removing_below(before_offset)
        self.history.removed_below(self.partition.delete_records(before_offset))

    def compact(self, *, tombstones_may_go: bool = False) -> None:
        # Forced, it seals the active segment first and goes through everything.
        self.history.compacting_below(self.partition.log_end_offset, tombstones_may_go=tombstones_may_go)
        self.partition.compact(force=True)

    def recompress(self, codec: Compression) -> None:
        # The history is told nothing: whatever a cut leaves, every record is where it was.
        self.partition.recompress(codec)

    def close(self) -> None:
        self.partition.close()
        self.checkpoint.close()

    def reopen(self, *, cleanly: bool) -> None:
        """Close and open; or only open, as after kill -9: what was written is there, synced or not."""
        if cleanly:
            self.close()
        self._open()
        # Whole batches that were found are served now: what was read cannot be lost.
        self.history.forget_unwritten(self.partition.log_end_offset)

    def read_all(self) -> list[Found]:
        """Every record from the log start to the high watermark, in small slices."""
        found: list[Found] = []
        offset = self.partition.log_start_offset
        while offset < self.partition.high_watermark:
            found_here, next_offset = self.read_at(offset, max_bytes=2000)
            if next_offset <= offset:
                raise Violation(
                    f"reading at {offset} leads to {next_offset}, and the log ends at {self.partition.high_watermark}"
                )
            found += found_here
            offset = next_offset
        return found

    def read_at(self, offset: int, max_bytes: int = 1) -> tuple[list[Found], int]:
        piece = self.partition.read(offset, max_bytes)
        records, _ = decode(piece.data, "events", 0, start_offset=offset)
        return [Found(one.offset, one.key, one.value, one.timestamp_ms) for one in records], piece.next_offset


def judge_image(
    image: DiskImage, history: PartitionHistory, config: LogConfig, clock: Clock, *, idempotent: bool = False
) -> None:
    """Open what a cut left, read all of it, seek in it, append to it. Raises if a promise is broken."""
    judge_log(OnePartition(image.files(), config, clock=clock), history, idempotent=idempotent)


def judge_log(log: OnePartition, history: PartitionHistory, *, idempotent: bool = False) -> None:
    """What `judge_image` does, with a partition that was just opened."""
    partition = log.partition
    found = log.read_all()
    end = partition.log_end_offset
    if end != partition.high_watermark:
        raise Violation(f"freshly opened, the log ends at {end} and may be read to {partition.high_watermark}")
    history.judge(found, partition.log_start_offset, end)
    if found:
        wanted = found[end * 7 % len(found)]
        if log.read_at(wanted.offset)[0][:1] != [wanted]:
            raise Violation(f"reading at {wanted.offset} does not begin with the record of that offset")
        at = partition.offset_at_time(wanted.timestamp_ms)
        first = next(record for record in found if record.timestamp_ms >= wanted.timestamp_ms)
        if at != (first.offset, first.timestamp_ms):
            raise Violation(f"the first record at {wanted.timestamp_ms} is {first}, and the log says {at}")
    if idempotent and len(found) > 0:
        judge_repetition(partition, found[-1])
    probe = Sent(b"probe", b"after the cut", START_MS)
    appended = partition.append(pack([(probe.timestamp_ms, probe.key, probe.value, ())]))
    if appended.base_offset != end:
        raise Violation(f"the log ended at {end}, and the next record got {appended}")
    partition.wait_acknowledged(appended.next_offset)
    if log.read_at(end)[0] != [Found(end, probe.key, probe.value, probe.timestamp_ms)]:
        raise Violation(f"the record appended after the cut reads back as {log.read_at(end)}")


def judge_repetition(partition: Partition, last: Found) -> None:
    """A producer that heard nothing sends its last batch (of one record) again: it is known for what it is."""
    again = partition.append(pack_batch([Sent(last.key, last.value, last.timestamp_ms)], last.offset))
    if not again.is_duplicate or again.base_offset != last.offset:
        raise Violation(f"the batch at {last.offset}, sent again, was answered with {again}")


def recover_only(config: LogConfig, clock: Clock) -> Callable[[Files], None]:
    """What runs on a disk whose power is cut again during recovery."""
    return lambda files: OnePartition(files, config, clock=clock).close()


class Records:
    """A seeded supply of records: no two alike, some larger than a sector, timestamps mostly growing."""

    def __init__(self, seed: int, *, keys: int = 0, tombstones: bool = False) -> None:
        self._rng = random.Random(seed)
        self._keys = keys
        self._tombstones = tombstones
        self._count = 0

    def some(self, most: int = 3) -> list[Sent]:
        return [self.one() for _ in range(self._rng.randint(1, most))]

    def one(self) -> Sent:
        rng = self._rng
        self._count += 1
        key = b"key-%d" % rng.randrange(self._keys) if self._keys else None
        if self._tombstones and rng.random() < 0.2:
            value = None
        else:
            value = b"record %d " % self._count + rng.randbytes(rng.choice((0, 20, 90, 300, 700)))
        return Sent(key, value, START_MS + self._count * 10 + rng.choice((0, 0, 0, -35)))
