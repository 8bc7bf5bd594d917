"""OffsetDelete, versions 0 to 0.

Written by scripts/generate_messages.py from kio 0.6.5, not by hand.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from foldlog.wire.schema import Field, Message, Request, Response


class OffsetDeleteRequestPartition(Message):
    """In version 0."""

    __slots__ = ("partition_index",)
    SCHEMA: ClassVar[tuple[Field, ...]] = (Field("partition_index", "int32", 0, 0),)

    def __init__(self, *, partition_index: int = 0) -> None:
        self.partition_index = partition_index


class OffsetDeleteRequestTopic(Message):
    """In version 0."""

    __slots__ = (
        "name",
        "partitions",
    )
    SCHEMA: ClassVar[tuple[Field, ...]] = (
        Field("name", "string", 0, 0),
        Field("partitions", "struct", 0, 0, item=OffsetDeleteRequestPartition, is_array=True),
    )

    def __init__(self, *, name: str = "", partitions: Sequence[OffsetDeleteRequestPartition] = ()) -> None:
        self.name = name
        self.partitions = partitions


class OffsetDeleteRequest(Request):
    """In version 0."""

    __slots__ = (
        "group_id",
        "topics",
    )
    API_KEY: ClassVar[int] = 47
    VERSIONS: ClassVar[tuple[int, int]] = (0, 0)
    FLEXIBLE_FROM: ClassVar[int | None] = None
    SCHEMA: ClassVar[tuple[Field, ...]] = (
        Field("group_id", "string", 0, 0),
        Field("topics", "struct", 0, 0, item=OffsetDeleteRequestTopic, is_array=True),
    )

    def __init__(self, *, group_id: str = "", topics: Sequence[OffsetDeleteRequestTopic] = ()) -> None:
        self.group_id = group_id
        self.topics = topics


class OffsetDeleteResponsePartition(Message):
    """In version 0."""

    __slots__ = (
        "partition_index",
        "error_code",
    )
    SCHEMA: ClassVar[tuple[Field, ...]] = (
        Field("partition_index", "int32", 0, 0),
        Field("error_code", "int16", 0, 0),
    )

    def __init__(self, *, partition_index: int = 0, error_code: int = 0) -> None:
        self.partition_index = partition_index
        self.error_code = error_code


class OffsetDeleteResponseTopic(Message):
    """In version 0."""

    __slots__ = (
        "name",
        "partitions",
    )
    SCHEMA: ClassVar[tuple[Field, ...]] = (
        Field("name", "string", 0, 0),
        Field("partitions", "struct", 0, 0, item=OffsetDeleteResponsePartition, is_array=True),
    )

    def __init__(self, *, name: str = "", partitions: Sequence[OffsetDeleteResponsePartition] = ()) -> None:
        self.name = name
        self.partitions = partitions


class OffsetDeleteResponse(Response):
    """In version 0."""

    __slots__ = (
        "error_code",
        "throttle_time_ms",
        "topics",
    )
    API_KEY: ClassVar[int] = 47
    VERSIONS: ClassVar[tuple[int, int]] = (0, 0)
    FLEXIBLE_FROM: ClassVar[int | None] = None
    SCHEMA: ClassVar[tuple[Field, ...]] = (
        Field("error_code", "int16", 0, 0),
        Field("throttle_time_ms", "int32", 0, 0),
        Field("topics", "struct", 0, 0, item=OffsetDeleteResponseTopic, is_array=True),
    )

    def __init__(
        self, *, error_code: int = 0, throttle_time_ms: int = 0, topics: Sequence[OffsetDeleteResponseTopic] = ()
    ) -> None:
        self.error_code = error_code
        self.throttle_time_ms = throttle_time_ms
        self.topics = topics


REQUEST = OffsetDeleteRequest
RESPONSE = OffsetDeleteResponse
