"""The stream of changes behind `/api/events`: gathered once for all listeners, and only while there are any.

A contributor is asked for its changes at most ten times a second. Events that were not sent to a listener yet are
merged, so a slow one gets fewer and larger events, and costs no more memory than the newest state of what it missed.

`LogChanges` contributes the changes of the log: ends, groups, rates, and that topics changed. Ends are in memory, so
reading them needs no thread; groups are behind a lock that is held over syncs, so reading them does. Folds contribute,
too (`folds`).
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from http import HTTPStatus
from inspect import isawaitable
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from foldlog.broker.topics.names import OFFSETS_TOPIC
from foldlog.errors import StorageError
from foldlog.limits import CONSOLE_LISTENERS_MAX
from foldlog.server.console.api_errors import ApiError
from foldlog.server.console.groups import bounds_in, group_overviews
from foldlog.server.console.rates import SAMPLE_MS, Rates

if TYPE_CHECKING:
    from foldlog.broker.broker import Broker
    from foldlog.clock import Clock
    from foldlog.server.folds_reader import ServedFoldRuns

logger = logging.getLogger("foldlog.console")

GATHER_S: Final = 0.1
"""Time between two looks at the log: a page does not get smoother with more than ten events a second."""

_IDLE_SHARE: Final = 3
"""A slow look is followed by a pause this many times as long, however many partitions there are."""

COMMENT_S: Final = 10.0
"""An empty line is sent when there is no news: only a write detects that the client is gone."""

_COMMENT: Final = b": nothing new\n\n"


class ConsoleEvent(NamedTuple):
    """An event's name, and its data: anything that JSON can hold."""

    event: str
    data: Any


MaybeChange = ConsoleEvent | tuple[str, Any] | None
Changes = Callable[[], MaybeChange | Awaitable[MaybeChange]]
"""Returns what has changed since the last call; None if nothing has. Plain or async; it runs on the event loop and must
not block it."""

Merge = Callable[[Any, Any], Any]
"""Merges older data that a listener has missed with newer data."""


Seen = Callable[[str, Any], Any]
"""From an event's name and data to what one client may see of them; None if nothing."""


def newest(_: Any, new: Any) -> Any:
    """For data that are complete each time: the newer one."""
    return new


def merged_dicts(old: Mapping[str, Any], new: Mapping[str, Any]) -> dict[str, Any]:
    """For dicts of dicts: merged by both keys.

    >>> merged_dicts({"a": {"0": 1, "1": 1}}, {"a": {"1": 2}, "b": {"0": 3}})
    {'a': {'0': 1, '1': 2}, 'b': {'0': 3}}
    """
    return {**old, **{key: {**old.get(key, {}), **inner} for key, inner in new.items()}}


def merged_by(key: str) -> Merge:
    """For lists of objects: merged by one of their members.

    >>> merged_by("fold")([{"fold": "a", "lag": 2}], [{"fold": "b", "lag": 1}, {"fold": "a", "lag": 0}])
    [{'fold': 'a', 'lag': 0}, {'fold': 'b', 'lag': 1}]
    """

    def merge(old: list[dict[str, Any]], new: list[dict[str, Any]]) -> list[dict[str, Any]]:
        return list({each[key]: each for each in (*old, *new)}.values())

    return merge


@dataclass(frozen=True, slots=True)
class _Contributor:
    """The function to ask, and how to merge two of its answers."""

    changes: Changes
    whole: Changes | None
    merge: Merge


@dataclass(frozen=True)
class _Outgoing:
    """One event to be sent, encoded once for all its listeners."""

    event: str
    data: Any
    merge: Merge

    @cached_property
    def text(self) -> bytes:
        # JSON has no line ends, so the data are one line.
        return f"event: {self.event}\ndata: {json.dumps(self.data, ensure_ascii=False)}\n\n".encode()


class _Subscriber:
    """The events that were not sent to one client yet. `seen` says what of an event's data the client may see."""

    def __init__(self, seen: Seen | None) -> None:
        self._seen = seen
        self._waiting: dict[str, _Outgoing] = {}
        self._arrived = asyncio.Event()

    def add(self, outgoing: _Outgoing) -> None:
        if self._seen is not None:
            data = self._seen(outgoing.event, outgoing.data)
            if data is None:
                return
            outgoing = replace(outgoing, data=data) if data != outgoing.data else outgoing
        before = self._waiting.pop(outgoing.event, None)
        if before is not None:
            merged = outgoing.merge(before.data, outgoing.data)
            outgoing = _Outgoing(outgoing.event, merged, outgoing.merge)
        self._waiting[outgoing.event] = outgoing
        self._arrived.set()

    async def take(self, timeout_s: float) -> bytes:
        """All waiting events, or a comment if none came for that long."""
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                await self._arrived.wait()
        self._arrived.clear()
        waiting, self._waiting = self._waiting, {}
        return b"".join(outgoing.text for outgoing in waiting.values()) or _COMMENT


