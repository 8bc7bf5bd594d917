"""Defects of the reference implementation that must not come back: one test each, named after what is true instead."""

from __future__ import annotations

from pathlib import Path

import pytest

import foldlog
from behaviours.steps import (
    DAY_MS,
    now_ms,
    numbered,
    offsets,
    poll_records,
    poll_until,
    put,
    put_many,
    run_python,
    shared_out,
    values,
)
from foldlog.errors import FoldlogError, GroupError, TopicExists

BOTH = {
    "cleanup.policy": "compact,delete",
    "foldlog.segment.records": 2,
    "min.cleanable.dirty.ratio": 0,
    "retention.ms": 7 * DAY_MS,
}


def test_the_start_offset_is_right_when_retention_follows_compaction(log: foldlog.Log) -> None:
    log.create_topic("balances", partitions=1, config=BOTH)
    for key in "ababac":
        put(log, "balances", "old", key=key, timestamp_ms=now_ms() - 30 * DAY_MS)
    log.compact("balances")
    assert log.offsets("balances") == {0: (0, 6)}
    assert offsets(log.read("balances", 0)) == [3, 4, 5]
    for key in "abz":
        put(log, "balances", "new", key=key)
    log.enforce_retention()
    # The reference counted what compaction had removed a second time here.
    assert log.offsets("balances") == {0: (6, 9)}
    assert offsets(log.read("balances", 0, start=6)) == [6, 7, 8]


def test_emptying_a_compacted_log_reuses_no_offset(directory: Path) -> None:
    with foldlog.open(str(directory)) as log:
        log.create_topic("balances", partitions=1, config=BOTH | {"delete.retention.ms": 0})
        for key in "abcab":
            put(log, "balances", None, key=key, timestamp_ms=now_ms() - 30 * DAY_MS)
        for _ in range(2):
            log.compact("balances")
            log.enforce_retention()
        assert log.offsets("balances")[0][1] == 5
        assert put(log, "balances", "v", key="a").offset == 5
    with foldlog.open(str(directory)) as log:
        assert put(log, "balances", "v", key="a").offset == 6


def test_a_restart_brings_no_expired_record_back(directory: Path) -> None:
    with foldlog.open(str(directory)) as log:
        log.create_topic("orders", partitions=1, config={"foldlog.segment.records": 2, "retention.ms": 7 * DAY_MS})
        for age_days in (30, 30, 30, 30, 0):
            put(log, "orders", b"%d" % age_days, timestamp_ms=now_ms() - age_days * DAY_MS)
        log.enforce_retention()
        before = log.offsets("orders")
    with foldlog.open(str(directory)) as log:
        assert log.offsets("orders") == before == {0: (4, 5)}
        assert values(log.read("orders", 0, start=4)) == [b"0"]


def test_a_restart_forgets_no_empty_partition(directory: Path) -> None:
    with foldlog.open(str(directory)) as log:
        log.create_topic("orders", partitions=5)
        put(log, "orders", b"x", partition=2)
    with foldlog.open(str(directory)) as log:
        assert log.offsets("orders") == {0: (0, 0), 1: (0, 0), 2: (0, 1), 3: (0, 0), 4: (0, 0)}
        assert put(log, "orders", b"x", partition=4).offset == 0


def test_a_restart_forgets_no_topic_setting(directory: Path) -> None:
    with foldlog.open(str(directory)) as log:
        log.create_topic("orders", partitions=1, config={"foldlog.segment.records": 2, "retention.ms": DAY_MS})
    with foldlog.open(str(directory)) as log:
        for age_days in (3, 3, 0):
            put(log, "orders", b"%d" % age_days, timestamp_ms=now_ms() - age_days * DAY_MS)
        log.enforce_retention()
        assert log.offsets("orders") == {0: (2, 3)}, "rolled at two records, expired after a day: as it was created"


def test_a_member_cannot_commit_a_partition_it_lost(log: foldlog.Log) -> None:
    log.create_topic("orders", partitions=2)
    for partition in range(2):
        put_many(log, "orders", numbered(10), partition=partition)
    first = log.consumer(["orders"], group="fraud", auto_offset_reset="earliest", auto_commit=False)
    assert len(poll_records(first, 20)) == 20
    second = log.consumer(["orders"], group="fraud", auto_offset_reset="earliest", auto_commit=False)
    with first, second:
        poll_until([first, second], shared_out([first, second], "orders", 2))
        (lost,) = second.assignment()
        with pytest.raises(GroupError):
            first.commit({lost: 10})
        assert second.committed(*lost) is None


def test_creating_a_topic_twice_is_refused_and_changes_nothing(log: foldlog.Log) -> None:
    log.create_topic("orders", partitions=2)
    put_many(log, "orders", numbered(10), partition=1)
    with pytest.raises(TopicExists):
        log.create_topic("orders", partitions=1)
    assert log.offsets("orders") == {0: (0, 0), 1: (0, 10)}
    assert values(log.read("orders", 1)) == numbered(10)


def test_partition_minus_one_is_refused(log: foldlog.Log) -> None:
    log.create_topic("orders", partitions=2)
    with pytest.raises(FoldlogError):
        put(log, "orders", b"x", partition=-1)
    with pytest.raises(FoldlogError):
        list(log.read("orders", -1))
    assert log.offsets("orders") == {0: (0, 0), 1: (0, 0)}


POLL_AND_DIE = """
import os, sys, foldlog
log = foldlog.open(sys.argv[1])
consumer = log.consumer(["orders"], group="fraud", auto_offset_reset="earliest", auto_commit=True)
handed_out = []
while not handed_out:
    handed_out += consumer.poll(max_records=3, timeout_ms=1000)
print([record.offset for record in handed_out], flush=True)
os._exit(0)
"""


def test_auto_commit_never_runs_ahead_of_what_was_processed(directory: Path) -> None:
    with foldlog.open(str(directory)) as log:
        log.create_topic("orders", partitions=1)
        put_many(log, "orders", numbered(6))
    # Handed out, and dead before the next poll could say that they were processed.
    assert run_python(POLL_AND_DIE, str(directory)).strip() == "[0, 1, 2]"
    with (
        foldlog.open(str(directory)) as log,
        log.consumer(["orders"], group="fraud", auto_offset_reset="earliest") as consumer,
    ):
        assert offsets(poll_records(consumer, 6)) == [0, 1, 2, 3, 4, 5]


def test_auto_commit_keeps_what_was_processed(log: foldlog.Log) -> None:
    log.create_topic("orders", partitions=1)
    put_many(log, "orders", numbered(6))
    with log.consumer(["orders"], group="fraud", auto_offset_reset="earliest", auto_commit=True) as consumer:
        assert len(poll_records(consumer, 6)) == 6
        consumer.poll(max_records=1, timeout_ms=0)
    with log.consumer(["orders"], group="fraud", auto_offset_reset="earliest", auto_commit=True) as consumer:
        put_many(log, "orders", [b"seventh"])
        assert values(poll_records(consumer, 1)) == [b"seventh"]
