"""Making anew what is derived from a log: indexes, producer snapshots, leader epochs, a partition's slot.

All of it could be left to the next open or the next look-up. Nothing here takes a byte out of a segment: where one is
damaged, or ends in bytes that are no batch, it is left as it is.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from foldlog.clock import Clock
from foldlog.files.base import Files, replace_file
from foldlog.log.checkpoint import Slot
from foldlog.log.config import LogConfig
from foldlog.log.epochs import NAME as EPOCHS_NAME
from foldlog.log.epochs import format_epochs
from foldlog.log.inspection import Inspection, inspect
from foldlog.log.partition import Partition
from foldlog.log.producer_state import ProducerState
from foldlog.log.segment import ANY_OFFSET, INDEX_SUFFIX, SNAPSHOT_SUFFIX, TIME_INDEX_SUFFIX, Segment
from foldlog.log.syncer import Syncer
from foldlog.records.loops import BatchHeader

_HINT = re.compile(
    rf".*/(?P<base>\d{{20}})(?P<suffix>{re.escape(INDEX_SUFFIX)}|{re.escape(TIME_INDEX_SUFFIX)}"
    rf"|{re.escape(SNAPSHOT_SUFFIX)})"
)


def rebuild(
    files: Files, directory: str, slot: Slot, config: LogConfig, *, clock: Clock, label: tuple[str, int]
) -> tuple[Inspection, list[str]]:
    """What was found, and the files made anew for it; none where something is damaged.

    The caller is the directory's writer and has the partition not open.
    """
    known = slot.load()
    found = inspect(files, directory, known, index_interval_bytes=config.index_interval_bytes)
    if found.damages:
        return found, []
    made = list(_rebuild_hints(files, found, config.index_interval_bytes))
    ends_whole = found.segments[-1].sound_bytes == found.segments[-1].size
    if known is None and ends_whole:
        # Opening derives the slot, and has nothing to cut.
        syncer = Syncer()  # it starts no thread: nothing is appended
        Partition.open(files, directory, slot, config, clock=clock, syncer=syncer, label=label).close()
        slot.sync()
        made.append(f"the slot of {directory} in the checkpoint")
    return found, made


def _rebuild_hints(files: Files, found: Inspection, interval_bytes: int) -> Iterator[str]:
    segments = [
        Segment(
            files, found.directory, scan.base_offset, scan.sound_bytes, writable=True,
            index_interval_bytes=interval_bytes,
        )
        for scan in found.segments
    ]  # fmt: skip
    rebuilt: set[int] = set()
    for path in found.wrong_hints:
        hint = _HINT.fullmatch(path)
        if path.endswith(f"/{EPOCHS_NAME}"):
            replace_file(files, path, format_epochs(found.epoch_starts))
        elif hint is not None and hint["suffix"] == SNAPSHOT_SUFFIX:
            replace_file(files, path, _producers_below(segments, int(hint["base"])).snapshot())
        elif hint is not None and int(hint["base"]) not in rebuilt:
            rebuilt.add(int(hint["base"]))
            segment = next(one for one in segments if one.base_offset == int(hint["base"]))
            segment.rebuild_indexes()  # both: they are made in one pass
            segment.forget()
        yield path


def _producers_below(segments: list[Segment], offset: int) -> ProducerState:
    """What was known of producers when the log ended at `offset`."""
    state = ProducerState()
    for segment in segments:
        if segment.base_offset < offset:
            state.replay(_headers_below(segment, offset))
            segment.forget()
    return state


def _headers_below(segment: Segment, offset: int) -> Iterator[BatchHeader]:
    for _, headers in segment.scan(0, segment.base_offset, gaps_below=ANY_OFFSET):
        yield from (header for header in headers if header.base_offset < offset)
