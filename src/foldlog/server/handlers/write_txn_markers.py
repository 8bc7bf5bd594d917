"""WriteTxnMarkers, versions 1 and 2: ends transactions in some partitions, whatever their coordinator thinks.

Brokers of a cluster send it to each other; here only operators do, for a transaction that hangs (`kafka-transactions
abort`). 2: the transaction version of the marker. Answered when the markers are durable.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from foldlog.broker.access.acls import AclOperation, ResourceType
from foldlog.broker.groups.committed import TopicPartition
from foldlog.broker.transactions.store import MarkersToWrite
from foldlog.errors import FoldlogError
from foldlog.server.call import Call
from foldlog.server.transactions import VERSION_1
from foldlog.wire.error_codes import ErrorCode, code_of
from foldlog.wire.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)

_Codes = Mapping[TopicPartition, ErrorCode]


async def handle(call: Call, request: WriteTxnMarkersRequest) -> WriteTxnMarkersResponse:
    operations = (AclOperation.ALTER, AclOperation.CLUSTER_ACTION)
    if any(call.allows(operation, ResourceType.CLUSTER) for operation in operations):
        codes = await call.node.run(_write, call, request.markers)
    else:
        refused = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        codes = [dict.fromkeys(_keys(marker), refused) for marker in request.markers]
    return WriteTxnMarkersResponse(markers=list(map(_result, request.markers, codes)))


def _keys(marker: WritableTxnMarker) -> tuple[TopicPartition, ...]:
    return tuple(dict.fromkeys((topic.name, number) for topic in marker.topics for number in topic.partition_indexes))


def _write(call: Call, markers: Sequence[WritableTxnMarker]) -> list[_Codes]:
    """On a thread: it waits for the disk."""
    wanted = [
        MarkersToWrite(
            marker.producer_id,
            marker.producer_epoch,
            marker.coordinator_epoch,
            marker.transaction_result,
            _keys(marker),
            max(VERSION_1, marker.transaction_version),
        )
        for marker in markers
    ]
    try:
        found = call.node.broker.transactions.write_markers(wanted)
    except FoldlogError as failed:
        return [dict.fromkeys(one.partitions, code_of(failed)) for one in wanted]
    return [{key: _code(call, key, error) for key, error in errors.items()} for errors in found]


def _code(call: Call, key: TopicPartition, error: FoldlogError | None) -> ErrorCode:
    if error is None:
        return ErrorCode.NONE
    call.node.storage_failed("a marker", *key, error)
    return code_of(error)


def _result(marker: WritableTxnMarker, codes: _Codes) -> WritableTxnMarkerResult:
    topics: dict[str, list[WritableTxnMarkerPartitionResult]] = {}
    for (topic, number), code in codes.items():
        result = WritableTxnMarkerPartitionResult(partition_index=number, error_code=code)
        topics.setdefault(topic, []).append(result)
    return WritableTxnMarkerResult(
        producer_id=marker.producer_id,
        topics=[WritableTxnMarkerTopicResult(name=name, partitions=found) for name, found in topics.items()],
    )
