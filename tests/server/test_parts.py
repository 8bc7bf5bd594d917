"""Requests with very many items: divided, handled in turns of the loop, joined, with the answer to the whole."""

from __future__ import annotations

import asyncio
import gc
import struct
from importlib import import_module
from itertools import pairwise
from typing import Any

import pytest
from bench.many_items import PARTITIONS, TOPIC, apis, request_with, version_of
from hypothesis import given
from hypothesis import strategies as st

from foldlog.errors import RefusedByBroker
from foldlog.limits import COLLECTION_DELAY_MAX_S, STEP_ITEMS
from foldlog.records.loops import decode as decode_records
from foldlog.records.loops import pack
from foldlog.server import produce_fast_path
from foldlog.server.call import Call
from foldlog.server.net.turns import LoopTurns, items_in
from foldlog.server.parts import WAYS, Divided, Repeated, RequestPart, Whole, handle_in_parts, joined, parts_of
from foldlog.server.produce_fast_path import ProduceFastPath
from foldlog.server.server import Server
from foldlog.wire.codec import decode, encode
from foldlog.wire.error_codes import ErrorCode
from foldlog.wire.frames import request_class, response_class
from foldlog.wire.messages import APIS, NAMES
from foldlog.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from foldlog.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from foldlog.wire.messages.describe_groups import DescribeGroupsRequest
from foldlog.wire.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from foldlog.wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from foldlog.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopics,
)
from foldlog.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from server.conftest import Connect
from server.raw_client import RawClient
from server.small_node import Denies, SmallNode

MANY = STEP_ITEMS * 2 + 100
FIND_COORDINATOR = 10
PAUSING = [key for key, ways in WAYS.items() if any(isinstance(way, Whole) and "pauses" in way.why for way in ways)]
DIVIDED = [(key, way) for key, ways in WAYS.items() for way in ways if isinstance(way, Divided)]


# --- every API is covered ---------------------------------------------------------------------------------------------


def test_every_api_with_arrays_in_its_requests_has_its_row() -> None:
    assert sorted(WAYS) == apis(), "an API with an array needs its row in server/parts.py: say what bounds a turn"


@pytest.mark.parametrize(("api_key", "way"), DIVIDED, ids=lambda one: str(one) if isinstance(one, int) else "")
def test_the_arrays_of_a_row_are_those_of_the_messages(api_key: int, way: Divided) -> None:
    for kind, arrays in ((request_class(api_key), way.items), (response_class(api_key), way.answers)):
        struct_of: Any = kind
        for name in arrays:
            fields = [field for field in struct_of.SCHEMA if field.name == name]
            assert fields, f"{struct_of.__name__} has no {name}"
            assert all(field.is_array for field in fields)
            struct_of = fields[0].item


@pytest.fixture
def small() -> Any:
    node = SmallNode(settings={"auto.create.topics.enable": "false"})
    node.broker.create_topic(TOPIC, partitions=PARTITIONS)
    yield node
    node.close()


def in_parts(small: SmallNode, request: Any, version: int) -> tuple[Any, list[int]]:
    """The answer to a request that is handled in parts, and the items that the handler got each time."""
    handle = import_module(f"foldlog.server.handlers.{APIS[request.API_KEY].module}").handle
    sizes: list[int] = []

    def counted(call: Call, request: Any) -> Any:
        part = request
        sizes.append(sum(_leaves(part, way.items) for way in WAYS[part.API_KEY] if isinstance(way, Divided)))
        return handle(call, part)

    async def ask() -> Any:
        reply = await handle_in_parts(small.call(version), counted, request, lambda _: lambda _: None)
        return await reply if isinstance(reply, asyncio.Future) else reply

    answer = small.run(ask())
    return decode(type(answer), version, encode(answer, version)), sizes


def _leaves(message: Any, arrays: tuple[str, ...]) -> int:
    first, *inner = arrays
    items = getattr(message, first) or ()
    return sum(_leaves(one, tuple(inner)) for one in items) if inner else len(items)


