"""`/metrics`, `/healthz` and their index page; and a check of whether the broker can do its work.

Where clients log in, `/metrics` is for who may describe the cluster: it has the names of all topics and groups. A user
by Basic, a token by Bearer, or a certificate; nobody, where no client logs in and ACLs allow it. `/healthz` is for
everybody, and then says no more than whether.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from http import HTTPStatus
from typing import TYPE_CHECKING, Final

from foldlog import __version__
from foldlog.broker.access.acls import ANONYMOUS, CLUSTER_NAME, AclOperation, Identity, ResourceType
from foldlog.errors import LogClosed
from foldlog.exposition import CONTENT_TYPE, Family, Sample, render
from foldlog.log.partition import Partition
from foldlog.server.groups import address_in_acls
from foldlog.server.http.logins import HttpLogins
from foldlog.server.http.routes import HttpRequest, HttpResponse, HttpRoute
from foldlog.server.metrics.collectors import build_family, log_families, process_families

if TYPE_CHECKING:
    from foldlog.broker.broker import Broker
    from foldlog.server.node import BrokerNode


def problem_of(broker: Broker) -> str | None:
    """A problem that a restart would solve, in a sentence; None if there is none.

    A poisoned partition takes no records until the log is opened again. A refused one is not reported here: its damage
    is on the disk, a restart does not help, and the other partitions are served. It is in the metrics and the warnings.
    """
    try:
        broker.check_open()
    except LogClosed as error:
        return str(error)
    poisoned = sorted(
        partition.label
        for partition in broker.opened_partitions()
        if isinstance(partition, Partition) and partition.is_poisoned
    )
    if not poisoned:
        return None
    topic, number = poisoned[0]
    others = f" and {len(poisoned) - 1} more" if len(poisoned) > 1 else ""
    return f"{topic}-{number}{others} cannot be written since a sync failed; restart the broker to recover"


_INDEX: Final = f"""foldlog {__version__}

/metrics   numbers for Prometheus; /metrics?per_partition=false leaves out those of single partitions
/healthz   200 while the broker serves, 503 and one sentence when a restart is needed"""

_WHO: Final = (
    "/metrics is for who may describe the cluster: send a user by Basic, a token by Bearer, or a certificate; or set"
    " foldlog.metrics.open=true to show it to everybody"
)
_FALSE: Final = frozenset({"false", "0", "no"})


class StatusPages:
    """The pages for people and scrapers. Event loop only."""

    def __init__(self, node: BrokerNode) -> None:
        self._node = node
        self._began_ms = node.clock.monotonic_ms()
        # One scrape at a time: handlers need the worker threads, too.
        self._scraping = asyncio.Lock()
        self._asks = node.settings.metrics_ask
        self._logins = HttpLogins(node.logins, node.clock, "/metrics", takes_tokens=True)

    def routes(self) -> list[HttpRoute]:
        return [
            HttpRoute("GET", "/", lambda _: HttpResponse.text(_INDEX)),
            HttpRoute("GET", "/healthz", self.health),
            HttpRoute("GET", "/metrics", self.metrics),
        ]

    def health(self, _: HttpRequest) -> HttpResponse:
        """From memory, without a thread: it answers even if the disk does not."""
        problem = "the broker is leaving" if self._node.is_leaving else problem_of(self._node.broker)
        if problem is None:
            return HttpResponse.text("ok")
        if self._asks and not self._node.is_leaving:
            problem = "the broker has to be restarted; its log says why"
        return HttpResponse.text(problem, HTTPStatus.SERVICE_UNAVAILABLE)

    async def metrics(self, request: HttpRequest) -> HttpResponse:
        refusal = await self._refusal(request) if self._asks else None
        if refusal is not None:
            return refusal
        per_partition = request.query.get("per_partition", "").lower() not in _FALSE
        counted = [*self._node.metrics.families(), *self._own_families()]
        async with self._scraping:
            page = await self._node.run(_page, counted, self._node, per_partition)
        return HttpResponse(body=page, content_type=CONTENT_TYPE)

    async def _refusal(self, request: HttpRequest) -> HttpResponse | None:
        """Why the request is not answered; None if it is."""
        principal = await self._logins.principal(request) or request.principal
        if not principal and self._takes_anonymous(request):
            request.known()
            return None
        if not principal:
            refusal = HttpResponse.text(_WHO, HTTPStatus.UNAUTHORIZED)
            return replace(refusal, headers=(("www-authenticate", 'Basic realm="foldlog", charset="UTF-8"'),))
        request.known()
        who = Identity(principal, address_in_acls(request.peer))
        if not self._node.authorizer.allows(who, AclOperation.DESCRIBE, ResourceType.CLUSTER, CLUSTER_NAME):
            sentence = f"{principal} may not describe the cluster; an operator can allow it: foldlog acl create"
            return HttpResponse.text(f"{sentence} {principal} describe cluster", HTTPStatus.FORBIDDEN)
        return None

    def _takes_anonymous(self, request: HttpRequest) -> bool:
        """Whether a request without a login is answered: where ACLs allow it to the clients of every listener. Where
        some of them log in, an ACL for everybody means those, and not whoever reaches this port."""
        who = Identity(ANONYMOUS, address_in_acls(request.peer))
        return (
            self._node.settings.is_anonymous
            and "authorization" not in request.headers
            and self._node.authorizer.allows(who, AclOperation.DESCRIBE, ResourceType.CLUSTER, CLUSTER_NAME)
        )

    def _own_families(self) -> list[Family]:
        memory, telemetry = self._node.memory, self._node.telemetry
        uptime_s = (self._node.clock.monotonic_ms() - self._began_ms) / 1000
        return [
            build_family(),
            Family("foldlog_uptime_seconds", "gauge", "Time since the broker began to serve.", [Sample(uptime_s)]),
            Family(
                "foldlog_request_memory_bytes",
                "gauge",
                "Memory held by requests and answers under way.",
                [Sample(memory.used_bytes)],
            ),
            Family(
                "foldlog_request_memory_limit_bytes",
                "gauge",
                "Above this, connections wait: queued.max.request.bytes.",
                [Sample(memory.limit_bytes)],
            ),
            Family(
                "foldlog_stranger_memory_bytes",
                "gauge",
                "Memory held by connections that have not logged in.",
                [Sample(self._node.strangers.used_bytes)],
            ),
            *([] if telemetry is None else telemetry.families()),
        ]


def _page(counted: list[Family], node: BrokerNode, per_partition: bool) -> bytes:
    """On a worker thread: it may wait for the groups' lock, and takes long with many partitions."""
    return render(
        [*counted, *process_families(), *log_families(node.broker, node.fold_runs, per_partition=per_partition)]
    )
