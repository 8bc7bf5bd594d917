"""The part of a partition that is in the store, as readers see it.

Two kinds use it: the writer of the directory, whose own commits make the manifest, and everybody else, who reads the
newest one. A manifest that was read is kept: it is read again only where it does not lead to what is asked for, such as
an object that retention has removed since. So a read lists nothing.
"""

from __future__ import annotations

import threading
from bisect import bisect_right
from collections.abc import Callable, Iterator
from heapq import heapify, heappop, heappush
from typing import Final, TypeVar

from foldlog.errors import CorruptLog, ObjectMissing, StorageError, StoreError
from foldlog.files.base import Files
from foldlog.files.objects import retried
from foldlog.log.checkpoint import SlotState, StartReason
from foldlog.log.epochs import parse_epochs
from foldlog.log.reading import Hit, LogView, better, first_at_time, latest_record
from foldlog.log.tier.format import (
    ChunkRef,
    PartitionId,
    PartitionManifest,
    StoredSegment,
    generation_of,
    manifest_name,
    parse_chunk,
    parse_manifest,
)
from foldlog.log.tier.tier import Tier, TieredSegment
from foldlog.log.transactions import AbortedIndex, AbortedTransaction, read_transaction_index

Result = TypeVar("Result")

_UNEXPLAINED: Final = (StartReason.WRITTEN, StartReason.MISSING, StartReason.UNKNOWN)
"""Why a log may start behind what the store has, though nobody has decided so."""

_TRIES: Final = 3
_LIST_TRIES: Final = 5
_ADVICE: Final = (
    "the store gave other bytes than it was given: restore the object, or remove its records with a deletion"
)


def topic_folder(topic: str, topic_id: str) -> str:
    """Where everything of a topic is. The name is for people; the id makes it one of a kind."""
    return f"topics/{topic}-{topic_id}/"


