"""Brokers that are away, die, are silent, talk garbage or no longer lead: reading goes on exactly where it was, or ends
in one sentence.

A real broker goes away and comes back in the middle of a range; everything else is done by a simulated cluster, into
whose answers each test steps. No test waits for a time: patience is set to milliseconds, and where it has to end the
answer never changes.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from client.test_forks import in_child
from client.wire.simulated_cluster import Interference, Mishap, SimulatedCluster, SimulatedPartition
from client.wire.test_cluster_reads import read
from foldlog.client.wire import links as cluster_links
from foldlog.client.wire.cluster import Cluster
from foldlog.errors import (
    BrokerUnreachable,
    FoldlogError,
    LogClosed,
    MalformedBytes,
    OffsetOutOfRange,
    RefusedByBroker,
    UnknownTopic,
)
from foldlog.records.loops import pack
from foldlog.testing.plugin import KafkaBrokerFactory
from foldlog.wire.error_codes import ErrorCode
from foldlog.wire.messages.create_topics import CreateTopicsRequest
from foldlog.wire.messages.fetch import FetchableTopicResponse, FetchRequest, FetchResponse, PartitionData
from foldlog.wire.messages.list_offsets import ListOffsetsRequest
from foldlog.wire.messages.metadata import MetadataRequest, MetadataResponse
from foldlog.wire.messages.offset_commit import OffsetCommitRequest
from foldlog.wire.schema import Request, Response

PATIENT = {"retry.backoff.ms": "1", "retry.backoff.max.ms": "2", "fetch.max.wait.ms": "1"}
"""Waits as long as Kafka's clients do, in small steps."""

RECORDS = 12


@pytest.fixture
def simulated() -> Iterator[SimulatedCluster]:
    with SimulatedCluster(nodes=2) as started:
        yield started


@pytest.fixture
def orders(simulated: SimulatedCluster) -> SimulatedPartition:
    """A topic of a dozen batches of one record each."""
    (partition,) = simulated.create("orders")
    for number in range(RECORDS):
        partition.append(pack([(1, None, b"%d" % number, ())]))
    return partition


SMALL = {**PATIENT, "max.partition.fetch.bytes": "1"}
"""Each fetch brings one record."""


def offsets_read(cluster: Cluster, stop: int = RECORDS) -> list[int]:
    return [record.offset for record in read(cluster, "orders", 0, stop)]


@pytest.fixture
def refusing() -> Iterator[list[str]]:
    """Two addresses at which nobody listens, and whose ports nobody else is given."""
    with socket.socket() as one, socket.socket() as other:
        for kept in (one, other):
            kept.bind(("127.0.0.1", 0))
        yield [f"127.0.0.1:{kept.getsockname()[1]}" for kept in (one, other)]


def once(kind: type[Request], happens: Response | Mishap | bytes, times: int = 1) -> Interference:
    """Steps in the first `times` times that such a request comes."""
    left = times

    def interfere(node: int, request: Request) -> Response | Mishap | bytes | None:
        nonlocal left
        if not isinstance(request, kind) or not left:
            return None
        left -= 1
        return happens

    return interfere


def fetch_answer(
    code: int = 0, records: bytes = b"", high_watermark: int = RECORDS, partition: int = 0
) -> FetchResponse:
    data = PartitionData(
        partition_index=partition, error_code=code, high_watermark=high_watermark, last_stable_offset=high_watermark,
        log_start_offset=0, records=records,
    )  # fmt: skip
    return FetchResponse(responses=[FetchableTopicResponse(topic_id=(1).to_bytes(16, "big"), partitions=[data])])


# --- finding a broker -------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("few_tries")
def test_where_nobody_listens_the_addresses_are_named_and_what_to_check(refusing: list[str]) -> None:
    one, other = refusing
    with pytest.raises(BrokerUnreachable) as refused:
        Cluster.open(f"{one},{other}", PATIENT)
    assert refused.value.addresses == [one, other]
    assert str(refused.value).startswith(
        f"no answer from the Kafka cluster at {one}, {other}: {one}: Connection refused"
    )
    assert "check the addresses (also those that the brokers advertise)" in str(refused.value)


