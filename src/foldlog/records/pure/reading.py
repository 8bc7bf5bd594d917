"""The records inside batches: parsing, validating, decoding, finding one by time."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, NamedTuple

from foldlog.errors import InvalidArgument, InvalidBatch, RecordTooLarge, SerializationError
from foldlog.records import batch as fmt
from foldlog.records import varint
from foldlog.records.compression import READ_DECOMPRESSED_BYTES, decompress
from foldlog.records.pure.headers import BatchHeader, Value, bytes_of, crc_matches, read_header

Headers = tuple[tuple[str, bytes | None], ...]


class Record(Value):
    """One record as a reader gets it. Immutable; equal if all values are; hashed by where it stands in the log.

    >>> record = Record("orders", 0, 5, 1700000000000, 0, b"tx_001", b"paid", (("source", b"web"),))
    >>> record.topic, record.offset, record.key, dict(record.headers)
    ('orders', 5, b'tx_001', {'source': b'web'})
    """

    __match_args__ = (
        "topic",
        "partition",
        "offset",
        "timestamp_ms",
        "timestamp_type",
        "key",
        "value",
        "headers",
        "leader_epoch",
    )
    __slots__ = __match_args__

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    timestamp_type: int
    key: Any
    value: Any
    headers: Headers
    leader_epoch: int

    def __init__(
        self,
        topic: str,
        partition: int,
        offset: int,
        timestamp_ms: int,
        timestamp_type: int,
        key: Any,
        value: Any,
        headers: Headers = (),
        leader_epoch: int = -1,
    ) -> None:
        put = object.__setattr__
        put(self, "topic", topic)
        put(self, "partition", partition)
        put(self, "offset", offset)
        put(self, "timestamp_ms", timestamp_ms)
        put(self, "timestamp_type", timestamp_type)
        put(self, "key", key)
        put(self, "value", value)
        put(self, "headers", headers)
        put(self, "leader_epoch", leader_epoch)

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"a record is immutable; use replace() to get one with another {name}")

    def __delattr__(self, name: str) -> None:
        raise AttributeError("a record is immutable")

    def __hash__(self) -> int:  # type: ignore[override]
        return hash((self.topic, self.partition, self.offset))

    def _where(self) -> str:
        return f"{self.topic}-{self.partition} at offset {self.offset}"

    def json(self) -> Any:
        """The value parsed as JSON; None for a tombstone.

        >>> Record("orders", 0, 5, 0, 0, None, b'{"n": 1}').json()
        {'n': 1}
        """
        if self.value is None:
            return None
        try:
            return json.loads(self.value)
        except (ValueError, TypeError) as error:
            raise SerializationError(f"the value of {self._where()} is not JSON: {error}") from error
        except RecursionError as error:
            raise SerializationError(f"the value of {self._where()} is JSON nested too deep to be read here") from error

    def text(self) -> str | None:
        """The value as UTF-8 text; None for a tombstone.

        >>> Record("orders", 0, 5, 0, 0, None, b"paid").text()
        'paid'
        """
        if self.value is None:
            return None
        try:
            return str(self.value, "utf-8")
        except (ValueError, TypeError) as error:
            raise SerializationError(f"the value of {self._where()} is not UTF-8 text: {error}") from error

    def replace(self, *, key: Any = ..., value: Any = ...) -> Record:
        """A copy of the record with another key or value.

        >>> Record("orders", 0, 5, 0, 0, None, b"paid").replace(value=None).value is None
        True
        """
        return Record(
            self.topic,
            self.partition,
            self.offset,
            self.timestamp_ms,
            self.timestamp_type,
            self.key if key is ... else key,
            self.value if value is ... else value,
            self.headers,
            self.leader_epoch,
        )


class Parsed(NamedTuple):
    """The positions of a record's fields in its body. Lengths of -1 are nulls."""

    start: int
    deltas_at: int
    timestamp_delta: int
    after_timestamp: int
    offset_delta: int
    key_at: int
    key_bytes: int
    value_at: int
    value_bytes: int
    headers_at: int
    header_count: int
    end: int


class Body(NamedTuple):
    """A batch's records, expanded."""

    data: memoryview
    start: int
    end: int


class _BrokenRecordError(Exception):
    """A record is broken; the text is the reason, the caller adds the position."""


def _field(data: memoryview, position: int, end: int, lowest: int) -> tuple[int, int]:
    """A field's length, checked against the bytes left, and where the field starts."""
    length, position = varint.decode32(data, position, end)
    if length < lowest:
        raise _BrokenRecordError(fmt.FAULT_FIELD_LENGTH)
    if length > end - position:
        raise _BrokenRecordError(fmt.FAULT_RECORD_CUT_OFF)
    return length, position


