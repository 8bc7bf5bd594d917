"""ShareAcknowledge, versions 1 and 2: a member of a share group (KIP-932) says what became of records. Answered when
that is durable.

2: a member may ask for more time (KIP-1222), and is told how much it gets.
"""

from __future__ import annotations

from typing import Final

from foldlog.server.call import Call
from foldlog.server.share_sessions import LAST_EPOCH, SessionRequest
from foldlog.server.shares import DONE, acknowledge, refusal_of
from foldlog.wire.error_codes import ErrorCode
from foldlog.wire.messages.share_acknowledge import (
    LeaderIdAndEpoch,
    PartitionData,
    ShareAcknowledgeRequest,
    ShareAcknowledgeResponse,
    ShareAcknowledgeTopicResponse,
)

_NO_LEADER: Final = LeaderIdAndEpoch(leader_id=-1, leader_epoch=-1)


async def handle(call: Call, request: ShareAcknowledgeRequest) -> ShareAcknowledgeResponse:
    refused = refusal_of(call, request.group_id, request.member_id)
    if refused is not DONE:
        return ShareAcknowledgeResponse(error_code=refused.error, error_message=refused.message)
    asked = SessionRequest(request.group_id or "", request.member_id or "", request.share_session_epoch)
    session = call.node.shares.sessions.acknowledging(asked)
    if isinstance(session, ErrorCode):
        return ShareAcknowledgeResponse(error_code=session)
    received = {
        (topic.topic_id, one.partition_index): one.acknowledgement_batches
        for topic in request.topics
        for one in topic.partitions
    }
    outcomes = await acknowledge(call, session, received, is_renewal=request.is_renew_ack)
    if request.share_session_epoch == LAST_EPOCH:
        call.node.shares.end(session)
    topics: dict[bytes, list[PartitionData]] = {}
    for (topic_id, number), outcome in outcomes.items():
        topics.setdefault(topic_id, []).append(
            PartitionData(
                partition_index=number,
                error_code=outcome.error,
                error_message=outcome.message,
                current_leader=_NO_LEADER,
            )
        )
    limits = call.node.broker.group_configs.share(asked.group).limits
    return ShareAcknowledgeResponse(
        acquisition_lock_timeout_ms=limits.record_lock_duration_ms,
        responses=[
            ShareAcknowledgeTopicResponse(topic_id=topic_id, partitions=partitions)
            for topic_id, partitions in topics.items()
        ],
    )
