"""Batches to the process that writes the partitions: many on their way at once, each of them written once.

Batches carry the numbers of an idempotent producer. When the connection is lost, all that are unanswered are sent again
in their order, to whoever serves the directory then; if nobody does, this process appends them itself. Either way the
log knows those it has. A batch that is refused leaves a hole in the numbers, and those sent after it are refused for
that alone: they are numbered anew, in the next epoch, and sent again.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Iterable
from threading import Lock, Thread, current_thread
from typing import Final

from foldlog.broker.broker import Broker
from foldlog.client.backends.backend import OnAppended
from foldlog.client.backends.served.connection import Connection
from foldlog.client.backends.served.partition import NumberedBatch, RemotePartition
from foldlog.client.backends.served.search import WriterSearch
from foldlog.client.wire.batches import produce_request, refusal_in, results_in
from foldlog.errors import FoldlogError, LogClosed, MalformedBytes, OutOfOrderSequence, UnknownTopic, WrongProcess
from foldlog.limits import PRODUCE_REQUEST_BYTES, WRITER_ANSWER_MS, WRITER_LOSSES_MAX, WRITER_MOMENT_MS
from foldlog.log.partition import Appended
from foldlog.wire.error_codes import ErrorCode
from foldlog.wire.frames import decode_response, response_correlation_id
from foldlog.wire.messages.produce import ProduceRequest, ProduceResponse
from foldlog.wire.schema import Records

_log = logging.getLogger("foldlog")

_ANSWER_S: Final = WRITER_ANSWER_MS / 1000

Outcome = tuple[OnAppended, Appended | None, FoldlogError | None]
"""Whom to tell what, once no lock is held."""


class _Sent:
    """A request on its way, with the batches in it that are not settled. Belongs to the link's lock."""

    __slots__ = ("batches", "correlation_id", "sent_s")

    def __init__(self, batches: list[NumberedBatch]) -> None:
        self.batches = batches
        self.correlation_id = -1
        self.sent_s = 0.0


