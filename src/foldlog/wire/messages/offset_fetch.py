"""OffsetFetch, generated from the schemas of Apache Kafka 4.4.0 by scripts/generate_messages.py."""

from __future__ import annotations

from collections.abc import Sequence

from foldlog.wire.schema import ZERO_UUID, Message, Request, Response, field


class OffsetFetchRequestTopic(Message):
    name: str = field("string", 1, 7, default="")
    partition_indexes: Sequence[int] = field("int32", 1, 7, is_array=True, default=())


class OffsetFetchRequestTopics(Message):
    name: str = field("string", 8, 9, default="")
    topic_id: bytes = field("uuid", 10, 10, default=ZERO_UUID)
    partition_indexes: Sequence[int] = field("int32", 8, 10, is_array=True, default=())


class OffsetFetchRequestGroup(Message):
    group_id: str = field("string", 8, 10, default="")
    member_id: str | None = field("string", 9, 10, nullable_from=9, default=None)
    member_epoch: int = field("int32", 9, 10, default=-1)
    topics: Sequence[OffsetFetchRequestTopics] | None = field(
        OffsetFetchRequestTopics, 8, 10, is_array=True, nullable_from=8, default=()
    )


class OffsetFetchRequest(Request, api_key=9, versions=(1, 10), flexible_from=6):
    group_id: str = field("string", 1, 7, default="")
    topics: Sequence[OffsetFetchRequestTopic] | None = field(
        OffsetFetchRequestTopic, 1, 7, is_array=True, nullable_from=2, default=()
    )
    groups: Sequence[OffsetFetchRequestGroup] = field(OffsetFetchRequestGroup, 8, 10, is_array=True, default=())
    require_stable: bool = field("bool", 7, 10, default=False)


class OffsetFetchResponsePartition(Message):
    partition_index: int = field("int32", 1, 7, default=0)
    committed_offset: int = field("int64", 1, 7, default=0)
    committed_leader_epoch: int = field("int32", 5, 7, default=-1)
    metadata: str | None = field("string", 1, 7, nullable_from=1, default="")
    error_code: int = field("int16", 1, 7, default=0)


class OffsetFetchResponseTopic(Message):
    name: str = field("string", 1, 7, default="")
    partitions: Sequence[OffsetFetchResponsePartition] = field(
        OffsetFetchResponsePartition, 1, 7, is_array=True, default=()
    )


class OffsetFetchResponsePartitions(Message):
    partition_index: int = field("int32", 8, 10, default=0)
    committed_offset: int = field("int64", 8, 10, default=0)
    committed_leader_epoch: int = field("int32", 8, 10, default=-1)
    metadata: str | None = field("string", 8, 10, nullable_from=8, default="")
    error_code: int = field("int16", 8, 10, default=0)


class OffsetFetchResponseTopics(Message):
    name: str = field("string", 8, 9, default="")
    topic_id: bytes = field("uuid", 10, 10, default=ZERO_UUID)
    partitions: Sequence[OffsetFetchResponsePartitions] = field(
        OffsetFetchResponsePartitions, 8, 10, is_array=True, default=()
    )


class OffsetFetchResponseGroup(Message):
    group_id: str = field("string", 8, 10, default="")
    topics: Sequence[OffsetFetchResponseTopics] = field(OffsetFetchResponseTopics, 8, 10, is_array=True, default=())
    error_code: int = field("int16", 8, 10, default=0)


class OffsetFetchResponse(Response, api_key=9, versions=(1, 10), flexible_from=6):
    throttle_time_ms: int = field("int32", 3, 10, default=0)
    topics: Sequence[OffsetFetchResponseTopic] = field(OffsetFetchResponseTopic, 1, 7, is_array=True, default=())
    error_code: int = field("int16", 2, 7, default=0)
    groups: Sequence[OffsetFetchResponseGroup] = field(OffsetFetchResponseGroup, 8, 10, is_array=True, default=())


REQUEST = OffsetFetchRequest
RESPONSE = OffsetFetchResponse
