"""DeleteRecords: moves the log start of a partition up, for good. Versions 0 to 2, which differ only in encoding.

Offset -1 is the end of the log: acknowledged records that are not durable yet are waited for. An offset below the log
start changes nothing. The answer has the new log start.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from foldlog.broker.access.acls import AclOperation, ResourceType
from foldlog.broker.topics.names import OwnTopicChange
from foldlog.errors import FoldlogError
from foldlog.server.call import Call
from foldlog.server.topic_admin import refuse_own
from foldlog.wire.error_codes import ErrorCode, code_of
from foldlog.wire.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)

if TYPE_CHECKING:
    from foldlog.server.node import BrokerNode

_LOG_END: Final = -1
_NO_OFFSET: Final = -1


async def handle(call: Call, request: DeleteRecordsRequest) -> DeleteRecordsResponse:
    answer: list[DeleteRecordsTopicResult] = []
    for topic in request.topics:
        if not call.allows(AclOperation.DELETE, ResourceType.TOPIC, topic.name):
            done = _all_refused(topic.partitions, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        else:
            try:
                # Commits are deleted with their group, or replaced by other commits.
                refuse_own(call.node, topic.name, OwnTopicChange.DELETE_RECORDS)
                done = await call.node.run(_delete_all, call.node, topic.name, topic.partitions)
            except FoldlogError as error:
                done = _all_refused(topic.partitions, code_of(error))
        answer.append(DeleteRecordsTopicResult(name=topic.name, partitions=done))
    return DeleteRecordsResponse(topics=answer)


def _all_refused(partitions: Iterable[DeleteRecordsPartition], code: ErrorCode) -> list[DeleteRecordsPartitionResult]:
    return [_result(wanted.partition_index, _NO_OFFSET, code) for wanted in partitions]


def _result(partition: int, log_start: int, code: ErrorCode) -> DeleteRecordsPartitionResult:
    return DeleteRecordsPartitionResult(partition_index=partition, low_watermark=log_start, error_code=code)


def _delete_all(
    node: BrokerNode, topic: str, partitions: Iterable[DeleteRecordsPartition]
) -> list[DeleteRecordsPartitionResult]:
    """On a thread."""
    return [_delete(node, topic, wanted.partition_index, wanted.offset) for wanted in partitions]


def _delete(node: BrokerNode, topic: str, number: int, offset: int) -> DeleteRecordsPartitionResult:
    try:
        partition = node.partition(topic, number)
        if not partition.config.delete:
            # Only compaction removes records there, as in Kafka: readers may rely on the newest record of each key.
            return _result(number, _NO_OFFSET, ErrorCode.POLICY_VIOLATION)
        if offset == _LOG_END:
            offset = partition.acknowledged_offset  # all of it is to be deleted, so it becomes durable first
        return _result(number, partition.delete_records(offset), ErrorCode.NONE)
    except FoldlogError as error:
        return _result(number, _NO_OFFSET, code_of(error))
