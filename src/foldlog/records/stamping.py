"""Writes a producer's id, epoch and sequence number into a finished batch."""

from __future__ import annotations

from struct import Struct
from typing import Final

from crc32c import crc32c

from foldlog.records.batch import (
    ATTRIBUTES_AT,
    CRC_AT,
    LAST_OFFSET_DELTA_AT,
    MAX_TIMESTAMP_AT,
    PRODUCER_ID_AT,
    TRANSACTIONAL,
)

_NUMBERS: Final = Struct(">qhi")
_CRC: Final = Struct(">I")
_INT32: Final = Struct(">i")
_INT64: Final = Struct(">q")


def stamp_producer(batch: bytearray, producer_id: int, epoch: int, base_sequence: int) -> None:
    """Write producer id, epoch and base sequence into the batch. The CRC covers them, and is recomputed."""
    _NUMBERS.pack_into(batch, PRODUCER_ID_AT, producer_id, epoch, base_sequence)
    with memoryview(batch) as view:
        _CRC.pack_into(batch, CRC_AT, crc32c(view[ATTRIBUTES_AT:]))


def make_transactional(batch: bytearray) -> None:
    """Have the batch count once its producer's transaction is committed. The CRC is right after `stamp_producer`."""
    batch[ATTRIBUTES_AT + 1] |= TRANSACTIONAL


def offset_span(batch: bytearray) -> int:
    """How many offsets the batch takes, which is also how many sequence numbers of its producer."""
    (last_delta,) = _INT32.unpack_from(batch, LAST_OFFSET_DELTA_AT)
    return int(last_delta) + 1


def newest_time(batch: bytearray) -> int:
    """The largest timestamp of the batch's records, in milliseconds; -1 if none has one."""
    (newest_ms,) = _INT64.unpack_from(batch, MAX_TIMESTAMP_AT)
    return int(newest_ms)
