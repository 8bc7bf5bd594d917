"""A peek into an SQL table: its newest rows, a row by its key, rows that contain some text.

SQLite numbers rows as they are inserted, so the newest ones come first; a replaced row keeps its number. PostgreSQL
does not, so the greatest keys come first, which its index finds at once.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from foldlog.errors import InvalidArgument, brief_repr
from foldlog.limits import PEEK_COUNT_ROWS_MAX
from foldlog.views.contract import OFFSET, PARTITION
from foldlog.views.peek.peek import Page, Peek, checked_limit
from foldlog.views.peek.sources import Source, pattern_of
from foldlog.views.peek.values import shown
from foldlog.views.sql.bookmarks import Run
from foldlog.views.sql.names import TableName
from foldlog.views.sql.types import postgres_type
from foldlog.views.table.shape import TableShape, load_pyarrow

if TYPE_CHECKING:
    import pyarrow as pa

_ROW_NUMBERS: Final = ("rowid", "_rowid_", "oid")
"""SQLite's names for the row number; a column of the table may shadow one."""

_INT64_MAX: Final = 2**63 - 1


class TablePeek(Peek):
    """See `Peek`."""

    kind = "table"

    def __init__(self, source: Source) -> None:
        load_pyarrow()  # now: importing is slow, and a look has a time limit
        self._source = source

    def rows(self, limit: int = 50, after: str | None = None) -> Page:
        count = checked_limit(limit)
        with self._source.reading() as run:
            table, shape = self._found(run)
            order = _Order(self._source, shape)
            where, values = order.beyond(after)
            rows = self._select(run, table, shape, f"{where} ORDER BY {order.descending}", values, count + 1, order)
            total = self._source.count(run, table, PEEK_COUNT_ROWS_MAX)
        cursor = order.cursor(rows[count - 1]) if len(rows) > count else None
        return self._page(shape, rows[:count], total, cursor, len(order.columns))

    def search(self, text: str, limit: int = 50) -> Page:
        count = checked_limit(limit)
        with self._source.reading() as run:
            table, shape = self._found(run)
            order = _Order(self._source, shape)
            rows = self._by_key(run, table, shape, text, count, order)
            if not rows:
                like = f"{self._source.like} {self._source.mark} ESCAPE '!'"
                any_of = " OR ".join(f"{self._source.text(name)} {like}" for name in shape.columns.names)
                values: list[object] = [pattern_of(text)] * len(shape.columns.names)
                ending = f"WHERE {any_of} ORDER BY {order.descending}"
                rows = self._select(run, table, shape, ending, values, count, order)
        return self._page(shape, rows, None, None, len(order.columns))

    def _found(self, run: Run) -> tuple[TableName, TableShape]:
        table, settings = self._source.entry(run)
        return table, TableShape.from_json(settings, self._source.location)

    def _by_key(
        self, run: Run, table: TableName, shape: TableShape, text: str, count: int, order: _Order
    ) -> list[tuple[Any, ...]]:
        """Uses the index: fast, however large the table is."""
        if not shape.key:
            return []
        field = shape.columns.field(shape.key[0])
        if not _can_be(field.type, text):
            return []
        mark = self._source.mark
        if self._source.engine == "postgresql":
            mark = f"{mark}::{postgres_type(field.type)}"
        ending = f"WHERE {self._source.name(field.name)} = {mark}"
        return self._select(run, table, shape, ending, [text], count, order)

    def _select(
        self,
        run: Run,
        table: TableName,
        shape: TableShape,
        ending: str,
        values: list[object],
        count: int,
        order: _Order,
    ) -> list[tuple[Any, ...]]:
        columns = ", ".join([*order.columns, *map(self._source.name, shape.columns.names)])
        statement = f"SELECT {columns} FROM {self._source.sql(table)} {ending} LIMIT {self._source.mark}"
        return run(statement, *values, count)

    def _page(
        self, shape: TableShape, rows: list[tuple[Any, ...]], total: int | None, cursor: str | None, skipped: int
    ) -> Page:
        columns: pa.Schema = shape.columns
        if self._source.engine == "sqlite":
            batch = self._source.batch([row[skipped:] for row in rows], columns)
            found = [list(row.values()) for row in batch.to_pylist()]
        else:
            found = [list(row[skipped:]) for row in rows]
        return Page(tuple(columns.names), [[shown(value) for value in row] for row in found], total, cursor)


class _Order:
    """The order of the rows, and how to continue after one: by the row number, or by the key, as text."""

    def __init__(self, source: Source, shape: TableShape) -> None:
        self._source = source
        taken = {name.lower() for name in shape.columns.names}
        number = next((name for name in _ROW_NUMBERS if name not in taken), None)
        if source.engine in ("sqlite", "duckdb") and number is not None:
            self._names, self._types = [str(number)], ["bigint"]
            selected = self._names
        elif shape.appends and source.engine == "postgresql":
            # Rows that are only appended stay where they are.
            self._names, self._types, selected = ["ctid"], ["tid"], ["ctid::text"]
        else:
            key = shape.key or (PARTITION, OFFSET)
            self._names = [source.name(name) for name in key]
            self._types = [postgres_type(shape.columns.field(name).type) for name in key]
            selected = [source.text(name) for name in key]
        # Under new names: the name of a column would make the order ambiguous.
        self.columns = [f"{one} AS _foldlog_place_{number}" for number, one in enumerate(selected)]
        self.descending = ", ".join(f"{name} DESC" for name in self._names)

    def cursor(self, row: tuple[Any, ...]) -> str:
        return json.dumps(list(row[: len(self.columns)]))

    def beyond(self, after: str | None) -> tuple[str, list[object]]:
        """The condition for the rows after a cursor, and its values."""
        if after is None:
            return "", []
        try:
            values = json.loads(after)
        except ValueError:
            values = None
        if not isinstance(values, list) or len(values) != len(self._names) or not all(map(_is_plain, values)):
            raise InvalidArgument(f"after={brief_repr(after)} is not where a page has ended")
        marks = [self._source.mark] * len(values)
        if self._source.engine == "postgresql":
            marks = [f"{mark}::{kind}" for mark, kind in zip(marks, self._types, strict=True)]
        return f"WHERE ({', '.join(self._names)}) < ({', '.join(marks)})", values


def _is_plain(value: object) -> bool:
    return isinstance(value, str) or (type(value) is int and abs(value) <= _INT64_MAX)


def _can_be(kind: Any, text: str) -> bool:
    """Whether the text can be a key of this type: otherwise the engine would refuse to compare it."""
    from pyarrow import types

    if types.is_integer(kind):
        digits = text.removeprefix("-")
        return digits.isascii() and digits.isdigit() and abs(int(text)) < 2 ** (kind.bit_width - 1)
    return bool(types.is_string(kind)) and "\0" not in text
