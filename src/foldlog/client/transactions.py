"""Transactions as a program uses them: `log.transaction("orders-etl")`.

A log keeps one session for each transactional id: it makes this log the id's one holder with the first use, and begins
the transactions after that without asking again. `backends/transactions.py` has it for directories, over the Broker of
this process or the process that serves the directory; `backends/cluster/transactions.py` for clusters.
"""

from __future__ import annotations

import logging
import weakref
from collections.abc import Callable, Mapping
from threading import Lock
from types import TracebackType
from typing import Any, overload

from foldlog.broker.groups.committed import OffsetAndMetadata
from foldlog.broker.groups.messages import check_group_name
from foldlog.client.backends.backend import Backend, BegunTransaction, Reading, TransactionSession
from foldlog.client.consumer.consumer import Consumer, reading_of
from foldlog.client.handle_types import SendFuture
from foldlog.client.outgoing import Headers
from foldlog.client.positions import GroupOffsets, TopicPartition, commit_entries
from foldlog.client.producer import Producer, ProducerSettings
from foldlog.client.serializers import Serializer
from foldlog.errors import (
    FoldlogError,
    IllegalGeneration,
    InvalidArgument,
    InvalidTransactionState,
    RebalanceInProgress,
    UnknownMember,
    WrongProcess,
    brief_repr,
)

_log = logging.getLogger("foldlog")

DEFAULT_TIMEOUT_MS = 60_000
"""Kafka's transaction.timeout.ms."""


class Transaction:
    """Records and committed offsets that count together or not at all. Make one with `Log.transaction`.

    Leaving the `with` block commits; an exception aborts, and is raised. `commit` and `abort` do so before that. A
    commit returns when everything is durable. Readers of committed records (`isolation="read_committed"`) see all of it
    from then on, and nothing of it before; others see records as they are written, and also those that are aborted.

    Any thread may send; one ends it. A transaction that is open for longer than `timeout_ms` is aborted by the log.

    >>> import foldlog
    >>> with foldlog.open(":memory:") as log:
    ...     _ = log.create_topic("orders")
    ...     _ = log.create_topic("totals")
    ...     _ = log.append("orders", {"amount": 5})
    ...     consumer = log.consumer("orders", group="etl", auto_offset_reset="earliest", auto_commit=False)
    ...     with log.transaction("orders-etl") as tx:
    ...         for record in consumer.poll(timeout_ms=1000):
    ...             _ = tx.send("totals", record.value, key="amount")
    ...         tx.commit_offsets(consumer)
    ...     [record.value for record in log.read("totals", isolation="read_committed")]
    [b'{"amount":5}']
    """

    def __init__(
        self,
        opened: BegunTransaction,
        backend: Backend,
        transactional_id: str,
        key_serializer: Serializer | str | None = None,
        value_serializer: Serializer | str | None = None,
    ) -> None:
        """Use `Log.transaction`, which explains the arguments."""
        self._opened = opened
        self._backend = backend
        self._transactional_id = transactional_id
        self._producer = Producer(opened.sender, backend.clock.now_ms, key_serializer, value_serializer)
        self._consumed: list[tuple[Reading, Mapping[TopicPartition, OffsetAndMetadata]]] = []
        self._is_over = False

    def send(
        self,
        topic: str,
        value: Any = None,
        key: Any = None,
        headers: Headers | None = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
    ) -> SendFuture:
        """Put a record on its way, as `Producer.send`. The future resolves once it is durable; it counts once the
        transaction is committed. If it fails, so does the commit.

        >>> import foldlog
        >>> with foldlog.open(":memory:") as log:
        ...     _ = log.create_topic("orders")
        ...     with log.transaction("orders-etl") as tx:
        ...         sent = tx.send("orders", "paid", key="tx_001")
        ...     sent.result().offset
        0
        """
        self._check_open()
        return self._producer.send(topic, value, key, headers, partition, timestamp_ms)

    @overload
    def commit_offsets(self, consumer: Consumer, /) -> None: ...

    @overload
    def commit_offsets(self, group: str, offsets: Mapping[tuple[str, int], int | OffsetAndMetadata], /) -> None: ...

    def commit_offsets(
        self,
        source: Consumer | str,
        offsets: Mapping[tuple[str, int], int | OffsetAndMetadata] | None = None,
        /,
    ) -> None:
        """Commit where a consumer stands, or offsets of a group, as part of the transaction: if it aborts, the group is
        where it was.

        The consumer is one of this log with a group and `auto_commit=False`; if the group has given its partitions to
        another member, the error says so, and the block aborts. Each offset is the next one to read. An abort does not
        move the consumer back: `seek`, or make another one.

        >>> import foldlog
        >>> with foldlog.open(":memory:") as log:
        ...     _ = log.create_topic("orders")
        ...     with log.transaction("orders-etl") as tx:
        ...         tx.commit_offsets("etl", {("orders", 0): 7})
        ...     log.committed("etl")[foldlog.TopicPartition("orders", 0)].offset
        7
        """
        self._check_open()
        if isinstance(source, Consumer):
            if offsets is not None:
                raise InvalidArgument("commit_offsets() takes a consumer, or the name of a group and offsets; not both")
            self._commit_positions(reading_of(source, self._backend))
            return
        check_group_name(source)
        if not isinstance(offsets, Mapping):
            raise InvalidArgument(
                f"commit_offsets({brief_repr(source)}, ...) takes a dict such as {{('orders', 0): 7}}, not"
                f" {brief_repr(offsets)}"
            )
        entries = commit_entries(offsets, "")
        self._backend.check_partitions(entries)
        if entries:
            self._opened.commit_offsets(GroupOffsets(source, entries))

    def _commit_positions(self, reading: Reading) -> None:
        """As a member: the coordinator refuses one that was replaced. After a rebalance that took nothing away it is
        asked again, in the new generation."""
        found = reading.group_offsets()
        while found.offsets:
            try:
                self._opened.commit_offsets(found)
            except (IllegalGeneration, RebalanceInProgress, UnknownMember):
                newer = reading.group_offsets()
                if newer.generation == found.generation:
                    raise
                found = newer
            else:
                self._consumed.append((reading, found.offsets))
                return

    def commit(self) -> None:
        """Wait for everything that was sent, then commit. Durable on return.

        If a record could not be written, the transaction is aborted, and that error raised. ProducerFenced if another
        holder of the transactional id came since, or the timeout is over: then it was aborted, too.

        >>> import foldlog
        >>> with foldlog.open(":memory:") as log:
        ...     _ = log.create_topic("orders")
        ...     tx = log.transaction("orders-etl")
        ...     _ = tx.send("orders", "paid")
        ...     tx.commit()
        """
        self._check_open()
        self._is_over = True
        self._opened.commit()
        for reading, offsets in self._consumed:
            reading.count_as_committed(offsets)

    def abort(self) -> None:
        """Take back everything: records that were sent, and committed offsets. Their futures may fail.

        >>> import foldlog
        >>> with foldlog.open(":memory:") as log:
        ...     _ = log.create_topic("orders")
        ...     tx = log.transaction("orders-etl")
        ...     _ = tx.send("orders", "paid")
        ...     tx.abort()
        ...     list(log.read("orders", isolation="read_committed"))
        []
        """
        self._check_open()
        self._is_over = True
        self._opened.abort()

    def __enter__(self) -> Transaction:
        self._check_open()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._is_over:
            return
        if kind is None:
            self.commit()
            return
        try:
            self.abort()
        except FoldlogError as failure:
            # The caller's own exception has to get out; the log aborts what is left open when its time is over.
            _log.warning("aborting a transaction of %r after %r: %s", self._transactional_id, error, failure)

    def _check_open(self) -> None:
        if self._is_over:
            raise InvalidTransactionState("the transaction is over; begin another with log.transaction()")


