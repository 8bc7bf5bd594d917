"""A batch that was sent is in the log once and in its order, whatever became of its connection, its leader or its
answer; and a producer that failed says so and stops.

Against a real broker behind a proxy that loses requests and answers and sends some twice, and against a simulated
cluster whose leaders move while batches are on their way.
"""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from client.wire.simulated_cluster import Interference, Mishap, SimulatedCluster, SimulatedPartition, produced
from client.wire.test_cluster_faults import PATIENT
from clients.cutting_proxy import CuttingProxy, Fault
from foldlog.client.wire.cluster import Cluster
from foldlog.errors import (
    BrokerUnreachable,
    InvalidBatch,
    LogClosed,
    OutOfOrderSequence,
    RecordTooLarge,
    RefusedByBroker,
    UnknownPartition,
    UnknownTopic,
)
from foldlog.limits import PRODUCE_IN_FLIGHT_MAX
from foldlog.records.loops import decode, pack, walk
from foldlog.testing import KafkaBroker
from foldlog.testing.plugin import KafkaBrokerFactory
from foldlog.wire.error_codes import ErrorCode
from foldlog.wire.messages.produce import ProduceRequest
from foldlog.wire.schema import Request, Response


def batch(*values: int) -> bytearray:
    return pack([(1, None, b"%d" % value, ()) for value in values])


def values_in(partition: SimulatedPartition) -> list[int]:
    return [int(record.value) for one in partition.batches for record in decode(one, "orders", 0)[0]]


@pytest.fixture
def simulated() -> Iterator[SimulatedCluster]:
    with SimulatedCluster(nodes=2) as started:
        yield started


def refusing(*codes: int) -> Interference:
    """The first produce requests are answered with these codes, 0 for being carried out."""
    left = list(codes)

    def interfere(node: int, request: Request) -> Response | None:
        if not isinstance(request, ProduceRequest) or not left:
            return None
        code = left.pop(0)
        return produced(request, lambda topic, data: (code, -1)) if code else None

    return interfere


# --- a real broker ----------------------------------------------------------------------------------------------------


def test_batches_are_in_the_log_as_they_were_packed(kafka_broker: KafkaBroker) -> None:
    kafka_broker.create_topic("orders", 2)
    with Cluster.open(kafka_broker) as cluster, cluster.producer() as producer:
        for number in range(20):
            producer.send("orders", number % 2, bytes(batch(number, number + 100)))
        producer.flush()
        for partition in range(2):
            found = [int(record.value) for record in kafka_broker.log.read("orders", partition)]
            assert found == [value for number in range(partition, 20, 2) for value in (number, number + 100)]


@pytest.fixture
def proxied(kafka_broker_factory: KafkaBrokerFactory) -> Iterator[tuple[KafkaBroker, CuttingProxy]]:
    """A broker that can be reached through the proxy only."""
    proxy = CuttingProxy()
    broker = kafka_broker_factory({"advertised.listeners": proxy.address})
    proxy.towards((broker.host, broker.port))
    yield broker, proxy
    proxy.close()


def test_batches_whose_connections_are_cut_are_in_the_log_once(
    proxied: tuple[KafkaBroker, CuttingProxy],
) -> None:
    broker, proxy = proxied
    broker.create_topic("orders", 2)
    chance = random.Random(4)
    faults = [None, None, *Fault]
    proxy.next_fault = lambda: chance.choice(faults)
    with Cluster.open(proxy.address, PATIENT) as cluster, cluster.producer() as producer:
        for number in range(60):
            producer.send("orders", number % 2, batch(number))
    for partition in range(2):
        found = [int(record.value) for record in broker.log.read("orders", partition)]
        assert found == list(range(partition, 60, 2))
    assert set(proxy.faults) == set(Fault)


