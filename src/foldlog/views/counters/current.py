"""Counters of the current rows: of each key's newest record, and not of every record.

Beside the counters stands a table of what each key's rows have added to them: `counters__1__rows`. When a newer record
of a key comes, that is taken out and withdrawn, and what the new rows add is stored and added, in one transaction with
the bookmark. So the counters are those of the newest rows, however the log was split, and like a table they can be
rewound. Only measures that can be withdrawn are kept: when the row with the smallest value goes, a minimum does not
know the next one.
"""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Final, Generic, TypeVar

from foldlog.errors import InvalidArgument, ViewUnavailable
from foldlog.views.bookmark import Bookmark
from foldlog.views.contract import DELETED, OFFSET, PARTITION, RECORD, Delta, Shape
from foldlog.views.counters.measures import Aggregation, Measure
from foldlog.views.counters.merging import lifted
from foldlog.views.counters.postgres import PostgresCounters
from foldlog.views.counters.settings import KNOWN, ROWS, CounterSettings, check_aggregation
from foldlog.views.counters.sqlite import SqliteCounters
from foldlog.views.counters.view import CountersView
from foldlog.views.counters.windows import WINDOW_START, Window
from foldlog.views.merged.groups import group_codes, whole
from foldlog.views.merged.view import MergedSettings, MergedTransaction, StoredRows
from foldlog.views.sql.bookmarks import Run
from foldlog.views.sql.postgres import relation_bytes

if TYPE_CHECKING:
    import pyarrow as pa

    from foldlog.views.sql.names import TableName

Connection = TypeVar("Connection")
Stored = StoredRows[CounterSettings]

WITHDRAWN: Final = ("count", "sum", "avg")
"""The measures from which a row can be taken out again."""

_OF: Final = "__record"
"""The column of the record's key in the table of rows."""

_NUMBER: Final = "__number"
"""The column that tells the rows of one record apart."""

_ROWS_TABLE: Final = "__rows"


def check_current(aggregation: Aggregation) -> None:
    """InvalidArgument, in one sentence, if it cannot be kept for current rows."""
    for name, measure in aggregation.measures.items():
        if measure.kind not in WITHDRAWN:
            raise InvalidArgument(
                f"measure {name!r}, {measure}, cannot be counted over current rows: when a row goes, what the value was"
                " without it is not known; count, sum and avg can be, or keep the rows with fl.table() and ask them"
            )
        if name.endswith(KNOWN) or name == ROWS:
            raise InvalidArgument(f"measure {name!r} has a name that counters of current rows use; choose another")
    window = aggregation.window
    if window is None:
        return
    if not isinstance(window, Window) or window.every_ms or window.zone is not None or window.months:
        raise InvalidArgument(
            f"counters of current rows have fixed windows, such as ('at', '1 hour'), and not {window}; make the window"
            " a column in the fold, such as date_trunc('month', at), and name it in by="
        )


def counted_of(aggregation: Aggregation) -> Aggregation:
    """What is kept for these measures: also how many rows a group has, and how many values a sum."""
    known = {
        name + KNOWN: Measure("count", measure.column)
        for name, measure in aggregation.measures.items()
        if measure.kind == "sum"
    }
    return replace(aggregation, measures={**aggregation.measures, **known, ROWS: Measure("count")})


@dataclass(frozen=True, slots=True)
class ContributionSettings(MergedSettings):
    """The table of what rows have added: by the record's key, and a number. Its rows are replaced, and never merged."""

    counts: CounterSettings
    record: pa.Field

    @property
    def aggregation(self) -> Aggregation:
        return self.counts.aggregation

    @property
    def groups(self) -> tuple[str, ...]:
        return (_OF, _NUMBER)

    def stored(self) -> pa.Schema:
        import pyarrow as pa

        return pa.schema([pa.field(_OF, self.record.type), pa.field(_NUMBER, pa.int64()), *self.counts.stored()])

    def shown(self) -> pa.Schema:
        return self.stored()

    def to_json(self) -> str:
        return self.counts.to_json()

    def fitted(self, rows: pa.Table, location: str) -> pa.Table:
        return rows.cast(self.stored())

    def merged(self, rows: pa.Table) -> pa.Table:
        return rows

    def met(self, same: str, table: TableName, *, seeks: bool = False) -> list[str]:
        return [self.alike((_OF,), same)]

    def to_stored(self, rows: pa.Table) -> pa.Table:
        return rows

    def from_stored(self, rows: pa.Table) -> pa.Table:
        return rows


