"""The durable state of all partitions in one small file: the directory's writer stores into it, other processes read
it.

A partition has one slot of two 512-byte sectors. The first ("hot") is stored after every sync of its records, in its
own file or in the journal, and reaches the disk at most a second later. The second ("firm") is stored, and synced,
only where a loss would change what the log holds: when the log start moves, say, or before compaction makes gaps. The
two are never unsynced at the same time, so a power cut that tears one sector leaves the other. No slot shares a sector
with another partition: writing one cannot tear its neighbour. Assumed of the disk: a sector of 512 bytes that is not
being written keeps its content.

The number of a store rises with each store: it shows which of the two sectors is newer. The generation rises when the
names in the partition's directory change, and is odd while they do: a reading process, which takes no lock, lists the
directory between two equal even readings, and so never sees half of a swap. A writer that dies in between leaves it
odd; the next open finishes the change and makes it even.

The first sector has the file's version: 1, and 2 while records may be in the journal alone. A foldlog that knows
nothing of journals then refuses the directory, and does not take such records for lost.
"""

from __future__ import annotations

import logging
import re
import struct
import threading
import time
from enum import IntEnum
from typing import NamedTuple

from crc32c import crc32c

from foldlog.errors import CorruptLog, LockLost, NewerVersion, OffsetOutOfRange
from foldlog.files.base import Allocated, File, Files, Lock, storage_error
from foldlog.limits import SECTOR_BYTES

logger = logging.getLogger("foldlog.log")

VERSION = 2
_PLAIN_VERSION = 1
_MAGIC = b"foldlog checkpoint %d\n"
_ANY_MAGIC = re.compile(rb"foldlog checkpoint (?P<version>[1-9]\d{0,8})\n")
_HEAD_BYTES = 64
_SLOT_BYTES = 2 * SECTOR_BYTES
_GROW_SLOTS = 64
# A reader may catch the writer in the middle of a store: well under a microsecond, unless the writer is interrupted.
_LOAD_TRIES_AT_ONCE = 64
_LOAD_TRIES = _LOAD_TRIES_AT_ONCE + 10
_LOAD_PAUSE_S = 0.001

_OPEN_ONCE = "open the log once for writing, which recovers it"

_CLEAN = 1
_POISONED = 2
_HAS_PRODUCERS = 4
_HAS_TRANSACTIONS = 8
_JOURNALED = 16
_TIERED = 32


class StartReason(IntEnum):
    """Why the log starts where it does: the answer to a read below it."""

    WRITTEN = 0
    RETENTION_SIZE = 1
    RETENTION_TIME = 2
    DELETED = 3
    MISSING = 4
    UNKNOWN = 5

    @classmethod
    def _missing_(cls, value: object) -> StartReason:
        return cls.UNKNOWN  # a reason of a newer foldlog

    @property
    def sentence(self) -> str:
        return _START_SENTENCES[self]


_START_SENTENCES = {
    StartReason.WRITTEN: "the log never held it",
    StartReason.RETENTION_SIZE: "expired by retention.bytes",
    StartReason.RETENTION_TIME: "expired by retention.ms",
    StartReason.DELETED: "deleted on request",
    StartReason.MISSING: "its segment files were removed by hand",
    StartReason.UNKNOWN: "it was expired by retention, or deleted",
}


def out_of_range(
    label: tuple[str, int], offset: int, start: int, end: int, reason: StartReason = StartReason.UNKNOWN
) -> OffsetOutOfRange:
    """The error for reading an offset that a log from `start` to `end` does not hold.

    `reason`: why the log starts there, if known; a cluster does not say.
    """
    beyond = "it is not written yet, or the log was cut short or recreated since"
    return OffsetOutOfRange(*label, offset, start, end, beyond if offset >= end else reason.sentence)


