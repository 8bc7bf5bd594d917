"""The cluster, the data directory and topics page by page, as admin clients and consoles ask for them.

Paging is checked by turning the pages for every page size: all partitions come, once and in order.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from broker.small_broker import at, write
from foldlog.broker.access.acls import CLUSTER_NAME, AclOperation, Identity, ResourceType
from foldlog.broker.topics.names import OFFSETS_TOPIC
from foldlog.files.memory import MemoryFiles
from foldlog.files.posix import PosixFiles
from foldlog.server.authorizer import AllowEverything, authorized_operations
from foldlog.wire.error_codes import ErrorCode
from foldlog.wire.messages.describe_cluster import DescribeClusterRequest
from foldlog.wire.messages.describe_log_dirs import DescribableLogDirTopic, DescribeLogDirsRequest
from foldlog.wire.messages.describe_topic_partitions import (
    Cursor,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    TopicRequest,
)
from server.small_node import ENDPOINT, Denies, SmallNode

NOT_ASKED = -(1 << 31)
EVERYTHING = authorized_operations(
    AllowEverything(), Identity("User:me", "127.0.0.1"), ResourceType.CLUSTER, CLUSTER_NAME
)


# --- DescribeCluster ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", range(3))
def test_every_version_describes_the_one_broker(small: SmallNode, version: int) -> None:
    answer = small.ask(DescribeClusterRequest(), version)
    assert (answer.error_code, answer.error_message) == (ErrorCode.NONE, None)
    assert (answer.cluster_id, answer.controller_id) == (small.broker.directory_id, 1)
    assert [(broker.broker_id, broker.host, broker.port, broker.is_fenced) for broker in answer.brokers] == [
        (1, ENDPOINT.host, ENDPOINT.port, False)
    ]
    assert answer.cluster_authorized_operations == NOT_ASKED
    asked = small.ask(DescribeClusterRequest(include_cluster_authorized_operations=True), version)
    assert asked.cluster_authorized_operations == EVERYTHING


@pytest.mark.parametrize(
    ("endpoint_type", "code"), [(2, ErrorCode.MISMATCHED_ENDPOINT_TYPE), (3, ErrorCode.UNSUPPORTED_ENDPOINT_TYPE)]
)
def test_who_asks_for_controllers_is_told_that_there_are_none(
    small: SmallNode, endpoint_type: int, code: ErrorCode
) -> None:
    for version in (1, 2):
        answer = small.ask(DescribeClusterRequest(endpoint_type=endpoint_type), version)
        assert answer.error_code == code
        assert answer.error_message
        assert not answer.brokers


# --- DescribeLogDirs ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", range(1, 6))
def test_every_version_tells_the_size_of_every_partition_and_of_the_disk(
    version: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    small = SmallNode(PosixFiles())
    small.broker.create_topic("orders", 2)
    small.broker.create_topic("users")
    write(small.broker, "orders", 1, b"a" * 1000)
    (directory,) = small.ask(DescribeLogDirsRequest(topics=None), version).results
    assert (directory.error_code, directory.log_dir) == (ErrorCode.NONE, str(tmp_path / "data"))
    sizes = {
        (topic.name, partition.partition_index): partition.partition_size
        for topic in directory.topics
        for partition in topic.partitions
    }
    in_files = os.path.getsize(tmp_path / "data" / "orders-1" / f"{0:020}.log")
    assert in_files > 1000
    assert sizes == {("orders", 0): 0, ("orders", 1): in_files, ("users", 0): 0}
    lags = {
        (partition.offset_lag, partition.is_future_key) for topic in directory.topics for partition in topic.partitions
    }
    assert lags == {(0, False)}
    if version >= 4:
        assert directory.total_bytes == shutil.disk_usage(tmp_path).total
        assert 0 <= directory.usable_bytes <= directory.total_bytes
    assert not directory.is_cordoned
    small.close()


def test_only_the_partitions_that_are_asked_for_and_exist_are_told(small: SmallNode) -> None:
    small.broker.create_topic("orders", 3)
    small.broker.create_topic("users")
    wanted = [
        DescribableLogDirTopic(topic="orders", partitions=[2, 0, 7]),
        DescribableLogDirTopic(topic="none", partitions=[0]),
    ]
    (directory,) = small.ask(DescribeLogDirsRequest(topics=wanted), 4).results
    found = [(topic.name, [partition.partition_index for partition in topic.partitions]) for topic in directory.topics]
    assert found == [("orders", [0, 2])]


def test_a_damaged_partition_is_left_out() -> None:
    files = MemoryFiles()
    first = SmallNode(files)
    first.broker.create_topic("orders", 2)
    write(first.broker, "orders", 0, b"a")
    first.close()
    files.unlink(f"data/orders-0/{0:020}.log")
    again = SmallNode(files)
    (directory,) = again.ask(DescribeLogDirsRequest(topics=None), 4).results
    found = [(topic.name, [partition.partition_index for partition in topic.partitions]) for topic in directory.topics]
    assert found == [("orders", [1])]
    again.close()


def test_who_may_not_describe_the_cluster_learns_nothing_of_its_disk() -> None:
    small = SmallNode(authorizer=Denies((AclOperation.DESCRIBE, ResourceType.CLUSTER)))
    answer = small.ask(DescribeLogDirsRequest(topics=None), 4)
    assert answer.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    assert not answer.results
    small.close()


# --- DescribeTopicPartitions ----------------------------------------------------------------------------------------


def page(
    small: SmallNode, *names: str, limit: int = 2000, cursor: Cursor | None = None
) -> DescribeTopicPartitionsResponse:
    topics = [TopicRequest(name=name) for name in names]
    request = DescribeTopicPartitionsRequest(topics=topics, response_partition_limit=limit, cursor=cursor)
    answer = small.ask(request, 0)
    assert isinstance(answer, DescribeTopicPartitionsResponse)
    return answer


def shown(answer: DescribeTopicPartitionsResponse) -> list[tuple[str | None, int]]:
    return [(topic.name, partition.partition_index) for topic in answer.topics for partition in topic.partitions]


def codes(answer: DescribeTopicPartitionsResponse) -> dict[str | None, ErrorCode]:
    return {topic.name: ErrorCode(topic.error_code) for topic in answer.topics}


def test_topics_are_described_in_the_order_of_their_names(small: SmallNode) -> None:
    topic_id = bytes.fromhex(small.broker.create_topic("orders", 2).topic_id)
    small.broker.create_topic("a")
    answer = page(small, "orders", "none", "a", "a/b")
    assert list(codes(answer).items()) == [
        ("a", ErrorCode.NONE),
        ("a/b", ErrorCode.INVALID_TOPIC_EXCEPTION),
        ("none", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ("orders", ErrorCode.NONE),
    ]
    orders = answer.topics[-1]
    assert orders.topic_id == topic_id
    assert orders.topic_authorized_operations > 0
    for partition in orders.partitions:
        assert (partition.leader_id, partition.leader_epoch) == (1, 0)
        assert (list(partition.replica_nodes), list(partition.isr_nodes)) == ([1], [1])
        # Lists without items: Java's client does not survive null.
        assert partition.eligible_leader_replicas == []
        assert partition.last_known_elr == []
        assert partition.offline_replicas == []
    assert answer.next_cursor is None


@pytest.mark.parametrize("names", [(), ("b", "d", "a")], ids=["all", "some"])
@pytest.mark.parametrize("limit", range(1, 8))
def test_turning_pages_shows_every_partition_once_and_in_order(names: tuple[str, ...], limit: int) -> None:
    small = SmallNode()
    counts = {"a": 1, "b": 3, "c": 2}
    for name, count in counts.items():
        small.broker.create_topic(name, count)
    seen: list[tuple[str | None, int]] = []
    errors: dict[str | None, ErrorCode] = {}
    cursor: Cursor | None = None
    for _ in range(20):
        answer = page(small, *names, limit=limit, cursor=cursor)
        assert len(shown(answer)) <= limit
        seen += shown(answer)
        errors |= codes(answer)
        cursor = answer.next_cursor
        if cursor is None:
            break
    assert cursor is None
    assert seen == [
        (name, number) for name in sorted(counts) if not names or name in names for number in range(counts[name])
    ]
    assert errors.get("d") == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if names else None)
    small.close()


def test_a_page_is_never_larger_than_the_broker_allows_and_never_empty() -> None:
    small = SmallNode(settings={"max.request.partition.size.limit": 2})
    small.broker.create_topic("orders", 5)
    assert len(shown(page(small, limit=2000))) == 2
    assert len(shown(page(small, limit=0))) == 1
    assert len(shown(page(small, limit=-1))) == 1
    small.close()


def test_a_cursor_may_name_a_topic_or_partition_that_is_gone(small: SmallNode) -> None:
    small.broker.create_topic("b", 2)
    assert shown(page(small, cursor=Cursor(topic_name="a", partition_index=5))) == [("b", 0), ("b", 1)]
    assert shown(page(small, cursor=Cursor(topic_name="b", partition_index=5))) == []


def test_a_cursor_that_does_not_belong_to_the_request_is_refused(small: SmallNode) -> None:
    small.broker.create_topic("orders")
    for cursor in (Cursor(topic_name="users", partition_index=0), Cursor(topic_name="orders", partition_index=-1)):
        answer = page(small, "orders", cursor=cursor)
        assert codes(answer) == {"orders": ErrorCode.INVALID_REQUEST}


def test_internal_topics_are_marked_and_hidden_ones_hidden(small: SmallNode) -> None:
    small.broker.create_topic("orders")
    small.broker.commit_offsets("fraud", {("orders", 0): at(0)})
    assert {topic.name: topic.is_internal for topic in page(small).topics} == {OFFSETS_TOPIC: True, "orders": False}
    hidden = SmallNode(authorizer=Denies((AclOperation.DESCRIBE, ResourceType.TOPIC)))
    hidden.broker.create_topic("orders")
    assert not page(hidden).topics
    assert codes(page(hidden, "orders")) == {"orders": ErrorCode.TOPIC_AUTHORIZATION_FAILED}
    hidden.close()
