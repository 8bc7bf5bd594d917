"""The console on its listener: which handler answers what, behind which guard, and how it starts and ends.

Reading path of a request: `http.HttpServer`, `ConsoleRoutes.find`, `access`, then a method of `api.Api`.
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from http import HTTPStatus
from inspect import isawaitable
from typing import TYPE_CHECKING, Final

from foldlog.errors import FoldlogError
from foldlog.server.console.access import Access
from foldlog.server.console.api import Api
from foldlog.server.console.api_errors import ApiError, error_response, status_of
from foldlog.server.console.door import door, is_for_people, is_link_from_elsewhere, step_inside
from foldlog.server.console.feed import Feed
from foldlog.server.console.folds import FoldPages
from foldlog.server.console.scene import ScenePages
from foldlog.server.console.static_files import StaticFiles
from foldlog.server.http import HttpLimits, HttpServer
from foldlog.server.http_routes import Handler, Request, Response, Route, Routes

if TYPE_CHECKING:
    from foldlog.server.listeners import Listener
    from foldlog.server.node import Node

logger = logging.getLogger("foldlog.console")

_WORKERS: Final = 2
"""Threads of the console's own, for what reads the log: however much it is asked, the broker keeps its threads."""

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
    """Handlers behind the guard: whatever is asked is checked first, and whatever fails is one sentence of JSON."""

    def __init__(self, routes: Sequence[Route], access: Access) -> None:
        self._routes = Routes(routes)
        self._access = access

    def find(self, request: Request) -> Handler:
        return self._answer

    async def _answer(self, request: Request) -> Response:
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

    async def _respond(self, request: Request) -> Response:
        cookie = self._access.cookie_for(request)
        if cookie and request.path == "/":
            # Out of the address bar, and of the history.
            if is_link_from_elsewhere(request):
                return step_inside(cookie)
            return Response(HTTPStatus.SEE_OTHER, b"", headers=(("location", "/"), *cookie))
        found = self._routes.find(request)
        if isinstance(found, Response):
            sentence = "there is no such page" if found.status == HTTPStatus.NOT_FOUND else _text(found)
            return replace(error_response(found.status, sentence), headers=found.headers)
        answer = found(request)
        response = await answer if isawaitable(answer) else answer
        return replace(response, headers=(*response.headers, *cookie)) if cookie else response


def _refusal(request: Request, error: ApiError) -> Response:
    """One sentence of JSON; for somebody who opens the page without its token, a page that asks for it."""
    if error.status != HTTPStatus.UNAUTHORIZED or not is_for_people(request):
        return error.response()
    if is_link_from_elsewhere(request) and "token" not in request.query:
        return step_inside()
    return door(request)


def _text(response: Response) -> str:
    return response.body.decode().strip() if isinstance(response.body, bytes) else ""


class Console:
    """A console that is served. The event loop's."""

    def __init__(self, http: HttpServer, feed: Feed, folds: FoldPages, workers: ThreadPoolExecutor, token: str) -> None:
        self.token = token
        self._http = http
        self.feed = feed
        self._folds = folds
        self._workers = workers
        self.host, self.port = http.host, http.port

    async def close(self) -> None:
        """Listen no more, cut off who is connected, and end its threads."""
        await self._http.close()
        await self.feed.close()
        self._folds.close()
        self._workers.shutdown(wait=True, cancel_futures=True)


async def start_console(
    node: Node,
    listener: Listener,
    *,
    bootstrap: str,
    token: str = "",
    read_only: bool = False,
    static: StaticFiles | None = None,
    limits: HttpLimits | None = None,
) -> Console:
    """Serve the console there; AddressUnavailable if that is taken. `bootstrap` is what Kafka clients connect to.

    Where other machines reach it and no token is given, one is made up: `Console.token`.
    """
    if not token and not listener.is_loopback:
        token = secrets.token_urlsafe(_TOKEN_BYTES)
    workers = ThreadPoolExecutor(_WORKERS, thread_name_prefix="foldlog-console")
    feed = Feed()
    api = Api(node, feed, workers, bootstrap=bootstrap, read_only=read_only)
    folds = FoldPages(node, feed, workers, bootstrap=bootstrap)
    scene = ScenePages(node, workers)
    pages = static if static is not None else await node.run(StaticFiles.load)
    access = Access(host=listener.host, name=node.cluster_id, token=token, read_only=read_only)
    routes = ConsoleRoutes([*pages.routes(), *api.routes(), *folds.routes(), *scene.routes()], access)
    http = HttpServer(routes, node.clock, limits or HttpLimits(), lambda text, status: error_response(status, text))
    await http.listen(listener)
    return Console(http, feed, folds, workers, token)
