"""Counters in a DuckDB file."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from foldlog.limits import VIEW_LOCK_WAIT_MS
from foldlog.views.counters.measures import Aggregation
from foldlog.views.counters.settings import CounterSettings
from foldlog.views.counters.view import CountersView
from foldlog.views.merged.duckdb import DuckdbMerged
from foldlog.views.merged.view import MergedTransaction, StoredRows
from foldlog.views.sql.duckdb import without_zones
from foldlog.views.sql.names import quoted, quoted_list

if TYPE_CHECKING:
    import pyarrow as pa

Stored = StoredRows[CounterSettings]


class DuckdbCounters(CountersView[Any], DuckdbMerged[CounterSettings]):
    """See `DuckdbMerged`."""

    def __init__(
        self,
        path: str,
        aggregation: Aggregation,
        name: str,
        label: str | None = None,
        *,
        wait_ms: int = VIEW_LOCK_WAIT_MS,
    ) -> None:
        DuckdbMerged.__init__(self, path, name, label, wait_ms=wait_ms)
        self.aggregation = self.counted = aggregation

    def _merge_in_sql(self, transaction: MergedTransaction[Any], stored: Stored, rows: pa.Table) -> None:
        """Two joins over whole columns, without an index: it would cost DuckDB more than it gives."""
        groups = stored.settings.groups
        same = " AND ".join(f"kept.{quoted(name)} IS NOT DISTINCT FROM new.{quoted(name)}" for name in groups) or "TRUE"
        transaction.connection.register("foldlog_range", without_zones(rows))
        both = self._merged(stored, "new")
        transaction.run(f"UPDATE {stored.table.sql} AS kept SET {both} FROM foldlog_range AS new WHERE {same}")
        transaction.run(
            f"INSERT INTO {stored.table.sql} ({quoted_list(rows.column_names)}) SELECT {quoted_list(rows.column_names)}"
            f" FROM foldlog_range AS new WHERE NOT EXISTS (SELECT 1 FROM {stored.table.sql} AS kept WHERE {same})"
        )
        transaction.connection.unregister("foldlog_range")

    def _mean(self, name: str, stored: Stored) -> str:
        return f"{quoted(f'{name}__sum')}::DOUBLE / nullif({quoted(f'{name}__count')}, 0)"

    def _another(self, label: str) -> DuckdbCounters:
        return DuckdbCounters(self._path, self.counted, self._table.name, label, wait_ms=self._wait_ms)
