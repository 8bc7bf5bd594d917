"""A history of 100,000 objects: what a read asks of the store, and what it holds in memory, do not grow with it.

The objects are made when they are read, from their names: the manifest and its chunks are real.
"""

from __future__ import annotations

import random
import tracemalloc
from collections.abc import Iterable, Iterator, Sequence

import pytest
from crc32c import crc32c

from foldlog.errors import ObjectMissing
from foldlog.files.base import Buffer
from foldlog.files.memory import MemoryFiles
from foldlog.log.epochs import format_epochs
from foldlog.log.reading import read_batches
from foldlog.log.tier.format import (
    CHUNK_ENTRIES,
    ChunkRef,
    PartitionId,
    PartitionManifest,
    Section,
    StoredSegment,
    format_footer,
    format_manifest,
    make_chunk,
    manifest_name,
)
from foldlog.log.tier.partition import TieredPartition
from foldlog.log.tier.tier import Tier
from foldlog.records.loops import assign_offsets, decode, pack, walk

pytestmark = pytest.mark.faults

FOLDER = "topics/events-0/"
OF = PartitionId(bytes(16), 0)
OBJECTS = 100_000
EPOCHS = format_epochs(((0, 0),))


def batches_at(base_offset: int) -> bytes:
    data = pack([(1000 + base_offset + at, None, b"%d" % (base_offset + at), ()) for at in range(2)])
    assign_offsets(data, walk(data, check_crc=False).headers, base_offset, 0, -1)
    return bytes(data)


def entry_at(base_offset: int) -> StoredSegment:
    data, nothing = batches_at(base_offset), Section(0, crc32c(b""))
    return StoredSegment(
        base_offset.to_bytes(16, "big"),
        base_offset,
        base_offset + 2,
        1001 + base_offset,
        0,
        0,
        Section(len(data), crc32c(data)),
        nothing,
        nothing,
        nothing,
        nothing,
        Section(len(EPOCHS), crc32c(EPOCHS)),
    )


class MadeUpStore:
    """Keeps manifests and chunks; segments are made of their names."""

    url = "file:///made-up"

    def __init__(self) -> None:
        self.kept: dict[str, bytes] = {}
        self.asked = 0
        self.lists = 0

    def _object(self, key: str) -> bytes:
        if key in self.kept:
            return self.kept[key]
        if not key.endswith(".segment"):
            raise ObjectMissing(key)
        entry = entry_at(int(key.rpartition("/")[2][:20]))
        return batches_at(entry.base_offset) + EPOCHS + format_footer(OF, entry)

    def read(self, key: str, start: int, length: int) -> bytes:
        self.asked += 1
        return self._object(key)[start : start + length]

    def get(self, key: str) -> bytes:
        self.asked += 1
        return self._object(key)

    def keys(self, prefix: str, after: str = "") -> Iterator[str]:
        self.lists += 1
        return iter(sorted(key for key in self.kept if key.startswith(prefix) and key > after))

    def put(self, key: str, parts: Iterable[Buffer]) -> None:
        self.kept[key] = b"".join(parts)

    def create(self, key: str, data: bytes) -> bool:
        self.kept[key] = data
        return True

    def folders(self, prefix: str) -> list[str]:
        return []

    def delete(self, keys: Sequence[str]) -> None:
        for key in keys:
            self.kept.pop(key, None)

    def claim(self) -> None: ...

    def close(self) -> None: ...


def made(count: int) -> tuple[MadeUpStore, TieredPartition]:
    store = MadeUpStore()
    chunks: list[ChunkRef] = []
    entries = [entry_at(2 * number) for number in range(count)]
    while len(entries) >= 2 * CHUNK_ENTRIES:
        ref, data = make_chunk(OF, entries[:CHUNK_ENTRIES])
        store.put(f"{FOLDER}0/{ref.name}", [data])
        chunks.append(ref)
        del entries[:CHUNK_ENTRIES]
    manifest = PartitionManifest(
        OF, generation=7, end_offset=2 * count, leader_epoch=0, chunks=tuple(chunks), entries=tuple(entries)
    )
    store.put(f"{FOLDER}0/{manifest_name(7)}", [format_manifest(manifest)])
    files = MemoryFiles()
    return store, TieredPartition(Tier(store.url, files, store=store), files, FOLDER, OF)


def read_at(tier: TieredPartition, offset: int) -> bytes | None:
    found = tier.look(lambda view: read_batches(view, offset, 1), offset)
    value: bytes | None = decode(found.data, "events", 0, start_offset=offset)[0][0].value
    return value


def test_a_read_asks_and_holds_as_much_of_many_objects_as_of_few() -> None:
    asked: dict[int, int] = {}
    held: dict[int, int] = {}
    for count in (1000, OBJECTS):
        store, tier = made(count)
        rng = random.Random(1)
        assert read_at(tier, 1) == b"1"
        assert store.lists == 1
        store.asked = 0
        tracemalloc.start()
        for _ in range(200):
            offset = rng.randrange(2 * count)
            assert read_at(tier, offset) == b"%d" % offset
        held[count] = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        asked[count] = store.asked
        assert store.lists == 1
    assert asked[OBJECTS] <= 200 * 5
    assert held[OBJECTS] < 2 * held[1000] + (8 << 20)


def test_the_manifest_of_many_objects_is_small() -> None:
    store, _ = made(OBJECTS)
    assert next(len(data) for key, data in store.kept.items() if key.endswith(".manifest")) < 90_000


def test_a_time_is_found_among_many_objects_without_looking_at_all_of_them() -> None:
    store, tier = made(OBJECTS)
    tier.manifest()
    store.asked = 0
    assert tier.first_at_time(0, 2 * OBJECTS, 1000 + 150_001, 1 << 20) == (150_001, 151_001)
    assert tier.latest_record(0, 2 * OBJECTS, 1 << 20) == (2 * OBJECTS - 1, 1000 + 2 * OBJECTS - 1)
    assert store.asked < 20
