"""Rates of topics and lags of groups over the last hours, for the console's charts: a ring of samples in memory.

The broker samples them itself, from the ends of partitions and from what is committed: a reader that is dead has a lag
like any other, and a page that is loaded again finds what happened meanwhile. Bounded: so many samples, of so many
topics and groups. If there are more, those that are quiet make room for those that are not.
"""

from __future__ import annotations

import threading
from array import array
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from math import isnan, nan
from typing import TYPE_CHECKING, Any, Final, Generic, NamedTuple, TypeVar

from foldlog.errors import StorageError
from foldlog.limits import CONSOLE_HISTORY_SAMPLES, CONSOLE_HISTORY_SERIES_MAX, CONSOLE_HISTORY_STEP_MS
from foldlog.server.console.groups import bounds_in, group_overviews
from foldlog.server.console.rates import Rates
from foldlog.server.problems import space_of

if TYPE_CHECKING:
    from foldlog.broker.broker import Broker
    from foldlog.server.folds_reader import ServedFoldRuns

MINUTES_MAX: Final = CONSOLE_HISTORY_SAMPLES * CONSOLE_HISTORY_STEP_MS // 60_000
_FALL_MS: Final = 3_600_000
_FALL_MS_MIN: Final = 600_000
"""The disk fills as fast as it did in the last hour; in less than ten minutes it may just be busy."""

_STALE_MS: Final = 4 * CONSOLE_HISTORY_STEP_MS

Name = TypeVar("Name")
Sums = Callable[[list[float]], float]
"""Makes one point of several."""


@dataclass
class _Series:
    """One number over time. `used` is when it was last not 0, `seen` when it was last there, by the number of the
    sample."""

    values: array[float] = field(default_factory=lambda: array("d", [nan]) * CONSOLE_HISTORY_SAMPLES)
    used: int = -1
    seen: int = -1


class _Rings(Generic[Name]):
    """Numbers with names, all sampled at the same times."""

    def __init__(self) -> None:
        self.series: dict[Name, _Series] = {}

    def add(self, sample: int, values: Mapping[Name, float]) -> None:
        slot = sample % CONSOLE_HISTORY_SAMPLES
        for name, value in values.items():
            one = self.series.get(name) or self._begun(name, value, sample)
            if one is not None:
                one.values[slot], one.seen = value, sample
                if value:
                    one.used = sample
        for name, one in list(self.series.items()):
            if one.seen != sample:
                one.values[slot] = nan
                if one.seen <= sample - CONSOLE_HISTORY_SAMPLES:
                    del self.series[name]

    def _begun(self, name: Name, value: float, sample: int) -> _Series | None:
        if len(self.series) >= CONSOLE_HISTORY_SERIES_MAX:
            quietest = min(self.series, key=lambda one: self.series[one].used)
            if not value or self.series[quietest].used >= sample - 1:
                return None
            del self.series[quietest]
        return self.series.setdefault(name, _Series())


class DiskOutlook(NamedTuple):
    """How much of the disk is free, how fast that falls, and when nothing is left; None if it does not fall, or is not
    known yet."""

    free_bytes: int
    size_bytes: int
    falls_bytes_per_s: float | None
    full_in_ms: int | None


