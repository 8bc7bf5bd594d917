"""ShareGroupHeartbeat, version 1: a member of a share group (KIP-932) joins, reports and leaves."""

from __future__ import annotations

from foldlog.broker.groups.consumer.messages import HeartbeatResult
from foldlog.broker.groups.errors import GroupErrorCode
from foldlog.broker.share.messages import ShareHeartbeat
from foldlog.errors import FoldlogError
from foldlog.server.call import Call
from foldlog.server.groups import as_java_prints, group_error_code, heartbeat_refusal
from foldlog.wire.error_codes import ErrorCode
from foldlog.wire.messages.share_group_heartbeat import (
    Assignment,
    ShareGroupHeartbeatRequest,
    ShareGroupHeartbeatResponse,
    TopicPartitions,
)


async def handle(call: Call, request: ShareGroupHeartbeatRequest) -> ShareGroupHeartbeatResponse:
    names = request.subscribed_topic_names
    error, message = await heartbeat_refusal(call, request.group_id, names)
    if error is not ErrorCode.NONE:
        return ShareGroupHeartbeatResponse(error_code=error, error_message=message)
    asked = ShareHeartbeat(
        group=request.group_id,
        member_id=request.member_id,
        member_epoch=request.member_epoch,
        rack_id=request.rack_id,
        topics=None if names is None else tuple(names),
        client_id=call.client_id or "",
        client_host=as_java_prints(call.caller.host),
    )
    try:
        return _response(await call.node.groups.ask(lambda coordinator: coordinator.share_heartbeat(asked)))
    except FoldlogError as failed:
        return ShareGroupHeartbeatResponse(error_code=group_error_code(request.group_id, failed))


def _response(result: HeartbeatResult) -> ShareGroupHeartbeatResponse:
    if result.error is not GroupErrorCode.NONE:
        return ShareGroupHeartbeatResponse(error_code=result.error, error_message=result.message)
    by_topic: dict[bytes, list[int]] = {}
    for topic_id, number in sorted(result.assignment or ()):
        by_topic.setdefault(topic_id, []).append(number)
    parts = [TopicPartitions(topic_id=topic_id, partitions=numbers) for topic_id, numbers in by_topic.items()]
    return ShareGroupHeartbeatResponse(
        member_id=result.member_id,
        member_epoch=result.member_epoch,
        heartbeat_interval_ms=result.heartbeat_interval_ms,
        assignment=None if result.assignment is None else Assignment(topic_partitions=parts),
    )
