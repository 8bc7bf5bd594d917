"""Replay: whatever is still in the log can be read again, from any offset or moment, with the same result."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable
from itertools import islice

import pytest

import foldlog
from behaviours.steps import HOUR_MS, now_ms, numbered, offsets, poll_records, put, put_many, values


def test_replay_from_the_start_gives_the_whole_history(log: foldlog.Log) -> None:
    log.create_topic("payments", partitions=1)
    put_many(log, "payments", numbered(100))
    assert values(log.read("payments", 0, start=0)) == numbered(100)


def test_replaying_twice_gives_the_same_records(log: foldlog.Log) -> None:
    log.create_topic("payments", partitions=1)
    put_many(log, "payments", numbered(100))
    assert list(log.read("payments", 0, start=42)) == list(log.read("payments", 0, start=42))


def six_hours_of_payments(log: foldlog.Log) -> int:
    """Twelve records, one every half hour until now; the time of the last."""
    log.create_topic("payments", partitions=1)
    last_ms = now_ms()
    for number in range(12):
        put(log, "payments", b"%d" % number, timestamp_ms=last_ms - (11 - number) * HOUR_MS // 2)
    return last_ms


def test_a_reader_finds_the_offset_of_a_moment(log: foldlog.Log) -> None:
    last_ms = six_hours_of_payments(log)
    assert log.offsets_at("payments", timestamp_ms=last_ms - HOUR_MS) == {0: 9}
    # Between two records: the first that is not earlier.
    assert log.offsets_at("payments", timestamp_ms=last_ms - HOUR_MS + 1) == {0: 10}
    assert log.offsets_at("payments", timestamp_ms=0) == {0: 0}


def test_a_consumer_rewinds_by_time_and_reads_again(log: foldlog.Log) -> None:
    last_ms = six_hours_of_payments(log)
    with log.consumer(["payments"], group="analytics", auto_offset_reset="earliest", auto_commit=False) as consumer:
        assert len(poll_records(consumer, 12)) == 12
        consumer.commit()
        consumer.seek_to_time(last_ms - 2 * HOUR_MS)
        assert offsets(poll_records(consumer, 5)) == [7, 8, 9, 10, 11]


def test_a_consumer_seeks_to_any_offset_to_the_beginning_and_to_the_end(log: foldlog.Log) -> None:
    log.create_topic("payments", partitions=1)
    put_many(log, "payments", numbered(20))
    with log.consumer(["payments"], group="analytics", auto_offset_reset="earliest", auto_commit=False) as consumer:
        assert len(poll_records(consumer, 20)) == 20
        consumer.seek("payments", 0, 13)
        assert consumer.position("payments", 0) == 13
        assert offsets(poll_records(consumer, 7)) == list(range(13, 20))
        consumer.seek_to_beginning()
        assert offsets(poll_records(consumer, 20)) == list(range(20))
        consumer.seek("payments", 0, 0)
        consumer.seek_to_end()
        put(log, "payments", b"new")
        assert values(poll_records(consumer, 1)) == [b"new"]


def test_rewinding_the_committed_offset_resets_a_group(log: foldlog.Log) -> None:
    log.create_topic("payments", partitions=1)
    put_many(log, "payments", numbered(10))
    with log.consumer(["payments"], group="buggy", auto_offset_reset="earliest", auto_commit=False) as consumer:
        assert len(poll_records(consumer, 10)) == 10
        consumer.commit()
        consumer.seek("payments", 0, 4)
        consumer.commit()
    with log.consumer(["payments"], group="buggy", auto_offset_reset="earliest", auto_commit=False) as fixed:
        assert offsets(poll_records(fixed, 6)) == [4, 5, 6, 7, 8, 9]


def test_committing_is_a_bookmark_and_deletes_nothing(log: foldlog.Log) -> None:
    log.create_topic("payments", partitions=1)
    put_many(log, "payments", numbered(10))
    with log.consumer(["payments"], group="fraud", auto_offset_reset="earliest", auto_commit=False) as consumer:
        assert len(poll_records(consumer, 10)) == 10
        consumer.commit()
    assert log.offsets("payments") == {0: (0, 10)}
    assert values(log.read("payments", 0)) == numbered(10)


class Stopped(Exception):
    """The power, as far as the consumer can tell."""


def add_up(database: sqlite3.Connection, records: Iterable[foldlog.Record], stop_after: int | None = None) -> None:
    """A consumer that keeps its offset with its state: both change in one transaction, or neither does."""
    for count, record in enumerate(records):
        with database:
            database.execute("UPDATE totals SET paise = paise + ?", (record.json()["paise"],))
            if count == stop_after:
                raise Stopped
            database.execute("UPDATE bookmark SET next_offset = ?", (record.offset + 1,))


def test_a_consumer_that_keeps_its_offset_with_its_state_counts_once_whatever_is_replayed(log: foldlog.Log) -> None:
    log.create_topic("payments", partitions=1)
    for number in range(10):
        log.append("payments", {"paise": 10**number})
    database = sqlite3.connect(":memory:")
    database.execute("CREATE TABLE totals (paise INTEGER)")
    database.execute("CREATE TABLE bookmark (next_offset INTEGER)")
    database.execute("INSERT INTO totals VALUES (0)")
    database.execute("INSERT INTO bookmark VALUES (0)")
    database.commit()

    for stop_after in (0, 3, 2, None):
        (start,) = database.execute("SELECT next_offset FROM bookmark").fetchone()
        records = list(log.read("payments", 0, start=start))
        if stop_after is None:
            add_up(database, records)
        else:
            with pytest.raises(Stopped):
                add_up(database, records, stop_after)

    assert database.execute("SELECT paise FROM totals").fetchone() == (1_111_111_111,)
    assert database.execute("SELECT next_offset FROM bookmark").fetchone() == (10,)


def test_a_crashed_consumer_gets_the_record_again(log: foldlog.Log) -> None:
    """The queue of the story lost it: popped, and gone. Here the bookmark simply did not move."""
    log.create_topic("payments", partitions=1)
    put_many(log, "payments", numbered(5))
    consumer = log.consumer(["payments"], group="rules", auto_offset_reset="earliest", auto_commit=False)
    handed_out = poll_records(consumer, 5)
    consumer.close()
    with log.consumer(["payments"], group="rules", auto_offset_reset="earliest", auto_commit=False) as restarted:
        assert poll_records(restarted, 5) == handed_out


def test_a_derived_view_is_rebuilt_by_replaying(log: foldlog.Log) -> None:
    log.create_topic("payments", partitions=1)
    live: dict[str, int] = {}
    feed = iter(log.read("payments", 0, start=0, follow=True))
    for number in range(50):
        merchant = f"m{number % 7}"
        log.append("payments", {"paise": number}, key=merchant)
        record = next(feed)
        live[merchant] = live.get(merchant, 0) + record.json()["paise"]
    rebuilt: dict[str, int] = {}
    for record in islice(log.read("payments", 0, start=0), 50):
        merchant = (record.key or b"").decode()
        rebuilt[merchant] = rebuilt.get(merchant, 0) + record.json()["paise"]
    assert rebuilt == live
