"""Background jobs of a log: retention, compaction, late syncs, deadlines of groups and transactions.

Plans are pure functions (`plan_…`), `JobScheduler` waits, `Upkeep` acts. A fault is reported and the job tried again
later: the thread survives it.
"""

from __future__ import annotations

import contextlib
import threading
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from enum import IntEnum
from functools import partial
from itertools import count
from typing import Final, NamedTuple, Protocol

from foldlog import limits
from foldlog.broker.groups.store import GroupStore
from foldlog.broker.share.store import ShareStore
from foldlog.broker.storage import Key
from foldlog.broker.tiers import TierJobs
from foldlog.broker.topics.catalog import Catalog, CatalogTopic
from foldlog.broker.topics.names import KAFKA_OWN_TOPICS, OFFSETS_TOPIC, TRANSACTIONS_TOPIC, is_internal
from foldlog.broker.transactions.store import TransactionStore
from foldlog.clock import Clock
from foldlog.errors import CorruptLog, DecompressedTooLarge, LogClosed, UnknownPartition, UnknownTopic
from foldlog.log.checkpoint import Checkpoint
from foldlog.log.journal.journal import Journal
from foldlog.log.partition import Partition
from foldlog.log.producers import AllProducers
from foldlog.records.batch import MAX_INT64

_STORE_PATIENCE_S: Final = 2.0
"""A request to a store that does not answer may take half a minute. Nothing is broken by not waiting for it: whoever
comes back from the store finds the partition closed."""

WAIT_MAX_MS: Final = 3_600_000.0
"""Wake up at least hourly: a deadline years away would overflow what a lock can wait for."""


class Job(IntEnum):
    """In the order in which they run when several are due: first those that others wait for.

    GROUPS, SHARES, FLUSH and CHECKPOINT take milliseconds and have to be in time; TRANSACTIONS and ID_EXPIRY wait for
    syncs of several partitions; JOURNAL syncs many partitions, and makes large files; RETENTION and the other expiries
    take seconds, and a full disk waits for them; COMPACTION may take hours. So a broker gives each of these kinds a
    thread of its own, and compaction several.
    """

    GROUPS = 1
    SHARES = 2
    FLUSH = 3
    CHECKPOINT = 4
    TRANSACTIONS = 5
    ID_EXPIRY = 6
    RETENTION = 7
    OFFSET_EXPIRY = 8
    PRODUCER_EXPIRY = 9
    COMPACTION = 10
    JOURNAL = 11
    TIER = 12


_NUMBERS: Final = count(1)

RETRY_MS: Final[Mapping[Job, int]] = {
    Job.GROUPS: 1000,
    Job.SHARES: 1000,
    Job.FLUSH: 1000,
    Job.CHECKPOINT: limits.CHECKPOINT_SYNC_MS,
    Job.TRANSACTIONS: limits.TRANSACTION_ABORT_CHECK_MS,
    Job.ID_EXPIRY: limits.TRANSACTIONAL_ID_EXPIRY_CHECK_MS,
    Job.RETENTION: limits.RETENTION_CHECK_MS,
    Job.OFFSET_EXPIRY: limits.OFFSETS_EXPIRY_CHECK_MS,
    Job.PRODUCER_EXPIRY: limits.PRODUCER_EXPIRY_CHECK_MS,
    Job.COMPACTION: limits.COMPACTION_BACKOFF_MS,
    Job.JOURNAL: limits.CHECKPOINT_SYNC_MS,
    Job.TIER: limits.TIER_CHECK_MS,
}
"""When to try a failed job again."""

Work = Callable[[], float | None]
"""Does one job; returns after how many milliseconds to run it again, None if only on request."""


class Due(NamedTuple):
    """`jobs` that are due, and how long to wait for the next one if there are none (None: until a request)."""

    jobs: list[Job]
    wait_ms: float | None


