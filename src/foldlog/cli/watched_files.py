"""A file system that tells how much of it was read, and that can be told to stop: for long looks by several threads."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from foldlog.errors import FoldlogError
from foldlog.files.base import Buffer, File
from foldlog.files.posix import PosixFiles


class Stopped(FoldlogError):
    """Somebody does not want to wait for the rest."""


class WatchedFiles(PosixFiles):
    """`on_read` is told of the bytes of every read, on the thread that reads. Any thread may `stop` all of them."""

    def __init__(self, on_read: Callable[[int], None]) -> None:
        super().__init__()
        self._on_read = on_read
        self._is_stopped = False

    def stop(self) -> None:
        """From now on every read raises Stopped."""
        self._is_stopped = True

    def open(self, path: str, *, write: bool = False, create: bool = False) -> File:  # type: ignore[override]
        return _WatchedFile(super().open(path, write=write, create=create), self._was_read)

    def _was_read(self, count_bytes: int) -> None:
        if self._is_stopped:
            raise Stopped("it was stopped before its end")
        self._on_read(count_bytes)


class _WatchedFile:
    """One file of it."""

    def __init__(self, file: File, was_read: Callable[[int], None]) -> None:
        self._file = file
        self._was_read = was_read
        self.sync_descriptor = file.sync_descriptor

    def size(self) -> int:
        return self._file.size()

    def read(self, position: int, length: int) -> bytes:
        data = self._file.read(position, length)
        self._was_read(len(data))
        return data

    def read_into(self, position: int, buffer: bytearray | memoryview, *, nowait: bool = False) -> int:
        count_bytes = self._file.read_into(position, buffer, nowait=nowait)
        self._was_read(count_bytes)
        return count_bytes

    def write(self, position: int, buffers: Sequence[Buffer]) -> int:
        return self._file.write(position, buffers)

    def truncate(self, size: int) -> None:
        self._file.truncate(size)

    def sync(self) -> None:
        self._file.sync()

    def close(self) -> None:
        self._file.close()
