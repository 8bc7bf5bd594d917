"""A Fetch under way: it reads, at once if there is enough, else when enough has come or the time is up.

The fetch session determines the wanted partitions (`sessions`). `Fetching.begin` reads what is there. If that is
not enough it waits: for a partition to move (`moved`), or for the time to be up. With isolation level read_committed
a partition ends at its last stable offset, and only what is below counts. It also waits for the sync of records
that were acknowledged before it came: clients take the high watermark of an answer for the end of the log. If a
partition has to be opened or pages come from the disk, the read moves to a thread. A pass over very many partitions
is read in slices, one in a turn of the loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol, cast

from foldlog.broker.access.acls import AclOperation, Identity, ResourceType
from foldlog.errors import FoldlogError, OffsetOutOfRange, UnknownTopic
from foldlog.limits import FETCH_SLICE_PARTITIONS, SYNC_WAIT_MS
from foldlog.log.partition import Partition
from foldlog.log.tier.boundary import WaitsForStore
from foldlog.server.fetches.sessions import FetchContext, WantedPartition
from foldlog.server.net.memory import LENT_BYTES_MIN, ReadBuffers
from foldlog.wire.error_codes import ErrorCode, code_of
from foldlog.wire.messages.fetch import AbortedTransaction, EpochEndOffset, LeaderIdAndEpoch, PartitionData

if TYPE_CHECKING:
    from foldlog.server.call import Caller
    from foldlog.server.node import BrokerNode

READ_COMMITTED: Final = 1
_INDEX_INTERVAL_BYTES: Final = 8 << 10
"""A read loads a little more than it returns: it begins at an index entry."""


class FetchReading(Protocol):
    """What one pass over the wanted partitions found."""

    size_bytes: int
    records: int  # by their offsets: a compacted topic has fewer records
    is_final: bool  # has an error: no need to wait
    is_full: bool  # there is more than an answer carries, so waiting is pointless

    @property
    def waits(self) -> Sequence[tuple[Partition, int]]:
        """Partitions with the end seen: high watermark or last stable offset."""
        ...

    @property
    def behind(self) -> Sequence[tuple[Partition, int]]:
        """Partitions with the offset below which everything is acknowledged, if not all of it can be read."""
        ...


class FetchRead:
    """One pass over the wanted partitions. Used on the loop, or wholly on a thread; `nowait` raises BlockingIOError."""

    def __init__(
        self,
        node: BrokerNode,
        who: Identity,
        limit_bytes: int,
        buffers: ReadBuffers,
        *,
        committed: bool,
        nowait: bool,
        is_last: bool,
    ) -> None:
        """`committed`: up to the last stable offset. `is_last`: the answer is sent now, so records that will never come
        are an error in it."""
        self._node = node
        self._committed = committed
        self._who = who
        self._buffers = buffers
        self._nowait = nowait
        self._is_last = is_last
        self._room_bytes = limit_bytes
        self.size_bytes = 0
        self.records = 0
        self.is_final = False
        self.is_full = False
        self.answers: list[PartitionData] = []
        self.waits: list[tuple[Partition, int]] = []
        self.behind: list[tuple[Partition, int]] = []

    def read(self, wanted: Sequence[WantedPartition]) -> None:
        """All of them, or the next ones."""
        for one in wanted:
            answer = self._answer(one)
            if answer.error_code or answer.diverging_epoch is not None:
                self.is_final = True
            self.answers.append(answer)

    def _answer(self, wanted: WantedPartition) -> PartitionData:
        name = wanted.topic
        if name is None:
            name = self._node.topic_ids.name_of(wanted.topic_id)
            if name is None:
                return _error(wanted, ErrorCode.UNKNOWN_TOPIC_ID)
        if not self._node.authorizer.allows(self._who, AclOperation.READ, ResourceType.TOPIC, name):
            return _error(wanted, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        try:
            partition = self._partition(name, wanted.partition)
            return self._slice(partition, wanted)
        except OffsetOutOfRange as error:
            return _error(wanted, ErrorCode.OFFSET_OUT_OF_RANGE, error.start)
        except FoldlogError as error:
            self._node.storage_failed("a fetch", name, wanted.partition, error)
            return _error(wanted, code_of(error))

    def _partition(self, name: str, number: int) -> Partition:
        partition = self._node.open_partition(name, number)
        if partition is not None:
            return partition
        if not self._node.has_partition(name, number):
            raise UnknownTopic(name)  # not by looking it up, which lists all topics for the error
        if self._nowait:
            raise BlockingIOError  # it exists and is not open: that needs the disk
        return self._node.partition(name, number)

    def _slice(self, partition: Partition, wanted: WantedPartition) -> PartitionData:
        epoch = partition.leader_epoch
        asked_epoch = wanted.current_leader_epoch
        if asked_epoch >= 0 and asked_epoch != epoch:
            if asked_epoch > epoch:
                return _error(wanted, ErrorCode.UNKNOWN_LEADER_EPOCH)
            refused = _error(wanted, ErrorCode.FENCED_LEADER_EPOCH)
            refused.current_leader = LeaderIdAndEpoch(leader_id=self._node.settings.node_id, leader_epoch=epoch)
            return refused
        # In this order: a transaction that ends in between moves both, and the first must not be above the second.
        last_stable = _end_of(partition, committed=True)
        offset, high_watermark = wanted.fetch_offset, partition.high_watermark
        end = last_stable if self._committed else high_watermark
        self.waits.append((partition, end))
        acknowledged = partition.acknowledged_offset
        if high_watermark < acknowledged:
            self.behind.append((partition, acknowledged))
        answer = PartitionData(
            partition_index=wanted.partition,
            high_watermark=high_watermark,
            last_stable_offset=last_stable,
            log_start_offset=partition.log_start_offset,
            aborted_transactions=() if self._committed else None,
        )
        if wanted.last_fetched_epoch >= 0:
            answer.diverging_epoch = _divergence(partition, wanted)
            if answer.diverging_epoch is not None:
                return answer
        if end <= offset <= partition.log_end_offset:
            if high_watermark < acknowledged and partition.is_poisoned and self._is_last:
                return _error(wanted, ErrorCode.KAFKA_STORAGE_ERROR, partition.log_start_offset)
            return answer  # the record comes when what is written is durable, and its transaction has ended
        wanted_bytes = min(wanted.max_bytes, self._room_bytes)
        if wanted_bytes <= 0 and self.size_bytes:
            self.is_full |= self._room_bytes <= 0
            return answer
        size_bytes = min(wanted_bytes + _INDEX_INTERVAL_BYTES, partition.size_bytes)
        into = self._buffers.lend(size_bytes) if size_bytes >= LENT_BYTES_MIN else None
        found = partition.read(offset, max(1, wanted_bytes), into, nowait=self._nowait, committed=self._committed)
        data = found.data
        self.is_full |= self._room_bytes < wanted.max_bytes and found.next_offset < end
        if len(data) > wanted_bytes and self.size_bytes:
            return answer  # a batch over the limit is sent only if it is the first: there must be progress
        answer.records = data
        if found.aborted:
            # They have the fields that are written, by the same names: messages of their own would cost as much again.
            answer.aborted_transactions = cast(Sequence[AbortedTransaction], found.aborted)
        self.size_bytes += len(data)
        self.records += found.next_offset - offset
        self._room_bytes -= len(data)
        return answer


def _divergence(partition: Partition, wanted: WantedPartition) -> EpochEndOffset | None:
    """Where the log diverges from what the client has read, if it does: the log was cut there after a crash.

    Compared with what is written: a client may begin behind a record that is acknowledged and not durable yet.
    """
    epoch, end_offset = partition.epoch_end_offset(wanted.last_fetched_epoch, written=True)
    if epoch == wanted.last_fetched_epoch and end_offset >= wanted.fetch_offset:
        return None
    return EpochEndOffset(epoch=epoch, end_offset=end_offset)


def _error(wanted: WantedPartition, code: ErrorCode, log_start_offset: int = -1) -> PartitionData:
    return PartitionData(
        partition_index=wanted.partition,
        error_code=code,
        high_watermark=-1,
        log_start_offset=log_start_offset,
        aborted_transactions=None,
    )


def _end_of(partition: Partition, *, committed: bool) -> int:
    """The offset below which a client may read."""
    return partition.last_stable_offset if committed else partition.high_watermark


class FetchLimits(NamedTuple):
    """How much a Fetch wants, and how long it waits for it."""

    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    isolation_level: int


class Fetching:
    """A Fetch under way. Event loop only, except while `_read_on_thread` is awaited. How it is answered is for whoever
    derives from it to say."""

    def __init__(self, node: BrokerNode, caller: Caller, context: FetchContext, limits: FetchLimits) -> None:
        self._node = node
        self._who = caller.who
        self._buffers = caller.buffers
        self._context = context
        self._committed = limits.isolation_level == READ_COMMITTED
        self._max_bytes = min(limits.max_bytes, node.settings.fetch_max_bytes)
        self._min_bytes = min(limits.min_bytes, self._max_bytes)
        self._until = node.loop.time() + max(0, limits.max_wait_ms) / 1000
        self._timer: asyncio.TimerHandle | None = None
        self._waits: Sequence[tuple[Partition, int]] = ()
        self._enough_bytes = 0
        self._is_held_back = False  # by an open transaction
        self._is_reading = False
        self._waits_for_store = False
        self._is_over = False
        self._waits_for_syncs = True
        self._behind_at_first: Sequence[tuple[Partition, int]] | None = None

    # How it is answered

    def _answer(self, reading: FetchReading) -> None:
        """Once, after `begin` has returned None."""
        raise NotImplementedError

    def _fail(self, error: BaseException) -> None:
        """In place of `_answer`: a fault of ours."""
        raise NotImplementedError

    def begin(self) -> FetchReading | None:
        """Read. None if there is not enough: it waits from now on, and is answered later. So is one that is read in
        slices."""
        if self.is_large:
            self._read_in_slices()
            return None
        return self.go_on(self._read(nowait=True))

    @property
    def is_large(self) -> bool:
        """Whether it has more partitions than are read in one turn of the loop."""
        return len(self._context.partitions) > FETCH_SLICE_PARTITIONS

    def go_on(self, reading: FetchReading | None) -> FetchReading | None:
        """As `begin`, after the first pass; None if that would have had to wait for the disk."""
        if reading is not None and self._is_enough(reading):
            self._count(reading)
            return reading
        if reading is None:
            self._read_on_thread()
        else:
            self._wait(reading)
        return None

    def cancel(self) -> None:
        """Stop waiting: no one wants the answer any more."""
        self._is_over = True
        self._forget()
        if self._timer is not None:
            self._timer.cancel()

    def _finish(self, reading: FetchReading) -> None:
        self.cancel()
        self._count(reading)
        self._answer(reading)

    def _count(self, reading: FetchReading) -> None:
        if reading.size_bytes:
            self._node.metrics.fetched(reading.size_bytes, reading.records)

    # FetchReading

    def _read(self, *, nowait: bool) -> FetchReading | None:
        """One pass; None if it would have to wait for the disk."""
        reading = self._new_read(nowait=nowait)
        try:
            reading.read(self._context.partitions)
        except BlockingIOError as error:
            self._waits_for_store = isinstance(error, WaitsForStore)
            return None
        return reading

    def _new_read(self, *, nowait: bool) -> FetchRead:
        self._buffers.begin()
        return FetchRead(
            self._node,
            self._who,
            self._limit_bytes(),
            self._buffers,
            committed=self._committed,
            nowait=nowait,
            is_last=self._is_time_up(),
        )

    def _read_in_slices(self) -> None:
        self._is_reading = True
        self._node.loop.create_task(self._slices()).add_done_callback(self._read_done)

    async def _slices(self) -> FetchReading | None:
        """One pass on the loop; None if it would have to wait for the disk."""
        with self._node.turns.long_work():
            reading = self._new_read(nowait=True)
            try:
                async for start in self._starts():
                    reading.read(self._context.partitions[start : start + FETCH_SLICE_PARTITIONS])
            except BlockingIOError as error:
                self._waits_for_store = isinstance(error, WaitsForStore)
                return None
            await self._node.turns.next()
            return reading

    async def _starts(self) -> AsyncIterator[int]:
        """Where each slice begins, in a turn of its own; none any more once nobody wants the answer."""
        for start in range(0, len(self._context.partitions), FETCH_SLICE_PARTITIONS):
            await self._node.turns.next()
            if self._is_over:
                return
            yield start

    def _limit_bytes(self) -> int:
        return min(self._max_bytes, self._node.memory.answer_bytes())

    def _is_enough(self, reading: FetchReading) -> bool:
        if self._behind_at_first is None:
            self._behind_at_first = reading.behind
        if reading.is_final or not self._context.partitions or self._node.is_leaving:
            return True
        if not reading.is_full and reading.size_bytes < self._min_bytes and not self._is_time_up():
            return False
        return not self._is_behind(reading)

    def _is_behind(self, reading: FetchReading) -> bool:
        """Whether the answer would deny acknowledged records, which are visible after the next sync.

        If the answer has records, or may not have those of open transactions, only what was acknowledged before the
        first look counts: with a writer that never pauses, it would wait for ever.
        """
        is_first = reading.size_bytes or self._committed
        behind = (self._behind_at_first or ()) if is_first else reading.behind
        return self._waits_for_syncs and any(
            partition.high_watermark < acknowledged and not partition.is_poisoned for partition, acknowledged in behind
        )

    def _is_time_up(self) -> bool:
        return self._node.loop.time() >= self._until

    def _read_on_thread(self) -> None:
        self._is_reading = True
        run = self._node.run_slowly if self._waits_for_store else self._node.run
        run(self._read_blocking).add_done_callback(self._read_done)

    def _read_blocking(self) -> FetchReading:
        reading = self._read(nowait=False)
        if reading is None:
            raise BlockingIOError("a read that may wait did not")
        return reading

    def _read_done(self, done: asyncio.Future[FetchReading] | asyncio.Future[FetchReading | None]) -> None:
        self._is_reading = False
        if done.cancelled():
            return
        error = done.exception()  # looked at also if nobody wants the answer, or the loop complains
        if self._is_over:
            return
        if error is not None:
            self.cancel()
            self._fail(error)
            return
        reading = done.result()
        if reading is None:
            self._read_on_thread()
        elif self._is_enough(reading):
            self._finish(reading)
        else:
            self._wait(reading)

    # Waiting

    def _wait(self, reading: FetchReading) -> None:
        self._forget()
        self._waits = reading.waits
        if self._timer is None:
            self._timer = self._node.loop.call_at(self._until, self._time_is_up)
        is_all_durable = True
        for partition, _ in self._waits:
            self._node.fetch_purgatory.wait(partition, self)
            if partition.log_end_offset > partition.high_watermark:
                is_all_durable = False
                self._node.syncs.sync_now(partition)
        # Whether enough has come is judged by file sizes: reading after each record would read everything each time.
        # But sizes include records that are written and not durable yet, so then the next move is always looked at.
        missing_bytes = self._min_bytes - reading.size_bytes if is_all_durable else 0
        self._enough_bytes = self._waited_bytes() + missing_bytes
        # Then sizes say nothing: a marker of a few bytes can make any number of records readable.
        self._is_held_back = self._committed and any(seen < one.high_watermark for one, seen in self._waits)
        if self._has_moved():
            self._node.loop.call_soon(self._look_again)  # it came between the read and the wait

    def _has_moved(self) -> bool:
        return any(seen != _end_of(partition, committed=self._committed) for partition, seen in self._waits)

    def _waited_bytes(self) -> int:
        return sum(partition.size_bytes for partition, _ in self._waits)

    def moved(self) -> None:
        if self._node.is_leaving or (self._has_moved() if self._is_held_back else self._has_enough()):
            self._look_again()

    def _has_enough(self) -> bool:
        return self._min_bytes <= 1 or self._waited_bytes() >= self._enough_bytes

    def _time_is_up(self) -> None:
        self._until = 0.0  # uvloop's timers are up to a millisecond early: do not compare with the clock again
        self._timer = self._node.loop.call_later(SYNC_WAIT_MS / 1000, self._give_up)
        self._look_again()

    def _give_up(self) -> None:
        """A sync takes too long: an answer without news is better for the client than none."""
        self._waits_for_syncs = False
        self._look_again()

    def _look_again(self) -> None:
        if self._is_reading or self._is_over:
            return
        if self.is_large:
            self._read_in_slices()
            return
        reading = self._read(nowait=True)
        if reading is None:
            self._read_on_thread()
        elif self._is_enough(reading):
            self._finish(reading)
        else:
            self._wait(reading)

    def _forget(self) -> None:
        for partition, _ in self._waits:
            self._node.fetch_purgatory.forget(partition, self)
        self._waits = ()
