"""DescribeQuorum: the one broker is the one voter, and leads. Versions 0 to 2.

1 adds times, 2 directory ids, error messages and the voters' listeners. There is no metadata log here (topics are in a
catalog), so its offsets are 0, and no replica lags.
"""

from __future__ import annotations

from typing import Final

from foldlog.server.authorizer import AclOperation, ResourceType
from foldlog.server.call import Call
from foldlog.wire.error_codes import ErrorCode
from foldlog.wire.messages.describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    Listener,
    Node,
    PartitionDataResult,
    ReplicaState,
    TopicDataResult,
)

_METADATA_TOPIC: Final = "__cluster_metadata"
_NOBODY: Final = -1


def handle(call: Call, request: DescribeQuorumRequest) -> DescribeQuorumResponse:
    if not call.allows(AclOperation.DESCRIBE, ResourceType.CLUSTER):
        return DescribeQuorumResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED, error_message=None)
    endpoint = call.caller.endpoint
    listener = Listener(name=endpoint.name, host=endpoint.host, port=endpoint.port)
    return DescribeQuorumResponse(
        error_message=None,
        topics=[
            TopicDataResult(
                topic_name=topic.topic_name,
                partitions=[_partition(call, topic.topic_name, asked.partition_index) for asked in topic.partitions],
            )
            for topic in request.topics
        ],
        nodes=[Node(node_id=call.node.settings.node_id, listeners=[listener])],
    )


def _partition(call: Call, topic: str, number: int) -> PartitionDataResult:
    if (topic, number) != (_METADATA_TOPIC, 0):
        return PartitionDataResult(
            partition_index=number,
            error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            error_message=f"only partition 0 of {_METADATA_TOPIC} has a quorum",
            leader_id=_NOBODY,
            leader_epoch=_NOBODY,
            high_watermark=_NOBODY,
        )
    node_id, now_ms = call.node.settings.node_id, call.node.clock.now_ms()
    voter = ReplicaState(replica_id=node_id, last_fetch_timestamp=now_ms, last_caught_up_timestamp=now_ms)
    return PartitionDataResult(
        partition_index=number, error_message=None, leader_id=node_id, leader_epoch=0, current_voters=[voter]
    )
