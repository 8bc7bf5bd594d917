"""Repair of CorruptLog on request: damaged bytes are set aside, never deleted.

Each damaged segment is rewritten: sound batches unchanged, batches with damage only in the header mended, and in place
of lost ones a batch without records that covers the same offsets. So offsets stay contiguous, readers pass over the
loss, and no offset is ever used again. The damaged bytes are kept in `<segment>.log.<position>.cut`.

`plan_repair` decides everything and touches nothing. `cut_out` carries a plan out so that a crash leaves either the
damage or the repair: new files replace old ones as in compaction (layout.swap_in). The active segment is sealed first:
the checkpoint holds a position in it, which a replaced file would not have.

`rebuild` recreates what is derived from a log: indexes, producer snapshots, leader epochs, a partition's slot. The next
open or look-up would do all of it, too. It takes no byte out of a segment: one that is damaged, or ends in bytes that
are no batch, is left as it is.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from foldlog.clock import Clock
from foldlog.errors import CorruptLog
from foldlog.files.base import File, Files, replace_file
from foldlog.limits import POSITION_MAX, READ_CHUNK_BYTES
from foldlog.log.checkpoint import Slot, SlotState, StartReason
from foldlog.log.config import LogConfig
from foldlog.log.doctor.inspection import EpochPairs, Inspection, inspect
from foldlog.log.doctor.salvage import UNKNOWN_END, Piece, Salvage, SalvageBounds, epoch_at
from foldlog.log.doctor.segment_scan import Damage
from foldlog.log.doctor.transaction_check import ended_transactions
from foldlog.log.durability import Syncer
from foldlog.log.epochs import NAME as EPOCHS_NAME
from foldlog.log.epochs import format_epochs
from foldlog.log.journal.format import Placed
from foldlog.log.journal.recovery import write_unjoined
from foldlog.log.layout import (
    CLEANED_SUFFIX,
    METADATA_NAME,
    SWAP_SUFFIX,
    finish_swaps,
    free_cut_name,
    read_layout,
    swap_in,
)
from foldlog.log.partition import Partition
from foldlog.log.producers import ProducerState, replay
from foldlog.log.segment import (
    ANY_OFFSET,
    INDEX_SUFFIX,
    LOG_SUFFIX,
    SNAPSHOT_SUFFIX,
    TIME_INDEX_SUFFIX,
    TRANSACTION_INDEX_SUFFIX,
    Segment,
    segment_stem,
)
from foldlog.log.transactions import format_transaction_index
from foldlog.records import batch as fmt
from foldlog.records.loops import BatchHeader, empty_batch

logger = logging.getLogger("foldlog.log")

_HINT = re.compile(
    rf".*/(?P<base>\d{{20}})(?P<suffix>{re.escape(INDEX_SUFFIX)}|{re.escape(TIME_INDEX_SUFFIX)}"
    rf"|{re.escape(SNAPSHOT_SUFFIX)}|{re.escape(TRANSACTION_INDEX_SUFFIX)})"
)


@dataclass(frozen=True, slots=True)
class Rewrite:
    """A segment file to be rewritten from these pieces of the old one, up to `end_offset`."""

    base_offset: int
    pieces: tuple[Piece, ...]
    end_offset: int


@dataclass(frozen=True, slots=True)
class Seal:
    """Seals the active segment: appends go on in an empty one at `end_offset`.

    Bytes [position, end) of it are above the checkpoint and sound: they are written again and synced before the
    checkpoint vouches for them. Bytes from `end` on, and the later segments in `dropped`, are not sound.
    """

    base_offset: int
    position: int
    end: int
    end_offset: int
    dropped: tuple[int, ...]
    reason: str


@dataclass(frozen=True, slots=True)
class RepairPlan:
    """The steps of a repair, in the order of the fields; `state` is stored in the checkpoint afterwards."""

    rewrites: tuple[Rewrite, ...]
    seal: Seal | None
    epochs: EpochPairs | None
    state: SlotState


@dataclass(frozen=True, slots=True)
class RepairReport:
    """The damage found, and the files that now hold what was cut out."""

    damages: tuple[Damage, ...]
    kept_aside: tuple[str, ...]


def cut_out(
    files: Files, directory: str, slot: Slot, *, topic_id: str, unjoined: Sequence[tuple[str, Placed]] = ()
) -> RepairReport:
    """Set everything damaged aside, so that the partition opens and can be read. Durable on return.

    `unjoined`: entries of the journal that the partition could not take, because something before them is missing.

    The caller is the directory's writer and does not have the partition open. The next open counts as unclean, so the
    leader epoch rises: a bookmark from before cannot take new records for lost ones.
    """
    known = slot.load()
    kept_aside: list[str] = []
    if not files.exists(directory):
        _make_directory(files, directory, topic_id)
    _finish_swaps(files, directory, kept_aside)
    if unjoined:
        kept_aside += _set_overwritten_aside(files, directory, unjoined)
        write_unjoined(files, directory, slot, unjoined)
        known = slot.load()
    inspection = inspect(files, directory, known, is_replayed=True)
    if not inspection.damages:
        return RepairReport((), tuple(kept_aside))
    above = None if known is None else _scan_above(files, inspection)
    sizes = read_layout(files.entries(directory)).logs
    plan = plan_repair(inspection, above, sorted(sizes))
    _carry_out(files, directory, slot, inspection, plan, kept_aside)
    return RepairReport(inspection.damages, tuple(kept_aside))


def _set_overwritten_aside(files: Files, directory: str, entries: Sequence[tuple[str, Placed]]) -> Iterator[str]:
    """Copy segments that entries of the journal would be written over: they may be of another place."""
    for base in sorted({placed.entry.base_offset for _, placed in entries}):
        path = segment_stem(directory, base) + LOG_SUFFIX
        if files.exists(path) and _size_of(files, path):
            yield _copy_aside(files, path, 0, _size_of(files, path), "the journal's entries do not join it")
    files.sync_directory(directory)


def _make_directory(files: Files, directory: str, topic_id: str) -> None:
    files.make_directory(directory)
    replace_file(files, f"{directory}/{METADATA_NAME}", f"version: 0\ntopic_id: {topic_id}\n".encode())
    files.sync_directory(directory.rpartition("/")[0] or ".")


def _finish_swaps(files: Files, directory: str, kept_aside: list[str]) -> None:
    """Finish interrupted swaps of compaction first; a swap file that is damaged itself is set aside."""
    while True:
        layout = read_layout(files.entries(directory))
        try:
            finish_swaps(files, directory, layout)
            return
        except CorruptLog as error:
            swap = next(
                (base for base in layout.swaps if segment_stem(directory, base) + SWAP_SUFFIX == error.path), None
            )
            if swap is None:
                raise
            beside = free_cut_name(files, error.path, error.position)
            files.rename(error.path, beside)
            files.sync_directory(directory)
            kept_aside.append(beside)


# Deciding


@dataclass(frozen=True, slots=True)
class Above:
    """The active segment above the checkpoint: sound up to byte `end` and offset `end_offset`."""

    end: int
    end_offset: int
    reason: str


def _scan_above(files: Files, inspection: Inspection) -> Above:
    state, active = inspection.state, inspection.segments[-1]
    end = max(active.size, state.active_position)
    if active.size <= state.active_position or state.poisoned:
        return Above(state.active_position, state.synced_offset, "a sync failed after it was written")
    bounds = SalvageBounds(
        state.active_position, end, state.synced_offset, UNKNOWN_END, state.gaps_below, inspection.epoch_starts
    )
    file = files.open(segment_stem(inspection.directory, active.base_offset) + LOG_SUFFIX)
    try:
        pieces = Salvage(file, bounds).pieces
    finally:
        file.close()
    if pieces and not pieces[0].reason:
        reason = pieces[1].reason if len(pieces) > 1 else ""
        return Above(pieces[0].end, pieces[0].next_offset, reason)
    return Above(state.active_position, state.synced_offset, pieces[0].reason if pieces else "")


def plan_repair(inspection: Inspection, above: Above | None, bases: Sequence[int]) -> RepairPlan:
    """Plan a repair of the damages found. `bases`: every segment there is, also above the checkpoint."""
    state = inspection.state
    damaged = [segment for segment in inspection.segments if segment.is_damaged]
    active = inspection.segments[-1]
    seal = None
    rewrites = [Rewrite(segment.base_offset, segment.pieces, segment.end_offset) for segment in damaged]
    if active.is_damaged:
        seal = _plan_seal(inspection, above, bases)
        pieces = active.pieces
        if above is not None and above.end > state.active_position:
            pieces = (*pieces, Piece(state.active_position, above.end, state.synced_offset, above.end_offset))
        rewrites[-1] = Rewrite(active.base_offset, pieces, seal.end_offset)
        if seal.end_offset == active.base_offset:
            rewrites.pop()  # it held nothing: an empty segment in its place is enough
        following = [base for base in bases if base == seal.end_offset]
        start = inspection.segments[0].base_offset
        state = state._replace(
            high_watermark=seal.end_offset,
            durable_offset=seal.end_offset,
            durable_position=0,
            synced_offset=seal.end_offset,
            active_base_offset=following[0] if following else seal.end_offset,
            active_position=0,
            segment_count=len(inspection.segments) + (seal.end_offset != active.base_offset),
        )
        if start > state.local_start_offset:
            state = state._replace(log_start_offset=start, start_reason=StartReason.MISSING)
    state = state._replace(generation=(state.generation | 1) + 1, clean=False, poisoned=False)
    epochs = inspection.epoch_starts if inspection.epochs_are_damaged else None
    return RepairPlan(tuple(rewrites), seal, epochs, state)


def _plan_seal(inspection: Inspection, above: Above | None, bases: Sequence[int]) -> Seal:
    state, active = inspection.state, inspection.segments[-1]
    if above is None:
        # Without a slot nothing is above the checkpoint: what is sound is in the pieces, and the log ends with them.
        last = active.pieces[-1]
        return Seal(active.base_offset, 0, last.end, last.next_offset, (), "it is no whole batch")
    later = [base for base in bases if base > active.base_offset]
    goes_on = bool(later) and later[0] == above.end_offset
    return Seal(
        active.base_offset,
        state.active_position,
        above.end,
        above.end_offset,
        () if goes_on else tuple(later),
        above.reason or f"offset {above.end_offset} was expected",
    )


# Acting


def _carry_out(
    files: Files, directory: str, slot: Slot, inspection: Inspection, plan: RepairPlan, kept_aside: list[str]
) -> None:
    tail = _damage_at_the_tail(plan)
    for rewrite in plan.rewrites:
        kept_aside += _set_damage_aside(files, directory, rewrite, tail)
    if plan.seal is not None:
        kept_aside += _set_tail_aside(files, directory, plan.seal, tail)
        _settle(files, directory, plan.seal)
        _create_empty(files, directory, plan.seal.end_offset)
    if plan.epochs is not None:
        path = f"{directory}/{EPOCHS_NAME}"
        kept_aside.append(_copy_aside(files, path, 0, _size_of(files, path), "contradicts the batches"))
    # All removed bytes are durable beside the log before the first of them is removed.
    files.sync_directory(directory)
    _store(slot, plan.state._replace(generation=plan.state.generation - 1))
    if plan.seal is not None:
        for base in plan.seal.dropped:
            files.unlink(segment_stem(directory, base) + LOG_SUFFIX)
        files.sync_directory(directory)
    if plan.epochs is not None:
        replace_file(files, f"{directory}/{EPOCHS_NAME}", format_epochs(plan.epochs))
    starts = inspection.epoch_starts
    for rewrite in plan.rewrites:
        _write_anew(files, directory, rewrite, starts)
        stem = segment_stem(directory, rewrite.base_offset)
        files.rename(stem + CLEANED_SUFFIX, stem + SWAP_SUFFIX)
        swap_in(files, directory, rewrite.base_offset, ())
    _store(slot, plan.state)


def _store(slot: Slot, state: SlotState) -> None:
    """Store the state durably in both sectors of the slot: an older sector must not undo what follows."""
    slot.store_firmly(state)
    slot.sync()


def _damage_at_the_tail(plan: RepairPlan) -> Piece | None:
    """Damage that ends where the tail begins. They are set aside as one: a file that is not the one the checkpoint
    speaks of has no batch that ends there, and a cut would halve one that is whole."""
    if plan.seal is None or not plan.rewrites or plan.rewrites[-1].base_offset != plan.seal.base_offset:
        return None
    last = plan.rewrites[-1].pieces[-1]
    return last if last.reason and last.end == plan.seal.end else None


def _set_damage_aside(files: Files, directory: str, rewrite: Rewrite, tail: Piece | None) -> Iterator[str]:
    path = segment_stem(directory, rewrite.base_offset) + LOG_SUFFIX
    for piece in rewrite.pieces:
        if piece.reason and piece.end > piece.position and piece is not tail:
            yield _copy_aside(files, path, piece.position, piece.end, piece.reason)


def _set_tail_aside(files: Files, directory: str, seal: Seal, damage: Piece | None) -> Iterator[str]:
    """Copy bytes that no checkpoint vouched for and that do not follow on: recovery would cut them too."""
    path = segment_stem(directory, seal.base_offset) + LOG_SUFFIX
    start = seal.end if damage is None else damage.position
    if files.exists(path) and _size_of(files, path) > start:
        yield _copy_aside(files, path, start, _size_of(files, path), seal.reason if damage is None else damage.reason)
    for base in seal.dropped:
        path = segment_stem(directory, base) + LOG_SUFFIX
        if _size_of(files, path):
            yield _copy_aside(files, path, 0, _size_of(files, path), seal.reason)


def _copy_aside(files: Files, path: str, start: int, end: int, reason: str) -> str:
    """Copy bytes into a file of their own. Durable once the directory is synced."""
    beside = free_cut_name(files, path, start)
    source, target = files.open(path), files.open(beside, write=True, create=True)
    try:
        _copy(source, start, end, target, 0)
        target.sync()
    finally:
        source.close()
        target.close()
    logger.warning("%s: cut out %d bytes at %d (%s), kept in %s", path, end - start, start, reason, beside)
    return beside


def _settle(files: Files, directory: str, seal: Seal) -> None:
    """Write the sound bytes above the checkpoint again: after a failed sync a clean page may not be on disk."""
    if seal.end <= seal.position:
        return
    file = files.open(segment_stem(directory, seal.base_offset) + LOG_SUFFIX, write=True)
    try:
        _copy(file, seal.position, seal.end, file, seal.position)
        file.sync()
    finally:
        file.close()


def _create_empty(files: Files, directory: str, base_offset: int) -> None:
    path = segment_stem(directory, base_offset) + LOG_SUFFIX
    if not files.exists(path):
        file = files.open(path, write=True, create=True)
        file.sync()
        file.close()


def _write_anew(files: Files, directory: str, rewrite: Rewrite, starts: EpochPairs) -> None:
    """Write `<base>.log.cleaned`, the segment's new content. Durable once the directory is synced."""
    stem = segment_stem(directory, rewrite.base_offset)
    target = files.open(stem + CLEANED_SUFFIX, write=True, create=True)
    source = files.open(stem + LOG_SUFFIX) if files.exists(stem + LOG_SUFFIX) else None
    try:
        target.truncate(0)
        position = 0
        for piece in rewrite.pieces:
            if piece.mended is not None:
                position += target.write(position, [piece.mended])
            elif piece.is_lost:
                for batch in _stand_ins(piece.first_offset, piece.next_offset, starts):
                    position += target.write(position, [batch])
            elif source is not None:
                position += _copy(source, piece.position, piece.end, target, position)
        target.sync()
    finally:
        target.close()
        if source is not None:
            source.close()


