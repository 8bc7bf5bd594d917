"""The console's JSON API, documented in docs/reference/console_api.md: every route, and its handler.

Handlers run on the event loop; what reads the log or waits for a lock runs on one of the console's own threads.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from concurrent.futures import Executor
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final

from foldlog import __version__
from foldlog.broker.access.acls import USER_PREFIX, ResourceType
from foldlog.errors import StorageError
from foldlog.limits import CONSOLE_CELLS_MAX, CONSOLE_EXPANDED_BYTES_MAX, CONSOLE_SYNC_WAIT_MS
from foldlog.log.partition import Partition
from foldlog.records.batch import MAX_INT64
from foldlog.records.decoding import AUTO
from foldlog.server.console import records
from foldlog.server.console.events import LogChanges
from foldlog.server.console.groups import bounds_in, group_details, group_overviews, rewind
from foldlog.server.console.parameters import JsonBody, bad_request, parse_integer, path_partition, query_integer
from foldlog.server.console.rates import Rates
from foldlog.server.console.rights import (
    DESCRIBE,
    READ,
    WRITE,
    Right,
    Sight,
    identity_of,
    nothing,
    of_group,
    of_topic,
)
from foldlog.server.console.topics import open_partition, overview_topics, topic_details
from foldlog.server.http.routes import HttpRequest, HttpResponse, HttpRoute
from foldlog.server.http.status_pages import problem_of

if TYPE_CHECKING:
    from foldlog.broker.broker import Broker
    from foldlog.server.console.events import EventFeed
    from foldlog.server.node import BrokerNode

EVENT_STREAM: Final = "text/event-stream"


class Api:
    """The handlers of one console. Event loop only."""

    def __init__(
        self, node: BrokerNode, feed: EventFeed, workers: Executor, *, bootstrap: str, read_only: bool
    ) -> None:
        self._node = node
        self._broker = node.broker
        self._clock = node.clock
        self._feed = feed
        self._workers = workers
        self._bootstrap = bootstrap
        self._read_only = read_only
        self._rates = Rates()
        LogChanges(node.broker, self._rates, node.clock, self._run, node.fold_runs).contribute_to(feed)

    def routes(self) -> list[HttpRoute]:
        return [
            HttpRoute("GET", "/api/overview", self.overview, nothing),
            HttpRoute("GET", "/api/events", self.events, nothing),
            HttpRoute("GET", "/api/topics/{topic}", self.topic, of_topic(DESCRIBE)),
            HttpRoute("GET", "/api/topics/{topic}/place", self.place, of_topic(READ)),
            HttpRoute("POST", "/api/topics/{topic}/records", self.produce, of_topic(WRITE)),
            HttpRoute("GET", "/api/topics/{topic}/{partition}/strip", self.strip, of_topic(READ)),
            HttpRoute("GET", "/api/topics/{topic}/{partition}/records/{offset}", self.record, of_topic(READ)),
            HttpRoute("GET", "/api/topics/{topic}/{partition}/at", self.at, of_topic(READ)),
            HttpRoute("GET", "/api/groups/{group}", self.group, of_group(DESCRIBE)),
            HttpRoute("POST", "/api/groups/{group}/rewind", self.rewind, _rights_of_rewind),
        ]

    # --- the log ------------------------------------------------------------------------------------------------------

    async def overview(self, request: HttpRequest) -> HttpResponse:
        opened = [one for one in self._broker.opened_partitions() if isinstance(one, Partition)]
        await self._node.syncs.catch_up(opened, CONSOLE_SYNC_WAIT_MS)  # failed ones are shown with their error
        return await self._json(self._overview, request)

    def _overview(self, request: HttpRequest) -> dict[str, Any]:
        broker, sight = self._broker, self._sight(request)
        # Paths, and warnings with the names of any topic, are for who runs the broker.
        is_operator = sight.is_operator
        problem = "the broker is leaving" if self._node.is_leaving else problem_of(broker)
        self._rates.sample(broker, self._clock.monotonic_ms())
        topics = overview_topics(broker, self._rates, self._clock)
        warnings = ([problem] if problem else []) + broker.warnings()
        try:
            groups = group_overviews(broker, bounds_in(broker), self._node.fold_runs)
        except StorageError as error:
            # The topic of committed offsets is refused; the rest is available.
            groups, warnings = [], [*warnings, f"groups cannot be shown: {error}"]
        return {
            "version": __version__,
            "directory": broker.path if is_operator else None,
            "cluster_id": self._node.cluster_id,
            "bootstrap": self._bootstrap,
            "read_only": self._read_only,
            "may": ["CREATE"] if sight.creates_topics else [],
            "now_ms": self._clock.now_ms(),
            "warnings": warnings if is_operator else [],
            "user": request.principal.removeprefix(USER_PREFIX) if request.principal.startswith(USER_PREFIX) else None,
            "topics": [one for one in topics if sight.sees_topic(one["name"])],
            "groups": [sight.of_group(one) for one in groups if sight.sees_group(one["group"])],
        }

    def _sight(self, request: HttpRequest) -> Sight:
        return Sight(self._node.authorizer, identity_of(request))

    def events(self, request: HttpRequest) -> HttpResponse:
        self._feed.refuse_many()
        headers = (("cache-control", "no-store"), ("x-accel-buffering", "no"))
        return HttpResponse(
            HTTPStatus.OK, self._feed.stream(self._sight(request).of_event, request.holds), EVENT_STREAM, headers
        )

    async def topic(self, request: HttpRequest) -> HttpResponse:
        name, sight = request.named["topic"], self._sight(request)

        def look() -> Any:
            found = topic_details(self._broker, name, self._rates)
            may = sight.may(ResourceType.TOPIC, name)
            return {**found, "is_writable": records.is_writable(name, self._node), "may": may}

        return await self._json(look)

    async def place(self, request: HttpRequest) -> HttpResponse:
        text, zone = request.query.get("place", ""), request.query.get("zone")
        topic, now_ms = request.named["topic"], self._clock.now_ms()

        def look() -> Any:
            with self._node.holding(CONSOLE_EXPANDED_BYTES_MAX):
                return records.place_in_topic(self._broker, topic, text, zone, now_ms)

        return await self._json(look)

    async def strip(self, request: HttpRequest) -> HttpResponse:
        partition = path_partition(request)
        count = query_integer(request, "cells", 100, 1, CONSOLE_CELLS_MAX)
        from_offset = query_integer(request, "from", records.LAST, records.LAST)
        if "at" not in request.query:
            return await self._of_partition(partition, _strip, self._broker, from_offset, count)
        if "from" in request.query:
            raise bad_request("from and at both say where the strip begins; give one of them")
        at_ms = query_integer(request, "at", None, 0)
        return await self._of_partition(partition, _strip_at, self._broker, at_ms, count)

    async def record(self, request: HttpRequest) -> HttpResponse:
        partition = path_partition(request)
        offset = parse_integer(request.named["offset"], "offset", 0, MAX_INT64)
        decoder = records.decoder_for(self._node, request.query.get("decoder", AUTO))
        return await self._of_partition(partition, records.record_at, offset, decoder)

    async def at(self, request: HttpRequest) -> HttpResponse:
        partition = path_partition(request)
        return await self._of_partition(partition, records.time_at, query_integer(request, "offset", None, 0))

    async def produce(self, request: HttpRequest) -> HttpResponse:
        record = records.NewRecord(JsonBody(request))
        return await self._json(records.produce, self._node, request.named["topic"], record)

    # --- groups -------------------------------------------------------------------------------------------------------

    async def group(self, request: HttpRequest) -> HttpResponse:
        name, sight = request.named["group"], self._sight(request)

        def look() -> Any:
            bounds = bounds_in(self._broker)
            found = sight.of_group(group_details(self._broker, name, bounds, self._node.fold_runs))
            return {**found, "may": sight.may(ResourceType.GROUP, name)}

        return await self._json(look)

    async def rewind(self, request: HttpRequest) -> HttpResponse:
        body = JsonBody(request)
        partition = (body.text("topic"), body.integer("partition", 0))
        offset, evict = body.integer("offset", 0), body.boolean("evict", False)
        body.end()
        return await self._json(lambda: rewind(self._broker, request.named["group"], partition, offset, evict=evict))

    # --- threads ------------------------------------------------------------------------------------------------------

    def _run(self, function: Callable[..., Any], *arguments: Any) -> Awaitable[Any]:
        return self._node.loop.run_in_executor(self._workers, function, *arguments)

    async def _json(self, function: Callable[..., Any], *arguments: Any) -> HttpResponse:
        """The function's result as JSON, encoded on the same thread."""
        response: HttpResponse = await self._run(lambda: HttpResponse.json(function(*arguments)))
        return response

    async def _of_partition(
        self, partition: tuple[str, int], function: Callable[..., Any], *arguments: Any
    ) -> HttpResponse:
        def look() -> Any:
            with self._node.holding(CONSOLE_EXPANDED_BYTES_MAX):
                return function(open_partition(self._broker, *partition), *arguments)

        return await self._json(look)


def _rights_of_rewind(request: HttpRequest) -> list[Right]:
    body = JsonBody(request)
    topic = Right(READ, ResourceType.TOPIC, body.text("topic"))
    return [Right(READ, ResourceType.GROUP, request.named["group"]), topic]


def _strip(partition: Partition, broker: Broker, from_offset: int, count: int) -> dict[str, Any]:
    return {**records.strip(partition, from_offset, count), "held": records.held(broker, partition)}


def _strip_at(partition: Partition, broker: Broker, time_ms: int, count: int) -> dict[str, Any]:
    return _strip(partition, broker, records.offset_at(partition, time_ms), count)