def test_what_the_broker_does_not_take_is_told_as_the_log_would(kafka_broker: KafkaBroker) -> None:
    kafka_broker.create_topic("orders", config={"max.message.bytes": 1000})
    with Cluster.open(kafka_broker, PATIENT) as cluster:
        producer = cluster.producer()
        producer.send("orders", 0, pack([(1, None, b"x" * 2000, ())]))
        with pytest.raises(RecordTooLarge, match=r"max\.message\.bytes"):
            producer.flush()
        with pytest.raises(RecordTooLarge):
            producer.send("orders", 0, batch(1))
        for topic, partition, error in (("others", 0, UnknownTopic), ("orders", 3, UnknownPartition)):
            with pytest.raises(error):
                cluster.producer().send(topic, partition, batch(1))
        with pytest.raises(InvalidBatch):
            cluster.producer().send("orders", 0, b"short")
        producer.close()
        assert list(kafka_broker.log.read("orders", 0)) == []


def test_a_closed_producer_says_so(kafka_broker: KafkaBroker) -> None:
    kafka_broker.create_topic("orders")
    with Cluster.open(kafka_broker) as cluster:
        with cluster.producer() as producer:
            producer.send("orders", 0, batch(1))
        with pytest.raises(LogClosed):
            producer.send("orders", 0, batch(2))


# --- leaders and answers ----------------------------------------------------------------------------------------------


@given(data=st.data())
def test_any_mishaps_leave_every_batch_once_and_in_order(data: st.DataObject) -> None:
    mishaps = st.sampled_from([None, None, Mishap.CUT, Mishap.CUT_AFTER, "elect", ErrorCode.NOT_ENOUGH_REPLICAS])
    plan = data.draw(st.lists(mishaps, max_size=25))
    sizes = data.draw(st.lists(st.integers(1, 3), min_size=1, max_size=20))
    at_once = data.draw(st.integers(1, 6))
    with SimulatedCluster(nodes=2) as simulated:
        partitions = simulated.create("orders", 2)

        def interfere(node: int, request: Request) -> Response | Mishap | None:
            if not isinstance(request, ProduceRequest) or not plan:
                return None
            happens = plan.pop()
            (topic,) = request.topic_data
            if isinstance(happens, ErrorCode):
                return produced(request, lambda topic, data: (happens, -1))
            if happens == "elect":
                number = topic.partition_data[0].index
                partitions[number].elect(3 - partitions[number].leader)
            return happens if isinstance(happens, Mishap) else None

        simulated.interfere = interfere
        expected: list[list[int]] = [[], []]
        with Cluster.open(simulated.address(), PATIENT) as cluster, cluster.producer() as producer:
            together: list[tuple[str, int, bytearray]] = []
            for number, size in enumerate(sizes):
                values = [10 * number + one for one in range(size)]
                together.append(("orders", number % 2, batch(*values)))
                expected[number % 2] += values
                if len(together) == at_once:
                    producer.send_all(together)
                    together = []
            producer.send_all(together)
        assert [values_in(partition) for partition in partitions] == expected


def test_the_first_batch_of_a_partition_is_waited_for(simulated: SimulatedCluster) -> None:
    """A broker that does not know the producer takes any number: a second batch must not overtake a refused first."""
    (partition,) = simulated.create("orders")
    simulated.interfere = refusing(ErrorCode.NOT_ENOUGH_REPLICAS)
    with Cluster.open(simulated.address(), PATIENT) as cluster, cluster.producer() as producer:
        for number in range(4):
            producer.send("orders", 0, batch(number))
    assert values_in(partition) == [0, 1, 2, 3]


def test_no_more_batches_are_on_their_way_than_a_broker_remembers(simulated: SimulatedCluster) -> None:
    simulated.create("orders")
    properties = {**PATIENT, "request.timeout.ms": "500", "delivery.timeout.ms": "1"}
    with Cluster.open(simulated.address(), properties) as cluster:
        producer = cluster.producer()
        producer.send("orders", 0, batch(0))
        producer.flush()
        simulated.interfere = lambda node, request: Mishap.SILENCE if isinstance(request, ProduceRequest) else None
        for number in range(PRODUCE_IN_FLIGHT_MAX):
            producer.send("orders", 0, batch(number))  # no answer is waited for
        with pytest.raises(BrokerUnreachable, match="did not answer"):
            producer.send("orders", 0, batch(PRODUCE_IN_FLIGHT_MAX))
    assert simulated.count("ProduceRequest") <= 1 + PRODUCE_IN_FLIGHT_MAX


