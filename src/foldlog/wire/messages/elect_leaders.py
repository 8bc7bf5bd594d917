"""ElectLeaders, generated from the schemas of Apache Kafka 4.4.0 by scripts/generate_messages.py."""

from __future__ import annotations

from collections.abc import Sequence

from foldlog.wire.schema import Message, Request, Response, field


class TopicPartitions(Message):
    topic: str = field("string", 0, 2, default="")
    partitions: Sequence[int] = field("int32", 0, 2, is_array=True, default=())


class ElectLeadersRequest(Request, api_key=43, versions=(0, 2), flexible_from=2):
    election_type: int = field("int8", 1, 2, default=0)
    topic_partitions: Sequence[TopicPartitions] | None = field(
        TopicPartitions, 0, 2, is_array=True, nullable_from=0, default=()
    )
    timeout_ms: int = field("int32", 0, 2, default=60000)


class PartitionResult(Message):
    partition_id: int = field("int32", 0, 2, default=0)
    error_code: int = field("int16", 0, 2, default=0)
    error_message: str | None = field("string", 0, 2, nullable_from=0, default="")


class ReplicaElectionResult(Message):
    topic: str = field("string", 0, 2, default="")
    partition_result: Sequence[PartitionResult] = field(PartitionResult, 0, 2, is_array=True, default=())


class ElectLeadersResponse(Response, api_key=43, versions=(0, 2), flexible_from=2):
    throttle_time_ms: int = field("int32", 0, 2, default=0)
    error_code: int = field("int16", 1, 2, default=0)
    replica_election_results: Sequence[ReplicaElectionResult] = field(
        ReplicaElectionResult, 0, 2, is_array=True, default=()
    )


REQUEST = ElectLeadersRequest
RESPONSE = ElectLeadersResponse
