"""Looking at every byte of a partition without changing one: what is damaged, and what is merely untidy.

Damage is what the log refuses with CorruptLog. A note is what the next open puts right by itself: a hint that is wrong,
bytes above the checkpoint, a change that a crash interrupted.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise

from foldlog.errors import CorruptLog, StorageError
from foldlog.files.base import Files, read_file
from foldlog.log.checkpoint import Slot, SlotState
from foldlog.log.epochs import NAME as EPOCHS_NAME
from foldlog.log.epochs import Epochs
from foldlog.log.layout import Layout, read_layout
from foldlog.log.offset_index import OffsetIndex
from foldlog.log.producer_state import ProducerState
from foldlog.log.salvage import UNKNOWN_END, Bounds, EpochRun, Piece, Salvage
from foldlog.log.segment import INDEX_SUFFIX, LOG_SUFFIX, SNAPSHOT_SUFFIX, segment_stem

_LIVE_TRIES = 100  # each follows a roll, a retention or a compaction by the writer
_LIVE_PAUSE_S = 0.01

EpochPairs = tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class Damage:
    """A place in a file that is not what was written, and the offsets [first_offset, next_offset) lost with it.

    Nothing is lost where only what the CRC does not cover is damaged: `is_mendable`. `is_loss_unknown`: neither a file
    nor a checkpoint is left that could say which offsets there were.
    """

    path: str
    position: int
    reason: str
    first_offset: int
    next_offset: int
    is_mendable: bool
    is_loss_unknown: bool = False

    @property
    def lost_offsets(self) -> int:
        return 0 if self.is_mendable else self.next_offset - self.first_offset


@dataclass(frozen=True, slots=True)
class SegmentScan:
    """One segment up to where the checkpoint vouches for it. A missing one has no size and one lost piece."""

    base_offset: int
    size: int
    end_offset: int
    pieces: tuple[Piece, ...]

    @property
    def is_damaged(self) -> bool:
        return any(piece.reason for piece in self.pieces)


@dataclass(frozen=True, slots=True)
class Inspection:
    """What a partition's directory holds, in a state that existed."""

    directory: str
    state: SlotState
    segments: tuple[SegmentScan, ...]
    damages: tuple[Damage, ...]
    notes: tuple[str, ...]
    epoch_starts: EpochPairs
    epochs_are_damaged: bool
    records: int

    @property
    def end_offset(self) -> int:
        """Where the log ends: as the checkpoint has it or, without a slot there, as far as the batches go."""
        active = self.segments[-1]
        if active.end_offset != UNKNOWN_END:
            return self.state.durable_offset
        return active.pieces[-1].next_offset if active.pieces else active.base_offset

    @property
    def size_bytes(self) -> int:
        return sum(segment.size for segment in self.segments)


def inspect_live(files: Files, directory: str, slot: Slot) -> Inspection:
    """Inspect beside whoever writes. Takes no lock and changes nothing.

    A finding counts only if the names did not change meanwhile: between two equal, even generations.
    """
    generation = 0
    unopened: str | None = None
    for _ in range(_LIVE_TRIES):
        state = _load_live(slot)
        generation = _generation(state)
        inspection = None
        try:
            inspection = inspect(files, directory, state)
        except FileNotFoundError as error:
            if not files.exists(directory):
                raise CorruptLog(directory, 0, "the directory is missing") from None
            unopened = error.filename  # it was unlinked between listing and opening, most likely: look again
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


def inspect(files: Files, directory: str, known: SlotState | None) -> Inspection:
    """Every batch, record, epoch and hint of a partition whose names nobody changes meanwhile."""
    layout = read_layout(files.entries(directory))
    state = known or state_without_checkpoint(layout)
    starts, epochs_fault = _load_epochs(files, directory)
    segments, runs, records, notes = _scan_all(files, directory, layout, state, starts, known is not None)
    damaged_epochs = False
    if epochs_fault or _disagreements(runs, starts):
        damaged_epochs = not epochs_fault and _most_disagree(runs, starts)
        if epochs_fault or damaged_epochs:
            starts = rebuild_epochs(runs, segments[0].base_offset if segments else 0)
        # Once more, now that it is known which epoch each batch has to carry.
        segments, _, records, notes = _scan_all(files, directory, layout, state, starts, known is not None)
    if epochs_fault:
        notes.append(f"{directory}/{EPOCHS_NAME}: {epochs_fault}; it is made anew from the batches")
    damages = [
        Damage(
            segment_stem(directory, segment.base_offset) + LOG_SUFFIX, piece.position, piece.reason,
            piece.first_offset, piece.next_offset, piece.mended is not None,
            piece.is_lost and segment.end_offset == UNKNOWN_END and piece is segment.pieces[-1],
        )
        for segment in segments for piece in segment.pieces if piece.reason
    ]  # fmt: skip
    if damaged_epochs:
        reason = "it contradicts the leader epochs of most batches"
        damages.append(Damage(f"{directory}/{EPOCHS_NAME}", 0, reason, 0, 0, True))
    notes += _notes(files, directory, layout, state, known)
    return Inspection(directory, state, tuple(segments), tuple(damages), tuple(notes), starts, damaged_epochs, records)


