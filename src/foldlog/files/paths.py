"""Paths that users name, outside of a log's directory: queries, reading small files whole, making names durable.

A log writes through `Files`, which tests can replace to cut the power. This is for the rest: configuration, schemas,
keys, and the files and directories of views, which their engines write.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from io import BufferedReader, BufferedWriter
from os import PathLike as PathLike
from typing import Any, Final, NamedTuple

LINK_DRAFT_SUFFIX: Final = ".new"
STORE_MARK: Final = "foldlog.json"
"""What a store of segments has at its top."""

_SHORT_BYTES: Final = 80
_STORE_URL: Final = re.compile(r"(file|s3a?|gc?s|az|azure|abfss?)://", re.IGNORECASE)
_DESCRIPTORS: Final = "/proc/self/fd"
_OTHERS: Final = stat.S_IWGRP | stat.S_IRWXO


class DiskSpace(NamedTuple):
    """Space of the file system that a path is on. `free_bytes` is what this user may still write."""

    size_bytes: int
    free_bytes: int


def as_text(path: Any) -> Any:
    """The text of a path object; anything else unchanged, for a later check to refuse.

    >>> from pathlib import PurePosixPath
    >>> as_text(PurePosixPath("data/log")), as_text(7)
    ('data/log', 7)
    """
    return os.fspath(path) if isinstance(path, PathLike) else path


def absolute(path: str | PathLike[str], base: str = "") -> str:
    """An absolute path, independent of the current directory. Relative paths begin at `base`, if given.

    >>> absolute("views/shop.db", "/srv/pipeline"), absolute("/tmp/shop.db", "/srv/pipeline")
    ('/srv/pipeline/views/shop.db', '/tmp/shop.db')
    """
    return os.path.abspath(os.path.join(base, path))


def is_store_url(text: object) -> bool:
    """Whether a text names a store of objects, and not a directory by its path.

    >>> is_store_url("s3://bucket/logs"), is_store_url("data/s3")
    (True, False)
    """
    return isinstance(text, str) and _STORE_URL.match(text) is not None


def place_of_log(path: str) -> str:
    """An absolute path, or the URL of a store as it is."""
    return path if is_store_url(path) else absolute(path)


def suffix_of(path: str | PathLike[str]) -> str:
    """
    >>> suffix_of("views/shop.db")
    '.db'
    """
    return os.path.splitext(os.fspath(path))[1]


def resolved(path: str) -> str:
    """Absolute, and without links."""
    return os.path.realpath(path)


def exists(path: str) -> bool:
    return os.path.exists(path)


def is_there(path: str) -> bool:
    """Whether something has that name, be it a link that leads nowhere."""
    return os.path.lexists(path)


def is_file(path: str) -> bool:
    return os.path.isfile(path)


def is_directory(path: str) -> bool:
    return os.path.isdir(path)


def is_special(path: str) -> bool:
    """Whether it is a pipe, a socket or a device: opening one may block for ever. False if it cannot be examined."""
    try:
        mode = os.stat(path).st_mode
    except OSError:
        return False
    return not stat.S_ISREG(mode) and not stat.S_ISDIR(mode)


def identity(path: str) -> tuple[int, int]:
    """Distinguishes a file from another one that took its name; raises OSError if there is none."""
    status = os.stat(path)
    return status.st_dev, status.st_ino


def status_of(path: str) -> tuple[int, ...] | None:
    """Differs once the file was written, or another one took its name; None if it cannot be looked at."""
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_mode


def open_to_others(path: str) -> str | None:
    """The mode of a file that others than its owner and group can read, or its group can write, as chmod writes it;
    None if they cannot, or it cannot be looked at."""
    try:
        mode = stat.S_IMODE(os.stat(path).st_mode)
    except OSError:
        return None
    return f"{mode:04o}" if mode & _OTHERS else None


def names_in(directory: str) -> list[str]:
    """In no order. FileNotFoundError, NotADirectoryError where there is no directory."""
    return os.listdir(directory)


def modified_ns(path: str) -> int:
    return os.stat(path).st_mtime_ns


def size_of(path: str) -> int:
    return os.stat(path).st_size


def tree_bytes(path: str) -> int:
    """The size of a file, or of all files below a directory; 0 if there is none. Links inside are not followed."""
    root = os.path.realpath(path)
    if not os.path.isdir(root):
        return os.stat(root).st_size if os.path.exists(root) else 0
    total = 0
    for folder, _, names in os.walk(root):
        for name in names:
            try:
                total += os.lstat(os.path.join(folder, name)).st_size
            except OSError:  # removed meanwhile
                continue
    return total


def disk_space(path: str) -> DiskSpace:
    found = os.statvfs(path)
    return DiskSpace(found.f_blocks * found.f_frsize, found.f_bavail * found.f_frsize)


def read_bytes(path: str | PathLike[str], at_most: int = -1) -> bytes:
    """The whole of a small file, or its first `at_most` bytes."""
    with open(path, "rb") as file:
        return file.read(at_most)


def opened(path: str) -> BufferedReader:
    """Open a file for reading piece by piece; the caller closes it."""
    return open(path, "rb")


def read_text(path: str | PathLike[str], encoding: str = "utf-8") -> str:
    """The text of a file. Raises UnicodeDecodeError, a ValueError, if it is not in that encoding."""
    with open(path, encoding=encoding) as file:
        return file.read()


@contextmanager
def short_path(directory: str) -> Iterator[str]:
    """A path of the directory that a socket's address has room for: the system allows about a hundred bytes."""
    if len(os.fsencode(directory)) <= _SHORT_BYTES or not os.path.isdir(_DESCRIPTORS):
        yield directory
        return
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"{_DESCRIPTORS}/{descriptor}"
    finally:
        os.close(descriptor)


