"""One partition as its single writer sees it: checks of batches, offsets, rolling, and what readers may see.

To follow an append: `Partition.append`, `admit` (at the end), `_ready_tail` where the disk has to be touched first,
`_write`, and then durability.py.

Locks, in the order in which they may be taken:

    1. Cleanup.lock           retention, compaction, recompression; held for hours
    2. Partition._append_lock appends, rolls, replacing the list of segments; held for a write, or for a roll
    3. Durability.lock        syncs; held for a sync
    4. PartitionCore.state_lock   replacing the state and storing it in the slot; held for microseconds

Cleanup comes first: a compaction takes the append lock again and again, for moments, and no append may wait for a whole
compaction. Syncing comes after appending: a roll, which holds the append lock, syncs what it seals; a sync never
appends. Slow callbacks (`Waiting`) run with none of the last three held, so they may append; quick ones and `Watchers`
may run under the second and third. Readers take no lock: they see immutable values.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

from foldlog.clock import Clock
from foldlog.errors import (
    CorruptLog,
    DecompressedTooLarge,
    FoldlogError,
    InvalidTimestamp,
    LogClosed,
    PartitionPoisoned,
    RecordTooLarge,
    RefusedBatch,
    StorageError,
)
from foldlog.files.base import Buffer, Files, Into, storage_error, would_block
from foldlog.limits import (
    POSITION_MAX,
    QUICK_DECOMPRESSED_BYTES_MAX,
    QUICK_RECORDS_MAX,
    READ_CHUNK_BYTES,
    RECORD_ERRORS_MAX,
)
from foldlog.log.checkpoint import (
    Slot,
    SlotState,
    StartReason,
    name_added,
    names_change,
    names_settled,
    out_of_range,
)
from foldlog.log.cleanup import Cleanup
from foldlog.log.compaction import CompactionReport
from foldlog.log.config import AS_PRODUCED, LogConfig
from foldlog.log.doctor.recompression import RecompressionReport
from foldlog.log.durability import Durability, Membership, OnAcknowledged, Syncer, Tail, Watchers
from foldlog.log.epochs import Epochs
from foldlog.log.produced import (
    ExpandsFurther,
    ProducedAppends,
    Writable,
    expands_further,
    headers_of_another_log,
    quick_limit_of,
    refuse_foreign,
    refuse_several,
)
from foldlog.log.producers import AllProducers, OpenTransaction, ProducerInfo, Producers, ProducersNeed, ProducerState
from foldlog.log.reading import (
    FetchedBatches,
    Hit,
    LogView,
    SegmentInfo,
    better,
    first_at_time,
    latest_record,
    read_batches,
    segment_infos,
)
from foldlog.log.recovery import recover
from foldlog.log.retention import outlived_on_arrival
from foldlog.log.segment import Segment, create_segment
from foldlog.log.tier.boundary import InStore, Pick, WaitsForStore, explained, in_store, search
from foldlog.records.batch import MAX_INT64, Compression
from foldlog.records.loops import BatchHeader, assign_offsets, control_batch, decode, recompress, validate, walk

if TYPE_CHECKING:
    from foldlog.log.tier.partition import TieredPartition
    from foldlog.log.tier.tiering import Tiering

logger = logging.getLogger("foldlog.log")

_VIEW_TRIES = 16  # each try follows a change of the segment list, which takes a retention or a compaction

Result = TypeVar("Result")


class Appended(NamedTuple):
    """Where a batch went. Not durable yet: wait for `next_offset`."""

    base_offset: int
    next_offset: int
    append_time_ms: int
    is_duplicate: bool


OnAppended = Callable[[Appended | None, FoldlogError | None], None]
"""Called once: with where the batch went, durably, or with what went wrong."""


class Admitted(NamedTuple):
    """Batches that may be appended, in memory that offsets may be written into."""

    data: Writable
    headers: list[BatchHeader]


class PartitionCore:
    """What the parts of a partition share: its segments, its slot, and the view a reader gets of both.

    `state` and `segments` are immutable values, replaced whole, so reading them needs no lock. Two reads of `state` may
    give two states: read it once. It is replaced under `state_lock`, and stored in the slot there, so that the newest
    store is the newest state; `segments` is replaced under the append lock or inside `changing_names`.
    """

    def __init__(
        self,
        files: Files,
        path: str,
        label: tuple[str, int],
        config: LogConfig,
        slot: Slot,
        state: SlotState,
        segments: tuple[Segment, ...],
        epochs: Epochs,
    ) -> None:
        self.files = files
        self.path = path
        self.label = label
        self.config = config
        self.slot = slot
        self.state = state
        # Fourth, and last: under it only the slot is stored. A firm store syncs the checkpoint under it, which is rare:
        # checkpoint.py says when.
        self.state_lock = threading.Lock()
        self.segments = segments
        self.epochs = epochs
        self.watchers = Watchers()
        self.is_closed = False
        self.names_are_unsettled = False
        self.membership: Membership | None = None
        self.tier: TieredPartition | None = None
        """Its segments in the store; None if the directory has no store."""

    def change(self, *, firmly: bool = False, generation: Callable[[int], int] = int, **changes: Any) -> None:
        """Replace the state and store it, no longer as clean unless `changes` says so; `firmly`: durable on return.

        `generation` maps the present generation to the next. Raises StorageError, and leaves the state as it was, if it
        cannot be made durable or the directory's lock is lost.
        """
        if firmly:
            self.refuse_if_lost()
        with self.state_lock:
            state = self.state._replace(**{"clean": False, **changes}, generation=generation(self.state.generation))
            # Stored, then published: a reading process may see a state a moment before this one does, never after, so
            # nothing is acknowledged here that it cannot read.
            if firmly:
                self._store_firmly(state)
            else:
                self.slot.store(state)
            self.state = state

    def _store_firmly(self, state: SlotState) -> None:
        try:
            self.slot.store_firmly(state)
        except StorageError:
            # Store the previous state again: a retry must not find the new one in the checkpoint.
            self.slot.store(self.state)
            raise

    @contextmanager
    def changing_names(self) -> Iterator[None]:
        """Make the generation odd inside the block: reading processes wait, and list the directory again afterwards.

        They have no lock to wait for; the slot is their signal: a list of names taken between two equal even
        generations is one that existed. Assumed: other processes see stores into the checkpoint and renames in the
        order in which they were made, as on one machine.
        """
        self.refuse_if_lost()
        self.change(generation=names_change)
        try:
            yield
        finally:
            if not self.names_are_unsettled:
                self.change(generation=names_settled)

    def sync_checkpoint(self) -> None:
        self.slot.sync()

    def segment(self, base_offset: int, size: int) -> Segment:
        interval = self.config.index_interval_bytes
        return Segment(self.files, self.path, base_offset, size, writable=True, index_interval_bytes=interval)

    def refuse_if_closed(self) -> None:
        if self.is_closed:
            raise LogClosed(f"{self.path} was closed; open the log again")

    def refuse_if_lost(self) -> None:
        """Raise LockLost if the directory's lock is lost, before a step that would damage another writer's log."""
        lost = self.slot.lost()
        if lost is not None:
            raise lost

    def with_view(self, look: Callable[[LogView], Result], offset: int | None = None) -> Result:
        """What `look` returns for a consistent view; called again if a segment was replaced meanwhile.

        Raises OffsetOutOfRange if `offset` is given and not in it.
        """
        for _ in range(_VIEW_TRIES):
            self.refuse_if_closed()
            state = self.state  # before the segments: a roll publishes these before a watermark that needs them
            if offset is not None and not state.log_start_offset <= offset <= state.high_watermark:
                raise out_of_range(self.label, offset, state.log_start_offset, state.high_watermark, state.start_reason)
            if offset is not None and offset < state.local_start_offset:
                return in_store(self.tier, self.path).look(look, offset)
            view = LogView(
                self.segments, self.epochs.starts, state.gaps_below, state.high_watermark, state.synced_offset
            )
            # State and segments were taken one after the other. If retention came between, the first segment begins
            # after the log start: take a new view. A file that was removed while it was read looks like damage, and is
            # damage only if the list is still the same one.
            try:
                if view.segments[0].base_offset <= state.local_start_offset:
                    return look(view)
            except CorruptLog:
                if self.segments is view.segments and self.state.gaps_below == state.gaps_below:
                    raise
            except BlockingIOError:
                raise  # not a fault: the caller asked not to wait, and asks again elsewhere
            except OSError as error:
                raise storage_error(f"{self.path} could not be read", error) from error
        raise StorageError(f"{self.path} changes faster than it can be read; try again")


class Partition:
    """A directory of segments with one appender at a time and any number of readers, each in any thread.

    Promises: an acknowledged record survives a power cut (unless the topic relaxed flush.*), offsets are never
    used twice, readers see only what is acknowledged. Does not promise: that an unacknowledged record is gone.
    """

    def __init__(self, core: PartitionCore, clock: Clock, syncer: Syncer, producers: AllProducers) -> None:
        """Use `Partition.open`."""
        self._core = core
        self.label = core.label
        self.path = core.path
        self.config = core.config
        self._clock = clock
        self._syncer = syncer
        active = core.segments[-1]
        self._durability = Durability(core, syncer, Tail(active, core.state.durable_offset, active.size))
        self._active_since_ms: int | None = None
        self._acknowledged_early = 0
        # Second: never taken under the sync lock or the state lock. Where it is held during disk access, in
        # `_ready_tail`, an event loop sees that it would wait (`nowait`) and sends the append to a thread.
        self._append_lock = threading.Lock()
        self._producers = Producers(core, self._append_lock, producers)
        self._cleanup = Cleanup(core, self._append_lock, self.roll, self._durability.poison_with, self._producers)
        self._told_outlived = False
        self.produced = ProducedAppends(
            core,
            clock,
            self._append_lock,
            self._durability,
            self._producers,
            ProducedAppends.Steps(self._has_to_prepare, self._write, self._publish, self._look_at_newest),
        )
        self.fetched: Any = None
        """How compiled code reads it, once a fetch has (`log.fetched`)."""
        self.on_outlived: Callable[[], None] | None = None
        """Called once after an append of records that retention.ms deletes at once, until the settings change."""
        self.tiering: Tiering | None = None

    # Opening and closing

    @classmethod
    def open(
        cls,
        files: Files,
        path: str,
        slot: Slot,
        config: LogConfig,
        *,
        clock: Clock,
        syncer: Syncer,
        label: tuple[str, int],
        producers: AllProducers | None = None,
        membership: Membership | None = None,
        tier: TieredPartition | None = None,
    ) -> Partition:
        """Recover, then be ready to append and read. Raises CorruptLog if something durable is missing or damaged.

        `producers`: shared, to bound how many all partitions remember. `membership`: in the journal. `tier`: its store.
        """
        known = slot.load()
        try:
            recovered = recover(files, path, known, config.index_interval_bytes)
            epochs = Epochs.load_or_rebuild(files, path, recovered.segments)
        except FileNotFoundError:
            raise
        except OSError as error:
            raise storage_error(f"{path} could not be opened", error) from error
        # Unclean: the epoch rises, so that a bookmark from before cannot take a new record for one that was cut.
        epoch = max(epochs.latest, recovered.state.leader_epoch) + recovered.unclean
        state = explained(tier, known, recovered.state, recovered.segments[0].base_offset)._replace(leader_epoch=epoch)
        if known is not None and known.poisoned:
            slot.store_firmly(state)  # durable: what is acknowledged from now on must not be cut at the next open
        elif (
            known is None
            or not known.clean
            or known.generation & 1
            # Reading processes need these, too.
            or (known.log_start_offset, known.high_watermark) != (state.log_start_offset, state.high_watermark)
        ):
            slot.store(state)
        state = state._replace(clean=known is not None and known.clean)  # as the slot on disk still says
        core = PartitionCore(files, path, label, config, slot, state, recovered.segments, epochs)
        core.membership = membership
        partition = cls(core, clock, syncer, producers or AllProducers())
        if state.has_transactions:
            # Now, so that reads of committed records need not wait for it later.
            partition._producers.try_to_load(state.durable_offset)
        return partition

    def close(self) -> None:
        """Sync, and leave the directory so that the next open has nothing to recover. Idempotent."""
        core = self._core
        self.interrupt()
        with self._cleanup.lock, self._append_lock:  # the first two, in their order: nothing changes from here on
            if core.is_closed:
                return
            if core.segments[-1].held is not None:
                with self._durability.lock:
                    self._durability.sync_tail()
                    if not self.is_poisoned:
                        self._write_hints()
            core.is_closed = True
            if not self.is_poisoned:
                core.change(clean=True)
            for segment in core.segments:
                segment.forget()
        self._durability.close()
        core.watchers.tell()

    def use_store(self, tier: TieredPartition) -> None:
        """Read from the store what is no longer here; `tiering` copies segments there."""
        from foldlog.log.tier.tiering import Tiering

        self._core.tier = tier
        self.tiering = Tiering(self._core, self._cleanup, tier, lambda: self.last_stable_offset, self._producers)

    # What it is

    @property
    def decompressed_limit(self) -> int:
        """How many bytes one batch may expand to when it is read."""
        return self._core.config.read_decompressed_limit

    @property
    def log_start_offset(self) -> int:
        return self._core.state.log_start_offset

    @property
    def local_start_offset(self) -> int:
        """Records below are in the store alone."""
        return self._core.state.local_start_offset

    @property
    def start_reason(self) -> StartReason:
        """Why it starts there."""
        return self._core.state.start_reason

    @property
    def log_end_offset(self) -> int:
        """The offset the next record will get."""
        return self._durability.tail.end_offset

    @property
    def high_watermark(self) -> int:
        """All records below may be read."""
        return self._core.state.high_watermark

    @property
    def last_stable_offset(self) -> int:
        """All records below may be read, and each is committed or aborted: no transaction is open. Moves only with the
        high watermark. Takes no lock, unless the producer state could not be read at the open."""
        # Taken before what is undecided: batches that it covers are noted there before they can be covered.
        state = self._core.state
        if not state.has_transactions:
            return state.high_watermark
        if self._producers.undecided is None:
            self._look_at_producers(lambda _: None, None)
        return max(state.log_start_offset, self._producers.stable_below(state.high_watermark))

    @property
    def acknowledged_offset(self) -> int:
        """All records below are acknowledged; with acks=1 some of them may not be durable yet."""
        return max(self._core.state.high_watermark, self._acknowledged_early)

    @property
    def durable_offset(self) -> int:
        """All records below are fsynced: in the segments, or in the journal."""
        return self._core.state.durable_offset

    @property
    def leader_epoch(self) -> int:
        return self._core.state.leader_epoch

    @property
    def size_bytes(self) -> int:
        return sum(segment.size for segment in self._core.segments)

    @property
    def segment_count(self) -> int:
        return len(self._core.segments)

    @property
    def is_poisoned(self) -> bool:
        return self._durability.poison is not None

    @property
    def unsynced_since_ms(self) -> int | None:
        """When the oldest record that is not synced yet was appended; None if all are."""
        return self._durability.unsynced_since_ms

    @property
    def acks_when_written(self) -> bool:
        return self._core.config.acks_when_written

    def segments(self) -> list[SegmentInfo]:
        """All segments, oldest first."""
        return self._core.with_view(segment_infos)

    def epoch_end_offset(self, epoch: int, *, written: bool = False) -> tuple[int, int]:
        """(the latest epoch not after `epoch`, the offset where it ended); (-1, -1) if there is none.

        The latest epoch ends at the high watermark, or with `written` at the log end.
        """
        return self._core.epochs.end_offset(epoch, self.log_end_offset if written else self.high_watermark)

    def reconfigure(self, config: LogConfig) -> None:
        """Use these settings from the next append, retention and compaction on."""
        with self._append_lock:
            self.config = self._core.config = config
            self._told_outlived = False
        self._cleanup.reconsider()
        if not config.acks_when_written:
            self._durability.sync()  # all that may be read becomes durable, also what was written before

    # Appending

    def append(
        self,
        *buffers: Buffer,
        trusted: bool = False,
        foreign: bool = False,
        stored: bool = False,
        nowait: bool = False,
        begins_transaction: bool = False,
    ) -> Appended:
        """Check the batches, give them offsets, write them. All of them or none. Not durable yet.

        Writable memory is not copied: offsets are written into it, and it is the caller's again on return. `trusted`,
        `foreign` and `stored`: see `admit`. `nowait`: raises BlockingIOError, with nothing done, if it would have to
        wait. A batch of a transaction that is not open here is TransactionNotOpen, unless `begins_transaction`.
        """
        core, arrived_ms = self._core, self._clock.now_ms()
        admitted = [
            admit(buffer, core.config, arrived_ms, trusted=trusted, foreign=foreign, stored=stored, quickly=nowait)
            for buffer in buffers
        ]
        headers = admitted[0].headers if len(admitted) == 1 else [header for _, found in admitted for header in found]
        size_bytes = sum([len(data) for data, _ in admitted])
        # Most batches have no producer id, and need no producer state.
        producers = self._producers if any(header.producer_id >= 0 for header in headers) else None
        if not self._append_lock.acquire(blocking=not nowait):
            raise would_block(self.path)
        try:
            core.refuse_if_closed()
            self._durability.refuse_if_poisoned()
            now_ms = self._clock.now_ms()  # under the lock: append times ascend, as offsets do
            must_prepare = self._has_to_prepare(_offsets(headers), size_bytes, now_ms)
            if nowait and (must_prepare or (producers is not None and producers.must_wait(headers))):
                raise would_block(self.path)
            if producers is not None:
                repeated = producers.duplicate_of(headers, self._durability.tail.end_offset)
                if repeated is not None:
                    # Not written again, but waited for like the first time: that may not be durable yet.
                    then_ms = repeated.timestamp_ms if core.config.log_append_time else -1
                    return Appended(repeated.base_offset, repeated.last_offset + 1, then_ms, True)
                if stored:
                    producers.refuse_malformed_markers(admitted)
                else:
                    producers.check_transactions(headers, begins_transaction)
                    producers.make_room(headers, now_ms)
            tail = self._ready_tail(_offsets(headers), size_bytes, now_ms) if must_prepare else self._durability.tail
            appended = self._assign_and_write(tail, admitted, headers, size_bytes, now_ms, producers)
        finally:
            self._append_lock.release()
        self._look_at_newest(max([header.max_timestamp for header in headers], default=-1), now_ms)
        return appended

    def _assign_and_write(
        self,
        tail: Tail,
        admitted: Sequence[Admitted],
        headers: Sequence[BatchHeader],
        size_bytes: int,
        now_ms: int,
        producers: Producers | None,
    ) -> Appended:
        """Give the batches their offsets behind `tail`, and write them."""
        core, next_offset = self._core, tail.end_offset
        append_time_ms = now_ms if core.config.log_append_time else -1
        leader_epoch = core.state.leader_epoch
        for data, found in admitted:
            next_offset = assign_offsets(data, found, next_offset, leader_epoch, append_time_ms)
        if producers is not None:
            producers.expect(headers)
        buffers = [data for data, _ in admitted]
        self._write(tail, buffers)
        # The batches are in the file; the rest publishes them. The tail comes last: a sync takes it for the end, and
        # the index has to know a batch before a reader may ask for it.
        if producers is not None:
            producers.note(admitted, now_ms)
        tail.segment.wrote(headers, tail.position, size_bytes)
        self._publish(tail, buffers, next_offset, now_ms)
        return Appended(tail.end_offset, next_offset, append_time_ms, False)

    def _publish(self, tail: Tail, buffers: Sequence[Buffer], next_offset: int, now_ms: int) -> None:
        """The log ends with what was written behind `tail`, and the indexes know of it."""
        self._durability.wrote(Tail(tail.segment, next_offset, tail.segment.size), now_ms)

    def append_marker(
        self, producer_id: int, producer_epoch: int, coordinator_epoch: int, *, commit: bool, transaction_version: int
    ) -> Appended:
        """Write the marker that ends the producer's transaction, if one is open here. Not durable yet.

        The producer has the marker's epoch from then on. `transaction_version` 2: that is newer than the epoch of the
        batches. Raises InvalidProducerEpoch or StaleCoordinatorEpoch for a marker that comes too late.
        """
        with self._append_lock:
            self._refuse_unless_writable()
            now_ms = self._clock.now_ms()
            data = control_batch(int(commit), coordinator_epoch, producer_id, producer_epoch, now_ms)
            headers = walk(data, check_crc=False).headers
            state = self._producers.load(self._durability.tail.end_offset)
            state.check_marker(producer_id, producer_epoch, coordinator_epoch, transaction_version)
            if self._has_to_prepare(_offsets(headers), len(data), now_ms):
                self._ready_tail(_offsets(headers), len(data), now_ms)
            admitted, tail = [Admitted(data, headers)], self._durability.tail
            appended = self._assign_and_write(tail, admitted, headers, len(data), now_ms, self._producers)
            if not commit:
                self._producers.note_aborted(appended.next_offset)
            return appended

    def _look_at_newest(self, newest_ms: int, now_ms: int) -> None:
        if self._core.config.retention_ms < 0 or self._told_outlived or self.on_outlived is None:
            return
        if outlived_on_arrival(newest_ms, self.config, now_ms):
            self._told_outlived = True
            self.on_outlived()

    def append_may_wait(self, size_bytes: int) -> bool:
        """Whether an append of that size, without a producer id, would wait now. For callers without `nowait`."""
        return self._append_lock.locked() or self._has_to_prepare(0, size_bytes, self._clock.now_ms())

    def _refuse_unless_writable(self) -> None:
        self._core.refuse_if_closed()
        self._durability.refuse_if_poisoned()

    def _has_to_prepare(self, offsets: int, size: int, now_ms: int) -> bool:
        """Whether `_ready_tail` would have to access the disk."""
        core = self._core
        state = core.state
        return (
            self._durability.tail.segment.held is None
            or self._active_since_ms is None
            or self._must_roll(offsets, size, now_ms)
            or core.epochs.latest != state.leader_epoch
            or (state.clean and core.config.acks_when_written)
        )

    def _ready_tail(self, offsets: int, size: int, now_ms: int) -> Tail:
        """The tail with room for these batches, open for appending; rolls if needed."""
        core = self._core
        try:
            if self._must_roll(offsets, size, now_ms):
                self._roll()
            tail = self._durability.tail
            if tail.segment.held is None:
                tail.segment.pin()
            if self._active_since_ms is None:
                self._active_since_ms = now_ms if tail.position == 0 else tail.segment.begun_ms(now_ms)
            state = core.state
            if core.epochs.latest != state.leader_epoch:
                # Durable before the first batch of the epoch: readers compare the two.
                core.epochs.begin(state.leader_epoch, tail.end_offset)
            if state.clean and core.config.acks_when_written:
                # Records may be read before they are synced. If a power cut takes them, the next open must not pass for
                # a clean one, or their offsets would be used again in the same epoch.
                core.change(firmly=True)
            return tail
        except OSError as error:
            raise storage_error(f"{self.path} is not ready to be written; nothing was kept", error) from error

    def _must_roll(self, offsets: int, size: int, now_ms: int) -> bool:
        segment, end_offset, position = self._durability.tail
        if position == 0:
            return False
        config = self._core.config
        relative_end = end_offset + offsets - segment.base_offset
        return (
            position + size > min(config.segment_bytes, POSITION_MAX)
            or relative_end > POSITION_MAX
            or bool(config.segment_records and relative_end > config.segment_records)
            or (self._active_since_ms is not None and now_ms - self._active_since_ms > config.roll_ms)
        )

    def _write(self, tail: Tail, buffers: Sequence[Buffer]) -> None:
        log = tail.segment.held or tail.segment.log()
        try:
            log.write(tail.position, buffers)
        except (OSError, StorageError) as error:
            # The next append writes at the same position. Remains of this one behind its end would be read as the next
            # batch after a crash: the file has to end at the tail, durably, before anything more is acknowledged.
            try:
                self._durability.has_leftovers = True
                log.truncate(tail.position)  # remove the part of it that may have been written
            except OSError:
                self._durability.poison_with(error)
            if isinstance(error, StorageError):
                raise
            raise storage_error(f"{tail.segment.log_path} could not be written; nothing was kept", error) from error

    # Durability

    def wait_acknowledged(self, next_offset: int) -> None:
        """Return once everything below `next_offset` is acknowledged: covered by fdatasync, or just written if the
        topic relaxed flush.*. The first waiting thread syncs for all of them. Raises PartitionPoisoned."""
        self._durability.wait_acknowledged(next_offset)

    def on_acknowledged(self, next_offset: int, callback: OnAcknowledged, *, is_quick: bool = False) -> None:
        """As `wait_acknowledged`, without blocking: `callback` runs once, with the error or None, on a syncing thread
        or before this returns. `is_quick`: it never blocks, so a server's event loop may run it too."""
        self._durability.on_acknowledged(next_offset, callback, is_quick=is_quick)

    def acknowledged_end(self) -> int:
        """The end of the log for readers. All that was acknowledged before the call is below it: what is not synced yet
        (acks=1) is synced and waited for. If that sync fails, the high watermark as it is."""
        if self.high_watermark < self.acknowledged_offset:
            with suppress(PartitionPoisoned):
                self._durability.wait_acknowledged(self.acknowledged_offset)
        return self.high_watermark

    def acknowledged_early(self, next_offset: int) -> None:
        """Note that a client got its answer before its records are durable, as it asked (acks=1). One thread."""
        self._acknowledged_early = max(next_offset, self._acknowledged_early)

    def sync(self) -> None:
        """Make all that is appended durable. A failure poisons the partition, and is raised here and to all waiters."""
        self._durability.sync()
        self._durability.refuse_if_poisoned()

    # Segments

    def roll(self) -> None:
        """Seal the active segment and begin a new one; nothing happens if it is empty."""
        with self._append_lock:
            self._refuse_unless_writable()
            if self._durability.tail.position:
                self._roll()

    def _roll(self) -> None:
        core = self._core
        # Under both locks, from the last sync of the old file to the first tail of the new one: a sync in between would
        # make only the new file durable, and call the old one so. Sealed means synced.
        with self._durability.lock:
            self._durability.sync_tail()
            self._durability.tell_soon()
            self._refuse_unless_writable()
            sealed, end_offset, _ = self._durability.tail
            try:
                self._write_hints()
                create_segment(core.files, core.path, end_offset)
                # Else a crash could lose the new name, and with it acknowledged records in that file.
                core.files.sync_directory(core.path)
                core.change(
                    generation=name_added,
                    active_base_offset=end_offset,
                    active_position=0,
                    durable_position=0,
                    segment_count=len(core.segments) + 1,
                )
            except (OSError, StorageError) as error:
                self._take_back(end_offset, error)
                raise storage_error(f"{core.path} cannot begin a new segment; nothing was kept", error) from error
            # The list before the tail: watermarks in the new segment come from the tail, and a reader that sees one
            # must find the segment (`with_view` takes the state first).
            fresh = core.segment(end_offset, 0)
            core.segments = (*core.segments, fresh)
            self._durability.tail = Tail(fresh, end_offset, 0)
            self._active_since_ms = None
            if sealed.held is not None:
                sealed.unpin()
            core.sync_checkpoint()

    def _take_back(self, base_offset: int, cause: Exception) -> None:
        """Remove a segment that was not begun: appends to the old one would pass the offset in its name."""
        try:
            self._core.segment(base_offset, 0).unlink()
        except OSError:
            self._durability.poison_with(cause)

    def _write_hints(self) -> None:
        """Write index and producer snapshot: without them the next open rebuilds both from the log."""
        try:
            if self._durability.tail.segment.held is not None:
                self._durability.tail.segment.seal_indexes()
            self._producers.write_snapshot(self._durability.tail.end_offset, self._clock.now_ms())
        except (OSError, StorageError) as error:
            logger.warning("%s: index or snapshot not written (%s); made again when needed", self.path, error)

    # Reading

    def read(
        self,
        offset: int,
        max_bytes: int = READ_CHUNK_BYTES,
        into: Into = None,
        *,
        nowait: bool = False,
        committed: bool = False,
    ) -> FetchedBatches:
        """Whole verified batches below the high watermark, from the one with `offset` on; at least one, if any.

        `committed`: below the last stable offset, with the aborted transactions among them (`without_aborted`).
        An offset that is acknowledged but not synced yet is waited for. With `into`, the data are in that buffer until
        the next read into it. `nowait`: raises BlockingIOError instead of waiting for the disk; the caller asks again
        on another thread. Raises OffsetOutOfRange (with the reason) and CorruptLog.
        """
        if self.high_watermark < offset <= self.acknowledged_offset:
            if nowait:
                raise would_block(self.path)
            self.acknowledged_end()
        if nowait and offset < self.local_start_offset <= self.high_watermark:
            raise WaitsForStore(self.path)
        if not committed or not self._core.state.has_transactions:
            return self._core.with_view(lambda view: read_batches(view, offset, max_bytes, into, nowait), offset)
        if nowait and self._producers.undecided is None:
            raise would_block(self.path)
        # In this order: every transaction that is decided below the offset is in the index, and compaction drops it
        # from there only after the segments that held its batches.
        end_offset, aborted = self.last_stable_offset, self._producers.aborted
        found = self._core.with_view(
            lambda view: read_batches(view.upto(end_offset), offset, max_bytes, into, nowait), offset
        )
        among = aborted.between(offset, found.next_offset) if found.data and len(aborted) else ()
        if found.data and offset < self.local_start_offset:  # what was aborted there is known there
            among = in_store(self._core.tier, self.path).aborted(offset, found.next_offset)
        return found._replace(aborted=among) if among else found

    def offset_at_time(self, timestamp_ms: int, *, committed: bool = False) -> tuple[int, int] | None:
        """(offset, timestamp) of the first record at or after `timestamp_ms`; None if there is none. `committed`: below
        the last stable offset; as in Kafka, also a record of an aborted transaction."""
        limit = self.decompressed_limit

        def look(view: LogView) -> Hit | None:
            return first_at_time(self._view(view, committed), self.log_start_offset, timestamp_ms, limit)

        def stored(tier: TieredPartition, start: int, end: int) -> Hit | None:
            return tier.first_at_time(start, end, timestamp_ms, limit)

        seen = self.high_watermark
        found = self._search(stored, look, lambda one, other: one or other)
        if found is None and self.acknowledged_end() > seen:
            found = self._core.with_view(look)
        return found

    def max_timestamp_offset(self, *, committed: bool = False) -> tuple[int, int] | None:
        """(offset, timestamp) of the first readable record with the largest timestamp; None if no record has one.
        `committed`: as for `offset_at_time`."""
        self.acknowledged_end()
        limit = self.decompressed_limit
        return self._search(
            lambda tier, start, end: tier.latest_record(start, end, limit),
            lambda view: latest_record(self._view(view, committed), self.log_start_offset, limit),
            better,
        )

    def _search(self, stored: InStore, here: Callable[[LogView], Hit | None], pick: Pick) -> Hit | None:
        core = self._core
        return search(lambda: core.state, core.tier, core.path, stored, lambda: core.with_view(here), pick)

    def _view(self, view: LogView, committed: bool) -> LogView:
        return view.upto(self.last_stable_offset) if committed else view

    def look(self, at: Callable[[LogView], Result], offset: int | None = None) -> Result:
        """What `at` returns for a consistent view of the segments. For inspection only: it changes nothing.

        `at` is called again if a segment was replaced meanwhile. OffsetOutOfRange if `offset` is not in the view.
        """
        return self._core.with_view(at, offset)

    def watch(self, callback: Callable[[], None]) -> None:
        """Call `callback` after each move of the high watermark or the log start, on any thread."""
        self._core.watchers.add(callback)

    def unwatch(self, callback: Callable[[], None]) -> None:
        self._core.watchers.remove(callback)

    # Cleaning up

    def enforce_retention(self, now_ms: int | None = None) -> int:
        """Remove head segments beyond retention.bytes or retention.ms; how many."""
        return self._cleanup.enforce_retention(self._clock.now_ms() if now_ms is None else now_ms)

    def try_retention(self) -> int | None:
        """As `enforce_retention`, for the background: None, and nothing done, while a compaction runs."""
        return self._cleanup.try_retention(self._clock.now_ms())

    def delete_records(self, before_offset: int) -> int:
        """Move the log start to `before_offset` for good; returns the new log start. Acknowledged records below it are
        synced first: PartitionPoisoned if that fails."""
        if self.high_watermark < before_offset <= self.acknowledged_offset:
            self.wait_acknowledged(before_offset)
        return self._cleanup.delete_records(before_offset)

    def compact(self, now_ms: int | None = None, *, force: bool = False) -> CompactionReport:
        """Keep the newest record per key. `force`: everything up to now, whatever dirty ratio, lag and policy say."""
        when = self._clock.now_ms() if now_ms is None else now_ms
        return self._cleanup.compact(when, force, self._needed, lambda: self.last_stable_offset)

    def recompress(self, codec: Compression) -> RecompressionReport:
        """Rewrite the records up to now in that codec where that makes them smaller."""
        return self._cleanup.recompress(codec)

    def interrupt(self) -> None:
        """End a running compaction or recompression soon, with the log as it was: the partition will be closed."""
        self._cleanup.interrupt()

    @property
    def cleaning_fault(self) -> FoldlogError | None:
        """Why the background no longer compacts it: damage, or a batch too large to open. Every byte is kept."""
        return self._cleanup.fault

    def _needed(self) -> ProducersNeed:
        need = self._look_at_producers(lambda producers: producers.needed(), ProducersNeed())
        return need._replace(aborted=self._producers.aborted) if self._core.state.has_transactions else need

    # Producers

    def producers_info(self) -> list[ProducerInfo]:
        """The producers with an id that are remembered, in order of id: which batch each may send next."""
        return self._look_at_producers(lambda producers: producers.infos(), [])

    def open_transactions(self) -> list[OpenTransaction]:
        """The transactions that no marker has ended, oldest first."""
        return self._look_at_producers(lambda producers: producers.open_transactions(), [])

    def _look_at_producers(self, look: Callable[[ProducerState], Result], without: Result) -> Result:
        """What `look` returns for the producer state; `without`, and nothing is read, if there never was a producer."""
        if not self._core.state.has_producers:
            return without
        with self._append_lock:
            self._core.refuse_if_closed()
            return look(self._producers.load(self._durability.tail.end_offset))


