"""Compaction: a map of each key's newest offset, and the batches without superseded records."""

from __future__ import annotations

from array import array
from typing import Any

from foldlog.errors import InvalidArgument, InvalidBatch
from foldlog.records import batch as fmt
from foldlog.records import varint
from foldlog.records.compression import READ_DECOMPRESSED_BYTES, check_codec, compress
from foldlog.records.pure.headers import BatchHeader, Value, bytes_of
from foldlog.records.pure.reading import Body, Parsed, batches_between, batches_in, field, open_body, parse_records
from foldlog.records.pure.writing import empty_batch, seal


class KeyMap:
    """Newest offset of each key, for at most `capacity` keys."""

    __slots__ = ("_newest", "capacity")

    def __init__(self, capacity: int) -> None:
        if capacity < 1:
            raise InvalidArgument(f"a key map needs room for at least one key, not {capacity}")
        self.capacity = capacity
        self._newest: dict[bytes, int] = {}

    def __len__(self) -> int:
        return len(self._newest)

    def add(
        self,
        buffer: Any,
        *,
        start_offset: int = 0,
        end_offset: int = fmt.MAX_INT64,
        decompressed_limit: int = READ_DECOMPRESSED_BYTES,
    ) -> int:
        """Note the offset of every keyed data record in these batches with start_offset <= offset < end_offset.

        Returns the offset up to which, exclusive, everything is noted: less than the end if the map is full.
        """
        noted = start_offset
        with bytes_of(buffer) as view:
            for header in batches_between(view, start_offset, end_offset):
                noted = min(header.next_offset, end_offset)
                if header.is_control:
                    continue
                body = open_body(view, header, decompressed_limit)
                for record in parse_records(body, header):
                    offset = header.base_offset + record.offset_delta
                    key = field(body.data, record.key_at, record.key_bytes)
                    if key is None or not start_offset <= offset < end_offset:
                        continue
                    if not self._note(key, offset):
                        return offset
        return noted

    def _note(self, key: bytes, offset: int) -> bool:
        known = self._newest.get(key, -1)
        if known < 0 and len(self._newest) >= self.capacity:
            return False
        self._newest[key] = max(known, offset)
        return True

    def newest(self, key: bytes) -> int:
        """The newest offset noted for the key; -1 if there is none."""
        return self._newest.get(bytes(key), -1)

    def newest_offsets(self) -> bytearray:
        """The newest offset of each key, ascending: int64 in the processor's byte order."""
        return bytearray(array("q", sorted(self._newest.values())).tobytes())


class CompactStats(Value):
    """What one call of `compact` read and wrote."""

    __match_args__ = ("records_in", "records_out", "batches_in", "batches_out", "bytes_in", "bytes_out")
    __slots__ = __match_args__

    def __init__(
        self,
        records_in: int = 0,
        records_out: int = 0,
        batches_in: int = 0,
        batches_out: int = 0,
        bytes_in: int = 0,
        bytes_out: int = 0,
    ) -> None:
        self.records_in = records_in
        self.records_out = records_out
        self.batches_in = batches_in
        self.batches_out = batches_out
        self.bytes_in = bytes_in
        self.bytes_out = bytes_out


def compact(
    buffer: Any,
    keys: KeyMap,
    *,
    now_ms: int,
    delete_retention_ms: int,
    mapped_end: int,
    keep_batches: frozenset[int] = frozenset(),
    keep_last: bool = False,
    decompressed_limit: int = READ_DECOMPRESSED_BYTES,
) -> tuple[bytearray, CompactStats]:
    """The batches without superseded records, and without tombstones whose delete horizon has passed.

    A record stays if it has no key, or is at or past `mapped_end` (beyond the map), or is its key's newest. A batch
    wholly below `mapped_end` that keeps a tombstone and has no delete horizon gets one: now + delete_retention_ms, in
    place of its base timestamp. Untouched batches are copied as they are. Rewritten ones keep offsets, epoch, producer
    fields, codec and timestamp type. One left without records is dropped, unless its base offset is in `keep_batches`
    or it is the last and `keep_last`: then it stays, empty.
    """
    horizon_ms = min(now_ms + delete_retention_ms, fmt.MAX_INT64)
    stats = CompactStats()
    out = bytearray()
    with bytes_of(buffer) as view:
        stats.bytes_in = len(view)
        for header in batches_in(view):
            stats.batches_in += 1
            stats.records_in += header.record_count
            whole = view[header.position : header.position + header.size]
            is_last = header.position + header.size == len(view)
            if header.is_control:
                kept_count, rewritten = header.record_count, None
            else:
                kept_count, rewritten = _compact_batch(
                    view, header, keys, now_ms, horizon_ms, mapped_end, decompressed_limit
                )
            if header.is_control or kept_count:
                out += whole if rewritten is None else rewritten
            elif header.base_offset in keep_batches or (is_last and keep_last):
                out += whole if header.record_count == 0 else empty_batch(header)
            else:
                continue
            stats.batches_out += 1
            stats.records_out += kept_count
    stats.bytes_out = len(out)
    return out, stats


