"""OffsetDelete, generated from the schemas of Apache Kafka 4.4.0 by scripts/generate_messages.py."""

from __future__ import annotations

from collections.abc import Sequence

from foldlog.wire.schema import Message, Request, Response, field


class OffsetDeleteRequestPartition(Message):
    partition_index: int = field("int32", 0, 0, default=0)


class OffsetDeleteRequestTopic(Message):
    name: str = field("string", 0, 0, default="")
    partitions: Sequence[OffsetDeleteRequestPartition] = field(
        OffsetDeleteRequestPartition, 0, 0, is_array=True, default=()
    )


class OffsetDeleteRequest(Request, api_key=47, versions=(0, 0), flexible_from=None):
    group_id: str = field("string", 0, 0, default="")
    topics: Sequence[OffsetDeleteRequestTopic] = field(OffsetDeleteRequestTopic, 0, 0, is_array=True, default=())


class OffsetDeleteResponsePartition(Message):
    partition_index: int = field("int32", 0, 0, default=0)
    error_code: int = field("int16", 0, 0, default=0)


class OffsetDeleteResponseTopic(Message):
    name: str = field("string", 0, 0, default="")
    partitions: Sequence[OffsetDeleteResponsePartition] = field(
        OffsetDeleteResponsePartition, 0, 0, is_array=True, default=()
    )


class OffsetDeleteResponse(Response, api_key=47, versions=(0, 0), flexible_from=None):
    error_code: int = field("int16", 0, 0, default=0)
    throttle_time_ms: int = field("int32", 0, 0, default=0)
    topics: Sequence[OffsetDeleteResponseTopic] = field(OffsetDeleteResponseTopic, 0, 0, is_array=True, default=())


REQUEST = OffsetDeleteRequest
RESPONSE = OffsetDeleteResponse
