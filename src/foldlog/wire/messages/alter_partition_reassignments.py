"""AlterPartitionReassignments, generated from the schemas of Apache Kafka 4.4.0 by scripts/generate_messages.py."""

from __future__ import annotations

from collections.abc import Sequence

from foldlog.wire.schema import Message, Request, Response, field


class ReassignablePartition(Message):
    partition_index: int = field("int32", 0, 1, default=0)
    replicas: Sequence[int] | None = field("int32", 0, 1, is_array=True, nullable_from=0, default=None)


class ReassignableTopic(Message):
    name: str = field("string", 0, 1, default="")
    partitions: Sequence[ReassignablePartition] = field(ReassignablePartition, 0, 1, is_array=True, default=())


class AlterPartitionReassignmentsRequest(Request, api_key=45, versions=(0, 1), flexible_from=0):
    timeout_ms: int = field("int32", 0, 1, default=60000)
    allow_replication_factor_change: bool = field("bool", 1, 1, default=True)
    topics: Sequence[ReassignableTopic] = field(ReassignableTopic, 0, 1, is_array=True, default=())


class ReassignablePartitionResponse(Message):
    partition_index: int = field("int32", 0, 1, default=0)
    error_code: int = field("int16", 0, 1, default=0)
    error_message: str | None = field("string", 0, 1, nullable_from=0, default="")


class ReassignableTopicResponse(Message):
    name: str = field("string", 0, 1, default="")
    partitions: Sequence[ReassignablePartitionResponse] = field(
        ReassignablePartitionResponse, 0, 1, is_array=True, default=()
    )


class AlterPartitionReassignmentsResponse(Response, api_key=45, versions=(0, 1), flexible_from=0):
    throttle_time_ms: int = field("int32", 0, 1, default=0)
    allow_replication_factor_change: bool = field("bool", 1, 1, default=True)
    error_code: int = field("int16", 0, 1, default=0)
    error_message: str | None = field("string", 0, 1, nullable_from=0, default="")
    responses: Sequence[ReassignableTopicResponse] = field(ReassignableTopicResponse, 0, 1, is_array=True, default=())


REQUEST = AlterPartitionReassignmentsRequest
RESPONSE = AlterPartitionReassignmentsResponse
