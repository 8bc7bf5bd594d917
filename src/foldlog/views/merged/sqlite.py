"""Merged views in a SQLite file. Values are stored as in SQLite tables.

Dates and times are text that sorts as they do; NaN is text, too, and sorts after every number, as in Spark.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from foldlog.limits import VIEW_SCAN_ROWS
from foldlog.views.local_paths import local_path
from foldlog.views.merged.view import MergedTransaction, MergedView, Settings, StoredRows
from foldlog.views.sql.bookmarks import BookmarkTable, Run
from foldlog.views.sql.names import quoted, quoted_list, table_name
from foldlog.views.sql.sqlite import SqliteDatabase, runner, sqlite_path
from foldlog.views.sql.types import sqlite_type
from foldlog.views.table.sqlite_values import from_values, to_values

if TYPE_CHECKING:
    import pyarrow as pa


class SqliteMerged(MergedView[sqlite3.Connection, Settings]):
    """One thread at a time; writers of the file wait for each other, readers do not wait."""

    def __init__(self, url_or_path: object, name: str, label: str | None = None) -> None:
        super().__init__(table_name(name, with_schema=False), label)
        self._path = local_path(sqlite_path(url_or_path))
        self._database = SqliteDatabase(self._path, self.place)

    @property
    def _where(self) -> str:
        return self._path

    def description(self) -> dict[str, object] | None:
        return {"kind": self.kind, "engine": "sqlite", "path": self._path, "name": str(self._table)}

    @property
    def _bookmarks(self) -> BookmarkTable:
        return self._database.bookmarks

    def close(self) -> None:
        self._database.close()

    def _exists(self) -> bool:
        return self._database.exists()

    @contextmanager
    def _writing(self, *, create: bool = False) -> Iterator[MergedTransaction[sqlite3.Connection]]:
        with self._database.write(create=create) as connection:
            yield MergedTransaction(connection, runner(connection))

    @contextmanager
    def _reading(self) -> Iterator[MergedTransaction[sqlite3.Connection]]:
        database = self._database.another()
        try:
            with database.read() as connection:
                yield MergedTransaction(connection, runner(connection))
        finally:
            database.close()

    def _has_bookmarks(self, run: Run) -> bool:
        return bool(run("SELECT 1 FROM sqlite_master WHERE name = ?", self._bookmarks.table.name))

    def _make_table(self, run: Run, stored: StoredRows[Settings]) -> None:
        columns = [self._column(stored.settings, field) for field in stored.settings.stored()]
        run(f"CREATE TABLE {stored.table.sql} ({', '.join(columns)})")
        if stored.settings.groups:
            index = quoted(stored.table.name + "_groups")
            run(f"CREATE UNIQUE INDEX {index} ON {stored.table.sql} ({quoted_list(stored.settings.groups)})")

    def _take(
        self, transaction: MergedTransaction[sqlite3.Connection], stored: StoredRows[Settings], keys: pa.Table
    ) -> pa.Table:
        import pyarrow as pa

        connection, schema = transaction.connection, stored.settings.stored()
        declared = ", ".join(f"{quoted(name)} {sqlite_type(schema.field(name).type)}" for name in keys.column_names)
        connection.execute(f"CREATE TEMP TABLE foldlog_range ({declared or 'x'})")
        marks = ", ".join("?" * len(keys.column_names)) or "NULL"
        connection.executemany(f"INSERT INTO temp.foldlog_range VALUES ({marks})", values_of(keys))
        # CROSS JOIN, which SQLite does not reorder: the range's rows come first, and the index finds theirs.
        found = " UNION ALL ".join(
            f"SELECT kept.rowid FROM temp.foldlog_range AS new CROSS JOIN {stored.table.sql} AS kept WHERE {condition}"
            for condition in stored.settings.met("IS", stored.table, seeks=True)
        )
        taken = connection.execute(
            f"DELETE FROM {stored.table.sql} WHERE rowid IN ({found}) RETURNING {quoted_list(schema.names)}"
        ).fetchall()
        connection.execute("DROP TABLE temp.foldlog_range")
        return pa.Table.from_batches([from_values(taken, schema, self.place)])

    def _put(
        self, transaction: MergedTransaction[sqlite3.Connection], stored: StoredRows[Settings], rows: pa.Table
    ) -> None:
        marks = ", ".join("?" * len(rows.column_names))
        transaction.connection.executemany(
            f"INSERT INTO {stored.table.sql} ({quoted_list(rows.column_names)}) VALUES ({marks})", values_of(rows)
        )

    def _column(self, settings: Settings, field: Any) -> str:
        return f"{quoted(field.name)} {sqlite_type(field.type)}"

    def _sql_type(self, kind: Any) -> str:
        return sqlite_type(kind)

    def _read(
        self, transaction: MergedTransaction[sqlite3.Connection], statement: str, schema: pa.Schema
    ) -> Iterator[pa.RecordBatch]:
        cursor = transaction.connection.execute(statement)
        while found := cursor.fetchmany(VIEW_SCAN_ROWS):
            yield from_values(found, schema, self.place)


def values_of(rows: pa.Table) -> Iterator[tuple[Any, ...]]:
    """The rows as SQLite stores them."""
    if not rows.column_names:
        return iter([()] * rows.num_rows)
    return zip(*(to_values(column) for column in rows.columns), strict=True)
