"""The real file system: pread, pwritev, fdatasync, flock. Only this and the compiled modules beside it call them."""

from __future__ import annotations

import errno
import fcntl
import os
import resource
import stat
import sys
import time
import weakref
from collections.abc import Iterator, Sequence
from contextlib import suppress

from foldlog.environment import PURE_PYTHON
from foldlog.errors import DirectoryLocked, StorageError, StorageFull, WrongProcess
from foldlog.files.base import FULL, Buffer, DirectoryEntry, DurableWrite, deleted, would_block
from foldlog.files.holder import HOLDER_BYTES_MAX, WriterInfo, format_holder, is_whole, parse_holder
from foldlog.limits import DESCRIPTORS_LEFT_BY_FILES, DESCRIPTORS_MAX, READ_CHUNK_BYTES

_IOV_MAX = 1024  # the most that Linux and macOS take in one pwritev
_NOWAIT: int = getattr(os, "RWF_NOWAIT", 0)  # Linux only: elsewhere the system cannot tell, and reads wait
_CANNOT_TELL = (errno.EOPNOTSUPP, errno.ENOSYS)
_NAMES_NOTHING = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.ESTALE)
_LOOK_TRIES = 20
_LOCK_TRIES = 500
_RENEWED_LOCKS_MAX = 100  # how often a lock file may vanish while it is being locked
_LOCK_PAUSE_S = 0.001  # 20 are far longer than a look at the lock, 500 than a short write elsewhere


def _inode_and_size(path: bytes) -> tuple[int, int, int]:
    """`status.inode_and_size` in Python."""
    found = os.stat(path)
    return found.st_dev, found.st_ino, found.st_size


def _sync_and_look(descriptor: int) -> bool:
    """`status.sync_and_look` in Python."""
    if sys.platform == "darwin":
        fcntl.fcntl(descriptor, fcntl.F_FULLFSYNC)  # fsync only reaches the drive's cache
    else:
        os.fdatasync(descriptor)
    return os.fstat(descriptor).st_nlink > 0


def _size_in_place(path: bytes, inode: tuple[int, int], held_path: bytes, held_inode: tuple[int, int]) -> int:
    """`status.size_in_place` in Python."""
    if _inode_and_size(path)[:2] != inode:
        return -1
    *held, size = _inode_and_size(held_path)
    return size if tuple(held) == held_inode else -1


inode_and_size, size_in_place, sync_and_look = _inode_and_size, _size_in_place, _sync_and_look
if not PURE_PYTHON:
    with suppress(ImportError):  # it is not built everywhere
        from foldlog.files.status import inode_and_size, size_in_place, sync_and_look


def _sync(descriptor: int, path: str) -> None:
    """Raise FileNotFoundError if the file was unlinked: it accepts writes, and loses them when it is closed."""
    if not sync_and_look(descriptor):
        raise deleted(path)


