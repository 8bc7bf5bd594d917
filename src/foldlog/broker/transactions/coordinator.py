"""The transaction coordinator: who may write under a transactional id, and how its transactions end. Without I/O.

Requests come in as calls, time as the injected clock. A call decides and returns the id's new state, or raises, and
changes nothing: the driver appends the state to `__transaction_state`, then calls `apply`. So a failed append leaves
all as it was. Decisions build on each other before they are durable: their records stand in one partition in the order
of the decisions, so that no crash keeps a later one without the earlier. What a client is told, and markers, wait for
the disk; that is the driver's part (store.py).

    Empty ─────► Ongoing ─────► PrepareCommit ─► CompleteCommit ─► Ongoing, Empty
                    │  ▲
                    ▼  └─────── a new transaction begins
                 PrepareAbort ─► CompleteAbort ─► Ongoing, Empty

Prepare decides a transaction for good: from there it only goes to the Complete of the same kind. With transaction
version 2 (KIP-890) the end raises the epoch, so that no late batch of the ended transaction can join the next one. An
abort that the producer did not ask for (its time is over, a newer producer came, an operator wants it) does so in every
version: that is how zombies are fenced.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, replace
from typing import Final

from foldlog import limits
from foldlog.broker.groups.timers import Timers
from foldlog.broker.transactions.state_format import (
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_TIMESTAMP,
    TopicPartition,
    TransactionMetadata,
    TransactionState,
    decode_key,
    decode_value,
)
from foldlog.clock import Clock
from foldlog.errors import (
    ConcurrentTransactions,
    InvalidArgument,
    InvalidProducerIdMapping,
    InvalidTransactionState,
    InvalidTransactionTimeout,
    NothingToCommit,
    ProducerFenced,
    TooManyTransactions,
    TransactionAbortable,
    TransactionError,
    UnknownTransactionalId,
    brief_repr,
)

VERSION_2: Final = 2
"""The transaction version from which the end of a transaction raises the epoch."""

EPOCH_MAX: Final = (1 << 15) - 1
"""Never given to a client: a producer with it could not be fenced."""


@dataclass(frozen=True, slots=True)
class TransactionSettings:
    """Broker settings, with Kafka's names in the comments."""

    timeout_max_ms: int = limits.TRANSACTION_TIMEOUT_MAX_MS  # transaction.max.timeout.ms
    id_expiration_ms: int = limits.TRANSACTIONAL_ID_EXPIRATION_MS  # transactional.id.expiration.ms
    # transaction.abort.timed.out.transaction.cleanup.interval.ms
    abort_check_ms: int = limits.TRANSACTION_ABORT_CHECK_MS
    # transaction.remove.expired.transaction.cleanup.interval.ms
    expiry_check_ms: int = limits.TRANSACTIONAL_ID_EXPIRY_CHECK_MS
    ids_max: int = limits.TRANSACTIONAL_IDS_MAX
    partitions_max: int = limits.TRANSACTION_PARTITIONS_MAX


