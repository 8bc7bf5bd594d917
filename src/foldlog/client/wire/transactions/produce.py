"""Packed batches to a cluster in one transaction: readers of committed records see all of them, or none.

It speaks transaction version 1 of Kafka's, as librdkafka does: every broker that has transactions has it, also beside
version 2. So partitions are added before they are written to, and the epoch is that of InitProducerId to the end.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable
from types import TracebackType
from typing import Final, Self

from foldlog.client.outgoing import TransactionalProducer
from foldlog.client.wire.links import ClusterLinks
from foldlog.client.wire.produce import ClusterProducer
from foldlog.client.wire.transactions.requests import END_IN_VERSION_1, add_partitions, end, init_producer
from foldlog.errors import (
    FoldlogError,
    InvalidProducerEpoch,
    InvalidProducerIdMapping,
    InvalidTransactionState,
    ProducerFenced,
    UndecidedTransaction,
    brief_repr,
)
from foldlog.records.batch import NO_PRODUCER_EPOCH, NO_PRODUCER_ID
from foldlog.records.stamping import make_transactional

_log = logging.getLogger("foldlog")

_TAKEN: Final = (InvalidProducerEpoch, InvalidProducerIdMapping, InvalidTransactionState)
"""What a broker answers to who is not the id's producer any more, or whose transaction it has aborted."""


class WireTransaction:
    """One transaction at most, begun by the first batch. One thread; leave its `with` block in any case.

    Making it fences all older producers of the id. Nothing counts before `commit`; leaving the block without it aborts.
    A process that is killed leaves it open, and readers of committed records wait behind it, until another producer of
    the id comes, or `timeout_ms` is over: then the cluster aborts it, and this object raises ProducerFenced.
    """

    def __init__(self, links: ClusterLinks, transactional_id: str, timeout_ms: int) -> None:
        """Use `Cluster.transaction`."""
        self._links = links
        self._timeout_ms = timeout_ms
        numbers = links.ask(init_producer(transactional_id, timeout_ms, NO_PRODUCER_ID, NO_PRODUCER_EPOCH))
        self._producer = TransactionalProducer(transactional_id, *numbers)
        self._sender = ClusterProducer(links, numbers, transactional_id=transactional_id)
        self._added: set[tuple[str, int]] = set()
        self._began_s = 0.0
        self._is_over = False

    def send_all(self, batches: Iterable[tuple[str, int, bytearray]]) -> None:
        """Put whole batches on their way, each with its topic and partition; see `ClusterProducer.send_all`."""
        given = list(batches)
        new = {(topic, number) for topic, number, _ in given} - self._added
        try:
            if new:
                self._began_s = self._began_s or time.monotonic()
                self._links.ask(add_partitions(self._producer, sorted(new)))
                self._added |= new
            for _, _, batch in given:
                make_transactional(batch)
            self._sender.send_all(given)
        except _TAKEN as error:
            raise self._taken() from error

    def commit(self) -> None:
        """On return everything is durable, and readers of committed records see all of it.

        UndecidedTransaction if it is asked for and not answered in the end: it may be committed, or not. ProducerFenced
        if another producer came, or the time is over. After any other error it is not committed.
        """
        if not self._added:
            self._is_over = True
            return
        try:
            self._sender.flush()
        except _TAKEN as error:
            raise self._taken() from error
        self._is_over = True
        try:
            self._links.ask(end(self._producer, commit=True, at_most=END_IN_VERSION_1))
        except _TAKEN as error:
            raise self._taken() from error
        except FoldlogError as error:  # it was asked again and again, and an answer may have been lost
            raise UndecidedTransaction(self._producer.transactional_id, str(error)) from error

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._sender.close()
        if self._is_over or not self._added:
            return
        self._is_over = True
        try:
            self._links.ask(end(self._producer, commit=False, at_most=END_IN_VERSION_1))
        except FoldlogError as failure:
            # What made us abort has to get out. The cluster aborts by itself when the time is over.
            _log.warning("aborting a transaction of %r: %s", self._producer.transactional_id, failure)

    def _taken(self) -> ProducerFenced:
        """Which of the two it was can be told by the clock alone: both end the producer's epoch."""
        self._is_over = True
        name = brief_repr(self._producer.transactional_id)
        if (time.monotonic() - self._began_s) * 1000 < self._timeout_ms:
            return ProducerFenced(
                f"another process has taken over transactional id {name}: what was not committed before that is"
                " aborted; use an id in one place at a time"
            )
        return ProducerFenced(
            f"the transaction of {name} was open for longer than transaction.timeout.ms={self._timeout_ms}, or another"
            " process has taken over the id: it is aborted; raise transaction.timeout.ms, and use an id in one place at"
            " a time"
        )
