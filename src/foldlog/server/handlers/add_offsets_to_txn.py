"""AddOffsetsToTxn, versions 0 to 4: a transaction will commit offsets of a group. Answered when that is durable.

2: PRODUCER_FENCED. 3: compact types. 4: TRANSACTION_ABORTABLE. Clients of transaction version 2 do without it: see
TxnOffsetCommit.
"""

from __future__ import annotations

from functools import partial
from typing import Final

from foldlog.broker.access.acls import AclOperation
from foldlog.errors import FoldlogError
from foldlog.server.call import Call
from foldlog.server.groups import refusal
from foldlog.server.transactions import VERSION_1, transaction_error_code, transaction_refusal
from foldlog.wire.error_codes import ErrorCode
from foldlog.wire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse

_FENCED_FROM: Final = 2


async def handle(call: Call, request: AddOffsetsToTxnRequest) -> AddOffsetsToTxnResponse:
    error = transaction_refusal(call, request.transactional_id)
    if error is ErrorCode.NONE:
        error = refusal(call, AclOperation.READ, request.group_id)
    if error is ErrorCode.NONE:
        add = partial(call.node.broker.transactions.add_offsets, client_version=VERSION_1)
        try:
            await call.node.run(
                add, request.transactional_id, request.producer_id, request.producer_epoch, request.group_id
            )
        except FoldlogError as failed:
            knows_fenced = call.version >= _FENCED_FROM
            error = transaction_error_code(request.transactional_id, failed, knows_fenced=knows_fenced)
    return AddOffsetsToTxnResponse(error_code=error)
