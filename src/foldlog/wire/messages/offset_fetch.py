"""OffsetFetch, versions 1 to 10.

Written by scripts/generate_messages.py from kio 0.6.5, not by hand.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from foldlog.wire.schema import ZERO_UUID, Field, Message, Request, Response


class OffsetFetchRequestTopic(Message):
    """In versions 1 to 7."""

    __slots__ = (
        "name",
        "partition_indexes",
    )
    SCHEMA: ClassVar[tuple[Field, ...]] = (
        Field("name", "string", 1, 7),
        Field("partition_indexes", "int32", 1, 7, is_array=True),
    )

    def __init__(self, *, name: str = "", partition_indexes: Sequence[int] = ()) -> None:
        self.name = name
        self.partition_indexes = partition_indexes


class OffsetFetchRequestTopics(Message):
    """In versions 8 to 10."""

    __slots__ = (
        "name",
        "topic_id",
        "partition_indexes",
    )
    SCHEMA: ClassVar[tuple[Field, ...]] = (
        Field("name", "string", 8, 9),
        Field("topic_id", "uuid", 10, 10),
        Field("partition_indexes", "int32", 8, 10, is_array=True),
    )

    def __init__(self, *, name: str = "", topic_id: bytes = ZERO_UUID, partition_indexes: Sequence[int] = ()) -> None:
        self.name = name
        self.topic_id = topic_id
        self.partition_indexes = partition_indexes


class OffsetFetchRequestGroup(Message):
    """In versions 8 to 10."""

    __slots__ = (
        "group_id",
        "member_id",
        "member_epoch",
        "topics",
    )
    SCHEMA: ClassVar[tuple[Field, ...]] = (
        Field("group_id", "string", 8, 10),
        Field("member_id", "string", 9, 10, is_nullable=True),
        Field("member_epoch", "int32", 9, 10),
        Field("topics", "struct", 8, 10, item=OffsetFetchRequestTopics, is_array=True, is_nullable=True),
    )

    def __init__(
        self,
        *,
        group_id: str = "",
        member_id: str | None = None,
        member_epoch: int = -1,
        topics: Sequence[OffsetFetchRequestTopics] | None = (),
    ) -> None:
        self.group_id = group_id
        self.member_id = member_id
        self.member_epoch = member_epoch
        self.topics = topics


class OffsetFetchRequest(Request):
    """In versions 1 to 10."""

    __slots__ = (
        "group_id",
        "topics",
        "groups",
        "require_stable",
    )
    API_KEY: ClassVar[int] = 9
    VERSIONS: ClassVar[tuple[int, int]] = (1, 10)
    FLEXIBLE_FROM: ClassVar[int | None] = 6
    SCHEMA: ClassVar[tuple[Field, ...]] = (
        Field("group_id", "string", 1, 7),
        Field("topics", "struct", 1, 1, item=OffsetFetchRequestTopic, is_array=True),
        Field("topics", "struct", 2, 7, item=OffsetFetchRequestTopic, is_array=True, is_nullable=True),
        Field("groups", "struct", 8, 10, item=OffsetFetchRequestGroup, is_array=True),
        Field("require_stable", "bool", 7, 10),
    )

    def __init__(
        self,
        *,
        group_id: str = "",
        topics: Sequence[OffsetFetchRequestTopic] | None = (),
        groups: Sequence[OffsetFetchRequestGroup] = (),
        require_stable: bool = False,
    ) -> None:
        self.group_id = group_id
        self.topics = topics
        self.groups = groups
        self.require_stable = require_stable


class OffsetFetchResponsePartition(Message):
    """In versions 1 to 7."""

    __slots__ = (
        "partition_index",
        "committed_offset",
        "committed_leader_epoch",
        "metadata",
        "error_code",
    )
    SCHEMA: ClassVar[tuple[Field, ...]] = (
        Field("partition_index", "int32", 1, 7),
        Field("committed_offset", "int64", 1, 7),
        Field("committed_leader_epoch", "int32", 5, 7),
        Field("metadata", "string", 1, 7, is_nullable=True),
        Field("error_code", "int16", 1, 7),
    )

    def __init__(
        self,
        *,
        partition_index: int = 0,
        committed_offset: int = 0,
        committed_leader_epoch: int = -1,
        metadata: str | None = "",
        error_code: int = 0,
    ) -> None:
        self.partition_index = partition_index
        self.committed_offset = committed_offset
        self.committed_leader_epoch = committed_leader_epoch
        self.metadata = metadata
        self.error_code = error_code


class OffsetFetchResponseTopic(Message):
    """In versions 1 to 7."""

    __slots__ = (
        "name",
        "partitions",
    )
    SCHEMA: ClassVar[tuple[Field, ...]] = (
        Field("name", "string", 1, 7),
        Field("partitions", "struct", 1, 7, item=OffsetFetchResponsePartition, is_array=True),
    )

    def __init__(self, *, name: str = "", partitions: Sequence[OffsetFetchResponsePartition] = ()) -> None:
        self.name = name
        self.partitions = partitions


class OffsetFetchResponsePartitions(Message):
    """In versions 8 to 10."""

    __slots__ = (
        "partition_index",
        "committed_offset",
        "committed_leader_epoch",
        "metadata",
        "error_code",
    )
    SCHEMA: ClassVar[tuple[Field, ...]] = (
        Field("partition_index", "int32", 8, 10),
        Field("committed_offset", "int64", 8, 10),
        Field("committed_leader_epoch", "int32", 8, 10),
        Field("metadata", "string", 8, 10, is_nullable=True),
        Field("error_code", "int16", 8, 10),
    )

    def __init__(
        self,
        *,
        partition_index: int = 0,
        committed_offset: int = 0,
        committed_leader_epoch: int = -1,
        metadata: str | None = "",
        error_code: int = 0,
    ) -> None:
        self.partition_index = partition_index
        self.committed_offset = committed_offset
        self.committed_leader_epoch = committed_leader_epoch
        self.metadata = metadata
        self.error_code = error_code


class OffsetFetchResponseTopics(Message):
    """In versions 8 to 10."""

    __slots__ = (
        "name",
        "topic_id",
        "partitions",
    )
    SCHEMA: ClassVar[tuple[Field, ...]] = (
        Field("name", "string", 8, 9),
        Field("topic_id", "uuid", 10, 10),
        Field("partitions", "struct", 8, 10, item=OffsetFetchResponsePartitions, is_array=True),
    )

    def __init__(
        self, *, name: str = "", topic_id: bytes = ZERO_UUID, partitions: Sequence[OffsetFetchResponsePartitions] = ()
    ) -> None:
        self.name = name
        self.topic_id = topic_id
        self.partitions = partitions


class OffsetFetchResponseGroup(Message):
    """In versions 8 to 10."""

    __slots__ = (
        "group_id",
        "topics",
        "error_code",
    )
    SCHEMA: ClassVar[tuple[Field, ...]] = (
        Field("group_id", "string", 8, 10),
        Field("topics", "struct", 8, 10, item=OffsetFetchResponseTopics, is_array=True),
        Field("error_code", "int16", 8, 10),
    )

    def __init__(
        self, *, group_id: str = "", topics: Sequence[OffsetFetchResponseTopics] = (), error_code: int = 0
    ) -> None:
        self.group_id = group_id
        self.topics = topics
        self.error_code = error_code


class OffsetFetchResponse(Response):
    """In versions 1 to 10."""

    __slots__ = (
        "throttle_time_ms",
        "topics",
        "error_code",
        "groups",
    )
    API_KEY: ClassVar[int] = 9
    VERSIONS: ClassVar[tuple[int, int]] = (1, 10)
    FLEXIBLE_FROM: ClassVar[int | None] = 6
    SCHEMA: ClassVar[tuple[Field, ...]] = (
        Field("throttle_time_ms", "int32", 3, 10),
        Field("topics", "struct", 1, 7, item=OffsetFetchResponseTopic, is_array=True),
        Field("error_code", "int16", 2, 7),
        Field("groups", "struct", 8, 10, item=OffsetFetchResponseGroup, is_array=True),
    )

    def __init__(
        self,
        *,
        throttle_time_ms: int = 0,
        topics: Sequence[OffsetFetchResponseTopic] = (),
        error_code: int = 0,
        groups: Sequence[OffsetFetchResponseGroup] = (),
    ) -> None:
        self.throttle_time_ms = throttle_time_ms
        self.topics = topics
        self.error_code = error_code
        self.groups = groups


REQUEST = OffsetFetchRequest
RESPONSE = OffsetFetchResponse
