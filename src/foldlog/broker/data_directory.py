"""Opening a data directory: the lock, the catalog, and the remains of an interrupted change."""

from __future__ import annotations

import errno
import re
import uuid
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from foldlog.broker.kafka_files.directory import refuse_kafka
from foldlog.broker.topics import catalog as catalogs
from foldlog.broker.topics.catalog import CATALOG_NAME, Catalog
from foldlog.broker.topics.directories import Settlement, TopicDirectories, plan_settlement
from foldlog.broker.topics.names import is_partition_directory, partition_directory
from foldlog.errors import (
    CorruptLog,
    DirectoryNotEmpty,
    InvalidArgument,
    LogNotFound,
    MissingCatalog,
    StorageError,
    brief_repr,
)
from foldlog.files.base import DRAFT_SUFFIX, DirectoryEntry, Files, Lock, read_file, replacing, storage_error
from foldlog.files.holder import HOLDER_BYTES_MAX, WriterInfo, is_whole
from foldlog.log.checkpoint import Checkpoint, Slot, is_checkpoint
from foldlog.log.journal.recovery import (
    JournalContents,
    Replayed,
    keep_aside,
    mark_replayed,
    read_journal,
    refuse_missing,
    replay,
)
from foldlog.log.layout import read_layout

LOCK_NAME: Final = ".lock"
CHECKPOINT_NAME: Final = "checkpoint"
PORT_MAX: Final = 65_535
_OWN_NAMES: Final = {
    name + suffix for name in (LOCK_NAME, CHECKPOINT_NAME, CATALOG_NAME) for suffix in ("", DRAFT_SUFFIX)
}
_EMPTY_NAMES: Final = {"lost+found", ".gitkeep", ".keep", ".gitignore", ".DS_Store"}
"""Names in directories that people call empty: a fresh file system has the first."""

_HOST: Final = re.compile(r"[A-Za-z0-9._:%-]+")  # a name, or a number of IPv4 or, with its zone, IPv6
_URL: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+://|kafka:/", re.IGNORECASE)  # a Path has lost one of the slashes


@dataclass(frozen=True, slots=True)
class OpenedDirectory:
    """A data directory that this process writes."""

    lock: Lock
    catalog: Catalog
    settlement: Settlement


def open_for_writing(files: Files, path: str, *, init: bool = False) -> OpenedDirectory:
    """Become the writer; create the directory and its first catalog if there are none. Durable on return.

    Raises DirectoryNotEmpty, with nothing touched, if the directory holds other files, unless `init` asks for a log
    beside them.
    """
    refuse_kafka(files, path)
    seen = _refuse_other_files(files, path, init)
    try:
        _make_directory(files, path)
        lock = files.lock(f"{path}/{LOCK_NAME}")
    except (NotADirectoryError, FileExistsError):
        raise _is_a_file(files, path) from None
    try:
        entries = files.entries(path)
        if all(entry.name != CHECKPOINT_NAME for entry in entries):
            _make_checkpoint(files, path)
        # Locked as well: if the lock file is removed under a writer, this lock still shows that there is one.
        lock.hold(f"{path}/{CHECKPOINT_NAME}")
        catalog = _load_or_start(files, path, entries, seen)
        settlement = plan_settlement(entries, catalog)
        TopicDirectories(files, path).settle(settlement)
    except BaseException:
        lock.release()
        raise
    return OpenedDirectory(lock, catalog, settlement)


def settle_journal(
    files: Files, path: str, catalog: Catalog, checkpoint: Checkpoint
) -> tuple[JournalContents, Replayed]:
    """Write what the journal has acknowledged, and the segments may lack, into the segments. For the directory's
    writer, before it opens a partition. Durable on return; after a clean close it only reads a few headers."""
    directory_id = uuid.UUID(catalog.directory_id).bytes
    contents = read_journal(files, path, directory_id)
    slots = {
        (uuid.UUID(topic.topic_id).bytes, number): (f"{path}/{partition_directory(topic.name, number)}", slot)
        for topic in (catalog.topics.values() if contents.entries or checkpoint.needs_journal else ())
        for number, slot in enumerate(topic.slots)
    }

    def find(topic_id: bytes, number: int) -> tuple[str, Slot] | None:
        found = slots.get((topic_id, number))
        return None if found is None else (found[0], checkpoint.slot(found[1]))

    replayed = replay(files, contents, find, checkpoint.sync)
    for owner, (directory, number) in slots.items():
        try:
            refuse_missing(files, directory, checkpoint.slot(number))
        except CorruptLog as error:
            replayed.refused.setdefault(owner, error)
    if not replayed.refused:
        if contents.damages:
            keep_aside(files, [damage.path for damage in contents.damages])
        mark_replayed(files, contents, directory_id, checkpoint)
    return contents, replayed


def open_for_reading(files: Files, path: str) -> Catalog:
    """The catalog as the writer last stored it. Takes no lock and changes nothing."""
    try:
        return catalogs.load(files, path)
    except NotADirectoryError:
        raise LogNotFound(f"there is no log in {path}: {_nearest(files, path)} is a file") from None
    except FileNotFoundError:
        _refuse_missing_catalog(files, path)
    raise LogNotFound(f"there is no log in {path} to read; open it with mode='w' to make one")


