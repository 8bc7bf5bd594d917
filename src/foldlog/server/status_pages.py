"""`/metrics`, `/healthz` and the page that names them."""

from __future__ import annotations

import asyncio
from http import HTTPStatus
from typing import TYPE_CHECKING, Final

from foldlog import __version__
from foldlog.server.exposition import CONTENT_TYPE, Family, Sample, render
from foldlog.server.health import problem_of
from foldlog.server.http_routes import Request, Response, Route
from foldlog.server.log_metrics import log_families
from foldlog.server.process_metrics import build_family, process_families

if TYPE_CHECKING:
    from foldlog.broker.broker import Broker
    from foldlog.server.node import Node

_INDEX: Final = f"""foldlog {__version__}

/metrics   numbers for Prometheus; /metrics?per_partition=false leaves out those of single partitions
/healthz   200 while the broker serves, 503 and one sentence when a restart is needed"""

_FALSE: Final = frozenset({"false", "0", "no"})


class StatusPages:
    """What a person or a scraper asks a broker for. The event loop's."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._began_ms = node.clock.monotonic_ms()
        # One scrape at a time: handlers need the worker threads, too.
        self._scraping = asyncio.Lock()

    def routes(self) -> list[Route]:
        return [
            Route("GET", "/", lambda _: Response.text(_INDEX)),
            Route("GET", "/healthz", self.health),
            Route("GET", "/metrics", self.metrics),
        ]

    def health(self, _: Request) -> Response:
        """From memory, without a thread: it answers also when the disk does not."""
        problem = "the broker is leaving" if self._node.is_leaving else problem_of(self._node.broker)
        if problem is None:
            return Response.text("ok")
        return Response.text(problem, HTTPStatus.SERVICE_UNAVAILABLE)

    async def metrics(self, request: Request) -> Response:
        per_partition = request.query.get("per_partition", "").lower() not in _FALSE
        counted = [*self._node.metrics.families(), *self._own_families()]
        async with self._scraping:
            page = await self._node.run(_page, counted, self._node.broker, per_partition)
        return Response(body=page, content_type=CONTENT_TYPE)

    def _own_families(self) -> list[Family]:
        memory = self._node.memory
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
        ]


def _page(counted: list[Family], broker: Broker, per_partition: bool) -> bytes:
    """On a worker thread: it may wait for the groups' lock, and with many partitions it is long."""
    return render([*counted, *process_families(), *log_families(broker, per_partition=per_partition)])
