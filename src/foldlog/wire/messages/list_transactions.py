"""ListTransactions, generated from the schemas of Apache Kafka 4.4.0 by scripts/generate_messages.py."""

from __future__ import annotations

from collections.abc import Sequence

from foldlog.wire.schema import Message, Request, Response, field


class ListTransactionsRequest(Request, api_key=66, versions=(0, 2), flexible_from=0):
    state_filters: Sequence[str] = field("string", 0, 2, is_array=True, default=())
    producer_id_filters: Sequence[int] = field("int64", 0, 2, is_array=True, default=())
    duration_filter: int = field("int64", 1, 2, default=-1)
    transactional_id_pattern: str | None = field("string", 2, 2, nullable_from=2, default=None)


class TransactionState(Message):
    transactional_id: str = field("string", 0, 2, default="")
    producer_id: int = field("int64", 0, 2, default=0)
    transaction_state: str = field("string", 0, 2, default="")


class ListTransactionsResponse(Response, api_key=66, versions=(0, 2), flexible_from=0):
    throttle_time_ms: int = field("int32", 0, 2, default=0)
    error_code: int = field("int16", 0, 2, default=0)
    unknown_state_filters: Sequence[str] = field("string", 0, 2, is_array=True, default=())
    transaction_states: Sequence[TransactionState] = field(TransactionState, 0, 2, is_array=True, default=())


REQUEST = ListTransactionsRequest
RESPONSE = ListTransactionsResponse
