"""Bulk loading a table of PostgreSQL: COPY of all versions of rows into a table without an index; at the end the newest
of each is kept, and the primary key is built.

Every range is one transaction, so the id of the transaction that wrote a row (its `xmin`) tells how new it is: the
table needs no column for it, and ends as if it had been filled row by row. Tombstones wait in a table beside it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from foldlog.views.sql.bookmarks import Run
from foldlog.views.sql.names import TableName, quoted, quoted_list
from foldlog.views.sql.postgres import load_psycopg
from foldlog.views.sql.types import postgres_type
from foldlog.views.table.rows import written_twice
from foldlog.views.table.shape import TableShape

LOADING: Final = "_load"
"""Suffix of the table with the tombstones."""

DEAD_PART_MAX: Final = 0.2
"""With a larger share of superseded rows, the table is rewritten without them."""

_MEMORY: Final = "SELECT set_config('work_mem', '64MB', true), set_config('maintenance_work_mem', '256MB', true)"
"""For the one sort and the one index of a rebuild."""


def create_tombstones(run: Run, table: TableName, shape: TableShape) -> None:
    """Only if the topic has a record key: without one there are no tombstones."""
    if shape.record_key is None:
        return
    kind = postgres_type(shape.columns.field(shape.record_key).type, in_key=True)
    run(f"CREATE TABLE {table.beside(LOADING).sql} ({quoted(shape.record_key)} {kind} NOT NULL)")


def drop_superseded(run: Run, table: TableName, shape: TableShape) -> bool:
    """Delete all but the newest record of each record key. Whether the table is mostly holes then."""
    run(_MEMORY)
    # If a publication FOR ALL TABLES includes this table, deleting requires a replica identity or a primary key.
    run(f"ALTER TABLE {table.sql} REPLICA IDENTITY FULL")
    columns = quoted_list(shape.record_columns)
    versions = f"SELECT {columns}, age(xmin) AS age FROM {table.sql}"
    if shape.record_key is not None:
        versions += f" UNION ALL SELECT {columns}, age(xmin) FROM {table.beside(LOADING).sql}"
    agree = " AND ".join(f"kept.{quoted(name)} = newest.{quoted(name)}" for name in shape.record_columns)
    ((dropped,),) = run(
        f"WITH newest AS (SELECT {columns}, min(age) AS age FROM ({versions}) AS version"
        f" GROUP BY {columns} HAVING min(age) < max(age)),"
        f" dropped AS (DELETE FROM {table.sql} AS kept USING newest"
        f" WHERE {agree} AND age(kept.xmin) > newest.age RETURNING 1)"
        " SELECT count(*) FROM dropped"
    )
    if not dropped:
        return False
    ((kept,),) = run(f"SELECT count(*) FROM {table.sql}")
    return bool(dropped > DEAD_PART_MAX * (dropped + kept))


def index_records(run: Run, table: TableName, shape: TableShape) -> None:
    """An index for looking up rows by record, which is not part of the primary key."""
    if shape.finds_records:
        run(f"CREATE INDEX ON {table.sql} ({quoted_list(shape.record_columns)})")


@contextmanager
def written_once(location: str) -> Iterator[None]:
    """FoldError if two records have written the same key."""
    errors = load_psycopg().errors
    try:
        yield
    except errors.UniqueViolation as error:
        raise written_twice(location, str(error.diag.message_detail)) from error


def make_primary_key(run: Run, table: TableName, shape: TableShape) -> None:
    """Build the primary key, drop the tombstones, and analyze the table for the planner."""
    run(_MEMORY)
    run(f"ALTER TABLE {table.sql} ADD PRIMARY KEY ({quoted_list(shape.key)}), REPLICA IDENTITY DEFAULT")
    index_records(run, table, shape)
    run(f"DROP TABLE IF EXISTS {table.beside(LOADING).sql}")
    run(f"ANALYZE {table.sql}")
