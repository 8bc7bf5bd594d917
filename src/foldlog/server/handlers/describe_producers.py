"""DescribeProducers, version 0: the idempotent producers of a partition, with their last sequence numbers."""

from __future__ import annotations

from foldlog.broker.access.acls import AclOperation
from foldlog.broker.groups.committed import TopicPartition
from foldlog.errors import FoldlogError, brief_repr
from foldlog.server.call import Call
from foldlog.server.partitions import open_allowed
from foldlog.wire.error_codes import ErrorCode, code_of
from foldlog.wire.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    PartitionResponse,
    ProducerState,
    TopicResponse,
)


async def handle(call: Call, request: DescribeProducersRequest) -> DescribeProducersResponse:
    keys = [(topic.name, number) for topic in request.topics for number in topic.partition_indexes]
    errors = await open_allowed(call, AclOperation.READ, keys)
    return await call.node.run(_describe, call, request, errors)


def _describe(
    call: Call, request: DescribeProducersRequest, errors: dict[TopicPartition, ErrorCode]
) -> DescribeProducersResponse:
    """On a thread: a partition's producers may have to be read from its log."""
    # Each once: a small request that repeats a partition many times would otherwise be answered with gigabytes.
    asked: dict[str, dict[int, None]] = {}
    for topic in request.topics:
        asked.setdefault(topic.name, {}).update(dict.fromkeys(topic.partition_indexes))
    return DescribeProducersResponse(
        topics=[
            TopicResponse(
                name=name, partitions=[_partition(call, name, number, errors[name, number]) for number in numbers]
            )
            for name, numbers in asked.items()
        ]
    )


def _partition(call: Call, topic: str, number: int, error: ErrorCode) -> PartitionResponse:
    if error is not ErrorCode.NONE:
        why = f"{error.name}: partition {number} of topic {brief_repr(topic)}"
        return PartitionResponse(partition_index=number, error_code=error, error_message=why)
    try:
        known = call.node.partition(topic, number).producers_info()
    except FoldlogError as failed:
        return PartitionResponse(partition_index=number, error_code=code_of(failed), error_message=str(failed))
    return PartitionResponse(
        partition_index=number,
        active_producers=[
            ProducerState(
                producer_id=producer.producer_id,
                producer_epoch=producer.producer_epoch,
                last_sequence=producer.last_sequence,
                last_timestamp=producer.last_timestamp_ms,
                coordinator_epoch=producer.coordinator_epoch,
                current_txn_start_offset=producer.transaction_start_offset,
            )
            for producer in known
        ],
    )
