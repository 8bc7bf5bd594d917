"""Transactions on a cluster: librdkafka's, which speaks transaction version 1 of Kafka's.

A producer of librdkafka's holds the transactional id for as long as the log is open. After an error that ends it,
another one is made with the next transaction, unless it was fenced: then somebody else has the id, and keeps it.

A producer whose transaction was open for too long is answered as one that was fenced: its epoch is over, and so is
librdkafka's producer. Which of the two it was, the clock and the coordinator of the id tell: see `why_ended`.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from contextlib import suppress
from enum import Enum, auto
from typing import TYPE_CHECKING, Any, Final

from foldlog.client.backends.cluster.faults import Where
from foldlog.client.backends.cluster.handles import Handles, Trouble
from foldlog.client.backends.cluster.producer import LibrarySender, TopicRoute
from foldlog.client.backends.cluster.records import offset_to_commit
from foldlog.client.descriptions import TransactionDescription
from foldlog.client.handle_types import BatchAck
from foldlog.client.positions import GroupOffsets
from foldlog.client.producer import ProducerSettings
from foldlog.client.wire.transactions.requests import describe_transaction
from foldlog.errors import (
    FencedMember,
    FoldlogError,
    InvalidArgument,
    InvalidProducerEpoch,
    InvalidProducerIdMapping,
    InvalidTransactionState,
    ProducerFenced,
    WrongProcess,
    brief_repr,
)
from foldlog.wire.error_codes import ErrorCode

if TYPE_CHECKING:
    from confluent_kafka import KafkaError, Message
    from confluent_kafka import Producer as LibraryProducer

    from foldlog.client.backends.cluster.backend import ClusterBackend

_log = logging.getLogger("foldlog")

_FENCED: Final = frozenset(
    {ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.INVALID_PRODUCER_ID_MAPPING}
)
_PURGED: Final = frozenset({"_PURGE_QUEUE", "_PURGE_INFLIGHT"})
_UNSAID: Final = logging.getLogger("foldlog.librdkafka")
_UNSAID.setLevel(logging.CRITICAL + 1)
"""librdkafka prints that a producer is fenced; our error says so."""

_BATCH_BYTES_MAX: Final = 1_000_000_000
"""The most that librdkafka takes."""


_ABORTED: Final = frozenset({"PrepareAbort", "CompleteAbort", "PrepareEpochFence"})


class WhyEnded(Enum):
    """Why a cluster lets the producer of a transactional id not go on."""

    NEWER_HOLDER = auto()
    TIMED_OUT = auto()
    ONE_OF_BOTH = auto()


def why_ended(
    open_ms: float, timeout_ms: int, before: TransactionDescription | None, now: TransactionDescription | None
) -> WhyEnded:
    """`open_ms`: for how long the transaction was open. The id as its coordinator described it when the producer came,
    and afterwards; None where it was not told.

    An abort because the time is over raises the epoch by one, and leaves the id to its holder; a newer one raises it
    again when it comes. librdkafka may have raised it, too, which nobody tells.
    """
    if open_ms < timeout_ms:
        return WhyEnded.NEWER_HOLDER
    if before is None or now is None:
        return WhyEnded.ONE_OF_BOTH
    if now.state not in _ABORTED or now.producer_id != before.producer_id:
        return WhyEnded.NEWER_HOLDER
    return WhyEnded.TIMED_OUT if now.producer_epoch == before.producer_epoch + 1 else WhyEnded.ONE_OF_BOTH


class TransactionalLibrarySender(LibrarySender):
    """Sends through the one producer that holds a transactional id. Takes records between `resume` and `pause`."""

    def __init__(
        self,
        cluster: ClusterBackend,
        handles: Handles,
        settings: ProducerSettings,
        transactional_id: str,
        timeout_ms: int,
    ) -> None:
        super().__init__(cluster, handles, settings)
        self._own = self._producer_of(transactional_id, timeout_ms)
        self._hearing.add(self._own)
        self._refusal = InvalidTransactionState

    @property
    def producer(self) -> LibraryProducer:
        return self._own

    @property
    def trouble(self) -> Trouble:
        return self._trouble

    def resume(self) -> None:
        with self._settled:
            self._failure = None
        self._refusal = None

    def pause(self) -> None:
        """Take nothing more, and wait for what was taken; raises the first error of this transaction."""
        if self._refusal is WrongProcess:
            raise self._refused()
        with self._lock:
            self._refusal = InvalidTransactionState
        self.flush()

    def let_go(self) -> None:
        """Of the producer, and of librdkafka's threads with it. What is on its way fails."""
        if self._refusal is WrongProcess:
            return  # they are the parent's
        with self._lock:
            self._refusal = InvalidTransactionState
        with suppress(self._handles.kafka_exception):
            self._own.purge()
        self._end()

    def _producer_of(self, transactional_id: str, timeout_ms: int) -> LibraryProducer:
        settings: dict[str, Any] = {
            **self._settings,
            "acks": "all",
            "enable.idempotence": "true",
            "transactional.id": transactional_id,
            "transaction.timeout.ms": timeout_ms,
            "batch.size": min(self._batch_bytes, _BATCH_BYTES_MAX),
            "message.max.bytes": _BATCH_BYTES_MAX,  # what a record may have is checked against its topic
            "logger": _UNSAID,
        }
        # librdkafka refuses a record that may wait for longer than its transaction is open, or linger for as long.
        settings["message.timeout.ms"] = min(int(settings["message.timeout.ms"]) or timeout_ms, timeout_ms)
        settings["linger.ms"] = max(0, min(float(settings["linger.ms"]), settings["message.timeout.ms"] - 1))
        return self._handles.producer(settings, self._trouble)

    def _producer_for(self, route: TopicRoute) -> LibraryProducer:
        """The only one. librdkafka does not split a batch that is too large for its topic."""
        if route.max_message_bytes < self._batch_bytes:
            raise InvalidArgument(
                f"topic {route.name!r} takes batches of up to max.message.bytes={route.max_message_bytes}, and this"
                f" transaction makes some of up to {self._batch_bytes}; begin it with"
                f" batch_bytes={route.max_message_bytes}"
            )
        return self._own

    def _all_producers(self) -> list[LibraryProducer]:
        return [self._own]

    def _delivered(self, ack: BatchAck, error: KafkaError | None, message: Message[Any, Any]) -> None:
        if error is not None and error.name() in _PURGED:
            fault = InvalidTransactionState("the transaction was aborted before the record was written")
            ack.finish(fault)
            self._settle(fault)
            return
        super()._delivered(ack, error, message)

    def _refused(self) -> FoldlogError:
        if self._refusal is WrongProcess:
            return super()._refused()
        return InvalidTransactionState("the transaction is over; begin another with log.transaction()")