def plan_due(deadlines: Mapping[Job, float], now_ms: float) -> Due:
    """Which jobs run now, and when to look again."""
    jobs = sorted(job for job, deadline_ms in deadlines.items() if deadline_ms <= now_ms)
    later = [deadline_ms for deadline_ms in deadlines.values() if deadline_ms > now_ms]
    return Due(jobs, min(min(later) - now_ms, WAIT_MAX_MS) if later else None)


def plan_retention(topics: Iterable[CatalogTopic]) -> list[tuple[str, int]]:
    """The partitions that may hold expired segments."""
    return [
        (topic.name, number)
        for topic in topics
        if topic.config.log.delete and max(topic.config.log.retention_ms, topic.config.log.retention_bytes) >= 0
        for number in range(topic.partition_count)
    ]


def plan_compaction(topics: Iterable[CatalogTopic]) -> list[tuple[str, int]]:
    """The partitions that may hold superseded records."""
    return [
        (topic.name, number) for topic in topics if topic.config.log.compact for number in range(topic.partition_count)
    ]


class Flushes(NamedTuple):
    """Partitions whose oldest unsynced record has waited flush.ms, and when the next one will have (None: never)."""

    due: list[tuple[str, int]]
    wait_ms: float | None


def plan_flushes(unsynced: Mapping[tuple[str, int], float], now_ms: float) -> Flushes:
    """`unsynced` has, for each partition with unsynced records, when its flush.ms runs out."""
    due = [key for key, deadline_ms in unsynced.items() if deadline_ms <= now_ms]
    later = [deadline_ms for deadline_ms in unsynced.values() if deadline_ms > now_ms]
    return Flushes(due, min(later) - now_ms if later else None)


class JobScheduler:
    """Runs jobs when they are due. `schedule` from any thread; jobs run one at a time, on one daemon thread that starts
    with the first of them, or on the caller of `run_due`. The thread sleeps without a timer while nothing is scheduled.

    Without a `thread_name` there is no thread, and only `run_due` runs jobs: for tests that control the clock.
    """

    def __init__(
        self,
        clock: Clock,
        work: Mapping[Job, Work],
        report: Callable[[str, Exception], None],
        thread_name: str | None,
        patience_s: float | None = None,
    ) -> None:
        """`patience_s`: how long `stop` waits for a job that waits for the network; None: until it is done."""
        self._patience_s = patience_s
        self._clock = clock
        self._work = work
        self._report = report
        self._thread_name = thread_name
        self._condition = threading.Condition(threading.Lock())  # of the deadlines; a leaf, taken under any lock
        self._running = threading.Lock()  # held while a job runs, so never under a lock that a job takes
        self._deadlines: dict[Job, float] = {}
        self._thread: threading.Thread | None = None
        self._stopping = False

    @property
    def is_stopping(self) -> bool:
        """Long jobs check this between two partitions."""
        return self._stopping

    def is_scheduled(self, job: Job) -> bool:
        """Takes no lock: for callers that would otherwise schedule the same job with every record."""
        return job in self._deadlines

    def schedule(self, job: Job, in_ms: float) -> None:
        """Run `job` in `in_ms` milliseconds, or earlier if it was scheduled earlier."""
        deadline_ms = self._clock.monotonic_ms() + in_ms
        with self._condition:
            if self._stopping or self._deadlines.get(job, deadline_ms + 1) <= deadline_ms:
                return
            is_next = not self._deadlines or deadline_ms < min(self._deadlines.values())
            self._deadlines[job] = deadline_ms
            if self._thread_name is None:
                return
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name=self._thread_name, daemon=True)
                self._thread.start()
            elif is_next:
                self._condition.notify_all()

    def run_due(self) -> list[Job]:
        """Run the jobs that are due, on this thread; returns those that ran."""
        with self._condition:
            jobs = plan_due(self._deadlines, self._clock.monotonic_ms()).jobs
            for job in jobs:
                # Removed before it runs: a request during the run asks for another one.
                del self._deadlines[job]
            self._condition.notify_all()  # its clock may have been moved: the thread that waits looks at it again
        for job in jobs:
            if not self._stopping:
                self._run_one(job)
        return jobs

    def _run_one(self, job: Job) -> None:
        with self._running:
            try:
                again_ms = self._work[job]()
            except Exception as error:  # noqa: BLE001  tried again, and reported to the owner
                again_ms = RETRY_MS[job]
                if not self._stopping:
                    self._report(job.name.lower().replace("_", " "), error)
        if again_ms is not None:
            self.schedule(job, again_ms)

    def _run(self) -> None:
        while True:
            with self._condition:
                if self._stopping:
                    return
                due = plan_due(self._deadlines, self._clock.monotonic_ms())
                if not due.jobs:
                    self._condition.wait(None if due.wait_ms is None else due.wait_ms / 1000.0)
                    continue
            self.run_due()

    def request_stop(self) -> None:
        """No job begins from now on; a running one sees it in `is_stopping`."""
        with self._condition:
            self._stopping = True
            self._deadlines.clear()
            self._condition.notify_all()

    def stop(self) -> None:
        """Returns once no job runs and none will."""
        self.request_stop()
        thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            # Ctrl-C in the middle of its start leaves a thread that cannot be joined; it begins no more jobs.
            with contextlib.suppress(RuntimeError):
                thread.join(self._patience_s)
            if self._running.acquire(timeout=-1 if self._patience_s is None else self._patience_s):
                self._running.release()  # a caller of run_due has finished too


