"""A file system in memory, for ":memory:" and for the images of the power-loss harness."""

from __future__ import annotations

import errno
import os
import threading
import time
from collections.abc import Sequence

from foldlog.errors import DirectoryLocked
from foldlog.files.base import Buffer, DirectoryEntry, deleted
from foldlog.files.holder import WriterInfo, format_holder, parse_holder


class FileNode:
    """One file's bytes, under any name. Open handles share it, also after it was unlinked.

    `data` is `bytes` until the first write: many file systems may start from the same bytes without copying them.
    """

    __slots__ = ("data", "is_deleted", "is_locked", "modified_ms")

    def __init__(self, data: bytes | bytearray = b"") -> None:
        self.data = data
        self.modified_ms = time.time_ns() // 1_000_000
        self.is_locked = False
        self.is_deleted = False  # its name is gone

    def writable(self) -> bytearray:
        """The bytes for writing, copied if they are shared. The caller holds the file system's lock."""
        self.modified_ms = time.time_ns() // 1_000_000
        data = self.data
        if isinstance(data, bytes):
            data = self.data = bytearray(data)
        return data


class DirectoryNode:
    """One directory's names."""

    __slots__ = ("modified_ms", "names")

    def __init__(self, names: dict[str, Node] | None = None) -> None:
        self.names: dict[str, Node] = {} if names is None else names
        self.modified_ms = time.time_ns() // 1_000_000


Node = FileNode | DirectoryNode


class MemoryFile:
    """An open file. Any thread may use it: every operation holds the file system's lock for its copy."""

    __slots__ = ("_is_open", "_lock", "_may_write", "node", "path")

    def __init__(self, lock: threading.Lock, path: str, node: FileNode, may_write: bool) -> None:
        self._lock = lock
        self._may_write = may_write
        self._is_open = True
        self.node = node
        self.path = path

    @property
    def sync_descriptor(self) -> int | None:
        return None

    def size(self) -> int:
        self._refuse_closed()
        return len(self.node.data)

    def read(self, position: int, length: int) -> bytes:
        self._refuse_closed()
        with self._lock, memoryview(self.node.data) as view:
            return bytes(view[position : position + length])

    def read_into(self, position: int, buffer: bytearray | memoryview, *, nowait: bool = False) -> int:
        self._refuse_closed()
        # Every view is released before the lock is: a bytearray with a view on it cannot grow.
        with (
            self._lock,
            memoryview(self.node.data) as view,
            memoryview(buffer) as target,
            view[position : position + len(target)] as part,
        ):
            target[: len(part)] = part
            return len(part)

    def write(self, position: int, buffers: Sequence[Buffer]) -> int:
        self._refuse_closed(to_write=True)
        with self._lock:
            data = self.node.writable()
            end = position
            for buffer in buffers:
                flat = buffer.cast("B") if isinstance(buffer, memoryview) else buffer
                if flat and end > len(data):
                    data.extend(bytes(end - len(data)))
                data[end : end + len(flat)] = flat
                end += len(flat)
        return end - position

    def truncate(self, size: int) -> None:
        self._refuse_closed(to_write=True)
        with self._lock:
            data = self.node.writable()
            if size < len(data):
                del data[size:]
            else:
                data.extend(bytes(size - len(data)))

    def sync(self) -> None:
        self._refuse_closed()
        if self.node.is_deleted:
            raise deleted(self.path)

    def close(self) -> None:
        self._is_open = False

    def _refuse_closed(self, *, to_write: bool = False) -> None:
        if not self._is_open or (to_write and not self._may_write):
            raise OSError(errno.EBADF, os.strerror(errno.EBADF), self.path)


class MemoryAllocated:
    """The first `size` bytes of a file. Stores are seen at once by every handle of the file."""

    __slots__ = ("_is_open", "_lock", "_size", "node", "path")

    def __init__(self, lock: threading.Lock, path: str, node: FileNode, size: int) -> None:
        self.path = path
        self._lock = lock
        self._size = size
        self._is_open = True
        self.node = node

    def size(self) -> int:
        self._refuse_closed()
        return self._size

    def load(self, position: int, length: int) -> bytes:
        self._refuse_closed()
        with self._lock, memoryview(self.node.data) as view:
            return bytes(view[position : min(position + length, self._size)])

    def store(self, position: int, data: bytes) -> None:
        self._refuse_closed()
        if position < 0 or position + len(data) > self._size:
            raise IndexError(f"bytes {position} to {position + len(data)} are outside of the {self._size} allocated")
        with self._lock:
            kept = self.node.writable()
            kept.extend(bytes(max(0, position - len(kept))))  # if it was cut short: as a real file does
            kept[position : position + len(data)] = data

    def sync(self) -> None:
        self._refuse_closed()
        if self.node.is_deleted:
            raise deleted(self.path)

    def close(self) -> None:
        self._is_open = False

    def _refuse_closed(self) -> None:
        if not self._is_open:
            raise ValueError("the file is closed")


