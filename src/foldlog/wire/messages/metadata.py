"""Metadata, generated from the schemas of Apache Kafka 4.4.0 by scripts/generate_messages.py."""

from __future__ import annotations

from collections.abc import Sequence

from foldlog.wire.schema import ZERO_UUID, Message, Request, Response, field


class MetadataRequestTopic(Message):
    topic_id: bytes = field("uuid", 10, 13, default=ZERO_UUID)
    name: str | None = field("string", 0, 13, nullable_from=10, default="")


class MetadataRequest(Request, api_key=3, versions=(0, 13), flexible_from=9):
    topics: Sequence[MetadataRequestTopic] | None = field(
        MetadataRequestTopic, 0, 13, is_array=True, nullable_from=1, default=()
    )
    allow_auto_topic_creation: bool = field("bool", 4, 13, default=True)
    include_cluster_authorized_operations: bool = field("bool", 8, 10, default=False)
    include_topic_authorized_operations: bool = field("bool", 8, 13, default=False)


class MetadataResponseBroker(Message):
    node_id: int = field("int32", 0, 13, default=0)
    host: str = field("string", 0, 13, default="")
    port: int = field("int32", 0, 13, default=0)
    rack: str | None = field("string", 1, 13, nullable_from=1, default=None)


class MetadataResponsePartition(Message):
    error_code: int = field("int16", 0, 13, default=0)
    partition_index: int = field("int32", 0, 13, default=0)
    leader_id: int = field("int32", 0, 13, default=0)
    leader_epoch: int = field("int32", 7, 13, default=-1)
    replica_nodes: Sequence[int] = field("int32", 0, 13, is_array=True, default=())
    isr_nodes: Sequence[int] = field("int32", 0, 13, is_array=True, default=())
    offline_replicas: Sequence[int] = field("int32", 5, 13, is_array=True, default=())


class MetadataResponseTopic(Message):
    error_code: int = field("int16", 0, 13, default=0)
    name: str | None = field("string", 0, 13, nullable_from=12, default="")
    topic_id: bytes = field("uuid", 10, 13, default=ZERO_UUID)
    is_internal: bool = field("bool", 1, 13, default=False)
    partitions: Sequence[MetadataResponsePartition] = field(MetadataResponsePartition, 0, 13, is_array=True, default=())
    topic_authorized_operations: int = field("int32", 8, 13, default=-2147483648)


class MetadataResponse(Response, api_key=3, versions=(0, 13), flexible_from=9):
    throttle_time_ms: int = field("int32", 3, 13, default=0)
    brokers: Sequence[MetadataResponseBroker] = field(MetadataResponseBroker, 0, 13, is_array=True, default=())
    cluster_id: str | None = field("string", 2, 13, nullable_from=2, default=None)
    controller_id: int = field("int32", 1, 13, default=-1)
    topics: Sequence[MetadataResponseTopic] = field(MetadataResponseTopic, 0, 13, is_array=True, default=())
    cluster_authorized_operations: int = field("int32", 8, 10, default=-2147483648)
    error_code: int = field("int16", 13, 13, default=0)


REQUEST = MetadataRequest
RESPONSE = MetadataResponse
