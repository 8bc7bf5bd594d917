"""AlterShareGroupOffsets, generated from the schemas of Apache Kafka 4.4.0 by scripts/generate_messages.py."""

from __future__ import annotations

from collections.abc import Sequence

from foldlog.wire.schema import ZERO_UUID, Message, Request, Response, field


class AlterShareGroupOffsetsRequestPartition(Message):
    partition_index: int = field("int32", 0, 0, default=0)
    start_offset: int = field("int64", 0, 0, default=0)


class AlterShareGroupOffsetsRequestTopic(Message):
    topic_name: str = field("string", 0, 0, default="")
    partitions: Sequence[AlterShareGroupOffsetsRequestPartition] = field(
        AlterShareGroupOffsetsRequestPartition, 0, 0, is_array=True, default=()
    )


class AlterShareGroupOffsetsRequest(Request, api_key=91, versions=(0, 0), flexible_from=0):
    group_id: str = field("string", 0, 0, default="")
    topics: Sequence[AlterShareGroupOffsetsRequestTopic] = field(
        AlterShareGroupOffsetsRequestTopic, 0, 0, is_array=True, default=()
    )


class AlterShareGroupOffsetsResponsePartition(Message):
    partition_index: int = field("int32", 0, 0, default=0)
    error_code: int = field("int16", 0, 0, default=0)
    error_message: str | None = field("string", 0, 0, nullable_from=0, default=None)


class AlterShareGroupOffsetsResponseTopic(Message):
    topic_name: str = field("string", 0, 0, default="")
    topic_id: bytes = field("uuid", 0, 0, default=ZERO_UUID)
    partitions: Sequence[AlterShareGroupOffsetsResponsePartition] = field(
        AlterShareGroupOffsetsResponsePartition, 0, 0, is_array=True, default=()
    )


class AlterShareGroupOffsetsResponse(Response, api_key=91, versions=(0, 0), flexible_from=0):
    throttle_time_ms: int = field("int32", 0, 0, default=0)
    error_code: int = field("int16", 0, 0, default=0)
    error_message: str | None = field("string", 0, 0, nullable_from=0, default=None)
    responses: Sequence[AlterShareGroupOffsetsResponseTopic] = field(
        AlterShareGroupOffsetsResponseTopic, 0, 0, is_array=True, default=()
    )


REQUEST = AlterShareGroupOffsetsRequest
RESPONSE = AlterShareGroupOffsetsResponse
