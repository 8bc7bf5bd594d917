"""Faults strike what they were asked to strike, as often as they were asked to, and leave nothing behind.

A plain connection of our own sends the requests, so that no client's retries are in the way.
"""

from __future__ import annotations

import asyncio
import threading
import unittest
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

import foldlog
from foldlog.errors import InvalidArgument, LogClosed, StorageFull
from foldlog.testing import Broker, KafkaBroker
from foldlog.wire.error_codes import ErrorCode
from foldlog.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from foldlog.wire.messages.heartbeat import HeartbeatRequest
from foldlog.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from foldlog.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from testing.plain_connection import PlainConnection


@pytest.fixture(params=["memory", "disk"])
def broker(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[KafkaBroker]:
    with Broker(path=":memory:" if request.param == "memory" else tmp_path / "log") as broker:
        broker.create_topic("t")
        broker.create_topic("other")
        yield broker


@pytest.fixture
def connection(broker: KafkaBroker) -> Iterator[PlainConnection]:
    with PlainConnection(broker.host, broker.port) as connection:
        yield connection


def produce(batch: bytes, topic: str = "t", acks: int = -1) -> ProduceRequest:
    data = TopicProduceData(name=topic, partition_data=[PartitionProduceData(index=0, records=batch)])
    return ProduceRequest(acks=acks, timeout_ms=30_000, topic_data=[data])


@pytest.fixture(scope="module")
def batch() -> bytes:
    """A batch with one record, as a producer packs it."""
    with foldlog.open(":memory:") as log:
        log.create_topic("made")
        log.append("made", b"v")
        return bytes(log._backend.reader.partition("made", 0).read(0).data)  # type: ignore[attr-defined]


def code_of(answer: Any) -> int:
    return int(answer.responses[0].partition_responses[0].error_code)


def count(broker: KafkaBroker, topic: str = "t") -> int:
    return sum(1 for _ in broker.log.read(topic))


def test_a_failed_produce_has_no_effect_and_the_next_one_has(
    broker: KafkaBroker, connection: PlainConnection, batch: bytes
) -> None:
    fault = broker.fail("Produce", error="NOT_LEADER_OR_FOLLOWER", times=3)
    codes = [code_of(connection.ask(produce(batch), 9)) for _ in range(5)]
    assert codes == [ErrorCode.NOT_LEADER_OR_FOLLOWER] * 3 + [0, 0]
    assert (fault.struck, fault.is_over, count(broker)) == (3, True, 2)
    assert repr(fault) == "<fail('Produce', error='NOT_LEADER_OR_FOLLOWER'): struck 3, over>"


def test_a_fault_can_be_of_one_topic_and_of_one_client(
    broker: KafkaBroker, connection: PlainConnection, batch: bytes
) -> None:
    of_topic = broker.fail("Produce", error=56, times=None, topic="t")
    assert code_of(connection.ask(produce(batch, "other"), 9)) == 0
    assert code_of(connection.ask(produce(batch, "t"), 9)) == ErrorCode.KAFKA_STORAGE_ERROR
    of_topic.clear()
    broker.fail("Produce", error=56, times=None, client_id="another")
    assert code_of(connection.ask(produce(batch, "t"), 9)) == 0
    assert code_of(connection.ask(produce(batch, "t"), 9, client_id="another")) == ErrorCode.KAFKA_STORAGE_ERROR


def test_a_fetch_fails_in_its_partitions_and_its_session_goes_on(
    broker: KafkaBroker, connection: PlainConnection
) -> None:
    broker.log.append("t", "1")
    asked = [FetchTopic(topic="t", partitions=[FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1000)])]
    first = connection.ask(FetchRequest(max_bytes=1000, session_epoch=0, topics=asked), 12)
    assert first.session_id
    broker.fail("Fetch", error="OFFSET_OUT_OF_RANGE", topic="t")
    follow = FetchRequest(max_bytes=1000, session_id=first.session_id, session_epoch=1, topics=[])
    failed = connection.ask(follow, 12)
    assert (failed.error_code, failed.responses[0].partitions[0].error_code) == (0, ErrorCode.OFFSET_OUT_OF_RANGE)
    follow.session_epoch = 2
    again = connection.ask(follow, 12)
    assert again.responses[0].partitions[0].error_code == 0
    broker.fail("Fetch", error="FETCH_SESSION_ID_NOT_FOUND")
    follow.session_epoch = 3
    assert connection.ask(follow, 12).error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND


