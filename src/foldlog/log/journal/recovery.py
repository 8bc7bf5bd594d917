"""After a crash: what the journal acknowledged and the segments may have lost is written into the segments again.

It runs when a writer opens the directory, before any partition is opened. Slots say what is synced in the segments;
entries above that are written at their place, in the order of their commits, and synced; then the slots say so, too,
and nothing of the journal is needed any more. A crash in the middle leaves the journal as it was, and doing it twice
changes nothing.

Not written: entries of topics that are gone, or were made anew under another id; entries of an older leader epoch than
the log has at that offset (their partition was cut there, after a sync failed, and went on); and a last commit that is
not whole, which was not acknowledged.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Final

from foldlog.errors import CorruptLog, FoldlogError
from foldlog.files.base import File, Files, storage_error
from foldlog.limits import READ_CHUNK_BYTES, SYNC_THREADS
from foldlog.log.checkpoint import Checkpoint, Slot, SlotState
from foldlog.log.epochs import Epochs
from foldlog.log.journal.format import (
    BLOCK_BYTES,
    JOURNAL_SUFFIX,
    Entry,
    Header,
    JournalCommit,
    JournalDamage,
    JournalUse,
    Placed,
    encode_header,
    find_breaks,
    read_header,
    read_use,
)
from foldlog.log.layout import free_cut_name, read_layout
from foldlog.log.recovery import check_join, scan_above, set_aside
from foldlog.log.segment import LOG_SUFFIX, Segment, create_segment, segment_stem
from foldlog.records.loops import walk

logger = logging.getLogger("foldlog.log")

JOURNAL_NAME: Final = "journal"
_FILE_NAME = re.compile(rf"(\d{{8}}){re.escape(JOURNAL_SUFFIX)}")
_SEVERAL: Final = 4  # partitions that are worth threads

Owner = tuple[bytes, int]
"""Topic id and partition."""


@dataclass(slots=True)
class JournalContents:
    """What the files of a journal hold. `entries`: of each partition, in the order of their commits, with the file."""

    directory: str
    uses: list[JournalUse] = field(default_factory=list)
    spare: list[tuple[str, int]] = field(default_factory=list)  # (path, size) of files whose commits nobody needs
    entries: dict[Owner, list[tuple[str, Placed]]] = field(default_factory=dict)
    damages: list[JournalDamage] = field(default_factory=list)
    next_use: int = 1
    next_number: int = 1
    last_number: int = 0  # of the last commit that counts
    newest: tuple[str, int] | None = None  # path and use of the file that was used last


def journal_files(files: Files, directory: str) -> list[tuple[str, int]]:
    """(path, size) of every file of a journal, by name. `directory` is the log's."""
    journal = f"{directory}/{JOURNAL_NAME}"
    if not files.exists(journal):
        return []
    entries = [entry for entry in files.entries(journal) if _FILE_NAME.fullmatch(entry.name)]
    return sorted((f"{journal}/{entry.name}", entry.size_bytes) for entry in entries)


def read_journal(files: Files, directory: str, directory_id: bytes) -> JournalContents:
    """Read what a recovery needs of a directory's journal; after a clean close that is the headers only."""
    contents = JournalContents(directory)
    uses: list[tuple[int, str, int]] = []
    headless: list[JournalUse] = []
    for path, size in journal_files(files, directory):
        file = files.open(path)
        try:
            header = read_header(file, path)
            if header is not None and header.directory_id == directory_id:
                uses.append((header.use, path, size))
                continue
            found = read_use(file, path) if header is None else None
        finally:
            file.close()
        if found is None:
            # Not used yet, or torn when it was taken into use for the first time; or of another directory.
            contents.spare.append((path, size))
        else:
            headless.append(found)
    uses.sort(reverse=True)
    needed = 0
    for use, path, size in uses:
        contents.newest = contents.newest or (path, use)
        # The newest first: it says from which use on commits are needed, and the first need never falls.
        found = _read(files, path) if use >= needed else None
        if found is not None:
            needed = max(needed, found.needed, *(commit.needed for commit in found.commits[-1:]))
        if found is None or use < needed:
            contents.spare.append((path, size))
        else:
            contents.uses.append(found)
    for found in headless:
        if found.use >= needed:
            contents.uses.append(found)
        else:
            contents.spare.append((found.path, found.size))
    _gather(contents)
    known = [use for use, _, _ in uses] + [found.use for found in headless]
    contents.next_use = max(known, default=0) + 1
    return contents


def _read(files: Files, path: str) -> JournalUse:
    file = files.open(path)
    try:
        found = read_use(file, path)
    finally:
        file.close()
    if found is None:
        raise CorruptLog(path, 0, "its header changed while it was read")
    return found


