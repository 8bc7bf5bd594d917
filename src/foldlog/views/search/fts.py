"""The search view in SQLite's FTS5: one file, if tantivy is not installed.

Each build of the view has two tables: `search_rows_1` (a row's key and all its columns as JSON, see row_json) and
`search_text_1`, the index over the searched columns, which stores no text of its own. The bookmark's row holds the
current number, so a swap is one small change of it. A range is one transaction, durable on return. Readers see the
state of their own transaction, even during writes.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Final

from foldlog.errors import InvalidArgument, ViewUnavailable
from foldlog.files.paths import is_directory
from foldlog.limits import VIEW_SCAN_ROWS
from foldlog.views.bookmark import Bookmark
from foldlog.views.contract import Delta, Shape, Snapshot, View
from foldlog.views.local_paths import local_path
from foldlog.views.newest import newest
from foldlog.views.row_json import decode_rows, encode_rows
from foldlog.views.search.settings import SearchSettings, checked_limit, checked_text, settings_of
from foldlog.views.search.terms import key_terms
from foldlog.views.sql.bookmarks import StoredBookmark
from foldlog.views.sql.names import OLD, check_columns, quoted, quoted_list
from foldlog.views.sql.sqlite import SqliteDatabase, runner

if TYPE_CHECKING:
    import pyarrow as pa

NAME: Final = "search"
"""The view's name among the bookmarks of the file."""

_TOKENS: Final = "unicode61 remove_diacritics 0"
"""Tokens as tantivy's default makes them: letters and digits of any script, without regard to case."""


@dataclass(frozen=True, slots=True)
class StoredIndex:
    """A decoded entry of the bookmark table."""

    bookmark: Bookmark
    number: int
    settings: SearchSettings

    @property
    def rows(self) -> str:
        return f"search_rows_{self.number}"

    @property
    def text(self) -> str:
        return f"search_text_{self.number}"

    def to_entry(self) -> StoredBookmark:
        settings = json.dumps({"number": self.number, "search": self.settings.to_json()})
        return StoredBookmark(FtsSearch.kind, self.bookmark, settings)

    @classmethod
    def of(cls, entry: StoredBookmark, location: str) -> StoredIndex:
        if entry.kind != FtsSearch.kind:
            raise ViewUnavailable(location, f"the file has a {entry.kind} of the name {NAME!r}; choose another file")
        fields = json.loads(entry.settings)
        return cls(entry.bookmark, fields["number"], SearchSettings.from_json(fields["search"]))

    def searched(self) -> str:
        """SQL for the searched columns of a row's JSON."""
        numbers = [self.settings.columns.get_field_index(name) for name in self.settings.text]
        return ", ".join(f"json_extract(row, '$[{number}]')" for number in numbers)


