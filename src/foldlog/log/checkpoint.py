"""What is durable, in one small file that every process maps.

A partition has one slot of two 512-byte sectors. The first ("hot") is stored after every data sync and
reaches the disk at most a second later. The second ("firm") is stored, and synced, only when a loss would
change what the log holds: when the log start moves, or before compaction makes gaps. The two are never
unsynced at the same time, so a cut that tears one sector leaves the other. No slot shares a sector with
another partition: writing one cannot tear its neighbour.
"""

from __future__ import annotations

import struct
import threading
import time
from dataclasses import dataclass
from enum import IntEnum

from crc32c import crc32c

from foldlog.errors import CorruptLog
from foldlog.files.base import Files, Mapped, storage_error
from foldlog.limits import MAPPED_SECTOR_BYTES

_MAGIC = b"foldlog checkpoint 1\n"
_SLOT_BYTES = 2 * MAPPED_SECTOR_BYTES
_GROW_SLOTS = 64
# A reader may catch the writer in the middle of a store: well under a microsecond, unless the writer is interrupted.
_LOAD_TRIES_AT_ONCE = 64
_LOAD_TRIES = _LOAD_TRIES_AT_ONCE + 10
_LOAD_PAUSE_S = 0.001

_CLEAN = 1
_POISONED = 2
_HAS_PRODUCERS = 4


class StartReason(IntEnum):
    """Why the log starts where it does: the answer to a reader who asks for less."""

    WRITTEN = 0
    RETENTION_SIZE = 1
    RETENTION_TIME = 2
    DELETED = 3
    MISSING = 4
    UNKNOWN = 5

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


@dataclass(frozen=True, slots=True)
class SlotState:
    """What one slot says. Offsets are exclusive ends, but for log_start_offset and active_base_offset."""

    generation: int = 0  # odd while names are being changed
    log_start_offset: int = 0
    high_watermark: int = 0
    durable_offset: int = 0
    active_base_offset: int = 0
    active_position: int = 0  # where durable_offset is in the active segment
    cleaned_offset: int = 0  # compaction has been through everything below
    gaps_below: int = 0  # only below this may offsets be missing between batches
    segment_count: int = 1
    leader_epoch: int = 0
    start_reason: StartReason = StartReason.WRITTEN
    clean: bool = False
    poisoned: bool = False
    has_producers: bool = False  # an idempotent producer has written here: its state must be known before the next


_LAYOUT = struct.Struct(">QBBHiQqqqqqqqI")  # number, flags, reason, zero, epoch, generation, offsets…, segment count
_CRC = struct.Struct(">I")
_STATE_BYTES = _LAYOUT.size + _CRC.size


def _encode(number: int, state: SlotState) -> bytes:
    body = _LAYOUT.pack(
        number,
        _CLEAN * state.clean | _POISONED * state.poisoned | _HAS_PRODUCERS * state.has_producers,
        state.start_reason,
        0,
        state.leader_epoch,
        state.generation,
        state.log_start_offset,
        state.high_watermark,
        state.durable_offset,
        state.active_base_offset,
        state.active_position,
        state.cleaned_offset,
        state.gaps_below,
        state.segment_count,
    )
    # Inverted, so that a slot of zeroes is not a valid one.
    return body + _CRC.pack(crc32c(body) ^ 0xFFFFFFFF)


def _decode(data: bytes) -> tuple[int, SlotState] | None:
    """The number of the store, and what was stored; None if it is not whole."""
    body = data[: _LAYOUT.size]
    if len(data) < _STATE_BYTES or _CRC.unpack_from(data, _LAYOUT.size)[0] != crc32c(body) ^ 0xFFFFFFFF:
        return None
    number, flags, reason, _, epoch, generation, *offsets, count = _LAYOUT.unpack(body)
    start, high, durable, base, position, cleaned, gaps = offsets
    return number, SlotState(
        generation=generation,
        log_start_offset=start,
        high_watermark=high,
        durable_offset=durable,
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
    )


