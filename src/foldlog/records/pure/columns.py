"""Conversion between batches and columns in Arrow's layout, and routing of rows to partitions."""

from __future__ import annotations

import sys
from array import array
from typing import Any

from foldlog.errors import InvalidArgument, RecordTooLarge, SerializationError
from foldlog.limits import BATCH_BYTES_MAX
from foldlog.records import batch as fmt
from foldlog.records import columns as col
from foldlog.records.compression import READ_DECOMPRESSED_BYTES, check_codec
from foldlog.records.pure.headers import bytes_of
from foldlog.records.pure.reading import batches_between, field, header_fields, open_body, parse_records, timestamp_of
from foldlog.records.pure.writing import BatchBuilder, murmur2


class _BinarySink:
    """A binary column under construction."""

    def __init__(self) -> None:
        self.offsets = array("i", [0])
        self.data = bytearray()
        self.validity = bytearray()
        self.rows = 0
        self.null_count = 0

    def put(self, value: bytes | None) -> None:
        if self.rows % 8 == 0:
            self.validity.append(0xFF)
        if value is None:
            self.validity[-1] &= ~(1 << self.rows % 8) & 0xFF
            self.null_count += 1
        else:
            self.data += value
        if len(self.data) > fmt.MAX_INT32:
            raise InvalidArgument("these batches hold more than 2 GiB in one column; read fewer of them at once")
        self.rows += 1
        self.offsets.append(len(self.data))

    def finished(self) -> col.GatheredBinary:
        validity = bytes(self.validity) if self.null_count else None
        return col.GatheredBinary(_little(self.offsets), bytes(self.data), validity, self.null_count)


def _little(numbers: array[int]) -> bytes:
    if sys.byteorder == "big":
        numbers.byteswap()
    return numbers.tobytes()


def gather(
    buffer: Any,
    wanted: int,
    *,
    start_offset: int = 0,
    end_offset: int = fmt.MAX_INT64,
    decompressed_limit: int = READ_DECOMPRESSED_BYTES,
    enough_bytes: int = fmt.MAX_INT64,
) -> col.Gathered:
    """The wanted columns of the data records with start_offset <= offset < end_offset, in Arrow's layout.

    Ends after the batch with which `enough_bytes` are decompressed: their size is not known beforehand.
    """
    offsets, timestamps, timestamp_types = array("q"), array("q"), bytearray()
    header_offsets = array("i", [0])
    keys, values, header_keys, header_values = _BinarySink(), _BinarySink(), _BinarySink(), _BinarySink()
    next_offset = start_offset
    decompressed_bytes = 0
    with bytes_of(buffer) as view:
        for header in batches_between(view, start_offset, end_offset):
            next_offset = min(header.next_offset, end_offset)
            if header.is_control:
                continue
            data = (body := open_body(view, header, decompressed_limit)).data
            for record in parse_records(body, header):
                offset = header.base_offset + record.offset_delta
                if not start_offset <= offset < end_offset:
                    continue
                offsets.append(offset)
                timestamps.append(timestamp_of(header, record))
                timestamp_types.append(header.is_log_append_time)
                if wanted & col.WANT_KEY:
                    keys.put(field(data, record.key_at, record.key_bytes))
                if wanted & col.WANT_VALUE:
                    values.put(field(data, record.value_at, record.value_bytes))
                if wanted & col.WANT_HEADERS:
                    for name, value in header_fields(data, record):
                        header_keys.put(name.decode("utf-8", "replace").encode())
                        header_values.put(value)
                    header_offsets.append(header_keys.rows)
            if header.compression and header.record_count:
                decompressed_bytes += body.end - body.start
                if decompressed_bytes >= enough_bytes:
                    break
    headers = col.GatheredHeaders(
        _little(header_offsets), header_keys.rows, header_keys.finished(), header_values.finished()
    )
    return col.Gathered(
        len(offsets),
        next_offset,
        _little(offsets) if wanted & col.WANT_OFFSET else None,
        _little(timestamps) if wanted & col.WANT_TIMESTAMP else None,
        bytes(timestamp_types) if wanted & col.WANT_TIMESTAMP_TYPE else None,
        keys.finished() if wanted & col.WANT_KEY else None,
        values.finished() if wanted & col.WANT_VALUE else None,
        headers if wanted & col.WANT_HEADERS else None,
    )


def _number(buffer: memoryview, index: int, width: int) -> int:
    return int.from_bytes(buffer[index * width : (index + 1) * width], "little", signed=True)


