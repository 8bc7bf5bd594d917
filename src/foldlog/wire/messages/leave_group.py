"""LeaveGroup, generated from the schemas of Apache Kafka 4.4.0 by scripts/generate_messages.py."""

from __future__ import annotations

from collections.abc import Sequence

from foldlog.wire.schema import Message, Request, Response, field


class MemberIdentity(Message):
    member_id: str = field("string", 3, 5, default="")
    group_instance_id: str | None = field("string", 3, 5, nullable_from=3, default=None)
    reason: str | None = field("string", 5, 5, nullable_from=5, default=None)


class LeaveGroupRequest(Request, api_key=13, versions=(0, 5), flexible_from=4):
    group_id: str = field("string", 0, 5, default="")
    member_id: str = field("string", 0, 2, default="")
    members: Sequence[MemberIdentity] = field(MemberIdentity, 3, 5, is_array=True, default=())


class MemberResponse(Message):
    member_id: str = field("string", 3, 5, default="")
    group_instance_id: str | None = field("string", 3, 5, nullable_from=3, default="")
    error_code: int = field("int16", 3, 5, default=0)


class LeaveGroupResponse(Response, api_key=13, versions=(0, 5), flexible_from=4):
    throttle_time_ms: int = field("int32", 1, 5, default=0)
    error_code: int = field("int16", 0, 5, default=0)
    members: Sequence[MemberResponse] = field(MemberResponse, 3, 5, is_array=True, default=())


REQUEST = LeaveGroupRequest
RESPONSE = LeaveGroupResponse