class CompactionThreads:
    """Compacts partitions on at most `threads_max` threads, in the order in which they were added, none on two threads
    at once. A thread ends when nothing is left to do. `add` and `stop` from any thread."""

    def __init__(self, compact: Callable[[Key], None], threads_max: int) -> None:
        self._compact = compact
        self._threads_max = threads_max
        self._lock = threading.Lock()
        self._waiting: deque[Key] = deque()
        self._known: set[Key] = set()  # waiting or being compacted
        self._threads: set[threading.Thread] = set()
        self._stopping = False

    def add(self, keys: Iterable[Key]) -> None:
        """Queue partitions, except those that are waiting or being compacted."""
        with self._lock:
            if self._stopping:
                return
            fresh = [key for key in keys if key not in self._known]
            self._known.update(fresh)
            self._waiting.extend(fresh)
            self._start()

    def resize(self, threads_max: int) -> None:
        """Use at most so many threads from now on. Those that are too many end when their partition is done."""
        with self._lock:
            self._threads_max = threads_max
            if not self._stopping:
                self._start()

    def _start(self) -> None:
        """Start the threads that are missing, under the lock."""
        for _ in range(min(self._threads_max - len(self._threads), len(self._waiting))):
            thread = threading.Thread(target=self._run, name=f"foldlog-compaction-{next(_NUMBERS)}", daemon=True)
            self._threads.add(thread)
            thread.start()

    def _run(self) -> None:
        while True:
            with self._lock:
                if not self._waiting or len(self._threads) > self._threads_max:
                    self._threads.discard(threading.current_thread())
                    return
                key = self._waiting.popleft()
            try:
                self._compact(key)
            finally:
                with self._lock:
                    self._known.discard(key)

    def stop(self) -> None:
        """Returns once none runs and none will. The caller has to interrupt those that run."""
        with self._lock:
            self._stopping = True
            self._waiting.clear()
            threads = list(self._threads)
        for thread in threads:
            with contextlib.suppress(RuntimeError):  # one that could not be started
                thread.join()


class Kept(Protocol):
    """The part of the storage that upkeep needs."""

    def catalog(self) -> Catalog: ...

    def writable_partition(self, key: Key) -> Partition: ...

    def report(self, doing: str, error: Exception) -> None: ...


