"""JoinGroup, generated from the schemas of Apache Kafka 4.4.0 by scripts/generate_messages.py."""

from __future__ import annotations

from collections.abc import Sequence

from foldlog.wire.schema import Message, Request, Response, field


class JoinGroupRequestProtocol(Message):
    name: str = field("string", 0, 9, default="")
    metadata: bytes = field("bytes", 0, 9, default=b"")


class JoinGroupRequest(Request, api_key=11, versions=(0, 9), flexible_from=6):
    group_id: str = field("string", 0, 9, default="")
    session_timeout_ms: int = field("int32", 0, 9, default=0)
    rebalance_timeout_ms: int = field("int32", 1, 9, default=-1)
    member_id: str = field("string", 0, 9, default="")
    group_instance_id: str | None = field("string", 5, 9, nullable_from=5, default=None)
    protocol_type: str = field("string", 0, 9, default="")
    protocols: Sequence[JoinGroupRequestProtocol] = field(JoinGroupRequestProtocol, 0, 9, is_array=True, default=())
    reason: str | None = field("string", 8, 9, nullable_from=8, default=None)


class JoinGroupResponseMember(Message):
    member_id: str = field("string", 0, 9, default="")
    group_instance_id: str | None = field("string", 5, 9, nullable_from=5, default=None)
    metadata: bytes = field("bytes", 0, 9, default=b"")


class JoinGroupResponse(Response, api_key=11, versions=(0, 9), flexible_from=6):
    throttle_time_ms: int = field("int32", 2, 9, default=0)
    error_code: int = field("int16", 0, 9, default=0)
    generation_id: int = field("int32", 0, 9, default=-1)
    protocol_type: str | None = field("string", 7, 9, nullable_from=7, default=None)
    protocol_name: str | None = field("string", 0, 9, nullable_from=7, default="")
    leader: str = field("string", 0, 9, default="")
    skip_assignment: bool = field("bool", 9, 9, default=False)
    member_id: str = field("string", 0, 9, default="")
    members: Sequence[JoinGroupResponseMember] = field(JoinGroupResponseMember, 0, 9, is_array=True, default=())


REQUEST = JoinGroupRequest
RESPONSE = JoinGroupResponse
