"""Checks every byte of a partition without changing one: what is damaged, and what is merely untidy.

Damage is what the log refuses with CorruptLog. A note is what the next open puts right by itself: a wrong hint, bytes
above the checkpoint, a change that a crash interrupted.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from foldlog.errors import CorruptLog, LogNotFound, StorageError
from foldlog.files.base import Files, read_file
from foldlog.log.checkpoint import Slot, SlotState
from foldlog.log.doctor.salvage import UNKNOWN_END, EpochRun
from foldlog.log.doctor.segment_scan import (
    UNKNOWN_INTERVAL,
    USUAL_INTERVAL_BYTES,
    Damage,
    ForEach,
    SegmentScan,
    SegmentScanner,
    Stretch,
    one_by_one,
)
from foldlog.log.doctor.transaction_check import wrong_transaction_indexes
from foldlog.log.epochs import NAME as EPOCHS_NAME
from foldlog.log.epochs import Epochs
from foldlog.log.layout import PartitionLayout, read_layout
from foldlog.log.producers import ProducerState
from foldlog.log.segment import SNAPSHOT_SUFFIX, TRANSACTION_INDEX_SUFFIX, Segment, segment_stem
from foldlog.log.transactions import AbortedTransaction, read_transaction_index

_LIVE_TRIES = 100  # each follows a roll, a retention or a compaction by the writer
_LIVE_PAUSE_S = 0.01

EpochPairs = tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class Inspection:
    """The content of a partition's directory, in a state that existed."""

    directory: str
    state: SlotState
    segments: tuple[SegmentScan, ...]
    damages: tuple[Damage, ...]
    notes: tuple[str, ...]
    epoch_starts: EpochPairs
    epochs_are_damaged: bool
    records: int  # readable ones: none before the log start, no transaction markers
    wrong_hints: tuple[str, ...] = ()  # files that contradict the batches they are made from

    @property
    def end_offset(self) -> int:
        """Where the log ends: by the checkpoint or, without a slot there, by the last batch."""
        active = self.segments[-1]
        if active.end_offset != UNKNOWN_END:
            return self.state.synced_offset
        return active.pieces[-1].next_offset if active.pieces else active.base_offset

    @property
    def size_bytes(self) -> int:
        return sum(segment.size for segment in self.segments)


def inspect_live(
    files: Files,
    directory: str,
    slot: Slot,
    *,
    index_interval_bytes: int = USUAL_INTERVAL_BYTES,
    each: ForEach = one_by_one,
) -> Inspection:
    """Inspect a partition that may have a writer. Takes no lock and changes nothing.

    A finding counts only if no names changed meanwhile: between two equal, even generations.
    """
    generation = 0
    unopened: str | None = None
    for _ in range(_LIVE_TRIES):
        state = _load_live(slot)
        generation = _generation(state)
        inspection = None
        try:
            inspection = inspect(files, directory, state, index_interval_bytes=index_interval_bytes, each=each)
        except FileNotFoundError as error:
            if not files.exists(directory):
                raise CorruptLog(directory, 0, "the directory is missing") from None
            unopened = error.filename  # most likely unlinked between listing and opening: look again
        is_settled = inspection is not None and (not generation & 1 or not inspection.damages)
        if inspection is not None and is_settled and _generation(_load_live(slot)) == generation:
            return inspection
        time.sleep(_LIVE_PAUSE_S)
    if generation & 1:
        raise StorageError(
            f"{directory}: its writer ended in the middle of a change; open the log once for writing, then check again"
        )
    if unopened and any(f"{directory}/{entry.name}" == unopened for entry in files.entries(directory)):
        raise CorruptLog(unopened, 0, "the name is there, but no file behind it: a link that leads nowhere")
    raise StorageError(f"{directory} changes faster than it can be looked at; try again")


def _load_live(slot: Slot) -> SlotState | None:
    try:
        return slot.load_live()
    except CorruptLog:
        return slot.load()  # what the next open goes by


def _generation(state: SlotState | None) -> int:
    return 0 if state is None else state.generation


def inspect(
    files: Files,
    directory: str,
    known: SlotState | None,
    *,
    index_interval_bytes: int = USUAL_INTERVAL_BYTES,
    each: ForEach = one_by_one,
    is_replayed: bool = False,
) -> Inspection:
    """Check every batch, record, epoch and hint of a partition whose names do not change meanwhile.

    `each` runs over the segments, several at a time if it can. `is_replayed`: what the journal has was written into the
    segments, so what is missing there is nowhere.
    """
    if known is not None and known.durable_offset > known.synced_offset:
        # The journal has it, and usually the segment, too. After a power cut only the journal may: not damage.
        further = known._replace(synced_offset=known.durable_offset, active_position=known.durable_position)
        found = _inspect_synced(files, directory, further, index_interval_bytes, each)
        if not found.damages or is_replayed:
            return found
    return _inspect_synced(files, directory, known, index_interval_bytes, each)


