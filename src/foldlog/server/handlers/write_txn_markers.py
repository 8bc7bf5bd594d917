"""WriteTxnMarkers, versions 1 and 2: ends transactions in some partitions, whatever their coordinator thinks.

Brokers of a cluster send it to each other; here only operators do, for a transaction that hangs (`kafka-transactions
abort`). 2: the transaction version of the marker. Answered when the markers are durable.
"""

from __future__ import annotations

from foldlog.broker.groups.committed import TopicPartition
from foldlog.errors import FoldlogError
from foldlog.server.authorizer import AclOperation, ResourceType
from foldlog.server.call import Call
from foldlog.wire.error_codes import ErrorCode, code_of
from foldlog.wire.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)


async def handle(call: Call, request: WriteTxnMarkersRequest) -> WriteTxnMarkersResponse:
    operations = (AclOperation.ALTER, AclOperation.CLUSTER_ACTION)
    if not any(call.allows(operation, ResourceType.CLUSTER) for operation in operations):
        refused = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        return WriteTxnMarkersResponse(
            markers=[_result(marker, dict.fromkeys(_keys(marker), refused)) for marker in request.markers]
        )
    return WriteTxnMarkersResponse(
        markers=[_result(marker, await call.node.run(_write, call, marker)) for marker in request.markers]
    )


def _keys(marker: WritableTxnMarker) -> list[TopicPartition]:
    return list(dict.fromkeys((topic.name, number) for topic in marker.topics for number in topic.partition_indexes))


def _write(call: Call, marker: WritableTxnMarker) -> dict[TopicPartition, ErrorCode]:
    """On a thread: it waits for the disk."""
    keys = _keys(marker)
    codes = {
        key: ErrorCode.NONE if call.node.has_partition(*key) else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION for key in keys
    }
    found = call.node.broker.transactions.write_markers(
        marker.producer_id,
        marker.producer_epoch,
        [key for key, code in codes.items() if code is ErrorCode.NONE],
        commit=marker.transaction_result,
        coordinator_epoch=marker.coordinator_epoch,
        transaction_version=marker.transaction_version,
    )
    return codes | {key: _code(call, key, error) for key, error in found.items() if error is not None}


def _code(call: Call, key: TopicPartition, error: FoldlogError) -> ErrorCode:
    call.node.storage_failed("a marker", *key, error)
    return code_of(error)


def _result(marker: WritableTxnMarker, codes: dict[TopicPartition, ErrorCode]) -> WritableTxnMarkerResult:
    topics: dict[str, list[WritableTxnMarkerPartitionResult]] = {}
    for (topic, number), code in codes.items():
        result = WritableTxnMarkerPartitionResult(partition_index=number, error_code=code)
        topics.setdefault(topic, []).append(result)
    return WritableTxnMarkerResult(
        producer_id=marker.producer_id,
        topics=[WritableTxnMarkerTopicResult(name=name, partitions=found) for name, found in topics.items()],
    )
