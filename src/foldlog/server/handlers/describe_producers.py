"""DescribeProducers, version 0: who writes idempotently to a partition, and how far each has got."""

from __future__ import annotations

from foldlog.broker.bookmarks import TopicPartition
from foldlog.errors import FoldlogError
from foldlog.server.authorizer import Operation
from foldlog.server.call import Call
from foldlog.server.partition_checks import open_allowed
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
    errors = await open_allowed(call, Operation.READ, keys)
    return await call.node.run(_describe, call, request, errors)


def _describe(
    call: Call, request: DescribeProducersRequest, errors: dict[TopicPartition, ErrorCode]
) -> DescribeProducersResponse:
    """For a thread: a partition's producers may have to be read from its log."""
    return DescribeProducersResponse(
        topics=[
            TopicResponse(
                name=topic.name,
                partitions=[
                    _partition(call, topic.name, number, errors[topic.name, number])
                    for number in topic.partition_indexes
                ],
            )
            for topic in request.topics
        ]
    )


def _partition(call: Call, topic: str, number: int, error: ErrorCode) -> PartitionResponse:
    if error is not ErrorCode.NONE:
        return PartitionResponse(partition_index=number, error_code=error)
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
