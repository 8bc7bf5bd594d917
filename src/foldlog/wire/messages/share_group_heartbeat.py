"""ShareGroupHeartbeat, generated from the schemas of Apache Kafka 4.4.0 by scripts/generate_messages.py."""

from __future__ import annotations

from collections.abc import Sequence

from foldlog.wire.schema import ZERO_UUID, Message, Request, Response, field


class ShareGroupHeartbeatRequest(Request, api_key=76, versions=(1, 1), flexible_from=1):
    group_id: str = field("string", 1, 1, default="")
    member_id: str = field("string", 1, 1, default="")
    member_epoch: int = field("int32", 1, 1, default=0)
    rack_id: str | None = field("string", 1, 1, nullable_from=1, default=None)
    subscribed_topic_names: Sequence[str] | None = field("string", 1, 1, is_array=True, nullable_from=1, default=None)


class TopicPartitions(Message):
    topic_id: bytes = field("uuid", 1, 1, default=ZERO_UUID)
    partitions: Sequence[int] = field("int32", 1, 1, is_array=True, default=())


class Assignment(Message):
    topic_partitions: Sequence[TopicPartitions] = field(TopicPartitions, 1, 1, is_array=True, default=())


class ShareGroupHeartbeatResponse(Response, api_key=76, versions=(1, 1), flexible_from=1):
    throttle_time_ms: int = field("int32", 1, 1, default=0)
    error_code: int = field("int16", 1, 1, default=0)
    error_message: str | None = field("string", 1, 1, nullable_from=1, default=None)
    member_id: str | None = field("string", 1, 1, nullable_from=1, default=None)
    member_epoch: int = field("int32", 1, 1, default=0)
    heartbeat_interval_ms: int = field("int32", 1, 1, default=0)
    assignment: Assignment | None = field(Assignment, 1, 1, nullable_from=1, default=None)


REQUEST = ShareGroupHeartbeatRequest
RESPONSE = ShareGroupHeartbeatResponse
