"""Heartbeat, versions 0 to 4.

Written by scripts/generate_messages.py from kio 0.6.5, not by hand.
"""

from __future__ import annotations

from typing import ClassVar

from foldlog.wire.schema import Field, Request, Response


class HeartbeatRequest(Request):
    """In versions 0 to 4."""

    __slots__ = (
        "group_id",
        "generation_id",
        "member_id",
        "group_instance_id",
    )
    API_KEY: ClassVar[int] = 12
    VERSIONS: ClassVar[tuple[int, int]] = (0, 4)
    FLEXIBLE_FROM: ClassVar[int | None] = 4
    SCHEMA: ClassVar[tuple[Field, ...]] = (
        Field("group_id", "string", 0, 4),
        Field("generation_id", "int32", 0, 4),
        Field("member_id", "string", 0, 4),
        Field("group_instance_id", "string", 3, 4, is_nullable=True),
    )

    def __init__(
        self, *, group_id: str = "", generation_id: int = 0, member_id: str = "", group_instance_id: str | None = None
    ) -> None:
        self.group_id = group_id
        self.generation_id = generation_id
        self.member_id = member_id
        self.group_instance_id = group_instance_id


class HeartbeatResponse(Response):
    """In versions 0 to 4."""

    __slots__ = (
        "throttle_time_ms",
        "error_code",
    )
    API_KEY: ClassVar[int] = 12
    VERSIONS: ClassVar[tuple[int, int]] = (0, 4)
    FLEXIBLE_FROM: ClassVar[int | None] = 4
    SCHEMA: ClassVar[tuple[Field, ...]] = (
        Field("throttle_time_ms", "int32", 1, 4),
        Field("error_code", "int16", 0, 4),
    )

    def __init__(self, *, throttle_time_ms: int = 0, error_code: int = 0) -> None:
        self.throttle_time_ms = throttle_time_ms
        self.error_code = error_code


REQUEST = HeartbeatRequest
RESPONSE = HeartbeatResponse
