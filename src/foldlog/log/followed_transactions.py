"""The transactions of a partition that another process writes, as its files show them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from foldlog.errors import CorruptLog, InvalidBatch
from foldlog.files.base import Files, read_file
from foldlog.log.layout import PartitionLayout, read_layout
from foldlog.log.producers import read_snapshot
from foldlog.log.segment import ANY_OFFSET, SNAPSHOT_SUFFIX, TRANSACTION_INDEX_SUFFIX, Segment, segment_stem
from foldlog.log.transactions import (
    AbortedIndex,
    AbortedTransaction,
    Transactions,
    end_marker,
    read_transaction_index,
)
from foldlog.records.loops import BatchHeader


class Decided(NamedTuple):
    """The last stable offset, and the transactions that were aborted below it."""

    stable_offset: int
    aborted: AbortedIndex


class _Noted(NamedTuple):
    """What is known of all batches below `next_offset`, which is at `position` of the segment at `base_offset`."""

    transactions: Transactions
    aborted: AbortedIndex
    next_offset: int
    base_offset: int = -1
    position: int = 0


class FollowedTransactions:
    """Finds what is open and what was aborted, and follows the log from there. One thread at a time.

    The newest sound snapshot names the transactions that were open when it was written, the index files those that were
    aborted before, and the batches since then the rest. A writer replaces these files without notice: whoever follows
    one compares its generation before and after the first `look` and each one after a `reset`.
    """

    def __init__(self, files: Files, path: str) -> None:
        self._files = files
        self._path = path
        self._noted: _Noted | None = None

    @property
    def is_fresh(self) -> bool:
        """Whether the next look reads snapshots and index files."""
        return self._noted is None

    def reset(self) -> None:
        """Forget everything: the log has lost its end, or was made anew."""
        self._noted = None

    def look(self, segments: Sequence[Segment], end_offset: int, *, is_torn: bool = False) -> Decided:
        """What the batches below `end_offset` decide. `is_torn`: damage is passed over; else it is CorruptLog."""
        noted = self._noted
        if noted is None or noted.next_offset > end_offset or noted.next_offset < segments[0].base_offset:
            noted = self._from_files(segments[0].base_offset, end_offset)
        ends = [*(one.base_offset for one in segments[1:]), ANY_OFFSET]
        for segment, ends_at in zip(segments, ends, strict=True):
            if ends_at > noted.next_offset and noted.next_offset < end_offset:
                noted = self._note_batches(segment, noted, end_offset, segment is segments[-1], is_torn)
        self._noted = noted
        first_open = noted.transactions.first_open_offset()
        return Decided(end_offset if first_open is None else min(end_offset, first_open), noted.aborted)

    def _from_files(self, start_offset: int, end_offset: int) -> _Noted:
        layout = read_layout(self._files.entries(self._path))
        for offset in sorted(layout.snapshots, reverse=True):
            producers = read_snapshot(self._read(offset, SNAPSHOT_SUFFIX)) if offset <= end_offset else None
            if producers is not None:
                started = [(one.producer_id, one.transaction_start_offset) for one in producers]
                transactions = Transactions((producer, first) for producer, first in started if first >= 0)
                aborted = AbortedIndex(self._indexed(layout, offset))
                return _Noted(transactions, aborted, max(offset, start_offset))
        return _Noted(Transactions(), AbortedIndex(), start_offset)

    def _indexed(self, layout: PartitionLayout, before_offset: int) -> list[AbortedTransaction]:
        found: list[AbortedTransaction] = []
        for base_offset in layout.transaction_indexes:
            entries, _ = read_transaction_index(self._read(base_offset, TRANSACTION_INDEX_SUFFIX))
            found += [entry for entry in entries if entry.last_offset < before_offset]
        return found

    def _read(self, offset: int, suffix: str) -> bytes:
        return read_file(self._files, segment_stem(self._path, offset) + suffix)

    def _note_batches(self, segment: Segment, noted: _Noted, end_offset: int, is_last: bool, is_torn: bool) -> _Noted:
        position = 0
        # The last segment only grows; another may have been replaced by a compacted one, where positions differ.
        if is_last and noted.base_offset == segment.base_offset:
            position = noted.position
        elif noted.next_offset > segment.base_offset:
            found = segment.find(noted.next_offset)
            position = segment.size if found is None else found[0]
        for at, headers in segment.scan(position, -1, ANY_OFFSET, stop_at_tear=is_torn):
            for header in headers:
                if header.base_offset >= end_offset:
                    return noted
                if header.base_offset >= noted.next_offset:
                    _note(segment, at, header, noted)
                    behind = at + header.position + header.size
                    noted = noted._replace(
                        next_offset=header.next_offset, base_offset=segment.base_offset, position=behind
                    )
            if noted.next_offset >= end_offset:
                return noted  # behind it the writer may be writing
        return noted


def _note(segment: Segment, position: int, header: BatchHeader, noted: _Noted) -> None:
    try:
        marker = end_marker(segment.read_batch(position, header), header) if header.is_control else None
    except InvalidBatch as error:
        raise CorruptLog(segment.log_path, position + header.position, error.reason) from error
    ended = noted.transactions.note(header, marker)
    if ended is not None and ended.is_aborted:
        noted.aborted.append(ended.entry)
