"""Compaction: a second way to forget. The newest record of each key stays, at its own offset and in its own order."""

from __future__ import annotations

from pathlib import Path

import pytest

import foldlog
from behaviours.steps import offsets, partition_files, put

COMPACTED = {"cleanup.policy": "compact", "foldlog.segment.records": 2, "min.cleanable.dirty.ratio": 0}


def put_pairs(log: foldlog.Log, topic: str, *pairs: tuple[str, str | None]) -> None:
    for key, value in pairs:
        put(log, topic, value, key=key)


def table(log: foldlog.Log, topic: str) -> dict[str, str]:
    """What a state store seeded from the topic holds: the last value of each key, without the deleted ones."""
    state: dict[str, str] = {}
    for record in log.read(topic, 0):
        key = (record.key or b"").decode()
        if record.value is None:
            state.pop(key, None)
        else:
            state[key] = record.value.decode()
    return state


@pytest.fixture
def balances(log: foldlog.Log) -> foldlog.Log:
    """a, b, a, c, b, a sealed in three segments, and z in the active one."""
    log.create_topic("balances", partitions=1, config=COMPACTED)
    put_pairs(log, "balances", ("a", "1"), ("b", "1"), ("a", "2"), ("c", "1"), ("b", "2"), ("a", "3"), ("z", "1"))
    return log


def test_the_newest_record_of_each_key_stays_and_the_superseded_ones_go(balances: foldlog.Log) -> None:
    balances.compact("balances")
    assert [(record.key, record.value) for record in balances.read("balances", 0)] == [
        (b"c", b"1"),
        (b"b", b"2"),
        (b"a", b"3"),
        (b"z", b"1"),
    ]


def test_what_stays_keeps_its_offset_and_its_order(balances: foldlog.Log) -> None:
    before = {record.offset: record for record in balances.read("balances", 0)}
    balances.compact("balances")
    after = list(balances.read("balances", 0))
    assert offsets(after) == [3, 4, 5, 6]
    assert after == [before[record.offset] for record in after]
    assert balances.offsets("balances") == {0: (0, 7)}


def test_reading_at_a_compacted_offset_gives_the_next_record_that_is_left(balances: foldlog.Log) -> None:
    balances.compact("balances")
    for start, first in [(0, 3), (1, 3), (2, 3), (3, 3), (4, 4), (6, 6)]:
        assert offsets(balances.read("balances", 0, start=start, max_records=1)) == [first]


def test_a_state_store_seeded_from_a_compacted_topic_equals_one_fed_with_everything(balances: foldlog.Log) -> None:
    everything = table(balances, "balances")
    balances.compact("balances")
    assert table(balances, "balances") == everything == {"a": "3", "b": "2", "c": "1", "z": "1"}


def test_compacting_makes_the_log_smaller(log: foldlog.Log, directory: Path) -> None:
    log.create_topic("balances", partitions=1, config=COMPACTED | {"foldlog.segment.records": 20})
    put_pairs(log, "balances", *[("same", str(number)) for number in range(110)])
    before_bytes = sum(file.stat().st_size for file in partition_files(directory, "balances", ".log"))
    log.compact("balances")
    after_bytes = sum(file.stat().st_size for file in partition_files(directory, "balances", ".log"))
    assert after_bytes < before_bytes / 10
    assert offsets(log.read("balances", 0)) == [109]


def test_a_tombstone_deletes_its_key(log: foldlog.Log) -> None:
    log.create_topic("balances", partitions=1, config=COMPACTED)
    put_pairs(log, "balances", ("a", "1"), ("b", "1"), ("a", None), ("b", "2"), ("z", "1"))
    log.compact("balances")
    assert table(log, "balances") == {"b": "2", "z": "1"}
    assert next((record.key, record.value) for record in log.read("balances", 0)) == (b"a", None), (
        "the tombstone stays for delete.retention.ms, so that a reader that is behind learns of it"
    )


def test_a_tombstone_goes_too_once_every_reader_had_its_time(log: foldlog.Log) -> None:
    log.create_topic("balances", partitions=1, config=COMPACTED | {"delete.retention.ms": 0})
    put_pairs(log, "balances", ("a", "1"), ("b", "1"), ("a", None), ("b", "2"), ("z", "1"))
    log.compact("balances")
    put_pairs(log, "balances", ("z", "2"), ("z", "3"))
    log.compact("balances")
    assert b"a" not in {record.key for record in log.read("balances", 0)}


def test_readers_at_different_places_go_on_through_a_compaction(balances: foldlog.Log) -> None:
    early, late = iter(balances.read("balances", 0, start=0)), iter(balances.read("balances", 0, start=5))
    assert next(early).offset == 0
    assert next(late).offset == 5
    balances.compact("balances")
    rest = offsets(early)
    assert rest == sorted(rest)
    assert {3, 4, 5, 6} <= set(rest) <= set(range(1, 7))
    assert offsets(late) == [6]


def test_compaction_is_kept_by_a_restart(directory: Path) -> None:
    with foldlog.open(str(directory)) as log:
        log.create_topic("balances", partitions=1, config=COMPACTED)
        put_pairs(log, "balances", ("a", "1"), ("b", "1"), ("a", "2"), ("c", "1"), ("z", "1"))
        log.compact("balances")
        before = list(log.read("balances", 0))
    with foldlog.open(str(directory)) as log:
        assert list(log.read("balances", 0)) == before
        assert log.append("balances", "4", key="a").offset == 5


def test_a_topic_can_be_compacted_and_expire(log: foldlog.Log) -> None:
    log.create_topic(
        "balances", partitions=1, config=COMPACTED | {"cleanup.policy": "compact,delete", "retention.ms": 1}
    )
    for number in range(6):
        put(log, "balances", "old", key=f"k{number}", timestamp_ms=1_000_000)
    put(log, "balances", "new", key="z")
    log.compact("balances")
    log.enforce_retention()
    start, end = log.offsets("balances")[0]
    assert end == 7
    assert offsets(log.read("balances", 0, start=start)) == list(range(start, 7))
    assert start >= 6


def test_committed_offsets_live_in_a_compacted_topic_of_their_own(log: foldlog.Log, directory: Path) -> None:
    log.create_topic("orders", partitions=1)
    for number in range(3):
        log.append("orders", str(number))
    with log.consumer(["orders"], group="g", auto_offset_reset="earliest", auto_commit=False) as consumer:
        for _ in range(3):
            assert consumer.poll(max_records=1, timeout_ms=10_000)
            consumer.commit()
    assert partition_files(directory, "__consumer_offsets", ".log")
    assert log.offsets("__consumer_offsets")[0][1] >= 3
