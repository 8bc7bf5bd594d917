"""Views that merge new rows into stored ones, in any SQL engine; an engine adds the SQL of its transactions and tables.

Besides the bookmarks there is a table for each time the view was built, `counters__1`, and the SQL view `counters` that
shows the current one to readers. A swap changes two rows of bookmarks and the SQL view, in one transaction. What is
stored, when two rows are merged and what readers see is said by a view's settings: see `MergedSettings`.
"""

from __future__ import annotations

import json
import re
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Final, Generic, TypeVar

from foldlog.errors import InvalidArgument, ViewUnavailable
from foldlog.views.bookmark import Bookmark
from foldlog.views.contract import Delta, Shape, Snapshot, View
from foldlog.views.sql.bookmarks import BookmarkTable, Run, StoredBookmark
from foldlog.views.sql.names import OLD, TableName, quoted

if TYPE_CHECKING:
    import pyarrow as pa

Connection = TypeVar("Connection")
Settings = TypeVar("Settings", bound="MergedSettings")

_PART_SUFFIX: Final = re.compile(r"__[0-9]+$")


@dataclass(frozen=True, slots=True)
class MergedTransaction(Generic[Connection]):
    """An open transaction: the driver's connection, and a function that runs a statement on it."""

    connection: Connection
    run: Run


class MergedSettings(ABC):
    """What a merged view stores, beside its bookmark: the rule by which it merges."""

    @property
    @abstractmethod
    def groups(self) -> tuple[str, ...]:
        """The columns that make a stored row unique; null is a value like any other."""

    @abstractmethod
    def stored(self) -> pa.Schema:
        """The columns of the table, without lists, structs and maps."""

    @abstractmethod
    def shown(self) -> pa.Schema:
        """The columns that a reader sees."""

    @abstractmethod
    def to_json(self) -> str:
        """The form in which the view stores it."""

    @abstractmethod
    def fitted(self, rows: pa.Table, location: str) -> pa.Table:
        """A range's rows, as `merged` takes them."""

    @abstractmethod
    def merged(self, rows: pa.Table) -> pa.Table:
        """Rows of which no two are to be merged. ArithmeticError, in one sentence, if the result has no place."""

    @abstractmethod
    def met(self, same: str, table: TableName, *, seeks: bool = False) -> list[str]:
        """Conditions in SQL, of which a row of the table, aliased `kept`, meets one if it is to be merged with a row of
        `new`. `same` compares two values that may be null. With `seeks`, an engine that has an index of the groups
        does not read more of a group than it has to.
        """

    def asked(self) -> list[str]:
        """The columns of a range's rows that `met` needs."""
        return list(self.groups)

    @abstractmethod
    def to_stored(self, rows: pa.Table) -> pa.Table:
        """Merged rows as rows of the table. ArithmeticError, in one sentence, if one cannot be kept."""

    @abstractmethod
    def from_stored(self, rows: pa.Table) -> pa.Table:
        """The inverse of `to_stored`."""

    def alike(self, names: Sequence[str], same: str) -> str:
        """The condition in SQL that rows of `kept` and `new` agree in these columns."""
        return " AND ".join(f"kept.{quoted(name)} {same} new.{quoted(name)}" for name in names) or "TRUE"


@dataclass(frozen=True, slots=True)
class StoredRows(Generic[Settings]):
    """A decoded entry of the bookmark table. `table` holds the rows."""

    bookmark: Bookmark
    number: int
    settings: Settings
    table: TableName


