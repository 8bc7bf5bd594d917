"""Whether a single batch in a segment file is sound: whole, and with the records that its header names."""

from __future__ import annotations

from collections.abc import Sequence

from foldlog.errors import DecompressedTooLarge, FoldlogError
from foldlog.files.base import File
from foldlog.limits import BATCH_BYTES_MAX
from foldlog.records import batch as fmt
from foldlog.records.compression import READ_DECOMPRESSED_BYTES
from foldlog.records.loops import BatchHeader, decode, validate, walk


def batch_at(log: File, position: int, end: int) -> BatchHeader | None:
    """The batch at `position` if it is whole before `end` and its CRC matches; else None."""
    ends_at = declared_end(log, position)
    if ends_at is None or ends_at > end:
        return None
    headers = walk(log.read(position, ends_at - position)).headers
    return headers[0] if len(headers) == 1 else None


def declared_end(log: File, position: int) -> int | None:
    """Where the batch at `position` ends by its own length field; None if there is no batch."""
    head = log.read(position, fmt.RECORDS_AT)
    if len(head) < fmt.RECORDS_AT or head[fmt.MAGIC_AT] != fmt.MAGIC:
        return None
    size = fmt.LENGTH_PREFIX_BYTES + int.from_bytes(head[fmt.LENGTH_AT : fmt.LEADER_EPOCH_AT], "big", signed=True)
    return position + size if fmt.RECORDS_AT <= size <= BATCH_BYTES_MAX else None


def first_unsound(data: memoryview, headers: Sequence[BatchHeader]) -> tuple[int, str] | None:
    """Number and fault of the first of these batches whose records contradict its header; None if there is none."""
    if not headers:
        return None
    first, last = headers[0], headers[-1]
    try:
        validate(
            data[first.position : last.position + last.size],
            max_batch_bytes=BATCH_BYTES_MAX,
            decompressed_limit=READ_DECOMPRESSED_BYTES,
        )
    except FoldlogError:
        # Compacted and control batches are not as a producer sends them: check each by itself.
        for number, header in enumerate(headers):
            reason = _fault_of(data[header.position : header.position + header.size], header)
            if reason:
                return number, reason
    return None


def _fault_of(data: memoryview, header: BatchHeader) -> str:
    """The fault in the records of a batch of any origin; "" if there is none."""
    if header.record_count == 0:
        return "" if header.size == fmt.RECORDS_AT else fmt.FAULT_LEFT_OVER
    if header.is_control:
        return ""
    try:
        records, _ = decode(data, "", 0)
    except DecompressedTooLarge:
        return ""  # too large to be opened here, with a right CRC: nothing shows damage
    except FoldlogError as error:
        return getattr(error, "reason", str(error))
    offsets = [record.offset for record in records]
    if len(offsets) != header.record_count or offsets != sorted(set(offsets)):
        return fmt.FAULT_COUNT
    return "" if header.base_offset <= offsets[0] and offsets[-1] <= header.last_offset else fmt.FAULT_OFFSET_DELTA


def base_offset_of(data: bytes | memoryview) -> int:
    """The base offset of the batch that begins there."""
    return int.from_bytes(data[: fmt.LENGTH_AT], "big", signed=True)
