"""Windows into a partition: a strip of cells, one record, the time at an offset.

On a worker thread. Every look begins with a search in the index and ends at a number of records or bytes, so it costs
the same at offset 10 and at offset 10 million.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final

from foldlog.errors import OffsetOutOfRange
from foldlog.limits import CONSOLE_READ_BYTES_MAX
from foldlog.log.reading import View, batch_place
from foldlog.records.batch import MAX_INT64, Compression, TimestampType
from foldlog.records.loops import Record, decode, walk
from foldlog.server.console.api_errors import ApiError
from foldlog.server.console.values import short_key, shown

if TYPE_CHECKING:
    from foldlog.log.partition import Partition

LAST: Final = -1
"""In place of an offset to begin at: so that the strip ends where the log does."""

_CHUNK_BYTES: Final = 256 << 10
_WIDER: Final = 4
_WIDER_TRIES: Final = 4
"""Where compaction left few of the last offsets, the strip that ends with the log begins further back: by so many
times as much, so often."""


def strip(partition: Partition, from_offset: int, count: int) -> dict[str, Any]:
    """Up to `count` records from an offset on. Every offset from `from` to before `next` is a cell or in a gap."""
    window = _last_window(partition, count) if from_offset == LAST else _window(partition, from_offset, count)
    start, end = bounds(partition)
    return {
        "start": start,
        "end": end,
        "from": window.first,
        "next": window.next_offset,
        "cells": [_cell(record, batch) for record, batch in window.records],
        "gaps": window.gaps,
        "edge": edge(partition),
    }


def bounds(partition: Partition) -> tuple[int, int]:
    """The log start, and the high watermark: what can be read is between them."""
    end = partition.high_watermark
    return min(partition.log_start_offset, end), end


class _Window:
    """Records in order, each with the base offset of its batch, and the offsets between them that have none.

    With `keep`, only the last so many: `first` then is the first of those.
    """

    def __init__(self, first: int, keep: int | None = None) -> None:
        self.first = self.next_offset = first
        self.records: deque[tuple[Record, int]] = deque(maxlen=keep)
        self._gaps: list[list[int]] = []

    def add(self, record: Record, batch: int) -> None:
        self.skip_to(record.offset)
        is_full = len(self.records) == self.records.maxlen
        self.records.append((record, batch))
        if is_full:
            self.first = self.records[0][0].offset
        self.next_offset = record.offset + 1

    def skip_to(self, offset: int) -> None:
        """Nothing stands from here to there. Gaps that touch are one: a read ended between them."""
        if offset > self.next_offset:
            if self._gaps and self._gaps[-1][1] == self.next_offset:
                self._gaps[-1][1] = offset
            else:
                self._gaps.append([self.next_offset, offset])
            self.next_offset = offset

    @property
    def gaps(self) -> list[list[int]]:
        return [gap for gap in self._gaps if gap[1] > self.first]


def _last_window(partition: Partition, count: int) -> _Window:
    """The records that the log ends with: further back, where compaction left few of the last offsets."""
    start, end = bounds(partition)
    width = count
    found = _window(partition, end - width, keep=count)
    for _ in range(_WIDER_TRIES):
        if len(found.records) >= count or found.first <= start:
            break
        width *= _WIDER
        wider = _window(partition, end - width, keep=count)
        if wider.next_offset < end:
            break  # that is more than one look may read
        found = wider
    return found


def _window(partition: Partition, from_offset: int, stop_after: int = MAX_INT64, *, keep: int | None = None) -> _Window:
    start, end = bounds(partition)
    window = _Window(min(max(from_offset, start), end), keep)
    left_bytes = CONSOLE_READ_BYTES_MAX
    while len(window.records) < stop_after and window.next_offset < end and left_bytes > 0:
        try:
            piece = partition.read(window.next_offset, min(_CHUNK_BYTES, left_bytes))
        except OffsetOutOfRange:
            if window.next_offset != window.first or partition.log_start_offset <= window.first:
                raise
            # Retention was faster: the strip begins at the new edge.
            window = _Window(partition.log_start_offset, keep)
            continue
        if not piece.data:
            break
        left_bytes -= len(piece.data)
        records, next_offset = decode(
            piece.data,
            *partition.label,
            start_offset=window.next_offset,
            end_offset=end,
            max_records=stop_after - len(window.records),
        )
        bases = [header.base_offset for header in walk(piece.data, gaps_below=MAX_INT64, check_crc=False).headers]
        for record in records:
            window.add(record, bases[bisect_right(bases, record.offset) - 1])
        window.skip_to(next_offset)
    return window


def _cell(record: Record, batch: int) -> dict[str, Any]:
    return {
        "offset": record.offset,
        "timestamp": record.timestamp_ms,
        "key": short_key(record.key),
        "value_size": 0 if record.value is None else len(record.value),
        "is_tombstone": record.value is None,
        "batch": batch,
    }


def edge(partition: Partition) -> dict[str, Any]:
    """Where the log begins, how old that is, and when retention.ms takes its oldest segment; null if it does not."""
    start, _ = bounds(partition)
    oldest = next_record(partition, start)
    config = partition.config
    expires_ms = None
    if oldest is not None and config.delete and config.retention_ms >= 0:
        largest_ms = partition.look(lambda view: view.segments[view.segment_at(start)].largest_timestamp())
        # Retention waits until it is older than that, and so goes at the next millisecond.
        expires_ms = largest_ms + config.retention_ms + 1 if largest_ms >= 0 else None
    oldest_ms = oldest.timestamp_ms if oldest is not None else None
    return {"start": start, "oldest_ms": oldest_ms, "expires_ms": expires_ms}


def next_record(partition: Partition, offset: int) -> Record | None:
    """The record at an offset, or the first after it; None if none follows within what one look may read."""
    left_bytes = CONSOLE_READ_BYTES_MAX
    while offset < partition.high_watermark and left_bytes > 0:
        piece = partition.read(offset, 1)
        if not piece.data:
            return None
        records, offset = decode(piece.data, *partition.label, start_offset=offset, max_records=1)
        if records:
            return records[0]
        left_bytes -= len(piece.data)
    return None


def time_at(partition: Partition, offset: int) -> dict[str, Any]:
    """Offset and time of the record there, or of the next after it; no time where there is none yet."""
    start, end = bounds(partition)
    found = next_record(partition, min(max(offset, start), end))
    if found is None:
        return {"offset": end, "timestamp": None}
    return {"offset": found.offset, "timestamp": found.timestamp_ms}


def offset_at(partition: Partition, time_ms: int) -> int:
    """The first record at or after a time; the end if there is none."""
    found = partition.offset_at_time(time_ms)
    return partition.high_watermark if found is None else found[0]


def record_at(partition: Partition, offset: int) -> dict[str, Any]:
    """One record, and where it stands. 404 if it is not there, with what became of it."""
    topic, number = partition.label
    end = partition.high_watermark
    if offset == end:
        raise ApiError(
            HTTPStatus.NOT_FOUND, f"offset {offset} of {topic}-{number} is not written yet; the last is {end - 1}"
        )

    def look(view: View) -> dict[str, Any] | None:
        place = batch_place(view, offset)
        if place is None or place.header.base_offset > offset:
            return None
        records, _ = decode(place.data, topic, number, start_offset=offset, end_offset=offset + 1)
        if not records:
            return None
        header = place.header
        return {
            **_fields(records[0]),
            "batch": {
                "base_offset": header.base_offset,
                "last_offset": header.last_offset,
                "records": header.record_count,
                "codec": Compression(header.compression).name.lower(),
                "size_bytes": header.size,
                "producer_id": header.producer_id,
                "leader_epoch": header.leader_epoch,
            },
            "segment": place.segment.log_path.rpartition("/")[2],
            "position": place.position,
        }

    found = partition.look(look, offset)
    if found is None:
        following = next_record(partition, offset)
        hint = f"; the next one is at {following.offset}" if following is not None else ""
        raise ApiError(
            HTTPStatus.NOT_FOUND,
            f"there is no record at offset {offset} of {topic}-{number}: it was compacted away{hint}",
            {"next": None if following is None else following.offset},
        )
    return found


def _fields(record: Record) -> dict[str, Any]:
    kind = TimestampType(record.timestamp_type)
    return {
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "timestamp": record.timestamp_ms,
        "timestamp_type": "LogAppendTime" if kind is TimestampType.LOG_APPEND_TIME else "CreateTime",
        "key": shown(record.key),
        "value": shown(record.value),
        "headers": [[name, shown(value)] for name, value in record.headers],
    }