# Checks before the partition is locked: batches are validated, and brought into the form the topic asks for. Pure
# functions of the bytes and the settings; offsets come later. Kafka's own rules for clients are in produced.py.


_KEYLESS: Final = "a record without a key cannot go to a compacted topic"


def admit(
    buffer: Buffer,
    config: LogConfig,
    now_ms: int,
    *,
    trusted: bool,
    foreign: bool,
    stored: bool = False,
    quickly: bool = False,
) -> Admitted:
    """Check the batches of one buffer, at `now_ms`. Raises InvalidBatch, RefusedBatch, InvalidTimestamp or
    RecordTooLarge.

    `trusted`: just built by our own builder, so only the headers are checked. `foreign`: from a client, which may send
    one batch and nothing that only a log may write. `stored`: as another log holds and has admitted them: offsets of
    records that compaction removed stay used, codec and size stay as they are. `quickly`: raises ExpandsFurther if the
    check takes longer than a moment. A batch that declares too large a size is refused at once in any case.
    """
    data = _writable(buffer)
    if stored:
        return Admitted(data, headers_of_another_log(data))
    if foreign:
        refuse_several(data)
    limit = config.decompressed_limit
    if trusted and not foreign and not config.compact and config.compression == AS_PRODUCED:
        headers = _headers_of_our_own(data, config, limit)
        _refuse_records(data, headers, config, now_ms, quickly)
        return Admitted(data, headers)
    quick_limit = min(limit, quick_limit_of(len(data))) if quickly else limit
    try:
        headers = validate(data, max_batch_bytes=config.max_message_bytes, decompressed_limit=quick_limit)
    except DecompressedTooLarge:
        if quick_limit == limit:
            raise
        if foreign:  # which is one batch
            raise expands_further(data, quick_limit, limit) from None
        raise ExpandsFurther(quick_limit < QUICK_DECOMPRESSED_BYTES_MAX) from None
    if foreign:
        refuse_foreign(headers)
    _refuse_records(data, headers, config, now_ms, quickly)
    if config.compression != AS_PRODUCED and any(header.compression != config.compression for header in headers):
        data = recompress(data, config.compression, decompressed_limit=limit)
        headers = walk(data, check_crc=False).headers
    return Admitted(data, headers)