class SlotState(NamedTuple):
    """The state in one slot. Offsets are exclusive ends, but for log_start_offset and active_base_offset.

    Both positions are in the active segment: a roll syncs what it seals, so nothing before it depends on the journal.
    """

    # A tuple, as each sync makes a new one: a frozen dataclass takes three times as long to make.

    generation: int = 0  # odd while names are being changed
    log_start_offset: int = 0
    high_watermark: int = 0
    durable_offset: int = 0  # all below is synced, in the segments or in the journal
    durable_position: int = 0  # where that is
    synced_offset: int = 0  # all below is synced in the segments: recovery takes it as it is
    active_base_offset: int = 0
    active_position: int = 0  # where synced_offset is
    cleaned_offset: int = 0  # compaction has processed everything below
    gaps_below: int = 0  # only below this may offsets be missing between batches
    segment_count: int = 1
    leader_epoch: int = 0
    start_reason: StartReason = StartReason.WRITTEN
    clean: bool = False
    poisoned: bool = False
    has_producers: bool = False  # an idempotent producer has written: its state is loaded before the next such append
    has_transactions: bool = False  # a transaction was begun: what is committed is known only by the producer state
    tiered_below: int = 0  # records below are in the store alone; 0 if all are on the disk

    @property
    def local_start_offset(self) -> int:
        """From here on records are on the disk."""
        return max(self.log_start_offset, self.tiered_below)


def names_change(generation: int) -> int:
    return generation | 1


def names_settled(generation: int) -> int:
    return (generation | 1) + 1


def name_added(generation: int) -> int:
    """Even stays even, and odd odd: a roll may come in the middle of a compaction."""
    return generation + 2


_LAYOUT = struct.Struct(">QBBHiQqqqqqqqI")  # number, flags, reason, zero, epoch, generation, offsets…, segment count
_JOURNAL_LAYOUT = struct.Struct(">qq")  # durable offset and position, behind the others while the journal holds them
_TIER_LAYOUT = struct.Struct(">q")  # tiered_below, behind all of them while records are in the store alone
_NUMBER = struct.Struct(">Q")
_FLAGS_AT = _NUMBER.size
_CRC = struct.Struct(">I")
_STATE_BYTES = _LAYOUT.size + _JOURNAL_LAYOUT.size + _TIER_LAYOUT.size + _CRC.size


def _encode(number: int, state: SlotState) -> bytes:
    # Without the journal, as it was before there was one: what was closed cleanly opens with an older foldlog, too.
    is_journaled = state.durable_offset > state.synced_offset
    is_tiered = state.tiered_below != 0  # an older foldlog refuses such a topic by its settings
    body = _LAYOUT.pack(
        number,
        _CLEAN * state.clean
        | _POISONED * state.poisoned
        | _HAS_PRODUCERS * state.has_producers
        | _HAS_TRANSACTIONS * state.has_transactions
        | _JOURNALED * is_journaled
        | _TIERED * is_tiered,
        state.start_reason,
        0,
        state.leader_epoch,
        state.generation,
        state.log_start_offset,
        state.high_watermark,
        state.synced_offset,
        state.active_base_offset,
        state.active_position,
        state.cleaned_offset,
        state.gaps_below,
        state.segment_count,
    )
    if is_journaled:
        body += _JOURNAL_LAYOUT.pack(state.durable_offset, state.durable_position)
    if is_tiered:
        body += _TIER_LAYOUT.pack(state.tiered_below)
    # Inverted, so that a slot of zeroes is not a valid one.
    return body + _CRC.pack(crc32c(body) ^ 0xFFFFFFFF)


