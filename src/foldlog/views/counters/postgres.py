"""Counters in PostgreSQL."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from foldlog.errors import ViewUnavailable
from foldlog.views.counters.measures import Aggregation
from foldlog.views.counters.settings import CounterSettings
from foldlog.views.counters.view import CountersView
from foldlog.views.merged.groups import SUM_TOO_LARGE
from foldlog.views.merged.postgres import PostgresMerged, conflict_of, copy_in, refuse_nul
from foldlog.views.merged.view import MergedTransaction, StoredRows
from foldlog.views.sql.names import quoted, quoted_list
from foldlog.views.sql.postgres import load_psycopg

if TYPE_CHECKING:
    import pyarrow as pa

Stored = StoredRows[CounterSettings]


class PostgresCounters(CountersView[Any], PostgresMerged[CounterSettings]):
    """See `PostgresMerged`."""

    def __init__(self, url: str, aggregation: Aggregation, name: str, label: str | None = None) -> None:
        PostgresMerged.__init__(self, url, name, label)
        self.aggregation = self.counted = aggregation

    def _merge_in_sql(self, transaction: MergedTransaction[Any], stored: Stored, rows: pa.Table) -> None:
        psycopg = load_psycopg()
        refuse_nul(rows, self.place)
        columns = quoted_list(rows.column_names)
        transaction.run(f"CREATE TEMP TABLE foldlog_range (LIKE {stored.table.sql}) ON COMMIT DROP")
        copy_in(transaction, "foldlog_range", rows)
        try:
            transaction.run(
                f"INSERT INTO {stored.table.sql} AS kept ({columns}) SELECT {columns} FROM foldlog_range"
                f" ON CONFLICT ({conflict_of(stored)}) DO UPDATE SET {self._merged(stored, 'excluded')}"
            )
        except psycopg.errors.NumericValueOutOfRange as error:
            raise ViewUnavailable(self.place, SUM_TOO_LARGE) from error

    def _mean(self, name: str, stored: Stored) -> str:
        from pyarrow import types

        total, count = quoted(f"{name}__sum"), f"nullif({quoted(f'{name}__count')}, 0)"
        kind = stored.settings.shown().field(name).type
        if types.is_floating(kind):
            return f"{total}::double precision / {count}"
        return f"round({total} / {count}, {kind.scale})"

    def _another(self, label: str) -> PostgresCounters:
        return PostgresCounters(self._url, self.counted, str(self._table), label)
