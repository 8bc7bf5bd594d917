"""Joins in a SQLite file. One transaction at a time writes to it, so the two sides never change at once.

A join whose result is a topic works in a file without a name, and is replayed in others: see
`foldlog.spark.change_topics.joined_changes`.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, ClassVar, cast

from foldlog.errors import InvalidArgument
from foldlog.limits import VIEW_LOCK_WAIT_MS, VIEW_SCAN_ROWS
from foldlog.views.contract import OFFSET, PARTITION, RECORD
from foldlog.views.join.rows import SideChange
from foldlog.views.join.side import JoinStore, Writing
from foldlog.views.join.spec import LEFT, ON, RIGHT, TIME
from foldlog.views.join.state import JoinState, own_columns
from foldlog.views.join.statements import UNTIL, JoinTables
from foldlog.views.sql.bookmarks import Run
from foldlog.views.sql.names import OLD, TableName, quoted, quoted_list
from foldlog.views.sql.sqlite import SqliteDatabase, runner
from foldlog.views.sql.types import sqlite_type
from foldlog.views.table.sqlite import CACHE_KIB, check_swap, swap_tables, table_exists
from foldlog.views.table.sqlite_values import from_values, to_values

if TYPE_CHECKING:
    import pyarrow as pa


class SqliteJoin(JoinStore):
    """See `JoinStore`."""

    engine: ClassVar[str] = "sqlite"
    holds_nul: ClassVar[bool] = True
    has_lateral: ClassVar[bool] = False

    def __init__(self, path: str, table: TableName, *, wait_ms: int = VIEW_LOCK_WAIT_MS) -> None:
        self._path = path
        self._table = table
        self._wait_ms = wait_ms
        self.location = f"table {table} in sqlite:///{path}"
        self._database = SqliteDatabase(path, self.location, wait_ms=wait_ms)

    @property
    def table_name(self) -> str:
        return self._table.name

    def description(self) -> dict[str, object]:
        return {"kind": "table", "engine": self.engine, "path": self._path, "name": str(self._table)}

    def exists(self) -> bool:
        return self._database.exists()

    @contextmanager
    def writing(self, *, create: bool = False) -> Iterator[Writing]:
        with self._database.write(create=create) as connection:
            if create:
                self._database.bookmarks.create(runner(connection))
            yield self._opened(connection)

    @contextmanager
    def reading(self) -> Iterator[Writing]:
        with self._database.read() as connection:
            yield self._opened(connection)

    def _opened(self, connection: sqlite3.Connection) -> Writing:
        return Writing(runner(connection), connection, JoinTables(self._table, "temp"), self._database.bookmarks)

    def has_table(self, run: Run, table: TableName) -> bool:
        return table_exists(run, table)

    def create_side(self, run: Run, table: TableName, columns: pa.Schema) -> None:
        # The index is a constraint: then it follows the table, without a name that could collide.
        indexed = (ON, TIME, PARTITION, OFFSET, RECORD) if TIME in columns.names else (ON, RECORD)
        parts = [f"{quoted(field.name)} {sqlite_type(field.type)}" for field in columns]
        keys = [f"PRIMARY KEY ({RECORD})", f"UNIQUE ({quoted_list(indexed)})"]
        run(f"CREATE TABLE {table.sql} ({', '.join([*parts, *keys])})")

    def create_joined(self, run: Run, table: TableName, columns: pa.Schema) -> None:
        required = {LEFT, RIGHT}
        parts = [
            f"{quoted(field.name)} {sqlite_type(field.type)}{' NOT NULL' if field.name in required else ''}"
            for field in columns
        ]
        keys = [f"PRIMARY KEY ({LEFT}, {RIGHT})", f"UNIQUE ({RIGHT}, {LEFT})"]
        run(f"CREATE TABLE {table.sql} ({', '.join([*parts, *keys])})")

    def add_column(self, run: Run, table: TableName, field: pa.Field) -> None:
        run(f"ALTER TABLE {table.sql} ADD COLUMN {quoted(field.name)} {sqlite_type(field.type)}")

    def begin_change(self, writing: Writing, change: SideChange) -> None:
        t, run = writing.tables, writing.run
        run(f"PRAGMA cache_size = -{CACHE_KIB}")
        for table, columns in (
            (t.records, f"{RECORD} TEXT PRIMARY KEY"),
            (t.touched, f"{ON} TEXT, {TIME} INTEGER, {UNTIL} INTEGER"),
            (t.affected, f"{RECORD} TEXT PRIMARY KEY"),
        ):
            run(f"DROP TABLE IF EXISTS {table.sql}")
            run(f"CREATE TABLE {table.sql} ({columns})")
        run(f"CREATE INDEX {t.temporary_schema}._foldlog_touched_times ON {quoted(t.touched.name)} ({ON}, {TIME})")
        self.fill(writing, t.records, change.records)

    def fill(self, writing: Writing, table: TableName, rows: pa.Table) -> None:
        if not rows.num_rows:
            return
        connection = cast(sqlite3.Connection, writing.connection)
        marks = ", ".join("?" * rows.num_columns)
        statement = f"INSERT INTO {table.sql} ({quoted_list(rows.column_names)}) VALUES ({marks})"
        connection.executemany(statement, zip(*(to_values(column) for column in rows.columns), strict=True))

    def batches(self, writing: Writing, table: TableName, columns: pa.Schema) -> Iterator[pa.RecordBatch]:
        connection = cast(sqlite3.Connection, writing.connection)
        cursor = connection.execute(f"SELECT {quoted_list(columns.names)} FROM {table.sql}")
        while rows := cursor.fetchmany(VIEW_SCAN_ROWS):
            yield from_values(rows, columns, self.location)

    def check_swap(self, writing: Writing, state: JoinState) -> None:
        check_swap(writing.run, self.location, self._table, own_columns(state))

    def swap(self, writing: Writing, shadow: JoinStore, state: JoinState | None) -> None:
        if not isinstance(shadow, SqliteJoin) or shadow._path != self._path:
            raise InvalidArgument(f"{shadow.location} is not a shadow of {self.location}: it is in another file")
        run, mine, old = writing.run, self._table, self._table.beside(OLD)
        swap_tables(run, self.location, mine, shadow._table, old, own_columns(state))
        for ending in ("__left", "__right"):
            run(f"DROP TABLE IF EXISTS {old.beside(ending).sql}")
            if table_exists(run, mine.beside(ending)):
                run(f"ALTER TABLE {mine.beside(ending).sql} RENAME TO {old.beside(ending).sql}")
            run(f"ALTER TABLE {shadow._table.beside(ending).sql} RENAME TO {mine.beside(ending).sql}")

    def drop_table(self, run: Run, table: TableName) -> None:
        run(f"DROP TABLE IF EXISTS {table.sql}")

    def beside(self, ending: str) -> SqliteJoin:
        return SqliteJoin(self._path, self._table.beside(ending), wait_ms=self._wait_ms)

    def another(self) -> SqliteJoin:
        return self.beside("")

    def close(self) -> None:
        self._database.close()


class ScratchDatabase(SqliteDatabase):
    """SQLite keeps it in a temporary file when it outgrows its cache, and removes it with its one connection."""

    def __init__(self, location: str) -> None:
        super().__init__("", location)

    def exists(self) -> bool:
        return self._connection is not None

    def _opened(self, *, create: bool) -> sqlite3.Connection:
        if self._connection is None:
            self._connection = sqlite3.connect("", isolation_level=None, check_same_thread=False)
            self._connection.execute("PRAGMA synchronous = OFF")
        return self._connection

    def _keep_a_write_ahead_log(self, connection: sqlite3.Connection) -> None:
        """Nobody else reads it."""


class ScratchJoin(SqliteJoin):
    """A join of this process alone: what it is made of is elsewhere, and it is made again. It lasts until `drop`, as
    `close` leaves a view as it is.
    """

    def __init__(self, location: str) -> None:
        super().__init__("", TableName("joined"))
        self.location = location
        self._database = ScratchDatabase(location)

    def drop(self) -> bool:
        existed = self._database.exists()
        self._database.close()
        return existed

    def close(self) -> None:
        """Nothing: see `drop`."""

    def another(self) -> ScratchJoin:
        return self
