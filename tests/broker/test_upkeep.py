"""What a log does by itself, with a clock that the test owns: retention, compaction, late syncs, expiry of offsets.

The broker has no background: `run_due` does on this thread what its threads would do at that time.
"""

from __future__ import annotations

import errno
import threading
from collections.abc import Callable
from functools import partial
from itertools import pairwise
from typing import Any

import pytest

from broker.small_broker import DIRECTORY, at, open_broker, read, writable, write
from foldlog import limits
from foldlog.broker.broker import Broker
from foldlog.broker.upkeep import Job
from foldlog.errors import InvalidArgument, UnknownTopic
from foldlog.files.memory import MemoryFiles
from foldlog.log.partition import Partition
from foldlog.records.loops import BatchBuilder, compact, recompress, walk
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
            return sum(operation.kind is Kind.ALLOCATED_SYNC for operation in files.operations)

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


def numbered_batch(clock: SimClock, sequence: int, producer_id: int) -> bytearray:
    builder = BatchBuilder(1 << 20)
    builder.append(clock.now_ms(), None, b"x")
    return builder.build(producer_id=producer_id, producer_epoch=0, base_sequence=sequence)


def test_a_silent_producer_is_forgotten_in_time_and_not_with_the_next_segment_only() -> None:
    clock = SimClock()
    with open_broker(MemoryFiles(), clock) as broker:
        broker.create_topic("orders", 2)
        broker.reconfigure(topic_defaults={}, compaction_threads=1, producer_expiration_ms=DAY_MS // 2)
        for number in (0, 1):
            writable(broker, "orders", number).append(numbered_batch(clock, 0, producer_id=7 + number))
        clock.advance(DAY_MS // 2)
        broker.run_due()
        writable(broker, "orders", 1).append(numbered_batch(clock, 1, producer_id=8))
        clock.advance(limits.PRODUCER_EXPIRY_CHECK_MS)
        assert Job.PRODUCER_EXPIRY in broker.run_due()
        assert [len(writable(broker, "orders", number).producers_info()) for number in (0, 1)] == [0, 1]
        clock.advance(DAY_MS)
        broker.run_due()
        clock.advance(DAY_MS)
        assert Job.PRODUCER_EXPIRY not in broker.run_due(), "nobody is left to forget"


def test_more_threads_compact_as_soon_as_they_are_allowed_and_fewer_end_when_they_are_done(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(limits, "COMPACTION_BACKOFF_MS", 1)
    held = HeldTopics(monkeypatch, "long", "longer")
    with Broker.open(":memory:", compaction_threads=1) as broker:
        settings = {"cleanup.policy": "compact", "segment.bytes": 1024}
        several_segments(broker, "long", settings)
        held.wait(lambda: "long" in held.begun)
        several_segments(broker, "longer", settings)
        assert "longer" not in held.begun
        broker.reconfigure(topic_defaults={}, compaction_threads=2, producer_expiration_ms=DAY_MS)
        held.wait(lambda: "longer" in held.begun)
        broker.reconfigure(topic_defaults={}, compaction_threads=1, producer_expiration_ms=DAY_MS)
        held.let_go()
        held.wait(lambda: min(held.done.count("long"), held.done.count("longer")) > 2)
        alive = [thread for thread in threading.enumerate() if thread.name.startswith("foldlog-compaction-")]
        assert len(alive) <= 1


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
    broker.create_topic("orders", 1, {"flush.messages": 1000, "flush.ms": 3_600_000, "retention.ms": 3_600_000})
    write(broker, "orders", 0, b"a")
    assert {thread.name for thread in set(threading.enumerate()) - before} >= {"foldlog-timers", "foldlog-retention"}
    broker.close()
    assert set(threading.enumerate()) - before == set()


def damaged_and_sound(files: MemoryFiles, clock: SimClock) -> None:
    """Two compacted topics of which "bad" has a flipped bit in the base offset of a sealed segment's last batch."""
    with open_broker(files, clock) as broker:
        for topic in ("bad", "good"):
            broker.create_topic(topic, 1, {"cleanup.policy": "compact", "retention.ms": -1})
            for value in (b"1", b"2", b"3"):
                write(broker, topic, 0, value, key=b"k")
            writable(broker, topic).roll()
    log = files.open(f"data/bad-0/{0:020d}.log", write=True)
    last = walk(log.read(0, log.size())).headers[-1].position
    log.write(last, [(1 << 40).to_bytes(8, "big")])


def test_damage_stops_the_compaction_of_its_partition_with_one_warning() -> None:
    clock, memory = SimClock(), MemoryFiles()
    damaged_and_sound(memory, clock)
    before = bytes(memory.open(f"data/bad-0/{0:020d}.log").read(0, 1 << 20))
    files = FaultyFiles(memory)
    with open_broker(files, clock) as broker:
        for _ in range(3):
            clock.advance(limits.COMPACTION_BACKOFF_MS)
            assert Job.COMPACTION in broker.run_due()
            files.operations.clear()
        assert read(broker, "good") == [b"3"]
        warnings = [text for text in broker.warnings() if "bad-0" in text]
        assert len(warnings) == 1
        assert "compacting bad-0" in warnings[0]
        assert "foldlog check" in warnings[0]
        faults = {one.topic: one.cleaning_fault is not None for one in broker.overview()}
        assert faults == {"bad": True, "good": False}
        clock.advance(limits.COMPACTION_BACKOFF_MS)
        broker.run_due()
        assert [one for one in files.operations if "bad-0" in one.path and one.kind is not Kind.ALLOCATED_SYNC] == []
    assert bytes(memory.open(f"data/bad-0/{0:020d}.log").read(0, 1 << 20)) == before


def test_a_compaction_that_a_full_disk_ends_rests_longer_each_time() -> None:
    clock, files = SimClock(), FaultyFiles(MemoryFiles())
    broker = open_broker(files, clock)
    broker.create_topic("keyed", 1, {"cleanup.policy": "compact", "retention.ms": -1})
    for value in (b"1", b"2"):
        write(broker, "keyed", 0, value, key=b"k")
    writable(broker, "keyed").roll()
    files.fault = Fault(
        lambda operation: errno.ENOSPC if operation.kind is Kind.WRITE and ".cleaned" in operation.path else 0
    )
    tries = []
    for second in range(0, 4000, 15):
        clock.advance(limits.COMPACTION_BACKOFF_MS)
        files.operations.clear()
        broker.run_due()
        if any(".cleaned" in operation.path for operation in files.operations):
            tries.append(second)
    rests = [later - earlier for earlier, later in pairwise(tries)]
    assert rests == sorted(rests)
    assert rests[:5] == [15, 30, 60, 120, 240]
    files.fault = Fault(lambda operation: 0)
    clock.advance(limits.COMPACTION_RETRY_MAX_MS)
    broker.run_due()
    assert read(broker, "keyed") == [b"2"]
    broker.close()


class Gate:
    """Holds compaction in the middle of a piece until it is opened."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.entered, self.opened, self.passed = threading.Event(), threading.Event(), 0
        self._waiting = threading.Semaphore(0)
        monkeypatch.setattr("foldlog.log.compaction.compact", self._compact)

    def _compact(self, *given: Any, **named: Any) -> Any:
        self._pass()
        return compact(*given, **named)

    def recompress(self, *given: Any, **named: Any) -> Any:
        self._pass()
        return recompress(*given, **named)

    def wait_for(self, threads: int) -> None:
        for _ in range(threads):
            assert self._waiting.acquire(timeout=60)

    def _pass(self) -> None:
        self.entered.set()
        self._waiting.release()
        assert self.opened.wait(60)
        self.passed += 1


def several_segments(broker: Broker, topic: str, settings: dict[str, object]) -> None:
    broker.create_topic(topic, 1, {"retention.ms": -1, **settings})
    for value in (b"1", b"2", b"3"):
        write(broker, topic, 0, value, key=b"k")
        writable(broker, topic).roll()


def test_a_long_compaction_holds_up_neither_retention_nor_timers_nor_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("COMPACTION_BACKOFF_MS", "RETENTION_FIRST_CHECK_MS", "RETENTION_CHECK_MS"):
        monkeypatch.setattr(limits, name, 1)
    gate = Gate(monkeypatch)
    files = MemoryFiles()
    broker = Broker.open(DIRECTORY, files=files)
    several_segments(broker, "long", {"cleanup.policy": "compact,delete", "segment.bytes": 1024})
    assert gate.entered.wait(60)
    expired, flushed = threading.Event(), threading.Event()
    several_segments(broker, "short", {"retention.bytes": 0})
    short = writable(broker, "short")
    short.watch(lambda: expired.set() if short.log_start_offset == 3 else None)
    assert short.log_start_offset == 3 or expired.wait(60)
    broker.create_topic("relaxed", 1, {"flush.messages": 1000, "flush.ms": 1})
    relaxed = writable(broker, "relaxed")
    relaxed.watch(lambda: flushed.set() if relaxed.durable_offset == 1 else None)
    write(broker, "relaxed", 0, b"a")
    assert relaxed.durable_offset == 1 or flushed.wait(60)
    before = {entry.name for entry in files.entries("data/long-0") if entry.name.endswith(".log")}

    long = writable(broker, "long")
    interrupted = threading.Event()
    real = long.interrupt

    def interrupt() -> None:
        real()
        interrupted.set()

    monkeypatch.setattr(long, "interrupt", interrupt)
    closing = threading.Thread(target=broker.close)
    closing.start()
    assert interrupted.wait(60)
    gate.opened.set()
    closing.join(60)
    assert not closing.is_alive()
    assert gate.passed == 1  # the piece at hand, and no other
    assert {entry.name for entry in files.entries("data/long-0") if entry.name.endswith(".log")} == before
    with open_broker(files) as again:
        assert read(again, "long") == [b"1", b"2", b"3"]


class HeldTopics:
    """Compactions of some topics wait until they are let go; which began, which are over, and on how many threads."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *held: str) -> None:
        self._changed = threading.Condition()
        self._held = set(held)
        self._running: list[str] = []
        self.begun: list[str] = []
        self.done: list[str] = []
        self.at_once_max: dict[str, int] = {}
        real = Partition.compact

        def compact(partition: Partition, **named: Any) -> Any:
            topic = partition.label[0]
            with self._changed:
                self.begun.append(topic)
                self._running.append(topic)
                self.at_once_max[topic] = max(self.at_once_max.get(topic, 0), self._running.count(topic))
                self._changed.notify_all()
                assert self._changed.wait_for(lambda: topic not in self._held, 60)
            try:
                return real(partition, **named)
            finally:
                with self._changed:
                    self._running.remove(topic)
                    self.done.append(topic)
                    self._changed.notify_all()

        monkeypatch.setattr(Partition, "compact", compact)

    def wait(self, is_so: Callable[[], bool]) -> None:
        with self._changed:
            assert self._changed.wait_for(is_so, 60)

    def let_go(self) -> None:
        with self._changed:
            self._held.clear()
            self._changed.notify_all()


@pytest.mark.parametrize("threads", [1, 2])
def test_a_compaction_that_takes_hours_holds_up_no_other_and_never_the_logs_own(
    threads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "COMPACTION_BACKOFF_MS", 1)
    held = HeldTopics(monkeypatch, "long", "longer")
    broker = Broker.open(":memory:", compaction_threads=threads)
    settings = {"cleanup.policy": "compact", "segment.bytes": 1024}
    several_segments(broker, "long", settings)
    held.wait(lambda: "long" in held.begun)
    several_segments(broker, "short", settings)
    if threads > 1:
        held.wait(lambda: held.done.count("short") > 2)
        several_segments(broker, "longer", settings)
        held.wait(lambda: "longer" in held.begun)
    # Every thread has a topic that takes hours.
    broker.commit_offsets("g", {("long", 0): at(1)})
    held.wait(lambda: held.done.count("__consumer_offsets") > 2)
    assert held.begun.count("long") == 1
    assert "short" in held.done or threads == 1
    held.let_go()
    held.wait(lambda: {"long", "short"} <= set(held.done) and held.done.count("long") > 2)
    broker.close()
    assert set(held.at_once_max.values()) == {1}, "no partition on two threads at once"


def test_closing_ends_compactions_on_every_thread_and_begins_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "COMPACTION_BACKOFF_MS", 1)
    before = set(threading.enumerate())
    gate = Gate(monkeypatch)
    interrupted = threading.Semaphore(0)
    real = Partition.interrupt

    def interrupt(partition: Partition) -> None:
        real(partition)
        interrupted.release()

    monkeypatch.setattr(Partition, "interrupt", interrupt)
    broker = Broker.open(":memory:", compaction_threads=3)
    for name in "abcdef":
        several_segments(broker, name, {"segment.bytes": 1024})
        # Only now: a piece is rewritten after the next one was read, so a compaction of fewer segments would end its
        # reading before the gate, and not notice the end.
        broker.alter_topic(name, {"cleanup.policy": "compact"})
    gate.wait_for(3)
    closing = threading.Thread(target=broker.close)
    closing.start()
    for _ in range(3):
        assert interrupted.acquire(timeout=60)
    gate.opened.set()
    closing.join(60)
    assert not closing.is_alive()
    assert gate.passed == 3, "the pieces at hand, and no other"
    for thread in set(threading.enumerate()) - before:
        thread.join(60)  # one that had no work left may be on its last line
        assert not thread.is_alive()


@pytest.mark.parametrize("threads", [0, 65, True, "2"])
def test_a_number_of_threads_that_makes_no_sense_is_refused(threads: Any) -> None:
    with pytest.raises(InvalidArgument, match=r"^compaction_threads=.* is not allowed; it is an integer from 1 to 64"):
        Broker.open(":memory:", compaction_threads=threads)


def test_retention_that_passed_a_compaction_over_comes_after_it(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, gate = SimClock(), Gate(monkeypatch)
    with open_broker(MemoryFiles(), clock) as broker:
        several_segments(broker, "both", {"cleanup.policy": "compact,delete"})
        broker.alter_topic("both", {"retention.bytes": 0})
        partition = writable(broker, "both")
        compacting = threading.Thread(target=partition.compact, kwargs={"force": True})
        compacting.start()
        assert gate.entered.wait(60)
        assert partition.try_retention() is None
        gate.opened.set()
        compacting.join(60)
        assert partition.try_retention() == 1


@pytest.mark.parametrize("asked", ["compact", "recompress"])
def test_retention_that_passed_over_what_somebody_asked_for_comes_as_soon_as_that_is_done(
    monkeypatch: pytest.MonkeyPatch, asked: str
) -> None:
    clock, gate = SimClock(), Gate(monkeypatch)
    monkeypatch.setattr("foldlog.log.doctor.recompression.recompress", gate.recompress)
    with open_broker(MemoryFiles(), clock) as broker:
        several_segments(broker, "both", {"cleanup.policy": "delete"})
        broker.alter_topic("both", {"retention.bytes": 0})
        act = partial(broker.compact, "both") if asked == "compact" else partial(broker.recompress, "both", "gzip")
        cleaning = threading.Thread(target=act)
        cleaning.start()
        assert gate.entered.wait(60)
        clock.advance(limits.RETENTION_FIRST_CHECK_MS)
        assert Job.RETENTION in broker.run_due()
        assert writable(broker, "both").log_start_offset == 0, "it is passed over"
        gate.opened.set()
        cleaning.join(60)
        assert writable(broker, "both").log_start_offset == 3, "and not for five minutes"


def test_damage_further_on_does_not_keep_expired_segments_at_the_head() -> None:
    clock, files = SimClock(), MemoryFiles()
    with open_broker(files, clock) as broker:
        several_segments(broker, "orders", {"retention.ms": 1000})
    for name in (f"{1:020d}.log", f"{1:020d}.timeindex"):
        damaged = files.open(f"data/orders-0/{name}", write=True)
        damaged.write(30, [b"damaged"]) if name.endswith("log") else damaged.truncate(0)
    with open_broker(files, clock) as broker:
        clock.advance(limits.RETENTION_CHECK_MS)
        broker.run_due()
        assert broker.partition("orders", 0).log_start_offset == 1
        for _ in range(2):
            clock.advance(limits.RETENTION_CHECK_MS)
            broker.run_due()
        assert len([text for text in broker.warnings() if f"{1:020d}.log" in text]) == 1
        broker.alter_topic("orders", {"retention.bytes": 0})
        clock.advance(limits.RETENTION_CHECK_MS)
        broker.run_due()
        assert broker.partition("orders", 0).log_start_offset == 3  # how large it is can be told
