"""SyncGroup, generated from the schemas of Apache Kafka 4.4.0 by scripts/generate_messages.py."""

from __future__ import annotations

from collections.abc import Sequence

from foldlog.wire.schema import Message, Request, Response, field


class SyncGroupRequestAssignment(Message):
    member_id: str = field("string", 0, 5, default="")
    assignment: bytes = field("bytes", 0, 5, default=b"")


class SyncGroupRequest(Request, api_key=14, versions=(0, 5), flexible_from=4):
    group_id: str = field("string", 0, 5, default="")
    generation_id: int = field("int32", 0, 5, default=0)
    member_id: str = field("string", 0, 5, default="")
    group_instance_id: str | None = field("string", 3, 5, nullable_from=3, default=None)
    protocol_type: str | None = field("string", 5, 5, nullable_from=5, default=None)
    protocol_name: str | None = field("string", 5, 5, nullable_from=5, default=None)
    assignments: Sequence[SyncGroupRequestAssignment] = field(
        SyncGroupRequestAssignment, 0, 5, is_array=True, default=()
    )


class SyncGroupResponse(Response, api_key=14, versions=(0, 5), flexible_from=4):
    throttle_time_ms: int = field("int32", 1, 5, default=0)
    error_code: int = field("int16", 0, 5, default=0)
    protocol_type: str | None = field("string", 5, 5, nullable_from=5, default=None)
    protocol_name: str | None = field("string", 5, 5, nullable_from=5, default=None)
    assignment: bytes = field("bytes", 0, 5, default=b"")


REQUEST = SyncGroupRequest
RESPONSE = SyncGroupResponse
