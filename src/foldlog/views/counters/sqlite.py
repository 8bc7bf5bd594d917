"""Counters in a SQLite file.

Values are stored as in SQLite tables. Dates and times are text that sorts as they do, so the engine's own min and max
are right; NaN is text, too, and sorts after every number, as in Spark. DECIMAL is text with all its digits, added and
compared by functions of this module, so that it never becomes a float. A sum that exceeds 64 bits is refused by a check
constraint: SQLite itself would continue in floating point.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from decimal import Context, Decimal, localcontext
from typing import TYPE_CHECKING, Any, Final

from foldlog.errors import ViewUnavailable
from foldlog.limits import VIEW_SCAN_ROWS
from foldlog.views.counters.measures import Aggregation
from foldlog.views.counters.settings import DECIMAL_DIGITS_MAX, SUM_TOO_LARGE
from foldlog.views.counters.view import CountersTransaction, CountersView, StoredCounters
from foldlog.views.local_paths import local_path
from foldlog.views.sql.bookmarks import BookmarkTable, Run
from foldlog.views.sql.names import quoted, quoted_list, table_name
from foldlog.views.sql.sqlite import SqliteDatabase, runner, sqlite_path
from foldlog.views.sql.types import sqlite_type
from foldlog.views.table.sqlite_values import from_values, to_values

if TYPE_CHECKING:
    import pyarrow as pa


class SqliteCounters(CountersView[sqlite3.Connection]):
    """One thread at a time; writers of the file wait for each other, readers do not wait."""

    def __init__(self, url_or_path: object, aggregation: Aggregation, name: str, label: str | None = None) -> None:
        super().__init__(table_name(name, with_schema=False), aggregation, label)
        self._path = local_path(sqlite_path(url_or_path))
        self._database = SqliteDatabase(self._path, self.place)

    @property
    def place(self) -> str:
        return f"counters {self._name} in {self._path}"

    def description(self) -> dict[str, object]:
        return {"kind": self.kind, "engine": "sqlite", "path": self._path, "name": str(self._table)}

    @property
    def _bookmarks(self) -> BookmarkTable:
        return self._database.bookmarks

    def close(self) -> None:
        self._database.close()

    def _exists(self) -> bool:
        return self._database.exists()

    @contextmanager
    def _writing(self, *, create: bool = False) -> Iterator[CountersTransaction[sqlite3.Connection]]:
        with self._database.write(create=create) as connection:
            yield CountersTransaction(connection, runner(connection))

    @contextmanager
    def _reading(self) -> Iterator[CountersTransaction[sqlite3.Connection]]:
        database = self._database.another()
        try:
            with database.read() as connection:
                yield CountersTransaction(connection, runner(connection))
        finally:
            database.close()

    def _has_bookmarks(self, run: Run) -> bool:
        return bool(run("SELECT 1 FROM sqlite_master WHERE name = ?", self._bookmarks.table.name))

    def _make_table(self, run: Run, stored: StoredCounters) -> None:
        sums = {name for name, how, _ in stored.settings.aggregation.partials() if how in ("sum", "count")}
        columns = [_declared(field, is_sum=field.name in sums) for field in stored.settings.stored()]
        run(f"CREATE TABLE {stored.table.sql} ({', '.join(columns)})")
        if stored.settings.groups:
            index = quoted(stored.table.name + "_groups")
            run(f"CREATE UNIQUE INDEX {index} ON {stored.table.sql} ({quoted_list(stored.settings.groups)})")

    def _merge(
        self, transaction: CountersTransaction[sqlite3.Connection], stored: StoredCounters, rows: pa.Table
    ) -> None:
        connection = transaction.connection
        for name, function in _DECIMAL_FUNCTIONS.items():
            connection.create_function(name, 2, function, deterministic=True)
        groups = stored.settings.groups
        whole, with_null = _split_by_null(rows, groups)
        try:
            if whole.num_rows:
                connection.executemany(_upsert(stored), _values(whole))
            update, insert = _update(stored), _insert(stored)
            # A unique index treats two nulls as different, so these groups are looked up one by one.
            for values in _values(with_null):
                if not connection.execute(update, values).rowcount:
                    connection.execute(insert, values)
        except sqlite3.IntegrityError as error:
            raise ViewUnavailable(self.place, SUM_TOO_LARGE) from error
        except sqlite3.OperationalError as error:
            if "user-defined function raised" not in str(error):
                raise
            raise ViewUnavailable(self.place, SUM_TOO_LARGE) from error

    def _take(
        self, transaction: CountersTransaction[sqlite3.Connection], stored: StoredCounters, keys: pa.Table
    ) -> pa.Table:
        import pyarrow as pa

        connection, schema = transaction.connection, stored.settings.stored()
        declared = ", ".join(f"{quoted(name)} {sqlite_type(schema.field(name).type)}" for name in keys.column_names)
        connection.execute(f"CREATE TEMP TABLE foldlog_range ({declared or 'x'})")
        marks = ", ".join("?" * len(keys.column_names)) or "NULL"
        connection.executemany(f"INSERT INTO temp.foldlog_range VALUES ({marks})", _values(keys))
        # CROSS JOIN, which SQLite does not reorder: the range's rows come first, and the index finds theirs.
        found = " UNION ALL ".join(
            f"SELECT kept.rowid FROM temp.foldlog_range AS new CROSS JOIN {stored.table.sql} AS kept WHERE {condition}"
            for condition in stored.met("IS", seeks=True)
        )
        taken = connection.execute(
            f"DELETE FROM {stored.table.sql} WHERE rowid IN ({found}) RETURNING {quoted_list(schema.names)}"
        ).fetchall()
        connection.execute("DROP TABLE temp.foldlog_range")
        return pa.Table.from_batches([from_values(taken, schema, self.place)])

    def _put(
        self, transaction: CountersTransaction[sqlite3.Connection], stored: StoredCounters, rows: pa.Table
    ) -> None:
        marks = ", ".join("?" * len(rows.column_names))
        transaction.connection.executemany(
            f"INSERT INTO {stored.table.sql} ({quoted_list(rows.column_names)}) VALUES ({marks})", _values(rows)
        )

    def _read(
        self, transaction: CountersTransaction[sqlite3.Connection], stored: StoredCounters
    ) -> Iterator[pa.RecordBatch]:
        schema = stored.settings.stored()
        cursor = transaction.connection.execute(f"SELECT {quoted_list(schema.names)} FROM {stored.table.sql}")
        while found := cursor.fetchmany(VIEW_SCAN_ROWS):
            yield from_values(found, schema, self.place)

    def _mean(self, name: str, stored: StoredCounters) -> str:
        return f"CAST({quoted(name + '__sum')} AS REAL) / nullif({quoted(name + '__count')}, 0)"

    def _another(self, label: str) -> SqliteCounters:
        return SqliteCounters(self._path, self.aggregation, self._table.name, label)


def _merged(stored: StoredCounters, new: Callable[[str], str]) -> str:
    """The assignments that merge a new row into the existing one; `new` gives the SQL of a new value."""
    from pyarrow import types

    schema, parts = stored.settings.stored(), []
    for name, how, _ in stored.settings.aggregation.partials():
        old, incoming = quoted(name), new(name)
        if types.is_decimal(schema.field(name).type):
            both = f"foldlog_decimal_{how}({old}, {incoming})"
        elif how in ("count", "sum"):
            both = f"{old} + {incoming}"
        else:
            both = f"{how}({old}, {incoming})"
        parts.append(f"{old} = coalesce({both}, {old}, {incoming})")
    return ", ".join(parts)


def _insert(stored: StoredCounters) -> str:
    names = stored.settings.columns.names
    marks = ", ".join(f"?{number}" for number in range(1, len(names) + 1))
    return f"INSERT INTO {stored.table.sql} ({quoted_list(names)}) VALUES ({marks})"


def _upsert(stored: StoredCounters) -> str:
    merged = _merged(stored, lambda name: f"excluded.{quoted(name)}")
    return f"{_insert(stored)} ON CONFLICT ({quoted_list(stored.settings.groups)}) DO UPDATE SET {merged}"


def _update(stored: StoredCounters) -> str:
    """An UPDATE of the row of the same group, with the values of an `_insert`."""
    numbers = {name: f"?{number}" for number, name in enumerate(stored.settings.columns.names, 1)}
    same = " AND ".join(f"{quoted(name)} IS {numbers[name]}" for name in stored.settings.groups) or "TRUE"
    return f"UPDATE {stored.table.sql} SET {_merged(stored, numbers.__getitem__)} WHERE {same}"


def _split_by_null(rows: pa.Table, groups: tuple[str, ...]) -> tuple[pa.Table, pa.Table]:
    """Rows whose group has no null, and the others; without groups all are among the others."""
    import pyarrow.compute as pc

    if not groups:
        return rows.slice(0, 0), rows
    if not any(rows[name].null_count for name in groups):
        return rows, rows.slice(0, 0)
    valid = pc.is_valid(rows[groups[0]])
    for name in groups[1:]:
        valid = pc.and_(valid, pc.is_valid(rows[name]))
    return rows.filter(valid), rows.filter(pc.invert(valid))


def _declared(field: Any, *, is_sum: bool) -> str:
    from pyarrow import types

    kind = sqlite_type(field.type)
    if is_sum and types.is_integer(field.type):
        kind += f" CHECK (typeof({quoted(field.name)}) IN ('integer', 'null'))"
    return f"{quoted(field.name)} {kind}"


def _values(rows: pa.Table) -> Iterator[tuple[Any, ...]]:
    if not rows.column_names:
        return iter([()] * rows.num_rows)
    return zip(*(to_values(column) for column in rows.columns), strict=True)


def _decimal_sum(left: str | None, right: str | None) -> str | None:
    if left is None or right is None:
        return None
    with localcontext(Context(prec=2 * DECIMAL_DIGITS_MAX)):
        total = Decimal(left) + Decimal(right)
    if len(total.as_tuple().digits) > DECIMAL_DIGITS_MAX:
        raise ArithmeticError(SUM_TOO_LARGE)
    return f"{total:f}"


def _decimal_min(left: str | None, right: str | None) -> str | None:
    return None if left is None or right is None else min(left, right, key=Decimal)


def _decimal_max(left: str | None, right: str | None) -> str | None:
    return None if left is None or right is None else max(left, right, key=Decimal)


_DECIMAL_FUNCTIONS: Final = {
    "foldlog_decimal_sum": _decimal_sum,
    "foldlog_decimal_min": _decimal_min,
    "foldlog_decimal_max": _decimal_max,
}
