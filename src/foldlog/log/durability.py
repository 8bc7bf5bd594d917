"""Group commit: who waits for a sync, who runs it, and what its failure means."""

from __future__ import annotations

import logging
import threading
import time
from typing import NamedTuple

from foldlog.errors import FoldlogError, InvalidArgument, LogClosed, PartitionPoisoned, StorageError
from foldlog.files.base import File, sync_fault
from foldlog.log.core import PartitionCore
from foldlog.log.segment import Segment
from foldlog.log.syncer import Syncer
from foldlog.log.waiting import OnAcknowledged, Turns, Waiting

logger = logging.getLogger("foldlog.log")

_SETTLE_AFTER_S = 0.005  # far longer than an event loop takes to settle a sync that is over
_INDEX_WRITE_ENTRIES = 64  # 256 KiB of small batches: what a reading process may have to walk beyond its index


class Tail(NamedTuple):
    """The end of the log: replaced as one, so that a sync sees offset and file of the same moment."""

    segment: Segment
    end_offset: int
    position: int


class SyncLock:
    """Who holds it syncs the partition. A lent thread's sync holds it until somebody settles it: who waits for the
    lock does so too, and depends on no event loop that may itself be waiting."""

    def __init__(self, syncer: Syncer) -> None:
        self._syncer = syncer
        self._lock = threading.Lock()

    def take_at_once(self) -> bool:
        return self._lock.acquire(blocking=False)

    def release(self) -> None:
        self._lock.release()

    def __enter__(self) -> None:
        while not self._lock.acquire(timeout=_SETTLE_AFTER_S):
            self._syncer.settle()

    def __exit__(self, *_: object) -> None:
        self._lock.release()


