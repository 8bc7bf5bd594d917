"""ListOffsets, versions 1 to 11.

Written by scripts/generate_messages.py from kio 0.6.5, not by hand.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from foldlog.wire.schema import Field, Message, Request, Response


class ListOffsetsPartition(Message):
    """In versions 1 to 11."""

    __slots__ = (
        "partition_index",
        "current_leader_epoch",
        "timestamp",
    )
    SCHEMA: ClassVar[tuple[Field, ...]] = (
        Field("partition_index", "int32", 1, 11),
        Field("current_leader_epoch", "int32", 4, 11),
        Field("timestamp", "int64", 1, 11),
    )

    def __init__(self, *, partition_index: int = 0, current_leader_epoch: int = -1, timestamp: int = 0) -> None:
        self.partition_index = partition_index
        self.current_leader_epoch = current_leader_epoch
        self.timestamp = timestamp


class ListOffsetsTopic(Message):
    """In versions 1 to 11."""

    __slots__ = (
        "name",
        "partitions",
    )
    SCHEMA: ClassVar[tuple[Field, ...]] = (
        Field("name", "string", 1, 11),
        Field("partitions", "struct", 1, 11, item=ListOffsetsPartition, is_array=True),
    )

    def __init__(self, *, name: str = "", partitions: Sequence[ListOffsetsPartition] = ()) -> None:
        self.name = name
        self.partitions = partitions


class ListOffsetsRequest(Request):
    """In versions 1 to 11."""

    __slots__ = (
        "replica_id",
        "isolation_level",
        "topics",
        "timeout_ms",
    )
    API_KEY: ClassVar[int] = 2
    VERSIONS: ClassVar[tuple[int, int]] = (1, 11)
    FLEXIBLE_FROM: ClassVar[int | None] = 6
    SCHEMA: ClassVar[tuple[Field, ...]] = (
        Field("replica_id", "int32", 1, 11),
        Field("isolation_level", "int8", 2, 11),
        Field("topics", "struct", 1, 11, item=ListOffsetsTopic, is_array=True),
        Field("timeout_ms", "int32", 10, 11),
    )

    def __init__(
        self,
        *,
        replica_id: int = 0,
        isolation_level: int = 0,
        topics: Sequence[ListOffsetsTopic] = (),
        timeout_ms: int = 0,
    ) -> None:
        self.replica_id = replica_id
        self.isolation_level = isolation_level
        self.topics = topics
        self.timeout_ms = timeout_ms


class ListOffsetsPartitionResponse(Message):
    """In versions 1 to 11."""

    __slots__ = (
        "partition_index",
        "error_code",
        "timestamp",
        "offset",
        "leader_epoch",
    )
    SCHEMA: ClassVar[tuple[Field, ...]] = (
        Field("partition_index", "int32", 1, 11),
        Field("error_code", "int16", 1, 11),
        Field("timestamp", "int64", 1, 11),
        Field("offset", "int64", 1, 11),
        Field("leader_epoch", "int32", 4, 11),
    )

    def __init__(
        self,
        *,
        partition_index: int = 0,
        error_code: int = 0,
        timestamp: int = -1,
        offset: int = -1,
        leader_epoch: int = -1,
    ) -> None:
        self.partition_index = partition_index
        self.error_code = error_code
        self.timestamp = timestamp
        self.offset = offset
        self.leader_epoch = leader_epoch


class ListOffsetsTopicResponse(Message):
    """In versions 1 to 11."""

    __slots__ = (
        "name",
        "partitions",
    )
    SCHEMA: ClassVar[tuple[Field, ...]] = (
        Field("name", "string", 1, 11),
        Field("partitions", "struct", 1, 11, item=ListOffsetsPartitionResponse, is_array=True),
    )

    def __init__(self, *, name: str = "", partitions: Sequence[ListOffsetsPartitionResponse] = ()) -> None:
        self.name = name
        self.partitions = partitions


class ListOffsetsResponse(Response):
    """In versions 1 to 11."""

    __slots__ = (
        "throttle_time_ms",
        "topics",
    )
    API_KEY: ClassVar[int] = 2
    VERSIONS: ClassVar[tuple[int, int]] = (1, 11)
    FLEXIBLE_FROM: ClassVar[int | None] = 6
    SCHEMA: ClassVar[tuple[Field, ...]] = (
        Field("throttle_time_ms", "int32", 2, 11),
        Field("topics", "struct", 1, 11, item=ListOffsetsTopicResponse, is_array=True),
    )

    def __init__(self, *, throttle_time_ms: int = 0, topics: Sequence[ListOffsetsTopicResponse] = ()) -> None:
        self.throttle_time_ms = throttle_time_ms
        self.topics = topics


REQUEST = ListOffsetsRequest
RESPONSE = ListOffsetsResponse
