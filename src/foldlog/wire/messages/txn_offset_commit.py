"""TxnOffsetCommit, generated from the schemas of Apache Kafka 4.4.0 by scripts/generate_messages.py."""

from __future__ import annotations

from collections.abc import Sequence

from foldlog.wire.schema import ZERO_UUID, Message, Request, Response, field


class TxnOffsetCommitRequestPartition(Message):
    partition_index: int = field("int32", 0, 6, default=0)
    committed_offset: int = field("int64", 0, 6, default=0)
    committed_leader_epoch: int = field("int32", 2, 6, default=-1)
    committed_metadata: str | None = field("string", 0, 6, nullable_from=0, default="")


class TxnOffsetCommitRequestTopic(Message):
    name: str = field("string", 0, 5, default="")
    topic_id: bytes = field("uuid", 6, 6, default=ZERO_UUID)
    partitions: Sequence[TxnOffsetCommitRequestPartition] = field(
        TxnOffsetCommitRequestPartition, 0, 6, is_array=True, default=()
    )


class TxnOffsetCommitRequest(Request, api_key=28, versions=(0, 6), flexible_from=3):
    transactional_id: str = field("string", 0, 6, default="")
    group_id: str = field("string", 0, 6, default="")
    producer_id: int = field("int64", 0, 6, default=0)
    producer_epoch: int = field("int16", 0, 6, default=0)
    generation_id_or_member_epoch: int = field("int32", 3, 6, default=-1)
    member_id: str = field("string", 3, 6, default="")
    group_instance_id: str | None = field("string", 3, 6, nullable_from=3, default=None)
    topics: Sequence[TxnOffsetCommitRequestTopic] = field(TxnOffsetCommitRequestTopic, 0, 6, is_array=True, default=())


class TxnOffsetCommitResponsePartition(Message):
    partition_index: int = field("int32", 0, 6, default=0)
    error_code: int = field("int16", 0, 6, default=0)


class TxnOffsetCommitResponseTopic(Message):
    name: str = field("string", 0, 5, default="")
    topic_id: bytes = field("uuid", 6, 6, default=ZERO_UUID)
    partitions: Sequence[TxnOffsetCommitResponsePartition] = field(
        TxnOffsetCommitResponsePartition, 0, 6, is_array=True, default=()
    )


class TxnOffsetCommitResponse(Response, api_key=28, versions=(0, 6), flexible_from=3):
    throttle_time_ms: int = field("int32", 0, 6, default=0)
    topics: Sequence[TxnOffsetCommitResponseTopic] = field(
        TxnOffsetCommitResponseTopic, 0, 6, is_array=True, default=()
    )


REQUEST = TxnOffsetCommitRequest
RESPONSE = TxnOffsetCommitResponse
