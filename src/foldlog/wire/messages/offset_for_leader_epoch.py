"""OffsetForLeaderEpoch, versions 2 to 4.

Written by scripts/generate_messages.py from kio 0.6.5, not by hand.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from foldlog.wire.schema import Field, Message, Request, Response


class OffsetForLeaderPartition(Message):
    """In versions 2 to 4."""

    __slots__ = (
        "partition",
        "current_leader_epoch",
        "leader_epoch",
    )
    SCHEMA: ClassVar[tuple[Field, ...]] = (
        Field("partition", "int32", 2, 4),
        Field("current_leader_epoch", "int32", 2, 4),
        Field("leader_epoch", "int32", 2, 4),
    )

    def __init__(self, *, partition: int = 0, current_leader_epoch: int = -1, leader_epoch: int = 0) -> None:
        self.partition = partition
        self.current_leader_epoch = current_leader_epoch
        self.leader_epoch = leader_epoch


class OffsetForLeaderTopic(Message):
    """In versions 2 to 4."""

    __slots__ = (
        "topic",
        "partitions",
    )
    SCHEMA: ClassVar[tuple[Field, ...]] = (
        Field("topic", "string", 2, 4),
        Field("partitions", "struct", 2, 4, item=OffsetForLeaderPartition, is_array=True),
    )

    def __init__(self, *, topic: str = "", partitions: Sequence[OffsetForLeaderPartition] = ()) -> None:
        self.topic = topic
        self.partitions = partitions


class OffsetForLeaderEpochRequest(Request):
    """In versions 2 to 4."""

    __slots__ = (
        "replica_id",
        "topics",
    )
    API_KEY: ClassVar[int] = 23
    VERSIONS: ClassVar[tuple[int, int]] = (2, 4)
    FLEXIBLE_FROM: ClassVar[int | None] = 4
    SCHEMA: ClassVar[tuple[Field, ...]] = (
        Field("replica_id", "int32", 3, 4),
        Field("topics", "struct", 2, 4, item=OffsetForLeaderTopic, is_array=True),
    )

    def __init__(self, *, replica_id: int = -2, topics: Sequence[OffsetForLeaderTopic] = ()) -> None:
        self.replica_id = replica_id
        self.topics = topics


class EpochEndOffset(Message):
    """In versions 2 to 4."""

    __slots__ = (
        "error_code",
        "partition",
        "leader_epoch",
        "end_offset",
    )
    SCHEMA: ClassVar[tuple[Field, ...]] = (
        Field("error_code", "int16", 2, 4),
        Field("partition", "int32", 2, 4),
        Field("leader_epoch", "int32", 2, 4),
        Field("end_offset", "int64", 2, 4),
    )

    def __init__(
        self, *, error_code: int = 0, partition: int = 0, leader_epoch: int = -1, end_offset: int = -1
    ) -> None:
        self.error_code = error_code
        self.partition = partition
        self.leader_epoch = leader_epoch
        self.end_offset = end_offset


class OffsetForLeaderTopicResult(Message):
    """In versions 2 to 4."""

    __slots__ = (
        "topic",
        "partitions",
    )
    SCHEMA: ClassVar[tuple[Field, ...]] = (
        Field("topic", "string", 2, 4),
        Field("partitions", "struct", 2, 4, item=EpochEndOffset, is_array=True),
    )

    def __init__(self, *, topic: str = "", partitions: Sequence[EpochEndOffset] = ()) -> None:
        self.topic = topic
        self.partitions = partitions


class OffsetForLeaderEpochResponse(Response):
    """In versions 2 to 4."""

    __slots__ = (
        "throttle_time_ms",
        "topics",
    )
    API_KEY: ClassVar[int] = 23
    VERSIONS: ClassVar[tuple[int, int]] = (2, 4)
    FLEXIBLE_FROM: ClassVar[int | None] = 4
    SCHEMA: ClassVar[tuple[Field, ...]] = (
        Field("throttle_time_ms", "int32", 2, 4),
        Field("topics", "struct", 2, 4, item=OffsetForLeaderTopicResult, is_array=True),
    )

    def __init__(self, *, throttle_time_ms: int = 0, topics: Sequence[OffsetForLeaderTopicResult] = ()) -> None:
        self.throttle_time_ms = throttle_time_ms
        self.topics = topics


REQUEST = OffsetForLeaderEpochRequest
RESPONSE = OffsetForLeaderEpochResponse