class MemoryLock:
    """The lock of the directory's one writer, within this file system."""

    __slots__ = ("_file", "_files", "_held", "_held_bytes", "_is_held")

    def __init__(self, files: MemoryFiles, file: MemoryFile) -> None:
        self._files = files
        self._file = file
        self._held: MemoryFile | None = None
        self._held_bytes = 0
        self._is_held = True

    def hold(self, path: str) -> None:
        held = self._files.open(path, write=True)
        if not self._files.lock_node(held.node):
            raise DirectoryLocked(os.path.dirname(path), None, lock_is_gone=True)
        self._let_go_of_held()
        self._held, self._held_bytes = held, held.size()

    def is_in_place(self) -> bool:
        locked = [self._file] if self._held is None else [self._file, self._held]
        if not all(self._files.find(file.path) is file.node for file in locked):
            return False
        size = 0 if self._held is None else self._held.size()
        self._held_bytes, before = max(size, self._held_bytes), self._held_bytes
        return size >= before

    def publish(self, address: str | None) -> None:
        data = format_holder(os.getpid(), address)
        self._file.write(0, [data])
        self._file.truncate(len(data))

    def release(self) -> None:
        self._let_go_of_held()
        if self._is_held:
            self._is_held = False
            self._file.truncate(0)
            self._file.node.is_locked = False

    def _let_go_of_held(self) -> None:
        held, self._held = self._held, None
        if held is not None:
            held.node.is_locked = False


