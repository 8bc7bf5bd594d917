"""ConsumerGroupHeartbeat, generated from the schemas of Apache Kafka 4.4.0 by scripts/generate_messages.py."""

from __future__ import annotations

from collections.abc import Sequence

from foldlog.wire.schema import ZERO_UUID, Message, Request, Response, field


class TopicPartitions(Message):
    topic_id: bytes = field("uuid", 0, 1, default=ZERO_UUID)
    partitions: Sequence[int] = field("int32", 0, 1, is_array=True, default=())


class ConsumerGroupHeartbeatRequest(Request, api_key=68, versions=(0, 1), flexible_from=0):
    group_id: str = field("string", 0, 1, default="")
    member_id: str = field("string", 0, 1, default="")
    member_epoch: int = field("int32", 0, 1, default=0)
    instance_id: str | None = field("string", 0, 1, nullable_from=0, default=None)
    rack_id: str | None = field("string", 0, 1, nullable_from=0, default=None)
    rebalance_timeout_ms: int = field("int32", 0, 1, default=-1)
    subscribed_topic_names: Sequence[str] | None = field("string", 0, 1, is_array=True, nullable_from=0, default=None)
    subscribed_topic_regex: str | None = field("string", 1, 1, nullable_from=1, default=None)
    server_assignor: str | None = field("string", 0, 1, nullable_from=0, default=None)
    topic_partitions: Sequence[TopicPartitions] | None = field(
        TopicPartitions, 0, 1, is_array=True, nullable_from=0, default=None
    )


class Assignment(Message):
    topic_partitions: Sequence[TopicPartitions] = field(TopicPartitions, 0, 1, is_array=True, default=())


class ConsumerGroupHeartbeatResponse(Response, api_key=68, versions=(0, 1), flexible_from=0):
    throttle_time_ms: int = field("int32", 0, 1, default=0)
    error_code: int = field("int16", 0, 1, default=0)
    error_message: str | None = field("string", 0, 1, nullable_from=0, default=None)
    member_id: str | None = field("string", 0, 1, nullable_from=0, default=None)
    member_epoch: int = field("int32", 0, 1, default=0)
    heartbeat_interval_ms: int = field("int32", 0, 1, default=0)
    assignment: Assignment | None = field(Assignment, 0, 1, nullable_from=0, default=None)


REQUEST = ConsumerGroupHeartbeatRequest
RESPONSE = ConsumerGroupHeartbeatResponse
