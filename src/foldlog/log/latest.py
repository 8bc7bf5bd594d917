"""Finding the record with the largest timestamp: by the time indexes, with a scan only of what they do not cover."""

from __future__ import annotations

from foldlog.limits import READ_CHUNK_BYTES
from foldlog.log.reading import View, read_batches
from foldlog.log.segment import ANY_OFFSET, Segment
from foldlog.records.loops import BatchHeader, decode, offset_at_time, walk

Hit = tuple[int, int]
"""Offset and timestamp of a record."""


def latest_record(view: View, start_offset: int) -> Hit | None:
    """(offset, timestamp) of the record with the largest timestamp from `start_offset` on, of equals the first.

    None if there is none, or none with a timestamp. Segments are looked into in the order of what they can hold at
    most, so usually into one. Raises CorruptLog.
    """
    visible = [
        segment for segment in view.segments[view.segment_at(start_offset) :] if segment.base_offset < view.end_offset
    ]
    at_most = sorted(
        (-segment.largest_timestamp(), segment.base_offset, segment) for segment in visible if segment.size
    )
    best: Hit | None = None
    for negative_ms, base_offset, segment in at_most:
        if best is not None and (best[1] > -negative_ms or (best[1] == -negative_ms and best[0] < base_offset)):
            break
        best = _better(best, _latest_in(view, segment, start_offset))
    return best if best is not None and best[1] >= 0 else None


def _better(one: Hit | None, other: Hit | None) -> Hit | None:
    if one is None or other is None:
        return one or other
    return max(one, other, key=lambda hit: (hit[1], -hit[0]))


def _latest_in(view: View, segment: Segment, start_offset: int) -> Hit | None:
    """Of the segment's records in the view."""
    batch = _latest_batch(segment, view.end_offset)
    if batch is not None and batch.base_offset >= start_offset:
        hit = offset_at_time(read_batches(view, batch.base_offset, 1).data, batch.max_timestamp)
        if hit is not None:
            return hit
    # It was deleted or compacted away, or is a marker of a transaction: nothing is known of what is left.
    return _latest_by_scan(view, segment, start_offset)


def _latest_batch(segment: Segment, end_offset: int) -> BatchHeader | None:
    """The segment's first batch with the largest timestamp of those below `end_offset`; None if that is not known.

    While records wait for their sync, the largest of all may be among them. The time index then has the largest as of
    each entry of the offset index, and what comes after the last of these is looked at.
    """
    latest = segment.latest()
    if latest is None or latest[1] < end_offset:
        found = None if latest is None else segment.find(latest[1])
        return None if found is None else found[1]
    best: BatchHeader | None = None
    relative_end = end_offset - segment.base_offset
    time_entry = segment.time_index.below(relative_end)
    if time_entry is not None:
        found = segment.find(segment.base_offset + time_entry[1])
        if found is None or found[1].max_timestamp != time_entry[0]:
            return None
        best = found[1]
    offset_entry = segment.offset_index.floor(relative_end - 1)
    for _, headers in segment.scan(offset_entry[1] if offset_entry else 0, -1, ANY_OFFSET, stop_at_tear=True):
        for header in headers:
            if header.base_offset >= end_offset:
                return best
            if best is None or header.max_timestamp > best.max_timestamp:
                best = header
    return best


def _latest_by_scan(view: View, segment: Segment, start_offset: int) -> Hit | None:
    """The same from the batches themselves."""
    best: Hit | None = None
    offset = max(start_offset, segment.base_offset)
    following = [other.base_offset for other in view.segments if other.base_offset > segment.base_offset]
    end_offset = min(following[0] if following else view.end_offset, view.end_offset)
    while offset < end_offset:
        found = read_batches(view, offset, READ_CHUNK_BYTES)
        if not found.data:
            break
        for header in walk(found.data, check_crc=False).headers:
            if header.base_offset < end_offset and (best is None or header.max_timestamp > best[1]):
                batch = found.data[header.position : header.position + header.size]
                records, _ = decode(batch, "", 0, start_offset=start_offset)
                for record in records:
                    best = _better(best, (record.offset, record.timestamp_ms))
        offset = found.next_offset
    return best
