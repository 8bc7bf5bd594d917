"""Consumers without a group on a cluster: over our own connections alone, and as patient as those with one.

What a consumer does wherever its log is, is in test_one_api.py; how its partitions are fetched, in
tests/client/wire/test_leader_fetch.py.
"""

from __future__ import annotations

import gc
import os
import signal
import threading
import weakref
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any

import pytest

import foldlog
from client.backends.cluster.test_kafka_hangs import Served
from client.log_places import WAIT_MS, handles_of, polled
from client.wire.simulated_cluster import Mishap, SimulatedCluster
from foldlog import errors
from foldlog.client.backends.cluster.cursors import ClusterCursor, PartitionNow
from foldlog.client.backends.cluster.direct import DirectConsumption
from foldlog.client.backends.cluster.handles import Handles
from foldlog.client.wire.leader_fetch import LeaderFetcher
from foldlog.limits import CONSUMER_BUFFER_BYTES
from foldlog.records.loops import decode, pack
from foldlog.testing import KafkaBroker
from foldlog.wire.messages.fetch import FetchRequest
from foldlog.wire.schema import Request

PROPERTIES = {"retry.backoff.ms": 1, "retry.backoff.max.ms": 2, "topic.metadata.refresh.interval.ms": 50}


@pytest.fixture
def broker() -> Iterator[KafkaBroker]:
    with KafkaBroker.launch() as launched:
        yield launched


@pytest.fixture
def log(broker: KafkaBroker, monkeypatch: pytest.MonkeyPatch) -> Iterator[foldlog.Log]:
    """No consumer of librdkafka's can be made."""
    monkeypatch.setattr(Handles, "consumer", lambda *_: pytest.fail("librdkafka was asked for a consumer"))
    with foldlog.connect(f"kafka://{broker}", properties=PROPERTIES) as connected:
        yield connected


def filled(log: foldlog.Log, count: int, partitions: int = 1) -> None:
    log.create_topic("orders", partitions=partitions)
    for number in range(count):
        log.append("orders", str(number), partition=number % partitions)


def values(records: list[foldlog.Record]) -> list[Any]:
    return [record.value for record in records]


def fetcher_of(consumer: foldlog.Consumer) -> LeaderFetcher:
    reading = consumer._reading
    assert isinstance(reading, DirectConsumption)
    assert reading._fetcher is not None
    return reading._fetcher


# --- reading ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("is_subscribed", [True, False])
def test_no_consumer_of_librdkafkas_is_made(log: foldlog.Log, is_subscribed: bool) -> None:
    filled(log, 6, partitions=3)
    with log.consumer(auto_offset_reset="earliest") as consumer:
        if is_subscribed:
            consumer.subscribe(["orders"])
        else:
            consumer.assign([("orders", number) for number in range(3)])
        assert sorted(values(polled(consumer, 6))) == [b"%d" % number for number in range(6)]
        assert set(consumer.lag().values()) == {0}


def test_a_poll_that_does_not_wait_finds_what_came_since_the_last(log: foldlog.Log) -> None:
    filled(log, 3)
    with log.consumer(["orders"], auto_offset_reset="earliest") as consumer:
        found: list[foldlog.Record] = []
        while not found:
            found = consumer.poll(timeout_ms=0)
        assert values(found) == [b"0", b"1", b"2"]


def test_what_was_asked_for_is_answered_while_the_caller_works(log: foldlog.Log) -> None:
    """The next fetch is on its way when a poll returns what the last one brought."""
    filled(log, 3)
    with log.consumer(["orders"], auto_offset_reset="earliest", max_records=1) as consumer:
        assert values(consumer.poll(timeout_ms=WAIT_MS)) == [b"0"]
        assert [leader.asked is not None for leader in fetcher_of(consumer)._leaders.values()] == [True]


def test_a_loop_takes_partitions_in_turns(log: foldlog.Log) -> None:
    filled(log, 40, partitions=2)
    with log.consumer(["orders"], auto_offset_reset="earliest") as consumer:
        until_ahead(consumer, 2)
        seen = [record.partition for record in islice(consumer, 40)]
    assert seen in ([0, 1] * 20, [1, 0] * 20)


