"""Counters in any SQL engine; an engine adds the SQL of its transactions, tables and merges.

Besides the bookmarks there is a table with the partial results for each time the counters were built, `counters__1`,
and the SQL view `counters` that shows the current one. A swap changes two rows of bookmarks and the SQL view, in one
transaction. There is one row for each group, with null as a value like any other.
"""

from __future__ import annotations

import json
import re
from abc import abstractmethod
from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Final, Generic, TypeVar

from foldlog.errors import InvalidArgument, ViewUnavailable
from foldlog.views.bookmark import Bookmark
from foldlog.views.contract import Delta, Shape, Snapshot, View
from foldlog.views.counters.measures import Aggregation
from foldlog.views.counters.merging import merged
from foldlog.views.counters.settings import CounterSettings
from foldlog.views.counters.windows import WINDOW_END, WINDOW_START
from foldlog.views.sql.bookmarks import BookmarkTable, Run, StoredBookmark
from foldlog.views.sql.names import OLD, TableName, quoted

if TYPE_CHECKING:
    import pyarrow as pa

Connection = TypeVar("Connection")

KIND: Final = "counters"

_PART_SUFFIX: Final = re.compile(r"__[0-9]+$")


@dataclass(frozen=True, slots=True)
class CountersTransaction(Generic[Connection]):
    """An open transaction: the driver's connection, and a function that runs a statement on it."""

    connection: Connection
    run: Run


@dataclass(frozen=True, slots=True)
class StoredCounters:
    """A decoded entry of the bookmark table. `table` holds the partial results."""

    bookmark: Bookmark
    number: int
    settings: CounterSettings
    table: TableName

    def to_entry(self) -> StoredBookmark:
        settings = json.dumps({"number": self.number, "counters": self.settings.to_json()})
        return StoredBookmark(KIND, self.bookmark, settings)

    def merged(self, new: str) -> str:
        """The assignments of an UPDATE of the table, aliased `kept`, that merge the partial results of `new` into it. A
        null on one side leaves the other's value."""
        parts = []
        for name, how, _ in self.settings.aggregation.partials():
            here, there = f"kept.{quoted(name)}", f"{new}.{quoted(name)}"
            if how in ("count", "sum"):
                both = f"coalesce({here} + {there}, {here}, {there})"
            else:
                both = f"{'least' if how == 'min' else 'greatest'}({here}, {there})"
            parts.append(f"{quoted(name)} = {both}")
        return ", ".join(parts)

    def met(self, same: str, *, seeks: bool = False) -> list[str]:
        """Conditions of which a row of the table, aliased `kept`, has to meet one, to be merged with a row of `new`:
        it is of the same group, or a session that overlaps. `same` compares two values that may be null. With `seeks`,
        an engine with an index of the groups reads only around a session, and not from its group's first one.
        """
        by = self.settings.aggregation.by
        alike = [f"kept.{quoted(name)} {same} new.{quoted(name)}" for name in by]
        start, end = quoted(WINDOW_START), quoted(WINDOW_END)
        if self.settings.aggregation.sessions is None:
            alike += [f"kept.{quoted(name)} {same} new.{quoted(name)}" for name in self.settings.groups[len(by) :]]
            return [" AND ".join(alike) or "TRUE"]
        overlapping = [*alike, f"kept.{start} < new.{end}", f"kept.{end} > new.{start}"]
        if seeks:
            # The only session that begins before and may reach here is the last of those: no two of them overlap.
            older = " AND ".join([*(f"older.{quoted(name)} {same} new.{quoted(name)}" for name in by), "TRUE"])
            overlapping.append(
                f"kept.{start} >= coalesce((SELECT max(older.{start}) FROM {self.table.sql} AS older"
                f" WHERE {older} AND older.{start} <= new.{start}), new.{start})"
            )
        return [" AND ".join(overlapping), " AND ".join([*alike, f"kept.{start} IS NULL", f"new.{start} IS NULL"])]


