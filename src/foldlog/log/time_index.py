"""Where in a segment a time is."""

from __future__ import annotations

import struct
from bisect import bisect_left

from foldlog.log.sparse_index import SparseIndex


class TimeIndex(SparseIndex):
    """Pairs of (largest timestamp so far; last offset of the batch that has it, relative to the base), big-endian.

    Kafka's .timeindex format, 12 bytes an entry. Timestamps grow from entry to entry, whatever clocks do.
    """

    ENTRY = struct.Struct(">qI")
    COLUMNS = ("q", "I")
    __slots__ = ()

    def append(self, timestamp_ms: int, relative_offset: int) -> None:
        """Add an entry; one that is not later than the last says nothing new and is left out."""
        last = self.last()
        if last is None or (timestamp_ms > last[0] and relative_offset > last[1]):
            self._add(timestamp_ms, relative_offset)

    def before(self, timestamp_ms: int) -> tuple[int, int] | None:
        """The last entry earlier than `timestamp_ms`: nothing up to its offset is that late."""
        at = bisect_left(self._first, timestamp_ms)
        return self[at - 1] if at else None

    def below(self, relative_offset: int) -> tuple[int, int] | None:
        """The last entry of a batch below `relative_offset`."""
        at = bisect_left(self._second, relative_offset)
        return self[at - 1] if at else None
