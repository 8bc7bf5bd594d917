"""Batches that tasks have packed and that are not appended yet: one file per task, beside the log they are meant for.

The staging area is the directory `.staged` of a data directory. The log does not look into it: no topic can have that
directory's name.

    .staged/lock                 held while committing; the kernel releases it when the process ends
    .staged/commits.json         commits that are decided, and that are done: see commits.py
    .staged/<job>/<task>.batches
    .staged/kept.<job>/          kept for a person to look at, as a warning has said

A file is a sequence of frames, a batch each (big-endian):

    crc32c  uint32   of everything after it in the frame
    size    uint32   of the batch
    records uint32   in the batch
    number  int32    of the partition
    topic   uint16   length, and then as many bytes of UTF-8
    batch            RecordBatch v2, without producer numbers: these are filled in when it is appended

A file counts only if a commit names it, with its size. So files of tasks that failed, ran twice or were killed do no
harm, and are removed by `remove_leftovers`.
"""

from __future__ import annotations

import re
import time
import uuid
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from struct import Struct
from typing import Final, NamedTuple

from crc32c import crc32c

from foldlog.errors import CorruptLog, DirectoryLocked, StorageError
from foldlog.files.base import Buffer, DirectoryEntry, File, Files, Lock, storage_error
from foldlog.limits import BATCH_BYTES_MAX, STAGED_LEFTOVER_MS, STAGED_LOCK_WAIT_MS, STAGED_WRITE_BYTES

STAGING_NAME: Final = ".staged"
BATCHES_SUFFIX: Final = ".batches"
LOCK_NAME: Final = "lock"
KEPT_PREFIX: Final = "kept."

_CRC: Final = Struct(">I")
_HEAD: Final = Struct(">IIiH")  # after the CRC: size, records, partition, length of the topic
_LOCK_PAUSE_S: Final = 0.05
_SAFE_NAME: Final = re.compile(r"[A-Za-z0-9_-]{1,100}")


class Frame(NamedTuple):
    """One batch, and the partition it goes to."""

    topic: str
    partition: int
    record_count: int
    batch: bytearray


class StagedFile(NamedTuple):
    """A complete and durable file of a task. `name` is relative to the staging area."""

    name: str
    size_bytes: int


class StagingArea:
    """The staging area of one data directory, as one process uses it."""

    def __init__(self, files: Files, directory: str) -> None:
        self._files = files
        self._directory = directory
        self.path = f"{directory}/{STAGING_NAME}"

    def path_of(self, name: str) -> str:
        return f"{self.path}/{name}"

    def begin(self, job: str, task_number: int) -> StagingFile:
        """A new file for one attempt of a task."""
        try:
            self._make()
            if not self._files.exists(self.path_of(job)):
                self._files.make_directory(self.path_of(job))
                self._files.sync_directory(self.path)
            # Attempts of one task may run at the same time, on different hosts.
            name = f"{job}/{task_number:05d}-{uuid.uuid4().hex}{BATCHES_SUFFIX}"
            return StagingFile(self._files, self, name)
        except OSError as error:
            raise storage_error(f"{self.path} cannot be written, where tasks leave their rows", error) from error

    def _make(self) -> None:
        if not self._files.exists(self.path):
            self._files.make_directory(self.path)
            self._files.sync_directory(self._directory)

    @contextmanager
    def committing(self) -> Iterator[None]:
        """Hold this directory's commit lock. Waits if another process holds it; StorageError if that takes long."""
        try:
            self._make()
            lock = self._wait_for_lock()
        except OSError as error:
            raise storage_error(f"{self.path} cannot be written, where commits are noted", error) from error
        try:
            yield
        finally:
            lock.release()

    def _wait_for_lock(self) -> Lock:
        deadline_s = time.monotonic() + STAGED_LOCK_WAIT_MS / 1000
        while True:
            try:
                return self._files.lock(self.path_of(LOCK_NAME))
            except DirectoryLocked as error:
                if time.monotonic() >= deadline_s:
                    raise StorageError(
                        f"process {error.pid or 'unknown'} has been committing rows to {self._directory} for"
                        f" {STAGED_LOCK_WAIT_MS // 60_000} minutes; wait for it, or end it and try again"
                    ) from None
                time.sleep(_LOCK_PAUSE_S)

    def frames(self, staged: StagedFile) -> Iterator[Frame]:
        """The frames of a staged file, in order. One batch is in memory at a time."""
        path = self.path_of(staged.name)
        try:
            file = self._files.open(path)
        except OSError as error:
            raise storage_error(f"{path} cannot be read, which holds rows of a commit", error) from error
        try:
            # Up to the committed size, not to the end of the file: anything after that was not part of the commit.
            position = 0
            while position < staged.size_bytes:
                frame, position = _read_frame(file, path, position)
                yield frame
        finally:
            file.close()

    def remove_job(self, job: str) -> None:
        """Remove all files of a job; what cannot be removed is left to `remove_leftovers`."""
        with suppress(OSError):
            for entry in self._files.entries(self.path_of(job)):
                self._files.unlink(f"{self.path_of(job)}/{entry.name}")
            self._files.remove_directory(self.path_of(job))

    def keep_job(self, job: str) -> None:
        """Keep a job's files for a person to look at. They are never removed."""
        with suppress(OSError):
            self._files.rename(self.path_of(job), self.kept_path(job))

    def kept_path(self, job: str) -> str:
        return self.path_of(KEPT_PREFIX + job)

    def remove_file(self, staged: StagedFile) -> None:
        with suppress(OSError):
            self._files.unlink(self.path_of(staged.name))

    def remove_leftovers(self, needed: Iterable[str], now_ms: int, is_over: Callable[[str], bool]) -> None:
        """Remove the directories of jobs that are over: those for which `is_over` is true, and those in which nothing
        was staged for so long that their processes must be gone. `needed` are never touched."""
        keep = set(needed)
        try:
            entries = self._files.entries(self.path)
        except OSError:
            return
        for entry in entries:
            if not entry.is_directory or entry.name in keep or entry.name.startswith(KEPT_PREFIX):
                continue
            if is_over(entry.name) or self._is_old(entry, now_ms):
                self.remove_job(entry.name)

    def _is_old(self, job: DirectoryEntry, now_ms: int) -> bool:
        try:
            times_ms = [entry.modified_ms for entry in self._files.entries(self.path_of(job.name))]
        except OSError:
            return False
        return now_ms - max(times_ms, default=job.modified_ms) > STAGED_LEFTOVER_MS


