"""InitProducerId, versions 0 to 6: an id for an idempotent producer, never given out before.

3: a producer that lost its state names its former id (KIP-360); without transactions it just gets a new one. 4 and 5:
no change here. 6: two-phase commit, which needs transactions.
"""

from __future__ import annotations

import logging
from typing import Final

from foldlog.errors import FoldlogError, LockLost, brief_repr
from foldlog.server.authorizer import AclOperation, ResourceType
from foldlog.server.call import Call
from foldlog.wire.error_codes import ErrorCode, code_of
from foldlog.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse

logger: Final = logging.getLogger("foldlog.server")

_NONE: Final = -1
"""No producer id, no epoch."""


async def handle(call: Call, request: InitProducerIdRequest) -> InitProducerIdResponse:
    error = _refuse(call, request)
    if error is ErrorCode.NONE:
        try:
            return InitProducerIdResponse(producer_id=await _new_id(call), producer_epoch=0)
        except FoldlogError as failed:
            logger.warning("there is no producer id for now: %s", failed)
            # Kafka's code for temporary failures: producers ask again. A lost lock is not temporary, so it gets the
            # code that every write then gets; Java clients before 3.5 end on it, later ones and librdkafka ask again.
            passes = not isinstance(failed, LockLost)
            error = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS if passes else code_of(failed)
    return InitProducerIdResponse(error_code=error, producer_id=_NONE, producer_epoch=_NONE)


async def _new_id(call: Call) -> int:
    broker = call.node.broker
    try:
        return broker.allocate_producer_id(nowait=True)
    except BlockingIOError:  # the next thousand have to be reserved on disk
        return await call.node.run(broker.allocate_producer_id)


def _refuse(call: Call, request: InitProducerIdRequest) -> ErrorCode:
    if request.transactional_id is not None:
        if not call.allows(AclOperation.WRITE, ResourceType.TRANSACTIONAL_ID, request.transactional_id):
            return ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        # The answer has only a code; FindCoordinator's answer, which clients show, has the sentence, as has this line.
        call.node.lines.warn(
            ("transactions",),
            f"a producer has transactional.id={brief_repr(request.transactional_id)}, and this broker has no"
            " transactions; remove it (idempotent producers work)",
        )
        return ErrorCode.UNSUPPORTED_VERSION
    if not _may_write(call):
        return ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    if (request.producer_id == _NONE) != (request.producer_epoch == _NONE):
        return ErrorCode.INVALID_REQUEST
    return ErrorCode.NONE


def _may_write(call: Call) -> bool:
    """Whether the caller may write to any topic at all: then it may do so idempotently."""
    return call.allows(AclOperation.IDEMPOTENT_WRITE, ResourceType.CLUSTER) or any(
        call.allows(AclOperation.WRITE, ResourceType.TOPIC, topic) for topic in call.node.broker.topics()
    )
