"""HTTP requests and answers as values, and the handlers for paths. No I/O.

A handler is a function from a `HttpRequest` to a `HttpResponse`, plain or async. It runs on the event loop and must not
block it. To add pages, pass `HttpRoute`s to `start_http`.
"""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from http import HTTPStatus
from types import MappingProxyType
from typing import Any, Final, Protocol
from urllib.parse import parse_qsl, unquote, urlsplit

from foldlog.errors import MalformedBytes

TEXT: Final = "text/plain; charset=utf-8"
JSON: Final = "application/json"

_WILDCARD: Final = "/*"
_NOTHING: Final[Mapping[str, str]] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class HttpRequest:
    """An HTTP request. Header names are in lower case; of a repeated header or parameter, the last counts.

    `parts` are the path's, each percent-decoded: a name in it may hold a slash. `named` are the parts for which the
    route has a name in braces. `peer` is the client's address, `principal` who it is, where that is asked, and
    `holds` whether it still may. Whoever finds out who it is calls `known`: its connection is no stranger's then.
    """

    method: str
    path: str
    query: Mapping[str, str] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""
    parts: tuple[str, ...] = ()
    named: Mapping[str, str] = field(default_factory=lambda: _NOTHING)
    peer: str = ""
    principal: str = ""
    holds: Callable[[], bool] = lambda: True
    known: Callable[[], None] = lambda: None

    @classmethod
    def parse(cls, method: str, target: str, headers: Mapping[str, str], body: bytes = b"") -> HttpRequest:
        """Raises MalformedBytes if the target is invalid.

        >>> HttpRequest.parse("GET", "/topics/a%20b?tail=1", {}).path
        '/topics/a b'
        """
        try:
            parts = urlsplit(target)
            query = dict(parse_qsl(parts.query, keep_blank_values=True))
        except ValueError as error:
            raise MalformedBytes("HTTP target", str(error), 0) from error
        names = tuple(unquote(part) for part in parts.path.split("/")[1:])
        return cls(method, unquote(parts.path), query, headers, body, names)


@dataclass(frozen=True, slots=True)
class HttpResponse:
    """An answer. A `body` that is a generator is sent piece by piece, as the pieces come and are read; it is closed
    when it ends or when the connection does. One that can be silent for long should send something now and then: only a
    write detects that the client is gone."""

    status: int = HTTPStatus.OK
    body: bytes | AsyncGenerator[bytes, None] = b""
    content_type: str = TEXT
    headers: tuple[tuple[str, str], ...] = ()

    @classmethod
    def text(cls, text: str, status: int = HTTPStatus.OK) -> HttpResponse:
        """
        >>> HttpResponse.text("ok").body
        b'ok\\n'
        """
        return cls(status, f"{text}\n".encode())

    @classmethod
    def json(cls, value: Any, status: int = HTTPStatus.OK) -> HttpResponse:
        return cls(status, json.dumps(value, ensure_ascii=False).encode(), JSON)


Handler = Callable[[HttpRequest], HttpResponse | Awaitable[HttpResponse]]


@dataclass(frozen=True, slots=True)
class HttpRoute:
    """`path` is a whole path, one with names in braces for some parts, as in `/api/topics/{topic}`, or one that ends in
    `/*` for all paths below it. A route for GET answers HEAD, too."""

    method: str
    path: str
    handler: Handler
    asks: Callable[[HttpRequest], Any] | None = None
    """What rights it needs, where users have rights: see `console/rights.py`."""


class FindsHandlers(Protocol):
    """Finds the handler of a request, for a server."""

    def find(self, request: HttpRequest) -> Handler | HttpResponse:
        """The handler, or the answer if there is none."""
        ...


class HttpRoutes:
    """The handlers by path. A whole path wins over one with names, that over `/*`, and a longer `/*` over a shorter
    one."""

    def __init__(self, routes: Iterable[HttpRoute]) -> None:
        self._exact: dict[str, dict[str, Handler]] = {}
        self._named: dict[tuple[str, ...], dict[str, Handler]] = {}
        self._below: dict[str, dict[str, Handler]] = {}
        for route in routes:
            handlers = self._handlers_of(route.path)
            handlers[route.method] = route.handler

    def _handlers_of(self, path: str) -> dict[str, Handler]:
        if path.endswith(_WILDCARD):
            return self._below.setdefault(path.removesuffix(_WILDCARD), {})
        if "{" in path:
            return self._named.setdefault(tuple(path.split("/")[1:]), {})
        return self._exact.setdefault(path, {})

    def find(self, request: HttpRequest) -> Handler | HttpResponse:
        """The handler, or the answer if there is none: 404, or 405 with the allowed methods."""
        handlers = self._exact.get(request.path)
        names: Mapping[str, str] = _NOTHING
        if not handlers:
            handlers, names = self._find_named(request.parts)
        handlers = handlers or self._find_below(request.path)
        if not handlers:
            return HttpResponse.text("there is no such page; / lists them", HTTPStatus.NOT_FOUND)
        handler = handlers.get(request.method) or (handlers.get("GET") if request.method == "HEAD" else None)
        if handler is not None:
            return _with_names(handler, names) if names else handler
        allowed = sorted({*handlers, *(["HEAD"] if "GET" in handlers else [])})
        refusal = HttpResponse.text(f"this page takes {', '.join(allowed)}", HTTPStatus.METHOD_NOT_ALLOWED)
        return HttpResponse(refusal.status, refusal.body, headers=(("allow", ", ".join(allowed)),))

    def _find_named(self, parts: tuple[str, ...]) -> tuple[dict[str, Handler] | None, Mapping[str, str]]:
        for pattern, handlers in self._named.items():
            if len(pattern) != len(parts):
                continue
            pairs = list(zip(pattern, parts, strict=True))
            if all(part and (wanted == part or wanted.startswith("{")) for wanted, part in pairs):
                return handlers, {wanted[1:-1]: part for wanted, part in pairs if wanted.startswith("{")}
        return None, _NOTHING

    def _find_below(self, path: str) -> dict[str, Handler] | None:
        folder = path
        while "/" in folder:
            folder = folder.rpartition("/")[0]
            if folder in self._below:
                return self._below[folder]
        return None


def _with_names(handler: Handler, names: Mapping[str, str]) -> Handler:
    return lambda request: handler(replace(request, named=names))
