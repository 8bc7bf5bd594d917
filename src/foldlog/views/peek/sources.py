"""SQL databases with views of folds, opened for a peek: read-only, for one transaction, with a time limit."""

from __future__ import annotations

import re
import sqlite3
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import parse_qsl, quote, urlencode

from foldlog.errors import InvalidArgument, ViewUnavailable, brief_repr
from foldlog.files.paths import is_special
from foldlog.limits import PEEK_MS
from foldlog.views.sql.bookmarks import JOIN_KIND, BookmarkTable, Run
from foldlog.views.sql.names import BOOKMARKS, TableName, quoted, table_name
from foldlog.views.sql.postgres import (
    PostgresDatabase,
    bookmark_table,
    is_postgres_url,
    public_url,
    resolved,
    runner,
    table_exists,
)

if TYPE_CHECKING:
    import pyarrow as pa

_POLL_S: Final = 0.02
_STEPS: Final = 10_000
"""SQLite's instructions between two checks of the time: about a millisecond."""

_URL_OPTIONS: Final = frozenset({"sslmode", "sslrootcert", "application_name", "options", "target_session_attrs"})
"""Allowed options of a PostgreSQL URL in a description: none makes libpq read secrets or connect elsewhere."""

_DUCKDB: Final[dict[str, str | bool | int | float | list[str]]] = {"enable_external_access": False, "threads": 1}
"""The file is not trusted: it must not load code, or access other files. And a look is short."""

_TOO_LONG: Final = f"the look took longer than {PEEK_MS} ms and was ended; ask for less"


class Source(ABC):
    """One view in one database. `mark` is the placeholder of a value, `like` compares text without regard to case."""

    engine: str
    mark: str = "?"
    like: str = "LIKE"

    def __init__(self, location: str, table: TableName, kind: str) -> None:
        self.location = location
        self.table = table
        self.kind = kind

    @abstractmethod
    def reading(self) -> Any:
        """A context with a `Run`: one state of the database, read-only."""

    @abstractmethod
    def batch(self, rows: Sequence[tuple[Any, ...]], columns: pa.Schema) -> pa.RecordBatch:
        """The rows of a SELECT of these columns as a batch."""

    @abstractmethod
    def _has_table(self, run: Run, table: TableName) -> bool: ...

    def name(self, column: str) -> str:
        """A column's name in a statement with values."""
        return quoted(column)

    def sql(self, table: TableName) -> str:
        return table.sql

    def text(self, column: str) -> str:
        """A column as text."""
        return f"CAST({self.name(column)} AS TEXT)"

    def entry(self, run: Run) -> tuple[TableName, str]:
        """The view's table, and the settings stored with its bookmark; ViewUnavailable if there is no such view."""
        table = self._resolved(run)
        bookmarks = self._bookmarks(table)
        found = bookmarks.row(run, table.name) if self._has_table(run, bookmarks.table) else None
        kinds = (self.kind, JOIN_KIND) if self.kind == "table" else (self.kind,)
        if found is None or found[0] not in kinds:
            raise ViewUnavailable(self.location, f"there are no such {self.kind} of a fold; run the fold to make them")
        return table, found[2]

    def count(self, run: Run, table: TableName, rows_max: int) -> int | None:
        """The number of rows in a table; None if they are too many to count."""
        ((found,),) = run(f"SELECT count(*) FROM (SELECT 1 FROM {table.sql} LIMIT {rows_max + 1}) AS counted")
        return None if found > rows_max else int(found)

    def moment(self, at: Any) -> Any:
        """A time as a value to compare a column with."""
        return at

    def _resolved(self, _run: Run) -> TableName:
        return self.table

    def _bookmarks(self, _table: TableName) -> BookmarkTable:
        return BookmarkTable(TableName(BOOKMARKS))


