"""ListOffsets, generated from the schemas of Apache Kafka 4.4.0 by scripts/generate_messages.py."""

from __future__ import annotations

from collections.abc import Sequence

from foldlog.wire.schema import Message, Request, Response, field


class ListOffsetsPartition(Message):
    partition_index: int = field("int32", 1, 11, default=0)
    current_leader_epoch: int = field("int32", 4, 11, default=-1)
    timestamp: int = field("int64", 1, 11, default=0)


class ListOffsetsTopic(Message):
    name: str = field("string", 1, 11, default="")
    partitions: Sequence[ListOffsetsPartition] = field(ListOffsetsPartition, 1, 11, is_array=True, default=())


class ListOffsetsRequest(Request, api_key=2, versions=(1, 11), flexible_from=6):
    replica_id: int = field("int32", 1, 11, default=0)
    isolation_level: int = field("int8", 2, 11, default=0)
    topics: Sequence[ListOffsetsTopic] = field(ListOffsetsTopic, 1, 11, is_array=True, default=())
    timeout_ms: int = field("int32", 10, 11, default=0)


class ListOffsetsPartitionResponse(Message):
    partition_index: int = field("int32", 1, 11, default=0)
    error_code: int = field("int16", 1, 11, default=0)
    timestamp: int = field("int64", 1, 11, default=-1)
    offset: int = field("int64", 1, 11, default=-1)
    leader_epoch: int = field("int32", 4, 11, default=-1)


class ListOffsetsTopicResponse(Message):
    name: str = field("string", 1, 11, default="")
    partitions: Sequence[ListOffsetsPartitionResponse] = field(
        ListOffsetsPartitionResponse, 1, 11, is_array=True, default=()
    )


class ListOffsetsResponse(Response, api_key=2, versions=(1, 11), flexible_from=6):
    throttle_time_ms: int = field("int32", 2, 11, default=0)
    topics: Sequence[ListOffsetsTopicResponse] = field(ListOffsetsTopicResponse, 1, 11, is_array=True, default=())


REQUEST = ListOffsetsRequest
RESPONSE = ListOffsetsResponse
