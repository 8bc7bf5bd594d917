"""AddPartitionsToTxn, generated from the schemas of Apache Kafka 4.4.0 by scripts/generate_messages.py."""

from __future__ import annotations

from collections.abc import Sequence

from foldlog.wire.schema import Message, Request, Response, field


class AddPartitionsToTxnTopic(Message):
    name: str = field("string", 0, 5, default="")
    partitions: Sequence[int] = field("int32", 0, 5, is_array=True, default=())


class AddPartitionsToTxnTransaction(Message):
    transactional_id: str = field("string", 4, 5, default="")
    producer_id: int = field("int64", 4, 5, default=0)
    producer_epoch: int = field("int16", 4, 5, default=0)
    verify_only: bool = field("bool", 4, 5, default=False)
    topics: Sequence[AddPartitionsToTxnTopic] = field(AddPartitionsToTxnTopic, 4, 5, is_array=True, default=())


class AddPartitionsToTxnRequest(Request, api_key=24, versions=(0, 5), flexible_from=3):
    transactions: Sequence[AddPartitionsToTxnTransaction] = field(
        AddPartitionsToTxnTransaction, 4, 5, is_array=True, default=()
    )
    v3_and_below_transactional_id: str = field("string", 0, 3, default="")
    v3_and_below_producer_id: int = field("int64", 0, 3, default=0)
    v3_and_below_producer_epoch: int = field("int16", 0, 3, default=0)
    v3_and_below_topics: Sequence[AddPartitionsToTxnTopic] = field(
        AddPartitionsToTxnTopic, 0, 3, is_array=True, default=()
    )


class AddPartitionsToTxnPartitionResult(Message):
    partition_index: int = field("int32", 0, 5, default=0)
    partition_error_code: int = field("int16", 0, 5, default=0)


class AddPartitionsToTxnTopicResult(Message):
    name: str = field("string", 0, 5, default="")
    results_by_partition: Sequence[AddPartitionsToTxnPartitionResult] = field(
        AddPartitionsToTxnPartitionResult, 0, 5, is_array=True, default=()
    )


class AddPartitionsToTxnResult(Message):
    transactional_id: str = field("string", 4, 5, default="")
    topic_results: Sequence[AddPartitionsToTxnTopicResult] = field(
        AddPartitionsToTxnTopicResult, 4, 5, is_array=True, default=()
    )


class AddPartitionsToTxnResponse(Response, api_key=24, versions=(0, 5), flexible_from=3):
    throttle_time_ms: int = field("int32", 0, 5, default=0)
    error_code: int = field("int16", 4, 5, default=0)
    results_by_transaction: Sequence[AddPartitionsToTxnResult] = field(
        AddPartitionsToTxnResult, 4, 5, is_array=True, default=()
    )
    results_by_topic_v3_and_below: Sequence[AddPartitionsToTxnTopicResult] = field(
        AddPartitionsToTxnTopicResult, 0, 3, is_array=True, default=()
    )


REQUEST = AddPartitionsToTxnRequest
RESPONSE = AddPartitionsToTxnResponse
