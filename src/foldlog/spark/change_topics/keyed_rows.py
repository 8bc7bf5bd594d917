"""The newest row of each key of a changes topic, in a temporary database of this process; and what a range changes in
it.

The topic is the truth: this is made of it again whenever a process begins, as a stream processor restores its state
from a changelog. SQLite puts it into a file without a name when it outgrows its cache, so memory is bounded.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain, islice
from typing import TYPE_CHECKING, Final, NamedTuple

from foldlog.limits import VIEW_SCAN_ROWS
from foldlog.spark.change_topics.row_texts import column_texts, key_texts, rows_of, value_texts
from foldlog.views.contract import RECORD, TIMESTAMP, Delta
from foldlog.views.table.rows import decide_change, written_twice
from foldlog.views.table.shape import TableShape

if TYPE_CHECKING:
    import pyarrow as pa

_ASKED_MAX: Final = 500
"""Keys in one question: SQLite had a limit of 999 parameters for long."""


class KeptRow(NamedTuple):
    """A row of the topic: the key of the record that made it, and its value as JSON."""

    record: bytes
    value: bytes


@dataclass(frozen=True, slots=True)
class RowChange:
    """What becomes of one key: `new` is None if its row is gone, `old` if there was none. `record` is the key of the
    record that made the change, `time_ms` that record's time, if it is known."""

    key: bytes
    record: bytes
    old: bytes | None
    new: bytes | None
    time_ms: int | None = None


class KeyedRows:
    """Rows by key. Used by one thread at a time, which may be another one each time."""

    def __init__(self, shape: TableShape) -> None:
        self.shape = shape
        self._connection = sqlite3.connect("", isolation_level=None, check_same_thread=False)
        # What is lost is read from the topic again.
        self._connection.execute("PRAGMA synchronous = OFF")
        self._connection.execute("PRAGMA journal_mode = OFF")
        self._connection.execute("CREATE TABLE newest (key BLOB PRIMARY KEY, record BLOB, value BLOB) WITHOUT ROWID")
        if shape.replaces_records:
            self._connection.execute("CREATE INDEX by_record ON newest (record)")

    def close(self) -> None:
        self._connection.close()

    def read(self, keys: Iterable[bytes], values: Iterable[bytes | None], location: str) -> None:
        """Take records of the topic in, in their order; without a value, the row of the key is gone."""
        newest = dict(zip(keys, values, strict=True))
        live = {key: value for key, value in newest.items() if value is not None}
        records = self._records(live, location)
        self._put(
            (RowChange(key, record, None, value) for (key, value), record in zip(live.items(), records, strict=True)),
            (key for key, value in newest.items() if value is None),
        )

    def put(self, changes: Iterable[RowChange]) -> None:
        kept = list(changes)
        self._put((one for one in kept if one.new is not None), (one.key for one in kept if one.new is None))

    def _put(self, live: Iterable[RowChange], gone: Iterable[bytes]) -> None:
        self._connection.execute("BEGIN")
        self._connection.executemany("DELETE FROM newest WHERE key = ?", ((key,) for key in gone))
        self._connection.executemany(
            "INSERT OR REPLACE INTO newest VALUES (?, ?, ?)", ((one.key, one.record, one.new) for one in live)
        )
        self._connection.execute("COMMIT")

    def _records(self, live: Mapping[bytes, bytes], location: str) -> list[bytes]:
        """The keys of the records that made these rows."""
        if not self.shape.replaces_records:
            return list(live)
        import pyarrow as pa

        name = self.shape.record_columns[0]
        columns = pa.schema([self.shape.columns.field(name)])
        return column_texts(pa.Table.from_batches([rows_of(list(live.values()), columns, location)])[name])

    def of_keys(self, keys: Iterable[bytes]) -> dict[bytes, KeptRow]:
        return self._asked("key", keys)

    def of_records(self, records: Iterable[bytes]) -> dict[bytes, KeptRow]:
        """All rows that these records made, by their keys."""
        return self._asked("record" if self.shape.replaces_records else "key", records)

    def _asked(self, column: str, wanted: Iterable[bytes]) -> dict[bytes, KeptRow]:
        found: dict[bytes, KeptRow] = {}
        left = iter(wanted)
        while some := list(islice(left, _ASKED_MAX)):
            marks = ",".join("?" * len(some))
            for key, record, value in self._connection.execute(
                f"SELECT key, record, value FROM newest WHERE {column} IN ({marks})", some
            ):
                found[key] = KeptRow(record, value)
        return found

    def in_order(self) -> Iterator[tuple[bytes, KeptRow]]:
        """All rows by key. Each step asks anew: nothing is held between two."""
        last = b""
        question = "SELECT key, record, value FROM newest WHERE key {} ? ORDER BY key LIMIT ?"
        rows = self._connection.execute(question.format(">="), (last, VIEW_SCAN_ROWS)).fetchall()
        while rows:
            yield from ((key, KeptRow(record, value)) for key, record, value in rows)
            last = rows[-1][0]
            rows = self._connection.execute(question.format(">"), (last, VIEW_SCAN_ROWS)).fetchall()

    def batches(self, location: str) -> Iterator[pa.RecordBatch]:
        """All rows, with the shape's columns."""
        rows = self.in_order()
        while some := [kept.value for _, kept in islice(rows, VIEW_SCAN_ROWS)]:
            yield rows_of(some, self.shape.columns, location)


