"""What is checked of a partition that a request names, before anything is done with it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from foldlog.broker.bookmarks import TopicPartition
from foldlog.errors import WaitTimeout
from foldlog.server.authorizer import Operation, ResourceType
from foldlog.wire.error_codes import ErrorCode, code_of

if TYPE_CHECKING:
    from foldlog.log.partition import Partition
    from foldlog.server.call import Call

NO_EPOCH: Final = -1
"""The client does not say, or the broker does not know, a leader epoch."""


def refusal(call: Call, operation: Operation, topic: str, number: int) -> ErrorCode:
    """Why this caller may not do that to a partition; NONE if it may, and there is such a partition."""
    if not call.allows(operation, ResourceType.TOPIC, topic):
        return ErrorCode.TOPIC_AUTHORIZATION_FAILED
    return ErrorCode.NONE if call.node.has_partition(topic, number) else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def open_allowed(
    call: Call, operation: Operation, keys: Iterable[TopicPartition]
) -> dict[TopicPartition, ErrorCode]:
    """Open the partitions to which this caller may do that. Says of every one why it is not open, or NONE."""
    errors = {key: refusal(call, operation, *key) for key in keys}
    failed = await call.node.openings.open(key for key, error in errors.items() if error is ErrorCode.NONE)
    for key, error in failed.items():
        # A recovery that takes its time: clients ask again, as they do when Kafka elects a leader.
        errors[key] = ErrorCode.LEADER_NOT_AVAILABLE if isinstance(error, WaitTimeout) else code_of(error)
    return errors


def epoch_refusal(partition: Partition, current_leader_epoch: int) -> ErrorCode:
    """What a client is told that knows another leader epoch than the partition's; NONE if it knows none."""
    if current_leader_epoch in (NO_EPOCH, partition.leader_epoch):
        return ErrorCode.NONE
    if current_leader_epoch < partition.leader_epoch:
        return ErrorCode.FENCED_LEADER_EPOCH
    return ErrorCode.UNKNOWN_LEADER_EPOCH
