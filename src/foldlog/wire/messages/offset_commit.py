"""OffsetCommit, generated from the schemas of Apache Kafka 4.4.0 by scripts/generate_messages.py."""

from __future__ import annotations

from collections.abc import Sequence

from foldlog.wire.schema import ZERO_UUID, Message, Request, Response, field


class OffsetCommitRequestPartition(Message):
    partition_index: int = field("int32", 2, 10, default=0)
    committed_offset: int = field("int64", 2, 10, default=0)
    committed_leader_epoch: int = field("int32", 6, 10, default=-1)
    committed_metadata: str | None = field("string", 2, 10, nullable_from=2, default="")


class OffsetCommitRequestTopic(Message):
    name: str = field("string", 2, 9, default="")
    topic_id: bytes = field("uuid", 10, 10, default=ZERO_UUID)
    partitions: Sequence[OffsetCommitRequestPartition] = field(
        OffsetCommitRequestPartition, 2, 10, is_array=True, default=()
    )


class OffsetCommitRequest(Request, api_key=8, versions=(2, 10), flexible_from=8):
    group_id: str = field("string", 2, 10, default="")
    generation_id_or_member_epoch: int = field("int32", 2, 10, default=-1)
    member_id: str = field("string", 2, 10, default="")
    group_instance_id: str | None = field("string", 7, 10, nullable_from=7, default=None)
    retention_time_ms: int = field("int64", 2, 4, default=-1)
    topics: Sequence[OffsetCommitRequestTopic] = field(OffsetCommitRequestTopic, 2, 10, is_array=True, default=())


class OffsetCommitResponsePartition(Message):
    partition_index: int = field("int32", 2, 10, default=0)
    error_code: int = field("int16", 2, 10, default=0)


class OffsetCommitResponseTopic(Message):
    name: str = field("string", 2, 9, default="")
    topic_id: bytes = field("uuid", 10, 10, default=ZERO_UUID)
    partitions: Sequence[OffsetCommitResponsePartition] = field(
        OffsetCommitResponsePartition, 2, 10, is_array=True, default=()
    )


class OffsetCommitResponse(Response, api_key=8, versions=(2, 10), flexible_from=8):
    throttle_time_ms: int = field("int32", 3, 10, default=0)
    topics: Sequence[OffsetCommitResponseTopic] = field(OffsetCommitResponseTopic, 2, 10, is_array=True, default=())


REQUEST = OffsetCommitRequest
RESPONSE = OffsetCommitResponse
