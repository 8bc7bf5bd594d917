"""`table`: a fold's rows as a table of SQL. A newer record replaces what its key had, a tombstone deletes it.

PostgreSQL by URL, SQLite by path. The table belongs to the fold: read it, index it, grant it; writing to it by hand is
lost at the next rebuild. Making one connects to nothing.
"""

from __future__ import annotations

import os
from collections.abc import Sequence

from foldlog.errors import InvalidArgument, brief_repr
from foldlog.views.contract import View
from foldlog.views.sql_names import table_name
from foldlog.views.sql_postgres import is_postgres_url
from foldlog.views.sql_sqlite import sqlite_path


def table(url_or_path: str | os.PathLike[str], name: str, key: str | Sequence[str] | None = None) -> View:
    """A table view: `table("postgresql://shop@db/shop", "payments")` or `table("views/live.db", "payments")`.

    `key` are the columns that make a row unique. Left out, it is the column of the record's key. With more columns than
    that, one record may give several rows, and a newer record of the same key replaces them all.
    """
    columns = key_columns(key)
    if is_postgres_url(url_or_path):
        from foldlog.views.table_postgres import PostgresTable

        return PostgresTable(str(url_or_path), table_name(name, with_schema=True), columns)
    from foldlog.views.table_sqlite import SqliteTable

    # Absolute: a view stays where it is when its process changes directory.
    return SqliteTable(os.path.abspath(sqlite_path(url_or_path)), table_name(name, with_schema=False), columns)


def key_columns(key: object) -> tuple[str, ...]:
    """What was given as `key`, as column names."""
    if key is None:
        return ()
    names = (key,) if isinstance(key, str) else key
    if not isinstance(names, list | tuple) or not names or not all(isinstance(name, str) and name for name in names):
        raise InvalidArgument(f"a key is a column or a list of columns, such as ['id', 'line'], not {brief_repr(key)}")
    return tuple(names)