def _parse_record(data: memoryview, start: int, body_end: int) -> Parsed:
    length, deltas_at = _field(data, start, body_end, 0)
    end = deltas_at + length
    if length == 0:
        raise _BrokenRecordError(fmt.FAULT_RECORD_CUT_OFF)
    timestamp_delta, after_timestamp = varint.decode64(data, deltas_at + 1, end)
    offset_delta, position = varint.decode32(data, after_timestamp, end)
    key_bytes, key_at = _field(data, position, end, -1)
    value_bytes, value_at = _field(data, key_at + max(key_bytes, 0), end, -1)
    header_count, headers_at = varint.decode32(data, value_at + max(value_bytes, 0), end)
    if header_count < 0:
        raise _BrokenRecordError(fmt.FAULT_FIELD_LENGTH)
    if header_count > (end - headers_at) // fmt.HEADER_BYTES_MIN:
        raise _BrokenRecordError(fmt.FAULT_RECORD_CUT_OFF)
    position = headers_at
    for _ in range(header_count):
        size, position = _field(data, position, end, 0)
        size, position = _field(data, position + size, end, -1)
        position += max(size, 0)
    if position != end:
        raise _BrokenRecordError(fmt.FAULT_RECORD_LENGTH)
    return Parsed(
        start,
        deltas_at,
        timestamp_delta,
        after_timestamp,
        offset_delta,
        key_at,
        key_bytes,
        value_at,
        value_bytes,
        headers_at,
        header_count,
        end,
    )


def open_body(view: memoryview, header: BatchHeader, decompressed_limit: int) -> Body:
    """The batch's records, expanded if needed; checks the declared count against the available bytes."""
    start, end = header.position + fmt.RECORDS_AT, header.position + header.size
    if header.record_count == 0:
        if start != end:
            raise InvalidBatch(fmt.FAULT_LEFT_OVER, header.position)
        return Body(view, start, end)
    data = view
    if header.compression:
        try:
            data = bytes_of(decompress(header.compression, view[start:end], decompressed_limit))
        except InvalidBatch as error:
            raise type(error)(error.reason, header.position) from None
        start, end = 0, len(data)
    if header.record_count > (end - start) // fmt.RECORD_BYTES_MIN:
        raise InvalidBatch(fmt.FAULT_TOO_MANY_RECORDS, header.position)
    return Body(data, start, end)


def parse_records(body: Body, header: BatchHeader, *, dense: bool = False) -> Iterator[Parsed]:
    """The batch's records one by one. `dense`: offset deltas are 0, 1, 2, …; else ascending within the batch."""
    position = body.start
    last_delta = -1
    for _ in range(header.record_count):
        try:
            record = _parse_record(body.data, position, body.end)
        except (_BrokenRecordError, varint.VarintError) as fault:
            raise InvalidBatch(str(fault), header.position) from None
        delta = record.offset_delta
        if delta <= last_delta or delta > header.last_offset_delta or (dense and delta != last_delta + 1):
            raise InvalidBatch(fmt.FAULT_OFFSET_DELTA, header.position)
        if not -fmt.MAX_INT64 <= header.base_timestamp + record.timestamp_delta <= fmt.MAX_INT64:
            raise InvalidBatch(fmt.FAULT_TIMESTAMP, header.position)
        last_delta = delta
        position = record.end
        yield record
    if position != body.end:
        raise InvalidBatch(fmt.FAULT_LEFT_OVER, header.position)


def field(data: memoryview, position: int, length: int) -> bytes | None:
    return None if length < 0 else bytes(data[position : position + length])


def header_fields(data: memoryview, record: Parsed) -> Iterator[tuple[bytes, bytes | None]]:
    """The record's headers; their lengths were checked when it was parsed."""
    position = record.headers_at
    for _ in range(record.header_count):
        size, position = varint.decode32(data, position, record.end)
        key = bytes(data[position : position + size])
        size, position = varint.decode32(data, position + size, record.end)
        yield key, field(data, position, size)
        position += max(size, 0)


def timestamp_of(header: BatchHeader, record: Parsed) -> int:
    return header.max_timestamp if header.is_log_append_time else header.base_timestamp + record.timestamp_delta


def validate(buffer: Any, *, max_batch_bytes: int, decompressed_limit: int) -> list[BatchHeader]:
    """The headers of one or more batches from a producer, if everything in them is valid.

    The whole buffer has to be used; each batch's length, CRC, codec, counts, offset deltas (0 to n-1) and every
    length inside are checked, compressed ones after expansion. Fills `keyless_count`, and `max_timestamp` with the
    largest found (`assign_offsets` writes it). Raises InvalidBatch or RecordTooLarge.
    """
    headers = []
    with bytes_of(buffer) as view:
        position = 0
        if len(view) == 0:
            raise InvalidBatch(fmt.FAULT_NO_RECORDS, 0)
        while position < len(view):
            header = read_header(view, position, offsets_assigned=False)
            if header.size > max_batch_bytes:
                raise RecordTooLarge(header.size, max_batch_bytes)
            if header.record_count == 0:
                raise InvalidBatch(fmt.FAULT_NO_RECORDS, position)
            if header.last_offset_delta != header.record_count - 1:
                raise InvalidBatch(fmt.FAULT_COUNT, position)
            if not crc_matches(view, header):
                raise InvalidBatch(fmt.FAULT_CRC, position)
            _check_records(view, header, decompressed_limit)
            headers.append(header)
            position += header.size
    return headers