def test_brokers_that_answered_somebody_before_are_waited_for_as_long_as_any_call_lasts(
    simulated: SimulatedCluster, orders: SimulatedPartition, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster_links, "CLUSTER_SEARCH_MS", 0)  # the first refusal is the last
    simulated.interfere = once(MetadataRequest, Mishap.CUT, times=10)
    with pytest.raises(BrokerUnreachable):
        Cluster.open(simulated.address(), PATIENT)
    with Cluster.open(simulated.address(), PATIENT, has_answered=True) as cluster:
        assert cluster.topics() == ["orders"]
    assert simulated.count("MetadataRequest") > 10


@pytest.mark.usefixtures("few_tries")
def test_a_host_that_cannot_exist_is_told() -> None:
    with pytest.raises(BrokerUnreachable, match=r"kafka\.\.example:9092: "):
        Cluster.open("kafka..example:9092", PATIENT)


def test_addresses_are_tried_in_turn(
    simulated: SimulatedCluster, orders: SimulatedPartition, refusing: list[str]
) -> None:
    with Cluster.open(f"{refusing[0]},{simulated.address(2)}", PATIENT) as cluster:
        assert offsets_read(cluster) == list(range(RECORDS))


def test_a_broker_that_accepts_and_never_answers_is_given_up() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = f"127.0.0.1:{listener.getsockname()[1]}"
        with pytest.raises(
            BrokerUnreachable, match=rf"{address}: it did not answer within (request|default\.api)\.timeout"
        ):
            Cluster.open(address, {**PATIENT, "default.api.timeout.ms": "400", "request.timeout.ms": "30"})


NO_BROKER = "no Kafka broker answers so"


