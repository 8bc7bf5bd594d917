"""TxnOffsetCommit, versions 0 to 6: offsets of a group, committed if the transaction is. Answered when it is durable.

2: leader epochs. 3: the member, so that one that was replaced is refused. 4: TRANSACTION_ABORTABLE. 5: transaction
version 2: the group need not have been added with AddOffsetsToTxn. 6: topics by id, and the epoch of a member of a
consumer group.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

from foldlog.broker.access.acls import AclOperation
from foldlog.broker.groups.committed import OffsetAndMetadata, TopicPartition
from foldlog.errors import FoldlogError, LogClosed, StorageError, UnknownPartition, UnknownTopic
from foldlog.server.call import Call
from foldlog.server.groups import commit_refusal, group_error_code, refusal
from foldlog.server.transactions import append_error_code, transaction_refusal
from foldlog.wire.error_codes import ErrorCode
from foldlog.wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)

_ABORTABLE_FROM: Final = 4
_ADDS_FROM: Final = 5
_TOPIC_IDS_FROM: Final = 6


class _Asked(NamedTuple):
    """One partition of a request."""

    key: TopicPartition
    offset: OffsetAndMetadata
    response: TxnOffsetCommitResponsePartition


async def handle(call: Call, request: TxnOffsetCommitRequest) -> TxnOffsetCommitResponse:
    asked: list[_Asked] = []
    topics = []
    for topic in request.topics:
        name = topic.name if call.version < _TOPIC_IDS_FROM else call.node.topic_ids.name_of(topic.topic_id)
        partitions = [_asked(call, name, partition) for partition in topic.partitions]
        asked += partitions
        responses = [partition.response for partition in partitions]
        topics.append(TxnOffsetCommitResponseTopic(name=topic.name, topic_id=topic.topic_id, partitions=responses))
    error = transaction_refusal(call, request.transactional_id)
    if error is ErrorCode.NONE:
        error = refusal(call, AclOperation.READ, request.group_id)
    if error is not ErrorCode.NONE:
        _fill(asked, error)
    elif accepted := _accepted(asked):
        await call.node.run(_commit, call, request, accepted)
    return TxnOffsetCommitResponse(topics=topics)


def _asked(call: Call, topic: str | None, partition: TxnOffsetCommitRequestPartition) -> _Asked:
    offset = OffsetAndMetadata(
        partition.committed_offset, max(-1, partition.committed_leader_epoch), partition.committed_metadata or ""
    )
    error = (
        ErrorCode.UNKNOWN_TOPIC_ID if topic is None else commit_refusal(call, topic, partition.partition_index, offset)
    )
    response = TxnOffsetCommitResponsePartition(partition_index=partition.partition_index, error_code=error)
    return _Asked((topic or "", partition.partition_index), offset, response)


def _commit(call: Call, request: TxnOffsetCommitRequest, asked: list[_Asked]) -> None:
    """On a thread: it waits for the disk."""
    while asked:
        try:
            call.node.broker.transactions.commit_offsets(
                request.transactional_id,
                request.producer_id,
                request.producer_epoch,
                request.group_id,
                {partition.key: partition.offset for partition in asked},
                member_id=request.member_id,
                generation=request.generation_id_or_member_epoch,
                instance_id=request.group_instance_id,
                add=call.version >= _ADDS_FROM,
            )
            return
        except (UnknownTopic, UnknownPartition) as gone:
            # Deleted since it was looked up. All its partitions are removed from the list, so the loop ends.
            by_id = call.version >= _TOPIC_IDS_FROM
            unknown = ErrorCode.UNKNOWN_TOPIC_ID if by_id else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            _fill([partition for partition in asked if partition.key[0] == gone.topic], unknown)
        except FoldlogError as failed:
            _fill(asked, _code(call, request, failed))
        asked = _accepted(asked)


def _code(call: Call, request: TxnOffsetCommitRequest, error: FoldlogError) -> ErrorCode:
    if isinstance(error, StorageError | LogClosed):
        return group_error_code(request.group_id, error)
    code = append_error_code(error, is_version_2=True, knows_abortable=call.version >= _ABORTABLE_FROM)
    return ErrorCode.COORDINATOR_NOT_AVAILABLE if code is ErrorCode.NOT_ENOUGH_REPLICAS else code


def _accepted(asked: Iterable[_Asked]) -> list[_Asked]:
    return [partition for partition in asked if partition.response.error_code == ErrorCode.NONE]


def _fill(asked: Iterable[_Asked], error: ErrorCode) -> None:
    for partition in asked:
        partition.response.error_code = error