class CurrentCounters(CountersView[Connection], Generic[Connection]):
    """Mixed into the counters of an engine."""

    is_keyed: ClassVar[bool] = True
    adds: bool = False
    asked: Aggregation
    """What the user asks for: what readers see of what is counted."""

    def _wanted(self, shape: Shape) -> CounterSettings:
        if shape.record_key is None:
            raise InvalidArgument(f"{self.place} counts the newest row of each key, and the topic names no key")
        return CounterSettings(
            self.counted, check_aggregation(self.counted, shape.columns), shape.columns.field(shape.record_key)
        )

    def filled(self, shape: Shape) -> tuple[str, ...]:
        return () if shape.record_key in (None, RECORD) else (str(shape.record_key),)

    def apply(self, delta: Delta, expected: Bookmark, new: Bookmark) -> None:
        with self._writing() as transaction:
            stored = self._understood(self._bookmarks.expect(transaction.run, self._name, self.place, expected))
            if delta.rows.num_rows:
                try:
                    self._replace(transaction, stored, delta.rows)
                except ArithmeticError as error:
                    raise ViewUnavailable(self.place, str(error)) from error
            self._bookmarks.set_bookmark(transaction.run, self._name, new)

    def _replace(self, transaction: MergedTransaction[Connection], stored: Stored, rows: pa.Table) -> None:
        """Withdraw what the records of these keys have added, and add what the newest of them give."""
        import pyarrow as pa

        beside, settings = _rows_of(stored), stored.settings
        keys, added = contributions(rows, beside.settings)
        gone = self._take(transaction, beside, keys)  # type: ignore[arg-type]  # the engines ask any settings
        self._put(transaction, beside, added)  # type: ignore[arg-type]
        names = settings.columns.names
        change = pa.concat_tables([_negated(gone.select(names), settings), added.select(names)])
        change = _changed(settings.merged(change.cast(settings.partial_columns())), settings)
        if not change.num_rows:
            return
        known = settings.from_stored(self._take(transaction, stored, change.select(settings.asked())))
        total = settings.merged(pa.concat_tables([known, change]))
        self._put(transaction, stored, settings.to_stored(_with_rows(total)))

    def _make_table(self, run: Run, stored: Stored) -> None:
        super()._make_table(run, stored)  # type: ignore[safe-super]  # the engine's own
        super()._make_table(run, _rows_of(stored))  # type: ignore[safe-super, arg-type]

    def _drop_stored(self, run: Run, name: str) -> bool:
        stored = self._find(run, name)
        if stored is not None:
            run(f"DROP TABLE {_rows_of(stored).table.sql}")
        return super()._drop_stored(run, name)


class SqliteCurrent(CurrentCounters[sqlite3.Connection], SqliteCounters):
    """In a SQLite file."""

    def __init__(self, url_or_path: object, aggregation: Aggregation, name: str, label: str | None = None) -> None:
        SqliteCounters.__init__(self, url_or_path, counted_of(aggregation), name, label)
        self.asked, self.aggregation = aggregation, None

    def _another(self, label: str) -> SqliteCurrent:
        return SqliteCurrent(self._path, self.asked, self._table.name, label)


class PostgresCurrent(CurrentCounters[Any], PostgresCounters):
    """In PostgreSQL."""

    def __init__(self, url: str, aggregation: Aggregation, name: str, label: str | None = None) -> None:
        PostgresCounters.__init__(self, url, counted_of(aggregation), name, label)
        self.asked, self.aggregation = aggregation, None

    def _another(self, label: str) -> PostgresCurrent:
        return PostgresCurrent(self._url, self.asked, str(self._table), label)

    def size_bytes(self) -> int | None:
        with self._reading() as transaction:
            stored = self._find(transaction.run)
            tables = [] if stored is None else [stored.table, _rows_of(stored).table]
            sizes = [relation_bytes(transaction.run, table) for table in tables]
        return sum(size or 0 for size in sizes) if sizes else None

    def _take(self, transaction: MergedTransaction[Any], stored: Stored, keys: pa.Table) -> pa.Table:
        found = super()._take(transaction, stored, keys)
        transaction.run("DROP TABLE foldlog_range")  # it is made for the rows, and again for their groups
        return found


