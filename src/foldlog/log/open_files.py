"""How many sealed segments this process keeps open."""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import Protocol

from foldlog.files.base import NO_DESCRIPTORS, File, Files
from foldlog.files.forks import in_forked_children
from foldlog.limits import OPEN_FILES_MAX


class HoldsFile(Protocol):
    """Something that opens its file when it needs it and can let go of it."""

    def release_file(self) -> None: ...


class OpenFiles:
    """The most recently used holders, at most `limit`. Any thread. A reader in the middle of a read keeps its own
    reference to the file, so releasing never pulls it from under anybody."""

    def __init__(self, limit: int = OPEN_FILES_MAX) -> None:
        self._limit = limit
        self._lock = threading.Lock()
        self._holders: OrderedDict[HoldsFile, None] = OrderedDict()

    def open(self, files: Files, path: str, *, write: bool) -> File:
        """Open a file. Where there is no descriptor for it, half of those that are held here are given back first."""
        try:
            return files.open(path, write=write)
        except OSError as error:
            if error.errno not in NO_DESCRIPTORS or not self._release_half():
                raise
        return files.open(path, write=write)

    def _release_half(self) -> bool:
        with self._lock:
            count = (len(self._holders) + 1) // 2
            for _ in range(count):
                oldest, _ = self._holders.popitem(last=False)
                oldest.release_file()
        return count > 0

    def used(self, holder: HoldsFile) -> None:
        """`holder` has an open file and was just used."""
        with self._lock:
            self._holders[holder] = None
            self._holders.move_to_end(holder)
            if len(self._holders) > self._limit:
                oldest, _ = self._holders.popitem(last=False)
                oldest.release_file()

    def forget(self, holder: HoldsFile) -> None:
        with self._lock:
            self._holders.pop(holder, None)

    def after_fork(self) -> None:
        """In a forked child: another thread may have held the lock, and is not there to let go of it."""
        self._lock = threading.Lock()


OPEN_FILES = OpenFiles()
"""Of the process, as the limit on descriptors is."""

in_forked_children(OPEN_FILES.after_fork)
