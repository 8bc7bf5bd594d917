"""ShareGroupDescribe, version 1: epochs, assignor and members of share groups (KIP-932), with their partitions."""

from __future__ import annotations

from foldlog.broker.access.acls import AclOperation, ResourceType
from foldlog.broker.groups.messages import GroupSummary, GroupType, MemberSummary
from foldlog.errors import FoldlogError, brief_repr
from foldlog.server.authorizer import authorized_operations
from foldlog.server.call import Call
from foldlog.server.groups import group_error_code, refusal
from foldlog.wire.error_codes import ErrorCode
from foldlog.wire.messages.share_group_describe import (
    Assignment,
    DescribedGroup,
    Member,
    ShareGroupDescribeRequest,
    ShareGroupDescribeResponse,
    TopicPartitions,
)


async def handle(call: Call, request: ShareGroupDescribeRequest) -> ShareGroupDescribeResponse:
    # Each once: a small request that repeats a group many times would otherwise be answered with gigabytes.
    groups = [await _describe(call, group) for group in dict.fromkeys(request.group_ids)]
    if request.include_authorized_operations:
        for group in groups:
            if group.error_code == ErrorCode.NONE:
                group.authorized_operations = authorized_operations(
                    call.node.authorizer, call.caller.who, ResourceType.GROUP, group.group_id
                )
    return ShareGroupDescribeResponse(groups=groups)


async def _describe(call: Call, group: str) -> DescribedGroup:
    error, message = refusal(call, AclOperation.DESCRIBE, group), None
    if error is ErrorCode.NONE:
        try:
            found = await call.node.groups.run(call.node.broker.describe_group, group)
            if found.group_type is GroupType.SHARE:
                return _described(call, found)
            error, message = ErrorCode.GROUP_ID_NOT_FOUND, f"group {brief_repr(group)} is not a share group"
        except FoldlogError as failed:
            error = group_error_code(group, failed)
    return DescribedGroup(error_code=error, error_message=message, group_id=group)


def _described(call: Call, found: GroupSummary) -> DescribedGroup:
    members = [_member(member) for member in found.members]
    topics = {name for member in members for name in member.subscribed_topic_names}
    if not all(call.allows(AclOperation.DESCRIBE, ResourceType.TOPIC, topic) for topic in topics):
        return DescribedGroup(
            error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED,
            error_message="the group reads topics that you may not see",
            group_id=found.group,
        )
    return DescribedGroup(
        group_id=found.group,
        group_state=found.state,
        group_epoch=found.generation,
        assignment_epoch=found.assignment_epoch,
        assignor_name=found.protocol,
        members=members,
    )


def _member(member: MemberSummary) -> Member:
    own = member.consumer
    if own is None:
        raise ValueError(f"member {member.member_id!r} is of no share group")
    by_topic: dict[tuple[bytes, str], list[int]] = {}
    for topic_id, name, number in own.current:
        by_topic.setdefault((topic_id, name), []).append(number)
    return Member(
        member_id=member.member_id,
        rack_id=own.rack_id,
        member_epoch=own.member_epoch,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=own.topics,
        assignment=Assignment(
            topic_partitions=[
                TopicPartitions(topic_id=topic_id, topic_name=name, partitions=numbers)
                for (topic_id, name), numbers in by_topic.items()
            ]
        ),
    )
