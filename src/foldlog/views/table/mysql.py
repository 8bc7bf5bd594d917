"""A table in MySQL or MariaDB. A range is one transaction of InnoDB: lock and compare the bookmark, delete and upsert
the rows, store the new bookmark, commit.

These engines commit whenever a table is created, changed or renamed, so nothing of that can be part of a transaction.
Three rules keep it exact all the same:

- The bookmark is a row in a table of the view's own, `NAME__bookmark`. One RENAME TABLE swaps both, or nothing.
- The table is created before its bookmark, and dropped after it. What has no bookmark is empty or abandoned; it is
  known by its comment.
- A column is added before the bookmark's row names it. Who is killed in between finds it there, by its comment.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Final

from foldlog.errors import InvalidArgument, SchemaChanged, StaleBookmark, ViewInUse, ViewUnavailable, brief_repr
from foldlog.limits import VIEW_LOCK_WAIT_MS, VIEW_SCAN_ROWS
from foldlog.views.bookmark import Bookmark
from foldlog.views.contract import Delta, Shape, Snapshot, View
from foldlog.views.sql.bookmarks import BookmarkTable, Run, StoredBookmark
from foldlog.views.sql.mysql import MySqlDatabase, load_pymysql, public_mysql_url, runner
from foldlog.views.sql.names import OLD, TableName, quoted, quoted_list
from foldlog.views.table.expiry import aged, expired_before
from foldlog.views.table.mysql_values import from_values, indexed_lengths, mysql_type, selected, to_values, too_long
from foldlog.views.table.rows import Change, decide_change, written_by_two, written_twice
from foldlog.views.table.shape import TableSettings, TableShape, added_columns, appended_shape, decide_shape, reconcile

if TYPE_CHECKING:
    import pyarrow as pa

BOOKMARK: Final = "__bookmark"
"""Ending of the table that holds the view's bookmark."""

OURS: Final = "made by foldlog"
"""Comment of tables and columns."""

ROW: Final = "bookmark"
"""The key of the only row of a bookmark's table: it stays the same when the table is renamed."""

_LOOKED_UP: Final = 500
"""How many keys one statement looks up or deletes."""

_TABLE: Final = (
    "SELECT ENGINE, TABLE_COMMENT FROM information_schema.TABLES WHERE TABLE_SCHEMA = %s AND TABLE_NAME = %s"
)
_COLUMNS: Final = """
    SELECT COLUMN_NAME, COLUMN_COMMENT FROM information_schema.COLUMNS WHERE TABLE_SCHEMA = %s AND TABLE_NAME = %s
"""
_INDEXES: Final = """
    SELECT INDEX_NAME, NON_UNIQUE, COLUMN_NAME, SUB_PART, COLLATION, INDEX_TYPE, INDEX_COMMENT
    FROM information_schema.STATISTICS WHERE TABLE_SCHEMA = %s AND TABLE_NAME = %s ORDER BY INDEX_NAME, SEQ_IN_INDEX
"""
_UNIQUE: Final = """
    SELECT INDEX_NAME FROM information_schema.STATISTICS
    WHERE TABLE_SCHEMA = %s AND TABLE_NAME = %s AND NON_UNIQUE = 0 AND INDEX_NAME <> 'PRIMARY' LIMIT 1
"""
_DEPENDENTS: Final = """
    SELECT CONCAT('trigger ', TRIGGER_NAME) FROM information_schema.TRIGGERS
    WHERE EVENT_OBJECT_SCHEMA = %s AND EVENT_OBJECT_TABLE = %s
    UNION SELECT CONCAT('foreign key ', CONSTRAINT_NAME, ' of table ', TABLE_NAME)
    FROM information_schema.KEY_COLUMN_USAGE
    WHERE (REFERENCED_TABLE_SCHEMA = %s AND REFERENCED_TABLE_NAME = %s)
          OR (TABLE_SCHEMA = %s AND TABLE_NAME = %s AND REFERENCED_TABLE_NAME IS NOT NULL)
"""


