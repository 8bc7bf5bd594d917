"""Capture: a database's own log as topics of a log. See docs/capture.md.

    import foldlog, foldlog.capture

    shop = foldlog.capture.postgres("postgresql://postgres@localhost/shop", tables=["orders"])
    with foldlog.open("data") as log:
        foldlog.capture.run(shop, log, once=True)

Importing this imports no driver of a database.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from threading import Event
from typing import Any, Final
from urllib.parse import unquote, urlsplit

from foldlog.capture.captured_log import FollowedTable as FollowedTable
from foldlog.capture.database import CapturedDatabase
from foldlog.capture.database import DatabaseStatus as DatabaseStatus
from foldlog.capture.declaration import Capture as Capture
from foldlog.capture.declaration import Numeric, Tables, declare, fitting_name, load_captures
from foldlog.capture.records import Keys, Values
from foldlog.capture.runner import Captured as Captured
from foldlog.capture.runner import CaptureStatus as CaptureStatus
from foldlog.capture.runner import consent, drop, run, status
from foldlog.errors import InvalidArgument, brief_repr
from foldlog.files.paths import PathLike, absolute
from foldlog.views.sql.mysql import is_mysql_url
from foldlog.views.sql.postgres import is_postgres_url

SQLITE_SCHEME: Final = "sqlite:"
SQLITE_SUFFIXES: Final = (".db", ".sqlite", ".sqlite3")


def postgres(
    url: str,
    tables: Tables = None,
    *,
    name: str | None = None,
    values: Values = "plain",
    keys: Keys | None = None,
    numeric: Numeric = "string",
    partitions: int = 1,
    topic_config: Mapping[str, str] | None = None,
    together: int = 1,
) -> Capture:
    """The tables of a PostgreSQL database, by logical replication: each goes into a topic, `NAME.schema.table`.

    `tables` lists them, or maps them to topics; without it, all that have a primary key. `name` is the capture's, for
    its slot, publication and bookmark (default: the database's). `values` are "plain" rows as JSON, or "debezium"
    envelopes; `keys` "plain" or "json". `numeric="number"` writes exact numbers as numbers of JSON instead of texts.
    Topics are made with so many `partitions`, and compacted, unless `topic_config` says otherwise. While the capture is
    behind, up to `together` transactions of the database's are one of the log.

    >>> from foldlog.capture import postgres
    >>> postgres("postgresql://postgres@localhost/shop", ["public.orders"]).name
    'shop'
    """
    return declare(
        _postgres_source,
        name if name is not None else fitting_name(_database_of(url)),
        url,
        tables,
        values=values,
        keys=keys,
        numeric=numeric,
        partitions=partitions,
        topic_config=topic_config,
        together=together,
    )


def mysql(
    url: str,
    tables: Tables = None,
    *,
    name: str | None = None,
    values: Values = "plain",
    keys: Keys | None = None,
    numeric: Numeric = "string",
    partitions: int = 1,
    topic_config: Mapping[str, str] | None = None,
    together: int = 1,
) -> Capture:
    """The tables of a MySQL or MariaDB database, by its binlog: each goes into a topic, `NAME.table`.

    The arguments are those of `postgres`. The server sees a replica, whose id is made of the name; another one is given
    in the URL, `?server_id=4711`.

    >>> from foldlog.capture import mysql
    >>> mysql("mysql://root@localhost/shop", ["orders"]).name
    'shop'
    """
    return declare(
        _mysql_source,
        name if name is not None else fitting_name(_database_of(url)),
        url,
        tables,
        values=values,
        keys=keys,
        numeric=numeric,
        partitions=partitions,
        topic_config=topic_config,
        together=together,
    )


def sqlite(
    path: str | PathLike[str],
    tables: Tables = None,
    *,
    name: str | None = None,
    values: Values = "plain",
    keys: Keys | None = None,
    partitions: int = 1,
    topic_config: Mapping[str, str] | None = None,
) -> Capture:
    """The tables of a SQLite database, by triggers that a run puts on them: each goes into a topic, `NAME.table`.

    The triggers note every change in a table of the same database, and `drop` removes all of it. The arguments are
    those of `postgres`; `name` is the file's, without its suffix, unless it is given.

    >>> from foldlog.capture import sqlite
    >>> sqlite("/srv/shop.db", ["orders"]).name
    'shop'
    """
    place = absolute(path)
    return declare(
        _sqlite_source,
        name if name is not None else fitting_name(place.rpartition("/")[2].partition(".")[0]),
        place,
        tables,
        values=values,
        keys=keys,
        numeric="string",
        partitions=partitions,
        topic_config=topic_config,
    )


def of_url(url: str, tables: Tables = None, **options: Any) -> Capture:
    """The capture of what a URL names, with the options of its kind."""
    if is_postgres_url(url):
        return postgres(url, tables, **options)
    if is_mysql_url(url):
        return mysql(url, tables, **options)
    if url.startswith(SQLITE_SCHEME) or url.endswith(SQLITE_SUFFIXES):
        for name in {"numeric", "together"} & set(options):
            raise InvalidArgument(f"--{name} is not for SQLite; leave it out")
        return sqlite(url.removeprefix("sqlite:///").removeprefix(SQLITE_SCHEME), tables, **options)
    raise InvalidArgument(
        f"{brief_repr(url)} is not postgresql://user@host/database, not mysql://user@host/database, no file of SQLite's"
        f" ({', '.join(SQLITE_SUFFIXES)}, or sqlite:PATH), and no Python file"
    )


def _database_of(url: str) -> str:
    return unquote(urlsplit(url).path).strip("/") or "postgres"


def _sqlite_source(capture: Capture, tell: Callable[[str], None], stop: Event) -> CapturedDatabase:
    from foldlog.capture.from_sqlite.database import CapturedSqlite

    return CapturedSqlite(capture, tell, stop)


def _mysql_source(capture: Capture, tell: Callable[[str], None], stop: Event) -> CapturedDatabase:
    from foldlog.capture.from_mysql.database import CapturedMySql

    return CapturedMySql(capture, tell, stop)


def _postgres_source(capture: Capture, tell: Callable[[str], None], stop: Event) -> CapturedDatabase:
    from foldlog.capture.from_postgres.database import CapturedPostgres

    return CapturedPostgres(capture, tell, stop)


__all__ = [
    "Capture",
    "CaptureStatus",
    "Captured",
    "DatabaseStatus",
    "FollowedTable",
    "consent",
    "drop",
    "load_captures",
    "mysql",
    "of_url",
    "postgres",
    "run",
    "sqlite",
    "status",
]
