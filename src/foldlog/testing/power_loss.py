"""Files that know what a power cut could do to them.

The fault model: `files/base.py` has the promises, and this is the worst behaviour that still keeps them:

1. A file's bytes and size at its last `sync` are on disk. Of later changes, each 512-byte sector is there in its
   newest form, in any earlier form it had since the sync, not at all, or torn: a mix of two of these forms.
2. A sector is torn between old and new bytes. Bytes of it that were not written keep their value (disks that do
   otherwise exist and no append-only log survives them). In space the file gained since its last sync a torn
   sector may also hold anything: blocks may show what another file left there.
3. The size is chosen independently of the bytes: any size the file had since its last sync, or a sector's end between
   two of them. Bytes below the size that did not reach the disk are zeroes.
4. Names created, removed or renamed since the directory's last `sync_directory` are kept or not, each independently
   and in any combination: journalling file systems keep their order, others do not promise it. A rename is atomic: one
   name or the other, never both, never neither. A file whose name is lost is lost with it, synced or not.
5. A store into an allocated file is an unsynced write from the moment it is made, and `Allocated.sync` a sync of it.
6. A sync that fails leaves its changes visible and clean but not on disk, and a later sync does not write them again
   (`fail_next_sync`). Only what is written after it reaches the disk. Or all of it is on disk, and the writer hears of
   an error all the same (`reaches_disk`): it must not count on either.
7. Nothing that was on disk and is not being written changes: bit rot is tested elsewhere.

Not modelled: reordering across a completed sync (a drive that lies), and time.
"""

from __future__ import annotations

import errno
import os
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import Enum

from foldlog.files.base import Buffer, DirectoryEntry
from foldlog.files.holder import WriterInfo
from foldlog.files.memory import DirectoryNode, FileNode, MemoryAllocated, MemoryFile, MemoryFiles, MemoryLock, Node
from foldlog.testing.disk_image import DiskImage, Tree

__all__ = ["SECTOR_BYTES", "DiskImage", "Fate", "PowerLossFiles", "Tree"]

SECTOR_BYTES = 512


class Fate(Enum):
    """What happens to one unsynced change."""

    DROPPED = "dropped"
    KEPT = "kept"
    EARLIER = "as it was earlier"
    TORN = "torn"


@dataclass(slots=True)
class _FileBooks:
    """What one file has on disk, and every form its sectors and its size had since."""

    synced: bytes = b""
    sectors: dict[int, list[bytes]] = field(default_factory=dict)
    sizes: list[int] = field(default_factory=list)
    lost_sync: bool = False  # a sync failed: the live bytes are no longer what a sync puts on disk


@dataclass(frozen=True, slots=True)
class _NameChange:
    """A name added (`old` None), removed (`new` None) or moved. Each side is (directory, name)."""

    node: Node
    old: tuple[DirectoryNode, str] | None
    new: tuple[DirectoryNode, str] | None

    def directory(self) -> DirectoryNode:
        """The directory whose sync makes it durable: for a move, the target's."""
        side = self.new or self.old
        assert side is not None
        return side[0]


@dataclass(frozen=True, slots=True)
class Unsynced:
    """One unit that a cut decides about: a sector of a file, its size, or a change of names."""

    file: FileNode | None
    sector: int  # -1: the size
    name_change: _NameChange | None = None


