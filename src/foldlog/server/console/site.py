"""The console on its listener: routes, access checks, starting and stopping; and the page itself with its files, from
memory.

Reading path of a request: `http.HttpServer`, `ConsoleRoutes.find`, `access`, then a method of `api.Api`.
"""

from __future__ import annotations

import gzip
import hashlib
import logging
import secrets
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from http import HTTPStatus
from importlib.resources import files
from importlib.resources.abc import Traversable
from inspect import isawaitable
from typing import TYPE_CHECKING, Final, NamedTuple

from foldlog.errors import FoldlogError
from foldlog.server.console.access import Access, is_for_people, is_link_from_elsewhere, same_site_refresh, token_page
from foldlog.server.console.api import Api
from foldlog.server.console.api_errors import ApiError, error_response, status_of
from foldlog.server.console.events import EventFeed
from foldlog.server.console.folds import FoldPages
from foldlog.server.console.scene import ScenePages
from foldlog.server.http.http import HttpLimits, HttpServer
from foldlog.server.http.routes import Handler, HttpRequest, HttpResponse, HttpRoute, HttpRoutes

if TYPE_CHECKING:
    from foldlog.server.net.listeners import Listener
    from foldlog.server.node import BrokerNode
    from foldlog.server.server import Secured

logger = logging.getLogger("foldlog.console")

_WORKERS: Final = 2
"""The console's own threads, for reading the log: however busy it is, the broker keeps its threads."""

_TOKEN_BYTES: Final = 24

_POLICY: Final = (
    "default-src 'self'; img-src 'self' data:; object-src 'none'; base-uri 'none'; form-action 'none';"
    " frame-ancestors 'none'"
)

_HEADERS: Final = (
    ("content-security-policy", _POLICY),
    ("referrer-policy", "no-referrer"),
    ("x-frame-options", "DENY"),
    ("cross-origin-resource-policy", "same-origin"),
)
_NOT_KEPT: Final = ("cache-control", "no-store")


class ConsoleRoutes:
    """Handlers behind the access check: every request is checked first, and every failure is one sentence of JSON."""

    def __init__(self, routes: Sequence[HttpRoute], access: Access) -> None:
        self._routes = HttpRoutes(routes)
        self._access = access

    def find(self, request: HttpRequest) -> Handler:
        return self._answer

    async def _answer(self, request: HttpRequest) -> HttpResponse:
        try:
            self._access.check(request)
            response = await self._respond(request)
        except ApiError as error:
            response = _refusal(request, error)
        except FoldlogError as error:
            response = error_response(status_of(error), str(error))
        except Exception:
            logger.exception("%s %s failed", request.method, request.path)
            response = error_response(HTTPStatus.INTERNAL_SERVER_ERROR, "the broker failed to answer; its log says why")
        names = {name for name, _ in response.headers}
        added = [each for each in (_NOT_KEPT, *_HEADERS) if each[0] not in names]
        return replace(response, headers=(*response.headers, *added))

    async def _respond(self, request: HttpRequest) -> HttpResponse:
        cookie = self._access.cookie_for(request)
        if cookie and request.path == "/":
            # Removes the token from the address bar, and from the history.
            if is_link_from_elsewhere(request):
                return same_site_refresh(cookie)
            return HttpResponse(HTTPStatus.SEE_OTHER, b"", headers=(("location", "/"), *cookie))
        found = self._routes.find(request)
        if isinstance(found, HttpResponse):
            sentence = "there is no such page" if found.status == HTTPStatus.NOT_FOUND else _text(found)
            return replace(error_response(found.status, sentence), headers=found.headers)
        answer = found(request)
        response = await answer if isawaitable(answer) else answer
        return replace(response, headers=(*response.headers, *cookie)) if cookie else response


def _refusal(request: HttpRequest, error: ApiError) -> HttpResponse:
    """One sentence of JSON; if a person opens the page without its token, the page that asks for it."""
    if error.status != HTTPStatus.UNAUTHORIZED or not is_for_people(request):
        return error.response()
    if is_link_from_elsewhere(request) and "token" not in request.query:
        return same_site_refresh()
    return token_page(request)


def _text(response: HttpResponse) -> str:
    return response.body.decode().strip() if isinstance(response.body, bytes) else ""


