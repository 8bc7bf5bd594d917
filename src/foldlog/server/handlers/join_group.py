"""JoinGroup, versions 0 to 9: a member joins a group's next generation.

1: a rebalance timeout besides the session timeout. 4: a member gets its id first, then joins with it (KIP-394). 5:
static members. 7: the protocol type in the answer; no protocol is null. 8: the reason, for people. 9: a leader may be
asked not to reassign partitions.
"""

from __future__ import annotations

import logging
from functools import partial
from typing import Final

from foldlog.broker.access.acls import AclOperation
from foldlog.broker.groups.errors import GroupErrorCode
from foldlog.broker.groups.messages import JoinRequest, JoinResult
from foldlog.errors import FoldlogError
from foldlog.server.call import Call, Later
from foldlog.server.groups import as_java_prints, group_error_code, refusal
from foldlog.wire.error_codes import ErrorCode
from foldlog.wire.messages.join_group import JoinGroupRequest, JoinGroupResponse, JoinGroupResponseMember

logger: Final = logging.getLogger("foldlog.server")

_REBALANCE_TIMEOUT_FROM: Final = 1
_KNOWN_MEMBER_ID_FROM: Final = 4
_NULLABLE_PROTOCOL_FROM: Final = 7
_SKIPPED_ASSIGNMENT_FROM: Final = 9


async def handle(call: Call, request: JoinGroupRequest) -> JoinGroupResponse | Later:
    error = refusal(call, AclOperation.READ, request.group_id)
    if error is ErrorCode.NONE:
        if request.reason:
            logger.debug("group %r: %r joins: %s", request.group_id, request.member_id, request.reason)
        asked = _join_request(call, request)
        try:
            return await call.node.groups.park(
                lambda coordinator, reply: coordinator.join(asked, reply), partial(_response, call)
            )
        except FoldlogError as failed:
            error = group_error_code(request.group_id, failed)
    return _refused(call, error, request.member_id)


def _join_request(call: Call, request: JoinGroupRequest) -> JoinRequest:
    version = call.version
    has_timeout = version >= _REBALANCE_TIMEOUT_FROM
    return JoinRequest(
        group=request.group_id,
        protocol_type=request.protocol_type,
        protocols=tuple((protocol.name, protocol.metadata) for protocol in request.protocols),
        session_timeout_ms=request.session_timeout_ms,
        # Kafka accepts 0 and less: the group then waits for no member.
        rebalance_timeout_ms=max(1, request.rebalance_timeout_ms) if has_timeout else request.session_timeout_ms,
        member_id=request.member_id,
        group_instance_id=request.group_instance_id,
        client_id=call.client_id or "",
        client_host=as_java_prints(call.caller.host),
        require_known_member_id=version >= _KNOWN_MEMBER_ID_FROM,
        supports_skipping_assignment=version >= _SKIPPED_ASSIGNMENT_FROM,
    )


def _response(call: Call, result: JoinResult) -> JoinGroupResponse:
    if result.error is not GroupErrorCode.NONE:
        return _refused(call, ErrorCode(result.error), result.member_id)
    return JoinGroupResponse(
        generation_id=result.generation,
        protocol_type=result.protocol_type,
        protocol_name=_protocol_name(call, result.protocol),
        leader=result.leader_id,
        skip_assignment=result.skip_assignment,
        member_id=result.member_id,
        members=[
            JoinGroupResponseMember(
                member_id=member.member_id, group_instance_id=member.group_instance_id, metadata=member.metadata
            )
            for member in result.members
        ],
    )


def _refused(call: Call, error: ErrorCode, member_id: str) -> JoinGroupResponse:
    return JoinGroupResponse(error_code=error, protocol_name=_protocol_name(call, None), member_id=member_id)


def _protocol_name(call: Call, name: str | None) -> str | None:
    return "" if name is None and call.version < _NULLABLE_PROTOCOL_FROM else name
