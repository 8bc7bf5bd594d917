"""What clients send: the rules for their batches, and appends of whole runs of Produce requests.

A run has the batches of one partition in one write, and all its checks before the first.

To follow one: `append_run`, which locks and asks every partition before it writes to any, then
`ProducedAppends.append`, which does what `Partition.append` does. The batches are a `ProducedBatches`, so nothing here
happens once a batch.
"""

from __future__ import annotations

import errno
import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from foldlog.clock import Clock
from foldlog.errors import FoldlogError, InvalidBatch, InvalidTimestamp, RefusedBatch, StorageError
from foldlog.files.base import Buffer
from foldlog.limits import QUICK_DECOMPRESSED_BYTES_MAX, QUICK_DECOMPRESSED_BYTES_MIN, QUICK_DECOMPRESSED_RATIO
from foldlog.log.config import AS_PRODUCED
from foldlog.log.durability import Durability, Tail
from foldlog.log.producers import REMEMBERED_BATCHES, Producers
from foldlog.records.batch import FAULT_CUT_OFF, LENGTH_AT, LENGTH_PREFIX_BYTES, MAX_INT64, RECORDS_AT, codec_of
from foldlog.records.compression import declared_bytes
from foldlog.records.loops import BatchHeader, walk

if TYPE_CHECKING:
    from foldlog.log.partition import PartitionCore
    from foldlog.records.loops import ProducedBatches

Writable = bytearray | memoryview

Written = int | StorageError | None
"""The offset after the batches of a partition; why they were not written; None if the run has none of it any more."""

_FIRST: Final = 0
_SECOND: Final = 1


