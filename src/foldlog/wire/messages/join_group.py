"""JoinGroup, versions 0 to 9.

Written by scripts/generate_messages.py from kio 0.6.5, not by hand.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from foldlog.wire.schema import Field, Message, Request, Response


class JoinGroupRequestProtocol(Message):
    """In versions 0 to 9."""

    __slots__ = (
        "name",
        "metadata",
    )
    SCHEMA: ClassVar[tuple[Field, ...]] = (
        Field("name", "string", 0, 9),
        Field("metadata", "bytes", 0, 9),
    )

    def __init__(self, *, name: str = "", metadata: bytes = b"") -> None:
        self.name = name
        self.metadata = metadata


class JoinGroupRequest(Request):
    """In versions 0 to 9."""

    __slots__ = (
        "group_id",
        "session_timeout_ms",
        "rebalance_timeout_ms",
        "member_id",
        "group_instance_id",
        "protocol_type",
        "protocols",
        "reason",
    )
    API_KEY: ClassVar[int] = 11
    VERSIONS: ClassVar[tuple[int, int]] = (0, 9)
    FLEXIBLE_FROM: ClassVar[int | None] = 6
    SCHEMA: ClassVar[tuple[Field, ...]] = (
        Field("group_id", "string", 0, 9),
        Field("session_timeout_ms", "int32", 0, 9),
        Field("rebalance_timeout_ms", "int32", 1, 9),
        Field("member_id", "string", 0, 9),
        Field("group_instance_id", "string", 5, 9, is_nullable=True),
        Field("protocol_type", "string", 0, 9),
        Field("protocols", "struct", 0, 9, item=JoinGroupRequestProtocol, is_array=True),
        Field("reason", "string", 8, 9, is_nullable=True),
    )

    def __init__(
        self,
        *,
        group_id: str = "",
        session_timeout_ms: int = 0,
        rebalance_timeout_ms: int = -1,
        member_id: str = "",
        group_instance_id: str | None = None,
        protocol_type: str = "",
        protocols: Sequence[JoinGroupRequestProtocol] = (),
        reason: str | None = None,
    ) -> None:
        self.group_id = group_id
        self.session_timeout_ms = session_timeout_ms
        self.rebalance_timeout_ms = rebalance_timeout_ms
        self.member_id = member_id
        self.group_instance_id = group_instance_id
        self.protocol_type = protocol_type
        self.protocols = protocols
        self.reason = reason


class JoinGroupResponseMember(Message):
    """In versions 0 to 9."""

    __slots__ = (
        "member_id",
        "group_instance_id",
        "metadata",
    )
    SCHEMA: ClassVar[tuple[Field, ...]] = (
        Field("member_id", "string", 0, 9),
        Field("group_instance_id", "string", 5, 9, is_nullable=True),
        Field("metadata", "bytes", 0, 9),
    )

    def __init__(self, *, member_id: str = "", group_instance_id: str | None = None, metadata: bytes = b"") -> None:
        self.member_id = member_id
        self.group_instance_id = group_instance_id
        self.metadata = metadata


class JoinGroupResponse(Response):
    """In versions 0 to 9."""

    __slots__ = (
        "throttle_time_ms",
        "error_code",
        "generation_id",
        "protocol_type",
        "protocol_name",
        "leader",
        "skip_assignment",
        "member_id",
        "members",
    )
    API_KEY: ClassVar[int] = 11
    VERSIONS: ClassVar[tuple[int, int]] = (0, 9)
    FLEXIBLE_FROM: ClassVar[int | None] = 6
    SCHEMA: ClassVar[tuple[Field, ...]] = (
        Field("throttle_time_ms", "int32", 2, 9),
        Field("error_code", "int16", 0, 9),
        Field("generation_id", "int32", 0, 9),
        Field("protocol_type", "string", 7, 9, is_nullable=True),
        Field("protocol_name", "string", 0, 6),
        Field("protocol_name", "string", 7, 9, is_nullable=True),
        Field("leader", "string", 0, 9),
        Field("skip_assignment", "bool", 9, 9),
        Field("member_id", "string", 0, 9),
        Field("members", "struct", 0, 9, item=JoinGroupResponseMember, is_array=True),
    )

    def __init__(
        self,
        *,
        throttle_time_ms: int = 0,
        error_code: int = 0,
        generation_id: int = -1,
        protocol_type: str | None = None,
        protocol_name: str | None = "",
        leader: str = "",
        skip_assignment: bool = False,
        member_id: str = "",
        members: Sequence[JoinGroupResponseMember] = (),
    ) -> None:
        self.throttle_time_ms = throttle_time_ms
        self.error_code = error_code
        self.generation_id = generation_id
        self.protocol_type = protocol_type
        self.protocol_name = protocol_name
        self.leader = leader
        self.skip_assignment = skip_assignment
        self.member_id = member_id
        self.members = members


REQUEST = JoinGroupRequest
RESPONSE = JoinGroupResponse
