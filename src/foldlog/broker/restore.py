"""Makes a data directory from a store of segments alone: topics, offsets, epochs, producers and settings.

It is made beside the wanted place, and gets its name when it is whole: a crash leaves no half of a log. What the store
never had is not there: records after the last sealed segment, topics without remote.storage.enable, groups and users.
The log therefore counts as one that ended uncleanly: its leader epoch rises with the first open, so that whoever has
read further than it goes is told.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from crc32c import crc32c

from foldlog.broker.checked_json import unsealed
from foldlog.broker.data_directory import CHECKPOINT_NAME
from foldlog.broker.tiers import TierSettings, read_topics, tiered_partition
from foldlog.broker.topics import catalog as catalogs
from foldlog.broker.topics.catalog import Catalog, CatalogTopic
from foldlog.broker.topics.names import partition_directory
from foldlog.errors import LogNotFound, ObjectMissing, StorageError, StoreError, UnknownTopic
from foldlog.files.base import Files, replace_file
from foldlog.files.paths import STORE_MARK
from foldlog.log.checkpoint import Checkpoint, SlotState
from foldlog.log.epochs import NAME as EPOCHS_NAME
from foldlog.log.layout import create_partition
from foldlog.log.segment import (
    INDEX_SUFFIX,
    LOG_SUFFIX,
    SNAPSHOT_SUFFIX,
    TIME_INDEX_SUFFIX,
    TRANSACTION_INDEX_SUFFIX,
    create_segment,
    segment_stem,
)
from foldlog.log.tier.format import StoredSegment
from foldlog.log.tier.partition import TieredPartition
from foldlog.log.tier.tier import Tier
from foldlog.log.transactions import format_transaction_index, read_transaction_index

_READ_BYTES: Final = 8 << 20
_DRAFT_SUFFIX: Final = ".restoring"


@dataclass(frozen=True, slots=True)
class RestoredPartition:
    """One partition as it was made."""

    topic: str
    number: int
    start_offset: int
    end_offset: int
    segments: int
    size_bytes: int


def restore(
    url: str, files: Files, path: str, *, stays: bool = False, topic: str | None = None
) -> Iterator[RestoredPartition]:
    """Make the directory; yields each partition when it is whole. `stays`: segments stay in the store, and the
    directory goes on with it, in place of the one that wrote it."""
    tier = Tier(TierSettings(url).checked(files).url or url, files)
    try:
        directory_id = directory_id_of(tier)
        topics = _chosen(tier, topic)
        draft = f"{path}{_DRAFT_SUFFIX}"
        _refuse_taken(files, path, draft)
        files.make_directory(draft)
        try:
            yield from _fill(tier, files, draft, Catalog(directory_id, topics), stays)
            if stays:
                TierSettings(url).open(files, draft, write=True)
            files.sync_directory(draft)
        except BaseException:
            _remove_tree(files, draft)
            raise
        if files.exists(path):
            files.remove_directory(path)  # which is empty
        files.rename(draft, path)
        files.sync_directory(path.rpartition("/")[0] or ("/" if path.startswith("/") else "."))
    finally:
        tier.close()


def directory_id_of(tier: Tier) -> str:
    """Whose store it is. Raises LogNotFound if it is none."""
    try:
        mark = tier.store.get(STORE_MARK)
    except ObjectMissing:
        raise LogNotFound(
            f"there is no log in {tier.url}: it has no {STORE_MARK}; name the store as --tier did"
        ) from None
    return str(unsealed(mark, f"{tier.url}/{STORE_MARK}", 1, "another program wrote it")["directory_id"])


def _chosen(tier: Tier, topic: str | None) -> dict[str, CatalogTopic]:
    found = read_topics(tier)
    if topic is not None and topic not in found:
        raise UnknownTopic(topic, sorted(found))
    return {name: one for name, one in found.items() if topic in (None, name)}


def _refuse_taken(files: Files, path: str, draft: str) -> None:
    if files.exists(draft):
        raise StorageError(f"{draft} is there: a restore did not end; remove it, and try again")
    try:
        is_empty = not files.entries(path)
    except FileNotFoundError:
        return
    except NotADirectoryError:
        raise StorageError(f"{path} is a file; name a directory to make") from None
    if not is_empty:
        raise StorageError(f"{path} is not empty; name an empty directory or a new one; nothing was changed")


def _remove_tree(files: Files, path: str) -> None:
    for entry in files.entries(path):
        if entry.is_directory:
            _remove_tree(files, f"{path}/{entry.name}")
        else:
            files.unlink(f"{path}/{entry.name}")
    files.remove_directory(path)


def _fill(tier: Tier, files: Files, path: str, catalog: Catalog, stays: bool) -> Iterator[RestoredPartition]:
    checkpoint = Checkpoint.open(files, f"{path}/{CHECKPOINT_NAME}", write=True)
    for topic in catalog.topics.values():
        for number, slot in enumerate(topic.slots):
            directory = f"{path}/{partition_directory(topic.name, number)}"
            stored = tiered_partition(tier, files, topic, number)
            restored, state = _Restored(stored, files, directory, stays).make(topic, number)
            checkpoint.slot(slot).store_firmly(state)
            yield restored
    checkpoint.sync()
    checkpoint.close()
    catalogs.store(files, path, catalog)


class _Restored:
    """One partition on its way from the store."""

    def __init__(self, stored: TieredPartition, files: Files, directory: str, stays: bool) -> None:
        self._stored = stored
        self._files = files
        self._directory = directory
        self._stays = stays

    def make(self, topic: CatalogTopic, number: int) -> tuple[RestoredPartition, SlotState]:
        files, directory = self._files, self._directory
        manifest = self._stored.manifest()
        create_partition(files, directory, topic_id=topic.topic_id)
        start, end = max(manifest.log_start_offset, manifest.first_offset), manifest.end_offset
        entries = list(self._stored.entries(manifest.log_start_offset))
        for entry in [] if self._stays else entries:
            self._download(entry)
        if entries:
            self._write_state(entries[-1])
        if end:
            if self._stays or not entries or entries[0].base_offset > 0:
                for suffix in (LOG_SUFFIX, INDEX_SUFFIX, TIME_INDEX_SUFFIX):
                    files.unlink(segment_stem(directory, 0) + suffix)
            create_segment(files, directory, end)
        files.sync_directory(directory)
        gaps_below = max((entry.gaps_below for entry in entries), default=0)
        state = SlotState(
            log_start_offset=start,
            start_reason=manifest.start_reason,
            high_watermark=end,
            durable_offset=end,
            synced_offset=end,
            active_base_offset=end,
            gaps_below=min(gaps_below, end),
            segment_count=1 if self._stays else len(entries) + bool(end or not entries),
            leader_epoch=max(0, manifest.leader_epoch),
            has_producers=True,
            has_transactions=True,
            tiered_below=end if self._stays and entries else 0,
        )
        size_bytes = sum(entry.batches.size for entry in entries)
        return RestoredPartition(topic.name, number, start, end, len(entries), size_bytes), state

    def _download(self, entry: StoredSegment) -> None:
        """The files of a segment, each as it was. Raises StoreError if the bytes are not those that were copied."""
        tier, key = self._stored.tier, self._stored.prefix + entry.name
        stem = segment_stem(self._directory, entry.base_offset)
        file = self._files.open(stem + LOG_SUFFIX, write=True, create=True)
        crc = 0
        try:
            for position in range(0, entry.batches.size, _READ_BYTES):
                data = tier.read(key, position, min(_READ_BYTES, entry.batches.size - position))
                crc = crc32c(data, crc)
                file.write(position, [data])
            file.sync()
        finally:
            file.close()
        if crc != entry.batches.crc:
            raise StoreError(
                f"{tier.url}/{key} is damaged: the CRC-32C of its batches does not match; nothing was made"
            )
        segment = self._stored.segment_of(entry)
        self._write(stem + INDEX_SUFFIX, segment.section("offset_index"))
        self._write(stem + TIME_INDEX_SUFFIX, segment.section("time_index"))
        aborted, _ = read_transaction_index(segment.section("aborted"))
        ended = [one for one in aborted if entry.base_offset <= one.last_offset < entry.end_offset]
        if ended:
            self._write(stem + TRANSACTION_INDEX_SUFFIX, format_transaction_index(ended))
        self._stored.forget(entry)

    def _write_state(self, last: StoredSegment) -> None:
        """Epochs and producers, as of the end of the last segment."""
        segment = self._stored.segment_of(last)
        self._write(f"{self._directory}/{EPOCHS_NAME}", segment.section("epochs"))
        snapshot = segment.section("snapshot")
        if snapshot:
            self._write(segment_stem(self._directory, last.end_offset) + SNAPSHOT_SUFFIX, snapshot)

    def _write(self, path: str, data: bytes) -> None:
        replace_file(self._files, path, data)