class PosixFile:
    """An open descriptor. Any thread may use it; it is closed when the last reference goes."""

    __slots__ = ("_can_tell", "_descriptor", "_direct", "_owner", "path")

    def __init__(self, owner: PosixFiles, path: str, descriptor: int) -> None:
        self._owner = owner
        self._descriptor = descriptor
        self._direct: int | None = None  # as in `base.DurableWrite`; None if it was not tried yet
        self._can_tell = True  # whether the file system knows which parts of the file are in memory
        self.path = path

    @property
    def sync_descriptor(self) -> int | None:
        return None if sys.platform == "darwin" else self._descriptor

    @property
    def descriptor(self) -> int:
        """For compiled code that reads; keep the file while using it. Files of other kinds have none."""
        return self._descriptor

    def size(self) -> int:
        return os.fstat(self._descriptor).st_size

    def read(self, position: int, length: int) -> bytes:
        try:
            data = os.pread(self._descriptor, length, position)
        except IsADirectoryError as error:  # a directory opens like a file, and only pread fails
            raise IsADirectoryError(error.errno, error.strerror, self.path) from None
        if len(data) == length or not data:
            return data
        parts = [data]
        have = len(data)
        while have < length:
            more = os.pread(self._descriptor, length - have, position + have)
            if not more:
                break
            parts.append(more)
            have += len(more)
        return b"".join(parts)

    def read_into(self, position: int, buffer: bytearray | memoryview, *, nowait: bool = False) -> int:
        view = memoryview(buffer)
        flags = _NOWAIT if nowait and self._can_tell else 0
        have = 0
        while have < len(view):
            try:
                # If a part is in memory, that part is read, and the next call fails for the rest.
                count = os.preadv(self._descriptor, [view[have:]], position + have, flags)
            except OSError as error:
                if not flags or error.errno not in _CANNOT_TELL:
                    raise
                self._can_tell, flags = False, 0
                continue
            if count == 0:
                if flags and position + have < self.size():
                    raise would_block(self.path)  # Linux 5.9 and 5.10 return 0 instead of EAGAIN
                break
            have += count
        return have

    def write(self, position: int, buffers: Sequence[Buffer]) -> int:
        if self._owner.forked:
            raise WrongProcess(f"{self.path} was opened before a fork; open the log again in this process")
        total = 0
        pending: Sequence[Buffer] = buffers
        try:
            while pending:
                count = os.pwritev(self._descriptor, pending[:_IOV_MAX], position + total)
                total += count
                if len(pending) == 1 and count == len(pending[0]):
                    break
                pending = _after(pending, count)
        except OSError as error:
            if error.errno in FULL:
                raise StorageFull(
                    f"no space to write {self.path} ({error.strerror}); nothing was kept, free space and send again"
                ) from error
            raise
        return total

    def write_durably(self, position: int, memory: memoryview) -> None:
        if self._owner.forked:
            raise WrongProcess(f"{self.path} was opened before a fork; open the log again in this process")
        direct = self._direct_descriptor()
        if direct >= 0 and _writes_directly(direct, memory, position):
            if not os.fstat(self._descriptor).st_nlink:
                raise deleted(self.path)
            return
        self.write(position, [memory])
        self.sync()

    def durable_write(self, position: int, memory: memoryview) -> DurableWrite:
        return DurableWrite(self._direct_descriptor(), self._descriptor, position, memory)

    def _direct_descriptor(self) -> int:
        # Measured, 16 KB over written blocks on ext4: 25 µs of processor time and two waits; with fdatasync 75 µs and
        # two, and for a file that grows 93 µs and four. On a busy machine each of them is a wait for a core, too.
        if self._direct is None:
            self._direct = _open_directly(self._descriptor)
        return self._direct

    def truncate(self, size: int) -> None:
        if self._owner.forked:
            raise WrongProcess(f"{self.path} was opened before a fork; open the log again in this process")
        os.ftruncate(self._descriptor, size)

    def sync(self) -> None:
        _sync(self._descriptor, self.path)

    def close(self) -> None:
        for descriptor in (self._descriptor, self._direct):
            if descriptor is not None and descriptor >= 0:
                os.close(descriptor)
        self._descriptor = self._direct = -1

    def __del__(self) -> None:
        self.close()


def _open_directly(descriptor: int) -> int:
    """Another descriptor of the same file, by its number and not by its name, which another file may have; or -1."""
    try:
        flags = os.O_RDWR | os.O_CLOEXEC | os.O_DIRECT | os.O_DSYNC
        return os.open(f"/proc/self/fd/{descriptor}", flags)
    except (OSError, AttributeError):
        return -1  # not Linux, or a file system without it


def _writes_directly(direct: int, memory: memoryview, position: int) -> bool:
    """False if the disk does not take it this way: its blocks may be larger than ours."""
    try:
        return os.pwrite(direct, memory, position) == len(memory)
    except OSError as error:
        if error.errno == errno.EINVAL:
            return False
        raise


def _after(buffers: Sequence[Buffer], count: int) -> Sequence[Buffer]:
    """The rest of `buffers` after `count` bytes were written (writes may be short)."""
    for index, buffer in enumerate(buffers):
        size = memoryview(buffer).nbytes
        if count < size:
            return [memoryview(buffer).cast("B")[count:], *buffers[index + 1 :]]
        count -= size
    return []


class PosixAllocated:
    """A descriptor, written with pwrite: a store through a memory map would kill the process if the file was cut short,
    or had a hole that a full disk cannot fill."""

    __slots__ = ("_descriptor", "_owner", "_size", "path")

    def __init__(self, owner: PosixFiles, path: str, descriptor: int, size: int) -> None:
        self._owner = owner
        self.path = path
        self._descriptor = descriptor
        self._size = size

    def size(self) -> int:
        return self._size

    def load(self, position: int, length: int) -> bytes:
        self._refuse_closed()
        return os.pread(self._descriptor, min(length, max(0, self._size - position)), position)

    def store(self, position: int, data: bytes) -> None:
        if self._descriptor < 0:
            self._refuse_closed()
        if self._owner.forked:
            raise WrongProcess(f"{self.path} was opened before a fork; open the log again in this process")
        if position < 0 or position + len(data) > self._size:
            raise IndexError(f"bytes {position} to {position + len(data)} are outside of the {self._size} allocated")
        if os.pwrite(self._descriptor, data, position) != len(data):
            raise OSError(errno.EIO, "only a part of it was written", self.path)

    def sync(self) -> None:
        _sync(self._descriptor, self.path)

    def _refuse_closed(self) -> None:
        if self._descriptor < 0:
            raise ValueError("the file is closed")

    def close(self) -> None:
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)

    def __del__(self) -> None:
        self.close()  # replaced by a larger one, and the last thread that used it has left