def _gather(contents: JournalContents) -> None:
    """Every entry that counts, by partition, in the order of the commits."""
    uses = contents.uses
    uses.sort(key=lambda found: found.use)
    for one, following in pairwise(uses):
        if following.use == one.use + 1 and following.commits:
            # The next file follows on the last durable one: what is behind that here failed, and was not acknowledged.
            one.commits = [commit for commit in one.commits if commit.number <= following.commits[0].previous]
    for found in uses:
        contents.damages += found.damages
    contents.damages += find_breaks(uses)
    commits = [(found, commit) for found in uses for commit in found.commits]
    contents.next_number = max((commit.number for _, commit in commits), default=0) + 1
    for at, (found, commit) in enumerate(commits):
        if commit.is_whole or at + 1 < len(commits):
            _take(contents, found, commit)
            contents.last_number = commit.number


def _take(contents: JournalContents, found: JournalUse, commit: JournalCommit) -> None:
    for placed in commit.entries:
        if placed.is_whole:
            owner = placed.entry.topic_id, placed.entry.partition
            contents.entries.setdefault(owner, []).append((found.path, placed))
        else:
            reason = f"commit {commit.number} was durable, and an entry of it is not whole"
            contents.damages.append(JournalDamage(found.path, placed.position, reason))


@dataclass(frozen=True, slots=True)
class Replayed:
    """`written`: how many partitions got entries. `refused`: those that could not take theirs, and why."""

    written: int
    refused: dict[Owner, FoldlogError]


Find = Callable[[bytes, int], tuple[str, Slot] | None]
"""Directory and slot of a partition, by topic id and number; None if there is no such partition any more."""


def replay(files: Files, contents: JournalContents, find: Find, sync_checkpoint: Callable[[], None]) -> Replayed:
    """Write the entries that the segments may lack, and let the slots say so. Durable on return.

    A partition that cannot take its entries is in `refused`, and must not be opened: recovery would cut what it lacks.
    """
    for damage in contents.damages:
        logger.error("%s: the journal is damaged at byte %d: %s", damage.path, damage.position, damage.reason)
    refused: dict[Owner, FoldlogError] = {}
    found = [(owner, find(*owner), entries) for owner, entries in contents.entries.items()]
    work = [(owner, *place, entries) for owner, place, entries in found if place is not None]

    def one(item: tuple[Owner, str, Slot, list[tuple[str, Placed]]]) -> bool:
        owner, directory, slot, entries = item
        try:
            return _replay_partition(files, directory, slot, entries)
        except FoldlogError as error:
            refused[owner] = error
        except OSError as error:
            refused[owner] = storage_error(f"{directory}: the journal could not be written into it", error)
        return False

    if len(work) < _SEVERAL:
        written = sum(map(one, work))
    else:
        with ThreadPoolExecutor(SYNC_THREADS) as pool:
            written = sum(pool.map(one, work))
    if written:
        sync_checkpoint()
        logger.info("%s: the journal was replayed into %d partitions", contents.directory, written)
    for (_, number), error in refused.items():
        logger.error("%s: partition %d cannot take what the journal has for it: %s", contents.directory, number, error)
    return Replayed(written, refused)


def refuse_missing(files: Files, directory: str, slot: Slot) -> None:
    """After `replay`: raise CorruptLog if the slot says that more was durable than segment and journal hold. The
    journal stays as it is then: half a commit may be all that is left of it."""
    state = slot.load()
    if state is None or state.poisoned or state.durable_offset <= state.synced_offset:
        return
    path = segment_stem(directory, state.active_base_offset) + LOG_SUFFIX
    size = read_layout(files.entries(directory)).logs.get(state.active_base_offset, 0) if files.exists(directory) else 0
    if size < state.durable_position:
        reason = f"records up to offset {state.durable_offset} were durable, and are neither here nor in the journal"
        raise CorruptLog(path, size, reason)


def mark_replayed(files: Files, contents: JournalContents, directory_id: bytes, checkpoint: Checkpoint) -> None:
    """Let the header of the file that was used last say that no commit is needed, and then the checkpoint. After
    `replay`, with none refused; does nothing after a clean close."""
    if contents.newest is not None and (contents.entries or checkpoint.needs_journal):
        path, use = contents.newest
        file = files.open(path, write=True)
        try:
            if not any(one.path == path and one.commits for one in contents.uses):
                # A cut in its first commit may have left half of a commit of an earlier use. The header tells the two
                # apart; torn while it is written, it would not, and the half would be taken for damage.
                file.write(BLOCK_BYTES, [bytes(BLOCK_BYTES)])
                file.sync()
            file.write(0, [encode_header(Header(directory_id, use, contents.next_use))])
            file.sync()
        except OSError as error:
            raise storage_error(f"{path} was replayed, and could not be told so; open the log again", error) from error
        finally:
            file.close()
    checkpoint.end_journal()


