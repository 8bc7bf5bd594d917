"""DeleteGroups, versions 0 to 2.

Written by scripts/generate_messages.py from kio 0.6.5, not by hand.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from foldlog.wire.schema import Field, Message, Request, Response


class DeleteGroupsRequest(Request):
    """In versions 0 to 2."""

    __slots__ = ("groups_names",)
    API_KEY: ClassVar[int] = 42
    VERSIONS: ClassVar[tuple[int, int]] = (0, 2)
    FLEXIBLE_FROM: ClassVar[int | None] = 2
    SCHEMA: ClassVar[tuple[Field, ...]] = (Field("groups_names", "string", 0, 2, is_array=True),)

    def __init__(self, *, groups_names: Sequence[str] = ()) -> None:
        self.groups_names = groups_names


class DeletableGroupResult(Message):
    """In versions 0 to 2."""

    __slots__ = (
        "group_id",
        "error_code",
    )
    SCHEMA: ClassVar[tuple[Field, ...]] = (
        Field("group_id", "string", 0, 2),
        Field("error_code", "int16", 0, 2),
    )

    def __init__(self, *, group_id: str = "", error_code: int = 0) -> None:
        self.group_id = group_id
        self.error_code = error_code


class DeleteGroupsResponse(Response):
    """In versions 0 to 2."""

    __slots__ = (
        "throttle_time_ms",
        "results",
    )
    API_KEY: ClassVar[int] = 42
    VERSIONS: ClassVar[tuple[int, int]] = (0, 2)
    FLEXIBLE_FROM: ClassVar[int | None] = 2
    SCHEMA: ClassVar[tuple[Field, ...]] = (
        Field("throttle_time_ms", "int32", 0, 2),
        Field("results", "struct", 0, 2, item=DeletableGroupResult, is_array=True),
    )

    def __init__(self, *, throttle_time_ms: int = 0, results: Sequence[DeletableGroupResult] = ()) -> None:
        self.throttle_time_ms = throttle_time_ms
        self.results = results


REQUEST = DeleteGroupsRequest
RESPONSE = DeleteGroupsResponse
