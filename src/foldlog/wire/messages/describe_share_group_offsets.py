"""DescribeShareGroupOffsets, generated from the schemas of Apache Kafka 4.4.0 by scripts/generate_messages.py."""

from __future__ import annotations

from collections.abc import Sequence

from foldlog.wire.schema import ZERO_UUID, Message, Request, Response, field


class DescribeShareGroupOffsetsRequestTopic(Message):
    topic_name: str = field("string", 0, 1, default="")
    partitions: Sequence[int] = field("int32", 0, 1, is_array=True, default=())


class DescribeShareGroupOffsetsRequestGroup(Message):
    group_id: str = field("string", 0, 1, default="")
    topics: Sequence[DescribeShareGroupOffsetsRequestTopic] | None = field(
        DescribeShareGroupOffsetsRequestTopic, 0, 1, is_array=True, nullable_from=0, default=()
    )


class DescribeShareGroupOffsetsRequest(Request, api_key=90, versions=(0, 1), flexible_from=0):
    groups: Sequence[DescribeShareGroupOffsetsRequestGroup] = field(
        DescribeShareGroupOffsetsRequestGroup, 0, 1, is_array=True, default=()
    )


class DescribeShareGroupOffsetsResponsePartition(Message):
    partition_index: int = field("int32", 0, 1, default=0)
    start_offset: int = field("int64", 0, 1, default=0)
    leader_epoch: int = field("int32", 0, 1, default=0)
    lag: int = field("int64", 1, 1, default=-1)
    error_code: int = field("int16", 0, 1, default=0)
    error_message: str | None = field("string", 0, 1, nullable_from=0, default=None)


class DescribeShareGroupOffsetsResponseTopic(Message):
    topic_name: str = field("string", 0, 1, default="")
    topic_id: bytes = field("uuid", 0, 1, default=ZERO_UUID)
    partitions: Sequence[DescribeShareGroupOffsetsResponsePartition] = field(
        DescribeShareGroupOffsetsResponsePartition, 0, 1, is_array=True, default=()
    )


class DescribeShareGroupOffsetsResponseGroup(Message):
    group_id: str = field("string", 0, 1, default="")
    topics: Sequence[DescribeShareGroupOffsetsResponseTopic] = field(
        DescribeShareGroupOffsetsResponseTopic, 0, 1, is_array=True, default=()
    )
    error_code: int = field("int16", 0, 1, default=0)
    error_message: str | None = field("string", 0, 1, nullable_from=0, default=None)


class DescribeShareGroupOffsetsResponse(Response, api_key=90, versions=(0, 1), flexible_from=0):
    throttle_time_ms: int = field("int32", 0, 1, default=0)
    groups: Sequence[DescribeShareGroupOffsetsResponseGroup] = field(
        DescribeShareGroupOffsetsResponseGroup, 0, 1, is_array=True, default=()
    )


REQUEST = DescribeShareGroupOffsetsRequest
RESPONSE = DescribeShareGroupOffsetsResponse
