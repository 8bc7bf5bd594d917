"""A run of batches in one file, with its two indexes: by offset and by time.

An index is a hint. It has no checksum and is not synced; what it points to is verified, and it is rebuilt from the log
when it is missing or wrong. So a crash may lose any part of it, which costs a scan.
"""

from __future__ import annotations

import logging
import struct
import threading
from array import array
from bisect import bisect_left, bisect_right
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from operator import lt
from typing import TYPE_CHECKING, ClassVar, Protocol, Self

from foldlog.errors import CorruptLog, StorageError
from foldlog.files.base import NO_DESCRIPTORS, File, Files, Into, in_forked_children, read_file, read_view, would_block
from foldlog.limits import OPEN_FILES_MAX, READ_CHUNK_BYTES
from foldlog.records.batch import LENGTH_AT, LENGTH_PREFIX_BYTES, MAGIC
from foldlog.records.loops import BatchHeader, walk

if TYPE_CHECKING:
    from foldlog.records.loops import ProducedBatches

logger = logging.getLogger("foldlog.log")

LOG_SUFFIX = ".log"
INDEX_SUFFIX = ".index"
TIME_INDEX_SUFFIX = ".timeindex"
SNAPSHOT_SUFFIX = ".snapshot"
TRANSACTION_INDEX_SUFFIX = ".txnindex"

ANY_OFFSET = (1 << 63) - 1
NO_TIMESTAMP = -1
_FIND_BYTES = 1 << 12
_RELATIVE_MAX = (1 << 32) - 1  # the largest number in an index entry
_HEAD = struct.Struct(">qi4xb6xi")  # base offset, length, (epoch), magic, (CRC, attributes), last offset delta
_Hint = tuple[int, int]
_FROM_THE_START: _Hint = (0, -1)
_RECENT_MORE = 7  # a reader at the end need not walk there from an index entry, which was half the cost of a small read
_NO_INDEX_BYTES = 1 << 16  # a look-up that walked further than this had no useful index


