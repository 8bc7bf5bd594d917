"""How a store stands, for metrics and the console: what was copied and read, what waits, and what is wrong with it."""

from __future__ import annotations

import threading
from typing import NamedTuple


class TierCounts:
    """What was done with a store since it was opened. Any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.copied_segments = 0
        self.copied_bytes = 0
        self.removed_segments = 0  # that left the store
        self.reads = 0  # requests for ranges of objects
        self.read_bytes = 0
        self.read_failures = 0
        self.cache_hits = 0
        self.cache_misses = 0

    def add(self, **amounts: int) -> None:
        with self._lock:
            for name, amount in amounts.items():
                setattr(self, name, getattr(self, name) + amount)


class StoredStanding(NamedTuple):
    """What the store has of a partition, by the manifest that was read or written last, and what it does not have yet:
    sealed segments that wait to be copied."""

    segments: int
    size_bytes: int
    end_offset: int
    waiting_segments: int
    waiting_bytes: int


class TierFault(NamedTuple):
    """What is wrong now. `topic` is None for the store itself; `is_damage`: an object was read and is lost or wrong."""

    topic: str | None
    sentence: str
    since_ms: int | None
    is_damage: bool = False
