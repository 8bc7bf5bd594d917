"""Sealed segments that are kept open: how many, and who gives way where there is no descriptor for another file."""

from __future__ import annotations

import errno

import pytest

from foldlog.files.memory import MemoryFile, MemoryFiles
from foldlog.log.segment import OpenFiles


class Scarce(MemoryFiles):
    """Opens no file while `taken` descriptors are held by others and only `limit` may be."""

    def __init__(self, limit: int) -> None:
        super().__init__()
        self.limit = limit
        self.taken = 0

    def open(self, path: str, *, write: bool = False, create: bool = False) -> MemoryFile:
        if self.taken >= self.limit:
            raise OSError(errno.EMFILE, "Too many open files", path)
        return super().open(path, write=write, create=create)


class Holder:
    """Something that holds a descriptor until it is asked to let go."""

    def __init__(self, files: Scarce) -> None:
        self._files = files
        self.is_released = False
        files.taken += 1

    def release_file(self) -> None:
        self.is_released = True
        self._files.taken -= 1


def test_half_of_those_that_are_held_give_way_the_oldest_first() -> None:
    files, kept = Scarce(5), OpenFiles()
    files.open("a", create=True).close()
    holders = [Holder(files) for _ in range(5)]
    for holder in holders:
        kept.used(holder)
    kept.open(files, "a", write=False).close()
    assert [holder.is_released for holder in holders] == [True, True, True, False, False]


def test_where_nobody_can_give_way_the_file_is_refused() -> None:
    files, kept = Scarce(0), OpenFiles()
    with pytest.raises(OSError, match="Too many open files"):
        kept.open(files, "a", write=False)
