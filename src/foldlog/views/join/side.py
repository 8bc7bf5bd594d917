"""A join of two topics, kept in a table: `JoinSide` is the view through which one of the topics changes it.

Three tables belong to a join: the joined rows, and the rows of either side, which are kept so that a late one finds its
partners. A range of one topic changes its side, the joined rows, and that topic's part of the bookmark, in one
transaction. So the joined table always is the join of what was read of both topics, whichever is ahead.

The whole (reading, shadows, the swap, dropping) is the same for both sides; bookmark and changes are each side's own.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

from foldlog.errors import InvalidArgument, StaleBookmark, ViewUnavailable
from foldlog.views.bookmark import Bookmark
from foldlog.views.contract import RECORD, Delta, Shape, Snapshot, View
from foldlog.views.join.rows import SideChange, side_change
from foldlog.views.join.state import (
    JOIN_KIND,
    Declared,
    JoinState,
    check_same,
    decide_side,
    grown_side,
)
from foldlog.views.join.statements import JoinStatements, JoinTables
from foldlog.views.sql.bookmarks import BookmarkTable, Run
from foldlog.views.sql.names import OLD, TableName

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True)
class Writing:
    """An open transaction of an engine."""

    run: Run
    connection: object
    tables: JoinTables
    bookmarks: BookmarkTable


class JoinStore(ABC):
    """What differs between engines. Keeps one connection; used by one thread at a time."""

    engine: ClassVar[str]
    holds_nul: ClassVar[bool]
    has_lateral: ClassVar[bool]

    location: str

    @property
    @abstractmethod
    def table_name(self) -> str:
        """The joined table's, without its schema."""

    @abstractmethod
    def exists(self) -> bool:
        """Whether the database exists, as far as that can be known without creating it."""

    @abstractmethod
    def writing(self, *, create: bool = False) -> AbstractContextManager[Writing]:
        """A transaction that is committed, durably, at its end. With `create`, the database and the bookmark table are
        made if they are missing, and no other process makes views at the same time.
        """

    @abstractmethod
    def reading(self) -> AbstractContextManager[Writing]:
        """A transaction that reads one state, and changes nothing."""

    @abstractmethod
    def has_table(self, run: Run, table: TableName) -> bool: ...

    @abstractmethod
    def create_side(self, run: Run, table: TableName, columns: pa.Schema) -> None: ...

    @abstractmethod
    def create_joined(self, run: Run, table: TableName, columns: pa.Schema) -> None: ...

    @abstractmethod
    def add_column(self, run: Run, table: TableName, field: pa.Field) -> None: ...

    @abstractmethod
    def begin_change(self, writing: Writing, change: SideChange) -> None:
        """Make the temporary tables of a change, and fill the one of its records."""

    @abstractmethod
    def fill(self, writing: Writing, table: TableName, rows: pa.Table) -> None:
        """Insert the rows."""

    @abstractmethod
    def batches(self, writing: Writing, table: TableName, columns: pa.Schema) -> Iterator[pa.RecordBatch]: ...

    @abstractmethod
    def check_swap(self, writing: Writing, state: JoinState) -> None: ...

    @abstractmethod
    def swap(self, writing: Writing, shadow: JoinStore, state: JoinState | None) -> None:
        """Give the shadow's tables the names of these, and these the names of the old ones."""

    @abstractmethod
    def drop_table(self, run: Run, table: TableName) -> None: ...

    @abstractmethod
    def beside(self, ending: str) -> JoinStore:
        """A store of this kind under another name, beside this one."""

    @abstractmethod
    def another(self) -> JoinStore:
        """This store through a connection of its own."""

    @abstractmethod
    def description(self) -> dict[str, object]: ...

    def size_bytes(self) -> int | None:
        """The size of all tables; None if the file's is meant."""
        return None

    def holds_unicode(self) -> bool:
        return True

    def unheld_characters(self, characters: frozenset[str]) -> frozenset[str]:
        return frozenset()

    @abstractmethod
    def close(self) -> None: ...

    # --- shared -------------------------------------------------------------------------------------------------------

    def state(self, writing: Writing, *, for_change: bool = False) -> JoinState | None:
        """What is stored of the join; with `for_change`, nobody else changes it until the transaction ends."""
        if not self.has_table(writing.run, writing.bookmarks.table):
            return None
        found = writing.bookmarks.row(writing.run, writing.tables.joined.name, for_change=for_change)
        if found is None:
            return None
        kind, bookmarks, settings = found
        if kind != JOIN_KIND:
            raise ViewUnavailable(self.location, f"it belongs to a view of another kind ({kind}); choose another name")
        return JoinState.from_json(bookmarks, settings, self.location)

    def expect(self, writing: Writing, side: int, expected: Bookmark) -> JoinState:
        """The state, locked; StaleBookmark unless that side stands where it is expected."""
        state = self.state(writing, for_change=True)
        stored = None if state is None else state.bookmarks[side]
        if state is None or stored is None:
            raise StaleBookmark(self.location, "no bookmark, as if it had been dropped,", expected.to_json())
        if stored != expected:
            raise StaleBookmark(self.location, stored.to_json(), expected.to_json())
        return state

    def store(self, writing: Writing, state: JoinState) -> None:
        name = writing.tables.joined.name
        writing.bookmarks.set_row(writing.run, name, state.bookmarks_json(), state.settings_json())

    def statements(self, writing: Writing, state: JoinState) -> JoinStatements:
        return JoinStatements(writing.tables, state, self.has_lateral)

    def join_all(self, writing: Writing, state: JoinState) -> None:
        """Join both sides as they are."""
        if state.result is not None:
            for statement in self.statements(writing, state).all():
                writing.run(statement)

    def change(self, writing: Writing, state: JoinState, side: int, change: SideChange) -> None:
        """Change a side, and what it is joined to. While it is loading, or alone, only the side."""
        if not change.records.num_rows:
            return
        self.begin_change(writing, change)
        statements = self.statements(writing, state)
        is_joined = state.result is not None and not state.is_loading
        if is_joined:
            for statement in statements.before(side):
                writing.run(statement)
        writing.run(statements.removed(side))
        self.fill(writing, writing.tables.side(side), change.rows)
        if is_joined:
            for statement in statements.after(side):
                writing.run(statement)

    def drop(self) -> bool:
        """Remove everything. Whether there was something."""
        if not self.exists():
            return False
        with self.writing() as writing:
            if self.state(writing, for_change=True) is None:
                return False
            t = writing.tables
            for table in (t.joined, t.left, t.right):
                self.drop_table(writing.run, table)
            writing.bookmarks.remove(writing.run, t.joined.name)
            return True


