"""The console on its listener: routes, access checks, starting and stopping; and the page itself with its files, from
memory.

Reading path of a request: `http.HttpServer`, `ConsoleRoutes.find`, `access`, then a method of `api.Api`.
"""

from __future__ import annotations

import gzip
import hashlib
import logging
import math
import secrets
from collections.abc import Awaitable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from http import HTTPStatus
from importlib.resources import files
from importlib.resources.abc import Traversable
from inspect import isawaitable
from typing import TYPE_CHECKING, Final, NamedTuple

from foldlog.broker.access.acls import DIRECTORY_OWNER
from foldlog.errors import FoldlogError
from foldlog.server.access.audit import DONE, REFUSED, note
from foldlog.server.console.access import (
    READS,
    ConsoleAccess,
    is_for_people,
    is_link_from_elsewhere,
    same_site_refresh,
    token_page,
)
from foldlog.server.console.admin.access_pages import AccessPages
from foldlog.server.console.admin.group_pages import GroupPages
from foldlog.server.console.admin.topic_pages import TopicPages
from foldlog.server.console.admin.transaction_pages import TransactionPages
from foldlog.server.console.api import Api
from foldlog.server.console.api_errors import ApiError, error_response, status_of
from foldlog.server.console.events import EventFeed
from foldlog.server.console.folds import FoldPages
from foldlog.server.console.health import HealthPages
from foldlog.server.console.rights import OneOf, identity_of
from foldlog.server.console.scene import ScenePages
from foldlog.server.console.search import SearchPages
from foldlog.server.console.sessions import LOGIN_PATH, LOGOUT_PATH, ConsoleUsers, login_page
from foldlog.server.http.http import HttpLimits, HttpServer
from foldlog.server.http.routes import Handler, HttpRequest, HttpResponse, HttpRoute, HttpRoutes
from foldlog.server.net.quotas import CountedWorkers, worked_seconds

if TYPE_CHECKING:
    from foldlog.server.authorizer import Authorizer
    from foldlog.server.net.listeners import Listener
    from foldlog.server.net.quotas import NodeQuotas
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
    """Handlers behind the access check: every request is checked first, and every failure is one sentence of JSON.

    With `users`, somebody has to have logged in, and may do what the ACLs allow; else whoever is let in may do
    everything that the directory's owner may.
    """

    def __init__(
        self,
        routes: Sequence[HttpRoute],
        access: ConsoleAccess,
        authorizer: Authorizer,
        users: ConsoleUsers | None = None,
        quotas: NodeQuotas | None = None,
    ) -> None:
        self._routes = HttpRoutes([replace(route, handler=self._guarded(route)) for route in routes])
        self._access = access
        self._authorizer = authorizer
        self._users = users
        self._quotas = quotas

    def find(self, request: HttpRequest) -> Handler:
        return self._answer

    def _guarded(self, route: HttpRoute) -> Handler:
        """The handler, after a look at what it asks for."""
        asks = route.asks
        if asks is None:
            return route.handler

        def answer(request: HttpRequest) -> HttpResponse | Awaitable[HttpResponse]:
            who = identity_of(request)
            for right in asks(request):
                enough = right if isinstance(right, OneOf) else (right,)
                if not any(self._authorizer.allows(who, *one) for one in enough):
                    raise ApiError(HTTPStatus.FORBIDDEN, f"{request.principal} needs {right}; an operator can allow it")
            return route.handler(request)

        return answer

    async def _answer(self, request: HttpRequest) -> HttpResponse:
        try:
            response = await self._log_in_or_respond(request)
        except ApiError as error:
            response = self._refusal(request, error)
        except FoldlogError as error:
            response = error_response(status_of(error), str(error))
        except Exception:
            logger.exception("%s %s failed", request.method, request.path)
            response = error_response(HTTPStatus.INTERNAL_SERVER_ERROR, "the broker failed to answer; its log says why")
        names = {name for name, _ in response.headers}
        added = [each for each in (_NOT_KEPT, *_HEADERS) if each[0] not in names]
        return replace(response, headers=(*response.headers, *added))

    async def _log_in_or_respond(self, request: HttpRequest) -> HttpResponse:
        users = self._users
        if users is None:
            self._access.check(request)
            request.known()
            return await self._respond(replace(request, principal=DIRECTORY_OWNER))
        if request.method == "POST" and request.path in (LOGIN_PATH, LOGOUT_PATH):
            self._access.check_form(request)
            return await users.log_in(request) if request.path == LOGIN_PATH else users.log_out(request)
        self._access.check(request)
        principal = await users.principal(request)
        if principal is None:
            raise ApiError(HTTPStatus.UNAUTHORIZED, "log in first: open the console's page, or send a user by Basic")
        request.known()
        request = replace(request, principal=principal)
        request = replace(request, holds=partial(users.holds, request))
        if request.method in READS:
            return await self._respond_within_quotas(request)
        result = REFUSED
        try:
            response = await self._respond_within_quotas(request)
            result = DONE if response.status < HTTPStatus.BAD_REQUEST else REFUSED
            return response
        finally:
            note(identity_of(request), f"console {request.method}", [request.path], result=result)

    async def _respond_within_quotas(self, request: HttpRequest) -> HttpResponse:
        """The user's quotas hold here too: else who has used them up would go on with the console."""
        quotas = self._quotas
        if quotas is None or not quotas.is_on or not request.path.startswith("/api/"):
            return await self._respond(request)
        who, is_write = identity_of(request), request.method not in READS
        wait_s = quotas.http_wait_s(who, is_write=is_write)
        if wait_s > 0:
            refusal = error_response(
                HTTPStatus.TOO_MANY_REQUESTS, f"{request.principal} has used up a quota; try again in {wait_s:.0f} s"
            )
            return replace(refusal, headers=(*refusal.headers, ("retry-after", str(math.ceil(wait_s)))))
        if is_write:
            quotas.http_used(who, is_write=True, used_bytes=len(request.body))
        with worked_seconds() as seconds:
            try:
                response = await self._respond(request)
            finally:
                quotas.http_worked(who, sum(seconds))
        if not isinstance(response.body, bytes):
            return replace(response, body=quotas.http_paced(who, response.body))
        if not is_write:
            quotas.http_used(who, is_write=False, used_bytes=len(response.body))
        return response

    def _refusal(self, request: HttpRequest, error: ApiError) -> HttpResponse:
        """One sentence of JSON; if a person opens the page without being known, the page that asks."""
        if error.status != HTTPStatus.UNAUTHORIZED or not is_for_people(request):
            return error.response()
        if is_link_from_elsewhere(request) and "token" not in request.query:
            return same_site_refresh()
        return token_page(request) if self._users is None else login_page()

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


