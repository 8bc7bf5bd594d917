"""Opening a data directory: the lock, the catalog, and what an interrupted change left behind."""

from __future__ import annotations

import errno
import re
from dataclasses import dataclass
from typing import Final

from foldlog.broker import catalog as catalogs
from foldlog.broker.catalog import CATALOG_NAME, Catalog
from foldlog.broker.kafka_directory import refuse_kafka
from foldlog.broker.topic_directories import Settlement, TopicDirectories, plan_settlement
from foldlog.broker.topic_names import is_partition_directory
from foldlog.errors import InvalidArgument, LogNotFound, MissingCatalog, StorageError, brief_repr
from foldlog.files.base import Entry, Files, Lock, storage_error
from foldlog.files.holder import WriterInfo
from foldlog.log.checkpoint import Checkpoint

LOCK_NAME: Final = ".lock"
CHECKPOINT_NAME: Final = "checkpoint"
PORT_MAX: Final = 65_535
_HOST: Final = re.compile(r"[A-Za-z0-9._:%-]+")  # a name, or a number of IPv4 or, with its zone, IPv6
_URL: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+://|kafka:/", re.IGNORECASE)  # a Path has lost one of the slashes


@dataclass(frozen=True, slots=True)
class OpenedDirectory:
    """A data directory that this process writes."""

    lock: Lock
    catalog: Catalog
    settlement: Settlement


def open_for_writing(files: Files, path: str) -> OpenedDirectory:
    """Become the writer; make the directory and its first catalog if there are none. Durable on return."""
    refuse_kafka(files, path)
    try:
        _make_directory(files, path)
        lock = files.lock(f"{path}/{LOCK_NAME}")
    except (NotADirectoryError, FileExistsError):
        raise StorageError(f"{path} is a file; a log needs a directory of its own") from None
    try:
        entries = files.entries(path)
        if all(entry.name != CHECKPOINT_NAME for entry in entries):
            _make_checkpoint(files, path)
        catalog = _load_or_start(files, path, entries)
        settlement = plan_settlement(entries, catalog)
        TopicDirectories(files, path).settle(settlement)
    except BaseException:
        lock.release()
        raise
    return OpenedDirectory(lock, catalog, settlement)


def open_for_reading(files: Files, path: str) -> Catalog:
    """The catalog as the writer last left it. Takes no lock and changes nothing."""
    try:
        return catalogs.load(files, path)
    except (FileNotFoundError, NotADirectoryError):
        _refuse_missing_catalog(files, path)
    raise LogNotFound(f"there is no log in {path} to read; open it with mode='w' to make one")


def writer_of(files: Files, path: str) -> WriterInfo | None:
    """The process that writes the directory now, and where it listens if it does; None if nobody does.

    For processes that want to write and find that they cannot. What is told may be over the moment it is told.
    """
    try:
        return files.lock_holder(f"{path}/{LOCK_NAME}")
    except OSError as error:
        raise storage_error(f"it cannot be told who writes {path}", error) from error


def address_text(host: object, port: object) -> str:
    """
    >>> address_text("127.0.0.1", 9092), address_text("::1", 9092)
    ('127.0.0.1:9092', '[::1]:9092')
    """
    if not isinstance(host, str) or not _HOST.fullmatch(host):
        raise InvalidArgument(f"host={brief_repr(host)} is not the name or number of a host")
    if type(port) is not int or not 1 <= port <= PORT_MAX:
        raise InvalidArgument(f"port={brief_repr(port)} is not allowed; it is an integer from 1 to {PORT_MAX}")
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def check_path(path: object) -> None:
    """InvalidArgument if no log can be there."""
    if not isinstance(path, str):
        raise InvalidArgument(f"the path of a log is text or a Path, not {brief_repr(path)}")
    if _URL.match(path):
        raise InvalidArgument(_not_a_directory(path))
    if not path:
        raise InvalidArgument("the path of a log cannot be empty; use '.' for the current directory")
    try:
        names_a_file = "\0" not in path and bool(path.encode("utf-8", "surrogateescape"))
    except UnicodeEncodeError:
        names_a_file = False
    if not names_a_file:
        raise InvalidArgument(f"{brief_repr(path)} holds a character that no file name can have")


def _not_a_directory(url: str) -> str:
    scheme, _, rest = url.partition("?")[0].partition(":")
    shown = f"{scheme}://{rest.lstrip('/').rpartition('@')[2]}"  # users and properties may hold a password
    if scheme.lower() != "kafka":
        return f"{brief_repr(shown)} is a URL and no directory; give the path of one"
    return (
        f"{brief_repr(shown)} is a cluster's; use foldlog.connect({brief_repr(shown)}), or -b on the command line,"
        " where -d names a directory"
    )


def cannot_open(path: str, mode: str, error: OSError) -> StorageError:
    """What the system said, and of which file, as an error of ours."""
    about = error.filename or path
    if isinstance(error, IsADirectoryError):
        return StorageError(f"{about} is a directory where the log has a file of its own; move it away")
    if isinstance(error, PermissionError):
        advice = "change its permissions, or open the log with mode='r'" if mode == "w" else "change its permissions"
        return StorageError(f"the log in {path} cannot be opened: {about} is not this process's to use; {advice}")
    if error.errno == errno.EROFS:
        advice = "mount it for writing, or open the log with mode='r'" if mode == "w" else "mount it for writing"
        return StorageError(f"the log in {path} cannot be opened: {about} is on a read-only file system; {advice}")
    reason = OSError(error.errno, error.strerror) if error.strerror else error  # which names the file once more
    what = f"the log in {path} cannot be opened: the system refuses {about}; check the path, and the disk it is on"
    return storage_error(what, reason)


def _make_directory(files: Files, path: str) -> None:
    """The directory with its parents, each name durable: a log whose own directory vanished would be lost whole."""
    made: list[str] = []
    ancestor = path
    while ancestor and not files.exists(ancestor):
        made.append(ancestor)
        ancestor = ancestor.rpartition("/")[0]
    files.make_directory(path)
    for directory in reversed(made):
        files.sync_directory(directory.rpartition("/")[0] or ("/" if directory.startswith("/") else "."))


def _make_checkpoint(files: Files, path: str) -> None:
    """An empty checkpoint, whole before it has its name: half of one would be taken for somebody else's file."""
    draft = f"{path}/{CHECKPOINT_NAME}.tmp"
    file = files.open(draft, write=True, create=True)
    file.truncate(0)
    file.close()
    checkpoint = Checkpoint.open(files, draft, write=True)
    checkpoint.sync()
    checkpoint.close()
    files.rename(draft, f"{path}/{CHECKPOINT_NAME}")
    files.sync_directory(path)


def _load_or_start(files: Files, path: str, entries: list[Entry]) -> Catalog:
    if any(entry.name == CATALOG_NAME for entry in entries):
        return catalogs.load(files, path)
    _refuse_missing_catalog(files, path)
    catalog = Catalog.empty()
    catalogs.store(files, path, catalog)
    return catalog


def _refuse_missing_catalog(files: Files, path: str) -> None:
    """Topics without a catalog are a log that lost it: to start an empty one over them would hide all their records."""
    try:
        entries = files.entries(path)
    except (FileNotFoundError, NotADirectoryError):
        return
    topics = sorted(
        entry.name
        for entry in entries
        if entry.is_directory
        and is_partition_directory(entry.name)
        and any(inner.name.endswith(".log") for inner in files.entries(f"{path}/{entry.name}"))
    )
    if topics:
        raise MissingCatalog(f"{path}/{CATALOG_NAME}", topics)
