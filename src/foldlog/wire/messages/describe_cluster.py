"""DescribeCluster, generated from the schemas of Apache Kafka 4.4.0 by scripts/generate_messages.py."""

from __future__ import annotations

from collections.abc import Sequence

from foldlog.wire.schema import Message, Request, Response, field


class DescribeClusterRequest(Request, api_key=60, versions=(0, 2), flexible_from=0):
    include_cluster_authorized_operations: bool = field("bool", 0, 2, default=False)
    endpoint_type: int = field("int8", 1, 2, default=1)
    include_fenced_brokers: bool = field("bool", 2, 2, default=False)


class DescribeClusterBroker(Message):
    broker_id: int = field("int32", 0, 2, default=0)
    host: str = field("string", 0, 2, default="")
    port: int = field("int32", 0, 2, default=0)
    rack: str | None = field("string", 0, 2, nullable_from=0, default=None)
    is_fenced: bool = field("bool", 2, 2, default=False)


class DescribeClusterResponse(Response, api_key=60, versions=(0, 2), flexible_from=0):
    throttle_time_ms: int = field("int32", 0, 2, default=0)
    error_code: int = field("int16", 0, 2, default=0)
    error_message: str | None = field("string", 0, 2, nullable_from=0, default=None)
    endpoint_type: int = field("int8", 1, 2, default=1)
    cluster_id: str = field("string", 0, 2, default="")
    controller_id: int = field("int32", 0, 2, default=-1)
    brokers: Sequence[DescribeClusterBroker] = field(DescribeClusterBroker, 0, 2, is_array=True, default=())
    cluster_authorized_operations: int = field("int32", 0, 2, default=-2147483648)


REQUEST = DescribeClusterRequest
RESPONSE = DescribeClusterResponse
