"""Building batches: from single records, empty ones, and control markers; and Kafka's key hash."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from crc32c import crc32c

from foldlog.errors import InvalidArgument, RecordTooLarge
from foldlog.limits import BATCH_BYTES_MAX
from foldlog.records import batch as fmt
from foldlog.records import varint
from foldlog.records.compression import compress
from foldlog.records.pure.headers import BatchHeader


def seal(
    body: bytes | bytearray | memoryview,
    *,
    base_offset: int,
    leader_epoch: int,
    attributes: int,
    last_offset_delta: int,
    base_timestamp: int,
    max_timestamp: int,
    producer_id: int,
    producer_epoch: int,
    base_sequence: int,
    record_count: int,
) -> bytearray:
    """A whole batch around a body that is already compressed with the codec in its attributes."""
    size = fmt.RECORDS_AT + len(body)
    if size > BATCH_BYTES_MAX:
        raise RecordTooLarge(size, BATCH_BYTES_MAX)
    out = bytearray(
        fmt.HEADER.pack(
            base_offset,
            size - fmt.LENGTH_PREFIX_BYTES,
            leader_epoch,
            fmt.MAGIC,
            0,
            attributes,
            last_offset_delta,
            base_timestamp,
            max_timestamp,
            producer_id,
            producer_epoch,
            base_sequence,
            record_count,
        )
    )
    out += body
    with memoryview(out) as view:
        crc = crc32c(view[fmt.ATTRIBUTES_AT :])
        view[fmt.CRC_AT : fmt.ATTRIBUTES_AT] = crc.to_bytes(4, "big")
    return out


def _as_bytes(what: str, data: Any) -> bytes | None:
    if data is None or type(data) is bytes:
        return data
    try:
        return bytes(memoryview(data))
    except TypeError:
        raise TypeError(f"a record's {what} has to be bytes or None, not {type(data).__name__}") from None


def _put_field(out: bytearray, data: bytes | None) -> None:
    if data is None:
        out.append(1)
    else:
        varint.encode(len(data), out)
        out += data


def _header_bytes(headers: Any) -> bytearray:
    out = bytearray()
    headers = tuple(headers) if headers else ()
    varint.encode(len(headers), out)
    for header in headers:
        try:
            key, value = header
        except (TypeError, ValueError):
            raise TypeError(f"a record header has to be a pair (str, bytes or None), not {header!r}") from None
        if not isinstance(key, str):
            raise TypeError(f"a record header's key has to be str, not {type(key).__name__}")
        _put_field(out, key.encode())
        _put_field(out, value.encode() if isinstance(value, str) else _as_bytes("header value", value))
    return out


class BatchBuilder:
    """Collects records into one batch. Not thread-safe; one owner at a time. `clear` prepares it for the next batch."""

    __slots__ = ("_base_timestamp", "_body", "_count", "_max_timestamp", "max_bytes", "max_records")

    def __init__(self, max_bytes: int, max_records: int = fmt.MAX_INT32) -> None:
        if max_bytes < 1 or not 1 <= max_records <= fmt.MAX_INT32:
            raise InvalidArgument(f"a batch of at most {max_bytes} bytes and {max_records} records is not possible")
        self.max_bytes = max_bytes
        self.max_records = max_records
        self._body = bytearray()
        self._count = 0
        self._base_timestamp: int = fmt.NO_TIMESTAMP
        self._max_timestamp: int = fmt.NO_TIMESTAMP

    @property
    def count(self) -> int:
        return self._count

    @property
    def size_bytes(self) -> int:
        """The batch's size so far, header included, before compression."""
        return fmt.RECORDS_AT + len(self._body)

    def append(self, timestamp_ms: int, key: Any, value: Any, headers: Any = ()) -> int:
        """The record's index in the batch, or -1 if it no longer fits. A first record always fits."""
        if not fmt.NO_TIMESTAMP <= timestamp_ms < fmt.MAX_INT64:
            raise InvalidArgument(f"timestamp_ms {timestamp_ms} is out of range; -1 means none")
        base_timestamp = self._base_timestamp if self._count else timestamp_ms
        fields = bytearray(1)
        varint.encode(timestamp_ms - base_timestamp, fields)
        varint.encode(self._count, fields)
        _put_field(fields, _as_bytes("key", key))
        _put_field(fields, _as_bytes("value", value))
        fields += _header_bytes(headers)
        size = self.size_bytes + varint.size(len(fields)) + len(fields)
        if self._count and (size > self.max_bytes or self._count >= self.max_records):
            return -1
        if size > BATCH_BYTES_MAX:
            raise RecordTooLarge(size, BATCH_BYTES_MAX)
        varint.encode(len(fields), self._body)
        self._body += fields
        self._base_timestamp = base_timestamp
        self._max_timestamp = max(self._max_timestamp, timestamp_ms)
        self._count += 1
        return self._count - 1

    def build(
        self,
        compression: int = 0,
        *,
        level: int | None = None,
        producer_id: int = -1,
        producer_epoch: int = -1,
        base_sequence: int = -1,
        transactional: bool = False,
        base_offset: int = 0,
    ) -> bytearray:
        """The whole batch, CRC included. The builder keeps its records until `clear`."""
        if self._count == 0:
            raise InvalidArgument("a batch needs at least one record")
        return seal(
            compress(compression, self._body, level) if compression else self._body,
            base_offset=base_offset,
            leader_epoch=fmt.NO_LEADER_EPOCH,
            attributes=compression | (fmt.TRANSACTIONAL if transactional else 0),
            last_offset_delta=self._count - 1,
            base_timestamp=self._base_timestamp,
            max_timestamp=self._max_timestamp,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            base_sequence=base_sequence,
            record_count=self._count,
        )

    def clear(self) -> None:
        """Forget all records."""
        self._body = bytearray()
        self._count = 0
        self._base_timestamp = fmt.NO_TIMESTAMP
        self._max_timestamp = fmt.NO_TIMESTAMP


