"""ConsumerGroupDescribe, versions 0 and 1: epochs, assignor and members of consumer groups (KIP-848), with what each
member reads and what it should read.

1: which members still speak the classic protocol.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from foldlog.broker.access.acls import AclOperation, ResourceType
from foldlog.broker.groups.messages import GroupState, GroupSummary, GroupType, MemberSummary
from foldlog.errors import FoldlogError, brief_repr
from foldlog.server.authorizer import authorized_operations
from foldlog.server.call import Call
from foldlog.server.groups import group_error_code, refusal
from foldlog.wire.error_codes import ErrorCode
from foldlog.wire.messages.consumer_group_describe import (
    Assignment,
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    DescribedGroup,
    Member,
    TopicPartitions,
)

_CLASSIC_MEMBER: Final = 0
_CONSUMER_MEMBER: Final = 1


async def handle(call: Call, request: ConsumerGroupDescribeRequest) -> ConsumerGroupDescribeResponse:
    # Each once: a small request that repeats a group many times would otherwise be answered with gigabytes.
    groups = [await _describe(call, group) for group in dict.fromkeys(request.group_ids)]
    if request.include_authorized_operations:
        for group in groups:
            if group.error_code == ErrorCode.NONE:
                group.authorized_operations = authorized_operations(
                    call.node.authorizer, call.caller.who, ResourceType.GROUP, group.group_id
                )
    return ConsumerGroupDescribeResponse(groups=groups)


async def _describe(call: Call, group: str) -> DescribedGroup:
    error, message = refusal(call, AclOperation.DESCRIBE, group), None
    if error is ErrorCode.NONE:
        try:
            found = await call.node.groups.run(call.node.broker.describe_group, group)
            if found.group_type is GroupType.CONSUMER:
                return _described(call, found)
            # Kafka's admin clients then ask DescribeGroups, and show the sentence of whom they asked first.
            is_known = found.state is not GroupState.DEAD
            what = "is not a consumer group" if is_known else "has neither members nor committed offsets"
            error, message = ErrorCode.GROUP_ID_NOT_FOUND, f"group {brief_repr(group)} {what}"
        except FoldlogError as failed:
            error = group_error_code(group, failed)
    return DescribedGroup(error_code=error, error_message=message, group_id=group)


def _described(call: Call, found: GroupSummary) -> DescribedGroup:
    members = [_member(member) for member in found.members]
    topics = {name for member in members for name in member.subscribed_topic_names}
    topics |= {
        part.topic_name
        for member in members
        for assignment in (member.assignment, member.target_assignment)
        for part in assignment.topic_partitions
    }
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
        raise ValueError(f"member {member.member_id!r} is of no consumer group")
    return Member(
        member_id=member.member_id,
        instance_id=member.group_instance_id,
        rack_id=own.rack_id,
        member_epoch=own.member_epoch,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=own.topics,
        subscribed_topic_regex=own.regex or "",
        assignment=_assignment(own.current),
        target_assignment=_assignment(own.target),
        member_type=_CLASSIC_MEMBER if own.is_classic else _CONSUMER_MEMBER,
    )


def _assignment(partitions: Iterable[tuple[bytes, str, int]]) -> Assignment:
    by_topic: dict[tuple[bytes, str], list[int]] = {}
    for topic_id, name, number in partitions:
        by_topic.setdefault((topic_id, name), []).append(number)
    return Assignment(
        topic_partitions=[
            TopicPartitions(topic_id=topic_id, topic_name=name, partitions=numbers)
            for (topic_id, name), numbers in by_topic.items()
        ]
    )