class FtsSearch(View):
    """`name` is the view's own, or a shadow's. One thread at a time."""

    kind: ClassVar[str] = "search"
    is_keyed: ClassVar[bool] = True

    def __init__(self, path: str, text: Sequence[str] | str, *, name: str = NAME) -> None:
        self._path = local_path(path)
        self._text = checked_text(text)
        self._name = name
        self._database = SqliteDatabase(self._path, self.place)
        self._bookmarks = self._database.bookmarks

    @property
    def place(self) -> str:
        return f"search {self._path}" if self._name == NAME else f"search {self._path} ({self._name})"

    def description(self) -> dict[str, object]:
        return {"kind": self.kind, "engine": "fts5", "path": self._path}

    def bookmark(self) -> Bookmark | None:
        if not self._exists():
            return None
        with self._database.read() as connection:
            stored = self._stored(connection)
        return None if stored is None else stored.bookmark

    def prepare(self, shape: Shape, start: Bookmark, *, loading: bool = False) -> Bookmark:
        wanted = settings_of(shape, self._text)
        self._exists()
        with self._database.write(create=True) as connection:
            run = runner(connection)
            self._bookmarks.create(run)
            stored = self._stored(connection)
            if stored is None:
                stored = StoredIndex(start, _free_number(connection), wanted)
                self._make_tables(connection, stored)
                self._bookmarks.add(run, self._name, stored.to_entry())
            grown = replace(stored, settings=stored.settings.grown_to(wanted, self.place))
            if grown != stored:
                self._bookmarks.set_settings(run, self._name, grown.to_entry().settings)
            return stored.bookmark

    def apply(self, delta: Delta, expected: Bookmark, new: Bookmark) -> None:
        self._exists()
        with self._database.write(create=False) as connection:
            run = runner(connection)
            stored = StoredIndex.of(self._bookmarks.expect(run, self._name, self.place, expected), self.place)
            if delta.rows.num_rows:
                change = newest(delta.rows, stored.settings.record_key, stored.settings.key)
                self._delete(connection, stored, key_terms(change.keys))
                self._insert(connection, stored, stored.settings.fitted(change.rows, self.place))
            self._bookmarks.set_bookmark(run, self._name, new)

    def move(self, expected: Bookmark, new: Bookmark) -> None:
        self._exists()
        with self._database.write(create=False) as connection:
            run = runner(connection)
            self._bookmarks.expect(run, self._name, self.place, expected)
            self._bookmarks.set_bookmark(run, self._name, new)

    def shadow(self, label: str) -> FtsSearch:
        return FtsSearch(self._path, self._text, name=f"{NAME}__{label}")

    def swap(self, shadow: View) -> None:
        if not isinstance(shadow, FtsSearch) or shadow._path != self._path or shadow._name == self._name:
            raise InvalidArgument(f"{shadow.place} is no shadow of {self.place}")
        with self._database.write(create=False) as connection:
            run = runner(connection)
            if shadow._stored(connection) is None:
                raise ViewUnavailable(self.place, f"there is no {shadow._name} to put in its place")
            if self._stored(connection) is not None:
                self._drop_tables(connection, self._name + OLD)
                self._bookmarks.rename(run, self._name, self._name + OLD)
            self._bookmarks.rename(run, shadow._name, self._name)

    def drop_old(self) -> bool:
        return self._exists() and self._drop(self._name + OLD)

    def drop(self) -> None:
        if self._exists():
            self._drop(self._name)
            self._drop(self._name + OLD)

    def scan(self) -> Snapshot:
        self._exists()
        batches = self._batches()
        bookmark = next(batches)
        return Snapshot(bookmark, batches)

    def search(self, query: str, limit: int = 10) -> list[dict[str, object]]:
        """The best matching rows, best first, for a query in FTS5's syntax.

        All words have to occur: `chai point`; also `"chai point"`, `merchant:chai`, `chai OR tea`, `chai NOT point`,
        `chai po*`. InvalidArgument if the query cannot be parsed.
        """
        self._exists()
        with self._database.read() as connection:
            stored = self._needed(connection)
            rows, text = quoted(stored.rows), quoted(stored.text)
            try:
                found = connection.execute(
                    f"SELECT {rows}.row FROM {text} JOIN {rows} ON {rows}.id = {text}.rowid"
                    f" WHERE {text} MATCH ? ORDER BY {text}.rank LIMIT ?",
                    (query, checked_limit(limit)),
                ).fetchall()
            except sqlite3.OperationalError as error:
                raise InvalidArgument(
                    f"the query {query!r} cannot be understood ({error}): put text with punctuation into double"
                    f" quotes; the searched columns are {', '.join(stored.settings.text)}"
                ) from error
        return decode_rows([row for (row,) in found], stored.settings.columns).to_pylist() if found else []

    def close(self) -> None:
        self._database.close()

    def _batches(self) -> Iterator[Any]:
        """Yields the bookmark, then the rows, in one transaction of a separate connection; `apply` is not blocked."""
        database = self._database.another()
        try:
            with database.read() as connection:
                stored = self._needed(connection)
                yield stored.bookmark
                cursor = connection.execute(f"SELECT row FROM {quoted(stored.rows)} ORDER BY id")
                while found := cursor.fetchmany(VIEW_SCAN_ROWS):
                    yield decode_rows([row for (row,) in found], stored.settings.columns)
        finally:
            database.close()

    def _exists(self) -> bool:
        if is_directory(self._path):
            raise ViewUnavailable(
                self.place, "there is a directory, as tantivy makes it, and FTS5 has a file; say engine='tantivy'"
            )
        return self._database.exists()

    def _stored(self, connection: sqlite3.Connection, name: str | None = None) -> StoredIndex | None:
        if not connection.execute(
            "SELECT 1 FROM sqlite_master WHERE name = ?", (self._bookmarks.table.name,)
        ).fetchone():
            return None
        entry = self._bookmarks.read(runner(connection), name or self._name)
        return None if entry is None else StoredIndex.of(entry, self.place)

    def _needed(self, connection: sqlite3.Connection) -> StoredIndex:
        stored = self._stored(connection)
        if stored is None:
            raise ViewUnavailable(self.place, "there is no such view; run the fold to make it")
        return stored

    def _make_tables(self, connection: sqlite3.Connection, stored: StoredIndex) -> None:
        check_columns(stored.settings.text)
        taken = [name for name in stored.settings.text if name.lower() in ("rank", "rowid")]
        if taken:
            raise InvalidArgument(f"text={taken[0]!r} cannot be searched: FTS5 has a column of that name; rename it")
        rows = quoted(stored.rows)
        connection.execute(f"CREATE TABLE {rows} (id INTEGER PRIMARY KEY, key TEXT NOT NULL, row TEXT NOT NULL)")
        connection.execute(f"CREATE INDEX {quoted(stored.rows + '_key')} ON {rows} (key)")
        columns = quoted_list(stored.settings.text)
        connection.execute(
            f"CREATE VIRTUAL TABLE {quoted(stored.text)} USING fts5({columns}, content='', tokenize='{_TOKENS}')"
        )

    def _delete(self, connection: sqlite3.Connection, stored: StoredIndex, keys: Sequence[str]) -> None:
        """Delete the rows of these keys. An index without text of its own needs the old text to delete an entry."""
        rows, text = quoted(stored.rows), quoted(stored.text)
        connection.execute("CREATE TEMP TABLE IF NOT EXISTS changed_keys (key TEXT PRIMARY KEY) WITHOUT ROWID")
        connection.execute("DELETE FROM changed_keys")
        connection.executemany("INSERT INTO changed_keys VALUES (?)", ((key,) for key in keys))
        columns = f"{quoted(stored.text)}, rowid, {quoted_list(stored.settings.text)}"
        connection.execute(
            f"INSERT INTO {text} ({columns}) SELECT 'delete', id, {stored.searched()} FROM {rows}"
            " WHERE key IN (SELECT key FROM changed_keys)"
        )
        connection.execute(f"DELETE FROM {rows} WHERE key IN (SELECT key FROM changed_keys)")

    def _insert(self, connection: sqlite3.Connection, stored: StoredIndex, table: pa.Table) -> None:
        """Extracting the text from the JSON inside SQLite is faster than passing it again."""
        rows, text = quoted(stored.rows), quoted(stored.text)
        ((last,),) = connection.execute(f"SELECT coalesce(max(id), 0) FROM {rows}").fetchall()
        for batch in table.combine_chunks().to_batches(max_chunksize=VIEW_SCAN_ROWS):
            keys = key_terms(batch.column(stored.settings.record_key).to_pylist())
            values = zip(keys, encode_rows(batch), strict=True)
            connection.executemany(f"INSERT INTO {rows} (key, row) VALUES (?, ?)", values)
        connection.execute(
            f"INSERT INTO {text} (rowid, {quoted_list(stored.settings.text)})"
            f" SELECT id, {stored.searched()} FROM {rows} WHERE id > ? ORDER BY id",
            (last,),
        )

    def _drop(self, name: str) -> bool:
        with self._database.write(create=False) as connection:
            return self._drop_tables(connection, name)

    def _drop_tables(self, connection: sqlite3.Connection, name: str) -> bool:
        stored = self._stored(connection, name)
        if stored is None:
            return False
        connection.execute(f"DROP TABLE {quoted(stored.rows)}")
        connection.execute(f"DROP TABLE {quoted(stored.text)}")
        self._bookmarks.remove(runner(connection), name)
        return True


def _free_number(connection: sqlite3.Connection) -> int:
    """The first number without tables in the file."""
    names = {name for (name,) in connection.execute("SELECT name FROM sqlite_master")}
    return next(number for number in range(1, len(names) + 2) if f"search_rows_{number}" not in names)
