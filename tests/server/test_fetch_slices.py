"""A Fetch of very many partitions is resolved, read and answered in turns of the loop: the bytes are the same."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, cast

import pytest
from bench.many_items import request_with

from foldlog.broker.broker import Broker
from foldlog.clock import Clock
from foldlog.errors import StorageError
from foldlog.limits import FETCH_SLICE_PARTITIONS, STEP_ITEMS
from foldlog.log.partition import Partition
from foldlog.records.loops import COMPILED, pack
from foldlog.server.config.settings import ServerSettings
from foldlog.server.fetches import fast_path, fetching
from foldlog.server.fetches.sessions import FetchSessions
from foldlog.server.net.turns import LoopTurns
from foldlog.server.server import Server
from foldlog.wire.error_codes import ErrorCode
from foldlog.wire.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic, ForgottenTopic
from server.raw_client import RawClient, batch, produce

VERSION = 12
PARTITIONS = 7
FAST = pytest.param("fast", marks=pytest.mark.skipif(not COMPILED, reason="without a compiler there is no fast path"))
Asks = Callable[[int | None], RawClient]


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker.open(":memory:") as opened:
        opened.create_topic("orders", partitions=PARTITIONS)
        for number in range(PARTITIONS):
            partition = cast(Partition, opened.partition("orders", number))
            for _ in range(number):
                partition.append(pack([(5, None, b"%d" % number * 50, ())]))
            partition.sync()
        yield opened


@pytest.fixture(params=[FAST, "handled"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param == "handled":
        monkeypatch.setattr(fast_path, "_compiled", lambda: None)
    return str(request.param)


@pytest.fixture
def asks(way: str, broker: Broker, monkeypatch: pytest.MonkeyPatch) -> Iterator[Asks]:
    """A client of a new server whose slices have so many partitions; None for as many as there are."""
    begin = FetchSessions.__init__

    def seeded(sessions: FetchSessions, slots_max: int, clock: Clock) -> None:
        begin(sessions, slots_max, clock, seed=7)  # their ids are equal then

    monkeypatch.setattr(FetchSessions, "__init__", seeded)
    opened: list[tuple[Server, RawClient]] = []

    def start(partitions: int | None) -> RawClient:
        if partitions is not None:
            for module in (fetching, fast_path):
                monkeypatch.setattr(module, "FETCH_SLICE_PARTITIONS", partitions)
        server = Server.start(broker, ServerSettings.parse({"listeners": "127.0.0.1:0"}))
        opened.append((server, RawClient(server.addresses[0])))
        return opened[-1][1]

    yield start
    for server, client in opened:
        client.close()
        server.stop()


@pytest.fixture
def turns(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """One for each turn of the loop that somebody with long work has waited for."""
    waited: list[int] = []
    real = LoopTurns.next

    async def counted(turns: LoopTurns) -> None:
        waited.append(1)
        await real(turns)

    monkeypatch.setattr(LoopTurns, "next", counted)
    return waited


def wanting(numbers: Any, offset: int = 0, **fields: Any) -> FetchRequest:
    """A fetch of these partitions, and of one whose topic is not there."""
    asked = [FetchPartition(partition=one, fetch_offset=offset, partition_max_bytes=1 << 20) for one in numbers]
    topics = [FetchTopic(topic="orders", partitions=asked), FetchTopic(topic="none", partitions=asked[:1])]
    return FetchRequest(**{"max_bytes": 1 << 20, "session_epoch": -1, "topics": topics, **fields})


def conversation(client: RawClient) -> list[bytes]:
    """The answers to fetches of every kind: alone, committed, with a limit, and those of a session."""
    requests = [
        wanting(range(PARTITIONS + 2)),
        wanting([*range(PARTITIONS), 3, 3], 1, isolation_level=1),
        wanting(range(PARTITIONS), max_bytes=300),
        wanting(range(PARTITIONS), 99),
        wanting(range(PARTITIONS), session_epoch=0),
    ]
    answers = [asked(client, one) for one in requests]
    session_id = int.from_bytes(answers[-1][11:15], "big")
    assert session_id
    of_session = [
        wanting([], session_id=session_id, session_epoch=1, topics=[]),
        wanting([2], 1, session_id=session_id, session_epoch=2),
        wanting([], session_id=session_id, session_epoch=3, topics=[],
                forgotten_topics_data=[ForgottenTopic(topic="orders", partitions=[5, 6])]),
        wanting([], session_id=session_id, session_epoch=9, topics=[]),
    ]  # fmt: skip
    return answers + [asked(client, one) for one in of_session]


def asked(client: RawClient, request: FetchRequest) -> bytes:
    client.send(request, VERSION)
    return client.receive_frame()


def test_the_answer_in_slices_is_the_answer_in_one_go(asks: Asks, turns: list[int]) -> None:
    plain = conversation(asks(None))
    assert not turns
    sliced = conversation(asks(2))
    assert sliced == plain
    # 9 partitions in slices of 2 are 5, and one turn before the answer; each fetch but the last has 6 to 9 of them.
    assert len(turns) >= 8 * 4


def test_a_fetch_that_waits_is_read_in_slices_each_time(asks: Asks, turns: list[int]) -> None:
    client, other = asks(2), asks(None)
    ends = [FetchPartition(partition=one, fetch_offset=one, partition_max_bytes=1 << 20) for one in range(PARTITIONS)]
    topics = [FetchTopic(topic="orders", partitions=ends)]
    client.send(wanting([], topics=topics, max_wait_ms=20_000, min_bytes=1), VERSION)
    other.ask(produce(batch(b"new"), topic="orders", partition=6), 9)
    _, answer = client.receive(FetchResponse, VERSION)
    assert [bool(one.records) for one in answer.responses[0].partitions] == [False] * 6 + [True]
    assert len(turns) > 4


def test_what_fails_in_one_partition_is_an_error_there(
    asks: Asks, monkeypatch: pytest.MonkeyPatch, turns: list[int]
) -> None:
    """The compiled pass is left after some slices, and all are read in Python, again in slices."""
    client = asks(2)
    look = Partition.epoch_end_offset

    def failing(partition: Partition, epoch: int, *, written: bool = False) -> tuple[int, int]:
        if partition.label[1] == 4:
            raise StorageError("the disk is gone")
        return look(partition, epoch, written=written)

    monkeypatch.setattr(Partition, "epoch_end_offset", failing)
    request = wanting(range(PARTITIONS))
    for one in request.topics[0].partitions:
        one.last_fetched_epoch = 0
    answer = client.ask(request, VERSION)
    codes = [one.error_code for one in answer.responses[0].partitions]
    assert codes == [0, 0, 0, 0, ErrorCode.KAFKA_STORAGE_ERROR, 0, 0]
    assert len(turns) >= 4


def test_a_large_fetch_takes_as_many_turns_as_it_has_slices(asks: Asks, turns: list[int], way: str) -> None:
    client = asks(None)
    count = 3 * FETCH_SLICE_PARTITIONS + 1
    request = request_with(1, count, VERSION)
    assert isinstance(request, FetchRequest)
    answer = client.ask(request, VERSION)
    assert sum(len(one.partitions) for one in answer.responses) == count
    read = -(-count // FETCH_SLICE_PARTITIONS) + 1
    in_steps = 4 * (count // STEP_ITEMS)  # decoded, resolved, put together and encoded
    assert len(turns) >= (read if way == "fast" else read + in_steps)


def test_who_leaves_in_the_middle_costs_nobody_anything(asks: Asks) -> None:
    client = asks(1)
    other = RawClient(client.socket.getpeername())
    client.send(wanting(range(PARTITIONS)), VERSION)
    client.socket.close()
    found = other.ask(wanting(range(PARTITIONS)), VERSION)
    assert len(found.responses[0].partitions) == PARTITIONS
    other.close()
