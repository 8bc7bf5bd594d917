"""Whether all is well: problems with the commands that help, the disk, connections, recent errors; and what the broker
remembers of the last hours. See docs/reference/console_api.md."""

from __future__ import annotations

import asyncio
import logging
import shlex
from collections.abc import Callable
from concurrent.futures import Executor
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from foldlog.broker.broker import MEMORY_PATH
from foldlog.errors import StorageError
from foldlog.files.paths import absolute
from foldlog.limits import CONSOLE_HISTORY_STEP_MS, CONSOLE_PROBLEMS_MAX
from foldlog.server.console.events import ConsoleEvent, EventFeed
from foldlog.server.console.groups import bounds_in, group_overviews
from foldlog.server.console.history import MINUTES_MAX, History
from foldlog.server.console.parameters import query_integer
from foldlog.server.console.rights import Sight, identity_of, nothing
from foldlog.server.http.routes import HttpRequest, HttpResponse, HttpRoute
from foldlog.server.problems import Problem, problems
from foldlog.server.process_log import RecentLines

if TYPE_CHECKING:
    from foldlog.broker.tiers import TierOverview
    from foldlog.server.node import BrokerNode

logger = logging.getLogger("foldlog.console")

_LOOK_MS: Final = 2000
"""Between two looks for problems, while somebody listens."""

_POINTS_MAX: Final = 720


class HealthPages:
    """The handlers for the health of one console. Event loop only."""

    def __init__(self, node: BrokerNode, feed: EventFeed, workers: Executor, *, bootstrap: str) -> None:
        self._node = node
        self._workers = workers
        self._bootstrap = bootstrap
        self._history = History(node.broker, node.fold_runs)
        self._lines = RecentLines()
        self._sampling: asyncio.Task[None] | None = None
        self._looked_ms = float("-inf")
        self._told: list[dict[str, Any]] | None = None
        feed.contribute(self.changes, whole=self.all)

    def routes(self) -> list[HttpRoute]:
        return [
            HttpRoute("GET", "/api/health", self.health, nothing),
            HttpRoute("GET", "/api/history", self.history, nothing),
        ]

    def begin(self) -> None:
        """Remember from now on."""
        self._lines.begin()
        self._sampling = self._node.loop.create_task(self._sample())

    async def close(self) -> None:
        self._lines.end()
        if self._sampling is not None:
            self._sampling.cancel()
            await asyncio.gather(self._sampling, return_exceptions=True)

    async def _sample(self) -> None:
        has_failed = False
        while True:
            try:
                await self._run(self._history.sample)
                has_failed = False
            except Exception:
                # The next sample may succeed. Logged once: it comes four times a minute.
                if not has_failed:
                    logger.exception("rates and lags could not be sampled for the console")
                has_failed = True
            await asyncio.sleep(CONSOLE_HISTORY_STEP_MS / 1000)

    # --- problems -------------------------------------------------------------------------------------------------

    async def changes(self) -> ConsoleEvent | None:
        """The problems, if there are others than before; lags alone are not told again."""
        now_ms = self._node.clock.monotonic_ms()
        if now_ms - self._looked_ms < _LOOK_MS:
            return None
        self._looked_ms = now_ms
        found = await self._run(self._problems)
        known = [{**one, "lag": None} for one in found]
        if known == self._told:
            return None
        self._told = known
        return ConsoleEvent("problems", found)

    async def all(self) -> ConsoleEvent:
        return ConsoleEvent("problems", await self._run(self._problems))

    def _problems(self) -> list[dict[str, Any]]:
        """On a thread."""
        broker, fold_runs = self._node.broker, self._node.fold_runs
        with suppress(StorageError):  # the topic of committed offsets is refused, which is a warning of the log
            groups = group_overviews(broker, bounds_in(broker), fold_runs)
            lags = {one["group"]: sum(cursor["lag"] for cursor in one["cursors"]) for one in groups}
            return [self._shown(one) for one in problems(broker, fold_runs, broker.overview(), lags)]
        return []

    def _shown(self, one: Problem) -> dict[str, Any]:
        return {
            "kind": one.kind,
            "resource": one.resource,
            "name": one.name,
            "sentence": one.sentence,
            "since_ms": one.since_ms,
            "lag": one.lag,
            "command": self._command(one),
        }

    def _command(self, one: Problem) -> str | None:
        """What to type about it; None if there is no such command."""
        if one.resource == "fold":
            words = ["foldlog", "fold", "run", one.file or "folds.py", "-b", self._bootstrap]
        elif one.resource == "group":
            words = ["foldlog", "group", "describe", one.name, "-b", self._bootstrap]
        elif one.kind == "store_failing":
            tier = self._node.broker.tier_overview()
            words = ["foldlog", "topic", "list", "-d", "" if tier is None else tier.url]
        elif one.kind == "disk_low":
            words = ["foldlog", "topic", "trim", "TOPIC", "--before", "@-7d", "-b", self._bootstrap]
        elif one.kind == "partition_poisoned" or self._node.broker.path == MEMORY_PATH:
            return None
        else:
            words = ["foldlog", "check", absolute(self._node.broker.path)]
        return shlex.join(words)

    # --- requests -------------------------------------------------------------------------------------------------

    async def health(self, request: HttpRequest) -> HttpResponse:
        sight = Sight(self._node.authorizer, identity_of(request))
        connections = self._node.connections
        counted = {"open": len(connections), "max": connections.settings.max_connections, "hosts": connections.hosts}

        def look() -> HttpResponse:
            disk = self._history.disk()
            is_operator = sight.is_operator
            return HttpResponse.json(
                {
                    "now_ms": self._node.clock.now_ms(),
                    "problems": sight.of_problems(self._problems()),
                    "disk": disk._asdict() if is_operator and disk is not None else None,
                    "store": _store(self._node.broker.tier_overview()) if is_operator else None,
                    "connections": counted if is_operator else None,
                    "errors": [line._asdict() for line in self._lines.newest()] if is_operator else [],
                }
            )

        response: HttpResponse = await self._run(look)
        return response

    async def history(self, request: HttpRequest) -> HttpResponse:
        minutes = query_integer(request, "minutes", 60, 1, MINUTES_MAX)
        points = query_integer(request, "points", 60, 2, _POINTS_MAX)
        sight = Sight(self._node.authorizer, identity_of(request))
        response: HttpResponse = await self._run(
            lambda: HttpResponse.json(sight.of_history(self._history.read(minutes, points)))
        )
        return response

    async def _run(self, function: Callable[[], Any]) -> Any:
        return await self._node.loop.run_in_executor(self._workers, function)


def _store(tier: TierOverview | None) -> dict[str, Any] | None:
    """The store of segments as the page shows it; None where there is none."""
    if tier is None:
        return None
    counts, standings = tier.counts, tier.standings.values()
    return {
        "url": tier.url,
        "segments": sum(one.segments for one in standings),
        "size_bytes": sum(one.size_bytes for one in standings),
        "waiting_segments": sum(one.waiting_segments for one in standings),
        "waiting_bytes": sum(one.waiting_bytes for one in standings),
        "copied_segments": counts.copied_segments,
        "failures": tier.failures,
        "reads": counts.reads,
        "cache_hits": counts.cache_hits,
        "cache_misses": counts.cache_misses,
        "cache_bytes": tier.cache_bytes,
        "errors": [one.sentence for one in tier.faults[:CONSOLE_PROBLEMS_MAX]],
    }