def test_metadata_that_fails_still_names_the_brokers(broker: KafkaBroker, connection: PlainConnection) -> None:
    broker.fail("Metadata", error="LEADER_NOT_AVAILABLE")
    answer = connection.ask(MetadataRequest(topics=[MetadataRequestTopic(name="t")]), 8)
    assert [(one.host, one.port) for one in answer.brokers] == [(broker.host, broker.port)]
    assert [(one.name, one.error_code) for one in answer.topics] == [("t", ErrorCode.LEADER_NOT_AVAILABLE)]


@pytest.mark.parametrize(("when", "kept"), [("before", 0), ("after", 1)])
def test_a_connection_is_dropped_before_or_after_the_effect(
    broker: KafkaBroker, connection: PlainConnection, batch: bytes, when: Any, kept: int
) -> None:
    fault = broker.drop_connection("Produce", when=when)
    with pytest.raises(ConnectionError):
        connection.ask(produce(batch), 9)
    assert (fault.struck, count(broker)) == (1, kept)


def test_produce_with_acks_0_that_fails_ends_its_connection(
    broker: KafkaBroker, connection: PlainConnection, batch: bytes
) -> None:
    broker.fail("Produce", error="NOT_LEADER_OR_FOLLOWER")
    with pytest.raises(ConnectionError):
        connection.ask(produce(batch, acks=0), 9)
    assert count(broker) == 0


def test_a_delayed_request_keeps_its_records_and_its_place(
    broker: KafkaBroker, connection: PlainConnection, batch: bytes
) -> None:
    fault = broker.delay("Produce", 3600, times=1)
    connection.send(produce(batch), 9)
    connection.send(MetadataRequest(topics=[]), 8)
    fault.wait()
    assert count(broker) == 0
    fault.clear()
    assert code_of(connection.receive()) == 0
    assert connection.receive().brokers
    assert [record.value for record in broker.log.read("t")] == [b"v"]


def test_a_paused_broker_answers_nothing_until_it_is_resumed(
    broker: KafkaBroker, connection: PlainConnection, batch: bytes
) -> None:
    with broker.pause() as paused:
        connection.send(produce(batch), 9)
        paused.wait()
        assert count(broker) == 0
    assert code_of(connection.receive()) == 0


def test_a_paused_or_delayed_broker_can_be_stopped(broker: KafkaBroker, connection: PlainConnection) -> None:
    paused = broker.pause()
    delayed = broker.delay("Heartbeat", 3600)
    connection.send(HeartbeatRequest(group_id="g"), 3)
    paused.wait()
    broker.stop()
    assert connection.receive().error_code == ErrorCode.UNKNOWN_MEMBER_ID, "what was held up went on, and was answered"
    assert delayed.struck == 1
    broker.start()
    assert count(broker) == 0


def test_a_full_disk_refuses_what_needs_space_and_takes_it_later(
    broker: KafkaBroker, connection: PlainConnection, batch: bytes
) -> None:
    assert code_of(connection.ask(produce(batch), 9)) == 0
    with broker.disk_full() as full:
        assert code_of(connection.ask(produce(batch), 9)) == ErrorCode.KAFKA_STORAGE_ERROR
        with pytest.raises(StorageFull):
            broker.log.append("t", "x")
        assert full.struck >= 2
        assert count(broker) == 1, "what was there is read"
    assert code_of(connection.ask(produce(batch), 9)) == 0
    assert count(broker) == 2


def test_a_killed_broker_recovers_what_was_acknowledged_at_the_same_port(
    broker: KafkaBroker, connection: PlainConnection, batch: bytes
) -> None:
    for _ in range(3):
        assert code_of(connection.ask(produce(batch), 9)) == 0
    epoch = broker.log.topic("t")
    old = broker.log
    broker.kill()
    assert not broker.is_running
    with pytest.raises(ConnectionError):
        connection.ask(produce(batch), 9)
    with pytest.raises((LogClosed, foldlog.FoldlogError)):
        old.append("t", "from the dead")
    broker.start()
    assert count(broker) == 3
    assert broker.log.topic("t").topic_id == epoch.topic_id
    with PlainConnection(broker.host, broker.port) as again:
        assert code_of(again.ask(produce(batch), 9)) == 0
    assert count(broker) == 4


def test_a_killed_broker_answers_nothing_that_was_under_way(
    broker: KafkaBroker, connection: PlainConnection, batch: bytes
) -> None:
    delayed = broker.delay("Produce", 3600)
    connection.send(produce(batch), 9)
    delayed.wait()
    broker.kill_and_restart()
    with pytest.raises(ConnectionError):
        connection.receive()
    assert count(broker) == 0


