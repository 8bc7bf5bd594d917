"""OffsetForLeaderEpoch, generated from the schemas of Apache Kafka 4.4.0 by scripts/generate_messages.py."""

from __future__ import annotations

from collections.abc import Sequence

from foldlog.wire.schema import Message, Request, Response, field


class OffsetForLeaderPartition(Message):
    partition: int = field("int32", 2, 4, default=0)
    current_leader_epoch: int = field("int32", 2, 4, default=-1)
    leader_epoch: int = field("int32", 2, 4, default=0)


class OffsetForLeaderTopic(Message):
    topic: str = field("string", 2, 4, default="")
    partitions: Sequence[OffsetForLeaderPartition] = field(OffsetForLeaderPartition, 2, 4, is_array=True, default=())


class OffsetForLeaderEpochRequest(Request, api_key=23, versions=(2, 4), flexible_from=4):
    replica_id: int = field("int32", 3, 4, default=-2)
    topics: Sequence[OffsetForLeaderTopic] = field(OffsetForLeaderTopic, 2, 4, is_array=True, default=())


class EpochEndOffset(Message):
    error_code: int = field("int16", 2, 4, default=0)
    partition: int = field("int32", 2, 4, default=0)
    leader_epoch: int = field("int32", 2, 4, default=-1)
    end_offset: int = field("int64", 2, 4, default=-1)


class OffsetForLeaderTopicResult(Message):
    topic: str = field("string", 2, 4, default="")
    partitions: Sequence[EpochEndOffset] = field(EpochEndOffset, 2, 4, is_array=True, default=())


class OffsetForLeaderEpochResponse(Response, api_key=23, versions=(2, 4), flexible_from=4):
    throttle_time_ms: int = field("int32", 2, 4, default=0)
    topics: Sequence[OffsetForLeaderTopicResult] = field(OffsetForLeaderTopicResult, 2, 4, is_array=True, default=())


REQUEST = OffsetForLeaderEpochRequest
RESPONSE = OffsetForLeaderEpochResponse
