"""How much one micro-batch takes of what is there: shares of a limit, and whether to wait for more. Time comes in.

The rules are those of Spark's Kafka source, so that a query tuned for it behaves the same. What differs: shares are
computed in whole numbers, so that no rounding of floats takes an offset too many; and a trigger that found nothing does
not count as one, so that what comes after a quiet time is not held back by it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from foldlog.clock import Clock
from foldlog.spark.source.options import TopicPartition


def shares(limit: int, waiting: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
    """How many of the `waiting` offsets of each partition to take, in proportion, rounded down.

    A partition whose share would be less than one gets one, so that a small one is not starved by large ones: with more
    partitions than `limit`, a batch is larger than it by up to one offset a partition. Partitions where nothing waits
    are not in the answer.

    >>> shares(10, {("t", 0): 60, ("t", 1): 39, ("t", 2): 1, ("t", 3): 0})
    {('t', 0): 6, ('t', 1): 3, ('t', 2): 1}
    """
    backlog = {place: count for place, count in waiting.items() if count > 0}
    total = sum(backlog.values())
    return {place: min(count, max(1, limit * count // total)) for place, count in backlog.items()}


@dataclass(frozen=True, slots=True)
class RateLimits:
    """What the options ask for. `max_delay_ms` matters only where `min_offsets` is set."""

    max_offsets: int | None = None
    min_offsets: int | None = None
    max_delay_ms: int = 15 * 60 * 1000

    @property
    def is_unlimited(self) -> bool:
        return self.max_offsets is None and self.min_offsets is None


class TriggerPace:
    """Whether a batch is due: at least `min_offsets` wait, or something does and the last batch is long ago.

    The first batch of a run is due at once. Owned by one stream reader, in one thread.
    """

    def __init__(self, limits: RateLimits, clock: Clock) -> None:
        self._limits = limits
        self._clock = clock
        self._last_batch_ms: float | None = None

    def is_due(self, waiting: int) -> bool:
        """Ask once a trigger; a yes is taken as the batch."""
        if waiting <= 0:
            return False
        now_ms = self._clock.monotonic_ms()
        is_enough = self._limits.min_offsets is None or waiting >= self._limits.min_offsets
        is_late = self._last_batch_ms is None or now_ms - self._last_batch_ms >= self._limits.max_delay_ms
        if not (is_enough or is_late):
            return False
        self._last_batch_ms = now_ms
        return True
