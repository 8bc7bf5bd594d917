"""DescribeTopicPartitions, versions 0 to 0.

Written by scripts/generate_messages.py from kio 0.6.5, not by hand.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from foldlog.wire.schema import ZERO_UUID, Field, Message, Request, Response


class TopicRequest(Message):
    """In version 0."""

    __slots__ = ("name",)
    SCHEMA: ClassVar[tuple[Field, ...]] = (Field("name", "string", 0, 0),)

    def __init__(self, *, name: str = "") -> None:
        self.name = name


class Cursor(Message):
    """In version 0."""

    __slots__ = (
        "topic_name",
        "partition_index",
    )
    SCHEMA: ClassVar[tuple[Field, ...]] = (
        Field("topic_name", "string", 0, 0),
        Field("partition_index", "int32", 0, 0),
    )

    def __init__(self, *, topic_name: str = "", partition_index: int = 0) -> None:
        self.topic_name = topic_name
        self.partition_index = partition_index


class DescribeTopicPartitionsRequest(Request):
    """In version 0."""

    __slots__ = (
        "topics",
        "response_partition_limit",
        "cursor",
    )
    API_KEY: ClassVar[int] = 75
    VERSIONS: ClassVar[tuple[int, int]] = (0, 0)
    FLEXIBLE_FROM: ClassVar[int | None] = 0
    SCHEMA: ClassVar[tuple[Field, ...]] = (
        Field("topics", "struct", 0, 0, item=TopicRequest, is_array=True),
        Field("response_partition_limit", "int32", 0, 0),
        Field("cursor", "struct", 0, 0, item=Cursor, is_nullable=True),
    )

    def __init__(
        self, *, topics: Sequence[TopicRequest] = (), response_partition_limit: int = 2000, cursor: Cursor | None = None
    ) -> None:
        self.topics = topics
        self.response_partition_limit = response_partition_limit
        self.cursor = cursor


class DescribeTopicPartitionsResponsePartition(Message):
    """In version 0."""

    __slots__ = (
        "error_code",
        "partition_index",
        "leader_id",
        "leader_epoch",
        "replica_nodes",
        "isr_nodes",
        "eligible_leader_replicas",
        "last_known_elr",
        "offline_replicas",
    )
    SCHEMA: ClassVar[tuple[Field, ...]] = (
        Field("error_code", "int16", 0, 0),
        Field("partition_index", "int32", 0, 0),
        Field("leader_id", "int32", 0, 0),
        Field("leader_epoch", "int32", 0, 0),
        Field("replica_nodes", "int32", 0, 0, is_array=True),
        Field("isr_nodes", "int32", 0, 0, is_array=True),
        Field("eligible_leader_replicas", "int32", 0, 0, is_array=True, is_nullable=True),
        Field("last_known_elr", "int32", 0, 0, is_array=True, is_nullable=True),
        Field("offline_replicas", "int32", 0, 0, is_array=True),
    )

    def __init__(
        self,
        *,
        error_code: int = 0,
        partition_index: int = 0,
        leader_id: int = 0,
        leader_epoch: int = -1,
        replica_nodes: Sequence[int] = (),
        isr_nodes: Sequence[int] = (),
        eligible_leader_replicas: Sequence[int] | None = None,
        last_known_elr: Sequence[int] | None = None,
        offline_replicas: Sequence[int] = (),
    ) -> None:
        self.error_code = error_code
        self.partition_index = partition_index
        self.leader_id = leader_id
        self.leader_epoch = leader_epoch
        self.replica_nodes = replica_nodes
        self.isr_nodes = isr_nodes
        self.eligible_leader_replicas = eligible_leader_replicas
        self.last_known_elr = last_known_elr
        self.offline_replicas = offline_replicas


class DescribeTopicPartitionsResponseTopic(Message):
    """In version 0."""

    __slots__ = (
        "error_code",
        "name",
        "topic_id",
        "is_internal",
        "partitions",
        "topic_authorized_operations",
    )
    SCHEMA: ClassVar[tuple[Field, ...]] = (
        Field("error_code", "int16", 0, 0),
        Field("name", "string", 0, 0, is_nullable=True),
        Field("topic_id", "uuid", 0, 0),
        Field("is_internal", "bool", 0, 0),
        Field("partitions", "struct", 0, 0, item=DescribeTopicPartitionsResponsePartition, is_array=True),
        Field("topic_authorized_operations", "int32", 0, 0),
    )

    def __init__(
        self,
        *,
        error_code: int = 0,
        name: str | None = "",
        topic_id: bytes = ZERO_UUID,
        is_internal: bool = False,
        partitions: Sequence[DescribeTopicPartitionsResponsePartition] = (),
        topic_authorized_operations: int = -2147483648,
    ) -> None:
        self.error_code = error_code
        self.name = name
        self.topic_id = topic_id
        self.is_internal = is_internal
        self.partitions = partitions
        self.topic_authorized_operations = topic_authorized_operations


class DescribeTopicPartitionsResponse(Response):
    """In version 0."""

    __slots__ = (
        "throttle_time_ms",
        "topics",
        "next_cursor",
    )
    API_KEY: ClassVar[int] = 75
    VERSIONS: ClassVar[tuple[int, int]] = (0, 0)
    FLEXIBLE_FROM: ClassVar[int | None] = 0
    SCHEMA: ClassVar[tuple[Field, ...]] = (
        Field("throttle_time_ms", "int32", 0, 0),
        Field("topics", "struct", 0, 0, item=DescribeTopicPartitionsResponseTopic, is_array=True),
        Field("next_cursor", "struct", 0, 0, item=Cursor, is_nullable=True),
    )

    def __init__(
        self,
        *,
        throttle_time_ms: int = 0,
        topics: Sequence[DescribeTopicPartitionsResponseTopic] = (),
        next_cursor: Cursor | None = None,
    ) -> None:
        self.throttle_time_ms = throttle_time_ms
        self.topics = topics
        self.next_cursor = next_cursor


REQUEST = DescribeTopicPartitionsRequest
RESPONSE = DescribeTopicPartitionsResponse
