"""One partition, as its one writer has it. To follow an append: admission.py, `append`, `_ready_tail`, `_write`, and
then durability.py.

Locks, in the order they may be taken: the cleanup's (retention, compaction), `_append_lock` (who appends or rolls),
the durability's (who syncs), the core's (who changes the slot). Readers take none: they see immutable values.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import NamedTuple, TypeVar

from foldlog.clock import Clock
from foldlog.errors import StorageError
from foldlog.files.base import Buffer, Files, Into, storage_error, would_block
from foldlog.limits import POSITION_MAX, READ_CHUNK_BYTES
from foldlog.log.admission import admit
from foldlog.log.checkpoint import Slot
from foldlog.log.cleanup import Cleanup
from foldlog.log.compaction import CompactionReport
from foldlog.log.config import LogConfig
from foldlog.log.core import PartitionCore, name_added
from foldlog.log.creation import begun_ms, create_partition, create_segment
from foldlog.log.durability import Durability, Tail
from foldlog.log.epochs import Epochs
from foldlog.log.latest import latest_record
from foldlog.log.producer_state import ProducerInfo, ProducerState
from foldlog.log.producers import Producers
from foldlog.log.reading import SegmentInfo, Slice, View, first_at_time, read_batches, segment_infos
from foldlog.log.recompression import RecompressionReport
from foldlog.log.recovery import recover
from foldlog.log.syncer import Syncer
from foldlog.log.waiting import OnAcknowledged
from foldlog.records.batch import Compression
from foldlog.records.loops import BatchHeader, assign_offsets

logger = logging.getLogger("foldlog.log")

Result = TypeVar("Result")


class Appended(NamedTuple):
    """Where a batch went. Not durable yet: wait for `next_offset`."""

    base_offset: int
    next_offset: int
    append_time_ms: int
    is_duplicate: bool


class Partition:
    """A directory of segments with one appender at a time and any number of readers, each in any thread.

    Promises: an acknowledged record survives a power cut (unless the topic relaxed flush.*), offsets are never
    used twice, readers see only what is acknowledged. Does not promise: that an unacknowledged record is gone.
    """

    def __init__(self, core: PartitionCore, clock: Clock, syncer: Syncer) -> None:
        self._core = core
        self._clock = clock
        self._syncer = syncer
        active = core.segments[-1]
        self._durability = Durability(core, syncer, Tail(active, core.state.durable_offset, active.size))
        self._producers = Producers(core)
        self._active_since_ms: int | None = None
        self._appending = False  # the active segment is pinned and its indexes are complete
        self._append_lock = threading.Lock()
        self._cleanup = Cleanup(core, self._append_lock, self.roll, self._durability.poison_with)

    # Opening and closing

    create = staticmethod(create_partition)

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
    ) -> Partition:
        """Recover, then be ready to append and read. Raises CorruptLog if something durable is missing or damaged."""
        known = slot.load()
        try:
            recovered = recover(files, path, known, config.index_interval_bytes)
            epochs = Epochs.load_or_rebuild(files, path, recovered.segments)
        except FileNotFoundError:
            raise
        except OSError as error:
            raise storage_error(f"{path} could not be opened", error) from error
        # Unclean: a bookmark from before must not mistake a new record for one that was cut.
        epoch = max(epochs.latest, recovered.state.leader_epoch) + recovered.unclean
        state = replace(recovered.state, leader_epoch=epoch)
        if known is not None and known.poisoned:
            slot.store_firmly(state)  # durable: what is acknowledged from now on must not be cut at the next open
        elif known is None or not known.clean or known.generation & 1:
            slot.store(state)
        state = replace(state, clean=known is not None and known.clean)  # so it still says on the disk
        return cls(PartitionCore(files, path, label, config, slot, state, recovered.segments, epochs), clock, syncer)

    def close(self) -> None:
        """Sync, and leave the directory so that the next open has nothing to recover. Idempotent."""
        core = self._core
        with self._cleanup.lock, self._append_lock:
            if core.is_closed:
                return
            if self._appending:
                self._durability.sync()
                if not self.is_poisoned:
                    with self._durability.lock:
                        self._write_hints()
            core.is_closed = True
            if not self.is_poisoned:
                core.change(clean=True)
            for segment in core.segments:
                segment.forget()
        self._durability.close()
        core.watchers.tell()

    # What it is

    @property
    def label(self) -> tuple[str, int]:
        return self._core.label

    @property
    def path(self) -> str:
        return self._core.path

    @property
    def config(self) -> LogConfig:
        return self._core.config

    @property
    def log_start_offset(self) -> int:
        return self._core.state.log_start_offset

    @property
    def log_end_offset(self) -> int:
        """The offset the next record will get."""
        return self._durability.tail.end_offset

    @property
    def high_watermark(self) -> int:
        """All below may be read."""
        return self._core.state.high_watermark

    @property
    def durable_offset(self) -> int:
        """All below is fsynced."""
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

    def epoch_end_offset(self, epoch: int) -> tuple[int, int]:
        """(the latest epoch not after `epoch`, the offset where it ended); (-1, -1) if there is none."""
        return self._core.epochs.end_offset(epoch, self.high_watermark)

    def reconfigure(self, config: LogConfig) -> None:
        """Settings change from the next append, retention and compaction on."""
        with self._append_lock:
            self._core.config = config
        if not config.acks_when_written:
            self._durability.sync()  # what may be read is durable, also what was written before

    # Appending

    def append(
        self, *buffers: Buffer, trusted: bool = False, foreign: bool = False, stored: bool = False, nowait: bool = False
    ) -> Appended:
        """Check the batches, give them offsets, write them. All of them or none. Not durable yet.

        Writable memory is not copied: offsets are put into it, and it is the caller's again on return. `trusted`,
        `foreign` and `stored`: see `admission.admit`. `nowait`: BlockingIOError, and nothing done, where it would have
        to wait.
        """
        admitted = [
            admit(buffer, self.config, trusted=trusted, foreign=foreign, stored=stored, quickly=nowait)
            for buffer in buffers
        ]
        headers = admitted[0].headers if len(admitted) == 1 else [header for _, found in admitted for header in found]
        size_bytes = sum([len(data) for data, _ in admitted])
        if not self._append_lock.acquire(blocking=not nowait):
            raise would_block(self.path)
        try:
            self._refuse_unless_writable()
            now_ms = self._clock.now_ms()
            must_prepare = self._has_to_prepare(headers, size_bytes, now_ms)
            if nowait and (must_prepare or self._producers.must_wait(headers)):
                raise would_block(self.path)
            repeated = self._producers.duplicate_of(headers, self._durability.tail.end_offset)
            if repeated is not None:
                then_ms = repeated.timestamp_ms if self.config.log_append_time else -1
                return Appended(repeated.base_offset, repeated.last_offset + 1, then_ms, True)
            tail = self._ready_tail(headers, size_bytes, now_ms) if must_prepare else self._durability.tail
            append_time_ms, next_offset = now_ms if self.config.log_append_time else -1, tail.end_offset
            for data, found in admitted:
                next_offset = assign_offsets(data, found, next_offset, self.leader_epoch, append_time_ms)
            self._producers.expect(headers)
            self._write(tail, [data for data, _ in admitted])
            self._producers.note(headers)
            tail.segment.wrote(headers, tail.position, size_bytes)
            self._durability.wrote(Tail(tail.segment, next_offset, tail.segment.size), now_ms)
        finally:
            self._append_lock.release()
        return Appended(tail.end_offset, next_offset, append_time_ms, False)

    def append_may_wait(self, size_bytes: int) -> bool:
        """Whether an append of that size, without a producer id, would wait now: for who cannot use `nowait`."""
        return self._append_lock.locked() or self._has_to_prepare((), size_bytes, self._clock.now_ms())

    def _refuse_unless_writable(self) -> None:
        self._core.refuse_if_closed()
        self._durability.refuse_if_poisoned()

    def _has_to_prepare(self, headers: Sequence[BatchHeader], size: int, now_ms: int) -> bool:
        """Whether `_ready_tail` has something to do, which goes to the disk."""
        return (
            not self._appending
            or self._active_since_ms is None
            or self._must_roll(headers, size, now_ms)
            or self._core.epochs.latest != self.leader_epoch
            or (self._core.state.clean and self.acks_when_written)
        )

    def _ready_tail(self, headers: Sequence[BatchHeader], size: int, now_ms: int) -> Tail:
        """The tail that has room for these batches, open for appending."""
        try:
            if self._must_roll(headers, size, now_ms):
                self._roll()
            tail = self._durability.tail
            if not self._appending:
                tail.segment.pin()
                self._appending = True
            if self._active_since_ms is None:
                self._active_since_ms = now_ms if tail.position == 0 else begun_ms(tail.segment, now_ms)
            if self._core.epochs.latest != self.leader_epoch:
                # Durable before the first batch of the epoch: readers compare the two.
                self._core.epochs.begin(self.leader_epoch, tail.end_offset)
            if self._core.state.clean and self.acks_when_written:
                # It may be read before it is synced. If a cut takes it, the next open must not pass for a clean one,
                # or the offset would come again in the same epoch.
                self._core.change(firmly=True)
            return tail
        except OSError as error:
            raise storage_error(f"{self.path} is not ready to be written; nothing was kept", error) from error

    def _must_roll(self, headers: Sequence[BatchHeader], size: int, now_ms: int) -> bool:
        segment, end_offset, position = self._durability.tail
        if position == 0:
            return False
        config = self.config
        relative_end = end_offset + sum([header.last_offset_delta + 1 for header in headers]) - segment.base_offset
        return (
            position + size > min(config.segment_bytes, POSITION_MAX)
            or relative_end > POSITION_MAX
            or bool(config.segment_records and relative_end > config.segment_records)
            or (self._active_since_ms is not None and now_ms - self._active_since_ms > config.segment_ms)
        )

    def _write(self, tail: Tail, buffers: Sequence[Buffer]) -> None:
        try:
            tail.segment.log().write(tail.position, buffers)
        except (OSError, StorageError) as error:
            try:
                self._durability.has_leftovers = True
                tail.segment.log().truncate(tail.position)  # take back what a part of it may have left
            except OSError:
                self._durability.poison_with(error)
            if isinstance(error, StorageError):
                raise
            raise storage_error(f"{tail.segment.log_path} could not be written; nothing was kept", error) from error

    # Durability

    def wait_acknowledged(self, next_offset: int) -> None:
        """Returns once everything below `next_offset` is acknowledged: fdatasync has covered it, or where the topic
        relaxed flush.* it is written. Whoever comes first syncs for all who wait. Raises PartitionPoisoned."""
        self._durability.wait_acknowledged(next_offset)

    def on_acknowledged(self, next_offset: int, callback: OnAcknowledged, *, is_quick: bool = False) -> None:
        """The same without blocking: `callback` runs once, with the error if any, on a syncing thread or here.
        `is_quick`: it waits for nothing, so a server's event loop may run it too."""
        self._durability.on_acknowledged(next_offset, callback, is_quick=is_quick)

    def sync(self) -> None:
        """Make everything appended so far durable. A failure poisons the partition and is told to all who wait."""
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
        with self._durability.lock:
            self._durability.sync_tail()
            self._durability.tell_soon()
            self._refuse_unless_writable()
            sealed, end_offset, _ = self._durability.tail
            try:
                self._write_hints()
                create_segment(core.files, core.path, end_offset)
                # A crash could lose the name, and with it what is acknowledged in that file.
                core.files.sync_directory(core.path)
            except (OSError, StorageError) as error:
                self._take_back(end_offset, error)
                raise storage_error(f"{core.path} cannot begin a new segment; nothing was kept", error) from error
            fresh = core.segment(end_offset, 0)
            core.segments = (*core.segments, fresh)
            core.change(
                generation=name_added,
                active_base_offset=end_offset,
                active_position=0,
                segment_count=len(core.segments),
            )
            self._durability.tail = Tail(fresh, end_offset, 0)
            self._active_since_ms = None
            if self._appending:
                sealed.unpin()
                self._appending = False
            core.sync_checkpoint()

    def _take_back(self, base_offset: int, cause: Exception) -> None:
        """A segment that has not begun: what is appended to the old one now would be in the place of its name."""
        try:
            self._core.segment(base_offset, 0).unlink()
        except OSError:
            self._durability.poison_with(cause)

    def _write_hints(self) -> None:
        """What the next open would otherwise have to make again from the log."""
        try:
            if self._appending:
                self._durability.tail.segment.seal_indexes()
            self._producers.write_snapshot(self._durability.tail.end_offset, self._clock.now_ms())
        except (OSError, StorageError) as error:
            logger.warning("%s: index or snapshot not written (%s); made again when needed", self.path, error)

    # Reading

    def read(self, offset: int, max_bytes: int = READ_CHUNK_BYTES, into: Into = None, *, nowait: bool = False) -> Slice:
        """Whole verified batches below the high watermark, from the one that holds `offset` on; at least one, if any.

        With `into`, the data stand there, until the next read into it. `nowait`: BlockingIOError where the disk would
        have to be waited for; another thread asks again without it. Raises OffsetOutOfRange (with the reason) and
        CorruptLog.
        """
        return self._core.with_view(lambda view: read_batches(view, offset, max_bytes, into, nowait), offset)

    def offset_at_time(self, timestamp_ms: int) -> tuple[int, int] | None:
        """(offset, timestamp) of the first record at or after `timestamp_ms`; None if there is none."""
        return self._core.with_view(lambda view: first_at_time(view, self.log_start_offset, timestamp_ms))

    def max_timestamp_offset(self) -> tuple[int, int] | None:
        """(offset, timestamp) of the readable record with the largest timestamp, of equals the first; None if none has
        a timestamp."""
        return self._core.with_view(lambda view: latest_record(view, self.log_start_offset))

    def look(self, at: Callable[[View], Result], offset: int | None = None) -> Result:
        """What `at` makes of a consistent view of the segments: for who shows where things stand, and changes nothing.

        It may be called again, where a segment was replaced meanwhile. OffsetOutOfRange if `offset` is not in it.
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

    def delete_records(self, before_offset: int) -> int:
        """Move the log start to `before_offset`, for good; the new log start."""
        return self._cleanup.delete_records(before_offset)

    def compact(self, now_ms: int | None = None, *, force: bool = False) -> CompactionReport:
        """Keep the newest record per key. `force`: everything up to now, whatever dirty ratio, lag and policy say."""
        when = self._clock.now_ms() if now_ms is None else now_ms
        return self._cleanup.compact(when, force, self._last_batches)

    def recompress(self, codec: Compression) -> RecompressionReport:
        """The same records in that codec, up to now, where they get smaller by it."""
        return self._cleanup.recompress(codec)

    def _last_batches(self) -> frozenset[int]:
        return self._look_at_producers(lambda producers: producers.last_batches(), frozenset())

    # Producers

    def producers_info(self) -> list[ProducerInfo]:
        """The producers with an id that are remembered, in order of id: which batch each may send next."""
        return self._look_at_producers(lambda producers: producers.infos(), [])

    def _look_at_producers(self, look: Callable[[ProducerState], Result], without: Result) -> Result:
        """At what is known of producers; `without` where there never was one, for which nothing has to be read."""
        if not self._core.state.has_producers:
            return without
        with self._append_lock:
            self._core.refuse_if_closed()
            return look(self._producers.load(self._durability.tail.end_offset))
