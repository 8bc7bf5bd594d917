"""A partition in a process that does not write it: the files, and the writer's slot in the checkpoint."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, ClassVar, NamedTuple, Protocol, TypeVar

from foldlog.errors import CorruptLog, FoldlogError, StorageError
from foldlog.files.base import Files, storage_error
from foldlog.limits import READ_CHUNK_BYTES
from foldlog.log.checkpoint import SlotState, StartReason, out_of_range
from foldlog.log.epochs import Epochs
from foldlog.log.followed_transactions import Decided, FollowedTransactions
from foldlog.log.layout import read_layout
from foldlog.log.reading import FetchedBatches, Hit, LogView, SegmentInfo, first_at_time, read_batches, segment_infos
from foldlog.log.segment import Segment
from foldlog.log.tier.boundary import in_store, search
from foldlog.log.transactions import AbortedIndex
from foldlog.records.compression import READ_DECOMPRESSED_BYTES

if TYPE_CHECKING:
    from foldlog.log.tier.partition import TieredPartition

logger = logging.getLogger("foldlog.log")

_TRIES = 2000  # with a millisecond between them: longer than any swap takes, short enough for a person to wait
_PAUSE_S = 0.001

Result = TypeVar("Result")


class Hurry(Protocol):
    """Asks the directory's writer to sync."""

    def __call__(self, topic: str, number: int) -> None:
        """Return once everything written in that partition is durable, or at once if no writer can be asked. Never
        raises the writer's errors: the caller looks at what is durable afterwards."""
        ...

    def close(self) -> None: ...


class Published(Protocol):
    """Where the writer publishes its state: its slot in the checkpoint."""

    def load_live(self) -> SlotState | None:
        """The state as of now, while the writer may be storing."""
        ...


_Key = tuple[int, int]  # generation and leader epoch


class Listing(NamedTuple):
    """The segments as of one generation; replaced whole, since any thread may read it."""

    key: _Key
    segments: tuple[Segment, ...]
    epochs: Epochs


