"""Several partitions read by one reader: from all their leaders at the same time, each in its order.

A leader that is silent, lost or new holds up its own partitions only. The brokers are simulated; Apache Kafka's are in
tests/clusters/test_leaders.py.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import closing

import pytest
from hypothesis import given
from hypothesis import strategies as st

from client.wire.simulated_cluster import Mishap, SimulatedCluster
from foldlog.client.wire import ranges as cluster_ranges
from foldlog.client.wire.background import THREAD_NAME
from foldlog.client.wire.cluster import Cluster
from foldlog.client.wire.fetch import Fetched
from foldlog.client.wire.links import ClusterLinks
from foldlog.client.wire.properties import ClusterProperties, parse_addresses
from foldlog.client.wire.ranges import TailReader, WantedRange
from foldlog.errors import BrokerUnreachable, OffsetOutOfRange, UnknownTopic
from foldlog.records.loops import decode, pack
from foldlog.wire.messages.fetch import FetchRequest
from foldlog.wire.schema import Request

NODES = 3
PARTITIONS = 6
RECORDS = 12
PATIENT = {"retry.backoff.ms": "1", "retry.backoff.max.ms": "2", "fetch.max.wait.ms": "1"}
ONE_BY_ONE = {**PATIENT, "max.partition.fetch.bytes": "1"}
"""Each fetch brings one record."""

WHOLE = [WantedRange("orders", number, 0, RECORDS) for number in range(PARTITIONS)]


def filled(simulated: SimulatedCluster) -> SimulatedCluster:
    """Partition n is led by node n % 3 + 1, and has a dozen batches of one record."""
    for number, partition in enumerate(simulated.create("orders", PARTITIONS)):
        partition.leader = number % NODES + 1
        for record in range(RECORDS):
            partition.append(pack([(1, None, b"%d.%d" % (number, record), ())]))
    return simulated


@pytest.fixture
def simulated() -> Iterator[SimulatedCluster]:
    with SimulatedCluster(nodes=NODES) as started:
        yield filled(started)


class Found:
    """What came, by partition; each answer is decoded when it comes, as it is good until the next."""

    def __init__(self) -> None:
        self.values: dict[int, list[bytes]] = {}

    def add(self, wanted: WantedRange, fetched: Fetched) -> None:
        values = self.values.setdefault(wanted.partition, [])
        for piece in fetched.pieces:
            records, _ = decode(piece, "orders", wanted.partition, start_offset=wanted.start, end_offset=wanted.stop)
            values += [record.value or b"" for record in records]


NO_PATIENCE = {
    **ONE_BY_ONE,
    "request.timeout.ms": "20000",
    "default.api.timeout.ms": "10000",
    "retry.backoff.ms": "10000",
    "retry.backoff.max.ms": "10000",
}
"""Who waits for a leader that says nothing hears of it after long, and then gives up: nothing else is read after it."""


class Clock:
    """The monotonic clock, which a test can set forward: a broker is late when all others have been read, and not when
    the machine was slow."""

    def __init__(self) -> None:
        self._real_s = time.monotonic
        self._ahead_s = 0.0

    def __call__(self) -> float:
        return self._real_s() + self._ahead_s

    def set_forward(self) -> None:
        self._ahead_s += 3600


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr("foldlog.client.wire.ranges.time.monotonic", clock)
    return clock


def everything() -> dict[int, list[bytes]]:
    return {number: [b"%d.%d" % (number, record) for record in range(RECORDS)] for number in range(PARTITIONS)}


def test_all_leaders_are_asked_before_the_first_has_answered(simulated: SimulatedCluster) -> None:
    """Nobody answers a fetch; still each partition's fetch arrives at its leader."""
    simulated.interfere = lambda node, request: Mishap.SILENCE if isinstance(request, FetchRequest) else None
    with Cluster.open(simulated.address(), {**NO_PATIENCE, "request.timeout.ms": "2000"}) as cluster:
        with pytest.raises(Exception, match=r"it did not answer within request\.timeout\.ms=2000"):
            next(cluster.fetch_ranges(WHOLE))
        assert [simulated.count("FetchRequest", node) for node in (1, 2, 3)] == [2, 2, 2]


@pytest.mark.parametrize("at_once", [1, 2, 5, 16])
def test_every_partition_is_read_whole_and_in_its_order(
    simulated: SimulatedCluster, at_once: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster_ranges, "CLUSTER_RANGES_MAX", at_once)
    found = Found()
    with Cluster.open(simulated.address(), ONE_BY_ONE) as cluster:
        for wanted, fetched in cluster.fetch_ranges(WHOLE):
            found.add(wanted, fetched)
    assert found.values == everything()


