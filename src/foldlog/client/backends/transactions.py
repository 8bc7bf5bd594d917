"""Transactions in a directory: with our own batches, which carry the producer's id, epoch and sequence numbers.

The same for both kinds of directories: `TransactionHome` is the Broker's transaction store here, and there the process
that serves the directory. It is transaction version 2 of Kafka's: partitions are added by their first batch, and each
end raises the epoch, so that every transaction numbers its batches from 0.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Protocol

from foldlog.broker.broker import Broker
from foldlog.broker.groups.committed import OffsetAndMetadata
from foldlog.broker.transactions.store import MarkersToWrite
from foldlog.client.accumulator import PartitionQueue, ProducerBatch
from foldlog.client.backends.backend import DirectoryBroker, WritablePartition
from foldlog.client.descriptions import OpenProducer, TransactionDescription
from foldlog.client.forks import watch_forks
from foldlog.client.outgoing import TransactionalProducer
from foldlog.client.positions import GroupOffsets, TopicPartition
from foldlog.client.producer import BatchSender, ProducerSettings
from foldlog.errors import (
    FoldlogError,
    InvalidProducerEpoch,
    InvalidProducerIdMapping,
    InvalidTransactionState,
    ProducerFenced,
    WrongProcess,
    brief_repr,
)
from foldlog.log.partition import Appended, Partition
from foldlog.records.batch import MAX_INT32, NO_PRODUCER_EPOCH, NO_PRODUCER_ID

_log = logging.getLogger("foldlog")

_TAKEN_OVER = (InvalidProducerEpoch, InvalidProducerIdMapping)
"""What a producer hears whose transactional id has another producer, or another epoch, by now."""


class TransactionHome(Protocol):
    """Where the transactions of a directory are decided and written; see `broker.transactions.store` for what each call
    promises. Any thread."""

    def init_producer(
        self, transactional_id: str, timeout_ms: int, *, producer_id: int, producer_epoch: int
    ) -> tuple[int, int]: ...

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
    ) -> None: ...

    def end(self, transactional_id: str, producer_id: int, producer_epoch: int, *, commit: bool) -> tuple[int, int]: ...


Opens = Callable[[str, int, TransactionalProducer], WritablePartition]
Appends = Callable[[TransactionalProducer, Partition, bytearray], Appended]


class TransactionalSender(BatchSender):
    """Sends the batches of one transaction. With the first that fails, all fail: the transaction cannot be committed.
    Any thread."""

    def __init__(
        self,
        broker: DirectoryBroker,
        settings: ProducerSettings,
        producer: TransactionalProducer,
        opens: Opens,
        appends: Appends | None,
    ) -> None:
        super().__init__(broker, settings, lambda topic, number: opens(topic, number, producer))
        self._producer = producer
        self._appends = appends
        self._sequences: dict[tuple[str, int], int] = {}
        self._fault: BaseException | None = None

    @property
    def has_sent(self) -> bool:
        """Whether the log may have heard of the transaction."""
        return bool(self._sequences)

    def discard(self) -> None:
        """Write nothing more; what waits to be written fails. Returns once nothing is on its way."""
        self._fault = self._fault or InvalidTransactionState(
            "the transaction was aborted before the record was written"
        )
        try:
            self.close()
        except Exception as error:  # noqa: BLE001 whatever a batch failed with is in its futures
            _log.debug("records of an aborted transaction of %r: %s", self._producer.transactional_id, error)

    def _build(self, queue: PartitionQueue, batch: ProducerBatch) -> bytearray:
        """One thread at a time for each queue."""
        if self._fault is not None:
            raise self._fault.with_traceback(None)
        sequence = self._sequences.get((queue.topic, queue.number), 0)
        data = batch.builder.build(
            self._compression,
            producer_id=self._producer.producer_id,
            producer_epoch=self._producer.epoch,
            base_sequence=sequence,
            transactional=True,
        )
        self._sequences[queue.topic, queue.number] = (sequence + batch.builder.count) & MAX_INT32
        return data

    def _append_here(self, log: Partition, data: bytearray) -> Appended:
        if self._appends is None:
            raise TypeError(f"{log.label[0]}-{log.label[1]} is another process's to write")
        return self._appends(self._producer, log, data)

    def _settle(self, batch: ProducerBatch, error: BaseException | None) -> None:
        if error is not None and self._fault is None:
            self._fault = error
        super()._settle(batch, error)

    def _refused(self) -> FoldlogError:
        if self._refusal is WrongProcess:
            return WrongProcess("the transaction was begun before a fork; a child process has to open a log of its own")
        return InvalidTransactionState("the transaction is over; begin another with log.transaction()")


class DirectorySession:
    """See `TransactionSession`. Begins one transaction after the other, by one thread at a time."""

    def __init__(
        self,
        broker: DirectoryBroker,
        home: TransactionHome,
        transactional_id: str,
        opens: Opens,
        appends: Appends | None = None,
    ) -> None:
        """`opens` gives the partitions to append to; `appends` writes to one of this process."""
        self._broker = broker
        self._home = home
        self._transactional_id = transactional_id
        self._opens = opens
        self._appends = appends
        self._timeout_ms = 0
        self._numbers = (NO_PRODUCER_ID, NO_PRODUCER_EPOCH)
        self._must_init = True
        self._is_forked = False
        watch_forks(self._forked)

    def begin(self, timeout_ms: int, settings: ProducerSettings) -> DirectoryTransaction:
        """See `TransactionSession`."""
        self.check_usable()
        if self._must_init or timeout_ms != self._timeout_ms:
            # With the numbers that it had: after an error it goes on, unless another holder came since.
            producer_id, epoch = self._numbers
            try:
                self._numbers = self._home.init_producer(
                    self._transactional_id, timeout_ms, producer_id=producer_id, producer_epoch=epoch
                )
            except _TAKEN_OVER as error:
                raise self._fenced() from error
            self._timeout_ms = timeout_ms
            self._must_init = False
        producer = TransactionalProducer(self._transactional_id, *self._numbers)
        sender = TransactionalSender(self._broker, settings, producer, self._opens, self._appends)
        return DirectoryTransaction(self, sender)

    def close(self) -> None:
        """Nothing to let go of: the id stays this log's until another holder comes."""

    def commit_offsets(self, wanted: GroupOffsets) -> None:
        self.check_usable()
        try:
            self._home.commit_offsets(
                self._transactional_id,
                *self._numbers,
                wanted.group,
                dict(wanted.offsets.items()),
                member_id=wanted.member_id,
                generation=wanted.generation,
                instance_id=wanted.instance_id,
                add=True,
            )
        except _TAKEN_OVER as error:
            raise self._fenced() from error

    def end(self, *, commit: bool) -> None:
        """The next transaction has another epoch. After an error nobody knows this one's: it is asked for."""
        self.check_usable()
        try:
            self._numbers = self._home.end(self._transactional_id, *self._numbers, commit=commit)
        except (*_TAKEN_OVER, InvalidTransactionState) as error:
            self._must_init = True
            raise self._fenced() from error
        except BaseException:
            self._must_init = True
            raise

    def explained(self, error: Exception) -> Exception:
        """What a send has failed with, in other words if it is that the id is another's."""
        return self._fenced() if isinstance(error, _TAKEN_OVER) else error

    def _fenced(self) -> ProducerFenced:
        return ProducerFenced(
            f"transactional id {brief_repr(self._transactional_id)} has a newer holder, or its transaction was open for"
            " longer than timeout_ms: the log has aborted it, and nothing of it counts; use an id in one place at a"
            " time, or raise timeout_ms"
        )

    def check_usable(self) -> None:
        """WrongProcess in a forked child, LogClosed after the log was closed."""
        if self._is_forked:
            raise WrongProcess("the transaction was begun before a fork; a child process has to open a log of its own")
        self._broker.check_open()

    def _forked(self) -> None:
        self._is_forked = True


