"""A consumer on its own: what it hands out, where it stands, how it moves, and what it does when the log moves on.

In memory, on a clock that stands still unless it is moved.
"""

from __future__ import annotations

import threading
from typing import Any

import pytest

import foldlog
from client.conftest import WAIT_S
from foldlog.errors import (
    InvalidArgument,
    LogClosed,
    NotAssigned,
    OffsetOutOfRange,
    ReadOnly,
    SerializationError,
    UnknownPartition,
    UnknownTopic,
)
from foldlog.files.memory import MemoryFiles
from foldlog.testing.sim_clock import SimClock


def fill(log: foldlog.Log, topic: str, count: int, partition: int = 0, first: int = 0) -> None:
    with log.producer() as producer:
        for number in range(first, first + count):
            producer.send(topic, b"%d" % number, partition=partition)


def drain(consumer: foldlog.Consumer, max_records: int = 500) -> list[foldlog.Record]:
    records: list[foldlog.Record] = []
    while more := consumer.poll(max_records=max_records):
        records += more
    return records


def values(records: list[foldlog.Record]) -> list[Any]:
    return [record.value for record in records]


# --- handing out ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("max_records", [1, 3, 7, 500])
def test_poll_hands_out_everything_once_and_in_order(log: foldlog.Log, max_records: int) -> None:
    log.create_topic("orders")
    fill(log, "orders", 100)
    consumer = log.consumer(["orders"], auto_offset_reset="earliest")
    records = drain(consumer, max_records)
    assert [record.offset for record in records] == list(range(100))
    assert values(records) == [b"%d" % number for number in range(100)]
    assert consumer.position("orders", 0) == 100
    assert consumer.lag() == {("orders", 0): 0}


def test_poll_never_hands_out_more_than_asked_for(log: foldlog.Log) -> None:
    log.create_topic("orders", partitions=3)
    for partition in range(3):
        fill(log, "orders", 50, partition)
    consumer = log.consumer(["orders"], auto_offset_reset="earliest", max_records=7)
    assert len(consumer.poll()) == 7
    assert len(consumer.poll(max_records=120)) == 120
    assert len(consumer.poll(max_records=500)) == 23


def test_partitions_take_turns(log: foldlog.Log) -> None:
    log.create_topic("orders", partitions=3)
    for partition in range(3):
        fill(log, "orders", 50, partition)
    consumer = log.consumer(["orders"], auto_offset_reset="earliest")
    seen = [consumer.poll(max_records=5)[0].partition for _ in range(6)]
    assert sorted(seen[:3]) == [0, 1, 2]
    assert seen[:3] == seen[3:]


def test_poll_waits_for_what_is_written_meanwhile(log: foldlog.Log) -> None:
    log.create_topic("orders")
    consumer = log.consumer(["orders"])
    polled: list[foldlog.Record] = []
    waiting = threading.Thread(target=lambda: polled.extend(consumer.poll(timeout_ms=WAIT_S * 1000)))
    waiting.start()
    log.append("orders", b"paid")
    waiting.join(WAIT_S)
    assert values(polled) == [b"paid"]


def test_poll_returns_nothing_when_nothing_came(log: foldlog.Log) -> None:
    log.create_topic("orders")
    consumer = log.consumer(["orders"])
    assert consumer.poll() == []
    assert consumer.poll(timeout_ms=1) == []


def test_latest_begins_at_the_end_as_it_was_when_the_consumer_was_made(log: foldlog.Log) -> None:
    log.create_topic("orders")
    log.append("orders", b"before")
    consumer = log.consumer(["orders"])
    log.append("orders", b"after")
    assert values(drain(consumer)) == [b"after"]