def _compact_batch(
    view: memoryview,
    header: BatchHeader,
    keys: KeyMap,
    now_ms: int,
    horizon_ms: int,
    mapped_end: int,
    decompressed_limit: int,
) -> tuple[int, bytearray | None]:
    """How many records stay, and the rewritten batch; None if it is unchanged (or nothing stays)."""
    body = open_body(view, header, decompressed_limit)
    tombstones_go = header.has_delete_horizon and now_ms >= header.base_timestamp
    kept: list[Parsed] = []
    keeps_tombstone = False
    for record in parse_records(body, header):
        offset = header.base_offset + record.offset_delta
        key = field(body.data, record.key_at, record.key_bytes)
        if key is not None and offset < mapped_end:
            if keys.newest(key) > offset or (record.value_bytes < 0 and tombstones_go):
                continue
            keeps_tombstone |= record.value_bytes < 0
        kept.append(record)
    sets_horizon = (
        keeps_tombstone
        and not header.has_delete_horizon
        and header.next_offset <= mapped_end
        and _deltas_fit(header, kept, horizon_ms)
    )
    if not kept or (len(kept) == header.record_count and not sets_horizon):
        return len(kept), None
    return len(kept), _rewrite(header, body, kept, horizon_ms if sets_horizon else None)


def _deltas_fit(header: BatchHeader, kept: list[Parsed], horizon_ms: int) -> bool:
    """Whether every timestamp fits into a delta from the horizon; if not, tombstones are kept for ever."""
    return all(abs(header.base_timestamp + record.timestamp_delta - horizon_ms) <= fmt.MAX_INT64 for record in kept)


def _rewrite(header: BatchHeader, body: Body, kept: list[Parsed], horizon_ms: int | None) -> bytearray:
    """Records are copied as they are, since base offset and base timestamp stay; a new horizon changes the latter."""
    records = bytearray()
    max_timestamp = -fmt.MAX_INT64
    for record in kept:
        timestamp = header.base_timestamp + record.timestamp_delta
        max_timestamp = max(max_timestamp, timestamp)
        if horizon_ms is None:
            records += body.data[record.start : record.end]
            continue
        fields = bytearray(body.data[record.deltas_at : record.deltas_at + 1])
        varint.encode(timestamp - horizon_ms, fields)
        fields += body.data[record.after_timestamp : record.end]
        varint.encode(len(fields), records)
        records += fields
    codec = header.compression
    return seal(
        compress(codec, records) if codec else records,
        base_offset=header.base_offset,
        leader_epoch=header.leader_epoch,
        attributes=header.attributes if horizon_ms is None else header.attributes | fmt.DELETE_HORIZON,
        last_offset_delta=header.last_offset_delta,
        base_timestamp=header.base_timestamp if horizon_ms is None else horizon_ms,
        max_timestamp=header.max_timestamp if header.is_log_append_time else max_timestamp,
        producer_id=header.producer_id,
        producer_epoch=header.producer_epoch,
        base_sequence=header.base_sequence,
        record_count=len(kept),
    )


def with_delete_horizon(batch: Any, horizon_ms: int) -> bytearray:
    """One batch that is not compressed, with the time after which compaction may drop it; its records stay as they are.
    For markers: of data, `compact` sets it."""
    with bytes_of(batch) as view:
        header = next(iter(batches_in(view)))
        body = open_body(view, header, READ_DECOMPRESSED_BYTES)
        return _rewrite(header, body, list(parse_records(body, header)), horizon_ms)


def recompress(
    buffer: Any, compression: int, level: int | None = None, *, decompressed_limit: int = READ_DECOMPRESSED_BYTES
) -> bytearray:
    """All batches in another codec; offsets, epochs, timestamps and producer fields stay.

    Control batches, empty ones, and those already in that codec are copied as they are.
    """
    check_codec(compression, level)
    out = bytearray()
    with bytes_of(buffer) as view:
        for header in batches_in(view):
            if header.is_control or header.record_count == 0 or header.compression == compression:
                out += view[header.position : header.position + header.size]
                continue
            body = open_body(view, header, decompressed_limit)
            records = body.data[body.start : body.end]
            if len(records) == 0:
                raise InvalidBatch(fmt.FAULT_TOO_MANY_RECORDS, header.position)
            out += seal(
                compress(compression, records, level) if compression else records,
                base_offset=header.base_offset,
                leader_epoch=header.leader_epoch,
                attributes=header.attributes & ~fmt.COMPRESSION_MASK | compression,
                last_offset_delta=header.last_offset_delta,
                base_timestamp=header.base_timestamp,
                max_timestamp=header.max_timestamp,
                producer_id=header.producer_id,
                producer_epoch=header.producer_epoch,
                base_sequence=header.base_sequence,
                record_count=header.record_count,
            )
    return out
