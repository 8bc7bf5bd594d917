"""DescribeGroups, generated from the schemas of Apache Kafka 4.4.0 by scripts/generate_messages.py."""

from __future__ import annotations

from collections.abc import Sequence

from foldlog.wire.schema import Message, Request, Response, field


class DescribeGroupsRequest(Request, api_key=15, versions=(0, 6), flexible_from=5):
    groups: Sequence[str] = field("string", 0, 6, is_array=True, default=())
    include_authorized_operations: bool = field("bool", 3, 6, default=False)


class DescribedGroupMember(Message):
    member_id: str = field("string", 0, 6, default="")
    group_instance_id: str | None = field("string", 4, 6, nullable_from=4, default=None)
    client_id: str = field("string", 0, 6, default="")
    client_host: str = field("string", 0, 6, default="")
    member_metadata: bytes = field("bytes", 0, 6, default=b"")
    member_assignment: bytes = field("bytes", 0, 6, default=b"")


class DescribedGroup(Message):
    error_code: int = field("int16", 0, 6, default=0)
    error_message: str | None = field("string", 6, 6, nullable_from=6, default=None)
    group_id: str = field("string", 0, 6, default="")
    group_state: str = field("string", 0, 6, default="")
    protocol_type: str = field("string", 0, 6, default="")
    protocol_data: str = field("string", 0, 6, default="")
    members: Sequence[DescribedGroupMember] = field(DescribedGroupMember, 0, 6, is_array=True, default=())
    authorized_operations: int = field("int32", 3, 6, default=-2147483648)


class DescribeGroupsResponse(Response, api_key=15, versions=(0, 6), flexible_from=5):
    throttle_time_ms: int = field("int32", 1, 6, default=0)
    groups: Sequence[DescribedGroup] = field(DescribedGroup, 0, 6, is_array=True, default=())


REQUEST = DescribeGroupsRequest
RESPONSE = DescribeGroupsResponse
