"""ListGroups, versions 0 to 5.

Written by scripts/generate_messages.py from kio 0.6.5, not by hand.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from foldlog.wire.schema import Field, Message, Request, Response


class ListGroupsRequest(Request):
    """In versions 0 to 5."""

    __slots__ = (
        "states_filter",
        "types_filter",
    )
    API_KEY: ClassVar[int] = 16
    VERSIONS: ClassVar[tuple[int, int]] = (0, 5)
    FLEXIBLE_FROM: ClassVar[int | None] = 3
    SCHEMA: ClassVar[tuple[Field, ...]] = (
        Field("states_filter", "string", 4, 5, is_array=True),
        Field("types_filter", "string", 5, 5, is_array=True),
    )

    def __init__(self, *, states_filter: Sequence[str] = (), types_filter: Sequence[str] = ()) -> None:
        self.states_filter = states_filter
        self.types_filter = types_filter


class ListedGroup(Message):
    """In versions 0 to 5."""

    __slots__ = (
        "group_id",
        "protocol_type",
        "group_state",
        "group_type",
    )
    SCHEMA: ClassVar[tuple[Field, ...]] = (
        Field("group_id", "string", 0, 5),
        Field("protocol_type", "string", 0, 5),
        Field("group_state", "string", 4, 5),
        Field("group_type", "string", 5, 5),
    )

    def __init__(
        self, *, group_id: str = "", protocol_type: str = "", group_state: str = "", group_type: str = ""
    ) -> None:
        self.group_id = group_id
        self.protocol_type = protocol_type
        self.group_state = group_state
        self.group_type = group_type


class ListGroupsResponse(Response):
    """In versions 0 to 5."""

    __slots__ = (
        "throttle_time_ms",
        "error_code",
        "groups",
    )
    API_KEY: ClassVar[int] = 16
    VERSIONS: ClassVar[tuple[int, int]] = (0, 5)
    FLEXIBLE_FROM: ClassVar[int | None] = 3
    SCHEMA: ClassVar[tuple[Field, ...]] = (
        Field("throttle_time_ms", "int32", 1, 5),
        Field("error_code", "int16", 0, 5),
        Field("groups", "struct", 0, 5, item=ListedGroup, is_array=True),
    )

    def __init__(self, *, throttle_time_ms: int = 0, error_code: int = 0, groups: Sequence[ListedGroup] = ()) -> None:
        self.throttle_time_ms = throttle_time_ms
        self.error_code = error_code
        self.groups = groups


REQUEST = ListGroupsRequest
RESPONSE = ListGroupsResponse
