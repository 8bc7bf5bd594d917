"""Serves the registry: who may ask, on which threads it is answered, and what a failure looks like.

To follow a request: `RegistryRoutes._answer` (whose page sent it, who is it), `_respond` (quotas, the thread), then its
handler in `api`. Every failure is one JSON object with `error_code` and `message`.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from http import HTTPStatus
from importlib.util import find_spec
from typing import TYPE_CHECKING, Final

from foldlog.broker.access.acls import ANONYMOUS
from foldlog.broker.registry.refusals import STORE_FAILED, RegistryRefusal
from foldlog.broker.registry.registry import Registry
from foldlog.errors import FoldlogError, MissingDependency, RecordTooLarge, brief_repr
from foldlog.limits import REGISTRY_CONNECTIONS_MAX, REGISTRY_STRANGERS_PER_ADDRESS_MAX
from foldlog.server.access.audit import DONE, REFUSED, note
from foldlog.server.console.access import READS, check_site
from foldlog.server.console.api_errors import ApiError
from foldlog.server.console.rights import identity_of
from foldlog.server.http.host_names import OwnNames
from foldlog.server.http.http import HttpLimits, HttpServer
from foldlog.server.http.logins import HttpLogins
from foldlog.server.http.routes import Handler, HttpRequest, HttpResponse, HttpRoute, HttpRoutes
from foldlog.server.net.quotas import CountedWorkers, worked_seconds
from foldlog.server.registry.api import CONTEXT_HEADER, RegistryApi, error_answer

if TYPE_CHECKING:
    from foldlog.server.net.listeners import Listener
    from foldlog.server.node import BrokerNode
    from foldlog.server.server import Secured

logger = logging.getLogger("foldlog.registry")

_WORKERS: Final = 2
"""The registry's own threads: however long a schema takes to check, the broker keeps its threads."""

_CONTENT_TYPES: Final = frozenset(
    {
        "application/vnd.schemaregistry.v1+json",
        "application/vnd.schemaregistry+json",
        "application/json",
        "application/octet-stream",
    }
)
_LIBRARIES: Final = (
    ("fastavro", "Avro schemas"),
    ("jsonschema", "JSON Schemas"),
    ("google.protobuf", "Protobuf schemas"),
)
_CHALLENGE: Final = ("www-authenticate", 'Basic realm="foldlog", charset="UTF-8"')


def check_libraries() -> None:
    """Raises MissingDependency if the registry could not check what it is given."""
    for module, what in _LIBRARIES:
        try:
            found = find_spec(module)
        except ModuleNotFoundError:
            found = None
        if found is None:
            raise MissingDependency(f"a registry of {what}", module.rpartition(".")[2], "registry")


