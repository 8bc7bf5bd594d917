"""A record's time may be an hour ahead of the clock, whoever appends it: the library, a producer, or a broker."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

import foldlog
from foldlog.client.backends.directory import broker_of
from foldlog.errors import InvalidTimestamp
from foldlog.log.partition import Partition

AHEAD_MS = 2 * 60 * 60 * 1000


@pytest.fixture
def ahead_ms() -> int:
    return int(time.time() * 1000) + AHEAD_MS


def test_an_append_with_a_time_too_far_ahead_is_refused_and_keeps_nothing(ahead_ms: int) -> None:
    with foldlog.open(":memory:") as log:
        log.create_topic("orders", partitions=1)
        with pytest.raises(InvalidTimestamp, match=r"ahead of .* message\.timestamp\.after\.max\.ms=3600000"):
            log.append("orders", b"one", timestamp_ms=ahead_ms)
        with pytest.raises(InvalidTimestamp), log.producer() as producer:
            producer.send("orders", value=b"two", timestamp_ms=ahead_ms)
        assert list(log.read("orders", 0)) == []
        log.alter_topic("orders", {"message.timestamp.after.max.ms": 2 * AHEAD_MS})
        assert log.append("orders", b"three", timestamp_ms=ahead_ms).timestamp_ms == ahead_ms


def test_the_same_append_is_refused_where_another_process_writes(tmp_path: Path, ahead_ms: int) -> None:
    with foldlog.open(tmp_path, listen=True) as writer:
        writer.create_topic("orders", partitions=1)
        with foldlog.open(tmp_path) as other:
            with pytest.raises(InvalidTimestamp, match=r"message\.timestamp\.after\.max\.ms"):
                other.append("orders", b"one", timestamp_ms=ahead_ms)
            assert other.append("orders", b"two").offset == 0


def test_what_another_log_holds_is_taken_as_it_is(ahead_ms: int) -> None:
    with foldlog.open(":memory:") as log, foldlog.open(":memory:") as copy:
        log.create_topic("orders", partitions=1, config={"message.timestamp.after.max.ms": 2 * AHEAD_MS})
        copy.create_topic("orders", partitions=1)
        log.append("orders", b"one", timestamp_ms=ahead_ms)
        held, target = broker_of(log).partition("orders", 0), broker_of(copy).partition("orders", 0)
        assert isinstance(target, Partition)
        target.append(bytearray(held.read(0).data), stored=True)
        target.sync()
        assert [record.timestamp_ms for record in copy.read("orders", 0)] == [ahead_ms]
