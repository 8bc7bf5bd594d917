"""The files of a broker under test: a disk that can be full, and a process that can die.

The fault model. A full disk refuses what needs another block: bytes beyond a file's end, new files and directories,
allocations. Overwriting, truncating, renaming, removing and syncing go on. A dead process changes nothing from one
moment on, in the middle of whatever it was doing; its locks are free, as the system frees them; what it had written is
there, synced or not, since the machine did not lose power (`power_loss` is for that).
"""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import TracebackType
from typing import Self

from foldlog.errors import StorageFull
from foldlog.files.base import Allocated, Buffer, File, Files, Lock
from foldlog.files.posix import PosixLock


class FullDisk:
    """A disk that is full: `struck` says how often it refused something. Any thread; it outlives the process.

    It has space again with `clear`, with its `with` block, or with the test.
    """

    def __init__(self) -> None:
        """Use `KafkaBroker.disk_full`."""
        self.is_full = False
        self.struck = 0
        self._moved = threading.Condition()

    def wait(self, times: int = 1, timeout: float = 30.0) -> None:
        """Return once it has refused so often. TimeoutError, which says how often it did, after `timeout` seconds."""
        with self._moved:
            if not self._moved.wait_for(lambda: self.struck >= times, timeout):
                raise TimeoutError(f"the full disk refused {self.struck} of {times} times within {timeout:g} s")

    def _strike(self) -> None:
        with self._moved:
            self.struck += 1
            self._moved.notify_all()

    def fill(self) -> Self:
        self.is_full = True
        self.struck = 0
        return self

    def clear(self) -> None:
        """There is space again."""
        self.is_full = False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.clear()

    def refuse(self, path: str) -> None:
        """StorageFull if it is full: `path` needs another block."""
        if self.is_full:
            self._strike()
            cause = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)
            raise StorageFull(
                f"no space to write {path} ({cause.strerror}); nothing was kept, free space and send again"
            ) from cause

    def refuse_name(self, path: str) -> None:
        """As `refuse`, with the system's own error, as for new names."""
        if self.is_full:
            self._strike()
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)


class ProcessFiles:
    """The files of one process: passes everything on to `files` until `kill`. Any thread.

    Changes hold one lock, so that none is under way when `kill` returns. Syncs do not: they change nothing.
    """

    def __init__(self, files: Files, disk: FullDisk) -> None:
        self.disk = disk
        self._files = files
        self._lock = threading.Lock()
        self._locks: list[ProcessLock] = []
        self._is_dead = False
        self.entries = files.entries
        self.exists = files.exists
        self.lock_holder = files.lock_holder

    def kill(self) -> None:
        """From now on nothing changes through this object, and the directory can have another writer."""
        with self._lock:
            self._is_dead = True
            for lock in self._locks:
                lock.let_go()

    @contextmanager
    def changing(self, path: str) -> Iterator[None]:
        """Around each change; OSError after `kill`."""
        with self._lock:
            self.refuse_dead(path)
            yield

    def refuse_dead(self, path: str) -> None:
        if self._is_dead:
            raise OSError(errno.EIO, "the broker was killed", path)

    @property
    def is_dead(self) -> bool:
        return self._is_dead

    @property
    def forked(self) -> bool:
        return self._files.forked

    def open(self, path: str, *, write: bool = False, create: bool = False) -> ProcessFile:
        if not create:
            return ProcessFile(self, path, self._files.open(path, write=write))
        with self.changing(path):
            if not self._files.exists(path):
                self.disk.refuse_name(path)
            return ProcessFile(self, path, self._files.open(path, write=write, create=True))

    def create_private(self, path: str) -> None:
        with self.changing(path):
            self.disk.refuse_name(path)
            self._files.create_private(path)

    def make_directory(self, path: str) -> None:
        with self.changing(path):
            if not self._files.exists(path):
                self.disk.refuse_name(path)
            self._files.make_directory(path)

    def remove_directory(self, path: str) -> None:
        with self.changing(path):
            self._files.remove_directory(path)

    def rename(self, old: str, new: str) -> None:
        with self.changing(old):
            self._files.rename(old, new)

    def unlink(self, path: str) -> None:
        with self.changing(path):
            self._files.unlink(path)

    def sync_directory(self, path: str) -> None:
        self.refuse_dead(path)
        self._files.sync_directory(path)

    def allocate(self, path: str, size: int, *, allocated_bytes: int = 0) -> ProcessAllocated:
        with self.changing(path):
            if size > allocated_bytes:
                self.disk.refuse(path)
            return ProcessAllocated(self, path, self._files.allocate(path, size, allocated_bytes=allocated_bytes))

    def lock(self, path: str) -> ProcessLock:
        with self.changing(path):
            lock = ProcessLock(self, path, self._files.lock(path))
            self._locks.append(lock)
            return lock


class ProcessFile:
    """An open file of ProcessFiles."""

    __slots__ = ("_file", "_owner", "close", "path", "read", "read_into", "size")

    def __init__(self, owner: ProcessFiles, path: str, file: File) -> None:
        self._owner = owner
        self._file = file
        self.path = path
        self.size = file.size
        self.read = file.read
        self.read_into = file.read_into
        self.close = file.close

    @property
    def sync_descriptor(self) -> int | None:
        return self._file.sync_descriptor

    def write(self, position: int, buffers: Sequence[Buffer]) -> int:
        with self._owner.changing(self.path):
            disk = self._owner.disk
            if disk.is_full and position + sum(memoryview(one).nbytes for one in buffers) > self.size():
                disk.refuse(self.path)
            return self._file.write(position, buffers)

    def truncate(self, size: int) -> None:
        with self._owner.changing(self.path):
            self._file.truncate(size)

    def sync(self) -> None:
        self._owner.refuse_dead(self.path)
        self._file.sync()


class ProcessAllocated:
    """An allocated file of ProcessFiles. A full disk refuses no store: its blocks are there."""

    __slots__ = ("_file", "_owner", "_path", "close", "load", "size")

    def __init__(self, owner: ProcessFiles, path: str, allocated: Allocated) -> None:
        self._owner = owner
        self._path = path
        self._file = allocated
        self.size = allocated.size
        self.load = allocated.load
        self.close = allocated.close

    def store(self, position: int, data: bytes) -> None:
        with self._owner.changing(self._path):
            self._file.store(position, data)

    def sync(self) -> None:
        self._owner.refuse_dead(self._path)
        self._file.sync()


class ProcessLock:
    """The lock of ProcessFiles. After the process is dead it is somebody else's, and left alone."""

    __slots__ = ("_lock", "_owner", "_path")

    def __init__(self, owner: ProcessFiles, path: str, lock: Lock) -> None:
        self._owner = owner
        self._path = path
        self._lock = lock

    def publish(self, address: str | None) -> None:
        if not self._owner.is_dead:
            self._lock.publish(address)

    def hold(self, path: str) -> None:
        with self._owner.changing(path):
            self._lock.hold(path)

    def is_in_place(self) -> bool:
        return self._owner.is_dead or self._lock.is_in_place()

    def release(self) -> None:
        if not self._owner.is_dead:
            self._lock.release()

    def let_go(self) -> None:
        """Free it as the system does when a process ends: on a disk, the pid stays in the file."""
        if isinstance(self._lock, PosixLock):
            self._lock.abandon()
        else:
            self._lock.release()