def keep_aside(files: Files, paths: Iterable[str]) -> list[str]:
    """Copy files of a journal: what could not be read of them is there once they are used again. Durable on return."""
    kept = []
    for path in sorted(set(paths)):
        beside = free_cut_name(files, path)
        source, target = files.open(path), files.open(beside, write=True, create=True)
        try:
            for at in range(0, source.size(), READ_CHUNK_BYTES):
                target.write(at, [source.read(at, READ_CHUNK_BYTES)])
            target.sync()
        finally:
            source.close()
            target.close()
        files.sync_directory(path.rpartition("/")[0])
        logger.warning("%s: kept in %s, because not all of it could be replayed", path, beside)
        kept.append(beside)
    return kept


def remove_journal(files: Files, directory: str) -> None:
    """Remove the files: after `replay`, with none refused, where the journal is turned off."""
    paths = journal_files(files, directory)
    for path, _ in paths:
        files.unlink(path)
    if paths:
        files.sync_directory(f"{directory}/{JOURNAL_NAME}")


def _replay_partition(files: Files, directory: str, slot: Slot, entries: Sequence[tuple[str, Placed]]) -> bool:
    """Whether entries were written: those above what the slot says is synced, and not of an older epoch."""
    known = slot.load()
    try:
        logs = read_layout(files.entries(directory)).logs
    except FileNotFoundError:
        raise CorruptLog(directory, 0, "the directory is missing") from None
    wanted = _wanted(files, directory, known, logs, entries)
    if not wanted:
        return False
    _check_joins(directory, logs, [placed.entry for _, placed in wanted])
    state = known or _state_before(wanted[0][1].entry)
    check_join(files, directory, state)
    _keep_others(files, directory, logs[state.active_base_offset], state)
    _write(files, directory, wanted)
    last = _last_of(wanted)
    for _, placed in wanted:
        logs[placed.entry.base_offset] = max(logs[placed.entry.base_offset], placed.entry.end)
    _check_whole(files, directory, logs, known or _unknown_state(wanted[0][1].entry), last)
    if known is not None:
        slot.store(_replayed_state(known, last, logs))
    return True


def write_unjoined(files: Files, directory: str, slot: Slot, entries: Sequence[tuple[str, Placed]]) -> bool:
    """Write the entries of a partition that `replay` refused, each at its place, whatever is missing before them: for a
    repair, which finds the holes. The caller has set aside what is overwritten. Durable on return, with the slot."""
    known = slot.load()
    logs = read_layout(files.entries(directory)).logs
    wanted = _wanted(files, directory, known, logs, entries)
    for base in {placed.entry.base_offset for _, placed in wanted} - logs.keys():
        create_segment(files, directory, base)
        logs[base] = 0
    if not wanted:
        return False
    files.sync_directory(directory)
    _write(files, directory, wanted)
    if known is not None:
        slot.store_firmly(_replayed_state(known, _last_of(wanted), logs))
        slot.sync()
    return True


def _wanted(
    files: Files,
    directory: str,
    known: SlotState | None,
    logs: dict[int, int],
    entries: Sequence[tuple[str, Placed]],
) -> list[tuple[str, Placed]]:
    """The entries that the segments may lack."""
    try:
        starts = Epochs.load(files, directory).starts
    except CorruptLog:
        starts = ()
    wanted = [(path, placed) for path, placed in entries if _is_wanted(placed.entry, known, starts)]
    if known is None:
        # A segment is synced before the next one gets its name, and may be compacted or removed from then on.
        rolled = max(logs, default=0)
        return [one for one in wanted if one[1].entry.next_offset > rolled]
    # The log start is durable before a segment is removed: such bytes were deleted, not lost.
    start = known.local_start_offset
    return [one for one in wanted if one[1].entry.base_offset in logs or one[1].entry.next_offset > start]


def _last_of(wanted: Sequence[tuple[str, Placed]]) -> Entry:
    return max((placed.entry for _, placed in wanted), key=lambda entry: entry.next_offset)


