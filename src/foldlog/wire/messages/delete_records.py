"""DeleteRecords, versions 0 to 2.

Written by scripts/generate_messages.py from kio 0.6.5, not by hand.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from foldlog.wire.schema import Field, Message, Request, Response


class DeleteRecordsPartition(Message):
    """In versions 0 to 2."""

    __slots__ = (
        "partition_index",
        "offset",
    )
    SCHEMA: ClassVar[tuple[Field, ...]] = (
        Field("partition_index", "int32", 0, 2),
        Field("offset", "int64", 0, 2),
    )

    def __init__(self, *, partition_index: int = 0, offset: int = 0) -> None:
        self.partition_index = partition_index
        self.offset = offset


class DeleteRecordsTopic(Message):
    """In versions 0 to 2."""

    __slots__ = (
        "name",
        "partitions",
    )
    SCHEMA: ClassVar[tuple[Field, ...]] = (
        Field("name", "string", 0, 2),
        Field("partitions", "struct", 0, 2, item=DeleteRecordsPartition, is_array=True),
    )

    def __init__(self, *, name: str = "", partitions: Sequence[DeleteRecordsPartition] = ()) -> None:
        self.name = name
        self.partitions = partitions


class DeleteRecordsRequest(Request):
    """In versions 0 to 2."""

    __slots__ = (
        "topics",
        "timeout_ms",
    )
    API_KEY: ClassVar[int] = 21
    VERSIONS: ClassVar[tuple[int, int]] = (0, 2)
    FLEXIBLE_FROM: ClassVar[int | None] = 2
    SCHEMA: ClassVar[tuple[Field, ...]] = (
        Field("topics", "struct", 0, 2, item=DeleteRecordsTopic, is_array=True),
        Field("timeout_ms", "int32", 0, 2),
    )

    def __init__(self, *, topics: Sequence[DeleteRecordsTopic] = (), timeout_ms: int = 0) -> None:
        self.topics = topics
        self.timeout_ms = timeout_ms


class DeleteRecordsPartitionResult(Message):
    """In versions 0 to 2."""

    __slots__ = (
        "partition_index",
        "low_watermark",
        "error_code",
    )
    SCHEMA: ClassVar[tuple[Field, ...]] = (
        Field("partition_index", "int32", 0, 2),
        Field("low_watermark", "int64", 0, 2),
        Field("error_code", "int16", 0, 2),
    )

    def __init__(self, *, partition_index: int = 0, low_watermark: int = 0, error_code: int = 0) -> None:
        self.partition_index = partition_index
        self.low_watermark = low_watermark
        self.error_code = error_code


class DeleteRecordsTopicResult(Message):
    """In versions 0 to 2."""

    __slots__ = (
        "name",
        "partitions",
    )
    SCHEMA: ClassVar[tuple[Field, ...]] = (
        Field("name", "string", 0, 2),
        Field("partitions", "struct", 0, 2, item=DeleteRecordsPartitionResult, is_array=True),
    )

    def __init__(self, *, name: str = "", partitions: Sequence[DeleteRecordsPartitionResult] = ()) -> None:
        self.name = name
        self.partitions = partitions


class DeleteRecordsResponse(Response):
    """In versions 0 to 2."""

    __slots__ = (
        "throttle_time_ms",
        "topics",
    )
    API_KEY: ClassVar[int] = 21
    VERSIONS: ClassVar[tuple[int, int]] = (0, 2)
    FLEXIBLE_FROM: ClassVar[int | None] = 2
    SCHEMA: ClassVar[tuple[Field, ...]] = (
        Field("throttle_time_ms", "int32", 0, 2),
        Field("topics", "struct", 0, 2, item=DeleteRecordsTopicResult, is_array=True),
    )

    def __init__(self, *, throttle_time_ms: int = 0, topics: Sequence[DeleteRecordsTopicResult] = ()) -> None:
        self.throttle_time_ms = throttle_time_ms
        self.topics = topics


REQUEST = DeleteRecordsRequest
RESPONSE = DeleteRecordsResponse
