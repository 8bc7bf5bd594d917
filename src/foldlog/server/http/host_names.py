"""The names that an HTTP listener accepts: `Host` has to be an address or one of them.

A page of another site can make its own name point to this machine (DNS rebinding). To the browser that is the same
site, so it lets the page read the answer; only `Host` still shows the requested name.
"""

from __future__ import annotations

import socket
from collections.abc import Iterable

from foldlog.server.http.routes import HttpRequest


class OwnNames:
    """`localhost`, this machine's name, and names given by the operator. All addresses are accepted, too."""

    def __init__(self, names: Iterable[str] = ()) -> None:
        self._names = {"localhost", socket.gethostname().lower(), *(name.lower() for name in names)}

    def foreign_name(self, request: HttpRequest) -> str | None:
        """The requested name, if it is not one of ours."""
        name = _host_name(request.headers.get("host", ""))
        return None if name in self._names or _is_address(name) else name


def _host_name(host: str) -> str:
    """
    >>> _host_name("LocalHost:8080"), _host_name("[::1]:8080"), _host_name("")
    ('localhost', '::1', '')
    """
    if host.startswith("["):
        return host[1:].partition("]")[0].lower()
    return host.partition(":")[0].lower().removesuffix(".")


def _is_address(name: str) -> bool:
    for family in (socket.AF_INET, socket.AF_INET6):
        try:
            socket.inet_pton(family, name)
        except (OSError, ValueError):
            continue
        return True
    return False
