"""DeleteShareGroupOffsets, version 0: what a share group without members (KIP-932) did in some topics is forgotten.
Answered when that is durable."""

from __future__ import annotations

from foldlog.broker.access.acls import AclOperation, ResourceType
from foldlog.broker.broker import Broker
from foldlog.errors import FoldlogError
from foldlog.server.call import Call
from foldlog.server.groups import group_error_code, refusal
from foldlog.server.handlers.alter_share_group_offsets import why_not_alone, why_refused
from foldlog.server.shares import ShareOutcome
from foldlog.wire.error_codes import ErrorCode
from foldlog.wire.messages.delete_share_group_offsets import (
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsResponse,
    DeleteShareGroupOffsetsResponseTopic,
)
from foldlog.wire.schema import ZERO_UUID


async def handle(call: Call, request: DeleteShareGroupOffsetsRequest) -> DeleteShareGroupOffsetsResponse:
    group = request.group_id
    error = refusal(call, AclOperation.DELETE, group)
    if error is not ErrorCode.NONE:
        return DeleteShareGroupOffsetsResponse(error_code=error, error_message=why_refused(error, group))
    names = list(dict.fromkeys(topic.topic_name for topic in request.topics))
    errors = {name: _refuse(call, name) for name in names}
    try:
        wanted = [name for name, error in errors.items() if error is ErrorCode.NONE]
        refused = await call.node.run(_delete, call.node.broker, group, wanted)
    except FoldlogError as failed:
        refused = ShareOutcome(group_error_code(group, failed))
    if refused is not None:
        return DeleteShareGroupOffsetsResponse(error_code=refused.error, error_message=refused.message)
    found = {name: call.node.broker.find_topic(name) for name in names}
    return DeleteShareGroupOffsetsResponse(
        responses=[
            DeleteShareGroupOffsetsResponseTopic(
                topic_name=name,
                topic_id=ZERO_UUID if (known := found[name]) is None else bytes.fromhex(known.topic_id),
                error_code=errors[name],
                error_message=why_refused(errors[name], name),
            )
            for name in names
        ]
    )


def _refuse(call: Call, name: str) -> ErrorCode:
    if not call.allows(AclOperation.READ, ResourceType.TOPIC, name):
        return ErrorCode.TOPIC_AUTHORIZATION_FAILED
    return ErrorCode.NONE if call.node.broker.find_topic(name) else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def _delete(broker: Broker, group: str, topics: list[str]) -> ShareOutcome | None:
    """On a thread: it syncs."""
    with broker.group_lock:
        refused = why_not_alone(group, broker.describe_group(group))
        if refused is None:
            broker.shares.delete(group, topics)
        return refused
