"""Converts batches of one log for another: pure functions of bytes.

A directory gets them as they are, at the same offsets: holes of the source are filled with batches without records, as
compaction leaves them. A broker assigns consecutive offsets itself, so it gets batches without holes, and without
attributes that only a log may set.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from struct import Struct
from typing import Final, NamedTuple

from crc32c import crc32c

from foldlog.limits import BATCH_BYTES_MAX, POSITION_MAX
from foldlog.records import batch as fmt
from foldlog.records.loops import BatchBuilder, BatchHeader, Record, decode, empty_batch
from foldlog.records.stamping import stamp_producer

_ATTRIBUTES: Final = Struct(">h")
_CRC: Final = Struct(">I")
_OFFSET: Final = Struct(">q")
_EPOCH: Final = Struct(">i")

_NOT_FROM_A_CLIENT: Final = fmt.LOG_APPEND_TIME | fmt.DELETE_HORIZON
"""Attributes with which a broker refuses a batch, and which change how its records' times are read."""


class OffsetBatch(NamedTuple):
    """A batch, and its base offset in the target."""

    base_offset: int
    data: bytearray


def stand_ins(first_offset: int, next_offset: int) -> Iterator[OffsetBatch]:
    """Batches without records for a range of offsets: one, or several if a batch cannot count that far."""
    while first_offset < next_offset:
        end = min(next_offset, first_offset + POSITION_MAX)
        header = BatchHeader(
            position=0,
            size=fmt.RECORDS_AT,
            base_offset=first_offset,
            leader_epoch=fmt.NO_LEADER_EPOCH,
            attributes=0,
            last_offset_delta=end - first_offset - 1,
            base_timestamp=fmt.NO_TIMESTAMP,
            max_timestamp=fmt.NO_TIMESTAMP,
            producer_id=fmt.NO_PRODUCER_ID,
            producer_epoch=fmt.NO_PRODUCER_EPOCH,
            base_sequence=fmt.NO_SEQUENCE,
            record_count=0,
            crc=0,
        )
        yield OffsetBatch(first_offset, bytearray(empty_batch(header)))
        first_offset = end


def as_stored(data: memoryview, header: BatchHeader, from_offset: int) -> list[OffsetBatch]:
    """A batch as a directory takes it, with its offsets; only records at or after `from_offset`.

    The producer's id is removed: in the target, that id may belong to another producer.
    """
    if header.base_offset < from_offset:
        return _runs(data, header, from_offset)
    batch = bytearray(data[header.position : header.position + header.size])
    if header.producer_id != fmt.NO_PRODUCER_ID or header.is_transactional:
        _put_attributes(batch, header.attributes & ~fmt.TRANSACTIONAL)
        stamp_producer(batch, fmt.NO_PRODUCER_ID, fmt.NO_PRODUCER_EPOCH, fmt.NO_SEQUENCE)
    return [OffsetBatch(header.base_offset, batch)]


def as_sent(data: memoryview, header: BatchHeader, from_offset: int, limit_bytes: int) -> list[bytearray]:
    """A batch as a broker takes it from a client: dense, with the producer's times, none over `limit_bytes`.

    The CRC is not valid yet: the producer computes it when it writes its sequence numbers.
    """
    is_dense = header.record_count == header.last_offset_delta + 1
    is_plain = not header.attributes & _NOT_FROM_A_CLIENT
    if header.base_offset >= from_offset and is_dense and is_plain and header.size <= limit_bytes:
        batch = bytearray(data[header.position : header.position + header.size])
        # Kafka would recompress it if it did not begin at 0.
        _OFFSET.pack_into(batch, fmt.BASE_OFFSET_AT, 0)
        _EPOCH.pack_into(batch, fmt.LEADER_EPOCH_AT, fmt.NO_LEADER_EPOCH)
        _put_attributes(batch, header.attributes & ~fmt.TRANSACTIONAL)
        return [batch]
    records = _records(data, header, from_offset)
    batches = list(_packed(records, header.compression, limit_bytes))
    if header.compression and any(len(batch) > limit_bytes for batch in batches):
        batches = list(_packed(records, 0, limit_bytes))
    return batches


def count_from(data: memoryview, header: BatchHeader, from_offset: int) -> int:
    """How many records of a batch are at or after an offset."""
    return header.record_count if header.base_offset >= from_offset else len(_records(data, header, from_offset))


def count_below(data: memoryview, header: BatchHeader, offset: int) -> int:
    """How many records of a batch are before an offset."""
    return (
        header.record_count if header.next_offset <= offset else header.record_count - count_from(data, header, offset)
    )


def records_in(data: memoryview, start: int, stop: int) -> list[Record]:
    """The records of whole batches with offsets from `start` to before `stop`."""
    return decode(data, "", 0, start_offset=start, end_offset=stop)[0]


def _records(data: memoryview, header: BatchHeader, from_offset: int) -> list[Record]:
    return records_in(data[header.position : header.position + header.size], from_offset, header.next_offset)


def _packed(records: Iterable[Record], compression: int, limit_bytes: int) -> Iterator[bytearray]:
    builder = BatchBuilder(limit_bytes)
    for record in records:
        fields = (record.timestamp_ms, record.key, record.value, record.headers)
        if builder.append(*fields) < 0:
            yield builder.build(compression)
            builder.clear()
            builder.append(*fields)
    if builder.count:
        yield builder.build(compression)


def _runs(data: memoryview, header: BatchHeader, from_offset: int) -> list[OffsetBatch]:
    """The rest of a batch that is partly copied: a batch for each run of offsets without a hole."""
    runs: list[list[Record]] = []
    for record in _records(data, header, from_offset):
        if runs and record.offset == runs[-1][-1].offset + 1:
            runs[-1].append(record)
        else:
            runs.append([record])
    batches = []
    for run in runs:
        (batch,) = _packed(run, header.compression, BATCH_BYTES_MAX)
        if header.is_log_append_time:
            _put_attributes(batch, header.compression | fmt.LOG_APPEND_TIME)
            with memoryview(batch) as view:
                _CRC.pack_into(batch, fmt.CRC_AT, crc32c(view[fmt.ATTRIBUTES_AT :]))
        batches.append(OffsetBatch(run[0].offset, batch))
    return batches


def _put_attributes(batch: bytearray, attributes: int) -> None:
    _ATTRIBUTES.pack_into(batch, fmt.ATTRIBUTES_AT, attributes)