def _decode(data: bytes) -> tuple[int, SlotState] | None:
    """The number of the store, and the stored state; None if it is not whole."""
    if len(data) < _LAYOUT.size + _CRC.size:
        return None
    is_journaled = data[_FLAGS_AT] & _JOURNALED
    is_tiered = data[_FLAGS_AT] & _TIERED
    size = _LAYOUT.size + (_JOURNAL_LAYOUT.size if is_journaled else 0) + (_TIER_LAYOUT.size if is_tiered else 0)
    body = data[:size]
    if len(data) < size + _CRC.size or _CRC.unpack_from(data, size)[0] != crc32c(body) ^ 0xFFFFFFFF:
        return None
    number, flags, reason, _, epoch, generation, *offsets, count = _LAYOUT.unpack_from(body)
    start, high, synced, base, position, cleaned, gaps = offsets
    durable, durable_position = _JOURNAL_LAYOUT.unpack_from(body, _LAYOUT.size) if is_journaled else (synced, position)
    tiered_below = _TIER_LAYOUT.unpack_from(body, size - _TIER_LAYOUT.size)[0] if is_tiered else 0
    return number, SlotState(
        generation=generation,
        log_start_offset=start,
        high_watermark=high,
        durable_offset=durable,
        durable_position=durable_position,
        synced_offset=synced,
        active_base_offset=base,
        active_position=position,
        cleaned_offset=cleaned,
        gaps_below=gaps,
        segment_count=count,
        leader_epoch=epoch,
        start_reason=StartReason(reason),
        clean=bool(flags & _CLEAN),
        poisoned=bool(flags & _POISONED),
        has_producers=bool(flags & _HAS_PRODUCERS),
        has_transactions=bool(flags & _HAS_TRANSACTIONS),
        tiered_below=tiered_below,
    )


class _ReadOnlyFile:
    """The file for a reading process: read at each load, since another process writes it. Any thread.

    What it reads may be half of a store: the loader checks the CRC.
    """

    def __init__(self, file: File) -> None:
        self.size = file.size
        self.load = file.read
        self.close = file.close

    def store(self, position: int, data: bytes) -> None:
        raise TypeError("the checkpoint was opened for reading")

    def sync(self) -> None:
        return


