"""What may be appended: batches are looked at, and made what the topic wants, before the partition is locked.

Pure functions of the bytes and the settings; offsets are given later. Kafka's own rules for clients are in
`_refuse_foreign`, so that a client gets the same refusals from both.
"""

from __future__ import annotations

from typing import NamedTuple

from foldlog.errors import InvalidBatch, InvalidTimestamp, RecordTooLarge, RefusedBatch
from foldlog.files.base import Buffer, would_block
from foldlog.limits import DECOMPRESSED_BYTES_MAX, QUICK_DECOMPRESSED_BYTES_MAX
from foldlog.log.config import AS_PRODUCED, LogConfig
from foldlog.records.batch import FAULT_CUT_OFF
from foldlog.records.loops import BatchHeader, recompress, validate, walk

Writable = bytearray | memoryview


class Admitted(NamedTuple):
    """Batches that may be appended, in memory that offsets may be written into."""

    data: Writable
    headers: list[BatchHeader]


def admit(
    buffer: Buffer, config: LogConfig, *, trusted: bool, foreign: bool, stored: bool = False, quickly: bool = False
) -> Admitted:
    """Check the batches of one buffer. Raises InvalidBatch, RefusedBatch, InvalidTimestamp or RecordTooLarge.

    `trusted`: built by our own builder just now, so only the headers are looked at. `foreign`: from a client, which
    may send one batch and nothing that only a log may write. `stored`: as another log holds them, which has admitted
    them already: where compaction removed records their offsets stay taken, and codec and size are left as they are.
    `quickly`: BlockingIOError where it expands to more than can be looked at in a moment.
    """
    data = _writable(buffer)
    if stored:
        found = walk(data)
        if found.problem is not None or found.end != len(data):
            raise InvalidBatch(found.problem or FAULT_CUT_OFF, found.end)
        return Admitted(data, found.headers)
    if trusted and not foreign and not config.compact and config.compression == AS_PRODUCED:
        headers = walk(data, check_crc=False).headers
        for header in headers:
            if header.size > config.max_message_bytes:
                raise RecordTooLarge(header.size, config.max_message_bytes)
        return Admitted(data, headers)
    limit = QUICK_DECOMPRESSED_BYTES_MAX if quickly else DECOMPRESSED_BYTES_MAX
    try:
        headers = validate(data, max_batch_bytes=config.max_message_bytes, decompressed_limit=limit)
    except RefusedBatch:
        if quickly:
            raise would_block("a batch that expands further") from None
        raise
    if foreign:
        _refuse_foreign(headers)
    if config.compact and any(header.keyless_count for header in headers):
        raise RefusedBatch("a record without a key cannot go to a compacted topic", 0)
    if config.compression != AS_PRODUCED and any(header.compression != config.compression for header in headers):
        data = recompress(data, config.compression)
        headers = walk(data, check_crc=False).headers
    return Admitted(data, headers)


def _writable(buffer: Buffer) -> Writable:
    """The caller's own memory where it can be written, else a copy of it."""
    if isinstance(buffer, bytearray):
        return buffer
    if isinstance(buffer, memoryview) and not buffer.readonly and buffer.c_contiguous:
        return buffer if buffer.format == "B" and buffer.ndim == 1 else buffer.cast("B")
    return bytearray(buffer)


def _refuse_foreign(headers: list[BatchHeader]) -> None:
    """What Kafka refuses from a client: what is a log's own to write, and what could not be told from a repetition."""
    if len(headers) != 1:
        raise RefusedBatch(f"{len(headers)} batches were sent for one partition; one is allowed", headers[1].position)
    header = headers[0]
    if header.is_control:
        raise RefusedBatch("it is a control batch, which only a log itself writes", 0)
    if header.is_transactional:
        raise RefusedBatch("it belongs to a transaction, and this log has no transactions", 0)
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
