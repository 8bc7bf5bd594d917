"""What the console's events say of the log: ends that moved, groups that moved, rates, and that topics changed.

The event loop's. Ends are in memory, so looking at them needs no thread; groups are behind a lock that is held over
syncs, so looking at them does.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Final

from foldlog.broker.topic_names import OFFSETS_TOPIC
from foldlog.errors import StorageError
from foldlog.server.console.feed import Change, Feed, merged_by, merged_dicts
from foldlog.server.console.groups import ends_of, group_overviews
from foldlog.server.console.rates import SAMPLE_MS, Rates

if TYPE_CHECKING:
    from foldlog.broker.broker import Broker
    from foldlog.clock import Clock

Run = Callable[..., Awaitable[Any]]
"""Calls a function on a thread."""

_LAG_MS: Final = 1000
"""How often a group is told again of which only the lag has changed: ends tell the same, and ten times as often."""

Ends = dict[tuple[str, int], tuple[int, int]]


class LogChanges:
    """Remembers what was told last. One for all listeners."""

    def __init__(self, broker: Broker, rates: Rates, clock: Clock, run: Run) -> None:
        self._broker = broker
        self._rates = rates
        self._clock = clock
        self._run = run
        self._ends: Ends = {}
        self._catalog: object = broker.catalog
        self._groups: dict[str, dict[str, Any]] = {}
        self._group_is_gone = False
        self._groups_seen: object = None
        self._groups_told_ms = self._sampled_ms = float("-inf")

    def contribute_to(self, feed: Feed) -> None:
        feed.contribute(self.ends, whole=self.all_ends, merge=merged_dicts)
        feed.contribute(self.groups, whole=self.all_groups, merge=merged_by("group"))
        feed.contribute(self.topics)
        feed.contribute(self.rates, whole=self.all_rates, merge=merged_dicts)

    def topics(self) -> Change | None:
        """That a list is not what it was: topics came, went or changed, or a group went."""
        catalog = self._broker.catalog
        if catalog is self._catalog and not self._group_is_gone:
            return None
        self._catalog, self._group_is_gone = catalog, False
        return Change("topics", {})

    def ends(self) -> Change | None:
        """Those that moved since the last time. One that is not open does not move."""
        now: Ends = {}
        for partition in self._broker.opened_partitions():
            end = partition.high_watermark
            now[partition.label] = (min(partition.log_start_offset, end), end)
        moved = {label: bounds for label, bounds in now.items() if self._ends.get(label) != bounds}
        self._ends = now
        return Change("ends", _by_topic(moved)) if moved else None

    async def all_ends(self) -> Change:
        found = await self._run(self._broker.overview)
        ends: Ends = {}
        for seen in found:
            ends[seen.topic, seen.number] = (min(seen.log_start_offset, seen.high_watermark), seen.high_watermark)
        return Change("ends", _by_topic(ends))

    async def groups(self) -> Change | None:
        """Those that have changed since the last time."""
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
        return Change("groups", changed) if changed else None

    def _look_at_groups(self, is_lag_due: bool) -> list[dict[str, Any]] | None:
        """On a thread. None if nothing can have changed but lags, and those are not due: a commit and a generation are
        appended to their topic, and the states are few."""
        try:
            seen = (self._offsets_ends(), self._broker.list_groups(), self._catalog)
            if seen == self._groups_seen and not is_lag_due:
                return None
            self._groups_seen = seen
            return group_overviews(self._broker, ends_of(self._broker))
        except StorageError:
            return None  # the topic of committed offsets is refused, which the overview tells

    def _offsets_ends(self) -> list[int]:
        topic = self._broker.find_topic(OFFSETS_TOPIC)
        count = 0 if topic is None else topic.partition_count
        opened = [self._broker.opened_partition(OFFSETS_TOPIC, number) for number in range(count)]
        return [-1 if partition is None else partition.high_watermark for partition in opened]

    async def all_groups(self) -> Change | None:
        try:
            return Change("groups", await self._run(group_overviews, self._broker, ends_of(self._broker)))
        except StorageError:
            return None

    async def rates(self) -> Change | None:
        """Once a second: the topics that grow at another rate now."""
        now_ms = self._clock.monotonic_ms()
        if now_ms - self._sampled_ms < SAMPLE_MS:
            return None
        self._sampled_ms = now_ms
        changed = await self._run(self._rates.sample, self._broker, now_ms)
        return Change("rates", changed) if changed else None

    def all_rates(self) -> Change | None:
        rates = self._rates.all()
        return Change("rates", rates) if rates else None


def _by_topic(ends: Ends) -> dict[str, dict[str, list[int]]]:
    found: dict[str, dict[str, list[int]]] = {}
    for (topic, number), bounds in sorted(ends.items()):
        found.setdefault(topic, {})[str(number)] = list(bounds)
    return found
