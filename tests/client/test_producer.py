"""The producer: when a batch closes, where a record goes, what a future says, and what happens when things fail.

In memory, on a clock that stands still unless it is moved: what resolves does so because of what the test did.
"""

from __future__ import annotations

import errno
import gc
import threading
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

import foldlog
from client.conftest import WAIT_S, Gate
from foldlog.errors import (
    CallerError,
    InvalidArgument,
    LogClosed,
    PartitionPoisoned,
    ReadOnly,
    RecordTooLarge,
    SerializationError,
    StorageFull,
    UnknownPartition,
    UnknownTopic,
    WaitTimeout,
)
from foldlog.files.memory import MemoryFiles
from foldlog.testing.faulty_files import NO_FAULT, Fault, FaultyFiles, Kind, Operation
from foldlog.testing.sim_clock import SimClock

FOREVER_MS = 1e12


def values(log: foldlog.Log, topic: str, partition: int = 0) -> list[Any]:
    return [record.value for record in log.read(topic, partition)]


# --- when a batch closes ----------------------------------------------------------------------------------------------


def test_a_batch_closes_at_its_record_count(log: foldlog.Log) -> None:
    log.create_topic("orders")
    with log.producer(linger_ms=FOREVER_MS, batch_records=3) as producer:
        sent = [producer.send("orders", b"%d" % number) for number in range(5)]
        assert [future.result(WAIT_S).offset for future in sent[:3]] == [0, 1, 2]
        assert not sent[3].done()
        assert not sent[4].done()
    assert [future.result(0).offset for future in sent] == [0, 1, 2, 3, 4]


def test_a_batch_closes_at_its_size(log: foldlog.Log) -> None:
    log.create_topic("orders")
    with log.producer(linger_ms=FOREVER_MS, batch_bytes=1000) as producer:
        sent = [producer.send("orders", b"x" * 300) for _ in range(4)]
        assert sent[0].result(WAIT_S).offset == 0
        assert not sent[3].done(), "the fourth did not fit and waits in the next batch"


def test_a_batch_closes_when_its_linger_is_over(log: foldlog.Log, clock: SimClock) -> None:
    log.create_topic("orders")
    with log.producer(linger_ms=20) as producer:
        sent = producer.send("orders", b"x")
        with pytest.raises(WaitTimeout):
            sent.result(0.001)
        clock.advance(20)
        assert sent.result(WAIT_S).offset == 0


def test_without_linger_a_batch_closes_by_itself(log: foldlog.Log) -> None:
    log.create_topic("orders")
    with log.producer(linger_ms=0) as producer:
        assert producer.send("orders", b"x").result(WAIT_S).offset == 0


def test_a_batch_never_grows_over_max_message_bytes(log: foldlog.Log) -> None:
    log.create_topic("orders", config={"max.message.bytes": 1000})
    with log.producer(batch_bytes=1 << 20) as producer:
        for _ in range(10):
            producer.send("orders", b"x" * 400)
        producer.flush()
    assert len(values(log, "orders")) == 10


@pytest.mark.parametrize("name", ["linger_ms", "batch_bytes", "batch_records", "buffer_bytes"])
@pytest.mark.parametrize("value", [-1, True, "5", None, float("nan")])
def test_a_setting_that_cannot_be_right_is_refused_by_name(log: foldlog.Log, name: str, value: Any) -> None:
    with pytest.raises(InvalidArgument, match=name):
        log.producer(**{name: value})


def test_an_unknown_compression_is_refused(log: foldlog.Log) -> None:
    with pytest.raises(InvalidArgument, match="brotli"):
        log.producer(compression="brotli")


