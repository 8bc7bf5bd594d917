"""RecordBatch v2: the position of each field, the meaning of each attribute bit, and the faults a batch can have.

    0  base offset        int64   not covered by the CRC, so the log may assign it
    8  batch length       int32   bytes after this field
   12  leader epoch       int32   not covered by the CRC either
   16  magic              int8    2
   17  crc                uint32  CRC-32C of everything from `attributes` on
   21  attributes         int16
   23  last offset delta  int32
   27  base timestamp     int64   the delete horizon, if that attribute is set
   35  max timestamp      int64
   43  producer id        int64
   51  producer epoch     int16
   53  base sequence      int32
   57  record count       int32
   61  records            compressed as one piece, if at all

A record is: length varint, attributes int8, timestamp delta varlong, offset delta varint, key length varint, key,
value length varint, value, header count varint, and for each header: key length varint, key, value length varint,
value. Length -1 is null; a header's key cannot be null. All fixed numbers are big-endian.
"""

from __future__ import annotations

from enum import IntEnum
from struct import Struct
from typing import Final

from foldlog.errors import InvalidArgument

BASE_OFFSET_AT: Final = 0
LENGTH_AT: Final = 8
LEADER_EPOCH_AT: Final = 12
MAGIC_AT: Final = 16
CRC_AT: Final = 17
ATTRIBUTES_AT: Final = 21
LAST_OFFSET_DELTA_AT: Final = 23
BASE_TIMESTAMP_AT: Final = 27
MAX_TIMESTAMP_AT: Final = 35
PRODUCER_ID_AT: Final = 43
PRODUCER_EPOCH_AT: Final = 51
BASE_SEQUENCE_AT: Final = 53
RECORD_COUNT_AT: Final = 57
RECORDS_AT: Final = 61

LENGTH_PREFIX_BYTES: Final = 12
"""Base offset and length: the bytes that the length field does not count."""

MAGIC: Final = 2

HEADER: Final = Struct(">qiibIhiqqqhii")
"""The 61 bytes before the records, in the order of the table above."""

_PRODUCER: Final = Struct(">qh")

COMPRESSION_MASK: Final = 0x07
LOG_APPEND_TIME: Final = 0x08
TRANSACTIONAL: Final = 0x10
CONTROL: Final = 0x20
DELETE_HORIZON: Final = 0x40

NO_TIMESTAMP: Final = -1
NO_PRODUCER_ID: Final = -1
NO_PRODUCER_EPOCH: Final = -1
NO_SEQUENCE: Final = -1
NO_LEADER_EPOCH: Final = -1

MAX_INT32: Final = (1 << 31) - 1
MAX_INT64: Final = (1 << 63) - 1

RECORD_BYTES_MIN: Final = 7
"""Length, attributes, two deltas, two lengths and a header count, one byte each."""

HEADER_BYTES_MIN: Final = 2
"""A record header's two lengths, one byte each."""

CONTROL_ABORT: Final = 0
CONTROL_COMMIT: Final = 1

FAULT_CUT_OFF: Final = "it is cut off by the end of the buffer"
FAULT_LENGTH: Final = "its length is out of range"
FAULT_MAGIC: Final = "its magic is not 2"
FAULT_CODEC: Final = "its compression codec is unknown"
FAULT_COUNT: Final = "its record count and its offsets contradict each other"
FAULT_OFFSETS: Final = "its offsets are out of range"
FAULT_CRC: Final = "its CRC-32C does not match its bytes"
FAULT_NO_RECORDS: Final = "it holds no records"
FAULT_TOO_MANY_RECORDS: Final = "it declares more records than its bytes can hold"
FAULT_RECORD_CUT_OFF: Final = "a record, or a field of one, is longer than what is left"
FAULT_VARINT: Final = "a variable-length number is over-long or out of range"
FAULT_FIELD_LENGTH: Final = "a field's length is negative where it cannot be"
FAULT_RECORD_LENGTH: Final = "a record is longer than its fields"
FAULT_OFFSET_DELTA: Final = "its offset deltas are out of order"
FAULT_TIMESTAMP: Final = "a timestamp is out of range"
FAULT_LEFT_OVER: Final = "bytes are left over after its last record"
FAULT_LOST: Final = "rewriting lost a record of it that nothing newer replaces"
FAULT_CHANGED: Final = "rewriting made something else of it"

FAULTS: Final[tuple[str, ...]] = (
    "",
    FAULT_CUT_OFF,
    FAULT_LENGTH,
    FAULT_MAGIC,
    FAULT_CODEC,
    FAULT_COUNT,
    FAULT_OFFSETS,
    FAULT_CRC,
    FAULT_NO_RECORDS,
    FAULT_TOO_MANY_RECORDS,
    FAULT_RECORD_CUT_OFF,
    FAULT_VARINT,
    FAULT_FIELD_LENGTH,
    FAULT_RECORD_LENGTH,
    FAULT_OFFSET_DELTA,
    FAULT_TIMESTAMP,
    FAULT_LEFT_OVER,
    FAULT_LOST,
    FAULT_CHANGED,
)
"""By number, for the compiled loops, which cannot hold strings while they run without the interpreter's lock."""


class TimestampType(IntEnum):
    """Whether the producer set a record's timestamp, or the log when it was appended."""

    CREATE_TIME = 0
    LOG_APPEND_TIME = 1


class Compression(IntEnum):
    """The codec of a batch, by its number in the attributes.

    >>> Compression.named("zstd")
    <Compression.ZSTD: 4>
    """

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4

    @classmethod
    def named(cls, name: str) -> Compression:
        """The codec of that name, as `compression.type` spells it; `uncompressed` is Kafka's other name for none."""
        wanted = "none" if name == "uncompressed" else name
        for codec in cls:
            if codec.name.lower() == wanted:
                return codec
        known = ", ".join(codec.name.lower() for codec in cls)
        raise InvalidArgument(f"there is no compression {name!r}; use one of {known}")


def codec_of(batch: bytes | bytearray | memoryview) -> int:
    """The codec's number in a batch's attributes; 0 for bytes too short for a batch, which are refused later."""
    return batch[ATTRIBUTES_AT + 1] & COMPRESSION_MASK if len(batch) > ATTRIBUTES_AT + 1 else 0


def is_transactional(batch: bytes | bytearray | memoryview) -> bool:
    """Whether a batch's attributes say so; false for bytes too short for a batch, which are refused later."""
    return len(batch) > ATTRIBUTES_AT + 1 and bool(batch[ATTRIBUTES_AT + 1] & TRANSACTIONAL)


def producer_of(batch: bytes | bytearray | memoryview) -> tuple[int, int]:
    """The producer id and epoch of a batch, whose header has to be there."""
    return _PRODUCER.unpack_from(batch, PRODUCER_ID_AT)
