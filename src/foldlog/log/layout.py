"""The files in a partition's directory: how they begin, what they are named, and what recovery does with those that a
crash left behind."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from foldlog.errors import CorruptLog
from foldlog.files.base import DirectoryEntry, Files
from foldlog.log.epochs import NAME as EPOCHS_NAME
from foldlog.log.epochs import format_epochs
from foldlog.log.segment import (
    INDEX_SUFFIX,
    LOG_SUFFIX,
    SNAPSHOT_SUFFIX,
    TIME_INDEX_SUFFIX,
    TRANSACTION_INDEX_SUFFIX,
    Segment,
    create_segment,
    segment_stem,
)

METADATA_NAME = "partition.metadata"
CLEANED_SUFFIX = ".log.cleaned"
SWAP_SUFFIX = ".log.swap"
CUT_SUFFIX = ".cut"
_NAME = re.compile(r"(\d{20})(\.log|\.log\.cleaned|\.log\.swap|\.snapshot|\.txnindex)")


def create_partition(files: Files, path: str, *, topic_id: str) -> None:
    """Make an empty partition. Durable on return, once the caller has synced the parent directory."""
    files.make_directory(path)
    # Written in place: until the catalog names this directory, a half-made one is not taken for a partition.
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


@dataclass(frozen=True, slots=True)
class PartitionLayout:
    """What a directory holds: base offset → size of each kind of file."""

    logs: dict[int, int]
    cleaned: dict[int, int]
    swaps: dict[int, int]
    snapshots: dict[int, int]
    transaction_indexes: dict[int, int]


def read_layout(entries: Iterable[DirectoryEntry]) -> PartitionLayout:
    suffixes = (LOG_SUFFIX, CLEANED_SUFFIX, SWAP_SUFFIX, SNAPSHOT_SUFFIX, TRANSACTION_INDEX_SUFFIX)
    kinds: dict[str, dict[int, int]] = {suffix: {} for suffix in suffixes}
    for entry in entries:
        match = _NAME.fullmatch(entry.name)
        if match:
            kinds[match[2]][int(match[1])] = entry.size_bytes
    return PartitionLayout(*(kinds[suffix] for suffix in suffixes))


def finish_swaps(files: Files, directory: str, layout: PartitionLayout) -> bool:
    """Finish swaps that a crash interrupted; whether anything was left behind.

    A .cleaned file was not decided yet: it is removed. A .swap file is whole and synced: it replaces the segments that
    it was made from, which are those that begin inside it.
    """
    for base_offset in layout.cleaned:
        files.unlink(segment_stem(directory, base_offset) + CLEANED_SUFFIX)
    for base_offset, size in layout.swaps.items():
        swap = segment_stem(directory, base_offset) + SWAP_SUFFIX
        ends_at = _end_of_swap(files, directory, base_offset, size)
        if ends_at not in layout.logs or ends_at == base_offset:
            # A segment always begins where it ends: with a wrong end, segments would be removed that it does not hold,
            # and with none, the one whose name it has.
            reason = f"it ends at offset {ends_at}, where no segment begins" if size else "it is empty"
            raise CorruptLog(swap, size, reason, "restore the directory from a backup; the old segments are untouched")
        swap_in(files, directory, base_offset, [base for base in layout.logs if base_offset < base < ends_at])
        layout.logs[base_offset] = size
        for replaced in [base for base in layout.logs if base_offset < base < ends_at]:
            del layout.logs[replaced]
        if files.exists(swap):
            raise CorruptLog(swap, 0, "it could not be swapped in")
    return bool(layout.cleaned or layout.swaps)


def _end_of_swap(files: Files, directory: str, base_offset: int, size: int) -> int:
    swap = _SwapSegment(files, directory, base_offset, size, writable=False)
    ends_at = base_offset
    # Any gap is legal: it was compacted, and was checked record by record before it got this name.
    for _, headers in swap.scan(0, base_offset, gaps_below=(1 << 63) - 1):
        ends_at = headers[-1].next_offset
    return ends_at


class _SwapSegment(Segment):
    """A compacted segment under its .swap name. Opened by recovery, to be read once."""

    __slots__ = ()

    @property
    def log_path(self) -> str:
        return self.stem + SWAP_SUFFIX


def free_cut_name(files: Files, path: str, position: int | None = None) -> str:
    """A free name for the bytes that are cut from a file at `position`, or for all of it. Earlier cuts stay."""
    stem, number = path if position is None else f"{path}.{position}", 2
    name = stem + CUT_SUFFIX
    while files.exists(name):
        name, number = f"{stem}-{number}{CUT_SUFFIX}", number + 1
    return name


def swap_in(files: Files, directory: str, base_offset: int, replaced: Iterable[int]) -> None:
    """Replace the segment at `base_offset`, and those it also covers, by `<base>.log.swap`.

    The order is the point: the old files may be removed only once the swap file's name is durable, and it may become a
    .log only once they are durably gone, or a power cut could leave both and the offsets twice.
    """
    # Assumed of the file system: names changed since the last sync of their directory survive a power cut or not, each
    # by itself and in any order; after the sync all of them survive. So no change is reordered across a sync.
    stem = segment_stem(directory, base_offset)
    # The name .swap is the decision. A cut before this sync leaves .cleaned, which is removed; if .swap were lost after
    # an old segment was removed, its records would be lost.
    files.sync_directory(directory)
    for base in replaced:
        _unlink_all(
            files,
            segment_stem(directory, base),
            (LOG_SUFFIX, INDEX_SUFFIX, TIME_INDEX_SUFFIX, SNAPSHOT_SUFFIX, TRANSACTION_INDEX_SUFFIX),
        )
    # Its indexes point into the old file. Its .log stays: the rename replaces it in one step, so at no moment are both
    # missing.
    _unlink_all(files, stem, (INDEX_SUFFIX, TIME_INDEX_SUFFIX))
    # The neighbours are durably gone before the rename: a power cut that kept the new .log and one of them would leave
    # the same offsets twice, with no .swap to show which is which.
    files.sync_directory(directory)
    files.rename(stem + SWAP_SUFFIX, stem + LOG_SUFFIX)
    files.sync_directory(directory)  # done: nothing is left for the next open to finish


def _unlink_all(files: Files, stem: str, suffixes: Iterable[str]) -> None:
    for suffix in suffixes:
        if files.exists(stem + suffix):
            files.unlink(stem + suffix)
