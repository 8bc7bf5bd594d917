"""What ours is measured against: the disk itself, and what a user would pick instead."""

from __future__ import annotations

import json
import os
import sqlite3
import struct
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import persistqueue

from foldlog.files.base import Allocated, Buffer, DirectoryEntry, File, Lock
from foldlog.files.holder import WriterInfo
from foldlog.files.posix import PosixFile, PosixFiles

_IOV_MAX = 1024


def write_raw(path: Path, pieces: Iterable[Sequence[Buffer]]) -> float:
    """The machine's limit: each piece with writev, then fdatasync. Seconds."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
    try:
        start = time.perf_counter()
        for buffers in pieces:
            for first in range(0, len(buffers), _IOV_MAX):
                os.writev(descriptor, buffers[first : first + _IOV_MAX])
            os.fdatasync(descriptor)
        return time.perf_counter() - start
    finally:
        os.close(descriptor)


class TinyLog:
    """The log of the texts, as they describe it: a length and JSON per record, fsync before append returns."""

    _LENGTH = struct.Struct(">I")

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = threading.Lock()
        path.touch()

    def append(self, record: dict[str, object]) -> int:
        payload = json.dumps(record).encode()
        with self._lock, self._path.open("ab") as file:
            offset = file.tell()
            file.write(self._LENGTH.pack(len(payload)))
            file.write(payload)
            file.flush()
            os.fsync(file.fileno())
        return offset

    def read_from(self, offset: int) -> Iterator[tuple[int, dict[str, object]]]:
        with self._path.open("rb") as file:
            file.seek(offset)
            while len(head := file.read(self._LENGTH.size)) == self._LENGTH.size:
                (length,) = self._LENGTH.unpack(head)
                yield offset, json.loads(file.read(length))
                offset += self._LENGTH.size + length


class SqliteLog:
    """A table with a growing id in WAL mode. synchronous=FULL: a commit is durable, as an append of ours is."""

    def __init__(self, path: Path) -> None:
        self.connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        self.connection.execute("PRAGMA journal_mode=WAL")
        self.connection.execute("PRAGMA synchronous=FULL")
        self.connection.execute(
            "CREATE TABLE log (id INTEGER PRIMARY KEY AUTOINCREMENT, timestamp INTEGER, key BLOB, value BLOB)"
        )

    def append(self, value: bytes) -> None:
        self.connection.execute("INSERT INTO log (timestamp, key, value) VALUES (?, NULL, ?)", (0, value))

    def append_many(self, values: Iterable[bytes]) -> None:
        """One transaction."""
        self.connection.execute("BEGIN")
        self.connection.executemany(
            "INSERT INTO log (timestamp, key, value) VALUES (?, NULL, ?)", ((0, value) for value in values)
        )
        self.connection.execute("COMMIT")

    def read_at(self, number: int) -> bytes:
        found: bytes = self.connection.execute("SELECT value FROM log WHERE id = ?", (number,)).fetchone()[0]
        return found

    def read_all(self) -> int:
        rows = 0
        cursor = self.connection.execute("SELECT id, timestamp, key, value FROM log ORDER BY id")
        while batch := cursor.fetchmany(500):
            rows += len(batch)
        return rows

    def delete_before(self, number: int) -> None:
        self.connection.execute("DELETE FROM log WHERE id < ?", (number,))
        self.connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")

    def close(self) -> None:
        self.connection.close()


def message_queue(path: Path) -> persistqueue.SQLiteAckQueue:
    """persist-queue's acknowledged queue: each put is a transaction."""
    return persistqueue.SQLiteAckQueue(str(path), auto_commit=True, multithreading=True)


class CountingFile:
    """A file that counts its syncs."""

    def __init__(self, file: PosixFile, owner: CountingFiles) -> None:
        self._file = file
        self._owner = owner
        self.sync_descriptor = None  # only `sync` counts
        self.size = file.size
        self.read = file.read
        self.read_into = file.read_into
        self.write = file.write
        self.truncate = file.truncate
        self.close = file.close

    def sync(self) -> None:
        self._file.sync()
        self._owner.count_sync(self._file.path)


class CountingFiles:
    """The real file system, with the data syncs of segments and journals counted."""

    def __init__(self) -> None:
        self._files = PosixFiles()
        self._lock = threading.Lock()
        self.syncs = 0

    def count_sync(self, path: str) -> None:
        if path.endswith(".log") or "/journal/" in path:
            with self._lock:
                self.syncs += 1

    @property
    def forked(self) -> bool:
        return self._files.forked

    def open(self, path: str, *, write: bool = False, create: bool = False) -> File:
        return CountingFile(self._files.open(path, write=write, create=create), self)

    def create_private(self, path: str) -> None:
        self._files.create_private(path)

    def entries(self, directory: str) -> list[DirectoryEntry]:
        return self._files.entries(directory)

    def exists(self, path: str) -> bool:
        return self._files.exists(path)

    def make_directory(self, path: str) -> None:
        self._files.make_directory(path)

    def remove_directory(self, path: str) -> None:
        self._files.remove_directory(path)

    def rename(self, old: str, new: str) -> None:
        self._files.rename(old, new)

    def unlink(self, path: str) -> None:
        self._files.unlink(path)

    def sync_directory(self, path: str) -> None:
        self._files.sync_directory(path)

    def allocate(self, path: str, size: int, *, allocated_bytes: int = 0) -> Allocated:
        return self._files.allocate(path, size, allocated_bytes=allocated_bytes)

    def lock(self, path: str) -> Lock:
        return self._files.lock(path)

    def lock_holder(self, path: str, held: str | None = None) -> WriterInfo | None:
        return self._files.lock_holder(path, held)


class _UnsyncedFile(CountingFile):
    def sync(self) -> None:
        """Left to the one sync at the end."""


class UnsyncedFiles(CountingFiles):
    """For making large logs to read from: nothing is synced one by one. Call os.sync() afterwards."""

    def open(self, path: str, *, write: bool = False, create: bool = False) -> File:
        return _UnsyncedFile(self._files.open(path, write=write, create=create), self)

    def sync_directory(self, path: str) -> None:
        """Left to the one sync at the end."""
