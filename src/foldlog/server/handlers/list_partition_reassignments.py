"""ListPartitionReassignments, version 0: none is ever under way, as there is one broker."""

from __future__ import annotations

from foldlog.broker.access.acls import AclOperation, ResourceType
from foldlog.server.call import Call
from foldlog.wire.error_codes import ErrorCode
from foldlog.wire.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)


def handle(call: Call, request: ListPartitionReassignmentsRequest) -> ListPartitionReassignmentsResponse:
    if not call.allows(AclOperation.DESCRIBE, ResourceType.CLUSTER):
        return ListPartitionReassignmentsResponse(
            error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED, error_message="the cluster may not be described"
        )
    return ListPartitionReassignmentsResponse(error_message=None)
