"""AddPartitionsToTxn, versions 0 to 5: a transaction will write to these partitions. Answered when that is durable.

0 to 3 are sent by clients, with one transaction each. 2: PRODUCER_FENCED. 4 and 5 are what brokers of a cluster send
each other, with several transactions, or only to ask whether partitions were added; 5: TRANSACTION_ABORTABLE.

If one partition of a transaction is refused, none is added: the others get OPERATION_NOT_ATTEMPTED.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from itertools import repeat
from typing import Final, NamedTuple

from foldlog.broker.access.acls import AclOperation, ResourceType
from foldlog.broker.groups.committed import TopicPartition
from foldlog.broker.topics.names import KAFKA_OWN_TOPICS
from foldlog.errors import FoldlogError
from foldlog.server.call import Call
from foldlog.server.partitions import partition_refusal
from foldlog.server.transactions import VERSION_1, VERSION_2, transaction_error_code, transaction_refusal
from foldlog.wire.error_codes import ErrorCode
from foldlog.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTopicResult,
    AddPartitionsToTxnTransaction,
)

_FENCED_FROM: Final = 2
_BROKERS_FROM: Final = 4

_Codes = Mapping[TopicPartition, ErrorCode]


class _Asked(NamedTuple):
    """One transaction of a request."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    verify_only: bool
    partitions: tuple[TopicPartition, ...]


async def handle(call: Call, request: AddPartitionsToTxnRequest) -> AddPartitionsToTxnResponse:
    if call.version < _BROKERS_FROM:
        one = _Asked(
            request.v3_and_below_transactional_id,
            request.v3_and_below_producer_id,
            request.v3_and_below_producer_epoch,
            False,
            await _keys(call, request.v3_and_below_topics),
        )
        codes = await _answer(call, one)
        return AddPartitionsToTxnResponse(results_by_topic_v3_and_below=await _topics(call, codes))
    if not call.allows(AclOperation.CLUSTER_ACTION, ResourceType.CLUSTER):
        return AddPartitionsToTxnResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    results = []
    for asked in request.transactions:
        codes = await _answer(call, _of_broker(asked, await _keys(call, asked.topics)))
        topics = await _topics(call, codes)
        results.append(AddPartitionsToTxnResult(transactional_id=asked.transactional_id, topic_results=topics))
    return AddPartitionsToTxnResponse(results_by_transaction=results)


def _of_broker(one: AddPartitionsToTxnTransaction, partitions: tuple[TopicPartition, ...]) -> _Asked:
    return _Asked(one.transactional_id, one.producer_id, one.producer_epoch, one.verify_only, partitions)


async def _keys(call: Call, topics: Sequence[AddPartitionsToTxnTopic]) -> tuple[TopicPartition, ...]:
    """Each once. Made in slices: 262,144 of them take 50 ms."""
    keys: dict[TopicPartition, None] = {}
    async for topic, numbers in call.node.turns.within(topics, lambda topic: topic.partitions):
        keys.update(dict.fromkeys(zip(repeat(topic.name), numbers, strict=False)))
    return tuple(keys)


async def _answer(call: Call, asked: _Asked) -> _Codes:
    error = _refuse(call, asked.transactional_id)
    if error is not ErrorCode.NONE:
        return dict.fromkeys(asked.partitions, error)
    codes: dict[TopicPartition, ErrorCode] = {}

    def look(key: TopicPartition) -> None:
        codes[key] = _refuse_partition(call, *key)

    def leave(key: TopicPartition) -> None:
        codes[key] = codes[key] or ErrorCode.OPERATION_NOT_ATTEMPTED

    await call.node.turns.each(look, asked.partitions)
    if any(codes.values()):
        await call.node.turns.each(leave, asked.partitions)
        return codes
    return await call.node.run(_verify if asked.verify_only else _add, call, asked)


def _refuse(call: Call, transactional_id: str) -> ErrorCode:
    if call.version < _BROKERS_FROM:
        return transaction_refusal(call, transactional_id)
    return ErrorCode.NONE if transactional_id else ErrorCode.INVALID_REQUEST


def _refuse_partition(call: Call, topic: str, number: int) -> ErrorCode:
    if call.version < _BROKERS_FROM:
        if topic in KAFKA_OWN_TOPICS or call.node.schema_guard.refusal(topic) is not None:
            return ErrorCode.TOPIC_AUTHORIZATION_FAILED
        return partition_refusal(call, AclOperation.WRITE, topic, number)
    return ErrorCode.NONE if call.node.has_partition(topic, number) else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def _add(call: Call, asked: _Asked) -> _Codes:
    """On a thread: it waits for the disk."""
    client_version = VERSION_1 if call.version < _BROKERS_FROM else VERSION_2
    add = partial(call.node.broker.transactions.add_partitions, client_version=client_version)
    error = ErrorCode.NONE
    try:
        add(asked.transactional_id, asked.producer_id, asked.producer_epoch, asked.partitions)
    except FoldlogError as failed:
        error = _code(call, asked, failed)
    return dict.fromkeys(asked.partitions, error)


def _verify(call: Call, asked: _Asked) -> _Codes:
    """On a thread: another call may hold the coordinator's lock."""
    transactions = call.node.broker.transactions
    try:
        found = transactions.verify(asked.transactional_id, asked.producer_id, asked.producer_epoch, asked.partitions)
    except FoldlogError as failed:
        return dict.fromkeys(asked.partitions, _code(call, asked, failed))
    return {key: ErrorCode.NONE if error is None else _code(call, asked, error) for key, error in found.items()}


def _code(call: Call, asked: _Asked, error: FoldlogError) -> ErrorCode:
    return transaction_error_code(asked.transactional_id, error, knows_fenced=call.version >= _FENCED_FROM)


async def _topics(call: Call, codes: _Codes) -> list[AddPartitionsToTxnTopicResult]:
    found: dict[str, list[AddPartitionsToTxnPartitionResult]] = {}

    def add(key: TopicPartition) -> None:
        result = AddPartitionsToTxnPartitionResult(partition_index=key[1], partition_error_code=codes[key])
        found.setdefault(key[0], []).append(result)

    await call.node.turns.each(add, list(codes))
    return [AddPartitionsToTxnTopicResult(name=name, results_by_partition=results) for name, results in found.items()]
