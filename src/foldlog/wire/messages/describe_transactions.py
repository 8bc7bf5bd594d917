"""DescribeTransactions, generated from the schemas of Apache Kafka 4.4.0 by scripts/generate_messages.py."""

from __future__ import annotations

from collections.abc import Sequence

from foldlog.wire.schema import Message, Request, Response, field


class DescribeTransactionsRequest(Request, api_key=65, versions=(0, 0), flexible_from=0):
    transactional_ids: Sequence[str] = field("string", 0, 0, is_array=True, default=())


class TopicData(Message):
    topic: str = field("string", 0, 0, default="")
    partitions: Sequence[int] = field("int32", 0, 0, is_array=True, default=())


class TransactionState(Message):
    error_code: int = field("int16", 0, 0, default=0)
    transactional_id: str = field("string", 0, 0, default="")
    transaction_state: str = field("string", 0, 0, default="")
    transaction_timeout_ms: int = field("int32", 0, 0, default=0)
    transaction_start_time_ms: int = field("int64", 0, 0, default=0)
    producer_id: int = field("int64", 0, 0, default=0)
    producer_epoch: int = field("int16", 0, 0, default=0)
    topics: Sequence[TopicData] = field(TopicData, 0, 0, is_array=True, default=())


class DescribeTransactionsResponse(Response, api_key=65, versions=(0, 0), flexible_from=0):
    throttle_time_ms: int = field("int32", 0, 0, default=0)
    transaction_states: Sequence[TransactionState] = field(TransactionState, 0, 0, is_array=True, default=())


REQUEST = DescribeTransactionsRequest
RESPONSE = DescribeTransactionsResponse
