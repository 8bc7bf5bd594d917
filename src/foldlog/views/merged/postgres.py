"""Merged views in PostgreSQL 15 or later, where a unique index can treat two nulls as equal.

Text is stored with the collation "C": Spark compares bytes, and a minimum must not depend on which of the two compares.
Grants and other SQL views on the readers' view survive a rebuild, since it stays the same object while its columns do;
if the columns change, rights are granted again, and dependents are named and the change is refused.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, ClassVar, Final

from foldlog.errors import FoldError, ViewInUse, ViewUnavailable
from foldlog.limits import VIEW_APPLY_LOCK_WAIT_MS, VIEW_SCAN_ROWS
from foldlog.views.merged.view import MergedTransaction, MergedView, Settings, StoredRows
from foldlog.views.sql.bookmarks import BookmarkTable, Run
from foldlog.views.sql.names import BOOKMARKS, TableName, quoted, quoted_list, table_name
from foldlog.views.sql.postgres import (
    PostgresDatabase,
    bookmark_table,
    lock_schema,
    public_url,
    relation_bytes,
    resolved,
    runner,
    table_exists,
)
from foldlog.views.sql.postgres_limits import PostgresLimits
from foldlog.views.sql.types import postgres_type
from foldlog.views.storable import columns_where, is_nul
from foldlog.views.table.postgres_copy import COPY_OPTIONS, csv_of

if TYPE_CHECKING:
    import pyarrow as pa

VERSION_MIN: Final = 150_000

_DEPENDENTS: Final = """
    SELECT DISTINCT rewrite.ev_class::regclass::text FROM pg_depend AS depend
    JOIN pg_rewrite AS rewrite ON depend.classid = 'pg_rewrite'::regclass AND depend.objid = rewrite.oid
    WHERE depend.refclassid = 'pg_class'::regclass AND depend.refobjid = to_regclass(%s)
          AND rewrite.ev_class <> depend.refobjid AND rewrite.ev_class <> coalesce(to_regclass(%s), 0)
    ORDER BY 1
"""
"""SQL views that select from the first relation, except the second one."""

_GRANTS: Final = """
    SELECT privilege_type, is_grantable,
           CASE grantee WHEN 0 THEN 'PUBLIC' ELSE quote_ident(pg_get_userbyid(grantee)) END
    FROM pg_class, aclexplode(relacl) WHERE pg_class.oid = to_regclass(%s) AND grantee <> relowner
