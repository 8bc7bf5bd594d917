"""What the log needs of a file system, and what it may assume of it.

The only room that touches the file system. Two implementations: `posix.PosixFiles` (disk) and
`memory.MemoryFiles` (":memory:", and the base of the power-loss harness).

Assumed of the disk, and of nothing else:
1. after `File.sync` returns, the file's bytes and size up to then survive a power cut; after
   `DirectFile.write_durably`, the bytes that it wrote;
2. after `Files.sync_directory` returns, the names in it (created, renamed, unlinked) survive;
3. `rename` replaces atomically; before the directory is synced either name may be found after a cut;
4. without a sync, any sector (512 bytes) of what was written may be there, missing or torn;
5. after `sync` failed, nothing is known about what was written since the last good one.
"""

from __future__ import annotations

import errno
import mmap
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import NamedTuple, Protocol, runtime_checkable

from foldlog.errors import DescriptorsExhausted, StorageError, StorageFull
from foldlog.files.holder import WriterInfo

FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
"""Error numbers of a disk, a quota or a file that is full."""

NO_DESCRIPTORS = (errno.EMFILE, errno.ENFILE)
"""Error numbers if the process, or the machine, may not open another file."""

DRAFT_SUFFIX = ".tmp"
"""Suffix of a file that is renamed to its own name once it is whole."""

Buffer = bytes | bytearray | memoryview
Into = bytearray | memoryview | None
"""Memory to read into, if the caller has some."""


@dataclass(frozen=True, slots=True)
class DirectoryEntry:
    """One name in a directory."""

    name: str
    size_bytes: int
    is_directory: bool
    modified_ms: int


class DurableWrite(NamedTuple):
    """A write for compiled threads. `direct` is a descriptor whose writes are durable when they return (O_DIRECT and
    O_DSYNC), or -1; where there is none, or it refuses (EINVAL), `plain` is written and synced."""

    direct: int
    plain: int
    position: int
    memory: memoryview


def aligned_memory(size: int) -> memoryview:
    """Memory that a disk can be written from without the page cache: it begins with a page."""
    return memoryview(mmap.mmap(-1, size, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS))


class File(Protocol):
    """An open file. Positions are explicit, so threads may share it. Closed when dropped, or by `close`."""

    @property
    def sync_descriptor(self) -> int | None:
        """The descriptor whose fdatasync is as good as `sync`; see `sync_fault`. None if only `sync` can do it."""
        ...

    def size(self) -> int: ...

    def read(self, position: int, length: int) -> bytes:
        """Up to `length` bytes; fewer only at the end of the file."""
        ...

    def read_into(self, position: int, buffer: bytearray | memoryview, *, nowait: bool = False) -> int:
        """Fill `buffer` from `position`; returns how many bytes there were, fewer only at the end of the file.

        `nowait`: raises BlockingIOError if not all of it is in memory; `buffer` is then undefined. On a file system
        that cannot tell, it waits all the same.
        """
        ...

    def write(self, position: int, buffers: Sequence[Buffer]) -> int:
        """Write all buffers, one after the other, from `position` on; returns the bytes written.

        Raises StorageFull when there is no space, OSError on other faults; part of it may then be written.
        """
        ...

    def truncate(self, size: int) -> None: ...

    def sync(self) -> None:
        """Return once bytes and size are on stable storage (fdatasync; F_FULLFSYNC on macOS).

        Raises OSError on a fault, FileNotFoundError if the file has been unlinked, so that it would be lost.
        """
        ...

    def close(self) -> None: ...


@runtime_checkable
class DirectFile(Protocol):
    """A file that can be written without the page cache. `memory` is of `aligned_memory`; it, and `position`, are whole
    blocks, which were written before."""

    def write_durably(self, position: int, memory: memoryview) -> None:
        """Return once it is on stable storage; faults as of `File.write` and `File.sync`."""
        ...

    def durable_write(self, position: int, memory: memoryview) -> DurableWrite:
        """What a compiled thread has to do for `write_durably`, where the file has a `sync_descriptor`."""
        ...


class Allocated(Protocol):
    """A small file that its one writer shares with reading processes, which open the file: stores are visible at once,
    and durable after `sync`. Every block is allocated from the start, so that a full disk refuses no store."""

    def size(self) -> int: ...

    def load(self, position: int, length: int) -> bytes:
        """Read bytes; fewer than `length` only at the end, also if the file was cut short."""
        ...

    def store(self, position: int, data: bytes) -> None:
        """Raises OSError if the file was tampered with, or the disk fails."""
        ...

    def sync(self) -> None: ...

    def close(self) -> None: ...


class Lock(Protocol):
    """The lock of the directory's one writer. Released by `release`, or by the end of the process.

    The lock file's first line is the holder's pid, from the moment the lock is taken; see `files.holder`.
    """

    def publish(self, address: str | None) -> None:
        """Write the address where this process listens into the lock file; None: it does not listen."""
        ...

    def hold(self, path: str) -> None:
        """Lock another file of the directory as well, in place of the one held before: a process that finds the lock
        file gone finds this one locked. The file only ever grows. Raises DirectoryLocked if another process has it."""
        ...

    def is_in_place(self) -> bool:
        """Whether the locked files still have their names, and none was cut short. If not, they were removed or
        replaced, or the directory was renamed, and another process may have become the writer."""
        ...

    def release(self) -> None: ...


