"""What the two indexes of a segment share: fixed entries, two growing columns, a part that is on disk."""

from __future__ import annotations

import struct
from typing import ClassVar, Self


class SparseIndex:
    """Entries of two numbers, both strictly growing. Kept whole in memory: 2 MB for a segment of 1 GiB.

    Not checksummed and not synced: a hint. Who looks something up verifies the batch it leads to, and has
    the index rebuilt when in doubt. Appended to by the partition's one appender, read by any thread.
    """

    ENTRY: ClassVar[struct.Struct]
    __slots__ = ("_entries", "_written_bytes")

    def __init__(self) -> None:
        self._entries = bytearray()
        self._written_bytes = 0

    @classmethod
    def parse(cls, data: bytes) -> Self:
        """The longest beginning of `data` whose entries grow."""
        index = cls()
        whole = len(data) // cls.ENTRY.size * cls.ENTRY.size
        index._entries += data[:whole]
        last_first, last_second = -1, -1
        for at, (first, second) in enumerate(cls.ENTRY.iter_unpack(data[:whole])):
            if first <= last_first or second <= last_second:
                index._keep(at)
                break
            last_first, last_second = first, second
        index._written_bytes = len(index._entries)
        return index

    def _keep(self, count: int) -> None:
        del self._entries[count * self.ENTRY.size :]
        self._written_bytes = min(self._written_bytes, len(self._entries))

    def __len__(self) -> int:
        return len(self._entries) // self.ENTRY.size

    def __getitem__(self, at: int) -> tuple[int, int]:
        first, second = self.ENTRY.unpack_from(self._entries, at * self.ENTRY.size)
        return first, second

    def last(self) -> tuple[int, int] | None:
        return self[len(self) - 1] if self._entries else None

    def unwritten(self) -> tuple[int, bytes]:
        """Where in the file the entries belong that are not there yet, and these; `wrote` once they are."""
        return self._written_bytes, bytes(self._entries[self._written_bytes :])

    def wrote(self, count: int) -> None:
        self._written_bytes += count
