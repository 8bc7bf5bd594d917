"""SQLite as a source. Triggers note changes in a table of the same database, in the transaction that makes them: so
what is noted has committed, and what has committed is noted.

SQLite does not say where one transaction ends and the next begins. Whoever looks sees whole ones: all that is there at
once becomes one transaction of the log. A position is the number of the next change.

The triggers know the columns that a table had when they were made. When the schema changes they are made anew, and the
table is compared with its topic.
"""

from __future__ import annotations

import json
import sqlite3
import time
import uuid
from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from threading import Event as StopEvent
from typing import TYPE_CHECKING, Any, Final

from foldlog.capture.database import (
    DELETE,
    DatabaseStatus,
    Event,
    Fragments,
    NothingNew,
    RowChanged,
    RowLayout,
    SchemaMoved,
    SnapshotRows,
    Table,
    TransactionBegins,
    TransactionEnds,
)
from foldlog.capture.from_sqlite.triggers import (
    CANDIDATE,
    PREFIX,
    TriggeredTable,
    changes_table,
    create_changes,
    fragment,
    fragments,
    trigger_prefix,
    triggers,
    value_of,
)
from foldlog.errors import CaptureError, ChangesLost, DatabaseRefused, DatabaseUnavailable
from foldlog.files.paths import is_file
from foldlog.views.sql.names import quoted

if TYPE_CHECKING:
    from foldlog.capture.declaration import Capture

LOCK_WAIT_S: Final = 30.0
"""How long a writer of the database is waited for."""

LOOK_S: Final = 0.1
"""How often a quiet database is looked at. Looking costs one question about a number in its header."""

FORGET_EVERY_S: Final = 1.0
"""How often changes that are safe in the log are deleted: each time is a transaction of the database."""

_FORGET_WAIT_MS: Final = 200

STUCK_CHANGES: Final = 1_000_000

_CAPTURES: Final = f"{PREFIX}captures"


