"""Warnings that come again and again: the first at once, then one in a while with how many it stands for.

A client that is set up wrongly tries again many times a second, and so does a producer whose partition takes nothing.
Each attempt is worth a count, and not a line.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Hashable
from dataclasses import dataclass
from typing import Final

from foldlog.clock import Clock

logger = logging.getLogger("foldlog.server")

INTERVAL_MS: Final = 10_000
REMEMBERED_MAX: Final = 1000
"""Whoever can reach the port chooses how many different ones there are."""


@dataclass(slots=True)
class _Told:
    """When a key was last logged, and what came since."""

    at_ms: float
    more: int = 0
    line: str = ""  # the newest of those that were only counted


class RepeatedLines:
    """Any thread. Lines of the same key stand for each other; at most `remembered_max` keys are known at a time."""

    def __init__(self, clock: Clock, *, interval_ms: float = INTERVAL_MS, remembered_max: int = REMEMBERED_MAX) -> None:
        self._clock = clock
        self._interval_ms = interval_ms
        self._remembered_max = remembered_max
        self._lock = threading.Lock()
        self._told: dict[Hashable, _Told] = {}  # those told first come first

    def warn(self, key: Hashable, line: str) -> None:
        """Log it, or count it if a line of its key was logged less than an interval ago."""
        now_ms = self._clock.monotonic_ms()
        with self._lock:
            told = self._told.get(key)
            if told is not None and now_ms - told.at_ms < self._interval_ms:
                told.more += 1
                told.line = line
                return
            lines = [_with_count(line, told.more if told is not None else 0)]
            self._told.pop(key, None)
            self._told[key] = _Told(now_ms)
            if len(self._told) > self._remembered_max:
                oldest = self._told.pop(next(iter(self._told)))
                if oldest.more:
                    lines.append(_with_count(oldest.line, oldest.more - 1))
        for each in lines:
            logger.warning("%s", each)

    def sweep(self) -> None:
        """About once a second: tell of what was counted and is due, and forget what did not come again."""
        now_ms = self._clock.monotonic_ms()
        lines = []
        with self._lock:
            for key, told in list(self._told.items()):
                if now_ms - told.at_ms < self._interval_ms:
                    break
                del self._told[key]
                if told.more:
                    lines.append(_with_count(told.line, told.more - 1))
                    self._told[key] = _Told(now_ms)
        for line in lines:
            logger.warning("%s", line)


def _with_count(line: str, more: int) -> str:
    return f"{line} (and {more} more like it)" if more else line
