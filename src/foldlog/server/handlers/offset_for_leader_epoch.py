"""OffsetForLeaderEpoch, versions 2 to 4: where a leader epoch ended, so that a reader notices if the log was cut."""

from __future__ import annotations

from foldlog.broker.access.acls import AclOperation, ResourceType
from foldlog.broker.groups.committed import TopicPartition
from foldlog.errors import FoldlogError
from foldlog.log.partition import Partition
from foldlog.server.call import Call
from foldlog.server.partitions import NO_EPOCH, catch_up, epoch_refusal, open_allowed
from foldlog.wire.error_codes import ErrorCode, code_of
from foldlog.wire.messages.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopicResult,
)


async def handle(call: Call, request: OffsetForLeaderEpochRequest) -> OffsetForLeaderEpochResponse:
    keys = [(topic.topic, asked.partition) for topic in request.topics for asked in topic.partitions]
    is_broker = call.allows(AclOperation.CLUSTER_ACTION, ResourceType.CLUSTER)
    errors = await open_allowed(call, None if is_broker else AclOperation.DESCRIBE, keys)
    errors |= await catch_up(call, [key for key, error in errors.items() if error is ErrorCode.NONE])
    return _answer(call, request, errors)


def _answer(
    call: Call, request: OffsetForLeaderEpochRequest, errors: dict[TopicPartition, ErrorCode]
) -> OffsetForLeaderEpochResponse:
    return OffsetForLeaderEpochResponse(
        topics=[
            OffsetForLeaderTopicResult(
                topic=topic.topic,
                partitions=[
                    _partition(call, topic.topic, asked, errors[topic.topic, asked.partition])
                    for asked in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


def _partition(call: Call, topic: str, asked: OffsetForLeaderPartition, error: ErrorCode) -> EpochEndOffset:
    epoch, end_offset = NO_EPOCH, -1
    if error is ErrorCode.NONE:
        try:
            partition = call.node.partition(topic, asked.partition)
            error = epoch_refusal(partition, asked.current_leader_epoch)
            if error is ErrorCode.NONE:
                epoch, end_offset = end_of_epoch(partition, asked.leader_epoch)
        except FoldlogError as failed:
            error = code_of(failed)
    return EpochEndOffset(error_code=error, partition=asked.partition, leader_epoch=epoch, end_offset=end_offset)


def end_of_epoch(partition: Partition, epoch: int) -> tuple[int, int]:
    """(the latest epoch not after `epoch`, where it ended), with Kafka's answers for epochs that never existed.

    The current one ends at the high watermark, even before its first record. Later ones have no end. One before all
    known epochs ended at the log start.
    """
    if epoch < 0 or epoch > partition.leader_epoch:
        return NO_EPOCH, -1
    if epoch == partition.leader_epoch:
        return epoch, partition.high_watermark
    known, end_offset = partition.epoch_end_offset(epoch)
    return (known, end_offset) if known >= 0 else (epoch, partition.log_start_offset)
