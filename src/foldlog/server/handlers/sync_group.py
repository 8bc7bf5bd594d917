"""SyncGroup, versions 0 to 5: the leader sends the assignments of a generation, the others fetch theirs.

3: static members. 5: the member has to name its protocol.
"""

from __future__ import annotations

from typing import Final

from foldlog.broker.access.acls import AclOperation
from foldlog.broker.groups.messages import SyncRequest, SyncResult
from foldlog.errors import FoldlogError
from foldlog.server.call import Call, Later
from foldlog.server.groups import group_error_code, refusal
from foldlog.wire.error_codes import ErrorCode
from foldlog.wire.messages.sync_group import SyncGroupRequest, SyncGroupResponse

_PROTOCOL_FROM: Final = 5


async def handle(call: Call, request: SyncGroupRequest) -> SyncGroupResponse | Later:
    error = refusal(call, AclOperation.READ, request.group_id)
    if (
        error is ErrorCode.NONE
        and call.version >= _PROTOCOL_FROM
        and None
        in (
            request.protocol_type,
            request.protocol_name,
        )
    ):
        error = ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    if error is not ErrorCode.NONE:
        return SyncGroupResponse(error_code=error)
    asked = SyncRequest(
        group=request.group_id,
        member_id=request.member_id,
        generation=request.generation_id,
        assignments={given.member_id: given.assignment for given in request.assignments},
        group_instance_id=request.group_instance_id,
        protocol_type=request.protocol_type,
        protocol=request.protocol_name,
    )
    try:
        return await call.node.groups.park(lambda coordinator, reply: coordinator.sync(asked, reply), _response)
    except FoldlogError as failed:
        return SyncGroupResponse(error_code=group_error_code(request.group_id, failed))


def _response(result: SyncResult) -> SyncGroupResponse:
    return SyncGroupResponse(
        error_code=result.error,
        protocol_type=result.protocol_type,
        protocol_name=result.protocol,
        assignment=result.assignment,
    )
