"""Counters in a DuckDB file.

Only one process at a time can have the file open, so it is opened for each transaction and closed after it: between two
ranges a person may open it and look. A process that finds it open waits a while, and then reports which process holds
it. A scan keeps the file open until it is read to its end or closed. Timestamps are stored without a zone, in UTC.
"""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from foldlog.errors import InvalidArgument, MissingDependency, ViewUnavailable, brief_repr
from foldlog.files.paths import exists, make_parents
from foldlog.limits import VIEW_LOCK_WAIT_MS, VIEW_SCAN_ROWS
from foldlog.views.counters.measures import Aggregation
from foldlog.views.counters.settings import SUM_TOO_LARGE
from foldlog.views.counters.view import CountersTransaction, CountersView, StoredCounters
from foldlog.views.local_paths import local_path
from foldlog.views.sql.bookmarks import BookmarkTable, Run
from foldlog.views.sql.names import BOOKMARKS, TableName, quoted, quoted_list, table_name

if TYPE_CHECKING:
    import pyarrow as pa

_POLL_S: Final = 0.02
_HOLDER: Final = re.compile(r"PID (\d+)")

_writers: dict[str, threading.Lock] = {}
"""A lock for each file, for the threads of this process: DuckDB itself would let them in all at once."""


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
        with _writers.setdefault(self._path, threading.Lock()), self._transaction() as transaction:
            yield transaction

    @contextmanager
    def _reading(self) -> Iterator[CountersTransaction[Any]]:
        with self._transaction() as transaction:
            yield transaction

    @contextmanager
    def _transaction(self) -> Iterator[CountersTransaction[Any]]:
        duckdb = load_duckdb()
        try:
            connection = self._connected(duckdb)
            try:
                connection.execute("BEGIN TRANSACTION")
                yield CountersTransaction(connection, _runner(connection))
                connection.execute("COMMIT")
            finally:
                # Closing rolls back an uncommitted transaction; closing the last connection writes the WAL to the file.
                connection.close()
        except (duckdb.OutOfRangeException, duckdb.ConversionException) as error:
            raise ViewUnavailable(self.place, SUM_TOO_LARGE) from error
        except duckdb.Error as error:
            raise ViewUnavailable(self.place, f"DuckDB says: {_one_line(error)}") from error

    def _connected(self, duckdb: Any) -> Any:
        make_parents(self._path)
        deadline = time.monotonic() + self._wait_ms / 1000
        while True:
            try:
                return duckdb.connect(self._path)
            except duckdb.IOException as error:
                if "lock" not in str(error):
                    raise
                if time.monotonic() > deadline:
                    raise ViewUnavailable(self.place, _who_holds_it(str(error))) from error
                time.sleep(_POLL_S)

    def _has_bookmarks(self, run: Run) -> bool:
        return bool(run("SELECT 1 FROM duckdb_tables() WHERE table_name = ?", self._bookmarks.table.name))

    def _make_table(self, run: Run, stored: StoredCounters) -> None:
        columns = [f"{quoted(field.name)} {_declared(field.type)}" for field in stored.settings.stored()]
        run(f"CREATE TABLE {stored.table.sql} ({', '.join(columns)})")

    def _merge(self, transaction: CountersTransaction[Any], stored: StoredCounters, rows: pa.Table) -> None:
        """Two joins over whole columns, without an index: it would cost DuckDB more than it gives."""
        groups = stored.settings.groups
        same = " AND ".join(f"kept.{quoted(name)} IS NOT DISTINCT FROM new.{quoted(name)}" for name in groups) or "TRUE"
        transaction.connection.register("foldlog_range", _without_zones(rows))
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
        connection.register("foldlog_range", _without_zones(wider))
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
        transaction.connection.register("foldlog_range", _without_zones(rows))
        columns = quoted_list(rows.column_names)
        transaction.run(f"INSERT INTO {stored.table.sql} ({columns}) SELECT {columns} FROM foldlog_range")
        transaction.connection.unregister("foldlog_range")

    def _read(self, transaction: CountersTransaction[Any], stored: StoredCounters) -> Iterator[pa.RecordBatch]:
        schema = stored.settings.stored()
        found = transaction.connection.sql(f"SELECT {quoted_list(schema.names)} FROM {stored.table.sql}")
        # DuckDB 1 has only the other name.
        reader = getattr(found, "to_arrow_reader", None) or found.fetch_record_batch
        for batch in reader(VIEW_SCAN_ROWS):
            yield batch.cast(schema)

    def _mean(self, name: str, stored: StoredCounters) -> str:
        return f"{quoted(f'{name}__sum')}::DOUBLE / nullif({quoted(f'{name}__count')}, 0)"

    def _another(self, label: str) -> DuckdbCounters:
        return DuckdbCounters(self._path, self.aggregation, self._table.name, label, wait_ms=self._wait_ms)


def load_duckdb() -> Any:
    """The driver, or MissingDependency."""
    try:
        import duckdb
    except ImportError as error:
        raise MissingDependency("counters in DuckDB", "duckdb", "views") from error
    return duckdb


def _runner(connection: Any) -> Run:
    def run(statement: str, *values: object) -> list[tuple[Any, ...]]:
        rows: list[tuple[Any, ...]] = connection.execute(statement, list(values)).fetchall()
        return rows

    return run


def _without_zones(rows: pa.Table) -> pa.Table:
    """Timestamps in UTC without a zone: to show a type with a zone, DuckDB needs an extension."""
    import pyarrow as pa
    from pyarrow import types

    for number, field in enumerate(rows.schema):
        if types.is_timestamp(field.type):
            column = rows.column(number).cast(pa.timestamp("us", field.type.tz and "UTC")).cast(pa.timestamp("us"))
            rows = rows.set_column(number, field.name, column)
    return rows


def _declared(kind: Any) -> str:
    from pyarrow import types

    if types.is_decimal(kind):
        return f"DECIMAL({kind.precision}, {kind.scale})"
    names = (
        (types.is_boolean, "BOOLEAN"),
        (types.is_int64, "BIGINT"),
        (types.is_int32, "INTEGER"),
        (types.is_int16, "SMALLINT"),
        (types.is_integer, "TINYINT"),
        (types.is_float64, "DOUBLE"),
        (types.is_floating, "FLOAT"),
        (types.is_date, "DATE"),
        (types.is_timestamp, "TIMESTAMP"),
        (types.is_binary, "BLOB"),
    )
    return next((name for test, name in names if test(kind)), "VARCHAR")


def _who_holds_it(sentence: str) -> str:
    holder = _HOLDER.search(sentence)
    who = f"process {holder[1]}" if holder is not None else "another process"
    return f"{who} has the file open, and DuckDB lets one process at a time; close it there"


def _one_line(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0].rstrip(".") if lines else type(error).__name__