def _is_null(validity: memoryview | None, index: int) -> bool:
    return validity is not None and not validity[index // 8] >> index % 8 & 1


def _check_span(name: str, first: int, rows: int, available: int, validity: memoryview | None) -> None:
    if first < 0 or rows < 0 or first > available - rows or (validity is not None and first + rows > 8 * len(validity)):
        raise SerializationError(f"column {name!r} has fewer rows than the table")


def _optional(buffer: Any) -> memoryview | None:
    return None if buffer is None else bytes_of(buffer)


class _BinaryReader:
    """One binary column to be packed. Offsets are compared with the data before they are used."""

    def __init__(self, column: col.BinaryInput, rows: int) -> None:
        self.name = column.name
        self.width = 8 if column.wide else 4
        self.offsets = bytes_of(column.offsets)
        self.data = bytes_of(b"" if column.data is None else column.data)
        self.validity = _optional(column.validity)
        self.first = column.first
        _check_span(self.name, self.first, rows, len(self.offsets) // self.width - 1, self.validity)

    def at(self, row: int) -> bytes | None:
        row += self.first
        if _is_null(self.validity, row):
            return None
        begin, end = _number(self.offsets, row, self.width), _number(self.offsets, row + 1, self.width)
        if not 0 <= begin <= end <= len(self.data):
            raise SerializationError(f"column {self.name!r} is broken: its offsets are not in order")
        return bytes(self.data[begin:end])


class _Int64Reader:
    """One column of numbers; None for nulls."""

    def __init__(self, column: col.Int64Input, rows: int) -> None:
        self.data = bytes_of(column.data)
        self.validity = _optional(column.validity)
        self.first = column.first
        _check_span(column.name, self.first, rows, len(self.data) // 8, self.validity)

    def at(self, row: int) -> int | None:
        row += self.first
        return None if _is_null(self.validity, row) else _number(self.data, row, 8)


class _HeadersReader:
    """The headers column to be packed."""

    def __init__(self, column: col.HeadersInput, rows: int) -> None:
        self.width = 8 if column.wide else 4
        self.offsets = bytes_of(column.offsets)
        self.validity = _optional(column.validity)
        self.first = column.first
        self.entries = column.entries
        _check_span("headers", self.first, rows, len(self.offsets) // self.width - 1, self.validity)
        self.key = _BinaryReader(column.key, self.entries)
        self.value = _BinaryReader(column.value, self.entries)

    def at(self, row: int) -> list[tuple[str, bytes | None]]:
        row += self.first
        if _is_null(self.validity, row):
            return []
        begin, end = _number(self.offsets, row, self.width), _number(self.offsets, row + 1, self.width)
        broken = SerializationError("column 'headers' holds a header without a key, or its offsets are broken")
        if not 0 <= begin <= end <= self.entries:
            raise broken
        found = []
        for entry in range(begin, end):
            try:
                key, value = self.key.at(entry), self.value.at(entry)
            except SerializationError:
                raise broken from None
            if key is None:
                raise broken
            found.append((key.decode(), value))
        return found


def pack_columns(
    value: col.BinaryInput,
    key: col.BinaryInput | None,
    headers: col.HeadersInput | None,
    timestamp: col.Int64Input | None,
    rows: int,
    *,
    first_row: int = 0,
    now_ms: int,
    max_batch_bytes: int,
    max_batch_records: int,
    enough_bytes: int,
    compression: int = 0,
    level: int | None = None,
) -> list[col.PackedBatch]:
    """Batches of the rows from `first_row` on, until they are `enough_bytes` together or there are no more rows.

    A batch is closed before it would grow over `max_batch_bytes` before compression; a first record always fits.
    """
    builder = BatchBuilder(max_batch_bytes, max_batch_records)
    check_codec(compression, level)
    values = _BinaryReader(value, rows)
    keys = None if key is None else _BinaryReader(key, rows)
    timestamps = None if timestamp is None else _Int64Reader(timestamp, rows)
    header_lists = None if headers is None else _HeadersReader(headers, rows)
    made: list[col.PackedBatch] = []
    made_bytes = 0
    row = first_row
    while row < rows and made_bytes < enough_bytes:
        max_timestamp_ms = -1
        while row < rows:
            timestamp_ms = None if timestamps is None else timestamps.at(row)
            timestamp_ms = now_ms if timestamp_ms is None else timestamp_ms
            if not fmt.NO_TIMESTAMP <= timestamp_ms < fmt.MAX_INT64:
                raise SerializationError("column 'timestamp' holds a time that is out of range")
            row_value = values.at(row)
            row_key = None if keys is None else keys.at(row)
            row_headers = [] if header_lists is None else header_lists.at(row)
            try:
                if builder.append(timestamp_ms, row_key, row_value, row_headers) < 0:
                    break
            except RecordTooLarge:
                raise RecordTooLarge(BATCH_BYTES_MAX + 1, BATCH_BYTES_MAX) from None
            max_timestamp_ms = max(max_timestamp_ms, timestamp_ms)
            row += 1
        count = builder.count
        made_bytes += builder.size_bytes
        made.append(col.PackedBatch(builder.build(compression, level=level), count, row - count, max_timestamp_ms))
        builder.clear()
    return made


def route_rows(
    key: col.BinaryInput | None, partition: col.Int64Input | None, rows: int, partitions: int
) -> list[tuple[int, Any]]:
    """For each partition that gets rows, in ascending order: its number and its rows as int64.

    The partition column decides if it is not null; else the key's hash; else the partition is -1.
    """
    keys = None if key is None else _BinaryReader(key, rows)
    if not 1 <= partitions <= fmt.MAX_INT32:
        raise InvalidArgument(f"rows cannot be routed to {partitions} partitions")
    given = None if partition is None else _Int64Reader(partition, rows)
    chosen: dict[int, array[int]] = {}
    for row in range(rows):
        number = None if given is None else given.at(row)
        if number is not None and not 0 <= number < partitions:
            raise InvalidArgument(f"there is no partition {number} in column 'partition'; there are {partitions}")
        if number is None:
            row_key = None if keys is None else keys.at(row)
            number = -1 if row_key is None else (murmur2(row_key) & 0x7FFFFFFF) % partitions
        chosen.setdefault(number, array("q")).append(row)
    return [(number, memoryview(_little(chosen[number]))) for number in sorted(chosen)]