class CountersView(View, Generic[Connection]):
    """`table` is the name for readers; `label` distinguishes a shadow from the view itself."""

    kind: ClassVar[str] = KIND
    adds: bool = True
    aggregation: Aggregation

    def __init__(self, table: TableName, aggregation: Aggregation, label: str | None) -> None:
        if _PART_SUFFIX.search(table.name):
            raise InvalidArgument(f"{table.name!r} cannot name counters: so end the tables that hold their parts")
        self._table = table
        self._label = label
        self.aggregation = aggregation

    @property
    @abstractmethod
    def _bookmarks(self) -> BookmarkTable: ...

    @abstractmethod
    def _exists(self) -> bool:
        """Whether there may be something to read; False if there certainly is nothing."""

    @abstractmethod
    def _writing(self, *, create: bool = False) -> AbstractContextManager[CountersTransaction[Connection]]:
        """A transaction that excludes other writers, durable when it ends."""

    @abstractmethod
    def _reading(self) -> AbstractContextManager[CountersTransaction[Connection]]:
        """A transaction on its own connection that reads one state of the database."""

    @abstractmethod
    def _has_bookmarks(self, run: Run) -> bool:
        """Whether the table of bookmarks exists."""

    @abstractmethod
    def _make_table(self, run: Run, stored: StoredCounters) -> None:
        """Create the empty table of partial results."""

    @abstractmethod
    def _merge(self, transaction: CountersTransaction[Connection], stored: StoredCounters, rows: pa.Table) -> None:
        """Insert rows of new groups, and merge those of known ones; `rows` is in the types of the table. Only for
        settings that merge in SQL.
        """

    @abstractmethod
    def _take(self, transaction: CountersTransaction[Connection], stored: StoredCounters, keys: pa.Table) -> pa.Table:
        """Remove the rows that are to be merged with these, and return them; `keys` has the columns that say which."""

    @abstractmethod
    def _put(self, transaction: CountersTransaction[Connection], stored: StoredCounters, rows: pa.Table) -> None:
        """Insert rows of groups that the table does not have."""

    @abstractmethod
    def _read(self, transaction: CountersTransaction[Connection], stored: StoredCounters) -> Iterator[pa.RecordBatch]:
        """The whole table, in its types."""

    @abstractmethod
    def _mean(self, name: str, stored: StoredCounters) -> str:
        """The SQL of a mean for the readers' view."""

    @abstractmethod
    def _another(self, label: str) -> CountersView[Connection]:
        """A copy with another label."""

    def _make_view(self, run: Run, stored: StoredCounters, _shown_before: CounterSettings | None) -> None:
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
        wanted = CounterSettings(self.aggregation, shape.columns)
        expected = self.aggregation.columns()
        if shape.columns.names != expected:
            raise InvalidArgument(f"counters are fed the columns {', '.join(expected)}: see check_aggregation")
        with self._writing(create=True) as transaction:
            run = transaction.run
            self._bookmarks.create(run)
            stored = self._find(run)
            if stored is not None:
                stored.settings.refuse_change(wanted, self.place)
                return stored.bookmark
            number = self._free_number(run)
            stored = StoredCounters(start, number, wanted, self._table.beside(f"__{number}"))
            self._make_table(run, stored)
            if self._label is None:
                self._make_view(run, stored, None)
            self._bookmarks.add(run, self._name, stored.to_entry())
            return start

    def apply(self, delta: Delta, expected: Bookmark, new: Bookmark) -> None:
        with self._writing() as transaction:
            stored = self._understood(self._bookmarks.expect(transaction.run, self._name, self.place, expected))
            if delta.rows.num_rows:
                rows = stored.settings.fitted(delta.rows, self.place)
                if stored.settings.merges_in_sql:
                    self._merge(transaction, stored, rows)
                else:
                    self._exchange(transaction, stored, rows)
            self._bookmarks.set_bookmark(transaction.run, self._name, new)

    def _exchange(self, transaction: CountersTransaction[Connection], stored: StoredCounters, rows: pa.Table) -> None:
        """Merge rows that no SQL can merge: sessions, which change their groups, and states."""
        import pyarrow as pa

        settings = stored.settings
        ends = [WINDOW_END] if settings.aggregation.sessions is not None else []
        try:
            rows = merged(rows, settings.aggregation)
            known = settings.from_stored(self._take(transaction, stored, rows.select([*settings.groups, *ends])))
            rows = settings.to_stored(merged(pa.concat_tables([known, rows]), settings.aggregation))
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
            for batch in self._read(transaction, stored):
                yield stored.settings.show(batch)

    def _missing(self) -> ViewUnavailable:
        return ViewUnavailable(self.place, "there are no such counters; run the fold to make them")

    def _find(self, run: Run, name: str | None = None) -> StoredCounters | None:
        if not self._has_bookmarks(run):
            return None
        entry = self._bookmarks.read(run, name or self._name)
        return None if entry is None else self._understood(entry)

    def _understood(self, entry: StoredBookmark) -> StoredCounters:
        if entry.kind != KIND:
            raise ViewUnavailable(self.place, f"there is a {entry.kind} of the same name; choose another name=")
        fields = json.loads(entry.settings)
        number = int(fields["number"])
        settings = CounterSettings.from_json(fields["counters"])
        return StoredCounters(entry.bookmark, number, settings, self._table.beside(f"__{number}"))

    def _free_number(self, run: Run) -> int:
        """The first number after those of the view, its shadows and what a swap kept."""
        found = run(f"SELECT view, settings FROM {self._bookmarks.table.sql} WHERE kind = '{KIND}'")
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

    def _selection(self, stored: StoredCounters) -> str:
        """The SELECT of the readers' SQL view."""
        ends = [WINDOW_END] if stored.settings.aggregation.sessions is not None else []
        columns = [quoted(name) for name in (*stored.settings.groups, *ends)]
        for name, measure in stored.settings.aggregation.measures.items():
            shown = self._mean(name, stored) if measure.kind == "avg" else quoted(name)
            columns.append(f"{shown} AS {quoted(name)}")
        return f"SELECT {', '.join(columns)} FROM {stored.table.sql}"