class PosixLock:
    """flock on a file that names its holder. The kernel releases it when the process ends, however it ends."""

    __slots__ = ("_descriptor", "_held", "_held_bytes", "_held_inode", "_held_path", "_inode", "_path")

    def __init__(self, path: str, descriptor: int) -> None:
        self._path = os.fsencode(PosixFiles.from_root(path))
        self._descriptor = descriptor
        # Kept: an inode has its number for as long as its file is open, so each look costs one call of the system.
        self._inode = _inode_of(os.fstat(descriptor))
        self._held_path = b""
        self._held = -1
        self._held_inode = (0, 0)
        self._held_bytes = 0

    def hold(self, path: str) -> None:
        descriptor = _descriptor_of(path, os.O_RDWR)
        try:
            # A process that only looks has it for an instant, and so has a writer that is just ending.
            if not any(_try_lock(descriptor, fcntl.LOCK_EX) for _ in _attempts(_LOCK_TRIES)):
                raise DirectoryLocked(os.path.dirname(path), _flock_owner(descriptor), lock_is_gone=True)
        except BaseException:
            os.close(descriptor)
            raise
        self._let_go_of_held()
        self._held, self._held_path = descriptor, os.fsencode(PosixFiles.from_root(path))
        found = os.fstat(descriptor)
        self._held_inode, self._held_bytes = _inode_of(found), found.st_size

    def is_in_place(self) -> bool:
        if self._descriptor < 0:
            return True  # released: writes are refused for other reasons
        # Every append and every sync looks, so it has to be cheap: two calls of the system.
        try:
            if self._held < 0:
                return inode_and_size(self._path)[:2] == self._inode
            size = size_in_place(self._path, self._inode, self._held_path, self._held_inode)
        except OSError as error:
            return error.errno not in _NAMES_NOTHING  # True if the system cannot say, as it may the next time
        # A store into a file that was cut short makes it longer again, but not as long as it was.
        if size < self._held_bytes:
            return False
        self._held_bytes = size
        return True

    def publish(self, address: str | None) -> None:
        data = format_holder(os.getpid(), address)
        os.pwrite(self._descriptor, data, 0)
        os.ftruncate(self._descriptor, len(data))

    def release(self) -> None:
        self._let_go_of_held()  # first: a process that finds the other one free takes both
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.ftruncate(descriptor, 0)
            os.close(descriptor)

    def abandon(self) -> None:
        """In a forked child: close our copies of the descriptors, which leaves the parent's locks in place."""
        self._let_go_of_held()
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)

    def _let_go_of_held(self) -> None:
        descriptor, self._held = self._held, -1
        if descriptor >= 0:
            os.close(descriptor)


class PosixFiles:
    """Files on disk. A forked child may read through it but never write: see `forked`."""

    def __init__(self) -> None:
        self.forked = False
        self._locks: list[PosixLock] = []
        _open_file_systems.add(self)

    @staticmethod
    def from_root(path: str) -> str:
        """The path, independent of the current directory. Not abspath, which drops `link/..`: that is the parent of the
        link's target."""
        if os.path.isabs(path):
            return path
        whole = os.path.join(os.getcwd(), path)
        return whole if ".." in path.split("/") else os.path.normpath(whole)

    def open(self, path: str, *, write: bool = False, create: bool = False) -> PosixFile:
        flags = os.O_RDWR if write else os.O_RDONLY
        if create:
            flags |= os.O_CREAT
        return PosixFile(self, path, _open(path, flags))

    def create_private(self, path: str) -> None:
        with suppress(FileNotFoundError):
            os.unlink(path)  # a draft of an earlier time may have been made for everybody
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))

    def entries(self, directory: str) -> list[DirectoryEntry]:
        found = []
        with os.scandir(directory) as names:
            for item in names:
                try:
                    status = item.stat(follow_symlinks=False)
                except FileNotFoundError:
                    continue  # unlinked between listing and looking
                found.append(
                    DirectoryEntry(
                        item.name, status.st_size, item.is_dir(follow_symlinks=False), status.st_mtime_ns // 1_000_000
                    )
                )
        return found

    def exists(self, path: str) -> bool:
        return os.path.exists(path)

    def make_directory(self, path: str) -> None:
        os.makedirs(path, exist_ok=True)

    def remove_directory(self, path: str) -> None:
        os.rmdir(path)

    def rename(self, old: str, new: str) -> None:
        self._refuse_after_fork(old)
        os.rename(old, new)

    def unlink(self, path: str) -> None:
        self._refuse_after_fork(path)
        os.unlink(path)

    def sync_directory(self, path: str) -> None:
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def allocate(self, path: str, size: int, *, allocated_bytes: int = 0) -> PosixAllocated:
        descriptor = _descriptor_of(path, os.O_RDWR | os.O_CREAT)
        try:
            _allocate(descriptor, path, allocated_bytes, size)
            return PosixAllocated(self, path, descriptor, size)
        except BaseException:
            os.close(descriptor)
            raise

    def lock(self, path: str) -> PosixLock:
        lock = PosixLock(path, _locked(path))
        try:
            lock.publish(None)
        except OSError as error:
            lock.abandon()
            if error.errno in FULL:
                raise StorageFull(f"no space to write {path} ({error.strerror}); free space and open again") from error
            raise
        self._locks.append(lock)
        return lock

    def lock_holder(self, path: str, held: str | None = None) -> WriterInfo | None:
        holder = _holder_of(path)
        return holder if holder is not None or held is None else _owner_of(held)

    def _refuse_after_fork(self, path: str) -> None:
        if self.forked:
            raise WrongProcess(f"{path} belongs to the process that forked this one; open the log again here")

    def abandon_after_fork(self) -> None:
        self.forked = True
        for lock in self._locks:
            lock.abandon()


