"""What a log does by itself, with a clock that the test owns: retention, compaction, late syncs, expiry of offsets.

The broker has no background: `run_due` does on this thread what its threads would do at that time.
"""

from __future__ import annotations

import errno
import threading

import pytest

from broker.small_broker import at, open_broker, read, writable, write
from foldlog import limits
from foldlog.broker.broker import Broker
from foldlog.broker.maintenance import Job
from foldlog.errors import UnknownTopic
from foldlog.files.memory import MemoryFiles
from foldlog.testing.faulty_files import Fault, FaultyFiles, Kind
from foldlog.testing.sim_clock import SimClock

DAY_MS = 24 * 3600 * 1000


def test_retention_runs_soon_after_opening_and_then_every_five_minutes() -> None:
    clock = SimClock()
    with open_broker(MemoryFiles(), clock) as broker:
        broker.create_topic("orders", 1, {"retention.ms": 60_000, "foldlog.segment.records": 1})
        write(broker, "orders", 0, b"old")
        write(broker, "orders", 0, b"older")
        clock.advance(limits.RETENTION_FIRST_CHECK_MS)
        assert Job.RETENTION in broker.run_due()
        assert read(broker, "orders") == [b"old", b"older"]
        clock.advance(limits.RETENTION_CHECK_MS - 1)
        assert Job.RETENTION not in broker.run_due()
        clock.advance(1)
        assert Job.RETENTION in broker.run_due()
        assert read(broker, "orders") == []
        assert broker.partition("orders", 0).log_start_offset == 2


def test_retention_reaches_partitions_that_nobody_has_used_since_the_open() -> None:
    clock, files = SimClock(), MemoryFiles()
    with open_broker(files, clock) as broker:
        broker.create_topic("orders", 2, {"retention.ms": 1000})
        write(broker, "orders", 1, b"old")
    with open_broker(files, clock) as broker:
        clock.advance(limits.RETENTION_FIRST_CHECK_MS)
        broker.run_due()
        assert read(broker, "orders", 1) == []


def test_compaction_runs_by_itself_where_the_policy_says_so() -> None:
    clock = SimClock()
    with open_broker(MemoryFiles(), clock) as broker:
        broker.create_topic("keyed", 1, {"cleanup.policy": "compact"})
        broker.create_topic("plain", 1)
        for topic in ("keyed", "plain"):
            for value in (b"1", b"2", b"3"):
                write(broker, topic, 0, value, key=b"k")
            writable(broker, topic).roll()
        clock.advance(limits.COMPACTION_BACKOFF_MS)
        assert Job.COMPACTION in broker.run_due()
        assert read(broker, "keyed") == [b"3"]
        assert read(broker, "plain") == [b"1", b"2", b"3"]


def test_a_setting_that_is_changed_starts_the_job_it_asks_for() -> None:
    clock = SimClock()
    with open_broker(MemoryFiles(), clock) as broker:
        broker.create_topic("keyed", 1, {"retention.ms": -1})
        clock.advance(DAY_MS)
        assert Job.COMPACTION not in broker.run_due()
        broker.alter_topic("keyed", {"cleanup.policy": "compact"})
        clock.advance(limits.COMPACTION_BACKOFF_MS)
        assert Job.COMPACTION in broker.run_due()


def test_on_request_retention_and_compaction_run_at_once() -> None:
    clock = SimClock()
    with open_broker(MemoryFiles(), clock) as broker:
        broker.create_topic("a", 2, {"retention.ms": 10})
        broker.create_topic("b", 1, {"cleanup.policy": "compact"})
        for value in (b"1", b"2"):
            write(broker, "a", 0, value)
            write(broker, "b", 0, value, key=b"k")
        clock.advance(11)
        assert broker.enforce_retention("a") == 1
        assert broker.enforce_retention() == 0
        reports = broker.compact()
        assert set(reports) == {("b", 0)}
        assert reports["b", 0].records_after == 1
        assert read(broker, "b") == [b"2"]
        assert set(broker.compact("a")) == {("a", 0), ("a", 1)}
        for call in (broker.compact, broker.enforce_retention):
            with pytest.raises(UnknownTopic):
                call("c")


def test_the_checkpoint_is_synced_a_second_after_it_was_stored_and_not_while_idle() -> None:
    clock, files = SimClock(), FaultyFiles(MemoryFiles())
    with open_broker(files, clock) as broker:
        broker.create_topic("orders", 1, {"retention.ms": -1})
        write(broker, "orders", 0, b"a")

        def syncs() -> int:
            return sum(operation.kind is Kind.MAPPED_SYNC for operation in files.operations)

        before = syncs()
        clock.advance(limits.CHECKPOINT_SYNC_MS - 1)
        assert broker.run_due() == []
        clock.advance(1)
        assert broker.run_due() == [Job.CHECKPOINT]
        assert syncs() == before + 1
        clock.advance(DAY_MS)
        assert broker.run_due() == []
        write(broker, "orders", 0, b"b")
        clock.advance(limits.CHECKPOINT_SYNC_MS)
        assert broker.run_due() == [Job.CHECKPOINT]
        assert syncs() == before + 2


