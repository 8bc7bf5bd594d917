"""The locations of views that an operator allows: directories, and hosts of PostgreSQL."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple
from urllib.parse import unquote

from foldlog.errors import InvalidArgument, brief_repr
from foldlog.files.paths import resolved
from foldlog.views.sql.postgres import is_postgres_url

_PORT: Final = "5432"
_HOST: Final = r"(?:\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._%-]*)(?::[0-9]+)?"
_ONE_HOST: Final = re.compile(r"(?P<name>\[.*\]|[^:]*)(?::(?P<port>[0-9]+))?")
_URL: Final = re.compile(rf"postgres(?:ql)?://(?:[^@/?#,]*@)?(?P<hosts>{_HOST}(?:,{_HOST})*)(?:/[^?#]*)?(?:\?[^#]*)?")
"""Only unambiguous URLs: libpq ends the user at the first @, others at the last, and a password would go to a host."""


class Host(NamedTuple):
    """Where a PostgreSQL listens; a name with a slash is its socket's directory, "" is libpq's default."""

    name: str
    port: str


class NamedLocations:
    """Locations whose views may be opened even if a description is not trusted. Databases there may get a password."""

    def __init__(self, locations: Iterable[str]) -> None:
        """InvalidArgument for a location that is neither a directory's path nor a URL of PostgreSQL."""
        self._directories: list[str] = []
        self._hosts: set[Host] = set()
        for location in locations:
            if not is_postgres_url(location):
                if "://" in location:
                    raise InvalidArgument(f"{brief_repr(location)} is neither a directory nor postgresql://HOST[:PORT]")
                self._directories.append(resolved(location))
                continue
            hosts = hosts_of(location)
            if hosts is None:
                raise InvalidArgument(f"{brief_repr(location)} is not a URL such as postgresql://HOST[:PORT]")
            self._hosts.update(hosts)

    def names(self, description: Mapping[str, object]) -> bool:
        """Whether the view of this description is in one of the locations."""
        url, path = description.get("url"), description.get("path")
        if description.get("engine") == "postgresql":
            hosts = hosts_of(url) if isinstance(url, str) else None
            return hosts is not None and self._hosts.issuperset(hosts)
        if not isinstance(path, str) or not path.startswith("/") or "\0" in path:
            return False
        found = resolved(path)
        return any(f"{found}/".startswith(f"{directory.rstrip('/')}/") for directory in self._directories)


def hosts_of(url: str) -> list[Host] | None:
    """All hosts that a URL may connect to; None if the URL is ambiguous.

    >>> hosts_of("postgresql://shop@db,[::1]:6432/shop?sslmode=require")
    [Host(name='db', port='5432'), Host(name='::1', port='6432')]
    >>> hosts_of("postgresql://a@evil,b@db/shop") is None
    True
    """
    found = _URL.fullmatch(url)
    if found is None:
        return None
    hosts = (_ONE_HOST.fullmatch(text) for text in found["hosts"].split(","))
    return [Host(unquote(one["name"]).strip("[]").lower(), one["port"] or _PORT) for one in hosts if one is not None]