def test_a_leader_that_says_nothing_holds_up_its_own_partitions_only(simulated: SimulatedCluster, clock: Clock) -> None:
    """Node 1 is silent. All that the others lead is read meanwhile; then node 2 leads for it."""

    def interfere(node: int, request: Request) -> Mishap | None:
        return Mishap.SILENCE if node == 1 and isinstance(request, FetchRequest) else None

    simulated.interfere = interfere
    found = Found()
    with Cluster.open(simulated.address(2), ONE_BY_ONE) as cluster:
        answers = cluster.fetch_ranges(WHOLE)
        for _ in range(4 * RECORDS):
            found.add(*next(answers))
        assert found.values == {number: values for number, values in everything().items() if number not in (0, 3)}
        for number in (0, 3):
            simulated.topics["orders"].partitions[number].leader = 2
        clock.set_forward()
        for wanted, fetched in answers:
            found.add(wanted, fetched)
    assert found.values == everything()


def test_a_leader_that_says_nothing_when_asked_again_holds_up_its_own_partitions_only(
    simulated: SimulatedCluster, clock: Clock
) -> None:
    """Node 1 is lost with its first fetches and then silent, until it is given up. All others are read by then."""
    lost: set[int] = set()

    def interfere(node: int, request: Request) -> Mishap | None:
        if node != 1 or not isinstance(request, FetchRequest):
            return None
        number = request.topics[0].partitions[0].partition
        if number not in lost:
            lost.add(number)
            return Mishap.CUT
        return Mishap.SILENCE

    def read_all(cluster: Cluster) -> None:
        for wanted, fetched in cluster.fetch_ranges(WHOLE):
            found.add(wanted, fetched)
            if sum(map(len, found.values.values())) == 4 * RECORDS:
                clock.set_forward()

    simulated.interfere = interfere
    found = Found()
    unanswered = pytest.raises(BrokerUnreachable, match=r"did not answer within request\.timeout\.ms=")
    with Cluster.open(simulated.address(2), ONE_BY_ONE) as cluster, unanswered:
        read_all(cluster)
    assert found.values == {number: values for number, values in everything().items() if number not in (0, 3)}


NOT_OF_NODE_1 = {number: values for number, values in everything().items() if number % NODES}


def test_a_leader_that_cannot_be_connected_to_holds_up_its_own_partitions_only(simulated: SimulatedCluster) -> None:
    """Node 1 takes connections and says nothing on them, from the beginning on. Then it is itself again."""
    is_silent = True
    simulated.interfere = lambda node, request: Mishap.SILENCE if node == 1 and is_silent else None
    found = Found()
    with Cluster.open(simulated.address(2), NO_PATIENCE) as cluster:
        with closing(cluster.fetch_ranges(WHOLE)) as answers:
            for _ in range(4 * RECORDS):
                found.add(*next(answers))
        assert found.values == NOT_OF_NODE_1
        is_silent = False
        for wanted, fetched in cluster.fetch_ranges([WHOLE[0], WHOLE[3]]):
            found.add(wanted, fetched)
    assert found.values == everything()


@pytest.mark.parametrize("first", [1, 2])
def test_a_leader_that_is_lost_on_the_way_and_cannot_be_found_holds_up_its_own_partitions_only(
    simulated: SimulatedCluster, first: int
) -> None:
    """After a record, node 1 cuts its connections and says nothing on new ones: neither who leads, though it may be the
    one that was asked before, nor anything else."""
    is_lost = False

    def interfere(node: int, request: Request) -> Mishap | None:
        nonlocal is_lost
        if node != 1:
            return None
        if isinstance(request, FetchRequest) and (is_lost or request.topics[0].partitions[0].fetch_offset > 0):
            is_lost = True
            return Mishap.CUT
        return Mishap.SILENCE if is_lost else None

    simulated.interfere = interfere
    found = Found()
    with (
        Cluster.open(simulated.address(first), {**ONE_BY_ONE, "request.timeout.ms": "20000"}) as cluster,
        closing(cluster.fetch_ranges(WHOLE)) as answers,
    ):
        while any(len(found.values.get(number, [])) < RECORDS for number in NOT_OF_NODE_1):
            found.add(*next(answers))
    assert {number: found.values[number] for number in NOT_OF_NODE_1} == NOT_OF_NODE_1


def test_leaders_that_refuse_are_asked_for_again_while_the_others_are_read(simulated: SimulatedCluster) -> None:
    """Nobody listens at node 1, which the others still take for a leader; then node 3 leads for it."""
    simulated.refuse(1)
    found = Found()
    with Cluster.open(simulated.address(2), ONE_BY_ONE) as cluster, closing(cluster.fetch_ranges(WHOLE)) as answers:
        for _ in range(4 * RECORDS):
            found.add(*next(answers))
        assert found.values == NOT_OF_NODE_1
        for number in (0, 3):
            simulated.topics["orders"].partitions[number].leader = 3
        for wanted, fetched in answers:
            found.add(wanted, fetched)
    assert found.values == everything()


def test_a_reader_that_is_closed_while_a_leader_is_looked_for_leaves_nothing_behind(
    simulated: SimulatedCluster,
) -> None:
    is_silent = True
    simulated.interfere = lambda node, request: Mishap.SILENCE if node == 1 and is_silent else None
    with Cluster.open(simulated.address(2), ONE_BY_ONE | {"request.timeout.ms": "500"}) as cluster:
        with closing(cluster.fetch_ranges(WHOLE)) as answers:
            looking: list[threading.Thread] = []
            while not looking:  # between two searches nobody looks
                next(answers)
                looking = [one for one in threading.enumerate() if one.name == THREAD_NAME]
        for thread in looking:
            thread.join(30)
            assert not thread.is_alive()
        is_silent = False
        found = Found()
        for wanted, fetched in cluster.fetch_ranges(WHOLE):
            found.add(wanted, fetched)
        assert found.values == everything()


