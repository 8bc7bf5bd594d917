"""AlterPartitionReassignments: a partition may only be moved to the one broker, where it is already. Versions 0 and 1.

1 can forbid a change of the number of replicas, which never happens here. Without replicas, a reassignment is
cancelled, and there is never one.
"""

from __future__ import annotations

from collections.abc import Sequence

from foldlog.broker.access.acls import AclOperation, ResourceType
from foldlog.server.call import Call
from foldlog.wire.error_codes import ErrorCode
from foldlog.wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
)


def handle(call: Call, request: AlterPartitionReassignmentsRequest) -> AlterPartitionReassignmentsResponse:
    if not call.allows(AclOperation.ALTER, ResourceType.CLUSTER):
        return AlterPartitionReassignmentsResponse(
            error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED, error_message="the cluster may not be altered"
        )
    return AlterPartitionReassignmentsResponse(
        error_message=None,
        allow_replication_factor_change=request.allow_replication_factor_change,
        responses=[
            ReassignableTopicResponse(
                name=topic.name, partitions=[_answer(call, topic.name, wanted) for wanted in topic.partitions]
            )
            for topic in request.topics
        ],
    )


def _answer(call: Call, topic: str, wanted: ReassignablePartition) -> ReassignablePartitionResponse:
    code, message = _refuse(call, topic, wanted.partition_index, wanted.replicas)
    return ReassignablePartitionResponse(partition_index=wanted.partition_index, error_code=code, error_message=message)


def _refuse(call: Call, topic: str, number: int, replicas: Sequence[int] | None) -> tuple[ErrorCode, str | None]:
    if not call.node.has_partition(topic, number):
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no partition {number} of that topic"
    if replicas is None:
        return ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, None
    if not replicas:
        return ErrorCode.INVALID_REPLICA_ASSIGNMENT, "a partition needs one replica, and none is given"
    node = call.node.settings.node_id
    for replica in replicas:
        if replica != node:
            return ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"there is no broker {replica}; the only one is {node}"
    if len(replicas) > 1:
        return ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"broker {node} is named more than once"
    return ErrorCode.NONE, None
