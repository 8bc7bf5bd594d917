"""The jobs that `maintenance` runs for a broker that writes: what each does, and when it is first asked for."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from functools import partial
from typing import Protocol

from foldlog import limits
from foldlog.broker.catalog import Catalog
from foldlog.broker.group_store import GroupStore
from foldlog.broker.maintenance import Job, Maintenance, plan_compaction, plan_flushes, plan_retention
from foldlog.broker.open_partitions import Key
from foldlog.broker.topic_names import OFFSETS_TOPIC
from foldlog.clock import Clock
from foldlog.errors import CorruptLog, UnknownPartition, UnknownTopic
from foldlog.log.checkpoint import Checkpoint
from foldlog.log.partition import Partition
from foldlog.records.batch import MAX_INT64


class Kept(Protocol):
    """What upkeep needs of the storage."""

    def catalog(self) -> Catalog: ...

    def writable_partition(self, key: Key) -> Partition: ...

    def report(self, doing: str, error: Exception) -> None: ...


class Upkeep:
    """Two threads at most: "timers" for what takes milliseconds and is promised in time, "cleaning" for what may
    take minutes. Each starts with the first thing to wait for and sleeps without a timer when there is none.
    """

    def __init__(
        self, kept: Kept, clock: Clock, checkpoint: Checkpoint, groups: GroupStore, *, background: bool
    ) -> None:
        self._kept = kept
        self._clock = clock
        self._checkpoint = checkpoint
        self._groups = groups
        self._flush_lock = threading.Lock()
        self._flush_at_ms: dict[Key, float] = {}
        self._timers = Maintenance(
            clock,
            {Job.GROUPS: groups.tick, Job.FLUSH: self._flush, Job.CHECKPOINT: self._sync_checkpoint},
            kept.report,
            "foldlog-timers" if background else None,
        )
        self._cleaning = Maintenance(
            clock,
            {Job.RETENTION: self._retain, Job.COMPACTION: self._compact, Job.OFFSET_EXPIRY: self._expire_offsets},
            kept.report,
            "foldlog-cleaning" if background else None,
        )

    # --- when -----------------------------------------------------------------------------------------------------

    def topics_changed(self) -> None:
        """Ask for the jobs that the topics now give reason for."""
        catalog = self._kept.catalog()
        topics = catalog.topics.values()
        if plan_retention(topics):
            self._cleaning.schedule(Job.RETENTION, limits.RETENTION_FIRST_CHECK_MS)
        if plan_compaction(topics):
            self._cleaning.schedule(Job.COMPACTION, limits.COMPACTION_BACKOFF_MS)
        if OFFSETS_TOPIC in catalog.topics:
            self._cleaning.schedule(Job.OFFSET_EXPIRY, limits.OFFSETS_EXPIRY_CHECK_MS)

    def watch(self, key: Key, partition: Partition) -> None:
        """Follow what is stored in the checkpoint and what waits for flush.ms."""
        self._ask_for_checkpoint()  # opening may have stored what it recovered
        partition.watch(partial(self._moved, key, partition))

    def _moved(self, key: Key, partition: Partition) -> None:
        """After each move of the high watermark, on the thread that moved it: must be quick."""
        self._ask_for_checkpoint()
        config = partition.config
        if not config.acks_when_written or config.flush_ms == MAX_INT64 or key in self._flush_at_ms:
            return
        # Not after the sync itself, which moves the durable offset: an idle partition needs no timer.
        if partition.durable_offset < partition.log_end_offset:
            with self._flush_lock:
                self._flush_at_ms.setdefault(key, self._clock.monotonic_ms() + config.flush_ms)
            self._timers.schedule(Job.FLUSH, config.flush_ms)

    def _ask_for_checkpoint(self) -> None:
        if not self._timers.is_scheduled(Job.CHECKPOINT):
            self._timers.schedule(Job.CHECKPOINT, limits.CHECKPOINT_SYNC_MS)

    def schedule_tick(self, in_ms: float) -> None:
        self._timers.schedule(Job.GROUPS, in_ms)

    def run_due(self) -> list[Job]:
        """Run what is due now, on this thread: for a broker without a background, in tests that own the clock."""
        return self._timers.run_due() + self._cleaning.run_due()

    def stop(self) -> None:
        """Returns once no job runs and none will."""
        self._timers.stop()
        self._cleaning.stop()

    # --- what -----------------------------------------------------------------------------------------------------

    def _sync_checkpoint(self) -> None:
        if self._checkpoint.is_dirty:
            self._checkpoint.sync()

    def _flush(self) -> float | None:
        with self._flush_lock:
            plan = plan_flushes(self._flush_at_ms, self._clock.monotonic_ms())
            for key in plan.due:
                # Before the sync: what is written meanwhile asks for the next one.
                del self._flush_at_ms[key]
        self._each(plan.due, Partition.sync, "syncing")
        return plan.wait_ms

    def _retain(self) -> float | None:
        keys = plan_retention(self._kept.catalog().topics.values())
        self._each(keys, Partition.enforce_retention, "enforcing retention of")
        return limits.RETENTION_CHECK_MS if keys else None

    def _compact(self) -> float | None:
        keys = plan_compaction(self._kept.catalog().topics.values())
        self._each(keys, Partition.compact, "compacting")
        return limits.COMPACTION_BACKOFF_MS if keys else None

    def _expire_offsets(self) -> float | None:
        self._groups.expire()
        return limits.OFFSETS_EXPIRY_CHECK_MS

    def _each(self, keys: Iterable[Key], act: Callable[[Partition], object], doing: str) -> None:
        """One after the other; the fault of one does not keep the others waiting."""
        for key in keys:
            if self._cleaning.is_stopping:
                return
            try:
                act(self._kept.writable_partition(key))
            except (UnknownTopic, UnknownPartition):
                continue  # deleted since the plan was made
            except CorruptLog as error:
                self._kept.report("", error)
            except Exception as error:  # noqa: BLE001  reported, and tried again the next time
                if not self._cleaning.is_stopping:
                    self._kept.report(f"{doing} {key[0]}-{key[1]}", error)
