"""DescribeProducers, generated from the schemas of Apache Kafka 4.4.0 by scripts/generate_messages.py."""

from __future__ import annotations

from collections.abc import Sequence

from foldlog.wire.schema import Message, Request, Response, field


class TopicRequest(Message):
    name: str = field("string", 0, 0, default="")
    partition_indexes: Sequence[int] = field("int32", 0, 0, is_array=True, default=())


class DescribeProducersRequest(Request, api_key=61, versions=(0, 0), flexible_from=0):
    topics: Sequence[TopicRequest] = field(TopicRequest, 0, 0, is_array=True, default=())


class ProducerState(Message):
    producer_id: int = field("int64", 0, 0, default=0)
    producer_epoch: int = field("int32", 0, 0, default=0)
    last_sequence: int = field("int32", 0, 0, default=-1)
    last_timestamp: int = field("int64", 0, 0, default=-1)
    coordinator_epoch: int = field("int32", 0, 0, default=0)
    current_txn_start_offset: int = field("int64", 0, 0, default=-1)


class PartitionResponse(Message):
    partition_index: int = field("int32", 0, 0, default=0)
    error_code: int = field("int16", 0, 0, default=0)
    error_message: str | None = field("string", 0, 0, nullable_from=0, default=None)
    active_producers: Sequence[ProducerState] = field(ProducerState, 0, 0, is_array=True, default=())


class TopicResponse(Message):
    name: str = field("string", 0, 0, default="")
    partitions: Sequence[PartitionResponse] = field(PartitionResponse, 0, 0, is_array=True, default=())


class DescribeProducersResponse(Response, api_key=61, versions=(0, 0), flexible_from=0):
    throttle_time_ms: int = field("int32", 0, 0, default=0)
    topics: Sequence[TopicResponse] = field(TopicResponse, 0, 0, is_array=True, default=())


REQUEST = DescribeProducersRequest
RESPONSE = DescribeProducersResponse