class Upkeep:
    """Threads: "timers" for jobs that take milliseconds and have to be in time, "transactions" for their deadlines and
    missing markers, "journal" for releasing and making its files, "retention" for jobs that free space, "tier" for
    those that wait for the store, "compaction" for the log's own topics of groups, and `compaction_threads` for all
    others, which may take hours. Each starts with its first job and sleeps without a timer
    when there is none. None waits for another: retention skips a partition that is being compacted, and the compacting
    thread enforces it afterwards.
    """

    def __init__(
        self,
        kept: Kept,
        clock: Clock,
        checkpoint: Checkpoint,
        groups: GroupStore,
        transactions: TransactionStore,
        shares: ShareStore,
        producers: AllProducers,
        *,
        background: bool,
        compaction_threads: int = limits.COMPACTION_THREADS,
        journal: Journal | None = None,
        tiers: TierJobs | None = None,
    ) -> None:
        self._kept = kept
        self._producers = producers
        self._clock = clock
        self._checkpoint = checkpoint
        self._groups = groups
        self._transactions = transactions
        self._flush_lock = threading.Lock()
        self._flush_at_ms: dict[Key, float] = {}

        def jobs(name: str, work: Mapping[Job, Work], patience_s: float | None = None) -> JobScheduler:
            return JobScheduler(clock, work, kept.report, f"foldlog-{name}" if background else None, patience_s)

        self._timers = jobs(
            "timers",
            {
                Job.GROUPS: groups.tick,
                Job.SHARES: shares.tick,
                Job.FLUSH: self._flush,
                Job.CHECKPOINT: self._sync_checkpoint,
            },
        )
        self._transaction_jobs = jobs(
            "transactions", {Job.TRANSACTIONS: transactions.tick, Job.ID_EXPIRY: self._expire_ids}
        )
        self._retention = jobs(
            "retention",
            {
                Job.RETENTION: self._retain,
                Job.OFFSET_EXPIRY: self._expire_offsets,
                Job.PRODUCER_EXPIRY: self._expire_producers,
            },
        )
        self._compaction = jobs("compaction", {Job.COMPACTION: self._compact})
        self._journal_jobs = jobs("journal", {} if journal is None else {Job.JOURNAL: journal.work})
        self._tier_jobs = jobs("tier", {} if tiers is None else {Job.TIER: tiers.work}, _STORE_PATIENCE_S)
        self._tiers = tiers
        if tiers is not None:
            tiers.is_stopping = lambda: self._tier_jobs.is_stopping
        self._journal = journal
        if journal is not None:
            journal.on_work = partial(self._journal_jobs.schedule, Job.JOURNAL, 0)
        self._threads = CompactionThreads(self._compact_key, compaction_threads) if background else None
        self._under_way_lock = threading.Lock()
        self._under_way: set[Partition] = set()
        self._passed_over: set[Key] = set()  # skipped by retention while they were being compacted
        self._failures: dict[Key, _Failure] = {}
        producers.on_added = self._producer_added

    def resize_compaction(self, threads: int) -> None:
        """Compact on at most so many threads from now on, besides that of the log's own topics."""
        if self._threads is not None:
            self._threads.resize(threads)

    # --- when -----------------------------------------------------------------------------------------------------

    def topics_changed(self) -> None:
        """Schedule the jobs that the present topics need."""
        catalog = self._kept.catalog()
        topics = catalog.topics.values()
        if plan_retention(topics):
            self._retention.schedule(Job.RETENTION, limits.RETENTION_FIRST_CHECK_MS)
        if plan_compaction(topics):
            self._compaction.schedule(Job.COMPACTION, limits.COMPACTION_BACKOFF_MS)
        if self._tiers is not None and self._tiers.are_needed:
            self._tier_jobs.schedule(Job.TIER, limits.TIER_FIRST_CHECK_MS)
        if OFFSETS_TOPIC in catalog.topics:
            self._retention.schedule(Job.OFFSET_EXPIRY, limits.OFFSETS_EXPIRY_CHECK_MS)
        if TRANSACTIONS_TOPIC in catalog.topics:
            self._transaction_jobs.schedule(Job.ID_EXPIRY, self._transactions.expiry_check_ms)

    def watch(self, key: Key, partition: Partition) -> None:
        """Schedule checkpoint syncs and flush.ms after changes of the partition."""
        self._ask_for_checkpoint()  # opening may have stored what it recovered
        partition.watch(partial(self._moved, key, partition))

    def _moved(self, key: Key, partition: Partition) -> None:
        """Runs after each move of the high watermark, on the thread that moved it: must be quick."""
        self._ask_for_checkpoint()
        config = partition.config
        if not config.acks_when_written or config.flush_ms == MAX_INT64 or key in self._flush_at_ms:
            return
        # Not after the sync itself, which moves the durable offset, too: an idle partition needs no timer.
        if partition.durable_offset < partition.log_end_offset:
            with self._flush_lock:
                self._flush_at_ms.setdefault(key, self._clock.monotonic_ms() + config.flush_ms)
            self._timers.schedule(Job.FLUSH, config.flush_ms)

    def _producer_added(self) -> None:
        if not self._retention.is_scheduled(Job.PRODUCER_EXPIRY):
            self._retention.schedule(Job.PRODUCER_EXPIRY, limits.PRODUCER_EXPIRY_CHECK_MS)

    def _ask_for_checkpoint(self) -> None:
        if not self._timers.is_scheduled(Job.CHECKPOINT):
            self._timers.schedule(Job.CHECKPOINT, limits.CHECKPOINT_SYNC_MS)

    def schedule_tick(self, in_ms: float) -> None:
        self._timers.schedule(Job.GROUPS, in_ms)

    def schedule_transactions(self, in_ms: float) -> None:
        self._transaction_jobs.schedule(Job.TRANSACTIONS, in_ms)

    def schedule_shares(self, in_ms: float) -> None:
        self._timers.schedule(Job.SHARES, in_ms)

    def run_due(self) -> list[Job]:
        """Run the jobs that are due, on this thread: for brokers without background, in tests with their own clock."""
        return [job for kind in self._kinds() for job in kind.run_due()]

    def _kinds(self) -> tuple[JobScheduler, ...]:
        return (
            self._timers,
            self._transaction_jobs,
            self._journal_jobs,
            self._retention,
            self._compaction,
            self._tier_jobs,
        )

    def stop(self) -> None:
        """Returns once no job runs and none will. A running compaction is interrupted, and leaves the log as it was."""
        for kind in self._kinds():
            kind.request_stop()
        if self._journal is not None:
            self._journal.interrupt()
        with self._under_way_lock:
            for partition in self._under_way:
                partition.interrupt()
        for kind in self._kinds():
            kind.stop()
        if self._threads is not None:
            self._threads.stop()

    # --- what -----------------------------------------------------------------------------------------------------

    def _sync_checkpoint(self) -> None:
        if self._checkpoint.is_dirty:
            self._checkpoint.sync()

    def _flush(self) -> float | None:
        with self._flush_lock:
            plan = plan_flushes(self._flush_at_ms, self._clock.monotonic_ms())
            for key in plan.due:
                # Removed before the sync: a record written meanwhile asks for the next one.
                del self._flush_at_ms[key]
        self._each(plan.due, Partition.sync, "syncing")
        return plan.wait_ms

    def _retain(self) -> float | None:
        keys = plan_retention(self._kept.catalog().topics.values())
        self._each(keys, self._retain_one, "enforcing retention of")
        return limits.RETENTION_CHECK_MS if keys else None

    def _retain_one(self, partition: Partition) -> None:
        self._passed_over.add(partition.label)  # before the try: the compacting thread checks this when it is done
        if partition.try_retention() is not None:
            self._passed_over.discard(partition.label)

    def _compact(self) -> float | None:
        keys = plan_compaction(self._kept.catalog().topics.values())
        now_ms = self._clock.monotonic_ms()
        for key in self._failures.keys() - set(keys):
            self._failures.pop(key, None)
        rests = {key for key, failure in list(self._failures.items()) if failure.next_try_ms > now_ms}
        own, *others = _in_turns([key for key in keys if key not in rests])
        if self._threads is not None:
            self._threads.add(key for kind in others for key in kind)
            others = []
        for kind in (own, *others):
            self._each(kind, self._compact_one, "compacting")
        return limits.COMPACTION_BACKOFF_MS if keys else None

    def _compact_key(self, key: Key) -> None:
        self._each([key], self._compact_one, "compacting")

    def _compact_one(self, partition: Partition) -> None:
        key = partition.label
        with self._under_way_lock:
            self._under_way.add(partition)
        try:
            if self._compaction.is_stopping:  # after adding it: `stop` interrupts those that are in the set
                return
            partition.compact()
            self._failures.pop(key, None)
        except (CorruptLog, DecompressedTooLarge) as error:
            doing = f"compacting {key[0]}-{key[1]} (its files are as they were; the others are compacted)"
            self._kept.report(doing, error)
        except LogClosed:
            raise
        except Exception:
            self._failures[key] = _Failure.after(self._failures.get(key), self._clock.monotonic_ms())
            raise
        finally:
            with self._under_way_lock:
                self._under_way.discard(partition)
            self.cleaned(key)

    def cleaned(self, key: Key) -> None:
        """After any compaction or recompression: enforce retention if it skipped the partition meanwhile."""
        if key in self._passed_over:
            self._passed_over.discard(key)
            self._each([key], Partition.enforce_retention, "enforcing retention of")

    def _expire_offsets(self) -> float | None:
        self._groups.expire()
        return limits.OFFSETS_EXPIRY_CHECK_MS

    def _expire_ids(self) -> float | None:
        self._transactions.expire()
        return self._transactions.expiry_check_ms

    def _expire_producers(self) -> float | None:
        """Again as long as there are producers; a new one schedules it, too."""
        return limits.PRODUCER_EXPIRY_CHECK_MS if self._producers.expire(self._clock.now_ms()) else None

    def _each(self, keys: Iterable[Key], act: Callable[[Partition], object], doing: str) -> None:
        """Call `act` for one partition after the other; a fault of one does not stop the others."""
        for key in keys:
            if self._compaction.is_stopping:
                return
            try:
                act(self._kept.writable_partition(key))
            except (UnknownTopic, UnknownPartition, LogClosed):
                continue  # deleted since the plan was made
            except CorruptLog as error:
                self._kept.report("", error)
            except Exception as error:  # noqa: BLE001  reported, and tried again the next time
                if not self._compaction.is_stopping:
                    self._kept.report(f"{doing} {key[0]}-{key[1]}", error)


def _in_turns(keys: Iterable[Key]) -> tuple[list[Key], list[Key], list[Key]]:
    """The log's own topics of groups; other internal topics; all others."""
    own: list[Key] = []
    internal: list[Key] = []
    others: list[Key] = []
    for key in keys:
        if key[0] in KAFKA_OWN_TOPICS:
            own.append(key)
        elif is_internal(key[0]):
            internal.append(key)
        else:
            others.append(key)
    return own, internal, others


class _Failure(NamedTuple):
    """A compaction that failed on a disk fault; it starts from the beginning, so each pause is twice as long."""

    rest_ms: float
    next_try_ms: float

    @classmethod
    def after(cls, previous: _Failure | None, now_ms: float) -> _Failure:
        rest_ms: float = limits.COMPACTION_BACKOFF_MS
        if previous is not None:
            rest_ms = min(2 * previous.rest_ms, limits.COMPACTION_RETRY_MAX_MS)
        return cls(rest_ms, now_ms + rest_ms)