def _descriptor_of(path: str, flags: int) -> int:
    """All opens of files come here. Opening a pipe waits for its other end, and a device may block, too: with
    O_NONBLOCK, which does nothing for files, neither is waited for; and neither is a file of a log."""
    descriptor = os.open(path, flags | os.O_CLOEXEC | os.O_NONBLOCK, 0o644)
    mode = os.fstat(descriptor).st_mode
    if stat.S_ISREG(mode) or stat.S_ISDIR(mode):  # reading a directory raises its own error
        return descriptor
    os.close(descriptor)
    raise StorageError(
        f"{path} is a {'pipe' if stat.S_ISFIFO(mode) else 'device'}, and has the name of a file of the log; move it"
        " away and open again"
    )


def _open(path: str, flags: int) -> int:
    """Raises EMFILE also while descriptors are free, if those are reserved for this process's connections."""
    try:
        descriptor = _descriptor_of(path, flags)
    except OSError as error:
        if error.errno != errno.EMFILE:
            raise
        if not raise_descriptor_limit():
            raise _no_descriptor(path) from None
        descriptor = _descriptor_of(path, flags)
    if not leaves_descriptors(descriptor, DESCRIPTORS_LEFT_BY_FILES):
        os.close(descriptor)
        raise _no_descriptor(path)
    return descriptor


def _no_descriptor(path: str) -> OSError:
    return OSError(errno.EMFILE, f"{os.strerror(errno.EMFILE)}: {descriptor_advice()}", path)


def descriptor_advice() -> str:
    """Names the limit, and how to raise it."""
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return (
        f"this process may have {limit} files and connections open at a time; raise that limit (ulimit -n, or"
        " LimitNOFILE= in a systemd unit) and start it again"
    )


