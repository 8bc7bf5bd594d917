"""DescribeTopicPartitions, generated from the schemas of Apache Kafka 4.4.0 by scripts/generate_messages.py."""

from __future__ import annotations

from collections.abc import Sequence

from foldlog.wire.schema import ZERO_UUID, Message, Request, Response, field


class TopicRequest(Message):
    name: str = field("string", 0, 0, default="")


class Cursor(Message):
    topic_name: str = field("string", 0, 0, default="")
    partition_index: int = field("int32", 0, 0, default=0)


class DescribeTopicPartitionsRequest(Request, api_key=75, versions=(0, 0), flexible_from=0):
    topics: Sequence[TopicRequest] = field(TopicRequest, 0, 0, is_array=True, default=())
    response_partition_limit: int = field("int32", 0, 0, default=2000)
    cursor: Cursor | None = field(Cursor, 0, 0, nullable_from=0, default=None)


class DescribeTopicPartitionsResponsePartition(Message):
    error_code: int = field("int16", 0, 0, default=0)
    partition_index: int = field("int32", 0, 0, default=0)
    leader_id: int = field("int32", 0, 0, default=0)
    leader_epoch: int = field("int32", 0, 0, default=-1)
    replica_nodes: Sequence[int] = field("int32", 0, 0, is_array=True, default=())
    isr_nodes: Sequence[int] = field("int32", 0, 0, is_array=True, default=())
    eligible_leader_replicas: Sequence[int] | None = field("int32", 0, 0, is_array=True, nullable_from=0, default=None)
    last_known_elr: Sequence[int] | None = field("int32", 0, 0, is_array=True, nullable_from=0, default=None)
    offline_replicas: Sequence[int] = field("int32", 0, 0, is_array=True, default=())


class DescribeTopicPartitionsResponseTopic(Message):
    error_code: int = field("int16", 0, 0, default=0)
    name: str | None = field("string", 0, 0, nullable_from=0, default="")
    topic_id: bytes = field("uuid", 0, 0, default=ZERO_UUID)
    is_internal: bool = field("bool", 0, 0, default=False)
    partitions: Sequence[DescribeTopicPartitionsResponsePartition] = field(
        DescribeTopicPartitionsResponsePartition, 0, 0, is_array=True, default=()
    )
    topic_authorized_operations: int = field("int32", 0, 0, default=-2147483648)


class DescribeTopicPartitionsResponse(Response, api_key=75, versions=(0, 0), flexible_from=0):
    throttle_time_ms: int = field("int32", 0, 0, default=0)
    topics: Sequence[DescribeTopicPartitionsResponseTopic] = field(
        DescribeTopicPartitionsResponseTopic, 0, 0, is_array=True, default=()
    )
    next_cursor: Cursor | None = field(Cursor, 0, 0, nullable_from=0, default=None)


REQUEST = DescribeTopicPartitionsRequest
RESPONSE = DescribeTopicPartitionsResponse
