"""Fetch, versions 4 to 18.

Written by scripts/generate_messages.py from kio 0.6.5, not by hand.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from foldlog.wire.schema import ZERO_UUID, Field, Message, Records, Request, Response


class ReplicaState(Message):
    """In versions 15 to 18."""

    __slots__ = (
        "replica_id",
        "replica_epoch",
    )
    SCHEMA: ClassVar[tuple[Field, ...]] = (
        Field("replica_id", "int32", 15, 18),
        Field("replica_epoch", "int64", 15, 18),
    )

    def __init__(self, *, replica_id: int = -1, replica_epoch: int = -1) -> None:
        self.replica_id = replica_id
        self.replica_epoch = replica_epoch


class FetchPartition(Message):
    """In versions 4 to 18."""

    __slots__ = (
        "partition",
        "current_leader_epoch",
        "fetch_offset",
        "last_fetched_epoch",
        "log_start_offset",
        "partition_max_bytes",
        "replica_directory_id",
        "high_watermark",
    )
    SCHEMA: ClassVar[tuple[Field, ...]] = (
        Field("partition", "int32", 4, 18),
        Field("current_leader_epoch", "int32", 9, 18),
        Field("fetch_offset", "int64", 4, 18),
        Field("last_fetched_epoch", "int32", 12, 18),
        Field("log_start_offset", "int64", 5, 18),
        Field("partition_max_bytes", "int32", 4, 18),
        Field("replica_directory_id", "uuid", 17, 18, tag=0),
        Field("high_watermark", "int64", 18, 18, tag=1),
    )

    def __init__(
        self,
        *,
        partition: int = 0,
        current_leader_epoch: int = -1,
        fetch_offset: int = 0,
        last_fetched_epoch: int = -1,
        log_start_offset: int = -1,
        partition_max_bytes: int = 0,
        replica_directory_id: bytes = ZERO_UUID,
        high_watermark: int = 9223372036854775807,
    ) -> None:
        self.partition = partition
        self.current_leader_epoch = current_leader_epoch
        self.fetch_offset = fetch_offset
        self.last_fetched_epoch = last_fetched_epoch
        self.log_start_offset = log_start_offset
        self.partition_max_bytes = partition_max_bytes
        self.replica_directory_id = replica_directory_id
        self.high_watermark = high_watermark


class FetchTopic(Message):
    """In versions 4 to 18."""

    __slots__ = (
        "topic",
        "topic_id",
        "partitions",
    )
    SCHEMA: ClassVar[tuple[Field, ...]] = (
        Field("topic", "string", 4, 12),
        Field("topic_id", "uuid", 13, 18),
        Field("partitions", "struct", 4, 18, item=FetchPartition, is_array=True),
    )

    def __init__(
        self, *, topic: str = "", topic_id: bytes = ZERO_UUID, partitions: Sequence[FetchPartition] = ()
    ) -> None:
        self.topic = topic
        self.topic_id = topic_id
        self.partitions = partitions


class ForgottenTopic(Message):
    """In versions 7 to 18."""

    __slots__ = (
        "topic",
        "topic_id",
        "partitions",
    )
    SCHEMA: ClassVar[tuple[Field, ...]] = (
        Field("topic", "string", 7, 12),
        Field("topic_id", "uuid", 13, 18),
        Field("partitions", "int32", 7, 18, is_array=True),
    )

    def __init__(self, *, topic: str = "", topic_id: bytes = ZERO_UUID, partitions: Sequence[int] = ()) -> None:
        self.topic = topic
        self.topic_id = topic_id
        self.partitions = partitions


class FetchRequest(Request):
    """In versions 4 to 18."""

    __slots__ = (
        "cluster_id",
        "replica_id",
        "replica_state",
        "max_wait_ms",
        "min_bytes",
        "max_bytes",
        "isolation_level",
        "session_id",
        "session_epoch",
        "topics",
        "forgotten_topics_data",
        "rack_id",
    )
    API_KEY: ClassVar[int] = 1
    VERSIONS: ClassVar[tuple[int, int]] = (4, 18)
    FLEXIBLE_FROM: ClassVar[int | None] = 12
    SCHEMA: ClassVar[tuple[Field, ...]] = (
        Field("cluster_id", "string", 12, 18, is_nullable=True, tag=0),
        Field("replica_id", "int32", 4, 14),
        Field("replica_state", "struct", 15, 18, item=ReplicaState, tag=1),
        Field("max_wait_ms", "int32", 4, 18),
        Field("min_bytes", "int32", 4, 18),
        Field("max_bytes", "int32", 4, 18),
        Field("isolation_level", "int8", 4, 18),
        Field("session_id", "int32", 7, 18),
        Field("session_epoch", "int32", 7, 18),
        Field("topics", "struct", 4, 18, item=FetchTopic, is_array=True),
        Field("forgotten_topics_data", "struct", 7, 18, item=ForgottenTopic, is_array=True),
        Field("rack_id", "string", 11, 18),
    )

    def __init__(
        self,
        *,
        cluster_id: str | None = None,
        replica_id: int = -1,
        replica_state: ReplicaState | None = None,
        max_wait_ms: int = 0,
        min_bytes: int = 0,
        max_bytes: int = 2147483647,
        isolation_level: int = 0,
        session_id: int = 0,
        session_epoch: int = -1,
        topics: Sequence[FetchTopic] = (),
        forgotten_topics_data: Sequence[ForgottenTopic] = (),
        rack_id: str = "",
    ) -> None:
        self.cluster_id = cluster_id
        self.replica_id = replica_id
        self.replica_state = replica_state
        self.max_wait_ms = max_wait_ms
        self.min_bytes = min_bytes
        self.max_bytes = max_bytes
        self.isolation_level = isolation_level
        self.session_id = session_id
        self.session_epoch = session_epoch
        self.topics = topics
        self.forgotten_topics_data = forgotten_topics_data
        self.rack_id = rack_id


class EpochEndOffset(Message):
    """In versions 12 to 18."""

    __slots__ = (
        "epoch",
        "end_offset",
    )
    SCHEMA: ClassVar[tuple[Field, ...]] = (
        Field("epoch", "int32", 12, 18),
        Field("end_offset", "int64", 12, 18),
    )

    def __init__(self, *, epoch: int = -1, end_offset: int = -1) -> None:
        self.epoch = epoch
        self.end_offset = end_offset


class LeaderIdAndEpoch(Message):
    """In versions 12 to 18."""

    __slots__ = (
        "leader_id",
        "leader_epoch",
    )
    SCHEMA: ClassVar[tuple[Field, ...]] = (
        Field("leader_id", "int32", 12, 18),
        Field("leader_epoch", "int32", 12, 18),
    )

    def __init__(self, *, leader_id: int = -1, leader_epoch: int = -1) -> None:
        self.leader_id = leader_id
        self.leader_epoch = leader_epoch


class SnapshotId(Message):
    """In versions 12 to 18."""

    __slots__ = (
        "end_offset",
        "epoch",
    )
    SCHEMA: ClassVar[tuple[Field, ...]] = (
        Field("end_offset", "int64", 12, 18),
        Field("epoch", "int32", 12, 18),
    )

    def __init__(self, *, end_offset: int = -1, epoch: int = -1) -> None:
        self.end_offset = end_offset
        self.epoch = epoch


class AbortedTransaction(Message):
    """In versions 4 to 18."""

    __slots__ = (
        "producer_id",
        "first_offset",
    )
    SCHEMA: ClassVar[tuple[Field, ...]] = (
        Field("producer_id", "int64", 4, 18),
        Field("first_offset", "int64", 4, 18),
    )

    def __init__(self, *, producer_id: int = 0, first_offset: int = 0) -> None:
        self.producer_id = producer_id
        self.first_offset = first_offset


class PartitionData(Message):
    """In versions 4 to 18."""

    __slots__ = (
        "partition_index",
        "error_code",
        "high_watermark",
        "last_stable_offset",
        "log_start_offset",
        "diverging_epoch",
        "current_leader",
        "snapshot_id",
        "aborted_transactions",
        "preferred_read_replica",
        "records",
    )
    SCHEMA: ClassVar[tuple[Field, ...]] = (
        Field("partition_index", "int32", 4, 18),
        Field("error_code", "int16", 4, 18),
        Field("high_watermark", "int64", 4, 18),
        Field("last_stable_offset", "int64", 4, 18),
        Field("log_start_offset", "int64", 5, 18),
        Field("diverging_epoch", "struct", 12, 18, item=EpochEndOffset, tag=0),
        Field("current_leader", "struct", 12, 18, item=LeaderIdAndEpoch, tag=1),
        Field("snapshot_id", "struct", 12, 18, item=SnapshotId, tag=2),
        Field("aborted_transactions", "struct", 4, 18, item=AbortedTransaction, is_array=True, is_nullable=True),
        Field("preferred_read_replica", "int32", 11, 18),
        Field("records", "records", 4, 18, is_nullable=True),
    )

    def __init__(
        self,
        *,
        partition_index: int = 0,
        error_code: int = 0,
        high_watermark: int = 0,
        last_stable_offset: int = -1,
        log_start_offset: int = -1,
        diverging_epoch: EpochEndOffset | None = None,
        current_leader: LeaderIdAndEpoch | None = None,
        snapshot_id: SnapshotId | None = None,
        aborted_transactions: Sequence[AbortedTransaction] | None = (),
        preferred_read_replica: int = -1,
        records: Records | None = b"",
    ) -> None:
        self.partition_index = partition_index
        self.error_code = error_code
        self.high_watermark = high_watermark
        self.last_stable_offset = last_stable_offset
        self.log_start_offset = log_start_offset
        self.diverging_epoch = diverging_epoch
        self.current_leader = current_leader
        self.snapshot_id = snapshot_id
        self.aborted_transactions = aborted_transactions
        self.preferred_read_replica = preferred_read_replica
        self.records = records


class FetchableTopicResponse(Message):
    """In versions 4 to 18."""

    __slots__ = (
        "topic",
        "topic_id",
        "partitions",
    )
    SCHEMA: ClassVar[tuple[Field, ...]] = (
        Field("topic", "string", 4, 12),
        Field("topic_id", "uuid", 13, 18),
        Field("partitions", "struct", 4, 18, item=PartitionData, is_array=True),
    )

    def __init__(
        self, *, topic: str = "", topic_id: bytes = ZERO_UUID, partitions: Sequence[PartitionData] = ()
    ) -> None:
        self.topic = topic
        self.topic_id = topic_id
        self.partitions = partitions


class NodeEndpoint(Message):
    """In versions 16 to 18."""

    __slots__ = (
        "node_id",
        "host",
        "port",
        "rack",
    )
    SCHEMA: ClassVar[tuple[Field, ...]] = (
        Field("node_id", "int32", 16, 18),
        Field("host", "string", 16, 18),
        Field("port", "int32", 16, 18),
        Field("rack", "string", 16, 18, is_nullable=True),
    )

    def __init__(self, *, node_id: int = 0, host: str = "", port: int = 0, rack: str | None = None) -> None:
        self.node_id = node_id
        self.host = host
        self.port = port
        self.rack = rack


class FetchResponse(Response):
    """In versions 4 to 18."""

    __slots__ = (
        "throttle_time_ms",
        "error_code",
        "session_id",
        "responses",
        "node_endpoints",
    )
    API_KEY: ClassVar[int] = 1
    VERSIONS: ClassVar[tuple[int, int]] = (4, 18)
    FLEXIBLE_FROM: ClassVar[int | None] = 12
    SCHEMA: ClassVar[tuple[Field, ...]] = (
        Field("throttle_time_ms", "int32", 4, 18),
        Field("error_code", "int16", 7, 18),
        Field("session_id", "int32", 7, 18),
        Field("responses", "struct", 4, 18, item=FetchableTopicResponse, is_array=True),
        Field("node_endpoints", "struct", 16, 18, item=NodeEndpoint, is_array=True, tag=0),
    )

    def __init__(
        self,
        *,
        throttle_time_ms: int = 0,
        error_code: int = 0,
        session_id: int = 0,
        responses: Sequence[FetchableTopicResponse] = (),
        node_endpoints: Sequence[NodeEndpoint] = (),
    ) -> None:
        self.throttle_time_ms = throttle_time_ms
        self.error_code = error_code
        self.session_id = session_id
        self.responses = responses
        self.node_endpoints = node_endpoints


REQUEST = FetchRequest
RESPONSE = FetchResponse
