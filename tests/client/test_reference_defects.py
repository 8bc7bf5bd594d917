"""Defects of the teaching implementation that this log replaces; each one is shown not to be here.

It kept partitions as Python lists with a base offset beside them, and its state as JSON lines. What went wrong there:
retention after compaction reported a wrong start; emptying a compacted log reused offsets; reloading brought truncated
records back and forgot empty partitions and topic configs; members committed what they no longer owned; creating a
topic twice wiped it; partition -1 was the last one; auto-commit came before the records were dealt with.
"""

from __future__ import annotations

from pathlib import Path

import pytest

import foldlog
from foldlog.errors import NotAssigned, TopicExists, UnknownPartition
from foldlog.testing.sim_clock import SimClock

SMALL = {"foldlog.segment.records": 2, "retention.ms": 1000, "cleanup.policy": "compact,delete"}


def test_retention_after_compaction_reports_the_right_start(log: foldlog.Log, clock: SimClock) -> None:
    log.create_topic("balances", config=SMALL)
    for number in range(6):
        log.append("balances", b"%d" % number, key=b"same")
    log.compact("balances")
    clock.advance(10_000)
    last = [log.append("balances", b"new", key=b"k%d" % number).offset for number in range(3)]
    log.enforce_retention()
    start, end = log.offsets("balances")[0]
    records = list(log.read("balances"))
    assert end == 9
    assert [record.offset for record in records] == last
    assert 5 < start <= last[0], "after what expired, and not after what is there"


def test_emptying_a_compacted_log_reuses_no_offset(log: foldlog.Log, clock: SimClock) -> None:
    log.create_topic("balances", config=SMALL)
    for _ in range(5):
        log.append("balances", b"x", key=b"same")
    log.append("balances", None, key=b"same")
    log.compact("balances")
    clock.advance(10 * 24 * 3600 * 1000)
    log.compact("balances")
    log.enforce_retention()
    assert list(log.read("balances")) == []
    assert log.append("balances", b"next", key=b"same").offset == 6


def test_reloading_resurrects_nothing_and_forgets_nothing(tmp_path: Path, clock: SimClock) -> None:
    with foldlog.open(tmp_path, clock=clock) as log:
        log.create_topic("orders", partitions=3, config={"foldlog.segment.records": 2, "retention.ms": 1000})
        for number in range(6):
            log.append("orders", b"%d" % number, partition=1)
        clock.advance(10_000)
        log.append("orders", b"young", partition=1)
        log.enforce_retention()
        before = log.offsets("orders")
        config = log.topic("orders").config.effective()
    with foldlog.open(tmp_path, clock=clock) as log:
        assert log.offsets("orders") == before == {0: (0, 0), 1: (6, 7), 2: (0, 0)}
        assert [record.value for record in log.read("orders", 1)] == [b"young"]
        assert log.topic("orders").config.effective() == config
        assert log.append("orders", b"x", partition=2).offset == 0


def test_a_member_does_not_commit_what_it_no_longer_owns(log: foldlog.Log) -> None:
    log.create_topic("orders", partitions=2)
    first = log.consumer(["orders"], group="fraud", auto_commit=False)
    second = log.consumer(["orders"], group="fraud", auto_commit=False)
    (lost,) = second.assignment()
    with pytest.raises(NotAssigned):
        first.commit({lost: 0})
    second.commit({lost: 0})


def test_creating_a_topic_twice_leaves_it_as_it_is(log: foldlog.Log) -> None:
    log.create_topic("orders", partitions=2)
    log.append("orders", b"kept", partition=1)
    with pytest.raises(TopicExists):
        log.create_topic("orders", partitions=5)
    assert log.offsets("orders") == {0: (0, 0), 1: (0, 1)}
    assert [record.value for record in log.read("orders", 1)] == [b"kept"]


def test_partition_minus_one_is_nobodys(log: foldlog.Log) -> None:
    log.create_topic("orders", partitions=2)
    consumer = log.consumer(["orders"], group="fraud")
    calls = (
        lambda: log.append("orders", b"x", partition=-1),
        lambda: log.producer().send("orders", b"x", partition=-1),
        lambda: log.read("orders", -1),
        lambda: consumer.seek("orders", -1, 0),
        lambda: consumer.assign([("orders", -1)]),
        lambda: consumer.committed("orders", -1),
        lambda: log.reset_group("other", {("orders", -1): 0}),
    )
    for call in calls:
        with pytest.raises(UnknownPartition):
            call()
    with pytest.raises(NotAssigned):
        consumer.commit({("orders", -1): 0})
    assert log.offsets("orders") == {0: (0, 0), 1: (0, 0)}


def test_auto_commit_waits_until_records_were_dealt_with(log: foldlog.Log, clock: SimClock) -> None:
    log.create_topic("orders")
    for number in range(4):
        log.append("orders", b"%d" % number)
    consumer = log.consumer(["orders"], group="fraud", auto_offset_reset="earliest", auto_commit_interval_ms=1)
    in_hand = consumer.poll(max_records=2)
    clock.advance(1000)
    assert log.committed("fraud") == {}, "the consumer may crash now, and must then get these two again"
    consumer.poll(max_records=2)
    assert log.committed("fraud")[foldlog.TopicPartition("orders", 0)].offset == in_hand[-1].offset + 1