def test_iterating_tails_and_ends_when_the_consumer_is_closed(log: foldlog.Log) -> None:
    log.create_topic("orders")
    fill(log, "orders", 3)
    consumer = log.consumer(["orders"], auto_offset_reset="earliest")
    seen: list[Any] = []
    caught_up = threading.Event()

    def follow() -> None:
        for record in consumer:
            seen.append(record.value)
            if len(seen) == 4:
                caught_up.set()

    following = threading.Thread(target=follow)
    following.start()
    log.append("orders", b"later")
    assert caught_up.wait(WAIT_S)
    consumer.close()
    following.join(WAIT_S)
    assert not following.is_alive()
    assert seen == [b"0", b"1", b"2", b"later"]


def test_a_topic_that_grows_is_read_from_the_start_of_its_new_partitions(log: foldlog.Log) -> None:
    log.create_topic("orders")
    consumer = log.consumer(["orders"])
    log.grow_topic("orders", 2)
    log.append("orders", b"in the new one", partition=1)
    assert values(drain(consumer)) == [b"in the new one"]


def test_a_deleted_topic_is_said_to_be_gone(log: foldlog.Log) -> None:
    log.create_topic("orders")
    fill(log, "orders", 3)
    consumer = log.consumer(auto_offset_reset="earliest")
    consumer.assign([("orders", 0)])
    log.delete_topic("orders")
    with pytest.raises(UnknownTopic):
        consumer.poll()


def test_deserializers_turn_bytes_back_and_leave_tombstones_alone(log: foldlog.Log) -> None:
    log.create_topic("orders")
    log.append("orders", {"n": 1}, key="k")
    log.append("orders", None, key="k")
    consumer = log.consumer(["orders"], auto_offset_reset="earliest", value_deserializer="json", key_deserializer="str")
    assert [(record.key, record.value) for record in consumer.poll()] == [("k", {"n": 1}), ("k", None)]


def test_a_record_that_cannot_be_deserialized_is_named_and_can_be_passed(log: foldlog.Log) -> None:
    log.create_topic("orders")
    for value in (b"1", b"2", b"{", b"4"):
        log.append("orders", value)
    consumer = log.consumer(["orders"], auto_offset_reset="earliest", value_deserializer="json")
    assert values(consumer.poll()) == [1, 2]
    for _ in range(2):
        with pytest.raises(SerializationError, match="value at offset 2 of orders-0"):
            consumer.poll()
    consumer.seek("orders", 0, consumer.position("orders", 0) + 1)
    assert values(consumer.poll()) == [4]


# --- moving about -----------------------------------------------------------------------------------------------------


def test_seeking_by_offset_by_name_and_by_time(log: foldlog.Log) -> None:
    log.create_topic("orders")
    for number in range(10):
        log.append("orders", b"%d" % number, timestamp_ms=1000 * number)
    consumer = log.consumer(["orders"])
    consumer.seek("orders", 0, 4)
    assert values(consumer.poll(max_records=2)) == [b"4", b"5"]
    consumer.seek_to_beginning()
    assert values(consumer.poll(max_records=1)) == [b"0"]
    consumer.seek_to_end(("orders", 0))
    assert consumer.poll() == []
    consumer.seek_to_time(6500)
    assert values(consumer.poll(max_records=1)) == [b"7"]
    consumer.seek_to_time(99_000)
    assert consumer.position("orders", 0) == 10


@pytest.mark.parametrize("offset", [-1, True, "3", 1.0, None])
def test_an_offset_that_cannot_be_is_refused(log: foldlog.Log, offset: Any) -> None:
    log.create_topic("orders")
    consumer = log.consumer(["orders"])
    with pytest.raises(InvalidArgument):
        consumer.seek("orders", 0, offset)


def test_a_partition_that_is_not_assigned_cannot_be_moved_in(log: foldlog.Log) -> None:
    log.create_topic("orders", partitions=2)
    consumer = log.consumer()
    consumer.assign([("orders", 0)])
    with pytest.raises(NotAssigned, match="orders-1"):
        consumer.seek("orders", 1, 0)
    with pytest.raises(UnknownPartition):
        consumer.position("orders", 5)
    with pytest.raises(UnknownTopic):
        consumer.assign([("nothing", 0)])
    with pytest.raises(InvalidArgument):
        consumer.assign(["orders"])  # type: ignore[list-item]
    assert consumer.assignment() == {("orders", 0)}


