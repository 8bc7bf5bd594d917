"""The bookmarks of SQL views: one row per view in a table beside them, changed in the views' own transactions.

SQLite, PostgreSQL and DuckDB share these statements, except for the placeholder of a value and the lock of a row.
Nothing here begins or ends a transaction: the caller is inside one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from foldlog.errors import StaleBookmark, ViewUnavailable
from foldlog.views.bookmark import Bookmark
from foldlog.views.sql.names import TableName

Run = Callable[..., list[tuple[Any, ...]]]
"""Executes a statement with its values, and returns all its rows: `run("SELECT ?", 1)`."""

JOIN_KIND: Final = "join"
"""The kind of a view of several topics, whose bookmark is a vector: see `foldlog.views.join.state`."""


@dataclass(frozen=True, slots=True)
class StoredBookmark:
    """The stored entry of one view. `settings` is a text of the view's own, such as its columns."""

    kind: str
    bookmark: Bookmark
    settings: str


@dataclass(frozen=True, slots=True)
class BookmarkTable:
    """`table` is its name. `mark` is the placeholder of a value, `lock` ends a SELECT whose row is to be changed."""

    table: TableName
    mark: str = "?"
    lock: str = ""

    def create(self, run: Run) -> None:
        """Create the table unless it exists."""
        run(
            f"CREATE TABLE IF NOT EXISTS {self.table.sql}"
            " (view TEXT NOT NULL PRIMARY KEY, kind TEXT NOT NULL, bookmark TEXT NOT NULL, settings TEXT NOT NULL)"
        )

    def read(self, run: Run, view: str, *, for_change: bool = False) -> StoredBookmark | None:
        """The stored entry; with `for_change`, it is locked until the transaction ends."""
        found = self.row(run, view, for_change=for_change)
        if found is None:
            return None
        kind, bookmark, settings = found
        if kind == JOIN_KIND:
            raise ViewUnavailable(view, "a join of two topics is kept under that name; choose another")
        return StoredBookmark(kind, Bookmark.from_json(bookmark), settings)

    def row(self, run: Run, view: str, *, for_change: bool = False) -> tuple[str, str, str] | None:
        """The stored texts: kind, bookmark, settings."""
        lock = self.lock if for_change else ""
        rows = run(f"SELECT kind, bookmark, settings FROM {self.table.sql} WHERE view = {self.mark}{lock}", view)
        return (str(rows[0][0]), str(rows[0][1]), str(rows[0][2])) if rows else None

    def set_row(self, run: Run, view: str, bookmark: str, settings: str) -> None:
        """Store these texts, after `row(for_change=True)` in the same transaction."""
        # Updated, not replaced: whoever waits for the lock of this row would not see another one.
        change = f"UPDATE {self.table.sql} SET bookmark = {self.mark}, settings = {self.mark} WHERE view = {self.mark}"
        run(change, bookmark, settings, view)

    def add_row(self, run: Run, view: str, kind: str, bookmark: str, settings: str) -> None:
        """Store these texts for a view without an entry."""
        marks = ", ".join([self.mark] * 4)
        statement = f"INSERT INTO {self.table.sql} (view, kind, bookmark, settings) VALUES ({marks})"
        run(statement, view, kind, bookmark, settings)

    def add(self, run: Run, view: str, entry: StoredBookmark) -> None:
        """Add an entry for a view without one."""
        self.add_row(run, view, entry.kind, entry.bookmark.to_json(), entry.settings)

    def expect(self, run: Run, view: str, location: str, expected: Bookmark) -> StoredBookmark:
        """The entry, locked until the transaction ends; StaleBookmark if its bookmark is not `expected`."""
        entry = self.read(run, view, for_change=True)
        if entry is None:
            raise StaleBookmark(location, "no bookmark, as if it had been dropped,", expected.to_json())
        if entry.bookmark != expected:
            raise StaleBookmark(location, entry.bookmark.to_json(), expected.to_json())
        return entry

    def set_bookmark(self, run: Run, view: str, new: Bookmark) -> None:
        """After `expect`, in the same transaction."""
        run(f"UPDATE {self.table.sql} SET bookmark = {self.mark} WHERE view = {self.mark}", new.to_json(), view)

    def set_settings(self, run: Run, view: str, settings: str) -> None:
        """After `read(for_change=True)`, in the same transaction."""
        run(f"UPDATE {self.table.sql} SET settings = {self.mark} WHERE view = {self.mark}", settings, view)

    def rename(self, run: Run, view: str, to: str) -> None:
        """Rename the entry along with its table; an entry under the new name is replaced."""
        self.remove(run, to)
        run(f"UPDATE {self.table.sql} SET view = {self.mark} WHERE view = {self.mark}", to, view)

    def remove(self, run: Run, view: str) -> None:
        """Remove the entry, if it exists."""
        run(f"DELETE FROM {self.table.sql} WHERE view = {self.mark}", view)
