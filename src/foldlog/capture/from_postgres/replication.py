"""A connection that replicates: commands of the replication protocol, and the stream after START_REPLICATION.

psycopg has no replication, but libpq does, and psycopg hands on its functions: both directions of COPY are read and
written here, without blocking, so that somebody who asks to stop is heard.
"""

from __future__ import annotations

import select
import time
from collections.abc import Iterator
from struct import Struct
from threading import Event
from typing import TYPE_CHECKING, Any, Final

from foldlog.capture.from_postgres.connecting import Database, refusal
from foldlog.capture.from_postgres.pgoutput import EPOCH_MS
from foldlog.errors import DatabaseUnavailable

if TYPE_CHECKING:
    from psycopg.pq.abc import PGconn, PGresult

_DATA: Final = Struct(">qqq")
_KEEPALIVE: Final = Struct(">qqB")
_FEEDBACK: Final = Struct(">cqqqqB")

FEEDBACK_EVERY_S: Final = 1.0
"""How often the server hears what it may forget. It ends a connection that says nothing for wal_sender_timeout, a
minute."""

_LOOK_S: Final = 0.25
"""How often a wait looks whether it should stop."""

_SLOW_S: Final = 5.0
_LEAVE_S: Final = 2.0


class ReplicationConnection:
    """One thread. Errors are CaptureErrors, in one sentence."""

    def __init__(self, database: Database, stop: Event) -> None:
        self._database = database
        self._stop = stop
        self._connection: Any = database.connect(replication=True)
        self._libpq: PGconn = self._connection.pgconn
        self._confirmed = 0
        self._told_s = 0.0
        self._is_streaming = False

    def command(self, text: str, step: str, waits: str = "") -> list[dict[str, str | None]]:
        """Run a command; its rows. `step` is what it does, for errors; `waits` is told if it takes long."""
        result = self._result(text, waits)
        if result.status not in (1, 2):  # COMMAND_OK, TUPLES_OK
            raise refusal(self._database, step, result.error_field(67), _message(result))
        names = [(result.fname(index) or b"").decode() for index in range(result.nfields)]
        return [
            {name: _text(result.get_value(row, index)) for index, name in enumerate(names)}
            for row in range(result.ntuples)
        ]

    def start(self, slot: str, position: str, publication: str) -> None:
        """TransactionBegins to stream. The stream holds what committed at or after `position`."""
        options = f"proto_version '1', publication_names '\"{publication}\"'"
        result = self._result(f'START_REPLICATION SLOT "{slot}" LOGICAL {position} ({options})', "")
        if result.status != 8:  # COPY_BOTH
            raise refusal(self._database, f"reading slot {slot}", result.error_field(67), _message(result))
        self._is_streaming = True

    def messages(self) -> Iterator[tuple[int, bytes | None]]:
        """Each message with its position; None for a keepalive, whose position is how far the server has looked.
        (0, None) whenever nothing more has come, before it is waited for."""
        libpq = self._libpq
        waiting = select.poll()
        waiting.register(libpq.socket, select.POLLIN)
        while True:
            size, data = self._received()
            if size > 0 and data is not None:
                kind = data[0]
                if kind == 0x77:  # w: a message of the plugin
                    yield _DATA.unpack_from(data, 1)[0], bytes(data[25:])
                elif kind == 0x6B:  # k
                    position, _, wants_answer = _KEEPALIVE.unpack_from(data, 1)
                    yield position, None
                    if wants_answer:
                        self._feedback()
            elif size == 0:
                yield 0, None
                waiting.poll(_LOOK_S * 1000)
                self._consume()
            else:
                raise self._ended()
            if time.monotonic() - self._told_s >= FEEDBACK_EVERY_S:
                self._feedback()

    def confirm(self, position: int) -> None:
        """Everything before it is safe. The server hears of it within a second."""
        self._confirmed = max(self._confirmed, position)

    def close(self) -> None:
        """Tell what is confirmed, and leave."""
        import psycopg

        try:
            if self._is_streaming:
                self._feedback()
                self._libpq.put_copy_end()
                self._libpq.flush()
                # The server reads what it was told, and lets go of the slot, before it answers the end.
                until = time.monotonic() + _LEAVE_S
                while (size := self._received()[0]) >= 0 and time.monotonic() < until:
                    if size == 0:
                        self._wait()
                while self._libpq.is_busy() and time.monotonic() < until:
                    self._wait()
        except (DatabaseUnavailable, psycopg.Error, OSError):
            pass  # it may be gone already; what is confirmed is confirmed again
        self._connection.close()

    # --- libpq ----------------------------------------------------------------------------------------------------

    def _result(self, text: str, waits: str) -> PGresult:
        import psycopg

        libpq = self._libpq
        began = time.monotonic()
        try:
            libpq.send_query(text.encode())
            libpq.flush()
            while libpq.is_busy():
                self._wait()
                if self._stop.is_set():
                    raise DatabaseUnavailable(self._database.place, "asked to stop while it was waited for")
                if waits and time.monotonic() - began > _SLOW_S:
                    self._database.tell(waits)
                    waits = ""
            result = libpq.get_result()
            if result is None:
                raise DatabaseUnavailable(self._database.place, "it has not answered")
            if result.status != 8:
                while libpq.get_result() is not None:
                    pass
            return result
        except psycopg.Error as error:
            raise DatabaseUnavailable(self._database.place, _first_line(str(error))) from error

    def _received(self) -> tuple[int, memoryview | None]:
        import psycopg

        try:
            return self._libpq.get_copy_data(1)
        except psycopg.Error as error:
            raise self._ended() from error

    def _wait(self) -> None:
        select.select([self._libpq.socket], [], [], _LOOK_S)
        self._consume()

    def _consume(self) -> None:
        import psycopg

        try:
            self._libpq.consume_input()
        except psycopg.Error as error:
            raise DatabaseUnavailable(self._database.place, _first_line(str(error))) from error

    def _feedback(self) -> None:
        import psycopg

        self._told_s = time.monotonic()
        now_us = time.time_ns() // 1000 - EPOCH_MS * 1000
        # Written and flushed are one thing here: what is in the log is durable.
        message = _FEEDBACK.pack(b"r", self._confirmed, self._confirmed, self._confirmed, now_us, 0)
        try:
            self._libpq.put_copy_data(message)
            self._libpq.flush()
        except psycopg.Error as error:
            raise DatabaseUnavailable(self._database.place, _first_line(str(error))) from error

    def _ended(self) -> Exception:
        """Why the stream is over: what the server said, or that it is gone."""
        import psycopg

        try:
            result = self._libpq.get_result()
        except psycopg.Error:
            result = None
        if result is not None and result.error_field(67) is not None:
            return refusal(self._database, "reading the changes", result.error_field(67), _message(result))
        return DatabaseUnavailable(self._database.place, "the connection was lost")


def _text(value: bytes | None) -> str | None:
    return None if value is None else value.decode()


def _message(result: PGresult) -> str:
    return (result.error_field(77) or result.error_message).decode(errors="replace")


def _first_line(text: str) -> str:
    return text.strip().partition("\n")[0]