@pytest.mark.parametrize(
    ("garbage", "said"),
    [
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", NO_BROKER),
        (b"SSH-2.0-OpenSSH_9.2\r\n", NO_BROKER),
        (b"\x15\x03\x03\x00\x02\x02\x46", "speaks TLS, and security.protocol is PLAINTEXT"),  # an alert
    ],
)
def test_something_that_is_no_broker_is_told_in_a_sentence(garbage: bytes, said: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            with suppress(OSError):
                while True:
                    connection, _ = listener.accept()
                    connection.sendall(garbage)

        threading.Thread(target=serve, daemon=True).start()
        with pytest.raises(BrokerUnreachable, match=said):
            Cluster.open(f"127.0.0.1:{listener.getsockname()[1]}", PATIENT)
        listener.shutdown(socket.SHUT_RDWR)


@pytest.mark.usefixtures("few_tries")
def test_a_leader_that_cannot_be_reached_is_named_with_the_hint_at_what_brokers_advertise(
    simulated: SimulatedCluster, orders: SimulatedPartition
) -> None:
    orders.leader = 2
    address = simulated.address(2)
    real = simulated._metadata

    def advertise(node: int, request: Request) -> Response | None:
        if not isinstance(request, MetadataRequest):
            return None
        answer = real(request)
        assert isinstance(answer, MetadataResponse)
        answer.brokers[1].host, answer.brokers[1].port = "127.0.0.1", 70_000
        return answer

    simulated.interfere = advertise
    with (
        Cluster.open(simulated.address(1), PATIENT) as cluster,
        pytest.raises(BrokerUnreachable, match=r"127\.0\.0\.1:70000: ") as refused,
    ):
        offsets_read(cluster)
    assert address not in refused.value.why


# --- brokers that are lost --------------------------------------------------------------------------------------------


def test_a_broker_that_goes_away_and_comes_back_is_gone_on_from_where_it_was(
    kafka_broker_factory: KafkaBrokerFactory, tmp_path: Path
) -> None:
    broker = kafka_broker_factory(path=tmp_path / "data")
    broker.create_topic("orders")
    for number in range(RECORDS):
        broker.log.append("orders", str(number))
    found: list[int] = []
    with Cluster.open(broker, SMALL) as cluster:
        for number, fetched in enumerate(cluster.fetch_range("orders", 0, 0, RECORDS)):
            found.append(fetched.next_offset)
            if number % 4 == 1:
                broker.restart()
    assert found == list(range(1, RECORDS + 1))


@pytest.mark.parametrize("mishap", [Mishap.CUT, Mishap.CUT_AFTER])
def test_connections_that_are_cut_at_every_other_fetch_lose_and_double_nothing(
    simulated: SimulatedCluster, orders: SimulatedPartition, mishap: Mishap
) -> None:
    count = 0

    def interfere(node: int, request: Request) -> Mishap | None:
        nonlocal count
        count += isinstance(request, FetchRequest)
        return mishap if isinstance(request, FetchRequest) and count % 2 else None

    simulated.interfere = interfere
    with Cluster.open(simulated.address(), SMALL) as cluster:
        assert offsets_read(cluster) == list(range(RECORDS))
    assert count > 2 * RECORDS - 2


def test_a_fetch_that_is_never_answered_is_asked_again(simulated: SimulatedCluster, orders: SimulatedPartition) -> None:
    simulated.interfere = once(FetchRequest, Mishap.SILENCE)
    with Cluster.open(simulated.address(), {**SMALL, "request.timeout.ms": "50"}) as cluster:
        assert offsets_read(cluster) == list(range(RECORDS))


@pytest.mark.usefixtures("few_tries")
def test_a_broker_that_dies_for_good_is_told_after_the_patience(
    simulated: SimulatedCluster, orders: SimulatedPartition
) -> None:
    soon_known = {"socket.connection.setup.timeout.ms": "100"}  # that it does not speak TLS either
    with Cluster.open(simulated.address(), {**SMALL, **soon_known}) as cluster:
        answers = cluster.fetch_range("orders", 0, 0, RECORDS)
        assert next(answers).next_offset == 1
        simulated.interfere = lambda node, request: Mishap.CUT
        with pytest.raises(BrokerUnreachable, match="it closed the connection"):
            list(answers)
        simulated.interfere = lambda node, request: None
        assert offsets_read(cluster) == list(range(RECORDS))


def test_a_closed_cluster_says_so(simulated: SimulatedCluster, orders: SimulatedPartition) -> None:
    cluster = Cluster.open(simulated.address(), PATIENT)
    cluster.close()
    cluster.close()
    with pytest.raises(LogClosed):
        cluster.topics()
    with pytest.raises(LogClosed):
        offsets_read(cluster)


def test_a_forked_child_makes_its_own_connections(simulated: SimulatedCluster, orders: SimulatedPartition) -> None:
    with Cluster.open(simulated.address(), PATIENT) as cluster:

        def read_all() -> None:
            assert offsets_read(cluster) == list(range(RECORDS))

        assert in_child(read_all) == "fine"
        assert len(offsets_read(cluster)) == RECORDS
    assert simulated.count("ApiVersionsRequest") >= 2


# --- leaders ----------------------------------------------------------------------------------------------------------


def test_a_new_leader_is_followed_in_the_middle_of_a_range(
    simulated: SimulatedCluster, orders: SimulatedPartition
) -> None:
    found = []
    with Cluster.open(simulated.address(), SMALL) as cluster:
        for fetched in cluster.fetch_range("orders", 0, 0, RECORDS):
            found.append(fetched.next_offset)
            if fetched.next_offset in (3, 7):
                orders.elect(2 if orders.leader == 1 else 1)
        assert found == list(range(1, RECORDS + 1))
        assert simulated.count("FetchRequest", node=2) > 1
        assert cluster.bounds("orders")[0].leader_epoch == 2
        assert cluster.epoch_end("orders", 0, 1) == (1, RECORDS)


def test_a_partition_without_a_leader_is_waited_for(simulated: SimulatedCluster, orders: SimulatedPartition) -> None:
    orders.leader = -1
    asked = 0

    def elect_later(node: int, request: Request) -> None:
        nonlocal asked
        asked += isinstance(request, MetadataRequest)
        if asked == 5:
            orders.leader = 2

    simulated.interfere = elect_later
    with Cluster.open(simulated.address(), PATIENT) as cluster:
        assert cluster.bounds("orders")[0].end == RECORDS
        assert offsets_read(cluster) == list(range(RECORDS))


@pytest.mark.usefixtures("few_tries")
def test_a_partition_that_never_gets_a_leader_is_told(simulated: SimulatedCluster, orders: SimulatedPartition) -> None:
    orders.leader = -1
    with Cluster.open(simulated.address(), PATIENT) as cluster:
        with pytest.raises(RefusedByBroker, match=r"LEADER_NOT_AVAILABLE \(5\) for orders-0"):
            offsets_read(cluster)
        with pytest.raises(RefusedByBroker, match="LEADER_NOT_AVAILABLE"):
            cluster.bounds("orders")


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.OFFSET_NOT_AVAILABLE,
        ErrorCode.OFFSET_OUT_OF_RANGE,
    ],
)
def test_what_passes_is_asked_again(simulated: SimulatedCluster, orders: SimulatedPartition, code: ErrorCode) -> None:
    simulated.interfere = once(FetchRequest, fetch_answer(code), times=2)
    with Cluster.open(simulated.address(), PATIENT) as cluster:
        assert offsets_read(cluster) == list(range(RECORDS))


