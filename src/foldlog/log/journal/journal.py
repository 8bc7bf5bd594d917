"""One journal for all partitions of a directory: small appends are durable once their bytes are in it.

A partition's file grows, so each of its syncs has the file system commit metadata, and a sync of N partitions is N
syncs. A journal file is written over blocks that were written before, and one sync serves everything that all
partitions were given since the last: see `journal/format.py` for the bytes, and `journal/recovery.py` for what a crash
leaves.

What holds at any moment, and what recovery relies on:

1. A commit is written when the one before it is durable, or has failed and its file is retired. So at most one commit
   is not acknowledged, and it is the newest of its file.
2. A file is written over only after every partition with commits in it was synced, and the slots that say so were
   synced, too (`_release`). Its header has the new use number durably before the first commit is written (`_prepare`):
   half a commit over an old one is neither.
3. A partition's entries follow on each other without a gap, from where its file is synced.

To follow a commit: `wait` or `ask`, `_begin` (what goes into it), the sync, `_end` (who is told).
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from foldlog import limits
from foldlog.errors import FoldlogError, LogClosed, StorageError
from foldlog.files.base import (
    DirectFile,
    DurableWrite,
    File,
    Files,
    aligned_memory,
    storage_error,
    sync_fault,
)
from foldlog.log.checkpoint import Checkpoint
from foldlog.log.durability import Durability, Part, Syncer, SyncLock, Turns
from foldlog.log.journal.format import (
    BLOCK_BYTES,
    JOURNAL_SUFFIX,
    Entry,
    Header,
    commit_bytes,
    encode_commit,
    encode_header,
)
from foldlog.log.journal.recovery import JOURNAL_NAME, JournalContents

logger = logging.getLogger("foldlog.log")

FILES_MIN: Final = 2
_SEVERAL: Final = 4
_GROWTH: Final = 4
_OTHER_SYNCS: Final = 2  # of a release, beside those of the partitions: of the checkpoint, and of the header
_COMMITS_A_SYNC: Final = 8
"""How many commits a file has to hold for each sync that its release takes; else the next ones are larger."""
_DRAFT_SUFFIX: Final = ".tmp"


@dataclass(frozen=True, slots=True)
class JournalSettings:
    """When a directory gets a journal, and how large its files are. Tests use small ones."""

    begin_syncs: int = limits.JOURNAL_BEGIN_SYNCS
    alone_asks: int = limits.JOURNAL_ALONE_ASKS
    alone_bytes: int = limits.JOURNAL_ALONE_BYTES
    first_bytes: int = limits.JOURNAL_FIRST_BYTES
    file_bytes: int = limits.JOURNAL_FILE_BYTES
    files_max: int = limits.JOURNAL_FILES_MAX
    entry_bytes_max: int = limits.JOURNAL_ENTRY_BYTES_MAX
    commit_bytes_max: int = limits.JOURNAL_COMMIT_BYTES_MAX


@dataclass(slots=True, eq=False)
class JournalFile:
    """A file of the ring. `use`: the present one, or the next if it is free. `members`: the partitions with commits in
    it, and up to which offset."""

    path: str
    size: int
    file: File
    use: int = 0
    position: int = BLOCK_BYTES
    commits: int = 0
    members: dict[Durability, int] = field(default_factory=dict)
    is_retired: bool = False  # a sync of it failed: it is never written again
    direct: DirectFile | None = field(init=False)

    def __post_init__(self) -> None:
        self.direct = self.file if isinstance(self.file, DirectFile) else None


class PendingCommit(NamedTuple):
    """A commit that is encoded, and not durable yet."""

    file: JournalFile
    number: int
    parts: list[Part]
    position: int
    memory: memoryview


@dataclass(slots=True)
class JournalCounts:
    """What the journal has done since the directory was opened. For metrics."""

    commits: int = 0
    bytes: int = 0
    files: int = 0


class Journal:
    """The journal of an open directory. Any thread.

    Threads that may block take turns in `wait`: one commits for all of them. Who must not block asks (`ask`), and the
    syncer has it synced, as it has partitions synced. `lock` is held from the beginning of a commit to its end; under
    it are taken the state locks of partitions, never their append or sync locks.
    """

    def __init__(
        self,
        files: Files,
        directory: str,
        directory_id: bytes,
        checkpoint: Checkpoint,
        syncer: Syncer,
        contents: JournalContents,
        settings: JournalSettings = JournalSettings(),
        *,
        are_refused: bool = False,
    ) -> None:
        """`contents`: what was found and replayed at the open; with `are_refused`, not all of it."""
        self._files = files
        self._directory = f"{directory}/{JOURNAL_NAME}"
        self._directory_id = directory_id
        self._checkpoint = checkpoint
        self._syncer = syncer
        self._settings = settings
        self.counts = JournalCounts()
        self.lock = SyncLock(syncer)
        self.turns = Turns()
        self.on_work: Callable[[], None] = lambda: None
        """Called when `work` has something to do, on any thread."""
        self._asked: deque[Durability] = deque()  # may name a partition twice; appended to by any thread
        self._larger: dict[Durability, int] = {}  # of those, the larger ones, and how large they are
        self._to_answer: deque[Durability] = deque()  # after a commit on a lent thread: slow callbacks, or an index
        self._under_way: PendingCommit | None = None  # on a lent thread
        self._memory = memoryview(b"")
        # Guards the ring. A leaf: taken under `lock`, and by the thread that works in the background.
        self._ring_lock = threading.Lock()
        self._active: JournalFile | None = None
        self._free: list[JournalFile] = []  # in the order in which they will be used
        self._unprepared: list[JournalFile] = []  # nobody needs what is in them, and their header is of the last use
        self._sealed: list[JournalFile] = []
        self._kept = [(use.path, use.use) for use in contents.uses] if are_refused else []
        self._next_use, self._next_number, self._last_good = (
            contents.next_use,
            contents.next_number,
            contents.last_number,
        )
        self._small_syncs = 0
        self._last_to_ask: Durability | None = None
        self._asks_in_a_row = 0
        self._is_wanted = False
        self._size = settings.first_bytes  # of the next file that is made
        self._is_short = False
        self._is_given_up = False
        self._closing = threading.Event()
        self.is_ready = False
        """Whether the next commit finds room. Read without a lock: who sees it wrongly syncs a partition, or asks."""
        self._adopt(contents)

    def _adopt(self, contents: JournalContents) -> None:
        """The files that are there can be used: their blocks were written before. Not before there is something to
        write: who only opens a log, and closes it, touches none."""
        kept = {path for path, _ in self._kept}
        found = [*contents.spare, *((use.path, use.size) for use in contents.uses)]
        for path, size in sorted(found):
            if path not in kept and size >= 2 * BLOCK_BYTES:
                self._unprepared.append(JournalFile(path, size, self._files.open(path, write=True)))
        self.counts.files = len(self._unprepared) + len(self._kept)
        if self._unprepared:
            self._small_syncs = self._settings.begin_syncs

    # Who waits

    def takes(self, member: Durability, pending_bytes: int) -> bool:
        """Whether so many bytes of a partition, which asks now, may go into the next commit."""
        most = self._settings.entry_bytes_max
        # Without a lock: who is counted wrongly becomes durable the other way.
        if self._last_to_ask is not member:
            self._last_to_ask, self._asks_in_a_row = member, 0
        self._asks_in_a_row += 1
        if not self.is_ready or pending_bytes >= most:
            return False
        # A thread of this process that is alone syncs its file, however little it wrote: in one call.
        least = self._settings.alone_bytes if self._syncer.has_lent_threads else 0
        if pending_bytes >= least and self._asks_in_a_row > self._settings.alone_asks:
            return False
        if pending_bytes < limits.JOURNAL_SMALL_ENTRY_BYTES:
            return True
        # What many partitions were given is bulk, too: written twice, it would take the disk's bandwidth.
        others = sum([size for one, size in self._larger.copy().items() if one is not member])
        return not others or others + pending_bytes <= most

    def wait(self, member: Durability, next_offset: int, reached: Callable[[], int]) -> None:
        """Take one turn: returns when everything below `next_offset` is reached, or after a commit of this thread."""
        self._note(member)
        if not self.turns.take(next_offset, reached):
            return
        told: list[Durability] = []
        try:
            self.turns.gather()
            if self.lock.take_unless(lambda: reached() >= next_offset):
                try:
                    if reached() < next_offset:
                        told = self._commit()
                finally:
                    self.lock.release()
        finally:
            self.turns.pass_on()
        for one in told:
            one.tell()

    def ask(self, member: Durability) -> None:
        """Commit what the partition was given, soon and on another thread."""
        self._note(member)
        self._syncer.request(self)

    def _note(self, member: Durability) -> None:
        self._asked.append(member)
        pending_bytes = member.pending_bytes
        if pending_bytes >= limits.JOURNAL_SMALL_ENTRY_BYTES:
            self._larger[member] = pending_bytes

    # Syncable: as a partition is synced, by the pool or on a lent thread

    def sync(self) -> None:
        with self.lock:
            told = self._commit()
        for one in told:
            one.tell()
        while self._to_answer:
            try:
                self._to_answer.popleft().tell()
            except IndexError:
                break
        if self._asked:
            self._syncer.request(self)

    def begin_sync(self) -> DurableWrite | None:
        if self._to_answer or not self.lock.take_at_once():
            return None
        commit = None
        try:
            # Of all its files or of none: a commit that is begun has to be written.
            first = self._active or next(iter(self._free), None)
            if first is not None and first.direct is not None and first.file.sync_descriptor is not None:
                commit = self._begin()
        finally:
            if commit is None:
                self.lock.release()
        self._under_way = commit
        if commit is None or commit.file.direct is None:
            return None
        return commit.file.direct.durable_write(commit.position, commit.memory)

    def end_sync(self, error_number: int, is_nameless: bool, seconds: float) -> None:
        commit, self._under_way = self._under_way, None
        if commit is None:
            raise RuntimeError("no commit is under way")
        try:
            fault = sync_fault(commit.file.path, error_number, is_nameless)
            if fault is not None:
                self._fail(commit, fault)
            else:
                self._end(commit, seconds)
        finally:
            self.lock.release()
        # As in `Durability.end_sync`: this may be an event loop's thread.
        wants_thread = [part.member for part in commit.parts if part.member.tell_quickly()]
        self.turns.wake()
        if wants_thread or self._asked:
            self._to_answer.extend(wants_thread)
            self._syncer.request(self)

    # A commit

    def _commit(self) -> list[Durability]:
        """Commit what was asked for, and return the partitions to tell. The caller holds the lock."""
        commit = self._begin()
        return [] if commit is None else self._sync_and_end(commit)

    def _sync_and_end(self, commit: PendingCommit) -> list[Durability]:
        began = time.perf_counter()
        file, direct = commit.file.file, commit.file.direct
        try:
            if direct is not None:
                direct.write_durably(commit.position, commit.memory)
            else:
                file.write(commit.position, [commit.memory])
                file.sync()
        except (OSError, StorageError) as error:
            self._fail(commit, error)
        else:
            self._end(commit, time.perf_counter() - began)
        return [part.member for part in commit.parts]

    def _begin(self) -> PendingCommit | None:
        """Encode the next commit: of each partition that was asked for, all that it was given and is not durable."""
        parts = self._take_parts()
        if not parts:
            return None
        size = commit_bytes(len(parts), sum([len(part.data) for part in parts]))
        file = self._room_for(size)
        if file is None:
            for part in parts:
                self._syncer.request(part.member)
            return None
        number, self._next_number = self._next_number, self._next_number + 1
        # One commit at a time is under way, so its memory is used again for the next.
        if len(self._memory) < size:
            self._memory = aligned_memory(max(size, 2 * len(self._memory)))
        memory = self._memory[:size]
        encode_commit(
            memory,
            file.use,
            self._first_needed(),
            number,
            self._last_good,
            [(_entry_of(part), part.data) for part in parts],
        )
        commit = PendingCommit(file, number, parts, file.position, memory)
        # Before it is written: even if that fails, nothing may be written over what it may have put there.
        file.position += size
        file.commits += 1
        return commit

    def _take_parts(self) -> list[Part]:
        self._larger = {}
        members: dict[Durability, None] = {}
        while self._asked:
            try:
                members[self._asked.popleft()] = None
            except IndexError:
                break
        parts: list[Part] = []
        total = 0
        for member in members:
            if total >= self._settings.commit_bytes_max:
                self._asked.append(member)
                continue
            part = member.to_journal()
            if part is not None:
                parts.append(part)
                total += len(part.data)
        return parts

    def _end(self, commit: PendingCommit, seconds: float) -> None:
        """The commit is durable."""
        self._last_good = commit.number
        # Checked after the sync, as for a partition: another writer may have the directory by now.
        lost = self._checkpoint.lost()
        records = size = 0
        for part in commit.parts:
            commit.file.members[part.member] = part.tail.end_offset
            records += part.tail.end_offset - part.first_offset
            size += len(part.data)
            if lost is not None:
                part.member.note_lost_lock(lost)
            else:
                part.member.journaled(part.tail)
        self.counts.commits += 1
        self.counts.bytes += size
        if self._syncer.on_synced is not None:
            self._syncer.on_synced(seconds, size, records)

    def _fail(self, commit: PendingCommit, error: Exception) -> None:
        """Nobody is told that it is durable, and the file is not written again: what it holds stays until its
        partitions are synced."""
        for part in commit.parts:
            part.member.poison_with(error)
        with self._ring_lock:
            file = commit.file
            file.is_retired = True
            if self._active is file:
                self._active = None
                self._sealed.append(file)
            self.is_ready = bool(self._free)
        self.on_work()

    # The ring

    def _room_for(self, size: int) -> JournalFile | None:
        """The file for a commit of that size; the next one if the present one is full, None if none is free."""
        active = self._active
        if active is not None and active.position + size <= active.size:
            return active
        with self._ring_lock:
            if active is not None:
                self._sealed.append(active)
                self._active = None
            if self._free and BLOCK_BYTES + size <= self._free[0].size:
                self._active = self._free.pop(0)
            else:
                self._is_short = True
                self._grow()
            self.is_ready = self._active is not None
        self.on_work()
        return self._active

    def _grow(self) -> None:
        """The files are too small for what is written to them. Under the ring's lock."""
        if any(file.size >= self._size for file in self._ring()):  # else larger ones are on their way
            self._size = min(self._settings.file_bytes, _GROWTH * self._size)

    def _first_needed(self) -> int:
        """The first use whose commits a recovery has to read: also those that are still to come."""
        with self._ring_lock:
            if self._active is not None and not self._sealed and not self._kept:
                return self._active.use  # as mostly: those that are free come after it
            uses = [file.use for file in (*self._sealed, *self._free)] + [use for _, use in self._kept]
            if self._active is not None:
                uses.append(self._active.use)
            return min(uses, default=self._next_use)

    def _ring(self) -> list[JournalFile]:
        """Every file that is or will be written, under its lock."""
        files = [*self._free, *self._unprepared, *self._sealed, *([self._active] if self._active is not None else [])]
        return [file for file in files if not file.is_retired]

    def note_sync(self, size_bytes: int) -> None:
        """A partition was synced without the journal. After many small ones the directory gets one."""
        if not self._is_wanted and size_bytes < self._settings.entry_bytes_max:
            self._small_syncs += 1
            if self._small_syncs >= self._settings.begin_syncs:
                self._is_wanted = True
                self.on_work()

    def work(self) -> None:
        """Release the files that are full, and make those that are missing. One thread at a time, which may wait."""
        while self._sealed and not self._closing.is_set():
            self._release(self._sealed[0])
        while self._unprepared and not self._closing.is_set():
            self._prepare(self._unprepared[0])
        self._make_files()

    def _release(self, file: JournalFile) -> None:
        """Sync the partitions with commits in the file, and the slots that say so; then it may be used again."""
        behind = [member for member, end_offset in file.members.items() if member.synced_offset < end_offset]
        if len(behind) < _SEVERAL:
            for member in behind:
                member.sync()
        else:
            # Together: the file system then commits the metadata of several files at once.
            with ThreadPoolExecutor(limits.SYNC_THREADS, "foldlog-release") as pool:
                list(pool.map(Durability.sync, behind))
        if any(member.synced_offset < end_offset for member, end_offset in file.members.items()):
            # A sync failed: these bytes are nowhere else. The next open writes them into their segments.
            with self._ring_lock:
                self._sealed.remove(file)
                self._kept.append((file.path, file.use))
            return
        self._checkpoint.sync()
        syncs = len(file.members) + _OTHER_SYNCS
        file.members.clear()
        with self._ring_lock:
            if syncs * _COMMITS_A_SYNC > file.commits:
                self._grow()
            self._sealed.remove(file)
            larger = [one for one in self._ring() if one.size > file.size]
            is_dropped = file.is_retired or len(larger) >= FILES_MIN
            if not is_dropped:
                self._unprepared.append(file)
        if is_dropped:
            self._drop(file)

    def _prepare(self, file: JournalFile) -> None:
        """Give the file its next use number, durably: commits of the last one do not count from then on."""
        use = self._next_use
        try:
            self._checkpoint.begin_journal()
            file.file.write(0, [encode_header(Header(self._directory_id, use, self._first_needed()))])
            file.file.sync()
        except (OSError, StorageError) as error:
            logger.warning("%s: the journal goes on without it (%s)", file.path, error)
            file.is_retired = True
        with self._ring_lock:
            self._unprepared.remove(file)
            self._next_use = use + 1
            if not file.is_retired:
                file.use, file.position, file.commits = use, BLOCK_BYTES, 0
                self._free.append(file)
                self.is_ready = True
        if file.is_retired:
            self._drop(file)

    def _drop(self, file: JournalFile) -> None:
        file.file.close()
        self.counts.files -= 1
        try:
            self._files.unlink(file.path)
            self._files.sync_directory(self._directory)
        except OSError as error:
            logger.warning("%s is not needed any more, and could not be removed (%s)", file.path, error)

    def _make_files(self) -> None:
        """As many of the present size as there have to be at least; one more where commits found none free."""
        while self._is_wanted and not self._is_given_up and not self._closing.is_set():
            with self._ring_lock:
                usable = self._ring()
                size = self._size
                enough = sum(1 for file in usable if file.size >= size) >= FILES_MIN
                if (enough and not self._is_short) or len(usable) + len(self._kept) >= self._settings.files_max:
                    self._is_short = False
                    return
                self._is_short = False
            try:
                made = self._make_file(size)
            except LogClosed:
                return
            except (OSError, FoldlogError) as error:
                self._is_given_up = True
                logger.warning(
                    "%s: no journal file of %d bytes could be made (%s); appends sync their partitions instead",
                    self._directory,
                    size,
                    error,
                )
                return
            with self._ring_lock:
                self._unprepared.append(made)
                self.counts.files += 1
            self._prepare(made)

    def _make_file(self, size: int) -> JournalFile:
        """A file of written zeroes, durable with its name. Allocated is not enough: the first write to a block that was
        only allocated changes metadata, which the sync would have to wait for."""
        self._files.make_directory(self._directory)
        self._files.sync_directory(self._directory.rpartition("/")[0] or ".")
        taken = {entry.name for entry in self._files.entries(self._directory)}
        names = (f"{number:08d}{JOURNAL_SUFFIX}" for number in range(1, len(taken) + 2))
        path = f"{self._directory}/{next(name for name in names if name not in taken)}"
        draft = path + _DRAFT_SUFFIX
        file = self._files.open(draft, write=True, create=True)
        try:
            file.truncate(0)
            for position in range(0, size, limits.JOURNAL_ZERO_BYTES):
                began = time.perf_counter()
                file.write(position, [bytes(min(limits.JOURNAL_ZERO_BYTES, size - position))])
                file.sync()
                # Most of the disk's time is for those who wait for syncs.
                if self._closing.wait((time.perf_counter() - began) * limits.JOURNAL_ZERO_PAUSES):
                    raise LogClosed(f"{draft} is not needed any more")
            self._files.rename(draft, path)
            self._files.sync_directory(self._directory)
        except BaseException:
            file.close()
            self._remove_draft(draft)
            raise
        return JournalFile(path, size, file)

    def _remove_draft(self, draft: str) -> None:
        try:
            self._files.unlink(draft)
        except OSError as error:
            logger.warning("%s could not be removed (%s)", draft, error)

    def interrupt(self) -> None:
        """Have `work` end soon: making a file takes a while."""
        self._closing.set()

    def close(self) -> None:
        """After every partition was closed. Syncs the checkpoint, and says that nothing is needed, unless it is."""
        self._closing.set()
        self.is_ready = False
        with self._ring_lock:
            files = self._ring()
            newest = max((file for file in files if file.use), key=lambda file: file.use, default=None)
            is_needed = bool(self._kept) or any(
                member.synced_offset < end_offset
                for file in (*files, *self._sealed)
                for member, end_offset in file.members.items()
            )
        try:
            if not is_needed:
                if newest is not None:
                    self._checkpoint.sync()
                    newest.file.write(0, [encode_header(Header(self._directory_id, newest.use, self._next_use))])
                    newest.file.sync()
                self._checkpoint.end_journal()
        except OSError as error:
            raise storage_error(f"{self._directory}: the next open has to replay it", error) from error
        finally:
            for file in files:
                file.file.close()


def _entry_of(part: Part) -> Entry:
    member, tail = part.member, part.tail
    return Entry(
        member.topic_id,
        member.partition,
        member.leader_epoch,
        tail.segment.base_offset,
        part.first_position,
        part.first_offset,
        tail.end_offset,
        len(part.data),
        0,
    )
