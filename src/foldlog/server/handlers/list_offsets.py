"""ListOffsets, versions 1 to 11: an offset by time, or the start or end of a partition.

2: isolation levels: with read_committed a partition ends at its last stable offset. 4: leader epochs. 7: the largest
timestamp. 8: the earliest local offset. 9: the latest tiered one. 10: a timeout, for tiers. 11: the earliest that waits
for upload.

Answers that depend on the end of the log wait until everything acknowledged is durable: see `catch_up`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

from foldlog.broker.access.acls import AclOperation
from foldlog.broker.groups.committed import TopicPartition
from foldlog.errors import FoldlogError
from foldlog.log.partition import Partition
from foldlog.server.call import Call
from foldlog.server.partitions import NO_EPOCH, catch_up, epoch_refusal, open_allowed
from foldlog.wire.error_codes import ErrorCode, code_of
from foldlog.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)

_READ_COMMITTED: Final = 1
_LATEST: Final = -1
_EARLIEST: Final = -2
_MAX_TIMESTAMP: Final = -3
_EARLIEST_LOCAL: Final = -4
_LATEST_TIERED: Final = -5
_EARLIEST_PENDING_UPLOAD: Final = -6

_FIRST_VERSIONS: Final = {
    _LATEST: 1,
    _EARLIEST: 1,
    _MAX_TIMESTAMP: 7,
    _EARLIEST_LOCAL: 8,
    _LATEST_TIERED: 9,
    _EARLIEST_PENDING_UPLOAD: 11,
}
"""Special timestamps, and the first version that may use each."""


class _Found(NamedTuple):
    """Offset, time and epoch; -1 for those that do not exist."""

    offset: int = -1
    timestamp_ms: int = -1
    leader_epoch: int = NO_EPOCH


async def handle(call: Call, request: ListOffsetsRequest) -> ListOffsetsResponse:
    asked = [((topic.name, wanted.partition_index), wanted) for topic in request.topics for wanted in topic.partitions]
    errors = await open_allowed(call, AclOperation.DESCRIBE, (key for key, _ in asked))
    twice = call.repeated(key for key, _ in asked)
    for key, wanted in asked:
        if errors[key] is ErrorCode.NONE:
            errors[key] = ErrorCode.INVALID_REQUEST if key in twice else _refuse(call, wanted.timestamp)
    asks_for_end = [key for key, wanted in asked if errors[key] is ErrorCode.NONE and wanted.timestamp not in _NO_END]
    errors |= await catch_up(call, asks_for_end)
    if all(wanted.timestamp in _IN_MEMORY or errors[key] is not ErrorCode.NONE for key, wanted in asked):
        return _answer(call, request, errors)
    if any(_may_ask_store(call, key) for key, _ in asked if errors[key] is ErrorCode.NONE):
        return await call.node.run_slowly(_answer, call, request, errors)
    return await call.node.run(_answer, call, request, errors)


def _may_ask_store(call: Call, key: TopicPartition) -> bool:
    partition = call.node.open_partition(*key)
    return partition is not None and partition.tiering is not None and partition.config.remote


def _refuse(call: Call, timestamp_ms: int) -> ErrorCode:
    if timestamp_ms >= 0:
        return ErrorCode.NONE
    first = _FIRST_VERSIONS.get(timestamp_ms)
    return ErrorCode.NONE if first is not None and call.version >= first else ErrorCode.UNSUPPORTED_VERSION


def _answer(call: Call, request: ListOffsetsRequest, errors: dict[TopicPartition, ErrorCode]) -> ListOffsetsResponse:
    committed = request.isolation_level == _READ_COMMITTED
    return ListOffsetsResponse(
        topics=[
            ListOffsetsTopicResponse(
                name=topic.name,
                partitions=[
                    _partition(call, topic.name, asked, errors[topic.name, asked.partition_index], committed)
                    for asked in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


def _partition(
    call: Call, topic: str, asked: ListOffsetsPartition, error: ErrorCode, committed: bool
) -> ListOffsetsPartitionResponse:
    found = _Found()
    if error is ErrorCode.NONE:
        try:
            partition = call.node.partition(topic, asked.partition_index)
            error = epoch_refusal(partition, asked.current_leader_epoch)
            if error is ErrorCode.NONE:
                found = _look_up(partition, asked.timestamp, committed=committed)
        except FoldlogError as failed:
            error = code_of(failed)
    return ListOffsetsPartitionResponse(
        partition_index=asked.partition_index,
        error_code=error,
        timestamp=found.timestamp_ms,
        offset=found.offset,
        leader_epoch=found.leader_epoch,
    )


def _look_up(partition: Partition, timestamp_ms: int, *, committed: bool) -> _Found:
    if timestamp_ms == _LATEST and committed:
        return _Found(partition.last_stable_offset, leader_epoch=partition.leader_epoch)
    special = _IN_MEMORY.get(timestamp_ms) or _IN_STORE.get(timestamp_ms)
    if special is not None:
        return special(partition)
    by_time = timestamp_ms != _MAX_TIMESTAMP
    hit = (
        partition.offset_at_time(timestamp_ms, committed=committed)
        if by_time
        else partition.max_timestamp_offset(committed=committed)
    )
    if hit is None:
        return _Found()
    offset, record_timestamp_ms = hit
    return _Found(offset, record_timestamp_ms, epoch_of(partition, offset))


def _latest(partition: Partition) -> _Found:
    return _Found(partition.high_watermark, leader_epoch=partition.leader_epoch)


def _earliest_local(partition: Partition) -> _Found:
    start = partition.local_start_offset
    return _Found(start, leader_epoch=epoch_of(partition, start))


def _tiered_end(partition: Partition) -> int:
    """Where the first segment begins that is not in the store; -1 for a topic that is not copied there. Asks the store
    if nobody has yet."""
    tiering = partition.tiering
    if tiering is None or not partition.config.remote:
        return -1
    tiering.tier.manifest()
    return max(tiering.end_offset, partition.log_start_offset)


def _latest_tiered(partition: Partition) -> _Found:
    last = _tiered_end(partition) - 1
    return _Found(last, leader_epoch=epoch_of(partition, last)) if last >= partition.log_start_offset else _Found()


def _earliest_pending(partition: Partition) -> _Found:
    pending = _tiered_end(partition)
    return _Found(pending, leader_epoch=epoch_of(partition, pending)) if pending >= 0 else _Found()


def _earliest(partition: Partition) -> _Found:
    start = partition.log_start_offset
    return _Found(start, leader_epoch=epoch_of(partition, start))


_IN_MEMORY: Final[dict[int, Callable[[Partition], _Found]]] = {
    _LATEST: _latest,
    _EARLIEST: _earliest,
    _EARLIEST_LOCAL: _earliest_local,
}

_IN_STORE: Final[dict[int, Callable[[Partition], _Found]]] = {
    _LATEST_TIERED: _latest_tiered,
    _EARLIEST_PENDING_UPLOAD: _earliest_pending,
}
"""Answers that may have to ask the store."""


_NO_END: Final = frozenset((*_IN_MEMORY, *_IN_STORE)) - {_LATEST}
"""Special timestamps whose answers do not depend on the end of the log."""


def epoch_of(partition: Partition, offset: int) -> int:
    """The leader epoch in which the record at that offset was, or will be, written."""
    if offset >= partition.high_watermark:
        return partition.leader_epoch
    epoch = partition.leader_epoch
    while True:
        epoch = partition.epoch_end_offset(epoch)[0]
        began_at = partition.epoch_end_offset(epoch - 1)[1]  # where the one before it ended; -1 if it is the first
        if epoch < 0 or offset >= began_at:
            return epoch
        epoch -= 1
