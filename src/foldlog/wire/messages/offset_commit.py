"""OffsetCommit, versions 2 to 10.

Written by scripts/generate_messages.py from kio 0.6.5, not by hand.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from foldlog.wire.schema import ZERO_UUID, Field, Message, Request, Response


class OffsetCommitRequestPartition(Message):
    """In versions 2 to 10."""

    __slots__ = (
        "partition_index",
        "committed_offset",
        "committed_leader_epoch",
        "committed_metadata",
    )
    SCHEMA: ClassVar[tuple[Field, ...]] = (
        Field("partition_index", "int32", 2, 10),
        Field("committed_offset", "int64", 2, 10),
        Field("committed_leader_epoch", "int32", 6, 10),
        Field("committed_metadata", "string", 2, 10, is_nullable=True),
    )

    def __init__(
        self,
        *,
        partition_index: int = 0,
        committed_offset: int = 0,
        committed_leader_epoch: int = -1,
        committed_metadata: str | None = "",
    ) -> None:
        self.partition_index = partition_index
        self.committed_offset = committed_offset
        self.committed_leader_epoch = committed_leader_epoch
        self.committed_metadata = committed_metadata


class OffsetCommitRequestTopic(Message):
    """In versions 2 to 10."""

    __slots__ = (
        "name",
        "topic_id",
        "partitions",
    )
    SCHEMA: ClassVar[tuple[Field, ...]] = (
        Field("name", "string", 2, 9),
        Field("topic_id", "uuid", 10, 10),
        Field("partitions", "struct", 2, 10, item=OffsetCommitRequestPartition, is_array=True),
    )

    def __init__(
        self, *, name: str = "", topic_id: bytes = ZERO_UUID, partitions: Sequence[OffsetCommitRequestPartition] = ()
    ) -> None:
        self.name = name
        self.topic_id = topic_id
        self.partitions = partitions


class OffsetCommitRequest(Request):
    """In versions 2 to 10."""

    __slots__ = (
        "group_id",
        "generation_id_or_member_epoch",
        "member_id",
        "retention_time_ms",
        "group_instance_id",
        "topics",
    )
    API_KEY: ClassVar[int] = 8
    VERSIONS: ClassVar[tuple[int, int]] = (2, 10)
    FLEXIBLE_FROM: ClassVar[int | None] = 8
    SCHEMA: ClassVar[tuple[Field, ...]] = (
        Field("group_id", "string", 2, 10),
        Field("generation_id_or_member_epoch", "int32", 2, 10),
        Field("member_id", "string", 2, 10),
        Field("retention_time_ms", "int64", 2, 4),
        Field("group_instance_id", "string", 7, 10, is_nullable=True),
        Field("topics", "struct", 2, 10, item=OffsetCommitRequestTopic, is_array=True),
    )

    def __init__(
        self,
        *,
        group_id: str = "",
        generation_id_or_member_epoch: int = -1,
        member_id: str = "",
        retention_time_ms: int = -1,
        group_instance_id: str | None = None,
        topics: Sequence[OffsetCommitRequestTopic] = (),
    ) -> None:
        self.group_id = group_id
        self.generation_id_or_member_epoch = generation_id_or_member_epoch
        self.member_id = member_id
        self.retention_time_ms = retention_time_ms
        self.group_instance_id = group_instance_id
        self.topics = topics


class OffsetCommitResponsePartition(Message):
    """In versions 2 to 10."""

    __slots__ = (
        "partition_index",
        "error_code",
    )
    SCHEMA: ClassVar[tuple[Field, ...]] = (
        Field("partition_index", "int32", 2, 10),
        Field("error_code", "int16", 2, 10),
    )

    def __init__(self, *, partition_index: int = 0, error_code: int = 0) -> None:
        self.partition_index = partition_index
        self.error_code = error_code


class OffsetCommitResponseTopic(Message):
    """In versions 2 to 10."""

    __slots__ = (
        "name",
        "topic_id",
        "partitions",
    )
    SCHEMA: ClassVar[tuple[Field, ...]] = (
        Field("name", "string", 2, 9),
        Field("topic_id", "uuid", 10, 10),
        Field("partitions", "struct", 2, 10, item=OffsetCommitResponsePartition, is_array=True),
    )

    def __init__(
        self, *, name: str = "", topic_id: bytes = ZERO_UUID, partitions: Sequence[OffsetCommitResponsePartition] = ()
    ) -> None:
        self.name = name
        self.topic_id = topic_id
        self.partitions = partitions


class OffsetCommitResponse(Response):
    """In versions 2 to 10."""

    __slots__ = (
        "throttle_time_ms",
        "topics",
    )
    API_KEY: ClassVar[int] = 8
    VERSIONS: ClassVar[tuple[int, int]] = (2, 10)
    FLEXIBLE_FROM: ClassVar[int | None] = 8
    SCHEMA: ClassVar[tuple[Field, ...]] = (
        Field("throttle_time_ms", "int32", 3, 10),
        Field("topics", "struct", 2, 10, item=OffsetCommitResponseTopic, is_array=True),
    )

    def __init__(self, *, throttle_time_ms: int = 0, topics: Sequence[OffsetCommitResponseTopic] = ()) -> None:
        self.throttle_time_ms = throttle_time_ms
        self.topics = topics


REQUEST = OffsetCommitRequest
RESPONSE = OffsetCommitResponse
