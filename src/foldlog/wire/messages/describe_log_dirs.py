"""DescribeLogDirs, generated from the schemas of Apache Kafka 4.4.0 by scripts/generate_messages.py."""

from __future__ import annotations

from collections.abc import Sequence

from foldlog.wire.schema import Message, Request, Response, field


class DescribableLogDirTopic(Message):
    topic: str = field("string", 1, 5, default="")
    partitions: Sequence[int] = field("int32", 1, 5, is_array=True, default=())


class DescribeLogDirsRequest(Request, api_key=35, versions=(1, 5), flexible_from=2):
    topics: Sequence[DescribableLogDirTopic] | None = field(
        DescribableLogDirTopic, 1, 5, is_array=True, nullable_from=1, default=()
    )


class DescribeLogDirsPartition(Message):
    partition_index: int = field("int32", 1, 5, default=0)
    partition_size: int = field("int64", 1, 5, default=0)
    offset_lag: int = field("int64", 1, 5, default=0)
    is_future_key: bool = field("bool", 1, 5, default=False)


class DescribeLogDirsTopic(Message):
    name: str = field("string", 1, 5, default="")
    partitions: Sequence[DescribeLogDirsPartition] = field(DescribeLogDirsPartition, 1, 5, is_array=True, default=())


class DescribeLogDirsResult(Message):
    error_code: int = field("int16", 1, 5, default=0)
    log_dir: str = field("string", 1, 5, default="")
    topics: Sequence[DescribeLogDirsTopic] = field(DescribeLogDirsTopic, 1, 5, is_array=True, default=())
    total_bytes: int = field("int64", 4, 5, default=-1)
    usable_bytes: int = field("int64", 4, 5, default=-1)
    is_cordoned: bool = field("bool", 5, 5, default=False)


class DescribeLogDirsResponse(Response, api_key=35, versions=(1, 5), flexible_from=2):
    throttle_time_ms: int = field("int32", 1, 5, default=0)
    error_code: int = field("int16", 3, 5, default=0)
    results: Sequence[DescribeLogDirsResult] = field(DescribeLogDirsResult, 1, 5, is_array=True, default=())


REQUEST = DescribeLogDirsRequest
RESPONSE = DescribeLogDirsResponse
