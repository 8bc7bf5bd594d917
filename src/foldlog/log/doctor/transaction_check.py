"""Whether the indexes of aborted transactions say what the markers in the log say; and what they have to say."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from operator import attrgetter

from foldlog.files.base import Files, read_file
from foldlog.log.layout import PartitionLayout
from foldlog.log.producers import ProducerState, read_snapshot, replay
from foldlog.log.segment import ANY_OFFSET, SNAPSHOT_SUFFIX, TRANSACTION_INDEX_SUFFIX, Segment, segment_stem
from foldlog.log.transactions import AbortedTransaction, EndedTransaction, read_transaction_index


def ended_transactions(segments: Sequence[Segment]) -> list[EndedTransaction]:
    """All transactions that have batches in these segments, and a marker. Raises CorruptLog."""
    state = ProducerState()
    found: list[EndedTransaction] = []
    for segment in segments:
        batches = segment.scan(0, segment.base_offset, ANY_OFFSET, stop_at_tear=segment is segments[-1])
        found += replay(state, segment, batches, 0, ANY_OFFSET)
        segment.forget()
    return found


def wrong_transaction_indexes(files: Files, directory: str, layout: PartitionLayout) -> list[tuple[str, str]]:
    """Indexes of aborted transactions that contradict the markers, and how. Only as far as a snapshot vouches for them:
    what came later the next open finds in the log. The log itself has to be sound."""
    bases = sorted(layout.logs)
    segments = [Segment(files, directory, base, layout.logs[base], writable=False) for base in bases]
    ended = ended_transactions(segments)
    committed: dict[int, list[EndedTransaction]] = {}
    for one in ended:
        if not one.is_aborted:
            committed.setdefault(one.producer_id, []).append(one)
    vouched = _vouched_offset(files, directory, layout)
    found: list[tuple[str, str]] = []
    for base, following in zip(bases, [*bases[1:], ANY_OFFSET], strict=True):
        path = segment_stem(directory, base) + TRANSACTION_INDEX_SUFFIX
        try:
            entries, fault = read_transaction_index(read_file(files, path))
        except FileNotFoundError:
            entries, fault = [], ""
        here = [one for one in ended if base <= one.last_offset < min(following, vouched)]
        is_behind = bool(entries) and entries[-1].last_offset >= vouched
        faults = [fault] if fault and base < vouched and not is_behind else []
        faults += _faults(entries, here, committed)
        if faults:
            found.append((path, faults[0]))
    return found


def _vouched_offset(files: Files, directory: str, layout: PartitionLayout) -> int:
    """The offset of the newest sound snapshot; 0 if there is none."""
    for offset in sorted(layout.snapshots, reverse=True):
        try:
            if read_snapshot(read_file(files, segment_stem(directory, offset) + SNAPSHOT_SUFFIX)) is not None:
                return offset
        except FileNotFoundError:
            continue  # a newer one has replaced it
    return 0


def _faults(
    entries: Sequence[AbortedTransaction],
    here: Sequence[EndedTransaction],
    committed: Mapping[int, Sequence[EndedTransaction]],
) -> Iterator[str]:
    """`here`: the transactions that end in the segment of these entries; `committed`: all such, by producer."""
    named = {(entry.producer_id, entry.last_offset): entry.first_offset for entry in entries}
    for one in here:
        # Compaction may have dropped the first batches of a transaction, and an entry still names where they were.
        if one.is_aborted and named.get((one.producer_id, one.last_offset), ANY_OFFSET) > one.first_offset:
            yield f"the abort of producer {one.producer_id} at offset {one.last_offset} is not in it"
    for entry in entries:
        of_producer = committed.get(entry.producer_id, ())
        at = bisect_left(of_producer, entry.first_offset, key=attrgetter("first_offset"))
        if at < len(of_producer) and of_producer[at].last_offset <= entry.last_offset:
            yield (
                f"it calls offsets aborted that producer {entry.producer_id} committed at {of_producer[at].last_offset}"
            )
