"""Batch headers: walking, checking epochs, and assigning offsets, without reading records."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from crc32c import crc32c

from foldlog.errors import InvalidArgument, InvalidBatch
from foldlog.limits import BATCH_BYTES_MAX
from foldlog.records import batch as fmt
from foldlog.records.pickles import rebuild


class Value:
    """Equality, repr and pickling by the values of `__match_args__`."""

    __slots__ = ()
    __match_args__: tuple[str, ...] = ()

    def _values(self) -> tuple[Any, ...]:
        return tuple(getattr(self, name) for name in self.__match_args__)

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        return self._values() == other._values()

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        fields = ", ".join(f"{name}={getattr(self, name)!r}" for name in self.__match_args__)
        return f"{type(self).__name__}({fields})"

    def __reduce__(self) -> tuple[Any, ...]:
        return rebuild, (type(self).__name__, self._values())


class BatchHeader(Value):
    """One batch's header, and the batch's position in the buffer it was read from."""

    __match_args__ = (
        "position",
        "size",
        "base_offset",
        "leader_epoch",
        "attributes",
        "last_offset_delta",
        "base_timestamp",
        "max_timestamp",
        "producer_id",
        "producer_epoch",
        "base_sequence",
        "record_count",
        "crc",
        "keyless_count",
    )
    __slots__ = __match_args__

    def __init__(
        self,
        position: int,
        size: int,
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
        crc: int,
        keyless_count: int = -1,
    ) -> None:
        self.position = position
        self.size = size
        self.base_offset = base_offset
        self.leader_epoch = leader_epoch
        self.attributes = attributes
        self.last_offset_delta = last_offset_delta
        self.base_timestamp = base_timestamp
        self.max_timestamp = max_timestamp
        self.producer_id = producer_id
        self.producer_epoch = producer_epoch
        self.base_sequence = base_sequence
        self.record_count = record_count
        self.crc = crc
        self.keyless_count = keyless_count

    @property
    def last_offset(self) -> int:
        return self.base_offset + self.last_offset_delta

    @property
    def next_offset(self) -> int:
        return self.base_offset + self.last_offset_delta + 1

    @property
    def compression(self) -> int:
        return self.attributes & fmt.COMPRESSION_MASK

    @property
    def is_control(self) -> bool:
        return bool(self.attributes & fmt.CONTROL)

    @property
    def is_transactional(self) -> bool:
        return bool(self.attributes & fmt.TRANSACTIONAL)

    @property
    def is_log_append_time(self) -> bool:
        return bool(self.attributes & fmt.LOG_APPEND_TIME)

    @property
    def has_delete_horizon(self) -> bool:
        return bool(self.attributes & fmt.DELETE_HORIZON)


class Walk(Value):
    """The whole batches found from a position on, and why the walk ended."""

    __match_args__ = ("headers", "end", "problem", "needed_bytes")
    __slots__ = __match_args__

    def __init__(self, headers: list[BatchHeader], end: int, problem: str | None, needed_bytes: int) -> None:
        self.headers = headers
        self.end = end
        self.problem = problem
        self.needed_bytes = needed_bytes


def parse_header(view: memoryview, position: int) -> tuple[BatchHeader, int]:
    """The 61 bytes at `position`, unchecked, and the magic."""
    (
        base_offset,
        length,
        leader_epoch,
        magic,
        crc,
        attributes,
        last_offset_delta,
        base_timestamp,
        max_timestamp,
        producer_id,
        producer_epoch,
        base_sequence,
        record_count,
    ) = fmt.HEADER.unpack_from(view, position)
    header = BatchHeader(
        position,
        fmt.LENGTH_PREFIX_BYTES + length,
        base_offset,
        leader_epoch,
        attributes,
        last_offset_delta,
        base_timestamp,
        max_timestamp,
        producer_id,
        producer_epoch,
        base_sequence,
        record_count,
        crc,
    )
    return header, magic


def length_fault(view: memoryview, position: int) -> str | None:
    """The fault of the length field at `position`, whose first 12 bytes are there; None if it is valid."""
    length = int.from_bytes(view[position + fmt.LENGTH_AT : position + fmt.LEADER_EPOCH_AT], "big", signed=True)
    smallest = fmt.RECORDS_AT - fmt.LENGTH_PREFIX_BYTES
    return None if smallest <= length <= BATCH_BYTES_MAX - fmt.LENGTH_PREFIX_BYTES else fmt.FAULT_LENGTH


def header_fault(header: BatchHeader, magic: int, *, offsets_assigned: bool) -> str | None:
    """The fault of a header whose length is valid, or None. A base offset set by a producer is ignored."""
    if magic != fmt.MAGIC:
        return fmt.FAULT_MAGIC
    if header.compression > 4:
        return fmt.FAULT_CODEC
    if header.record_count < 0 or header.last_offset_delta < 0 or header.record_count > header.last_offset_delta + 1:
        return fmt.FAULT_COUNT
    if offsets_assigned and not 0 <= header.base_offset < fmt.MAX_INT64 - header.last_offset_delta:
        return fmt.FAULT_OFFSETS
    return None


def read_header(view: memoryview, position: int, *, offsets_assigned: bool = True) -> BatchHeader:
    """The header of the whole batch at `position`; raises InvalidBatch if there is none. Does not check the CRC."""
    left = len(view) - position
    if left < fmt.LENGTH_PREFIX_BYTES:
        raise InvalidBatch(fmt.FAULT_CUT_OFF, position)
    fault = length_fault(view, position)
    if fault is not None:
        raise InvalidBatch(fault, position)
    if left < fmt.RECORDS_AT:
        raise InvalidBatch(fmt.FAULT_CUT_OFF, position)
    header, magic = parse_header(view, position)
    if header.size > left:
        raise InvalidBatch(fmt.FAULT_CUT_OFF, position)
    fault = header_fault(header, magic, offsets_assigned=offsets_assigned)
    if fault is not None:
        raise InvalidBatch(fault, position)
    return header


def crc_matches(view: memoryview, header: BatchHeader) -> bool:
    return crc32c(view[header.position + fmt.ATTRIBUTES_AT : header.position + header.size]) == header.crc


def bytes_of(buffer: Any) -> memoryview:
    """The buffer as flat bytes."""
    view = memoryview(buffer)
    return view if view.format == "B" and view.ndim == 1 else view.cast("B")


def walk(
    buffer: Any,
    position: int = 0,
    *,
    expected_offset: int = -1,
    gaps_below: int = 0,
    before_offset: int = fmt.MAX_INT64,
    max_bytes: int = fmt.MAX_INT64,
    check_crc: bool = True,
) -> Walk:
    """Headers (and CRCs) of the whole batches from `position` on; records are not read.

    With `expected_offset` >= 0 each base offset has to be the expected one; it may be larger if the gap ends at or
    below `gaps_below`, in the compacted part. Stops without a problem before the first batch at or past
    `before_offset`, before the batch that would exceed `max_bytes` (the first is always taken), and at a batch that the
    buffer's end cuts off: then `needed_bytes` is that batch's size, if its header is there.
    """
    with bytes_of(buffer) as view:
        if not 0 <= position <= len(view):
            raise InvalidArgument(f"position {position} is outside the buffer of {len(view)} bytes")
        start = position
        headers: list[BatchHeader] = []
        while True:
            left = len(view) - position
            if left < fmt.LENGTH_PREFIX_BYTES or expected_offset >= before_offset:
                return Walk(headers, position, None, 0)
            fault = length_fault(view, position)
            if fault is not None or left < fmt.RECORDS_AT:
                return Walk(headers, position, fault, 0)
            header, magic = parse_header(view, position)
            base_offset = header.base_offset
            gap_is_legal = expected_offset < 0 or expected_offset < base_offset <= gaps_below
            if gap_is_legal and before_offset < fmt.MAX_INT64 and base_offset >= before_offset:
                return Walk(headers, position, None, 0)
            fault = header_fault(header, magic, offsets_assigned=True) or (
                None if gap_is_legal else offset_fault(base_offset, expected_offset)
            )
            if fault is not None:
                return Walk(headers, position, fault, 0)
            if headers and position + header.size - start > max_bytes:
                return Walk(headers, position, None, 0)
            if header.size > left:
                return Walk(headers, position, None, header.size)
            if check_crc and not crc_matches(view, header):
                return Walk(headers, position, fmt.FAULT_CRC, 0)
            headers.append(header)
            position += header.size
            if expected_offset >= 0:
                expected_offset = header.next_offset


def offset_fault(base_offset: int, expected_offset: int) -> str | None:
    if base_offset == expected_offset:
        return None
    return f"its base offset is {base_offset} where {expected_offset} was expected"


def check_epochs(headers: list[BatchHeader], starts: Sequence[tuple[int, int]]) -> tuple[BatchHeader, int] | None:
    """The first header whose leader epoch is not that of its base offset, with the expected epoch.

    `starts` holds (epoch, first offset) in ascending order; offsets before the first have no epoch to compare.
    """
    index = -1
    for header in headers:
        if index >= 0 and header.base_offset < starts[index][1]:
            index = -1
        while index + 1 < len(starts) and starts[index + 1][1] <= header.base_offset:
            index += 1
        if index >= 0 and header.leader_epoch != starts[index][0]:
            return header, starts[index][0]
    return None


def assign_offsets(
    buffer: Any,
    headers: list[BatchHeader],
    first_offset: int,
    leader_epoch: int,
    append_time_ms: int = -1,
) -> int:
    """Write base offsets and epoch into the batches, and into `headers`; returns the next offset.

    With `append_time_ms` >= 0 the batches get LOG_APPEND_TIME, that time and a new CRC. So does one whose header has
    another max timestamp than `validate` found in its records: seeking by time relies on it.
    """
    if not 0 <= first_offset <= fmt.MAX_INT64 or not -1 <= append_time_ms <= fmt.MAX_INT64:
        raise InvalidArgument(f"cannot assign offset {first_offset} at time {append_time_ms}")
    offset = first_offset
    with bytes_of(buffer) as view:
        for header in headers:
            position = header.position
            if position < 0 or header.size < fmt.RECORDS_AT or position + header.size > len(view):
                raise InvalidArgument("the headers are not those of the buffer")
            if offset >= fmt.MAX_INT64 - header.last_offset_delta:
                raise InvalidArgument(f"offset {offset} leaves no room for {header.last_offset_delta + 1} more")
            header.base_offset = offset
            header.leader_epoch = leader_epoch
            if append_time_ms >= 0:
                header.attributes |= fmt.LOG_APPEND_TIME
                header.max_timestamp = append_time_ms
            stored, _ = parse_header(view, position)
            if stored.attributes != header.attributes or stored.max_timestamp != header.max_timestamp:
                write_int(view, position + fmt.ATTRIBUTES_AT, header.attributes, 2)
                write_int(view, position + fmt.MAX_TIMESTAMP_AT, header.max_timestamp, 8)
                header.crc = crc32c(view[position + fmt.ATTRIBUTES_AT : position + header.size])
                view[position + fmt.CRC_AT : position + fmt.ATTRIBUTES_AT] = header.crc.to_bytes(4, "big")
            write_int(view, position, offset, 8)
            write_int(view, position + fmt.LEADER_EPOCH_AT, leader_epoch, 4)
            offset = header.next_offset
    return offset


def write_int(view: memoryview, position: int, value: int, width: int) -> None:
    view[position : position + width] = value.to_bytes(width, "big", signed=True)
