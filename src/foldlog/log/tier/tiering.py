"""Copies sealed segments of a partition to the store, and removes what is there, or here, and may go.

The order is the point. An object is written before the manifest names it, and a file is removed only when the manifest
that names its object is in force, and the object was read back, whole, and is a log of those offsets. The log start
moves on the disk before the manifest forgets a segment, and the manifest before its object is removed. So a crash
leaves an object that nothing names, and no name without an object; `_sweep` finds those by their offsets, without
listing all.

One thread at a time works on a partition, and waits for the store without a lock of the partition: appends, reads and
retention go on. What fails is tried again with the next round.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING, Final, NamedTuple

from crc32c import crc32c

from foldlog.errors import CorruptLog, LogClosed, StoreError
from foldlog.files.base import read_file
from foldlog.files.objects import ObjectStore, retried
from foldlog.log.checkpoint import StartReason
from foldlog.log.epochs import format_epochs
from foldlog.log.producers import read_snapshot
from foldlog.log.reading import check_boundary, check_leader_epochs
from foldlog.log.retention import SegmentAge, plan_retention
from foldlog.log.segment import SNAPSHOT_SUFFIX, Segment, SparseIndex, segment_stem
from foldlog.log.tier.format import (
    CHUNK_ENTRIES,
    ChunkRef,
    PartitionManifest,
    Section,
    StoredSegment,
    format_footer,
    format_manifest,
    generation_of,
    make_chunk,
    manifest_name,
    new_copy,
)
from foldlog.log.tier.partition import TieredPartition
from foldlog.log.tier.standing import StoredStanding
from foldlog.log.tier.verification import verify_object
from foldlog.log.transactions import format_transaction_index

if TYPE_CHECKING:
    from foldlog.log.cleanup import Cleanup
    from foldlog.log.partition import PartitionCore
    from foldlog.log.producers import Producers

_PART_BYTES: Final = 1 << 20
_REMOVED_AT_ONCE: Final = 1000


class TierReport(NamedTuple):
    """What a round did."""

    copied: int = 0
    freed: int = 0  # files of segments that went
    expired: int = 0  # segments that left the store


class Tiering:
    """The copying side of one partition. `work` from any thread; one at a time does something."""

    def __init__(
        self,
        core: PartitionCore,
        cleanup: Cleanup,
        tier: TieredPartition,
        stable: Callable[[], int],
        producers: Producers,
    ) -> None:
        """`stable`: the last stable offset."""
        self._core = core
        self._cleanup = cleanup
        self.tier = tier
        self._stable = stable
        self._producers = producers
        self._working = threading.Lock()  # before all locks of the partition
        self._is_swept = False
        self._has_written = False
        self._verified: set[bytes] = set()  # copies that were read back, and whose files are not gone yet
        self.is_interrupted: Callable[[], bool] = lambda: False
        """Whether to stop: the log is being closed."""

    @property
    def end_offset(self) -> int:
        """Where the next segment to copy begins; as far as is known without asking the store."""
        known = self.tier.known
        return -1 if known is None or (known.is_empty and not known.generation) else known.end_offset

    def standing(self) -> StoredStanding | None:
        """What the store has, and what waits, without asking the store; None if it was never asked."""
        known, core = self.tier.last_known, self._core
        if known is None:
            return None
        size_bytes = sum(chunk.size_bytes for chunk in known.chunks) + sum(one.batches.size for one in known.entries)
        copied_to = max(known.end_offset, core.state.log_start_offset)
        is_copied = core.config.remote and core.config.copies
        waiting = [
            segment.size
            for segment, following in pairwise(core.segments)
            if is_copied and following.base_offset > copied_to
        ]
        return StoredStanding(known.segment_count, size_bytes, known.end_offset, len(waiting), sum(waiting))

    def work(self, now_ms: int) -> TierReport:
        """One round: copy, expire, free. Raises StoreError, CorruptLog or LogClosed where it stopped; what it had done
        is done, and the next round goes on."""
        with self._working:
            self._core.refuse_if_closed()
            try:
                return self._work(now_ms)
            except StoreError:
                # What the store has now is not known: read it again, and look for objects that nothing names.
                self._is_swept = False
                self.tier.committed(None)
                raise

    def _work(self, now_ms: int) -> TierReport:
        config = self._core.config
        if not config.remote:
            return TierReport(expired=self._leave() if config.deletes_remote else 0)
        self._refuse_other_writer()
        self._explain_start()
        if not self._is_swept:
            self._sweep()
            self._is_swept = True
        expired = self._trim()
        copied = self._copy_all() if config.copies else 0
        self._expire(now_ms)
        return TierReport(copied, self._free(now_ms), expired + self._trim())

    def _refuse_if_interrupted(self) -> None:
        self._core.refuse_if_closed()
        if self.is_interrupted():
            raise LogClosed(f"{self._core.path} is being closed; its segments are copied another time")

    # Copying

    def _copy_all(self) -> int:
        count = 0
        while True:
            following = self._next_to_copy()
            if following is None:
                return count
            self._copy(*following)
            count += 1

    def _next_to_copy(self) -> tuple[Segment, Segment] | None:
        """The next sealed segment, and the one behind it; None if there is none whose transactions are all decided."""
        self._refuse_if_interrupted()
        manifest, stable = self.tier.manifest(), self._stable()
        for segment, following in pairwise(self._core.segments):
            if following.base_offset <= manifest.end_offset and not manifest.is_empty:
                continue
            if following.base_offset <= max(manifest.end_offset, self._core.state.log_start_offset):
                continue
            if following.base_offset > stable:
                return None
            newest = manifest.entries[-1].base_offset if manifest.entries else -1
            if not manifest.is_empty and not newest < segment.base_offset <= manifest.end_offset:
                raise StoreError(
                    f"{self._core.path}: the store has offsets up to {manifest.end_offset}, and the next segment"
                    f" here begins at {segment.base_offset}; nothing more is copied"
                )
            return segment, following
        return None

    def _copy(self, segment: Segment, following: Segment) -> None:
        """Write the object, then the manifest that names it."""
        try:
            entry = _Copy(self._core, self._producers, segment, following, self._refuse_if_interrupted).write(self.tier)
        except CorruptLog as error:
            if segment in self._core.segments:
                raise
            raise StoreError(f"{segment.log_path} was replaced while it was copied; it is copied again") from error
        manifest = self.tier.manifest()
        self._commit(
            manifest._replace(
                log_start_offset=self._core.state.log_start_offset,
                start_reason=self._core.state.start_reason,
                end_offset=entry.end_offset,
                leader_epoch=entry.leader_epoch,
                entries=(*manifest.entries, entry),
            )
        )
        self.tier.tier.counts.add(copied_segments=1, copied_bytes=entry.object_bytes)

    def _commit(self, manifest: PartitionManifest) -> None:
        """Put the next generation in force. Raises StoreError if another process has."""
        core, tier = self._core, self.tier
        core.refuse_if_lost()
        self._refuse_if_interrupted()
        while len(manifest.entries) >= 2 * CHUNK_ENTRIES:
            ref, data = make_chunk(tier.of, manifest.entries[:CHUNK_ENTRIES])
            retried(lambda: tier.tier.store.put(tier.prefix + ref.name, [data]))  # noqa: B023 called at once
            manifest = manifest._replace(chunks=(*manifest.chunks, ref), entries=manifest.entries[CHUNK_ENTRIES:])
        fresh = manifest._replace(generation=manifest.generation + 1, writer=tier.tier.writer)
        key = tier.prefix + manifest_name(fresh.generation)
        data = format_manifest(fresh)
        if not retried(lambda: tier.tier.store.create(key, data)) and tier.tier.store.get(key) != data:
            raise self._other_writer()
        tier.committed(fresh)
        self._has_written = True
        # The one before stays for readers who have just listed it.
        old = [tier.prefix + manifest_name(fresh.generation - 2)] if fresh.generation > 2 else []
        tier.tier.store.delete(old)

    def _refuse_other_writer(self) -> None:
        """Who takes over a store goes on behind what is there; who had it before learns of it, and stops. An older copy
        of a directory does not go on at all: its next records would have offsets that the store has given away."""
        end, durable = self.tier.manifest().end_offset, self._core.state.durable_offset
        alone = self._core.state.local_start_offset
        if end < alone > self._core.state.log_start_offset:
            # Nothing is swept either: objects that this manifest does not name may hold the only copy.
            raise StoreError(
                f"{self.tier.tier.url}/{self.tier.prefix}manifests/ names offsets up to {end}, and records below"
                f" {alone} are in the store alone: its newest manifest is lost; restore it, or the whole store"
            )
        if end > durable:
            raise StoreError(
                f"{self.tier.tier.url}/{self.tier.prefix} has offsets up to {end}, and {self._core.path} ends at"
                f" {durable}: it is an older copy; restore it from the store, or give it a store of its own"
            )
        if self._has_written and self.tier.manifest().writer != self.tier.tier.writer:
            raise self._other_writer()

    def _other_writer(self) -> StoreError:
        return StoreError(
            f"{self.tier.tier.url}/{self.tier.prefix}manifests/ is written by another process: two brokers use one"
            " store; stop one of them"
        )

    # What the store has

    def _explain_start(self) -> None:
        """If the slot was lost, or files were removed by hand, the log starts where the store says."""
        state = self._core.state
        found = self.tier.explained(state, self._core.segments[0].base_offset)
        if found.log_start_offset < state.log_start_offset:
            self._cleanup.find_start(found.log_start_offset, found.start_reason)

    def _trim(self) -> int:
        """Let the manifest forget what is below the log start, then remove the objects. How many."""
        state, manifest = self._core.state, self.tier.manifest()
        start = state.log_start_offset
        if manifest.log_start_offset >= start or not manifest.generation:
            return 0
        gone: list[StoredSegment] = []
        for entry in self.tier.entries(manifest.log_start_offset):
            if entry.end_offset > start:
                break
            gone.append(entry)
        chunks = [chunk for chunk in manifest.chunks if chunk.end_offset <= start]
        self._commit(
            manifest._replace(
                log_start_offset=start,
                start_reason=state.start_reason,
                end_offset=max(start, manifest.end_offset),
                chunks=tuple(chunk for chunk in manifest.chunks if chunk.end_offset > start),
                entries=tuple(entry for entry in manifest.entries if entry.end_offset > start),
            )
        )
        self._remove(gone, chunks)
        self.tier.tier.counts.add(removed_segments=len(gone))
        return len(gone)

    def _remove(self, entries: list[StoredSegment], chunks: list[ChunkRef]) -> None:
        for entry in entries:
            self.tier.forget(entry)
        names = [*(entry.name for entry in entries), *(chunk.name for chunk in chunks)]
        self.tier.tier.store.delete([self.tier.prefix + name for name in names])

    def _sweep(self) -> None:
        """Remove objects that nothing names: copied and not in the manifest, or forgotten by it and not removed.

        Both have offsets outside of the manifest's, so that only these are listed.
        """
        self._core.refuse_if_lost()
        tier, manifest = self.tier, self.tier.refresh(self.tier.known)
        store, segments = tier.tier.store, f"{tier.prefix}segments/"
        orphans = list(store.keys(segments, after=f"{segments}{manifest.end_offset:020d}"))
        start = manifest.log_start_offset
        for key in store.keys(segments):
            if _offsets_in(key)[1] > start:
                break
            orphans.append(key)
        named = {tier.prefix + chunk.name for chunk in manifest.chunks}
        orphans += [key for key in store.keys(f"{tier.prefix}chunks/") if key not in named]
        orphans += [
            key for key in store.keys(f"{tier.prefix}manifests/") if generation_of(key) < manifest.generation - 1
        ]
        store.delete(orphans)

    def _leave(self) -> int:
        """After remote.storage.enable was taken back: the log starts on the disk, and the store forgets it all."""
        count = self.tier.manifest().segment_count
        if self._is_swept and not self.tier.manifest().generation:
            return 0
        self._cleanup.move_start(self._core.state.local_start_offset, StartReason.DELETED)
        remove_below(self.tier.tier.store, self.tier.prefix)
        self.tier.committed(PartitionManifest(self.tier.of))
        self.tier.tier.counts.add(removed_segments=count)
        self._is_swept = True
        return count

    # Retention

    def _expire(self, now_ms: int) -> None:
        """Move the log start over segments in the store that are beyond retention.*: by size, then by time."""
        core = self._core
        config, state = core.config, core.state
        if not config.delete or state.local_start_offset == state.log_start_offset:
            return
        total = self._bytes_below(state.local_start_offset) + sum(segment.size for segment in core.segments)
        excess = total - config.retention_bytes if config.retention_bytes >= 0 else -1
        start, reason = state.log_start_offset, StartReason.RETENTION_SIZE
        for entry in self.tier.entries(state.log_start_offset):
            if entry.end_offset > state.local_start_offset:
                break
            is_old = config.retention_ms >= 0 <= entry.largest_timestamp_ms < now_ms - config.retention_ms
            if entry.batches.size > excess and not is_old:
                break
            reason = StartReason.RETENTION_SIZE if entry.batches.size <= excess else StartReason.RETENTION_TIME
            excess -= entry.batches.size
            start = entry.end_offset
        self._cleanup.move_start(start, reason)

    def _bytes_below(self, offset: int) -> int:
        """The bytes of live segments in the store below an offset; of a chunk that is partly so, those that are."""
        start, manifest = self._core.state.log_start_offset, self.tier.manifest()
        total = 0
        for chunk in manifest.chunks:
            if start <= chunk.first_offset and chunk.end_offset <= offset:
                total += chunk.size_bytes
            elif chunk.end_offset > start and chunk.first_offset < offset:
                total += _bytes_between(self.tier.entries_of(chunk), start, offset)
        return total + _bytes_between(manifest.entries, start, offset)

    def _free(self, now_ms: int) -> int:
        """Remove files of segments that are in the store, and beyond local.retention.*. How many."""
        core = self._core
        limit_ms, limit_bytes = core.config.local_limits
        if not core.config.delete or max(limit_ms, limit_bytes) < 0:
            return 0
        manifest, segments = self.tier.manifest(), core.segments
        copied = sum(1 for following in segments[1:] if following.base_offset <= manifest.end_offset)
        limits = replace(core.config, retention_ms=limit_ms, retention_bytes=limit_bytes)
        times = {one.base_offset: one.largest_timestamp_ms for one in self.tier.entries(segments[0].base_offset)}
        ages = [SegmentAge(one.size, times.get(one.base_offset, -1)) for one in segments]
        count = min(copied, plan_retention(ages, limits, now_ms).count)
        if not count:
            return 0
        boundary = segments[count].base_offset
        for segment, following in pairwise(segments[: count + 1]):
            entry = self.tier.entry_at(segment.base_offset)
            if entry.copy not in self._verified:
                self._refuse_difference(segment, following, entry)
                verify_object(self.tier, entry)
                self._verified.add(entry.copy)
        # By what is in force now: a manifest that was read in between may be another writer's.
        if self.tier.newest().generation != manifest.generation:
            raise StoreError(f"{self.tier.tier.url}/{self.tier.prefix}manifests/ has changed; nothing was removed here")
        removed = self._cleanup.remove_local(boundary)
        self._verified.clear()
        return removed

    def _refuse_difference(self, segment: Segment, following: Segment, entry: StoredSegment) -> None:
        """Raise StoreError unless the object holds the bytes of this very file: an older copy of the directory, opened
        beside its store, may have other records at these offsets."""
        crc, log = 0, segment.log()
        for position in range(0, segment.size, _PART_BYTES):
            self._refuse_if_interrupted()
            crc = crc32c(log.read(position, min(_PART_BYTES, segment.size - position)), crc)
        here = (segment.base_offset, following.base_offset, Section(segment.size, crc))
        if here != (entry.base_offset, entry.end_offset, entry.batches):
            raise StoreError(
                f"{segment.log_path} is not what {self.tier.tier.url}/{self.tier.prefix}{entry.name} holds; it stays on"
                " the disk"
            )


class _Copy:
    """One segment on its way into the store. Reads the file that had the segment's name when it began, whatever
    happens to that since."""

    def __init__(
        self,
        core: PartitionCore,
        producers: Producers,
        segment: Segment,
        following: Segment,
        go_on: Callable[[], None],
    ) -> None:
        """`go_on` raises when the copy is to end."""
        self._core = core
        self._go_on = go_on
        self._end_offset = following.base_offset
        self._following = following
        interval = core.config.index_interval_bytes
        self._segment = Segment(
            core.files, core.path, segment.base_offset, segment.size, writable=False, index_interval_bytes=interval
        )
        self._aborted = producers.aborted.between(segment.base_offset, self._end_offset)

    def write(self, tier: TieredPartition) -> StoredSegment:
        """Check every batch, then write the object. Raises CorruptLog for a segment that is damaged, and StoreError."""
        self._segment.hold()
        try:
            last_epoch = self._check()
            self._segment.rebuild_indexes()
            written = _Written(new_copy())
            key = tier.prefix + self._entry(written.copy, [Section(0, 0)] * 6, last_epoch).name
            self._core.refuse_if_lost()
            tier.tier.store.put(key, self._parts(tier, written, last_epoch))
            return self._entry(written.copy, written.sections, last_epoch)
        finally:
            self._segment.forget()

    def _check(self) -> int:
        """Raise CorruptLog unless whole batches lead from the first offset to the last; the last one's epoch."""
        ended_at, epoch = self._segment.base_offset, -1
        starts, gaps_below = self._core.epochs.starts, self._core.state.gaps_below
        for position, headers in self._segment.scan(0, ended_at, gaps_below):
            self._go_on()
            check_leader_epochs(self._segment, position, headers, starts)
            ended_at, epoch = headers[-1].next_offset, headers[-1].leader_epoch
        check_boundary(self._segment, ended_at, self._following)
        return epoch

    def _entry(self, copy: bytes, sections: list[Section], epoch: int) -> StoredSegment:
        segment = self._segment
        return StoredSegment(
            copy,
            segment.base_offset,
            self._end_offset,
            segment.largest_timestamp(),
            self._core.state.gaps_below,
            epoch,
            *sections,
        )

    def _parts(self, tier: TieredPartition, written: _Written, epoch: int) -> Iterator[bytes]:
        written.sections.clear()
        log, size, crc = self._segment.log(), self._segment.size, 0
        for position in range(0, size, _PART_BYTES):
            self._go_on()
            data = log.read(position, min(_PART_BYTES, size - position))
            crc = crc32c(data, crc)
            yield data
        written.sections.append(Section(size, crc))
        epochs = tuple(pair for pair in self._core.epochs.starts if pair[1] < self._end_offset)
        for data in (
            _all_of(self._segment.offset_index),
            _all_of(self._segment.time_index),
            format_transaction_index(self._aborted),
            self._snapshot(),
            format_epochs(epochs),
        ):
            written.sections.append(Section(len(data), crc32c(data)))
            if data:
                yield data
        yield format_footer(tier.of, self._entry(written.copy, written.sections, epoch))

    def _snapshot(self) -> bytes:
        """The state of producers at the end of the segment, if there is a sound snapshot of it: without one, it is made
        from the batches."""
        try:
            data = read_file(self._core.files, segment_stem(self._core.path, self._end_offset) + SNAPSHOT_SUFFIX)
        except FileNotFoundError:
            return b""
        return b"" if read_snapshot(data) is None else data