class TransactionCoordinator:
    """All transactional ids of one broker. One owner at a time: the driver holds a lock around every call.

    - No call but `apply`, `forget` and `restore` changes anything.
    - A state that was returned must be applied before the next call about the same id, or dropped.
    - A transaction in Prepare gets its markers from the driver, which then applies `complete`.
    - Deadlines are in the clock's monotonic milliseconds. Whoever finds `is_due` aborts with `fence`.
    """

    def __init__(
        self, clock: Clock, new_producer_id: Callable[[], int], settings: TransactionSettings | None = None
    ) -> None:
        self._clock = clock
        self._new_producer_id = new_producer_id
        self.settings = settings or TransactionSettings()
        self._known: dict[str, TransactionMetadata] = {}
        self._by_producer: dict[int, str] = {}
        self._prepared: dict[str, None] = {}
        self._partition_count = 0
        self._timers: Timers[str] = Timers()

    # --- requests ---------------------------------------------------------------------------------------------------

    def init(
        self, transactional_id: str, timeout_ms: int, producer_id: int, producer_epoch: int, client_version: int
    ) -> TransactionMetadata:
        """InitProducerId: the state in which the caller is the id's one producer.

        If a transaction is open the state is its PrepareAbort: once that is complete, the call is repeated. A producer
        that continues after an error gives its id and epoch (KIP-360), and is fenced if another one came since.
        """
        _check_id(transactional_id)
        if not 1 <= timeout_ms <= self.settings.timeout_max_ms:
            raise InvalidTransactionTimeout(
                f"transaction.timeout.ms={timeout_ms} is not allowed; it is from 1 to the broker's"
                f" transaction.max.timeout.ms={self.settings.timeout_max_ms}"
            )
        metadata = self._known.get(transactional_id)
        now_ms = self._clock.now_ms()
        if metadata is None:
            if len(self._known) >= self.settings.ids_max:
                raise TooManyTransactions(
                    f"there are {self.settings.ids_max} transactional ids, and no room for"
                    f" {brief_repr(transactional_id)}; use fewer, or wait until some expire"
                )
            new_id = self._new_producer_id()
            return TransactionMetadata(
                transactional_id,
                new_id,
                0,
                timeout_ms,
                updated_ms=now_ms,
                previous_producer_id=new_id,
                client_version=client_version,
            )
        continues = producer_id != NO_PRODUCER_ID
        if continues and not _is_producer(metadata, producer_id, producer_epoch):
            raise _fenced(metadata, producer_id, producer_epoch)
        if metadata.state.is_prepared:
            raise _concurrent(metadata)
        if metadata.state is TransactionState.ONGOING:
            # Stricter than Kafka, which lets a zombie abort the transaction of its successor before it is refused.
            if continues and producer_epoch != metadata.producer_epoch:
                raise _fenced(metadata, producer_id, producer_epoch)
            return self.fence(transactional_id)
        fresh = replace(
            metadata,
            state=TransactionState.EMPTY,
            timeout_ms=timeout_ms,
            partitions=frozenset(),
            start_ms=NO_TIMESTAMP,
            updated_ms=now_ms,
            previous_producer_id=metadata.producer_id,
            client_version=client_version,
        )
        epoch = metadata.producer_epoch
        if continues and producer_epoch not in (epoch, metadata.last_producer_epoch):
            raise _fenced(metadata, producer_id, producer_epoch)
        if continues and producer_epoch != epoch < EPOCH_MAX:
            # The request was answered before, and the answer was lost. No other producer came since: it would have
            # taken away the last epoch.
            return replace(fresh, previous_producer_id=metadata.previous_producer_id)
        last_epoch = producer_epoch if continues else NO_PRODUCER_EPOCH
        if _is_exhausted(epoch):
            return replace(fresh, producer_id=self._new_producer_id(), producer_epoch=0, last_producer_epoch=last_epoch)
        return replace(fresh, producer_epoch=epoch + 1, last_producer_epoch=last_epoch)

    def add(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: Collection[TopicPartition],
        client_version: int,
    ) -> TransactionMetadata:
        """AddPartitionsToTxn: the state with these partitions in the open transaction, which begins if none is open.

        It is the present one, and need not be stored, if all of them are in it already.
        """
        metadata = self._of_producer(transactional_id, producer_id, producer_epoch)
        now_ms = self._clock.now_ms()
        is_open = metadata.state is TransactionState.ONGOING
        added = metadata.partitions.union(partitions) if is_open else frozenset(partitions)
        if is_open and len(added) == len(metadata.partitions):
            return metadata
        if self._partition_count + len(added) - len(metadata.partitions) > self.settings.partitions_max:
            raise TooManyTransactions(
                f"the open transactions have {self._partition_count} partitions, and no room for those of transactional"
                f" id {brief_repr(transactional_id)}; try again later, or use fewer partitions in a transaction"
            )
        return replace(
            metadata,
            state=TransactionState.ONGOING,
            partitions=added,
            start_ms=metadata.start_ms if is_open else now_ms,
            updated_ms=now_ms,
            previous_producer_id=metadata.producer_id,
            client_version=client_version,
        )

    def verify(
        self, transactional_id: str, producer_id: int, producer_epoch: int, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, TransactionError | None]:
        """For each partition None if it is in the producer's open transaction, or why nothing may be written there.

        Raises what is wrong with the producer.
        """
        metadata = self._of_producer(transactional_id, producer_id, producer_epoch)
        return {
            (topic, number): None
            if metadata.state is TransactionState.ONGOING and (topic, number) in metadata.partitions
            else TransactionAbortable(
                f"{topic}-{number} is not in an open transaction of transactional id {brief_repr(transactional_id)};"
                " abort, then begin another and add the partition first"
            )
            for topic, number in partitions
        }

    def end(
        self, transactional_id: str, producer_id: int, producer_epoch: int, *, commit: bool, client_version: int
    ) -> TransactionMetadata:
        """EndTxn: the PrepareCommit or PrepareAbort of the transaction.

        It is the present state, and need not be stored, if the request was answered before: `complete_of` says what
        to answer in both cases.
        """
        metadata = self._get(transactional_id, producer_id)
        if client_version >= VERSION_2:
            return self._end_2(metadata, producer_id, producer_epoch, commit)
        if metadata.producer_id != producer_id:
            raise _wrong_producer(metadata, producer_id)
        if metadata.producer_epoch != producer_epoch:
            raise _fenced(metadata, producer_id, producer_epoch)
        if metadata.state is not TransactionState.ONGOING:
            return _repeated(metadata, commit)
        return self._ended(metadata, commit, client_version)

    def _end_2(
        self, metadata: TransactionMetadata, producer_id: int, producer_epoch: int, commit: bool
    ) -> TransactionMetadata:
        """The epoch says whether it is the end of the present transaction or a repetition of the last: that one has
        raised the epoch, or taken another producer id after the last epoch of the old one."""
        took_over = (
            metadata.previous_producer_id == producer_id != metadata.producer_id
            and producer_epoch == EPOCH_MAX - 1
            and metadata.producer_epoch == 0
            and not metadata.state.is_prepared
        )
        if metadata.producer_id != producer_id and not took_over:
            raise _wrong_producer(metadata, producer_id)
        was_raised = metadata.producer_id == producer_id and metadata.producer_epoch == producer_epoch + 1
        # Only an end of version 2 raised the epoch. One of version 1 may be that of another producer, with the epoch
        # after the one that a zombie has.
        has_ended = (
            metadata.state not in (TransactionState.EMPTY, TransactionState.ONGOING)
            and metadata.client_version >= VERSION_2
        )
        if has_ended and (was_raised or took_over):
            return _repeated(metadata, commit)
        if metadata.producer_epoch != producer_epoch or metadata.state.is_prepared:
            raise _fenced(metadata, producer_id, producer_epoch)
        if metadata.state is not TransactionState.ONGOING and commit:
            raise NothingToCommit(str(_wrong_state(metadata, commit)))
        # An abort without an open transaction raises the epoch, too: the client does not know whether its first Produce
        # got as far as beginning one.
        return self._ended(metadata, commit, VERSION_2)

    def fence(self, transactional_id: str) -> TransactionMetadata:
        """The PrepareAbort of the open transaction, by the broker. Its producer is fenced: the epoch rises.

        Raises UnknownTransactionalId, ConcurrentTransactions, or InvalidTransactionState if no transaction is open.
        """
        metadata = self.describe(transactional_id)
        if metadata.state.is_prepared:
            raise _concurrent(metadata)
        if metadata.state is not TransactionState.ONGOING:
            raise _wrong_state(metadata, commit=False)
        return self._ended(metadata, False, VERSION_2, rotates=False)

    def _ended(
        self, metadata: TransactionMetadata, commit: bool, client_version: int, *, rotates: bool = True
    ) -> TransactionMetadata:
        """`rotates`: a new producer id takes over when the epochs are used up; after a fence it comes with init."""
        now_ms = self._clock.now_ms()
        raises = client_version >= VERSION_2
        is_open = metadata.state is TransactionState.ONGOING
        return replace(
            metadata,
            state=TransactionState.PREPARE_COMMIT if commit else TransactionState.PREPARE_ABORT,
            producer_epoch=metadata.producer_epoch + 1 if raises else metadata.producer_epoch,
            last_producer_epoch=metadata.producer_epoch if raises else metadata.last_producer_epoch,
            previous_producer_id=metadata.producer_id,
            next_producer_id=(
                self._new_producer_id()
                if raises and rotates and _is_exhausted(metadata.producer_epoch)
                else NO_PRODUCER_ID
            ),
            start_ms=metadata.start_ms if is_open else now_ms,
            updated_ms=now_ms,
            client_version=client_version,
        )

    def complete(self, transactional_id: str) -> TransactionMetadata:
        """The Complete state after Prepare: to be stored once every marker is durable, never before."""
        return replace(complete_of(self._known[transactional_id]), updated_ms=self._clock.now_ms())

    # --- what the driver asks ---------------------------------------------------------------------------------------

    def get(self, transactional_id: str) -> TransactionMetadata | None:
        return self._known.get(transactional_id)

    def describe(self, transactional_id: str) -> TransactionMetadata:
        """The state of the id. Raises UnknownTransactionalId."""
        _check_id(transactional_id)
        metadata = self._known.get(transactional_id)
        if metadata is None:
            raise UnknownTransactionalId(
                f"there is no transactional id {brief_repr(transactional_id)}; it was never used, or has expired"
            )
        return metadata

    def all(self) -> list[TransactionMetadata]:
        """Every id, in order of name."""
        return [self._known[name] for name in sorted(self._known)]

    def id_of_producer(self, producer_id: int) -> str | None:
        """The transactional id whose producer has that id; None for a producer without transactions."""
        return self._by_producer.get(producer_id)

    def prepared(self) -> list[str]:
        """Ids whose transactions are decided and may lack markers."""
        return list(self._prepared)

    def is_due(self, transactional_id: str) -> bool:
        """Whether the id's open transaction has taken longer than its transaction.timeout.ms."""
        deadline_ms = self._timers.deadline_ms(transactional_id)
        return deadline_ms is not None and deadline_ms <= self._clock.monotonic_ms()

    def due(self) -> list[str]:
        """Ids for which `is_due`."""
        now_ms = self._clock.monotonic_ms()
        next_ms = self._timers.next_deadline_ms()
        if next_ms is None or next_ms > now_ms:
            return []
        return [name for name in self._known if self.is_due(name)]

    def next_deadline_ms(self) -> float | None:
        """When the first transaction will be due, in monotonic milliseconds; None if none is open."""
        return self._timers.next_deadline_ms()

    def expired(self) -> list[str]:
        """Ids without an open transaction that have not changed for transactional.id.expiration.ms.

        If the wall clock was set back the age is negative, so nothing expires early.
        """
        now_ms = self._clock.now_ms()
        return [
            name
            for name, metadata in self._known.items()
            if metadata.state is not TransactionState.ONGOING
            and not metadata.state.is_prepared
            and now_ms - metadata.updated_ms >= self.settings.id_expiration_ms
        ]

    # --- changes ----------------------------------------------------------------------------------------------------

    def apply(self, metadata: TransactionMetadata) -> None:
        """Take in a state whose record is appended."""
        before = self._known.get(metadata.transactional_id)
        self._replace(metadata)
        if metadata.state is not TransactionState.ONGOING:
            self._timers.cancel(metadata.transactional_id)
        elif before is None or before.state is not TransactionState.ONGOING:
            self._timers.set(metadata.transactional_id, self._clock.monotonic_ms() + metadata.timeout_ms)

    def forget(self, transactional_id: str) -> None:
        """Take in a tombstone that is appended."""
        gone = self._known.pop(transactional_id, None)
        if gone is not None:
            self._partition_count -= len(gone.partitions)
            self._by_producer.pop(gone.producer_id, None)
            self._prepared.pop(transactional_id, None)
            self._timers.cancel(transactional_id)

    def restore(self, key: bytes | None, value: bytes | None) -> None:
        """Take in an id's record while loading, in the order of the log; the last one counts.

        An open transaction has as long as the wall clock says, and at most its whole timeout. Raises
        `CorruptTransactionRecord` and changes nothing if the record is malformed.
        """
        transactional_id = decode_key(key)
        if key is None or value is None:
            self.forget(transactional_id)
            return
        metadata = decode_value(key, value)
        self._replace(metadata)
        self._timers.cancel(transactional_id)
        if metadata.state is TransactionState.ONGOING:
            passed_ms = min(max(self._clock.now_ms() - metadata.start_ms, 0), metadata.timeout_ms)
            self._timers.set(transactional_id, self._clock.monotonic_ms() + metadata.timeout_ms - passed_ms)

    def _replace(self, metadata: TransactionMetadata) -> None:
        name = metadata.transactional_id
        before = self._known.get(name)
        if before is not None and before.producer_id != metadata.producer_id:
            # No transaction of the older one is open anywhere: every marker was durable before it was replaced.
            self._by_producer.pop(before.producer_id, None)
        self._partition_count += len(metadata.partitions) - (0 if before is None else len(before.partitions))
        self._known[name] = metadata
        self._by_producer[metadata.producer_id] = name
        if metadata.state.is_prepared:
            self._prepared[name] = None
        else:
            self._prepared.pop(name, None)

    # --- refusals ---------------------------------------------------------------------------------------------------

    def _get(self, transactional_id: str, producer_id: int) -> TransactionMetadata:
        _check_id(transactional_id)
        metadata = self._known.get(transactional_id)
        if metadata is None:
            raise InvalidProducerIdMapping(
                f"producer {producer_id} is not that of transactional id {brief_repr(transactional_id)}, which is"
                " unknown here; initialise the producer again"
            )
        return metadata

    def _of_producer(self, transactional_id: str, producer_id: int, producer_epoch: int) -> TransactionMetadata:
        """The id's state, if the caller is its producer and may write."""
        metadata = self._get(transactional_id, producer_id)
        if metadata.producer_id != producer_id:
            raise _wrong_producer(metadata, producer_id)
        if metadata.producer_epoch != producer_epoch:
            raise _fenced(metadata, producer_id, producer_epoch)
        if metadata.state.is_prepared:
            raise _concurrent(metadata)
        return metadata