def _headers_of_our_own(data: Writable, config: LogConfig, decompressed_limit: int) -> list[BatchHeader]:
    """Headers of our own builder's batches, which are sound. It keeps batches below max.message.bytes before
    compression, except for one record that is larger by itself: only such a batch is opened."""
    headers = walk(data, check_crc=False).headers
    for header in headers:
        if header.size > config.max_message_bytes:
            raise RecordTooLarge(header.size, config.max_message_bytes)
        if header.compression and header.record_count == 1:
            alone = memoryview(data)[header.position : header.position + header.size]
            validate(alone, max_batch_bytes=config.max_message_bytes, decompressed_limit=decompressed_limit)
    return headers


def _offsets(headers: Sequence[BatchHeader]) -> int:
    """How many offsets the batches take."""
    return sum([header.last_offset_delta + 1 for header in headers])


def _writable(buffer: Buffer) -> Writable:
    """The caller's own memory if it is writable, else a copy."""
    if isinstance(buffer, bytearray):
        return buffer
    if isinstance(buffer, memoryview) and not buffer.readonly and buffer.c_contiguous:
        return buffer if buffer.format == "B" and buffer.ndim == 1 else buffer.cast("B")
    return bytearray(buffer)


def _refuse_records(data: Writable, headers: list[BatchHeader], config: LogConfig, now_ms: int, quickly: bool) -> None:
    """Refuse a batch for some of its records, each with one reason, as in Kafka: its key, before its time.

    Without a key: compaction could not tell them apart. With a wrong time, as the producer's clock, or unit, is wrong:
    a time far ahead keeps its segment from retention for as long, and a lookup by time finds it. Our own appends too:
    they are the same call on a served directory.

    Headers tell how many have no key, and the largest time, so usually nothing is opened; for the smallest time, each
    record is checked.
    """
    is_keyless = config.compact and any(header.keyless_count for header in headers)
    if not is_keyless and not _may_be_untimely(headers, config, now_ms):
        return
    if quickly and sum(header.record_count for header in headers) > QUICK_RECORDS_MAX:
        raise ExpandsFurther(False)
    records, _ = decode(data, "", 0, decompressed_limit=config.decompressed_limit)
    untimely: str | None = None
    found: list[tuple[int, str]] = []
    for index, record in enumerate(records):
        if config.compact and record.key is None:
            found.append((index, _KEYLESS))
            continue
        why = config.why_untimely(record.timestamp_ms, now_ms)
        if why is not None:
            untimely = untimely or why
            found.append((index, why))
    if found:
        refused = InvalidTimestamp(untimely, 0) if untimely is not None else RefusedBatch(found[0][1], 0)
        refused.record_errors = tuple(found[:RECORD_ERRORS_MAX])
        raise refused


def _may_be_untimely(headers: list[BatchHeader], config: LogConfig, now_ms: int) -> bool:
    if config.log_append_time:
        return False
    latest_ms = now_ms + config.timestamp_after_max_ms
    return config.timestamp_before_max_ms != MAX_INT64 or any(header.max_timestamp > latest_ms for header in headers)
