"""What the log needs of a file system, and what it may assume of it.

The only room that touches the file system. Two implementations: `posix.PosixFiles` (disk) and
`memory.MemoryFiles` (":memory:", and the base of the power-loss harness).

Assumed of the disk, and of nothing else:
1. after `File.sync` returns, the file's bytes and size up to then survive a power cut;
2. after `Files.sync_directory` returns, the names in it (created, renamed, unlinked) survive;
3. `rename` replaces atomically; before the directory is synced either name may be found after a cut;
4. without a sync, any sector (512 bytes) of what was written may be there, missing or torn;
5. after `sync` failed, nothing is known about what was written since the last good one.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol

from foldlog.errors import DescriptorsExhausted, StorageError, StorageFull
from foldlog.files.holder import WriterInfo

FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
"""What the operating system says of a disk, a quota or a file that takes no more."""

NO_DESCRIPTORS = (errno.EMFILE, errno.ENFILE)
"""What it says where the process, or the machine, may not open another file."""

DRAFT_SUFFIX = ".tmp"
"""Of a file that takes its name once it is whole."""

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


class File(Protocol):
    """An open file. Positions are explicit, so threads may share it. Closed when dropped, or by `close`."""

    @property
    def sync_descriptor(self) -> int | None:
        """What fdatasync makes durable as `sync` would; see `sync_fault`. None where only `sync` can."""
        ...

    def size(self) -> int: ...

    def read(self, position: int, length: int) -> bytes:
        """Up to `length` bytes; fewer only at the end of the file."""
        ...

    def read_into(self, position: int, buffer: bytearray | memoryview, *, nowait: bool = False) -> int:
        """Fill `buffer` from `position`; returns how many bytes there were, fewer only at the end of the file.

        `nowait`: BlockingIOError where all of it is not in memory, and what `buffer` holds then means nothing. A file
        system that cannot tell is waited for all the same.
        """
        ...

    def write(self, position: int, buffers: Sequence[Buffer]) -> int:
        """Write all buffers, one after the other, from `position` on; returns the bytes written.

        Raises StorageFull when there is no space, OSError on other faults; part of it may then be written.
        """
        ...

    def truncate(self, size: int) -> None: ...

    def sync(self) -> None:
        """Returns once bytes and size are on stable storage (fdatasync; F_FULLFSYNC on macOS).

        OSError on a fault; FileNotFoundError where the file has no name any more, so that nobody will find it again.
        """
        ...

    def close(self) -> None: ...


class Allocated(Protocol):
    """A small file that its one writer shares with reading processes: stores are seen at once, and are durable after
    `sync`. Every block has its room from the start, so that a full disk refuses no store. Readers open the file."""

    def size(self) -> int: ...

    def load(self, position: int, length: int) -> bytes:
        """Fewer bytes only where they end, or where somebody has cut the file short."""
        ...

    def store(self, position: int, data: bytes) -> None:
        """OSError where the file was tampered with, or the disk fails."""
        ...

    def sync(self) -> None: ...

    def close(self) -> None: ...


class Lock(Protocol):
    """The directory's one writer. Released by `release`, or by the end of the process.

    The lock file's first line is the holder's pid, from the moment the lock is taken; see `files.holder`.
    """

    def publish(self, address: str | None) -> None:
        """Tell other processes where this one listens, or that it does not."""
        ...

    def hold(self, path: str) -> None:
        """Lock another file of the directory as well, in place of the one held before: who finds the lock file gone
        finds this one locked. It only ever grows. DirectoryLocked if another process has it."""
        ...

    def is_in_place(self) -> bool:
        """Whether the files that are locked are still those that others find there, and none was cut short. Where they
        are not, they were removed or replaced, or the directory was renamed, and another process may have become the
        writer."""
        ...

    def release(self) -> None: ...


class Files(Protocol):
    """A file system. Paths are strings with '/'."""

    @property
    def forked(self) -> bool:
        """Whether this process is a forked child of the one that made it: such a child may read, never write."""
        ...

    def open(self, path: str, *, write: bool = False, create: bool = False) -> File:
        """Raises FileNotFoundError if it is missing and not to be created."""
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
        """Have `size` bytes to be written; the file is created or grown to that size, with zeroes.

        StorageFull where the disk has no room for all of them. `allocated_bytes`: so many have it already.
        """
        ...

    def lock(self, path: str) -> Lock:
        """Become the writer of the directory that holds `path`; DirectoryLocked if another process is."""
        ...

    def lock_holder(self, path: str, held: str | None = None) -> WriterInfo | None:
        """Who has locked `path`, or `held` beside it; None if nobody has, whatever a process that is gone left in the
        file."""
        ...


def storage_error(what: str, error: OSError | StorageError) -> StorageError:
    """`what` went wrong because of `error`, as an error of ours: a full disk stays one, and so do spent descriptors."""
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


def replace_file(files: Files, path: str, data: bytes) -> None:
    """Put `data` at `path` so that a power cut leaves the old bytes or the new. Durable on return."""
    with replacing(files, path) as draft:
        file = files.open(draft, write=True, create=True)
        try:
            file.truncate(0)
            file.write(0, [data])
            # Sync the bytes before the name: a renamed but empty file would be neither old nor new.
            file.sync()
        finally:
            file.close()


def read_view(file: File, position: int, length: int, into: Into = None, *, nowait: bool = False) -> memoryview:
    """Up to `length` bytes, in `into` as far as that is large enough, else in memory of their own."""
    if into is None or length > len(into):
        if not nowait:
            return memoryview(file.read(position, length))
        into = bytearray(length)
    view = memoryview(into)[:length]
    return view[: file.read_into(position, view, nowait=nowait)]


def would_block(path: str) -> BlockingIOError:
    """For who was asked not to wait and would have to."""
    return BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN), path)


def deleted(path: str) -> FileNotFoundError:
    """For who syncs a file that has no name any more."""
    return FileNotFoundError(errno.ENOENT, "the file was deleted under the log", path)


def sync_fault(path: str, error_number: int, is_nameless: bool) -> OSError | None:
    """What `File.sync` would have raised, for who had the file's `sync_descriptor` synced elsewhere."""
    if error_number:
        return OSError(error_number, os.strerror(error_number), path)
    return deleted(path) if is_nameless else None


def own_name(path: str) -> str:
    """The last name of a path; of one that ends in '.' or '..' the name of the directory that this is."""
    return os.path.basename(os.path.abspath(path))


def read_file(files: Files, path: str) -> bytes:
    """The whole of a small file."""
    file = files.open(path)
    try:
        return file.read(0, file.size())
    finally:
        file.close()


def in_forked_children(start_over: Callable[[], None]) -> None:
    """Call `start_over` in every child that is forked from now on: it has one thread, and the locks of all the others.

    For as long as the process lives.
    """
    os.register_at_fork(after_in_child=start_over)
