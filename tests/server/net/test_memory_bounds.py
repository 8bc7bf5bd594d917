"""Whatever clients may make a broker remember has a bound, and a code of Kafka's for who comes after it.

Each test sends what would fill memory, sees how far it gets, and that those who were there before go on. Bounds are
made small where reaching the real one would take minutes; that the handlers keep to them is what is shown.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from foldlog import limits
from foldlog.broker.groups import committed as bookmarks
from foldlog.broker.groups import state as groups
from foldlog.log import producers
from foldlog.records.loops import pack, walk
from foldlog.wire.error_codes import ErrorCode
from foldlog.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from foldlog.wire.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from foldlog.wire.messages.describe_groups import DescribeGroupsRequest
from foldlog.wire.messages.describe_producers import DescribeProducersRequest, TopicRequest
from foldlog.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from foldlog.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from foldlog.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from foldlog.wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup
from foldlog.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from server.small_node import SmallNode

KIB = 1 << 10


@pytest.fixture
def small() -> Iterator[SmallNode]:
    made = SmallNode()
    made.broker.create_topic("orders")
    yield made
    made.close()


def join(small: SmallNode, group: str, metadata: bytes, member: str = "") -> tuple[ErrorCode, str]:
    protocols = [JoinGroupRequestProtocol(name="range", metadata=metadata)]
    request = JoinGroupRequest(
        group_id=group, session_timeout_ms=10_000, rebalance_timeout_ms=10_000, member_id=member,
        protocol_type="consumer", protocols=protocols,
    )  # fmt: skip
    answer = small.ask(request, 3)
    return ErrorCode(answer.error_code), answer.member_id


def test_the_metadata_of_all_groups_has_one_bound_and_members_stay(
    small: SmallNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(groups, "GROUPS_METADATA_BYTES_MAX", 100 * KIB)
    joined = [join(small, f"group-{number}", bytes(10 * KIB)) for number in range(20)]
    codes = [code for code, _ in joined]
    assert codes == [ErrorCode.NONE] * 9 + [ErrorCode.COORDINATOR_NOT_AVAILABLE] * 11  # 10 KiB and a name each
    assert ErrorCode.COORDINATOR_NOT_AVAILABLE.is_retriable
    member = joined[0][1]
    assert join(small, "group-0", bytes(10 * KIB), member)[0] is ErrorCode.NONE, "it brings no more than it had"
    assert join(small, "group-0", bytes(30 * KIB), member)[0] is ErrorCode.COORDINATOR_NOT_AVAILABLE
    small.advance(60_000)  # the sessions of all are over
    assert join(small, "late", bytes(10 * KIB))[0] is ErrorCode.NONE


def test_long_names_of_clients_that_never_come_back_count_too(
    small: SmallNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(groups, "GROUPS_METADATA_BYTES_MAX", 100 * KIB)
    request = JoinGroupRequest(
        group_id="group", session_timeout_ms=10_000, rebalance_timeout_ms=10_000, protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol(name="range", metadata=b"")],
    )  # fmt: skip
    codes = [ErrorCode(small.ask(request, 5, client_id="c" * 10 * KIB).error_code) for _ in range(20)]
    assert codes[0] is ErrorCode.MEMBER_ID_REQUIRED
    assert codes[-1] is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert codes.count(ErrorCode.MEMBER_ID_REQUIRED) <= 10


def test_the_metadata_of_one_group_is_still_bounded_by_its_own_limit(small: SmallNode) -> None:
    code, _ = join(small, "large", bytes(limits.MEMBER_METADATA_BYTES_MAX + 1))
    assert code is ErrorCode.INVALID_REQUEST


def test_one_request_for_metadata_makes_some_topics_and_the_next_one_more(
    small: SmallNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("foldlog.server.handlers.metadata.AUTO_CREATED_TOPICS_MAX", 3)
    wanted = [MetadataRequestTopic(name=f"made-{number}") for number in range(5)]
    request = MetadataRequest(topics=[MetadataRequestTopic(name="orders"), *wanted])

    def codes() -> dict[str, ErrorCode]:
        return {topic.name: ErrorCode(topic.error_code) for topic in small.ask(request, 9).topics}

    first = codes()
    assert [first[f"made-{number}"] for number in range(5)] == [ErrorCode.NONE] * 3 + [
        ErrorCode.LEADER_NOT_AVAILABLE
    ] * 2
    assert first["orders"] is ErrorCode.NONE
    assert ErrorCode.LEADER_NOT_AVAILABLE.is_retriable
    assert set(codes().values()) == {ErrorCode.NONE}


def test_a_directory_has_a_bound_on_its_partitions(small: SmallNode, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "PARTITIONS_OF_ALL_MAX", 5)
    topic = CreatableTopic(name="wide", num_partitions=5, replication_factor=1)
    (refused,) = small.ask(CreateTopicsRequest(topics=[topic], timeout_ms=1000), 7).topics
    assert ErrorCode(refused.error_code) is ErrorCode.POLICY_VIOLATION
    assert "has 1 partitions, and 5 more would be over 5" in refused.error_message
    topic.num_partitions = 4
    (made,) = small.ask(CreateTopicsRequest(topics=[topic], timeout_ms=1000), 7).topics
    assert made.error_code == ErrorCode.NONE
    (asked,) = small.ask(MetadataRequest(topics=[MetadataRequestTopic(name="one-more")]), 9).topics
    assert ErrorCode(asked.error_code) is ErrorCode.POLICY_VIOLATION


def send(small: SmallNode, producer_id: int, sequence: int = 0, topic: str = "orders") -> ErrorCode:
    records = pack([(1, b"k", b"v", ())], producer_id=producer_id, producer_epoch=0, base_sequence=sequence)
    data = TopicProduceData(name=topic, partition_data=[PartitionProduceData(index=0, records=bytes(records))])
    answer = small.ask(ProduceRequest(acks=1, timeout_ms=1000, topic_data=[data]), 9)
    return ErrorCode(answer.responses[0].partition_responses[0].error_code)


def test_a_partition_remembers_so_many_producers_and_forgets_only_who_is_silent(
    small: SmallNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(producers, "PRODUCER_IDS_MAX", 10)
    assert {send(small, number) for number in range(10)} == {ErrorCode.NONE}
    assert send(small, 10) is ErrorCode.NOT_ENOUGH_REPLICAS
    assert ErrorCode.NOT_ENOUGH_REPLICAS.is_retriable
    assert send(small, 0, 1) is ErrorCode.NONE, "who is remembered goes on"
    small.clock.advance(limits.PRODUCER_IDLE_MS + 1)
    assert send(small, 0, 2) is ErrorCode.NONE
    assert send(small, 10) is ErrorCode.NONE, "in place of 1, which is silent longest"
    partition = small.broker.writable_partition("orders", 0)
    assert [info.producer_id for info in partition.producers_info()] == [0, *range(2, 11)]
    assert send(small, 0, 3) is ErrorCode.NONE
    assert send(small, 0, 3) is ErrorCode.NONE, "a repetition"
    assert partition.producers_info()[0].last_sequence == 3


def test_all_partitions_together_remember_so_many_producers(small: SmallNode, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(producers, "PRODUCER_IDS_OF_ALL_MAX", 10)
    for topic in ("one", "two", "three"):
        small.broker.create_topic(topic)
    assert {send(small, number, topic="one") for number in range(6)} == {ErrorCode.NONE}
    assert {send(small, number, topic="two") for number in range(4)} == {ErrorCode.NONE}
    for topic in ("one", "two", "three"):
        assert send(small, 10, topic=topic) is ErrorCode.NOT_ENOUGH_REPLICAS
    assert send(small, 0, 1, topic="one") is ErrorCode.NONE, "who is remembered goes on"
    small.clock.advance(limits.PRODUCER_IDLE_MS + 1)
    assert send(small, 0, 2, topic="one") is ErrorCode.NONE
    assert send(small, 10, topic="three") is ErrorCode.NONE, "in place of those that are silent elsewhere"
    remembered = {
        topic: [info.producer_id for info in small.broker.writable_partition(topic, 0).producers_info()]
        for topic in ("one", "two", "three")
    }
    assert remembered == {"one": [0], "two": [], "three": [10]}


def test_producers_of_a_deleted_topic_take_no_room(small: SmallNode, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(producers, "PRODUCER_IDS_OF_ALL_MAX", 10)
    small.broker.create_topic("one")
    assert {send(small, number, topic="one") for number in range(10)} == {ErrorCode.NONE}
    assert send(small, 10) is ErrorCode.NOT_ENOUGH_REPLICAS
    small.broker.delete_topic("one")
    small.clock.advance(limits.PRODUCERS_COUNT_MS)
    assert send(small, 10) is ErrorCode.NONE


def test_the_bound_on_producers_holds_after_a_restart(small: SmallNode, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(30):
        send(small, number)
    monkeypatch.setattr(producers, "PRODUCER_IDS_MAX", 10)
    partition = small.broker.writable_partition("orders", 0)
    partition.wait_acknowledged(partition.log_end_offset)
    state = producers.ProducerState()
    offset = 0
    while offset < partition.high_watermark:
        data, offset = partition.read(offset)
        state.replay(walk(data).headers)
    assert [info.producer_id for info in state.infos()] == list(range(20, 30))


def commit(small: SmallNode, group: str, metadata: str) -> ErrorCode:
    partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=0, committed_metadata=metadata)
    topics = [OffsetCommitRequestTopic(name="orders", partitions=[partition])]
    answer = small.ask(OffsetCommitRequest(group_id=group, topics=topics), 8)
    return ErrorCode(answer.topics[0].partitions[0].error_code)


def test_committed_offsets_of_made_up_groups_have_a_bound(small: SmallNode, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bookmarks, "COMMITTED_OFFSETS_BYTES_MAX", 10 * (256 + 1000 + 8))
    codes = [commit(small, f"group-{number}", "x" * 1000) for number in range(15)]
    assert codes == [ErrorCode.NONE] * 10 + [ErrorCode.COORDINATOR_NOT_AVAILABLE] * 5
    assert commit(small, "group-0", "y" * 1000) is ErrorCode.NONE, "in place of what it had"
    assert commit(small, "group-0", "y" * 4096) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    small.broker.delete_group("group-0")
    assert commit(small, "late", "x" * 1000) is ErrorCode.NONE


def test_what_is_asked_many_times_in_one_request_is_answered_once(small: SmallNode) -> None:
    send(small, 7)
    commit(small, "group", "note")
    resource = DescribeConfigsResource(resource_type=2, resource_name="orders", configuration_keys=None)
    assert len(small.ask(DescribeConfigsRequest(resources=[resource] * 1000), 4).results) == 1
    assert len(small.ask(DescribeGroupsRequest(groups=["group"] * 1000), 5).groups) == 1
    topics = [TopicRequest(name="orders", partition_indexes=[0] * 100)] * 10
    (answer,) = small.ask(DescribeProducersRequest(topics=topics), 0).topics
    assert [len(one.active_producers) for one in answer.partitions] == [1]
    fetch = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id="group", topics=None)] * 1000)
    assert len(small.ask(fetch, 8).groups) == 1
