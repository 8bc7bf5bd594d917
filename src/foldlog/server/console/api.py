"""The console's JSON API, documented in docs/console_api.md: every route, and the handler that answers it.

Handlers run on the event loop; what reads the log or waits for a lock runs on one of the console's own threads.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from concurrent.futures import Executor
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final

from foldlog import __version__
from foldlog.errors import StorageError
from foldlog.limits import CONSOLE_CELLS_MAX
from foldlog.records.batch import MAX_INT64
from foldlog.server.console import strips
from foldlog.server.console.api_errors import ApiError
from foldlog.server.console.changes import LogChanges
from foldlog.server.console.groups import GroupBusy, ends_of, group_details, group_overviews, rewind
from foldlog.server.console.parameters import JsonBody, bad_request, parse_integer, path_partition, query_integer
from foldlog.server.console.producing import NewRecord, produce
from foldlog.server.console.rates import Rates
from foldlog.server.console.topics import open_partition, overview_topics, topic_details
from foldlog.server.health import problem_of
from foldlog.server.http_routes import Request, Response, Route

if TYPE_CHECKING:
    from foldlog.log.partition import Partition
    from foldlog.server.console.feed import Feed
    from foldlog.server.node import Node

EVENT_STREAM: Final = "text/event-stream"

_REWIND_TRIES: Final = 50
_REWIND_PAUSE_S: Final = 0.1
"""A group that has just begun waits group.initial.rebalance.delay.ms for more members, also when all have gone."""


class Api:
    """The handlers of one console. The event loop's."""

    def __init__(self, node: Node, feed: Feed, workers: Executor, *, bootstrap: str, read_only: bool) -> None:
        self._node = node
        self._broker = node.broker
        self._clock = node.clock
        self._feed = feed
        self._workers = workers
        self._bootstrap = bootstrap
        self._read_only = read_only
        self._rates = Rates()
        LogChanges(node.broker, self._rates, node.clock, self._run).contribute_to(feed)

    def routes(self) -> list[Route]:
        return [
            Route("GET", "/api/overview", self.overview),
            Route("GET", "/api/events", self.events),
            Route("GET", "/api/topics/{topic}", self.topic),
            Route("POST", "/api/topics/{topic}/records", self.produce),
            Route("GET", "/api/topics/{topic}/{partition}/strip", self.strip),
            Route("GET", "/api/topics/{topic}/{partition}/records/{offset}", self.record),
            Route("GET", "/api/topics/{topic}/{partition}/at", self.at),
            Route("GET", "/api/groups/{group}", self.group),
            Route("POST", "/api/groups/{group}/rewind", self.rewind),
        ]

    # --- the log ------------------------------------------------------------------------------------------------------

    async def overview(self, _: Request) -> Response:
        return await self._json(self._overview)

    def _overview(self) -> dict[str, Any]:
        broker = self._broker
        problem = "the broker is leaving" if self._node.is_leaving else problem_of(broker)
        self._rates.sample(broker, self._clock.monotonic_ms())
        topics = overview_topics(broker, self._rates, self._clock)
        warnings = ([problem] if problem else []) + broker.warnings()
        try:
            groups = group_overviews(broker, ends_of(broker))
        except StorageError as error:
            # The topic of committed offsets is refused; the rest can be told.
            groups, warnings = [], [*warnings, f"groups cannot be shown: {error}"]
        return {
            "version": __version__,
            "directory": broker.path,
            "cluster_id": self._node.cluster_id,
            "bootstrap": self._bootstrap,
            "read_only": self._read_only,
            "now_ms": self._clock.now_ms(),
            "warnings": warnings,
            "topics": topics,
            "groups": groups,
        }

    def events(self, _: Request) -> Response:
        self._feed.refuse_many()
        headers = (("cache-control", "no-store"), ("x-accel-buffering", "no"))
        return Response(HTTPStatus.OK, self._feed.stream(), EVENT_STREAM, headers)

    async def topic(self, request: Request) -> Response:
        return await self._json(topic_details, self._broker, request.named["topic"], self._rates)

    async def strip(self, request: Request) -> Response:
        place = path_partition(request)
        count = query_integer(request, "cells", 100, 1, CONSOLE_CELLS_MAX)
        from_offset = query_integer(request, "from", strips.LAST, strips.LAST)
        if "at" not in request.query:
            return await self._of_partition(place, strips.strip, from_offset, count)
        if "from" in request.query:
            raise bad_request("from and at both say where the strip begins; give one of them")
        at_ms = query_integer(request, "at", None, 0)
        return await self._of_partition(place, _strip_at, at_ms, count)

    async def record(self, request: Request) -> Response:
        place = path_partition(request)
        offset = parse_integer(request.named["offset"], "offset", 0, MAX_INT64)
        return await self._of_partition(place, strips.record_at, offset)

    async def at(self, request: Request) -> Response:
        place = path_partition(request)
        return await self._of_partition(place, strips.time_at, query_integer(request, "offset", None, 0))

    async def produce(self, request: Request) -> Response:
        record = NewRecord(JsonBody(request))
        return await self._json(produce, self._broker, request.named["topic"], record, self._clock)

    # --- groups -------------------------------------------------------------------------------------------------------

    async def group(self, request: Request) -> Response:
        return await self._json(group_details, self._broker, request.named["group"], ends_of(self._broker))

    async def rewind(self, request: Request) -> Response:
        body = JsonBody(request)
        place = (body.text("topic"), body.integer("partition", 0))
        offset, evict = body.integer("offset", 0), body.boolean("evict", False)
        body.end()
        group = request.named["group"]
        evicted: list[str] = []
        for _ in range(_REWIND_TRIES):
            try:
                found = await self._run(lambda: rewind(self._broker, group, place, offset, evict=evict))
            except GroupBusy as busy:
                evicted += busy.evicted
                await asyncio.sleep(_REWIND_PAUSE_S)
            else:
                return Response.json({**found, "evicted": evicted + found["evicted"]})
        raise ApiError(
            HTTPStatus.CONFLICT, f"group {group!r} is busy with members that come and go; try again in a moment"
        )

    # --- threads ------------------------------------------------------------------------------------------------------

    def _run(self, function: Callable[..., Any], *arguments: Any) -> Awaitable[Any]:
        return self._node.loop.run_in_executor(self._workers, function, *arguments)

    async def _json(self, function: Callable[..., Any], *arguments: Any) -> Response:
        """What it gives, as JSON: made there as well."""
        response: Response = await self._run(lambda: Response.json(function(*arguments)))
        return response

    async def _of_partition(self, place: tuple[str, int], function: Callable[..., Any], *arguments: Any) -> Response:
        return await self._json(lambda: function(open_partition(self._broker, *place), *arguments))


def _strip_at(partition: Partition, time_ms: int, count: int) -> dict[str, Any]:
    return strips.strip(partition, strips.offset_at(partition, time_ms), count)