class ProducedAppends:
    """One partition's part in runs. Owned by one thread, a server's event loop; never waits for a lock or the disk."""

    class Steps(NamedTuple):
        """What a run has in common with other appends of the partition."""

        has_to_prepare: Callable[[int, int, int], bool]
        write: Callable[[Tail, Sequence[Buffer]], None]
        publish: Callable[[Tail, Sequence[Buffer], int, int], None]
        look_at_newest: Callable[[int, int], None]

    def __init__(
        self,
        core: PartitionCore,
        clock: Clock,
        append_lock: threading.Lock,
        durability: Durability,
        producers: Producers,
        steps: Steps,
    ) -> None:
        self._core = core
        self._clock = clock
        self._append_lock = append_lock
        self._durability = durability
        self._producers = producers
        self._steps = steps
        self._now_ms = 0
        # Of the batches between `begin` and `append`: their headers if some have a producer id, or the id of the one
        # producer whose next batches they are.
        self._headers: list[BatchHeader] | None = None
        self._producer_id: int | None = None

    def allow(self, batches: ProducedBatches, target: int, now_ms: int) -> bool:
        """Say what the settings allow; False if batches have to be opened one by one, or rewritten. Schemas are for the
        caller."""
        config = self._core.config
        latest_ms = MAX_INT64
        if not config.log_append_time:
            if config.timestamp_before_max_ms != MAX_INT64:
                return False
            latest_ms = min(MAX_INT64, now_ms + config.timestamp_after_max_ms)
        batches.allow(target, config.max_message_bytes, config.decompressed_limit, config.compact, latest_ms)
        return config.compression == AS_PRODUCED

    def begin(self, batches: ProducedBatches, target: int) -> bool:
        """Take the append lock, and check what `append` will not check any more. False, without the lock, if anything
        is in the way, of all batches or of some: the handlers find out what."""
        if not self._append_lock.acquire(blocking=False):
            return False
        try:
            if self._is_ready(batches, target):
                return True
        except FoldlogError:
            pass  # a duplicate among them, out of order, of a transaction that is not open
        except BaseException:
            self._append_lock.release()
            raise
        self._append_lock.release()
        return False

    def _is_ready(self, batches: ProducedBatches, target: int) -> bool:
        if self._core.is_closed or self._durability.poison is not None:
            return False
        _, size_bytes, offsets = batches.size_of(target)
        self._now_ms = now_ms = self._clock.now_ms()  # under the lock: append times ascend, as offsets do
        if self._steps.has_to_prepare(offsets, size_bytes, now_ms):
            return False
        self._headers = self._producer_id = None
        sequence = batches.sequence_of(target)
        return sequence is False or self._takes(batches, target, sequence, now_ms)

    def _takes(
        self, batches: ProducedBatches, target: int, sequence: tuple[int, int, int, bool] | bool | None, now_ms: int
    ) -> bool:
        """Whether the numbers of producers are right. The usual case first: the next batches of one producer."""
        producers = self._producers
        if isinstance(sequence, tuple):
            producer_id, epoch, first_sequence, in_transaction = sequence
            if producers.takes_next(producer_id, epoch, first_sequence, in_transaction=in_transaction):
                self._producer_id = producer_id
                return True
        self._headers = headers = batches.producers_of(target) or []
        if producers.must_wait(headers):
            return False
        if producers.duplicate_of(headers, self._durability.tail.end_offset) is not None:
            return False
        producers.check_transactions(headers, False)
        producers.make_room(headers, now_ms)
        return True

    def append(self, batches: ProducedBatches, target: int) -> Written:
        """Give the batches their offsets, and write them, all or none. Between `begin` and `end`."""
        count, size_bytes, _ = batches.size_of(target)
        if not count:
            return None
        core, tail, now_ms = self._core, self._durability.tail, self._now_ms
        append_time_ms = now_ms if core.config.log_append_time else -1
        state = core.state
        next_offset, views = batches.number(
            target, tail.end_offset, state.leader_epoch, append_time_ms, state.log_start_offset
        )
        try:
            self._steps.write(tail, views)
        except StorageError as error:
            return error
        if self._producer_id is not None:
            self._producers.note_next(self._producer_id, batches.newest_of(target, REMEMBERED_BATCHES), now_ms)
        elif self._headers is not None:
            headers = self._headers[:count]  # another partition may have ended the run earlier
            batches.take_numbers(target, headers)
            self._producers.note_headers(headers, now_ms)
        tail.segment.wrote_produced(batches, target, tail.position, size_bytes)
        self._steps.publish(tail, views, next_offset, now_ms)
        if core.config.retention_ms >= 0:
            self._steps.look_at_newest(batches.latest_ms(target), now_ms)
        return next_offset

    def end(self) -> None:
        self._headers = None
        self._append_lock.release()

    def is_lost(self) -> bool:
        """Whether the directory's lock is lost, so that another process may write there."""
        return self._core.slot.lost() is not None


def check_run(
    appends: Sequence[ProducedAppends],
    batches: ProducedBatches,
    now_ms: int,
    *,
    weight_max: int,
    gzip_weight: int,
    takes_zstd: bool,
    takes_transactions: bool,
) -> tuple[Exception | None, bool]:
    """Check the batches, without any lock; the run ends before what cannot be appended in a moment. See
    `ProducedBatches.check`."""
    for target, one in enumerate(appends):
        if batches.size_of(target)[0] and not one.allow(batches, target, now_ms):
            batches.cut(batches.frame_of(target, _FIRST))
    return batches.check(
        weight_max,
        gzip_weight,
        QUICK_DECOMPRESSED_RATIO,
        QUICK_DECOMPRESSED_BYTES_MIN,
        QUICK_DECOMPRESSED_BYTES_MAX,
        takes_zstd,
        takes_transactions,
    )


def append_run(appends: Sequence[ProducedAppends], batches: ProducedBatches) -> list[Written]:
    """Append checked batches, those of each partition in one write; nothing is durable yet. The run ends before the
    first frame with a batch that a partition cannot take at once."""
    # All locks, then all writes: what a frame has for the second partition must not be refused when the first is
    # written. They are only tried for, so the order does not matter.
    locked: list[ProducedAppends] = []
    try:
        for target, one in enumerate(appends):
            if _begin(one, batches, target):
                locked.append(one)
        # Once for all of them: they are of one directory, and a look costs as much as the rest of a small append.
        if appends[0].is_lost():
            batches.cut(0)
        return [one.append(batches, target) for target, one in enumerate(appends)]
    finally:
        for one in locked:
            one.end()


