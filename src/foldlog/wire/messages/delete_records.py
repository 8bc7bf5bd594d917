"""DeleteRecords, generated from the schemas of Apache Kafka 4.4.0 by scripts/generate_messages.py."""

from __future__ import annotations

from collections.abc import Sequence

from foldlog.wire.schema import Message, Request, Response, field


class DeleteRecordsPartition(Message):
    partition_index: int = field("int32", 0, 2, default=0)
    offset: int = field("int64", 0, 2, default=0)


class DeleteRecordsTopic(Message):
    name: str = field("string", 0, 2, default="")
    partitions: Sequence[DeleteRecordsPartition] = field(DeleteRecordsPartition, 0, 2, is_array=True, default=())


class DeleteRecordsRequest(Request, api_key=21, versions=(0, 2), flexible_from=2):
    topics: Sequence[DeleteRecordsTopic] = field(DeleteRecordsTopic, 0, 2, is_array=True, default=())
    timeout_ms: int = field("int32", 0, 2, default=0)


class DeleteRecordsPartitionResult(Message):
    partition_index: int = field("int32", 0, 2, default=0)
    low_watermark: int = field("int64", 0, 2, default=0)
    error_code: int = field("int16", 0, 2, default=0)


class DeleteRecordsTopicResult(Message):
    name: str = field("string", 0, 2, default="")
    partitions: Sequence[DeleteRecordsPartitionResult] = field(
        DeleteRecordsPartitionResult, 0, 2, is_array=True, default=()
    )


class DeleteRecordsResponse(Response, api_key=21, versions=(0, 2), flexible_from=2):
    throttle_time_ms: int = field("int32", 0, 2, default=0)
    topics: Sequence[DeleteRecordsTopicResult] = field(DeleteRecordsTopicResult, 0, 2, is_array=True, default=())


REQUEST = DeleteRecordsRequest
RESPONSE = DeleteRecordsResponse
