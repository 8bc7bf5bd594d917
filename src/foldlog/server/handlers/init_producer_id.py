"""InitProducerId, versions 0 to 5: an id for an idempotent producer, never given out before; or that of a transactional
id, with an epoch that fences the producers before, whose open transaction is aborted.

3: a producer that lost its state names its former id (KIP-360); an idempotent one just gets a new id. 4:
PRODUCER_FENCED. 5: TRANSACTION_ABORTABLE. 6, two-phase commit, is not stable in Kafka.
"""

from __future__ import annotations

import logging
from functools import partial
from typing import Final

from foldlog.broker.access.acls import AclOperation, ResourceType
from foldlog.errors import FoldlogError, LockLost
from foldlog.server.call import Call
from foldlog.server.transactions import VERSION_1, transaction_error_code, transaction_refusal
from foldlog.wire.error_codes import ErrorCode, code_of
from foldlog.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse

logger: Final = logging.getLogger("foldlog.server")

_FENCED_FROM: Final = 4
_NONE: Final = -1
"""No producer id, no epoch."""


async def handle(call: Call, request: InitProducerIdRequest) -> InitProducerIdResponse:
    error = _refuse(call, request)
    if error is ErrorCode.NONE:
        try:
            if request.transactional_id is not None:
                producer_id, epoch = await _begin(call, request, request.transactional_id)
                return InitProducerIdResponse(producer_id=producer_id, producer_epoch=epoch)
            return InitProducerIdResponse(producer_id=await _new_id(call), producer_epoch=0)
        except FoldlogError as failed:
            error = _code(call, request, failed)
    return InitProducerIdResponse(error_code=error, producer_id=_NONE, producer_epoch=_NONE)


def _code(call: Call, request: InitProducerIdRequest, error: FoldlogError) -> ErrorCode:
    if request.transactional_id is not None:
        knows_fenced = call.version >= _FENCED_FROM
        return transaction_error_code(request.transactional_id, error, knows_fenced=knows_fenced)
    logger.warning("there is no producer id for now: %s", error)
    # Kafka's code for temporary failures: producers ask again. A lost lock is not temporary, so it gets the code that
    # every write then gets; Java clients before 3.5 end on it, later ones and librdkafka ask again.
    return code_of(error) if isinstance(error, LockLost) else ErrorCode.COORDINATOR_LOAD_IN_PROGRESS


async def _begin(call: Call, request: InitProducerIdRequest, transactional_id: str) -> tuple[int, int]:
    """On a thread: an open transaction of the same id is aborted first."""
    init = partial(
        call.node.broker.transactions.init_producer,
        producer_id=request.producer_id,
        producer_epoch=request.producer_epoch,
        client_version=VERSION_1,
    )
    return await call.node.run(init, transactional_id, request.transaction_timeout_ms)


async def _new_id(call: Call) -> int:
    broker = call.node.broker
    try:
        return broker.allocate_producer_id(nowait=True)
    except BlockingIOError:  # the next thousand have to be reserved on disk
        return await call.node.run(broker.allocate_producer_id)


def _refuse(call: Call, request: InitProducerIdRequest) -> ErrorCode:
    if request.transactional_id is not None:
        error = transaction_refusal(call, request.transactional_id)
        if error is not ErrorCode.NONE:
            return error
    elif not _may_write(call):
        return ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    if (request.producer_id == _NONE) != (request.producer_epoch == _NONE):
        return ErrorCode.INVALID_REQUEST
    return ErrorCode.NONE


def _may_write(call: Call) -> bool:
    """Whether the caller may write to any topic at all: then it may do so idempotently."""
    return call.allows(AclOperation.IDEMPOTENT_WRITE, ResourceType.CLUSTER) or call.allows_some(
        AclOperation.WRITE, ResourceType.TOPIC
    )
