"""Connections to a captured MySQL or MariaDB, and their errors as sentences that say what to do."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from foldlog.errors import CaptureError, DatabaseRefused, DatabaseUnavailable, InvalidArgument, brief_repr
from foldlog.views.sql.mysql import is_mysql_url, load_pymysql, mysql_options, mysql_settings, public_mysql_url

CONNECT_S: Final = 10
READ_S: Final = 60
"""After so long without a word a connection is given up. Statements that may take longer have none of their own."""

_SESSION: Final = "SET SESSION time_zone = '+00:00', sql_mode = '', net_write_timeout = 3600"
"""Texts are read as the server prints them: times in UTC, without padding. A snapshot may be written slowly."""

DENIED: Final = frozenset({1044, 1045, 1142, 1143, 1227, 1370})
"""Errors that say that a user may not do something."""

_LOST: Final = frozenset({1053, 1927, 2002, 2003, 2006, 2013, 4031})


class MySqlConnector:
    """Where it is, and how to reach it. `tell` gets sentences for people."""

    def __init__(self, url: str, tell: Callable[[str], None]) -> None:
        if not is_mysql_url(url):
            raise InvalidArgument(f"{brief_repr(url)} is not a URL such as mysql://user@host/database")
        self.place = public_mysql_url(url)
        self.tell = tell
        self.options = mysql_options(url)
        self._settings = mysql_settings(url)

    @property
    def database(self) -> str:
        return str(self._settings["database"])

    def connect(self, *, read_s: int | None = READ_S) -> Any:
        """A connection that commits each statement. Its rows are texts as the server prints them, or bytes."""
        pymysql = load_pymysql("capturing MySQL")
        texts = {kind: turn for kind, turn in pymysql.converters.conversions.items() if not isinstance(kind, int)}
        try:
            connection = pymysql.connect(
                **self._settings, conv=texts, connect_timeout=CONNECT_S, read_timeout=read_s, write_timeout=READ_S
            )
            with connection.cursor() as cursor:
                cursor.execute(_SESSION)
        except pymysql.Error as error:
            raise self.refusal("connecting", error) from error
        except (OSError, RuntimeError) as error:  # a certificate; a login that needs cryptography
            raise DatabaseUnavailable(self.place, _line(error)) from error
        return connection

    def ask(self, connection: Any, text: str, arguments: Sequence[object] = (), *, step: str) -> list[tuple[Any, ...]]:
        """Run a statement; its rows."""
        pymysql = load_pymysql("capturing MySQL")
        try:
            with connection.cursor() as cursor:
                cursor.execute(text, arguments or None)
                return list(cursor.fetchall())
        except pymysql.Error as error:
            raise self.refusal(step, error) from error

    def refusal(self, step: str, error: Exception) -> CaptureError:
        """The error for what a server answered."""
        code, said = number_of(error), _line(error)
        if code in DENIED:
            return DatabaseRefused(
                f"{self.place}: this user may not do that ({step}: {said}); docs/capture.md lists what it needs",
                str(code),
            )
        if code in _LOST or code == 0:
            return DatabaseUnavailable(self.place, said)
        return DatabaseRefused(f"{self.place}: {step} failed: {said}", str(code))


def number_of(error: Exception) -> int:
    """The server's number for an error; 0 if it is the driver's own."""
    return error.args[0] if error.args and isinstance(error.args[0], int) else 0


def _line(error: Exception) -> str:
    said = str(error.args[1] if len(error.args) > 1 else error)
    return said.strip().replace("\n", " ")
