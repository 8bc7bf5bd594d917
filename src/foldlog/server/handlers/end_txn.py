"""EndTxn, versions 0 to 5: commits or aborts a transaction. Answered when its markers are durable.

2: PRODUCER_FENCED. 3: compact types. 4: TRANSACTION_ABORTABLE. 5: transaction version 2: the answer has the producer's
next epoch, and its next id if the epochs of this one are used up; a commit without a transaction may come again, once
(`EarlyCommits`).
"""

from __future__ import annotations

from functools import partial
from typing import Final

from foldlog.errors import FoldlogError, NothingToCommit
from foldlog.server.call import Call
from foldlog.server.transactions import VERSION_1, VERSION_2, transaction_error_code, transaction_refusal
from foldlog.wire.error_codes import ErrorCode
from foldlog.wire.messages.end_txn import EndTxnRequest, EndTxnResponse

_FENCED_FROM: Final = 2
_VERSION_2_FROM: Final = 5


async def handle(call: Call, request: EndTxnRequest) -> EndTxnResponse:
    error = transaction_refusal(call, request.transactional_id)
    if error is not ErrorCode.NONE:
        return EndTxnResponse(error_code=error)
    client_version = VERSION_2 if call.version >= _VERSION_2_FROM else VERSION_1
    end = partial(call.node.broker.transactions.end, commit=request.committed, client_version=client_version)
    try:
        producer_id, epoch = await call.node.run(
            end, request.transactional_id, request.producer_id, request.producer_epoch
        )
    except NothingToCommit:
        producer = request.transactional_id, request.producer_id, request.producer_epoch
        is_early = call.node.early_commits.is_first(*producer)
        code = ErrorCode.CONCURRENT_TRANSACTIONS if is_early else ErrorCode.INVALID_TXN_STATE
        return EndTxnResponse(error_code=code)
    except FoldlogError as failed:
        knows_fenced = call.version >= _FENCED_FROM
        code = transaction_error_code(request.transactional_id, failed, knows_fenced=knows_fenced)
        return EndTxnResponse(error_code=code)
    return EndTxnResponse(producer_id=producer_id, producer_epoch=epoch)