def complete_of(metadata: TransactionMetadata) -> TransactionMetadata:
    """What a prepared transaction becomes; any other state is its own."""
    if not metadata.state.is_prepared:
        return metadata
    rotates = metadata.next_producer_id != NO_PRODUCER_ID
    return replace(
        metadata,
        state=TransactionState.COMPLETE_COMMIT if metadata.is_committing else TransactionState.COMPLETE_ABORT,
        partitions=frozenset(),
        producer_id=metadata.next_producer_id if rotates else metadata.producer_id,
        producer_epoch=0 if rotates else metadata.producer_epoch,
        previous_producer_id=metadata.producer_id,
        next_producer_id=NO_PRODUCER_ID,
    )


def select(
    all_metadata: Iterable[TransactionMetadata],
    now_ms: int,
    *,
    states: Collection[str] = (),
    producer_ids: Collection[int] = (),
    min_duration_ms: int = -1,
    is_wanted: Callable[[str], object] = lambda transactional_id: True,
) -> list[TransactionMetadata]:
    """Those in one of the states (all if none is named), of one of the producers, open for longer than the duration,
    and with a wanted id: ListTransactions."""
    return [
        one
        for one in all_metadata
        if (not states or one.state.title in states)
        and (not producer_ids or one.producer_id in producer_ids)
        and (min_duration_ms < 0 or (one.start_ms >= 0 and now_ms - one.start_ms > min_duration_ms))
        and is_wanted(one.transactional_id)
    ]