def _rows_of(stored: Stored) -> StoredRows[ContributionSettings]:
    """The table of what rows have added, beside that of the counters."""
    record = stored.settings.record
    if record is None:
        raise InvalidArgument(f"{stored.table} counts every record, and not current rows")
    settings = ContributionSettings(stored.settings, record)
    return StoredRows(stored.bookmark, stored.number, settings, stored.table.beside(_ROWS_TABLE))


def contributions(rows: pa.Table, settings: ContributionSettings) -> tuple[pa.Table, pa.Table]:
    """The keys of a range's records, and what the rows of each key's newest record add, as they are stored."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc

    owners = whole(rows[settings.record.name])
    codes = group_codes([owners], rows.num_rows)
    places = group_codes([rows[PARTITION], rows[OFFSET]], rows.num_rows)
    last = np.zeros(codes.max() + 1, np.int64)
    np.maximum.at(last, codes, np.arange(rows.num_rows))  # the rows of a key are in offset order
    is_newest = pa.array(places == places[last[codes]])
    kept = rows.filter(pc.and_(is_newest, pc.invert(rows[DELETED])))
    unique = owners.unique()
    keys = pa.table({_OF: unique.cast(settings.record.type), _NUMBER: pa.array(np.zeros(len(unique), np.int64))})
    aggregation, counts = settings.aggregation, settings.counts
    columns: dict[str, Any] = {_OF: kept[settings.record.name], _NUMBER: pa.array(_numbers(kept, settings.record.name))}
    columns |= {name: kept[name] for name in aggregation.by}
    if isinstance(aggregation.window, Window):
        columns[WINDOW_START] = _starts(kept[aggregation.window.column], aggregation.window.width_ms)
    columns |= lifted(kept, aggregation, counts.columns)
    schema = settings.stored()
    return keys, pa.table({one.name: columns[one.name] for one in schema}).cast(schema)


def _numbers(rows: pa.Table, record_key: str) -> Any:
    """Numbers of the rows of each record, from 0 on."""
    import numpy as np

    codes = group_codes([rows[record_key]], rows.num_rows)
    order = np.argsort(codes, kind="stable")
    firsts = np.flatnonzero(np.diff(codes[order], prepend=-1))
    numbers = np.empty(len(codes), np.int64)
    numbers[order] = np.arange(len(codes)) - np.repeat(firsts, np.diff(np.append(firsts, len(codes))))
    return numbers


def _starts(times: Any, width_ms: int) -> Any:
    """Where the fixed window of each time begins."""
    import pyarrow as pa

    us = whole(times).cast(pa.timestamp("us", "UTC")).cast(pa.int64())
    numbers = us.fill_null(0).to_numpy(zero_copy_only=False)
    starts = numbers - numbers % (width_ms * 1000)  # a remainder is never negative, also before 1970
    return pa.array(starts, pa.int64(), mask=us.is_null().to_numpy(zero_copy_only=False)).cast(
        pa.timestamp("us", "UTC")
    )


def _negated(rows: pa.Table, settings: CounterSettings) -> pa.Table:
    """What takes these rows out again."""
    import pyarrow.compute as pc

    for name, _, _ in settings.aggregation.partials():
        rows = rows.set_column(rows.column_names.index(name), name, pc.negate(rows[name]))
    return rows


def _changed(change: pa.Table, settings: CounterSettings) -> pa.Table:
    """The groups of which anything changes: a row that comes as it was is added and withdrawn."""
    import pyarrow as pa
    import pyarrow.compute as pc

    flags = pa.chunked_array([pa.array([False] * change.num_rows, pa.bool_())])
    for name, _, _ in settings.aggregation.partials():
        column = change[name]
        flags = pc.or_(flags, pc.fill_null(pc.not_equal(column, pa.scalar(0).cast(column.type)), False))
    return change.filter(flags)


def _with_rows(total: pa.Table) -> pa.Table:
    import pyarrow.compute as pc

    return total.filter(pc.greater(total[ROWS], 0))
