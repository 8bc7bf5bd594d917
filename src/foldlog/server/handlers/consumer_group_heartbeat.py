"""ConsumerGroupHeartbeat, versions 0 and 1: answers that the consumer protocol of KIP-848 is not supported.

It is served for that reason: a client that does not find it looks for another coordinator, librdkafka for ever and
silently. The error code stops the consumers of librdkafka and Java at once, with the sentence if they show one.
"""

from __future__ import annotations

from foldlog.server.authorizer import AclOperation
from foldlog.server.call import Call
from foldlog.server.groups import refusal
from foldlog.wire.error_codes import ErrorCode
from foldlog.wire.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)


def handle(call: Call, request: ConsumerGroupHeartbeatRequest) -> ConsumerGroupHeartbeatResponse:
    error, sentence = refusal(call, AclOperation.READ, request.group_id), None
    if error is ErrorCode.NONE:
        error = ErrorCode.UNSUPPORTED_VERSION
        sentence = "this broker has no consumer protocol (KIP-848); set group.protocol=classic"
    return ConsumerGroupHeartbeatResponse(error_code=error, error_message=sentence, member_id=None)
