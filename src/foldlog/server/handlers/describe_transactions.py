"""DescribeTransactions, version 0: the state of transactional ids, and the partitions of their open transactions."""

from __future__ import annotations

from foldlog.broker.access.acls import AclOperation, ResourceType
from foldlog.broker.transactions.state_format import TransactionMetadata
from foldlog.errors import FoldlogError
from foldlog.server.call import Call
from foldlog.server.transactions import transaction_error_code, transaction_refusal
from foldlog.wire.error_codes import ErrorCode
from foldlog.wire.messages.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    TopicData,
    TransactionState,
)


async def handle(call: Call, request: DescribeTransactionsRequest) -> DescribeTransactionsResponse:
    # Each once: a small request that repeats an id many times would otherwise be answered with gigabytes.
    errors = {one: transaction_refusal(call, one, AclOperation.DESCRIBE) for one in request.transactional_ids}
    wanted = [one for one, error in errors.items() if error is ErrorCode.NONE]
    found: dict[str, TransactionMetadata | FoldlogError] = {}
    if wanted:
        try:
            found = dict(zip(wanted, await call.node.run(call.node.broker.transactions.describe, wanted), strict=True))
        except FoldlogError as failed:
            found = dict.fromkeys(wanted, failed)
    return DescribeTransactionsResponse(
        transaction_states=[
            _state(call, one, found[one]) if one in found else TransactionState(transactional_id=one, error_code=error)
            for one, error in errors.items()
        ]
    )


def _state(call: Call, transactional_id: str, found: TransactionMetadata | FoldlogError) -> TransactionState:
    if isinstance(found, FoldlogError):
        code = transaction_error_code(transactional_id, found, knows_fenced=True)
        return TransactionState(transactional_id=transactional_id, error_code=code)
    topics: dict[str, list[int]] = {}
    for topic, number in sorted(found.partitions):
        if call.allows(AclOperation.DESCRIBE, ResourceType.TOPIC, topic):
            topics.setdefault(topic, []).append(number)
    return TransactionState(
        transactional_id=transactional_id,
        transaction_state=found.state.title,
        transaction_timeout_ms=found.timeout_ms,
        transaction_start_time_ms=found.start_ms,
        producer_id=found.producer_id,
        producer_epoch=found.producer_epoch,
        topics=[TopicData(topic=topic, partitions=numbers) for topic, numbers in topics.items()],
    )
