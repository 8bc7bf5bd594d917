"""Rows of a range that executors COPY into an unlogged table of PostgreSQL, beside the view's; the view's transaction
merges them from there.

Every row has the number of the try that copied it: the merge takes the tries that were reported, after it has counted
their rows, as a server that crashed empties unlogged tables. The table's comment says whose range it is (`RangeName`
and the view's table). One whose range is past is dropped by the next runner of the view; an executor that still copies
into it keeps it for a while, and the runner after that drops it.
"""

from __future__ import annotations

import secrets
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final, NamedTuple

from foldlog.errors import MissingDependency, ViewUnavailable
from foldlog.limits import POSTGRES_STAGE_CONNECTIONS_MAX, POSTGRES_SWEEP_WAIT_MS
from foldlog.views.bookmark import Bookmark
from foldlog.views.contract import DELETED, OFFSET, PARTITION
from foldlog.views.sql.bookmarks import Run
from foldlog.views.sql.names import TableName, quoted, quoted_list
from foldlog.views.sql.postgres import PostgresDatabase, load_psycopg, runner
from foldlog.views.sql.postgres_limits import may_be_too_long
from foldlog.views.sql.types import postgres_type
from foldlog.views.staging import (
    RangeName,
    Ranges,
    StagedDelta,
    StagedPart,
    StageWriter,
    UnheldRows,
    UnreachableStage,
    ViewStage,
)
from foldlog.views.table.postgres_copy import COPY_OPTIONS, csv_of, encoded
from foldlog.views.table.postgres_load import LOADING
from foldlog.views.table.rows import conformed
from foldlog.views.table.shape import TableShape

if TYPE_CHECKING:
    import pyarrow as pa

_PREFIX: Final = "_foldlog_stage_"
_IS_ROW: Final = "_is_row"
_TRY: Final = "_try"
_EXTRA: Final = {PARTITION: "integer", OFFSET: "bigint", DELETED: "boolean", _IS_ROW: "boolean", _TRY: "bigint"}
_NEWEST: Final = TableName("_foldlog_newest", "pg_temp")
_GONE: Final = TableName("_foldlog_gone", "pg_temp")
_MEMORY: Final = "SELECT set_config('work_mem', '64MB', true)"
"""For the one sort of a range."""

_FIND: Final = """
    SELECT relname, obj_description(pg_class.oid, 'pg_class') FROM pg_class
    JOIN pg_namespace ON pg_namespace.oid = relnamespace WHERE nspname = %s AND starts_with(relname, %s)
"""


@dataclass(frozen=True)
class PostgresStage(ViewStage):
    """An unlogged table for the rows of one range. The URL has the password in it, and is never shown."""

    url: str = field(repr=False)
    location: str
    table: TableName
    shape: TableShape = field(repr=False)
    are_rows: bool = True

    needs_order = True
    has_one_row_each = True
    tasks_max = POSTGRES_STAGE_CONNECTIONS_MAX

    def open(self, label: str) -> StageWriter:
        return _CopyWriter(self)

    def is_there(self) -> bool:
        return True  # a table that is gone is no reason to believe that the server cannot be reached

    def for_deletions(self) -> ViewStage:
        return replace(self, are_rows=False)


class _CopyWriter(StageWriter):
    """One connection, and one COPY, which is committed at the end."""

    def __init__(self, stage: PostgresStage) -> None:
        self._stage = stage
        self._number = secrets.randbits(62)
        self._count = 0
        self._database = PostgresDatabase(stage.url, stage.location, (stage.table,))
        names = [*stage.shape.columns.names, *_EXTRA]
        statement = f"COPY {stage.table.sql} ({quoted_list(names)}) FROM STDIN {COPY_OPTIONS}"
        try:
            with ExitStack() as stack:
                connection = stack.enter_context(self._database.transaction())
                cursor = stack.enter_context(connection.cursor())
                self._copy = stack.enter_context(cursor.copy(statement.encode()))
                self._stack = stack.pop_all()
        except ViewUnavailable as error:
            self._database.close()
            if isinstance(error.__cause__, load_psycopg().errors.UndefinedTable):
                raise UnheldRows("another runner has removed the place of the range") from error
            raise UnreachableStage(str(error)) from error
        except MissingDependency as error:
            raise UnreachableStage(str(error)) from error

    def add(self, rows: pa.Table) -> None:
        import pyarrow as pa

        stage = self._stage
        if stage.are_rows and may_be_too_long(rows.select(list(stage.shape.key))) is not None:
            raise UnheldRows("a key is perhaps too long for an index")
        content = encoded(conformed(rows, stage.shape, stage.location))
        for name, value in ((_IS_ROW, pa.scalar(stage.are_rows)), (_TRY, pa.scalar(self._number, pa.int64()))):
            rows = rows.append_column(name, pa.repeat(value, rows.num_rows))
        for name in _EXTRA:
            content = content.append_column(name, rows[name])
        for piece in csv_of(content):
            self._copy.write(piece)
        self._count += rows.num_rows

    def close(self) -> list[StagedPart]:
        try:
            self._stack.close()
        finally:
            self._database.close()
        return [StagedPart(str(self._number), self._count)] if self._count else []

    def abandon(self) -> None:
        error = RuntimeError("the task has failed")
        with suppress(Exception):  # whatever the server says to a COPY that ends early
            self._stack.__exit__(type(error), error, None)
        self._database.close()