class _Written:
    """What is known of an object once its parts were made."""

    def __init__(self, copy: bytes) -> None:
        self.copy = copy
        self.sections: list[Section] = []


def _all_of(index: SparseIndex) -> bytes:
    return index.unwritten()[1]


def _bytes_between(entries: tuple[StoredSegment, ...], start: int, end: int) -> int:
    return sum(entry.batches.size for entry in entries if start < entry.end_offset <= end)


def _offsets_in(key: str) -> tuple[int, int]:
    """The first and the last offset in the name of a segment's object. A name that is none is never below anything."""
    base, _, rest = key.rpartition("/")[2].partition("-")
    end = rest.partition("-")[0]
    return (int(base), int(end)) if base.isdigit() and end.isdigit() else (0, 1 << 63)


def remove_below(store: ObjectStore, prefix: str) -> None:
    """Remove everything of a partition, or of a topic: what names other objects first, so that a crash leaves no name
    without its object."""
    for is_wanted in (lambda key: key.endswith(".json"), lambda key: key.endswith(".manifest"), lambda key: True):
        page: list[str] = []
        for key in store.keys(prefix):
            if is_wanted(key):
                page.append(key)
            if len(page) == _REMOVED_AT_ONCE:
                store.delete(page)
                page = []
        store.delete(page)