def _check_whole(files: Files, directory: str, logs: dict[int, int], state: SlotState, last: Entry) -> None:
    """Raise CorruptLog unless whole batches lead from what is synced to the end of the last entry."""
    segments = [
        Segment(files, directory, base, logs[base], writable=False)
        for base in sorted(logs)
        if base >= state.active_base_offset
    ]
    scan = scan_above(segments, state)
    for segment in segments:
        segment.forget()
    if scan.end_offset < last.next_offset:
        raise CorruptLog(
            segment_stem(directory, scan.end_base_offset) + LOG_SUFFIX,
            scan.end_position,
            f"the journal holds records up to offset {last.next_offset}, and what is here does not lead to them",
        )


def _replayed_state(known: SlotState, last: Entry, logs: Iterable[int]) -> SlotState:
    """The slot once everything up to the last entry is synced in the segments."""
    newer = [base for base in logs if known.active_base_offset < base <= last.base_offset]
    is_all = last.next_offset >= known.durable_offset
    return known._replace(
        high_watermark=max(known.high_watermark, last.next_offset),
        durable_offset=max(known.durable_offset, last.next_offset),
        durable_position=last.end if is_all else known.durable_position,
        synced_offset=last.next_offset,
        active_base_offset=last.base_offset,
        active_position=last.end,
        segment_count=known.segment_count + len(newer),
        clean=False,
    )


def _is_wanted(entry: Entry, known: SlotState | None, starts: Iterable[tuple[int, int]]) -> bool:
    """Whether the segments may lack it, and it is still what the log holds there."""
    # The slot: once it has a newer epoch, everything older was settled, and what is still above it was cut. The list of
    # epochs: the slot on disk may be a second old, and the list is durable before the first batch of an epoch.
    if any(epoch > entry.leader_epoch and start < entry.next_offset for epoch, start in starts):
        return False
    if known is None:
        return True
    if entry.leader_epoch < known.leader_epoch or entry.next_offset <= known.synced_offset:
        return False
    # After a failed sync the log is cut to what was durable then: later senders got an error.
    return not (known.poisoned and entry.next_offset > known.durable_offset)


def _unknown_state(first: Entry) -> SlotState:
    """Without a slot, the segment of the first entry is verified from its beginning."""
    base = first.base_offset
    return SlotState(log_start_offset=base, synced_offset=base, active_base_offset=base, gaps_below=base)


def _keep_others(files: Files, directory: str, size: int, state: SlotState) -> None:
    """Set aside a whole batch of another offset where entries are about to be written: a crash leaves there half a
    batch, or one of this log, but a file that was put there from elsewhere may begin like this one."""
    active = Segment(files, directory, state.active_base_offset, size, writable=False)
    try:
        following = walk(active.log().read(state.active_position, READ_CHUNK_BYTES)).headers
        if following and following[0].base_offset != state.synced_offset:
            set_aside(files, active, state.active_position, f"offset {state.synced_offset} was expected")
            files.sync_directory(directory)
    finally:
        active.forget()


def _state_before(first: Entry) -> SlotState:
    """Without a slot, what is below the first entry was synced when it was written."""
    return SlotState(
        synced_offset=first.first_offset, active_base_offset=first.base_offset, active_position=first.position
    )


def _check_joins(directory: str, logs: dict[int, int], entries: Sequence[Entry]) -> None:
    """Refuse, before a byte is written, entries that would leave a hole before them."""
    covered = dict(logs)
    for entry in entries:
        path = segment_stem(directory, entry.base_offset) + LOG_SUFFIX
        if entry.base_offset not in covered:
            raise CorruptLog(
                path, entry.position, f"the journal has bytes of offset {entry.first_offset}, and no such file is there"
            )
        if entry.position > covered[entry.base_offset]:
            missing = entry.position - covered[entry.base_offset]
            raise CorruptLog(
                path,
                covered[entry.base_offset],
                f"{missing} bytes are missing between it and what the journal has from offset {entry.first_offset} on",
            )
        covered[entry.base_offset] = max(covered[entry.base_offset], entry.end)


def _write(files: Files, directory: str, wanted: Iterable[tuple[str, Placed]]) -> None:
    """Write the entries at their places, and sync the segments."""
    journals: dict[str, File] = {}
    logs: dict[int, File] = {}
    try:
        for path, placed in wanted:
            entry = placed.entry
            if path not in journals:
                journals[path] = files.open(path)
            if entry.base_offset not in logs:
                logs[entry.base_offset] = files.open(
                    segment_stem(directory, entry.base_offset) + LOG_SUFFIX, write=True
                )
            logs[entry.base_offset].write(entry.position, [journals[path].read(placed.position, entry.length)])
        for log in logs.values():
            log.sync()
    finally:
        for file in (*journals.values(), *logs.values()):
            file.close()
