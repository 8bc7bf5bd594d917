"""DescribeCluster: the one broker there is, which is its own controller. Versions 0 to 2.

- 1 says whether brokers or controllers are asked for (KIP-919); there is no endpoint for controllers here.
- 2 can ask for fenced brokers (KIP-1073); there are none.
"""

from __future__ import annotations

from enum import IntEnum

from foldlog.server.call import Call
from foldlog.server.handlers.metadata import cluster_operations
from foldlog.wire.error_codes import ErrorCode
from foldlog.wire.messages.describe_cluster import (
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
)


class _EndpointType(IntEnum):
    """The kind of node that a client wants: Kafka's numbers."""

    BROKER = 1
    CONTROLLER = 2


def handle(call: Call, request: DescribeClusterRequest) -> DescribeClusterResponse:
    if request.endpoint_type == _EndpointType.CONTROLLER:
        sentence = "this is an endpoint of brokers, and controllers were asked for; ask for brokers"
        return DescribeClusterResponse(error_code=ErrorCode.MISMATCHED_ENDPOINT_TYPE, error_message=sentence)
    if request.endpoint_type != _EndpointType.BROKER:
        sentence = f"endpoint type {request.endpoint_type} is none; ask for brokers (1)"
        return DescribeClusterResponse(error_code=ErrorCode.UNSUPPORTED_ENDPOINT_TYPE, error_message=sentence)
    node_id, endpoint = call.node.settings.node_id, call.caller.endpoint
    answer = DescribeClusterResponse(
        endpoint_type=_EndpointType.BROKER,
        cluster_id=call.node.cluster_id,
        controller_id=node_id,
        brokers=[DescribeClusterBroker(broker_id=node_id, host=endpoint.host, port=endpoint.port)],
    )
    if request.include_cluster_authorized_operations:
        answer.cluster_authorized_operations = cluster_operations(call)
    return answer
