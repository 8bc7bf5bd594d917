"""A table of SQLite in another's place: two renames in one transaction, with the indexes that users made.

What else users hung on the old table (triggers, views, foreign keys, columns) would be left behind or would follow the
old one, so it is found first, and the swap refused by its name.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterable, Iterator

from foldlog.errors import ViewInUse
from foldlog.views.sql_bookmarks import Run
from foldlog.views.sql_names import TableName, quoted

_LITERALS_AND_COMMENTS = re.compile(r"'(?:[^']|'')*'|--[^\n]*|/\*.*?\*/", re.DOTALL)


def swap_tables(run: Run, place: str, live: TableName, shadow: TableName, old: TableName, own: Iterable[str]) -> None:
    """`shadow` becomes `live`, and what was `live` becomes `old`, whose predecessor is dropped.

    `own` are the columns that a fold made; the caller is in a writing transaction.
    """
    dependents = list(_dependents(run, live.name, own))
    if dependents:
        raise ViewInUse(place, dependents)
    indexes = run(
        "SELECT name, sql FROM sqlite_master WHERE type = 'index' AND sql IS NOT NULL AND lower(tbl_name) = lower(?)",
        live.name,
    )
    there = {name.lower() for (name,) in run("SELECT name FROM pragma_table_xinfo(?)", shadow.name)}
    for name, _ in indexes:
        for (column,) in run("SELECT name FROM pragma_index_info(?) WHERE name IS NOT NULL", name):
            if column.lower() not in there:
                raise ViewInUse(place, [f"index {name} on column {column}, which the fold no longer has"])
    run(f"DROP TABLE IF EXISTS {old.sql}")
    if table_exists(run, live):
        # An index is named once in a file: the old table gives its names away. It is only kept, not read.
        for name, _ in indexes:
            run(f"DROP INDEX {quoted(name)}")
        run(f"ALTER TABLE {live.sql} RENAME TO {old.sql}")
    run(f"ALTER TABLE {shadow.sql} RENAME TO {live.sql}")
    for _, statement in indexes:
        run(statement)


def table_exists(run: Run, table: TableName) -> bool:
    """Whether anything of that name is there, be it a table, a view or an index."""
    return bool(run("SELECT 1 FROM sqlite_master WHERE lower(name) = lower(?)", table.name))


def _dependents(run: Run, name: str, own: Iterable[str]) -> Iterator[str]:
    known = {column.lower() for column in own}
    for (column,) in run("SELECT name FROM pragma_table_xinfo(?)", name):
        if column.lower() not in known:
            yield f"column {column} (not the fold's)"
    mentioned = []
    for kind, other, on_table, statement in run(
        "SELECT type, name, tbl_name, sql FROM sqlite_master WHERE type IN ('trigger', 'view') ORDER BY type, name"
    ):
        if on_table.lower() == name.lower():
            yield f"{kind} {other}"
        elif _mentions(statement, name):
            mentioned.append((kind, other))
    if mentioned:
        followers = _followers(run, name)
        yield from (f"{kind} {other}" for kind, other in mentioned if followers is None or other in followers)
    for (table,) in run("SELECT name FROM sqlite_master WHERE type = 'table' AND sql IS NOT NULL ORDER BY name"):
        if table.lower() != name.lower() and run(
            'SELECT 1 FROM pragma_foreign_key_list(?) WHERE lower("table") = lower(?)', table, name
        ):
            yield f"foreign key of table {table}"
    if run("SELECT 1 FROM pragma_foreign_key_list(?)", name):
        yield f"foreign key of table {name} itself"


def _mentions(statement: str, name: str) -> bool:
    """Whether the name occurs in it at all, be it as a column's."""
    code = _LITERALS_AND_COMMENTS.sub(" ", statement)
    return re.search(rf"(?<!\w){re.escape(name)}(?!\w)", code, re.IGNORECASE) is not None


def _followers(run: Run, name: str) -> set[str] | None:
    """What would go with the table if it got another name, as SQLite itself finds; None if it cannot tell."""
    statements = "SELECT name, sql FROM sqlite_master WHERE type IN ('trigger', 'view')"
    before: dict[str, str] = dict(run(statements))
    run("SAVEPOINT foldlog_rename")
    try:
        run(f"ALTER TABLE {quoted(name)} RENAME TO {quoted(name + '__renamed')}")
        return {other for other, statement in run(statements) if statement != before[other]}
    except sqlite3.OperationalError:
        return None  # there is a view or a trigger that does not work anyway
    finally:
        run("ROLLBACK TO foldlog_rename")
        run("RELEASE foldlog_rename")
