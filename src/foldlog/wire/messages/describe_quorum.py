"""DescribeQuorum, generated from the schemas of Apache Kafka 4.4.0 by scripts/generate_messages.py."""

from __future__ import annotations

from collections.abc import Sequence

from foldlog.wire.schema import ZERO_UUID, Message, Request, Response, field


class PartitionData(Message):
    partition_index: int = field("int32", 0, 2, default=0)


class TopicData(Message):
    topic_name: str = field("string", 0, 2, default="")
    partitions: Sequence[PartitionData] = field(PartitionData, 0, 2, is_array=True, default=())


class DescribeQuorumRequest(Request, api_key=55, versions=(0, 2), flexible_from=0):
    topics: Sequence[TopicData] = field(TopicData, 0, 2, is_array=True, default=())


class ReplicaState(Message):
    replica_id: int = field("int32", 0, 2, default=0)
    replica_directory_id: bytes = field("uuid", 2, 2, default=ZERO_UUID)
    log_end_offset: int = field("int64", 0, 2, default=0)
    last_fetch_timestamp: int = field("int64", 1, 2, default=-1)
    last_caught_up_timestamp: int = field("int64", 1, 2, default=-1)


class PartitionDataResult(Message):
    partition_index: int = field("int32", 0, 2, default=0)
    error_code: int = field("int16", 0, 2, default=0)
    error_message: str | None = field("string", 2, 2, nullable_from=2, default="")
    leader_id: int = field("int32", 0, 2, default=0)
    leader_epoch: int = field("int32", 0, 2, default=0)
    high_watermark: int = field("int64", 0, 2, default=0)
    current_voters: Sequence[ReplicaState] = field(ReplicaState, 0, 2, is_array=True, default=())
    observers: Sequence[ReplicaState] = field(ReplicaState, 0, 2, is_array=True, default=())


class TopicDataResult(Message):
    topic_name: str = field("string", 0, 2, default="")
    partitions: Sequence[PartitionDataResult] = field(PartitionDataResult, 0, 2, is_array=True, default=())


class Listener(Message):
    name: str = field("string", 2, 2, default="")
    host: str = field("string", 2, 2, default="")
    port: int = field("uint16", 2, 2, default=0)


class Node(Message):
    node_id: int = field("int32", 2, 2, default=0)
    listeners: Sequence[Listener] = field(Listener, 2, 2, is_array=True, default=())


class DescribeQuorumResponse(Response, api_key=55, versions=(0, 2), flexible_from=0):
    error_code: int = field("int16", 0, 2, default=0)
    error_message: str | None = field("string", 2, 2, nullable_from=2, default="")
    topics: Sequence[TopicDataResult] = field(TopicDataResult, 0, 2, is_array=True, default=())
    nodes: Sequence[Node] = field(Node, 2, 2, is_array=True, default=())


REQUEST = DescribeQuorumRequest
RESPONSE = DescribeQuorumResponse
