"""Joins in PostgreSQL. Every change of a side first locks the join's bookmark, so the two sides never change at once:
two transactions that each saw the other's side as it was would both miss the pairs of their new rows.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, ClassVar, cast

from foldlog.errors import InvalidArgument
from foldlog.limits import VIEW_APPLY_LOCK_WAIT_MS, VIEW_LOCK_WAIT_MS
from foldlog.views.contract import OFFSET, PARTITION, RECORD
from foldlog.views.join.rows import SideChange
from foldlog.views.join.side import JoinStore, Writing
from foldlog.views.join.spec import LEFT, ON, RIGHT, TIME
from foldlog.views.join.state import JoinState, own_columns
from foldlog.views.join.statements import UNTIL, JoinTables
from foldlog.views.sql.bookmarks import Run
from foldlog.views.sql.names import BOOKMARKS, OLD, TableName, quoted, quoted_list
from foldlog.views.sql.postgres import (
    PostgresDatabase,
    bookmark_table,
    lock_schema,
    public_url,
    relation_bytes,
    resolved,
    runner,
    table_exists,
)
from foldlog.views.sql.postgres_limits import PostgresLimits
from foldlog.views.sql.postgres_swap import check_swap, drop_table, swap_tables
from foldlog.views.sql.types import postgres_type
from foldlog.views.table.postgres_copy import copy_in, copy_out, encoded

if TYPE_CHECKING:
    import pyarrow as pa

    from foldlog.views.sql.postgres import Connection

_TEXT = 'text COLLATE "C"'


class PostgresJoin(JoinStore):
    """See `JoinStore`."""

    engine: ClassVar[str] = "postgresql"
    holds_nul: ClassVar[bool] = False
    has_lateral: ClassVar[bool] = True

    def __init__(self, url: str, table: TableName, *, wait_ms: int = VIEW_LOCK_WAIT_MS) -> None:
        self._url = url
        self._named = table
        self._wait_ms = wait_ms
        self.location = f"table {table} in {public_url(url)}"
        locked = (table, TableName(BOOKMARKS, table.schema))
        self._database = PostgresDatabase(url, self.location, locked, wait_ms=wait_ms)
        self._limits = PostgresLimits(self._database)
        self._resolved: TableName | None = None

    @property
    def table_name(self) -> str:
        return self._named.name

    def description(self) -> dict[str, object]:
        name = self._resolved or self._named
        return {"kind": "table", "engine": self.engine, "url": public_url(self._url), "name": str(name)}

    def exists(self) -> bool:
        return True

    @contextmanager
    def writing(self, *, create: bool = False) -> Iterator[Writing]:
        with self._database.transaction(wait_ms=None if create else VIEW_APPLY_LOCK_WAIT_MS) as connection:
            opened = self._opened(connection)
            if create:
                lock_schema(opened.run, opened.tables.joined.schema)
                if not table_exists(opened.run, opened.bookmarks.table):
                    opened.bookmarks.create(opened.run)
            yield opened

    @contextmanager
    def reading(self) -> Iterator[Writing]:
        with self._database.transaction(snapshot=True) as connection:
            yield self._opened(connection)

    def _opened(self, connection: Connection) -> Writing:
        run = runner(connection)
        table = self._resolved = self._resolved or resolved(run, self._named, self.location)
        return Writing(run, connection, JoinTables(table, "pg_temp"), bookmark_table(table.schema))

    def has_table(self, run: Run, table: TableName) -> bool:
        return table_exists(run, table)

    def size_bytes(self) -> int | None:
        with self.reading() as reading:
            t = reading.tables
            return sum(relation_bytes(reading.run, table) or 0 for table in (t.joined, t.left, t.right))

    def holds_unicode(self) -> bool:
        return self._limits.holds_unicode()

    def unheld_characters(self, characters: frozenset[str]) -> frozenset[str]:
        return self._limits.unheld_characters(characters)

    def create_side(self, run: Run, table: TableName, columns: pa.Schema) -> None:
        texts = {RECORD, ON}
        parts = [f"{quoted(one.name)} {_TEXT if one.name in texts else postgres_type(one.type)}" for one in columns]
        run(f"CREATE TABLE {table.sql} ({', '.join(parts)}, PRIMARY KEY ({RECORD}))")
        indexed = (ON, TIME, PARTITION, OFFSET) if TIME in columns.names else (ON,)
        run(f"CREATE INDEX ON {table.sql} ({quoted_list(indexed)})")

    def create_joined(self, run: Run, table: TableName, columns: pa.Schema) -> None:
        key = {LEFT, RIGHT}
        parts = [
            f"{quoted(one.name)} {f'{_TEXT} NOT NULL' if one.name in key else postgres_type(one.type)}"
            for one in columns
        ]
        run(f"CREATE TABLE {table.sql} ({', '.join(parts)}, PRIMARY KEY ({LEFT}, {RIGHT}))")
        run(f"CREATE INDEX ON {table.sql} ({RIGHT})")

    def add_column(self, run: Run, table: TableName, field: pa.Field) -> None:
        run(f"ALTER TABLE {table.sql} ADD COLUMN {quoted(field.name)} {postgres_type(field.type)}")

    def begin_change(self, writing: Writing, change: SideChange) -> None:
        t, run = writing.tables, writing.run
        for table, columns in (
            (t.records, f"{RECORD} {_TEXT} PRIMARY KEY"),
            (t.touched, f"{ON} {_TEXT}, {TIME} bigint, {UNTIL} bigint"),
            (t.affected, f"{RECORD} {_TEXT} PRIMARY KEY"),
        ):
            run(f"CREATE TEMPORARY TABLE {quoted(table.name)} ({columns}) ON COMMIT DROP")
        run(f"CREATE INDEX ON {t.touched.sql} ({ON}, {TIME})")
        self.fill(writing, t.records, change.records)
        # A few records of a large table should be looked up, not joined: the planner has to know that they are few.
        run(f"ANALYZE {t.records.sql}")

    def fill(self, writing: Writing, table: TableName, rows: pa.Table) -> None:
        copy_in(cast("Connection", writing.connection), table, encoded(rows))

    def batches(self, writing: Writing, table: TableName, columns: pa.Schema) -> Iterator[pa.RecordBatch]:
        yield from copy_out(cast("Connection", writing.connection), table, columns, self.location)

    def check_swap(self, writing: Writing, state: JoinState) -> None:
        table = writing.tables.joined
        check_swap(writing.run, self.location, table, table.beside(OLD), own_columns(state))

    def swap(self, writing: Writing, shadow: JoinStore, state: JoinState | None) -> None:
        if not isinstance(shadow, PostgresJoin) or (shadow._url, shadow._named.schema) != (
            self._url,
            self._named.schema,
        ):
            raise InvalidArgument(f"{shadow.location} is not a shadow of {self.location}: it is in another schema")
        run, mine = writing.run, writing.tables.joined
        old, beside = mine.beside(OLD), TableName(shadow.table_name, mine.schema)
        swap_tables(run, self.location, mine, beside, old, own_columns(state))
        for ending in ("__left", "__right"):
            drop_table(run, self.location, old.beside(ending))
            if table_exists(run, mine.beside(ending)):
                run(f"ALTER TABLE {mine.beside(ending).sql} RENAME TO {quoted(old.beside(ending).name)}")
            run(f"ALTER TABLE {beside.beside(ending).sql} RENAME TO {quoted(mine.beside(ending).name)}")

    def drop_table(self, run: Run, table: TableName) -> None:
        drop_table(run, self.location, table)

    def beside(self, ending: str) -> PostgresJoin:
        return PostgresJoin(self._url, self._named.beside(ending), wait_ms=self._wait_ms)

    def another(self) -> PostgresJoin:
        return self.beside("")

    def close(self) -> None:
        self._database.close()