@pytest.mark.parametrize("api_key", sorted({key for key, _ in DIVIDED} - {33, 44}), ids=lambda key: NAMES[key])
def test_the_answer_in_parts_is_the_answer_to_the_whole(small: SmallNode, api_key: int) -> None:
    """AlterConfigs waits for a thread at each item: that one is tried with fewer, below."""
    version = APIS[api_key].last if api_key == 24 else version_of(api_key)
    request = request_with(api_key, MANY, version)
    whole = small.ask(request, version)
    answer, sizes = in_parts(small, request, version)
    assert len(sizes) > 2
    assert max(sizes) <= STEP_ITEMS
    assert answer == whole


@pytest.mark.parametrize("api_key", [33, 44], ids=lambda key: NAMES[key])
def test_changes_of_settings_are_divided_too(small: SmallNode, api_key: int, monkeypatch: pytest.MonkeyPatch) -> None:
    ways = tuple(way._replace(at_once=10) for way in WAYS[api_key] if isinstance(way, Divided))
    monkeypatch.setitem(WAYS, api_key, ways)
    request = request_with(api_key, 25)
    request.resources.append(request.resources[0])  # type: ignore[attr-defined]
    answer, sizes = in_parts(small, request, version_of(api_key))
    assert sizes == [10, 10, 6]
    assert answer == small.ask(request, version_of(api_key))
    assert [one.error_code for one in answer.responses].count(ErrorCode.INVALID_REQUEST) == 2


@pytest.mark.parametrize(
    ("api_key", "names"), [*((key, False) for key in sorted(PAUSING)), (68, True)], ids=lambda one: NAMES.get(one, "")
)
def test_a_handler_that_sees_the_whole_pauses(api_key: int, names: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    small = SmallNode(authorizer=Denies())  # without an authorizer, ACLs are refused at once
    small.broker.create_topic(TOPIC, partitions=PARTITIONS)
    pauses = 0
    real = LoopTurns.next

    async def counted(turns: LoopTurns) -> None:
        nonlocal pauses
        pauses += 1
        await real(turns)

    version = version_of(api_key)
    request = request_with(api_key, MANY, version)
    if names:
        request.topic_partitions, request.subscribed_topic_names = None, [f"t{at}" for at in range(MANY)]  # type: ignore[attr-defined]
    monkeypatch.setattr(LoopTurns, "next", counted)
    small.ask(request, version)
    small.close()
    assert pauses >= MANY // STEP_ITEMS


def test_users_that_are_refused_leave_nothing_to_the_collector(small: SmallNode) -> None:
    """An error whose traceback leads to the errors of all is a cycle: those of 262,144 users took 800 ms to collect."""
    gc.collect()
    gc.disable()
    try:
        answer = small.ask(request_with(51, 30), 0)
        kept = [one for one in gc.get_objects() if isinstance(one, RefusedByBroker)]
    finally:
        gc.enable()
    assert all(one.error_code for one in answer.results)
    assert not kept


def test_large_requests_without_an_answer_are_appended_in_order(small: SmallNode) -> None:
    handle = import_module("foldlog.server.handlers.produce").handle
    data = [
        PartitionProduceData(index=at % PARTITIONS, records=pack([(5, None, b"%d" % at, ())]))
        for at in range(STEP_ITEMS + 100)
    ]
    request = ProduceRequest(acks=0, timeout_ms=30_000, topic_data=[TopicProduceData(name=TOPIC, partition_data=data)])

    async def ask() -> Any:
        reply = await handle_in_parts(small.call(9), handle, request, lambda _: lambda _: None)
        assert isinstance(reply, asyncio.Future), "partitions have to be opened"
        return await reply

    assert small.run(ask()) is None
    small.node.partition(TOPIC, 7).sync()
    found, _, _ = small.node.partition(TOPIC, 7).read(0, 1 << 20)
    records, _ = decode_records(found, TOPIC, 7)
    assert [record.value for record in records] == [b"%d" % at for at in range(7, STEP_ITEMS + 100, PARTITIONS)]


# --- what is named more than once -------------------------------------------------------------------------------------


def test_what_is_repeated_in_another_part_is_refused_in_both(small: SmallNode) -> None:
    numbers = [*range(STEP_ITEMS + 10), 3]
    wanted = [ListOffsetsPartition(partition_index=number, timestamp=-1) for number in numbers]
    request = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name=TOPIC, partitions=wanted)])
    answer, sizes = in_parts(small, request, 7)
    assert len(sizes) == 2
    assert answer == small.ask(request, 7)
    refused = [
        one.partition_index for one in answer.topics[0].partitions if one.error_code == ErrorCode.INVALID_REQUEST
    ]
    assert refused == [3, 3]


