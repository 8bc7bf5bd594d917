"""Metadata, versions 0 to 13.

Written by scripts/generate_messages.py from kio 0.6.5, not by hand.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from foldlog.wire.schema import ZERO_UUID, Field, Message, Request, Response


class MetadataRequestTopic(Message):
    """In versions 0 to 13."""

    __slots__ = (
        "topic_id",
        "name",
    )
    SCHEMA: ClassVar[tuple[Field, ...]] = (
        Field("topic_id", "uuid", 10, 13),
        Field("name", "string", 0, 9),
        Field("name", "string", 10, 13, is_nullable=True),
    )

    def __init__(self, *, topic_id: bytes = ZERO_UUID, name: str | None = "") -> None:
        self.topic_id = topic_id
        self.name = name


class MetadataRequest(Request):
    """In versions 0 to 13."""

    __slots__ = (
        "topics",
        "allow_auto_topic_creation",
        "include_cluster_authorized_operations",
        "include_topic_authorized_operations",
    )
    API_KEY: ClassVar[int] = 3
    VERSIONS: ClassVar[tuple[int, int]] = (0, 13)
    FLEXIBLE_FROM: ClassVar[int | None] = 9
    SCHEMA: ClassVar[tuple[Field, ...]] = (
        Field("topics", "struct", 0, 0, item=MetadataRequestTopic, is_array=True),
        Field("topics", "struct", 1, 13, item=MetadataRequestTopic, is_array=True, is_nullable=True),
        Field("allow_auto_topic_creation", "bool", 4, 13),
        Field("include_cluster_authorized_operations", "bool", 8, 10),
        Field("include_topic_authorized_operations", "bool", 8, 13),
    )

    def __init__(
        self,
        *,
        topics: Sequence[MetadataRequestTopic] | None = (),
        allow_auto_topic_creation: bool = True,
        include_cluster_authorized_operations: bool = False,
        include_topic_authorized_operations: bool = False,
    ) -> None:
        self.topics = topics
        self.allow_auto_topic_creation = allow_auto_topic_creation
        self.include_cluster_authorized_operations = include_cluster_authorized_operations
        self.include_topic_authorized_operations = include_topic_authorized_operations


class MetadataResponseBroker(Message):
    """In versions 0 to 13."""

    __slots__ = (
        "node_id",
        "host",
        "port",
        "rack",
    )
    SCHEMA: ClassVar[tuple[Field, ...]] = (
        Field("node_id", "int32", 0, 13),
        Field("host", "string", 0, 13),
        Field("port", "int32", 0, 13),
        Field("rack", "string", 1, 13, is_nullable=True),
    )

    def __init__(self, *, node_id: int = 0, host: str = "", port: int = 0, rack: str | None = None) -> None:
        self.node_id = node_id
        self.host = host
        self.port = port
        self.rack = rack


class MetadataResponsePartition(Message):
    """In versions 0 to 13."""

    __slots__ = (
        "error_code",
        "partition_index",
        "leader_id",
        "leader_epoch",
        "replica_nodes",
        "isr_nodes",
        "offline_replicas",
    )
    SCHEMA: ClassVar[tuple[Field, ...]] = (
        Field("error_code", "int16", 0, 13),
        Field("partition_index", "int32", 0, 13),
        Field("leader_id", "int32", 0, 13),
        Field("leader_epoch", "int32", 7, 13),
        Field("replica_nodes", "int32", 0, 13, is_array=True),
        Field("isr_nodes", "int32", 0, 13, is_array=True),
        Field("offline_replicas", "int32", 5, 13, is_array=True),
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
        offline_replicas: Sequence[int] = (),
    ) -> None:
        self.error_code = error_code
        self.partition_index = partition_index
        self.leader_id = leader_id
        self.leader_epoch = leader_epoch
        self.replica_nodes = replica_nodes
        self.isr_nodes = isr_nodes
        self.offline_replicas = offline_replicas


class MetadataResponseTopic(Message):
    """In versions 0 to 13."""

    __slots__ = (
        "error_code",
        "name",
        "topic_id",
        "is_internal",
        "partitions",
        "topic_authorized_operations",
    )
    SCHEMA: ClassVar[tuple[Field, ...]] = (
        Field("error_code", "int16", 0, 13),
        Field("name", "string", 0, 11),
        Field("name", "string", 12, 13, is_nullable=True),
        Field("topic_id", "uuid", 10, 13),
        Field("is_internal", "bool", 1, 13),
        Field("partitions", "struct", 0, 13, item=MetadataResponsePartition, is_array=True),
        Field("topic_authorized_operations", "int32", 8, 13),
    )

    def __init__(
        self,
        *,
        error_code: int = 0,
        name: str | None = "",
        topic_id: bytes = ZERO_UUID,
        is_internal: bool = False,
        partitions: Sequence[MetadataResponsePartition] = (),
        topic_authorized_operations: int = -2147483648,
    ) -> None:
        self.error_code = error_code
        self.name = name
        self.topic_id = topic_id
        self.is_internal = is_internal
        self.partitions = partitions
        self.topic_authorized_operations = topic_authorized_operations


class MetadataResponse(Response):
    """In versions 0 to 13."""

    __slots__ = (
        "throttle_time_ms",
        "brokers",
        "cluster_id",
        "controller_id",
        "topics",
        "cluster_authorized_operations",
        "error_code",
    )
    API_KEY: ClassVar[int] = 3
    VERSIONS: ClassVar[tuple[int, int]] = (0, 13)
    FLEXIBLE_FROM: ClassVar[int | None] = 9
    SCHEMA: ClassVar[tuple[Field, ...]] = (
        Field("throttle_time_ms", "int32", 3, 13),
        Field("brokers", "struct", 0, 13, item=MetadataResponseBroker, is_array=True),
        Field("cluster_id", "string", 2, 13, is_nullable=True),
        Field("controller_id", "int32", 1, 13),
        Field("topics", "struct", 0, 13, item=MetadataResponseTopic, is_array=True),
        Field("cluster_authorized_operations", "int32", 8, 10),
        Field("error_code", "int16", 13, 13),
    )

    def __init__(
        self,
        *,
        throttle_time_ms: int = 0,
        brokers: Sequence[MetadataResponseBroker] = (),
        cluster_id: str | None = None,
        controller_id: int = -1,
        topics: Sequence[MetadataResponseTopic] = (),
        cluster_authorized_operations: int = -2147483648,
        error_code: int = 0,
    ) -> None:
        self.throttle_time_ms = throttle_time_ms
        self.brokers = brokers
        self.cluster_id = cluster_id
        self.controller_id = controller_id
        self.topics = topics
        self.cluster_authorized_operations = cluster_authorized_operations
        self.error_code = error_code


REQUEST = MetadataRequest
RESPONSE = MetadataResponse