def _begin(one: ProducedAppends, batches: ProducedBatches, target: int) -> bool:
    count = batches.size_of(target)[0]
    if count > 1 and not one.begin(batches, target):
        # Perhaps only a later one is in the way: it repeats a batch of this very run, or rolls the segment.
        batches.cut(batches.frame_of(target, _SECOND))
        count = batches.size_of(target)[0]
    elif count > 1:
        return True
    if count and one.begin(batches, target):
        return True
    if count:
        batches.cut(batches.frame_of(target, _FIRST))
    return False


# Rules for batches of clients, which Kafka has too: a client gets the same refusals from both.


class ExpandsFurther(BlockingIOError):
    """A caller that must not wait has checked a batch as far as there is time. `is_steep`: it expands to so many times
    its size that its sender has hardly paid for the check."""

    def __init__(self, is_steep: bool) -> None:
        super().__init__(errno.EAGAIN, "a batch expands further than can be looked at in a moment")
        self.is_steep = is_steep


def expands_further(batch: Writable, quick_limit: int, limit: int) -> ExpandsFurther:
    """The error for one batch that expands beyond `quick_limit`. Raises DecompressedTooLarge if it declares that it is
    over the topic's limit, too."""
    declared_bytes(codec_of(batch), memoryview(batch)[RECORDS_AT:], limit)
    return ExpandsFurther(quick_limit < QUICK_DECOMPRESSED_BYTES_MAX)


def quick_limit_of(size_bytes: int) -> int:
    """The most bytes that a batch of `size_bytes` may expand to if it is to be checked in a moment."""
    least = max(QUICK_DECOMPRESSED_RATIO * size_bytes, QUICK_DECOMPRESSED_BYTES_MIN)
    return min(QUICK_DECOMPRESSED_BYTES_MAX, least)


def headers_of_another_log(data: Writable) -> list[BatchHeader]:
    """Headers of another log's batches; checks their CRCs, and that nothing is between or behind the batches."""
    found = walk(data)
    if found.problem is not None or found.end != len(data):
        raise InvalidBatch(found.problem or FAULT_CUT_OFF, found.end)
    return found.headers


def refuse_several(data: Writable) -> None:
    """Refuse several batches before any is opened: `admit` checks the declared size of the first one only."""
    declared = LENGTH_PREFIX_BYTES + int.from_bytes(data[LENGTH_AT:LENGTH_PREFIX_BYTES], "big")
    headers = walk(data, check_crc=False).headers if declared < len(data) else []
    if len(headers) > 1:
        raise RefusedBatch(f"{len(headers)} batches were sent for one partition; one is allowed", headers[1].position)


def refuse_foreign(headers: list[BatchHeader]) -> None:
    """Refuse what Kafka refuses from a client: marks that only a log sets, and producer ids without a sequence."""
    header = headers[0]
    if header.is_control:
        raise RefusedBatch("it is a control batch, which only a log itself writes", 0)
    if header.is_transactional and header.producer_id < 0:
        raise RefusedBatch("it belongs to a transaction, and has no producer id", 0)
    if header.has_delete_horizon:
        raise RefusedBatch("it has a delete horizon, which only compaction sets", 0)
    if header.is_log_append_time:
        raise InvalidTimestamp("its timestamp type is LogAppendTime, which only a log itself sets", 0)
    if header.producer_id >= 0 and (header.producer_epoch < 0 or header.base_sequence < 0):
        raise RefusedBatch(
            f"producer {header.producer_id} sent it with epoch {header.producer_epoch} and sequence"
            f" {header.base_sequence}, which start at 0",
            0,
        )
