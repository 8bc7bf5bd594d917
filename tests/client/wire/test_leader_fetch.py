"""Many partitions read onward: one fetch a leader, for all of its partitions, each in its order.

What goes wrong with one partition or one leader is told of that one, or passes; the others are read meanwhile. The
brokers are simulated; Apache Kafka's are in tests/clusters/test_lost_brokers.py.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager

import pytest
from hypothesis import given
from hypothesis import strategies as st

from client.wire.simulated_cluster import Mishap, SimulatedCluster
from foldlog.client.wire.leader_fetch import FetchPosition, LeaderFetcher
from foldlog.client.wire.links import ClusterLinks
from foldlog.client.wire.properties import Address, ClusterProperties, parse_addresses
from foldlog.errors import (
    AuthenticationFailed,
    FoldlogError,
    MalformedBytes,
    OffsetOutOfRange,
    RefusedByBroker,
    UnknownPartition,
    UnknownTopic,
)
from foldlog.limits import DECODED_BYTES
from foldlog.records.loops import control_batch, pack
from foldlog.wire.error_codes import ErrorCode
from foldlog.wire.frames import encode_response
from foldlog.wire.messages.fetch import FetchableTopicResponse, FetchRequest, FetchResponse, PartitionData
from foldlog.wire.messages.metadata import MetadataRequest
from foldlog.wire.schema import Request, Response

NODES = 3
PARTITIONS = 6
RECORDS = 12
PATIENT = {"retry.backoff.ms": "1", "retry.backoff.max.ms": "2", "fetch.max.wait.ms": "1"}
ONE_BY_ONE = {**PATIENT, "max.partition.fetch.bytes": "1"}
"""Each fetch brings one record of each partition."""

NEVER_SOON = {**PATIENT, "fetch.max.wait.ms": "600000"}
"""A leader with something unread is not asked again for some of its partitions only."""

WAIT_S = 60.0


def filled(simulated: SimulatedCluster, topic: str = "orders", partitions: int = PARTITIONS) -> SimulatedCluster:
    """Partition n is led by node n % 3 + 1, and has a dozen batches of one record."""
    for number, partition in enumerate(simulated.create(topic, partitions)):
        partition.leader = number % NODES + 1
        for record in range(RECORDS):
            partition.append(pack([(1, None, b"%d.%d" % (number, record), ())]))
    return simulated


@pytest.fixture
def simulated() -> Iterator[SimulatedCluster]:
    with SimulatedCluster(nodes=NODES) as started:
        yield filled(started)


def whole(*numbers: int) -> dict[int, list[bytes]]:
    chosen = numbers or tuple(range(PARTITIONS))
    return {number: [b"%d.%d" % (number, record) for record in range(RECORDS)] for number in chosen}


class Read:
    """A fetcher, and what was read with it: values by partition, and problems."""

    def __init__(self, fetcher: LeaderFetcher, topic: str = "orders") -> None:
        self.fetcher = fetcher
        self.values: dict[int, list[bytes]] = {}
        self.problems: dict[int, FoldlogError] = {}
        self._topic = topic

    def add(self, *numbers: int, offset: int = 0) -> list[FetchPosition]:
        return [self.fetcher.add(self._topic, number, offset) for number in numbers]

    def poll(self) -> None:
        for position in self.fetcher.poll(WAIT_S):
            if position.problem is not None:
                self.problems[position.number] = position.problem
            elif not position.is_paused:
                self.take(position)

    def take(self, position: FetchPosition) -> list[bytes]:
        taken: list[bytes] = []
        while records := position.take(DECODED_BYTES):
            taken += [record.value or b"" for record in records]
        assert position.read_to == position.offset
        self.values.setdefault(position.number, []).extend(taken)
        return taken

    def until(self, is_so: Callable[[], bool]) -> None:
        while not is_so():
            self.poll()

    def until_read(self, *numbers: int) -> None:
        wanted = whole(*numbers)
        self.until(lambda: all(len(self.values.get(number, [])) >= RECORDS for number in wanted))


@contextmanager
def reading(simulated: SimulatedCluster, properties: dict[str, str], node: int = 1) -> Iterator[Read]:
    links = ClusterLinks(parse_addresses(simulated.address(node)), ClusterProperties.parse(properties))
    with closing(links):
        links.open()
        with closing(LeaderFetcher(links)) as fetcher:
            yield Read(fetcher)


def until_unread(fetcher: LeaderFetcher, *positions: FetchPosition) -> None:
    while not all(one.is_unread for one in positions):
        fetcher.poll(WAIT_S)


def numbers_in(request: FetchRequest) -> list[int]:
    return [one.partition for topic in request.topics for one in topic.partitions]


def of_partition(request: Request, number: int) -> bool:
    return isinstance(request, FetchRequest) and number in numbers_in(request)


def answering(
    request: FetchRequest, simulated: SimulatedCluster, node: int, change: Callable[[PartitionData], PartitionData]
) -> Response:
    """What the node answers, but for what is changed."""
    answer = simulated._fetch(node, request)
    assert isinstance(answer, FetchResponse)
    topics = [
        FetchableTopicResponse(topic=one.topic, topic_id=one.topic_id, partitions=list(map(change, one.partitions)))
        for one in answer.responses
    ]
    return FetchResponse(responses=topics)


# --- what is asked ----------------------------------------------------------------------------------------------------


def test_each_leader_is_asked_for_all_of_its_partitions_at_once_over_one_connection(
    simulated: SimulatedCluster,
) -> None:
    asked: list[tuple[int, list[int]]] = []

    def note(node: int, request: Request) -> None:
        if isinstance(request, FetchRequest):
            asked.append((node, sorted(numbers_in(request))))

    simulated.interfere = note
    with reading(simulated, ONE_BY_ONE) as read:
        read.add(*range(PARTITIONS))
        read.until_read()
        assert read.values == whole()
    assert {(node, tuple(numbers)) for node, numbers in asked} == {(1, (0, 3)), (2, (1, 4)), (3, (2, 5))}
    assert simulated.connections_made == NODES  # the first was for the question who leads


def test_a_cluster_without_topic_ids_is_asked_by_name() -> None:
    with SimulatedCluster(nodes=NODES) as simulated:
        filled(simulated).topics["orders"].topic_id = bytes(16)
        with reading(simulated, ONE_BY_ONE) as read:
            read.add(*range(PARTITIONS))
            read.until_read()
            assert read.values == whole()


def test_several_topics_are_read_by_one_fetcher(simulated: SimulatedCluster) -> None:
    filled(simulated, "payments", 2)
    with reading(simulated, PATIENT) as read:
        other = Read(read.fetcher, "payments")
        read.add(0, 3)
        payments = other.add(0)
        read.until(lambda: len(read.values) == 2 and payments[0].read_to == RECORDS)
    assert simulated.count("FetchRequest", 1) >= 1


def test_the_next_fetch_is_for_all_partitions_of_a_leader_once_its_answer_is_decoded(
    simulated: SimulatedCluster,
) -> None:
    """A fetch for the one that is decoded first would wait for it at the broker, and the other with it."""
    asked: list[tuple[list[int], int]] = []

    def note(node: int, request: Request) -> None:
        if isinstance(request, FetchRequest):
            asked.append((sorted(numbers_in(request)), request.max_wait_ms))

    simulated.interfere = note
    with reading(simulated, {**NEVER_SOON, "max.partition.fetch.bytes": "1"}) as read:
        first, second = read.add(0, 3)
        until_unread(read.fetcher, first, second)
        read.take(first)
        assert read.fetcher.ask() == []
        read.take(second)
        until_unread(read.fetcher, first, second)
    assert asked == [([0, 3], 600_000)] * 2


def test_a_partition_that_nobody_reads_does_not_keep_the_others_from_being_read(simulated: SimulatedCluster) -> None:
    """They are asked for without it, and the leader does not wait for them."""
    waits: set[tuple[tuple[int, ...], int]] = set()

    def note(node: int, request: Request) -> None:
        if isinstance(request, FetchRequest):
            waits.add((tuple(sorted(numbers_in(request))), request.max_wait_ms))

    simulated.interfere = note
    with reading(simulated, {**ONE_BY_ONE, "fetch.max.wait.ms": "2"}) as read:
        stuck, other = read.add(0, 3)
        taken: list[bytes] = []
        while len(taken) < RECORDS:
            read.fetcher.poll(WAIT_S)
            taken += read.take(other)
        assert (taken, stuck.is_unread, stuck.read_to) == (whole()[3], True, 0)
    assert waits == {((0, 3), 2), ((3,), 0)}


def test_partitions_take_turns_where_an_answer_is_full_with_one(simulated: SimulatedCluster) -> None:
    order: list[int] = []
    with reading(simulated, {**ONE_BY_ONE, "fetch.max.bytes": "1"}) as read:
        read.add(0, 3)
        for _ in range(6):
            came: list[FetchPosition] = []
            while not came:
                came = read.fetcher.poll(WAIT_S)
            order += [position.number for position in came]
            for position in came:
                read.take(position)
    assert order == [0, 3, 0, 3, 0, 3]


def test_a_leader_that_holds_back_is_left_alone_for_as_long_as_it_says(simulated: SimulatedCluster) -> None:
    def throttled(node: int, request: Request) -> Response | None:
        if node != 1 or not isinstance(request, FetchRequest):
            return None
        answer = simulated._fetch(node, request)
        assert isinstance(answer, FetchResponse)
        return FetchResponse(throttle_time_ms=600_000, responses=answer.responses)

    simulated.interfere = throttled
    with reading(simulated, ONE_BY_ONE) as read:
        read.add(0, 1)
        read.until_read(1)
        read.until(lambda: 0 in read.values)
        simulated.topics["orders"].partitions[1].append(pack([(1, None, b"one more", ())]))
        read.until(lambda: len(read.values[1]) > RECORDS)
        assert read.values[0] == [b"0.0"]
    assert simulated.count("FetchRequest", 1) == 1


def test_a_leader_that_has_nothing_and_does_not_wait_is_not_asked_without_end(simulated: SimulatedCluster) -> None:
    properties = {**ONE_BY_ONE, "fetch.max.wait.ms": "600000", "retry.backoff.ms": "600000"}
    with reading(simulated, properties) as read:
        read.add(0, offset=RECORDS)
        read.until(lambda: any(one.due_s > 0 for one in read.fetcher._leaders.values()))
        read.add(1)
        read.until_read(1)
    assert simulated.count("FetchRequest", 1) == 1


def test_a_leader_that_was_left_alone_is_asked_again_when_that_is_over(simulated: SimulatedCluster) -> None:
    """And not when a fetch would have been over that waits at the broker."""
    with reading(simulated, NEVER_SOON) as read:
        read.add(0, offset=RECORDS)
        read.until(lambda: any(one.due_s > 0 for one in read.fetcher._leaders.values()))
        (leader,) = read.fetcher._leaders.values()
        next_s = read.fetcher._next_due_s()
        assert next_s == leader.due_s or leader.due_s <= time.monotonic()
        simulated.topics["orders"].partitions[0].append(pack([(1, None, b"one more", ())]))
        read.until(lambda: 0 in read.values)
        assert read.values == {0: [b"one more"]}


# --- leaders ----------------------------------------------------------------------------------------------------------


def test_a_leader_that_says_nothing_holds_up_its_own_partitions_only(simulated: SimulatedCluster) -> None:
    def silent(node: int, request: Request) -> Mishap | None:
        return Mishap.SILENCE if node == 1 and isinstance(request, FetchRequest) else None

    simulated.interfere = silent
    with reading(simulated, {**ONE_BY_ONE, "request.timeout.ms": "1000"}, node=2) as read:
        read.add(*range(PARTITIONS))
        read.until_read(1, 2, 4, 5)
        assert read.values == whole(1, 2, 4, 5)
        for number in (0, 3):
            simulated.topics["orders"].partitions[number].elect(2)
        read.until_read()
        assert read.values == whole()


def test_half_an_answer_holds_up_its_own_partitions_only(simulated: SimulatedCluster) -> None:
    sent = threading.Event()

    def halved(node: int, request: Request) -> bytes | None:
        if node != 1 or not isinstance(request, FetchRequest) or sent.is_set():
            return None
        sent.set()
        return b"\0\x0f\0\0" + bytes(100)

    simulated.interfere = halved
    with reading(simulated, {**ONE_BY_ONE, "request.timeout.ms": "1000"}, node=2) as read:
        read.add(*range(PARTITIONS))
        read.until_read(1, 2, 4, 5)
        read.until_read()
        assert read.values == whole()


def test_an_answer_may_come_in_parts_that_are_long_apart(simulated: SimulatedCluster) -> None:
    rest: list[bytes] = []

    def halved(node: int, request: Request) -> bytes | None:
        if not of_partition(request, 1) or rest:
            return None
        (leader,) = read.fetcher._leaders.values()
        assert leader.asked is not None
        assert isinstance(request, FetchRequest)
        answer = simulated._fetch(node, request)
        frame = b"".join(encode_response(answer, leader.asked.version, leader.asked.correlation_id))
        rest.append(frame[100:])
        return frame[:100]

    simulated.interfere = halved
    with reading(simulated, PATIENT) as read:
        read.add(1)
        while not rest:
            read.fetcher.poll(0.01)
        for _ in range(3):
            assert read.fetcher.poll(0.1) == []  # a part has come, and no more
        simulated._connections[-1].sendall(rest[0])
        read.until_read(1)
        assert read.values == whole(1)
    assert simulated.connections_made == 2


@pytest.mark.parametrize("mishap", [Mishap.CUT, Mishap.CUT_AFTER])
def test_a_lost_connection_is_made_again_and_nothing_is_lost_or_doubled(
    simulated: SimulatedCluster, mishap: Mishap
) -> None:
    fetches = 0

    def cut(node: int, request: Request) -> Mishap | None:
        nonlocal fetches
        fetches += isinstance(request, FetchRequest)
        return mishap if isinstance(request, FetchRequest) and fetches % 3 == 0 else None

    simulated.interfere = cut
    with reading(simulated, ONE_BY_ONE) as read:
        read.add(*range(PARTITIONS))
        read.until_read()
        assert (read.values, read.problems) == (whole(), {})


def test_a_broker_that_is_gone_is_waited_for_and_the_others_are_read_on(simulated: SimulatedCluster) -> None:
    """It still leads, as far as the others know: only when they know better its partitions are read."""
    simulated.refuse(1)
    with reading(simulated, ONE_BY_ONE, node=2) as read:
        read.add(*range(PARTITIONS))
        read.until_read(1, 2, 4, 5)
        read.until(lambda: read.fetcher.is_troubled)
        for number in (0, 3):
            simulated.topics["orders"].partitions[number].elect(3)
        read.until_read()
        assert (read.values, read.problems) == (whole(), {})
        read.until(lambda: not read.fetcher.is_troubled)


def test_a_partition_without_a_leader_is_waited_for(simulated: SimulatedCluster) -> None:
    simulated.topics["orders"].partitions[0].leader = -1
    with reading(simulated, ONE_BY_ONE) as read:
        read.add(0, 1)
        read.until_read(1)
        assert read.values == whole(1)
        simulated.topics["orders"].partitions[0].leader = 2
        read.until_read(0, 1)
        assert (read.values, read.problems) == (whole(0, 1), {})


@given(moves=st.lists(st.tuples(st.integers(0, PARTITIONS - 1), st.integers(1, NODES)), max_size=20))
def test_leaders_may_move_at_any_time(moves: list[tuple[int, int]]) -> None:
    with SimulatedCluster(nodes=NODES) as simulated:
        partitions = filled(simulated).topics["orders"].partitions
        waiting = list(moves)

        def move(node: int, request: Request) -> None:
            if isinstance(request, FetchRequest) and waiting:
                number, leader = waiting.pop()
                partitions[number].elect(leader)

        simulated.interfere = move
        with reading(simulated, ONE_BY_ONE) as read:
            read.add(*range(PARTITIONS))
            read.until_read()
            assert (read.values, read.problems) == (whole(), {})


def test_who_is_not_let_in_is_told_of_every_partition_there_and_tries_again(simulated: SimulatedCluster) -> None:
    refusal = AuthenticationFailed("somewhere", "ann", "PLAIN", "it does not know her")
    refused = simulated.address(1)

    class Refusing(ClusterLinks):
        is_refused = True

        def borrow(self, address: Address) -> object:  # type: ignore[override]
            if self.is_refused and str(address) == refused and threading.current_thread().name != "MainThread":
                raise refusal
            return super().borrow(address)

    links = Refusing(parse_addresses(simulated.address(2)), ClusterProperties.parse(ONE_BY_ONE))
    with closing(links):
        links.open()
        with closing(LeaderFetcher(links)) as fetcher:
            read = Read(fetcher)
            positions = read.add(*range(PARTITIONS))
            read.until_read(1, 2, 4, 5)
            read.until(lambda: len(read.problems) == 2)
            assert read.problems == {0: refusal, 3: refusal}
            links.is_refused = False
            for position in positions:
                position.go_on()
            read.until_read()
            assert read.values == whole()


# --- what is wrong with one partition ---------------------------------------------------------------------------------


def test_an_offset_that_is_not_in_the_log_is_told_of_its_partition_only(simulated: SimulatedCluster) -> None:
    simulated.topics["orders"].partitions[3].start = 4
    with reading(simulated, ONE_BY_ONE) as read:
        (_, gone), (beyond,) = read.add(0, 3), read.add(1, offset=RECORDS + 1)
        read.until_read(0)
        read.until(lambda: len(read.problems) == 2)
        assert isinstance(read.problems[1], OffsetOutOfRange)
        error = read.problems[3]
        assert isinstance(error, OffsetOutOfRange)
        assert (error.wanted, error.start, error.end) == (0, 4, RECORDS)
        gone.seek(error.start)
        beyond.seek(RECORDS - 1)
        read.until(lambda: len(read.values.get(3, [])) == RECORDS - 4 and 1 in read.values)
        assert (read.values[3], read.values[1]) == (whole()[3][4:], [b"1.11"])


def test_a_new_leader_that_does_not_know_its_end_yet_is_asked_again(simulated: SimulatedCluster) -> None:
    told: list[int] = []

    def unsure(node: int, request: Request) -> Response | None:
        if not of_partition(request, 0) or len(told) == 3:
            return None
        told.append(node)
        assert isinstance(request, FetchRequest)
        out = PartitionData(partition_index=0, error_code=ErrorCode.OFFSET_OUT_OF_RANGE)
        return answering(request, simulated, node, lambda data: data if data.partition_index else out)

    simulated.interfere = unsure
    with reading(simulated, ONE_BY_ONE) as read:
        read.add(0, 3)
        read.until_read(0, 3)
        assert (read.values, read.problems) == (whole(0, 3), {})
    assert len(told) == 3


def test_a_topic_or_a_partition_that_is_not_there_is_told_of_it_only(simulated: SimulatedCluster) -> None:
    with reading(simulated, ONE_BY_ONE) as read:
        (missing,) = Read(read.fetcher, "missing").add(0)
        (beyond,) = read.add(PARTITIONS)
        read.add(0)
        read.until_read(0)
        read.until(lambda: missing.problem is not None and beyond.problem is not None)
        assert isinstance(missing.problem, UnknownTopic)
        assert isinstance(beyond.problem, UnknownPartition)


@pytest.mark.parametrize("is_made_again", [False, True])
def test_a_topic_that_is_deleted_is_told_also_if_there_is_another_one_of_that_name(
    simulated: SimulatedCluster, is_made_again: bool
) -> None:
    filled(simulated, "payments", 1)
    with reading(simulated, ONE_BY_ONE) as read:
        read.add(0)
        read.until_read(0)
        read.add(1, 3)
        del simulated.topics["orders"]
        if is_made_again:
            simulated.create("orders", PARTITIONS, topic_id=b"another topic id")
        (payments,) = Read(read.fetcher, "payments").add(0)
        read.until(lambda: isinstance(read.problems.get(0), UnknownTopic) and payments.read_to == RECORDS)


def test_a_refusal_is_told_and_asked_about_again_when_the_caller_goes_on(simulated: SimulatedCluster) -> None:
    allowed = threading.Event()

    def refused(node: int, request: Request) -> Response | None:
        if not of_partition(request, 0) or allowed.is_set():
            return None
        assert isinstance(request, FetchRequest)
        no = PartitionData(partition_index=0, error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        return answering(request, simulated, node, lambda data: data if data.partition_index else no)

    simulated.interfere = refused
    with reading(simulated, ONE_BY_ONE) as read:
        position, _ = read.add(0, 3)
        read.until_read(3)
        read.until(lambda: 0 in read.problems)
        assert isinstance(read.problems[0], RefusedByBroker)
        asked = simulated.count("FetchRequest", 1)
        for _ in range(3):
            read.fetcher.poll(0.0)
        allowed.set()
        position.go_on()
        read.until_read(0)
        assert read.values == whole(0, 3)
    assert simulated.count("FetchRequest", 1) > asked


def damaged(data: PartitionData) -> PartitionData:
    records = bytearray(data.records or b"")
    if data.partition_index == 0 and records:
        records[-1] ^= 1
    return PartitionData(
        partition_index=data.partition_index, error_code=data.error_code, high_watermark=RECORDS, records=bytes(records)
    )


@pytest.mark.parametrize("times", [1, 2, 1000])
def test_a_batch_whose_crc_is_wrong_is_fetched_again_and_told_in_the_end(
    simulated: SimulatedCluster, times: int
) -> None:
    sent: list[int] = []

    def damaging(node: int, request: Request) -> Response | None:
        if not of_partition(request, 0) or len(sent) == times:
            return None
        sent.append(node)
        assert isinstance(request, FetchRequest)
        return answering(request, simulated, node, damaged)

    simulated.interfere = damaging
    with reading(simulated, ONE_BY_ONE) as read:
        read.add(0, 3)
        read.until_read(3)
        read.until(lambda: 0 in read.problems or len(read.values.get(0, [])) == RECORDS)
        if times == 1000:
            assert isinstance(read.problems[0], MalformedBytes)
            assert "CRC" in str(read.problems[0])
        else:
            assert (read.values, read.problems) == (whole(0, 3), {})


@pytest.mark.parametrize("wrong", ["missing", "another"])
@pytest.mark.parametrize("times", [1, 1000])
def test_an_answer_that_is_not_about_what_was_asked_is_not_believed_and_told_in_the_end(
    simulated: SimulatedCluster, wrong: str, times: int
) -> None:
    sent: list[int] = []

    def odd(node: int, request: Request) -> Response | None:
        if not of_partition(request, 0) or len(sent) == times:
            return None
        sent.append(node)
        assert isinstance(request, FetchRequest)
        (topic,) = request.topics
        parts = [PartitionData(partition_index=5)] if wrong == "another" else []
        return FetchResponse(responses=[FetchableTopicResponse(topic_id=topic.topic_id, partitions=parts)])

    simulated.interfere = odd
    with reading(simulated, ONE_BY_ONE) as read:
        read.add(0)
        read.until(lambda: 0 in read.problems or len(read.values.get(0, [])) == RECORDS)
        if times == 1:
            assert (read.values, read.problems) == (whole(0), {})
        else:
            assert isinstance(read.problems[0], MalformedBytes)


def test_a_batch_over_the_limit_that_comes_cut_is_asked_for_with_more(simulated: SimulatedCluster) -> None:
    """Kafka sends a large batch whole only if it is the first of an answer."""

    def cutting(node: int, request: Request) -> Response | None:
        if not isinstance(request, FetchRequest):
            return None
        limits = {one.partition: one.partition_max_bytes for topic in request.topics for one in topic.partitions}

        def cut(data: PartitionData) -> PartitionData:
            records = bytes(data.records or b"")[: limits[data.partition_index]]
            return PartitionData(partition_index=data.partition_index, high_watermark=RECORDS, records=records)

        return answering(request, simulated, node, cut)

    simulated.interfere = cutting
    with reading(simulated, {**PATIENT, "max.partition.fetch.bytes": "70"}) as read:
        read.add(0, 3)
        read.until_read(0, 3)
        assert (read.values, read.problems) == (whole(0, 3), {})


def test_aborted_transactions_and_control_batches_are_passed_over(simulated: SimulatedCluster) -> None:
    def transactional(producer_id: int, *values: bytes) -> bytes:
        rows = [(1, None, value, ()) for value in values]
        return bytes(pack(rows, producer_id=producer_id, producer_epoch=0, base_sequence=0, transactional=True))

    (partition,) = simulated.create("payments", 1)
    committed, aborted = transactional(2, b"c1"), transactional(1, b"a1", b"a2")
    for batch in (committed, aborted, control_batch(0, 0, 1, 0, 1), control_batch(1, 0, 2, 0, 1)):
        partition.append(batch)
    partition.aborted = [(1, 1, 3)]
    limits = {"isolation.level": "read_committed", "max.partition.fetch.bytes": str(len(committed) + len(aborted))}
    with reading(simulated, {**PATIENT, **limits}) as read:
        (position,) = Read(read.fetcher, "payments").add(0)
        read.until(lambda: position.read_to == 5)
        assert read.values == {0: [b"c1"]}
        assert not position.is_unread


# --- moving about -----------------------------------------------------------------------------------------------------


def test_what_is_on_its_way_when_a_partition_is_moved_is_dropped_for_it_alone(simulated: SimulatedCluster) -> None:
    with reading(simulated, NEVER_SOON) as read:
        moved, other = read.add(0, 3, offset=10)
        while simulated.count("FetchRequest", 1) == 0:
            read.fetcher._ready(0.01)
            read.fetcher.ask()
        moved.seek(2)
        read.until(lambda: moved.read_to == RECORDS and other.read_to == RECORDS)
        assert read.values == {0: whole()[0][2:], 3: [b"3.10", b"3.11"]}


def test_what_came_before_a_partition_is_moved_is_dropped(simulated: SimulatedCluster) -> None:
    with reading(simulated, PATIENT) as read:
        (moved,) = read.add(0)
        until_unread(read.fetcher, moved)
        moved.seek(10)
        assert (moved.is_unread, moved.take(DECODED_BYTES), moved.read_to) == (False, [], 10)
        read.until(lambda: moved.read_to == RECORDS)
        assert read.values == {0: [b"0.10", b"0.11"]}


def test_a_paused_partition_is_not_asked_for_and_keeps_what_came(simulated: SimulatedCluster) -> None:
    """Its bytes stay as they are while large answers come over the same connection."""
    partitions = simulated.topics["orders"].partitions
    for number in (0, 3):
        for _ in range(3):
            partitions[number].append(pack([(1, None, bytes([number + 1]) * 200_000, ())]))
    asked: list[list[int]] = []

    def note(node: int, request: Request) -> None:
        if isinstance(request, FetchRequest):
            asked.append(numbers_in(request))

    with reading(simulated, {**PATIENT, "max.partition.fetch.bytes": "300000"}) as read:
        paused, other = read.add(0, 3)
        until_unread(read.fetcher, paused)
        read.take(other)
        paused.is_paused = True
        simulated.interfere = note
        read.until(lambda: other.read_to == RECORDS + 3)
        assert {tuple(numbers) for numbers in asked} == {(3,)}
        assert (paused.is_unread, paused.read_to) == (True, 0)
        paused.is_paused = False
        read.take(paused)
        read.until(lambda: paused.read_to == RECORDS + 3)
        assert read.values[0] == [*whole()[0], *[b"\1" * 200_000] * 3]


def test_a_partition_that_is_paused_from_the_start_is_asked_for_once_it_is_resumed(simulated: SimulatedCluster) -> None:
    asked: set[int] = set()

    def note(node: int, request: Request) -> None:
        if isinstance(request, FetchRequest):
            asked.update(numbers_in(request))

    simulated.interfere = note
    with reading(simulated, ONE_BY_ONE) as read:
        paused, _ = read.add(0, 3)
        paused.is_paused = True
        read.until_read(3)
        assert asked == {3}
        paused.is_paused = False
        read.until_read(0)
        assert read.values == whole(0, 3)


def test_what_is_on_its_way_when_a_partition_is_paused_is_kept(simulated: SimulatedCluster) -> None:
    with reading(simulated, NEVER_SOON) as read:
        paused, other = read.add(0, 3)
        while simulated.count("FetchRequest", 1) == 0:
            read.fetcher._ready(0.01)
            read.fetcher.ask()
        paused.is_paused = True
        read.until(lambda: other.read_to == RECORDS)
        assert paused.is_unread
        assert read.take(paused) == whole()[0]


def test_partitions_come_and_go(simulated: SimulatedCluster) -> None:
    with reading(simulated, ONE_BY_ONE) as read:
        first, second = read.add(0, 1)
        read.until(lambda: len(read.values.get(0, [])) >= 3)
        read.fetcher.remove(first)
        values = list(read.values[0])
        read.add(3)
        read.until_read(1, 3)
        assert read.values[0] == values
        read.fetcher.remove(second)
        (again,) = read.add(0, offset=len(values))
        read.until(lambda: again.read_to == RECORDS)
        assert read.values == whole(0, 1, 3)


def test_a_connection_whose_partitions_are_all_gone_is_given_back(simulated: SimulatedCluster) -> None:
    with reading(simulated, NEVER_SOON) as read:
        (first,) = read.add(1)
        read.until(lambda: first.read_to == RECORDS)
        read.until(lambda: all(leader.asked is None for leader in read.fetcher._leaders.values()))
        read.fetcher.remove(first)
        read.fetcher.ask()
        assert read.fetcher._leaders == {}
        made = simulated.connections_made
        (second,) = read.add(4)
        read.until(lambda: second.read_to == RECORDS)
        assert simulated.connections_made == made


def test_a_fetcher_is_woken_by_another_thread(simulated: SimulatedCluster) -> None:
    """Also while the metadata is asked for, which nobody answers."""
    arrived = threading.Event()

    def silent(node: int, request: Request) -> Mishap | None:
        if isinstance(request, MetadataRequest) and request.topics:
            arrived.set()
            return Mishap.SILENCE
        return None

    with reading(simulated, NEVER_SOON) as read:
        simulated.interfere = silent
        read.add(0)

        def wake() -> None:
            arrived.wait()
            read.fetcher.wake()

        waker = threading.Thread(target=wake)
        waker.start()
        assert read.fetcher.poll(WAIT_S * 10) == []
        waker.join()
