"""DescribeGroups, versions 0 to 6: state, protocol and members of groups.

3: what the caller may do with them, if asked. 4: static members. 6: an unknown group is an error with a message;
before, it is Dead.
"""

from __future__ import annotations

from typing import Final

from foldlog.broker.access.acls import AclOperation, ResourceType
from foldlog.broker.groups.messages import GroupState, GroupSummary, GroupType
from foldlog.errors import FoldlogError, brief_repr
from foldlog.server.authorizer import authorized_operations
from foldlog.server.call import Call
from foldlog.server.groups import group_error_code, refusal
from foldlog.wire.error_codes import ErrorCode
from foldlog.wire.messages.describe_groups import (
    DescribedGroup,
    DescribedGroupMember,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)

_NOT_FOUND_FROM: Final = 6


async def handle(call: Call, request: DescribeGroupsRequest) -> DescribeGroupsResponse:
    # Each once: a small request that repeats a group many times would otherwise be answered with gigabytes.
    groups = [await _describe(call, group) for group in dict.fromkeys(request.groups)]
    if request.include_authorized_operations:
        for group in groups:
            if group.error_code == ErrorCode.NONE:
                group.authorized_operations = authorized_operations(
                    call.node.authorizer, call.caller.who, ResourceType.GROUP, group.group_id
                )
    return DescribeGroupsResponse(groups=groups)


async def _describe(call: Call, group: str) -> DescribedGroup:
    error = refusal(call, AclOperation.DESCRIBE, group)
    if error is ErrorCode.NONE:
        try:
            return _described(call, await call.node.groups.run(call.node.broker.describe_group, group))
        except FoldlogError as failed:
            error = group_error_code(group, failed)
    return DescribedGroup(error_code=error, group_id=group)


def _described(call: Call, description: GroupSummary) -> DescribedGroup:
    error, message = ErrorCode.NONE, None
    if description.group_type is not GroupType.CLASSIC:
        # As in Kafka, whose admin clients ask ConsumerGroupDescribe first: here it is no group.
        why = f"group {brief_repr(description.group)} is not a classic group; ask ConsumerGroupDescribe"
        is_error = call.version >= _NOT_FOUND_FROM
        return DescribedGroup(
            error_code=ErrorCode.GROUP_ID_NOT_FOUND if is_error else ErrorCode.NONE,
            error_message=why if is_error else None,
            group_id=description.group,
            group_state=GroupState.DEAD,
        )
    if description.state is GroupState.DEAD and call.version >= _NOT_FOUND_FROM:
        error = ErrorCode.GROUP_ID_NOT_FOUND
        message = f"group {brief_repr(description.group)} has neither members nor committed offsets"
    return DescribedGroup(
        error_code=error,
        error_message=message,
        group_id=description.group,
        group_state=description.state,
        protocol_type=description.protocol_type,
        protocol_data=description.protocol,
        members=[
            DescribedGroupMember(
                member_id=member.member_id,
                group_instance_id=member.group_instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                member_metadata=member.metadata,
                member_assignment=member.assignment,
            )
            for member in description.members
        ],
    )