def test_records_and_members_are_too_old_once_the_clock_is_moved(broker: KafkaBroker) -> None:
    broker.create_topic("short", config={"retention.ms": 60_000, "segment.ms": 60_000})
    broker.log.append("short", "1")
    broker.move_clock(timedelta(hours=1))
    broker.log.append("short", "2")
    assert broker.log.offsets("short")[0][1] == 2
    broker.move_clock(3600)
    assert list(broker.log.read("short")) == []
    before = broker.log.append("t", "now").timestamp_ms
    broker.move_clock(-7200)
    assert broker.log.append("t", "back").timestamp_ms < before


def test_what_is_cleared_is_over_and_the_fast_path_is_free_again(
    broker: KafkaBroker, connection: PlainConnection, batch: bytes
) -> None:
    node = broker._process._server._server._node  # type: ignore[union-attr]
    assert node is not None

    def is_free() -> bool:
        return node.interceptor is None

    assert is_free()
    broker.fail("Produce", error="NOT_LEADER_OR_FOLLOWER", times=1)
    broker.delay("Fetch", 5)
    broker.pause()
    broker.disk_full()
    broker.move_clock(-3600)
    assert not is_free()
    broker.clear_faults()
    assert is_free()
    assert code_of(connection.ask(produce(batch), 9)) == 0
    with broker.fail("Produce", error="NOT_LEADER_OR_FOLLOWER", times=1):
        assert code_of(connection.ask(produce(batch), 9)) == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert is_free(), "it has struck as often as it should"


def test_a_fault_goes_on_after_a_restart(broker: KafkaBroker, batch: bytes) -> None:
    broker.fail("Produce", error="NOT_LEADER_OR_FOLLOWER")
    broker.restart()
    with PlainConnection(broker.host, broker.port) as connection:
        assert code_of(connection.ask(produce(batch), 9)) == ErrorCode.NOT_LEADER_OR_FOLLOWER


@pytest.mark.parametrize(
    ("ask", "sentence"),
    [
        (lambda it: it.fail("produce", error=1), "'produce' is not an API .* is it 'Produce'"),
        (lambda it: it.fail("Brew", error=1), "'Brew' is not an API .*/kafka_apis.md lists them"),
        (lambda it: it.fail("Fetch", error="OFFSET_OUT_RANGE"), "not an error of Kafka's .* 'OFFSET_OUT_OF_RANGE'"),
        (lambda it: it.fail("Fetch", error=9999), "error=9999 is not an error of Kafka's protocol; give its name"),
        (lambda it: it.fail("Fetch", error=0), "'NONE' is no error"),
        (lambda it: it.fail("Fetch", error=1, times=0), "times=0 is not a number from 1 on"),
        (lambda it: it.drop_connection("Fetch", when="now"), "when='now' is not allowed; it is 'before' or 'after'"),
        (lambda it: it.delay("Fetch", -1), "seconds=-1 is not a time to wait"),
        (lambda it: it.move_clock("1h"), "is neither seconds nor a timedelta"),
    ],
)
def test_a_wrong_fault_is_told_in_a_sentence(ask: Any, sentence: str) -> None:
    with Broker() as broker, pytest.raises(InvalidArgument, match=sentence):
        ask(broker)


def test_a_fault_that_does_not_strike_is_told_by_its_wait() -> None:
    with Broker() as broker, pytest.raises(TimeoutError, match=r"fail\('Fetch', .*\) struck 0 of 1 times within 0.01"):
        broker.fail("Fetch", error=1).wait(timeout=0.01)


# --- without pytest's fixtures ----------------------------------------------------------------------------------------


def test_a_broker_runs_from_start_to_stop_as_a_container_does() -> None:
    broker = Broker({"num.partitions": 2})
    assert not broker.is_running
    with pytest.raises(LogClosed, match="start"):
        broker.fail("Produce", error=1)
    assert broker.start() is broker
    assert type(broker.get_bootstrap_server()) is str
    assert broker.get_bootstrap_server() == broker.log.bootstrap
    assert broker.create_topic("t").partition_count == 2
    broker.stop()
    assert not broker.is_running


def test_a_broker_is_an_asynchronous_context_too() -> None:
    async def run() -> None:
        async with Broker() as broker:
            assert broker.is_running
        assert not broker.is_running

    asyncio.run(run())


def test_brokers_of_threads_do_not_meet() -> None:
    ports: list[int] = []

    def run() -> None:
        with Broker() as broker:
            broker.create_topic("mine")
            ports.append(broker.port)

    threads = [threading.Thread(target=run) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(ports) == 8


def test_a_broker_serves_a_unittest() -> None:
    class Case(unittest.TestCase):
        def setUp(self) -> None:
            self.broker = self.enterContext(Broker())

        def test_it(self) -> None:
            self.broker.create_topic("t")

    result = Case("test_it").run()
    assert result is not None
    assert result.wasSuccessful(), result.errors
