"""Transactions of a directory that another process writes: asked of it, or carried out here where nobody does."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

from foldlog.broker.broker import Broker
from foldlog.broker.groups.committed import OffsetAndMetadata
from foldlog.client.outgoing import TransactionalProducer
from foldlog.client.positions import GroupOffsets, TopicPartition
from foldlog.client.wire import transactions
from foldlog.client.wire.questions import Answer, Done, Question


class CarriesOut(Protocol):
    """`RemoteBroker.carry_out`."""

    def __call__(self, question: Question[Answer, Done], by_hand: Callable[[Broker], Done]) -> Done: ...


class RemoteTransactions:
    """See `backends.transactions.TransactionHome`. Any thread."""

    def __init__(self, carry_out: CarriesOut) -> None:
        self._carry_out = carry_out

    def init_producer(
        self, transactional_id: str, timeout_ms: int, *, producer_id: int, producer_epoch: int
    ) -> tuple[int, int]:
        return self._carry_out(
            transactions.init_producer(transactional_id, timeout_ms, producer_id, producer_epoch),
            lambda broker: broker.transactions.init_producer(
                transactional_id, timeout_ms, producer_id=producer_id, producer_epoch=producer_epoch
            ),
        )

    def commit_offsets(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        group: str,
        offsets: Mapping[tuple[str, int], OffsetAndMetadata],
        *,
        member_id: str,
        generation: int,
        instance_id: str | None,
        add: bool,
    ) -> None:
        producer = TransactionalProducer(transactional_id, producer_id, producer_epoch)
        entries = {TopicPartition(*partition): at for partition, at in offsets.items()}
        wanted = GroupOffsets(group, entries, member_id, generation, instance_id)
        self._carry_out(
            transactions.commit_offsets(producer, wanted),
            lambda broker: broker.transactions.commit_offsets(
                *producer,
                group,
                offsets,
                member_id=member_id,
                generation=generation,
                instance_id=instance_id,
                add=add,
            ),
        )

    def end(self, transactional_id: str, producer_id: int, producer_epoch: int, *, commit: bool) -> tuple[int, int]:
        producer = TransactionalProducer(transactional_id, producer_id, producer_epoch)
        return self._carry_out(
            transactions.end(producer, commit=commit),
            lambda broker: broker.transactions.end(*producer, commit=commit),
        )
