"""Jobs run when they are due, not before and not twice; a fault does not end them; stopping is prompt.

Deciding is tested as plain functions. Running is tested on the caller's thread with a simulated clock, and the thread
itself with events, never with sleeps.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foldlog.broker.topics.catalog import CatalogTopic
from foldlog.broker.topics.config import TopicConfig
from foldlog.broker.upkeep import (
    RETRY_MS,
    WAIT_MAX_MS,
    Job,
    JobScheduler,
    plan_compaction,
    plan_due,
    plan_flushes,
    plan_retention,
)
from foldlog.clock import SystemClock
from foldlog.testing.sim_clock import SimClock

DEADLINES = st.dictionaries(st.sampled_from(list(Job)), st.floats(0, 1e9))


def topic(name: str, partitions: int, **settings: object) -> CatalogTopic:
    config = TopicConfig.parse({key.replace("_", "."): value for key, value in settings.items()})
    return CatalogTopic(name, "0" * 32, config, tuple(range(partitions)))


def fail(what: str, error: Exception) -> None:
    raise AssertionError(what) from error


@given(DEADLINES, st.floats(0, 1e9))
def test_what_is_due_runs_and_the_rest_is_waited_for(deadlines: dict[Job, float], now_ms: float) -> None:
    due = plan_due(deadlines, now_ms)
    assert due.jobs == sorted(job for job in deadlines if deadlines[job] <= now_ms)
    later = [deadline for deadline in deadlines.values() if deadline > now_ms]
    if due.wait_ms is None:
        assert later == []
    else:
        assert 0 < due.wait_ms <= WAIT_MAX_MS
        assert due.wait_ms == WAIT_MAX_MS or now_ms + due.wait_ms <= min(later) + 1e-3


@given(st.dictionaries(st.tuples(st.just("a"), st.integers(0, 9)), st.floats(0, 1e6)), st.floats(0, 1e6))
def test_a_partition_is_flushed_once_its_time_has_run_out(
    unsynced: dict[tuple[str, int], float], now_ms: float
) -> None:
    plan = plan_flushes(unsynced, now_ms)
    assert set(plan.due) == {key for key, deadline in unsynced.items() if deadline <= now_ms}
    assert (plan.wait_ms is None) == (len(plan.due) == len(unsynced))


def test_retention_looks_only_where_something_can_expire() -> None:
    topics = [
        topic("by_time", 2, retention_ms=1000),
        topic("by_size", 1, retention_ms=-1, retention_bytes=0),
        topic("forever", 1),
        topic("keyed", 1, cleanup_policy="compact"),
        topic("both", 1, cleanup_policy="compact,delete", retention_ms=1000),
    ]
    assert plan_retention(topics) == [("by_time", 0), ("by_time", 1), ("by_size", 0), ("both", 0)]
    assert plan_compaction(topics) == [("keyed", 0), ("both", 0)]


class Recorder:
    """Work that notes its runs and asks to run again after `again_ms`."""

    def __init__(self, again_ms: float | None = None) -> None:
        self.again_ms = again_ms
        self.runs = 0
        self.fault: Exception | None = None

    def __call__(self) -> float | None:
        self.runs += 1
        if self.fault is not None:
            raise self.fault
        return self.again_ms


def test_a_job_runs_when_its_time_has_come_and_again_when_it_asks() -> None:
    clock, work = SimClock(), Recorder(again_ms=100)
    scheduler = JobScheduler(clock, {Job.RETENTION: work}, fail, None)
    assert scheduler.run_due() == []
    scheduler.schedule(Job.RETENTION, 50)
    clock.advance(49)
    assert scheduler.run_due() == []
    clock.advance(1)
    assert scheduler.run_due() == [Job.RETENTION]
    clock.advance(99)
    assert scheduler.run_due() == []
    clock.advance(1)
    assert scheduler.run_due() == [Job.RETENTION]
    assert work.runs == 2


def test_an_interrupt_while_the_thread_is_started_does_not_keep_the_log_from_closing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def interrupted(_thread: threading.Thread) -> None:
        raise KeyboardInterrupt

    work = Recorder()
    scheduler = JobScheduler(SimClock(), {Job.FLUSH: work}, fail, "upkeep")
    monkeypatch.setattr(threading.Thread, "start", interrupted)
    with pytest.raises(KeyboardInterrupt):
        scheduler.schedule(Job.FLUSH, 0)
    scheduler.stop()
    assert scheduler.is_stopping
    assert (scheduler.run_due(), work.runs) == ([], 0)


def test_the_earlier_of_two_wishes_counts() -> None:
    clock, work = SimClock(), Recorder()
    scheduler = JobScheduler(clock, {Job.FLUSH: work}, fail, None)
    scheduler.schedule(Job.FLUSH, 100)
    scheduler.schedule(Job.FLUSH, 10)
    scheduler.schedule(Job.FLUSH, 500)
    assert scheduler.is_scheduled(Job.FLUSH)
    clock.advance(10)
    assert scheduler.run_due() == [Job.FLUSH]
    assert not scheduler.is_scheduled(Job.FLUSH)
    clock.advance(1000)
    assert scheduler.run_due() == []


def test_what_others_wait_for_runs_first() -> None:
    clock = SimClock()
    order: list[Job] = []

    def note(job: Job) -> Callable[[], None]:
        return lambda: order.append(job)

    scheduler = JobScheduler(clock, {job: note(job) for job in Job}, fail, None)
    for job in (Job.COMPACTION, Job.CHECKPOINT, Job.RETENTION, Job.GROUPS, Job.FLUSH):
        scheduler.schedule(job, 1)
    clock.advance(1)
    scheduler.run_due()
    assert order == [Job.GROUPS, Job.FLUSH, Job.CHECKPOINT, Job.RETENTION, Job.COMPACTION]


def test_a_fault_is_reported_and_the_job_tried_again() -> None:
    clock, work = SimClock(), Recorder()
    reports: list[tuple[str, str]] = []
    scheduler = JobScheduler(
        clock, {Job.OFFSET_EXPIRY: work}, lambda what, error: reports.append((what, str(error))), None
    )
    work.fault = OSError("disk on fire")
    scheduler.schedule(Job.OFFSET_EXPIRY, 0)
    scheduler.run_due()
    assert reports == [("offset expiry", "disk on fire")]
    work.fault = None
    clock.advance(RETRY_MS[Job.OFFSET_EXPIRY])
    assert scheduler.run_due() == [Job.OFFSET_EXPIRY]
    assert len(reports) == 1


def test_there_is_no_thread_before_there_is_something_to_wait_for() -> None:
    scheduler = JobScheduler(SystemClock(), {Job.FLUSH: Recorder()}, fail, "foldlog-test-idle")
    assert "foldlog-test-idle" not in {thread.name for thread in threading.enumerate()}
    scheduler.schedule(Job.FLUSH, 3_600_000)
    assert "foldlog-test-idle" in {thread.name for thread in threading.enumerate()}
    scheduler.stop()
    assert "foldlog-test-idle" not in {thread.name for thread in threading.enumerate()}


def test_the_thread_runs_what_is_asked_for_also_if_it_waits_for_something_later() -> None:
    ran = threading.Event()
    scheduler = JobScheduler(SystemClock(), {Job.RETENTION: Recorder(), Job.GROUPS: ran.set}, fail, "foldlog-test")
    scheduler.schedule(Job.RETENTION, 3_600_000)
    scheduler.schedule(Job.GROUPS, 0)
    assert ran.wait(60)
    scheduler.stop()


def test_stopping_waits_for_the_running_job_and_nothing_runs_after() -> None:
    started, release = threading.Event(), threading.Event()
    finished: list[bool] = []

    def work() -> float:
        started.set()
        release.wait(60)
        finished.append(scheduler.is_stopping)
        return 0

    scheduler = JobScheduler(SystemClock(), {Job.COMPACTION: work}, fail, "foldlog-test")
    scheduler.schedule(Job.COMPACTION, 0)
    assert started.wait(60)
    stopper = threading.Thread(target=scheduler.stop)
    stopper.start()
    while not scheduler.is_stopping:
        pass
    release.set()
    stopper.join(60)
    assert finished == [True]
    scheduler.schedule(Job.COMPACTION, 0)
    scheduler.stop()
    assert finished == [True]


def test_an_open_log_does_not_keep_the_interpreter_alive() -> None:
    program = (
        "from foldlog.broker.broker import Broker; broker = Broker.open(':memory:'); broker.create_topic('a');"
        " broker.partition('a', 0)"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    subprocess.run([sys.executable, "-c", program], check=True, timeout=120, env=environment)