class EventFeed:
    """All listeners and all contributors. Event loop only."""

    def __init__(self, *, gather_s: float = GATHER_S, comment_s: float = COMMENT_S) -> None:
        self._gather_s = gather_s
        self._comment_s = comment_s
        self._contributors: list[_Contributor] = []
        self._listeners: set[_Subscriber] = set()
        self._gathering: asyncio.Task[None] | None = None
        self._failed: set[int] = set()

    @property
    def listener_count(self) -> int:
        return len(self._listeners)

    @property
    def is_gathering(self) -> bool:
        """Whether contributors are asked: while there are listeners, and a moment longer."""
        return self._gathering is not None

    def contribute(self, changes: Changes, *, whole: Changes | None = None, merge: Merge = newest) -> None:
        """Call `changes` from now on; `whole` gives a new listener its first state, if events are changes only."""
        self._contributors.append(_Contributor(changes, whole, merge))

    def refuse_many(self) -> None:
        """Raises ApiError if there are too many listeners."""
        if len(self._listeners) >= CONSOLE_LISTENERS_MAX:
            raise ApiError(
                HTTPStatus.SERVICE_UNAVAILABLE,
                f"{CONSOLE_LISTENERS_MAX} pages listen already; close one, and this one connects by itself",
            )

    async def stream(
        self, seen: Seen | None = None, holds: Callable[[], bool] = lambda: True
    ) -> AsyncGenerator[bytes, None]:
        """The events for one client: server-sent events, as long as `holds` says that it may have them."""
        listener = _Subscriber(seen)
        self._listeners.add(listener)
        try:
            yield b"retry: 1000\n\n"
            if self._gathering is None:
                # Changes while there were no listeners are in the first state of this one.
                for contributor in self._contributors:
                    await self._ask(contributor, contributor.changes)
            for contributor in self._contributors:
                if contributor.whole is not None:
                    self._deliver(contributor, await self._ask(contributor, contributor.whole), [listener])
            if self._gathering is None:
                self._gathering = asyncio.get_running_loop().create_task(self._gather())
            while True:
                events = await listener.take(self._comment_s)
                if not holds():
                    return
                yield events
        finally:
            self._listeners.discard(listener)

    async def close(self) -> None:
        """Stop gathering. The streams end with their connections."""
        gathering, self._gathering = self._gathering, None
        if gathering is not None:
            gathering.cancel()
            await asyncio.gather(gathering, return_exceptions=True)

    async def _gather(self) -> None:
        loop = asyncio.get_running_loop()
        try:
            while self._listeners:
                began = loop.time()
                for contributor in self._contributors:
                    self._deliver(contributor, await self._ask(contributor, contributor.changes), self._listeners)
                took_s = loop.time() - began
                await asyncio.sleep(max(self._gather_s - took_s, _IDLE_SHARE * took_s))
        finally:
            self._gathering = None

    async def _ask(self, contributor: _Contributor, question: Changes) -> MaybeChange:
        try:
            answer = question()
            found = await answer if isawaitable(answer) else answer
        except Exception:
            # The other contributors are not affected. Logged once: it will be asked again in a moment.
            if id(contributor) not in self._failed:
                self._failed.add(id(contributor))
                logger.exception("a part of the console's events failed")
            return None
        self._failed.discard(id(contributor))
        return found

    @staticmethod
    def _deliver(
        contributor: _Contributor, change: tuple[str, Any] | None, listeners: set[_Subscriber] | list[_Subscriber]
    ) -> None:
        if change is not None:
            outgoing = _Outgoing(*change, contributor.merge)
            for listener in listeners:
                listener.add(outgoing)


# --- changes of the log -----------------------------------------------------------------------------------------------

Run = Callable[..., Awaitable[Any]]
"""Calls a function on a thread."""

_LAG_MS: Final = 1000
"""How often a group is sent again if only its lag has changed: ends show the same, ten times as often."""

Ends = dict[tuple[str, int], tuple[int, int]]