class History:
    """Any thread."""

    def __init__(self, broker: Broker, fold_runs: ServedFoldRuns) -> None:
        self._broker = broker
        self._fold_runs = fold_runs
        self._rates = Rates(earlier=1, stale_ms=_STALE_MS)
        self._lock = threading.Lock()
        self._count = 0
        self._at = array("d", [nan]) * CONSOLE_HISTORY_SAMPLES
        self._records: _Rings[str] = _Rings()
        self._bytes: _Rings[str] = _Rings()
        self._lags: _Rings[tuple[str, str]] = _Rings()
        self._free: _Rings[str] = _Rings()

    def sample(self) -> None:
        """Look at the log now. Waits for the groups' lock."""
        broker = self._broker
        is_first = self._count == 0
        self._rates.sample(broker, broker.clock.monotonic_ms())
        topics = [] if is_first else list(broker.catalog.topics)  # a rate needs two looks
        rates = {topic: self._rates.of(topic) for topic in topics}
        try:
            lags = self._lags_now()
        except StorageError:
            lags = {}  # the topic of committed offsets is refused, as the overview says
        space = space_of(broker.path)
        with self._lock:
            count = self._count
            self._at[count % CONSOLE_HISTORY_SAMPLES] = broker.clock.now_ms()
            self._records.add(count, {topic: rate["records_per_s"] for topic, rate in rates.items()})
            self._bytes.add(count, {topic: rate["bytes_per_s"] for topic, rate in rates.items()})
            self._lags.add(count, lags)
            self._free.add(count, {} if space is None else {"disk": float(space.free_bytes)})
            self._count = count + 1

    def _lags_now(self) -> dict[tuple[str, str], float]:
        found: dict[tuple[str, str], float] = {}
        for group in group_overviews(self._broker, bounds_in(self._broker), self._fold_runs):
            for cursor in group["cursors"]:
                label = (group["group"], cursor["topic"])
                found[label] = found.get(label, 0.0) + cursor["lag"]
        return found

    # --- what is asked --------------------------------------------------------------------------------------------

    def read(self, minutes: int, points: int) -> dict[str, Any]:
        """The last minutes, as at most so many points. A point of a rate is the mean of its time, one of a lag its
        highest: nobody wants to miss it."""
        with self._lock:
            spans = list(self._spans(minutes, points))
            groups: dict[str, dict[str, Any]] = {}
            for (group, topic), one in self._lags.series.items():
                groups.setdefault(group, {})[topic] = _points(one, spans, max)
            return {
                "step_ms": CONSOLE_HISTORY_STEP_MS,
                "at": [int(self._at[span[-1] % CONSOLE_HISTORY_SAMPLES]) for span in spans],
                "topics": {
                    topic: {
                        "records_per_s": _points(one, spans, _mean),
                        "bytes_per_s": _points(self._bytes.series.get(topic, _Series()), spans, _mean),
                    }
                    for topic, one in self._records.series.items()
                },
                "groups": groups,
                "disk_free": {name: _points(one, spans, min) for name, one in self._free.series.items()}.get("disk"),
            }

    def _spans(self, minutes: int, points: int) -> Iterator[range]:
        """The numbers of the samples of each point."""
        oldest = max(0, self._count - CONSOLE_HISTORY_SAMPLES)
        from_ms = self._broker.clock.now_ms() - minutes * 60_000
        while oldest < self._count and self._at[oldest % CONSOLE_HISTORY_SAMPLES] < from_ms:
            oldest += 1
        width = -(-(self._count - oldest) // points) or 1
        # Cut at multiples of the width, so that a point holds the same samples whenever it is read: a peak stays put.
        while (self._count - 1) // width - oldest // width >= points:
            width += 1
        for begin in range(oldest - oldest % width, self._count, width):
            yield range(max(oldest, begin), min(self._count, begin + width))

    def disk(self) -> DiskOutlook | None:
        """None for a log in memory."""
        space = space_of(self._broker.path)
        if space is None:
            return None
        with self._lock:
            falls = self._falls_bytes_per_s()
        full_in_ms = None if not falls else int(space.free_bytes / falls * 1000)
        return DiskOutlook(space.free_bytes, space.size_bytes, falls, full_in_ms)

    def _falls_bytes_per_s(self) -> float | None:
        series = self._free.series.get("disk")
        if series is None or not self._count:
            return None
        newest = self._count - 1
        wide = _FALL_MS // CONSOLE_HISTORY_STEP_MS
        oldest = max(0, newest - min(wide, CONSOLE_HISTORY_SAMPLES - 1))
        slots = (oldest % CONSOLE_HISTORY_SAMPLES, newest % CONSOLE_HISTORY_SAMPLES)
        took_ms = self._at[slots[1]] - self._at[slots[0]]
        fell = series.values[slots[0]] - series.values[slots[1]]
        if took_ms < _FALL_MS_MIN or isnan(fell) or fell <= 0:
            return None
        return fell / took_ms * 1000


def _points(series: _Series, spans: list[range], of: Sums) -> list[float | None]:
    found: list[float | None] = []
    for span in spans:
        values = [series.values[one % CONSOLE_HISTORY_SAMPLES] for one in span]
        known = [value for value in values if not isnan(value)]
        found.append(round(of(known), 1) if known else None)
    return found


def _mean(values: list[float]) -> float:
    return sum(values) / len(values)