def test_leaders_that_are_lost_and_new_are_gone_on_from_where_they_were(simulated: SimulatedCluster) -> None:
    """After every seventh fetch the partition that it was for has another leader, or its connection ends."""
    partitions = simulated.topics["orders"].partitions
    fetches = 0

    def interfere(node: int, request: Request) -> Mishap | None:
        nonlocal fetches
        if not isinstance(request, FetchRequest):
            return None
        fetches += 1
        if fetches % 7:
            return None
        moved = partitions[request.topics[0].partitions[0].partition]
        moved.leader = moved.leader % NODES + 1
        moved.epoch += 1
        return Mishap.CUT if fetches % 2 else None

    simulated.interfere = interfere
    found = Found()
    with Cluster.open(simulated.address(), ONE_BY_ONE) as cluster:
        for wanted, fetched in cluster.fetch_ranges(WHOLE):
            found.add(wanted, fetched)
    assert found.values == everything()


def test_a_range_that_the_log_does_not_hold_is_told_for_all(simulated: SimulatedCluster) -> None:
    simulated.topics["orders"].partitions[4].start = 3
    with Cluster.open(simulated.address(), ONE_BY_ONE) as cluster:
        with pytest.raises(OffsetOutOfRange, match="offset 0 of orders-4 is not in the log, which holds 3 to 12"):
            list(cluster.fetch_ranges(WHOLE))
        with pytest.raises(UnknownTopic):
            list(cluster.fetch_ranges([*WHOLE[:4], WantedRange("orders", 5, 0, 1, b"another topic id")]))
        assert [wanted for wanted, _ in cluster.fetch_ranges([WHOLE[1]._replace(stop=1)])] == [
            WHOLE[1]._replace(stop=1)
        ]
        assert list(cluster.fetch_ranges([])) == []


@pytest.fixture(scope="module")
def quick() -> Iterator[Cluster]:
    with SimulatedCluster(nodes=NODES) as started, Cluster.open(filled(started).address(), PATIENT) as cluster:
        yield cluster


OFFSETS = st.integers(0, RECORDS)


@given(ranges=st.lists(st.tuples(st.integers(0, PARTITIONS - 1), OFFSETS, OFFSETS), max_size=8))
def test_any_ranges_give_what_each_alone_gives(quick: Cluster, ranges: list[tuple[int, int, int]]) -> None:
    wanted = [WantedRange("orders", number, min(one, other), max(one, other)) for number, one, other in ranges]
    stops = {one: fetched.next_offset for one, fetched in quick.fetch_ranges(dict.fromkeys(wanted))}
    assert set(stops) == {one for one in wanted if one.start < one.stop}
    assert all(at >= one.stop for one, at in stops.items())


# --- tails ------------------------------------------------------------------------------------------------------------


def links_to(simulated: SimulatedCluster, properties: dict[str, str]) -> ClusterLinks:
    return ClusterLinks(parse_addresses(simulated.address()), ClusterProperties.parse(properties))


def test_a_tail_goes_on_after_lost_connections_and_with_new_leaders(simulated: SimulatedCluster) -> None:
    partition = simulated.topics["orders"].partitions[0]
    mishaps = [Mishap.CUT, None, "elect", None, Mishap.CUT_AFTER, None, "elect"]

    def interfere(node: int, request: Request) -> Mishap | None:
        happens = mishaps.pop(0) if isinstance(request, FetchRequest) and mishaps else None
        if happens == "elect":
            partition.elect(partition.leader % NODES + 1)
        return happens if isinstance(happens, Mishap) else None

    simulated.interfere = interfere
    found: list[bytes | None] = []
    links = links_to(simulated, ONE_BY_ONE)
    with closing(links), closing(TailReader(links, "orders", 0, 2)) as tail:
        offset = 2
        while len(found) < RECORDS - 1:
            fetched = tail.next(0.05)
            if fetched is not None:
                found += [record.value for piece in fetched.pieces for record in decode(piece, "orders", 0)[0]]
                offset = fetched.next_offset
            if offset == RECORDS and partition.end == RECORDS:
                assert tail.next(0.01) is None
                partition.append(pack([(1, None, b"0.12", ())]))
    assert (found, mishaps) == ([b"0.%d" % number for number in range(2, RECORDS + 1)], [])


def test_a_tail_of_a_topic_that_is_gone_says_so(simulated: SimulatedCluster) -> None:
    links = links_to(simulated, PATIENT)
    with closing(links), closing(TailReader(links, "orders", 0, RECORDS)) as tail:
        assert tail.next(0.01) is None
        del simulated.topics["orders"]
        asked_until_told = iter(lambda: tail.next(0.05), object())
        with pytest.raises(UnknownTopic):
            list(asked_until_told)
