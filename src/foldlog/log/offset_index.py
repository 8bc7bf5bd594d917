"""Where in a segment an offset is: one entry per index.interval.bytes of log."""

from __future__ import annotations

import struct
from bisect import bisect_left, bisect_right

from foldlog.log.sparse_index import SparseIndex


class OffsetIndex(SparseIndex):
    """Pairs of (last offset of a batch, relative to the segment's base; that batch's position), big-endian.

    Kafka's .index format, 8 bytes an entry.
    """

    ENTRY = struct.Struct(">II")
    COLUMNS = ("I", "I")
    __slots__ = ()

    def append(self, relative_offset: int, position: int) -> None:
        """Add an entry behind the last."""
        self._add(relative_offset, position)

    def floor(self, relative_offset: int) -> tuple[int, int] | None:
        """The last entry at or below `relative_offset`: the wanted batch is there or soon after."""
        at = bisect_right(self._first, relative_offset)
        return self[at - 1] if at else None

    def keep_below(self, position: int) -> None:
        """Drop the entries that lead to `position` or beyond."""
        self._keep(bisect_left(self._second, position))
