"""CreateTopics, generated from the schemas of Apache Kafka 4.4.0 by scripts/generate_messages.py."""

from __future__ import annotations

from collections.abc import Sequence

from foldlog.wire.schema import ZERO_UUID, Message, Request, Response, field


class CreatableReplicaAssignment(Message):
    partition_index: int = field("int32", 2, 7, default=0)
    broker_ids: Sequence[int] = field("int32", 2, 7, is_array=True, default=())


class CreatableTopicConfig(Message):
    name: str = field("string", 2, 7, default="")
    value: str | None = field("string", 2, 7, nullable_from=2, default="")


class CreatableTopic(Message):
    name: str = field("string", 2, 7, default="")
    num_partitions: int = field("int32", 2, 7, default=0)
    replication_factor: int = field("int16", 2, 7, default=0)
    assignments: Sequence[CreatableReplicaAssignment] = field(
        CreatableReplicaAssignment, 2, 7, is_array=True, default=()
    )
    configs: Sequence[CreatableTopicConfig] = field(CreatableTopicConfig, 2, 7, is_array=True, default=())


class CreateTopicsRequest(Request, api_key=19, versions=(2, 7), flexible_from=5):
    topics: Sequence[CreatableTopic] = field(CreatableTopic, 2, 7, is_array=True, default=())
    timeout_ms: int = field("int32", 2, 7, default=60000)
    validate_only: bool = field("bool", 2, 7, default=False)


class CreatableTopicConfigs(Message):
    name: str = field("string", 5, 7, default="")
    value: str | None = field("string", 5, 7, nullable_from=5, default="")
    read_only: bool = field("bool", 5, 7, default=False)
    config_source: int = field("int8", 5, 7, default=-1)
    is_sensitive: bool = field("bool", 5, 7, default=False)


class CreatableTopicResult(Message):
    name: str = field("string", 2, 7, default="")
    topic_id: bytes = field("uuid", 7, 7, default=ZERO_UUID)
    error_code: int = field("int16", 2, 7, default=0)
    error_message: str | None = field("string", 2, 7, nullable_from=2, default="")
    topic_config_error_code: int = field("int16", 5, 7, tag=0, default=0)
    num_partitions: int = field("int32", 5, 7, default=-1)
    replication_factor: int = field("int16", 5, 7, default=-1)
    configs: Sequence[CreatableTopicConfigs] | None = field(
        CreatableTopicConfigs, 5, 7, is_array=True, nullable_from=5, default=()
    )


class CreateTopicsResponse(Response, api_key=19, versions=(2, 7), flexible_from=5):
    throttle_time_ms: int = field("int32", 2, 7, default=0)
    topics: Sequence[CreatableTopicResult] = field(CreatableTopicResult, 2, 7, is_array=True, default=())


REQUEST = CreateTopicsRequest
RESPONSE = CreateTopicsResponse
