"""Heartbeat, versions 0 to 4: renews a session, and tells the member if its group is rebalancing. 3: static members."""

from __future__ import annotations

from foldlog.broker.access.acls import AclOperation
from foldlog.errors import FoldlogError
from foldlog.server.call import Call
from foldlog.server.groups import group_error_code, refusal
from foldlog.wire.error_codes import ErrorCode
from foldlog.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse


async def handle(call: Call, request: HeartbeatRequest) -> HeartbeatResponse:
    group, member_id = request.group_id, request.member_id
    error: int = refusal(call, AclOperation.READ, group)
    if error == ErrorCode.NONE:
        try:
            error = await call.node.groups.ask(
                lambda coordinator: coordinator.heartbeat(
                    group, member_id, request.generation_id, request.group_instance_id
                )
            )
        except FoldlogError as failed:
            error = group_error_code(group, failed)
    return HeartbeatResponse(error_code=error)
