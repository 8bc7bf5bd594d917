"""What is asked of a broker about transactions, and what its answers mean: see `questions`, which this is more of."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from foldlog.broker.groups.committed import OffsetAndMetadata
from foldlog.client.descriptions import OpenProducer, TransactionDescription
from foldlog.client.outgoing import TransactionalProducer
from foldlog.client.positions import GroupOffsets, TopicPartition
from foldlog.client.wire.questions import Coordinator, Question, TransactionalIdCoordinator, Whom, commit_error
from foldlog.client.wire.refusals import check_code, refuse, topic_error
from foldlog.errors import MalformedBytes
from foldlog.wire.error_codes import ErrorCode
from foldlog.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
)
from foldlog.wire.messages.describe_producers import DescribeProducersRequest, DescribeProducersResponse, TopicRequest
from foldlog.wire.messages.describe_transactions import DescribeTransactionsRequest, DescribeTransactionsResponse
from foldlog.wire.messages.end_txn import EndTxnRequest, EndTxnResponse
from foldlog.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from foldlog.wire.messages.list_transactions import ListTransactionsRequest, ListTransactionsResponse
from foldlog.wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
)
from foldlog.wire.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)

_BY_NAME: Final = 5
"""The last version of TxnOffsetCommit that names topics; later ones have their ids."""

_ADDED_BY_CLIENTS: Final = 3
"""The last version of AddPartitionsToTxn that is for clients; brokers ask each other with later ones."""

END_IN_VERSION_1: Final = 4
"""The last version of EndTxn that leaves the producer its epoch."""

# --- producers ------------------------------------------------------------------------------------------------------


def init_producer(
    transactional_id: str, timeout_ms: int, producer_id: int, producer_epoch: int
) -> Question[InitProducerIdResponse, tuple[int, int]]:
    """Become the producer of the id. Who gives the id and the epoch that it had goes on, if none came since."""

    def read(answer: InitProducerIdResponse) -> tuple[int, int]:
        check_code(answer.error_code)
        return answer.producer_id, answer.producer_epoch

    request = InitProducerIdRequest(
        transactional_id=transactional_id,
        transaction_timeout_ms=timeout_ms,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
    )
    return Question(request, InitProducerIdResponse, read, TransactionalIdCoordinator(transactional_id))


def commit_offsets(producer: TransactionalProducer, wanted: GroupOffsets) -> Question[TxnOffsetCommitResponse, None]:
    """Of a broker with transaction version 2: the group is added by it."""
    by_topic: dict[str, list[TxnOffsetCommitRequestPartition]] = {}
    for (topic, number), at in wanted.offsets.items():
        by_topic.setdefault(topic, []).append(_offset(number, at))

    def read(answer: TxnOffsetCommitResponse) -> None:
        told = {
            (topic.name, one.partition_index): one.error_code for topic in answer.topics for one in topic.partitions
        }
        for topic, number in wanted.offsets:
            code = told.get((topic, number))
            if code is None:
                raise MalformedBytes("TxnOffsetCommit response", f"nothing about partition {topic}-{number}", 0)
            if code:
                refuse(code, commit_error(code, wanted.group, topic, number))

    request = TxnOffsetCommitRequest(
        transactional_id=producer.transactional_id,
        group_id=wanted.group,
        producer_id=producer.producer_id,
        producer_epoch=producer.epoch,
        generation_id_or_member_epoch=wanted.generation,
        member_id=wanted.member_id,
        group_instance_id=wanted.instance_id,
        topics=[TxnOffsetCommitRequestTopic(name=name, partitions=found) for name, found in by_topic.items()],
    )
    return Question(request, TxnOffsetCommitResponse, read, Coordinator(wanted.group), at_most=_BY_NAME)


def _offset(number: int, at: OffsetAndMetadata) -> TxnOffsetCommitRequestPartition:
    return TxnOffsetCommitRequestPartition(
        partition_index=number,
        committed_offset=at.offset,
        committed_leader_epoch=at.leader_epoch,
        committed_metadata=at.metadata,
    )


def add_partitions(
    producer: TransactionalProducer, partitions: Iterable[tuple[str, int]]
) -> Question[AddPartitionsToTxnResponse, None]:
    """For transaction version 1: the partitions that the transaction writes to, before it does. Begins it."""
    by_topic: dict[str, list[int]] = {}
    for topic, number in partitions:
        by_topic.setdefault(topic, []).append(number)

    def read(answer: AddPartitionsToTxnResponse) -> None:
        told = {
            (topic.name, one.partition_index): one.partition_error_code
            for topic in answer.results_by_topic_v3_and_below
            for one in topic.results_by_partition
        }
        if told.keys() != {(topic, number) for topic, numbers in by_topic.items() for number in numbers}:
            raise MalformedBytes("AddPartitionsToTxn response", "it is not about the partitions that were added", 0)
        # Where one partition is refused, of the others it is only said that nothing was tried.
        for (topic, number), code in sorted(told.items(), key=lambda one: one[1] == ErrorCode.OPERATION_NOT_ATTEMPTED):
            if code:
                refuse(code, topic_error(code, None, topic, number))

    request = AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=producer.transactional_id,
        v3_and_below_producer_id=producer.producer_id,
        v3_and_below_producer_epoch=producer.epoch,
        v3_and_below_topics=[AddPartitionsToTxnTopic(name=name, partitions=found) for name, found in by_topic.items()],
    )
    to = TransactionalIdCoordinator(producer.transactional_id)
    return Question(request, AddPartitionsToTxnResponse, read, to, at_most=_ADDED_BY_CLIENTS)


def end(
    producer: TransactionalProducer, *, commit: bool, at_most: int | None = None
) -> Question[EndTxnResponse, tuple[int, int]]:
    """The producer id and epoch of the next transaction. May be asked again: an end is known by its epoch, up to
    END_IN_VERSION_1 by being the last that the producer asked for."""

    def read(answer: EndTxnResponse) -> tuple[int, int]:
        check_code(answer.error_code)
        return answer.producer_id, answer.producer_epoch

    request = EndTxnRequest(
        transactional_id=producer.transactional_id,
        producer_id=producer.producer_id,
        producer_epoch=producer.epoch,
        committed=commit,
    )
    to = TransactionalIdCoordinator(producer.transactional_id)
    return Question(request, EndTxnResponse, read, to, at_most=at_most)


# --- operators ------------------------------------------------------------------------------------------------------


def list_transactions(states: Iterable[str] = ()) -> Question[ListTransactionsResponse, list[str]]:
    """The transactional ids that the broker that is asked looks after, or those in one of these states."""

    def read(answer: ListTransactionsResponse) -> list[str]:
        check_code(answer.error_code)
        return sorted(one.transactional_id for one in answer.transaction_states)

    return Question(ListTransactionsRequest(state_filters=list(states)), ListTransactionsResponse, read)


def describe_transaction(transactional_id: str) -> Question[DescribeTransactionsResponse, TransactionDescription]:
    """UnknownTransactionalId if the coordinator knows nothing of it."""

    def read(answer: DescribeTransactionsResponse) -> TransactionDescription:
        if len(answer.transaction_states) != 1:
            raise MalformedBytes("DescribeTransactions response", "it is not about the id that was asked for", 0)
        found = answer.transaction_states[0]
        check_code(found.error_code)
        partitions = tuple(TopicPartition(one.topic, number) for one in found.topics for number in one.partitions)
        return TransactionDescription(
            found.transactional_id,
            found.transaction_state,
            found.producer_id,
            found.producer_epoch,
            found.transaction_timeout_ms,
            found.transaction_start_time_ms if partitions else None,
            partitions,
        )

    request = DescribeTransactionsRequest(transactional_ids=[transactional_id])
    to = TransactionalIdCoordinator(transactional_id)
    return Question(request, DescribeTransactionsResponse, read, to)


def open_producers(
    topic: str, numbers: Iterable[int]
) -> Question[DescribeProducersResponse, dict[int, list[OpenProducer]]]:
    """Per partition the producers whose transactions are open there, the oldest transaction first."""
    wanted = list(numbers)

    def read(answer: DescribeProducersResponse) -> dict[int, list[OpenProducer]]:
        found: dict[int, list[OpenProducer]] = {}
        for one in (one for told in answer.topics for one in told.partitions):
            if one.error_code:
                refuse(one.error_code, topic_error(one.error_code, one.error_message, topic, one.partition_index))
            found[one.partition_index] = sorted(
                (
                    OpenProducer(
                        active.producer_id,
                        active.producer_epoch,
                        active.coordinator_epoch,
                        active.current_txn_start_offset,
                        active.last_timestamp,
                    )
                    for active in one.active_producers
                    if active.current_txn_start_offset >= 0
                ),
                key=lambda open_one: open_one.first_offset,
            )
        if found.keys() != set(wanted):
            raise MalformedBytes("DescribeProducers response", "it is not about the partitions that were asked for", 0)
        return found

    request = DescribeProducersRequest(topics=[TopicRequest(name=topic, partition_indexes=wanted)])
    return Question(request, DescribeProducersResponse, read, Whom.LEADERS)


def abort_marker(topic: str, number: int, producer: OpenProducer) -> Question[WriteTxnMarkersResponse, dict[int, None]]:
    """End a transaction in one partition, whatever its coordinator knows of it. For the partition's leader."""

    def read(answer: WriteTxnMarkersResponse) -> dict[int, None]:
        for one in (one for marker in answer.markers for told in marker.topics for one in told.partitions):
            if one.error_code:
                refuse(one.error_code, topic_error(one.error_code, None, topic, one.partition_index))
        return {number: None}

    marker = WritableTxnMarker(
        producer_id=producer.producer_id,
        producer_epoch=producer.producer_epoch,
        transaction_result=False,
        topics=[WritableTxnMarkerTopic(name=topic, partition_indexes=[number])],
        # Of a transaction without any marker before it there is none known.
        coordinator_epoch=max(0, producer.coordinator_epoch),
    )
    return Question(WriteTxnMarkersRequest(markers=[marker]), WriteTxnMarkersResponse, read, Whom.LEADERS)
