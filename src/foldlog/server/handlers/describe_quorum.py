"""DescribeQuorum: the one broker is the one voter, and leads. Versions 0 to 2.

1 adds times, 2 directory ids, error messages and the voters' listeners. There is no metadata log here (topics are in a
catalog), so its offsets are 0, and no replica lags. A request for anything but partition 0 of the metadata log is
refused as a whole, as in Kafka.
"""

from __future__ import annotations

from typing import Final

from foldlog.broker.access.acls import AclOperation, ResourceType
from foldlog.server.call import Call
from foldlog.wire.error_codes import ErrorCode
from foldlog.wire.messages.describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    Listener,
    Node,
    PartitionDataResult,
    ReplicaState,
    TopicData,
    TopicDataResult,
)

_METADATA_TOPIC: Final = "__cluster_metadata"


def handle(call: Call, request: DescribeQuorumRequest) -> DescribeQuorumResponse:
    if not call.allows(AclOperation.DESCRIBE, ResourceType.CLUSTER):
        return DescribeQuorumResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED, error_message=None)
    wanted = [(topic.topic_name, asked.partition_index) for topic in request.topics for asked in topic.partitions]
    if wanted != [(_METADATA_TOPIC, 0)]:
        return DescribeQuorumResponse(error_message="", topics=[_refused(topic) for topic in request.topics])
    endpoint = call.caller.endpoint
    listener = Listener(name=endpoint.name, host=endpoint.host, port=endpoint.port)
    return DescribeQuorumResponse(
        error_message="",
        topics=[TopicDataResult(topic_name=_METADATA_TOPIC, partitions=[_quorum(call)])],
        nodes=[Node(node_id=call.node.settings.node_id, listeners=[listener])],
    )


def _refused(topic: TopicData) -> TopicDataResult:
    return TopicDataResult(
        topic_name=topic.topic_name,
        partitions=[
            PartitionDataResult(
                partition_index=asked.partition_index,
                error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                error_message=f"only partition 0 of {_METADATA_TOPIC} has a quorum; ask for that one alone",
            )
            for asked in topic.partitions
        ],
    )


def _quorum(call: Call) -> PartitionDataResult:
    node_id, now_ms = call.node.settings.node_id, call.node.clock.now_ms()
    voter = ReplicaState(replica_id=node_id, last_fetch_timestamp=now_ms, last_caught_up_timestamp=now_ms)
    return PartitionDataResult(error_message="", leader_id=node_id, leader_epoch=1, current_voters=[voter])
