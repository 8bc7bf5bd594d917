"""How fast topics grow: records and bytes a second, by how far their ends and their segments moved. The loop's.

Sampled each second while somebody listens, and when an overview is asked for; what nobody has watched for a while has
no rate until it was looked at twice.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

from foldlog.errors import LogClosed

if TYPE_CHECKING:
    from foldlog.log.partition import Partition
    from foldlog.log.reading import View

SAMPLE_MS: Final = 1000
_SAMPLES: Final = 3
"""The newest is compared with the oldest of so many: two seconds are steady enough to read, and short enough to act."""

_STALE_MS: Final = 10_000
"""A sample that is older says nothing about now."""


class _Place(NamedTuple):
    """Where a partition ended: its end offset, and the active segment with its size."""

    end: int
    base_offset: int
    size: int


class _Sample(NamedTuple):
    at_ms: float
    places: dict[tuple[str, int], _Place]


class Rates:
    """The last few samples. One thread at a time: the event loop's."""

    def __init__(self) -> None:
        self._samples: deque[_Sample] = deque(maxlen=_SAMPLES)
        self._rates: dict[str, dict[str, float]] = {}

    def is_due(self, now_ms: float) -> bool:
        return not self._samples or now_ms - self._samples[-1].at_ms >= SAMPLE_MS

    def sample(self, partitions: Iterable[Partition], now_ms: float) -> dict[str, dict[str, float]]:
        """Look at all open partitions; the rates of topics that have others now than before."""
        while self._samples and now_ms - self._samples[0].at_ms > _STALE_MS:
            self._samples.popleft()
        places: dict[tuple[str, int], _Place] = {}
        moved: dict[str, list[int]] = {}
        before = self._samples[0] if self._samples else None
        for partition in partitions:
            known = before.places.get(partition.label) if before is not None else None
            end = partition.high_watermark
            try:
                base_offset, size, grown = partition.look(partial(_tail, before=known))
            except LogClosed:
                continue  # deleted a moment ago
            places[partition.label] = _Place(end, base_offset, size)
            if known is not None:
                sums = moved.setdefault(partition.label[0], [0, 0])
                sums[0] += max(0, end - known.end)
                sums[1] += grown
        took_s = (now_ms - before.at_ms) / 1000 if before is not None else 0.0
        self._samples.append(_Sample(now_ms, places))
        if took_s <= 0:
            return {}
        rates = {
            topic: {"records_per_s": round(records / took_s, 1), "bytes_per_s": round(size / took_s, 1)}
            for topic, (records, size) in moved.items()
        }
        changed = {topic: rate for topic, rate in rates.items() if rate != self.of(topic)}
        self._rates = rates
        return changed

    def of(self, topic: str) -> dict[str, float]:
        return self._rates.get(topic) or {"records_per_s": 0.0, "bytes_per_s": 0.0}

    def all(self) -> dict[str, dict[str, float]]:
        return self._rates


def _tail(view: View, before: _Place | None) -> tuple[int, int, int]:
    """Base offset and size of the active segment, and the bytes that were written since `before`: to the segment that
    was active then, and to those that came after it. What retention and compaction remove does not count."""
    active = view.segments[-1]
    if before is None:
        return active.base_offset, active.size, 0
    grown = -before.size
    for segment in reversed(view.segments):
        if segment.base_offset < before.base_offset:
            break
        grown += segment.size
    return active.base_offset, active.size, max(0, grown)