class ClusterSession:
    """See `TransactionSession`. Begins one transaction after the other, by one thread at a time."""

    def __init__(self, cluster: ClusterBackend, handles: Handles, transactional_id: str) -> None:
        self._cluster = cluster
        self._handles = handles
        self._transactional_id = transactional_id
        self._sender: TransactionalLibrarySender | None = None
        self._made_for: tuple[int, ProducerSettings] | None = None
        self._fault: ProducerFenced | None = None
        self._began_s = 0.0
        self._described: TransactionDescription | None = None  # when the producer came

    def begin(self, timeout_ms: int, settings: ProducerSettings) -> ClusterTransaction:
        """See `TransactionSession`."""
        if self._fault is not None:
            raise self._fault.with_traceback(None)
        sender = self._sender
        if sender is None or self._made_for != (timeout_ms, settings):
            self.close()
            sender = self._initialised(timeout_ms, settings)
        producer = sender.producer
        self.do(sender, lambda _: producer.begin_transaction())
        self._began_s = time.monotonic()
        sender.resume()
        return ClusterTransaction(self, sender)

    def _initialised(self, timeout_ms: int, settings: ProducerSettings) -> TransactionalLibrarySender:
        sender = TransactionalLibrarySender(self._cluster, self._handles, settings, self._transactional_id, timeout_ms)
        self._began_s = time.monotonic()
        try:
            self.do(sender, sender.producer.init_transactions)
        except FoldlogError:
            sender.let_go()
            raise
        self._sender, self._made_for = sender, (timeout_ms, settings)
        self._described = self._describe()
        return sender

    def _describe(self) -> TransactionDescription | None:
        """As the coordinator knows the id now; None if it does not say."""
        try:
            with self._handles.wire() as links:
                return links.ask(describe_transaction(self._transactional_id))
        except FoldlogError as error:
            _log.debug("describing transactional id %r: %s", self._transactional_id, error)
            return None

    def do(self, sender: TransactionalLibrarySender, call: Callable[[float], object], group: str | None = None) -> None:
        """A call of librdkafka's, which is told how many seconds are left; again while that may help. A producer that
        is ended by its error is let go of."""
        last: list[KafkaError] = []

        def attempt(left_s: float) -> None:
            try:
                call(left_s)
            except self._handles.kafka_exception as error:
                last[:] = [error.args[0]]
                raise

        try:
            self._handles.patiently(attempt, Where(group=group), sender.trouble)
        except FoldlogError as error:
            told = last[0] if last else None
            if told is not None and (told.name() == "_FENCED" or told.code() in _FENCED):
                fault = self._ended()
                self.close()
                raise fault from error
            if told is not None and told.fatal():
                self.close()
            raise

    def explained(self, error: Exception) -> Exception:
        """What a send has failed with, in other words if it is that the id is another's."""
        if isinstance(error, ProducerFenced):
            return error
        # FencedMember is what librdkafka's own code for it means to a consumer.
        if isinstance(error, InvalidProducerEpoch | InvalidProducerIdMapping | FencedMember):
            fault = self._ended()
            self.close()
            return fault
        return error

    def group_metadata(self, wanted: GroupOffsets) -> Any:
        """The member as librdkafka describes it; without one, the group alone."""
        if wanted.library is not None:
            return wanted.library
        consumer = self._handles.consumer({"group.id": wanted.group}, Trouble())
        try:
            return consumer.consumer_group_metadata()
        finally:
            consumer.close()

    def close(self) -> None:
        """Let go of the producer. The id stays this log's until another holder comes."""
        sender, self._sender = self._sender, None
        if sender is not None:
            sender.let_go()

    def _ended(self) -> ProducerFenced:
        """What to say of it. Where the id may be another's, this session is over for good."""
        timeout_ms = 0 if self._made_for is None else self._made_for[0]
        open_ms = (time.monotonic() - self._began_s) * 1000
        # The clock alone tells it of a young one.
        now = self._describe() if open_ms >= timeout_ms else None
        why = why_ended(open_ms, timeout_ms, self._described, now)
        name = brief_repr(self._transactional_id)
        if why is WhyEnded.TIMED_OUT:
            return ProducerFenced(
                f"the transaction of {name} was open for longer than timeout_ms={timeout_ms}: the cluster has aborted"
                " it, and nothing of it counts; raise timeout_ms, or do less in one"
            )
        holder = f"transactional id {name} has a newer holder"
        late = f", or its transaction was open for longer than timeout_ms={timeout_ms}"
        advice = ", or raise timeout_ms"
        if why is WhyEnded.NEWER_HOLDER:
            late = advice = ""
        self._fault = ProducerFenced(
            f"{holder}{late}: the cluster has aborted what was open, and nothing of it counts; use an id in one place"
            f" at a time{advice}"
        )
        return self._fault