class _Holder:
    """One transactional id, as this log holds it."""

    def __init__(self, session: TransactionSession) -> None:
        self.session = session
        self.beginning = Lock()  # held while a transaction begins, which may wait for the disk
        self.opened: BegunTransaction | None = None
        self.used_by: Callable[[], Transaction | None] = lambda: None


class TransactionSessions:
    """The transactional ids that a log has used. Any thread."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._lock = Lock()
        self._holders: dict[str, _Holder] = {}

    def begin(
        self,
        transactional_id: str,
        timeout_ms: int,
        settings: ProducerSettings,
        serializers: tuple[Serializer | str | None, Serializer | str | None],
    ) -> Transaction:
        """InvalidTransactionState if this log has a transaction of that id open."""
        given: object = transactional_id
        if not isinstance(given, str) or not given:
            raise InvalidArgument(f"transactional_id={brief_repr(given)} is not a name; give a str that is not empty")
        with self._lock:
            holder = self._holders.get(transactional_id)
            if holder is None:
                holder = self._holders[transactional_id] = _Holder(self._backend.transactions(transactional_id))
        with holder.beginning:
            if holder.opened is not None and not holder.opened.is_over:
                if holder.used_by() is not None:
                    raise InvalidTransactionState(
                        f"transactional id {brief_repr(transactional_id)} has a transaction open in this log; commit or"
                        " abort that one first, or use another id"
                    )
                holder.opened.abort()  # nobody can end it any more
            opened = holder.session.begin(timeout_ms, settings)
            begun = Transaction(opened, self._backend, transactional_id, *serializers)
            holder.opened, holder.used_by = opened, weakref.ref(begun)
            return begun

    def close(self) -> None:
        """Abort what is open. Raises the first error, after all were tried."""
        with self._lock:
            holders, self._holders = self._holders, {}
        faults: list[FoldlogError] = []
        for holder in holders.values():
            try:
                if holder.opened is not None and not holder.opened.is_over:
                    holder.opened.abort()
            except WrongProcess:
                continue  # it is the parent's
            except FoldlogError as error:
                faults.append(error)
            holder.session.close()
        if faults:
            raise faults[0]
