"""ShareAcknowledge, generated from the schemas of Apache Kafka 4.4.0 by scripts/generate_messages.py."""

from __future__ import annotations

from collections.abc import Sequence

from foldlog.wire.schema import ZERO_UUID, Message, Request, Response, field


class AcknowledgementBatch(Message):
    first_offset: int = field("int64", 1, 2, default=0)
    last_offset: int = field("int64", 1, 2, default=0)
    acknowledge_types: Sequence[int] = field("int8", 1, 2, is_array=True, default=())


class AcknowledgePartition(Message):
    partition_index: int = field("int32", 1, 2, default=0)
    acknowledgement_batches: Sequence[AcknowledgementBatch] = field(
        AcknowledgementBatch, 1, 2, is_array=True, default=()
    )


class AcknowledgeTopic(Message):
    topic_id: bytes = field("uuid", 1, 2, default=ZERO_UUID)
    partitions: Sequence[AcknowledgePartition] = field(AcknowledgePartition, 1, 2, is_array=True, default=())


class ShareAcknowledgeRequest(Request, api_key=79, versions=(1, 2), flexible_from=1):
    group_id: str | None = field("string", 1, 2, nullable_from=1, default=None)
    member_id: str | None = field("string", 1, 2, nullable_from=1, default="")
    share_session_epoch: int = field("int32", 1, 2, default=0)
    is_renew_ack: bool = field("bool", 2, 2, default=False)
    topics: Sequence[AcknowledgeTopic] = field(AcknowledgeTopic, 1, 2, is_array=True, default=())


class LeaderIdAndEpoch(Message):
    leader_id: int = field("int32", 1, 2, default=0)
    leader_epoch: int = field("int32", 1, 2, default=0)


class PartitionData(Message):
    partition_index: int = field("int32", 1, 2, default=0)
    error_code: int = field("int16", 1, 2, default=0)
    error_message: str | None = field("string", 1, 2, nullable_from=1, default=None)
    current_leader: LeaderIdAndEpoch = field(LeaderIdAndEpoch, 1, 2, default=None)


class ShareAcknowledgeTopicResponse(Message):
    topic_id: bytes = field("uuid", 1, 2, default=ZERO_UUID)
    partitions: Sequence[PartitionData] = field(PartitionData, 1, 2, is_array=True, default=())


class NodeEndpoint(Message):
    node_id: int = field("int32", 1, 2, default=0)
    host: str = field("string", 1, 2, default="")
    port: int = field("int32", 1, 2, default=0)
    rack: str | None = field("string", 1, 2, nullable_from=1, default=None)


class ShareAcknowledgeResponse(Response, api_key=79, versions=(1, 2), flexible_from=1):
    throttle_time_ms: int = field("int32", 1, 2, default=0)
    error_code: int = field("int16", 1, 2, default=0)
    error_message: str | None = field("string", 1, 2, nullable_from=1, default=None)
    acquisition_lock_timeout_ms: int = field("int32", 2, 2, default=0)
    responses: Sequence[ShareAcknowledgeTopicResponse] = field(
        ShareAcknowledgeTopicResponse, 1, 2, is_array=True, default=()
    )
    node_endpoints: Sequence[NodeEndpoint] = field(NodeEndpoint, 1, 2, is_array=True, default=())


REQUEST = ShareAcknowledgeRequest
RESPONSE = ShareAcknowledgeResponse
