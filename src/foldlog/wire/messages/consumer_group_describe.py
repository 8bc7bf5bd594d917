"""ConsumerGroupDescribe, versions 0 to 1.

Written by scripts/generate_messages.py from kio 0.6.5, not by hand.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from foldlog.wire.schema import ZERO_UUID, Field, Message, Request, Response


class ConsumerGroupDescribeRequest(Request):
    """In versions 0 to 1."""

    __slots__ = (
        "group_ids",
        "include_authorized_operations",
    )
    API_KEY: ClassVar[int] = 69
    VERSIONS: ClassVar[tuple[int, int]] = (0, 1)
    FLEXIBLE_FROM: ClassVar[int | None] = 0
    SCHEMA: ClassVar[tuple[Field, ...]] = (
        Field("group_ids", "string", 0, 1, is_array=True),
        Field("include_authorized_operations", "bool", 0, 1),
    )

    def __init__(self, *, group_ids: Sequence[str] = (), include_authorized_operations: bool = False) -> None:
        self.group_ids = group_ids
        self.include_authorized_operations = include_authorized_operations


class TopicPartitions(Message):
    """In versions 0 to 1."""

    __slots__ = (
        "topic_id",
        "topic_name",
        "partitions",
    )
    SCHEMA: ClassVar[tuple[Field, ...]] = (
        Field("topic_id", "uuid", 0, 1),
        Field("topic_name", "string", 0, 1),
        Field("partitions", "int32", 0, 1, is_array=True),
    )

    def __init__(self, *, topic_id: bytes = ZERO_UUID, topic_name: str = "", partitions: Sequence[int] = ()) -> None:
        self.topic_id = topic_id
        self.topic_name = topic_name
        self.partitions = partitions


class Assignment(Message):
    """In versions 0 to 1."""

    __slots__ = ("topic_partitions",)
    SCHEMA: ClassVar[tuple[Field, ...]] = (
        Field("topic_partitions", "struct", 0, 1, item=TopicPartitions, is_array=True),
    )

    def __init__(self, *, topic_partitions: Sequence[TopicPartitions] = ()) -> None:
        self.topic_partitions = topic_partitions


class Member(Message):
    """In versions 0 to 1."""

    __slots__ = (
        "member_id",
        "instance_id",
        "rack_id",
        "member_epoch",
        "client_id",
        "client_host",
        "subscribed_topic_names",
        "subscribed_topic_regex",
        "assignment",
        "target_assignment",
        "member_type",
    )
    SCHEMA: ClassVar[tuple[Field, ...]] = (
        Field("member_id", "string", 0, 1),
        Field("instance_id", "string", 0, 1, is_nullable=True),
        Field("rack_id", "string", 0, 1, is_nullable=True),
        Field("member_epoch", "int32", 0, 1),
        Field("client_id", "string", 0, 1),
        Field("client_host", "string", 0, 1),
        Field("subscribed_topic_names", "string", 0, 1, is_array=True),
        Field("subscribed_topic_regex", "string", 0, 1, is_nullable=True),
        Field("assignment", "struct", 0, 1, item=Assignment),
        Field("target_assignment", "struct", 0, 1, item=Assignment),
        Field("member_type", "int8", 1, 1),
    )

    def __init__(
        self,
        *,
        member_id: str = "",
        instance_id: str | None = None,
        rack_id: str | None = None,
        member_epoch: int = 0,
        client_id: str = "",
        client_host: str = "",
        subscribed_topic_names: Sequence[str] = (),
        subscribed_topic_regex: str | None = None,
        assignment: Assignment | None = None,
        target_assignment: Assignment | None = None,
        member_type: int = -1,
    ) -> None:
        self.member_id = member_id
        self.instance_id = instance_id
        self.rack_id = rack_id
        self.member_epoch = member_epoch
        self.client_id = client_id
        self.client_host = client_host
        self.subscribed_topic_names = subscribed_topic_names
        self.subscribed_topic_regex = subscribed_topic_regex
        self.assignment = Assignment() if assignment is None else assignment
        self.target_assignment = Assignment() if target_assignment is None else target_assignment
        self.member_type = member_type


class DescribedGroup(Message):
    """In versions 0 to 1."""

    __slots__ = (
        "error_code",
        "error_message",
        "group_id",
        "group_state",
        "group_epoch",
        "assignment_epoch",
        "assignor_name",
        "members",
        "authorized_operations",
    )
    SCHEMA: ClassVar[tuple[Field, ...]] = (
        Field("error_code", "int16", 0, 1),
        Field("error_message", "string", 0, 1, is_nullable=True),
        Field("group_id", "string", 0, 1),
        Field("group_state", "string", 0, 1),
        Field("group_epoch", "int32", 0, 1),
        Field("assignment_epoch", "int32", 0, 1),
        Field("assignor_name", "string", 0, 1),
        Field("members", "struct", 0, 1, item=Member, is_array=True),
        Field("authorized_operations", "int32", 0, 1),
    )

    def __init__(
        self,
        *,
        error_code: int = 0,
        error_message: str | None = None,
        group_id: str = "",
        group_state: str = "",
        group_epoch: int = 0,
        assignment_epoch: int = 0,
        assignor_name: str = "",
        members: Sequence[Member] = (),
        authorized_operations: int = -2147483648,
    ) -> None:
        self.error_code = error_code
        self.error_message = error_message
        self.group_id = group_id
        self.group_state = group_state
        self.group_epoch = group_epoch
        self.assignment_epoch = assignment_epoch
        self.assignor_name = assignor_name
        self.members = members
        self.authorized_operations = authorized_operations


class ConsumerGroupDescribeResponse(Response):
    """In versions 0 to 1."""

    __slots__ = (
        "throttle_time_ms",
        "groups",
    )
    API_KEY: ClassVar[int] = 69
    VERSIONS: ClassVar[tuple[int, int]] = (0, 1)
    FLEXIBLE_FROM: ClassVar[int | None] = 0
    SCHEMA: ClassVar[tuple[Field, ...]] = (
        Field("throttle_time_ms", "int32", 0, 1),
        Field("groups", "struct", 0, 1, item=DescribedGroup, is_array=True),
    )

    def __init__(self, *, throttle_time_ms: int = 0, groups: Sequence[DescribedGroup] = ()) -> None:
        self.throttle_time_ms = throttle_time_ms
        self.groups = groups


REQUEST = ConsumerGroupDescribeRequest
RESPONSE = ConsumerGroupDescribeResponse
