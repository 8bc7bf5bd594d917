"""A table in a SQLite file: the view that needs only Python.

One writer at a time has the file; readers see the last committed range, and never block a writer. Bulk loading is the
same as applying: inserting rows sorted by key measured as fast as loading first and indexing later.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, ClassVar, Final, NoReturn

from foldlog.errors import InvalidArgument, SchemaChanged, ViewInUse, ViewUnavailable, brief_repr
from foldlog.limits import VIEW_LOCK_WAIT_MS, VIEW_SCAN_ROWS
from foldlog.views.bookmark import Bookmark
from foldlog.views.contract import RECORD, Delta, Shape, Snapshot, View
from foldlog.views.sql.bookmarks import BookmarkTable, Run, StoredBookmark
from foldlog.views.sql.names import OLD, TableName, quoted, quoted_list
from foldlog.views.sql.sqlite import SqliteDatabase, runner
from foldlog.views.sql.types import sqlite_type
from foldlog.views.table.expiry import aged, expired_before
from foldlog.views.table.rows import Change, decide_change, written_by_two, written_twice
from foldlog.views.table.shape import TableSettings, TableShape, added_columns, appended_shape, decide_shape, reconcile
from foldlog.views.table.sqlite_values import from_values, to_values

if TYPE_CHECKING:
    import pyarrow as pa

CACHE_KIB: Final = 64 << 10
"""The page cache of one connection: the inner nodes of indexes of some hundred million keys."""

_LOOKED_UP: Final = 500
"""How many keys one statement looks up."""


class SqliteTable(View):
    """See `foldlog.views.table.table`. Keeps one connection, opened on first use."""

    kind: ClassVar[str] = "table"
    is_keyed: ClassVar[bool] = True
    looks_up: ClassVar[bool] = True

    def __init__(
        self,
        path: str,
        table: TableName,
        asked: TableSettings = TableSettings(),  # noqa: B008 it is immutable
        *,
        wait_ms: int = VIEW_LOCK_WAIT_MS,
    ) -> None:
        self._path = path
        self._table = table
        self._asked = asked
        self._wait_ms = wait_ms
        self._location = f"table {table} in sqlite:///{path}"
        self._database = SqliteDatabase(path, self._location, wait_ms=wait_ms)
        self._settings: str | None = None
        self.ttl = asked.ttl

    @property
    def place(self) -> str:
        return self._location

    def description(self) -> dict[str, object]:
        return {"kind": self.kind, "engine": "sqlite", "path": self._path, "name": str(self._table)}

    def joined(self, are_keyed: tuple[bool, bool]) -> tuple[View, View]:
        from foldlog.views.join.side import join_sides
        from foldlog.views.join.sqlite import SqliteJoin

        self._asked.check_joined(self._location, appends=not self.is_keyed)
        return join_sides(
            lambda: SqliteJoin(self._path, self._table, wait_ms=self._wait_ms), are_keyed, self._asked.key
        )

    @property
    def _bookmarks(self) -> BookmarkTable:
        return self._database.bookmarks

    def bookmark(self) -> Bookmark | None:
        if not self._database.exists():
            return None
        with self._database.read() as connection:
            entry = self._entry(runner(connection))
            return None if entry is None else entry.bookmark

    def prepare(self, shape: Shape, start: Bookmark, *, loading: bool = False) -> Bookmark:
        wanted = self._wanted(shape).with_ttl(self._asked.ttl, self._location)
        with self._database.write(create=True) as connection:
            run = runner(connection)
            self._bookmarks.create(run)
            entry = self._entry(run)
            if entry is None:
                self._create(run, wanted, start)
                return start
            stored = TableShape.from_json(entry.settings, self._location)
            merged = reconcile(stored, wanted, self._location)
            self._check_columns(run, stored)
            if merged is not stored:
                for field in added_columns(stored, merged):
                    run(f"ALTER TABLE {self._table.sql} ADD COLUMN {quoted(field.name)} {sqlite_type(field.type)}")
                self._bookmarks.set_settings(run, self._table.name, merged.to_json())
                self._settings = None  # of fewer columns
            return entry.bookmark

    def _wanted(self, shape: Shape) -> TableShape:
        return decide_shape(shape, self._asked.key, self._location, loading=False)

    def filled(self, shape: Shape) -> tuple[str, ...]:
        return self._asked.key or shape.key

    def keeps_rows(self, record_key: tuple[str, ...]) -> bool:
        return self._asked.keeps_rows(record_key)

    def apply(self, delta: Delta, expected: Bookmark, new: Bookmark) -> None:
        # Computed before the file is locked, from the settings of the last call; under the lock they are compared.
        settings = self._settings
        decided = None if settings is None else self._decide(delta, settings)
        with self._database.write() as connection:
            run = runner(connection)
            entry = self._expect(run, expected)
            if decided is None or entry.settings != settings:
                decided = self._decide(delta, entry.settings)
            shape, change, values = decided
            self._store(connection, shape, change, values)
            self._bookmarks.set_bookmark(run, self._table.name, new)
            stored = self._expire(run, shape, delta)
        self._settings = stored or entry.settings

    def move(self, expected: Bookmark, new: Bookmark) -> None:
        with self._database.write() as connection:
            run = runner(connection)
            self._expect(run, expected)
            self._bookmarks.set_bookmark(run, self._table.name, new)

    def shadow(self, label: str) -> SqliteTable:
        return type(self)(self._path, self._table.beside(f"__{label}"), self._asked, wait_ms=self._wait_ms)

    def check_swap(self) -> None:
        with self._database.read() as connection:
            run = runner(connection)
            entry = self._entry(run)
            if entry is not None:
                own = TableShape.from_json(entry.settings, self._location).columns.names
                check_swap(run, self._location, self._table, own)

    def swap(self, shadow: View) -> None:
        if not isinstance(shadow, SqliteTable) or shadow._path != self._path:
            raise InvalidArgument(f"{shadow.place} is not a shadow of {self._location}: they are not in the same file")
        old = self._table.beside(OLD)
        with self._database.write() as connection:
            run = runner(connection)
            if shadow._entry(run) is None:
                raise ViewUnavailable(shadow.place, "it does not exist, so it cannot take a place")
            entry = self._entry(run)
            own = [] if entry is None else TableShape.from_json(entry.settings, self._location).columns.names
            swap_tables(run, self._location, self._table, shadow._table, old, own)
            self._bookmarks.rename(run, self._table.name, old.name)
            self._bookmarks.rename(run, shadow._table.name, self._table.name)
        self._settings = None

    def drop_old(self) -> bool:
        return type(self)(self._path, self._table.beside(OLD), wait_ms=self._wait_ms)._drop_and_close()

    def drop(self) -> None:
        self._settings = None
        if not self._database.exists():
            return
        with self._database.write() as connection:
            self._drop(runner(connection))

    def scan(self) -> Snapshot:
        database = self._database.another()
        # One generator holds the transaction from here to the last batch, or until it is closed.
        parts = self._scan(database)
        first = next(parts)
        if not isinstance(first, Bookmark):
            raise ViewUnavailable(self._location, "it has no bookmark; run the fold to make it")
        return Snapshot(first, parts)  # after the bookmark, only batches

    def rows_of(self, keys: pa.Array, expected: Bookmark) -> pa.Table:
        import pyarrow as pa

        with self._database.read() as connection:
            entry = self._expect(runner(connection), expected, create=False)
            shape = TableShape.from_json(entry.settings, self._location)
            column = quoted(shape.record_columns[0])
            values, found = to_values(keys.sort()), []
            for at in range(0, len(values), _LOOKED_UP):
                some = values[at : at + _LOOKED_UP]
                found += connection.execute(
                    f"SELECT {quoted_list(shape.columns.names)} FROM {self._table.sql}"
                    f" WHERE {column} IN ({', '.join('?' * len(some))})",
                    some,
                ).fetchall()
        return pa.Table.from_batches([from_values(found, shape.columns, self._location)])

    def close(self) -> None:
        self._database.close()

    def _entry(self, run: Run) -> StoredBookmark | None:
        if not table_exists(run, self._bookmarks.table):
            return None
        entry = self._bookmarks.read(run, self._table.name)
        if entry is not None and entry.kind != self.kind:
            raise ViewUnavailable(self._location, f"it belongs to a view of another kind ({entry.kind})")
        return entry

    def _expect(self, run: Run, expected: Bookmark, *, create: bool = True) -> StoredBookmark:
        if create:
            self._bookmarks.create(run)
        return self._bookmarks.expect(run, self._table.name, self._location, expected)

    def _create(self, run: Run, shape: TableShape, start: Bookmark) -> None:
        if table_exists(run, self._table):
            raise ViewUnavailable(
                self._location, "something of that name is there already, and no fold made it; choose another name"
            )
        columns = [
            f"{quoted(field.name)} {sqlite_type(field.type)}{' NOT NULL' if field.name in shape.key else ''}"
            for field in shape.columns
        ]
        if shape.key:
            columns.append(f"PRIMARY KEY ({quoted_list(shape.key)})")
        if shape.finds_records:
            # As a constraint, its index follows the table, without a name that could collide.
            others = [name for name in shape.key if name != shape.record_key]
            columns.append(f"UNIQUE ({quoted_list((*shape.record_columns, *others))})")
        if shape.ttl is not None:
            # Expired rows are looked up by it. In a table that appends, nothing makes a row unique: it is scanned.
            others = [name for name in shape.key if name != shape.ttl.column]
            columns += [f"UNIQUE ({quoted_list((shape.ttl.column, *others))})"] if shape.key else []
        run(f"CREATE TABLE {self._table.sql} ({', '.join(columns)})")
        self._bookmarks.add(run, self._table.name, StoredBookmark(self.kind, start, shape.to_json()))

    def _check_columns(self, run: Run, stored: TableShape) -> None:
        """Raises if the table was changed by hand."""
        there = {name for (name,) in run("SELECT name FROM pragma_table_xinfo(?)", self._table.name)}
        if not there:
            raise ViewUnavailable(
                self._location, "its bookmark is there and the table is not; drop it with 'foldlog fold drop NAME'"
            )
        for name in stored.columns.names:
            if name not in there:
                raise SchemaChanged(self._location, f"its column {name!r} was removed by hand")

    def _decide(self, delta: Delta, settings: str) -> tuple[TableShape, Change, list[tuple[object, ...]]]:
        """The change, down to the values to bind: everything that can be done without the file."""
        shape = TableShape.from_json(settings, self._location)
        change = decide_change(delta, shape, self._location)
        # In key order, neighbours go to the same pages: twice as fast as in order of arrival.
        rows = change.rows.sort_by([(name, "ascending") for name in shape.key]) if shape.key else change.rows
        return shape, change, list(zip(*(to_values(column) for column in rows.columns), strict=True))

    def _store(
        self, connection: sqlite3.Connection, shape: TableShape, change: Change, values: list[tuple[object, ...]]
    ) -> None:
        connection.execute(f"PRAGMA cache_size = -{CACHE_KIB}")
        for keys in (change.tombstones, change.replaced):
            if keys is not None:
                column = quoted(shape.record_columns[0])
                statement = f"DELETE FROM {self._table.sql} WHERE {column} = ?"
                connection.executemany(statement, [(key,) for key in to_values(keys)])
        if change.gone is not None:
            self._delete_rows(connection, shape, change.gone)
        if values:
            marks = ", ".join("?" * len(shape.columns))
            statement = f"INSERT INTO {self._table.sql} ({quoted_list(shape.columns.names)}) VALUES ({marks})"
            try:
                stored = connection.executemany(statement + _on_conflict(shape), values)
                if shape.keeps_rows and stored.rowcount < len(values):
                    self._raise_written_by_two(connection, shape, values)
            except sqlite3.IntegrityError as error:
                if shape.record_key != RECORD:
                    raise
                raise written_twice(self._location, str(error)) from error

    def _expire(self, run: Run, shape: TableShape, delta: Delta) -> str | None:
        """Delete what has expired. Returns the settings, if the table has another time now."""
        later = aged(shape, delta)
        before = expired_before(later)
        if before is not None and later.ttl is not None:
            run(f"DELETE FROM {self._table.sql} WHERE {quoted(later.ttl.column)} < ?", *to_values(before))
        if later is shape:
            return None
        self._bookmarks.set_settings(run, self._table.name, later.to_json())
        return later.to_json()

    def _delete_rows(self, connection: sqlite3.Connection, shape: TableShape, gone: pa.Table) -> None:
        keys = list(zip(*(to_values(gone[name]) for name in shape.key), strict=True))
        records = to_values(gone[shape.record_columns[0]])
        where = " AND ".join(f"{quoted(name)} = ?" for name in shape.key)
        for key, record_key in zip(keys, records, strict=True):
            self._check_owner(connection, shape, key, record_key)
        connection.executemany(f"DELETE FROM {self._table.sql} WHERE {where}", keys)

    def _raise_written_by_two(
        self, connection: sqlite3.Connection, shape: TableShape, values: list[tuple[object, ...]]
    ) -> NoReturn:
        """FoldError for rows that were not stored, because another record key has their key."""
        names = shape.columns.names
        at = names.index(shape.record_columns[0])
        for row in values:
            self._check_owner(connection, shape, tuple(row[names.index(name)] for name in shape.key), row[at])
        raise ViewUnavailable(self._location, "some rows could not be stored, for a reason that is not known")

    def _check_owner(
        self, connection: sqlite3.Connection, shape: TableShape, key: tuple[object, ...], record_key: object
    ) -> None:
        """FoldError if the row of this key is of another record key."""
        where = " AND ".join(f"{quoted(name)} = ?" for name in shape.key)
        statement = f"SELECT 1 FROM {self._table.sql} WHERE {where} AND {quoted(shape.record_columns[0])} <> ?"
        if connection.execute(statement, (*key, record_key)).fetchone() is not None:
            raise written_by_two(self._location, _shown(shape, key))

    def _drop(self, run: Run) -> bool:
        if self._entry(run) is None:
            return False
        run(f"DROP TABLE IF EXISTS {self._table.sql}")
        self._bookmarks.remove(run, self._table.name)
        return True

    def _drop_and_close(self) -> bool:
        if not self._database.exists():
            return False
        try:
            with self._database.write() as connection:
                return self._drop(runner(connection))
        finally:
            self.close()

    def _scan(self, database: SqliteDatabase) -> Iterator[Bookmark | pa.RecordBatch | None]:
        try:
            with database.read() as connection:
                entry = self._entry(runner(connection))
                if entry is None:
                    yield None
                    return
                shape = TableShape.from_json(entry.settings, self._location)
                cursor = connection.execute(f"SELECT {quoted_list(shape.columns.names)} FROM {self._table.sql}")
                yield entry.bookmark
                while rows := cursor.fetchmany(VIEW_SCAN_ROWS):
                    yield from_values(rows, shape.columns, self._location)
        finally:
            database.close()


class SqliteHistory(SqliteTable):
    """A table with every row of its fold, mode="append"."""

    is_keyed: ClassVar[bool] = False
    adds = True

    def _wanted(self, shape: Shape) -> TableShape:
        return appended_shape(shape, self._location)

    def filled(self, shape: Shape) -> tuple[str, ...]:
        return ()


def _on_conflict(shape: TableShape) -> str:
    if shape.replaces_records or shape.appends:
        return ""  # conflicting rows were just deleted, or there are none
    if not shape.others and not shape.keeps_rows:
        return f" ON CONFLICT ({quoted_list(shape.key)}) DO NOTHING"
    changes = ", ".join(f"{quoted(name)} = excluded.{quoted(name)}" for name in shape.others or shape.key)
    upsert = f" ON CONFLICT ({quoted_list(shape.key)}) DO UPDATE SET {changes}"
    if not shape.keeps_rows:
        return upsert
    record = quoted(shape.record_columns[0])  # not qualified, it is the table's
    return f"{upsert} WHERE {record} = excluded.{record}"


def _shown(shape: TableShape, key: tuple[object, ...]) -> str:
    return ", ".join(f"{name}={brief_repr(value)}" for name, value in zip(shape.key, key, strict=True))


_LITERALS_AND_COMMENTS = re.compile(r"'(?:[^']|'')*'|--[^\n]*|/\*.*?\*/", re.DOTALL)


# --- replacing a table ----------------------------------------------------------------------------------------------
# Two renames in one transaction, with the users' indexes. Other things that users attached to the old table (triggers,
# views, foreign keys, columns) would be left behind or would follow the old one: they are found first, and the swap is
# refused with their names.


def check_swap(run: Run, location: str, live: TableName, own: Iterable[str]) -> None:
    """ViewInUse if something depends on the table that a swap would leave behind."""
    dependents = list(_dependents(run, live.name, own))
    if dependents:
        raise ViewInUse(location, dependents)


def swap_tables(
    run: Run, location: str, live: TableName, shadow: TableName, old: TableName, own: Iterable[str]
) -> None:
    """`shadow` becomes `live`, and the previous `live` becomes `old`, whose predecessor is dropped.

    `own` are the columns that a fold made; the caller is in a writing transaction.
    """
    check_swap(run, location, live, own)
    indexes = run(
        "SELECT name, sql FROM sqlite_master WHERE type = 'index' AND sql IS NOT NULL AND lower(tbl_name) = lower(?)",
        live.name,
    )
    there = {name.lower() for (name,) in run("SELECT name FROM pragma_table_xinfo(?)", shadow.name)}
    for name, _ in indexes:
        for (column,) in run("SELECT name FROM pragma_index_info(?) WHERE name IS NOT NULL", name):
            if column.lower() not in there:
                raise ViewInUse(location, [f"index {name} on column {column}, which the fold no longer has"])
    run(f"DROP TABLE IF EXISTS {old.sql}")
    if table_exists(run, live):
        # Index names are unique in a file: the old table loses its indexes. It is only kept, not read.
        for name, _ in indexes:
            run(f"DROP INDEX {quoted(name)}")
        run(f"ALTER TABLE {live.sql} RENAME TO {old.sql}")
    run(f"ALTER TABLE {shadow.sql} RENAME TO {live.sql}")
    for _, statement in indexes:
        run(statement)


def table_exists(run: Run, table: TableName) -> bool:
    """Whether a table, a view or an index of that name exists."""
    return bool(run("SELECT 1 FROM sqlite_master WHERE lower(name) = lower(?)", table.name))


def _dependents(run: Run, name: str, own: Iterable[str]) -> Iterator[str]:
    known = {column.lower() for column in own}
    for (column,) in run("SELECT name FROM pragma_table_xinfo(?)", name):
        if column.lower() not in known:
            yield f"column {column} (not the fold's)"
    mentioned = []
    for kind, other, on_table, statement in run(
        "SELECT type, name, tbl_name, sql FROM sqlite_master WHERE type IN ('trigger', 'view') ORDER BY type, name"
    ):
        if on_table.lower() == name.lower():
            yield f"{kind} {other}"
        elif _mentions(statement, name):
            mentioned.append((kind, other))
    if mentioned:
        followers = _followers(run, name)
        yield from (f"{kind} {other}" for kind, other in mentioned if followers is None or other in followers)
    for (table,) in run("SELECT name FROM sqlite_master WHERE type = 'table' AND sql IS NOT NULL ORDER BY name"):
        if table.lower() != name.lower() and run(
            'SELECT 1 FROM pragma_foreign_key_list(?) WHERE lower("table") = lower(?)', table, name
        ):
            yield f"foreign key of table {table}"
    if run("SELECT 1 FROM pragma_foreign_key_list(?)", name):
        yield f"foreign key of table {name} itself"


def _mentions(statement: str, name: str) -> bool:
    """Whether the statement contains the name at all, even as a column's."""
    code = _LITERALS_AND_COMMENTS.sub(" ", statement)
    return re.search(rf"(?<!\w){re.escape(name)}(?!\w)", code, re.IGNORECASE) is not None


def _followers(run: Run, name: str) -> set[str] | None:
    """The triggers and views that would follow the table if it were renamed, found by trying; None if that fails."""
    statements = "SELECT name, sql FROM sqlite_master WHERE type IN ('trigger', 'view')"
    before: dict[str, str] = dict(run(statements))
    run("SAVEPOINT foldlog_rename")
    try:
        run(f"ALTER TABLE {quoted(name)} RENAME TO {quoted(name + '__renamed')}")
        return {other for other, statement in run(statements) if statement != before[other]}
    except sqlite3.OperationalError:
        return None  # there is a broken view or trigger
    finally:
        run("ROLLBACK TO foldlog_rename")
        run("RELEASE foldlog_rename")
