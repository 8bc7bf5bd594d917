"""Deadlines by name, for a coordinator that gets the time passed in."""

from __future__ import annotations

import heapq
from collections.abc import Hashable, Iterator
from typing import Generic, TypeVar

Name = TypeVar("Name", bound=Hashable)

STALE_ENTRIES_MIN = 64


class Timers(Generic[Name]):
    """A heap of deadlines, one per name. One owner at a time.

    Heartbeats keep moving deadlines later, so that costs only a dictionary store: the heap keeps the old entry, and the
    real deadline is looked up when that entry comes to the top. Stale entries are removed once they outnumber the live
    ones.
    """

    def __init__(self) -> None:
        self._deadlines: dict[Name, float] = {}
        self._queued: dict[Name, float] = {}
        self._heap: list[tuple[float, int, Name]] = []
        self._sequence = 0

    def __len__(self) -> int:
        return len(self._deadlines)

    def __contains__(self, name: Name) -> bool:
        return name in self._deadlines

    def set(self, name: Name, deadline_ms: float) -> None:
        """Set or move a deadline."""
        self._deadlines[name] = deadline_ms
        queued = self._queued.get(name)
        if queued is None or deadline_ms < queued:
            self._push(name, deadline_ms)

    def cancel(self, name: Name) -> None:
        if (
            self._deadlines.pop(name, None) is not None
            and len(self._heap) > 2 * len(self._deadlines) + STALE_ENTRIES_MIN
        ):
            self._heap.clear()
            self._queued.clear()
            for live, deadline_ms in self._deadlines.items():
                self._push(live, deadline_ms)

    def deadline_ms(self, name: Name) -> float | None:
        """The deadline of that name, or None."""
        return self._deadlines.get(name)

    def next_deadline_ms(self) -> float | None:
        """The earliest deadline, or None."""
        while self._heap:
            queued_ms, _, name = self._heap[0]
            deadline_ms = self._deadlines.get(name)
            if deadline_ms == queued_ms:
                return queued_ms
            heapq.heappop(self._heap)
            if self._queued.get(name) == queued_ms:
                del self._queued[name]
                if deadline_ms is not None:
                    self._push(name, deadline_ms)
        return None

    def due(self, now_ms: float) -> Iterator[Name]:
        """Names whose deadline has come, earliest first, each cancelled before it is yielded.

        A name that the caller sets again while iterating comes again only if it is due by `now_ms`, too.
        """
        while (deadline_ms := self.next_deadline_ms()) is not None and deadline_ms <= now_ms:
            name = self._heap[0][2]
            self.cancel(name)
            yield name

    def _push(self, name: Name, deadline_ms: float) -> None:
        self._sequence += 1
        self._queued[name] = deadline_ms
        heapq.heappush(self._heap, (deadline_ms, self._sequence, name))
