"""Making an empty partition, and an empty segment in one: files before anything is in them; and when one was begun."""

from __future__ import annotations

from foldlog.files.base import Files
from foldlog.log.epochs import NAME as EPOCHS_NAME
from foldlog.log.epochs import format_epochs
from foldlog.log.layout import METADATA_NAME
from foldlog.log.segment import INDEX_SUFFIX, LOG_SUFFIX, TIME_INDEX_SUFFIX, Segment, segment_stem


def create_partition(files: Files, path: str, *, topic_id: str) -> None:
    """Make an empty partition. Durable on return, once the caller has synced the parent directory."""
    files.make_directory(path)
    # Written in place: until the catalog names this directory, nobody takes a half-made one for a partition.
    for name, data in (
        (METADATA_NAME, f"version: 0\ntopic_id: {topic_id}\n".encode()),
        (EPOCHS_NAME, format_epochs(((0, 0),))),
    ):
        file = files.open(f"{path}/{name}", write=True, create=True)
        file.truncate(0)
        file.write(0, [data])
        file.sync()
        file.close()
    create_segment(files, path, 0)
    files.sync_directory(path)


def create_segment(files: Files, directory: str, base_offset: int) -> None:
    """An empty segment with its indexes; the names are durable once the directory is synced."""
    for suffix in (LOG_SUFFIX, INDEX_SUFFIX, TIME_INDEX_SUFFIX):
        file = files.open(segment_stem(directory, base_offset) + suffix, write=True, create=True)
        if file.size():
            file.truncate(0)
            file.sync()
        file.close()


def begun_ms(segment: Segment, now_ms: int) -> int:
    """When an active segment found at open was begun, by its first batch."""
    found = segment.find(segment.base_offset)
    return min(found[1].max_timestamp, now_ms) if found and found[1].max_timestamp >= 0 else now_ms