class JoinSide(View):
    """The join in `store`, as the topic of one side changes it. Each side has a store, and so a connection, of its own;
    `declared` is common to both.
    """

    kind: ClassVar[str] = "table"

    def __init__(self, store: JoinStore, side: int, are_keyed: tuple[bool, bool], declared: Declared) -> None:
        self.store = store
        self.declared = declared
        self._side = side
        self._are_keyed = are_keyed
        # Whether a side has keys is its topic's matter, and what texts it holds the engine's.
        self.is_keyed = are_keyed[side]  # type: ignore[misc]
        self.holds_nul = store.holds_nul  # type: ignore[misc]

    @property
    def place(self) -> str:
        return self.store.location

    def description(self) -> dict[str, object] | None:
        return self.store.description()

    def bookmark(self) -> Bookmark | None:
        if not self.store.exists():
            return None
        with self.store.reading() as reading:
            state = self.store.state(reading)
            return None if state is None else state.bookmarks[self._side]

    def filled(self, shape: Shape) -> tuple[str, ...]:
        return () if shape.record_key in (None, RECORD) else (str(shape.record_key),)

    def holds_unicode(self) -> bool:
        return self.store.holds_unicode()

    def unheld_characters(self, characters: frozenset[str]) -> frozenset[str]:
        return self.store.unheld_characters(characters)

    def prepare(self, shape: Shape, start: Bookmark, *, loading: bool = False) -> Bookmark:
        spec = self.declared.spec(self.place)
        if not self.is_keyed:
            shape = replace(shape, record_key=None, key=())
        wanted = decide_side(shape, spec, self._side, self.place)
        with self.store.writing(create=True) as writing:
            found = self.store.state(writing, for_change=True)
            if found is None:
                found = JoinState.new(spec, loading=loading)
                name = writing.tables.joined.name
                writing.bookmarks.add_row(writing.run, name, JOIN_KIND, found.bookmarks_json(), found.settings_json())
            check_same(found, spec, self.place, loading=loading)
            there = found.sides[self._side]
            bookmark = found.bookmarks[self._side] or start
            grown = wanted if there is None else grown_side(there, wanted, self.place)
            state = found.with_side(self._side, grown).at(self._side, bookmark).joined(self.place)
            if state != found:
                self._make(writing, found, state)
                self.store.store(writing, state)
            return bookmark

    def _make(self, writing: Writing, before: JoinState, now: JoinState) -> None:
        """Make the tables and columns that are new. As soon as both sides are there, they are joined."""
        store, run, t = self.store, writing.run, writing.tables
        mine = t.side(self._side)
        there, wanted = before.sides[self._side], now.side(self._side, self.place)
        if there is None:
            self._refuse_taken(writing, mine)
            store.create_side(run, mine, wanted.stored(now.spec))
        else:
            for field in wanted.own:
                if field.name not in there.columns.names:
                    store.add_column(run, mine, field)
        if now.result is None:
            return
        if before.result is None:
            self._refuse_taken(writing, t.joined)
            store.create_joined(run, t.joined, now.result)
            if not now.is_loading:
                store.join_all(writing, now)
        else:
            for field in now.result:
                if field.name not in before.result.names:
                    store.add_column(run, t.joined, field)

    def _refuse_taken(self, writing: Writing, table: TableName) -> None:
        if self.store.has_table(writing.run, table):
            raise ViewUnavailable(
                self.place, f"{table} is there already, and this fold did not make it; choose another name"
            )

    def apply(self, delta: Delta, expected: Bookmark, new: Bookmark) -> None:
        with self.store.writing() as writing:
            state = self.store.expect(writing, self._side, expected)
            shape = state.side(self._side, self.place)
            change = side_change(delta, shape, state.spec, self._side, self.place)
            self.store.change(writing, state, self._side, change)
            self.store.store(writing, state.at(self._side, new))

    def move(self, expected: Bookmark, new: Bookmark) -> None:
        with self.store.writing() as writing:
            state = self.store.expect(writing, self._side, expected)
            self.store.store(writing, state.at(self._side, new))

    def finish_loading(self) -> None:
        with self.store.writing() as writing:
            state = self.store.state(writing, for_change=True)
            if state is None:
                raise ViewUnavailable(self.place, "it does not exist, so loading it cannot be finished")
            if state.is_loading:
                self.store.join_all(writing, state)
                self.store.store(writing, replace(state, is_loading=False))

    def shadow(self, label: str) -> JoinSide:
        return JoinSide(self.store.beside(f"__{label}"), self._side, self._are_keyed, self.declared)

    def check_swap(self) -> None:
        with self.store.reading() as reading:
            state = self.store.state(reading)
            if state is not None:
                self.store.check_swap(reading, state)

    def swap(self, shadow: View) -> None:
        if not isinstance(shadow, JoinSide) or type(shadow.store) is not type(self.store):
            raise InvalidArgument(f"{shadow.place} is not a shadow of {self.place}")
        with self.store.writing(create=True) as writing:
            shadow_tables = replace(writing.tables, joined=shadow.store_table(writing))
            beside = replace(writing, tables=shadow_tables)
            replacing = shadow.store.state(beside, for_change=True)
            if replacing is None or replacing.is_loading or replacing.result is None:
                raise ViewUnavailable(shadow.place, "it is not there, or not loaded yet, so it cannot take a place")
            self.store.swap(writing, shadow.store, self.store.state(writing, for_change=True))
            name, old = writing.tables.joined.name, writing.tables.joined.beside(OLD).name
            writing.bookmarks.rename(writing.run, name, old)
            writing.bookmarks.rename(writing.run, shadow_tables.joined.name, name)

    def store_table(self, writing: Writing) -> TableName:
        """The joined table's name, in the schema of a transaction of another store."""
        return TableName(self.store.table_name, writing.tables.joined.schema)

    def drop_old(self) -> bool:
        old = self.store.beside(OLD)
        try:
            return old.drop()
        finally:
            old.close()

    def drop(self) -> None:
        self.store.drop()

    def scan(self) -> Snapshot:
        # One generator holds the transaction from here to the last batch, or until it is closed.
        parts = self._scan(self.store.another())
        first = next(parts)
        if not isinstance(first, JoinState):
            raise ViewUnavailable(self.place, "it has no bookmark; run the fold to make it")
        mine, other = first.bookmarks[self._side], first.bookmarks[1 - self._side]
        if mine is None or other is None:
            raise ViewUnavailable(self.place, "only one side of the join is there yet; run the fold")
        return Snapshot(mine, parts, (other,))  # after the state, only batches

    def _scan(self, store: JoinStore) -> Iterator[JoinState | pa.RecordBatch | None]:
        try:
            if not store.exists():
                yield None
                return
            with store.reading() as reading:
                state = store.state(reading)
                yield state
                if state is not None and state.result is not None:
                    yield from store.batches(reading, reading.tables.joined, state.result)
        finally:
            store.close()

    def size_bytes(self) -> int | None:
        found = self.store.size_bytes()
        return super().size_bytes() if found is None else found

    def close(self) -> None:
        self.store.close()


def join_sides(make: Callable[[], JoinStore], are_keyed: tuple[bool, bool], key: tuple[str, ...]) -> tuple[View, View]:
    """Both sides of a join. `key` is what the user named for a table."""
    if key:
        raise InvalidArgument("a join knows its rows by the records of both sides; leave out key= of its table")
    declared = Declared()
    left, right = (JoinSide(make(), side, are_keyed, declared) for side in (0, 1))
    return left, right
