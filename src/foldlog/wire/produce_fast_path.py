"""The most common Produce request, one batch for one partition, read and answered without building messages.

A message costs an object for each struct in it; here are only the numbers. Other requests are left to the codec; for
these the bytes are the same as the codec's, which the tests compare.
"""

from __future__ import annotations

import struct
from typing import Final, NamedTuple

_FIRST: Final = 3
_RECORD_ERRORS_FROM: Final = 8
_LOG_START_FROM: Final = 5
_FLEXIBLE_FROM: Final = 9
_TOPIC_IDS_FROM: Final = 13
_LAST: Final = 13
_UUID_BYTES: Final = 16

_HEADER: Final = struct.Struct(">hhih")
_ACKS_AND_TIMEOUT: Final = struct.Struct(">hi")
_INT16: Final = struct.Struct(">h")
_INT32: Final = struct.Struct(">i")
_TWO_INT32: Final = struct.Struct(">ii")

_ONE: Final = 2
"""A compact array of one item: its count is written plus one."""


class FastProduce(NamedTuple):
    """A Produce request of one batch for one partition; `records` are between two positions of its frame.

    `topic` is the name in UTF-8, or from version 13 on the topic's id.
    """

    version: int
    correlation_id: int
    acks: int
    timeout_ms: int
    topic: bytes
    partition: int
    records_start: int
    records_end: int

    @property
    def names_topic_by_id(self) -> bool:
        return self.version >= _TOPIC_IDS_FROM


def fast_produce(frame: memoryview, start: int, end: int) -> FastProduce | None:
    """The request between these positions, if it is of that shape; None if it is not."""
    try:
        _, version, correlation_id, client_id_bytes = _HEADER.unpack_from(frame, start)
        if client_id_bytes < -1:
            return None
        position = start + _HEADER.size + max(0, client_id_bytes)
        if _FIRST <= version < _FLEXIBLE_FROM:
            found = _not_flexible(frame, position, version, correlation_id)
        elif _FLEXIBLE_FROM <= version <= _LAST:
            found = _flexible(frame, position, version, correlation_id)
        else:
            return None
    except (struct.error, IndexError):
        return None
    if found is None or found.records_end + (3 if version >= _FLEXIBLE_FROM else 0) != end:
        return None
    return found


def _not_flexible(frame: memoryview, position: int, version: int, correlation_id: int) -> FastProduce | None:
    if _INT16.unpack_from(frame, position)[0] != -1:  # a transactional id
        return None
    acks, timeout_ms = _ACKS_AND_TIMEOUT.unpack_from(frame, position + 2)
    topics = _INT32.unpack_from(frame, position + 8)[0]
    name_bytes = _INT16.unpack_from(frame, position + 12)[0]
    name_at = position + 14
    partitions, partition = _TWO_INT32.unpack_from(frame, name_at + name_bytes)
    size = _INT32.unpack_from(frame, name_at + name_bytes + 8)[0]
    if topics != 1 or partitions != 1 or name_bytes < 0 or size < 0:
        return None
    topic = bytes(frame[name_at : name_at + name_bytes])
    records = name_at + name_bytes + 12
    return FastProduce(version, correlation_id, acks, timeout_ms, topic, partition, records, records + size)


def _flexible(frame: memoryview, position: int, version: int, correlation_id: int) -> FastProduce | None:
    # No tagged fields in the header, no transactional id.
    if frame[position] or frame[position + 1]:
        return None
    acks, timeout_ms = _ACKS_AND_TIMEOUT.unpack_from(frame, position + 2)
    if frame[position + 8] != _ONE:
        return None
    if version >= _TOPIC_IDS_FROM:
        name_at, name_bytes = position + 9, _UUID_BYTES
    else:
        name_bytes = frame[position + 9] - 1
        name_at = position + 10
        if not 0 <= name_bytes < 127:  # a longer name has a longer length
            return None
    after = name_at + name_bytes
    if frame[after] != _ONE:
        return None
    partition = _INT32.unpack_from(frame, after + 1)[0]
    size, shift, records = 0, 0, after + 5
    while True:
        byte = frame[records]
        records += 1
        size |= (byte & 0x7F) << shift
        if byte < 0x80:
            break
        shift += 7
        if shift > 28:
            return None
    if not size or frame[records + size - 1] or frame[records + size] or frame[records + size + 1]:
        return None  # null records, or tagged fields behind them
    topic = bytes(frame[name_at:after])
    return FastProduce(version, correlation_id, acks, timeout_ms, topic, partition, records, records + size - 1)


def fast_answer(asked: FastProduce, base_offset: int, append_time_ms: int, log_start_offset: int) -> bytes:
    """The whole frame that acknowledges the batch."""
    version, topic = asked.version, asked.topic
    if version >= _FLEXIBLE_FROM:
        named = topic if version >= _TOPIC_IDS_FROM else bytes((len(topic) + 1,)) + topic
        # The header's tagged fields and the counts of one; then, behind the offsets, no record errors, no message, the
        # tagged fields of partition and topic, no throttling, and the tagged fields of the answer.
        body = (
            b"\0\2"
            + named
            + b"\2"
            + _PARTITION_5.pack(asked.partition, 0, base_offset, append_time_ms, log_start_offset)
        )
        body += b"\1\0\0\0\0\0\0\0\0"
    else:
        body = _COUNT_AND_LENGTH.pack(1, len(topic)) + topic + _INT32.pack(1)
        if version >= _LOG_START_FROM:
            body += _PARTITION_5.pack(asked.partition, 0, base_offset, append_time_ms, log_start_offset)
        else:
            body += _PARTITION_3.pack(asked.partition, 0, base_offset, append_time_ms)
        if version >= _RECORD_ERRORS_FROM:
            body += b"\0\0\0\0\xff\xff"
        body += b"\0\0\0\0"
    return _TWO_INT32.pack(4 + len(body), asked.correlation_id) + body


_COUNT_AND_LENGTH: Final = struct.Struct(">ih")
_PARTITION_3: Final = struct.Struct(">ihqq")
_PARTITION_5: Final = struct.Struct(">ihqqq")
