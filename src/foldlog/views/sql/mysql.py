"""MySQL and MariaDB: their URLs, the driver of both (PyMySQL, imported on first use), databases that hold views."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import sha256
from typing import Any, Final
from urllib.parse import parse_qsl, unquote, urlencode, urlsplit

from foldlog.errors import InvalidArgument, MissingDependency, ViewUnavailable, brief_repr
from foldlog.limits import VIEW_CONNECT_MS, VIEW_LOCK_WAIT_MS
from foldlog.views.sql.bookmarks import Run

MYSQL_PREFIXES: Final = ("mysql://", "mariadb://")

DEFAULT_PORT: Final = 3306

_PATHS: Final = frozenset({"unix_socket", "ssl_ca", "ssl_cert", "ssl_key"})
_SECRETS: Final = ("password", "ssl_key_password")
_OURS: Final = "server_id"
_LOCK_WAIT: Final = 1205


def is_mysql_url(text: object) -> bool:
    """Whether the text is a URL of these engines."""
    return isinstance(text, str) and text.startswith(MYSQL_PREFIXES)


def public_mysql_url(url: str) -> str:
    """The URL without secrets.

    >>> public_mysql_url("mysql://shop:secret@db:3306/shop?ssl_ca=/ca.pem&password=x")
    'mysql://shop@db:3306/shop?ssl_ca=%2Fca.pem'
    """
    scheme, _, rest = url.partition("://")
    before_query, _, query = rest.partition("?")
    authority, slash, database = before_query.partition("/")
    user, at, hosts = authority.rpartition("@")
    shown = [(name, value) for name, value in parse_qsl(query, keep_blank_values=True) if name not in _SECRETS]
    text = f"{scheme}://{user.partition(':')[0]}{at}{hosts}{slash}{database}"
    return f"{text}?{urlencode(shown)}" if shown else text


def mysql_options(url: str) -> dict[str, str]:
    """What stands behind the question mark. InvalidArgument for a name that means nothing here."""
    options = dict(parse_qsl(urlsplit(url).query, keep_blank_values=True))
    for name in options.keys() - _PATHS - {"password", "ssl_key_password", "ssl_verify_identity", _OURS}:
        raise InvalidArgument(
            f"{public_mysql_url(url)}: {name!r} is not an option of a MySQL URL; there are {', '.join(sorted(_PATHS))},"
            " ssl_verify_identity, and server_id for a capture"
        )
    return options


def mysql_settings(url: str) -> dict[str, Any]:
    """What PyMySQL connects with. The password may be in the URL, in MYSQL_PWD, or in ~/.my.cnf.

    >>> mysql_settings("mysql://shop@db/orders")["database"], mysql_settings("mysql://shop@db/orders")["port"]
    ('orders', 3306)
    """
    place = public_mysql_url(url)
    try:
        parts = urlsplit(url)
        port = parts.port or DEFAULT_PORT
    except ValueError as error:
        raise InvalidArgument(f"{place} is not a URL of MySQL's: {error}") from error
    options = mysql_options(url)
    database = unquote(parts.path).strip("/")
    if not database or "/" in database:
        raise InvalidArgument(f"{brief_repr(place)} names no database; say mysql://user@host/database")
    password = unquote(parts.password) if parts.password else None
    settings: dict[str, Any] = {
        "host": parts.hostname or "127.0.0.1",
        "port": port,
        "user": unquote(parts.username) if parts.username else None,
        "password": password or options.get("password") or os.environ.get("MYSQL_PWD"),
        "database": database,
        "charset": "utf8mb4",
        "autocommit": True,
    }
    settings.update({name: options[name] for name in _PATHS if name in options})
    if "ssl_key_password" in options:
        settings["ssl_key_password"] = options["ssl_key_password"]
    if options.get("ssl_verify_identity") in ("1", "true", "yes"):
        settings["ssl_verify_identity"] = True
    defaults = os.path.expanduser("~/.my.cnf")
    if os.path.exists(defaults):
        settings["read_default_file"] = defaults
    return {name: value for name, value in settings.items() if value is not None}


def load_pymysql(what: str) -> Any:
    """The driver, or MissingDependency."""
    try:
        import pymysql
    except ImportError as error:
        raise MissingDependency(what, "PyMySQL", "mysql") from error
    return pymysql


def backquoted(name: str) -> str:
    """A name as MySQL reads it.

    >>> backquoted("a`b")
    '`a``b`'
    """
    return "`" + name.replace("`", "``") + "`"


class MySqlDatabase:
    """One connection to a database, made on first use and again after it was lost; one thread at a time. Every error of
    the engine becomes ViewUnavailable, in one sentence and without the password.

    A statement that defines something (CREATE, ALTER, RENAME, DROP) commits what is under way: such statements are run
    by `define`, and never within a transaction.
    """

    def __init__(self, url: str, location: str, *, wait_ms: int = VIEW_LOCK_WAIT_MS) -> None:
        self.url = url
        self.location = location
        self._settings = mysql_settings(url)
        self._wait_ms = wait_ms
        self._connection: Any = None
        self._is_checked = False
        self.is_mariadb = False

    @property
    def name(self) -> str:
        return str(self._settings["database"])

    @contextmanager
    def transaction(self, *, snapshot: bool = False) -> Iterator[Any]:
        """Committed when the block ends; rolled back if it raises. With `snapshot` it only reads, from one state."""
        with self._told() as pymysql:
            connection = self._connected(pymysql)
            run = runner(connection)
            run(f"SET TRANSACTION ISOLATION LEVEL {'REPEATABLE READ' if snapshot else 'READ COMMITTED'}")
            run(f"START TRANSACTION {'WITH CONSISTENT SNAPSHOT, READ ONLY' if snapshot else 'READ WRITE'}")
            try:
                yield connection
            except BaseException:
                if connection.open:
                    connection.rollback()
                raise
            connection.commit()

    @contextmanager
    def defining(self, lock: str) -> Iterator[Run]:
        """For statements that define something: each is a transaction of its own. Nobody else has this lock."""
        with self._told() as pymysql:
            run = runner(self._connected(pymysql))
            name = f"foldlog.{sha256(f'{self.name}.{lock}'.encode()).hexdigest()[:40]}"
            if run("SELECT GET_LOCK(%s, %s)", name, max(1, self._wait_ms // 1000)) != [("1",)]:
                raise ViewUnavailable(
                    self.location, f"another process has been making or swapping it for {self._wait_ms} ms"
                )
            try:
                yield run
            finally:
                if self._connection is not None and self._connection.open:
                    run("SELECT RELEASE_LOCK(%s)", name)

    @contextmanager
    def _told(self) -> Iterator[Any]:
        pymysql = load_pymysql("a view in MySQL")
        try:
            yield pymysql
        except pymysql.Error as error:
            raise ViewUnavailable(self.location, self._sentence(error)) from error
        except (ConnectionError, TimeoutError) as error:
            raise ViewUnavailable(self.location, f"the server cannot be reached: {error}") from error
        finally:
            if self._connection is not None and not self._connection.open:
                self.close()

    def _sentence(self, error: Exception) -> str:
        number = error.args[0] if error.args else 0
        if number == _LOCK_WAIT:
            return f"waited {self._wait_ms} ms for a lock; end the transaction that holds it (SHOW PROCESSLIST)"
        said = str(error.args[1] if len(error.args) > 1 else error).strip().replace("\n", " ").rstrip(".")
        return f"MySQL says: {said}"

    def another(self) -> MySqlDatabase:
        """This database through a separate connection."""
        return MySqlDatabase(self.url, self.location, wait_ms=self._wait_ms)

    def close(self) -> None:
        """Close the connection; the next transaction makes a new one."""
        connection, self._connection = self._connection, None
        if connection is not None and connection.open:
            connection._force_close()

    def _connected(self, pymysql: Any) -> Any:
        if self._connection is not None and self._connection.open:
            return self._connection
        texts = {kind: turn for kind, turn in pymysql.converters.conversions.items() if not isinstance(kind, int)}
        try:
            connection = pymysql.connect(**self._settings, conv=texts, connect_timeout=VIEW_CONNECT_MS // 1000)
        except RuntimeError as error:  # a login that needs cryptography
            raise ViewUnavailable(self.location, str(error)) from error
        run = runner(connection)
        wait_s = max(1, self._wait_ms // 1000)
        run(
            "SET SESSION sql_mode = 'ANSI_QUOTES,STRICT_ALL_TABLES,NO_ENGINE_SUBSTITUTION', time_zone = '+00:00',"
            f" innodb_lock_wait_timeout = {wait_s}, lock_wait_timeout = {wait_s}, net_write_timeout = 3600"
        )
        if not self._is_checked:
            self._check_version(connection)
        self._connection = connection
        return connection

    def _check_version(self, connection: Any) -> None:
        told = str(connection.get_server_info())
        self.is_mariadb = "mariadb" in told.lower()
        version = tuple(int(part) for part in told.removeprefix("5.5.5-").partition("-")[0].split(".")[:2])
        if version < ((10, 6) if self.is_mariadb else (8, 0)):
            raise ViewUnavailable(
                self.location,
                f"the server is {told}; a table that can be swapped needs MySQL 8.0 or MariaDB 10.6 or later, where"
                " RENAME TABLE is whole or not at all",
            )
        self._is_checked = True


def runner(connection: Any) -> Run:
    """A `bookmarks.Run`. In a statement without values, a percent sign has no special meaning."""

    def run(statement: str, *values: object) -> list[tuple[Any, ...]]:
        with connection.cursor() as cursor:
            cursor.execute(statement, values or None)
            return list(cursor.fetchall())

    return run