def closing_batches(rows: KeyedRows, location: str) -> Iterator[pa.RecordBatch]:
    """All rows, which are closed behind them."""
    try:
        yield from rows.batches(location)
    finally:
        rows.close()


def changes_of(delta: Delta, kept: KeyedRows, location: str) -> list[RowChange]:
    """What a range changes: only rows that differ from what is kept, so that reading a range again writes nothing."""
    shape = kept.shape
    change = decide_change(delta, shape, location)
    name = shape.record_columns[0]
    times = _times(delta, name)
    made = list(
        zip(key_texts(change.rows, shape.key), column_texts(change.rows[name]), value_texts(change.rows), strict=True)
    )
    gone = [] if change.tombstones is None else column_texts(change.tombstones)
    touched = {*gone, *(record for _, record, _ in made)}
    before = kept.of_records(touched)
    if shape.record_key == RECORD:
        _check_whose(kept.of_keys(key for key, _, _ in made), touched, location)
    found: list[RowChange] = []
    for key, record, text in made:
        old, new = before.pop(key, None), text.encode()
        if old is None or old.value != new:
            found.append(RowChange(key, record, None if old is None else old.value, new, times.get(record)))
    found += [RowChange(key, old.record, old.value, None, times.get(old.record)) for key, old in before.items()]
    return found


def _times(delta: Delta, name: str) -> Mapping[bytes, int]:
    """The time of each record's newest row, in ms."""
    import pyarrow as pa

    times = delta.rows[TIMESTAMP].cast(pa.timestamp("us", "UTC")).cast(pa.int64()).to_pylist()
    return {
        record: time // 1000
        for record, time in zip(column_texts(delta.rows[name]), times, strict=True)
        if time is not None
    }


def _check_whose(there: Mapping[bytes, KeptRow], touched: Iterable[bytes], location: str) -> None:
    """FoldError if a row would replace one that another record made: which one wins would depend on the split."""
    known = set(touched)
    for key, row in there.items():
        if row.record not in known:
            raise written_twice(location, key.decode(errors="replace"))


def differences(live: KeyedRows, wanted: KeyedRows, *, all_anew: bool) -> Iterator[RowChange]:
    """What makes one of the other, by key; with `all_anew` also for rows that are equal."""
    here, there = live.in_order(), wanted.in_order()
    one, other = next(here, None), next(there, None)
    while one is not None and other is not None:
        if one[0] < other[0]:
            yield _gone(*one)
            one = next(here, None)
        elif other[0] < one[0]:
            yield _made(*other)
            other = next(there, None)
        else:
            if all_anew or one[1].value != other[1].value:
                yield RowChange(other[0], other[1].record, one[1].value, other[1].value)
            one, other = next(here, None), next(there, None)
    if one is not None:
        yield from (_gone(*left) for left in chain([one], here))
    if other is not None:
        yield from (_made(*left) for left in chain([other], there))


def _gone(key: bytes, row: KeptRow) -> RowChange:
    return RowChange(key, row.record, row.value, None)


def _made(key: bytes, row: KeptRow) -> RowChange:
    return RowChange(key, row.record, None, row.value)