def pack(
    records: Iterable[tuple[int, Any, Any, Any]],
    compression: int = 0,
    *,
    level: int | None = None,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    transactional: bool = False,
    base_offset: int = 0,
) -> bytearray:
    """One batch of all the records, each (timestamp_ms, key, value, headers)."""
    builder = BatchBuilder(BATCH_BYTES_MAX)
    for timestamp_ms, key, value, headers in records:
        if builder.append(timestamp_ms, key, value, headers) < 0:
            raise RecordTooLarge(builder.size_bytes, BATCH_BYTES_MAX)
    return builder.build(
        compression,
        level=level,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
        transactional=transactional,
        base_offset=base_offset,
    )


def empty_batch(header: BatchHeader) -> bytes:
    """A batch without records that keeps offsets, epoch and producer fields: what compaction leaves."""
    kept = fmt.LOG_APPEND_TIME | fmt.TRANSACTIONAL | fmt.CONTROL
    return bytes(
        seal(
            b"",
            base_offset=header.base_offset,
            leader_epoch=header.leader_epoch,
            attributes=header.attributes & kept,
            last_offset_delta=header.last_offset_delta,
            base_timestamp=fmt.NO_TIMESTAMP,
            max_timestamp=header.max_timestamp,
            producer_id=header.producer_id,
            producer_epoch=header.producer_epoch,
            base_sequence=header.base_sequence,
            record_count=0,
        )
    )


def control_batch(
    kind: int, coordinator_epoch: int, producer_id: int, producer_epoch: int, timestamp_ms: int
) -> bytearray:
    """The marker that ends a transaction: kind 0 aborts, 1 commits."""
    if kind not in (fmt.CONTROL_ABORT, fmt.CONTROL_COMMIT):
        raise InvalidArgument(f"there is no control record of kind {kind}; 0 is abort, 1 is commit")
    builder = BatchBuilder(BATCH_BYTES_MAX)
    key = b"\x00\x00" + kind.to_bytes(2, "big")
    builder.append(timestamp_ms, key, b"\x00\x00" + coordinator_epoch.to_bytes(4, "big", signed=True))
    return seal(
        builder._body,
        base_offset=0,
        leader_epoch=fmt.NO_LEADER_EPOCH,
        attributes=fmt.CONTROL | fmt.TRANSACTIONAL,
        last_offset_delta=0,
        base_timestamp=timestamp_ms,
        max_timestamp=timestamp_ms,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=fmt.NO_SEQUENCE,
        record_count=1,
    )


def murmur2(key: Any) -> int:
    """Kafka's hash of a key, as a signed int32. A partition is `(murmur2(key) & 0x7fffffff) % partitions`."""
    data = bytes(memoryview(key))
    mask, multiplier = 0xFFFFFFFF, 0x5BD1E995
    digest = 0x9747B28C ^ len(data)
    whole = len(data) & ~3
    for position in range(0, whole, 4):
        word = int.from_bytes(data[position : position + 4], "little") * multiplier & mask
        word = (word ^ word >> 24) * multiplier & mask
        digest = digest * multiplier & mask ^ word
    if whole < len(data):
        digest = (digest ^ int.from_bytes(data[whole:], "little")) * multiplier & mask
    digest = (digest ^ digest >> 13) * multiplier & mask
    digest ^= digest >> 15
    return digest - (1 << 32) if digest >> 31 else digest
