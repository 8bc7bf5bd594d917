"""A table of every row of a fold in a DuckDB file, mode="append". Nested values are JSON, as text; timestamps are
stored without a zone, in UTC.

DuckDB tables do not merge: an upsert there rewrites whole columns, and fl.table() keeps keyed tables in engines that
are made for it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, ClassVar

from foldlog.errors import InvalidArgument, SchemaChanged, ViewUnavailable
from foldlog.limits import VIEW_LOCK_WAIT_MS, VIEW_SCAN_ROWS
from foldlog.views.bookmark import Bookmark
from foldlog.views.contract import Delta, Shape, Snapshot, View
from foldlog.views.sql.bookmarks import BookmarkTable, Run, StoredBookmark
from foldlog.views.sql.duckdb import DuckdbDatabase, batches_of, duckdb_type, runner, without_zones
from foldlog.views.sql.names import BOOKMARKS, OLD, TableName, quoted, quoted_list
from foldlog.views.sql.nested import decode_nested, encode_nested
from foldlog.views.sql.types import is_nested
from foldlog.views.table.rows import decide_change
from foldlog.views.table.shape import TableShape, added_columns, appended_shape, reconcile

if TYPE_CHECKING:
    import pyarrow as pa

_BOOKMARKS = BookmarkTable(TableName(BOOKMARKS))


class DuckdbHistory(View):
    """See `foldlog.views.table.table`. Holds nothing open between calls, except while a scan is being read."""

    kind: ClassVar[str] = "table"
    adds = True

    def __init__(self, path: str, table: TableName, *, wait_ms: int = VIEW_LOCK_WAIT_MS) -> None:
        self._path = path
        self._table = table
        self._wait_ms = wait_ms
        self._location = f"table {table} in {path}"
        self._database = DuckdbDatabase(path, self._location, wait_ms=wait_ms)

    @property
    def place(self) -> str:
        return self._location

    def description(self) -> dict[str, object]:
        return {"kind": self.kind, "engine": "duckdb", "path": self._path, "name": str(self._table)}

    def bookmark(self) -> Bookmark | None:
        if not self._database.exists():
            return None
        with self._database.transaction() as connection:
            entry = self._entry(runner(connection))
            return None if entry is None else entry.bookmark

    def prepare(self, shape: Shape, start: Bookmark, *, loading: bool = False) -> Bookmark:
        wanted = appended_shape(shape, self._location)
        with self._database.alone(), self._database.transaction() as connection:
            run = runner(connection)
            _BOOKMARKS.create(run)
            entry = self._entry(run)
            if entry is None:
                if _exists(run, self._table):
                    raise ViewUnavailable(
                        self._location, "something of that name is there already, and no fold made it; choose another"
                    )
                columns = ", ".join(f"{quoted(one.name)} {duckdb_type(one.type)}" for one in wanted.columns)
                run(f"CREATE TABLE {self._table.sql} ({columns})")
                _BOOKMARKS.add(run, self._table.name, StoredBookmark(self.kind, start, wanted.to_json()))
                return start
            stored = TableShape.from_json(entry.settings, self._location)
            merged = reconcile(stored, wanted, self._location)
            self._check_columns(run, stored)
            for field in added_columns(stored, merged):
                run(f"ALTER TABLE {self._table.sql} ADD COLUMN {quoted(field.name)} {duckdb_type(field.type)}")
            if merged is not stored:
                _BOOKMARKS.set_settings(run, self._table.name, merged.to_json())
            return entry.bookmark

    def apply(self, delta: Delta, expected: Bookmark, new: Bookmark) -> None:
        with self._database.alone(), self._database.transaction() as connection:
            run = runner(connection)
            entry = self._expect(run, expected)
            shape = TableShape.from_json(entry.settings, self._location)
            rows = decide_change(delta, shape, self._location).rows
            for number, field in enumerate(rows.schema):
                if is_nested(field.type):
                    rows = rows.set_column(number, field.name, encode_nested(rows.column(number)))
            if rows.num_rows:
                columns = quoted_list(rows.column_names)
                connection.register("foldlog_range", without_zones(rows))
                run(f"INSERT INTO {self._table.sql} ({columns}) SELECT {columns} FROM foldlog_range")
                connection.unregister("foldlog_range")
            _BOOKMARKS.set_bookmark(run, self._table.name, new)

    def move(self, expected: Bookmark, new: Bookmark) -> None:
        with self._database.alone(), self._database.transaction() as connection:
            run = runner(connection)
            self._expect(run, expected)
            _BOOKMARKS.set_bookmark(run, self._table.name, new)

    def shadow(self, label: str) -> DuckdbHistory:
        return DuckdbHistory(self._path, self._table.beside(f"__{label}"), wait_ms=self._wait_ms)

    def swap(self, shadow: View) -> None:
        if not isinstance(shadow, DuckdbHistory) or shadow._path != self._path:
            raise InvalidArgument(f"{shadow.place} is not a shadow of {self._location}: they are not in the same file")
        old = self._table.beside(OLD)
        with self._database.alone(), self._database.transaction() as connection:
            run = runner(connection)
            if shadow._entry(run) is None:
                raise ViewUnavailable(shadow.place, "it does not exist, so it cannot take a place")
            run(f"DROP TABLE IF EXISTS {old.sql}")
            if _exists(run, self._table):
                run(f"ALTER TABLE {self._table.sql} RENAME TO {old.sql}")
            run(f"ALTER TABLE {shadow._table.sql} RENAME TO {self._table.sql}")
            _BOOKMARKS.rename(run, self._table.name, old.name)
            _BOOKMARKS.rename(run, shadow._table.name, self._table.name)

    def drop_old(self) -> bool:
        return DuckdbHistory(self._path, self._table.beside(OLD), wait_ms=self._wait_ms)._drop()

    def drop(self) -> None:
        self._drop()

    def scan(self) -> Snapshot:
        # One generator holds the transaction from here to the last batch, or until it is closed.
        parts = self._scan()
        first = next(parts)
        if not isinstance(first, Bookmark):
            raise ViewUnavailable(self._location, "it has no bookmark; run the fold to make it")
        return Snapshot(first, parts)  # after the bookmark, only batches

    def _scan(self) -> Iterator[Any]:
        if not self._database.exists():
            yield None
            return
        with self._database.transaction() as connection:
            entry = self._entry(runner(connection))
            if entry is None:
                yield None
                return
            yield entry.bookmark
            columns = TableShape.from_json(entry.settings, self._location).columns
            statement = f"SELECT {quoted_list(columns.names)} FROM {self._table.sql}"
            for batch in batches_of(connection, statement, VIEW_SCAN_ROWS):
                yield _typed(batch, columns)

    def _entry(self, run: Run) -> StoredBookmark | None:
        if not _exists(run, _BOOKMARKS.table):
            return None
        entry = _BOOKMARKS.read(run, self._table.name)
        if entry is not None and entry.kind != self.kind:
            raise ViewUnavailable(self._location, f"it belongs to a view of another kind ({entry.kind})")
        return entry

    def _expect(self, run: Run, expected: Bookmark) -> StoredBookmark:
        if not _exists(run, _BOOKMARKS.table):
            raise ViewUnavailable(self._location, "it does not exist; prepare it first")
        return _BOOKMARKS.expect(run, self._table.name, self._location, expected)

    def _check_columns(self, run: Run, stored: TableShape) -> None:
        there = {
            name for (name,) in run("SELECT column_name FROM duckdb_columns() WHERE table_name = ?", self._table.name)
        }
        if not there:
            raise ViewUnavailable(
                self._location, "its bookmark is there and the table is not; drop it with 'foldlog fold drop NAME'"
            )
        for name in stored.columns.names:
            if name not in there:
                raise SchemaChanged(self._location, f"its column {name!r} was removed by hand")

    def _drop(self) -> bool:
        if not self._database.exists():
            return False
        with self._database.alone(), self._database.transaction() as connection:
            run = runner(connection)
            if self._entry(run) is None:
                return False
            run(f"DROP TABLE IF EXISTS {self._table.sql}")
            _BOOKMARKS.remove(run, self._table.name)
            return True


def _exists(run: Run, table: TableName) -> bool:
    return bool(
        run(
            "SELECT 1 FROM duckdb_tables() WHERE lower(table_name) = lower(?)"
            " UNION ALL SELECT 1 FROM duckdb_views() WHERE lower(view_name) = lower(?)",
            table.name,
            table.name,
        )
    )


def _typed(batch: pa.RecordBatch, columns: pa.Schema) -> pa.RecordBatch:
    import pyarrow as pa

    arrays = [
        decode_nested(column.to_pylist(), field.type) if is_nested(field.type) else column.cast(field.type)
        for column, field in zip(batch.columns, columns, strict=True)
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=columns)