def until_ahead(consumer: foldlog.Consumer, partitions: int) -> None:
    """Something of each has come."""
    fetcher = fetcher_of(consumer)
    while sum(one.is_unread for one in fetcher._positions.values()) < partitions:
        fetcher.poll(WAIT_MS / 1000)


def test_what_is_decoded_ahead_is_bounded_however_well_it_is_compressed(log: foldlog.Log) -> None:
    """One answer holds them all, and expands to more than twice of what may be decoded."""
    log.create_topic("orders")
    size = 900_000
    count = 2 * CONSUMER_BUFFER_BYTES // size + 1
    with log.producer(compression="zstd") as producer:
        for number in range(count):
            producer.send("orders", bytes([number]) * size).result(WAIT_MS / 1000)
    with log.consumer(["orders"], auto_offset_reset="earliest", max_records=1) as consumer:
        seen = []
        for _ in range(count):
            [record] = consumer.poll(timeout_ms=WAIT_MS)
            seen.append(record.value[:1])
            cursor = next(iter(consumer._reading.chosen([])))
            assert cursor.ahead * size <= CONSUMER_BUFFER_BYTES  # type: ignore[attr-defined]
    assert seen == [bytes([number]) for number in range(count)]


# --- what is not there any more ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("reset", "position", "expected"), [("earliest", 5, [b"5", b"6", b"7"]), ("latest", 7, [b"7"])]
)
def test_what_was_deleted_is_left_for_where_the_reset_says(
    log: foldlog.Log, reset: str, position: int, expected: list[bytes], caplog: pytest.LogCaptureFixture
) -> None:
    filled(log, 7)
    with log.consumer(auto_offset_reset=reset) as consumer:
        consumer.assign([("orders", 0)])
        consumer.seek("orders", 0, 1)
        log.delete_records("orders", {0: 5})
        found: list[foldlog.Record] = []
        while "going on at" not in caplog.text:
            found += consumer.poll(timeout_ms=10)
        assert consumer.position("orders", 0) == position + len(found)
        log.append("orders", "7")
        assert values([*found, *polled(consumer, len(expected) - len(found))]) == expected
    assert "offset 1 of orders-0 is not in the log" in caplog.text


class Nothing:
    """A source that has nothing more, and notes what it is told."""

    def __init__(self) -> None:
        self.moved_to: list[int] = []

    def moved(self, cursor: ClusterCursor) -> None:
        self.moved_to.append(cursor.position)

    def paused(self, cursor: ClusterCursor) -> None: ...

    def refill(self, cursor: ClusterCursor) -> None: ...


@pytest.fixture
def cursor() -> ClusterCursor:
    """Two records are ahead, at 3 and 4; what follows is at 6."""
    log = PartitionNow(pytest.fail, lambda _: pytest.fail("it was asked"))
    made = ClusterCursor(foldlog.TopicPartition("orders", 0), log, 3, (None, None), Nothing())
    records, _ = decode(pack([(1, None, b"3", ()), (1, None, b"4", ())], base_offset=3), "orders", 0)
    made.give(records, 6)
    return made


def test_a_problem_is_raised_behind_what_was_fetched_before_it(cursor: ClusterCursor) -> None:
    problem = errors.OffsetOutOfRange("orders", 0, 6, 9, 12, "it was deleted")
    cursor.problem = problem
    assert (values(cursor.take(1)), cursor.known_position()) == ([b"3"], 4)
    assert values(cursor.take(10)) == [b"4"]
    for call in (cursor.known_position, lambda: cursor.take(1)):
        with pytest.raises(errors.OffsetOutOfRange) as caught:
            call()
        assert caught.value is problem
    cursor.seek(9)
    assert (cursor.take(1), cursor.known_position()) == ([], 9)


def test_what_was_fetched_before_a_reset_is_handed_out_before_it(cursor: ClusterCursor) -> None:
    cursor.go_on_at(9)
    assert cursor.position == 3
    assert values(cursor.take(1)) == [b"3"]
    assert (values(cursor.take(1)), cursor.position) == ([b"4"], 9)