class SqliteSource(Source):
    """A file; its writers and a look do not wait for each other."""

    engine = "sqlite"

    def __init__(self, path: str, table: TableName, kind: str) -> None:
        super().__init__(f"{kind} {table} in {path}", table, kind)
        self._path = path

    @contextmanager
    def reading(self) -> Iterator[Run]:
        with sqlite_reading(self._path, self.location) as run:
            yield run

    def batch(self, rows: Sequence[tuple[Any, ...]], columns: pa.Schema) -> pa.RecordBatch:
        from foldlog.views.table.sqlite_values import from_values

        return from_values(rows, columns, self.location)

    def moment(self, at: Any) -> Any:
        import pyarrow as pa

        from foldlog.views.table.sqlite_values import to_values

        return to_values(pa.array([at], pa.timestamp("us", "UTC")))[0]

    def _has_table(self, run: Run, table: TableName) -> bool:
        return bool(run("SELECT 1 FROM sqlite_master WHERE name = ?", table.name))


class PostgresSource(Source):
    """A database, accessed with libpq's own credentials: a description contains no password."""

    engine = "postgresql"
    mark = "%s"
    like = "ILIKE"

    def __init__(self, url: str, table: TableName, kind: str) -> None:
        if not is_postgres_url(url):
            raise InvalidArgument(
                f"{brief_repr(url.partition('@')[0])} is not a URL such as postgresql://host/database"
            )
        super().__init__(f"{kind} {table} in {public_url(url)}", table, kind)
        bookmarks = TableName(BOOKMARKS, table.schema)
        self._database = PostgresDatabase(_safe_url(url), self.location, (table, bookmarks), wait_ms=PEEK_MS)

    @contextmanager
    def reading(self) -> Iterator[Run]:
        database = self._database.another()
        try:
            # A peek sees what its role may see; row level security applies.
            with database.transaction(snapshot=True, only_visible=True) as connection:
                run = runner(connection)
                run("SELECT set_config('statement_timeout', %s, true)", str(PEEK_MS))
                yield run
        finally:
            database.close()

    def name(self, column: str) -> str:
        return quoted(column).replace("%", "%%")  # the driver would take a single one for a placeholder

    def sql(self, table: TableName) -> str:
        return table.sql.replace("%", "%%")

    def batch(self, rows: Sequence[tuple[Any, ...]], columns: pa.Schema) -> pa.RecordBatch:
        return _plain_batch(rows, columns)

    def _has_table(self, run: Run, table: TableName) -> bool:
        return table_exists(run, table)

    def _resolved(self, run: Run) -> TableName:
        return resolved(run, self.table, self.location)

    def _bookmarks(self, table: TableName) -> BookmarkTable:
        return bookmark_table(table.schema)


class DuckdbSource(Source):
    """A file that only one process at a time may write, and that cannot be read meanwhile. A fold's runner opens it
    only to store a range, so a look waits for a gap and holds the file for a moment itself.
    """

    engine = "duckdb"
    like = "ILIKE"

    def __init__(self, path: str, table: TableName, kind: str) -> None:
        super().__init__(f"{kind} {table} in {path}", table, kind)
        self._path = path

    @contextmanager
    def reading(self) -> Iterator[Run]:
        from foldlog.views.sql.duckdb import load_duckdb

        duckdb = load_duckdb()
        try:
            with closing(self._opened(duckdb)) as connection, _ended(connection.interrupt):

                def run(statement: str, *values: object) -> list[tuple[Any, ...]]:
                    found: list[tuple[Any, ...]] = connection.execute(statement, list(values)).fetchall()
                    return found

                yield run
        except duckdb.InterruptException as error:
            raise ViewUnavailable(self.location, _TOO_LONG) from error
        except duckdb.Error as error:
            raise ViewUnavailable(self.location, f"DuckDB says: {_first_line(error)}") from error

    def _opened(self, duckdb: Any) -> Any:
        refuse_special(self._path, self.location)
        deadline = time.monotonic() + PEEK_MS / 1000
        while True:
            try:
                return duckdb.connect(self._path, read_only=True, config=_DUCKDB)
            except duckdb.IOException as error:
                if "does not exist" in str(error):
                    raise ViewUnavailable(self.location, f"there is no file {self._path}; run the fold") from error
                if "lock" not in str(error):
                    raise
                if time.monotonic() > deadline:
                    holder = re.search(r"PID (\d+)", str(error))
                    who = "another process" if holder is None else f"process {holder[1]}"
                    raise ViewUnavailable(
                        self.location, f"{who} has the file open, and DuckDB lets nobody read it meanwhile; look again"
                    ) from error
                time.sleep(_POLL_S)

    def batch(self, rows: Sequence[tuple[Any, ...]], columns: pa.Schema) -> pa.RecordBatch:
        return _plain_batch(rows, columns)

    def moment(self, at: Any) -> Any:
        return at.replace(tzinfo=None)  # stored without a zone, in UTC

    def _has_table(self, run: Run, table: TableName) -> bool:
        return bool(run("SELECT 1 FROM duckdb_tables() WHERE table_name = ?", table.name))