@pytest.mark.parametrize("compression", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_what_is_sent_compressed_is_read_back(log: foldlog.Log, compression: str) -> None:
    log.create_topic("orders")
    with log.producer(compression=compression) as producer:
        for number in range(100):
            producer.send("orders", b"%d" % number * 50)
    assert values(log, "orders") == [b"%d" % number * 50 for number in range(100)]


# --- futures ----------------------------------------------------------------------------------------------------------


def test_a_future_resolves_only_after_the_sync(log: foldlog.Log, gate: Gate) -> None:
    log.create_topic("orders")
    producer = log.producer(linger_ms=0)
    gate.shut()
    sent = producer.send("orders", b"x")
    assert gate.reached.wait(WAIT_S)
    assert not sent.done()
    assert values(log, "orders") == []
    gate.open()
    assert sent.result(WAIT_S).offset == 0
    assert values(log, "orders") == [b"x"]


def test_metadata_names_the_place_and_the_time(log: foldlog.Log, clock: SimClock) -> None:
    log.create_topic("orders", partitions=3)
    with log.producer() as producer:
        given = producer.send("orders", b"x", partition=2, timestamp_ms=5)
        stamped = producer.send("orders", b"x", partition=2)
        producer.flush()
    assert given.result() == foldlog.RecordMetadata("orders", 2, 0, 5)
    assert stamped.result() == foldlog.RecordMetadata("orders", 2, 1, clock.now_ms())


def test_with_log_append_time_the_metadata_has_the_time_of_the_append(log: foldlog.Log, clock: SimClock) -> None:
    log.create_topic("orders", config={"message.timestamp.type": "LogAppendTime"})
    with log.producer() as producer:
        sent = producer.send("orders", b"x", timestamp_ms=5)
    assert sent.result().timestamp_ms == clock.now_ms()


def test_done_callbacks_run_once_each_and_a_failing_one_disturbs_nobody(log: foldlog.Log) -> None:
    log.create_topic("orders")
    called: list[int] = []

    def note(future: foldlog.SendFuture) -> None:
        called.append(future.result(0).offset)

    def fail(future: foldlog.SendFuture) -> None:
        raise RuntimeError("the caller's own mistake")

    with log.producer(linger_ms=FOREVER_MS) as producer:
        first, second = producer.send("orders", b"a"), producer.send("orders", b"b")
        first.add_done_callback(fail)
        first.add_done_callback(note)
        second.add_done_callback(note)
    assert called == [0, 1]
    second.add_done_callback(note)
    assert called == [0, 1, 1]


def test_flush_makes_everything_sent_so_far_durable(log: foldlog.Log) -> None:
    log.create_topic("orders", partitions=3)
    with log.producer(linger_ms=FOREVER_MS) as producer:
        sent = [producer.send("orders", b"x", key=b"%d" % number) for number in range(50)]
        producer.flush()
        assert all(future.done() for future in sent)


# --- where a record goes ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("partition", [-1, 3, True, "0", 1.0])
def test_a_partition_that_is_not_there_is_refused(log: foldlog.Log, partition: Any) -> None:
    log.create_topic("orders", partitions=3)
    with log.producer() as producer:
        with pytest.raises(UnknownPartition):
            producer.send("orders", b"x", partition=partition)
        producer.send("orders", b"x", partition=0)
        with pytest.raises(UnknownPartition):
            producer.send("orders", b"x", partition=partition)
    assert log.offsets("orders") == {0: (0, 1), 1: (0, 0), 2: (0, 0)}


def test_a_named_partition_wins_over_the_key(log: foldlog.Log) -> None:
    log.create_topic("orders", partitions=3)
    with log.producer() as producer:
        sent = {producer.send("orders", b"x", key=b"%d" % number, partition=1) for number in range(20)}
    assert {future.result().partition for future in sent} == {1}


MURMUR2 = {b"21": -973932308, b"foobar": -790332482, b"a-little-bit-long-string": -985981536, b"abc": 479470107}
"""Keys and their murmur2, as Kafka's own tests publish them."""


@pytest.mark.parametrize("key", MURMUR2)
def test_keys_go_where_java_clients_send_them(log: foldlog.Log, key: bytes) -> None:
    log.create_topic("orders", partitions=10)
    with log.producer() as producer:
        sent = producer.send("orders", b"x", key=key)
    assert sent.result().partition == (MURMUR2[key] & 0x7FFFFFFF) % 10
    assert log.append("orders", b"x", key=key).partition == sent.result().partition


def test_keyless_records_stick_to_a_partition_until_its_batch_closes(log: foldlog.Log) -> None:
    log.create_topic("orders", partitions=3)
    with log.producer(linger_ms=FOREVER_MS, batch_records=4) as producer:
        sent = [producer.send("orders", b"x") for _ in range(24)]
    partitions = [future.result().partition for future in sent]
    assert partitions == [number for number in [0, 1, 2, 0, 1, 2] for _ in range(4)]


def test_keyless_records_begin_with_the_emptiest_partition(log: foldlog.Log) -> None:
    log.create_topic("orders", partitions=3)
    for partition in (0, 1):
        log.append("orders", b"x", partition=partition)
    with log.producer() as producer:
        sent = producer.send("orders", b"x")
    assert sent.result().partition == 2


def test_round_robin_deals_out_record_by_record(log: foldlog.Log) -> None:
    log.create_topic("orders", partitions=3)
    with log.producer(partitioner="round_robin", batch_records=2) as producer:
        sent = [producer.send("orders", b"x") for _ in range(20)]
    assert [future.result().partition for future in sent] == [number % 3 for number in range(20)]


def test_a_partitioner_of_ones_own_decides_for_keyed_and_keyless_records(log: foldlog.Log) -> None:
    log.create_topic("orders", partitions=3)
    asked: list[tuple[str, bytes | None, int]] = []

    def last(topic: str, key: bytes | None, partition_count: int) -> int:
        asked.append((topic, key, partition_count))
        return partition_count - 1

    with log.producer(partitioner=last) as producer:
        sent = [producer.send("orders", b"x"), producer.send("orders", b"x", key="k")]
        named = producer.send("orders", b"x", partition=0)
    assert [future.result().partition for future in sent] == [2, 2]
    assert named.result().partition == 0
    assert asked == [("orders", None, 3), ("orders", b"k", 3)]


def test_a_partitioner_that_names_no_partition_is_refused(log: foldlog.Log) -> None:
    log.create_topic("orders", partitions=3)
    with log.producer(partitioner=lambda topic, key, count: -1) as producer, pytest.raises(UnknownPartition):
        producer.send("orders", b"x")


def test_an_unknown_partitioner_is_refused(log: foldlog.Log) -> None:
    with pytest.raises(InvalidArgument, match="round_robin"):
        log.producer(partitioner="random")


def test_a_topic_that_grows_is_followed(log: foldlog.Log) -> None:
    log.create_topic("orders")
    with log.producer(linger_ms=FOREVER_MS) as producer:
        producer.send("orders", b"before", partition=0)
        log.grow_topic("orders", 3)
        after = producer.send("orders", b"after", partition=2)
    assert after.result().partition == 2


def test_what_was_sent_to_a_deleted_topic_fails_and_says_so(log: foldlog.Log) -> None:
    log.create_topic("orders")
    log.create_topic("other")
    producer = log.producer(linger_ms=FOREVER_MS)
    sent = producer.send("orders", b"x")
    log.delete_topic("orders")
    with pytest.raises(UnknownTopic):
        producer.flush()
    with pytest.raises(UnknownTopic):
        sent.result(WAIT_S)
    assert producer.send("other", b"x") is not None
    producer.close()


def test_a_failed_send_does_not_replace_the_exception_that_ends_the_block(
    log: foldlog.Log, caplog: pytest.LogCaptureFixture
) -> None:
    log.create_topic("orders")
    producer = log.producer(linger_ms=FOREVER_MS)
    sent = producer.send("orders", b"x")
    log.delete_topic("orders")
    with pytest.raises(ZeroDivisionError), producer:
        raise ZeroDivisionError
    assert isinstance(sent.exception(WAIT_S), UnknownTopic)
    assert "some records were not written: no topic 'orders'" in caplog.text


def test_a_failed_send_is_raised_by_a_block_that_ends_well(log: foldlog.Log) -> None:
    log.create_topic("orders")
    producer = log.producer(linger_ms=FOREVER_MS)
    producer.send("orders", b"x")
    log.delete_topic("orders")
    with pytest.raises(UnknownTopic), producer:
        pass


def test_a_topic_that_was_created_again_gets_the_records_sent_to_it(log: foldlog.Log) -> None:
    log.create_topic("orders")
    with log.producer() as producer:
        producer.send("orders", b"old")
        producer.flush()
        log.delete_topic("orders")
        log.create_topic("orders", partitions=2)
        producer.send("orders", b"new", partition=1)
    assert values(log, "orders", 1) == [b"new"]


def test_an_unknown_topic_is_refused_with_what_to_do(log: foldlog.Log) -> None:
    with log.producer() as producer, pytest.raises(UnknownTopic, match="create_topic"):
        producer.send("orders", b"x")
    with pytest.raises(UnknownTopic):
        log.append("orders", b"x")


def test_a_keyless_record_for_a_compacted_topic_is_refused(log: foldlog.Log) -> None:
    log.create_topic("balances", config={"cleanup.policy": "compact"})
    with log.producer() as producer:
        with pytest.raises(InvalidArgument, match="key"):
            producer.send("balances", b"x")
        with pytest.raises(InvalidArgument, match="key"):
            producer.send_batch("balances", [{"value": b"x", "key": b"k"}, {"value": b"x"}])
        producer.send("balances", b"x", key=b"k")
    assert len(values(log, "balances")) == 1


# --- order and threads ------------------------------------------------------------------------------------------------


def test_order_in_a_partition_is_send_order_from_many_threads(log: foldlog.Log) -> None:
    log.create_topic("orders", partitions=2)
    start = threading.Barrier(4)

    def send_many(producer: foldlog.Producer, name: int) -> None:
        start.wait(WAIT_S)
        for number in range(500):
            producer.send("orders", b"%d" % number, key=b"%d" % name)

    with log.producer(linger_ms=1, batch_records=7) as producer:
        threads = [threading.Thread(target=send_many, args=(producer, name)) for name in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(WAIT_S)
    seen: dict[bytes, list[int]] = {}
    for partition in range(2):
        for record in log.read("orders", partition):
            seen.setdefault(record.key, []).append(int(record.value))
    assert seen == {b"%d" % name: list(range(500)) for name in range(4)}


def test_a_sender_waits_while_the_buffer_is_full_and_goes_on_when_it_is_not(log: foldlog.Log, gate: Gate) -> None:
    log.create_topic("orders")
    producer = log.producer(linger_ms=0, batch_bytes=1000, buffer_bytes=3000)
    gate.shut()
    sent: list[foldlog.SendFuture] = []
    sender = threading.Thread(target=lambda: sent.extend(producer.send("orders", b"x" * 900) for _ in range(20)))
    sender.start()
    assert gate.reached.wait(WAIT_S)
    sender.join(0.05)
    assert sender.is_alive()
    assert len(sent) < 10
    gate.open()
    sender.join(WAIT_S)
    producer.close()
    assert [future.result(0).offset for future in sent] == list(range(20))


# --- send_batch -------------------------------------------------------------------------------------------------------


def test_send_batch_gives_futures_in_order(log: foldlog.Log) -> None:
    log.create_topic("orders", partitions=2)
    with log.producer() as producer:
        sent = producer.send_batch(
            "orders",
            [
                {"value": {"n": 1}, "key": "k", "headers": [("h", b"1")], "timestamp_ms": 7},
                {"value": b"b", "partition": 1},
                {"value": b"c", "partition": 1},
                {},
            ],
        )
        assert producer.send_batch("orders", []) == []
    assert [(future.result().partition, future.result().offset) for future in sent[1:3]] in (
        [(1, 0), (1, 1)],
        [(1, 1), (1, 2)],
    )
    found = [record for partition in range(2) for record in log.read("orders", partition) if record.key == b"k"]
    assert [(record.value, record.headers, record.timestamp_ms) for record in found] == [
        (b'{"n":1}', (("h", b"1"),), 7)
    ]


@pytest.mark.parametrize(
    "bad",
    [
        {"value": b"x", "topic": "orders"},
        {"value": object()},
        {"value": b"x", "partition": 9},
        {"value": b"x", "timestamp_ms": -5},
        {"value": b"x", "headers": [("h", 5)]},
        {"value": b"x" * 2_000_000},
        b"not a dict",
    ],
    ids=["unknown key", "value", "partition", "timestamp", "headers", "too large", "not a dict"],
)
def test_a_bad_record_in_send_batch_is_named_and_nothing_is_sent(log: foldlog.Log, bad: Any) -> None:
    log.create_topic("orders")
    with log.producer() as producer:
        with pytest.raises((CallerError, UnknownPartition)) as caught:
            producer.send_batch("orders", [{"value": b"fine"}, bad])
        said = str(caught.value) + "".join(getattr(caught.value, "__notes__", []))
        assert "record 1 of the batch" in said
        producer.flush()
    assert log.offsets("orders") == {0: (0, 0)}


# --- what goes in -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "stored"),
    [
        (b"raw", b"raw"),
        (bytearray(b"raw"), b"raw"),
        (memoryview(b"rraww")[1:4], b"raw"),
        ("Zoë", "Zoë".encode()),
        ({"b": 1, "a": [True, None, 1.5]}, b'{"b":1,"a":[true,null,1.5]}'),
        (["Zoë"], '["Zoë"]'.encode()),
        (7, b"7"),
        (True, b"true"),
        (None, None),
    ],
)
def test_plain_values_go_in_without_ceremony(log: foldlog.Log, given: Any, stored: bytes | None) -> None:
    log.create_topic("orders")
    with log.producer() as producer:
        producer.send("orders", given, key=given)
    log.append("orders", given, key=given)
    assert [(record.key, record.value) for record in log.read("orders")] == [(stored, stored)] * 2


@pytest.mark.parametrize("value", [object(), {1, 2}, float("nan"), {"a": object()}, "\ud800"])
def test_what_has_no_bytes_of_its_own_is_refused_by_name(log: foldlog.Log, value: Any) -> None:
    log.create_topic("orders")
    with log.producer() as producer, pytest.raises(SerializationError, match="value of a record for 'orders'"):
        producer.send("orders", value)
    with pytest.raises(SerializationError, match="key of a record for 'orders'"):
        log.append("orders", b"x", key=value)


def test_serializers_are_chosen_by_name_or_given(log: foldlog.Log) -> None:
    log.create_topic("orders")
    with log.producer(value_serializer="json", key_serializer=lambda key: b"<%d>" % key) as producer:
        producer.send("orders", "text", key=5)
    record = next(log.read("orders"))
    assert (record.key, record.value) == (b"<5>", b'"text"')


def test_a_serializer_that_fails_or_returns_no_bytes_is_named(log: foldlog.Log) -> None:
    log.create_topic("orders")
    with log.producer(value_serializer=lambda value: value + 1) as producer:
        with pytest.raises(SerializationError, match="TypeError"):
            producer.send("orders", "text")
        with pytest.raises(SerializationError, match="returned int"):
            producer.send("orders", 1)
    with pytest.raises(InvalidArgument, match="'json'"):
        log.producer(value_serializer="pickle")


def test_headers_may_be_pairs_or_a_mapping_and_names_may_repeat(log: foldlog.Log) -> None:
    log.create_topic("orders")
    with log.producer() as producer:
        producer.send("orders", b"x", headers=[("a", b"1"), ("a", None), ("b", "text")])
        producer.send("orders", b"x", headers={"a": b"1"})
        with pytest.raises(SerializationError, match="name"):
            producer.send("orders", b"x", headers=[(b"a", b"1")])  # type: ignore[list-item]
        with pytest.raises(SerializationError, match="pairs"):
            producer.send("orders", b"x", headers=["abc"])  # type: ignore[list-item]
    assert [record.headers for record in log.read("orders")] == [
        (("a", b"1"), ("a", None), ("b", b"text")),
        (("a", b"1"),),
    ]


@pytest.mark.parametrize("timestamp_ms", [-1, 1.5, "now", True, 1 << 63])
def test_a_timestamp_that_cannot_be_is_refused(log: foldlog.Log, timestamp_ms: Any) -> None:
    log.create_topic("orders")
    with log.producer() as producer, pytest.raises(InvalidArgument, match="timestamp_ms"):
        producer.send("orders", b"x", timestamp_ms=timestamp_ms)


# --- failures ---------------------------------------------------------------------------------------------------------


def test_a_record_that_is_too_large_is_refused_and_the_producer_goes_on(log: foldlog.Log) -> None:
    log.create_topic("orders", config={"max.message.bytes": 1000})
    with log.producer() as producer:
        producer.send("orders", b"before")
        with pytest.raises(RecordTooLarge, match=r"max\.message\.bytes=1000"):
            producer.send("orders", b"x" * 1000)
        producer.send("orders", b"after")
    with pytest.raises(RecordTooLarge):
        log.append("orders", b"x" * 1000)
    assert values(log, "orders") == [b"before", b"after"]


def on_log_files(kind: Kind, error: int) -> Fault:
    """Every operation of that kind on a .log file fails."""

    def decide(operation: Operation) -> int:
        return error if operation.kind is kind and operation.path.endswith(".log") else 0

    return Fault(decide)


def with_faults(test: Callable[[foldlog.Log, FaultyFiles], None]) -> None:
    files = FaultyFiles(MemoryFiles())
    with foldlog.open("data", files=files, clock=SimClock(), background=False) as log:
        log.create_topic("orders")
        log.append("orders", b"before")
        test(log, files)


def test_a_full_disk_fails_the_futures_of_its_batch_and_sending_works_when_space_is_back() -> None:
    def test(log: foldlog.Log, files: FaultyFiles) -> None:
        with log.producer(linger_ms=FOREVER_MS, batch_records=2) as producer:
            files.fault = on_log_files(Kind.WRITE, errno.ENOSPC)
            lost = [producer.send("orders", b"lost") for _ in range(2)]
            for future in lost:
                with pytest.raises(StorageFull):
                    future.result(WAIT_S)
                assert isinstance(future.exception(), StorageFull)
            with pytest.raises(StorageFull):
                producer.flush()
            producer.flush()
            files.fault = NO_FAULT
            kept = producer.send("orders", b"kept")
        assert kept.result(0).offset == 1
        assert values(log, "orders") == [b"before", b"kept"]

    with_faults(test)


def test_an_error_that_leaves_the_block_is_not_told_again_by_the_log(caplog: pytest.LogCaptureFixture) -> None:
    def test(log: foldlog.Log, files: FaultyFiles) -> None:
        def failing(*, waits: bool) -> None:
            with log.producer(linger_ms=FOREVER_MS, batch_records=1) as producer:
                sent = producer.send("orders", b"lost")
                if waits:
                    sent.result(WAIT_S)
                raise ZeroDivisionError("the caller's own")

        files.fault = on_log_files(Kind.WRITE, errno.ENOSPC)
        with pytest.raises(StorageFull):
            failing(waits=True)
        assert caplog.messages == []
        with pytest.raises(ZeroDivisionError):
            failing(waits=False)
        (told,) = caplog.messages
        assert told.startswith("closing the producer after ZeroDivisionError(")
        files.fault = NO_FAULT

    with_faults(test)


def test_a_failed_sync_fails_everything_that_waited_for_it() -> None:
    def test(log: foldlog.Log, files: FaultyFiles) -> None:
        producer = log.producer(linger_ms=FOREVER_MS, batch_records=2)
        files.fault = on_log_files(Kind.SYNC, errno.EIO)
        sent = [producer.send("orders", b"x") for _ in range(4)]
        for future in sent:
            with pytest.raises(PartitionPoisoned):
                future.result(WAIT_S)
        with pytest.raises(PartitionPoisoned):
            producer.close()
        files.fault = NO_FAULT
        assert values(log, "orders") == [b"before"]

    with_faults(test)


def test_a_closed_producer_refuses_and_closing_twice_is_fine(log: foldlog.Log) -> None:
    log.create_topic("orders")
    producer = log.producer()
    sent = producer.send("orders", b"x")
    producer.close()
    producer.close()
    assert sent.done()
    with pytest.raises(LogClosed):
        producer.send("orders", b"x")
    with pytest.raises(LogClosed):
        producer.send_batch("orders", [{"value": b"x"}])


def test_closing_the_log_flushes_its_producers(clock: SimClock, files: MemoryFiles) -> None:
    log = foldlog.open("data", clock=clock, files=files)
    log.create_topic("orders")
    producer = log.producer(linger_ms=FOREVER_MS)
    sent = producer.send("orders", b"x")
    log.close()
    assert sent.result(0).offset == 0
    with pytest.raises(LogClosed):
        producer.send("orders", b"x")
    with foldlog.open("data", clock=clock, files=files) as again:
        assert values(again, "orders") == [b"x"]


def test_sending_to_a_log_that_is_only_read_is_refused(files: MemoryFiles) -> None:
    with foldlog.open("data", files=files) as log:
        log.create_topic("orders")
    with foldlog.open("data", "r", files=files) as reader:
        with reader.producer() as producer, pytest.raises(ReadOnly):
            producer.send("orders", b"x")
        with pytest.raises(ReadOnly):
            reader.append("orders", b"x")


def test_a_producer_that_is_dropped_is_collected_and_its_thread_ends(log: foldlog.Log) -> None:
    log.create_topic("orders")
    before = threading.active_count()
    producer = log.producer(linger_ms=0)
    producer.send("orders", b"x").result(WAIT_S)
    timer = next(thread for thread in threading.enumerate() if thread.name == "foldlog-linger")
    del producer
    gc.collect()
    timer.join(WAIT_S)
    assert not timer.is_alive()
    assert threading.active_count() <= before + 8, "the log's own syncer threads stay"


def test_records_spread_over_partitions_by_key_fairly(log: foldlog.Log) -> None:
    log.create_topic("orders", partitions=4)
    with log.producer() as producer:
        sent = [producer.send("orders", b"x", key=f"key-{number}") for number in range(2000)]
    counts = Counter(future.result().partition for future in sent)
    assert set(counts) == {0, 1, 2, 3}
    assert min(counts.values()) > 350


def test_a_done_callback_may_send_to_the_same_partition(log: foldlog.Log) -> None:
    log.create_topic("relaxed", config={"flush.messages": 1000})
    with log.producer(linger_ms=FOREVER_MS, batch_records=2) as producer:

        def answer(_: object) -> None:
            producer.send_batch("relaxed", [{"value": b"answer"}, {"value": b"and another"}])

        producer.send("relaxed", b"question").add_done_callback(answer)
        producer.send("relaxed", b"fills the batch")
    assert values(log, "relaxed") == [b"question", b"fills the batch", b"answer", b"and another"]
