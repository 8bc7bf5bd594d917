"""CreateTopics, versions 2 to 7.

Written by scripts/generate_messages.py from kio 0.6.5, not by hand.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from foldlog.wire.schema import ZERO_UUID, Field, Message, Request, Response


class CreatableReplicaAssignment(Message):
    """In versions 2 to 7."""

    __slots__ = (
        "partition_index",
        "broker_ids",
    )
    SCHEMA: ClassVar[tuple[Field, ...]] = (
        Field("partition_index", "int32", 2, 7),
        Field("broker_ids", "int32", 2, 7, is_array=True),
    )

    def __init__(self, *, partition_index: int = 0, broker_ids: Sequence[int] = ()) -> None:
        self.partition_index = partition_index
        self.broker_ids = broker_ids


class CreatableTopicConfig(Message):
    """In versions 2 to 7."""

    __slots__ = (
        "name",
        "value",
    )
    SCHEMA: ClassVar[tuple[Field, ...]] = (
        Field("name", "string", 2, 7),
        Field("value", "string", 2, 7, is_nullable=True),
    )

    def __init__(self, *, name: str = "", value: str | None = "") -> None:
        self.name = name
        self.value = value


class CreatableTopic(Message):
    """In versions 2 to 7."""

    __slots__ = (
        "name",
        "num_partitions",
        "replication_factor",
        "assignments",
        "configs",
    )
    SCHEMA: ClassVar[tuple[Field, ...]] = (
        Field("name", "string", 2, 7),
        Field("num_partitions", "int32", 2, 7),
        Field("replication_factor", "int16", 2, 7),
        Field("assignments", "struct", 2, 7, item=CreatableReplicaAssignment, is_array=True),
        Field("configs", "struct", 2, 7, item=CreatableTopicConfig, is_array=True),
    )

    def __init__(
        self,
        *,
        name: str = "",
        num_partitions: int = 0,
        replication_factor: int = 0,
        assignments: Sequence[CreatableReplicaAssignment] = (),
        configs: Sequence[CreatableTopicConfig] = (),
    ) -> None:
        self.name = name
        self.num_partitions = num_partitions
        self.replication_factor = replication_factor
        self.assignments = assignments
        self.configs = configs


class CreateTopicsRequest(Request):
    """In versions 2 to 7."""

    __slots__ = (
        "topics",
        "timeout_ms",
        "validate_only",
    )
    API_KEY: ClassVar[int] = 19
    VERSIONS: ClassVar[tuple[int, int]] = (2, 7)
    FLEXIBLE_FROM: ClassVar[int | None] = 5
    SCHEMA: ClassVar[tuple[Field, ...]] = (
        Field("topics", "struct", 2, 7, item=CreatableTopic, is_array=True),
        Field("timeout_ms", "int32", 2, 7),
        Field("validate_only", "bool", 2, 7),
    )

    def __init__(
        self, *, topics: Sequence[CreatableTopic] = (), timeout_ms: int = 60000, validate_only: bool = False
    ) -> None:
        self.topics = topics
        self.timeout_ms = timeout_ms
        self.validate_only = validate_only


class CreatableTopicConfigs(Message):
    """In versions 5 to 7."""

    __slots__ = (
        "name",
        "value",
        "read_only",
        "config_source",
        "is_sensitive",
    )
    SCHEMA: ClassVar[tuple[Field, ...]] = (
        Field("name", "string", 5, 7),
        Field("value", "string", 5, 7, is_nullable=True),
        Field("read_only", "bool", 5, 7),
        Field("config_source", "int8", 5, 7),
        Field("is_sensitive", "bool", 5, 7),
    )

    def __init__(
        self,
        *,
        name: str = "",
        value: str | None = "",
        read_only: bool = False,
        config_source: int = -1,
        is_sensitive: bool = False,
    ) -> None:
        self.name = name
        self.value = value
        self.read_only = read_only
        self.config_source = config_source
        self.is_sensitive = is_sensitive


class CreatableTopicResult(Message):
    """In versions 2 to 7."""

    __slots__ = (
        "name",
        "topic_id",
        "error_code",
        "error_message",
        "topic_config_error_code",
        "num_partitions",
        "replication_factor",
        "configs",
    )
    SCHEMA: ClassVar[tuple[Field, ...]] = (
        Field("name", "string", 2, 7),
        Field("topic_id", "uuid", 7, 7),
        Field("error_code", "int16", 2, 7),
        Field("error_message", "string", 2, 7, is_nullable=True),
        Field("topic_config_error_code", "int16", 5, 7, tag=0),
        Field("num_partitions", "int32", 5, 7),
        Field("replication_factor", "int16", 5, 7),
        Field("configs", "struct", 5, 7, item=CreatableTopicConfigs, is_array=True, is_nullable=True),
    )

    def __init__(
        self,
        *,
        name: str = "",
        topic_id: bytes = ZERO_UUID,
        error_code: int = 0,
        error_message: str | None = "",
        topic_config_error_code: int = 0,
        num_partitions: int = -1,
        replication_factor: int = -1,
        configs: Sequence[CreatableTopicConfigs] | None = (),
    ) -> None:
        self.name = name
        self.topic_id = topic_id
        self.error_code = error_code
        self.error_message = error_message
        self.topic_config_error_code = topic_config_error_code
        self.num_partitions = num_partitions
        self.replication_factor = replication_factor
        self.configs = configs


class CreateTopicsResponse(Response):
    """In versions 2 to 7."""

    __slots__ = (
        "throttle_time_ms",
        "topics",
    )
    API_KEY: ClassVar[int] = 19
    VERSIONS: ClassVar[tuple[int, int]] = (2, 7)
    FLEXIBLE_FROM: ClassVar[int | None] = 5
    SCHEMA: ClassVar[tuple[Field, ...]] = (
        Field("throttle_time_ms", "int32", 2, 7),
        Field("topics", "struct", 2, 7, item=CreatableTopicResult, is_array=True),
    )

    def __init__(self, *, throttle_time_ms: int = 0, topics: Sequence[CreatableTopicResult] = ()) -> None:
        self.throttle_time_ms = throttle_time_ms
        self.topics = topics


REQUEST = CreateTopicsRequest
RESPONSE = CreateTopicsResponse
