"""WriteTxnMarkers, generated from the schemas of Apache Kafka 4.4.0 by scripts/generate_messages.py."""

from __future__ import annotations

from collections.abc import Sequence

from foldlog.wire.schema import Message, Request, Response, field


class WritableTxnMarkerTopic(Message):
    name: str = field("string", 1, 2, default="")
    partition_indexes: Sequence[int] = field("int32", 1, 2, is_array=True, default=())


class WritableTxnMarker(Message):
    producer_id: int = field("int64", 1, 2, default=0)
    producer_epoch: int = field("int16", 1, 2, default=0)
    transaction_result: bool = field("bool", 1, 2, default=False)
    topics: Sequence[WritableTxnMarkerTopic] = field(WritableTxnMarkerTopic, 1, 2, is_array=True, default=())
    coordinator_epoch: int = field("int32", 1, 2, default=0)
    transaction_version: int = field("int8", 2, 2, default=0)


class WriteTxnMarkersRequest(Request, api_key=27, versions=(1, 2), flexible_from=1):
    markers: Sequence[WritableTxnMarker] = field(WritableTxnMarker, 1, 2, is_array=True, default=())


class WritableTxnMarkerPartitionResult(Message):
    partition_index: int = field("int32", 1, 2, default=0)
    error_code: int = field("int16", 1, 2, default=0)


class WritableTxnMarkerTopicResult(Message):
    name: str = field("string", 1, 2, default="")
    partitions: Sequence[WritableTxnMarkerPartitionResult] = field(
        WritableTxnMarkerPartitionResult, 1, 2, is_array=True, default=()
    )


class WritableTxnMarkerResult(Message):
    producer_id: int = field("int64", 1, 2, default=0)
    topics: Sequence[WritableTxnMarkerTopicResult] = field(
        WritableTxnMarkerTopicResult, 1, 2, is_array=True, default=()
    )


class WriteTxnMarkersResponse(Response, api_key=27, versions=(1, 2), flexible_from=1):
    markers: Sequence[WritableTxnMarkerResult] = field(WritableTxnMarkerResult, 1, 2, is_array=True, default=())


REQUEST = WriteTxnMarkersRequest
RESPONSE = WriteTxnMarkersResponse
