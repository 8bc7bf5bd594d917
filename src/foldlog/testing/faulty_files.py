"""Files that fail on request: one chosen operation, in one chosen way.

The fault model: any operation that changes something may fail once with an error of the operating system. A write may
fail with nothing, a part or all of it written (no space, or an I/O error); it may also be short without failing, which
`File.write` has to complete by itself, so that is tested below this layer, with real system calls. A truncate, rename,
unlink, create, allocation or directory sync fails before it has changed anything. A sync that fails may have written
anything; here it has written nothing, and a later sync does not write it again if the files below model that
(PowerLossFiles does). Reading does not fail here: bit rot is tested elsewhere.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum

from foldlog.errors import StorageFull
from foldlog.files.base import Allocated, Buffer, DirectoryEntry, File, Files, Lock
from foldlog.files.holder import WriterInfo
from foldlog.testing.power_loss import PowerLossFiles


class Kind(Enum):
    """The kind of an operation, which decides how it can fail."""

    WRITE = "write"
    TRUNCATE = "truncate"
    SYNC = "sync"
    ALLOCATED_SYNC = "sync the allocated"
    CREATE = "create"
    MAKE_DIRECTORY = "make the directory"
    REMOVE_DIRECTORY = "remove the directory"
    RENAME = "rename"
    UNLINK = "unlink"
    SYNC_DIRECTORY = "sync the directory"
    ALLOCATE = "allocate"


NEEDS_SPACE = frozenset({Kind.WRITE, Kind.CREATE, Kind.MAKE_DIRECTORY, Kind.RENAME, Kind.ALLOCATE})
"""The operations that a full disk refuses. Not truncating to a smaller size, unlinking, or syncing allocated blocks."""


@dataclass(frozen=True, slots=True)
class Operation:
    """One change asked of the file system."""

    number: int
    kind: Kind
    path: str


class Fault:
    """Decides which operations fail: called with each, `decide` returns the error number to fail with, or 0.

    `part` is the share of a failing write that is written first.
    """

    def __init__(self, decide: Callable[[Operation], int], *, part: float = 0.0) -> None:
        self.decide = decide
        self.part = part

    @classmethod
    def at(cls, number: int, error: int, *, part: float = 0.0) -> Fault:
        """Exactly one operation fails."""
        return cls(lambda operation: error if operation.number == number else 0, part=part)

    @classmethod
    def full_from(cls, number: int, *, part: float = 0.0) -> Fault:
        """The disk is full from this operation on, until `FaultyFiles.fault` is set to something else."""
        return cls(
            lambda operation: errno.ENOSPC if operation.number >= number and operation.kind in NEEDS_SPACE else 0,
            part=part,
        )


NO_FAULT = Fault(lambda _: 0)


class FaultyFiles:
    """Passes everything on to other files, except what `fault` selects. Records every operation."""

    def __init__(self, files: Files, fault: Fault = NO_FAULT) -> None:
        self.fault = fault
        self.operations: list[Operation] = []
        self.failed: list[Operation] = []
        self._files = files

    @property
    def forked(self) -> bool:
        return self._files.forked

    def open(self, path: str, *, write: bool = False, create: bool = False) -> FaultyFile:
        if create and not self._files.exists(path):
            self.attempt(Kind.CREATE, path)
        return FaultyFile(self, path, self._files.open(path, write=write, create=create))

    def create_private(self, path: str) -> None:
        self.open(path, write=True, create=True).truncate(0)

    def entries(self, directory: str) -> list[DirectoryEntry]:
        return self._files.entries(directory)

    def exists(self, path: str) -> bool:
        return self._files.exists(path)

    def make_directory(self, path: str) -> None:
        if not self._files.exists(path):
            self.attempt(Kind.MAKE_DIRECTORY, path)
        self._files.make_directory(path)

    def remove_directory(self, path: str) -> None:
        self.attempt(Kind.REMOVE_DIRECTORY, path)
        self._files.remove_directory(path)

    def rename(self, old: str, new: str) -> None:
        self.attempt(Kind.RENAME, old)
        self._files.rename(old, new)

    def unlink(self, path: str) -> None:
        self.attempt(Kind.UNLINK, path)
        self._files.unlink(path)

    def sync_directory(self, path: str) -> None:
        self.attempt(Kind.SYNC_DIRECTORY, path)
        self._files.sync_directory(path)

    def allocate(self, path: str, size: int, *, allocated_bytes: int = 0) -> FaultyAllocated:
        error = self._decide(Kind.ALLOCATE, path)
        if error == errno.ENOSPC:
            raise StorageFull(f"no space for the {size} bytes of {path}; free space and try again")
        if error:
            raise OSError(error, os.strerror(error), path)
        return FaultyAllocated(self, path, self._files.allocate(path, size, allocated_bytes=allocated_bytes))

    def lock(self, path: str) -> Lock:
        return self._files.lock(path)

    def lock_holder(self, path: str, held: str | None = None) -> WriterInfo | None:
        return self._files.lock_holder(path, held)

    def attempt(self, kind: Kind, path: str) -> None:
        """Record the operation, and fail it if `fault` selects it."""
        error = self._decide(kind, path)
        if error:
            raise OSError(error, os.strerror(error), path)

    def attempt_write(self, path: str, file: File, position: int, buffers: Sequence[Buffer]) -> int:
        error = self._decide(Kind.WRITE, path)
        if not error:
            return file.write(position, buffers)
        data = b"".join(buffers)
        part = data[: int(len(data) * self.fault.part)]
        if part:
            file.write(position, [part])
        if error == errno.ENOSPC:
            # Like PosixFile, with an error type of its own for a full disk.
            raise StorageFull(f"no space to write {path}; nothing was kept, free space and send again")
        raise OSError(error, os.strerror(error), path)

    def attempt_sync(self, kind: Kind, path: str) -> None:
        error = self._decide(kind, path)
        if error and isinstance(self._files, PowerLossFiles):
            self._files.fail_next_sync()  # the next sync raises the error, and loses what it should write
        elif error:
            raise OSError(error, os.strerror(error), path)

    def _decide(self, kind: Kind, path: str) -> int:
        operation = Operation(len(self.operations), kind, path)
        self.operations.append(operation)
        error = self.fault.decide(operation)
        if error:
            self.failed.append(operation)
        return error


class FaultyFile:
    """An open file of FaultyFiles."""

    def __init__(self, owner: FaultyFiles, path: str, file: File) -> None:
        self._owner = owner
        self._file = file
        self.path = path
        self.size = file.size
        self.read = file.read
        self.sync_descriptor = None  # only `sync` simulates faults
        self.read_into = file.read_into
        self.close = file.close

    def write(self, position: int, buffers: Sequence[Buffer]) -> int:
        return self._owner.attempt_write(self.path, self._file, position, buffers)

    def truncate(self, size: int) -> None:
        self._owner.attempt(Kind.TRUNCATE, self.path)
        self._file.truncate(size)

    def sync(self) -> None:
        self._owner.attempt_sync(Kind.SYNC, self.path)
        self._file.sync()


class FaultyAllocated:
    """An allocated file of FaultyFiles. A store never fails: its blocks are allocated."""

    def __init__(self, owner: FaultyFiles, path: str, allocated: Allocated) -> None:
        self._owner = owner
        self._path = path
        self._file = allocated
        self.size = allocated.size
        self.load = allocated.load
        self.store = allocated.store
        self.close = allocated.close

    def sync(self) -> None:
        self._owner.attempt_sync(Kind.ALLOCATED_SYNC, self._path)
        self._file.sync()
