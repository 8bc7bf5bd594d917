"""SQLite files that hold views: opened with a write-ahead log and synchronous=FULL, so that a commit is durable.

Every error of the engine becomes ViewUnavailable with the file's name. A writer waits VIEW_LOCK_WAIT_MS for another
one. A file that was deleted or replaced since it was opened is noticed before the next transaction.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from foldlog.errors import InvalidArgument, ViewUnavailable, brief_repr
from foldlog.files.paths import as_text, identity, make_parents
from foldlog.limits import VIEW_LOCK_WAIT_MS
from foldlog.views.sql.bookmarks import BookmarkTable, Run
from foldlog.views.sql.names import BOOKMARKS, TableName

URL_PREFIX: Final = "sqlite:///"

_RETRY_S: Final = 0.005
"""Pause between attempts to enable the write-ahead log: SQLite's own timeout does not cover that step."""


def sqlite_path(url_or_path: object) -> str:
    """The file of "sqlite:///views/live.db" (two slashes more for an absolute path) or of a plain path.

    >>> sqlite_path("sqlite:///views/live.db"), sqlite_path("sqlite:////srv/live.db")
    ('views/live.db', '/srv/live.db')
    """
    text = as_text(url_or_path)
    if not isinstance(text, str) or not text or "\0" in text:  # a path may be bytes
        raise InvalidArgument(f"a SQLite view is in a file, such as 'views/live.db', not in {brief_repr(url_or_path)}")
    if text.startswith(URL_PREFIX):
        text = text.removeprefix(URL_PREFIX)
    elif "://" in text or text.startswith(("sqlite:", "file:")):
        raise InvalidArgument(
            f"{brief_repr(text.partition('@')[0])} is not a place for a view;"
            " give postgresql://user@host/database, sqlite:///path or a path"
        )
    if text in {"", ":memory:"}:
        raise InvalidArgument("a view outlives its process, so it needs a file: ':memory:' cannot hold one")
    return text


class SqliteDatabase:
    """One file, opened on first use, by one thread at a time. `location` is its name in errors."""

    bookmarks: Final = BookmarkTable(TableName(BOOKMARKS))

    def __init__(self, path: str, location: str, *, wait_ms: int = VIEW_LOCK_WAIT_MS) -> None:
        self.path = path
        self.location = location
        self._wait_ms = wait_ms
        self._connection: sqlite3.Connection | None = None
        self._file_id: tuple[int, int] | None = None

    def exists(self) -> bool:
        """Whether the file exists."""
        return self._current_file() is not None

    @contextmanager
    def write(self, *, create: bool = False) -> Iterator[sqlite3.Connection]:
        """An exclusive writing transaction, committed and durable when the block ends.

        With `create`, a missing file and its directory are created; otherwise that is ViewUnavailable.
        """
        with self._explained():
            connection = self._opened(create=create)
            self._keep_a_write_ahead_log(connection)
            connection.execute("BEGIN IMMEDIATE")
            try:
                yield connection
                connection.execute("COMMIT")
            finally:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")

    @contextmanager
    def read(self) -> Iterator[sqlite3.Connection]:
        """A reading transaction: one state of the file; it does not block writers, nor they it."""
        with self._explained():
            connection = self._opened(create=False)
            connection.execute("BEGIN")
            try:
                yield connection
            finally:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")

    def another(self) -> SqliteDatabase:
        """This file through a separate connection."""
        return SqliteDatabase(self.path, self.location, wait_ms=self._wait_ms)

    def close(self) -> None:
        """Close the file; the next transaction opens it again."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def _opened(self, *, create: bool) -> sqlite3.Connection:
        if self._connection is not None:
            if self._current_file() == self._file_id:
                return self._connection
            self.close()  # deleted or replaced: writes to it would be lost
        if create:
            make_parents(self.path)
        elif self._current_file() is None:
            raise ViewUnavailable(self.location, f"there is no file {self.path}; run the fold to make it")
        connection = sqlite3.connect(
            self.path, timeout=self._wait_ms / 1000, isolation_level=None, check_same_thread=False
        )
        try:
            # FULL: a commit is durable when it returns. The others ensure that on macOS, and do nothing elsewhere.
            for pragma in ("synchronous = FULL", "fullfsync = 1", "checkpoint_fullfsync = 1"):
                connection.execute(f"PRAGMA {pragma}")
            self._file_id = self._current_file()
        except BaseException:
            connection.close()
            raise
        self._connection = connection
        return connection

    def _keep_a_write_ahead_log(self, connection: sqlite3.Connection) -> None:
        """Only for writing: reading a user's file must not change it."""
        deadline = time.monotonic() + self._wait_ms / 1000
        while connection.execute("PRAGMA journal_mode").fetchone()[0] != "wal":
            try:
                connection.execute("PRAGMA journal_mode = WAL")
            except sqlite3.OperationalError as error:
                if primary_code(error) != sqlite3.SQLITE_BUSY or time.monotonic() > deadline:
                    raise
                time.sleep(_RETRY_S)

    def _current_file(self) -> tuple[int, int] | None:
        try:
            return identity(self.path)
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            raise ViewUnavailable(self.location, f"its file cannot be looked at ({error.strerror})") from error

    @contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            raise ViewUnavailable(self.location, self._reason(error)) from error
        except OSError as error:
            raise ViewUnavailable(self.location, f"its directory cannot be made ({error.strerror})") from error

    def _reason(self, error: sqlite3.Error) -> str:
        code = primary_code(error)
        if code in {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED}:
            return f"somebody else has been writing to the file for {self._wait_ms} ms; end that transaction"
        if code == sqlite3.SQLITE_FULL:
            return "the disk is full; make room and run the fold again"
        if code in {sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_CORRUPT}:
            return f"the file is not a sound SQLite database ({error}); move it away and run the fold again"
        if code in {sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_PERM}:
            return f"the file cannot be written ({error}); look at its permissions and its directory's"
        return f"SQLite says: {error}"


def primary_code(error: sqlite3.Error) -> int:
    """The engine's error code without its extension; -1 for errors that do not come from the engine."""
    code = getattr(error, "sqlite_errorcode", None)
    return code & 0xFF if isinstance(code, int) else -1


def runner(connection: sqlite3.Connection) -> Run:
    """A `bookmarks.Run`."""

    def run(statement: str, *values: object) -> list[tuple[Any, ...]]:
        return connection.execute(statement, values).fetchall()

    return run