class Durability:
    """What is written becomes durable here. Appenders replace `tail`; whoever holds `lock` syncs, for all who wait.

    All syncs of a partition run under the one lock: a failure is reported to one caller only, and no other sync
    may then find the pages clean and call them durable. Who waits is told without any lock of the partition held:
    a callback may append to it, and wait.
    """

    def __init__(self, core: PartitionCore, syncer: Syncer, tail: Tail) -> None:
        self._core = core
        self._syncer = syncer
        self._waiting = Waiting()
        self.tail = tail
        self.lock = SyncLock(syncer)
        self._turns = Turns()
        self.poison: PartitionPoisoned | None = None
        self.unsynced_since_ms: int | None = None
        # Part of a write that failed was cut off again, and that is not synced yet; by us, or by who ended uncleanly.
        self.has_leftovers = not core.state.clean
        self._under_way: tuple[Tail, File]
        # Something is due that may take long or wait: the next sync is for a thread that may, and not for a lent one.
        self._wants_thread = False

    def wrote(self, tail: Tail, now_ms: int) -> None:
        """The log now ends at `tail`. Where the topic relaxed flush.*, that may be read, and is acknowledged."""
        self.tail = tail
        if self.unsynced_since_ms is None:
            self.unsynced_since_ms = now_ms
        if self._core.config.acks_when_written:
            self._core.raise_watermarks(tail.end_offset)
            if tail.end_offset - self._core.state.durable_offset >= self._core.config.flush_messages:
                self._syncer.request(self)
            self._core.watchers.tell()

    def _acknowledged_offset(self) -> int:
        state = self._core.state
        return state.high_watermark if self._core.config.acks_when_written else state.durable_offset

    def wait_acknowledged(self, next_offset: int) -> None:
        """See Partition."""
        if next_offset > self.tail.end_offset:
            self.refuse_if_poisoned()
            raise InvalidArgument(f"nothing was written at offset {next_offset - 1} of {self._core.path} to wait for")
        while self._turns.take(next_offset, self._acknowledged_offset):
            try:
                with self.lock:
                    # The lock may have been a lent thread's, and that sync all that was needed.
                    if self._acknowledged_offset() < next_offset:
                        self._core.refuse_if_closed()
                        self.refuse_if_poisoned()
                        self.sync_tail()
            finally:
                self._turns.pass_on(self._acknowledged_offset())
            self._tell()

    def on_acknowledged(self, next_offset: int, callback: OnAcknowledged, *, is_quick: bool = False) -> None:
        """See Partition."""
        if self._acknowledged_offset() >= next_offset:
            callback(None)
            return
        self._waiting.add(next_offset, callback, is_quick)
        # Look again: a sync, a failure or a close may have come between.
        if self._core.is_closed:
            self.close()
        elif self.poison is not None or self._acknowledged_offset() >= next_offset:
            self._answer()
        else:
            self._syncer.request(self)

    def sync(self) -> None:
        """Make everything written so far durable. A failure poisons, and is told to all who wait."""
        with self.lock:
            self.sync_tail()
        self._tell()

    def _tell(self) -> None:
        self._answer()
        self._core.watchers.tell()

    def _answer(self) -> None:
        """Those who wait, as far as something is known."""
        self._wants_thread = False
        self._waiting.reached(self._acknowledged_offset())
        if self.poison is not None:
            self._waiting.fail(self.poison)

    def tell_soon(self) -> None:
        """For who synced and holds locks."""
        self._core.watchers.tell()
        if self._waiting:
            self._syncer.request(self)

    def sync_tail(self) -> None:
        """Sync, for who holds the lock, and who then tells the others."""
        tail = self._to_sync()
        if tail is None:
            self._write_indexes()
            return
        began = time.perf_counter()
        try:
            tail.segment.log().sync()
        except OSError as error:
            # Never sync again: the kernel may have marked the lost pages clean, and would now say all is well.
            self.poison_with(error)
            return
        self._synced(tail, time.perf_counter() - began)
        self._write_indexes()

    def begin_sync(self) -> int | None:
        """See Syncable. The lock is held until `end_sync`."""
        if self._wants_thread or not self.lock.take_at_once():
            return None
        try:
            log = self.tail.segment.log()  # the tail's below too: no roll while the lock is held
        except (OSError, FoldlogError):
            self.lock.release()
            return None  # `sync` will say what it is
        tail = None if log.sync_descriptor is None else self._to_sync()
        if tail is None:
            self.lock.release()
            return None
        self._under_way = tail, log
        return log.sync_descriptor

    def end_sync(self, error_number: int, is_nameless: bool, seconds: float) -> None:
        """See Syncable."""
        tail, _ = self._under_way
        del self._under_way
        try:
            fault = sync_fault(tail.segment.log_path, error_number, is_nameless)
            if fault is None:
                self._synced(tail, seconds)
            else:
                self.poison_with(fault)  # as above
        finally:
            self.lock.release()
        self._core.watchers.tell()
        if self._waiting.reached(self._acknowledged_offset(), only_quick=True) or self._are_indexes_due():
            self._wants_thread = True
            self._syncer.request(self)

    def _to_sync(self) -> Tail | None:
        """What there is to sync; None if nothing. Who asks syncs it."""
        tail = self.tail
        nothing_new = tail.end_offset <= self._core.state.durable_offset and not self.has_leftovers
        if self.poison is not None or nothing_new:
            return None
        self.unsynced_since_ms = None
        self.has_leftovers = False
        return tail

    def _synced(self, tail: Tail, seconds: float) -> None:
        if self._syncer.on_synced is not None:
            state = self._core.state
            synced_before = state.active_position if state.active_base_offset == tail.segment.base_offset else 0
            records = tail.end_offset - state.durable_offset
            self._syncer.on_synced(seconds, tail.position - synced_before, records)
        self._core.raise_watermarks(tail.end_offset, (tail.end_offset, tail.segment.base_offset, tail.position))

    def _are_indexes_due(self) -> bool:
        return self.tail.segment.unwritten_entries >= _INDEX_WRITE_ENTRIES

    def _write_indexes(self) -> None:
        if self.poison is None and self._are_indexes_due():
            segment = self.tail.segment
            try:
                segment.write_indexes()
            except (OSError, StorageError) as error:
                logger.warning("%s: index not written (%s); tried again later", segment.log_path, error)

    def refuse_if_poisoned(self) -> None:
        if self.poison is not None:
            raise self.poison

    def poison_with(self, error: Exception) -> None:
        """Acknowledge nothing more: what is on disk since the last good sync is unknown. Any locks may be held."""
        self.poison = PartitionPoisoned(
            f"{self._core.path} could not be synced ({error}); what was sent since offset"
            f" {self._core.state.durable_offset} is not acknowledged; reading goes on, open the log again to write"
        )
        self._core.change(poisoned=True)
        self.tell_soon()

    def close(self) -> None:
        self._answer()
        self._waiting.fail(LogClosed(f"{self._core.path} was closed; open the log again"))