def allow_writers_of(directory: str, path: str) -> None:
    """Let those read and write `path` who may write the directory, and nobody else."""
    mode = os.stat(directory).st_mode
    group = stat.S_IRGRP | stat.S_IWGRP if mode & stat.S_IWGRP else 0
    others = stat.S_IROTH | stat.S_IWOTH if mode & stat.S_IWOTH else 0
    os.chmod(path, stat.S_IRUSR | stat.S_IWUSR | group | others)


def make_parents(path: str) -> None:
    """Create the directories above a file; fine if they exist."""
    os.makedirs(os.path.dirname(path) or ".", exist_ok=True)


def write_secret(path: str, data: bytes) -> None:
    """Durably create a file that only its owner can read. An existing one stays, also if another process makes it
    first."""
    draft = f"{path}.{os.urandom(4).hex()}"
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with open(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(descriptor)
        put_first(draft, path)
    finally:
        os.unlink(draft)


@contextmanager
def unnamed_file(data: bytes) -> Iterator[str]:
    """A path under which this process can open the data, for libraries that take nothing else; they never reach a
    disk where the system has files in memory."""
    if hasattr(os, "memfd_create"):
        descriptor = os.memfd_create("foldlog")
        try:
            os.write(descriptor, data)
            yield f"{_DESCRIPTORS}/{descriptor}"
        finally:
            os.close(descriptor)
        return
    import tempfile

    with tempfile.NamedTemporaryFile() as file:  # which only its owner can read
        file.write(data)
        file.flush()
        yield file.name


def put_first(draft: str, path: str) -> bool:
    """Link a complete file to `path` as well, durably, unless that name is taken; whether it has the name now."""
    try:
        os.link(draft, path)  # unlike a rename, it fails where there is one
    except FileExistsError:
        return False
    sync_directory(os.path.dirname(path))
    return True


def link_or_copy(path: str, to: str) -> None:
    """Have a complete file under a second name, which stays when the first one goes. Where the file system has no such
    names, it is copied. Durable, except for the name.
    """
    try:
        os.link(path, to)
    except OSError:
        import shutil

        shutil.copyfile(path, to)
        sync_file(to)


def replace_link(path: str, target: str) -> None:
    """Have a link point there, durably; at every moment there is the old one or the new."""
    draft = f"{path}{LINK_DRAFT_SUFFIX}"
    if os.path.lexists(draft):
        os.unlink(draft)
    os.symlink(target, draft)
    os.rename(draft, path)
    sync_directory(os.path.dirname(path))


@contextmanager
def written(path: str) -> Iterator[BufferedWriter]:
    """A file to write, on disk on return; not so its name."""
    with open(path, "wb") as file:
        yield file
        sync_open(file)


def sync_open(file: BufferedWriter) -> None:
    """Returns once what was written is on disk; not so the file's name."""
    file.flush()
    os.fsync(file.fileno())


def rename(path: str, to: str) -> None:
    os.rename(path, to)


def remove(path: str) -> None:
    """Remove a file. FileNotFoundError where there is none."""
    os.unlink(path)


def remove_tree(path: str) -> None:
    """Remove a directory with its content. It is renamed first, in one step: half of it under its name would be worse
    than none."""
    import shutil  # slow to import, and seldom needed

    doomed = f"{path}.dropped"
    shutil.rmtree(doomed, ignore_errors=True)
    os.rename(path, doomed)
    sync_directory(os.path.dirname(path))
    shutil.rmtree(doomed)


def discard_tree(path: str) -> None:
    """Remove what can be removed of a directory that nobody names any more."""
    import shutil

    shutil.rmtree(path, ignore_errors=True)


def sync_directory(path: str) -> None:
    """Return once the names in the directory are on disk."""
    _sync(path or ".")


def sync_parent(path: str) -> None:
    """Returns once the name itself is on disk."""
    sync_directory(os.path.dirname(path))


def sync_file(path: str) -> None:
    """Return once the file is on disk; one that was removed meanwhile needs no sync."""
    try:
        _sync(path)
    except FileNotFoundError:
        return


def _sync(path: str) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
