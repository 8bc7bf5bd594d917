"""Merged views in a DuckDB file, which is opened for each transaction: see `foldlog.views.sql.duckdb`.

A scan keeps the file open until it is read to its end or closed. Timestamps are stored without a zone, in UTC.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from foldlog.errors import InvalidArgument, brief_repr
from foldlog.files.paths import exists
from foldlog.limits import VIEW_LOCK_WAIT_MS, VIEW_SCAN_ROWS
from foldlog.views.local_paths import local_path
from foldlog.views.merged.groups import SUM_TOO_LARGE
from foldlog.views.merged.view import MergedTransaction, MergedView, Settings, StoredRows
from foldlog.views.sql.bookmarks import BookmarkTable, Run
from foldlog.views.sql.duckdb import DuckdbDatabase, batches_of, duckdb_type, runner, without_zones
from foldlog.views.sql.names import BOOKMARKS, TableName, quoted, quoted_list, table_name

if TYPE_CHECKING:
    import pyarrow as pa


class DuckdbMerged(MergedView[Any, Settings]):
    """Holds nothing open between calls, except while a scan is being read."""

    def __init__(self, path: str, name: str, label: str | None = None, *, wait_ms: int = VIEW_LOCK_WAIT_MS) -> None:
        super().__init__(table_name(name, with_schema=False), label)
        if not path or "://" in path or "\0" in path or path.startswith(":"):
            raise InvalidArgument(
                f"a view in DuckDB is in a file, such as 'views/live.duckdb', not in {brief_repr(path)}"
            )
        self._path = local_path(path)
        self._wait_ms = wait_ms
        self._database = DuckdbDatabase(self._path, self.place, wait_ms=wait_ms)

    @property
    def _where(self) -> str:
        return self._path

    def description(self) -> dict[str, object] | None:
        return {"kind": self.kind, "engine": "duckdb", "path": self._path, "name": str(self._table)}

    @property
    def _bookmarks(self) -> BookmarkTable:
        return BookmarkTable(TableName(BOOKMARKS))

    def _exists(self) -> bool:
        return exists(self._path)

    @contextmanager
    def _writing(self, *, create: bool = False) -> Iterator[MergedTransaction[Any]]:
        if not create and not self._exists():
            raise self._missing()
        with self._database.alone(), self._transaction() as transaction:
            yield transaction

    @contextmanager
    def _reading(self) -> Iterator[MergedTransaction[Any]]:
        with self._transaction() as transaction:
            yield transaction

    @contextmanager
    def _transaction(self) -> Iterator[MergedTransaction[Any]]:
        with self._database.transaction(too_large=SUM_TOO_LARGE) as connection:
            yield MergedTransaction(connection, runner(connection))

    def _has_bookmarks(self, run: Run) -> bool:
        return bool(run("SELECT 1 FROM duckdb_tables() WHERE table_name = ?", self._bookmarks.table.name))

    def _make_table(self, run: Run, stored: StoredRows[Settings]) -> None:
        columns = [f"{quoted(field.name)} {duckdb_type(field.type)}" for field in stored.settings.stored()]
        run(f"CREATE TABLE {stored.table.sql} ({', '.join(columns)})")

    def _take(self, transaction: MergedTransaction[Any], stored: StoredRows[Settings], keys: pa.Table) -> pa.Table:
        import pyarrow as pa

        connection, schema = transaction.connection, stored.settings.stored()
        # With one more column: a table without any has no rows.
        wider = keys.append_column("_", pa.nulls(keys.num_rows, pa.int8()))
        connection.register("foldlog_range", without_zones(wider))
        found = " UNION ALL ".join(
            f"SELECT kept.rowid FROM foldlog_range AS new, {stored.table.sql} AS kept WHERE {condition}"
            for condition in stored.settings.met("IS NOT DISTINCT FROM", stored.table)
        )
        statement = f"SELECT {quoted_list(schema.names)} FROM {stored.table.sql} WHERE rowid IN ({found})"
        taken = list(self._read(transaction, statement, schema))
        transaction.run(f"DELETE FROM {stored.table.sql} WHERE rowid IN ({found})")
        connection.unregister("foldlog_range")
        return pa.Table.from_batches(taken, schema)

    def _put(self, transaction: MergedTransaction[Any], stored: StoredRows[Settings], rows: pa.Table) -> None:
        transaction.connection.register("foldlog_range", without_zones(rows))
        columns = quoted_list(rows.column_names)
        transaction.run(f"INSERT INTO {stored.table.sql} ({columns}) SELECT {columns} FROM foldlog_range")
        transaction.connection.unregister("foldlog_range")

    def _sql_type(self, kind: Any) -> str:
        return duckdb_type(kind)

    def _read(self, transaction: MergedTransaction[Any], statement: str, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        for batch in batches_of(transaction.connection, statement, VIEW_SCAN_ROWS):
            yield batch.cast(schema)