def _inspect_synced(
    files: Files, directory: str, known: SlotState | None, index_interval_bytes: int, each: ForEach
) -> Inspection:
    """As far as the segments are synced."""
    layout = read_layout(files.entries(directory))
    state = known or state_without_checkpoint(layout)
    stretches = _stretches(layout, state, has_slot=known is not None)
    scanner = SegmentScanner(files, directory, state.gaps_below, index_interval_bytes, each, state.log_start_offset)
    starts, epochs_fault = load_epochs(files, directory)
    scanned = scanner.scan(stretches, starts)
    damaged_epochs = False
    if epochs_fault or _disagreements(scanned.epoch_runs, starts):
        damaged_epochs = not epochs_fault and _most_disagree(scanned.epoch_runs, starts)
        if epochs_fault or damaged_epochs:
            starts = rebuild_epochs(scanned.epoch_runs, stretches[0].base_offset)
        # Scan again, now that the epoch that each batch has to carry is known.
        scanned = scanner.scan(stretches, starts)
    notes, hints = list(scanned.notes), list(scanned.wrong_hints)
    if epochs_fault:
        notes.append(f"{directory}/{EPOCHS_NAME}: {epochs_fault}; it is rebuilt from the batches")
        hints.append(f"{directory}/{EPOCHS_NAME}")
    damages = scanned.damages(directory)
    if damaged_epochs:
        reason = "it contradicts the leader epochs of most batches"
        damages.append(Damage(f"{directory}/{EPOCHS_NAME}", 0, reason, 0, 0, True))
    bad_snapshots = unsound_snapshots(files, directory, layout)
    notes += _notes(directory, layout, state, known)
    notes += [f"{path}: not a producer snapshot; the state is read from the log instead" for path in bad_snapshots]
    if state.has_transactions and not damages:
        bad_indexes = wrong_transaction_indexes(files, directory, layout)
        notes += [f"{path}: {fault}; rebuild it with --repair" for path, fault in bad_indexes]
        hints += [path for path, _ in bad_indexes]
    return Inspection(
        directory,
        state,
        scanned.segments,
        tuple(damages),
        tuple(notes),
        starts,
        damaged_epochs,
        scanned.records,
        (*hints, *bad_snapshots),
    )


def inspect_alone(
    files: Files, directory: str, *, only: int | None = None, log_start: int = 0, each: ForEach = one_by_one
) -> Inspection:
    """Inspect a partition's directory without a log around it, such as one that Kafka wrote; or its one segment `only`.

    `log_start`: records before it are deleted, though their segments may still be there. They are verified as well.

    No checkpoint gives its end, offsets may be missing anywhere, and a segment may end before the next begins: so
    batches that vanished without a trace are not noticed. Only batches of magic 2 are read.
    """
    layout = read_layout(files.entries(directory))
    bases = sorted(layout.logs) if only is None else [only]
    if not bases:
        raise LogNotFound(f"there is no segment in {directory}; name a directory that holds .log files")
    stretches = [Stretch(base, layout.logs.get(base), None, following, True) for base, following in pairwise(bases)]
    stretches.append(Stretch(bases[-1], layout.logs.get(bases[-1]), None, UNKNOWN_END))
    state = SlotState(log_start_offset=max(bases[0], log_start), active_base_offset=bases[-1], segment_count=len(bases))
    scanner = SegmentScanner(files, directory, UNKNOWN_END, UNKNOWN_INTERVAL, each, log_start)
    starts, epochs_fault = load_epochs(files, directory)
    scanned = scanner.scan(stretches, starts)
    notes, hints = list(scanned.notes), list(scanned.wrong_hints)
    if only is None:
        bad_snapshots = unsound_snapshots(files, directory, layout)
        notes += [f"{directory}/{EPOCHS_NAME}: {epochs_fault}"] if epochs_fault else []
        notes += [f"{path}: not a producer snapshot" for path in bad_snapshots]
        bad_transactions = unsound_transactions(files, directory, layout.logs)
        notes += [f"{path}: {fault}; what was aborted may be read as committed" for path, fault in bad_transactions]
        hints += [*bad_snapshots, *(path for path, _ in bad_transactions)]
        if layout.swaps:
            notes.append(f"{directory}: a compaction was interrupted; start Kafka on it once, which finishes it")
    return Inspection(
        directory,
        state,
        scanned.segments,
        tuple(scanned.damages(directory, is_ours=False)),
        tuple(notes),
        starts,
        False,
        scanned.records,
        tuple(hints),
    )


def state_without_checkpoint(layout: PartitionLayout) -> SlotState:
    """The state that recovery assumes if the partition's slot is lost: all but the last segment has to be whole."""
    bases = sorted(layout.logs)
    first, last = (bases[0], bases[-1]) if bases else (0, 0)
    return SlotState(
        log_start_offset=first,
        durable_offset=last,
        synced_offset=last,
        high_watermark=last,
        active_base_offset=last,
        active_position=0,
        gaps_below=last,
        segment_count=max(1, len(bases)),
        has_transactions=True,
    )


