"""LeaveGroup, versions 0 to 5.

Written by scripts/generate_messages.py from kio 0.6.5, not by hand.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from foldlog.wire.schema import Field, Message, Request, Response


class MemberIdentity(Message):
    """In versions 3 to 5."""

    __slots__ = (
        "member_id",
        "group_instance_id",
        "reason",
    )
    SCHEMA: ClassVar[tuple[Field, ...]] = (
        Field("member_id", "string", 3, 5),
        Field("group_instance_id", "string", 3, 5, is_nullable=True),
        Field("reason", "string", 5, 5, is_nullable=True),
    )

    def __init__(self, *, member_id: str = "", group_instance_id: str | None = None, reason: str | None = None) -> None:
        self.member_id = member_id
        self.group_instance_id = group_instance_id
        self.reason = reason


class LeaveGroupRequest(Request):
    """In versions 0 to 5."""

    __slots__ = (
        "group_id",
        "member_id",
        "members",
    )
    API_KEY: ClassVar[int] = 13
    VERSIONS: ClassVar[tuple[int, int]] = (0, 5)
    FLEXIBLE_FROM: ClassVar[int | None] = 4
    SCHEMA: ClassVar[tuple[Field, ...]] = (
        Field("group_id", "string", 0, 5),
        Field("member_id", "string", 0, 2),
        Field("members", "struct", 3, 5, item=MemberIdentity, is_array=True),
    )

    def __init__(self, *, group_id: str = "", member_id: str = "", members: Sequence[MemberIdentity] = ()) -> None:
        self.group_id = group_id
        self.member_id = member_id
        self.members = members


class MemberResponse(Message):
    """In versions 3 to 5."""

    __slots__ = (
        "member_id",
        "group_instance_id",
        "error_code",
    )
    SCHEMA: ClassVar[tuple[Field, ...]] = (
        Field("member_id", "string", 3, 5),
        Field("group_instance_id", "string", 3, 5, is_nullable=True),
        Field("error_code", "int16", 3, 5),
    )

    def __init__(self, *, member_id: str = "", group_instance_id: str | None = "", error_code: int = 0) -> None:
        self.member_id = member_id
        self.group_instance_id = group_instance_id
        self.error_code = error_code


class LeaveGroupResponse(Response):
    """In versions 0 to 5."""

    __slots__ = (
        "throttle_time_ms",
        "error_code",
        "members",
    )
    API_KEY: ClassVar[int] = 13
    VERSIONS: ClassVar[tuple[int, int]] = (0, 5)
    FLEXIBLE_FROM: ClassVar[int | None] = 4
    SCHEMA: ClassVar[tuple[Field, ...]] = (
        Field("throttle_time_ms", "int32", 1, 5),
        Field("error_code", "int16", 0, 5),
        Field("members", "struct", 3, 5, item=MemberResponse, is_array=True),
    )

    def __init__(
        self, *, throttle_time_ms: int = 0, error_code: int = 0, members: Sequence[MemberResponse] = ()
    ) -> None:
        self.throttle_time_ms = throttle_time_ms
        self.error_code = error_code
        self.members = members


REQUEST = LeaveGroupRequest
RESPONSE = LeaveGroupResponse