class MergedView(View, Generic[Connection, Settings]):
    """`table` is the name for readers; `label` distinguishes a shadow from the view itself."""

    stored_kind: ClassVar[str]
    """The kind among the bookmarks."""

    def __init__(self, table: TableName, label: str | None) -> None:
        if _PART_SUFFIX.search(table.name):
            raise InvalidArgument(f"{table.name!r} cannot name {self.kind}: so end the tables that hold their parts")
        self._table = table
        self._label = label

    @property
    def place(self) -> str:
        return f"{self.kind} {self._named} in {self._where}"

    @property
    def _named(self) -> str:
        return self._name

    @property
    @abstractmethod
    def _where(self) -> str:
        """The database, without passwords."""

    @abstractmethod
    def _wanted(self, shape: Shape) -> Settings:
        """The settings for rows of this shape."""

    @abstractmethod
    def _settings_from(self, text: str) -> Settings:
        """The inverse of `MergedSettings.to_json`."""

    @abstractmethod
    def _reconcile(self, run: Run, stored: StoredRows[Settings], wanted: Settings) -> None:
        """Change the table so that it has what is wanted; SchemaChanged if it cannot."""

    @abstractmethod
    def _selection(self, stored: StoredRows[Settings]) -> str:
        """The SELECT of the readers' SQL view."""

    @abstractmethod
    def _contents(self, transaction: MergedTransaction[Connection], stored: StoredRows[Settings]) -> Iterator[Any]:
        """All rows in batches, as a reader sees them."""

    @property
    @abstractmethod
    def _bookmarks(self) -> BookmarkTable: ...

    @abstractmethod
    def _exists(self) -> bool:
        """Whether there may be something to read; False if there certainly is nothing."""

    @abstractmethod
    def _writing(self, *, create: bool = False) -> AbstractContextManager[MergedTransaction[Connection]]:
        """A transaction that excludes other writers, durable when it ends."""

    @abstractmethod
    def _reading(self) -> AbstractContextManager[MergedTransaction[Connection]]:
        """A transaction on its own connection that reads one state of the database."""

    @abstractmethod
    def _has_bookmarks(self, run: Run) -> bool:
        """Whether the table of bookmarks exists."""

    @abstractmethod
    def _make_table(self, run: Run, stored: StoredRows[Settings]) -> None:
        """Create the empty table."""

    @abstractmethod
    def _take(
        self, transaction: MergedTransaction[Connection], stored: StoredRows[Settings], keys: pa.Table
    ) -> pa.Table:
        """Remove the rows that are to be merged with these, and return them; `keys` has the columns that say which."""

    @abstractmethod
    def _put(self, transaction: MergedTransaction[Connection], stored: StoredRows[Settings], rows: pa.Table) -> None:
        """Insert rows of groups that the table does not have."""

    @abstractmethod
    def _read(
        self, transaction: MergedTransaction[Connection], statement: str, schema: pa.Schema
    ) -> Iterator[pa.RecordBatch]:
        """What a SELECT gives, in batches."""

    @abstractmethod
    def _sql_type(self, kind: Any) -> str:
        """The engine's name of an Arrow type."""

    @abstractmethod
    def _another(self, label: str) -> MergedView[Connection, Settings]:
        """A copy with another label."""

    def _make_view(self, run: Run, stored: StoredRows[Settings], _shown_before: Settings | None) -> None:
        """Create or replace the readers' SQL view."""
        run(f"DROP VIEW IF EXISTS {self._table.sql}")
        run(f"CREATE VIEW {self._table.sql} AS {self._selection(stored)}")

    def _drop_view(self, run: Run) -> None:
        run(f"DROP VIEW IF EXISTS {self._table.sql}")

    @property
    def _name(self) -> str:
        """The name among the bookmarks."""
        return self._table.name if self._label is None else f"{self._table.name}__{self._label}"

    def bookmark(self) -> Bookmark | None:
        if not self._exists():
            return None
        with self._reading() as transaction:
            stored = self._find(transaction.run)
        return None if stored is None else stored.bookmark

    def prepare(self, shape: Shape, start: Bookmark, *, loading: bool = False) -> Bookmark:
        wanted = self._wanted(shape)
        with self._writing(create=True) as transaction:
            run = transaction.run
            self._bookmarks.create(run)
            stored = self._find(run)
            if stored is not None:
                self._reconcile(run, stored, wanted)
                return stored.bookmark
            number = self._free_number(run)
            stored = StoredRows(start, number, wanted, self._table.beside(f"__{number}"))
            self._make_table(run, stored)
            if self._label is None:
                self._make_view(run, stored, None)
            self._bookmarks.add(run, self._name, self._entry(stored))
            return start

    def apply(self, delta: Delta, expected: Bookmark, new: Bookmark) -> None:
        with self._writing() as transaction:
            stored = self._understood(self._bookmarks.expect(transaction.run, self._name, self.place, expected))
            if delta.rows.num_rows:
                self._merge(transaction, stored, stored.settings.fitted(delta.rows, self.place))
            self._bookmarks.set_bookmark(transaction.run, self._name, new)

    def _merge(self, transaction: MergedTransaction[Connection], stored: StoredRows[Settings], rows: pa.Table) -> None:
        """Take the stored rows that are to be merged with these, merge them in Arrow, and put the result back."""
        import pyarrow as pa

        settings = stored.settings
        try:
            rows = settings.merged(rows)
            known = settings.from_stored(self._take(transaction, stored, rows.select(settings.asked())))
            rows = settings.to_stored(settings.merged(pa.concat_tables([known, rows])))
        except ArithmeticError as error:
            raise ViewUnavailable(self.place, str(error)) from error
        self._put(transaction, stored, rows)

    def move(self, expected: Bookmark, new: Bookmark) -> None:
        with self._writing() as transaction:
            self._bookmarks.expect(transaction.run, self._name, self.place, expected)
            self._bookmarks.set_bookmark(transaction.run, self._name, new)

    def shadow(self, label: str) -> View:
        return self._another(label)

    def swap(self, shadow: View) -> None:
        if not isinstance(shadow, type(self)) or shadow._table != self._table or shadow._label == self._label:
            raise InvalidArgument(f"{shadow.place} is no shadow of {self.place}")
        with self._writing() as transaction:
            run = transaction.run
            new, old = self._find(run, shadow._name), self._find(run)
            if new is None:
                raise ViewUnavailable(self.place, f"there is no {shadow._name} to put in its place")
            self._make_view(run, new, None if old is None else old.settings)
            if old is not None:
                self._drop_stored(run, self._name + OLD)
                self._bookmarks.rename(run, self._name, self._name + OLD)
            self._bookmarks.rename(run, shadow._name, self._name)

    def drop_old(self) -> bool:
        if not self._exists():
            return False
        with self._writing() as transaction:
            return self._drop_stored(transaction.run, self._name + OLD)

    def drop(self) -> None:
        if not self._exists():
            return
        with self._writing() as transaction:
            run = transaction.run
            if self._label is None and self._find(run) is not None:
                self._drop_view(run)
            for name in (self._name, self._name + OLD):
                self._drop_stored(run, name)

    def scan(self) -> Snapshot:
        batches = self._scan()
        bookmark = next(batches)
        return Snapshot(bookmark, batches)

    def _scan(self) -> Iterator[Any]:
        """Yields the bookmark, then the rows, in one transaction."""
        if not self._exists():
            raise self._missing()
        with self._reading() as transaction:
            stored = self._find(transaction.run)
            if stored is None:
                raise self._missing()
            yield stored.bookmark
            yield from self._contents(transaction, stored)

    def _missing(self) -> ViewUnavailable:
        return ViewUnavailable(self.place, "it does not exist yet; run the fold to make it")

    def _find(self, run: Run, name: str | None = None) -> StoredRows[Settings] | None:
        if not self._has_bookmarks(run):
            return None
        entry = self._bookmarks.read(run, name or self._name)
        return None if entry is None else self._understood(entry)

    def _entry(self, stored: StoredRows[Settings]) -> StoredBookmark:
        settings = json.dumps({"number": stored.number, self.stored_kind: stored.settings.to_json()})
        return StoredBookmark(self.stored_kind, stored.bookmark, settings)

    def _understood(self, entry: StoredBookmark) -> StoredRows[Settings]:
        if entry.kind != self.stored_kind:
            raise ViewUnavailable(self.place, f"there is a {entry.kind} of the same name; choose another name=")
        fields = json.loads(entry.settings)
        number = int(fields["number"])
        settings = self._settings_from(fields[self.stored_kind])
        return StoredRows(entry.bookmark, number, settings, self._table.beside(f"__{number}"))

    def _free_number(self, run: Run) -> int:
        """The first number after those of the view, its shadows and what a swap kept."""
        found = run(f"SELECT view, settings FROM {self._bookmarks.table.sql} WHERE kind = '{self.stored_kind}'")
        name = self._table.name
        own = [settings for view, settings in found if view == name or view.startswith(f"{name}__")]
        return 1 + max((int(json.loads(settings)["number"]) for settings in own), default=0)

    def _drop_stored(self, run: Run, name: str) -> bool:
        stored = self._find(run, name)
        if stored is None:
            return False
        run(f"DROP TABLE {stored.table.sql}")
        self._bookmarks.remove(run, name)
        return True
