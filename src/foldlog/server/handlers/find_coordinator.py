"""FindCoordinator, versions 0 to 6: who coordinates a group or a transactional id. There is one broker: this one.

1: the kind of key, and an error message. 4: many keys at once. 5: no change here. 6: share groups.
"""

from __future__ import annotations

import re
from typing import Final

from foldlog.broker.access.acls import AclOperation, ResourceType
from foldlog.server.call import Call
from foldlog.server.groups import refusal
from foldlog.wire.error_codes import ErrorCode
from foldlog.wire.messages.find_coordinator import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse

_GROUP: Final = 0
_TRANSACTION: Final = 1
_SHARE: Final = 2
_MANY_KEYS_FROM: Final = 4
_SHARES_FROM: Final = 6
_NOBODY: Final = -1
"""Node id and port if there is no coordinator."""

_SHARE_KEY: Final = re.compile(r"(?P<group>.+):[\w-]{22}:\d{1,10}", re.ASCII | re.DOTALL)
"""A group, the id of a topic as Kafka writes it, and the number of a partition."""


def handle(call: Call, request: FindCoordinatorRequest) -> FindCoordinatorResponse:
    if call.version >= _MANY_KEYS_FROM:
        found = [_find(call, request.key_type, key) for key in request.coordinator_keys]
        return FindCoordinatorResponse(coordinators=found)
    one = _find(call, request.key_type, request.key)
    return FindCoordinatorResponse(
        error_code=one.error_code,
        error_message=one.error_message,
        node_id=one.node_id,
        host=one.host,
        port=one.port,
    )


def _find(call: Call, key_type: int, key: str) -> Coordinator:
    error, message = _refuse(call, key_type, key)
    if error is not ErrorCode.NONE:
        return Coordinator(key=key, node_id=_NOBODY, port=_NOBODY, error_code=error, error_message=message)
    endpoint = call.caller.endpoint
    return Coordinator(
        key=key, node_id=call.node.settings.node_id, host=endpoint.host, port=endpoint.port, error_message=None
    )


def _refuse(call: Call, key_type: int, key: str) -> tuple[ErrorCode, str | None]:
    if key_type == _GROUP:
        error = refusal(call, AclOperation.DESCRIBE, key)
        return error, "the name of a group is not empty" if error is ErrorCode.INVALID_GROUP_ID else None
    if key_type == _TRANSACTION:
        if not call.allows(AclOperation.DESCRIBE, ResourceType.TRANSACTIONAL_ID, key):
            return ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, None
        return ErrorCode.NONE, None
    if key_type == _SHARE and call.version >= _SHARES_FROM:
        found = _SHARE_KEY.fullmatch(key)
        if found is None:
            return ErrorCode.INVALID_REQUEST, "the key of a share coordinator is group:topicId:partition"
        return refusal(call, AclOperation.DESCRIBE, found["group"]), None
    return ErrorCode.INVALID_REQUEST, f"{key_type} is not a kind of coordinator; 0 is a group's, 1 a transactional id's"
