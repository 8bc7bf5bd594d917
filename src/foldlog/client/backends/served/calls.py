"""Questions to whoever serves the directory, one at a time."""

from __future__ import annotations

from threading import Lock

from foldlog.client.backends.served.connection import Connection
from foldlog.client.backends.served.search import WriterLosses, WriterSearch
from foldlog.client.wire.questions import Answer, Done, Question
from foldlog.client.wire.refusals import Passing
from foldlog.errors import LogClosed, MalformedBytes
from foldlog.limits import WRITER_ANSWER_MS


class NobodyWrites(Exception):
    """No process writes the directory now, and so nobody was asked."""


class Calls:
    """One connection for all that is asked now and then: see `questions.Asker`. Any thread; made when it is needed, and
    again when lost."""

    def __init__(self, search: WriterSearch) -> None:
        self._search = search
        self._lock = Lock()
        self._connection: Connection | None = None
        self._is_closed = False

    def ask(self, question: Question[Answer, Done]) -> Done:
        """What the writer's answer means; NobodyWrites if there is no writer.

        A question that may be repeated is, if the connection is lost before the answer; of another one nobody knows
        then whether it was carried out, and WriterUnreachable says so. What passes at a cluster does not pass here: the
        writer waits for its own partitions and groups.
        """
        try:
            return question.read(self._answer(question))
        except Passing as passing:
            raise passing.error from None

    def _answer(self, question: Question[Answer, Done]) -> Answer:
        is_repeatable = question.done_shows_as is None
        losses = WriterLosses(self._search)
        with self._lock:
            while True:
                connection = self._connected()
                try:
                    return connection.call(question.request, question.answer, WRITER_ANSWER_MS / 1000, question.at_most)
                except (OSError, MalformedBytes) as error:
                    self._drop()
                    why = str(error) or type(error).__name__
                    if not is_repeatable:
                        why += "; its outcome is unknown"
                        raise self._search.lost(connection.holder, why) from error
                    losses.add(connection.holder, why)

    def close(self) -> None:
        with self._lock:
            self._is_closed = True
            self._drop()

    def let_go(self) -> None:
        """The log was dropped without being closed. Takes no lock: the garbage collector calls it."""
        self._is_closed = True
        connection = self._connection
        if connection is not None:
            connection.close()

    def forked(self) -> None:
        """In a forked child: the connection is the parent's. Takes no lock."""
        if self._connection is not None:
            self._connection.abandon()

    def _connected(self) -> Connection:
        if self._is_closed:
            raise LogClosed(f"the log in {self._search.path} is closed; open it again")
        if self._connection is not None and self._connection.is_closed_there():
            self._drop()
        if self._connection is None:
            self._connection = self._search.connect()
        if self._connection is None:
            raise NobodyWrites
        return self._connection

    def _drop(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()
