"""What the two indexes of a segment share: two growing columns, and how much of them is on disk."""

from __future__ import annotations

import struct
from array import array
from operator import lt
from typing import ClassVar, Self


class SparseIndex:
    """Entries of two numbers, both strictly growing. Kept whole in memory: 2 MB for a segment of 1 GiB.

    Not checksummed and not synced: a hint. Who looks something up verifies the batch it leads to, and has
    the index rebuilt when in doubt. Appended to by the partition's one appender, read by any thread.
    """

    ENTRY: ClassVar[struct.Struct]
    COLUMNS: ClassVar[tuple[str, str]]
    __slots__ = ("_first", "_second", "_written")

    def __init__(self) -> None:
        # Columns, not tuples: a binary search over an array costs a tenth of one that unpacks entries.
        self._first: array[int] = array(self.COLUMNS[0])
        self._second: array[int] = array(self.COLUMNS[1])
        self._written = 0

    @classmethod
    def parse(cls, data: bytes) -> Self:
        """The longest beginning of `data` whose entries grow. Kafka makes room ahead, as 10 MB of zeroes."""
        index = cls()
        used_bytes = min(len(data), len(data.rstrip(b"\0")) + cls.ENTRY.size - 1)  # an entry may end with zeroes
        entries = list(cls.ENTRY.iter_unpack(data[: used_bytes // cls.ENTRY.size * cls.ENTRY.size]))
        index._first.extend([first for first, _ in entries])
        index._second.extend([second for _, second in entries])
        index._keep(min(_growing(index._first), _growing(index._second)))
        index._written = len(index)
        return index

    def _add(self, first: int, second: int) -> None:
        # The second column first: who reads meanwhile takes the length of the first.
        self._second.append(second)
        self._first.append(first)

    def _keep(self, count: int) -> None:
        del self._first[count:]
        del self._second[count:]
        self._written = min(self._written, count)

    def __len__(self) -> int:
        return len(self._first)

    def __getitem__(self, at: int) -> tuple[int, int]:
        return self._first[at], self._second[at]

    def last(self) -> tuple[int, int] | None:
        """The newest entry, if there is any."""
        return self[len(self) - 1] if self._first else None

    @property
    def unwritten_count(self) -> int:
        return len(self) - self._written

    def unwritten(self) -> tuple[int, bytes]:
        """Where in the file the entries belong that are not there yet, and these; `wrote` once they are."""
        fresh = zip(self._first[self._written :], self._second[self._written :], strict=False)
        return self._written * self.ENTRY.size, b"".join(self.ENTRY.pack(*entry) for entry in fresh)

    def wrote(self, count: int) -> None:
        """`count` bytes of what `unwritten` gave are in the file."""
        self._written += count // self.ENTRY.size


def _growing(column: array[int]) -> int:
    """How many values from the start on are each larger than the one before, and none below 0."""
    if column and column[0] < 0:
        return 0
    if all(map(lt, column, column[1:])):
        return len(column)
    return next(at for at in range(1, len(column)) if column[at] <= column[at - 1])