def test_a_paused_partition_hands_out_nothing_until_it_is_resumed(log: foldlog.Log) -> None:
    log.create_topic("orders", partitions=2)
    for partition in range(2):
        fill(log, "orders", 5, partition)
    consumer = log.consumer(["orders"], auto_offset_reset="earliest")
    consumer.pause(("orders", 0))
    assert {record.partition for record in drain(consumer)} == {1}
    consumer.resume(("orders", 0))
    assert {record.partition for record in drain(consumer)} == {0}


def test_subscribing_to_a_topic_that_does_not_exist_is_refused(log: foldlog.Log) -> None:
    log.create_topic("orders")
    with pytest.raises(UnknownTopic, match=r"payments.*create_topic"):
        log.consumer(["orders", "payments"])
    with pytest.raises(InvalidArgument):
        log.consumer([])


@pytest.mark.parametrize(
    "settings",
    [
        {"auto_offset_reset": "newest"},
        {"assignor": "random"},
        {"group": ""},
        {"max_records": 0},
        {"max_poll_interval_ms": -1},
        {"auto_commit_interval_ms": 0},
        {"value_deserializer": "pickle"},
    ],
)
def test_a_setting_that_cannot_be_right_is_refused(log: foldlog.Log, settings: dict[str, Any]) -> None:
    with pytest.raises(InvalidArgument):
        log.consumer(**settings)


# --- when the log moves on --------------------------------------------------------------------------------------------

SHORT = {"foldlog.segment.records": 5, "retention.ms": 1000}


def expire_the_old_ones(log: foldlog.Log, clock: SimClock) -> None:
    clock.advance(10_000)
    log.append("orders", b"young")
    assert log.enforce_retention() > 0


def test_a_reader_that_retention_passed_goes_on_where_it_was_told(log: foldlog.Log, clock: SimClock) -> None:
    log.create_topic("orders", config=SHORT)
    for number in range(12):
        log.append("orders", b"%d" % number)
    readers = {reset: log.consumer(auto_offset_reset=reset) for reset in ("earliest", "latest", "none")}
    for reader in readers.values():
        reader.assign([("orders", 0)])
        reader.seek("orders", 0, 0)
    expire_the_old_ones(log, clock)
    start, end = log.offsets("orders")[0]
    assert 0 < start < end
    assert [record.offset for record in drain(readers["earliest"])] == list(range(start, end))
    assert drain(readers["latest"]) == []
    assert readers["latest"].position("orders", 0) == end
    with pytest.raises(OffsetOutOfRange, match=r"retention"):
        readers["none"].poll()


def test_an_offset_beyond_the_end_is_out_of_range_too(log: foldlog.Log) -> None:
    log.create_topic("orders")
    fill(log, "orders", 3)
    consumer = log.consumer(["orders"], auto_offset_reset="earliest")
    consumer.seek("orders", 0, 100)
    assert [record.offset for record in drain(consumer)] == [0, 1, 2]


def test_gaps_that_compaction_left_are_passed(log: foldlog.Log) -> None:
    log.create_topic("prices", config={"cleanup.policy": "compact", "foldlog.segment.records": 10})
    for number in range(40):
        log.append("prices", b"%d" % number, key=b"tea")
    log.compact("prices")
    consumer = log.consumer(["prices"], auto_offset_reset="earliest")
    offsets = [record.offset for record in drain(consumer)]
    assert offsets[-1] == 39
    assert len(offsets) < 40
    assert consumer.lag() == {("prices", 0): 0}


# --- closing, and other processes -------------------------------------------------------------------------------------


def test_a_closed_consumer_refuses_and_closing_twice_is_fine(log: foldlog.Log) -> None:
    log.create_topic("orders")
    consumer = log.consumer(["orders"])
    consumer.close()
    consumer.close()
    for call in (consumer.poll, consumer.assignment, consumer.commit, consumer.lag):
        with pytest.raises(LogClosed):
            call()
    assert list(consumer) == []