class DirectoryTransaction:
    """See `BegunTransaction`."""

    def __init__(self, session: DirectorySession, sender: TransactionalSender) -> None:
        self._session = session
        self.sender = sender
        self._has_offsets = False
        self.is_over = False

    def commit_offsets(self, wanted: GroupOffsets) -> None:
        """See `BegunTransaction`."""
        self._has_offsets = True
        self._session.commit_offsets(wanted)

    def commit(self) -> None:
        """See `BegunTransaction`."""
        self._session.check_usable()
        try:
            self.sender.close()
        except Exception as error:
            self._abort_after(error)
            explained = self._session.explained(error)
            if explained is error:
                raise
            raise explained from error
        self.is_over = True
        if self._must_end:
            self._session.end(commit=True)

    def abort(self) -> None:
        """See `BegunTransaction`."""
        self.is_over = True
        self._session.check_usable()
        self.sender.discard()
        if self._must_end:
            try:
                self._session.end(commit=False)
            except ProducerFenced:
                pass  # who came since has aborted it

    def _abort_after(self, error: Exception) -> None:
        try:
            self.abort()
        except FoldlogError as failure:
            _log.warning("aborting a transaction after %r: %s", error, failure)

    @property
    def _must_end(self) -> bool:
        """Whether the coordinator knows of it: a transaction without records and offsets is nothing to it."""
        return self._has_offsets or self.sender.has_sent


# --- for operators --------------------------------------------------------------------------------------------------


def list_here(broker: Broker) -> list[TransactionDescription]:
    """Every transactional id of a directory, in order."""
    found = []
    for one in sorted(broker.transactions.list(), key=lambda one: one.transactional_id):
        partitions = tuple(TopicPartition(*key) for key in sorted(one.partitions))
        start_ms = one.start_ms if partitions else None
        numbers = (one.producer_id, one.producer_epoch, one.timeout_ms)
        found.append(TransactionDescription(one.transactional_id, one.state.title, *numbers, start_ms, partitions))
    return found


def open_producers_here(broker: Broker, topic: str, number: int) -> list[OpenProducer]:
    """Of a partition that this process writes: see `Backend.open_producers`."""
    found = [
        OpenProducer(
            one.producer_id,
            one.producer_epoch,
            one.coordinator_epoch,
            one.transaction_start_offset,
            one.last_timestamp_ms,
        )
        for one in broker.writable_partition(topic, number).producers_info()
        if one.transaction_start_offset >= 0
    ]
    return sorted(found, key=lambda one: one.first_offset)


def abort_here(broker: Broker, topic: str, number: int, producer: OpenProducer) -> None:
    """In a partition that this process writes: see `Backend.abort_in_partition`."""
    # Of a transaction without any marker before it no epoch of its coordinator is known.
    epoch = max(0, producer.coordinator_epoch)
    marker = MarkersToWrite(producer.producer_id, producer.producer_epoch, epoch, False, ((topic, number),))
    (results,) = broker.transactions.write_markers([marker])
    for error in results.values():
        if error is not None:
            raise error
