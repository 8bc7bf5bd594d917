"""URLs of MySQL and MariaDB, and the driver for both: PyMySQL, which is imported on first use."""

from __future__ import annotations

import os
from typing import Any, Final
from urllib.parse import parse_qsl, unquote, urlencode, urlsplit

from foldlog.errors import InvalidArgument, MissingDependency, brief_repr

MYSQL_PREFIXES: Final = ("mysql://", "mariadb://")

DEFAULT_PORT: Final = 3306

_PATHS: Final = frozenset({"unix_socket", "ssl_ca", "ssl_cert", "ssl_key"})
_SECRETS: Final = ("password", "ssl_key_password")
_OURS: Final = "server_id"


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