class Console:
    """A console that is served. Event loop only."""

    def __init__(
        self, http: HttpServer, feed: EventFeed, folds: FoldPages, workers: ThreadPoolExecutor, token: str
    ) -> None:
        self.token = token
        self._http = http
        self.feed = feed
        self._folds = folds
        self._workers = workers
        self.host, self.port = http.host, http.port

    async def close(self) -> None:
        """Stop listening, cut off all clients, and end its threads."""
        await self._http.close()
        await self.feed.close()
        self._folds.close()
        self._workers.shutdown(wait=True, cancel_futures=True)


async def start_console(
    node: BrokerNode,
    listener: Listener,
    *,
    bootstrap: str,
    token: str = "",
    read_only: bool = False,
    static: StaticFiles | None = None,
    limits: HttpLimits | None = None,
    secured: Secured | None = None,
) -> Console:
    """Serve the console there; raises AddressUnavailable if that is taken. `bootstrap` is for Kafka clients.

    If other machines can reach it and no token is given, one is generated: `Console.token`.
    """
    if not token and not listener.is_loopback:
        token = secrets.token_urlsafe(_TOKEN_BYTES)
    workers = ThreadPoolExecutor(_WORKERS, thread_name_prefix="foldlog-console")
    feed = EventFeed()
    api = Api(node, feed, workers, bootstrap=bootstrap, read_only=read_only)
    folds = FoldPages(node, feed, workers, bootstrap=bootstrap)
    scene = ScenePages(node, workers)
    pages = static if static is not None else await node.run(StaticFiles.load)
    access = Access(host=listener.host, name=node.cluster_id, token=token, read_only=read_only)
    routes = ConsoleRoutes([*pages.routes(), *api.routes(), *folds.routes(), *scene.routes()], access)
    http = HttpServer(routes, node.clock, limits or HttpLimits(), lambda text, status: error_response(status, text))
    await http.listen(listener, secured)
    return Console(http, feed, folds, workers, token)


# --- the page and its files, from memory: read once, when the console starts ------------------------------------------

PAGE: Final = "index.html"

_TYPES: Final = {
    "html": "text/html; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
}


class _StaticFile(NamedTuple):
    """One form of a file: plain, or packed with gzip. Forms have different tags, as HTTP requires."""

    content_type: str
    body: bytes
    etag: str
    encoding: tuple[tuple[str, str], ...] = ()


def _forms(name: str, body: bytes) -> tuple[_StaticFile, _StaticFile]:
    content_type = _TYPES[name.rpartition(".")[2]]
    digest = hashlib.blake2b(body, digest_size=16).hexdigest()
    plain = _StaticFile(content_type, body, f'"{digest}"')
    packed = gzip.compress(body, mtime=0)
    return plain, _StaticFile(content_type, packed, f'"{digest}-gzip"', (("content-encoding", "gzip"),))


class StaticFiles:
    """The files for a browser, which asks each time whether it has the newest, without a body: no file is ever old."""

    def __init__(self, found: Mapping[str, bytes]) -> None:
        self._files = {name: _forms(name, body) for name, body in found.items()}

    @classmethod
    def load(cls, folder: Traversable | None = None) -> StaticFiles:
        """All files of the types that a page has; from the package's own folder, if no other is given."""
        folder = files("foldlog") / "console" if folder is None else folder
        if not folder.is_dir():
            return cls({})
        kinds = tuple(f".{kind}" for kind in _TYPES)
        return cls({each.name: each.read_bytes() for each in folder.iterdir() if each.name.endswith(kinds)})

    def routes(self) -> list[HttpRoute]:
        return [
            HttpRoute("GET", "/", lambda request: self.answer(request, PAGE)),
            HttpRoute("GET", "/console/{file}", lambda request: self.answer(request, request.named["file"])),
        ]

    def answer(self, request: HttpRequest, name: str) -> HttpResponse:
        forms = self._files.get(name)
        if forms is None:
            return error_response(HTTPStatus.NOT_FOUND, "there is no such file of the console")
        accepted = [each.strip() for each in request.headers.get("accept-encoding", "").split(",")]
        found = forms["gzip" in accepted]
        headers = (("etag", found.etag), ("cache-control", "no-cache"), ("vary", "accept-encoding"))
        known = request.headers.get("if-none-match", "")
        if known == "*" or found.etag in {each.strip().removeprefix("W/") for each in known.split(",")}:
            return HttpResponse(HTTPStatus.NOT_MODIFIED, b"", found.content_type, headers)
        return HttpResponse(HTTPStatus.OK, found.body, found.content_type, (*headers, *found.encoding))
