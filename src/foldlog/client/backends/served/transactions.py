"""Transactions of a directory that another process writes: asked of it, or carried out here where nobody does."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from typing import Protocol

from foldlog.broker.broker import Broker
from foldlog.broker.groups.committed import OffsetAndMetadata
from foldlog.client.backends.transactions import abort_here, list_here, open_producers_here
from foldlog.client.descriptions import OpenProducer, TransactionDescription
from foldlog.client.outgoing import TransactionalProducer
from foldlog.client.positions import GroupOffsets, TopicPartition
from foldlog.client.wire.questions import Answer, Done, Question
from foldlog.client.wire.transactions import requests as transactions
from foldlog.errors import UnknownTransactionalId
from foldlog.records.batch import NO_PRODUCER_EPOCH, NO_PRODUCER_ID


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

    def listed(self) -> list[TransactionDescription]:
        """As the coordinator knows them now: what is read from the files may be a moment older."""
        names = self._carry_out(
            transactions.list_transactions(), lambda broker: [one.transactional_id for one in list_here(broker)]
        )
        found: list[TransactionDescription] = []
        for name in names:
            with suppress(UnknownTransactionalId):  # it expired meanwhile
                found.append(self._carry_out(transactions.describe_transaction(name), partial(_described, name)))
        return found

    def abort(self, found: TransactionDescription) -> None:
        """Whoever becomes the id's producer aborts what the one before left open."""

        def by_hand(broker: Broker) -> tuple[int, int]:
            broker.transactions.abort(found.transactional_id)
            return found.producer_id, found.producer_epoch

        fencing = transactions.init_producer(
            found.transactional_id, found.timeout_ms, NO_PRODUCER_ID, NO_PRODUCER_EPOCH
        )
        self._carry_out(fencing, by_hand)

    def open_producers(self, topic: str, number: int) -> list[OpenProducer]:
        found = self._carry_out(
            transactions.open_producers(topic, [number]),
            lambda broker: {number: open_producers_here(broker, topic, number)},
        )
        return found[number]

    def abort_in_partition(self, topic: str, number: int, producer: OpenProducer) -> None:
        def by_hand(broker: Broker) -> dict[int, None]:
            abort_here(broker, topic, number, producer)
            return {number: None}

        self._carry_out(transactions.abort_marker(topic, number, producer), by_hand)


def _described(name: str, broker: Broker) -> TransactionDescription:
    for one in list_here(broker):
        if one.transactional_id == name:
            return one
    raise UnknownTransactionalId(f"there is no transactional id {name!r}")
