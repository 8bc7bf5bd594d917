"""Quotas in force: throttle times in answers, sockets that are not read, and clients that gain nothing by not obeying.

The rates are so small that a throttle time lasts as long as any test; it ends when the quota is taken back. So nothing
here depends on how fast the machine is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace

import pytest

from foldlog.broker.access.acls import DIRECTORY_OWNER, Identity
from foldlog.broker.access.quotas import Quotas, entity
from foldlog.broker.access.store import Access
from foldlog.broker.broker import Broker
from foldlog.files.memory import MemoryFiles
from foldlog.server.config.settings import ServerSettings
from foldlog.server.metrics.metrics import Metrics
from foldlog.server.net.quotas import NodeQuotas
from foldlog.server.server import Server
from foldlog.wire.error_codes import ErrorCode
from foldlog.wire.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from foldlog.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from foldlog.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from foldlog.wire.messages.fetch import FetchResponse
from foldlog.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from foldlog.wire.messages.produce import ProduceResponse
from server.raw_client import RawClient, batch, fetch, fetched, produce, produced
from server.small_node import SmallNode

VERSION = 9
FETCH_VERSION = 11
THROTTLED = "slow"

Connect = Callable[..., RawClient]


def set_quotas(broker: Broker, **values: float | None) -> None:
    """For the client id that the tests throttle."""
    set_for(broker, {"client-id": THROTTLED}, values)


def set_for(broker: Broker, named: Mapping[str, str | None], values: Mapping[str, float | None]) -> None:
    def decide(access: Access) -> Access:
        return replace(access, quotas=access.quotas.changed(entity(named), values))

    broker.access.change(decide)


def no_quotas(broker: Broker) -> None:
    broker.access.change(lambda access: replace(access, quotas=Quotas()))


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker.open("data", files=MemoryFiles()) as broker:
        broker.create_topic("orders", 1)
        yield broker


@pytest.fixture
def server(broker: Broker) -> Iterator[Server]:
    settings = ServerSettings.parse({"listeners": "127.0.0.1:0", "quota.window.num": 1})
    with Server.start(broker, settings) as server:
        yield server


@pytest.fixture
def connect(server: Server) -> Iterator[Connect]:
    opened: list[RawClient] = []

    def connect(client_id: str = THROTTLED) -> RawClient:
        opened.append(RawClient(server.addresses[0], client_id=client_id))
        return opened[-1]

    yield connect
    for client in opened:
        client.close()


def has_nothing_for(client: RawClient, other: RawClient) -> bool:
    """Whether the broker answers others, and has not answered this one."""
    for _ in range(20):
        other.ask(MetadataRequest(topics=[]), 9)
    client.socket.setblocking(False)
    try:
        return not client.socket.recv(1)
    except BlockingIOError:
        return True
    finally:
        client.socket.settimeout(30)


def test_who_does_not_obey_a_produce_quota_gains_nothing(broker: Broker, server: Server, connect: Connect) -> None:
    set_quotas(broker, producer_byte_rate=1)
    client, other = connect(), connect("other")
    first = client.ask(produce(batch(b"1" * 100)), VERSION)
    assert produced(first) == (0, 0)
    assert 100_000 < first.throttle_time_ms <= 3_600_000
    client.send(produce(batch(b"2")), VERSION)
    client.send(MetadataRequest(topics=[]), 9)
    assert has_nothing_for(client, other)
    again = connect()  # another connection of the same client owes as much
    again.send(produce(batch(b"3")), VERSION)
    assert has_nothing_for(again, other)
    assert broker.partition("orders", 0).log_end_offset == 1
    free = other.ask(produce(batch(b"4")), VERSION)
    assert (produced(free), free.throttle_time_ms) == ((0, 1), 0)
    no_quotas(broker)
    for waiting in (client, again):
        _, answer = waiting.receive(ProduceResponse, VERSION)
        assert produced(answer)[0] == 0
        assert answer.throttle_time_ms == 0
    text = str(server.metrics.families())
    assert "foldlog_throttled_total" in text
    assert "producer_byte_rate" in text


def test_requests_that_come_together_are_not_served_together(broker: Broker, connect: Connect) -> None:
    set_quotas(broker, producer_byte_rate=1)
    client, other = connect(), connect("other")
    client.socket.sendall(b"".join(client.frame(produce(batch(b"x" * 50)), VERSION) for _ in range(5)))
    _, answer = client.receive(ProduceResponse, VERSION)
    assert answer.throttle_time_ms > 0
    assert has_nothing_for(client, other)
    assert broker.partition("orders", 0).log_end_offset == 1
    no_quotas(broker)
    for _ in range(4):
        assert produced(client.receive(ProduceResponse, VERSION)[1])[0] == 0


def test_batches_nobody_waits_for_count_too(broker: Broker, connect: Connect) -> None:
    set_quotas(broker, producer_byte_rate=1)
    client, other = connect(), connect("other")
    for _ in range(3):
        client.send(produce(batch(b"x" * 50), acks=0), VERSION)
    client.send(MetadataRequest(topics=[]), 9)
    assert has_nothing_for(client, other)
    assert broker.partition("orders", 0).log_end_offset <= 1


def test_a_fetch_is_throttled_by_what_it_carries(broker: Broker, connect: Connect) -> None:
    client, other = connect(), connect("other")
    other.ask(produce(batch(*[b"v" * 100] * 10)), VERSION)
    set_quotas(broker, consumer_byte_rate=1)
    answer = client.ask(fetch(0), FETCH_VERSION)
    assert len(fetched(answer)) == 10  # a batch goes whole: there must be progress
    assert answer.throttle_time_ms > 900_000
    client.send(fetch(0), FETCH_VERSION)
    assert has_nothing_for(client, other)
    assert other.ask(fetch(0), FETCH_VERSION).throttle_time_ms == 0
    set_quotas(broker, consumer_byte_rate=None, producer_byte_rate=10**9)
    _, unthrottled = client.receive(FetchResponse, FETCH_VERSION)
    assert len(fetched(unthrottled)) == 10
    assert unthrottled.throttle_time_ms == 0


def test_time_is_counted_for_every_api_and_bounded(broker: Broker, connect: Connect) -> None:
    set_quotas(broker, request_percentage=1e-9)
    client = connect()
    answer = client.ask(MetadataRequest(topics=[]), 9)
    assert 0 < answer.throttle_time_ms <= 1000
    assert client.ask(MetadataRequest(topics=[]), 9).throttle_time_ms > 0  # a second later


def test_an_address_that_connects_too_often_is_let_in_again_later(broker: Broker, connect: Connect) -> None:
    set_for(broker, {"ip": "127.0.0.1"}, {"connection_creation_rate": 1})
    assert connect().ask(MetadataRequest(topics=[]), 9).brokers
    refused = connect()
    refused.send(MetadataRequest(topics=[]), 9)
    assert refused.is_closed_by_peer()
    no_quotas(broker)
    assert connect().ask(MetadataRequest(topics=[]), 9).brokers


def test_a_client_that_leaves_while_it_is_throttled_leaves_nothing_behind(
    broker: Broker, server: Server, connect: Connect
) -> None:
    set_quotas(broker, producer_byte_rate=1)
    client = connect()
    assert client.ask(produce(batch(b"1" * 100)), VERSION).throttle_time_ms
    client.close()
    assert connect("other").ask(MetadataRequest(topics=[]), 9).brokers
    server.stop()
    assert server.failure is None


# --- mutations, and which quota counts: on a loop and a clock of the test -------------------------------------------


@pytest.fixture
def small() -> Iterator[SmallNode]:
    node = SmallNode(settings={"controller.quota.window.num": 1, "delete.topic.enable": True})
    set_for(node.broker, {"user": None}, {"controller_mutation_rate": 4})
    yield node
    node.close()


def create(small: SmallNode, *names: str, version: int, partitions: int = 3) -> tuple[list[int], int]:
    topics = [CreatableTopic(name=name, num_partitions=partitions, replication_factor=1) for name in names]
    answer = small.ask(CreateTopicsRequest(topics=topics), version)
    return [topic.error_code for topic in answer.topics], answer.throttle_time_ms


def test_topics_beyond_the_quota_are_refused(small: SmallNode) -> None:
    codes, throttle_ms = create(small, "a", "b", "c", version=7)
    assert codes == [0, 0, ErrorCode.THROTTLING_QUOTA_EXCEEDED]
    assert 0 < throttle_ms <= 500
    partitions = CreatePartitionsRequest(topics=[CreatePartitionsTopic(name="a", count=4)])
    assert small.ask(partitions, 3).results[0].error_code == ErrorCode.THROTTLING_QUOTA_EXCEEDED
    deletion = DeleteTopicsRequest(topics=[DeleteTopicState(name="a")])
    assert small.ask(deletion, 6).responses[0].error_code == ErrorCode.THROTTLING_QUOTA_EXCEEDED
    asked = small.ask(MetadataRequest(topics=[MetadataRequestTopic(name="new")], allow_auto_topic_creation=True), 9)
    assert asked.topics[0].error_code == ErrorCode.LEADER_NOT_AVAILABLE
    assert small.broker.topics() == ["a", "b"]


def test_older_versions_are_only_throttled(small: SmallNode) -> None:
    codes, throttle_ms = create(small, "a", "b", "c", version=5)
    assert codes == [0, 0, 0]
    assert 500 < throttle_ms <= 1250
    deletion = small.ask(DeleteTopicsRequest(topic_names=["a"]), 4)
    assert deletion.responses[0].error_code == 0
    assert deletion.throttle_time_ms > throttle_ms


def test_a_check_uses_nothing(small: SmallNode) -> None:
    topic = CreatableTopic(name="a", num_partitions=100, replication_factor=1)
    assert small.ask(CreateTopicsRequest(topics=[topic], validate_only=True), 7).topics[0].error_code == 0
    assert create(small, "b", version=7) == ([0], 0)


class TurnedClock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def quotas(broker: Broker) -> Iterator[tuple[NodeQuotas, TurnedClock]]:
    clock = TurnedClock()
    made = NodeQuotas(broker.access, ServerSettings(), Metrics(), clock, lambda: None)
    yield made, clock
    made.close()


def test_the_most_particular_quota_counts_and_is_shared(broker: Broker, quotas: tuple[NodeQuotas, TurnedClock]) -> None:
    made, clock = quotas
    alice, bob = Identity("User:alice", "::1"), Identity("User:bob", "::1")
    before = made.is_on
    set_for(broker, {"user": None}, {"producer_byte_rate": 10})
    set_for(broker, {"user": "alice", "client-id": "app"}, {"producer_byte_rate": 100})
    assert (before, made.is_on) == (False, True)
    of_alice, of_app, of_bob = made.limits(alice, "x"), made.limits(alice, "app"), made.limits(bob, "app")
    assert of_alice is not None
    assert of_app is not None
    assert of_bob is not None
    rates = [one.producer_byte_rate and one.producer_byte_rate.rate for one in (of_alice, of_app, of_bob)]
    assert rates == [10, 100, 10]
    assert made.limits(alice, "y") == of_alice
    assert of_alice != of_bob
    assert made.limits(Identity(DIRECTORY_OWNER, "::1"), "app") is None
    bucket = of_alice.producer_byte_rate
    assert bucket is not None
    bucket.use(200, clock())
    assert bucket.wait_s(clock()) == 10
    set_for(broker, {"user": None}, {"producer_byte_rate": 20})
    changed = made.limits(alice, "x")
    assert changed is not None
    assert changed.producer_byte_rate is bucket
    assert bucket.rate == 20
    clock.now += 10
    assert bucket.wait_s(clock()) == 0
    no_quotas(broker)
    assert not made.is_on
    assert made.limits(alice, "x") is None


def test_an_address_has_its_rate_and_the_others_the_default(
    broker: Broker, quotas: tuple[NodeQuotas, TurnedClock]
) -> None:
    made, clock = quotas
    set_for(broker, {"ip": None}, {"connection_creation_rate": 1})
    set_for(broker, {"ip": "10.0.0.1"}, {"connection_creation_rate": 2})
    assert made.limits_connections
    assert not made.is_on
    for host, burst in (("10.0.0.1", 20), ("10.0.0.2", 10)):
        delays = [made.connection_delay_s(host) for _ in range(burst + 3)]
        assert delays[: burst + 1] == [None] * (burst + 1)
        assert all(delay is not None and 0 < delay <= 1 for delay in delays[burst + 1 :])
        clock.now += 1
        assert made.connection_delay_s(host) is None
    assert made.connection_delay_s("") is None


def test_buckets_of_made_up_client_ids_have_a_bound(
    broker: Broker, quotas: tuple[NodeQuotas, TurnedClock], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("foldlog.server.net.quotas.QUOTA_BUCKETS_MAX", 10)
    made, clock = quotas
    set_for(broker, {"client-id": None}, {"producer_byte_rate": 1})
    who = Identity("User:alice", "::1")
    for number in range(100):
        limits = made.limits(who, f"id-{number}")
        assert limits is not None
        assert limits.producer_byte_rate is not None
        limits.producer_byte_rate.use(1000, clock())
    assert len(made._buckets) <= 10


def test_settings_say_how_much_may_be_used_at_once() -> None:
    settings = ServerSettings.parse({"quota.window.num": 5, "quota.window.size.seconds": 3})
    with Broker.open("data", files=MemoryFiles()) as broker:
        set_for(broker, {"user": "alice"}, {"consumer_byte_rate": 100, "request_percentage": 50})
        made = NodeQuotas(broker.access, settings, Metrics(), TurnedClock(), lambda: None)
        limits = made.limits(Identity("User:alice", "::1"), "")
        assert limits is not None
        assert limits.consumer_byte_rate is not None
        assert limits.request_percentage is not None
        assert (limits.consumer_byte_rate.burst, limits.request_percentage.burst) == (1200, 6)


def test_older_versions_gain_no_topics_by_another_connection(broker: Broker, connect: Connect) -> None:
    set_quotas(broker, controller_mutation_rate=0.001)
    other = connect("other")

    def creation(name: str) -> CreateTopicsRequest:
        return CreateTopicsRequest(topics=[CreatableTopic(name=name, num_partitions=20, replication_factor=1)])

    assert connect().ask(creation("first"), 5).throttle_time_ms > 0
    for number in range(3):
        again = connect()
        again.send(creation(f"next-{number}"), 5)
        assert has_nothing_for(again, other)
    deleting = connect()
    deleting.send(DeleteTopicsRequest(topic_names=["orders"]), 4)
    assert has_nothing_for(deleting, other)
    assert broker.topics() == ["first", "orders"]
    refused = connect().ask(creation("newer"), 7)
    assert refused.topics[0].error_code == ErrorCode.THROTTLING_QUOTA_EXCEEDED