def test_without_a_reset_what_was_deleted_is_raised_until_a_seek_and_the_others_are_read(log: foldlog.Log) -> None:
    filled(log, 12, partitions=2)
    with log.consumer(["orders"], auto_offset_reset="none") as consumer:
        log.delete_records("orders", {0: 4})
        told: list[errors.OffsetOutOfRange] = []
        found: list[foldlog.Record] = []
        while len(found) < 6 or len(told) < 2:
            try:
                found += consumer.poll(timeout_ms=10)
            except errors.OffsetOutOfRange as error:
                told.append(error)
        assert {record.partition for record in found} == {1}
        assert {(error.wanted, error.start, error.end) for error in told} == {(0, 4, 6)}
        with pytest.raises(errors.OffsetOutOfRange):
            consumer.position("orders", 0)
        consumer.seek("orders", 0, 4)
        assert values(polled(consumer, 2)) == [b"8", b"10"]


def test_who_named_a_partition_is_told_that_its_topic_was_deleted_and_reads_the_others(log: foldlog.Log) -> None:
    filled(log, 1)
    log.create_topic("payments")
    with log.consumer(auto_offset_reset="earliest") as consumer:
        consumer.assign([("orders", 0), ("payments", 0)])
        assert values(polled(consumer, 1)) == [b"0"]
        log.delete_topic("orders")
        with pytest.raises(errors.UnknownTopic, match="orders"):
            consumer.poll(timeout_ms=WAIT_MS)
        assert consumer.assignment() == {("payments", 0)}
        log.append("payments", "paid")
        assert values(polled(consumer, 1)) == [b"paid"]


def test_who_subscribed_to_a_topic_that_was_deleted_finds_its_assignment_shrunk(log: foldlog.Log) -> None:
    filled(log, 1)
    log.create_topic("payments")
    with log.consumer(["orders", "payments"], auto_offset_reset="earliest") as consumer:
        log.delete_topic("orders")
        while ("orders", 0) in consumer.assignment():
            consumer.poll(timeout_ms=10)
        log.append("payments", "paid")
        assert values(polled(consumer, 1)) == [b"paid"]


def test_a_record_that_cannot_be_read_is_raised_behind_those_before_it_and_holds_up_its_partition_only(
    log: foldlog.Log,
) -> None:
    log.create_topic("orders", partitions=2)
    for value in (b"1", b"2", b"not JSON", b"4"):
        log.append("orders", value, partition=0)
    with log.consumer(["orders"], auto_offset_reset="earliest", value_deserializer="json") as consumer:
        assert values(polled(consumer, 2)) == [1, 2]
        with pytest.raises(errors.SerializationError, match="offset 2 of orders-0"):
            consumer.poll(timeout_ms=WAIT_MS)
        log.append("orders", b"5", partition=1)
        found: list[foldlog.Record] = []
        while not found:
            try:
                found = consumer.poll(timeout_ms=10)
            except errors.SerializationError:
                continue
        assert values(found) == [5]
        consumer.seek("orders", 0, 3)
        assert values(polled(consumer, 1)) == [4]


# --- a cluster that is away -------------------------------------------------------------------------------------------


def test_a_broker_that_hangs_is_waited_for_and_no_poll_takes_longer_than_it_may() -> None:
    served = Served()
    try:
        properties = {**PROPERTIES, "request.timeout.ms": 200, "fetch.max.wait.ms": 50}
        with (
            foldlog.connect(f"kafka://{served.address}", properties=properties) as log,
            log.consumer(["orders"], auto_offset_reset="earliest") as consumer,
        ):
            assert len(polled(consumer, 3)) == 3
            served.hang()
            assert all(consumer.poll(timeout_ms=20) == [] for _ in range(30))
            while not consumer.is_cut_off():
                assert consumer.poll(timeout_ms=20) == []
            served.go_on()
            log.append("orders", "3")
            assert values(polled(consumer, 1)) == [b"3"]
            assert not consumer.is_cut_off()
    finally:
        served.end()


def test_a_broker_that_is_away_is_told_when_asked_and_read_on_when_it_is_back(
    broker: KafkaBroker, log: foldlog.Log
) -> None:
    filled(log, 1)
    with log.consumer(["orders"], auto_offset_reset="earliest") as consumer:
        assert not consumer.is_cut_off()
        assert len(polled(consumer, 1)) == 1
        broker.stop()
        while not consumer.is_cut_off():
            assert consumer.poll(timeout_ms=20) == []
        broker.start()
        broker.log.append("orders", "again")
        assert values(polled(consumer, 1)) == [b"again"]
        assert not consumer.is_cut_off()


