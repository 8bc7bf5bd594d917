"""Counters in a SQLite file.

Dates and times are text that sorts as they do, so the engine's own min and max are right; NaN is text, too, and sorts
after every number, as in Spark. DECIMAL is text with all its digits, added and compared by functions of this module, so
that it never becomes a float. A sum that exceeds 64 bits is refused by a check constraint: SQLite itself would continue
in floating point.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from decimal import Context, Decimal, localcontext
from typing import TYPE_CHECKING, Any, Final

from foldlog.errors import ViewUnavailable
from foldlog.views.counters.measures import DECIMAL_DIGITS_MAX, Aggregation
from foldlog.views.counters.settings import CounterSettings
from foldlog.views.counters.view import CountersView
from foldlog.views.merged.groups import SUM_TOO_LARGE
from foldlog.views.merged.sqlite import SqliteMerged, values_of
from foldlog.views.merged.view import MergedTransaction, StoredRows
from foldlog.views.sql.names import quoted, quoted_list
from foldlog.views.sql.types import sqlite_type

if TYPE_CHECKING:
    import pyarrow as pa

Stored = StoredRows[CounterSettings]


class SqliteCounters(CountersView[sqlite3.Connection], SqliteMerged[CounterSettings]):
    """See `SqliteMerged`."""

    def __init__(self, url_or_path: object, aggregation: Aggregation, name: str, label: str | None = None) -> None:
        SqliteMerged.__init__(self, url_or_path, name, label)
        self.aggregation = self.counted = aggregation

    def _column(self, settings: CounterSettings, field: Any) -> str:
        sums = {name for name, how, _ in settings.aggregation.partials() if how in ("sum", "count")}
        return _declared(field, is_sum=field.name in sums)

    def _merge_in_sql(self, transaction: MergedTransaction[sqlite3.Connection], stored: Stored, rows: pa.Table) -> None:
        connection = transaction.connection
        for name, function in _DECIMAL_FUNCTIONS.items():
            connection.create_function(name, 2, function, deterministic=True)
        groups = stored.settings.groups
        whole, with_null = _split_by_null(rows, groups)
        try:
            if whole.num_rows:
                connection.executemany(_upsert(stored), values_of(whole))
            update, insert = _update(stored), _insert(stored)
            # A unique index treats two nulls as different, so these groups are looked up one by one.
            for values in values_of(with_null):
                if not connection.execute(update, values).rowcount:
                    connection.execute(insert, values)
        except sqlite3.IntegrityError as error:
            raise ViewUnavailable(self.place, SUM_TOO_LARGE) from error
        except sqlite3.OperationalError as error:
            if "user-defined function raised" not in str(error):
                raise
            raise ViewUnavailable(self.place, SUM_TOO_LARGE) from error

    def _mean(self, name: str, stored: Stored) -> str:
        return f"CAST({quoted(name + '__sum')} AS REAL) / nullif({quoted(name + '__count')}, 0)"

    def _another(self, label: str) -> SqliteCounters:
        return SqliteCounters(self._path, self.counted, self._table.name, label)


def _merged(stored: Stored, new: Callable[[str], str]) -> str:
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


def _insert(stored: Stored) -> str:
    names = stored.settings.columns.names
    marks = ", ".join(f"?{number}" for number in range(1, len(names) + 1))
    return f"INSERT INTO {stored.table.sql} ({quoted_list(names)}) VALUES ({marks})"


def _upsert(stored: Stored) -> str:
    merged = _merged(stored, lambda name: f"excluded.{quoted(name)}")
    return f"{_insert(stored)} ON CONFLICT ({quoted_list(stored.settings.groups)}) DO UPDATE SET {merged}"


def _update(stored: Stored) -> str:
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
