"""Columns as plain buffers in Arrow's layout, exchanged between the loops and `arrow.py`.

Numbers are little-endian, a validity bit of 1 means not null, lowest bit first. pyarrow is not imported here, so
that the loops can be used, and compared, without it.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

WANT_OFFSET: Final = 1
WANT_TIMESTAMP: Final = 2
WANT_TIMESTAMP_TYPE: Final = 4
WANT_KEY: Final = 8
WANT_VALUE: Final = 16
WANT_HEADERS: Final = 32

Buffer = Any
"""Anything bytes-like."""


class GatheredBinary(NamedTuple):
    """A binary column: int32 offsets (one more than rows), the bytes, and a bitmap if there are nulls."""

    offsets: Buffer
    data: Buffer
    validity: Buffer | None
    null_count: int


class GatheredHeaders(NamedTuple):
    """A list<struct<key, value>> column: int32 offsets into the entries, and the entries' two columns."""

    offsets: Buffer
    entries: int
    key: GatheredBinary
    value: GatheredBinary


class Gathered(NamedTuple):
    """The requested columns, the others None; and the offset to go on reading from."""

    rows: int
    next_offset: int
    offset: Buffer | None
    timestamp: Buffer | None
    timestamp_type: Buffer | None
    key: GatheredBinary | None
    value: GatheredBinary | None
    headers: GatheredHeaders | None


class BinaryInput(NamedTuple):
    """A binary column to be packed, from row `first` of its buffers on. `wide`: the offsets are int64, not int32."""

    name: str
    offsets: Buffer
    wide: bool
    data: Buffer | None
    validity: Buffer | None
    first: int


class Int64Input(NamedTuple):
    """A column of int64, from row `first` of its buffers on."""

    name: str
    data: Buffer
    validity: Buffer | None
    first: int


class HeadersInput(NamedTuple):
    """A list<struct<key, value>> column to be packed; offsets count the `entries` rows of its two columns."""

    offsets: Buffer
    wide: bool
    validity: Buffer | None
    first: int
    entries: int
    key: BinaryInput
    value: BinaryInput


class PackedBatch(NamedTuple):
    """A whole batch, CRC included, of `record_count` rows of the input from `first_row` on."""

    buffer: bytearray
    record_count: int
    first_row: int
    max_timestamp_ms: int