class ClusterTransaction:
    """See `BegunTransaction`."""

    def __init__(self, session: ClusterSession, sender: TransactionalLibrarySender) -> None:
        self._session = session
        self.sender = sender
        self.is_over = False

    def commit_offsets(self, wanted: GroupOffsets) -> None:
        """See `BegunTransaction`."""
        positions = [offset_to_commit(one, at) for one, at in wanted.offsets.items()]
        metadata = self._session.group_metadata(wanted)
        producer = self.sender.producer
        self._session.do(
            self.sender,
            lambda left_s: producer.send_offsets_to_transaction(positions, metadata, left_s),
            wanted.group,
        )

    def commit(self) -> None:
        """See `BegunTransaction`."""
        try:
            self.sender.pause()
            self._session.do(self.sender, self.sender.producer.commit_transaction)
        except Exception as error:
            self._abort_after(error)
            explained = self._session.explained(error)
            if explained is error:
                raise
            raise explained from error
        self.is_over = True

    def abort(self) -> None:
        """See `BegunTransaction`."""
        self.is_over = True
        try:
            self._session.do(self.sender, self.sender.producer.abort_transaction)
        except ProducerFenced:
            return  # who came since has aborted it
        try:
            self.sender.pause()
        except FoldlogError as error:
            _log.debug("records of an aborted transaction: %s", error)

    def _abort_after(self, error: Exception) -> None:
        try:
            if not isinstance(error, ProducerFenced):
                self.abort()
        except FoldlogError as failure:
            _log.warning("aborting a transaction after %r: %s", error, failure)
        self.is_over = True