def test_batches_of_several_partitions_go_in_one_request(simulated: SimulatedCluster) -> None:
    """One of each, of those that the same broker leads; what one of them is refused with is no fault of the others."""
    partitions = simulated.create("orders", 4)
    for number, partition in enumerate(partitions):
        partition.leader = 1 + number % 2
    refusals = [ErrorCode.NOT_ENOUGH_REPLICAS]

    def interfere(node: int, request: Request) -> Response | None:
        if not isinstance(request, ProduceRequest) or node != 1 or not refusals:
            return None
        code = refusals.pop()
        return produced(
            request, lambda topic, data: (code, -1) if data.index else partitions[0].produce(bytes(data.records or b""))
        )

    simulated.interfere = interfere
    with Cluster.open(simulated.address(), PATIENT) as cluster, cluster.producer() as producer:
        producer.send_all([("orders", number, batch(number)) for number in range(4)])
        producer.flush()
        assert simulated.count("ProduceRequest") == 4, "two, and what was refused again, with what was unanswered"
        producer.send_all([("orders", number % 4, batch(10 + number)) for number in range(8)])
        producer.flush()
        assert simulated.count("ProduceRequest") == 8, "two to each leader"
    assert [values_in(partition) for partition in partitions] == [[n, 10 + n, 14 + n] for n in range(4)]


def test_a_repetition_that_the_broker_no_longer_places_is_what_was_wanted(simulated: SimulatedCluster) -> None:
    simulated.create("orders")
    simulated.interfere = refusing(ErrorCode.DUPLICATE_SEQUENCE_NUMBER)
    with Cluster.open(simulated.address(), PATIENT) as cluster, cluster.producer() as producer:
        producer.send("orders", 0, batch(1))


def test_numbers_that_the_broker_contradicts_end_the_producer(simulated: SimulatedCluster) -> None:
    (partition,) = simulated.create("orders")
    with Cluster.open(simulated.address(), PATIENT) as cluster:
        producer = cluster.producer()
        producer.send("orders", 0, batch(1))
        producer.flush()
        for known in partition.sequences.values():
            known[:] = [(-1, 0, 0)]  # it has lost a batch that it acknowledged
        producer.send("orders", 0, batch(2))
        with pytest.raises(OutOfOrderSequence):
            producer.flush()
        with pytest.raises(OutOfOrderSequence):
            producer.flush()
        producer.close()
        assert values_in(partition) == [1]


@pytest.mark.parametrize("code", [ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.CORRUPT_MESSAGE])
def test_a_refusal_for_good_is_told_at_once(simulated: SimulatedCluster, code: ErrorCode) -> None:
    simulated.create("orders")
    simulated.interfere = refusing(*[code] * 3)
    with Cluster.open(simulated.address(), PATIENT) as cluster:
        producer = cluster.producer()
        producer.send("orders", 0, batch(1))
        with pytest.raises((RefusedByBroker, InvalidBatch), match=code.name):
            producer.flush()
    assert simulated.count("ProduceRequest") == 1


@pytest.mark.usefixtures("few_tries")
def test_a_leader_that_never_takes_a_batch_is_told_after_the_delivery_timeout(simulated: SimulatedCluster) -> None:
    simulated.create("orders")
    simulated.interfere = lambda node, request: Mishap.CUT if isinstance(request, ProduceRequest) else None
    with Cluster.open(simulated.address(), {**PATIENT, "delivery.timeout.ms": "40000"}) as cluster:
        producer = cluster.producer()
        producer.send("orders", 0, batch(1))
        with pytest.raises(BrokerUnreachable, match="it closed the connection"):
            producer.flush()


def test_every_batch_carries_the_producers_numbers(simulated: SimulatedCluster) -> None:
    (partition,) = simulated.create("orders")
    with Cluster.open(simulated.address(), PATIENT) as cluster:
        for _ in range(2):
            with cluster.producer() as producer:
                producer.send("orders", 0, batch(1, 2, 3))
                producer.send("orders", 0, batch(4))
    headers = [walk(one).headers[0] for one in partition.batches]
    assert [header.base_sequence for header in headers] == [0, 3, 0, 3]
    assert headers[0].producer_id == headers[1].producer_id != headers[2].producer_id == headers[3].producer_id
