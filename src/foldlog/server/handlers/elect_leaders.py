"""ElectLeaders: every partition has its one possible leader, so no election is needed. Versions 0 to 2.

1 names the kind of election, preferred (0) or unclean (1). A request for all partitions is answered only with those
that changed or failed, as in Kafka: with all topics, and no partition of them.
"""

from __future__ import annotations

from typing import Final

from foldlog.broker.access.acls import AclOperation, ResourceType
from foldlog.server.call import Call
from foldlog.wire.error_codes import ErrorCode
from foldlog.wire.messages.elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    PartitionResult,
    ReplicaElectionResult,
)

_ELECTION_TYPES: Final = (0, 1)


def handle(call: Call, request: ElectLeadersRequest) -> ElectLeadersResponse:
    if not call.allows(AclOperation.ALTER, ResourceType.CLUSTER):
        return ElectLeadersResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    is_election = request.election_type in _ELECTION_TYPES
    if request.topic_partitions is None:
        every = call.node.broker.topics(include_internal=True) if is_election else []
        results = [ReplicaElectionResult(topic=topic) for topic in every]
    else:
        results = [
            ReplicaElectionResult(
                topic=topic.topic,
                partition_result=[_result(call, request, topic.topic, number) for number in topic.partitions],
            )
            for topic in request.topic_partitions
        ]
    # In Kafka nothing is wrong where nothing is asked for.
    is_refused = not is_election and request.topic_partitions != []
    code = ErrorCode.INVALID_REQUEST if is_refused else ErrorCode.NONE
    return ElectLeadersResponse(error_code=code, replica_election_results=results)


def _result(call: Call, request: ElectLeadersRequest, topic: str, number: int) -> PartitionResult:
    if request.election_type not in _ELECTION_TYPES:
        code = ErrorCode.INVALID_REQUEST
        message = f"election type {request.election_type} is neither preferred (0) nor unclean (1)"
    elif call.node.has_partition(topic, number):
        code, message = ErrorCode.ELECTION_NOT_NEEDED, "Leader election not needed for topic partition."
    else:
        code, message = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no partition {number} of that topic"
    return PartitionResult(partition_id=number, error_code=code, error_message=message)