class RegistryRoutes:
    """The handlers behind the access checks. Event loop only."""

    def __init__(self, node: BrokerNode, routes: list[HttpRoute], workers: ThreadPoolExecutor, names: OwnNames) -> None:
        self._node = node
        self._routes = HttpRoutes([replace(route, handler=self._guarded(route)) for route in routes])
        self._workers = workers
        self._names = names
        self._asks = node.settings.has_logins
        self._logins = HttpLogins(node.logins, node.clock, "the schema registry", takes_tokens=True)

    def find(self, request: HttpRequest) -> Handler:
        return self._answer

    def _guarded(self, route: HttpRoute) -> Handler:
        asks, handler = route.asks, route.handler

        def answer(request: HttpRequest) -> HttpResponse:
            who = identity_of(request)
            for right in asks(request) if asks is not None else ():
                if not self._node.authorizer.allows(who, *right):
                    raise RegistryRefusal(
                        HTTPStatus.FORBIDDEN, f"{request.principal} needs {right}; an operator can allow it"
                    )
            response: HttpResponse = handler(request)  # type: ignore[assignment]
            return response

        return answer

    async def _answer(self, request: HttpRequest) -> HttpResponse:
        try:
            return await self._log_in_and_respond(_of_context(request))
        except RegistryRefusal as refusal:
            return error_answer(refusal.status, refusal.code, str(refusal))
        except ApiError as error:
            return error_answer(error.status, error.status, str(error))
        except RecordTooLarge as error:
            return error_answer(HTTPStatus.UNPROCESSABLE_ENTITY, 42209, str(error))
        except FoldlogError as error:
            return error_answer(HTTPStatus.INTERNAL_SERVER_ERROR, STORE_FAILED, str(error))
        except Exception:
            logger.exception("%s %s failed", request.method, request.path)
            status = HTTPStatus.INTERNAL_SERVER_ERROR
            return error_answer(status, STORE_FAILED, "the registry failed to answer; the broker's log says why")

    async def _log_in_and_respond(self, request: HttpRequest) -> HttpResponse:
        self._check_page(request)
        principal = await self._logins.principal(request) if self._asks else None
        principal = principal or request.principal
        if not principal and self._asks:
            sentence = "the registry is for users of the broker: send one by Basic, or a token by Bearer"
            refusal = error_answer(HTTPStatus.UNAUTHORIZED, HTTPStatus.UNAUTHORIZED, sentence)
            return replace(refusal, headers=(_CHALLENGE,))
        request.known()
        request = replace(request, principal=principal or ANONYMOUS)
        if request.method in READS or not self._node.is_audited:
            return await self._respond(request)
        result = REFUSED
        try:
            response = await self._respond(request)
            result = DONE if response.status < HTTPStatus.BAD_REQUEST else REFUSED
            return response
        finally:
            note(identity_of(request), f"registry {request.method}", [request.path], result=result)

    def _check_page(self, request: HttpRequest) -> None:
        """Refuse pages of other sites, and names that others have made point here."""
        name = None if self._asks else self._names.foreign_name(request)
        if name is not None:
            raise RegistryRefusal(
                HTTPStatus.FORBIDDEN,
                f"{brief_repr(name)} is no name of this registry; ask for it by an address such as 127.0.0.1, or by"
                " localhost",
            )
        check_site(request)
        if request.body and request.method not in READS:
            given = request.headers.get("content-type", "").partition(";")[0].strip().lower()
            if given not in _CONTENT_TYPES:
                sentence = "a body is JSON: send Content-Type: application/vnd.schemaregistry.v1+json"
                raise RegistryRefusal(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, sentence)

    async def _respond(self, request: HttpRequest) -> HttpResponse:
        """On a thread, within the user's quotas: else who has used them up would go on here."""
        found = self._routes.find(request)
        if isinstance(found, HttpResponse):
            phrase = HTTPStatus(found.status).phrase
            refusal = error_answer(found.status, found.status, f"HTTP {found.status} {phrase}")
            return replace(refusal, headers=found.headers)
        quotas, who, is_write = self._node.quotas, identity_of(request), request.method not in READS
        wait_s = quotas.http_wait_s(who, is_write=is_write)
        if wait_s > 0:
            sentence = f"{request.principal} has used up a quota; try again in {wait_s:.0f} s"
            refusal = error_answer(HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.TOO_MANY_REQUESTS, sentence)
            return replace(refusal, headers=(("retry-after", str(math.ceil(wait_s))),))
        answer: Callable[[HttpRequest], HttpResponse] = found  # type: ignore[assignment]
        with worked_seconds() as seconds:
            try:
                response = await self._node.loop.run_in_executor(self._workers, answer, request)
            finally:
                quotas.http_worked(who, sum(seconds))
        used = len(request.body) if is_write else len(response.body)  # type: ignore[arg-type]
        quotas.http_used(who, is_write=is_write, used_bytes=used)
        return response


def _of_context(request: HttpRequest) -> HttpRequest:
    """/contexts/NAME/PATH is PATH in that context."""
    headers = {name: value for name, value in request.headers.items() if name != CONTEXT_HEADER}
    parts = request.parts
    if len(parts) > 2 and parts[0] == "contexts" and parts[1]:
        name = parts[1].strip(":")
        headers[CONTEXT_HEADER] = name if name.startswith(".") else f".{name}"
        parts = parts[2:]
        return replace(request, headers=headers, parts=parts, path="/" + "/".join(parts))
    if len(parts) > 1 and not parts[-1]:
        parts = parts[:-1]  # a slash at the end means nothing
        return replace(request, headers=headers, parts=parts, path="/" + "/".join(parts))
    return replace(request, headers=headers)


class RegistrySite:
    """A registry that is served. Event loop only."""

    def __init__(self, http: HttpServer, workers: ThreadPoolExecutor) -> None:
        self._http = http
        self._workers = workers
        self.host, self.port = http.host, http.port

    async def close(self) -> None:
        """Stop listening, cut off all clients, and end its threads: what was begun is finished."""
        await self._http.close()
        self._workers.shutdown(wait=True, cancel_futures=True)


async def start_registry(
    node: BrokerNode, listener: Listener, *, limits: HttpLimits | None = None, secured: Secured | None = None
) -> RegistrySite:
    """Serve the registry there. Raises AddressUnavailable if that is taken, MissingDependency without its libraries,
    InvalidConfig and StorageError if the topic of schemas cannot be used."""
    check_libraries()
    await node.run(node.schemas.begin)
    workers = CountedWorkers(_WORKERS, thread_name_prefix="foldlog-registry")
    api = RegistryApi(Registry(node.schemas), node.authorizer, node.cluster_id)
    advertised = (one.host for one in node.settings.advertised_listeners)
    routes = RegistryRoutes(node, api.routes(), workers, OwnNames([listener.host, *advertised]))
    usual = HttpLimits(
        connections_max=REGISTRY_CONNECTIONS_MAX, strangers_per_address_max=REGISTRY_STRANGERS_PER_ADDRESS_MAX
    )
    http = HttpServer(
        routes,
        node.clock,
        limits or usual,
        lambda sentence, status: error_answer(status, status, sentence),
        quotas=node.quotas,
        memory=node.memory,
        strangers=node.strangers if node.settings.has_logins else None,
    )
    tls = node.settings.tls.get("REGISTRY")
    await http.listen(listener, secured, has_principals=tls is not None and tls.client_auth != "none")
    return RegistrySite(http, workers)
