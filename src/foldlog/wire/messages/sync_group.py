"""SyncGroup, versions 0 to 5.

Written by scripts/generate_messages.py from kio 0.6.5, not by hand.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from foldlog.wire.schema import Field, Message, Request, Response


class SyncGroupRequestAssignment(Message):
    """In versions 0 to 5."""

    __slots__ = (
        "member_id",
        "assignment",
    )
    SCHEMA: ClassVar[tuple[Field, ...]] = (
        Field("member_id", "string", 0, 5),
        Field("assignment", "bytes", 0, 5),
    )

    def __init__(self, *, member_id: str = "", assignment: bytes = b"") -> None:
        self.member_id = member_id
        self.assignment = assignment


class SyncGroupRequest(Request):
    """In versions 0 to 5."""

    __slots__ = (
        "group_id",
        "generation_id",
        "member_id",
        "group_instance_id",
        "protocol_type",
        "protocol_name",
        "assignments",
    )
    API_KEY: ClassVar[int] = 14
    VERSIONS: ClassVar[tuple[int, int]] = (0, 5)
    FLEXIBLE_FROM: ClassVar[int | None] = 4
    SCHEMA: ClassVar[tuple[Field, ...]] = (
        Field("group_id", "string", 0, 5),
        Field("generation_id", "int32", 0, 5),
        Field("member_id", "string", 0, 5),
        Field("group_instance_id", "string", 3, 5, is_nullable=True),
        Field("protocol_type", "string", 5, 5, is_nullable=True),
        Field("protocol_name", "string", 5, 5, is_nullable=True),
        Field("assignments", "struct", 0, 5, item=SyncGroupRequestAssignment, is_array=True),
    )

    def __init__(
        self,
        *,
        group_id: str = "",
        generation_id: int = 0,
        member_id: str = "",
        group_instance_id: str | None = None,
        protocol_type: str | None = None,
        protocol_name: str | None = None,
        assignments: Sequence[SyncGroupRequestAssignment] = (),
    ) -> None:
        self.group_id = group_id
        self.generation_id = generation_id
        self.member_id = member_id
        self.group_instance_id = group_instance_id
        self.protocol_type = protocol_type
        self.protocol_name = protocol_name
        self.assignments = assignments


class SyncGroupResponse(Response):
    """In versions 0 to 5."""

    __slots__ = (
        "throttle_time_ms",
        "error_code",
        "protocol_type",
        "protocol_name",
        "assignment",
    )
    API_KEY: ClassVar[int] = 14
    VERSIONS: ClassVar[tuple[int, int]] = (0, 5)
    FLEXIBLE_FROM: ClassVar[int | None] = 4
    SCHEMA: ClassVar[tuple[Field, ...]] = (
        Field("throttle_time_ms", "int32", 1, 5),
        Field("error_code", "int16", 0, 5),
        Field("protocol_type", "string", 5, 5, is_nullable=True),
        Field("protocol_name", "string", 5, 5, is_nullable=True),
        Field("assignment", "bytes", 0, 5),
    )

    def __init__(
        self,
        *,
        throttle_time_ms: int = 0,
        error_code: int = 0,
        protocol_type: str | None = None,
        protocol_name: str | None = None,
        assignment: bytes = b"",
    ) -> None:
        self.throttle_time_ms = throttle_time_ms
        self.error_code = error_code
        self.protocol_type = protocol_type
        self.protocol_name = protocol_name
        self.assignment = assignment


REQUEST = SyncGroupRequest
RESPONSE = SyncGroupResponse