def new_stage(
    run: Run, url: str, location: str, table: TableName, shape: TableShape, ranges: Ranges, expected: Bookmark
) -> PostgresStage:
    """Create the table for a range of the view's `table`."""
    name = RangeName.of(ranges, expected)
    stage = TableName(f"{_PREFIX}{name.token}", table.schema)
    types = [f"{quoted(one.name)} {postgres_type(one.type, in_key=one.name in shape.key)}" for one in shape.columns] + [
        f"{quoted(name)} {kind}" for name, kind in _EXTRA.items()
    ]
    run(f"CREATE UNLOGGED TABLE {stage.sql} ({', '.join(types)}) WITH (autovacuum_enabled = false)")
    comment = f"{name} {table.name}".replace("'", "''")
    run(f"COMMENT ON TABLE {stage.sql} IS '{comment}'")
    return PostgresStage(url, location, stage, shape)


class StagedQuery(NamedTuple):
    """A query for the newest row of each key of a range, in key order, with a column for whether it deletes."""

    query: str
    tries: list[int]
    columns: str
    key: str


def gather(run: Run, staged: StagedDelta, location: str) -> StagedQuery:
    """What the executors have reported, after a look that all of it is there."""
    stage = staged.stage
    if not isinstance(stage, PostgresStage):
        raise TypeError(f"{type(stage).__name__} has no table")
    told = {int(part.name): part.rows for part in staged.parts}
    if not run("SELECT to_regclass(%s) IS NOT NULL", stage.table.sql)[0][0]:
        raise ViewUnavailable(location, "what the executors wrote was removed; the range is read again")
    counts: dict[int, int] = dict(
        run(f"SELECT {_TRY}, count(*) FROM {stage.table.sql} WHERE {_TRY} = ANY(%s) GROUP BY 1", list(told))
    )
    if counts != told:
        raise ViewUnavailable(location, "what the executors wrote is not complete any more; the range is read again")
    columns, key = quoted_list(stage.shape.columns.names), quoted_list(stage.shape.key)
    # If a record has a row and a deletion, the row counts: the deletions are of all records, with rows or without.
    query = (
        f"SELECT DISTINCT ON ({key}) {columns}, {DELETED} FROM {stage.table.sql} WHERE {_TRY} = ANY(%s)"
        f" ORDER BY {key}, {PARTITION} DESC, {OFFSET} DESC, {_IS_ROW} DESC"
    )
    return StagedQuery(query, list(told), columns, key)


def load(run: Run, table: TableName, found: StagedQuery) -> None:
    """Add a range to a shadow that is being loaded: see `postgres_load.py`."""
    run(_MEMORY)
    run(
        f"WITH newest AS MATERIALIZED ({found.query}),"
        f" gone AS (INSERT INTO {table.beside(LOADING).sql} ({found.key})"
        f" SELECT {found.key} FROM newest WHERE {DELETED})"
        f" INSERT INTO {table.sql} ({found.columns}) SELECT {found.columns} FROM newest WHERE NOT {DELETED}",
        found.tries,
    )


def merge(run: Run, table: TableName, found: StagedQuery, on_conflict: str) -> None:
    """Bring a range into a table: delete what its newest records delete, and replace or insert the others."""
    run(_MEMORY)
    run(f"CREATE TEMPORARY TABLE {_NEWEST.sql} ON COMMIT DROP AS {found.query}", found.tries)
    run(f"CREATE TEMPORARY TABLE {_GONE.sql} ON COMMIT DROP AS SELECT {found.key} FROM {_NEWEST.sql} WHERE {DELETED}")
    # A few keys of a large table should be looked up, not joined: the planner has to know that they are few.
    run(f"ANALYZE {_GONE.sql}")
    run(f"DELETE FROM {table.sql} AS kept USING {_GONE.sql} AS gone WHERE kept.{found.key} = gone.{found.key}")
    # They lie in key order, so neighbours go to the same pages of the index.
    run(
        f"INSERT INTO {table.sql} ({found.columns}) SELECT {found.columns} FROM {_NEWEST.sql}"
        f" WHERE NOT {DELETED}{on_conflict}"
    )


def sweep(database: PostgresDatabase, table: TableName, stored: Bookmark | None) -> bool:
    """Drop the tables of ranges of this view that its bookmark is past, or all if it is gone. Whether none is left."""
    with database.transaction() as connection:
        found = runner(connection)(_FIND, table.schema, _PREFIX)
    is_clean = True
    for name, comment in found:
        text, _, of = (comment or "").partition(" ")
        place = RangeName.parse(text)
        if place is None or of != table.name:
            continue
        if stored is not None and not place.is_past(stored):
            is_clean = False
            continue
        try:
            with database.transaction(wait_ms=POSTGRES_SWEEP_WAIT_MS) as connection:
                runner(connection)(f"DROP TABLE IF EXISTS {TableName(name, table.schema).sql}")
        except ViewUnavailable:
            is_clean = False  # an executor is still copying into it
    return is_clean