class SparseIndex:
    """Entries of two numbers, both strictly growing. Kept whole in memory: 2 MB for a segment of 1 GiB.

    Not checksummed and not synced: a hint. A look-up verifies the batch that an entry points to, and has the index
    rebuilt when in doubt. Appended to by the partition's one appender, read by any thread.
    """

    ENTRY: ClassVar[struct.Struct]
    COLUMNS: ClassVar[tuple[str, str]]
    __slots__ = ("_first", "_second", "_written")

    def __init__(self) -> None:
        # Columns, not tuples: a binary search over an array costs a tenth of one that unpacks entries.
        self._first: array[int] = array(self.COLUMNS[0])
        self._second: array[int] = array(self.COLUMNS[1])
        self._written = 0

    @classmethod
    def parse(cls, data: bytes) -> Self:
        """The longest prefix of `data` whose entries grow. Kafka preallocates 10 MB of zeroes."""
        index = cls()
        used_bytes = min(len(data), len(data.rstrip(b"\0")) + cls.ENTRY.size - 1)  # an entry may end with zeroes
        entries = list(cls.ENTRY.iter_unpack(data[: used_bytes // cls.ENTRY.size * cls.ENTRY.size]))
        index._first.extend([first for first, _ in entries])
        index._second.extend([second for _, second in entries])
        index._keep(min(_growing(index._first), _growing(index._second)))
        index._written = len(index)
        return index

    def _add(self, first: int, second: int) -> None:
        # The second column first: a concurrent reader takes the length of the first.
        self._second.append(second)
        self._first.append(first)

    def _keep(self, count: int) -> None:
        del self._first[count:]
        del self._second[count:]
        self._written = min(self._written, count)

    def __len__(self) -> int:
        return len(self._first)

    def __getitem__(self, at: int) -> tuple[int, int]:
        return self._first[at], self._second[at]

    def last(self) -> tuple[int, int] | None:
        """The newest entry, or None."""
        return self[len(self) - 1] if self._first else None

    def unwritten(self) -> tuple[int, bytes]:
        """The position in the file for entries that are not written yet, and their bytes; call `wrote` afterwards."""
        fresh = zip(self._first[self._written :], self._second[self._written :], strict=False)
        return self._written * self.ENTRY.size, b"".join(self.ENTRY.pack(*entry) for entry in fresh)

    def wrote(self, count: int) -> None:
        """Note that `count` bytes of what `unwritten` returned are in the file."""
        self._written += count // self.ENTRY.size


def _growing(column: array[int]) -> int:
    """How many values from the start are each larger than the one before, with none below 0."""
    if column and column[0] < 0:
        return 0
    if all(map(lt, column, column[1:])):
        return len(column)
    return next(at for at in range(1, len(column)) if column[at] <= column[at - 1])


class OffsetIndex(SparseIndex):
    """Pairs of (last offset of a batch, relative to the segment's base; that batch's position), big-endian.

    Kafka's .index format, 8 bytes an entry. One batch per `index.interval.bytes` or so; reads walk to the others.
    """

    ENTRY = struct.Struct(">II")
    COLUMNS = ("I", "I")
    __slots__ = ()

    def append(self, relative_offset: int, position: int) -> None:
        """Add an entry behind the last."""
        self._add(relative_offset, position)

    def floor(self, relative_offset: int) -> tuple[int, int] | None:
        """The last entry at or below `relative_offset`: the wanted batch is there or soon after."""
        at = bisect_right(self._first, relative_offset)
        return self[at - 1] if at else None

    def keep_below(self, position: int) -> None:
        """Drop the entries that lead to `position` or beyond."""
        self._keep(bisect_left(self._second, position))


class TimeIndex(SparseIndex):
    """Pairs of (largest timestamp so far; last offset of the batch that has it, relative to the base), big-endian.

    Kafka's .timeindex format, 12 bytes an entry. Timestamps grow from entry to entry, whatever the clocks do.
    """

    ENTRY = struct.Struct(">qI")
    COLUMNS = ("q", "I")
    __slots__ = ()

    def append(self, timestamp_ms: int, relative_offset: int) -> None:
        """Add an entry, unless it is not later than the last."""
        last = self.last()
        if last is None or (timestamp_ms > last[0] and relative_offset > last[1]):
            self._add(timestamp_ms, relative_offset)

    def before(self, timestamp_ms: int) -> tuple[int, int] | None:
        """The last entry earlier than `timestamp_ms`: no record up to its offset is that late."""
        at = bisect_left(self._first, timestamp_ms)
        return self[at - 1] if at else None

    def below(self, relative_offset: int) -> tuple[int, int] | None:
        """The last entry of a batch below `relative_offset`."""
        at = bisect_left(self._second, relative_offset)
        return self[at - 1] if at else None


class HoldsFile(Protocol):
    """Something that opens its file on use and can release it."""

    def release_file(self) -> None: ...


class OpenFiles:
    """The most recently used holders of open files, at most `limit`. Any thread. A reader keeps its own reference to
    the file during a read, so releasing a file never breaks a read."""

    def __init__(self, limit: int = OPEN_FILES_MAX) -> None:
        self._limit = limit
        # A leaf: `release_file` takes no lock. `forget` waits for it, so that a file that is held from then on (`hold`)
        # is not released by a thread that had already chosen it.
        self._lock = threading.Lock()
        self._holders: OrderedDict[HoldsFile, None] = OrderedDict()

    def open(self, files: Files, path: str, *, write: bool) -> File:
        """Open a file. If the process is out of descriptors, half of the files held here are released first."""
        try:
            return files.open(path, write=write)
        except OSError as error:
            if error.errno not in NO_DESCRIPTORS or not self._release_half():
                raise
        return files.open(path, write=write)

    def _release_half(self) -> bool:
        with self._lock:
            count = (len(self._holders) + 1) // 2
            for _ in range(count):
                oldest, _ = self._holders.popitem(last=False)
                oldest.release_file()
        return count > 0

    def used(self, holder: HoldsFile) -> None:
        """Note that `holder` has an open file and was just used; may release the oldest."""
        with self._lock:
            self._holders[holder] = None
            self._holders.move_to_end(holder)
            if len(self._holders) > self._limit:
                oldest, _ = self._holders.popitem(last=False)
                oldest.release_file()

    def forget(self, holder: HoldsFile) -> None:
        with self._lock:
            self._holders.pop(holder, None)

    def after_fork(self) -> None:
        """Replace the lock in a forked child: a thread that held it does not exist there."""
        self._lock = threading.Lock()


OPEN_FILES = OpenFiles()
"""One per process, as the limit on descriptors is."""

in_forked_children(OPEN_FILES.after_fork)


@dataclass(frozen=True, slots=True)
class FoundBatches:
    """Verified batches of a segment: `headers` have positions in `data`, which begins at `position` of the file."""

    headers: list[BatchHeader]
    data: memoryview
    position: int
    ended_at: int  # the offset after the last batch that was read


class _IndexWrong(Exception):
    """An index entry does not point to the batch that it names."""


def segment_stem(directory: str, base_offset: int) -> str:
    return f"{directory}/{base_offset:020d}"


def create_segment(files: Files, directory: str, base_offset: int) -> None:
    """Create an empty segment with its indexes; the names are durable once the directory is synced."""
    for suffix in (LOG_SUFFIX, INDEX_SUFFIX, TIME_INDEX_SUFFIX):
        file = files.open(segment_stem(directory, base_offset) + suffix, write=True, create=True)
        if file.size():
            file.truncate(0)
            file.sync()
        file.close()


def _next_offset(header: BatchHeader) -> int:
    return header.next_offset


def _exact_hint(found: FoundBatches, offset: int, max_bytes: int, segment_bytes: int) -> _Hint | None:
    """Where the batch that holds `offset` stands, if those before it took the room of what may follow it: an index
    entry may be that far away."""
    read_bytes = len(found.data)
    if not found.headers or found.position + read_bytes >= segment_bytes:
        return None
    first = found.headers[bisect_right(found.headers, offset, key=_next_offset)]
    if not first.position or read_bytes - first.position >= max_bytes:
        return None
    return found.position + first.position, first.last_offset


def _check_hint(headers: list[BatchHeader], last_offset: int) -> None:
    """Raise _IndexWrong if there is no batch where an entry points, or not one ending with `last_offset` (-1: any)."""
    if not headers or (last_offset >= 0 and headers[0].last_offset != last_offset):
        raise _IndexWrong


class Segment:
    """`<base offset>.log`: batches one after the other, with nothing between or around them.

    Only the partition's appender writes; any thread reads. File and indexes are opened on use and released when many
    others are used, unless `held`. Changes to an index need its lock. `writable` is false in a process that only reads:
    it repairs a broken index in memory only.
    """

    __slots__ = (
        "_bytes_since_entry",
        "_files",
        "_index_lock",
        "_largest",
        "_log",
        "_offset_index",
        "_recent",
        "_seen_end",
        "_time_index",
        "base_offset",
        "held",
        "index_interval_bytes",
        "size",
        "stem",
        "unwritten_entries",
        "writable",
    )

    def __init__(
        self,
        files: Files,
        directory: str,
        base_offset: int,
        size: int,
        *,
        writable: bool,
        index_interval_bytes: int = 4096,
    ) -> None:
        self._files = files
        self.stem = segment_stem(directory, base_offset)
        self.base_offset = base_offset
        self.size = size
        self.writable = writable
        self.index_interval_bytes = index_interval_bytes
        self._log: File | None = None
        self._offset_index: OffsetIndex | None = None
        self._time_index: TimeIndex | None = None
        # Taken under the append lock to append, under the sync lock to write the index out, and under no lock by a
        # reader that finds it broken. Under it only the lock of OPEN_FILES is taken. Re-entrant: rebuilding looks up
        # batches.
        self._index_lock = threading.RLock()
        self._largest: tuple[int, int] | None = None  # (timestamp, relative last offset of its batch)
        self._seen_end = base_offset  # the offset after the last batch that `_largest` takes into account
        self._bytes_since_entry = 0
        self.held: File | None = None
        """The file while it is kept open, whatever happens to its name; None while `log()` opens it on use."""
        self.unwritten_entries = 0
        """How many entries of the offset index are in memory only."""
        self._recent: tuple[tuple[int, int, int], ...] = ()  # (first offset, position, last offset), newest first

    @property
    def log_path(self) -> str:
        return self.stem + LOG_SUFFIX

    # The file

    def log(self) -> File:
        """The open log file. Keep the reference while using it."""
        held = self.held
        if held is not None:
            return held
        log = self._log
        if log is None:
            try:
                log = self._log = OPEN_FILES.open(self._files, self.log_path, write=self.writable)
            except FileNotFoundError:
                raise CorruptLog(self.log_path, 0, "the file is missing") from None
        OPEN_FILES.used(self)
        return log

    def release_file(self) -> None:
        """Release file and indexes, unless they are held; a reader keeps its references until it is done."""
        if self.held is not None:
            return
        self._log = None
        self._offset_index = self._time_index = None
        self.unwritten_entries = 0

    def hold(self) -> None:
        """Keep the file open from now on, whatever happens to its name; until `unpin` or `forget`."""
        self.held = self.log()
        OPEN_FILES.forget(self)  # waits for a thread that is just releasing it
        self._log = self.held

    def pin(self) -> None:
        """Keep file and indexes from now on: appends follow, and a fresh descriptor may miss write errors."""
        with self._index_lock:
            self.hold()
            try:
                self._complete_indexes()
            except BaseException:
                self.unpin()  # or the next append would take it for ready
                raise

    def unpin(self) -> None:
        """Release it after it was sealed and synced: an ordinary segment now."""
        self.held = None
        OPEN_FILES.used(self)

    def forget(self) -> None:
        """Release it for good: it is no longer part of the log. The file closes with its last reader."""
        self.held = None
        OPEN_FILES.forget(self)
        self.release_file()

    def unlink(self) -> None:
        """Remove its files, the log first: an index without a log is useless, a log without an index is whole."""
        for suffix in (LOG_SUFFIX, INDEX_SUFFIX, TIME_INDEX_SUFFIX, SNAPSHOT_SUFFIX, TRANSACTION_INDEX_SUFFIX):
            try:
                self._files.unlink(self.stem + suffix)
            except FileNotFoundError:
                continue

    # The indexes

    @property
    def offset_index(self) -> OffsetIndex:
        index = self._offset_index
        if index is None:
            index = OffsetIndex.parse(self._read_index(INDEX_SUFFIX))
            index.keep_below(self.size)
            self._offset_index = index
        return index

    @property
    def time_index(self) -> TimeIndex:
        index = self._time_index
        if index is None:
            index = self._time_index = TimeIndex.parse(self._read_index(TIME_INDEX_SUFFIX))
        return index

    def _read_index(self, suffix: str) -> bytes:
        try:
            return read_file(self._files, self.stem + suffix)
        except FileNotFoundError:
            return b""

    def wrote(self, headers: Sequence[BatchHeader], position: int, length: int) -> None:
        """Note that batches of `length` bytes are at `position`, and end the segment. Called by the appender."""
        with self._index_lock:
            self._note(headers, position, self.offset_index, self.time_index)
            self._recent = ((headers[0].base_offset, position, headers[0].last_offset), *self._recent[:_RECENT_MORE])
            self.size = position + length

    def _note(
        self, headers: Sequence[BatchHeader], position: int, offset_index: OffsetIndex, time_index: TimeIndex
    ) -> None:
        for header in headers:
            relative = header.last_offset - self.base_offset
            if self._largest is None or header.max_timestamp > self._largest[0]:
                self._largest = (header.max_timestamp, relative)
            if self._bytes_since_entry > self.index_interval_bytes:
                offset_index.append(relative, position)
                self.unwritten_entries += 1
                if self._largest[0] >= 0:
                    time_index.append(*self._largest)
                self._bytes_since_entry = 0
            self._bytes_since_entry += header.size
            position += header.size
        self._seen_end = headers[-1].next_offset

    def wrote_produced(self, batches: ProducedBatches, target: int, position: int, length: int) -> None:
        """As `wrote`, for the batches of one partition in a run of Produce requests."""
        with self._index_lock:
            offset_index, time_index = self.offset_index, self.time_index
            largest_ms, largest_at = (NO_TIMESTAMP, -1) if self._largest is None else self._largest
            offsets, times, self._bytes_since_entry, largest_ms, largest_at, recent = batches.index_entries(
                target,
                position,
                self.base_offset,
                self.index_interval_bytes,
                self._bytes_since_entry,
                largest_ms,
                largest_at,
                _RECENT_MORE + 1,
            )
            for relative, at in offsets:
                offset_index.append(relative, at)
            for latest_ms, relative in times:
                time_index.append(latest_ms, relative)
            self.unwritten_entries += len(offsets)
            self._largest = largest_ms, largest_at
            self._seen_end = recent[0][2] + 1
            self._recent = (*recent, *self._recent)[: _RECENT_MORE + 1]
            self.size = position + length

    def grow(self, size: int) -> None:
        """In a reading process: the writer has appended. The indexes stay right as far as they go."""
        with self._index_lock:
            self.size = size
            self._largest = None

    def seal_indexes(self) -> None:
        """Write the indexes of a segment that gets no more batches, with its largest timestamp as last entry."""
        with self._index_lock:
            self._note_largest(self.time_index)
            self.write_indexes()

    def _note_largest(self, time_index: TimeIndex) -> None:
        if self._largest is not None and self._largest[0] >= 0:
            time_index.append(*self._largest)

    def write_indexes(self) -> None:
        """Write new entries to the files, for other processes and the next open. Not synced: they are hints."""
        with self._index_lock:
            for suffix, index in ((INDEX_SUFFIX, self._offset_index), (TIME_INDEX_SUFFIX, self._time_index)):
                if index is not None:
                    position, data = index.unwritten()
                    if data:
                        file = self._files.open(self.stem + suffix, write=True, create=True)
                        file.truncate(position)
                        file.write(position, [data])
                        index.wrote(len(data))
            self.unwritten_entries = 0

    def rebuild_indexes(self) -> None:
        """Rebuild both indexes from the log. Raises CorruptLog if the log is damaged, and leaves them as they were."""
        with self._index_lock:
            offset_index, time_index = OffsetIndex(), TimeIndex()
            before = self._largest, self._bytes_since_entry, self.unwritten_entries, self._seen_end
            self._largest, self._bytes_since_entry, self.unwritten_entries = None, 0, 0
            self._seen_end = self.base_offset
            try:
                batches = self.scan(0, self.base_offset, gaps_below=ANY_OFFSET, stop_at_tear=not self.writable)
                for position, headers in batches:
                    self._note(headers, position, offset_index, time_index)
            except BaseException:
                self._largest, self._bytes_since_entry, self.unwritten_entries, self._seen_end = before
                raise
            self._note_largest(time_index)
            self._offset_index, self._time_index = offset_index, time_index
            if self.writable:
                self._write_anew()

    def _write_anew(self) -> None:
        """Write the rebuilt indexes. If that fails, they are still right in memory: a full disk does not stop reads."""
        try:
            for suffix in (INDEX_SUFFIX, TIME_INDEX_SUFFIX):
                self._files.open(self.stem + suffix, write=True, create=True).truncate(0)
            self.write_indexes()
        except (OSError, StorageError) as error:
            logger.warning("%s: index not written (%s); made again when needed", self.log_path, error)

    def _complete_indexes(self) -> None:
        """Index the batches behind the last entry, usually less than one interval. The caller holds the lock."""
        self._largest = None
        self.largest_timestamp()
        last_entry = self.offset_index.last()
        self._bytes_since_entry = 0
        position = last_entry[1] if last_entry else 0
        batches = self.scan(position, -1, gaps_below=ANY_OFFSET, stop_at_tear=not self.writable)
        try:
            for at, (start, headers) in enumerate(batches):
                if at == 0 and last_entry and headers[0].last_offset != self.base_offset + last_entry[0]:
                    self.rebuild_indexes()
                    return
                self._note(headers, start, self.offset_index, self.time_index)
        except CorruptLog:
            # The entry may be wrong, and point into the middle of a batch; if not, this raises the damage again.
            self.rebuild_indexes()

    # Finding things

    def scan(
        self, position: int, expected_offset: int, gaps_below: int, *, stop_at_tear: bool = False
    ) -> Iterator[tuple[int, list[BatchHeader]]]:
        """All batches from `position` on, verified, as (position in the file, headers with positions from there).

        Raises CorruptLog if they end early; with `stop_at_tear` just ends: in a reading process the last batch may be
        half written.
        """
        log, end = self.log(), self.size
        wanted = READ_CHUNK_BYTES
        while position < end:
            data = log.read(position, min(wanted, end - position))
            found = walk(data, expected_offset=expected_offset, gaps_below=gaps_below)
            if found.headers:
                self._check_relative(position, found.headers)
                yield position, found.headers
                position += found.end
                expected_offset = found.headers[-1].next_offset
                wanted = max(READ_CHUNK_BYTES, found.needed_bytes)
            elif not found.problem and wanted < found.needed_bytes <= end - position:
                wanted = found.needed_bytes
            elif stop_at_tear:
                return
            else:
                raise CorruptLog(self.log_path, position, found.problem or "the last batch is cut off")

    def read_batch(self, position: int, header: BatchHeader) -> memoryview:
        """The bytes of a batch that `scan` found: `position` and `header` as it gave them. Raises CorruptLog."""
        at = position + header.position
        data = memoryview(self.log().read(at, header.size))
        if len(data) < header.size:
            raise CorruptLog(self.log_path, at, "the batch is cut off")
        return data

    def _check_relative(self, position: int, headers: list[BatchHeader]) -> None:
        """Raise CorruptLog if an offset does not belong to this segment: where gaps are legal, a damaged base offset
        can be any number, and an index could not hold it."""
        for header in headers:
            if not self.base_offset <= header.base_offset <= header.last_offset <= self.base_offset + _RELATIVE_MAX:
                reason = f"its offset {header.base_offset} does not belong to the segment"
                raise CorruptLog(self.log_path, position + header.position, reason)

    def locate(
        self,
        offset: int,
        max_bytes: int,
        gaps_below: int,
        end_offset: int = ANY_OFFSET,
        into: Into = None,
        nowait: bool = False,
    ) -> FoundBatches:
        """The batch that holds `offset` (or the first after it) and what follows in at most about `max_bytes`.

        `into` is memory to read into, as far as it is large enough: allocating memory costs more than filling it.
        `headers` is empty if the segment ends before `offset`. What the index points to is verified, and the index is
        rebuilt if it was wrong. `nowait`: raises BlockingIOError instead of waiting for the disk or rebuilding an
        index. Raises CorruptLog.
        """
        if nowait and (self._log is None or self._offset_index is None):
            raise would_block(self.log_path)
        try:
            found = self._locate(offset, max_bytes, gaps_below, end_offset, self._hint(offset), into, nowait)
            exact = _exact_hint(found, offset, max_bytes, self.size)
            if exact is None:
                return found
            return self._locate(offset, max_bytes, gaps_below, end_offset, exact, into, nowait)
        except _IndexWrong:
            if nowait:
                raise would_block(self.log_path) from None
            # The index or the log is wrong: a walk over the log decides.
            found = self._locate(offset, max_bytes, gaps_below, end_offset, _FROM_THE_START, into, nowait)
            with suppress(CorruptLog):  # damage elsewhere: the batches asked for are sound
                self.rebuild_indexes()
            return found

    def _locate(
        self, offset: int, max_bytes: int, gaps_below: int, end_offset: int, hint: _Hint, into: Into, nowait: bool
    ) -> FoundBatches:
        log, end = self.log(), self.size
        entry_position, hinted = hint
        start, expected, is_named = entry_position, self.base_offset, hinted >= 0
        if 0 <= hinted < offset:
            # Skip the batch that the entry names, by its header alone: it can be as large as max.message.bytes.
            start, expected, is_named = self._behind(log, entry_position, hinted, nowait), hinted + 1, False
        position, batches = start, 0
        wanted = max_bytes + self.index_interval_bytes
        while position < end:
            data = read_view(log, position, min(wanted, end - position), into, nowait=nowait)
            if is_named and position == start:
                expected = int.from_bytes(data[:LENGTH_AT], "big", signed=True)
            found = walk(data, expected_offset=expected, gaps_below=gaps_below, before_offset=end_offset)
            headers = found.headers
            reads_on = not headers and not found.problem and wanted < found.needed_bytes <= end - position
            is_first = hinted >= 0 and position == start and not reads_on and (is_named or expected < end_offset)
            if is_first:
                _check_hint(headers, hinted if is_named else -1)
            if headers and headers[-1].next_offset > offset:
                self._heal_index(entry_position, position - start, batches, nowait)
                return FoundBatches(headers, data, position, headers[-1].next_offset)
            if headers:
                position += found.end
                expected = headers[-1].next_offset
                batches += len(headers)
                wanted = max(wanted, found.needed_bytes)
            if expected >= end_offset:
                break
            if found.problem:
                raise CorruptLog(self.log_path, position, found.problem)
            if reads_on:
                wanted = found.needed_bytes
            elif not headers:
                raise CorruptLog(self.log_path, position, "the last batch is cut off")
        return FoundBatches([], memoryview(b""), position, expected)

    def _behind(self, log: File, position: int, last_offset: int, nowait: bool) -> int:
        """The position after the batch at `position`, if its header says that it ends with `last_offset`."""
        head = read_view(log, position, _HEAD.size, nowait=nowait)
        if len(head) == _HEAD.size:
            base_offset, length, magic, last_offset_delta = _HEAD.unpack(head)
            behind: int = position + LENGTH_PREFIX_BYTES + length
            if magic == MAGIC and length > 0 and base_offset + last_offset_delta == last_offset and behind <= self.size:
                return behind
        raise _IndexWrong

    def _hint(self, offset: int) -> _Hint:
        """Where to search from, and the last offset of the batch that should be there (-1: the segment's start)."""
        for first_offset, position, last_offset in self._recent:
            if first_offset <= offset:
                return position, last_offset
        entry = self.offset_index.floor(min(offset - self.base_offset, 0xFFFFFFFF))
        return (entry[1], self.base_offset + entry[0]) if entry else _FROM_THE_START

    def _heal_index(self, start: int, walked_bytes: int, walked_batches: int, nowait: bool) -> None:
        """Repair the index if a look-up walked further from the entry at `start` than an index should let it. It may
        walk over one batch of any size."""
        if walked_batches <= 1 or walked_bytes <= max(_NO_INDEX_BYTES, 16 * self.index_interval_bytes):
            return
        if self.held is not None:
            return  # the appender keeps its index complete
        if nowait:
            raise would_block(self.log_path)
        with self._index_lock, suppress(CorruptLog):  # damage elsewhere: the batches asked for are sound
            last = self.offset_index.last()
            if not self.writable and (last is None or last[1] <= start):
                self._complete_indexes()  # the writer is ahead of its index files
            else:
                self.rebuild_indexes()

    def find(
        self, offset: int, gaps_below: int = ANY_OFFSET, *, nowait: bool = False
    ) -> tuple[int, BatchHeader] | None:
        """Position and header of the batch that holds `offset`, or of the first one after it. `nowait`: as `locate`."""
        found = self.locate(offset, _FIND_BYTES, gaps_below, nowait=nowait)
        for header in found.headers:
            if header.next_offset > offset:
                return found.position + header.position, header
        return None

    def largest_timestamp(self) -> int:
        """The latest timestamp in the segment, NO_TIMESTAMP if it has none. Verified against the log."""
        latest = self.latest()
        return latest[0] if latest is not None else NO_TIMESTAMP

    def latest(self) -> tuple[int, int] | None:
        """(that timestamp, the last offset of the first batch that has it); None if the segment is empty."""
        # Under the lock: an append could come in between and be missed, and a thread that rebuilds the indexes has only
        # a part of them until it is done.
        with self._index_lock:
            if self._largest is None and self.size:
                last = self.time_index.last()
                if last is not None and self._has_timestamp(last):
                    self._look_behind(last)
                else:
                    self.rebuild_indexes()
            largest = self._largest
        return (largest[0], self.base_offset + largest[1]) if largest is not None else None

    def latest_looked_to(self) -> int:
        """The offset after the last batch that `latest` has seen."""
        with self._index_lock:
            self.latest()
            return self._seen_end

    def _look_behind(self, entry: tuple[int, int]) -> None:
        """Scan behind a right entry, which need not be the last: a crash can lose the end of an index."""
        largest = entry
        found = self.find(self.base_offset + entry[1])
        for _, headers in self.scan(
            found[0] if found else 0, -1, gaps_below=ANY_OFFSET, stop_at_tear=not self.writable
        ):
            for header in headers:
                if header.max_timestamp > largest[0]:
                    largest = (header.max_timestamp, header.last_offset - self.base_offset)
            self._seen_end = headers[-1].next_offset
        self._largest = largest

    def begun_ms(self, now_ms: int) -> int:
        """When an active segment found at open was begun, by the time of its first batch."""
        found = self.find(self.base_offset)
        return min(found[1].max_timestamp, now_ms) if found and found[1].max_timestamp >= 0 else now_ms

    def before_time(self, timestamp_ms: int) -> int:
        """An offset below which no record is as late as `timestamp_ms`, by the verified time index."""
        entry = self.time_index.before(timestamp_ms)
        if entry is not None and not self._has_timestamp(entry):
            self.rebuild_indexes()
            entry = self.time_index.before(timestamp_ms)
        return self.base_offset + entry[1] + 1 if entry else self.base_offset

    def _has_timestamp(self, entry: tuple[int, int]) -> bool:
        """Whether the batch that a time entry names is there and has that timestamp."""
        offset = self.base_offset + entry[1]
        found = self.find(offset)
        return found is not None and found[1].max_timestamp == entry[0] and found[1].last_offset == offset

    def next_offset(self, gaps_below: int) -> int:
        """The offset after its last batch; its base offset if it is empty."""
        return self.locate(ANY_OFFSET, READ_CHUNK_BYTES, gaps_below).ended_at if self.size else self.base_offset