"""


class PostgresMerged(MergedView[Any, Settings]):
    """One connection, one thread at a time. Runners of the same view wait for each other at the bookmark's row."""

    holds_nul: ClassVar[bool] = False

    def __init__(self, url: str, name: str, label: str | None = None) -> None:
        super().__init__(table_name(name, with_schema=True), label)
        self._url = url
        tables = (self._table.beside("__1"), TableName(BOOKMARKS, self._table.schema))
        self._database = PostgresDatabase(url, self.place, tables)
        self._limits = PostgresLimits(self._database)

    @property
    def _where(self) -> str:
        return public_url(self._url)

    @property
    def _named(self) -> str:
        return str(TableName(self._name, self._table.schema))

    def description(self) -> dict[str, object] | None:
        return {
            "kind": self.kind,
            "engine": "postgresql",
            "url": public_url(self._url),
            "name": str(self._table),
        }

    def size_bytes(self) -> int | None:
        with self._reading() as transaction:
            stored = self._find(transaction.run)
            return None if stored is None else relation_bytes(transaction.run, stored.table)

    def holds_unicode(self) -> bool:
        return self._limits.holds_unicode()

    def unheld_characters(self, characters: frozenset[str]) -> frozenset[str]:
        return self._limits.unheld_characters(characters)

    def unheld_keys(self, keys: pa.Table) -> pa.ChunkedArray | None:
        return self._limits.unheld_keys(keys)

    @property
    def _bookmarks(self) -> BookmarkTable:
        return bookmark_table(self._table.schema)

    def close(self) -> None:
        self._database.close()

    def _exists(self) -> bool:
        return True

    @contextmanager
    def _writing(self, *, create: bool = False) -> Iterator[MergedTransaction[Any]]:
        with self._database.transaction(wait_ms=None if create else VIEW_APPLY_LOCK_WAIT_MS) as connection:
            if create and connection.info.server_version < VERSION_MIN:
                raise ViewUnavailable(
                    self.place,
                    f"{self.kind} need PostgreSQL 15 or later, and this is {connection.info.server_version // 10_000}",
                )
            run = runner(connection)
            if create:
                lock_schema(run, resolved(run, self._table, self.place).schema)
            yield MergedTransaction(connection, run)

    @contextmanager
    def _reading(self) -> Iterator[MergedTransaction[Any]]:
        database = self._database.another()
        try:
            with database.transaction(snapshot=True) as connection:
                yield MergedTransaction(connection, runner(connection))
        finally:
            database.close()

    def _has_bookmarks(self, run: Run) -> bool:
        return table_exists(run, self._bookmarks.table)

    def _make_table(self, run: Run, stored: StoredRows[Settings]) -> None:
        columns = [
            f"{quoted(field.name)} {postgres_type(field.type, in_key=True)}" for field in stored.settings.stored()
        ]
        # Every range updates existing rows: with free space in their pages, the index need not be updated.
        run(f"CREATE TABLE {stored.table.sql} ({', '.join(columns)}) WITH (fillfactor = 70)")
        index = quoted(f"{stored.table.name}_groups")
        run(f"CREATE UNIQUE INDEX {index} ON {stored.table.sql} ({conflict_of(stored)}) NULLS NOT DISTINCT")

    def _make_view(self, run: Run, stored: StoredRows[Settings], shown_before: Settings | None) -> None:
        selection, view = self._selection(stored), self._table.sql
        if shown_before is not None:
            self._refuse_dependents_of_table(run)
        if shown_before is None or shown_before.shown() == stored.settings.shown():
            run(f"CREATE OR REPLACE VIEW {view} AS {selection}")
            return
        dependents = [name for (name,) in run(_DEPENDENTS, view, view)]
        if dependents:
            raise ViewInUse(self.place, dependents)
        grants = run(_GRANTS, view)
        run(f"DROP VIEW IF EXISTS {view}")
        run(f"CREATE VIEW {view} AS {selection}")
        for privilege, is_grantable, grantee in grants:
            run(f"GRANT {privilege} ON {view} TO {grantee}{' WITH GRANT OPTION' if is_grantable else ''}")

    def check_swap(self) -> None:
        with self._reading() as transaction:
            self._refuse_dependents_of_table(transaction.run)

    def _refuse_dependents_of_table(self, run: Run) -> None:
        """ViewInUse if another SQL view selects from the table of partial results: it would stay with the old one."""
        old = self._find(run)
        dependents = [] if old is None else [name for (name,) in run(_DEPENDENTS, old.table.sql, self._table.sql)]
        if dependents:
            raise ViewInUse(self.place, dependents)

    def _take(self, transaction: MergedTransaction[Any], stored: StoredRows[Settings], keys: pa.Table) -> pa.Table:
        import pyarrow as pa

        refuse_nul(keys, self.place)
        schema, by = stored.settings.stored(), stored.settings.groups
        transaction.run(f"CREATE TEMP TABLE foldlog_range (LIKE {stored.table.sql}) ON COMMIT DROP")
        if keys.column_names:
            copy_in(transaction, "foldlog_range", keys)
        else:
            transaction.run("INSERT INTO foldlog_range DEFAULT VALUES")
        transaction.run("ANALYZE foldlog_range")
        # An index does not find what may be null, so groups with a null are looked for separately, if there are any.
        conditions = stored.settings.met("=", stored.table, seeks=True)[:1]
        if any(keys[name].null_count for name in by):
            has_null = " OR ".join(f"new.{quoted(name)} IS NULL" for name in by)
            conditions += [
                f"({has_null}) AND {one}" for one in stored.settings.met("IS NOT DISTINCT FROM", stored.table)
            ]
        found: list[tuple[Any, ...]] = []
        for condition in conditions:
            found += transaction.run(
                f"DELETE FROM {stored.table.sql} AS kept USING foldlog_range AS new WHERE {condition}"
                f" RETURNING {', '.join(f'kept.{quoted(name)}' for name in schema.names)}"
            )
        return pa.Table.from_batches([_batch(found, schema)])

    def _put(self, transaction: MergedTransaction[Any], stored: StoredRows[Settings], rows: pa.Table) -> None:
        refuse_nul(rows, self.place)
        copy_in(transaction, stored.table.sql, rows)

    def _sql_type(self, kind: Any) -> str:
        return postgres_type(kind, in_key=True)

    def _read(self, transaction: MergedTransaction[Any], statement: str, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        with transaction.connection.cursor("foldlog_scan") as cursor:
            cursor.execute(statement.encode())
            while found := cursor.fetchmany(VIEW_SCAN_ROWS):
                yield _batch(found, schema)


def copy_in(transaction: MergedTransaction[Any], table: str, rows: pa.Table) -> None:
    statement = f"COPY {table} ({quoted_list(rows.column_names)}) FROM STDIN {COPY_OPTIONS}"
    with transaction.connection.cursor() as cursor, cursor.copy(statement.encode()) as copy:
        for piece in csv_of(rows):
            copy.write(piece)


def _batch(rows: list[tuple[Any, ...]], schema: pa.Schema) -> pa.RecordBatch:
    import pyarrow as pa

    columns = list(zip(*rows, strict=True)) if rows else [()] * len(schema)
    arrays = [pa.array(values, field.type) for values, field in zip(columns, schema, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def refuse_nul(rows: pa.Table, location: str) -> None:
    for name, _ in columns_where(rows, is_nul):
        raise FoldError(
            f"{location} cannot hold a text of column {name!r}: it has a character NUL, which PostgreSQL cannot store;"
            " replace it in the fold, or fold into another engine"
        )


def conflict_of(stored: StoredRows[Settings]) -> str:
    """The unique columns; without groups a constant, so that there is one row."""
    return quoted_list(stored.settings.groups) or "(TRUE)"