def test_what_is_repeated_is_answered_once_where_the_answer_is_larger_than_the_question(small: SmallNode) -> None:
    request = DescribeGroupsRequest(groups=["one"] * MANY + ["two"])
    answer, sizes = in_parts(small, request, 5)
    assert sizes == [1, 1]
    assert [group.group_id for group in answer.groups] == ["one", "two"]


def test_a_topic_that_is_created_twice_in_a_large_request_is_refused(small: SmallNode) -> None:
    topics = [CreatableTopic(name=f"t{at}", num_partitions=1, replication_factor=1) for at in range(MANY)]
    request = CreateTopicsRequest(topics=[*topics, topics[0]], validate_only=True)
    answer = small.ask(request, 5)
    assert [one.name for one in answer.topics] == [f"t{at}" for at in range(MANY)]
    assert [one.name for one in answer.topics if one.error_code] == ["t0"]


# --- dividing and joining ---------------------------------------------------------------------------------------------

TREES = st.lists(
    st.tuples(st.integers(0, 3), st.none() | st.lists(st.lists(st.integers(0, 99), max_size=6), max_size=4))
)


def _group(name: str, topics: Any) -> OffsetFetchRequestGroup:
    if topics is not None:
        topics = [OffsetFetchRequestTopics(name=f"t{at}", partition_indexes=one) for at, one in enumerate(topics)]
    return OffsetFetchRequestGroup(group_id=name, topics=topics)


def _echo(request: OffsetFetchRequest) -> OffsetFetchResponse:
    """What a handler would answer that looks at every item by itself."""
    return OffsetFetchResponse(
        groups=[
            OffsetFetchResponseGroup(
                group_id=group.group_id,
                topics=[
                    OffsetFetchResponseTopics(
                        name=topic.name,
                        partitions=[
                            OffsetFetchResponsePartitions(partition_index=at) for at in topic.partition_indexes
                        ],
                    )
                    for topic in group.topics or ()
                ],
            )
            for group in request.groups
        ]
    )


@given(tree=TREES, at_once=st.integers(1, 5))
def test_the_joined_answers_to_the_parts_are_the_answer_to_the_whole(tree: Any, at_once: int) -> None:
    request = OffsetFetchRequest(groups=[_group(f"g{at}", topics) for at, (_, topics) in enumerate(tree)])
    before = encode(request, 8)
    (way,) = [one for one in WAYS[9] if isinstance(one, Divided) and one.items[0] == "groups"]
    way = way._replace(at_once=at_once, repeated=Repeated.ANSWERED)
    parts = [part for part in parts_of(request, way) if part is not None]
    assert all(_leaves(part.request, way.items) <= at_once for part in parts)
    assert encode(request, 8) == before, "the request itself is not changed"
    if parts:
        assert joined([(part, _echo(part.request)) for part in parts]) == _echo(request)
    else:
        assert not request.groups


def test_an_error_for_a_part_is_one_for_the_whole() -> None:
    (way,) = [one for one in WAYS[9] if isinstance(one, Divided) and one.items[0] == "groups"]
    part = RequestPart(None, way, 0)
    failed = OffsetFetchResponse(error_code=15)
    assert joined([(part, OffsetFetchResponse()), (part, failed), (part, OffsetFetchResponse())]) is failed


