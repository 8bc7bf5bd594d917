"""Questions to whoever serves the directory, one at a time, and what its error codes mean here."""

from __future__ import annotations

from threading import Lock
from typing import Final

from foldlog.broker.groups.errors import GroupErrorCode, exception_for
from foldlog.client.backends.served.connection import Answer, Connection
from foldlog.client.backends.served.search import WriterSearch
from foldlog.client.fold_bulletin import FOLDS_TOPIC
from foldlog.client.fold_proof import KEPT_FOR_FOLDS, UNPROVEN
from foldlog.errors import FoldlogError, InvalidArgument, LogClosed, MalformedBytes, TopicExists, UnknownTopic
from foldlog.limits import WRITER_ANSWER_MS, WRITER_LOSSES_MAX
from foldlog.wire.error_codes import ErrorCode, exception_of
from foldlog.wire.schema import Request

_GROUP_CODES = frozenset(int(code) for code in GroupErrorCode)


class Calls:
    """One connection for all that is asked now and then. Any thread; made when it is needed, and again when lost."""

    def __init__(self, search: WriterSearch) -> None:
        self._search = search
        self._lock = Lock()
        self._connection: Connection | None = None
        self._is_closed = False

    def ask(self, request: Request, answer: type[Answer], *, repeatable: bool) -> Answer | None:
        """The answer; None if nobody writes the directory now, and so nobody was asked.

        A `repeatable` request is sent again if the connection is lost before the answer; of another one nobody knows
        then whether it was carried out, and WriterUnreachable says so.
        """
        with self._lock:
            for tries in range(1, WRITER_LOSSES_MAX + 1):
                connection = self._connected()
                if connection is None:
                    return None
                try:
                    return connection.call(request, answer, WRITER_ANSWER_MS / 1000)
                except (OSError, MalformedBytes) as error:
                    self._drop()
                    why = str(error) or type(error).__name__
                    if not repeatable:
                        why += "; whether it did what it was asked is not known"
                    if not repeatable or tries == WRITER_LOSSES_MAX:
                        raise self._search.lost(connection.holder, why) from error
            return None

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

    def _connected(self) -> Connection | None:
        if self._is_closed:
            raise LogClosed(f"the log in {self._search.path} is closed; open it again")
        if self._connection is not None and self._connection.is_closed_there():
            self._drop()
        if self._connection is None:
            self._connection = self._search.connect()
        return self._connection

    def _drop(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()


_OF_FOLDS: Final = {
    int(ErrorCode.TOPIC_AUTHORIZATION_FAILED): UNPROVEN,
    int(ErrorCode.INVALID_TOPIC_EXCEPTION): KEPT_FOR_FOLDS,
}
"""What our broker means by them there. Some answers have no place for a sentence, and librdkafka drops others."""


def topic_error(code: int, message: str | None, topic: str, partition: int | None = None) -> FoldlogError:
    """The error that the log itself would have raised, in its own words where they came along."""
    if code == ErrorCode.TOPIC_ALREADY_EXISTS:
        return TopicExists(topic)
    if code in (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID) and partition is None:
        return UnknownTopic(topic)
    if code in (ErrorCode.INVALID_PARTITIONS, ErrorCode.INVALID_REPLICATION_FACTOR) and message:
        return InvalidArgument(message)
    if code == ErrorCode.INVALID_TIMESTAMP and "LogAppendTime" not in (message or ""):  # which is another matter
        place = topic if partition is None else f"{topic}-{partition}"
        message = (
            f"the broker refuses the time of a record for {place}: it is further from the broker's clock than the"
            " topic's message.timestamp.after.max.ms (ahead) or message.timestamp.before.max.ms (behind) allows; raise"
            " that, or send another time"
        )
    if topic == FOLDS_TOPIC and not message:
        message = _OF_FOLDS.get(code)
    error = exception_of(code, message, topic=topic, partition=partition)
    if message:
        error.args = (message,)
    return error


def group_error(code: int, group: str) -> FoldlogError:
    """What a group refuses, as the error that its coordinator would have raised."""
    known = exception_for(GroupErrorCode(code), group) if code in _GROUP_CODES else None
    return known or exception_of(code, None, group=group)
