"""Produce, generated from the schemas of Apache Kafka 4.4.0 by scripts/generate_messages.py."""

from __future__ import annotations

from collections.abc import Sequence

from foldlog.wire.schema import ZERO_UUID, Message, Records, Request, Response, field


class PartitionProduceData(Message):
    index: int = field("int32", 3, 13, default=0)
    records: Records | None = field("records", 3, 13, nullable_from=3, default=b"")


class TopicProduceData(Message):
    name: str = field("string", 3, 12, default="")
    topic_id: bytes = field("uuid", 13, 13, default=ZERO_UUID)
    partition_data: Sequence[PartitionProduceData] = field(PartitionProduceData, 3, 13, is_array=True, default=())


class ProduceRequest(Request, api_key=0, versions=(3, 13), flexible_from=9):
    transactional_id: str | None = field("string", 3, 13, nullable_from=3, default=None)
    acks: int = field("int16", 3, 13, default=0)
    timeout_ms: int = field("int32", 3, 13, default=0)
    topic_data: Sequence[TopicProduceData] = field(TopicProduceData, 3, 13, is_array=True, default=())


class BatchIndexAndErrorMessage(Message):
    batch_index: int = field("int32", 8, 13, default=0)
    batch_index_error_message: str | None = field("string", 8, 13, nullable_from=8, default=None)


class LeaderIdAndEpoch(Message):
    leader_id: int = field("int32", 10, 13, default=-1)
    leader_epoch: int = field("int32", 10, 13, default=-1)


class PartitionProduceResponse(Message):
    index: int = field("int32", 3, 13, default=0)
    error_code: int = field("int16", 3, 13, default=0)
    base_offset: int = field("int64", 3, 13, default=0)
    log_append_time_ms: int = field("int64", 3, 13, default=-1)
    log_start_offset: int = field("int64", 5, 13, default=-1)
    record_errors: Sequence[BatchIndexAndErrorMessage] = field(
        BatchIndexAndErrorMessage, 8, 13, is_array=True, default=()
    )
    error_message: str | None = field("string", 8, 13, nullable_from=8, default=None)
    current_leader: LeaderIdAndEpoch | None = field(LeaderIdAndEpoch, 10, 13, tag=0, default=None)


class TopicProduceResponse(Message):
    name: str = field("string", 3, 12, default="")
    topic_id: bytes = field("uuid", 13, 13, default=ZERO_UUID)
    partition_responses: Sequence[PartitionProduceResponse] = field(
        PartitionProduceResponse, 3, 13, is_array=True, default=()
    )


class NodeEndpoint(Message):
    node_id: int = field("int32", 10, 13, default=0)
    host: str = field("string", 10, 13, default="")
    port: int = field("int32", 10, 13, default=0)
    rack: str | None = field("string", 10, 13, nullable_from=10, default=None)


class ProduceResponse(Response, api_key=0, versions=(3, 13), flexible_from=9):
    responses: Sequence[TopicProduceResponse] = field(TopicProduceResponse, 3, 13, is_array=True, default=())
    throttle_time_ms: int = field("int32", 3, 13, default=0)
    node_endpoints: Sequence[NodeEndpoint] = field(NodeEndpoint, 10, 13, is_array=True, tag=0, default=())


REQUEST = ProduceRequest
RESPONSE = ProduceResponse
