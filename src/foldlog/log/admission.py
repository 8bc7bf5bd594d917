"""Checks of batches before a partition is locked: validated, and brought into the form that the topic asks for.

Pure functions of the bytes and the settings; offsets come later. Kafka's own rules for clients are in
`_refuse_foreign`, so that a client gets the same refusals from both.
"""

from __future__ import annotations

import errno
from collections.abc import Sequence
from typing import NamedTuple

from foldlog.errors import DecompressedTooLarge, InvalidBatch, InvalidTimestamp, RecordTooLarge, RefusedBatch
from foldlog.files.base import Buffer
from foldlog.limits import (
    QUICK_DECOMPRESSED_BYTES_MAX,
    QUICK_DECOMPRESSED_BYTES_MIN,
    QUICK_DECOMPRESSED_RATIO,
    QUICK_RECORDS_MAX,
    RECORD_ERRORS_MAX,
)
from foldlog.log.config import AS_PRODUCED, LogConfig
from foldlog.log.transactions import markers_of
from foldlog.records.batch import (
    FAULT_CUT_OFF,
    LENGTH_AT,
    LENGTH_PREFIX_BYTES,
    MAX_INT64,
    NO_TIMESTAMP,
    RECORDS_AT,
    codec_of,
)
from foldlog.records.compression import declared_bytes
from foldlog.records.loops import BatchHeader, decode, recompress, validate, walk

Writable = bytearray | memoryview


class ExpandsFurther(BlockingIOError):
    """A caller that must not wait has checked a batch as far as there is time. `is_steep`: it expands to so many times
    its size that its sender has hardly paid for the check."""

    def __init__(self, is_steep: bool) -> None:
        super().__init__(errno.EAGAIN, "a batch expands further than can be looked at in a moment")
        self.is_steep = is_steep


class Admitted(NamedTuple):
    """Batches that may be appended, in memory that offsets may be written into."""

    data: Writable
    headers: list[BatchHeader]


def admit(
    buffer: Buffer,
    config: LogConfig,
    now_ms: int,
    *,
    trusted: bool,
    foreign: bool,
    stored: bool = False,
    quickly: bool = False,
) -> Admitted:
    """Check the batches of one buffer, at `now_ms`. Raises InvalidBatch, RefusedBatch, InvalidTimestamp or
    RecordTooLarge.

    `trusted`: just built by our own builder, so only the headers are checked. `foreign`: from a client, which may send
    one batch and nothing that only a log may write. `stored`: as another log holds and has admitted them: offsets of
    records that compaction removed stay used, codec and size stay as they are. `quickly`: raises ExpandsFurther if the
    check takes longer than a moment. A batch that declares too large a size is refused at once in any case.
    """
    data = _writable(buffer)
    if stored:
        return Admitted(data, _headers_of_another_log(data))
    if foreign:
        _refuse_several(data)
    limit = config.decompressed_limit
    if trusted and not foreign and not config.compact and config.compression == AS_PRODUCED:
        headers = _headers_of_our_own(data, config, limit)
        _refuse_times(data, headers, config, now_ms, quickly)
        return Admitted(data, headers)
    quick_limit = min(limit, _quick_limit(len(data))) if quickly else limit
    try:
        headers = validate(data, max_batch_bytes=config.max_message_bytes, decompressed_limit=quick_limit)
    except DecompressedTooLarge:
        if quick_limit == limit:
            raise
        if foreign:  # which is one batch
            declared_bytes(codec_of(data), memoryview(data)[RECORDS_AT:], limit)
        raise ExpandsFurther(quick_limit < QUICK_DECOMPRESSED_BYTES_MAX) from None
    if foreign:
        _refuse_foreign(headers)
    _refuse_times(data, headers, config, now_ms, quickly)
    if config.compact:
        _refuse_keyless(data, headers, limit)
    if config.compression != AS_PRODUCED and any(header.compression != config.compression for header in headers):
        data = recompress(data, config.compression, decompressed_limit=limit)
        headers = walk(data, check_crc=False).headers
    return Admitted(data, headers)


def _headers_of_another_log(data: Writable) -> list[BatchHeader]:
    """Headers of another log's batches; checks their CRCs, and that nothing is between or behind the batches."""
    found = walk(data)
    if found.problem is not None or found.end != len(data):
        raise InvalidBatch(found.problem or FAULT_CUT_OFF, found.end)
    return found.headers


def _headers_of_our_own(data: Writable, config: LogConfig, decompressed_limit: int) -> list[BatchHeader]:
    """Headers of our own builder's batches, which are sound. It keeps batches below max.message.bytes before
    compression, except for one record that is larger by itself: only such a batch is opened."""
    headers = walk(data, check_crc=False).headers
    for header in headers:
        if header.size > config.max_message_bytes:
            raise RecordTooLarge(header.size, config.max_message_bytes)
        if header.compression and header.record_count == 1:
            alone = memoryview(data)[header.position : header.position + header.size]
            validate(alone, max_batch_bytes=config.max_message_bytes, decompressed_limit=decompressed_limit)
    return headers