def _text(response: HttpResponse) -> str:
    return response.body.decode().strip() if isinstance(response.body, bytes) else ""


class Console:
    """A console that is served. Event loop only."""

    def __init__(
        self,
        http: HttpServer,
        feed: EventFeed,
        folds: FoldPages,
        health: HealthPages,
        workers: ThreadPoolExecutor,
        token: str,
    ) -> None:
        self.token = token
        self._http = http
        self.feed = feed
        self._folds = folds
        self._health = health
        self._workers = workers
        self.host, self.port = http.host, http.port

    async def close(self) -> None:
        """Stop listening, cut off all clients, and end its threads."""
        await self._http.close()
        await self.feed.close()
        await self._health.close()
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
    has_users = node.settings.has_logins
    # With ACLs, who reaches the console is not its owner yet, though it be from this machine.
    is_open = listener.is_loopback and not node.settings.authorizer_class_name
    if not token and not has_users and not is_open:
        token = secrets.token_urlsafe(_TOKEN_BYTES)
    workers = CountedWorkers(_WORKERS, thread_name_prefix="foldlog-console")
    feed = EventFeed()
    api = Api(node, feed, workers, bootstrap=bootstrap, read_only=read_only)
    folds = FoldPages(node, feed, workers, bootstrap=bootstrap)
    health = HealthPages(node, feed, workers, bootstrap=bootstrap)
    scene = ScenePages(node, workers)
    pages = static if static is not None else await node.run(StaticFiles.load)
    access = ConsoleAccess(
        host=listener.host, name=node.cluster_id, token=token, read_only=read_only, has_users=has_users
    )
    users = None
    if has_users:
        stored = node.broker.access
        users = ConsoleUsers(
            node.logins, stored, node.clock, cookie_name=access.cookie_name, has_tls=secured is not None
        )
    found = [*pages.routes(), *api.routes(), *folds.routes(), *health.routes(), *scene.routes()]
    is_private = secured is not None or listener.is_loopback
    for more in (
        SearchPages(node, workers),
        TopicPages(node, workers),
        GroupPages(node, workers),
        TransactionPages(node, workers),
        AccessPages(node, workers, is_private=is_private),
    ):
        found += more.routes()
    routes = ConsoleRoutes(found, access, node.authorizer, users, node.quotas)
    http = HttpServer(
        routes,
        node.clock,
        limits or HttpLimits(),
        lambda text, status: error_response(status, text),
        quotas=node.quotas,
        memory=node.memory,
        strangers=node.strangers if has_users or token else None,
    )
    await http.listen(listener, secured)
    health.begin()
    return Console(http, feed, folds, health, workers, token)


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
