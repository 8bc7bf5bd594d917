"""Counters in any SQL engine: one row of merged partial results for each group.

A reader sees the groups and the measures. Plain measures are merged by the engine, the others in Arrow.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, ClassVar, Final, Generic, TypeVar

from foldlog.errors import InvalidArgument
from foldlog.views.contract import Shape
from foldlog.views.counters.measures import Aggregation
from foldlog.views.counters.settings import CounterSettings
from foldlog.views.counters.windows import WINDOW_END
from foldlog.views.merged.view import MergedTransaction, MergedView, StoredRows
from foldlog.views.sql.bookmarks import Run
from foldlog.views.sql.names import quoted, quoted_list

if TYPE_CHECKING:
    import pyarrow as pa

Connection = TypeVar("Connection")
Stored = StoredRows[CounterSettings]

KIND: Final = "counters"


class CountersView(MergedView[Connection, CounterSettings], Generic[Connection]):
    """See `foldlog.views.counters.counters`."""

    kind: ClassVar[str] = KIND
    stored_kind: ClassVar[str] = KIND
    adds: bool = True
    counted: Aggregation
    """What it keeps for each group."""

    @abstractmethod
    def _merge_in_sql(self, transaction: MergedTransaction[Connection], stored: Stored, rows: pa.Table) -> None:
        """Insert rows of new groups, and merge those of known ones; `rows` is in the types of the table."""

    @abstractmethod
    def _mean(self, name: str, stored: Stored) -> str:
        """The SQL of a mean for the readers' view."""

    def _wanted(self, shape: Shape) -> CounterSettings:
        expected = self.counted.columns()
        if shape.columns.names != expected:
            raise InvalidArgument(f"counters are fed the columns {', '.join(expected)}: see check_aggregation")
        return CounterSettings(self.counted, shape.columns)

    def _settings_from(self, text: str) -> CounterSettings:
        return CounterSettings.from_json(text)

    def _reconcile(self, run: Run, stored: Stored, wanted: CounterSettings) -> None:
        stored.settings.refuse_change(wanted, self.place)

    def _merge(self, transaction: MergedTransaction[Connection], stored: Stored, rows: pa.Table) -> None:
        if stored.settings.merges_in_sql:
            self._merge_in_sql(transaction, stored, rows)
        else:
            super()._merge(transaction, stored, rows)

    @staticmethod
    def _merged(stored: Stored, new: str) -> str:
        """The assignments of an UPDATE of the table, aliased `kept`, that merge the partial results of `new` into it. A
        null on one side leaves the other's value."""
        parts = []
        for name, how, _ in stored.settings.aggregation.partials():
            here, there = f"kept.{quoted(name)}", f"{new}.{quoted(name)}"
            if how in ("count", "sum"):
                both = f"coalesce({here} + {there}, {here}, {there})"
            else:
                both = f"{'least' if how == 'min' else 'greatest'}({here}, {there})"
            parts.append(f"{quoted(name)} = {both}")
        return ", ".join(parts)

    def _contents(self, transaction: MergedTransaction[Connection], stored: Stored) -> Iterator[Any]:
        schema = stored.settings.stored()
        for batch in self._read(transaction, f"SELECT {quoted_list(schema.names)} FROM {stored.table.sql}", schema):
            yield stored.settings.show(batch)

    def _selection(self, stored: Stored) -> str:
        ends = [WINDOW_END] if stored.settings.aggregation.sessions is not None else []
        columns = [quoted(name) for name in (*stored.settings.groups, *ends)]
        for name, measure in stored.settings.visible().items():
            shown = self._mean(name, stored) if measure.kind == "avg" else quoted(name)
            known = stored.settings.known(name)
            if known is not None:
                shown = f"CASE WHEN {quoted(known)} > 0 THEN {shown} END"
            columns.append(f"{shown} AS {quoted(name)}")
        return f"SELECT {', '.join(columns)} FROM {stored.table.sql}"
