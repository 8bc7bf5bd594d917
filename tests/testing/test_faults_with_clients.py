"""Each client recovers from each fault that Kafka calls retriable, once and in order, and reports the others."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import pytest

from foldlog.testing import KafkaBroker
from foldlog.wire.error_codes import ErrorCode
from testing.kafka_clients import PATIENCE_S, Aiokafka, Client, CommitRefused, Confluent, KafkaPython

CLIENTS: dict[str, Client] = {"confluent-kafka": Confluent(), "kafka-python": KafkaPython(), "aiokafka": Aiokafka()}
VALUES = [str(number).encode() for number in range(5)]


@pytest.fixture(params=list(CLIENTS))
def client(request: pytest.FixtureRequest) -> Client:
    return CLIENTS[request.param]


@pytest.fixture
def broker() -> Iterator[KafkaBroker]:
    with KafkaBroker() as broker:
        broker.create_topic("t")
        yield broker


def values_in(broker: KafkaBroker) -> list[bytes | None]:
    return [record.value for record in broker.log.read("t")]


@pytest.mark.parametrize("error", ["NOT_LEADER_OR_FOLLOWER", "REQUEST_TIMED_OUT", "KAFKA_STORAGE_ERROR"])
def test_a_retriable_error_of_produce_is_survived(client: Client, broker: KafkaBroker, error: str) -> None:
    fault = broker.fail("Produce", error=error, times=2)
    assert client.send(broker, VALUES) == []
    assert (fault.struck, values_in(broker)) == (2, VALUES)


def test_an_error_of_produce_that_is_not_retriable_is_reported(client: Client, broker: KafkaBroker) -> None:
    fault = broker.fail("Produce", error="TOPIC_AUTHORIZATION_FAILED", times=None)
    assert set(client.send(broker, VALUES[:1])) == {ErrorCode.TOPIC_AUTHORIZATION_FAILED}
    assert (fault.struck, values_in(broker)) == (1, [])


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_lost_connection_loses_and_repeats_nothing(client: Client, broker: KafkaBroker, when: str) -> None:
    fault = broker.drop_connection("Produce", when=when, times=2)  # type: ignore[arg-type]
    assert client.send(broker, VALUES) == []
    assert (fault.struck, values_in(broker)) == (2, VALUES)


def test_a_delay_is_waited_for(client: Client, broker: KafkaBroker) -> None:
    fault = broker.delay("Produce", 0.2, times=1)
    assert client.send(broker, VALUES) == []
    assert (fault.struck, values_in(broker)) == (1, VALUES)


@contextmanager
def beside(act: Callable[[], None]) -> Iterator[None]:
    """Run it in a thread: some clients wait for an answer before they take a record."""
    with ThreadPoolExecutor(1) as pool:
        done = pool.submit(act)
        yield
        done.result(PATIENCE_S)


def test_a_paused_broker_is_waited_for(client: Client, broker: KafkaBroker) -> None:
    paused = broker.pause()

    def resume() -> None:
        paused.wait()
        assert values_in(broker) == []
        broker.resume()

    with beside(resume):
        assert client.send(broker, VALUES) == []
    assert values_in(broker) == VALUES


def test_a_full_disk_is_waited_for(client: Client, broker: KafkaBroker) -> None:
    with broker.disk_full() as full:

        def free() -> None:
            full.wait()
            assert values_in(broker) == []
            full.clear()

        with beside(free):
            assert client.send(broker, VALUES) == []
    assert values_in(broker) == VALUES


def test_a_broker_that_was_killed_has_what_it_acknowledged_and_goes_on(client: Client, broker: KafkaBroker) -> None:
    assert client.send(broker, VALUES) == []
    assert client.send(broker, VALUES, broker.kill_and_restart) == []
    assert values_in(broker) == VALUES * 2
    assert client.read(broker, 10) == VALUES * 2


def test_errors_on_the_way_into_a_group_are_survived(client: Client, broker: KafkaBroker) -> None:
    client.send(broker, VALUES)
    faults = [
        broker.fail("FindCoordinator", error="COORDINATOR_NOT_AVAILABLE"),
        broker.fail("JoinGroup", error="COORDINATOR_LOAD_IN_PROGRESS"),
        broker.fail("SyncGroup", error="REBALANCE_IN_PROGRESS"),
        broker.fail("OffsetFetch", error="COORDINATOR_LOAD_IN_PROGRESS"),
        broker.fail("ListOffsets", error="NOT_LEADER_OR_FOLLOWER"),
        broker.fail("Fetch", error="NOT_LEADER_OR_FOLLOWER"),
    ]
    assert client.read(broker, len(VALUES)) == VALUES
    assert [fault.struck for fault in faults] == [1] * len(faults)


def test_a_lost_connection_of_a_reader_loses_nothing(client: Client, broker: KafkaBroker) -> None:
    client.send(broker, VALUES)
    fault = broker.drop_connection("Fetch", when="after")
    assert client.read(broker, len(VALUES)) == VALUES
    assert fault.struck == 1


def test_a_commit_that_is_refused_for_good_is_reported(client: Client, broker: KafkaBroker) -> None:
    client.send(broker, VALUES)
    broker.fail("OffsetCommit", error="GROUP_AUTHORIZATION_FAILED", times=None)
    with pytest.raises(CommitRefused) as refused:
        client.read(broker, len(VALUES))
    assert refused.value.args == (ErrorCode.GROUP_AUTHORIZATION_FAILED,)


def test_a_member_whose_time_is_over_comes_back(client: Client, broker: KafkaBroker) -> None:
    """Its session ends by the broker's clock. It notices with a heartbeat or its commit, and what it has not committed
    is read again by whoever comes next."""
    client.send(broker, VALUES)

    def expire() -> None:
        assert broker.log.groups() == ["readers"]
        broker.move_clock(3600)
        assert broker.log.groups() == [], "its only member is gone, and nothing was committed"

    try:
        assert client.read(broker, len(VALUES), meanwhile=expire) == VALUES
    except CommitRefused as refused:
        assert refused.args[0] in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION, None)  # noqa: PT017
    assert client.read(broker, 1, group="another") == VALUES[:1]