class Files(Protocol):
    """A file system. Paths are strings with '/'."""

    @property
    def forked(self) -> bool:
        """Whether this process is a forked child of the one that made it: such a child may read, never write."""
        ...

    def open(self, path: str, *, write: bool = False, create: bool = False) -> File:
        """Open a file. Raises FileNotFoundError if it is missing and `create` is false."""
        ...

    def create_private(self, path: str) -> None:
        """Create an empty file that only its owner may read, in place of whatever is there."""
        ...

    def entries(self, directory: str) -> list[DirectoryEntry]:
        """The names in a directory, in no order; FileNotFoundError if there is none."""
        ...

    def exists(self, path: str) -> bool: ...

    def make_directory(self, path: str) -> None:
        """Create it and its parents; fine if it exists. The name is durable after the parent's sync_directory."""
        ...

    def remove_directory(self, path: str) -> None:
        """Remove an empty directory."""
        ...

    def rename(self, old: str, new: str) -> None: ...

    def unlink(self, path: str) -> None: ...

    def sync_directory(self, path: str) -> None: ...

    def allocate(self, path: str, size: int, *, allocated_bytes: int = 0) -> Allocated:
        """Create or grow the file to `size` bytes, with zeroes, and allocate all of them.

        Raises StorageFull if the disk has no room. The first `allocated_bytes` are allocated already.
        """
        ...

    def lock(self, path: str) -> Lock:
        """Become the writer of the directory that holds `path`; DirectoryLocked if another process is."""
        ...

    def lock_holder(self, path: str, held: str | None = None) -> WriterInfo | None:
        """The process that has locked `path`, or `held` beside it; None if neither is locked, even if a process that
        ended left its pid in the file."""
        ...


def storage_error(what: str, error: OSError | StorageError) -> StorageError:
    """The StorageError for `error`, with `what` went wrong; a full disk and spent descriptors keep their types."""
    kind: type[StorageError] = StorageError
    if isinstance(error, StorageFull | DescriptorsExhausted):
        kind = type(error)
    elif isinstance(error, OSError) and error.errno in FULL:
        kind = StorageFull
    elif isinstance(error, OSError) and error.errno in NO_DESCRIPTORS:
        kind = DescriptorsExhausted
    return kind(f"{what} ({error})")


@contextmanager
def replacing(files: Files, path: str) -> Iterator[str]:
    """The name of a draft: what is written and synced there takes the place of `path`, durably, so that a power cut
    leaves the old file or the new one whole. There may be a draft that somebody did not finish."""
    draft = path + DRAFT_SUFFIX
    yield draft
    files.rename(draft, path)
    files.sync_directory(path.rpartition("/")[0] or ".")


def replace_file(files: Files, path: str, data: bytes, *, private: bool = False) -> None:
    """Put `data` at `path` so that a power cut leaves the old bytes or the new. Durable on return.

    `private`: only the owner may read it, from its first byte on.
    """
    with replacing(files, path) as draft:
        if private:
            files.create_private(draft)
        file = files.open(draft, write=True, create=True)
        try:
            file.truncate(0)
            file.write(0, [data])
            # Sync the bytes before the name: a renamed but empty file would be neither old nor new.
            file.sync()
        finally:
            file.close()


def read_view(file: File, position: int, length: int, into: Into = None, *, nowait: bool = False) -> memoryview:
    """Up to `length` bytes, in `into` if that is large enough, else in new memory."""
    if into is None or length > len(into):
        if not nowait:
            return memoryview(file.read(position, length))
        into = bytearray(length)
    view = memoryview(into)[:length]
    return view[: file.read_into(position, view, nowait=nowait)]


def would_block(path: str) -> BlockingIOError:
    """The error of a call that was asked not to wait and would have to."""
    return BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN), path)


def deleted(path: str) -> FileNotFoundError:
    """The error of syncing a file that has been unlinked."""
    return FileNotFoundError(errno.ENOENT, "the file was deleted under the log", path)


def sync_fault(path: str, error_number: int, is_nameless: bool) -> OSError | None:
    """The error `File.sync` would have raised, after its `sync_descriptor` was synced elsewhere; None if none."""
    if error_number:
        return OSError(error_number, os.strerror(error_number), path)
    return deleted(path) if is_nameless else None


def own_name(path: str) -> str:
    """The last name of a path; for one that ends in '.' or '..', the name of that directory."""
    return os.path.basename(os.path.abspath(path))


def read_file(files: Files, path: str) -> bytes:
    """The whole of a small file."""
    file = files.open(path)
    try:
        return file.read(0, file.size())
    finally:
        file.close()


def in_forked_children(start_over: Callable[[], None]) -> None:
    """Call `start_over` in every child forked from now on: it has one thread, and locks that other threads held.

    Registered for the life of the process.
    """
    os.register_at_fork(after_in_child=start_over)
