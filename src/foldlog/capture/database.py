"""The contract of a database that is captured: which tables it has, their rows at one moment, and the changes after it.

Values are fragments of JSON: each column's text is turned into JSON once, by its type, and a row is those texts joined.
So what the database printed is what stands in the record, digit by digit.

A position is a number that grows with every commit: PostgreSQL's LSN, a place in MySQL's binlog, or the number of a
change in SQLite. A change
belongs to the transaction that committed at a position; a snapshot holds what was committed before its own.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Generator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from json.encoder import encode_basestring as json_text
from typing import Final, NamedTuple, Protocol

Fragments = Sequence[str | None]
"""A row: JSON for each column. None if the database did not say the value, because it has not changed."""

INSERT: Final = "c"
UPDATE: Final = "u"
DELETE: Final = "d"
READ: Final = "r"
"""Operations, by Debezium's letters. READ is a row of a snapshot."""


class RowLayout:
    """The columns of a table at one moment, in the table's order, and which of them are the key."""

    __slots__ = ("_members", "columns", "key_names", "keys", "schema", "table")

    def __init__(self, schema: str, table: str, columns: Sequence[str], keys: Sequence[str]) -> None:
        self.schema = schema
        self.table = table
        self.columns = tuple(columns)
        self.key_names = tuple(keys)
        self.keys = tuple(self.columns.index(name) for name in keys)
        self._members = tuple(f"{json_text(name)}:" for name in self.columns)

    def document(self, row: Fragments) -> str:
        """The row as an object of JSON.

        >>> RowLayout("public", "items", ["id", "name"], ["id"]).document(["1", '"tea"'])
        '{"id":1,"name":"tea"}'
        """
        return "{" + ",".join([name + (value or "null") for name, value in zip(self._members, row, strict=True)]) + "}"

    def key_document(self, row: Fragments) -> str:
        """Its key alone, as an object.

        >>> RowLayout("public", "items", ["id", "name"], ["id"]).key_document(["1", '"tea"'])
        '{"id":1}'
        """
        return "{" + ",".join([self._members[index] + (row[index] or "null") for index in self.keys]) + "}"


class Table(NamedTuple):
    """A table that is captured. Its id stays when it is renamed, and another table of its name has another."""

    id: str
    schema: str
    name: str
    keys: tuple[str, ...]

    @property
    def title(self) -> str:
        return f"{self.schema}.{self.name}" if self.schema else self.name


class TransactionBegins(NamedTuple):
    """A transaction that has committed at `position`; its changes follow. `number` is the database's name for it."""

    position: int
    number: int
    committed_ms: int


class RowChanged(NamedTuple):
    """One row changed. `old` is the whole row before if `is_old_whole`, else at most the key. `position` is the
    change's own."""

    op: str
    table: str
    layout: RowLayout
    old: Fragments | None
    new: Fragments | None
    is_old_whole: bool
    position: int


class TablesTruncated(NamedTuple):
    """Every row of these tables is gone."""

    tables: tuple[str, ...]


class TableReplaced(NamedTuple):
    """These tables are other ones now, or have other rows, and no change says which: they are compared again."""

    tables: tuple[str, ...]


class TransactionEnds(NamedTuple):
    """The end of a transaction. `position` is where to go on after it."""

    position: int


class NothingNew(NamedTuple):
    """Nothing is under way, and nothing of the captured tables has changed up to `position`."""

    position: int


Event = TransactionBegins | RowChanged | TablesTruncated | TableReplaced | TransactionEnds | NothingNew


class SnapshotRows(NamedTuple):
    """The rows of tables at one moment: everything that was committed before `position`, and nothing else."""

    position: int
    rows: Callable[[Table], Generator[tuple[RowLayout, Fragments], None, None]]


class SchemaMoved(Exception):
    """Raised within a stream: a table is another one now, and everything has to be prepared again. `tables` need a
    snapshot then."""

    def __init__(self, why: str, tables: frozenset[str] = frozenset()) -> None:
        super().__init__(why)
        self.tables = tables


@dataclass(frozen=True, slots=True)
class DatabaseStatus:
    """What the database tells of a capture. Sizes are None where it has none."""

    state: str
    position: int | None = None
    end: int | None = None
    lag_bytes: int | None = None
    lag_changes: int | None = None
    kept_bytes: int | None = None
    reader: str | None = None
    warning: str | None = None


class CapturedDatabase(Protocol):
    """A database, as one capture sees it. Used by one thread at a time; errors are CaptureErrors."""

    kind: str
    """Debezium's name of the connector."""

    place: str
    """For people, without a password."""

    database: str
    """Its name in records."""

    position_name: str
    """Of the position, in Debezium's `source`."""

    def wait_until_free(self) -> None:
        """CaptureRunning if another process reads the changes, and goes on doing so: before that one is fenced."""
        ...

    def identity(self) -> str:
        """Of the database itself: another one at the same place has another."""
        ...

    def why_another(self) -> str:
        """Why the identity is not what it was."""
        ...

    def tables(self) -> list[Table]:
        """Those to capture. DatabaseRefused if one of them cannot be."""
        ...

    def check_unused(self) -> None:
        """DatabaseRefused if there is something of that name in the database, which another log's capture may use."""
        ...

    def consent(self) -> str | None:
        """What `prepare` would put into the user's own tables, for a question; None if that is nothing new."""
        ...

    def stale(self, tables: Sequence[Table]) -> frozenset[str]:
        """Tables of which some changes were not kept, or not as they are now: they need a snapshot. `prepare` follows,
        once that is written down."""
        ...

    def prepare(self, tables: Sequence[Table], position: int | None, *, anew: bool) -> int:
        """Make sure that changes of these tables are kept for us from `position` on; returns it. Where it is None, or
        `anew`, they are kept from now on, and what was kept before is let go. ChangesLost if they no longer are."""
        ...

    def snapshot(self, tables: Sequence[Table]) -> AbstractContextManager[SnapshotRows]:
        """The rows of these tables at a moment after `prepare`."""
        ...

    def end(self) -> int:
        """Where the database is now: with all that committed before this call, once the stream has come so far."""
        ...

    def stream(self, position: int, snapshots: Collection[int]) -> Generator[Event, None, None]:
        """What was committed at `position` or later, no transaction of it both before and after a position of
        `snapshots`; and NothingNew before it waits, every second at the least. Goes on without end."""
        ...

    def confirm(self, position: int) -> None:
        """Everything before it is safe: the database may forget it."""
        ...

    def position_text(self, position: int) -> str:
        """As the database writes it."""
        ...

    def origin(self, layout: RowLayout, begun: TransactionBegins) -> Mapping[str, object]:
        """What Debezium's `source` says of a change, besides its name and position."""
        ...

    def status(self, position: int | None) -> DatabaseStatus: ...

    def drop(self) -> list[str]:
        """Remove from the database what `prepare` made there; returns what it was."""
        ...

    def close(self) -> None: ...
