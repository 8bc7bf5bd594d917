"""The stream of changes behind `/api/events`: gathered once for all who listen, and only while somebody does.

A contributor is asked for its changes at most ten times a second. What one listener has not been sent yet is merged,
so one that reads slowly gets fewer and larger events, and costs no more memory than the newest state of what it missed.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from http import HTTPStatus
from inspect import isawaitable
from typing import Any, Final, NamedTuple

from foldlog.limits import CONSOLE_LISTENERS_MAX
from foldlog.server.console.api_errors import ApiError

logger = logging.getLogger("foldlog.console")

GATHER_S: Final = 0.1
"""Time between two looks at the log: ten events a second are as smooth as a page gets."""

_IDLE_SHARE: Final = 3
"""A look that takes long is followed by a pause this many times as long, however many partitions there are."""

COMMENT_S: Final = 10.0
"""A line that says nothing, when there is nothing to say: only a write finds out that nobody reads any more."""

_COMMENT: Final = b": nothing new\n\n"


class Change(NamedTuple):
    """An event's name, and its data: anything that JSON can say."""

    event: str
    data: Any


MaybeChange = Change | tuple[str, Any] | None
Changes = Callable[[], MaybeChange | Awaitable[MaybeChange]]
"""What has changed since the last call; None if nothing has. Plain or async; it runs on the event loop and must not
block it."""

Merge = Callable[[Any, Any], Any]
"""What somebody is told who has missed the first of two pieces of data."""


def newest(_: Any, new: Any) -> Any:
    """Of data that are whole each time."""
    return new


def merged_dicts(old: Mapping[str, Any], new: Mapping[str, Any]) -> dict[str, Any]:
    """Of dicts of dicts, by both keys.

    >>> merged_dicts({"a": {"0": 1, "1": 1}}, {"a": {"1": 2}, "b": {"0": 3}})
    {'a': {'0': 1, '1': 2}, 'b': {'0': 3}}
    """
    return {**old, **{key: {**old.get(key, {}), **inner} for key, inner in new.items()}}


def merged_by(key: str) -> Merge:
    """Of lists of objects that one of their members tells apart.

    >>> merged_by("fold")([{"fold": "a", "lag": 2}], [{"fold": "b", "lag": 1}, {"fold": "a", "lag": 0}])
    [{'fold': 'a', 'lag': 0}, {'fold': 'b', 'lag': 1}]
    """

    def merge(old: list[dict[str, Any]], new: list[dict[str, Any]]) -> list[dict[str, Any]]:
        return list({each[key]: each for each in (*old, *new)}.values())

    return merge


@dataclass(frozen=True, slots=True)
class _Contributor:
    """Who is asked, and how two of its answers become one."""

    changes: Changes
    whole: Changes | None
    merge: Merge


@dataclass(frozen=True)
class _Outgoing:
    """One event on its way, made into bytes once for all who get it."""

    event: str
    data: Any
    merge: Merge

    @cached_property
    def text(self) -> bytes:
        # JSON has no line ends of its own, so the data are one line.
        return f"event: {self.event}\ndata: {json.dumps(self.data, ensure_ascii=False)}\n\n".encode()


class _Listener:
    """What one client has not been sent yet."""

    def __init__(self) -> None:
        self._waiting: dict[str, _Outgoing] = {}
        self._arrived = asyncio.Event()

    def add(self, outgoing: _Outgoing) -> None:
        before = self._waiting.pop(outgoing.event, None)
        if before is not None:
            merged = outgoing.merge(before.data, outgoing.data)
            outgoing = _Outgoing(outgoing.event, merged, outgoing.merge)
        self._waiting[outgoing.event] = outgoing
        self._arrived.set()

    async def take(self, timeout_s: float) -> bytes:
        """All that waits, or a comment if nothing came for so long."""
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                await self._arrived.wait()
        self._arrived.clear()
        waiting, self._waiting = self._waiting, {}
        return b"".join(outgoing.text for outgoing in waiting.values()) or _COMMENT


class Feed:
    """All listeners and all contributors. The event loop's."""

    def __init__(self, *, gather_s: float = GATHER_S, comment_s: float = COMMENT_S) -> None:
        self._gather_s = gather_s
        self._comment_s = comment_s
        self._contributors: list[_Contributor] = []
        self._listeners: set[_Listener] = set()
        self._gathering: asyncio.Task[None] | None = None
        self._failed: set[int] = set()

    @property
    def listener_count(self) -> int:
        return len(self._listeners)

    @property
    def is_gathering(self) -> bool:
        """Whether contributors are asked: while somebody listens, and a moment longer."""
        return self._gathering is not None

    def contribute(self, changes: Changes, *, whole: Changes | None = None, merge: Merge = newest) -> None:
        """Ask `changes` from now on; `whole` is what a new listener gets first, for events that name changes only."""
        self._contributors.append(_Contributor(changes, whole, merge))

    def refuse_many(self) -> None:
        """ApiError if no more can listen."""
        if len(self._listeners) >= CONSOLE_LISTENERS_MAX:
            raise ApiError(
                HTTPStatus.SERVICE_UNAVAILABLE,
                f"{CONSOLE_LISTENERS_MAX} pages listen already; close one, and this one connects by itself",
            )

    async def stream(self) -> AsyncGenerator[bytes, None]:
        """The events for one client, for ever: server-sent events."""
        listener = _Listener()
        self._listeners.add(listener)
        try:
            yield b"retry: 1000\n\n"
            if self._gathering is None:
                # What changed while nobody listened is in what this one is told first.
                for contributor in self._contributors:
                    await self._ask(contributor, contributor.changes)
            for contributor in self._contributors:
                if contributor.whole is not None:
                    self._deliver(contributor, await self._ask(contributor, contributor.whole), [listener])
            if self._gathering is None:
                self._gathering = asyncio.get_running_loop().create_task(self._gather())
            while True:
                yield await listener.take(self._comment_s)
        finally:
            self._listeners.discard(listener)

    async def close(self) -> None:
        """Gather no more. The streams end with their connections."""
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
            # The others have nothing to do with it. Once is enough: it will be asked again in a moment.
            if id(contributor) not in self._failed:
                self._failed.add(id(contributor))
                logger.exception("a part of the console's events failed")
            return None
        self._failed.discard(id(contributor))
        return found

    @staticmethod
    def _deliver(
        contributor: _Contributor, change: tuple[str, Any] | None, listeners: set[_Listener] | list[_Listener]
    ) -> None:
        if change is not None:
            outgoing = _Outgoing(*change, contributor.merge)
            for listener in listeners:
                listener.add(outgoing)