def _stand_ins(first_offset: int, next_offset: int, starts: EpochPairs) -> Iterator[bytes]:
    """Batches without records for a range of offsets. Several if the leader epoch changes inside it, since a batch
    carries one, or if a batch cannot count that far."""
    while first_offset < next_offset:
        later = [start for _, start in starts if first_offset < start < next_offset]
        end = min([next_offset, first_offset + POSITION_MAX, *later])
        yield empty_batch(_header_of(first_offset, end, epoch_at(starts, first_offset)))
        first_offset = end


def _header_of(first_offset: int, next_offset: int, epoch: int) -> BatchHeader:
    return BatchHeader(
        position=0,
        size=fmt.RECORDS_AT,
        base_offset=first_offset,
        leader_epoch=epoch,
        attributes=0,
        last_offset_delta=next_offset - first_offset - 1,
        base_timestamp=fmt.NO_TIMESTAMP,
        max_timestamp=fmt.NO_TIMESTAMP,
        producer_id=fmt.NO_PRODUCER_ID,
        producer_epoch=fmt.NO_PRODUCER_EPOCH,
        base_sequence=fmt.NO_SEQUENCE,
        record_count=0,
        crc=0,
    )


def _copy(source: File, start: int, end: int, target: File, position: int) -> int:
    """Copy bytes [start, end) of `source` to `position` of `target`; returns how many there were."""
    copied = 0
    while start + copied < end:
        data = source.read(start + copied, min(READ_CHUNK_BYTES, end - start - copied))
        if not data:
            break
        target.write(position + copied, [data])
        copied += len(data)
    return copied