def source_of(engine: str, location: str, name: str, kind: str) -> Source:
    """The database of a description."""
    if engine == "postgresql":
        return PostgresSource(location, table_name(name, with_schema=True), kind)
    if engine == "duckdb" and kind not in ("counters", "table"):
        raise InvalidArgument("DuckDB holds counters and tables, and no other view of a fold")
    made = DuckdbSource if engine == "duckdb" else SqliteSource
    return made(location, table_name(name, with_schema=False), kind)


@contextmanager
def _ended(end: Callable[[], object]) -> Iterator[None]:
    """Call `end`, from another thread, if the block takes too long."""
    timer = threading.Timer(PEEK_MS / 1000, end)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        timer.join()


def refuse_special(path: str, location: str) -> None:
    """ViewUnavailable for a pipe, a socket or a device: opening one may never end. A missing file is reported later."""
    if is_special(path):
        raise ViewUnavailable(location, f"{path} is no file of a view, but a pipe, a socket or a device")


@contextmanager
def sqlite_reading(path: str, location: str) -> Iterator[Run]:
    """A read-only transaction on a SQLite file."""
    refuse_special(path, location)
    deadline = time.monotonic() + PEEK_MS / 1000
    try:
        uri = f"file:{quote(path)}?mode=ro"
        with closing(sqlite3.connect(uri, timeout=PEEK_MS / 1000, isolation_level=None, uri=True)) as connection:
            connection.set_progress_handler(lambda: time.monotonic() > deadline, _STEPS)
            connection.execute("PRAGMA query_only = 1")
            # The file's own views and triggers may only call functions that SQLite considers harmless.
            connection.execute("PRAGMA trusted_schema = 0")
            connection.execute("BEGIN")

            def run(statement: str, *values: object) -> list[tuple[Any, ...]]:
                return connection.execute(statement, values).fetchall()

            yield run
    except sqlite3.Error as error:
        raise ViewUnavailable(location, _sqlite_reason(error, path)) from error


def _sqlite_reason(error: sqlite3.Error, path: str) -> str:
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    if code == sqlite3.SQLITE_INTERRUPT:
        return _TOO_LONG
    if code == sqlite3.SQLITE_CANTOPEN:
        return f"the file {path} is not there, or not for this process to read; run the fold to make it"
    return f"SQLite says: {error}"


def _safe_url(url: str) -> str:
    """Without options that are not allowed in a description; connecting has its own time limit."""
    public = public_url(url)
    base, _, query = public.partition("?")
    options = [(name, value) for name, value in parse_qsl(query) if name in _URL_OPTIONS]
    return f"{base}?{urlencode([*options, ('connect_timeout', str(max(2, PEEK_MS // 1000)))])}"


def _plain_batch(rows: Sequence[tuple[Any, ...]], columns: pa.Schema) -> pa.RecordBatch:
    import pyarrow as pa

    by_column = list(zip(*rows, strict=True)) if rows else [()] * len(columns)
    arrays = [pa.array(values, field.type) for values, field in zip(by_column, columns, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=columns)


def _first_line(error: Exception) -> str:
    return next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)


def pattern_of(text: str) -> str:
    """A pattern for LIKE ... ESCAPE '!' that matches any value containing the text.

    >>> pattern_of("50%!")
    '%50!%!!%'
    """
    return "%" + re.sub(r"([%_!])", r"!\1", text) + "%"