def leaves_descriptors(descriptor: int, wanted: int) -> bool:
    """Whether `wanted` descriptors, or a quarter of the limit if that is less, are left besides this one, which was
    just opened. The system gives out the lowest free number, so the number shows how many are taken."""
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if limit == resource.RLIM_INFINITY or descriptor < limit - min(wanted, limit // 4):
        return True
    return raise_descriptor_limit() and leaves_descriptors(descriptor, wanted)


def files_open_max() -> int:
    """How many files a log can have open here once the limit is raised, if nothing else has any."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    limit = DESCRIPTORS_MAX if hard == resource.RLIM_INFINITY else min(hard, DESCRIPTORS_MAX)
    return limit - min(DESCRIPTORS_LEFT_BY_FILES, limit // 4)


def raise_descriptor_limit() -> bool:
    """Raise the soft limit as far as the hard limit allows; False if it was there already. Every written partition
    keeps a file open, and the usual 1024 are too few. As a library, only when it turns out to be needed."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = DESCRIPTORS_MAX if hard == resource.RLIM_INFINITY else min(hard, DESCRIPTORS_MAX)
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return False
    resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    return True


def _allocate(descriptor: int, path: str, start: int, size: int) -> None:
    """Allocate every block up to `size`, and grow the file to it; its bytes stay the same.

    A store into an unallocated block fails on a full disk: a hole, as `rsync -S` leaves for zeroes, or a block that a
    copy shares with its original (`cp --reflink`). So every block is written here, while nothing depends on it:
    posix_fallocate would fill holes, but leave shared blocks.
    """
    try:
        for position in range(start, size, READ_CHUNK_BYTES):
            length = min(READ_CHUNK_BYTES, size - position)
            data = os.pread(descriptor, length, position).ljust(length, b"\0")
            while data:
                count = os.pwrite(descriptor, data, position)
                position, data = position + count, data[count:]
    except OSError as error:
        if error.errno in FULL:
            raise StorageFull(
                f"no space for the {size} bytes of {path} ({error.strerror}); free space and try again"
            ) from error
        raise


def _locked(path: str) -> int:
    """Lock the file, and return its descriptor once the locked file is the one that has that name."""
    for _ in range(_RENEWED_LOCKS_MAX):
        descriptor = _descriptor_of(path, os.O_RDWR | os.O_CREAT)
        try:
            for tries in _attempts(_LOCK_TRIES):
                if _try_lock(descriptor, fcntl.LOCK_EX):
                    break
                # A process that only looks (lock_holder) has it for an instant; one that does not listen may end soon.
                holder = parse_holder(os.pread(descriptor, HOLDER_BYTES_MAX, 0))
                if tries >= _LOCK_TRIES or (tries >= _LOOK_TRIES and holder.address is not None):
                    raise DirectoryLocked(os.path.dirname(path), holder.pid, holder.address)
            if _is_named(descriptor, path):
                return descriptor
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)  # it was removed between opening and locking: another process would lock a new one
    raise DirectoryLocked(os.path.dirname(path), None)


def _inode_of(found: os.stat_result) -> tuple[int, int]:
    return found.st_dev, found.st_ino


def _is_named(descriptor: int, path: str) -> bool:
    """Whether `path` names the open file; True if the system cannot say, as it may the next time."""
    try:
        return os.path.samestat(os.fstat(descriptor), os.stat(path))
    except OSError as error:
        return error.errno not in _NAMES_NOTHING


def _holder_of(path: str) -> WriterInfo | None:
    try:
        descriptor = _descriptor_of(path, os.O_RDONLY)
    except (FileNotFoundError, NotADirectoryError):
        return None
    try:
        data = b""
        for _ in _attempts(_LOOK_TRIES):
            if _try_lock(descriptor, fcntl.LOCK_SH):
                return None
            data = os.pread(descriptor, HOLDER_BYTES_MAX, 0)
            if is_whole(data):
                break  # if not, it is just being written
        return parse_holder(data)
    finally:
        os.close(descriptor)  # and with it the lock, if we got it


def _owner_of(path: str) -> WriterInfo | None:
    """The process that has locked a file which does not name its holder; None if it is not locked."""
    try:
        descriptor = _descriptor_of(path, os.O_RDONLY)
    except (FileNotFoundError, NotADirectoryError):
        return None
    try:
        if any(_try_lock(descriptor, fcntl.LOCK_SH) for _ in _attempts(_LOOK_TRIES)):
            return None
        return WriterInfo(_flock_owner(descriptor))
    finally:
        os.close(descriptor)


def _flock_owner(descriptor: int) -> int | None:
    """The process that has the file locked, if the system says so: Linux does, in /proc/locks."""
    status = os.fstat(descriptor)
    # 1: FLOCK  ADVISORY  WRITE 4711 fe:00:1234567 0 EOF
    wanted = f"{os.major(status.st_dev):02x}:{os.minor(status.st_dev):02x}:{status.st_ino}"
    try:
        with open("/proc/locks", encoding="ascii", errors="replace") as locks:
            fields = [line.split() for line in locks]
    except OSError:
        return None
    owners = [int(line[4]) for line in fields if line[1:2] == ["FLOCK"] and line[5:6] == [wanted]]
    return next((owner for owner in owners if owner > 0), None)  # 0 or less: in another container


def _attempts(count: int) -> Iterator[int]:
    """Number attempts at a lock from 1 to `count`, with a pause before each but the first."""
    for number in range(1, count + 1):
        if number > 1:
            time.sleep(_LOCK_PAUSE_S)
        yield number


def _try_lock(descriptor: int, kind: int) -> bool:
    try:
        fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno not in (errno.EWOULDBLOCK, errno.EACCES):
            raise
        return False
    return True


_open_file_systems: weakref.WeakSet[PosixFiles] = weakref.WeakSet()


def _abandon_all() -> None:
    for files in _open_file_systems:
        files.abandon_after_fork()


os.register_at_fork(after_in_child=_abandon_all)