def test_what_does_not_pass_is_told_at_once(simulated: SimulatedCluster, orders: SimulatedPartition) -> None:
    simulated.interfere = lambda node, request: (
        fetch_answer(ErrorCode.TOPIC_AUTHORIZATION_FAILED) if isinstance(request, FetchRequest) else None
    )
    with (
        Cluster.open(simulated.address(), PATIENT) as cluster,
        pytest.raises(RefusedByBroker, match=r"TOPIC_AUTHORIZATION_FAILED \(29\) for orders-0"),
    ):
        offsets_read(cluster)
    assert simulated.count("FetchRequest") == 1


def test_a_leader_that_does_not_know_the_end_yet_is_waited_for(
    simulated: SimulatedCluster, orders: SimulatedPartition
) -> None:
    """After an election a leader may tell a lower high watermark for a while, and give nothing beyond it."""
    simulated.interfere = once(FetchRequest, fetch_answer(high_watermark=3), times=3)
    with Cluster.open(simulated.address(), PATIENT) as cluster:
        assert offsets_read(cluster) == list(range(RECORDS))


def test_what_a_leader_does_not_know_yet_is_no_compacted_gap(
    simulated: SimulatedCluster, orders: SimulatedPartition
) -> None:
    simulated.topics["orders"].config["cleanup.policy"] = "compact"
    simulated.interfere = once(FetchRequest, fetch_answer(high_watermark=3), times=10)
    with Cluster.open(simulated.address(), PATIENT) as cluster:
        assert offsets_read(cluster) == list(range(RECORDS))


@pytest.mark.usefixtures("few_tries")
def test_a_broker_that_holds_records_and_sends_none_is_given_up(
    simulated: SimulatedCluster, orders: SimulatedPartition
) -> None:
    simulated.interfere = lambda node, request: fetch_answer() if isinstance(request, FetchRequest) else None
    with (
        Cluster.open(simulated.address(), PATIENT) as cluster,
        pytest.raises(BrokerUnreachable, match="the log goes on at offset 0 of orders-0, and no records come"),
    ):
        offsets_read(cluster)


# --- topics that change -----------------------------------------------------------------------------------------------


def test_a_topic_that_is_made_anew_while_it_is_read_is_another_one(
    simulated: SimulatedCluster, orders: SimulatedPartition
) -> None:
    with Cluster.open(simulated.address(), SMALL) as cluster:
        answers = cluster.fetch_range("orders", 0, 0, RECORDS)
        next(answers)
        (again,) = simulated.create("orders", topic_id=b"another topic id")
        again.batches, again.end = orders.batches, orders.end
        with pytest.raises(UnknownTopic):
            list(answers)
        assert offsets_read(cluster) == list(range(RECORDS))


def test_a_topic_that_is_deleted_while_it_is_read_is_told(
    simulated: SimulatedCluster, orders: SimulatedPartition
) -> None:
    with Cluster.open(simulated.address(), SMALL) as cluster:
        answers = cluster.fetch_range("orders", 0, 0, RECORDS)
        next(answers)
        del simulated.topics["orders"]
        with pytest.raises(UnknownTopic):
            list(answers)


def test_a_range_of_a_topic_with_another_id_is_refused(simulated: SimulatedCluster, orders: SimulatedPartition) -> None:
    with Cluster.open(simulated.address(), PATIENT) as cluster, pytest.raises(UnknownTopic):
        next(cluster.fetch_range("orders", 0, 0, RECORDS, topic_id=b"another topic id"))


def test_retention_that_overtakes_a_reader_is_told_with_what_is_left(
    simulated: SimulatedCluster, orders: SimulatedPartition
) -> None:
    with Cluster.open(simulated.address(), SMALL) as cluster:
        answers = cluster.fetch_range("orders", 0, 0, RECORDS)
        next(answers)
        next(answers)
        orders.start = 8
        with pytest.raises(OffsetOutOfRange, match="holds 8 to 12") as refused:
            list(answers)
    assert refused.value.wanted in (2, 3)  # one more may have been on its way already


# --- answers that are wrong -------------------------------------------------------------------------------------------


def damaged(partition: SimulatedPartition) -> bytes:
    batch = bytearray(partition.batches[0])
    batch[-2] ^= 1
    return bytes(batch)


