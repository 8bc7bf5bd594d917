"""Fetch, generated from the schemas of Apache Kafka 4.4.0 by scripts/generate_messages.py."""

from __future__ import annotations

from collections.abc import Sequence

from foldlog.wire.schema import ZERO_UUID, Message, Records, Request, Response, field


class ReplicaState(Message):
    replica_id: int = field("int32", 15, 18, default=-1)
    replica_epoch: int = field("int64", 15, 18, default=-1)


class FetchPartition(Message):
    partition: int = field("int32", 4, 18, default=0)
    current_leader_epoch: int = field("int32", 9, 18, default=-1)
    fetch_offset: int = field("int64", 4, 18, default=0)
    last_fetched_epoch: int = field("int32", 12, 18, default=-1)
    log_start_offset: int = field("int64", 5, 18, default=-1)
    partition_max_bytes: int = field("int32", 4, 18, default=0)
    replica_directory_id: bytes = field("uuid", 17, 18, tag=0, default=ZERO_UUID)
    high_watermark: int = field("int64", 18, 18, tag=1, default=9223372036854775807)


class FetchTopic(Message):
    topic: str = field("string", 4, 12, default="")
    topic_id: bytes = field("uuid", 13, 18, default=ZERO_UUID)
    partitions: Sequence[FetchPartition] = field(FetchPartition, 4, 18, is_array=True, default=())


class ForgottenTopic(Message):
    topic: str = field("string", 7, 12, default="")
    topic_id: bytes = field("uuid", 13, 18, default=ZERO_UUID)
    partitions: Sequence[int] = field("int32", 7, 18, is_array=True, default=())


class FetchRequest(Request, api_key=1, versions=(4, 18), flexible_from=12):
    cluster_id: str | None = field("string", 12, 18, nullable_from=12, tag=0, default=None)
    replica_id: int = field("int32", 4, 14, default=-1)
    replica_state: ReplicaState | None = field(ReplicaState, 15, 18, tag=1, default=None)
    max_wait_ms: int = field("int32", 4, 18, default=0)
    min_bytes: int = field("int32", 4, 18, default=0)
    max_bytes: int = field("int32", 4, 18, default=2147483647)
    isolation_level: int = field("int8", 4, 18, default=0)
    session_id: int = field("int32", 7, 18, default=0)
    session_epoch: int = field("int32", 7, 18, default=-1)
    topics: Sequence[FetchTopic] = field(FetchTopic, 4, 18, is_array=True, default=())
    forgotten_topics_data: Sequence[ForgottenTopic] = field(ForgottenTopic, 7, 18, is_array=True, default=())
    rack_id: str = field("string", 11, 18, default="")


class EpochEndOffset(Message):
    epoch: int = field("int32", 12, 18, default=-1)
    end_offset: int = field("int64", 12, 18, default=-1)


class LeaderIdAndEpoch(Message):
    leader_id: int = field("int32", 12, 18, default=-1)
    leader_epoch: int = field("int32", 12, 18, default=-1)


class SnapshotId(Message):
    end_offset: int = field("int64", 12, 18, default=-1)
    epoch: int = field("int32", 12, 18, default=-1)


class AbortedTransaction(Message):
    producer_id: int = field("int64", 4, 18, default=0)
    first_offset: int = field("int64", 4, 18, default=0)


class PartitionData(Message):
    partition_index: int = field("int32", 4, 18, default=0)
    error_code: int = field("int16", 4, 18, default=0)
    high_watermark: int = field("int64", 4, 18, default=0)
    last_stable_offset: int = field("int64", 4, 18, default=-1)
    log_start_offset: int = field("int64", 5, 18, default=-1)
    diverging_epoch: EpochEndOffset | None = field(EpochEndOffset, 12, 18, tag=0, default=None)
    current_leader: LeaderIdAndEpoch | None = field(LeaderIdAndEpoch, 12, 18, tag=1, default=None)
    snapshot_id: SnapshotId | None = field(SnapshotId, 12, 18, tag=2, default=None)
    aborted_transactions: Sequence[AbortedTransaction] | None = field(
        AbortedTransaction, 4, 18, is_array=True, nullable_from=4, default=()
    )
    preferred_read_replica: int = field("int32", 11, 18, default=-1)
    records: Records | None = field("records", 4, 18, nullable_from=4, default=b"")


class FetchableTopicResponse(Message):
    topic: str = field("string", 4, 12, default="")
    topic_id: bytes = field("uuid", 13, 18, default=ZERO_UUID)
    partitions: Sequence[PartitionData] = field(PartitionData, 4, 18, is_array=True, default=())


class NodeEndpoint(Message):
    node_id: int = field("int32", 16, 18, default=0)
    host: str = field("string", 16, 18, default="")
    port: int = field("int32", 16, 18, default=0)
    rack: str | None = field("string", 16, 18, nullable_from=16, default=None)


class FetchResponse(Response, api_key=1, versions=(4, 18), flexible_from=12):
    throttle_time_ms: int = field("int32", 4, 18, default=0)
    error_code: int = field("int16", 7, 18, default=0)
    session_id: int = field("int32", 7, 18, default=0)
    responses: Sequence[FetchableTopicResponse] = field(FetchableTopicResponse, 4, 18, is_array=True, default=())
    node_endpoints: Sequence[NodeEndpoint] = field(NodeEndpoint, 16, 18, is_array=True, tag=0, default=())


REQUEST = FetchRequest
RESPONSE = FetchResponse
