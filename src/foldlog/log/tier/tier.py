"""The store of a directory, and what all its partitions share of it: cache, opened segments, chunks of manifests."""

from __future__ import annotations

import threading
import uuid
from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
from typing import Final, Generic, TypeVar

from crc32c import crc32c

from foldlog.errors import StoreError, WrongProcess
from foldlog.files.base import Buffer, Files
from foldlog.files.objects import ObjectStore, open_store, retried
from foldlog.limits import TIER_CACHE_BYTES
from foldlog.log.segment import INDEX_SUFFIX, TIME_INDEX_SUFFIX, Segment
from foldlog.log.tier.cache import BLOCK_BYTES, BlockCache
from foldlog.log.tier.format import FOOTER_BYTES, Section, StoredSegment
from foldlog.log.tier.standing import TierCounts

Kept = TypeVar("Kept")

_SEGMENTS_MAX: Final = 32
"""Opened segments: each holds its indexes, 3 MB for 1 GiB of batches."""

_CHUNKS_MAX: Final = 16
_BESIDE: Final = ("offset_index", "time_index", "aborted", "snapshot", "epochs")
"""The sections of an object behind its batches, in order."""


class Recent(Generic[Kept]):
    """The values that were asked for last, by key. Any thread."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._lock = threading.Lock()
        self._kept: OrderedDict[Hashable, Kept] = OrderedDict()

    def __len__(self) -> int:
        return len(self._kept)

    def get(self, key: Hashable, make: Callable[[], Kept]) -> Kept:
        with self._lock:
            found = self._kept.get(key)
            if found is not None:
                self._kept.move_to_end(key)
                return found
        made = make()  # not under the lock: it asks the store
        with self._lock:
            self._kept[key] = made
            while len(self._kept) > self._limit:
                self._kept.popitem(last=False)
        return made

    def forget(self, key: Hashable) -> None:
        with self._lock:
            self._kept.pop(key, None)


class Tier:
    """The store of one directory. Any thread. Nothing is asked of the store before it is needed."""

    def __init__(
        self, url: str, files: Files, cache_bytes: int = TIER_CACHE_BYTES, store: ObjectStore | None = None
    ) -> None:
        self.store: ObjectStore = open_store(url, files) if store is None else store
        self.counts = TierCounts()
        self.cache = BlockCache(cache_bytes, self.counts)
        self.writer: Final = uuid.uuid4().bytes
        """Which process wrote a manifest: an answer that got lost is told from another writer by it."""
        self.segments: Recent[TieredSegment] = Recent(_SEGMENTS_MAX)
        self.chunks: Recent[tuple[StoredSegment, ...]] = Recent(_CHUNKS_MAX)
        self._files = files

    @property
    def url(self) -> str:
        return self.store.url

    def refuse_forked(self) -> None:
        """In a forked child the client of the store has no threads left, and would wait for ever."""
        if self._files.forked:
            raise WrongProcess(f"{self.url} was opened before a fork; open the log again in this process")

    def read(self, key: str, start: int, length: int) -> bytes:
        """Exactly these bytes of an object. Raises StoreError if there are fewer, after some tries."""
        self.refuse_forked()

        def ask() -> bytes:
            try:
                data = self.store.read(key, start, length)
            except StoreError:
                self.counts.add(reads=1, read_failures=1)
                raise
            self.counts.add(reads=1, read_bytes=len(data))
            if len(data) != length:
                raise StoreError(
                    f"{self.url}/{key} gave {len(data)} of {length} bytes at {start}; the object or the answer is cut"
                )
            return data

        return retried(ask)

    def close(self) -> None:
        self.cache.close()
        self.store.close()


class TieredFile:
    """The batches of a segment in the store, as a file. Read only, through the cache."""

    sync_descriptor = None

    def __init__(self, tier: Tier, key: str, size: int, at_end: Callable[[], object]) -> None:
        """`at_end`: called, on a thread of its own, once a reader who came from before has reached the last block."""
        self._tier = tier
        self._key = key
        self._size = size
        self._at_end: Callable[[], object] | None = at_end

    def size(self) -> int:
        return self._size

    def read(self, position: int, length: int) -> bytes:
        end = min(position + length, self._size)
        parts = list(self._parts(position, end))
        return bytes(parts[0]) if len(parts) == 1 else b"".join(parts)

    def read_into(self, position: int, buffer: bytearray | memoryview, *, nowait: bool = False) -> int:
        view = memoryview(buffer)
        end, at = min(position + len(view), self._size), 0
        for part in self._parts(position, end):
            view[at : at + len(part)] = part
            at += len(part)
        return at

    def _parts(self, position: int, end: int) -> list[memoryview]:
        found: list[memoryview] = []
        while position < end:
            number, at = divmod(position, BLOCK_BYTES)
            data = memoryview(self._block(number))[at : at + end - position]
            found.append(data)
            position += len(data)
        return found

    def _block(self, number: int) -> bytes:
        cache = self._tier.cache
        goes_on = number == 0 or cache.has((self._key, number - 1))
        data = cache.get((self._key, number), lambda: self._load(number))
        if goes_on and (number + 1) * BLOCK_BYTES < self._size:
            cache.ahead((self._key, number + 1), lambda: self._load(number + 1))
        elif goes_on and number:
            at_end, self._at_end = self._at_end, None
            if at_end is not None:
                cache.later(at_end)
        return data

    def begin(self) -> None:
        """Load the first block: a reader is about to come."""
        self._block(0)

    def _load(self, number: int) -> bytes:
        start = number * BLOCK_BYTES
        return self._tier.read(self._key, start, min(BLOCK_BYTES, self._size - start))

    def write(self, position: int, buffers: Sequence[Buffer]) -> int:
        raise TypeError("a segment in the store is never written")

    def truncate(self, size: int) -> None:
        raise TypeError("a segment in the store is never written")

    def sync(self) -> None:
        return

    def close(self) -> None:
        return


class TieredSegment(Segment):
    """A segment in the store. It is read as those on the disk are: what an index points to is verified, and so is
    every batch."""

    __slots__ = ("_entry", "_file", "_key", "_sections", "_tier")

    def __init__(
        self, tier: Tier, prefix: str, entry: StoredSegment, files: Files, at_end: Callable[[], object]
    ) -> None:
        super().__init__(files, tier.url, entry.base_offset, entry.batches.size, writable=False)
        self._tier = tier
        self._entry = entry
        self._key = prefix + entry.name
        self._file = TieredFile(tier, self._key, entry.batches.size, at_end)
        self._sections: dict[str, bytes] = {}

    @property
    def log_path(self) -> str:
        return f"{self._tier.url}/{self._key}"

    def log(self) -> TieredFile:
        return self._file

    def release_file(self) -> None:
        """Nothing is open."""

    def _read_index(self, suffix: str) -> bytes:
        name = {INDEX_SUFFIX: "offset_index", TIME_INDEX_SUFFIX: "time_index"}[suffix]
        data = self.section(name)
        self._sections.pop(name, None)  # an index is parsed once, and its bytes are not needed again
        return data

    def section(self, name: str) -> bytes:
        """A section of the object, checked. Raises StoreError if its bytes are wrong, after some tries.

        The first that is asked for brings all of them, which stand one behind the other: a request costs more than some
        kilobytes.
        """
        found = self._sections.get(name)
        if found is None:
            sections = retried(self._read_sections)
            found = sections[name]
            self._sections = {kept: data for kept, data in sections.items() if kept != "snapshot"}
        return found

    def _read_sections(self) -> dict[str, bytes]:
        entry = self._entry
        start = entry.position_of(_BESIDE[0])
        data = self._tier.read(self._key, start, entry.object_bytes - FOOTER_BYTES - start)
        sections = {}
        for name in _BESIDE:
            section: Section = getattr(entry, name)
            at = entry.position_of(name) - start
            sections[name] = data[at : at + section.size]
            if crc32c(sections[name]) != section.crc:
                raise StoreError(
                    f"{self.log_path} is damaged: the CRC-32C of bytes {start + at} to {start + at + section.size} does"
                    " not match; restore the object"
                )
        return sections