class Checkpoint:
    """The file of all slots. Only the directory's writer stores; stores to one slot come from one thread at a time."""

    def __init__(
        self, files: Files, path: str, file: Allocated, write: bool, directory_lock: Lock | None, version: int
    ) -> None:
        """Use `Checkpoint.open`."""
        self._files = files
        self._version = version
        self.path = path
        self._file = file
        self._write = write
        self._directory_lock = directory_lock
        # Guards the counts and the file's size, not the stores: each slot has one storing thread, and bytes of its own.
        # A leaf, taken under a partition's state lock.
        self._lock = threading.Lock()
        self._stores = 0
        self._synced_stores = 0
        self.lost_lock: LockLost | None = None

    @classmethod
    def open(cls, files: Files, path: str, *, write: bool, directory_lock: Lock | None = None) -> Checkpoint:
        """Open the file; a writer creates it. Raises CorruptLog if it is something else.

        With `directory_lock`, `lost` reports when that lock is lost.
        """
        size, version = SECTOR_BYTES, _PLAIN_VERSION
        if not write or files.exists(path):
            file = files.open(path)
            size = max(size, file.size())
            version = _version_of(path, file)
            if not write:
                return cls(files, path, _ReadOnlyFile(file), write, None, version)
            file.close()
        checkpoint = cls(files, path, _allocate(files, path, size), write, directory_lock, version)
        checkpoint.store(0, _MAGIC % version)
        return checkpoint

    @property
    def needs_journal(self) -> bool:
        """Whether records may be durable in the journal alone: an older foldlog refuses the directory."""
        return self._version > _PLAIN_VERSION

    def begin_journal(self) -> None:
        """Say that the journal is needed from now on. Durable on return."""
        if not self.needs_journal:
            self.store(0, _MAGIC % VERSION)
            self.sync()
            self._version = VERSION

    def end_journal(self) -> None:
        """Say that nothing is needed of the journal, which says so durably itself. Durable with the next sync."""
        if self.needs_journal:
            self.store(0, _MAGIC % _PLAIN_VERSION)
            self._version = _PLAIN_VERSION

    def slot(self, number: int) -> Slot:
        """The slot of one partition; a writer's file grows to hold it."""
        self.reserve(number)
        return Slot(self, number)

    def reserve(self, number: int) -> None:
        """Make sure that a writer's file holds slot `number`; raises StorageFull if the disk has no room for it."""
        if not self._write:
            return
        needed = _position(number + 1)
        with self._lock:
            allocated_bytes = self._file.size()
            if allocated_bytes >= needed:
                return
            size = _position((number // _GROW_SLOTS + 1) * _GROW_SLOTS)
            # The old descriptor stays open for threads that use it; it is of the same file.
            self._file = _allocate(self._files, self.path, size, allocated_bytes)

    def lost(self) -> LockLost | None:
        """LockLost if the directory may have another writer by now, so that nothing may be written or acknowledged.

        Checks each time, which takes 3 microseconds: the bytes of a second writer must not be overwritten. Once lost,
        always lost: another process may have written in between.
        """
        if self._directory_lock is None or self.lost_lock is not None:
            return self.lost_lock
        if not self._directory_lock.is_in_place():
            self.lost_lock = LockLost(self.path.rpartition("/")[0])
            logger.error("%s", self.lost_lock)
        return self.lost_lock

    def refuse_if_lost(self) -> None:
        """Raise the error that `lost` returns."""
        lost = self.lost()
        if lost is not None:
            raise lost

    def clear(self, *numbers: int) -> None:
        """Forget deleted partitions. Durable on return."""
        for number in numbers:
            self.reserve(number)
            self.store(_position(number), bytes(_SLOT_BYTES))
        self.sync()

    def load(self, position: int, length: int) -> bytes:
        """Read bytes; fewer than `length` only at the end of the file."""
        try:
            return self._file.load(position, length)
        except OSError as error:
            raise storage_error(f"{self.path} could not be read", error) from error

    def store(self, position: int, data: bytes) -> int:
        """Store, and return a ticket: the store is durable once `is_synced(ticket)`. Raises StorageError if that fails,
        as it can if the file was tampered with."""
        try:
            self._file.store(position, data)
        except OSError as error:
            raise storage_error(f"{self.path} could not be written", error) from error
        # Counted after the store: a sync that begins in between covers it without knowing, which costs another sync.
        # Counted before, a sync that has not seen it would call it durable.
        with self._lock:
            self._stores += 1
            return self._stores

    @property
    def is_dirty(self) -> bool:
        """Whether something stored is not synced yet."""
        return self._stores > self._synced_stores

    def is_synced(self, ticket: int) -> bool:
        return ticket <= self._synced_stores

    def sync(self) -> None:
        """Make everything stored before the call durable; raises StorageError if the disk refuses."""
        stores = self._stores
        try:
            self._file.sync()
        except OSError as error:
            raise storage_error(f"{self.path} could not be synced", error) from error
        with self._lock:
            self._synced_stores = max(self._synced_stores, stores)  # syncs of two threads may end in any order

    def close(self) -> None:
        """Sync and close."""
        try:
            if self._write and self.is_dirty:
                self.sync()
        finally:
            self._file.close()


def is_checkpoint(data: bytes) -> bool:
    """Whether these are the first bytes of a checkpoint, of any version."""
    return _ANY_MAGIC.match(data) is not None


def _version_of(path: str, file: File) -> int:
    """Raise CorruptLog if it is no checkpoint, NewerVersion if it is one of an unknown version."""
    head = file.read(0, _HEAD_BYTES)
    found = _ANY_MAGIC.match(head)
    if found is None:
        if head[: len(_MAGIC)].strip(b"\0"):
            raise CorruptLog(path, 0, "it is not a checkpoint file")
        return _PLAIN_VERSION  # zeroes: every partition is scanned
    version = int(found["version"])
    if version > VERSION:
        raise NewerVersion(path, version, VERSION)
    return version


def _allocate(files: Files, path: str, size: int, allocated_bytes: int = 0) -> Allocated:
    try:
        return files.allocate(path, size, allocated_bytes=allocated_bytes)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise storage_error(f"{path} could not be written", error) from error


def _position(number: int) -> int:
    return SECTOR_BYTES + number * _SLOT_BYTES


class Slot:
    """One partition's slot in the checkpoint. Owned by the partition; other processes only load."""

    def __init__(self, checkpoint: Checkpoint, number: int) -> None:
        self._checkpoint = checkpoint
        self._hot = _position(number)
        self._firm = self._hot + SECTOR_BYTES
        self._slot_number = number
        self._hot_ticket = 0
        self._stores = -1  # not known yet: the next number must be above those of both sectors
        self.firm_base_offset = -1
        """The active segment in the firm sector, as far as it is known; -1 if nothing was stored there since."""

    def load(self) -> SlotState | None:
        """The newest whole state, or None. After a power cut either sector may be the newer one."""
        found = [self._load_sector(self._hot), self._load_sector(self._firm)]
        number, state = max((pair for pair in found if pair), key=_number, default=(0, None))
        self._stores = max(self._stores, number)
        return state

    def load_live(self) -> SlotState | None:
        """As `load`, beside a writer that may be in the middle of a store; the hot sector is usually the newer one.

        The firm one is newer while it is being synced, and after a power cut that lost the hot store after it. Raises
        CorruptLog if the hot one is damaged: the state in the firm one may be old, and would hide records.
        """
        for attempt in range(_LOAD_TRIES):
            data = self._checkpoint.load(self._hot, SECTOR_BYTES + _STATE_BYTES)
            found = _decode(data)
            if found is not None:
                firm = data[SECTOR_BYTES:]
                # Numbers are big-endian, so their bytes compare as they do: the firm sector is seldom decoded.
                newer = _decode(firm) if firm[: _NUMBER.size] > data[: _NUMBER.size] else None
                return found[1] if newer is None else newer[1]
            if attempt >= _LOAD_TRIES_AT_ONCE:
                time.sleep(_LOAD_PAUSE_S)
        data = self._checkpoint.load(self._hot, _SLOT_BYTES)
        if len(data) < _SLOT_BYTES:
            # The file holds every slot before the catalog names it. Taken for empty, a missing one would hide records.
            raise CorruptLog(self._checkpoint.path, self._hot, "it was cut short", _OPEN_ONCE)
        if not any(data):
            return None
        raise CorruptLog(self._checkpoint.path, self._hot, "a partition's slot is not whole", _OPEN_ONCE)

    def _load_sector(self, position: int) -> tuple[int, SlotState] | None:
        return _decode(self._checkpoint.load(position, _STATE_BYTES))

    def store(self, state: SlotState) -> None:
        """Visible to readers at once, durable within limits.CHECKPOINT_SYNC_MS."""
        self._hot_ticket = self._checkpoint.store(self._hot, _encode(self._next_number(), state))

    def store_firmly(self, state: SlotState) -> None:
        """Store the state in both sectors. Durable on return."""
        # Assumed: a power cut may tear every sector that was stored and not synced, and no other.
        if not self._checkpoint.is_synced(self._hot_ticket):
            self._checkpoint.sync()  # never both sectors unsynced: one cut could tear both
        self._checkpoint.store(self._firm, _encode(self._next_number(), state))
        self._checkpoint.sync()
        self.firm_base_offset = state.active_base_offset
        # The hot one too: readers beside the writer need it whole, and decode the firm one only while it is newer.
        self.store(state)

    def _next_number(self) -> int:
        if self._stores < 0:
            # From both stored sectors, also those of an earlier writer: a number that begins again would lose to them.
            self._stores = 0
            self.load()
        self._stores += 1
        return self._stores

    def sync(self) -> None:
        self._checkpoint.sync()

    def lost(self) -> LockLost | None:
        """See Checkpoint."""
        return self._checkpoint.lost()


def _number(found: tuple[int, SlotState]) -> int:
    return found[0]