def _check_records(view: memoryview, header: BatchHeader, decompressed_limit: int) -> None:
    keyless_count = 0
    max_timestamp = -fmt.MAX_INT64
    for record in parse_records(open_body(view, header, decompressed_limit), header, dense=True):
        keyless_count += record.key_bytes < 0
        max_timestamp = max(max_timestamp, header.base_timestamp + record.timestamp_delta)
    header.keyless_count = keyless_count
    if not header.is_log_append_time:
        header.max_timestamp = max_timestamp


def beginnings(buffer: Any, length: int, *, decompressed_limit: int) -> tuple[set[bytes], set[bytes]]:
    """The first `length` bytes of all keys, and of all values, of batches as a producer sent them; nulls have none.

    Lengths and counts are checked, CRCs are not: the append does. Raises InvalidBatch.
    """
    keys: set[bytes] = set()
    values: set[bytes] = set()
    with bytes_of(buffer) as view:
        position = 0
        while position < len(view):
            header = read_header(view, position, offsets_assigned=False)
            body = open_body(view, header, decompressed_limit)
            for record in parse_records(body, header, dense=True):
                for found, at, size in (
                    (keys, record.key_at, record.key_bytes),
                    (values, record.value_at, record.value_bytes),
                ):
                    data = field(body.data, at, min(size, length))
                    if data is not None:
                        found.add(data)
            position += header.size
    return keys, values


def batches_in(view: memoryview) -> Iterator[BatchHeader]:
    """Every batch of a buffer that holds whole batches and nothing else."""
    position = 0
    while position < len(view):
        header = read_header(view, position)
        yield header
        position += header.size


def batches_between(view: memoryview, start_offset: int, end_offset: int) -> Iterator[BatchHeader]:
    """The batches that overlap start_offset <= offset < end_offset, by their headers."""
    for header in batches_in(view):
        if header.base_offset >= end_offset:
            return
        if header.next_offset > start_offset:
            yield header


def decode(
    buffer: Any,
    topic: str,
    partition: int,
    *,
    start_offset: int = 0,
    end_offset: int = fmt.MAX_INT64,
    max_records: int = fmt.MAX_INT64,
    decompressed_limit: int = READ_DECOMPRESSED_BYTES,
    enough_bytes: int = fmt.MAX_INT64,
) -> tuple[list[Record], int]:
    """Records with start_offset <= offset < end_offset of all batches in the buffer, and the offset to go on from.

    Control batches are skipped. CRCs are not checked: `walk` did. The second value is the offset after the last record
    if `max_records` was reached, else the end of the last batch, but never outside the requested range. Ends after the
    batch with which `enough_bytes` are expanded: their size is not known beforehand.
    """
    expanded_bytes = 0
    records: list[Record] = []
    next_offset = start_offset
    if max_records <= 0:
        return records, next_offset
    with bytes_of(buffer) as view:
        for header in batches_between(view, start_offset, end_offset):
            next_offset = min(header.next_offset, end_offset)
            if header.is_control:
                continue
            body = open_body(view, header, decompressed_limit)
            expanded_bytes += body.end - body.start
            for parsed in parse_records(body, header):
                offset = header.base_offset + parsed.offset_delta
                if not start_offset <= offset < end_offset:
                    continue
                records.append(_record(body.data, topic, partition, header, parsed))
                if len(records) == max_records:
                    return records, offset + 1
            if expanded_bytes >= enough_bytes:
                break
    return records, next_offset


def _record(data: memoryview, topic: str, partition: int, header: BatchHeader, parsed: Parsed) -> Record:
    return Record(
        topic,
        partition,
        header.base_offset + parsed.offset_delta,
        timestamp_of(header, parsed),
        int(header.is_log_append_time),
        field(data, parsed.key_at, parsed.key_bytes),
        field(data, parsed.value_at, parsed.value_bytes),
        tuple((key.decode("utf-8", "replace"), value) for key, value in header_fields(data, parsed)),
        header.leader_epoch,
    )


def offset_at_time(
    buffer: Any, timestamp_ms: int, start_offset: int = 0, *, decompressed_limit: int = READ_DECOMPRESSED_BYTES
) -> tuple[int, int] | None:
    """(offset, timestamp) of the first data record at or after that time in these batches, from `start_offset` on."""
    if not -fmt.MAX_INT64 <= timestamp_ms <= fmt.MAX_INT64:
        raise InvalidArgument(f"timestamp {timestamp_ms} is out of range")
    with bytes_of(buffer) as view:
        for header in batches_in(view):
            if header.max_timestamp < timestamp_ms or header.next_offset <= start_offset or header.is_control:
                continue
            for parsed in parse_records(open_body(view, header, decompressed_limit), header):
                offset = header.base_offset + parsed.offset_delta
                timestamp = timestamp_of(header, parsed)
                if offset >= start_offset and timestamp >= timestamp_ms:
                    return offset, timestamp
    return None