def writer_of(files: Files, path: str) -> WriterInfo | None:
    """The process that holds the directory's lock now, and where it listens; None if there is none.

    For processes that want to write and cannot. It may change at any moment.
    """
    try:
        return files.lock_holder(f"{path}/{LOCK_NAME}", f"{path}/{CHECKPOINT_NAME}")
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
    """Raises InvalidArgument if no log can be at that path."""
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
    """The StorageError for what the system refused, with the file and advice."""
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


def _refuse_other_files(files: Files, path: str, init: bool) -> tuple[bytes, Catalog] | None:
    """Refuse a directory before anything is written, unless it holds a log, remains of an unfinished first open, or
    nothing that matters; with `init` anything, except other files under names that a log needs.

    Returns the catalog, if there is one, with its bytes.
    """
    if files.exists(f"{path}/{CATALOG_NAME}"):
        data = read_file(files, f"{path}/{CATALOG_NAME}")
        catalog = catalogs.decode(data, f"{path}/{CATALOG_NAME}")  # raises if it is something else
        if files.exists(f"{path}/{CHECKPOINT_NAME}"):
            _refuse_newer_checkpoint(files, path)
        return data, catalog
    try:
        entries = files.entries(path)
    except (FileNotFoundError, NotADirectoryError):
        return None
    names = {entry.name for entry in entries}
    _refuse_missing_catalog(files, path)
    for entry in entries:
        if entry.name in (LOCK_NAME, CHECKPOINT_NAME) and not _is_ours(files, path, entry):
            raise DirectoryNotEmpty(path, sorted(names), taken=entry.name)
    others = sorted(names - _OWN_NAMES - _EMPTY_NAMES)
    if others and not init:
        raise DirectoryNotEmpty(path, others)
    return None


def refuse_unmakable(files: Files, path: str) -> None:
    """DirectoryNotEmpty, MissingCatalog, StorageError where no log can be made, asked for or not: so that nobody
    advises it."""
    try:
        files.entries(path)
    except FileNotFoundError:
        pass
    except NotADirectoryError:
        raise _is_a_file(files, path) from None
    _refuse_other_files(files, path, init=True)


def _is_a_file(files: Files, path: str) -> StorageError:
    return StorageError(f"{_nearest(files, path)} is a file; a log needs a directory of its own")


def _nearest(files: Files, path: str) -> str:
    """The path itself, or the last of its parents that there is."""
    while not files.exists(path) and "/" in path.strip("/"):
        path = path.rstrip("/").rpartition("/")[0]
    return path


def _refuse_newer_checkpoint(files: Files, path: str) -> None:
    with suppress(CorruptLog):  # the directory's writer reports it, or sets it aside
        Checkpoint.open(files, f"{path}/{CHECKPOINT_NAME}", write=False).close()


def _is_ours(files: Files, path: str, entry: DirectoryEntry) -> bool:
    """Whether a lock file or a checkpoint without a catalog remains from a first open. A power cut may turn either into
    zeroes."""
    if entry.is_directory:
        return False
    place = f"{path}/{entry.name}"
    file = files.open(place)
    data = file.read(0, HOLDER_BYTES_MAX)
    file.close()
    if entry.name == CHECKPOINT_NAME:
        is_known = is_checkpoint(data)
    else:
        is_known = is_whole(data) or files.lock_holder(place) is not None  # its holder may be just writing it
    return is_known or not data.strip(b"\0")


def _make_directory(files: Files, path: str) -> None:
    """Create the directory and its parents, each name durable: without its directory, the whole log is lost."""
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
    with replacing(files, f"{path}/{CHECKPOINT_NAME}") as draft:
        file = files.open(draft, write=True, create=True)
        file.truncate(0)
        file.close()
        checkpoint = Checkpoint.open(files, draft, write=True)
        checkpoint.sync()
        checkpoint.close()


def _load_or_start(
    files: Files, path: str, entries: list[DirectoryEntry], seen: tuple[bytes, Catalog] | None
) -> Catalog:
    if any(entry.name == CATALOG_NAME for entry in entries):
        data = read_file(files, f"{path}/{CATALOG_NAME}")
        # Decoding thousands of topics takes a tenth of a second: usually it is unchanged since before the lock.
        return seen[1] if seen and seen[0] == data else catalogs.decode(data, f"{path}/{CATALOG_NAME}")
    _refuse_missing_catalog(files, path)
    catalog = Catalog.empty()
    catalogs.store(files, path, catalog)
    return catalog


def _refuse_missing_catalog(files: Files, path: str) -> None:
    """Raise MissingCatalog if there are topics without a catalog: an empty one would hide all their records."""
    try:
        entries = files.entries(path)
    except (FileNotFoundError, NotADirectoryError):
        return
    topics = sorted(
        entry.name
        for entry in entries
        if entry.is_directory
        and is_partition_directory(entry.name)
        and read_layout(files.entries(f"{path}/{entry.name}")).logs
    )
    if topics:
        raise MissingCatalog(f"{path}/{CATALOG_NAME}", topics)