def test_the_longest_throttle_time_counts() -> None:
    (way,) = [one for one in WAYS[9] if isinstance(one, Divided) and one.items[0] == "groups"]
    part = RequestPart(None, way, 0)
    answers = [(part, OffsetFetchResponse(throttle_time_ms=ms)) for ms in (1, 7, 3)]
    assert joined(answers).throttle_time_ms == 7


# --- turns ------------------------------------------------------------------------------------------------------------


def test_a_turn_of_the_loop_has_one_slice_however_many_ask() -> None:
    async def many() -> tuple[list[tuple[int, int]], int]:
        loop = asyncio.get_running_loop()
        turns, turn, slices = LoopTurns(loop), 0, []

        def count() -> None:
            nonlocal turn
            turn += 1
            loop.call_soon(count)

        async def work(who: int) -> None:
            for _ in range(3):
                await turns.next()
                slices.append((turn, who))

        count()
        await asyncio.gather(*map(work, range(5)))
        return slices, turn

    slices, _ = asyncio.run(many())
    assert len({turn for turn, _ in slices}) == len(slices) == 15
    assert [who for _, who in slices] == [0, 1, 2, 3, 4] * 3, "in turns"


def test_who_is_cancelled_keeps_nobody_waiting() -> None:
    async def waiting() -> None:
        loop = asyncio.get_running_loop()
        turns, both_ask = LoopTurns(loop), loop.create_future()
        gone, other = (asyncio.ensure_future(turns.next()) for _ in range(2))
        loop.call_soon(both_ask.set_result, None)
        await both_ask
        gone.cancel()
        await asyncio.wait_for(other, 10)

    asyncio.run(waiting())


def test_few_items_need_no_turn() -> None:
    async def few() -> list[int]:
        work = LoopTurns(asyncio.get_running_loop()).each(lambda one: one + 1, range(STEP_ITEMS))
        with pytest.raises(StopIteration) as done:
            work.send(None)
        found: list[int] = done.value.value
        return found

    assert asyncio.run(few()) == list(range(1, STEP_ITEMS + 1))


def test_full_collections_wait_for_the_end_of_long_work_but_not_for_ever() -> None:
    class Clock(asyncio.SelectorEventLoop):
        now = 0.0

        def time(self) -> float:
            return self.now

    loop = Clock()
    usual = gc.get_threshold()
    turns = LoopTurns(loop)
    with turns.long_work():
        assert gc.get_threshold()[:2] == usual[:2], "new objects are looked at"
        assert gc.get_threshold()[2] > 1_000_000
        with turns.long_work():
            pass
        assert gc.get_threshold()[2] > 1_000_000, "the first is still at work"
        with LoopTurns(loop).long_work():
            pass
        assert gc.get_threshold()[2] > 1_000_000, "there is one collector for all loops"
        loop.now = COLLECTION_DELAY_MAX_S + 1
        with turns.long_work():
            assert gc.get_threshold() == usual
    assert gc.get_threshold() == usual
    loop.close()


def test_a_message_that_nobody_needs_is_freed_in_slices() -> None:
    """Without a change to it: its lists may be those of an index."""

    async def release() -> list[int]:
        request: Any = request_with(2, MANY)
        partitions = request.topics[0].partitions
        turns, left = LoopTurns(asyncio.get_running_loop()), []
        held = await turns.run(items_in(request))
        assert len(partitions) == MANY
        assert len(held) == MANY + 1
        del request, partitions

        class Counted(LoopTurns):
            async def next(self) -> None:
                left.append(len(held))

        await Counted(asyncio.get_running_loop()).let_go(held)
        return left

    left = asyncio.run(release())
    assert left[-1] == 0
    assert all(before - after <= STEP_ITEMS for before, after in pairwise([MANY + 1, *left]))


# --- over the wire ----------------------------------------------------------------------------------------------------