class LogChanges:
    """Remembers what was sent last. One for all listeners."""

    def __init__(self, broker: Broker, rates: Rates, clock: Clock, run: Run, fold_runs: ServedFoldRuns) -> None:
        self._broker = broker
        self._fold_runs = fold_runs
        self._rates = rates
        self._clock = clock
        self._run = run
        self._ends: Ends = {}
        self._catalog: object = broker.catalog
        self._groups: dict[str, dict[str, Any]] = {}
        self._group_is_gone = False
        self._groups_seen: object = None
        self._groups_told_ms = self._sampled_ms = float("-inf")

    def contribute_to(self, feed: EventFeed) -> None:
        feed.contribute(self.ends, whole=self.all_ends, merge=merged_dicts)
        feed.contribute(self.groups, whole=self.all_groups, merge=merged_by("group"))
        feed.contribute(self.topics)
        feed.contribute(self.rates, whole=self.all_rates, merge=merged_dicts)

    def topics(self) -> ConsoleEvent | None:
        """That a list has changed: topics were added, deleted or changed, or a group is gone."""
        catalog = self._broker.catalog
        if catalog is self._catalog and not self._group_is_gone:
            return None
        self._catalog, self._group_is_gone = catalog, False
        return ConsoleEvent("topics", {})

    def ends(self) -> ConsoleEvent | None:
        """The ends that moved since the last call. Partitions that are not open do not move."""
        now: Ends = {}
        for partition in self._broker.opened_partitions():
            end = partition.high_watermark
            now[partition.label] = (min(partition.log_start_offset, end), end)
        moved = {label: bounds for label, bounds in now.items() if self._ends.get(label) != bounds}
        self._ends = now
        return ConsoleEvent("ends", _by_topic(moved)) if moved else None

    async def all_ends(self) -> ConsoleEvent:
        found = await self._run(self._broker.overview)
        ends: Ends = {}
        for seen in found:
            ends[seen.topic, seen.number] = (min(seen.log_start_offset, seen.high_watermark), seen.high_watermark)
        return ConsoleEvent("ends", _by_topic(ends))

    async def groups(self) -> ConsoleEvent | None:
        """The groups that have changed since the last call."""
        now_ms = self._clock.monotonic_ms()
        is_lag_due = now_ms - self._groups_told_ms >= _LAG_MS
        found = await self._run(self._look_at_groups, is_lag_due)
        if is_lag_due:
            self._groups_told_ms = now_ms
        if found is None:
            return None
        now = {group["group"]: group for group in found}
        changed = [group for name, group in now.items() if self._groups.get(name) != group]
        self._group_is_gone = self._group_is_gone or not self._groups.keys() <= now.keys()
        self._groups = now
        return ConsoleEvent("groups", changed) if changed else None

    def _look_at_groups(self, is_lag_due: bool) -> list[dict[str, Any]] | None:
        """On a thread. None if only lags can have changed, and those are not due: commits and generations are appended
        to their topic, and the list of states is short."""
        try:
            seen = (self._offsets_ends(), self._broker.list_groups(), self._catalog)
            if seen == self._groups_seen and not is_lag_due:
                return None
            self._groups_seen = seen
            return group_overviews(self._broker, bounds_in(self._broker), self._fold_runs)
        except StorageError:
            return None  # the topic of committed offsets is refused, as the overview says

    def _offsets_ends(self) -> list[int]:
        topic = self._broker.find_topic(OFFSETS_TOPIC)
        count = 0 if topic is None else topic.partition_count
        opened = [self._broker.opened_partition(OFFSETS_TOPIC, number) for number in range(count)]
        return [-1 if partition is None else partition.high_watermark for partition in opened]

    async def all_groups(self) -> ConsoleEvent | None:
        try:
            found = await self._run(group_overviews, self._broker, bounds_in(self._broker), self._fold_runs)
            return ConsoleEvent("groups", found)
        except StorageError:
            return None

    async def rates(self) -> ConsoleEvent | None:
        """Once a second: the topics whose rate has changed."""
        now_ms = self._clock.monotonic_ms()
        if now_ms - self._sampled_ms < SAMPLE_MS:
            return None
        self._sampled_ms = now_ms
        changed = await self._run(self._rates.sample, self._broker, now_ms)
        return ConsoleEvent("rates", changed) if changed else None

    def all_rates(self) -> ConsoleEvent | None:
        rates = self._rates.all()
        return ConsoleEvent("rates", rates) if rates else None


def _by_topic(ends: Ends) -> dict[str, dict[str, list[int]]]:
    found: dict[str, dict[str, list[int]]] = {}
    for (topic, number), bounds in sorted(ends.items()):
        found.setdefault(topic, {})[str(number)] = list(bounds)
    return found
