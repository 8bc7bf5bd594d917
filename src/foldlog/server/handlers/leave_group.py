"""LeaveGroup, versions 0 to 5: members leave, and need not be waited for.

3: many at once, static members by instance id, each with its own answer. 5: the reason, for people.
"""

from __future__ import annotations

import logging
from typing import Final

from foldlog.broker.access.acls import AclOperation
from foldlog.broker.groups.messages import MemberIdentity
from foldlog.errors import FoldlogError
from foldlog.server.call import Call
from foldlog.server.groups import group_error_code, refusal
from foldlog.wire.error_codes import ErrorCode
from foldlog.wire.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberResponse

logger: Final = logging.getLogger("foldlog.server")

_MANY_MEMBERS_FROM: Final = 3


async def handle(call: Call, request: LeaveGroupRequest) -> LeaveGroupResponse:
    group = request.group_id
    error = refusal(call, AclOperation.READ, group)
    if error is not ErrorCode.NONE:
        return LeaveGroupResponse(error_code=error)
    if call.version < _MANY_MEMBERS_FROM:
        leaving = [MemberIdentity(request.member_id)]
    else:
        leaving = [MemberIdentity(member.member_id, member.group_instance_id) for member in request.members]
        for member in request.members:
            if member.reason:
                logger.debug("group %r: %r leaves: %s", group, member.member_id, member.reason)
    try:
        left = await call.node.groups.ask(lambda coordinator: coordinator.leave(group, leaving))
    except FoldlogError as failed:
        return LeaveGroupResponse(error_code=group_error_code(group, failed))
    if call.version < _MANY_MEMBERS_FROM:
        return LeaveGroupResponse(error_code=left[0].error)
    return LeaveGroupResponse(
        members=[
            MemberResponse(
                member_id=result.member.member_id,
                group_instance_id=result.member.group_instance_id,
                error_code=result.error,
            )
            for result in left
        ]
    )
