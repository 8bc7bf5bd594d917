"""Counters in a DuckDB file.

Only one process at a time can have the file open, so it is opened for each transaction and closed after it: between two
ranges a person may open it and look. A process that finds it open waits a while, and then reports which process holds
it. A scan keeps the file open until it is read to its end or closed. Timestamps are stored without a zone, in UTC.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from foldlog.errors import InvalidArgument, brief_repr
from foldlog.files.paths import exists
from foldlog.limits import VIEW_LOCK_WAIT_MS, VIEW_SCAN_ROWS
from foldlog.views.counters.measures import Aggregation
from foldlog.views.counters.settings import SUM_TOO_LARGE
from foldlog.views.counters.view import CountersTransaction, CountersView, StoredCounters
from foldlog.views.local_paths import local_path
from foldlog.views.sql.bookmarks import BookmarkTable, Run
from foldlog.views.sql.duckdb import DuckdbDatabase, batches_of, duckdb_type, runner, without_zones
from foldlog.views.sql.names import BOOKMARKS, TableName, quoted, quoted_list, table_name

if TYPE_CHECKING:
    import pyarrow as pa


class DuckdbCounters(CountersView[Any]):
    """Holds nothing open between calls, except while a scan is being read."""

    def __init__(
        self,
        path: str,
        aggregation: Aggregation,
        name: str,
        label: str | None = None,
        *,
        wait_ms: int = VIEW_LOCK_WAIT_MS,
    ) -> None:
        super().__init__(table_name(name, with_schema=False), aggregation, label)
        if not path or "://" in path or "\0" in path or path.startswith(":"):
            raise InvalidArgument(
                f"DuckDB counters are in a file, such as 'views/live.duckdb', not in {brief_repr(path)}"
            )
        self._path = local_path(path)
        self._wait_ms = wait_ms
        self._database = DuckdbDatabase(self._path, self.place, wait_ms=wait_ms)

    @property
    def place(self) -> str:
        return f"counters {self._name} in {self._path}"

    def description(self) -> dict[str, object]:
        return {"kind": self.kind, "engine": "duckdb", "path": self._path, "name": str(self._table)}

    @property
    def _bookmarks(self) -> BookmarkTable:
        return BookmarkTable(TableName(BOOKMARKS))

    def _exists(self) -> bool:
        return exists(self._path)

    @contextmanager
    def _writing(self, *, create: bool = False) -> Iterator[CountersTransaction[Any]]:
        if not create and not self._exists():
            raise self._missing()
        with self._database.alone(), self._transaction() as transaction:
            yield transaction

    @contextmanager
    def _reading(self) -> Iterator[CountersTransaction[Any]]:
        with self._transaction() as transaction:
            yield transaction

    @contextmanager
    def _transaction(self) -> Iterator[CountersTransaction[Any]]:
        with self._database.transaction(too_large=SUM_TOO_LARGE) as connection:
            yield CountersTransaction(connection, runner(connection))

    def _has_bookmarks(self, run: Run) -> bool:
        return bool(run("SELECT 1 FROM duckdb_tables() WHERE table_name = ?", self._bookmarks.table.name))

    def _make_table(self, run: Run, stored: StoredCounters) -> None:
        columns = [f"{quoted(field.name)} {duckdb_type(field.type)}" for field in stored.settings.stored()]
        run(f"CREATE TABLE {stored.table.sql} ({', '.join(columns)})")

    def _merge(self, transaction: CountersTransaction[Any], stored: StoredCounters, rows: pa.Table) -> None:
        """Two joins over whole columns, without an index: it would cost DuckDB more than it gives."""
        groups = stored.settings.groups
        same = " AND ".join(f"kept.{quoted(name)} IS NOT DISTINCT FROM new.{quoted(name)}" for name in groups) or "TRUE"
        transaction.connection.register("foldlog_range", without_zones(rows))
        transaction.run(
            f"UPDATE {stored.table.sql} AS kept SET {stored.merged('new')} FROM foldlog_range AS new WHERE {same}"
        )
        transaction.run(
            f"INSERT INTO {stored.table.sql} ({quoted_list(rows.column_names)}) SELECT {quoted_list(rows.column_names)}"
            f" FROM foldlog_range AS new WHERE NOT EXISTS (SELECT 1 FROM {stored.table.sql} AS kept WHERE {same})"
        )
        transaction.connection.unregister("foldlog_range")

    def _take(self, transaction: CountersTransaction[Any], stored: StoredCounters, keys: pa.Table) -> pa.Table:
        import pyarrow as pa

        connection, schema = transaction.connection, stored.settings.stored()
        # With one more column: a table without any has no rows.
        wider = keys.append_column("_", pa.nulls(keys.num_rows, pa.int8()))
        connection.register("foldlog_range", without_zones(wider))
        found = " UNION ALL ".join(
            f"SELECT kept.rowid FROM foldlog_range AS new, {stored.table.sql} AS kept WHERE {condition}"
            for condition in stored.met("IS NOT DISTINCT FROM")
        )
        taken = connection.sql(
            f"SELECT {quoted_list(schema.names)} FROM {stored.table.sql} WHERE rowid IN ({found})"
        ).to_arrow_table()
        transaction.run(f"DELETE FROM {stored.table.sql} WHERE rowid IN ({found})")
        connection.unregister("foldlog_range")
        return taken.cast(schema)

    def _put(self, transaction: CountersTransaction[Any], stored: StoredCounters, rows: pa.Table) -> None:
        transaction.connection.register("foldlog_range", without_zones(rows))
        columns = quoted_list(rows.column_names)
        transaction.run(f"INSERT INTO {stored.table.sql} ({columns}) SELECT {columns} FROM foldlog_range")
        transaction.connection.unregister("foldlog_range")

    def _read(self, transaction: CountersTransaction[Any], stored: StoredCounters) -> Iterator[pa.RecordBatch]:
        schema = stored.settings.stored()
        statement = f"SELECT {quoted_list(schema.names)} FROM {stored.table.sql}"
        for batch in batches_of(transaction.connection, statement, VIEW_SCAN_ROWS):
            yield batch.cast(schema)

    def _mean(self, name: str, stored: StoredCounters) -> str:
        return f"{quoted(f'{name}__sum')}::DOUBLE / nullif({quoted(f'{name}__count')}, 0)"

    def _another(self, label: str) -> DuckdbCounters:
        return DuckdbCounters(self._path, self.aggregation, self._table.name, label, wait_ms=self._wait_ms)