class MySqlTable(View):
    """See `foldlog.views.table.table`. Keeps one connection, made on first use, and again after it was lost."""

    kind: ClassVar[str] = "table"
    is_keyed: ClassVar[bool] = True
    looks_up: ClassVar[bool] = True
    holds_nan: ClassVar[bool] = False

    def __init__(
        self,
        url: str,
        table: TableName,
        asked: TableSettings = TableSettings(),  # noqa: B008 it is immutable
        *,
        wait_ms: int = VIEW_LOCK_WAIT_MS,
    ) -> None:
        self._url = url
        self._table = table
        self._asked = asked
        self._wait_ms = wait_ms
        self._location = f"table {table} in mysql://{public_mysql_url(url).partition('://')[2]}"
        self._database = MySqlDatabase(url, self._location, wait_ms=wait_ms)
        self._bookmark_table = table.beside(BOOKMARK)
        # All of its statements have values.
        escaped = TableName(_marked(self._bookmark_table.name))
        self._bookmarks = BookmarkTable(escaped, mark="%s", lock=" FOR UPDATE")
        self.ttl = asked.ttl

    @property
    def place(self) -> str:
        return self._location

    def size_bytes(self) -> int | None:
        with self._database.transaction(snapshot=True) as connection:
            found = runner(connection)(
                "SELECT DATA_LENGTH + INDEX_LENGTH FROM information_schema.TABLES"
                " WHERE TABLE_SCHEMA = %s AND TABLE_NAME = %s",
                *self._named(self._table),
            )
        return int(found[0][0]) if found else None

    def bookmark(self) -> Bookmark | None:
        with self._database.transaction(snapshot=True) as connection:
            entry = self._entry(runner(connection))
            return None if entry is None else entry.bookmark

    def prepare(self, shape: Shape, start: Bookmark, *, loading: bool = False) -> Bookmark:
        wanted = self._wanted(shape).with_ttl(self._asked.ttl, self._location)
        with self._database.defining(self._table.name) as run:
            entry = self._entry(run)
            if entry is None:
                self._create(run, wanted, start)
                return start
            stored = TableShape.from_json(entry.settings, self._location)
            merged = reconcile(stored, wanted, self._location)
            self._grow(run, stored, merged)
        if merged is not stored:
            with self._database.transaction() as connection:
                run = runner(connection)
                now = self._bookmarks.read(run, ROW, for_change=True)
                if now is None or now.settings != entry.settings:
                    raise ViewUnavailable(self._location, "somebody else has changed it meanwhile; run the fold again")
                self._bookmarks.set_settings(run, ROW, merged.to_json())
                return now.bookmark
        return entry.bookmark

    def _wanted(self, shape: Shape) -> TableShape:
        return decide_shape(shape, self._asked.key, self._location, loading=False)

    def filled(self, shape: Shape) -> tuple[str, ...]:
        return self._asked.key or shape.key

    def keeps_rows(self, record_key: tuple[str, ...]) -> bool:
        return self._asked.keeps_rows(record_key)

    def unheld_keys(self, keys: pa.Table) -> pa.ChunkedArray | None:
        return too_long(keys)

    def apply(self, delta: Delta, expected: Bookmark, new: Bookmark) -> None:
        with self._database.transaction() as connection:
            run = runner(connection)
            shape = TableShape.from_json(self._expect(run, expected).settings, self._location)
            self._store(connection, shape, decide_change(delta, shape, self._location))
            self._bookmarks.set_bookmark(run, ROW, new)
            later = aged(shape, delta)
            if later is not shape:
                self._bookmarks.set_settings(run, ROW, later.to_json())
            before = expired_before(later)
            if before is not None and later.ttl is not None:
                run(f"DELETE FROM {self._sql} WHERE {_name(later.ttl.column)} < %s", *to_values(before))

    def move(self, expected: Bookmark, new: Bookmark) -> None:
        with self._database.transaction() as connection:
            run = runner(connection)
            self._expect(run, expected)
            self._bookmarks.set_bookmark(run, ROW, new)

    def rows_of(self, keys: pa.Array, expected: Bookmark) -> pa.Table:
        import pyarrow as pa

        with self._database.transaction() as connection:
            run = runner(connection)
            shape = TableShape.from_json(self._expect(run, expected).settings, self._location)
            found: list[tuple[Any, ...]] = []
            column = _name(shape.record_columns[0])
            for some in _parts(to_values(keys)):
                marks = ", ".join(["%s"] * len(some))
                found += run(
                    f"SELECT {_marked(selected(shape.columns))} FROM {self._sql} WHERE {column} IN ({marks})", *some
                )
        return pa.Table.from_batches([from_values(found, shape.columns, self._location)])

    # --- shadow, swap, drop ---------------------------------------------------------------------------------------

    def shadow(self, label: str) -> MySqlTable:
        return type(self)(self._url, self._table.beside(f"__{label}"), self._asked, wait_ms=self._wait_ms)

    def check_swap(self) -> None:
        with self._database.transaction(snapshot=True) as connection:
            run = runner(connection)
            entry = self._entry(run)
            if entry is not None:
                self._check_dependents(run, TableShape.from_json(entry.settings, self._location))

    def swap(self, shadow: View) -> None:
        if not isinstance(shadow, MySqlTable) or shadow._url != self._url:
            raise InvalidArgument(f"{shadow.place} is not a shadow of {self._location}: they are not in one database")
        live, old, beside = self._table, self._table.beside(OLD), shadow._table
        with self._database.defining(live.name) as run:
            replacing, entry = shadow._entry(run), self._entry(run)
            if replacing is None:
                raise ViewUnavailable(shadow.place, "it does not exist, so it cannot take a place")
            if entry is not None:
                self._check_dependents(run, TableShape.from_json(entry.settings, self._location))
                self._carry_indexes(run, beside)
            self._drop_tables(run, old)
            renames = [(beside, live)] if entry is None else [(live, old), (beside, live)]
            # Table and bookmark in one statement: whole or not at all, also if the server is killed.
            run(
                "RENAME TABLE "
                + ", ".join(
                    f"{before.beside(ending).sql} TO {after.beside(ending).sql}"
                    for before, after in renames
                    for ending in ("", BOOKMARK)
                )
            )

    def drop_old(self) -> bool:
        old = type(self)(self._url, self._table.beside(OLD), wait_ms=self._wait_ms)
        try:
            return old._drop()
        finally:
            old.close()

    def drop(self) -> None:
        self._drop()

    def _drop(self) -> bool:
        with self._database.defining(self._table.name) as run:
            is_there = self._entry(run) is not None
            if is_there or self._is_abandoned(run):
                self._drop_tables(run, self._table)
            return is_there

    def _drop_tables(self, run: Run, table: TableName) -> None:
        """The bookmark goes first: what has none is abandoned, and nobody's."""
        run(f"DROP TABLE IF EXISTS {table.beside(BOOKMARK).sql}")
        run(f"DROP TABLE IF EXISTS {table.sql}")

    def _check_dependents(self, run: Run, stored: TableShape) -> None:
        """ViewInUse if something is attached to the table that a swap would leave behind."""
        named = self._named(self._table)
        found = [name for (name,) in run(_DEPENDENTS, *named, *named, *named)]
        there = [name for name, _ in run(_COLUMNS, *named)]
        found += [f"column {name} (not the fold's)" for name in there if name not in stored.columns.names]
        if found:
            raise ViewInUse(self._location, found)

    def _carry_indexes(self, run: Run, shadow: TableName) -> None:
        """Indexes that users made on the table are made on the shadow, under their names."""
        there = {row[0] for row in run(_INDEXES, *self._named(shadow))}
        columns = {name for name, _ in run(_COLUMNS, *self._named(shadow))}
        indexes: dict[str, list[tuple[Any, ...]]] = {}
        for name, *parts in run(_INDEXES, *self._named(self._table)):
            indexes.setdefault(name, []).append(tuple(parts))
        for name, parts in indexes.items():
            if name in there:
                continue
            for _, column, *_ in parts:
                if column not in columns:
                    gone = f"on column {column}, which the fold no longer has" if column else "of an expression"
                    raise ViewInUse(self._location, [f"index {name} {gone}"])
            texts = [
                quoted(column) + (f"({length})" if length else "") + (" DESC" if order == "D" else "")
                for _, column, length, order, *_ in parts
            ]
            kind = {"FULLTEXT": "FULLTEXT ", "SPATIAL": "SPATIAL "}.get(parts[0][4], "")
            run(f"CREATE {kind}INDEX {quoted(name)} ON {shadow.sql} ({', '.join(texts)})")

    # --- reading --------------------------------------------------------------------------------------------------

    def scan(self) -> Snapshot:
        # One generator holds the transaction from here to the last batch, or until it is closed.
        parts = self._scan(self._database.another())
        first = next(parts)
        if not isinstance(first, Bookmark):
            raise ViewUnavailable(self._location, "it has no bookmark; run the fold to make it")
        return Snapshot(first, parts)  # after the bookmark, only batches

    def _scan(self, database: MySqlDatabase) -> Iterator[Bookmark | pa.RecordBatch | None]:
        pymysql = load_pymysql("a view in MySQL")
        try:
            with database.transaction(snapshot=True) as connection:
                entry = self._entry(runner(connection))
                if entry is None:
                    yield None
                    return
                shape = TableShape.from_json(entry.settings, self._location)
                yield entry.bookmark
                cursor = connection.cursor(pymysql.cursors.SSCursor)
                cursor.execute(f"SELECT {selected(shape.columns)} FROM {self._table.sql}")
                while rows := cursor.fetchmany(VIEW_SCAN_ROWS):
                    yield from_values(rows, shape.columns, self._location)
                cursor.close()
        finally:
            database.close()

    def close(self) -> None:
        self._database.close()

    # --- tables ---------------------------------------------------------------------------------------------------

    @property
    def _sql(self) -> str:
        """For a statement with values."""
        return _marked(self._table.sql)

    def _named(self, table: TableName) -> tuple[str, str]:
        return self._database.name, table.name

    def _exists(self, run: Run, table: TableName) -> bool:
        return bool(run(_TABLE, *self._named(table)))

    def _entry(self, run: Run) -> StoredBookmark | None:
        if not self._exists(run, self._bookmark_table):
            return None
        entry = self._bookmarks.read(run, ROW)
        if entry is not None and entry.kind != self.kind:
            raise ViewUnavailable(self._location, f"it belongs to a view of another kind ({entry.kind})")
        return entry

    def _expect(self, run: Run, expected: Bookmark) -> StoredBookmark:
        if not self._exists(run, self._bookmark_table):
            raise StaleBookmark(self._location, "no bookmark, as if it had been dropped,", expected.to_json())
        return self._bookmarks.expect(run, ROW, self._location, expected)

    def _is_abandoned(self, run: Run) -> bool:
        """Whether the table is ours, without a bookmark and without rows: who made it was killed then."""
        found = run(_TABLE, *self._named(self._table))
        return bool(found) and found[0][1] == OURS and not run(f"SELECT 1 FROM {self._table.sql} LIMIT 1")

    def _create(self, run: Run, shape: TableShape, start: Bookmark) -> None:
        if self._is_abandoned(run):
            self._drop_tables(run, self._table)
        elif self._exists(run, self._table):
            raise ViewUnavailable(
                self._location, "something of that name is there already, and no fold made it; choose another name"
            )
        lengths = indexed_lengths(shape)
        parts = [
            f"{quoted(field.name)} {self._type(field.type, lengths.get(field.name))}"
            f"{' NOT NULL' if field.name in shape.key else ''}"
            for field in shape.columns
        ]
        if shape.key:
            parts.append(f"PRIMARY KEY ({quoted_list(shape.key)})")
        if shape.finds_records:
            parts.append(f"INDEX _foldlog_records ({quoted(shape.record_columns[0])})")
        if shape.ttl is not None:
            parts.append(f"INDEX _foldlog_times ({quoted(shape.ttl.column)})")
        run(f"CREATE TABLE {self._table.sql} ({', '.join(parts)}) ENGINE = InnoDB COMMENT = '{OURS}'")
        table = self._bookmark_table.sql
        run(
            f"CREATE TABLE IF NOT EXISTS {table} (view VARCHAR(64) NOT NULL PRIMARY KEY, kind VARCHAR(64) NOT NULL,"
            " bookmark LONGTEXT NOT NULL, settings LONGTEXT NOT NULL)"
            f" ENGINE = InnoDB CHARACTER SET utf8mb4 COLLATE utf8mb4_bin COMMENT = '{OURS}'"
        )
        self._bookmarks.add(run, ROW, StoredBookmark(self.kind, start, shape.to_json()))

    def _type(self, kind: Any, key_characters: int | None = None) -> str:
        return mysql_type(kind, key_characters=key_characters, is_mariadb=self._database.is_mariadb)

    def _grow(self, run: Run, stored: TableShape, merged: TableShape) -> None:
        found = run(_TABLE, *self._named(self._table))
        if not found:
            raise ViewUnavailable(
                self._location, "its bookmark is there and the table is not; drop it with 'foldlog fold drop NAME'"
            )
        if found[0][0] != "InnoDB":
            raise ViewUnavailable(
                self._location,
                f"its engine is {found[0][0]}, which has no transactions; run ALTER TABLE {self._table} ENGINE=InnoDB,"
                " and rebuild it",
            )
        there: dict[str, str] = dict(run(_COLUMNS, *self._named(self._table)))
        for name in stored.columns.names:
            if name not in there:
                raise SchemaChanged(self._location, f"its column {name!r} was removed by hand")
        for field in added_columns(stored, merged):
            if there.get(field.name, OURS) != OURS:
                raise SchemaChanged(self._location, f"a column {field.name!r} was added to it by hand")
            kind = self._type(field.type)
            what = "MODIFY" if field.name in there else "ADD"  # one of who was killed before it was noted
            run(f"ALTER TABLE {self._table.sql} {what} COLUMN {quoted(field.name)} {kind} COMMENT '{OURS}'")

    # --- rows -----------------------------------------------------------------------------------------------------

    def _store(self, connection: Any, shape: TableShape, change: Change) -> None:
        run = runner(connection)
        for keys in (change.tombstones, change.replaced):
            if keys is not None:
                column = _name(shape.record_columns[0])
                for some in _parts(to_values(keys)):
                    marks = ", ".join(["%s"] * len(some))
                    run(f"DELETE FROM {self._sql} WHERE {column} IN ({marks})", *some)
        if change.gone is not None:
            keys = self._keys(shape, change.gone)
            self._check_owners(run, shape, keys, to_values(change.gone[shape.record_columns[0]]))
            for some in _parts(keys):
                where, values = _any_of(shape.key, some)
                run(f"DELETE FROM {self._sql} WHERE {where}", *values)
        if change.rows.num_rows:
            self._upsert(connection, run, shape, change.rows)

    def _upsert(self, connection: Any, run: Run, shape: TableShape, rows: pa.Table) -> None:
        pymysql = load_pymysql("a view in MySQL")
        if shape.key:
            # In key order, neighbours go to the same pages.
            rows = rows.sort_by([(name, "ascending") for name in shape.key])
            for (index,) in run(_UNIQUE, *self._named(self._table)):
                raise ViewUnavailable(
                    self._location,
                    f"its unique index {index!r} was made by hand: an upsert could replace another row because of it;"
                    " make it an index that is not unique",
                )
        if shape.keeps_rows:
            self._check_owners(run, shape, self._keys(shape, rows), to_values(rows[shape.record_columns[0]]))
        values = list(zip(*(to_values(column) for column in rows.columns), strict=True))
        names = ", ".join(map(_name, shape.columns.names))
        marks = ", ".join(["%s"] * len(shape.columns))
        statement = f"INSERT INTO {self._sql} ({names}) VALUES ({marks})"
        if shape.key and not shape.replaces_records:
            changes = ", ".join(f"{_name(name)} = VALUES({_name(name)})" for name in shape.others or shape.key)
            statement += f" ON DUPLICATE KEY UPDATE {changes}"
        try:
            with connection.cursor() as cursor:
                cursor.executemany(statement, values)
        except pymysql.IntegrityError as error:
            if not shape.replaces_records:
                raise
            raise written_twice(self._location, str(error.args[-1])) from error

    def _keys(self, shape: TableShape, rows: pa.Table) -> list[tuple[Any, ...]]:
        return list(zip(*(to_values(rows[name]) for name in shape.key), strict=True))

    def _check_owners(
        self, run: Run, shape: TableShape, keys: Sequence[tuple[Any, ...]], owners: Sequence[Any]
    ) -> None:
        """FoldError if a row of these keys is of another record key."""
        names = ", ".join(map(_name, shape.key))
        for some in _parts([(*key, owner) for key, owner in zip(keys, owners, strict=True)]):
            where, values = _any_of((*shape.key, shape.record_columns[0]), some, last="<>")
            for row in run(f"SELECT {names} FROM {self._sql} WHERE {where} LIMIT 1", *values):
                told = ", ".join(f"{name}={brief_repr(value)}" for name, value in zip(shape.key, row, strict=True))
                raise written_by_two(self._location, told)


class MySqlHistory(MySqlTable):
    """A table with every row of its fold, mode="append"."""

    is_keyed: ClassVar[bool] = False
    adds = True

    def _wanted(self, shape: Shape) -> TableShape:
        return appended_shape(shape, self._location)

    def filled(self, shape: Shape) -> tuple[str, ...]:
        return ()


def _name(column: str) -> str:
    """For a statement with values."""
    return _marked(quoted(column))


def _marked(text: str) -> str:
    return text.replace("%", "%%")  # the driver would take a single one for a placeholder


def _parts(values: Sequence[Any]) -> Iterator[Sequence[Any]]:
    for start in range(0, len(values), _LOOKED_UP):
        yield values[start : start + _LOOKED_UP]


def _any_of(names: Sequence[str], rows: Sequence[tuple[Any, ...]], *, last: str = "=") -> tuple[str, list[Any]]:
    """A condition that is true for these rows, and its values; `last` compares the last of the columns."""
    signs = ["="] * (len(names) - 1) + [last]
    one = " AND ".join(f"{_name(name)} {sign} %s" for name, sign in zip(names, signs, strict=True))
    return " OR ".join([f"({one})"] * len(rows)), [value for row in rows for value in row]