class TieredPartition:
    """Reads segments of one partition from the store. Any thread. Every read may wait for the network: an event loop
    never calls it."""

    def __init__(self, tier: Tier, files: Files, folder: str, of: PartitionId) -> None:
        self.tier = tier
        self.of = of
        self.prefix = f"{folder}{of.number}/"
        self._files = files
        # Held while a manifest is read: who needs one waits for it, and all of them get it.
        self._lock = threading.Lock()
        self._manifest: PartitionManifest | None = None
        self.last_known: PartitionManifest | None = None
        """The manifest that was read or written last, for who shows it: it may be out of force."""
        self.damaged: dict[int, StorageError] = {}
        """What a reader found lost or wrong, by the first offset of the segment, until it is read whole again."""

    # The manifest

    @property
    def known(self) -> PartitionManifest | None:
        """The manifest as it was last read or written; None if it was not yet."""
        return self._manifest

    def manifest(self) -> PartitionManifest:
        """The manifest, read now if it was not yet; an empty one if there is none."""
        return self._manifest or self.refresh(None)

    def refresh(self, seen: PartitionManifest | None) -> PartitionManifest:
        """The newest manifest, unless another thread has read one since `seen`."""
        with self._lock:
            if self._manifest is not None and self._manifest is not seen:
                return self._manifest
            self._manifest = self.last_known = found = self.newest()
            return found

    def newest(self) -> PartitionManifest:
        """The newest manifest in the store."""
        self.tier.refuse_forked()
        store = self.tier.store
        folder = f"{self.prefix}manifests/"
        for _ in range(_LIST_TRIES):
            generation = max((generation_of(key) for key in retried(lambda: list(store.keys(folder)))), default=-1)
            if generation < 0:
                return PartitionManifest(self.of)
            key = self.prefix + manifest_name(generation)
            try:
                data = retried(lambda: store.get(key))  # noqa: B023 called at once
            except ObjectMissing:
                continue  # a newer one has come since the list
            found = parse_manifest(data, f"{self.tier.url}/{key}")
            if found.of != self.of or found.generation != generation:
                raise CorruptLog(f"{self.tier.url}/{key}", 0, "it is the manifest of another partition", _ADVICE)
            return found
        raise StoreError(f"{self.tier.url}/{self.prefix}manifests/ changes faster than it can be read; try again")

    def committed(self, manifest: PartitionManifest | None) -> None:
        """The writer has put this manifest in force; None: that is not known, and it has to be read."""
        with self._lock:
            self._manifest = manifest
            self.last_known = manifest or self.last_known

    def explained(self, state: SlotState, first_local: int) -> SlotState:
        """The state, with the log's start in the store if what is here does not say why it starts at `first_local`."""
        if state.start_reason not in _UNEXPLAINED or not state.log_start_offset:
            return state
        manifest = self.manifest()
        first = max(manifest.log_start_offset, manifest.first_offset)
        if manifest.is_empty or first >= state.log_start_offset or manifest.end_offset < first_local:
            return state
        boundary = max(state.local_start_offset, first_local)
        return state._replace(log_start_offset=first, start_reason=manifest.start_reason, tiered_below=boundary)

    # Entries

    def entry_at(self, offset: int) -> StoredSegment:
        """The segment that holds an offset. Raises StoreError if the store has none."""
        manifest = self.manifest()
        if not manifest.first_offset <= offset < manifest.end_offset:
            manifest = self.refresh(manifest)
        if manifest.first_offset <= offset < manifest.end_offset:
            if manifest.entries and manifest.entries[0].base_offset <= offset:
                among = manifest.entries
            else:
                at = bisect_right(manifest.chunks, offset, key=lambda chunk: chunk.first_offset)
                among = self.entries_of(manifest.chunks[max(0, at - 1)])
            found = among[max(0, bisect_right(among, offset, key=lambda entry: entry.base_offset) - 1)]
            if found.base_offset <= offset < found.end_offset:
                return found
        raise StoreError(
            f"{self.tier.url}/{self.prefix} holds offsets {manifest.first_offset} to {manifest.end_offset}, and not"
            f" {offset}; was the store emptied, or is it another directory's?"
        )

    def entries_of(self, ref: ChunkRef) -> tuple[StoredSegment, ...]:
        """The entries of a chunk, from the store if it was not read lately."""
        return self.tier.chunks.get(ref.copy, lambda: self._read_chunk(ref))

    def _read_chunk(self, ref: ChunkRef) -> tuple[StoredSegment, ...]:
        self.tier.refuse_forked()
        key = self.prefix + ref.name
        return parse_chunk(retried(lambda: self.tier.store.get(key)), ref, f"{self.tier.url}/{key}")

    def entries(self, start_offset: int = 0, at_least_ms: int | None = None) -> Iterator[StoredSegment]:
        """The segments that end behind an offset, in order; chunk by chunk, without those whose records are all before
        a time."""
        manifest = self.manifest()
        for chunk in manifest.chunks:
            is_late = at_least_ms is None or chunk.largest_timestamp_ms >= at_least_ms
            if chunk.end_offset > start_offset and is_late:
                yield from (entry for entry in self.entries_of(chunk) if entry.end_offset > start_offset)
        yield from (entry for entry in manifest.entries if entry.end_offset > start_offset)

    def segment_of(self, entry: StoredSegment) -> TieredSegment:
        def prepare_next() -> None:
            following = self.segment_of(self.entry_at(entry.end_offset))
            following.section("epochs")
            following.log().begin()

        return self.tier.segments.get(
            (self.prefix, entry.copy), lambda: TieredSegment(self.tier, self.prefix, entry, self._files, prepare_next)
        )

    def forget(self, entry: StoredSegment) -> None:
        """Drop what was read of an object."""
        self.tier.segments.forget((self.prefix, entry.copy))
        self.tier.cache.forget(self.prefix + entry.name)

    # Reading

    def look(self, look: Callable[[LogView], Result], offset: int) -> Result:
        """What `look` returns for a view of the segment that holds `offset`. Wrong bytes are read again before they
        count as damage; an object that is gone is looked for in a newer manifest. Raises StoreError and CorruptLog."""
        for attempt in range(_TRIES):
            seen = self.manifest()
            entry = self.entry_at(offset)
            try:
                found = look(self._view(entry))
            except ObjectMissing as error:
                self.forget(entry)
                if self.refresh(seen).generation == seen.generation or attempt + 1 == _TRIES:
                    self.damaged[entry.base_offset] = lost = ObjectMissing(
                        f"{self.tier.url}/{self.prefix}{entry.name} is gone from the store, and with it offsets"
                        f" {entry.base_offset} to {entry.end_offset - 1}; restore the object"
                    )
                    raise lost from error
            except CorruptLog as error:
                self.forget(entry)
                if attempt + 1 == _TRIES:
                    self.damaged[entry.base_offset] = wrong = CorruptLog(
                        error.path, error.position, error.reason, _ADVICE
                    )
                    raise wrong from error
            else:
                self.damaged.pop(entry.base_offset, None)
                return found
        raise StoreError(f"{self.tier.url}/{self.prefix} changes faster than it can be read; try again")

    def _view(self, entry: StoredSegment) -> LogView:
        segment = self.segment_of(entry)
        starts = parse_epochs(segment.section("epochs"))
        return LogView((segment,), starts, entry.gaps_below, entry.end_offset, entry.end_offset)

    def aborted(self, start_offset: int, end_offset: int) -> tuple[AbortedTransaction, ...]:
        """The aborted transactions with batches in a part of one segment."""
        entry = self.entry_at(start_offset)
        if not entry.aborted.size:
            return ()
        found, problem = read_transaction_index(self.segment_of(entry).section("aborted"))
        if problem:
            raise StoreError(f"{self.tier.url}/{self.prefix}{entry.name} has a wrong index of transactions: {problem}")
        return AbortedIndex(found).between(start_offset, end_offset)

    def first_at_time(self, start_offset: int, end_offset: int, timestamp_ms: int, limit: int) -> Hit | None:
        """(offset, timestamp) of the first record at or after a time, from `start_offset` to `end_offset`."""
        for entry in self.entries(start_offset, timestamp_ms):
            if entry.base_offset >= end_offset:
                return None
            if entry.largest_timestamp_ms < timestamp_ms:
                continue
            start = max(start_offset, entry.base_offset)
            hit = self.look(lambda view: first_at_time(view, start, timestamp_ms, limit), start)  # noqa: B023
            if hit is not None:
                return hit if hit[0] < end_offset else None
        return None

    def latest_record(self, start_offset: int, end_offset: int, limit: int) -> Hit | None:
        """(offset, timestamp) of the first record with the largest timestamp, from `start_offset` to `end_offset`. By
        what chunks and entries say, so usually one segment is read."""
        manifest = self.manifest()
        found: list[ChunkRef | StoredSegment] = [*manifest.chunks, *manifest.entries]
        waiting = [(-one.largest_timestamp_ms, one.end_offset, one) for one in found]
        heapify(waiting)
        best: Hit | None = None
        while waiting and (best is None or -waiting[0][0] >= best[1]):
            _, _, one = heappop(waiting)
            if isinstance(one, ChunkRef):
                for entry in self.entries_of(one):
                    heappush(waiting, (-entry.largest_timestamp_ms, entry.end_offset, entry))
            elif one.end_offset > start_offset and one.base_offset < end_offset:
                start = max(start_offset, one.base_offset)
                best = better(best, self.look(lambda view: latest_record(view, start, limit), start))  # noqa: B023
        return best
