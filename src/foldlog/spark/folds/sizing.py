"""How many offsets make a range of about so many bytes: measured on the log itself, before it is read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from foldlog.spark.origins.origin import OffsetRange, Origin
from foldlog.views.bookmark import Bookmark

RANGE_BYTES: Final = 64 << 20
"""What a range holds at most, about: the driver holds one that is applied, and one or two that are read ahead."""

_SAMPLE_OFFSETS: Final = 256
_FIRST_GUESS_BYTES: Final = 256.0


class RangeSizes:
    """Bytes per offset of each topic, as sampled and as met. One thread."""

    def __init__(self, origin: Origin) -> None:
        self._origin = origin
        self._met: dict[str, float] = {}

    def budget(self, bookmark: Bookmark, ends: Mapping[int, int], range_bytes: int) -> int:
        """About how many offsets from the bookmark on hold `range_bytes`; at least 1.

        Records may be small here and large further on: where the first guess is a long range, its far end is
        sampled too, and the larger size counts.
        """
        left = {number: end - bookmark.positions[number].offset for number, end in ends.items()}
        number = max(left, key=left.__getitem__, default=None)
        if number is None or left[number] <= 0:
            return 1
        start = bookmark.positions[number].offset
        size = max(
            self._met.get(bookmark.topic, 0.0), self._sample(OffsetRange(bookmark.topic, number, start, ends[number]))
        )
        count = int(range_bytes / size)
        if count > _SAMPLE_OFFSETS:
            share = min(left[number], max(1, count * left[number] // sum(left.values())))
            for at in (start + share // 2, start + share - _SAMPLE_OFFSETS):
                if start < at:
                    size = max(size, self._sample(OffsetRange(bookmark.topic, number, at, ends[number])))
        return max(1, int(range_bytes / size))

    def met(self, topic: str, offsets: int, size_bytes: int) -> None:
        """A range was read: its size is the best guess for the next."""
        if offsets > 0:
            self._met[topic] = max(1.0, size_bytes / offsets)

    def _sample(self, wanted: OffsetRange) -> float:
        stop = min(wanted.stop, wanted.start + _SAMPLE_OFFSETS)
        batch = next(iter(self._origin.read(wanted._replace(stop=stop), ["offset", "key", "value"])), None)
        if batch is None:
            return _FIRST_GUESS_BYTES
        span = int(batch.column("offset")[-1].as_py()) - wanted.start + 1
        return max(1.0, float(batch.nbytes) / max(1, span))
