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
    __slots__ = ()

    def append(self, relative_offset: int, position: int) -> None:
        self._entries += self.ENTRY.pack(relative_offset, position)

    def floor(self, relative_offset: int) -> tuple[int, int] | None:
        """The last entry at or below `relative_offset`: the wanted batch is there or soon after."""
        at = bisect_right(range(len(self)), relative_offset, key=lambda at: self[at][0])
        return self[at - 1] if at else None

    def keep_below(self, position: int) -> None:
        """Drop the entries that lead to `position` or beyond."""
        self._keep(bisect_left(range(len(self)), position, key=lambda at: self[at][1]))