def test_a_relaxed_topic_is_synced_when_flush_ms_has_run_out() -> None:
    clock = SimClock()
    with open_broker(MemoryFiles(), clock) as broker:
        broker.create_topic("orders", 2, {"flush.messages": 1000, "flush.ms": 500, "retention.ms": -1})
        write(broker, "orders", 0, b"a")
        clock.advance(300)
        write(broker, "orders", 1, b"b")
        write(broker, "orders", 0, b"c")
        clock.advance(199)
        assert Job.FLUSH not in broker.run_due()
        clock.advance(1)
        assert Job.FLUSH in broker.run_due()
        assert [writable(broker, "orders", number).durable_offset for number in range(2)] == [2, 0]
        clock.advance(300)
        assert Job.FLUSH in broker.run_due()
        assert [writable(broker, "orders", number).durable_offset for number in range(2)] == [2, 1]
        clock.advance(DAY_MS)
        assert Job.FLUSH not in broker.run_due()
        write(broker, "orders", 0, b"d")
        clock.advance(500)
        assert Job.FLUSH in broker.run_due()
        assert writable(broker, "orders").durable_offset == 3


def test_without_flush_ms_a_relaxed_topic_has_no_timer() -> None:
    clock = SimClock()
    with open_broker(MemoryFiles(), clock) as broker:
        broker.create_topic("orders", 1, {"flush.messages": 1000, "retention.ms": -1})
        write(broker, "orders", 0, b"a")
        clock.advance(DAY_MS)
        assert Job.FLUSH not in broker.run_due()
        assert writable(broker, "orders").durable_offset == 0


def test_offsets_of_a_group_that_is_gone_for_a_week_expire() -> None:
    clock, files = SimClock(), MemoryFiles()
    with open_broker(files, clock) as broker:
        broker.create_topic("orders", 1, {"retention.ms": -1})
        broker.commit_offsets("gone", {("orders", 0): at(1)})
        clock.advance(limits.OFFSETS_RETENTION_MS - limits.OFFSETS_EXPIRY_CHECK_MS)
        broker.commit_offsets("here", {("orders", 0): at(2)})
        broker.run_due()
        assert broker.group_names() == ["gone", "here"]
        clock.advance(limits.OFFSETS_EXPIRY_CHECK_MS)
        assert Job.OFFSET_EXPIRY in broker.run_due()
        assert broker.group_names() == ["here"]
    with open_broker(files, clock) as broker:
        assert broker.committed("gone") == {}
        assert broker.committed("here") == {("orders", 0): at(2)}


def test_a_fault_in_the_background_is_a_warning_and_the_others_are_served() -> None:
    clock, files = SimClock(), FaultyFiles(MemoryFiles())
    broker = open_broker(files, clock)
    broker.create_topic("a", 1, {"retention.ms": 1000})
    broker.create_topic("b", 1, {"retention.ms": 1000})
    for topic in ("a", "b"):
        write(broker, topic, 0, b"old")
    clock.advance(limits.RETENTION_FIRST_CHECK_MS)
    files.fault = Fault(lambda operation: errno.EIO if "data/a-0/" in operation.path else 0)
    broker.run_due()
    assert read(broker, "b") == []
    assert [text for text in broker.warnings() if "enforcing retention of a-0 failed" in text]
    files.fault = Fault(lambda operation: 0)
    broker.close()


def test_a_refused_partition_is_a_warning_once_and_the_others_are_cleaned() -> None:
    clock, files = SimClock(), MemoryFiles()
    with open_broker(files, clock) as broker:
        broker.create_topic("orders", 2, {"retention.ms": 1000})
        for number in range(2):
            write(broker, "orders", number, b"old")
    log = files.open(f"data/orders-0/{0:020d}.log", write=True)
    log.truncate(10)
    with open_broker(files, clock) as broker:
        for _ in range(3):
            clock.advance(limits.RETENTION_CHECK_MS)
            broker.run_due()
        assert read(broker, "orders", 1) == []
        assert len([text for text in broker.warnings() if "orders-0" in text]) == 1


def test_closing_ends_the_threads_at_once() -> None:
    before = set(threading.enumerate())
    broker = Broker.open(":memory:")
    broker.create_topic("orders", 1, {"flush.messages": 1000, "flush.ms": 3_600_000})
    write(broker, "orders", 0, b"a")
    assert {thread.name for thread in set(threading.enumerate()) - before} >= {"foldlog-timers", "foldlog-cleaning"}
    broker.close()
    assert set(threading.enumerate()) - before == set()
