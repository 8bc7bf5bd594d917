"""ListPartitionReassignments, generated from the schemas of Apache Kafka 4.4.0 by scripts/generate_messages.py."""

from __future__ import annotations

from collections.abc import Sequence

from foldlog.wire.schema import Message, Request, Response, field


class ListPartitionReassignmentsTopics(Message):
    name: str = field("string", 0, 0, default="")
    partition_indexes: Sequence[int] = field("int32", 0, 0, is_array=True, default=())


class ListPartitionReassignmentsRequest(Request, api_key=46, versions=(0, 0), flexible_from=0):
    timeout_ms: int = field("int32", 0, 0, default=60000)
    topics: Sequence[ListPartitionReassignmentsTopics] | None = field(
        ListPartitionReassignmentsTopics, 0, 0, is_array=True, nullable_from=0, default=None
    )


class OngoingPartitionReassignment(Message):
    partition_index: int = field("int32", 0, 0, default=0)
    replicas: Sequence[int] = field("int32", 0, 0, is_array=True, default=())
    adding_replicas: Sequence[int] = field("int32", 0, 0, is_array=True, default=())
    removing_replicas: Sequence[int] = field("int32", 0, 0, is_array=True, default=())


class OngoingTopicReassignment(Message):
    name: str = field("string", 0, 0, default="")
    partitions: Sequence[OngoingPartitionReassignment] = field(
        OngoingPartitionReassignment, 0, 0, is_array=True, default=()
    )


class ListPartitionReassignmentsResponse(Response, api_key=46, versions=(0, 0), flexible_from=0):
    throttle_time_ms: int = field("int32", 0, 0, default=0)
    error_code: int = field("int16", 0, 0, default=0)
    error_message: str | None = field("string", 0, 0, nullable_from=0, default="")
    topics: Sequence[OngoingTopicReassignment] = field(OngoingTopicReassignment, 0, 0, is_array=True, default=())


REQUEST = ListPartitionReassignmentsRequest
RESPONSE = ListPartitionReassignmentsResponse
