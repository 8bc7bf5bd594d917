"""What only a cluster has, asked of one broker: the truth about one, in every version, and nothing that has to wait.

No election is needed, nothing is moved, the one broker is the quorum, and what has settings is listed.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from foldlog.broker.access.acls import AclOperation, ResourceType
from foldlog.wire.error_codes import ErrorCode
from foldlog.wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from foldlog.wire.messages.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
)
from foldlog.wire.messages.describe_quorum import DescribeQuorumRequest, PartitionData, TopicData
from foldlog.wire.messages.elect_leaders import ElectLeadersRequest, TopicPartitions
from foldlog.wire.messages.list_config_resources import ListConfigResourcesRequest
from foldlog.wire.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsTopics,
)
from foldlog.wire.schema import Request
from server.small_node import DIRECTORY, Denies, SmallNode

NODE = 1


@pytest.fixture
def topics(small: SmallNode) -> SmallNode:
    small.broker.create_topic("orders", 2)
    small.broker.create_topic("refunds", 1)
    return small


@pytest.mark.parametrize("version", range(3))
def test_no_election_is_needed(topics: SmallNode, version: int) -> None:
    wanted = [TopicPartitions(topic="orders", partitions=[0, 1, 2]), TopicPartitions(topic="none", partitions=[0])]
    answer = topics.ask(ElectLeadersRequest(topic_partitions=wanted), version)
    assert answer.error_code == ErrorCode.NONE
    found = {
        (topic.topic, one.partition_id): ErrorCode(one.error_code)
        for topic in answer.replica_election_results
        for one in topic.partition_result
    }
    assert found == {
        ("orders", 0): ErrorCode.ELECTION_NOT_NEEDED,
        ("orders", 1): ErrorCode.ELECTION_NOT_NEEDED,
        ("orders", 2): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ("none", 0): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }


@pytest.mark.parametrize("version", range(3))
def test_an_election_for_all_partitions_has_nothing_to_tell_of_any_topic(topics: SmallNode, version: int) -> None:
    answer = topics.ask(ElectLeadersRequest(topic_partitions=None), version)
    found = [(one.topic, list(one.partition_result)) for one in answer.replica_election_results]
    assert (answer.error_code, found) == (0, [("orders", []), ("refunds", [])])


@pytest.mark.parametrize("version", [1, 2])
def test_an_election_of_an_unknown_kind_is_refused_for_each_partition(topics: SmallNode, version: int) -> None:
    wanted = [TopicPartitions(topic="orders", partitions=[0])]
    answer = topics.ask(ElectLeadersRequest(election_type=2, topic_partitions=wanted), version)
    (only,) = answer.replica_election_results[0].partition_result
    assert answer.error_code == only.error_code == ErrorCode.INVALID_REQUEST
    unclean = topics.ask(ElectLeadersRequest(election_type=1, topic_partitions=wanted), version)
    (only,) = unclean.replica_election_results[0].partition_result
    assert (unclean.error_code, only.error_code) == (0, ErrorCode.ELECTION_NOT_NEEDED)


@pytest.mark.parametrize("version", range(2))
@pytest.mark.parametrize(
    ("number", "replicas", "code"),
    [
        (0, [NODE], ErrorCode.NONE),
        (0, None, ErrorCode.NO_REASSIGNMENT_IN_PROGRESS),
        (0, [], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (0, [NODE + 1], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (0, [NODE, NODE + 1], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (0, [NODE, NODE], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (9, [NODE], ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ],
)
def test_a_partition_can_be_moved_only_to_where_it_is(
    topics: SmallNode, version: int, number: int, replicas: list[int] | None, code: ErrorCode
) -> None:
    wanted = ReassignableTopic(
        name="orders", partitions=[ReassignablePartition(partition_index=number, replicas=replicas)]
    )
    answer = topics.ask(AlterPartitionReassignmentsRequest(topics=[wanted]), version)
    ((only,),) = [topic.partitions for topic in answer.responses]
    assert (answer.error_code, only.partition_index, only.error_code) == (0, number, code)
    assert (only.error_message is None) == (code in (ErrorCode.NONE, ErrorCode.NO_REASSIGNMENT_IN_PROGRESS))


@pytest.mark.parametrize("asked", [None, [ListPartitionReassignmentsTopics(name="orders", partition_indexes=[0])]])
def test_nothing_is_being_moved(topics: SmallNode, asked: list[ListPartitionReassignmentsTopics] | None) -> None:
    answer = topics.ask(ListPartitionReassignmentsRequest(topics=asked), 0)
    assert (answer.error_code, answer.error_message, list(answer.topics)) == (0, None, [])


@pytest.mark.parametrize("version", [1, 2])
def test_a_partition_stays_in_the_one_directory(topics: SmallNode, version: int) -> None:
    asked = [AlterReplicaLogDirTopic(name="orders", partitions=[0, 5])]
    here = str(Path(DIRECTORY).absolute())
    dirs = [AlterReplicaLogDir(path=path, topics=asked) for path in (here, "/elsewhere")]
    answer = topics.ask(AlterReplicaLogDirsRequest(dirs=dirs), version)
    ((topic, results),) = [(one.topic_name, one.partitions) for one in answer.results]
    assert topic == "orders"
    assert [(one.partition_index, ErrorCode(one.error_code)) for one in results] == [
        (0, ErrorCode.NONE),
        (5, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (0, ErrorCode.LOG_DIR_NOT_FOUND),
        (5, ErrorCode.LOG_DIR_NOT_FOUND),
    ]


@pytest.mark.parametrize("version", range(3))
def test_the_broker_is_the_quorum(topics: SmallNode, version: int) -> None:
    metadata = TopicData(topic_name="__cluster_metadata", partitions=[PartitionData(partition_index=0)])
    answer = topics.ask(DescribeQuorumRequest(topics=[metadata]), version)
    quorum = answer.topics[0].partitions[0]
    assert (answer.error_code, quorum.error_code, quorum.leader_id) == (0, 0, NODE)
    assert [voter.replica_id for voter in quorum.current_voters] == [NODE]
    assert list(quorum.observers) == []
    if version >= 1:
        assert quorum.current_voters[0].last_caught_up_timestamp == topics.clock.now_ms()
    if version >= 2:
        assert [(node.node_id, node.listeners[0].port) for node in answer.nodes] == [(NODE, 9092)]


@pytest.mark.parametrize("version", range(3))
@pytest.mark.parametrize("names", [["orders"], ["__cluster_metadata", "orders"], []])
def test_only_the_metadata_log_alone_has_a_quorum(topics: SmallNode, version: int, names: list[str]) -> None:
    asked = [TopicData(topic_name=name, partitions=[PartitionData(partition_index=0)]) for name in names]
    answer = topics.ask(DescribeQuorumRequest(topics=asked), version)
    assert (answer.error_code, list(answer.nodes)) == (0, [])
    assert [(topic.topic_name, topic.partitions[0].error_code) for topic in answer.topics] == [
        (name, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION) for name in names
    ]


TOPIC, BROKER, BROKER_LOGGER, CLIENT_METRICS, GROUP = 2, 4, 8, 16, 32


@pytest.mark.parametrize(
    ("kinds", "found"),
    [
        ([], {("orders", TOPIC), ("refunds", TOPIC), ("1", BROKER), ("1", BROKER_LOGGER)}),
        ([TOPIC], {("orders", TOPIC), ("refunds", TOPIC)}),
        ([BROKER], {("1", BROKER)}),
        ([CLIENT_METRICS, GROUP], set()),
    ],
)
def test_what_has_settings_is_listed(topics: SmallNode, kinds: list[int], found: set[tuple[str, int]]) -> None:
    answer = topics.ask(ListConfigResourcesRequest(resource_types=kinds), 1)
    assert answer.error_code == ErrorCode.NONE
    assert {(one.resource_name, one.resource_type) for one in answer.config_resources} == found


def test_kinds_of_settings_that_are_none_are_refused_and_the_first_version_knows_client_metrics_only(
    topics: SmallNode,
) -> None:
    assert topics.ask(ListConfigResourcesRequest(resource_types=[3]), 1).error_code == ErrorCode.UNSUPPORTED_VERSION
    first = topics.ask(ListConfigResourcesRequest(), 0)
    assert (first.error_code, list(first.config_resources)) == (0, [])


ALL: list[tuple[Request, int]] = [
    (ElectLeadersRequest(topic_partitions=None), 2),
    (AlterPartitionReassignmentsRequest(), 0),
    (ListPartitionReassignmentsRequest(topics=None), 0),
    (DescribeQuorumRequest(), 2),
    (ListConfigResourcesRequest(), 1),
]


@pytest.mark.parametrize(("request_", "version"), ALL, ids=[type(one).__name__ for one, _ in ALL])
def test_the_authorizer_is_asked(request_: Request, version: int) -> None:
    cluster = [
        (operation, ResourceType.CLUSTER)
        for operation in (AclOperation.ALTER, AclOperation.DESCRIBE, AclOperation.DESCRIBE_CONFIGS)
    ]
    node = SmallNode(authorizer=Denies(*cluster))
    assert node.ask(request_, version).error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    node.close()