class StagingFile:
    """The file of one running attempt of a task. Used by one thread."""

    def __init__(self, files: Files, area: StagingArea, name: str) -> None:
        self._files = files
        self._area = area
        self._name = name
        self._file = files.open(area.path_of(name), write=True, create=True)
        self._size_bytes = 0
        self._waiting: list[Buffer] = []
        self._waiting_bytes = 0

    def add(self, topic: str, partition: int, record_count: int, batch: bytearray) -> None:
        """Add a batch. The file takes ownership of the buffer."""
        name = topic.encode()
        head = _HEAD.pack(len(batch), record_count, partition, len(name)) + name
        crc = crc32c(batch, crc32c(head))
        self._waiting += (_CRC.pack(crc) + head, batch)
        self._waiting_bytes += _CRC.size + len(head) + len(batch)
        if self._waiting_bytes >= STAGED_WRITE_BYTES:
            self._write()

    def finish(self) -> StagedFile:
        """Write and sync. The file and its name are durable on return."""
        try:
            # Before the task reports to Spark: the driver may then decide the commit at once, and decided files have to
            # survive a power cut.
            self._write()
            self._file.sync()
            self._file.close()
            self._files.sync_directory(self._area.path_of(self._name).rpartition("/")[0])
        except OSError as error:
            raise self._cannot_write(error) from error
        return StagedFile(self._name, self._size_bytes)

    def discard(self) -> None:
        """Remove the file of a failed attempt. If the process is killed before, `remove_leftovers` does it."""
        self._file.close()
        self._area.remove_file(StagedFile(self._name, 0))

    def _write(self) -> None:
        try:
            self._size_bytes += self._file.write(self._size_bytes, self._waiting)
        except OSError as error:
            raise self._cannot_write(error) from error
        self._waiting = []
        self._waiting_bytes = 0

    def _cannot_write(self, error: OSError) -> StorageError:
        return storage_error(f"{self._area.path_of(self._name)} could not be written; nothing was appended", error)


def _read_frame(file: File, path: str, position: int) -> tuple[Frame, int]:
    fixed = file.read(position, _CRC.size + _HEAD.size)
    if len(fixed) < _CRC.size + _HEAD.size:
        raise _damaged(path, position, "it ends within a frame")
    (crc,) = _CRC.unpack_from(fixed)
    size_bytes, record_count, partition, topic_bytes = _HEAD.unpack_from(fixed, _CRC.size)
    if size_bytes > BATCH_BYTES_MAX:
        raise _damaged(path, position, "it declares a batch that is too large")
    topic = file.read(position + len(fixed), topic_bytes)
    batch = bytearray(size_bytes)
    at = position + len(fixed) + topic_bytes
    if file.read_into(at, batch) < size_bytes:
        raise _damaged(path, position, "it ends within a frame")
    if crc32c(batch, crc32c(fixed[_CRC.size :] + topic)) != crc:
        raise _damaged(path, position, "its CRC-32C does not match its bytes")
    return Frame(topic.decode(), partition, record_count, batch), at + size_bytes


def _damaged(path: str, position: int, reason: str) -> CorruptLog:
    return CorruptLog(path, position, reason, "restore the file; the rows in it are not in the log yet")


def safe_name(name: str) -> str:
    """A directory name: the name itself if it can be one, else a digest of it.

    >>> safe_name("1f0c-77"), safe_name("../x") == safe_name("../x")
    ('1f0c-77', True)
    """
    return name if _SAFE_NAME.fullmatch(name) else uuid.uuid5(uuid.NAMESPACE_URL, name).hex
