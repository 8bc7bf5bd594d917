"""Heartbeat, generated from the schemas of Apache Kafka 4.4.0 by scripts/generate_messages.py."""

from __future__ import annotations

from foldlog.wire.schema import Request, Response, field


class HeartbeatRequest(Request, api_key=12, versions=(0, 4), flexible_from=4):
    group_id: str = field("string", 0, 4, default="")
    generation_id: int = field("int32", 0, 4, default=0)
    member_id: str = field("string", 0, 4, default="")
    group_instance_id: str | None = field("string", 3, 4, nullable_from=3, default=None)


class HeartbeatResponse(Response, api_key=12, versions=(0, 4), flexible_from=4):
    throttle_time_ms: int = field("int32", 1, 4, default=0)
    error_code: int = field("int16", 0, 4, default=0)


REQUEST = HeartbeatRequest
RESPONSE = HeartbeatResponse