class CapturedSqlite:
    """See `CapturedDatabase`. One connection."""

    kind = "sqlite"
    position_name = "change"

    def __init__(self, capture: Capture, tell: Callable[[str], None], stop: StopEvent) -> None:
        self._capture = capture
        self._tell = tell
        self._stop = stop
        self._changes = changes_table(capture.name)
        self._known_connection: sqlite3.Connection | None = None
        self._identity = ""
        self._shapes: dict[str, TriggeredTable] = {}
        self._stale: frozenset[str] = frozenset()
        self._safe = 0
        """Changes before this number are in the log."""
        self._forgot_s = 0.0
        self.place = capture.url
        self.database = capture.url.rpartition("/")[2]

    @property
    def _connection(self) -> sqlite3.Connection:
        if self._known_connection is None:
            if not is_file(self.place):
                raise DatabaseRefused(f"there is no SQLite database {self.place}")
            self._known_connection = sqlite3.connect(self.place, timeout=LOCK_WAIT_S, isolation_level=None)
        return self._known_connection

    def _ask(self, text: str, arguments: Sequence[object] = ()) -> list[tuple[Any, ...]]:
        with self._told():
            return self._connection.execute(text, arguments).fetchall()

    @contextmanager
    def _told(self) -> Iterator[None]:
        """SQLite's errors as sentences."""
        try:
            yield
        except sqlite3.OperationalError as error:
            if "locked" in str(error) or "busy" in str(error):
                raise DatabaseUnavailable(
                    self.place, f"another process holds its lock for more than {LOCK_WAIT_S:.0f} s"
                ) from error
            raise DatabaseRefused(f"{self.place}: {error}; the capture needs to read and write it") from error
        except sqlite3.DatabaseError as error:
            raise DatabaseRefused(f"{self.place} cannot be read: {error}") from error

    @contextmanager
    def _transaction(self, kind: str) -> Iterator[None]:
        """All of the block, or nothing of it."""
        with self._told():
            self._connection.execute(f"BEGIN {kind}")
            try:
                yield
            except BaseException:
                self._connection.rollback()
                raise
            self._connection.commit()

    # --- what there is --------------------------------------------------------------------------------------------

    def identity(self) -> str:
        if not self._identity and self._has(_CAPTURES):
            rows = self._ask(f"SELECT id FROM {_CAPTURES} WHERE name = ?", (self._capture.name,))
            self._identity = rows[0][0] if rows else ""
        self._identity = self._identity or uuid.uuid4().hex  # written by `prepare`
        return self._identity

    def why_another(self) -> str:
        if self._has(self._changes):
            return f"{self.place} is another database than the one that was captured before"
        return f"its triggers and its table {self._changes} are not in {self.place}"

    def _has(self, name: str) -> bool:
        return bool(self._ask("SELECT 1 FROM sqlite_master WHERE name = ?", (name,)))

    def tables(self) -> list[Table]:
        there = [
            name
            for (name,) in self._ask("SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name")
            if not name.startswith((PREFIX, "sqlite_")) and self._sql_of(name).upper().find("CREATE VIRTUAL") < 0
        ]
        for name in self._capture.tables:
            if name not in there:
                raise DatabaseRefused(
                    f"there is no table {name!r} in {self.place}; there are {', '.join(there) or 'none'}"
                )
        found: list[Table] = []
        for name in self._capture.tables or there:
            shape = self._shape(name)
            if shape.keys:
                self._shapes[name] = shape
                found.append(Table(name, "", name, shape.keys))
                continue
            reason = f"{name} has no primary key, so its rows have no key in a topic; add one, or leave the table out"
            if self._capture.tables:
                raise DatabaseRefused(reason)
            self._tell(f"left out: {reason}")
        if not found:
            raise DatabaseRefused(f"{self.place} has no table to capture; make one, or say which: --table NAME")
        return found

    def _sql_of(self, name: str) -> str:
        rows = self._ask("SELECT sql FROM sqlite_master WHERE name = ?", (name,))
        return str(rows[0][0] or "") if rows else ""

    def _shape(self, name: str) -> TriggeredTable:
        """As the table is now. Columns that are generated are left out, as PostgreSQL does."""
        columns = self._ask(f"PRAGMA table_xinfo({quoted(name)})")
        plain = tuple(row[1] for row in columns if row[6] == 0)
        keys = tuple(row[1] for row in sorted((row for row in columns if row[5]), key=lambda row: row[5]))
        uniques = []
        for _, index, is_unique, origin, *_ in self._ask(f"PRAGMA index_list({quoted(name)})"):
            parts = tuple(row[2] for row in self._ask(f"PRAGMA index_info({quoted(index)})"))
            if is_unique and origin != "pk" and None not in parts:
                uniques.append(parts)
        return TriggeredTable(name, plain, keys, tuple(sorted(uniques)))

    # --- triggers -------------------------------------------------------------------------------------------------

    def wait_until_free(self) -> None:
        pass  # nobody holds it: who comes later fences who was there

    def check_unused(self) -> None:
        if self._has(self._changes):
            raise DatabaseRefused(
                f"{self.place} has a table {self._changes}, and this log knows nothing of it: the capture of another"
                " log may read it; give this one another name with --name, or remove it with 'foldlog capture drop'"
            )

    def consent(self) -> str | None:
        if self._has(self._changes):
            return None
        names = ", ".join(table.title for table in self.tables())
        return f"put triggers on {names}, and a table for their changes, into {self.place}?"

    def _wanted(self, tables: Sequence[Table]) -> dict[str, tuple[str, str]]:
        """Triggers by name: their table's id, and their statement."""
        return {
            name: (table.id, statement)
            for table in tables
            for name, statement in triggers(self._capture.name, self._shapes[table.name]).items()
        }

    def _installed(self) -> dict[str, str]:
        begin = trigger_prefix(self._capture.name)
        rows = self._ask("SELECT name, sql FROM sqlite_master WHERE type = 'trigger'")
        return {name: sql for name, sql in rows if name.startswith(begin)}

    def stale(self, tables: Sequence[Table]) -> frozenset[str]:
        installed = self._installed()
        wanted = self._wanted(tables)
        self._stale = frozenset(table for name, (table, sql) in wanted.items() if installed.get(name) != sql)
        return self._stale

    def prepare(self, tables: Sequence[Table], position: int | None, *, anew: bool) -> int:
        is_new = position is None or anew
        if not is_new and not self._has(self._changes):
            raise ChangesLost(self._capture.name, f"its table {self._changes} is gone from {self.place}")
        with self._transaction("IMMEDIATE"):
            self._shapes = {table.name: self._shape(table.name) for table in tables}
            wanted, installed = self._wanted(tables), self._installed()
            if is_new:
                self._remove()
                installed = {}
                self._connection.execute(
                    f"CREATE TABLE IF NOT EXISTS {_CAPTURES} (name TEXT PRIMARY KEY, id TEXT NOT NULL)"
                )
                self._connection.execute(
                    f"INSERT OR REPLACE INTO {_CAPTURES} VALUES (?, ?)", (self._capture.name, self.identity())
                )
                self._connection.execute(create_changes(self._capture.name))
            for name in set(installed) - set(wanted):
                self._connection.execute(f"DROP TRIGGER {quoted(name)}")
            for name, (table, statement) in wanted.items():
                if installed.get(name) == statement:
                    continue
                if not is_new and table not in self._stale:
                    raise SchemaMoved(f"table {table} has just changed")
                self._connection.execute(f"DROP TRIGGER IF EXISTS {quoted(name)}")
                self._connection.execute(statement)
        if position is None or anew:
            return self._next()
        self._check_kept(position)
        return position

    def _remove(self) -> list[str]:
        """Triggers and table of the capture, whatever there is."""
        removed = [f"trigger {name}" for name in self._installed()]
        for name in self._installed():
            self._connection.execute(f"DROP TRIGGER {quoted(name)}")
        if self._has(self._changes):
            self._connection.execute(f"DROP TABLE {self._changes}")
            removed.append(f"table {self._changes}")
        return removed

    def _next(self) -> int:
        rows = self._ask("SELECT seq FROM sqlite_sequence WHERE name = ?", (self._changes,))
        return int(rows[0][0]) + 1 if rows else 1

    def _check_kept(self, position: int) -> None:
        if self._next() < position:
            raise ChangesLost(
                self._capture.name,
                f"{self.place} has {self._next() - 1} changes, and had {position - 1} before: it is an older copy",
            )
        first = self._ask(f"SELECT min(seq) FROM {self._changes}")[0][0]
        if (self._next() if first is None else first) > position:
            raise ChangesLost(self._capture.name, f"somebody has deleted changes from {self._changes}")

    # --- rows -----------------------------------------------------------------------------------------------------

    @contextmanager
    def snapshot(self, tables: Sequence[Table]) -> Iterator[SnapshotRows]:
        with self._transaction("DEFERRED"):
            yield SnapshotRows(self._next(), self._rows)

    def _rows(self, table: Table) -> Generator[tuple[RowLayout, Fragments], None, None]:
        shape = self._shapes[table.name]
        layout = RowLayout("", shape.name, shape.columns, shape.keys)
        names = ", ".join(f"quote({quoted(name)})" for name in shape.columns)
        for row in self._connection.execute(f"SELECT {names} FROM {quoted(shape.name)}"):
            values = [fragment(value) for value in row]
            self._check_key(layout, values)
            yield layout, values

    def _check_key(self, layout: RowLayout, values: Fragments) -> None:
        if any(values[index] == "null" for index in layout.keys):
            raise CaptureError(
                f"a row of {layout.table} has NULL in its primary key, which SQLite allows and a topic does not;"
                " declare the key NOT NULL, or leave the table out"
            )

    # --- the stream -----------------------------------------------------------------------------------------------

    def end(self) -> int:
        return self._next()

    def stream(self, position: int, snapshots: Collection[int]) -> Generator[Event, None, None]:
        schema = self._schema_version()
        seen: int | None = None
        while True:
            version = int(self._ask("PRAGMA data_version")[0][0])
            if version != seen:
                seen = version
                with self._transaction("DEFERRED"):
                    if self._schema_version() != schema:
                        raise SchemaMoved(f"the schema of {self.place} has changed")
                    end = self._next()
                    for start, stop in _cut(position, end, snapshots):
                        yield from self._transaction_of(start, stop)
                    position = end
            yield NothingNew(position)
            self._forget()
            self._stop.wait(LOOK_S)

    def _schema_version(self) -> int:
        return int(self._ask("PRAGMA schema_version")[0][0])

    def _transaction_of(self, start: int, stop: int) -> Iterator[Event]:
        cursor = self._connection.execute(
            f"SELECT seq, tbl, op, old, new, at_ms FROM {self._changes} WHERE seq >= ? AND seq < ? ORDER BY seq",
            (start, stop),
        )
        # While somebody reads, nobody commits to a database without a write-ahead log: so it is read quickly.
        is_wal = self._ask("PRAGMA journal_mode") == [("wal",)]
        rows: Iterable[tuple[Any, ...]] = cursor if is_wal else cursor.fetchall()
        layouts = {name: RowLayout("", name, shape.columns, shape.keys) for name, shape in self._shapes.items()}
        candidates: dict[tuple[str, str], int] = {}
        has_begun = False
        for seq, name, op, old, new, at_ms in rows:
            layout = layouts.get(name)
            if layout is None:
                continue
            if not has_begun:
                has_begun = True
                yield TransactionBegins(start, 0, at_ms)
            if op == CANDIDATE:
                candidates[name, old] = seq
                continue
            if candidates and op == DELETE:  # by a trigger, where PRAGMA recursive_triggers is on
                values = json.loads(old)
                candidates.pop(
                    (name, json.dumps([values[index] for index in layout.keys], separators=(",", ":"))), None
                )
            before, after = fragments(old), fragments(new)
            for values in (before, after):
                if values is not None and len(values) != len(layout.columns):
                    break  # of triggers before the last ones, which a snapshot has made good
            else:
                if after is not None:
                    self._check_key(layout, after)
                yield RowChanged(op, name, layout, before, after, True, seq)
        for (name, key), seq in candidates.items():
            yield from self._replaced(layouts[name], key, seq)
        if has_begun:
            yield TransactionEnds(stop)

    def _replaced(self, layout: RowLayout, key: str, seq: int) -> Iterator[RowChanged]:
        """A deletion, if the row is gone that had the key: a REPLACE has removed it, and no trigger saw it."""
        literals = dict(zip(layout.keys, json.loads(key), strict=True))
        where = " AND ".join(f"{quoted(layout.columns[index])} = ?" for index in layout.keys)
        values = tuple(value_of(one) for one in literals.values())
        if not self._ask(f"SELECT 1 FROM {quoted(layout.table)} WHERE {where}", values):
            old = [fragment(literals[index]) if index in literals else None for index in range(len(layout.columns))]
            yield RowChanged(DELETE, layout.table, layout, old, None, False, seq)

    def confirm(self, position: int) -> None:
        self._safe = max(self._safe, position)

    def _forget(self, *, at_once: bool = False) -> None:
        """Delete what is safe. If the database is busy, later."""
        if not at_once and time.monotonic() - self._forgot_s < FORGET_EVERY_S:
            return
        self._forgot_s = time.monotonic()
        if self._safe and self._ask(f"SELECT 1 FROM {self._changes} WHERE seq < ? LIMIT 1", (self._safe,)):
            self._connection.execute(f"PRAGMA busy_timeout = {_FORGET_WAIT_MS}")
            try:
                self._connection.execute(f"DELETE FROM {self._changes} WHERE seq < ?", (self._safe,))
            except sqlite3.OperationalError:
                pass  # somebody writes
            finally:
                self._connection.execute(f"PRAGMA busy_timeout = {LOCK_WAIT_S * 1000:.0f}")

    def position_text(self, position: int) -> str:
        return str(position)

    def origin(self, layout: RowLayout, begun: TransactionBegins) -> Mapping[str, object]:
        return {"table": layout.table}

    # --- for operators --------------------------------------------------------------------------------------------

    def status(self, position: int | None) -> DatabaseStatus:
        if not self._has(self._changes):
            return DatabaseStatus("not begun" if position is None else "triggers lost", position)
        end = self._next()
        kept = int(self._ask(f"SELECT count(*) FROM {self._changes}")[0][0])
        lag = None if position is None else max(0, end - position)
        warning = None
        if kept >= STUCK_CHANGES:
            warning = (
                f"{self.place} keeps {kept} changes that nobody has read: run the capture, or give it up with 'foldlog"
                " capture drop'"
            )
        return DatabaseStatus("triggers in place", position, end, None, lag, None, None, warning)

    def drop(self) -> list[str]:
        if not self._has(self._changes) and not self._installed():
            return []
        with self._transaction("IMMEDIATE"):
            removed = self._remove()
            if self._has(_CAPTURES):
                self._connection.execute(f"DELETE FROM {_CAPTURES} WHERE name = ?", (self._capture.name,))
                if not self._ask(f"SELECT 1 FROM {_CAPTURES}"):
                    self._connection.execute(f"DROP TABLE {_CAPTURES}")
        return removed

    def close(self) -> None:
        if self._known_connection is None:
            return
        try:
            if self._safe:
                self._forget(at_once=True)
        except CaptureError:
            pass  # it is gone, or no database any more: whoever used it has said so
        self._known_connection.close()


def _cut(start: int, end: int, places: Collection[int]) -> Iterator[tuple[int, int]]:
    """The stretch in parts that end at these places.

    >>> list(_cut(3, 9, {5, 20})), list(_cut(3, 3, {5}))
    ([(3, 5), (5, 9)], [])
    """
    for stop in sorted({place for place in places if start < place < end} | ({end} if end > start else set())):
        yield start, stop
        start = stop