class PowerLossFiles:
    """A file system in memory that can produce, at any moment, what a power cut could leave on disk.

    For one thread. `on_operation` is called after each operation that changes anything, syncs included; the cut is
    simulated there, while the code under test is in the middle of its work.
    """

    def __init__(self, image: DiskImage | None = None) -> None:
        self.operation = 0
        self.last_operation = "nothing"
        self.on_operation: Callable[[], None] = lambda: None
        self._live = image.files() if image else MemoryFiles()
        self._books: dict[FileNode, _FileBooks] = {}
        self._synced_names: dict[DirectoryNode, dict[str, Node]] = {}
        self._name_changes: list[_NameChange] = []
        self._failing_syncs: list[bool] = []
        self._adopt(self._live.root)

    @property
    def forked(self) -> bool:
        return self._live.forked

    def fail_next_sync(self, *, reaches_disk: bool = False) -> None:
        """The next file sync raises EIO and does not write its changes, or does (6 in the fault model)."""
        self._failing_syncs.append(reaches_disk)

    # Files

    def open(self, path: str, *, write: bool = False, create: bool = False) -> PowerLossFile:
        is_new = create and not self._live.exists(path)
        file = self._live.open(path, write=write, create=create)
        if is_new:
            self._note_new(path, file.node)
        return PowerLossFile(self, file)

    def create_private(self, path: str) -> None:
        self.open(path, write=True, create=True).truncate(0)

    def entries(self, directory: str) -> list[DirectoryEntry]:
        return self._live.entries(directory)

    def exists(self, path: str) -> bool:
        return self._live.exists(path)

    def make_directory(self, path: str) -> None:
        parts = path.split("/")
        for depth in range(1, len(parts) + 1):
            step = "/".join(parts[:depth])
            if step and not self._live.exists(step):
                self._live.make_directory(step)
                self._note_new(step, self._live.directory(step))
        self._live.make_directory(path)

    def remove_directory(self, path: str) -> None:
        parent, name = self._live.parent(path)
        node = parent.names.get(name)
        self._live.remove_directory(path)
        assert node is not None
        self._name_changes.append(_NameChange(node, (parent, name), None))
        self._done("remove_directory", path)

    def rename(self, old: str, new: str) -> None:
        old_side, new_side = self._live.parent(old), self._live.parent(new)
        node = old_side[0].names.get(old_side[1])
        self._live.rename(old, new)
        assert node is not None
        self._name_changes.append(_NameChange(node, old_side, new_side))
        self._done("rename", f"{old} to {new}")

    def unlink(self, path: str) -> None:
        parent, name = self._live.parent(path)
        node = parent.names.get(name)
        self._live.unlink(path)
        assert node is not None
        self._name_changes.append(_NameChange(node, (parent, name), None))
        self._done("unlink", path)

    def sync_directory(self, path: str) -> None:
        directory = self._live.directory(path)
        mine = [change for change in self._name_changes if change.directory() is directory]
        _apply(mine, self._synced_names)
        self._name_changes = [change for change in self._name_changes if change.directory() is not directory]
        self._forget_nameless()
        self._done("sync_directory", path)

    def allocate(self, path: str, size: int, *, allocated_bytes: int = 0) -> PowerLossAllocated:
        is_new = not self._live.exists(path)
        allocated = self._live.allocate(path, size, allocated_bytes=allocated_bytes)
        if is_new:
            self._note_new(path, allocated.node)
        if len(allocated.node.data) != self._last_size(allocated.node):
            self._books[allocated.node].sizes.append(len(allocated.node.data))
            self._done("allocate", path)
        return PowerLossAllocated(self, path, allocated)

    def lock(self, path: str) -> MemoryLock:
        """The name of the lock file is a change like any other; its contents are lost with its holder."""
        is_new = not self._live.exists(path)
        lock = self._live.lock(path)
        node = self._live.find(path)
        if is_new and isinstance(node, FileNode):
            self._note_new(path, node)
        return lock

    def lock_holder(self, path: str, held: str | None = None) -> WriterInfo | None:
        return self._live.lock_holder(path, held)

    # Bookkeeping

    def _done(self, verb: str, what: str) -> None:
        self.operation += 1
        self.last_operation = f"{verb} {what}"
        self.on_operation()

    def _adopt(self, directory: DirectoryNode) -> None:
        """Mark everything that exists now as on disk."""
        self._synced_names[directory] = dict(directory.names)
        for node in directory.names.values():
            if isinstance(node, DirectoryNode):
                self._adopt(node)
            else:
                self._books[node] = _FileBooks(bytes(node.data))

    def _note_new(self, path: str, node: Node) -> None:
        if isinstance(node, FileNode):
            self._books[node] = _FileBooks()
        else:
            self._synced_names[node] = {}
        self._name_changes.append(_NameChange(node, None, self._live.parent(path)))
        self._done("create", path)

    def _last_size(self, node: FileNode) -> int:
        books = self._books[node]
        return books.sizes[-1] if books.sizes else len(books.synced)

    def _forget_nameless(self) -> None:
        """Files that no cut can restore need no records."""
        named = {node for names in self._synced_names.values() for node in names.values()}
        named.update(node for directory in self._synced_names for node in directory.names.values())
        named.update(change.node for change in self._name_changes)
        for node in [node for node in self._books if node not in named]:
            del self._books[node]

    def note_write(self, path: str, node: FileNode, position: int, length: int) -> None:
        books = self._books.setdefault(node, _FileBooks())
        for sector in range(position // SECTOR_BYTES, (position + length + SECTOR_BYTES - 1) // SECTOR_BYTES):
            form = bytes(node.data[sector * SECTOR_BYTES : (sector + 1) * SECTOR_BYTES])
            books.sectors.setdefault(sector, []).append(form)
        if len(node.data) != self._last_size(node):
            books.sizes.append(len(node.data))
        self._done("write", f"{length} bytes at {position} of {path}")

    def note_truncate(self, path: str, node: FileNode, old_size: int) -> None:
        books = self._books.setdefault(node, _FileBooks())
        size = len(node.data)
        for sector in range(size // SECTOR_BYTES, (old_size + SECTOR_BYTES - 1) // SECTOR_BYTES):
            form = bytes(node.data[sector * SECTOR_BYTES : (sector + 1) * SECTOR_BYTES])
            books.sectors.setdefault(sector, []).append(form)
        if size != self._last_size(node):
            books.sizes.append(size)
        self._done("truncate", f"{path} to {size}")

    def note_sync(self, path: str, node: FileNode) -> None:
        books = self._books.setdefault(node, _FileBooks())
        is_failing = bool(self._failing_syncs)
        if is_failing and not self._failing_syncs.pop(0):
            books.sectors.clear()
            books.lost_sync = True
            self._done("fail to sync", path)
            raise OSError(errno.EIO, os.strerror(errno.EIO), path)
        if books.lost_sync:
            newest = {sector: forms[-1] for sector, forms in books.sectors.items()}
            books.synced = _overlay(books.synced, len(node.data), newest)
        elif books.sectors or books.sizes:
            books.synced = bytes(node.data)
        books.sectors.clear()
        books.sizes.clear()
        self._done("fail to sync" if is_failing else "sync", path)
        if is_failing:
            raise OSError(errno.EIO, os.strerror(errno.EIO), path)

    # Images

    def unsynced(self) -> list[Unsynced]:
        """The units that a cut would decide about now, in a fixed order."""
        units: list[Unsynced] = []
        for node, books in self._books.items():
            units += [Unsynced(node, sector) for sector in books.sectors]
            if books.sizes:
                units.append(Unsynced(node, -1))
        units += [Unsynced(None, -1, change) for change in self._name_changes]
        return units

    def image(self, fates: Sequence[Fate], rng: random.Random) -> DiskImage:
        """The disk after a cut now, with a fate for each of `unsynced()`; `rng` decides how sectors are torn."""
        sectors: dict[FileNode, dict[int, bytes]] = {}
        sizes: dict[FileNode, int] = {}
        changes: list[_NameChange] = []
        for unit, fate in zip(self.unsynced(), fates, strict=True):
            if unit.name_change is not None:
                if fate is not Fate.DROPPED:
                    changes.append(unit.name_change)
            elif fate is Fate.DROPPED or unit.file is None:
                continue
            elif unit.sector < 0:
                sizes[unit.file] = _choose_size(self._books[unit.file], fate, rng)
            else:
                form = _choose_form(self._books[unit.file], unit.sector, fate, rng)
                sectors.setdefault(unit.file, {})[unit.sector] = form
        names = self._synced_names
        if changes:
            touched = {side[0] for change in changes for side in (change.old, change.new) if side is not None}
            names = {**names, **{directory: dict(names[directory]) for directory in touched}}
            _apply(changes, names)
        return DiskImage(self._read_tree(self._live.root, names, sectors, sizes))

    def _read_tree(
        self,
        directory: DirectoryNode,
        names: dict[DirectoryNode, dict[str, Node]],
        sectors: dict[FileNode, dict[int, bytes]],
        sizes: dict[FileNode, int],
    ) -> dict[str, Tree]:
        tree: dict[str, Tree] = {}
        for name, node in names[directory].items():
            if isinstance(node, DirectoryNode):
                tree[name] = self._read_tree(node, names, sectors, sizes)
            else:
                synced = self._books[node].synced
                chosen = sectors.get(node, {})
                size = sizes.get(node, len(synced))
                tree[name] = _overlay(synced, size, chosen) if chosen or size != len(synced) else synced
        return tree

    def describe(self, unit: Unsynced) -> str:
        """One unsynced change in words, for the report of a failure."""
        if unit.name_change is not None:
            sides = [
                f"{self._path_of(side[0])}/{side[1]}" for side in (unit.name_change.old, unit.name_change.new) if side
            ]
            if len(sides) == 2:
                return f"rename {' to '.join(sides)}"
            return f"{'create' if unit.name_change.new else 'remove'} {sides[0]}"
        assert unit.file is not None
        return f"{self._path_of(unit.file)} " + (f"sector {unit.sector}" if unit.sector >= 0 else "size")

    def _path_of(self, node: Node) -> str:
        for directory, names in [*self._synced_names.items(), *((one, one.names) for one in self._synced_names)]:
            for name, child in names.items():
                if child is node:
                    return f"{self._path_of(directory)}/{name}"
        return "" if node is self._live.root else "(a removed file)"


def _apply(changes: Sequence[_NameChange], names: dict[DirectoryNode, dict[str, Node]]) -> None:
    """Apply some of the changes, in order. If one depends on another that is missing, it includes that step."""
    for change in changes:
        if change.old is not None:
            directory, name = change.old
            if change.new is None:
                if names[directory].get(name) is change.node:
                    del names[directory][name]
                continue
            # A move takes the file from whatever name it has: that makes it atomic.
            for held in [held for held, node in names[directory].items() if node is change.node]:
                del names[directory][held]
        if change.new is not None:
            directory, name = change.new
            names[directory][name] = change.node


def _overlay(synced: bytes, size: int, sectors: dict[int, bytes]) -> bytes:
    data = bytearray(synced[:size])
    if len(data) < size:
        data.extend(bytes(size - len(data)))
    for sector, form in sectors.items():
        start = sector * SECTOR_BYTES
        part = form.ljust(SECTOR_BYTES, b"\0")[: max(0, size - start)]
        data[start : start + len(part)] = part
    return bytes(data)


def _choose_size(books: _FileBooks, fate: Fate, rng: random.Random) -> int:
    if fate is Fate.KEPT:
        return books.sizes[-1]
    sizes = [len(books.synced), *books.sizes]
    if fate is Fate.EARLIER:
        return rng.choice(sizes)
    at = rng.randrange(len(sizes) - 1)
    low, high = sorted(sizes[at : at + 2])
    return min(high, (low + rng.randrange(high - low + 1)) // SECTOR_BYTES * SECTOR_BYTES + SECTOR_BYTES)


def _choose_form(books: _FileBooks, sector: int, fate: Fate, rng: random.Random) -> bytes:
    forms = books.sectors[sector]
    if fate is Fate.KEPT:
        return forms[-1]
    start = sector * SECTOR_BYTES
    forms = [books.synced[start : start + SECTOR_BYTES], *forms]
    if fate is Fate.EARLIER:
        return rng.choice(forms)
    at = rng.randrange(len(forms) - 1)
    old, new = (form.ljust(SECTOR_BYTES, b"\0") for form in forms[at : at + 2])
    return _tear(old, new, fresh_from=len(books.synced) - start, rng=rng)


def _tear(old: bytes, new: bytes, fresh_from: int, rng: random.Random) -> bytes:
    """A mix of two forms of a sector. From `fresh_from` on the file is new, and may contain anything."""
    # Cut between the first and the last byte that differ: elsewhere a tear would have no effect.
    differing = [at for at in range(SECTOR_BYTES) if old[at] != new[at]]
    if not differing:
        return new
    cut = rng.randint(differing[0] + 1, differing[-1] + 1)
    kind = rng.randrange(4)
    if kind == 0:
        return new[:cut] + old[cut:]
    if kind == 1:
        return old[:cut] + new[cut:]
    if kind == 2 and fresh_from < SECTOR_BYTES:
        start = max(fresh_from, 0)
        return new[:start] + rng.randbytes(SECTOR_BYTES - start)
    mask = rng.getrandbits(SECTOR_BYTES)
    return bytes(new[at] if mask >> at & 1 else old[at] for at in range(SECTOR_BYTES))


class PowerLossFile:
    """An open file of PowerLossFiles."""

    def __init__(self, owner: PowerLossFiles, file: MemoryFile) -> None:
        self._owner = owner
        self._file = file
        self.path = file.path
        self.size = file.size
        self.read = file.read
        self.sync_descriptor = None  # only `sync` keeps the records
        self.read_into = file.read_into
        self.close = file.close

    def write(self, position: int, buffers: Sequence[Buffer]) -> int:
        count = self._file.write(position, buffers)
        self._owner.note_write(self.path, self._file.node, position, count)
        return count

    def truncate(self, size: int) -> None:
        old_size = len(self._file.node.data)
        self._file.truncate(size)
        self._owner.note_truncate(self.path, self._file.node, old_size)

    def sync(self) -> None:
        self._file.sync()
        self._owner.note_sync(self.path, self._file.node)


class PowerLossAllocated:
    """An allocated file of PowerLossFiles."""

    def __init__(self, owner: PowerLossFiles, path: str, allocated: MemoryAllocated) -> None:
        self._owner = owner
        self._path = path
        self._file = allocated
        self.size = allocated.size
        self.load = allocated.load
        self.close = allocated.close

    def store(self, position: int, data: bytes) -> None:
        self._file.store(position, data)
        self._owner.note_write(self._path, self._file.node, position, len(data))

    def sync(self) -> None:
        self._file.sync()
        self._owner.note_sync(self._path, self._file.node)