def test_a_batch_that_was_damaged_on_its_way_is_asked_for_again(
    simulated: SimulatedCluster, orders: SimulatedPartition
) -> None:
    simulated.interfere = once(FetchRequest, fetch_answer(records=damaged(orders)))
    with Cluster.open(simulated.address(), PATIENT) as cluster:
        assert offsets_read(cluster) == list(range(RECORDS))


def test_a_batch_that_stays_damaged_is_told_with_its_place(
    simulated: SimulatedCluster, orders: SimulatedPartition
) -> None:
    answer = fetch_answer(records=damaged(orders))
    simulated.interfere = lambda node, request: answer if isinstance(request, FetchRequest) else None
    with (
        Cluster.open(simulated.address(), PATIENT) as cluster,
        pytest.raises(MalformedBytes, match=rf"record batch of orders-0 from {simulated.address()}: its CRC-32C"),
    ):
        offsets_read(cluster)


@pytest.mark.parametrize("what", ["another partition", "no partition", "older records"])
def test_an_answer_to_something_else_is_refused(
    simulated: SimulatedCluster, orders: SimulatedPartition, what: str
) -> None:
    answer = {
        "another partition": fetch_answer(partition=3),
        "no partition": FetchResponse(),
        "older records": fetch_answer(records=orders.batches[0]),
    }[what]
    simulated.interfere = lambda node, request: answer if isinstance(request, FetchRequest) else None
    with Cluster.open(simulated.address(), PATIENT) as cluster, pytest.raises(MalformedBytes, match="Fetch response"):
        list(cluster.fetch_range("orders", 0, 5, RECORDS))


@given(garbage=st.binary(max_size=200), framed=st.booleans(), kind=st.sampled_from([FetchRequest, MetadataRequest]))
def test_any_garbage_ends_in_an_error_of_ours(garbage: bytes, framed: bool, kind: type[Request]) -> None:
    sent = len(garbage).to_bytes(4, "big") + garbage if framed else garbage
    with SimulatedCluster() as simulated:
        (partition,) = simulated.create("orders")
        partition.append(pack([(1, None, b"v", ())]))
        properties = {**PATIENT, "request.timeout.ms": "10", "default.api.timeout.ms": "20"}
        simulated.interfere = lambda node, request: sent if isinstance(request, kind) else None
        with pytest.raises(FoldlogError), Cluster.open(simulated.address(), properties) as cluster:
            offsets_read(cluster, 1)


# --- groups and topics ------------------------------------------------------------------------------------------------


def test_a_coordinator_that_moves_is_followed(simulated: SimulatedCluster, orders: SimulatedPartition) -> None:
    def move(node: int, request: Request) -> None:
        if isinstance(request, OffsetCommitRequest):
            simulated.coordinator = 2

    simulated.interfere = move
    with Cluster.open(simulated.address(), PATIENT) as cluster:
        cluster.commit("folds", "orders", {0: 5})
    assert simulated.committed == {("folds", "orders", 0): 5}
    assert simulated.count("FindCoordinatorRequest") == 2


def test_a_topic_whose_creation_was_not_heard_of_counts_as_made(simulated: SimulatedCluster) -> None:
    simulated.interfere = once(CreateTopicsRequest, Mishap.CUT_AFTER)
    with Cluster.open(simulated.address(), PATIENT) as cluster:
        cluster.create_topic("orders", 2)
        assert cluster.partition_count("orders") == 2


def test_offsets_of_partitions_on_several_brokers_come_together(simulated: SimulatedCluster) -> None:
    for number, partition in enumerate(simulated.create("spread", 4)):
        partition.leader = 1 + number % 2
        partition.end = 10 * number
    with Cluster.open(simulated.address(2), PATIENT) as cluster:
        assert [bounds.end for bounds in cluster.bounds("spread").values()] == [0, 10, 20, 30]
    assert simulated.count("ListOffsetsRequest", node=1) == simulated.count("ListOffsetsRequest", node=2) == 2


def test_an_end_that_a_new_leader_told_has_its_epoch(simulated: SimulatedCluster, orders: SimulatedPartition) -> None:
    """Under the old one, what the new leader wrote would look as if the log had been cut back before it."""

    def elect(node: int, request: Request) -> None:
        if isinstance(request, ListOffsetsRequest) and orders.epoch == 0:
            orders.elect(2)
            orders.append(pack([(1, None, b"new", ())]))

    simulated.interfere = elect
    with Cluster.open(simulated.address(), PATIENT) as cluster:
        assert cluster.bounds("orders") == {0: (0, RECORDS + 1, 1)}
