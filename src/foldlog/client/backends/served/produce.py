"""Batches to the process that writes the partitions: many on their way at once, each of them written once.

Batches carry the numbers of an idempotent producer. When the connection is lost, all that are unanswered are sent again
in their order, to whoever serves the directory then; if nobody does, this process appends them itself. Either way the
log knows those it has. What is sent when, and what a refusal means for those behind it: `wire.batches.Outbox`.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Iterable
from threading import Lock, Thread, current_thread
from typing import Final

from foldlog.broker.broker import Broker
from foldlog.client.backends.served.connection import Connection
from foldlog.client.backends.served.search import WriterLosses, WriterSearch
from foldlog.client.wire.batches import Outbox, Outcome, OutgoingBatch, SentRequest, tell
from foldlog.errors import FoldlogError, LogClosed, MalformedBytes, UnknownTopic, WrongProcess
from foldlog.limits import WRITER_ANSWER_MS, WRITER_MOMENT_MS
from foldlog.log.partition import Appended
from foldlog.wire.error_codes import ErrorCode
from foldlog.wire.messages.produce import ProduceRequest
from foldlog.wire.schema import Records

_log = logging.getLogger("foldlog")

_ANSWER_S: Final = WRITER_ANSWER_MS / 1000

_PASSING: Final = frozenset({ErrorCode.NOT_LEADER_OR_FOLLOWER})
"""The log is being closed there. Nothing else passes here: the writer waits for its own partitions."""


class ProduceLink:
    """The connection that batches go over, and the thread that hears the answers. Any thread may submit.

    The thread starts with the first batch; it ends when the connection does and nothing is left to send. `_lock` guards
    the outbox and is never held while anything is waited for; who holds `_sending` puts batches on the wire.
    """

    def __init__(self, search: WriterSearch) -> None:
        self._search = search
        self._lock = Lock()
        self._sending = Lock()
        self._connection: Connection | None = None
        self._version = 0
        self._outbox = Outbox(_PASSING)
        self._unanswered: deque[SentRequest] = deque()  # in the order in which they went out
        self._thread: Thread | None = None
        self._losses = WriterLosses(search)
        self._refusal: FoldlogError | None = None

    # --- what partitions ask --------------------------------------------------------------------------------------

    def submit(self, batches: Iterable[OutgoingBatch]) -> None:
        """Send these after all that were submitted for the same partition before."""
        with self._lock:
            if self._refusal is not None:
                raise self._refusal.with_traceback(None)
            for batch in batches:
                self._outbox.add(batch)
            if self._thread is None:
                self._thread = Thread(target=self._run, name="foldlog-produce", daemon=True)
                self._thread.start()
        self._pump()

    def close(self) -> None:
        """What is not answered yet fails."""
        self.let_go()
        with self._lock:
            thread = self._thread
        if thread is not None and thread is not current_thread():
            thread.join()

    def let_go(self) -> None:
        """`close` without waiting for it. Takes no lock: the garbage collector calls it, in the middle of anything."""
        self._refusal = LogClosed(f"the log in {self._search.path} is closed; open it again")
        connection = self._connection
        if connection is not None:
            connection.close()  # the thread notices, and tells who waits

    def forked(self) -> None:
        """In a forked child: the thread and the connection are the parent's. Takes no lock."""
        self._refusal = WrongProcess(f"the log in {self._search.path} was opened before a fork; open it again here")
        if self._connection is not None:
            self._connection.abandon()

    # --- sending --------------------------------------------------------------------------------------------------

    def _pump(self) -> None:
        """Send what may be sent, unless another thread is doing so: that one looks again when it is done."""
        while self._outbox.is_ready and (connection := self._connection) is not None:
            if not self._sending.acquire(blocking=False):
                return
            try:
                while (sent := self._take(connection)) is not None:
                    connection.send(sent.stamped(WRITER_ANSWER_MS), sent.version, sent.correlation_id)
            except (OSError, MalformedBytes) as error:
                self._cannot_send(connection, error)
            finally:
                self._sending.release()

    def _take(self, connection: Connection) -> SentRequest | None:
        """The next request. It counts as sent from here on: the answer may be quick."""
        with self._lock:
            batches = [] if self._connection is not connection else self._outbox.gather()
            if not batches:
                return None
            sent = SentRequest(batches, self._version, connection.next_id())
            sent.sent_s = time.monotonic()
            self._unanswered.append(sent)
            return sent

    def _put_back(self) -> None:
        """What is unanswered is sent again. Under both locks: nobody is sending it."""
        self._unanswered.clear()
        self._outbox.put_back()

    def _cannot_send(self, connection: Connection, error: OSError | MalformedBytes) -> None:
        """Send nothing more over it, and go on reading: the server may have answered before it closed the connection. A
        log that was closed cleanly knows only a producer's last batch, so older ones must not be sent again."""
        with self._lock:
            if self._connection is connection:
                self._connection = None
        if not isinstance(error, ConnectionError):
            connection.close()  # the other side is open, so nothing else would end the reading

    def _lose(self, connection: Connection) -> None:
        """It has ended; the thread looks for another."""
        with self._lock:
            if self._connection is connection:
                self._connection = None
        connection.close()

    # --- the thread -----------------------------------------------------------------------------------------------

    def _run(self) -> None:
        while self._has_work():
            try:
                connection = self._search.connect()
                if connection is None:
                    self._append_by_hand()
                elif self._use(connection):
                    self._hear(connection)
                    self._lose(connection)
                    if self._outbox.is_busy:  # else it was idle for long, or the log is being closed
                        self._losses.add(connection.holder, "it closes the connection instead of answering")
            except FoldlogError as error:
                self._fail(error)
            except Exception as error:  # noqa: BLE001 futures must resolve, whatever it is
                _log.exception("sending to the writer of %s failed", self._search.path)
                self._fail(self._search.lost(None, repr(error)))

    def _has_work(self) -> bool:
        with self._lock:
            if self._refusal is None and self._outbox.is_busy:
                return True
            self._thread = None
            outcomes = self._fail_everything(self._refusal) if self._refusal is not None else []
        tell(outcomes)
        return False

    def _use(self, connection: Connection) -> bool:
        """Send over it from now on, first what is unanswered. Whether there is still somebody to send for."""
        self._version = connection.version_of(ProduceRequest)
        with self._sending, self._lock:
            self._put_back()
            self._connection = connection
        if self._refusal is not None:  # looked at last: whoever lets go meanwhile has not seen the connection
            self._lose(connection)
            return False
        self._pump()
        return True

    def _hear(self, connection: Connection) -> None:
        """Take in answers until the connection ends."""
        while True:
            try:
                self._answered(connection.receive(_ANSWER_S))
            except TimeoutError:
                with self._lock:
                    oldest_s = self._unanswered[0].sent_s if self._unanswered else None
                if oldest_s is not None and time.monotonic() - oldest_s >= _ANSWER_S:
                    raise self._search.lost(connection.holder, f"no answer in {_ANSWER_S:.0f} s") from None
            except (OSError, MalformedBytes):
                return
            self._pump()

    def _answered(self, frame: Records) -> None:
        with self._lock:
            sent = self._unanswered[0] if self._unanswered else None
        if sent is None:
            raise MalformedBytes("Produce response", "it answers nothing that was asked", 0)
        results = sent.results(frame)
        with self._lock:
            self._unanswered.popleft()
            outcomes, passing = self._outbox.settle(sent, results)
        tell(outcomes)
        if passing is not None:
            raise ConnectionError("the log is being closed there")
        self._losses.answered()

    # --- without a server -----------------------------------------------------------------------------------------

    def _append_by_hand(self) -> None:
        """Nobody writes the directory: be its writer for as long as it takes to append what waits. Where that takes
        long, the lock is free now and then, for others who write only now and then."""
        with self._search.moment() as broker:
            if broker is None:
                return
            with self._sending, self._lock:
                self._put_back()
            ends_s = time.monotonic() + WRITER_MOMENT_MS / 1000
            # One sync serves what is appended before it.
            while time.monotonic() < ends_s and (batches := self._take_some()):
                results = [(batch, _append(broker, batch)) for batch in batches]
                for batch, result in results:
                    self._settle(batch, _wait(broker, batch, result) if isinstance(result, Appended) else result)
                self._losses.answered()

    def _take_some(self) -> list[OutgoingBatch]:
        batches: list[OutgoingBatch] = []
        with self._lock:
            while some := self._outbox.gather():
                batches += some
        return batches

    def _settle(self, batch: OutgoingBatch, result: Appended | FoldlogError) -> None:
        with self._lock:
            if isinstance(result, Appended):
                outcomes = self._outbox.accepted(batch, result)
            else:
                outcomes = self._outbox.refused(batch, result)
        tell(outcomes)

    # --- giving up ------------------------------------------------------------------------------------------------

    def _fail(self, error: FoldlogError) -> None:
        with self._lock:
            connection, self._connection = self._connection, None
            outcomes = self._fail_everything(error)
        if connection is not None:
            connection.close()
        tell(outcomes)

    def _fail_everything(self, error: FoldlogError) -> list[Outcome]:
        self._unanswered.clear()
        return self._outbox.give_up(error)


def _append(broker: Broker, batch: OutgoingBatch) -> Appended | FoldlogError:
    topic, number = batch.lane.label
    batch.stamp()
    try:
        if bytes.fromhex(broker.topic(topic).topic_id) != batch.lane.topic_id:
            return UnknownTopic(topic)
        partition = broker.writable_partition(topic, number)
        transactional_id = batch.lane.transactional_id
        if transactional_id is not None:
            return broker.transactions.append(transactional_id, partition, batch.data, add=True)
        return partition.append(batch.data, foreign=True)
    except FoldlogError as error:
        return error


def _wait(broker: Broker, batch: OutgoingBatch, appended: Appended) -> Appended | FoldlogError:
    try:
        broker.writable_partition(*batch.lane.label).wait_acknowledged(appended.next_offset)
    except FoldlogError as error:
        return error
    return appended