def _stretches(layout: PartitionLayout, state: SlotState, *, has_slot: bool) -> list[Stretch]:
    """Every segment that has to be there, with its bounds."""
    bases = sorted(base for base in layout.logs if base <= state.active_base_offset)
    while len(bases) > 1 and bases[1] <= state.local_start_offset:
        bases = bases[1:]  # expired: an interrupted retention is finished at the next open
    if state.active_base_offset not in bases:
        bases.append(state.active_base_offset)
    found = [Stretch(base, layout.logs.get(base), None, following) for base, following in pairwise(bases)]
    active = bases[-1]
    if has_slot:
        found.append(Stretch(active, layout.logs.get(active), state.active_position, state.synced_offset))
    else:
        found.append(Stretch(active, layout.logs.get(active), None, UNKNOWN_END))
    return found


# Epochs


def load_epochs(files: Files, directory: str) -> tuple[EpochPairs, str]:
    try:
        return Epochs.load(files, directory).starts, ""
    except CorruptLog as error:
        return (), error.reason


def _disagreements(runs: Iterable[EpochRun], starts: EpochPairs) -> int:
    return sum(run.batches for run in runs if not _agrees(run, starts))


def _agrees(run: EpochRun, starts: EpochPairs) -> bool:
    known = [epoch for epoch, first_offset in starts if first_offset <= run.first_offset]
    return not known or known[-1] == run.epoch


def _most_disagree(runs: Sequence[EpochRun], starts: EpochPairs) -> bool:
    return 2 * _disagreements(runs, starts) > sum(run.batches for run in runs)


def rebuild_epochs(runs: Iterable[EpochRun], first_offset: int) -> EpochPairs:
    """The epochs by the batches: each begins with the first batch that carries it."""
    starts: list[tuple[int, int]] = []
    for run in runs:
        if not starts or run.epoch > starts[-1][0]:
            starts.append((run.epoch, run.first_offset))
    return tuple(starts) or ((0, first_offset),)


# Notes


def _notes(directory: str, layout: PartitionLayout, state: SlotState, known: SlotState | None) -> list[str]:
    notes = []
    if known is None:
        notes.append(f"{directory} has no slot in the checkpoint; the next open verifies all of it")
    elif known.poisoned:
        notes.append(f"{directory}: a sync failed; the next open cuts it to offset {known.durable_offset}")
    above = layout.logs.get(state.active_base_offset, 0) - state.active_position
    above += sum(size for base, size in layout.logs.items() if base > state.active_base_offset)
    if known is not None and above > 0:
        notes.append(f"{directory}: {above} bytes are not in the checkpoint yet; the next open looks at them")
    if layout.swaps or layout.cleaned:
        notes.append(f"{directory}: a compaction is under way or was interrupted; the next open finishes it")
    first = min(layout.logs, default=state.synced_offset)
    if first > state.local_start_offset:
        notes.append(f"{directory}: segments before offset {first} were removed by hand; the log starts there")
    return notes


def unsound_transactions(files: Files, directory: str, logs: Mapping[int, int]) -> list[tuple[str, str]]:
    """Indexes of aborted transactions that are malformed, or that the batches contradict, and what is wrong."""
    found: list[tuple[str, str]] = []
    for base in sorted(logs):
        path = segment_stem(directory, base) + TRANSACTION_INDEX_SUFFIX
        try:
            entries, fault = read_transaction_index(read_file(files, path))
        except FileNotFoundError:
            continue  # none was aborted there
        segment = Segment(files, directory, base, logs[base], writable=False)
        try:
            wrong = next((one for one in entries if not _is_aborted_at(segment, one)), None)
        finally:
            segment.forget()
        if wrong is not None:
            fault = f"there is no abort of producer {wrong.producer_id} at offset {wrong.last_offset}"
        if fault:
            found.append((path, fault))
    return found


def _is_aborted_at(segment: Segment, transaction: AbortedTransaction) -> bool:
    try:
        found = segment.find(transaction.last_offset)
    except CorruptLog:
        return True  # the segment is damaged, and reported as such
    if found is None or found[1].base_offset != transaction.last_offset:
        return True  # compaction drops a marker once its transaction has no records left
    return found[1].is_control and found[1].producer_id == transaction.producer_id


def unsound_snapshots(files: Files, directory: str, layout: PartitionLayout) -> list[str]:
    """Producer snapshots that are damaged."""
    paths = [segment_stem(directory, offset) + SNAPSHOT_SUFFIX for offset in sorted(layout.snapshots)]
    found = []
    for path in paths:
        try:
            if ProducerState.from_snapshot(read_file(files, path)) is None:
                found.append(path)
        except FileNotFoundError:
            continue  # a newer one has replaced it
    return found