class MemoryFiles:
    """Files that live as long as this object. Nothing survives the process, so `sync` has nothing to do.

    '/data', 'data' and './data' are one path: there is no current directory, and the root always exists.
    Any thread may use it. Errors are the ones PosixFiles raises for the same mistake.
    """

    def __init__(self, root: DirectoryNode | None = None) -> None:
        self.root = DirectoryNode() if root is None else root
        self._lock = threading.Lock()
        self._process_id = os.getpid()

    @property
    def forked(self) -> bool:
        return os.getpid() != self._process_id

    def open(self, path: str, *, write: bool = False, create: bool = False) -> MemoryFile:
        with self._lock:
            return MemoryFile(self._lock, path, self._open_node(path, create), write)

    def create_private(self, path: str) -> None:
        self.open(path, write=True, create=True).truncate(0)  # there are no other users in one process

    def entries(self, directory: str) -> list[DirectoryEntry]:
        with self._lock:
            return [
                DirectoryEntry(name, 0, True, node.modified_ms)
                if isinstance(node, DirectoryNode)
                else DirectoryEntry(name, len(node.data), False, node.modified_ms)
                for name, node in self.directory(directory).names.items()
            ]

    def exists(self, path: str) -> bool:
        with self._lock:
            return self.find(path) is not None

    def make_directory(self, path: str) -> None:
        with self._lock:
            parts = path_parts(path)
            node: Node = self.root
            for depth, name in enumerate(parts):
                if not isinstance(node, DirectoryNode):
                    raise _error(errno.ENOTDIR, path)
                child = node.names.get(name)
                if child is None:
                    child = node.names[name] = DirectoryNode()
                elif isinstance(child, FileNode) and depth == len(parts) - 1:
                    raise _error(errno.EEXIST, path)
                node = child

    def remove_directory(self, path: str) -> None:
        with self._lock:
            parent, name = self.parent(path)
            if self.directory(path).names:
                raise _error(errno.ENOTEMPTY, path)
            del parent.names[name]

    def rename(self, old: str, new: str) -> None:
        with self._lock:
            old_parent, old_name = self.parent(old)
            new_parent, new_name = self.parent(new)
            node = old_parent.names.get(old_name)
            if node is None:
                raise _error(errno.ENOENT, old)
            target = new_parent.names.get(new_name)
            if target is node:
                return
            old_parts, new_parts = path_parts(old), path_parts(new)
            if new_parts[: len(old_parts)] == old_parts:
                raise _error(errno.EINVAL, new)
            if old_parts[: len(new_parts)] == new_parts:
                raise _error(errno.ENOTEMPTY, new)
            if isinstance(node, DirectoryNode):
                if isinstance(target, FileNode):
                    raise _error(errno.ENOTDIR, new)
                if target is not None and target.names:
                    raise _error(errno.ENOTEMPTY, new)
            elif isinstance(target, DirectoryNode):
                raise _error(errno.EISDIR, new)
            if isinstance(target, FileNode):
                target.is_deleted = True
            del old_parent.names[old_name]
            new_parent.names[new_name] = node

    def unlink(self, path: str) -> None:
        with self._lock:
            parent, name = self.parent(path)
            node = parent.names.get(name)
            if node is None:
                raise _error(errno.ENOENT, path)
            if isinstance(node, DirectoryNode):
                raise _error(errno.EISDIR, path)
            node.is_deleted = True
            del parent.names[name]

    def sync_directory(self, path: str) -> None:
        with self._lock:
            self.directory(path)

    def allocate(self, path: str, size: int, *, allocated_bytes: int = 0) -> MemoryAllocated:
        with self._lock:
            node = self._open_node(path, create=True)
            if len(node.data) < size:
                data = node.writable()
                data.extend(bytes(size - len(data)))
            return MemoryAllocated(self._lock, path, node, size)

    def lock(self, path: str) -> MemoryLock:
        file = self.open(path, write=True, create=True)
        if not self.lock_node(file.node):
            holder = parse_holder(bytes(file.node.data))
            raise DirectoryLocked(os.path.dirname(path), holder.pid, holder.address)
        lock = MemoryLock(self, file)
        lock.publish(None)
        return lock

    def lock_node(self, node: FileNode) -> bool:
        """Lock the file; False if it was locked already."""
        with self._lock:
            was_locked, node.is_locked = node.is_locked, True
            return not was_locked

    def lock_holder(self, path: str, held: str | None = None) -> WriterInfo | None:
        with self._lock:
            node = self.find(path)
            if isinstance(node, FileNode) and node.is_locked:
                return parse_holder(bytes(node.data))
            beside = None if held is None else self.find(held)
            return WriterInfo(None) if isinstance(beside, FileNode) and beside.is_locked else None

    def find(self, path: str) -> Node | None:
        """The node at a path, or None. Also for the harness, which keeps its records by node."""
        node: Node = self.root
        for name in path_parts(path):
            if not isinstance(node, DirectoryNode):
                return None
            child = node.names.get(name)
            if child is None:
                return None
            node = child
        return node

    def directory(self, path: str) -> DirectoryNode:
        """The directory at a path; FileNotFoundError or NotADirectoryError."""
        return self._walk(path_parts(path), path)

    def parent(self, path: str) -> tuple[DirectoryNode, str]:
        """The directory that holds a path's last name, and that name."""
        parts = path_parts(path)
        if not parts:
            raise _error(errno.EBUSY, path)
        return self._walk(parts[:-1], path), parts[-1]

    def _walk(self, parts: list[str], path: str) -> DirectoryNode:
        directory = self.root
        for name in parts:
            node = directory.names.get(name)
            if node is None:
                raise _error(errno.ENOENT, path)
            if not isinstance(node, DirectoryNode):
                raise _error(errno.ENOTDIR, path)
            directory = node
        return directory

    def _open_node(self, path: str, create: bool) -> FileNode:
        parent, name = self.parent(path)
        node = parent.names.get(name)
        if isinstance(node, DirectoryNode):
            raise _error(errno.EISDIR, path)
        if node is None:
            if not create:
                raise _error(errno.ENOENT, path)
            node = parent.names[name] = FileNode()
        return node


def path_parts(path: str) -> list[str]:
    """The names along a path. Nothing leads out of the root, as in a real file system."""
    parts: list[str] = []
    for name in path.split("/"):
        if name == "..":
            del parts[-1:]
        elif name not in ("", "."):
            parts.append(name)
    return parts


def _error(number: int, path: str) -> OSError:
    # OSError picks the subclass by the number: FileNotFoundError, IsADirectoryError, ...
    return OSError(number, os.strerror(number), path)