def state_without_checkpoint(layout: Layout) -> SlotState:
    """What recovery goes by where the partition's slot is lost: all but the last segment has to be whole."""
    bases = sorted(layout.logs)
    first, last = (bases[0], bases[-1]) if bases else (0, 0)
    return SlotState(
        log_start_offset=first, durable_offset=last, high_watermark=last, active_base_offset=last, active_position=0,
        gaps_below=last, segment_count=max(1, len(bases)),
    )  # fmt: skip


def _stretches(layout: Layout, state: SlotState, *, has_slot: bool) -> list[tuple[int, int, int, int]]:
    """(base offset, size, bytes vouched for, end offset) of every segment there has to be."""
    bases = sorted(base for base in layout.logs if base <= state.active_base_offset)
    while len(bases) > 1 and bases[1] <= state.log_start_offset:
        bases = bases[1:]  # expired: an interrupted retention is finished at the next open
    if state.active_base_offset not in bases:
        bases.append(state.active_base_offset)
    found = [
        (base, layout.logs.get(base, 0), layout.logs.get(base, 0), following) for base, following in pairwise(bases)
    ]
    active = bases[-1]
    size = layout.logs.get(active, 0)
    if has_slot:
        found.append((active, size, state.active_position, state.durable_offset))
    else:
        found.append((active, size, size, UNKNOWN_END))
    return found


def _scan_all(
    files: Files, directory: str, layout: Layout, state: SlotState, starts: EpochPairs, has_slot: bool
) -> tuple[list[SegmentScan], list[EpochRun], int, list[str]]:
    segments: list[SegmentScan] = []
    runs: list[EpochRun] = []
    records, notes = 0, []
    for base, size, vouched, end_offset in _stretches(layout, state, has_slot=has_slot):
        bounds = Bounds(0, vouched, base, end_offset, state.gaps_below, starts)
        path = segment_stem(directory, base) + LOG_SUFFIX
        if base not in layout.logs:
            # Where nobody knows the end, nobody knows what is lost: no stand-in can take its place.
            known_end = base if end_offset == UNKNOWN_END else end_offset
            lost = Piece(0, 0, base, known_end, "the file is missing")
            segments.append(SegmentScan(base, 0, end_offset, (lost,)))
            continue
        entries = _index_of(files, directory, base, vouched)
        file = files.open(path)
        try:
            found = Salvage(file, bounds, entries)
        finally:
            file.close()
        pieces = found.pieces
        if end_offset == UNKNOWN_END and pieces and pieces[-1].is_lost:
            # Nobody vouched for these bytes: a torn write, which recovery cuts.
            notes.append(f"{path}: {pieces[-1].reason} at byte {pieces[-1].position}; the next open sets that aside")
            pieces = pieces[:-1]
        if found.confirmed_entries < len(entries):
            notes.append(
                f"{segment_stem(directory, base)}{INDEX_SUFFIX}: some entries lead elsewhere; it is rebuilt on use"
            )
        segments.append(SegmentScan(base, size, end_offset, tuple(pieces)))
        runs += found.epoch_runs
        records += found.records
    return segments, runs, records, notes


def _index_of(files: Files, directory: str, base_offset: int, below: int) -> dict[int, int]:
    """Position → last offset of the batches that the index knows below a position."""
    try:
        index = OffsetIndex.parse(read_file(files, segment_stem(directory, base_offset) + INDEX_SUFFIX))
    except FileNotFoundError:
        return {}
    entries = (index[at] for at in range(len(index)))
    return {position: base_offset + relative for relative, position in entries if position < below}


# Epochs


def _load_epochs(files: Files, directory: str) -> tuple[EpochPairs, str]:
    try:
        return Epochs.load(files, directory).starts, ""
    except CorruptLog as error:
        return (), error.reason


def _disagreements(runs: Iterable[EpochRun], starts: EpochPairs) -> int:
    return sum(run.batches for run in runs if not _agrees(run, starts))


def _agrees(run: EpochRun, starts: EpochPairs) -> bool:
    known = [epoch for epoch, first_offset in starts if first_offset <= run.first_offset]
    return not known or known[-1] == run.epoch


def _most_disagree(runs: list[EpochRun], starts: EpochPairs) -> bool:
    return 2 * _disagreements(runs, starts) > sum(run.batches for run in runs)


def rebuild_epochs(runs: Iterable[EpochRun], first_offset: int) -> EpochPairs:
    """The epochs as the batches tell them: each begins with the first batch that carries it."""
    starts: list[tuple[int, int]] = []
    for run in runs:
        if not starts or run.epoch > starts[-1][0]:
            starts.append((run.epoch, run.first_offset))
    return tuple(starts) or ((0, first_offset),)


# Notes


def _notes(files: Files, directory: str, layout: Layout, state: SlotState, known: SlotState | None) -> list[str]:
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
    first = min(layout.logs, default=state.durable_offset)
    if first > state.log_start_offset:
        notes.append(f"{directory}: segments before offset {first} were removed by hand; the log starts there")
    for offset in sorted(layout.snapshots):
        path = segment_stem(directory, offset) + SNAPSHOT_SUFFIX
        try:
            is_sound = ProducerState.from_snapshot(read_file(files, path)) is not None
        except FileNotFoundError:
            continue
        if not is_sound:
            notes.append(f"{path}: not a producer snapshot; the state is read from the log instead")
    return notes
