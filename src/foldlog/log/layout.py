"""The names in a partition's directory, and what is to be done about those that a crash left behind."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from foldlog.errors import CorruptLog
from foldlog.files.base import DirectoryEntry, Files
from foldlog.log.segment import (
    INDEX_SUFFIX,
    LOG_SUFFIX,
    SNAPSHOT_SUFFIX,
    TIME_INDEX_SUFFIX,
    Segment,
    segment_stem,
)

METADATA_NAME = "partition.metadata"
CLEANED_SUFFIX = ".log.cleaned"
SWAP_SUFFIX = ".log.swap"
CUT_SUFFIX = ".cut"
_NAME = re.compile(r"(\d{20})(\.log|\.log\.cleaned|\.log\.swap|\.snapshot)")


@dataclass(frozen=True, slots=True)
class PartitionLayout:
    """What a directory holds: base offset → size of each kind of file."""

    logs: dict[int, int]
    cleaned: dict[int, int]
    swaps: dict[int, int]
    snapshots: dict[int, int]


def read_layout(entries: Iterable[DirectoryEntry]) -> PartitionLayout:
    kinds: dict[str, dict[int, int]] = {LOG_SUFFIX: {}, CLEANED_SUFFIX: {}, SWAP_SUFFIX: {}, SNAPSHOT_SUFFIX: {}}
    for entry in entries:
        match = _NAME.fullmatch(entry.name)
        if match:
            kinds[match[2]][int(match[1])] = entry.size_bytes
    return PartitionLayout(kinds[LOG_SUFFIX], kinds[CLEANED_SUFFIX], kinds[SWAP_SUFFIX], kinds[SNAPSHOT_SUFFIX])


def finish_swaps(files: Files, directory: str, layout: PartitionLayout) -> bool:
    """Carry out what compaction had decided before a crash; whether there was anything.

    A .cleaned file was not decided yet: it goes. A .swap file is whole and synced: it takes the place of the
    segments it was made from, which are those that begin inside it.
    """
    for base_offset in layout.cleaned:
        files.unlink(segment_stem(directory, base_offset) + CLEANED_SUFFIX)
    for base_offset, size in layout.swaps.items():
        swap = segment_stem(directory, base_offset) + SWAP_SUFFIX
        ends_at = _end_of_swap(files, directory, base_offset, size)
        if ends_at not in layout.logs:
            # The segment behind it is always there: with a wrong end, segments would go that it does not hold.
            reason = f"it ends at offset {ends_at}, where no segment begins"
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
    """A compacted segment under the name it has until it takes its place. Opened to be read once, by recovery."""

    __slots__ = ()

    @property
    def log_path(self) -> str:
        return self.stem + SWAP_SUFFIX


def free_cut_name(files: Files, path: str, position: int) -> str:
    """Where bytes that are taken out of a file at `position` are kept. What was cut before stays as it is."""
    name, number = f"{path}.{position}{CUT_SUFFIX}", 2
    while files.exists(name):
        name, number = f"{path}.{position}-{number}{CUT_SUFFIX}", number + 1
    return name


def swap_in(files: Files, directory: str, base_offset: int, replaced: Iterable[int]) -> None:
    """Let `<base>.log.swap` take the place of the segment at `base_offset` and of those it also covers.

    The order is the point: once the swap file's name is durable the old ones may go, and only when they are
    durably gone may it become a .log, or a cut could leave both and the offsets twice.
    """
    # Assumed of the file system: names that were changed since the last sync of their directory survive a cut or not,
    # each by itself and in no order; after the sync all of them do. So each sync here is a line that nothing crosses.
    stem = segment_stem(directory, base_offset)
    # The name .swap is the decision. A cut before this leaves .cleaned, which goes; with .swap lost and an old segment
    # gone, records would be gone with it.
    files.sync_directory(directory)
    for base in replaced:
        _unlink_all(
            files, segment_stem(directory, base), (LOG_SUFFIX, INDEX_SUFFIX, TIME_INDEX_SUFFIX, SNAPSHOT_SUFFIX)
        )
    # Its indexes lead into the old file. Not its .log: the rename replaces that in one step, so there is no moment, and
    # no cut, that finds neither.
    _unlink_all(files, stem, (INDEX_SUFFIX, TIME_INDEX_SUFFIX))
    # The neighbours are durably gone before the rename: a cut that kept the new .log and one of them would leave the
    # same offsets twice, with no .swap to tell which is which.
    files.sync_directory(directory)
    files.rename(stem + SWAP_SUFFIX, stem + LOG_SUFFIX)
    files.sync_directory(directory)  # done: nothing is left for the next open to finish


def _unlink_all(files: Files, stem: str, suffixes: Iterable[str]) -> None:
    for suffix in suffixes:
        if files.exists(stem + suffix):
            files.unlink(stem + suffix)