def test_a_large_request_is_answered_before_the_next_of_its_connection(connect: Connect) -> None:
    client = connect()
    names = [f"g{at}" for at in range(20 * STEP_ITEMS)]
    first = client.frame(FindCoordinatorRequest(key_type=0, coordinator_keys=names), 4)
    second = client.frame(ApiVersionsRequest(), 3)
    client.socket.sendall(first + second)
    number, answer = client.receive(FindCoordinatorResponse, 4)
    assert number == 1
    assert [one.key for one in answer.coordinators] == names
    assert client.receive(ApiVersionsResponse, 3)[0] == 2


def test_others_are_answered_meanwhile(server: Server, connect: Connect) -> None:
    """Another client asks when the first part is handled; it is answered before the last one is."""
    large, other = connect(), connect()
    seen: list[int] = []
    asked = other.frame(ApiVersionsRequest(), 3)
    node = server._node
    assert node is not None

    def intercept(api_key: int, handle: Any) -> Any:
        def noted(call: Any, request: Any) -> Any:
            if api_key == FIND_COORDINATOR and FIND_COORDINATOR not in seen:
                other.socket.sendall(asked)
            seen.append(api_key)
            return handle(call, request)

        return noted

    node.interceptor = intercept
    large.ask(FindCoordinatorRequest(key_type=0, coordinator_keys=[f"g{at}" for at in range(20 * STEP_ITEMS)]), 4)
    other.receive(ApiVersionsResponse, 3)
    assert seen.count(FIND_COORDINATOR) == 20
    assert seen[-1] == FIND_COORDINATOR, "nobody else was answered until the large request was done"


def test_a_produce_request_for_very_many_partitions_leaves_the_fast_path(
    connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("foldlog.wire.produce_frames", reason="without a compiler there is no fast path")
    runs: list[int] = []
    run = ProduceFastPath._run

    def counted(path: ProduceFastPath, frames: Any, partitions: list[Any], outcomes: list[Any]) -> Any:
        runs.append(len(partitions))
        return run(path, frames, partitions, outcomes)

    monkeypatch.setattr(ProduceFastPath, "_run", counted)
    monkeypatch.setattr(produce_fast_path, "RUN_PARTITIONS_MAX", 2)
    client = connect()
    for offset, numbers in enumerate([range(3), range(3), range(2)]):
        data = [PartitionProduceData(index=number, records=pack([(5, None, b"value", ())])) for number in numbers]
        topic = TopicProduceData(name="orders", partition_data=data)
        answer = client.ask(ProduceRequest(acks=-1, timeout_ms=30_000, topic_data=[topic]), 9)
        found = [(one.index, one.error_code, one.base_offset) for one in answer.responses[0].partition_responses]
        assert found == [(number, 0, offset) for number in numbers]
    assert runs == [2]


def test_a_large_request_that_ends_too_early_closes_its_connection_only(connect: Connect, server: Server) -> None:
    client, other = connect(), connect()
    names = [f"g{at}" for at in range(5 * STEP_ITEMS)]
    frame = bytearray(client.frame(FindCoordinatorRequest(key_type=0, coordinator_keys=names), 4))
    cut = frame[:-100]
    struct.pack_into(">i", cut, 0, len(cut) - 4)
    client.socket.sendall(cut)
    assert client.is_closed_by_peer()
    assert isinstance(other.ask(ApiVersionsRequest(), 3), ApiVersionsResponse)


def test_a_client_that_leaves_in_the_middle_costs_nobody_anything(connect: Connect, server: Server) -> None:
    client, other = connect(), connect()
    usual = gc.get_threshold()
    names = [f"g{at}" for at in range(50 * STEP_ITEMS)]
    client.socket.sendall(client.frame(FindCoordinatorRequest(key_type=0, coordinator_keys=names), 4))
    client.close()
    rest: RawClient = connect()
    rest.ask(FindCoordinatorRequest(key_type=0, coordinator_keys=names), 4)
    for _ in range(1000):
        other.ask(ApiVersionsRequest(), 3)
        if gc.get_threshold() == usual:
            return
    pytest.fail("the collector waits for work that has ended")
