"""A table in PostgreSQL. A range is one transaction: lock and compare the bookmark, COPY the rows into a temporary
table, merge them, store the new bookmark, commit.

If the connection is lost, all of it has happened or nothing, and ViewUnavailable is raised: the stored bookmark tells
which. Writers of other views do not block it; a lock on this table is waited for, for a while.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar, Final

from foldlog.errors import InvalidArgument, SchemaChanged, ViewUnavailable, brief_repr
from foldlog.limits import VIEW_APPLY_LOCK_WAIT_MS, VIEW_LOCK_WAIT_MS
from foldlog.views.bookmark import Bookmark
from foldlog.views.contract import Delta, Shape, Snapshot, View
from foldlog.views.sql.bookmarks import BookmarkTable, Run, StoredBookmark
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
from foldlog.views.staging import Ranges, StagedDelta, ViewStage
from foldlog.views.table.expiry import aged, expired_before
from foldlog.views.table.postgres_copy import copy_in, copy_out, storable
from foldlog.views.table.postgres_load import (
    LOADING,
    create_tombstones,
    drop_superseded,
    index_records,
    make_primary_key,
    written_once,
)
from foldlog.views.table.postgres_stage import gather, load, merge, new_stage, sweep
from foldlog.views.table.rows import Change, decide_change, written_by_two
from foldlog.views.table.shape import TableSettings, TableShape, added_columns, appended_shape, decide_shape, reconcile

if TYPE_CHECKING:
    import pyarrow as pa

    from foldlog.views.sql.postgres import Connection

_DELTA: Final = TableName("_foldlog_delta", "pg_temp")
_KEYS: Final = TableName("_foldlog_keys", "pg_temp")
_ROWS_GONE: Final = TableName("_foldlog_rows_gone", "pg_temp")


class PostgresTable(View):
    """See `foldlog.views.table.table`. Keeps one connection, made on first use, and again after it was lost."""

    kind: ClassVar[str] = "table"
    is_keyed: ClassVar[bool] = True
    looks_up: ClassVar[bool] = True
    holds_nul: ClassVar[bool] = False

    def __init__(
        self,
        url: str,
        table: TableName,
        asked: TableSettings = TableSettings(),  # noqa: B008 it is immutable
        *,
        wait_ms: int = VIEW_LOCK_WAIT_MS,
    ) -> None:
        self._url = url
        self._named = table
        self._asked = asked
        self._wait_ms = wait_ms
        self._location = f"table {table} in {public_url(url)}"
        locked = (table, TableName(BOOKMARKS, table.schema))
        self._database = PostgresDatabase(url, self._location, locked, wait_ms=wait_ms)
        self._limits = PostgresLimits(self._database)
        self._resolved: TableName | None = None
        self.ttl = asked.ttl
        self._has_stages = True
        """Whether tables of ranges that were not committed may be there."""

    @property
    def place(self) -> str:
        return self._location

    def description(self) -> dict[str, object]:
        # With its schema, once known: another user may have another search path.
        name = self._resolved or self._named
        return {"kind": self.kind, "engine": "postgresql", "url": public_url(self._url), "name": str(name)}

    def joined(self, are_keyed: tuple[bool, bool]) -> tuple[View, View]:
        from foldlog.views.join.postgres import PostgresJoin
        from foldlog.views.join.side import join_sides

        self._asked.check_joined(self._location, appends=not self.is_keyed)
        return join_sides(
            lambda: PostgresJoin(self._url, self._named, wait_ms=self._wait_ms), are_keyed, self._asked.key
        )

    def size_bytes(self) -> int | None:
        with self._database.transaction(snapshot=True) as connection:
            return relation_bytes(runner(connection), self._resolved or self._named)

    def bookmark(self) -> Bookmark | None:
        with self._database.transaction(snapshot=True) as connection:
            entry = self._entry(runner(connection))
            return None if entry is None else entry.bookmark

    def prepare(self, shape: Shape, start: Bookmark, *, loading: bool = False) -> Bookmark:
        wanted = self._wanted(shape, loading).with_ttl(self._asked.ttl, self._location)
        with self._database.transaction() as connection:
            run = runner(connection)
            table, bookmarks = self._resolve(run)
            lock_schema(run, table.schema)
            if not table_exists(run, bookmarks.table):
                bookmarks.create(run)
            entry = self._entry(run, for_change=True)
            if entry is None:
                self._create(run, table, wanted)
                bookmarks.add(run, table.name, StoredBookmark(self.kind, start, wanted.to_json()))
                return start
            stored = TableShape.from_json(entry.settings, self._location)
            merged = reconcile(stored, wanted, self._location)
            self._grow(run, table, stored, merged)
            if merged is not stored:
                bookmarks.set_settings(run, table.name, merged.to_json())
        self._sweep(table, entry.bookmark)
        return entry.bookmark

    def _wanted(self, shape: Shape, loading: bool) -> TableShape:
        return decide_shape(shape, self._asked.key, self._location, loading=loading)

    def filled(self, shape: Shape) -> tuple[str, ...]:
        return self._asked.key or shape.key

    def keeps_rows(self, record_key: tuple[str, ...]) -> bool:
        return self._asked.keeps_rows(record_key)

    def holds_unicode(self) -> bool:
        return self._limits.holds_unicode()

    def unheld_characters(self, characters: frozenset[str]) -> frozenset[str]:
        return self._limits.unheld_characters(characters)

    def unheld_keys(self, keys: pa.Table) -> pa.ChunkedArray | None:
        return self._limits.unheld_keys(keys)

    def apply(self, delta: Delta, expected: Bookmark, new: Bookmark) -> None:
        with self._database.transaction(wait_ms=VIEW_APPLY_LOCK_WAIT_MS) as connection:
            run = runner(connection)
            table, bookmarks = self._resolve(run)
            entry = self._expect(run, expected)
            shape = TableShape.from_json(entry.settings, self._location)
            change = decide_change(delta, shape, self._location)
            change = replace(change, rows=storable(delta, change.rows, self._location))
            if shape.appends:
                copy_in(connection, table, change.rows)
            elif shape.is_loading:
                self._load(connection, table, shape, change)
            elif not change.is_empty:
                self._merge(connection, table, shape, change)
            bookmarks.set_bookmark(run, table.name, new)
            later = aged(shape, delta)
            if later is not shape:
                bookmarks.set_settings(run, table.name, later.to_json())
            self._expire(run, table, later)
        self._sweep(table, new)

    def stage(self, ranges: Ranges, expected: Bookmark) -> ViewStage | None:
        if not self.holds_unicode():
            return None
        with self._database.transaction() as connection:
            run = runner(connection)
            table, _ = self._resolve(run)
            entry = self._entry(run)
            if entry is None:
                return None
            shape = TableShape.from_json(entry.settings, self._location)
            if shape.record_key is None or shape.replaces_records or shape.keeps_rows or shape.ttl is not None:
                return None  # which rows a record replaces, the driver tells, and says it if two have one key
            self._has_stages = True
            return new_stage(run, self._url, self._location, table, shape, ranges, expected)

    def apply_staged(self, staged: StagedDelta, expected: Bookmark, new: Bookmark) -> None:
        with self._database.transaction(wait_ms=VIEW_APPLY_LOCK_WAIT_MS) as connection:
            run = runner(connection)
            table, bookmarks = self._resolve(run)
            entry = self._expect(run, expected)
            shape = TableShape.from_json(entry.settings, self._location)
            if staged.parts:
                found = gather(run, staged, self._location)
                if shape.is_loading:
                    load(run, table, found)
                else:
                    merge(run, table, found, _on_conflict(shape))
            bookmarks.set_bookmark(run, table.name, new)
        self._sweep(table, new)

    def _expire(self, run: Run, table: TableName, shape: TableShape) -> None:
        before = expired_before(shape)
        if before is not None and shape.ttl is not None:
            run(f"DELETE FROM {table.sql} WHERE {quoted(shape.ttl.column)} < %s", before[0].as_py())

    def _sweep(self, table: TableName, stored: Bookmark | None) -> None:
        if self._has_stages:
            self._has_stages = not sweep(self._database, table, stored)

    def move(self, expected: Bookmark, new: Bookmark) -> None:
        with self._database.transaction() as connection:
            run = runner(connection)
            table, bookmarks = self._resolve(run)
            self._expect(run, expected)
            bookmarks.set_bookmark(run, table.name, new)

    def finish_loading(self) -> None:
        # Two transactions, and a VACUUM outside of one: a shadow is not read while it is loading, and each step can be
        # repeated.
        with self._database.transaction() as connection:
            run = runner(connection)
            entry = self._entry(run, for_change=True)
            if entry is None:
                raise ViewUnavailable(self._location, "it does not exist, so loading it cannot be finished")
            shape = TableShape.from_json(entry.settings, self._location)
            if not shape.is_loading:
                return
            table, _ = self._resolve(run)
            is_mostly_holes = drop_superseded(run, table, shape)
        if is_mostly_holes:
            self._database.outside_transaction(f"VACUUM (FULL) {table.sql}")
        with self._database.transaction() as connection:
            run = runner(connection)
            table, bookmarks = self._resolve(run)
            with written_once(self._location):
                make_primary_key(run, table, shape)
            bookmarks.set_settings(run, table.name, shape.loaded().to_json())

    def shadow(self, label: str) -> PostgresTable:
        return type(self)(self._url, self._named.beside(f"__{label}"), self._asked, wait_ms=self._wait_ms)

    def check_swap(self) -> None:
        with self._database.transaction() as connection:
            run = runner(connection)
            table, _ = self._resolve(run)
            entry = self._entry(run)
            if entry is not None:
                own = TableShape.from_json(entry.settings, self._location).columns.names
                check_swap(run, self._location, table, table.beside(OLD), own)

    def swap(self, shadow: View) -> None:
        if not isinstance(shadow, PostgresTable) or (shadow._url, shadow._named.schema) != (
            self._url,
            self._named.schema,
        ):
            raise InvalidArgument(
                f"{shadow.place} is not a shadow of {self._location}: they are not in the same schema"
            )
        with self._database.transaction() as connection:
            run = runner(connection)
            table, bookmarks = self._resolve(run)
            lock_schema(run, table.schema)
            replacing = shadow._entry(run, for_change=True)
            if replacing is None or TableShape.from_json(replacing.settings, shadow.place).is_loading:
                raise ViewUnavailable(shadow.place, "it is not there, or not loaded yet, so it cannot take a place")
            entry = self._entry(run, for_change=True)
            own = [] if entry is None else TableShape.from_json(entry.settings, self._location).columns.names
            old, beside = table.beside(OLD), TableName(shadow._named.name, table.schema)
            swap_tables(run, self._location, table, beside, old, own)
            bookmarks.rename(run, table.name, old.name)
            bookmarks.rename(run, beside.name, table.name)

    def drop_old(self) -> bool:
        old = type(self)(self._url, self._named.beside(OLD), wait_ms=self._wait_ms)
        try:
            return old._drop()
        finally:
            old.close()

    def drop(self) -> None:
        self._drop()

    def scan(self) -> Snapshot:
        # One generator holds the transaction from here to the last batch, or until it is closed.
        parts = self._scan(self._database.another())
        first = next(parts)
        if not isinstance(first, Bookmark):
            raise ViewUnavailable(self._location, "it has no bookmark; run the fold to make it")
        return Snapshot(first, parts)  # after the bookmark, only batches

    def rows_of(self, keys: pa.Array, expected: Bookmark) -> pa.Table:
        import pyarrow as pa

        with self._database.transaction(wait_ms=VIEW_APPLY_LOCK_WAIT_MS) as connection:
            run = runner(connection)
            table, _ = self._resolve(run)
            shape = TableShape.from_json(self._expect(run, expected).settings, self._location)
            if not len(keys):
                return shape.columns.empty_table()
            self._copy_keys(connection, shape, pa.chunked_array([keys]))
            wanted = f"JOIN {_KEYS.sql} USING ({quoted(shape.record_columns[0])})"
            found = copy_out(connection, table, shape.columns, self._location, wanted)
            return pa.Table.from_batches(found, shape.columns)

    def close(self) -> None:
        self._database.close()

    def _resolve(self, run: Run) -> tuple[TableName, BookmarkTable]:
        """The table and its bookmarks, with their schema: resolved once, whatever becomes of the search path."""
        table = self._resolved = self._resolved or resolved(run, self._named, self._location)
        return table, bookmark_table(table.schema)

    def _entry(self, run: Run, *, for_change: bool = False) -> StoredBookmark | None:
        table, bookmarks = self._resolve(run)
        if not table_exists(run, bookmarks.table):
            return None
        entry = bookmarks.read(run, table.name, for_change=for_change)
        if entry is not None and entry.kind != self.kind:
            raise ViewUnavailable(self._location, f"it belongs to a view of another kind ({entry.kind})")
        return entry

    def _expect(self, run: Run, expected: Bookmark) -> StoredBookmark:
        table, bookmarks = self._resolve(run)
        if not table_exists(run, bookmarks.table):
            raise ViewUnavailable(self._location, "it does not exist; prepare it first")
        return bookmarks.expect(run, table.name, self._location, expected)

    def _create(self, run: Run, table: TableName, shape: TableShape) -> None:
        if table_exists(run, table):
            raise ViewUnavailable(
                self._location, "something of that name is there already, and no fold made it; choose another name"
            )
        parts = [
            f"{quoted(field.name)} {postgres_type(field.type, in_key=field.name in shape.key)}"
            f"{' NOT NULL' if field.name in shape.key else ''}"
            for field in shape.columns
        ]
        if shape.is_loading:
            create_tombstones(run, table, shape)
        elif shape.key:
            parts.append(f"PRIMARY KEY ({quoted_list(shape.key)})")
        run(f"CREATE TABLE {table.sql} ({', '.join(parts)})")
        if not shape.is_loading:
            index_records(run, table, shape)
        if shape.ttl is not None:
            run(f"CREATE INDEX ON {table.sql} ({quoted(shape.ttl.column)})")

    def _grow(self, run: Run, table: TableName, stored: TableShape, merged: TableShape) -> None:
        there = {
            name
            for (name,) in run(
                "SELECT attname FROM pg_attribute WHERE attrelid = to_regclass(%s) AND attnum > 0 AND NOT attisdropped",
                table.sql,
            )
        }
        if not there:
            raise ViewUnavailable(
                self._location, "its bookmark is there and the table is not; drop it with 'foldlog fold drop NAME'"
            )
        for name in stored.columns.names:
            if name not in there:
                raise SchemaChanged(self._location, f"its column {name!r} was removed by hand")
        for field in added_columns(stored, merged):
            if field.name in there:
                raise SchemaChanged(self._location, f"a column {field.name!r} was added to it by hand")
            run(f"ALTER TABLE {table.sql} ADD COLUMN {quoted(field.name)} {postgres_type(field.type)}")

    def _merge(self, connection: Connection, table: TableName, shape: TableShape, change: Change) -> None:
        run = runner(connection)
        record_key = quoted(shape.record_columns[0])
        for keys in (change.tombstones, change.replaced):
            if keys is not None:
                self._copy_keys(connection, shape, keys)
                run(
                    f"DELETE FROM {table.sql} AS kept USING {_KEYS.sql} AS gone"
                    f" WHERE kept.{record_key} = gone.{record_key}"
                )
        if change.gone is not None:
            self._delete_rows(connection, table, shape, change.gone)
        if change.rows.num_rows:
            columns = quoted_list(shape.columns.names)
            types = [
                f"{quoted(field.name)} {postgres_type(field.type, in_key=field.name in shape.key)}"
                for field in shape.columns
            ]
            run(f"CREATE TEMPORARY TABLE {_DELTA.sql} ({', '.join(types)}) ON COMMIT DROP")
            copy_in(connection, _DELTA, change.rows)
            # In key order, neighbours go to the same pages of the index.
            if shape.keeps_rows:
                self._check_owners(run, table, shape, _DELTA)
            with written_once(self._location):
                run(
                    f"INSERT INTO {table.sql} ({columns}) SELECT {columns} FROM {_DELTA.sql}"
                    f" ORDER BY {quoted_list(shape.key)}{_on_conflict(shape)}"
                )

    def _delete_rows(self, connection: Connection, table: TableName, shape: TableShape, gone: pa.Table) -> None:
        run = runner(connection)
        types = [
            f"{quoted(name)} {postgres_type(shape.columns.field(name).type, in_key=True)}" for name in gone.column_names
        ]
        run(f"CREATE TEMPORARY TABLE {_ROWS_GONE.sql} ({', '.join(types)}) ON COMMIT DROP")
        copy_in(connection, _ROWS_GONE, gone)
        run(f"ANALYZE {_ROWS_GONE.sql}")
        self._check_owners(run, table, shape, _ROWS_GONE)
        run(f"DELETE FROM {table.sql} AS kept USING {_ROWS_GONE.sql} AS new WHERE {_same_key(shape)}")

    def _check_owners(self, run: Run, table: TableName, shape: TableShape, given: TableName) -> None:
        """FoldError if a row of these keys is of another record key."""
        record = quoted(shape.record_columns[0])
        keys = ", ".join(f"new.{quoted(name)}" for name in shape.key)
        found = run(
            f"SELECT {keys} FROM {table.sql} AS kept JOIN {given.sql} AS new ON {_same_key(shape)}"
            f" WHERE kept.{record} <> new.{record} LIMIT 1"
        )
        for row in found:
            told = ", ".join(f"{name}={brief_repr(value)}" for name, value in zip(shape.key, row, strict=True))
            raise written_by_two(self._location, told)

    def _copy_keys(self, connection: Connection, shape: TableShape, keys: pa.ChunkedArray) -> None:
        import pyarrow as pa

        run = runner(connection)
        name = shape.record_columns[0]
        kind = postgres_type(shape.columns.field(name).type, in_key=True)
        run(f"DROP TABLE IF EXISTS {_KEYS.sql}")
        run(f"CREATE TEMPORARY TABLE {_KEYS.sql} ({quoted(name)} {kind}) ON COMMIT DROP")
        copy_in(connection, _KEYS, pa.table({name: keys.cast(shape.columns.field(name).type)}))
        # A few keys of a large table should be looked up, not joined: the planner has to know that they are few.
        run(f"ANALYZE {_KEYS.sql}")

    def _load(self, connection: Connection, table: TableName, shape: TableShape, change: Change) -> None:
        import pyarrow as pa

        if change.tombstones is not None and shape.record_key is not None:
            keys = change.tombstones.cast(shape.columns.field(shape.record_key).type)
            copy_in(connection, table.beside(LOADING), pa.table({shape.record_key: keys}))
        copy_in(connection, table, change.rows)

    def _drop(self) -> bool:
        with self._database.transaction() as connection:
            run = runner(connection)
            table, bookmarks = self._resolve(run)
            lock_schema(run, table.schema)
            if self._entry(run, for_change=True) is None:
                return False
            drop_table(run, self._location, table)
            drop_table(run, self._location, table.beside(LOADING))
            bookmarks.remove(run, table.name)
        sweep(self._database, table, None)
        return True

    def _scan(self, database: PostgresDatabase) -> Iterator[Bookmark | pa.RecordBatch | None]:
        try:
            with database.transaction(snapshot=True) as connection:
                run = runner(connection)
                entry = self._entry(run)
                if entry is None:
                    yield None
                    return
                table, _ = self._resolve(run)
                shape = TableShape.from_json(entry.settings, self._location)
                yield entry.bookmark
                yield from copy_out(connection, table, shape.columns, self._location)
        finally:
            database.close()


class PostgresHistory(PostgresTable):
    """A table with every row of its fold, mode="append"."""

    is_keyed: ClassVar[bool] = False
    adds = True

    def _wanted(self, shape: Shape, loading: bool) -> TableShape:
        return appended_shape(shape, self._location)

    def filled(self, shape: Shape) -> tuple[str, ...]:
        return ()


def _same_key(shape: TableShape) -> str:
    return " AND ".join(f"kept.{quoted(name)} = new.{quoted(name)}" for name in shape.key)


def _on_conflict(shape: TableShape) -> str:
    if shape.replaces_records:
        return ""  # conflicting rows were just deleted
    if not shape.others:
        return f" ON CONFLICT ({quoted_list(shape.key)}) DO NOTHING"
    changes = ", ".join(f"{quoted(name)} = EXCLUDED.{quoted(name)}" for name in shape.others)
    return f" ON CONFLICT ({quoted_list(shape.key)}) DO UPDATE SET {changes}"