def _size_of(files: Files, path: str) -> int:
    file = files.open(path)
    try:
        return file.size()
    finally:
        file.close()


def rebuild(
    files: Files, directory: str, slot: Slot, config: LogConfig, *, clock: Clock, label: tuple[str, int]
) -> tuple[Inspection, list[str]]:
    """Returns the findings, and the files that were recreated; none if something is damaged.

    The caller is the directory's writer and does not have the partition open.
    """
    known = slot.load()
    found = inspect(files, directory, known, index_interval_bytes=config.index_interval_bytes)
    if found.damages:
        return found, []
    made = list(_rebuild_hints(files, found, config.index_interval_bytes))
    ends_whole = found.segments[-1].sound_bytes == found.segments[-1].size
    if known is None and ends_whole:
        # Opening derives the slot, and has nothing to cut.
        syncer = Syncer()  # it starts no thread: nothing is appended
        Partition.open(files, directory, slot, config, clock=clock, syncer=syncer, label=label).close()
        slot.sync()
        made.append(f"the slot of {directory} in the checkpoint")
    return found, made


def _rebuild_hints(files: Files, found: Inspection, interval_bytes: int) -> Iterator[str]:
    segments = [
        Segment(
            files,
            found.directory,
            scan.base_offset,
            scan.sound_bytes,
            writable=True,
            index_interval_bytes=interval_bytes,
        )
        for scan in found.segments
    ]
    rebuilt: set[int] = set()
    for path in found.wrong_hints:
        hint = _HINT.fullmatch(path)
        if path.endswith(f"/{EPOCHS_NAME}"):
            replace_file(files, path, format_epochs(found.epoch_starts))
        elif hint is not None and hint["suffix"] == SNAPSHOT_SUFFIX:
            replace_file(files, path, _producers_below(segments, int(hint["base"])).snapshot())
        elif hint is not None and hint["suffix"] == TRANSACTION_INDEX_SUFFIX:
            base = int(hint["base"])
            end = next((one.base_offset for one in segments if one.base_offset > base), ANY_OFFSET)
            ended = [one for one in ended_transactions(segments) if base <= one.last_offset < end and one.is_aborted]
            replace_file(files, path, format_transaction_index(one.entry for one in ended))
        elif hint is not None and int(hint["base"]) not in rebuilt:
            rebuilt.add(int(hint["base"]))
            segment = next(one for one in segments if one.base_offset == int(hint["base"]))
            segment.rebuild_indexes()  # both: they are made in one pass
            segment.forget()
        yield path


def _producers_below(segments: list[Segment], offset: int) -> ProducerState:
    """The producer state as of when the log ended at `offset`."""
    state = ProducerState()
    for segment in segments:
        if segment.base_offset < offset:
            batches = segment.scan(0, segment.base_offset, gaps_below=ANY_OFFSET)
            for _ in replay(state, segment, batches, 0, offset):
                pass  # a snapshot names only the transactions that are still open
            segment.forget()
    return state
