"""OffsetDelete, version 0: deletes the commits of a group in some partitions. Answered when that is durable."""

from __future__ import annotations

from foldlog.broker.access.acls import AclOperation
from foldlog.broker.broker import Broker
from foldlog.broker.groups.committed import TopicPartition
from foldlog.broker.groups.messages import GroupState
from foldlog.errors import FoldlogError, GroupNotEmpty
from foldlog.server.call import Call
from foldlog.server.groups import group_error_code, refusal
from foldlog.server.partitions import partition_refusal
from foldlog.wire.error_codes import ErrorCode
from foldlog.wire.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)

_Errors = dict[TopicPartition, ErrorCode]


async def handle(call: Call, request: OffsetDeleteRequest) -> OffsetDeleteResponse:
    group = request.group_id
    error = refusal(call, AclOperation.DELETE, group)
    errors: _Errors = {}
    if error is ErrorCode.NONE:
        for topic in request.topics:
            for partition in topic.partitions:
                key = (topic.name, partition.partition_index)
                errors[key] = partition_refusal(call, AclOperation.READ, *key)
        try:
            error = await call.node.run(_delete, call.node.broker, group, errors)
        except FoldlogError as failed:
            error = group_error_code(group, failed)
    if error is not ErrorCode.NONE:
        return OffsetDeleteResponse(error_code=error)
    return OffsetDeleteResponse(
        topics=[
            OffsetDeleteResponseTopic(
                name=topic.name,
                partitions=[
                    OffsetDeleteResponsePartition(
                        partition_index=partition.partition_index,
                        error_code=errors[topic.name, partition.partition_index],
                    )
                    for partition in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


def _delete(broker: Broker, group: str, errors: _Errors) -> ErrorCode:
    """Delete those without an error, and set errors for those that members read. On a thread: it syncs."""
    if broker.describe_group(group).state is GroupState.DEAD:
        return ErrorCode.GROUP_ID_NOT_FOUND
    with broker.coordinator() as coordinator:
        subscribed = coordinator.subscribed_topics(group)
    if subscribed is None:
        return ErrorCode.NON_EMPTY_GROUP  # members of another protocol: what they read is unknown
    for topic, number in errors:
        if topic in subscribed and errors[topic, number] is ErrorCode.NONE:
            errors[topic, number] = ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
    wanted = [key for key, error in errors.items() if error is ErrorCode.NONE]
    try:
        broker.delete_offsets(group, wanted)
    except GroupNotEmpty:  # a member joined meanwhile
        errors.update(dict.fromkeys(wanted, ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC))
    return ErrorCode.NONE
