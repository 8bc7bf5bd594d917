"""DescribeLogDirs, versions 1 to 5.

Written by scripts/generate_messages.py from kio 0.6.5, not by hand.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from foldlog.wire.schema import Field, Message, Request, Response


class DescribableLogDirTopic(Message):
    """In versions 1 to 5."""

    __slots__ = (
        "topic",
        "partitions",
    )
    SCHEMA: ClassVar[tuple[Field, ...]] = (
        Field("topic", "string", 1, 5),
        Field("partitions", "int32", 1, 5, is_array=True),
    )

    def __init__(self, *, topic: str = "", partitions: Sequence[int] = ()) -> None:
        self.topic = topic
        self.partitions = partitions


class DescribeLogDirsRequest(Request):
    """In versions 1 to 5."""

    __slots__ = ("topics",)
    API_KEY: ClassVar[int] = 35
    VERSIONS: ClassVar[tuple[int, int]] = (1, 5)
    FLEXIBLE_FROM: ClassVar[int | None] = 2
    SCHEMA: ClassVar[tuple[Field, ...]] = (
        Field("topics", "struct", 1, 5, item=DescribableLogDirTopic, is_array=True, is_nullable=True),
    )

    def __init__(self, *, topics: Sequence[DescribableLogDirTopic] | None = ()) -> None:
        self.topics = topics


class DescribeLogDirsPartition(Message):
    """In versions 1 to 5."""

    __slots__ = (
        "partition_index",
        "partition_size",
        "offset_lag",
        "is_future_key",
    )
    SCHEMA: ClassVar[tuple[Field, ...]] = (
        Field("partition_index", "int32", 1, 5),
        Field("partition_size", "int64", 1, 5),
        Field("offset_lag", "int64", 1, 5),
        Field("is_future_key", "bool", 1, 5),
    )

    def __init__(
        self, *, partition_index: int = 0, partition_size: int = 0, offset_lag: int = 0, is_future_key: bool = False
    ) -> None:
        self.partition_index = partition_index
        self.partition_size = partition_size
        self.offset_lag = offset_lag
        self.is_future_key = is_future_key


class DescribeLogDirsTopic(Message):
    """In versions 1 to 5."""

    __slots__ = (
        "name",
        "partitions",
    )
    SCHEMA: ClassVar[tuple[Field, ...]] = (
        Field("name", "string", 1, 5),
        Field("partitions", "struct", 1, 5, item=DescribeLogDirsPartition, is_array=True),
    )

    def __init__(self, *, name: str = "", partitions: Sequence[DescribeLogDirsPartition] = ()) -> None:
        self.name = name
        self.partitions = partitions


class DescribeLogDirsResult(Message):
    """In versions 1 to 5."""

    __slots__ = (
        "error_code",
        "log_dir",
        "topics",
        "total_bytes",
        "usable_bytes",
        "is_cordoned",
    )
    SCHEMA: ClassVar[tuple[Field, ...]] = (
        Field("error_code", "int16", 1, 5),
        Field("log_dir", "string", 1, 5),
        Field("topics", "struct", 1, 5, item=DescribeLogDirsTopic, is_array=True),
        Field("total_bytes", "int64", 4, 5),
        Field("usable_bytes", "int64", 4, 5),
        Field("is_cordoned", "bool", 5, 5),
    )

    def __init__(
        self,
        *,
        error_code: int = 0,
        log_dir: str = "",
        topics: Sequence[DescribeLogDirsTopic] = (),
        total_bytes: int = -1,
        usable_bytes: int = -1,
        is_cordoned: bool = False,
    ) -> None:
        self.error_code = error_code
        self.log_dir = log_dir
        self.topics = topics
        self.total_bytes = total_bytes
        self.usable_bytes = usable_bytes
        self.is_cordoned = is_cordoned


class DescribeLogDirsResponse(Response):
    """In versions 1 to 5."""

    __slots__ = (
        "throttle_time_ms",
        "error_code",
        "results",
    )
    API_KEY: ClassVar[int] = 35
    VERSIONS: ClassVar[tuple[int, int]] = (1, 5)
    FLEXIBLE_FROM: ClassVar[int | None] = 2
    SCHEMA: ClassVar[tuple[Field, ...]] = (
        Field("throttle_time_ms", "int32", 1, 5),
        Field("error_code", "int16", 3, 5),
        Field("results", "struct", 1, 5, item=DescribeLogDirsResult, is_array=True),
    )

    def __init__(
        self, *, throttle_time_ms: int = 0, error_code: int = 0, results: Sequence[DescribeLogDirsResult] = ()
    ) -> None:
        self.throttle_time_ms = throttle_time_ms
        self.error_code = error_code
        self.results = results


REQUEST = DescribeLogDirsRequest
RESPONSE = DescribeLogDirsResponse
