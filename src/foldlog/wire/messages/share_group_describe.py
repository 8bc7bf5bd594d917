"""ShareGroupDescribe, generated from the schemas of Apache Kafka 4.4.0 by scripts/generate_messages.py."""

from __future__ import annotations

from collections.abc import Sequence

from foldlog.wire.schema import ZERO_UUID, Message, Request, Response, field


class ShareGroupDescribeRequest(Request, api_key=77, versions=(1, 1), flexible_from=1):
    group_ids: Sequence[str] = field("string", 1, 1, is_array=True, default=())
    include_authorized_operations: bool = field("bool", 1, 1, default=False)


class TopicPartitions(Message):
    topic_id: bytes = field("uuid", 1, 1, default=ZERO_UUID)
    topic_name: str = field("string", 1, 1, default="")
    partitions: Sequence[int] = field("int32", 1, 1, is_array=True, default=())


class Assignment(Message):
    topic_partitions: Sequence[TopicPartitions] = field(TopicPartitions, 1, 1, is_array=True, default=())


class Member(Message):
    member_id: str = field("string", 1, 1, default="")
    rack_id: str | None = field("string", 1, 1, nullable_from=1, default=None)
    member_epoch: int = field("int32", 1, 1, default=0)
    client_id: str = field("string", 1, 1, default="")
    client_host: str = field("string", 1, 1, default="")
    subscribed_topic_names: Sequence[str] = field("string", 1, 1, is_array=True, default=())
    assignment: Assignment = field(Assignment, 1, 1, default=None)


class DescribedGroup(Message):
    error_code: int = field("int16", 1, 1, default=0)
    error_message: str | None = field("string", 1, 1, nullable_from=1, default=None)
    group_id: str = field("string", 1, 1, default="")
    group_state: str = field("string", 1, 1, default="")
    group_epoch: int = field("int32", 1, 1, default=0)
    assignment_epoch: int = field("int32", 1, 1, default=0)
    assignor_name: str = field("string", 1, 1, default="")
    members: Sequence[Member] = field(Member, 1, 1, is_array=True, default=())
    authorized_operations: int = field("int32", 1, 1, default=-2147483648)


class ShareGroupDescribeResponse(Response, api_key=77, versions=(1, 1), flexible_from=1):
    throttle_time_ms: int = field("int32", 1, 1, default=0)
    groups: Sequence[DescribedGroup] = field(DescribedGroup, 1, 1, is_array=True, default=())


REQUEST = ShareGroupDescribeRequest
RESPONSE = ShareGroupDescribeResponse