# --- ending -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("whose", ["consumer", "log"])
def test_a_poll_that_waits_is_woken_when_another_thread_closes(whose: str) -> None:
    """Nobody answers its fetch: only closing can wake it."""
    asked = threading.Event()

    def silent(node: int, request: Request) -> Mishap | None:
        if isinstance(request, FetchRequest):
            asked.set()
            return Mishap.SILENCE
        return None

    with SimulatedCluster() as simulated:
        simulated.create("orders")
        simulated.interfere = silent
        log = foldlog.connect(f"kafka://{simulated.address()}", properties=PROPERTIES)
        consumer = log.consumer(["orders"])
        found: list[object] = []
        waiting = threading.Thread(target=lambda: found.append(consumer.poll(timeout_ms=None)))
        waiting.start()
        asked.wait()
        (consumer if whose == "consumer" else log).close()
        waiting.join()
        log.close()
    assert found == [[]]


def test_an_interrupt_ends_a_poll_that_waits_and_the_consumer_reads_on() -> None:
    main = threading.main_thread().ident
    assert main is not None
    interrupted = threading.Event()

    def interrupting(node: int, request: Request) -> Mishap | None:
        if isinstance(request, FetchRequest) and not interrupted.is_set():
            interrupted.set()
            signal.pthread_kill(main, signal.SIGINT)
            return Mishap.SILENCE
        return None

    with SimulatedCluster() as simulated:
        (partition,) = simulated.create("orders")
        partition.append(pack([(1, None, b"paid", ())]))
        simulated.interfere = interrupting
        url = f"kafka://{simulated.address()}?request.timeout.ms=500"
        with (
            foldlog.connect(url, properties=PROPERTIES) as log,
            log.consumer(["orders"], auto_offset_reset="earliest") as consumer,
        ):
            with pytest.raises(KeyboardInterrupt):
                consumer.poll(timeout_ms=None)
            assert values(polled(consumer, 1)) == [b"paid"]


def test_a_consumer_that_is_dropped_lets_go_of_its_connections(log: foldlog.Log) -> None:
    filled(log, 1)
    consumer = log.consumer(["orders"], auto_offset_reset="earliest")
    assert len(polled(consumer, 1)) == 1
    fetcher = fetcher_of(consumer)
    gone = weakref.ref(consumer)
    del consumer
    gc.collect()
    assert gone() is None
    assert fetcher.wakeup.fileno() == -1
    assert fetcher._leaders == {}


def test_a_forked_child_is_refused_and_leaves_the_parents_connections_alone(log: foldlog.Log) -> None:
    filled(log, 1)
    with log.consumer(["orders"], auto_offset_reset="earliest") as consumer:
        assert len(polled(consumer, 1)) == 1
        leaders = {address: one.connection for address, one in fetcher_of(consumer)._leaders.items()}
        reader, writer = os.pipe()
        child = os.fork()
        if not child:
            told = b"nothing"
            try:
                consumer.poll(timeout_ms=0)
            except errors.WrongProcess:
                told = b"refused"
            finally:
                consumer.close()
                del consumer
                gc.collect()
                os.write(writer, told)
                os._exit(0)
        os.waitpid(child, 0)
        assert os.read(reader, 100) == b"refused"
        os.close(reader)
        os.close(writer)
        log.append("orders", "after the fork")
        assert values(polled(consumer, 1)) == [b"after the fork"]
        assert {address: one.connection for address, one in fetcher_of(consumer)._leaders.items()} == leaders


def test_a_closed_log_is_told_and_nothing_can_be_committed_without_a_group(log: foldlog.Log) -> None:
    filled(log, 1)
    consumer = log.consumer(["orders"])
    calls: list[Callable[[], object]] = [
        consumer.commit,
        lambda: consumer.commit({("orders", 0): 1}),
        lambda: consumer.committed("orders", 0),
    ]
    for call in calls:
        with pytest.raises(errors.InvalidArgument, match="has no group, so it commits nothing"):
            call()
    handles_of(log).close()
    with pytest.raises(errors.LogClosed):
        consumer.poll()
