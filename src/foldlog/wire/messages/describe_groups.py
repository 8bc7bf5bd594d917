"""DescribeGroups, versions 0 to 6.

Written by scripts/generate_messages.py from kio 0.6.5, not by hand.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from foldlog.wire.schema import Field, Message, Request, Response


class DescribeGroupsRequest(Request):
    """In versions 0 to 6."""

    __slots__ = (
        "groups",
        "include_authorized_operations",
    )
    API_KEY: ClassVar[int] = 15
    VERSIONS: ClassVar[tuple[int, int]] = (0, 6)
    FLEXIBLE_FROM: ClassVar[int | None] = 5
    SCHEMA: ClassVar[tuple[Field, ...]] = (
        Field("groups", "string", 0, 6, is_array=True),
        Field("include_authorized_operations", "bool", 3, 6),
    )

    def __init__(self, *, groups: Sequence[str] = (), include_authorized_operations: bool = False) -> None:
        self.groups = groups
        self.include_authorized_operations = include_authorized_operations


class DescribedGroupMember(Message):
    """In versions 0 to 6."""

    __slots__ = (
        "member_id",
        "group_instance_id",
        "client_id",
        "client_host",
        "member_metadata",
        "member_assignment",
    )
    SCHEMA: ClassVar[tuple[Field, ...]] = (
        Field("member_id", "string", 0, 6),
        Field("group_instance_id", "string", 4, 6, is_nullable=True),
        Field("client_id", "string", 0, 6),
        Field("client_host", "string", 0, 6),
        Field("member_metadata", "bytes", 0, 6),
        Field("member_assignment", "bytes", 0, 6),
    )

    def __init__(
        self,
        *,
        member_id: str = "",
        group_instance_id: str | None = None,
        client_id: str = "",
        client_host: str = "",
        member_metadata: bytes = b"",
        member_assignment: bytes = b"",
    ) -> None:
        self.member_id = member_id
        self.group_instance_id = group_instance_id
        self.client_id = client_id
        self.client_host = client_host
        self.member_metadata = member_metadata
        self.member_assignment = member_assignment


class DescribedGroup(Message):
    """In versions 0 to 6."""

    __slots__ = (
        "error_code",
        "error_message",
        "group_id",
        "group_state",
        "protocol_type",
        "protocol_data",
        "members",
        "authorized_operations",
    )
    SCHEMA: ClassVar[tuple[Field, ...]] = (
        Field("error_code", "int16", 0, 6),
        Field("error_message", "string", 6, 6, is_nullable=True),
        Field("group_id", "string", 0, 6),
        Field("group_state", "string", 0, 6),
        Field("protocol_type", "string", 0, 6),
        Field("protocol_data", "string", 0, 6),
        Field("members", "struct", 0, 6, item=DescribedGroupMember, is_array=True),
        Field("authorized_operations", "int32", 3, 6),
    )

    def __init__(
        self,
        *,
        error_code: int = 0,
        error_message: str | None = None,
        group_id: str = "",
        group_state: str = "",
        protocol_type: str = "",
        protocol_data: str = "",
        members: Sequence[DescribedGroupMember] = (),
        authorized_operations: int = -2147483648,
    ) -> None:
        self.error_code = error_code
        self.error_message = error_message
        self.group_id = group_id
        self.group_state = group_state
        self.protocol_type = protocol_type
        self.protocol_data = protocol_data
        self.members = members
        self.authorized_operations = authorized_operations


class DescribeGroupsResponse(Response):
    """In versions 0 to 6."""

    __slots__ = (
        "throttle_time_ms",
        "groups",
    )
    API_KEY: ClassVar[int] = 15
    VERSIONS: ClassVar[tuple[int, int]] = (0, 6)
    FLEXIBLE_FROM: ClassVar[int | None] = 5
    SCHEMA: ClassVar[tuple[Field, ...]] = (
        Field("throttle_time_ms", "int32", 1, 6),
        Field("groups", "struct", 0, 6, item=DescribedGroup, is_array=True),
    )

    def __init__(self, *, throttle_time_ms: int = 0, groups: Sequence[DescribedGroup] = ()) -> None:
        self.throttle_time_ms = throttle_time_ms
        self.groups = groups


REQUEST = DescribeGroupsRequest
RESPONSE = DescribeGroupsResponse