class Checkpoint:
    """The file of all slots. Its writer is the directory's; stores to one slot come from one thread at a time."""

    def __init__(self, files: Files, path: str, mapped: Mapped, write: bool) -> None:
        self._files = files
        self.path = path
        self._mapped = mapped
        self._write = write
        self._lock = threading.Lock()
        self._stores = 0
        self._synced_stores = 0

    @classmethod
    def open(cls, files: Files, path: str, *, write: bool) -> Checkpoint:
        """Map the file, creating it for a writer. Raises CorruptLog if it is something else."""
        size = MAPPED_SECTOR_BYTES
        if files.exists(path):
            file = files.open(path)
            size = max(size, file.size())
            head = file.read(0, len(_MAGIC))
            file.close()
            if head.strip(b"\0") and head != _MAGIC:
                raise CorruptLog(path, 0, "it is not a checkpoint file")
        checkpoint = cls(files, path, _map(files, path, size, write), write)
        if write:
            checkpoint._mapped.store(0, _MAGIC)
        return checkpoint

    def slot(self, number: int) -> Slot:
        """The slot of one partition; a writer's file grows to hold it."""
        self.reserve(number)
        return Slot(self, number)

    def reserve(self, number: int) -> None:
        """Make sure the file holds slot `number`."""
        needed = _position(number + 1)
        with self._lock:
            if self._mapped.size() >= needed:
                return
            if self._write:
                size = _position((number // _GROW_SLOTS + 1) * _GROW_SLOTS)
            else:
                file = self._files.open(self.path)
                size = file.size()
                file.close()
                if size < needed:
                    return  # the writer has not stored this slot yet: it reads as empty
            # The old mapping stays open for threads that are in it; it shows the same pages.
            self._mapped = _map(self._files, self.path, size, self._write)

    def clear(self, number: int) -> None:
        """Forget a deleted partition. Durable on return."""
        self.reserve(number)
        self.store(_position(number), bytes(_SLOT_BYTES))
        self.sync()

    def load(self, position: int, length: int) -> bytes:
        return self._mapped.load(position, length)

    def store(self, position: int, data: bytes) -> int:
        """Store, and return a ticket: the store is durable once `is_synced(ticket)`."""
        self._mapped.store(position, data)
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
        """Everything stored before the call is durable on return; StorageError if the disk refuses."""
        stores = self._stores
        try:
            self._mapped.sync()
        except OSError as error:
            raise storage_error(f"{self.path} could not be synced", error) from error
        with self._lock:
            self._synced_stores = max(self._synced_stores, stores)

    def close(self) -> None:
        """Sync and unmap."""
        try:
            if self._write and self.is_dirty:
                self.sync()
        finally:
            self._mapped.close()


def _map(files: Files, path: str, size: int, write: bool) -> Mapped:
    try:
        return files.map(path, size, write=write)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise storage_error(f"{path} could not be mapped", error) from error


def _position(number: int) -> int:
    return MAPPED_SECTOR_BYTES + number * _SLOT_BYTES


class Slot:
    """One partition's place in the checkpoint. Owned by the partition; readers in other processes only load."""

    def __init__(self, checkpoint: Checkpoint, number: int) -> None:
        self._checkpoint = checkpoint
        self._hot = _position(number)
        self._firm = self._hot + MAPPED_SECTOR_BYTES
        self._slot_number = number
        self._hot_ticket = 0
        self._stores = -1  # not known yet: the next number must be above both sectors'

    def load(self) -> SlotState | None:
        """The newest state that is whole, or None if there is none. A cut may leave either sector the newer one."""
        found = [self._load_sector(self._hot), self._load_sector(self._firm)]
        number, state = max((pair for pair in found if pair), key=_number, default=(0, None))
        self._stores = max(self._stores, number)
        return state

    def load_live(self) -> SlotState | None:
        """The same beside a writer, who may be in the middle of a store: the hot sector is the newer one then.

        Raises CorruptLog if that one is damaged: what the other says may be long ago, and would hide records.
        """
        self._checkpoint.reserve(self._slot_number)
        for attempt in range(_LOAD_TRIES):
            found = self._load_sector(self._hot)
            if found is not None:
                return found[1]
            if attempt >= _LOAD_TRIES_AT_ONCE:
                time.sleep(_LOAD_PAUSE_S)
        if not any(self._checkpoint.load(self._hot, _SLOT_BYTES)):
            return None
        raise CorruptLog(
            self._checkpoint.path, self._hot, "a partition's slot is not whole; opening the log for writing recovers it"
        )

    def _load_sector(self, position: int) -> tuple[int, SlotState] | None:
        return _decode(self._checkpoint.load(position, _STATE_BYTES))

    def store(self, state: SlotState) -> None:
        """Seen by readers at once, durable within limits.CHECKPOINT_SYNC_MS."""
        self._hot_ticket = self._checkpoint.store(self._hot, _encode(self._next_number(), state))

    def store_firmly(self, state: SlotState) -> None:
        """Durable on return."""
        if not self._checkpoint.is_synced(self._hot_ticket):
            self._checkpoint.sync()  # never both sectors unsynced: one cut could tear both
        self._checkpoint.store(self._firm, _encode(self._next_number(), state))
        self._checkpoint.sync()
        self.store(state)

    def _next_number(self) -> int:
        if self._stores < 0:
            self._stores = 0
            self.load()
        self._stores += 1
        return self._stores

    def sync(self) -> None:
        self._checkpoint.sync()


def _number(found: tuple[int, SlotState]) -> int:
    return found[0]
