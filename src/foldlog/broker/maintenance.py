"""What a log does by itself: retention, compaction, late syncs, group deadlines.

Deciding is pure (`plan_…`), waiting is here, doing is in the functions the broker hands in. A fault is reported
and the job tried again later: the thread does not die of it.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterable, Mapping
from enum import IntEnum
from typing import Final, NamedTuple

from foldlog import limits
from foldlog.broker.catalog import Topic
from foldlog.clock import Clock

WAIT_MAX_MS: Final = 3_600_000.0
"""Look at the clock at least hourly: a deadline years away would overflow what a lock can wait for."""


class Job(IntEnum):
    """In the order in which they run when several are due: what others wait for first.

    GROUPS, FLUSH and CHECKPOINT take milliseconds and are promised in time; the others may take minutes. So a
    broker gives each kind a thread of its own.
    """

    GROUPS = 1
    FLUSH = 2
    CHECKPOINT = 3
    RETENTION = 4
    OFFSET_EXPIRY = 5
    COMPACTION = 6


RETRY_MS: Final[Mapping[Job, int]] = {
    Job.GROUPS: 1000,
    Job.FLUSH: 1000,
    Job.CHECKPOINT: limits.CHECKPOINT_SYNC_MS,
    Job.RETENTION: limits.RETENTION_CHECK_MS,
    Job.OFFSET_EXPIRY: limits.OFFSETS_EXPIRY_CHECK_MS,
    Job.COMPACTION: limits.COMPACTION_BACKOFF_MS,
}
"""When to try a job again that failed."""

Work = Callable[[], float | None]
"""Does one job; returns in how many milliseconds it wants to run again, None if only when asked."""


class Due(NamedTuple):
    """`jobs` whose time has come, and how long to wait for the next one if there are none (None: until asked)."""

    jobs: list[Job]
    wait_ms: float | None


def plan_due(deadlines: Mapping[Job, float], now_ms: float) -> Due:
    """Which jobs run now, and when to look again."""
    jobs = sorted(job for job, deadline_ms in deadlines.items() if deadline_ms <= now_ms)
    later = [deadline_ms for deadline_ms in deadlines.values() if deadline_ms > now_ms]
    return Due(jobs, min(min(later) - now_ms, WAIT_MAX_MS) if later else None)


def plan_retention(topics: Iterable[Topic]) -> list[tuple[str, int]]:
    """The partitions that may hold expired segments."""
    return [
        (topic.name, number)
        for topic in topics
        if topic.config.log.delete and max(topic.config.log.retention_ms, topic.config.log.retention_bytes) >= 0
        for number in range(topic.partition_count)
    ]


def plan_compaction(topics: Iterable[Topic]) -> list[tuple[str, int]]:
    """The partitions that may hold superseded records."""
    return [
        (topic.name, number) for topic in topics if topic.config.log.compact for number in range(topic.partition_count)
    ]


class Flushes(NamedTuple):
    """Partitions whose oldest unsynced record has waited flush.ms, and when the next will have (None: never)."""

    due: list[tuple[str, int]]
    wait_ms: float | None


def plan_flushes(unsynced: Mapping[tuple[str, int], float], now_ms: float) -> Flushes:
    """`unsynced` holds, for each partition with unsynced records, when flush.ms runs out."""
    due = [key for key, deadline_ms in unsynced.items() if deadline_ms <= now_ms]
    later = [deadline_ms for deadline_ms in unsynced.values() if deadline_ms > now_ms]
    return Flushes(due, min(later) - now_ms if later else None)


class Maintenance:
    """Runs jobs when they are due. `schedule` from any thread; the work runs on one daemon thread, started with the
    first thing to wait for, or on the caller of `run_due`, one job at a time. It sleeps without a timer while
    nothing is scheduled.

    Without a `thread_name` there is no thread, and nothing runs but by `run_due`: for tests that own the clock.
    """

    def __init__(
        self, clock: Clock, work: Mapping[Job, Work], report: Callable[[str, Exception], None], thread_name: str | None
    ) -> None:
        self._clock = clock
        self._work = work
        self._report = report
        self._thread_name = thread_name
        self._condition = threading.Condition(threading.Lock())
        self._running = threading.Lock()
        self._deadlines: dict[Job, float] = {}
        self._thread: threading.Thread | None = None
        self._stopping = False

    @property
    def is_stopping(self) -> bool:
        """A long job looks at this between two partitions."""
        return self._stopping

    def is_scheduled(self, job: Job) -> bool:
        """Without a lock: for those who would otherwise schedule the same job with every record."""
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
        """Run what is due now, on this thread. Returns what ran."""
        with self._condition:
            jobs = plan_due(self._deadlines, self._clock.monotonic_ms()).jobs
            for job in jobs:
                # Taken off before it runs: what is asked for meanwhile asks for another run.
                del self._deadlines[job]
        for job in jobs:
            if not self._stopping:
                self._run_one(job)
        return jobs

    def _run_one(self, job: Job) -> None:
        with self._running:
            try:
                again_ms = self._work[job]()
            except Exception as error:  # noqa: BLE001  the job is tried again, and the fault is told to the owner
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

    def stop(self) -> None:
        """Returns once no job runs and none will. A job in the middle of a partition finishes that one."""
        with self._condition:
            self._stopping = True
            self._deadlines.clear()
            self._condition.notify_all()
        thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            # Ctrl-C in the middle of its start leaves a thread that cannot be joined; it begins no job any more.
            with contextlib.suppress(RuntimeError):
                thread.join()
            with self._running:
                return  # a caller of run_due has finished too