class FollowedPartition:
    """Reads what the writer has published. Any thread.

    The writer's generation is odd while it changes names: the segments are listed between two equal even readings, so
    that the list is one that existed. Unlinked files stay readable through their open handles.
    """

    SETTLE: ClassVar = "open it once for writing to repair it"

    def __init__(
        self, files: Files, path: str, slot: Published, label: tuple[str, int], hurry: Hurry | None = None
    ) -> None:
        """`hurry` asks the writer to sync this partition; None if there is no way to ask."""
        self.label = label
        self._hurry = hurry
        self.path = path
        self.decompressed_limit = READ_DECOMPRESSED_BYTES  # of one batch; more where its topic allows it
        self._files = files
        self._slot = slot
        self._listing: Listing | None = None
        self._head: tuple[_Key, int] | None = None  # where the first segment begins
        # Taken under no other lock, and held for a scan of what came since the last look.
        self._transactions_lock = threading.Lock()
        self._transactions = FollowedTransactions(files, path)
        self._transactions_epoch = -1
        self._told_start = -1  # the start after segments were removed by hand, as last logged
        self.tier: TieredPartition | None = None

    @classmethod
    def open(
        cls, files: Files, path: str, slot: Published, *, label: tuple[str, int], hurry: Hurry | None = None
    ) -> FollowedPartition:
        """Locks nothing and writes nothing. Raises CorruptLog if there is no such partition."""
        if not files.exists(path):
            raise CorruptLog(path, 0, "the directory is missing")
        return cls(files, path, slot, label, hurry)

    def close(self) -> None:
        """Release the files."""
        listing, self._listing = self._listing, None
        for segment in listing.segments if listing is not None else ():
            segment.forget()

    def _state(self) -> SlotState:
        state = self._slot.load_live()
        return self._without_slot() if state is None else state

    def _without_slot(self) -> SlotState:
        """The state without a slot: the partition is new and empty. CorruptLog if it holds records."""
        try:
            logs = read_layout(self._files.entries(self.path)).logs
        except FileNotFoundError:
            return SlotState()  # deleted
        # Load again: a writer stores the slot before the first batch, and may have come in between.
        state = self._slot.load_live()
        if state is None and any(logs.values()):
            reason = "it holds records, and the checkpoint does not know of them"
            raise CorruptLog(self.path, 0, reason, "open the log once for writing, which recovers it")
        return state or SlotState()

    def _state_and_start(self) -> SlotState:
        """The state, with the log start that the files show. Only names are read, once per generation."""
        state = self._state()
        key, head = _key(state), self._head
        if head is None or head[0] != key:
            try:
                bases = read_layout(self._files.entries(self.path)).logs
            except OSError:
                return state  # reading will report what is wrong
            if not bases or state.generation & 1 or self._state().generation != state.generation:
                return state  # the writer is changing names: the slot is all that is known
            self._head = head = (key, min(bases))
        return self._without_removed(state, head[1])

    def _without_removed(self, state: SlotState, first: int) -> SlotState:
        """If the first segments were removed by hand, the log starts behind them, as it will for the next writer.

        Retention moves the start in the slot before it removes a file, and the generation around both: files that were
        listed in the state's generation begin behind its start for no other reason.
        """
        if first <= state.local_start_offset:
            return state
        if self._told_start != first:
            self._told_start = first
            logger.warning(
                "%s: segments before offset %d were removed by hand; it is read from there", self.path, first
            )
        return state._replace(log_start_offset=first, start_reason=StartReason.MISSING)

    @property
    def log_start_offset(self) -> int:
        return self._state_and_start().log_start_offset

    @property
    def local_start_offset(self) -> int:
        """Records below are in the store alone."""
        return self._state().local_start_offset

    @property
    def high_watermark(self) -> int:
        """All records below may be read."""
        return self._state().high_watermark

    @property
    def last_stable_offset(self) -> int:
        """All records below may be read, and each is committed or aborted: no transaction is open."""
        return self._decide().stable_offset

    def _decide(self) -> Decided:
        """What the batches below the high watermark decide."""
        for attempt in range(_TRIES):
            state, view = self._view()
            if not state.has_transactions:
                return Decided(state.high_watermark, AbortedIndex())
            with self._transactions_lock:
                if self._transactions_epoch != state.leader_epoch:  # the writer was opened anew, and may have cut some
                    self._transactions.reset()
                    self._transactions_epoch = state.leader_epoch
                was_fresh = self._transactions.is_fresh
                try:
                    decided = self._transactions.look(view.segments, state.high_watermark)
                except (CorruptLog, OSError) as error:
                    self._transactions.reset()
                    if not attempt or self._state().generation != state.generation:
                        self._listing = self._head = None
                        continue
                    if isinstance(error, CorruptLog):
                        raise
                    raise storage_error(f"{self.path} could not be read", error) from error
                if was_fresh and self._state().generation != state.generation:
                    self._transactions.reset()  # files of two moments
                    continue
            return decided._replace(stable_offset=max(state.log_start_offset, decided.stable_offset))
        raise StorageError(f"{self.path} changes faster than it can be read; try again")

    def acknowledged_end(self) -> int:
        """The end of everything acknowledged before the call. A server may have acknowledged (acks=1) records that it
        has not synced: then the file goes on behind the durable part, and the server is asked to sync first."""
        if self._hurry is not None and self._has_more():
            self._hurry(*self.label)
        return self.high_watermark

    def _has_more(self) -> bool:
        """Whether the file goes on behind what may be read. One system call; False only if it does not: acknowledged
        records are in the file that the state names, or in one that a newer state names."""
        try:
            state, view = self._view()
        except (FoldlogError, OSError):
            return False  # reading will report what is wrong
        last = view.segments[-1]
        if state.high_watermark > state.durable_offset:
            return False  # flush.* is relaxed: all that is written may be read
        return last.base_offset != state.active_base_offset or last.size > state.durable_position

    @property
    def log_end_offset(self) -> int:
        """The high watermark: a reading process sees no further."""
        return self._state().high_watermark

    @property
    def durable_offset(self) -> int:
        """All records below are fsynced, in the segments or in the journal."""
        return self._state().durable_offset

    @property
    def leader_epoch(self) -> int:
        return self._state().leader_epoch

    @property
    def start_reason(self) -> StartReason:
        """Why the log starts where it does."""
        return self._state_and_start().start_reason

    def load_epoch_starts(self) -> tuple[tuple[int, int], ...]:
        """Ascending pairs of (leader epoch, first offset written in it), read from the file each time: a writer
        replaces it without notice, but before the first batch of an epoch.
        """
        return self._load_epochs().starts

    @property
    def size_bytes(self) -> int:
        return sum(segment.size for segment in self._view()[1].segments)

    @property
    def segment_count(self) -> int:
        return len(self._view()[1].segments)

    def segments(self) -> list[SegmentInfo]:
        """All segments, oldest first."""
        return self._with_view(segment_infos)

    def read(
        self,
        offset: int,
        max_bytes: int = READ_CHUNK_BYTES,
        into: bytearray | None = None,
        *,
        committed: bool = False,
    ) -> FetchedBatches:
        """Whole verified batches below the high watermark, from the one with `offset` on; at least one, if any.

        `committed`: below the last stable offset, with the aborted transactions among them (`without_aborted`). With
        `into`, the data are in that buffer until the next read into it. Raises OffsetOutOfRange (with the reason)
        and CorruptLog.
        """
        if offset > self.high_watermark:
            self.acknowledged_end()
        if not committed:
            return self._with_view(lambda view: read_batches(view, offset, max_bytes, into), offset)
        if offset < self.local_start_offset:  # what is in the store is decided, and knows what was aborted
            found = self._with_view(lambda view: read_batches(view, offset, max_bytes, into), offset)
            return found._replace(aborted=in_store(self.tier, self.path).aborted(offset, found.next_offset))
        # Before the view: what is decided below the offset is known, and the batches of what compaction has dropped
        # from the index were dropped before.
        stable_offset, aborted = self._decide()
        found = self._with_view(lambda view: read_batches(view.upto(stable_offset), offset, max_bytes, into), offset)
        return found._replace(aborted=aborted.between(offset, found.next_offset)) if found.data else found

    def offset_at_time(self, timestamp_ms: int, *, committed: bool = False) -> tuple[int, int] | None:
        """(offset, timestamp) of the first record at or after `timestamp_ms`; None if there is none. `committed`: below
        the last stable offset; as in Kafka, also a record of an aborted transaction."""

        def look(view: LogView) -> tuple[int, int] | None:
            view = view.upto(self.last_stable_offset) if committed else view
            return first_at_time(view, self.log_start_offset, timestamp_ms, self.decompressed_limit)

        def stored(tier: TieredPartition, start: int, end: int) -> Hit | None:
            return tier.first_at_time(start, end, timestamp_ms, self.decompressed_limit)

        seen = self.high_watermark
        found = search(
            self._state, self.tier, self.path, stored, lambda: self._with_view(look), lambda one, other: one or other
        )
        if found is None and self.acknowledged_end() > seen:
            found = self._with_view(look)
        return found

    def _with_view(self, look: Callable[[LogView], Result], offset: int | None = None) -> Result:
        for attempt in range(_TRIES):
            state, view = self._view()
            if offset is not None and not state.log_start_offset <= offset <= state.high_watermark:
                raise out_of_range(self.label, offset, state.log_start_offset, state.high_watermark, state.start_reason)
            if offset is not None and offset < state.local_start_offset:
                return in_store(self.tier, self.path).look(look, offset)
            try:
                return look(view)
            except CorruptLog:
                # It is damage only if nothing changed meanwhile; epochs are replaced without a new generation.
                now = self._state()
                if attempt and now.generation == state.generation and now.gaps_below == state.gaps_below:
                    raise
                self._listing = self._head = None
            except OSError as error:
                raise storage_error(f"{self.path} could not be read", error) from error
        raise StorageError(f"{self.path} changes faster than it can be read; try again")

    def _view(self) -> tuple[SlotState, LogView]:
        """A state and a list of segments that belong together."""
        for _ in range(_TRIES):
            state = self._state()
            listing = self._listing
            try:
                if listing is None or listing.key != _key(state):
                    listing = self._list(state)
                    if listing is None:
                        time.sleep(_PAUSE_S)
                        continue
                _grow(listing.segments[-1])
            except OSError as error:
                raise storage_error(f"{self.path} could not be read", error) from error
            first = listing.segments[0].base_offset
            return self._without_removed(state, first), self._view_of(state, listing)
        raise StorageError(f"{self.path}: its writer ended in the middle of a change; {self.SETTLE}")

    def _view_of(self, state: SlotState, listing: Listing) -> LogView:
        return LogView(
            listing.segments, listing.epochs.starts, state.gaps_below, state.high_watermark, state.synced_offset
        )

    def _load_epochs(self) -> Epochs:
        return Epochs.load(self._files, self.path)

    def _list(self, state: SlotState) -> Listing | None:
        """List the segments and open them; None if the writer is changing names.

        A seqlock: an even generation before, and the same one after, so what was read in between existed at one moment.
        Assumes that the writer stores the odd generation before the first rename and the even one after the last.
        """
        if state.generation & 1:
            return None
        try:
            logs = read_layout(self._files.entries(self.path)).logs
            epochs = self._load_epochs()
        except FileNotFoundError:
            raise CorruptLog(self.path, 0, "the directory is missing") from None
        fresh = [Segment(self._files, self.path, base, logs[base], writable=False) for base in sorted(logs)]
        # Opened before the generation is read again: a swap puts another file under the same name, while a handle
        # opened in the list's generation stays on the listed file, even if that is unlinked later.
        for segment in fresh:
            try:
                segment.log()
            except CorruptLog:
                return None  # gone between the list and here: names are changing
        if self._state().generation != state.generation:
            return None
        if not fresh:
            raise CorruptLog(self.path, 0, "it holds no segment at all")
        before, self._listing = self._listing, Listing(_key(state), tuple(fresh), epochs)
        for segment in before.segments if before is not None else ():
            segment.forget()
        return self._listing


def _key(state: SlotState) -> _Key:
    """Identifies a list of segments. A roll adds 2 to the generation, so a new segment makes a new list, too."""
    return state.generation, state.leader_epoch


def _grow(last: Segment) -> None:
    """Note that the writer has appended to the last segment. No other grows: a sealed one is only ever replaced."""
    size = last.log().size()
    if size > last.size:
        last.grow(size)
