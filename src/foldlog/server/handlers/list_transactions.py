"""ListTransactions, versions 0 to 2: the transactional ids that a filter lets through.

1: open for longer than a duration. 2: ids that match a regular expression.
"""

from __future__ import annotations

from functools import partial

from foldlog.broker.access.acls import AclOperation, ResourceType
from foldlog.broker.transactions.state_format import TransactionState as State
from foldlog.errors import FoldlogError, InvalidArgument
from foldlog.server.call import Call
from foldlog.server.transactions import transaction_error_code
from foldlog.wire.error_codes import ErrorCode
from foldlog.wire.messages.list_transactions import ListTransactionsRequest, ListTransactionsResponse, TransactionState


async def handle(call: Call, request: ListTransactionsRequest) -> ListTransactionsResponse:
    unknown = sorted(set(request.state_filters) - {state.title for state in State})
    list_all = partial(
        call.node.broker.transactions.list,
        states=frozenset(request.state_filters),
        producer_ids=frozenset(request.producer_id_filters),
        min_duration_ms=request.duration_filter,
        id_pattern=request.transactional_id_pattern,
    )
    try:
        found = await call.node.run(list_all)
    except InvalidArgument:
        return ListTransactionsResponse(error_code=ErrorCode.INVALID_REGULAR_EXPRESSION)
    except FoldlogError as failed:
        return ListTransactionsResponse(error_code=transaction_error_code("", failed, knows_fenced=True))
    return ListTransactionsResponse(
        unknown_state_filters=unknown,
        transaction_states=[
            TransactionState(
                transactional_id=one.transactional_id,
                producer_id=one.producer_id,
                transaction_state=one.state.title,
            )
            for one in found
            if call.allows(AclOperation.DESCRIBE, ResourceType.TRANSACTIONAL_ID, one.transactional_id)
        ],
    )
