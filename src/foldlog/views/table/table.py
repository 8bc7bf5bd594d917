"""`table`: a fold's rows as an SQL table. A newer record replaces the rows of its key, a tombstone deletes them.

PostgreSQL, MySQL and MariaDB by URL, SQLite by path. The table belongs to the fold: read it, index it, grant rights on
it; changes by hand are lost at the next rebuild. Making a view connects to nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Literal, get_args

from foldlog.errors import InvalidArgument, brief_repr
from foldlog.files.paths import PathLike, as_text, suffix_of
from foldlog.views.contract import View
from foldlog.views.local_paths import local_path
from foldlog.views.sql.mysql import is_mysql_url
from foldlog.views.sql.names import table_name
from foldlog.views.sql.postgres import is_postgres_url
from foldlog.views.sql.sqlite import sqlite_path
from foldlog.views.table.expiry import parse_ttl
from foldlog.views.table.shape import Replaces, TableSettings
from foldlog.views.versions.versions import versions_at

Mode = Literal["merge", "append"]
DUCKDB_SUFFIXES: Final = (".duckdb", ".ddb")


def table(
    url_or_path: str | PathLike[str],
    name: str | None = None,
    key: str | Sequence[str] | None = None,
    *,
    replaces: Replaces | None = None,
    mode: Mode = "merge",
    ttl: tuple[str, str] | None = None,
    order_by: str | None = None,
) -> View:
    """A table view: `table("postgresql://shop@db/shop", "payments")`, or by mysql://, or `table("views/live.db", …)`.

    `key` are the columns that make a row unique; by default the column of the record's key. With more columns, one
    record may give several rows, and a newer record of the same key replaces them all.

    A key without the column of the record's key is the row's own: a row stays until a newer one has its key, and a
    tombstone of the record's key withdraws all rows that its records wrote. `replaces="row"` asks for that with any
    key, `replaces="record"` for a newer record that replaces all rows of its record key.

    `mode="append"` keeps every row, with `_partition`, `_offset`, `_timestamp` and `_deleted`, as a lake does: for
    topics without keys. It can be in a DuckDB file, too: `table("views/shop.duckdb", "events", mode="append")`.

    `ttl=("at", "30 days")` leaves out rows whose time is so long before the latest time that any row has told.

    With `order_by`, the newest row of a key is the one with the largest value in that column, wherever and whenever it
    was written: see docs/history.md.
    """
    if mode not in get_args(Mode):
        raise InvalidArgument(f"a table's mode is one of {', '.join(get_args(Mode))}, not {brief_repr(mode)}")
    if mode == "append" and (key is not None or replaces is not None):
        raise InvalidArgument("a table that appends has no key= and no replaces=: every row is kept; use mode='merge'")
    if order_by is not None:
        if replaces is not None or mode != "merge" or ttl is not None:
            raise InvalidArgument("order_by= decides which row of a key is the newest; omit replaces=, mode= and ttl=")
        return versions_at(url_or_path, name, key, order_by, keeps_all=False)
    _refuse_other_formats(url_or_path, mode)
    if name is None:
        raise InvalidArgument(f"a table has a name beside its place: fl.table({as_text(url_or_path)!r}, 'payments')")
    if replaces not in (None, *get_args(Replaces)):
        raise InvalidArgument(f"replaces={brief_repr(replaces)} is not one of {', '.join(get_args(Replaces))}")
    if replaces == "row" and key is None:
        raise InvalidArgument("replaces='row' needs the key of a row: fl.table(..., key=['order_id'], replaces='row')")
    asked = TableSettings(key_columns(key), replaces, parse_ttl(ttl))
    if is_postgres_url(url_or_path) or is_mysql_url(url_or_path):
        return _of_server(str(url_or_path), name, asked, mode)
    if _suffix(url_or_path) in DUCKDB_SUFFIXES:
        from foldlog.views.table.duckdb import DuckdbHistory

        if ttl is not None:
            raise InvalidArgument("a table in DuckDB has no ttl=; keep it in SQLite or PostgreSQL")
        return DuckdbHistory(local_path(as_text(url_or_path)), table_name(name, with_schema=False))
    from foldlog.views.table.sqlite import SqliteHistory, SqliteTable

    in_sqlite = SqliteHistory if mode == "append" else SqliteTable
    # Absolute: a view stays where it is if its process changes directory.
    return in_sqlite(local_path(sqlite_path(url_or_path)), table_name(name, with_schema=False), asked)


def _of_server(url: str, name: str, asked: TableSettings, mode: Mode) -> View:
    if is_postgres_url(url):
        from foldlog.views.table.postgres import PostgresHistory, PostgresTable

        in_postgres = PostgresHistory if mode == "append" else PostgresTable
        return in_postgres(url, table_name(name, with_schema=True), asked)
    from foldlog.views.table.mysql import MySqlHistory, MySqlTable

    if "." in name:
        raise InvalidArgument(f"{brief_repr(name)} has a dot; the URL names the database, and this the table alone")
    in_mysql = MySqlHistory if mode == "append" else MySqlTable
    return in_mysql(url, table_name(name, with_schema=False), asked)


def _refuse_other_formats(path: object, mode: Mode) -> None:
    """InvalidArgument for names of other formats: the file would be SQLite's, which users do not expect."""
    suffix = _suffix(path)
    if suffix in DUCKDB_SUFFIXES and mode != "append":
        raise InvalidArgument(
            f"fl.table() keeps tables in SQLite and PostgreSQL, and in DuckDB only with mode='append'"
            f" ({brief_repr(path)}); name the file .db, and DuckDB reads it: ATTACH 'shop.db' (TYPE sqlite)."
            " fl.counters() keeps counters in a .duckdb file"
        )
    if suffix in (".parquet", ".csv", ".json", ".delta", ".iceberg"):
        raise InvalidArgument(
            f"fl.table() keeps tables in SQLite and PostgreSQL, not in a {suffix} file ({brief_repr(path)}); name it"
            " .db, or keep files that every engine reads: fl.lake('payments', format='parquet')"
        )


def key_columns(key: object) -> tuple[str, ...]:
    """The column names of a `key` argument."""
    if key is None:
        return ()
    names = (key,) if isinstance(key, str) else key
    if not isinstance(names, list | tuple) or not names or not all(isinstance(name, str) and name for name in names):
        raise InvalidArgument(f"a key is a column or a list of columns, such as ['id', 'line'], not {brief_repr(key)}")
    return tuple(names)


def _suffix(place: object) -> str:
    """Of a file's name; empty for what is none, which is refused where it is opened."""
    return suffix_of(place).lower() if isinstance(place, str | PathLike) else ""
