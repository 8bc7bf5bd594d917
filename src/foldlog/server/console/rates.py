"""How fast topics grow: records and bytes per second, from the growth of their ends and segments.

Sampled each second while there are listeners, and for an overview; without recent samples a topic has no rate until it
was sampled twice.
"""

from __future__ import annotations

import threading
from collections import deque
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

from foldlog.errors import LogClosed
from foldlog.log.partition import Partition

if TYPE_CHECKING:
    from foldlog.broker.broker import Broker
    from foldlog.broker.storage import PartitionOverview
    from foldlog.log.reading import LogView

SAMPLE_MS: Final = 1000
_EARLIER: Final = 2
"""How many samples back to compare with: two seconds are steady enough to read, and short enough to react."""

_STALE_MS: Final = 10_000
"""Older samples are not used."""

Rate = dict[str, float]


class _End(NamedTuple):
    """Where a partition ended: its end offset, and the active segment with its size. If the partition is not open, the
    segment is not known: -1."""

    end: int = 0
    base_offset: int = 0
    size_bytes: int = 0


class _Sample(NamedTuple):
    """Every partition at one moment."""

    at_ms: float
    ends: dict[tuple[str, int], _End]


class Rates:
    """The last few samples. Any thread; one samples at a time. Each is compared with the one `earlier` samples back,
    unless that is older than `stale_ms`."""

    def __init__(self, earlier: int = _EARLIER, stale_ms: float = _STALE_MS) -> None:
        self._samples: deque[_Sample] = deque(maxlen=earlier)
        self._stale_ms = stale_ms
        self._rates: dict[str, Rate] = {}
        self._lock = threading.Lock()

    def sample(self, broker: Broker, now_ms: float) -> dict[str, Rate]:
        """Sample all partitions, if it is time to; returns the topics whose rates have changed."""
        with self._lock:
            if self._samples and now_ms - self._samples[-1].at_ms < SAMPLE_MS:
                return {}
            while self._samples and now_ms - self._samples[0].at_ms > self._stale_ms:
                self._samples.popleft()
            return self._sample(broker, now_ms)

    def _sample(self, broker: Broker, now_ms: float) -> dict[str, Rate]:
        before = self._samples[0] if self._samples else None
        ends: dict[tuple[str, int], _End] = {}
        moved: dict[str, list[int]] = {}
        for seen in broker.overview():
            label = (seen.topic, seen.number)
            # A partition that did not exist at the last sample has begun since then.
            known = _End() if before is None else before.ends.get(label, _End())
            partition = broker.opened_partition(*label)
            try:
                ends[label], grown_bytes = _look(seen, partition, known)
            except LogClosed:
                continue  # deleted a moment ago
            sums = moved.setdefault(seen.topic, [0, 0])
            sums[0] += max(0, seen.high_watermark - known.end)
            sums[1] += grown_bytes
        self._samples.append(_Sample(now_ms, ends))
        if before is None:
            self._rates = {}
            return {}
        took_s = (now_ms - before.at_ms) / 1000
        rates = {
            topic: {"records_per_s": round(records / took_s, 1), "bytes_per_s": round(size / took_s, 1)}
            for topic, (records, size) in moved.items()
        }
        changed = {topic: rate for topic, rate in rates.items() if rate != self.of(topic)}
        self._rates = rates
        return changed

    def of(self, topic: str) -> Rate:
        return self._rates.get(topic) or {"records_per_s": 0.0, "bytes_per_s": 0.0}

    def all(self) -> dict[str, Rate]:
        """The rates that are not 0."""
        return {topic: rate for topic, rate in self._rates.items() if any(rate.values())}


def _look(seen: PartitionOverview, partition: object, known: _End) -> tuple[_End, int]:
    """The end of a partition now, and the bytes that were written to it since `known`."""
    if not isinstance(partition, Partition):
        return _End(seen.high_watermark, -1), 0
    base_offset, size_bytes, grown_bytes = partition.look(partial(_tail, known=known))
    if known.base_offset < 0:
        # It was opened meanwhile, and its earlier size is not known: estimate by the average record.
        mean_bytes = (seen.size_bytes or 0) / max(1, seen.high_watermark - seen.log_start_offset)
        grown_bytes = round(mean_bytes * max(0, seen.high_watermark - known.end))
    return _End(seen.high_watermark, base_offset, size_bytes), grown_bytes


def _tail(view: LogView, known: _End) -> tuple[int, int, int]:
    """Base offset and size of the active segment, and the bytes written since `known`: to the segment that was active
    then, and to later ones. Removals by retention and compaction do not count."""
    active = view.segments[-1]
    grown_bytes = -known.size_bytes
    for segment in reversed(view.segments):
        if segment.base_offset < known.base_offset:
            break
        grown_bytes += segment.size
    return active.base_offset, active.size, max(0, grown_bytes)