class ProduceLink:
    """The connection that batches go over, and the thread that hears the answers. Any thread may submit.

    The thread starts with the first batch; it ends when the connection does and nothing is left to send. `_lock` guards
    the queues and is never held while anything is waited for; who holds `_sending` puts batches on the wire.
    """

    def __init__(self, search: WriterSearch) -> None:
        self._search = search
        self._lock = Lock()
        self._sending = Lock()
        self._connection: Connection | None = None
        self._version = 0
        self._unanswered: deque[_Sent] = deque()  # in the order in which they went out
        self._ready: deque[RemotePartition] = deque()  # those that may send a batch that waits
        self._thread: Thread | None = None
        self._losses = 0
        self._refusal: FoldlogError | None = None

    # --- what partitions ask --------------------------------------------------------------------------------------

    def submit(self, batches: Iterable[NumberedBatch]) -> None:
        """Send these after all that were submitted for the same partition before."""
        with self._lock:
            if self._refusal is not None:
                raise self._refusal.with_traceback(None)
            for batch in batches:
                batch.partition.waiting.append(batch)
                self._make_ready(batch.partition)
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
        while self._ready and (connection := self._connection) is not None:
            if not self._sending.acquire(blocking=False):
                return
            try:
                while (sent := self._take(connection)) is not None:
                    self._put_on_wire(connection, sent)
            except (OSError, MalformedBytes) as error:
                self._cannot_send(connection, error)
            finally:
                self._sending.release()

    def _take(self, connection: Connection) -> _Sent | None:
        with self._lock:
            return None if self._connection is not connection else self._gather()

    def _gather(self) -> _Sent | None:
        """The next request: the first batches of the partitions whose turn it is, one of each, as many as it takes.
        Under the lock."""
        batches: dict[RemotePartition, NumberedBatch] = {}
        size_bytes = 0
        while self._ready and (partition := self._ready[0]) not in batches:
            if partition.may_send:
                size_bytes += len(partition.waiting[0].data)
                if batches and size_bytes > PRODUCE_REQUEST_BYTES:
                    break
                batches[partition] = partition.number_next()
            self._ready.popleft()
            partition.is_ready = False
            self._make_ready(partition)
        if not batches:
            return None
        sent = _Sent(list(batches.values()))
        self._unanswered.append(sent)
        return sent

    def _put_on_wire(self, connection: Connection, sent: _Sent) -> None:
        sent.sent_s = time.monotonic()
        for batch in sent.batches:
            batch.stamp()
        request = produce_request((batch.addressed for batch in sent.batches), WRITER_ANSWER_MS)
        sent.correlation_id = connection.next_id()  # before it is sent: the answer may be quick
        connection.send(request, self._version, sent.correlation_id)

    def _make_ready(self, partition: RemotePartition) -> None:
        if partition.may_send and not partition.is_ready:
            partition.is_ready = True
            self._ready.append(partition)

    def _cannot_send(self, connection: Connection, error: OSError | MalformedBytes) -> None:
        """Nothing goes over it any more. Who has closed it may have answered before, and that is still to be heard: a
        log that was closed since no longer knows the older ones of the batches it would be sent again."""
        with self._lock:
            if self._connection is connection:
                self._connection = None
        if not isinstance(error, ConnectionError):
            connection.close()  # nobody has closed it there, so nothing else would end it

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
                    self._count_loss(connection)
            except FoldlogError as error:
                self._fail(error)
            except Exception as error:  # noqa: BLE001 futures must resolve, whatever it is
                _log.exception("sending to the writer of %s failed", self._search.path)
                self._fail(self._search.lost(None, repr(error)))

    def _has_work(self) -> bool:
        with self._lock:
            if self._refusal is None and (self._unanswered or self._ready):
                return True
            self._thread = None
            outcomes = self._fail_everything(self._refusal) if self._refusal is not None else []
        _tell(outcomes)
        return False

    def _use(self, connection: Connection) -> bool:
        """Send again what is unanswered; whether there are answers to be heard."""
        self._version = connection.version_of(ProduceRequest)
        with self._sending:
            with self._lock:
                again = list(self._unanswered)
            try:
                for sent in again:
                    self._put_on_wire(connection, sent)
            except (OSError, MalformedBytes) as error:
                self._cannot_send(connection, error)
                return True
            with self._lock:
                if self._refusal is not None:
                    connection.close()
                    return False
                self._connection = connection
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

    def _count_loss(self, connection: Connection) -> None:
        if not self._unanswered:
            return  # it was idle for long, or the log is being closed
        self._losses += 1
        if self._losses >= WRITER_LOSSES_MAX:
            self._losses = 0
            raise self._search.lost(connection.holder, "it closes the connection instead of answering")

    def _answered(self, frame: Records) -> None:
        with self._lock:
            sent = self._unanswered[0] if self._unanswered else None
            batches = [] if sent is None else list(sent.batches)
        if sent is None or response_correlation_id(frame) != sent.correlation_id:
            raise MalformedBytes("Produce response", "it answers nothing that was asked", 0)
        answer = decode_response(ProduceResponse, self._version, frame)[1]
        results = results_in(answer, [batch.addressed for batch in batches])
        if any(result.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER for result in results):
            raise ConnectionError("the log is being closed there")
        for batch, result in zip(batches, results, strict=True):
            if result.error_code:
                self._settle(batch, None, refusal_in(result, *batch.partition.label))
            else:
                end = result.base_offset + batch.offset_count
                self._settle(batch, Appended(result.base_offset, end, result.log_append_time_ms, False), None)

    def _settle(self, batch: NumberedBatch, appended: Appended | None, error: FoldlogError | None) -> None:
        """The fate of a batch in the oldest request on its way is known."""
        with self._lock:
            if not self._unanswered or batch not in self._unanswered[0].batches:
                return  # the link was closed, and the batch has failed
            self._unanswered[0].batches.remove(batch)
            if not self._unanswered[0].batches:
                self._unanswered.popleft()
            self._losses = 0
            # Sent once and out of order: it is not in the log, and only refused for one before it that was.
            is_out_of_order = isinstance(error, OutOfOrderSequence) and batch.times_sent == 1
            is_to_be_renumbered = is_out_of_order and batch.partition.renumbers
            batch.partition.settled(batch, succeeded=error is None, again=is_to_be_renumbered)
            self._make_ready(batch.partition)
        if not is_to_be_renumbered:
            batch.done(appended, error)

    # --- without a server -----------------------------------------------------------------------------------------

    def _append_by_hand(self) -> None:
        """Nobody writes the directory: be its writer for as long as it takes to append what waits. Where that takes
        long, the lock is free now and then, for others who write only now and then."""
        with self._search.moment() as broker:
            if broker is None:
                return
            ends_s = time.monotonic() + WRITER_MOMENT_MS / 1000
            # One sync serves what is appended before it.
            while time.monotonic() < ends_s and (batches := self._take_some()):
                outcomes = [(batch, *_append(broker, batch)) for batch in batches]
                for batch, appended, error in outcomes:
                    if appended is not None:
                        error = _wait(broker, batch, appended)
                    self._settle(batch, appended if error is None else None, error)

    def _take_some(self) -> list[NumberedBatch]:
        with self._lock:
            while self._gather() is not None:
                pass
            return [batch for sent in self._unanswered for batch in sent.batches]

    # --- giving up ------------------------------------------------------------------------------------------------

    def _fail(self, error: FoldlogError) -> None:
        with self._lock:
            connection, self._connection = self._connection, None
            outcomes = self._fail_everything(error)
        if connection is not None:
            connection.close()
        _tell(outcomes)

    def _fail_everything(self, error: FoldlogError) -> list[Outcome]:
        failed = [batch for sent in self._unanswered for batch in sent.batches]
        partitions = {batch.partition: None for batch in failed} | dict.fromkeys(self._ready)
        self._unanswered.clear()
        self._ready.clear()
        for partition in partitions:
            failed += partition.give_up()
        return [(batch.done, None, error) for batch in failed]


def _tell(outcomes: Iterable[Outcome]) -> None:
    for done, appended, error in outcomes:
        done(appended, error)


def _append(broker: Broker, batch: NumberedBatch) -> tuple[Appended | None, FoldlogError | None]:
    topic, number = batch.partition.label
    batch.stamp()
    try:
        if bytes.fromhex(broker.topic(topic).topic_id) != batch.partition.topic_id:
            return None, UnknownTopic(topic)
        return broker.writable_partition(topic, number).append(batch.data, foreign=True), None
    except FoldlogError as error:
        return None, error


def _wait(broker: Broker, batch: NumberedBatch, appended: Appended) -> FoldlogError | None:
    try:
        broker.writable_partition(*batch.partition.label).wait_acknowledged(appended.next_offset)
    except FoldlogError as error:
        return error
    return None
