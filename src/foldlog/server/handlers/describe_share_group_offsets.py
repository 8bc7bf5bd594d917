"""DescribeShareGroupOffsets, versions 0 and 1: where share groups (KIP-932) are in their partitions.

1: how many records each has not done with yet (KIP-1226).
"""

from __future__ import annotations

from foldlog.broker.access.acls import AclOperation, ResourceType
from foldlog.broker.broker import Broker
from foldlog.broker.groups.messages import GroupType
from foldlog.broker.share.store import ShareOffset
from foldlog.errors import FoldlogError, brief_repr
from foldlog.server.call import Call
from foldlog.server.groups import group_error_code, refusal
from foldlog.wire.error_codes import ErrorCode
from foldlog.wire.messages.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
    DescribeShareGroupOffsetsResponse,
    DescribeShareGroupOffsetsResponseGroup,
    DescribeShareGroupOffsetsResponsePartition,
    DescribeShareGroupOffsetsResponseTopic,
)


async def handle(call: Call, request: DescribeShareGroupOffsetsRequest) -> DescribeShareGroupOffsetsResponse:
    asked = {group.group_id: group for group in request.groups}  # each once, as in DescribeGroups
    return DescribeShareGroupOffsetsResponse(groups=[await _describe(call, group) for group in asked.values()])


async def _describe(call: Call, asked: DescribeShareGroupOffsetsRequestGroup) -> DescribeShareGroupOffsetsResponseGroup:
    group = asked.group_id
    error, message = refusal(call, AclOperation.DESCRIBE, group), None
    if error is ErrorCode.NONE:
        if asked.topics and not any(_may_describe(call, topic.topic_name) for topic in asked.topics):
            return _described(call, asked, [])  # as in Kafka: whether there is such a group is not told
        try:
            found = await call.node.run(_offsets, call.node.broker, group)
            if found is not None:
                return _described(call, asked, found)
            error, message = ErrorCode.GROUP_ID_NOT_FOUND, f"group {brief_repr(group)} is not a share group"
        except FoldlogError as failed:
            error = group_error_code(group, failed)
    if message is None and error is ErrorCode.INVALID_GROUP_ID:
        message = "the name of a group is not empty"
    return DescribeShareGroupOffsetsResponseGroup(group_id=group, error_code=error, error_message=message)


def _may_describe(call: Call, topic: str) -> bool:
    return call.allows(AclOperation.DESCRIBE, ResourceType.TOPIC, topic)


def _offsets(broker: Broker, group: str) -> list[ShareOffset] | None:
    """On a thread: it may open partitions. None if there is no such share group."""
    found = broker.shares.describe(group)
    is_known = bool(found) or broker.describe_group(group).group_type is GroupType.SHARE
    return found if is_known else None


def _described(
    call: Call, asked: DescribeShareGroupOffsetsRequestGroup, found: list[ShareOffset]
) -> DescribeShareGroupOffsetsResponseGroup:
    known = {(one.topic, one.partition): one for one in found}
    wanted: dict[str, list[int]] = {}
    if asked.topics is None:
        for name, number in known:
            if _may_describe(call, name):
                wanted.setdefault(name, []).append(number)
    else:
        wanted = {topic.topic_name: list(dict.fromkeys(topic.partitions)) for topic in asked.topics}
    return DescribeShareGroupOffsetsResponseGroup(
        group_id=asked.group_id, topics=[_topic(call, name, numbers, known) for name, numbers in wanted.items()]
    )


def _topic(
    call: Call, name: str, numbers: list[int], known: dict[tuple[str, int], ShareOffset]
) -> DescribeShareGroupOffsetsResponseTopic:
    error = ErrorCode.NONE
    topic = call.node.broker.find_topic(name)
    if not _may_describe(call, name):
        error = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    elif topic is None:
        error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    partitions = []
    for number in numbers:
        one = known.get((name, number))
        # A partition in which the group never was has no offset, which is no error.
        partition = DescribeShareGroupOffsetsResponsePartition(
            partition_index=number, start_offset=-1, error_code=error
        )
        if one is not None and error is ErrorCode.NONE:
            partition.start_offset, partition.leader_epoch, partition.lag = one.start_offset, one.leader_epoch, one.lag
        partitions.append(partition)
    is_shown = topic is not None and error is ErrorCode.NONE
    shown = {"topic_id": bytes.fromhex(topic.topic_id)} if is_shown and topic is not None else {}
    return DescribeShareGroupOffsetsResponseTopic(topic_name=name, partitions=partitions, **shown)