def _quick_limit(size_bytes: int) -> int:
    """The most bytes that a batch of `size_bytes` may expand to if it is to be checked in a moment."""
    least = max(QUICK_DECOMPRESSED_RATIO * size_bytes, QUICK_DECOMPRESSED_BYTES_MIN)
    return min(QUICK_DECOMPRESSED_BYTES_MAX, least)


def _writable(buffer: Buffer) -> Writable:
    """The caller's own memory if it is writable, else a copy."""
    if isinstance(buffer, bytearray):
        return buffer
    if isinstance(buffer, memoryview) and not buffer.readonly and buffer.c_contiguous:
        return buffer if buffer.format == "B" and buffer.ndim == 1 else buffer.cast("B")
    return bytearray(buffer)


def _refuse_several(data: Writable) -> None:
    """Refuse several batches before any is opened: `admit` checks the declared size of the first one only."""
    declared = LENGTH_PREFIX_BYTES + int.from_bytes(data[LENGTH_AT:LENGTH_PREFIX_BYTES], "big")
    headers = walk(data, check_crc=False).headers if declared < len(data) else []
    if len(headers) > 1:
        raise RefusedBatch(f"{len(headers)} batches were sent for one partition; one is allowed", headers[1].position)


def _refuse_times(data: Writable, headers: list[BatchHeader], config: LogConfig, now_ms: int, quickly: bool) -> None:
    """Refuse records if the producer's clock, or unit, is wrong: a time far ahead keeps its segment from retention for
    as long, and a lookup by time finds it. Our own appends too: they are the same call on a served directory.

    A header has the largest time of its batch, so usually nothing is opened; for the smallest, each record is checked.
    """
    if config.log_append_time:
        return
    earliest_ms, latest_ms = now_ms - config.timestamp_before_max_ms, now_ms + config.timestamp_after_max_ms
    if config.timestamp_before_max_ms == MAX_INT64 and all(header.max_timestamp <= latest_ms for header in headers):
        return
    if quickly and sum(header.record_count for header in headers) > QUICK_RECORDS_MAX:
        raise ExpandsFurther(False)
    records, _ = decode(data, "", 0, decompressed_limit=config.decompressed_limit)
    outside: list[tuple[int, str]] = []
    for index, record in enumerate(records):
        time_ms = record.timestamp_ms
        if time_ms > latest_ms:
            allowed = f"ahead of the clock, over message.timestamp.after.max.ms={config.timestamp_after_max_ms}"
            outside.append((index, f"the time {time_ms} is {time_ms - now_ms} ms {allowed}"))
        elif time_ms < earliest_ms and time_ms != NO_TIMESTAMP:
            allowed = f"behind the clock, over message.timestamp.before.max.ms={config.timestamp_before_max_ms}"
            outside.append((index, f"the time {time_ms} is {now_ms - time_ms} ms {allowed}"))
    if outside:
        refused = InvalidTimestamp(outside[0][1], 0)
        refused.record_errors = tuple(outside[:RECORD_ERRORS_MAX])
        raise refused


def _refuse_keyless(data: Writable, headers: list[BatchHeader], decompressed_limit: int) -> None:
    """Refuse records without a key for a compacted topic: compaction could not tell them apart."""
    if not any(header.keyless_count for header in headers):
        return
    refused = RefusedBatch("a record without a key cannot go to a compacted topic", 0)
    records, _ = decode(data, "", 0, decompressed_limit=decompressed_limit)
    keyless = [(index, refused.reason) for index, record in enumerate(records) if record.key is None]
    refused.record_errors = tuple(keyless[:RECORD_ERRORS_MAX])
    raise refused


def refuse_malformed_markers(admitted: Sequence[Admitted]) -> None:
    """Refuse control batches whose records cannot be read: once they are written, that would be too late."""
    for data, headers in admitted:
        for header in headers:
            if header.is_control:
                markers_of(memoryview(data)[header.position : header.position + header.size], header)


def _refuse_foreign(headers: list[BatchHeader]) -> None:
    """Refuse what Kafka refuses from a client: marks that only a log sets, and producer ids without a sequence."""
    header = headers[0]
    if header.is_control:
        raise RefusedBatch("it is a control batch, which only a log itself writes", 0)
    if header.is_transactional and header.producer_id < 0:
        raise RefusedBatch("it belongs to a transaction, and has no producer id", 0)
    if header.has_delete_horizon:
        raise RefusedBatch("it has a delete horizon, which only compaction sets", 0)
    if header.is_log_append_time:
        raise InvalidTimestamp("its timestamp type is LogAppendTime, which only a log itself sets", 0)
    if header.producer_id >= 0 and (header.producer_epoch < 0 or header.base_sequence < 0):
        raise RefusedBatch(
            f"producer {header.producer_id} sent it with epoch {header.producer_epoch} and sequence"
            f" {header.base_sequence}, which start at 0",
            0,
        )