def test_without_a_group_there_is_nothing_to_commit(log: foldlog.Log) -> None:
    log.create_topic("orders")
    consumer = log.consumer(["orders"])
    with pytest.raises(InvalidArgument, match="group"):
        consumer.commit()
    with pytest.raises(InvalidArgument, match="group"):
        consumer.committed("orders", 0)


def test_a_reading_process_follows_but_does_not_join_or_commit(files: MemoryFiles) -> None:
    with foldlog.open("data", files=files) as log, foldlog.open("data", "r", files=files) as reader:
        log.create_topic("orders")
        fill(log, "orders", 5)
        log.reset_group("fraud", {("orders", 0): 3})
        with pytest.raises(ReadOnly, match="assign"):
            reader.consumer(["orders"], group="fraud")
        consumer = reader.consumer(group="fraud")
        consumer.assign([("orders", 0)])
        assert [record.offset for record in consumer.poll()] == [3, 4]
        with pytest.raises(ReadOnly, match="commit"):
            consumer.commit()
        following = reader.consumer(["orders"])
        log.append("orders", b"new")
        assert values(following.poll(timeout_ms=WAIT_S * 1000)) == [b"new"]
        assert reader.committed("fraud")[foldlog.TopicPartition("orders", 0)].offset == 3
        assert reader.lag("fraud") == {("orders", 0): 3}


def test_a_consumer_that_reads_nothing_does_not_wait_for_ever(log: foldlog.Log) -> None:
    log.create_topic("orders")
    consumer = log.consumer()
    with pytest.raises(InvalidArgument, match=r"subscribe\(\).*assign\(\)"):
        next(iter(consumer))
    with pytest.raises(InvalidArgument, match=r"subscribe\(\).*assign\(\)"):
        consumer.poll(timeout_ms=None)
    assert consumer.poll() == []
    assert consumer.poll(timeout_ms=1) == []
    consumer.subscribe(["orders"])
    consumer.unsubscribe()
    with pytest.raises(InvalidArgument):
        next(iter(consumer))


@pytest.mark.parametrize("number", [True, False, 0.0, "0", None])
def test_only_an_int_names_a_partition(log: foldlog.Log, number: Any) -> None:
    log.create_topic("orders", partitions=2)
    with log.consumer(["orders"], group="fraud") as consumer:
        for ask in (consumer.position, consumer.committed, lambda topic, which: consumer.seek(topic, which, 0)):
            with pytest.raises(UnknownPartition):
                ask("orders", number)


@pytest.mark.parametrize("place", range(10))
def test_a_seek_forgets_what_was_decoded_ahead(log: foldlog.Log, place: int) -> None:
    """Ten records are one slice of the log: nine are decoded and wait when the consumer is sent elsewhere."""
    log.create_topic("orders")
    with log.producer() as producer:
        for number in range(10):
            producer.send("orders", str(number))
    with log.consumer(["orders"], auto_offset_reset="earliest") as consumer:
        assert [record.offset for record in consumer.poll(max_records=1)] == [0]
        consumer.seek("orders", 0, place)
        assert consumer.position("orders", 0) == place
        assert [record.offset for record in consumer.poll(max_records=10)] == list(range(place, 10))


@pytest.mark.parametrize(("move", "first"), [("start", 0), ("time", 6), ("end", 10)])
def test_every_way_to_move_forgets_what_was_decoded_ahead(log: foldlog.Log, move: str, first: int) -> None:
    log.create_topic("orders")
    for number in range(10):
        log.append("orders", str(number), timestamp_ms=1000 + number)
    with log.consumer(["orders"], auto_offset_reset="earliest") as consumer:
        consumer.poll(max_records=3)
        if move == "start":
            consumer.seek_to_beginning()
        elif move == "time":
            consumer.seek_to_time(1006)
        else:
            consumer.seek_to_end()
        log.append("orders", "10", timestamp_ms=1010)
        assert [record.offset for record in consumer.poll(max_records=20)] == list(range(first, 11))