def _check_id(transactional_id: object) -> None:
    if not isinstance(transactional_id, str) or not transactional_id:
        raise InvalidArgument(
            f"transactional.id={brief_repr(transactional_id)} is not allowed; it is a text, and not empty"
        )


def _is_exhausted(epoch: int) -> bool:
    return epoch >= EPOCH_MAX - 1


def _is_producer(metadata: TransactionMetadata, producer_id: int, producer_epoch: int) -> bool:
    """Whether a producer that wants to continue is, or last was, that of the id; its epoch is looked at later."""
    return producer_id == metadata.producer_id or (
        producer_id == metadata.previous_producer_id and _is_exhausted(producer_epoch)
    )


def _repeated(metadata: TransactionMetadata, commit: bool) -> TransactionMetadata:
    """The state, if it is the end that was asked for, and complete."""
    ended = {
        TransactionState.PREPARE_COMMIT: True,
        TransactionState.COMPLETE_COMMIT: True,
        TransactionState.PREPARE_ABORT: False,
        TransactionState.COMPLETE_ABORT: False,
    }.get(metadata.state)
    if ended is not commit:
        raise _wrong_state(metadata, commit)
    if metadata.state.is_prepared:
        raise _concurrent(metadata)
    return metadata


def _wrong_state(metadata: TransactionMetadata, commit: bool) -> InvalidTransactionState:
    return InvalidTransactionState(
        f"transactional id {brief_repr(metadata.transactional_id)} is in state {metadata.state.title}: there is no open"
        f" transaction to {'commit' if commit else 'abort'}"
    )


def _concurrent(metadata: TransactionMetadata) -> ConcurrentTransactions:
    return ConcurrentTransactions(
        f"the last transaction of transactional id {brief_repr(metadata.transactional_id)} is still being ended; try"
        " again shortly"
    )


def _wrong_producer(metadata: TransactionMetadata, producer_id: int) -> InvalidProducerIdMapping:
    return InvalidProducerIdMapping(
        f"producer {producer_id} is not that of transactional id {brief_repr(metadata.transactional_id)}; initialise"
        " the producer again"
    )


def _fenced(metadata: TransactionMetadata, producer_id: int, producer_epoch: int) -> ProducerFenced:
    return ProducerFenced(
        f"producer {producer_id} with epoch {producer_epoch} is fenced: a newer one has transactional id"
        f" {brief_repr(metadata.transactional_id)}, or the transaction took longer than its timeout; end this producer,"
        " or initialise it again"
    )
