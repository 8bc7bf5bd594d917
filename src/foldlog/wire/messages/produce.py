"""Produce, versions 3 to 13.

Written by scripts/generate_messages.py from kio 0.6.5, not by hand.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from foldlog.wire.schema import ZERO_UUID, Field, Message, Records, Request, Response


class PartitionProduceData(Message):
    """In versions 3 to 13."""

    __slots__ = (
        "index",
        "records",
    )
    SCHEMA: ClassVar[tuple[Field, ...]] = (
        Field("index", "int32", 3, 13),
        Field("records", "records", 3, 13, is_nullable=True),
    )

    def __init__(self, *, index: int = 0, records: Records | None = b"") -> None:
        self.index = index
        self.records = records


class TopicProduceData(Message):
    """In versions 3 to 13."""

    __slots__ = (
        "name",
        "topic_id",
        "partition_data",
    )
    SCHEMA: ClassVar[tuple[Field, ...]] = (
        Field("name", "string", 3, 12),
        Field("topic_id", "uuid", 13, 13),
        Field("partition_data", "struct", 3, 13, item=PartitionProduceData, is_array=True),
    )

    def __init__(
        self, *, name: str = "", topic_id: bytes = ZERO_UUID, partition_data: Sequence[PartitionProduceData] = ()
    ) -> None:
        self.name = name
        self.topic_id = topic_id
        self.partition_data = partition_data


class ProduceRequest(Request):
    """In versions 3 to 13."""

    __slots__ = (
        "transactional_id",
        "acks",
        "timeout_ms",
        "topic_data",
    )
    API_KEY: ClassVar[int] = 0
    VERSIONS: ClassVar[tuple[int, int]] = (3, 13)
    FLEXIBLE_FROM: ClassVar[int | None] = 9
    SCHEMA: ClassVar[tuple[Field, ...]] = (
        Field("transactional_id", "string", 3, 13, is_nullable=True),
        Field("acks", "int16", 3, 13),
        Field("timeout_ms", "int32", 3, 13),
        Field("topic_data", "struct", 3, 13, item=TopicProduceData, is_array=True),
    )

    def __init__(
        self,
        *,
        transactional_id: str | None = None,
        acks: int = 0,
        timeout_ms: int = 0,
        topic_data: Sequence[TopicProduceData] = (),
    ) -> None:
        self.transactional_id = transactional_id
        self.acks = acks
        self.timeout_ms = timeout_ms
        self.topic_data = topic_data


class BatchIndexAndErrorMessage(Message):
    """In versions 8 to 13."""

    __slots__ = (
        "batch_index",
        "batch_index_error_message",
    )
    SCHEMA: ClassVar[tuple[Field, ...]] = (
        Field("batch_index", "int32", 8, 13),
        Field("batch_index_error_message", "string", 8, 13, is_nullable=True),
    )

    def __init__(self, *, batch_index: int = 0, batch_index_error_message: str | None = None) -> None:
        self.batch_index = batch_index
        self.batch_index_error_message = batch_index_error_message


class LeaderIdAndEpoch(Message):
    """In versions 10 to 13."""

    __slots__ = (
        "leader_id",
        "leader_epoch",
    )
    SCHEMA: ClassVar[tuple[Field, ...]] = (
        Field("leader_id", "int32", 10, 13),
        Field("leader_epoch", "int32", 10, 13),
    )

    def __init__(self, *, leader_id: int = -1, leader_epoch: int = -1) -> None:
        self.leader_id = leader_id
        self.leader_epoch = leader_epoch


class PartitionProduceResponse(Message):
    """In versions 3 to 13."""

    __slots__ = (
        "index",
        "error_code",
        "base_offset",
        "log_append_time_ms",
        "log_start_offset",
        "record_errors",
        "error_message",
        "current_leader",
    )
    SCHEMA: ClassVar[tuple[Field, ...]] = (
        Field("index", "int32", 3, 13),
        Field("error_code", "int16", 3, 13),
        Field("base_offset", "int64", 3, 13),
        Field("log_append_time_ms", "int64", 3, 13),
        Field("log_start_offset", "int64", 5, 13),
        Field("record_errors", "struct", 8, 13, item=BatchIndexAndErrorMessage, is_array=True),
        Field("error_message", "string", 8, 13, is_nullable=True),
        Field("current_leader", "struct", 10, 13, item=LeaderIdAndEpoch, tag=0),
    )

    def __init__(
        self,
        *,
        index: int = 0,
        error_code: int = 0,
        base_offset: int = 0,
        log_append_time_ms: int = -1,
        log_start_offset: int = -1,
        record_errors: Sequence[BatchIndexAndErrorMessage] = (),
        error_message: str | None = None,
        current_leader: LeaderIdAndEpoch | None = None,
    ) -> None:
        self.index = index
        self.error_code = error_code
        self.base_offset = base_offset
        self.log_append_time_ms = log_append_time_ms
        self.log_start_offset = log_start_offset
        self.record_errors = record_errors
        self.error_message = error_message
        self.current_leader = current_leader


class TopicProduceResponse(Message):
    """In versions 3 to 13."""

    __slots__ = (
        "name",
        "topic_id",
        "partition_responses",
    )
    SCHEMA: ClassVar[tuple[Field, ...]] = (
        Field("name", "string", 3, 12),
        Field("topic_id", "uuid", 13, 13),
        Field("partition_responses", "struct", 3, 13, item=PartitionProduceResponse, is_array=True),
    )

    def __init__(
        self,
        *,
        name: str = "",
        topic_id: bytes = ZERO_UUID,
        partition_responses: Sequence[PartitionProduceResponse] = (),
    ) -> None:
        self.name = name
        self.topic_id = topic_id
        self.partition_responses = partition_responses


class NodeEndpoint(Message):
    """In versions 10 to 13."""

    __slots__ = (
        "node_id",
        "host",
        "port",
        "rack",
    )
    SCHEMA: ClassVar[tuple[Field, ...]] = (
        Field("node_id", "int32", 10, 13),
        Field("host", "string", 10, 13),
        Field("port", "int32", 10, 13),
        Field("rack", "string", 10, 13, is_nullable=True),
    )

    def __init__(self, *, node_id: int = 0, host: str = "", port: int = 0, rack: str | None = None) -> None:
        self.node_id = node_id
        self.host = host
        self.port = port
        self.rack = rack


class ProduceResponse(Response):
    """In versions 3 to 13."""

    __slots__ = (
        "responses",
        "throttle_time_ms",
        "node_endpoints",
    )
    API_KEY: ClassVar[int] = 0
    VERSIONS: ClassVar[tuple[int, int]] = (3, 13)
    FLEXIBLE_FROM: ClassVar[int | None] = 9
    SCHEMA: ClassVar[tuple[Field, ...]] = (
        Field("responses", "struct", 3, 13, item=TopicProduceResponse, is_array=True),
        Field("throttle_time_ms", "int32", 3, 13),
        Field("node_endpoints", "struct", 10, 13, item=NodeEndpoint, is_array=True, tag=0),
    )

    def __init__(
        self,
        *,
        responses: Sequence[TopicProduceResponse] = (),
        throttle_time_ms: int = 0,
        node_endpoints: Sequence[NodeEndpoint] = (),
    ) -> None:
        self.responses = responses
        self.throttle_time_ms = throttle_time_ms
        self.node_endpoints = node_endpoints


REQUEST = ProduceRequest
RESPONSE = ProduceResponse
