"""Group commit: who waits for a sync, who runs it, and what its failure means.

Three ways lead to one sync for all who wait. Who may block (`wait_acknowledged`) takes turns: one of them syncs, the
others sleep (`Turns`). Who may not (`on_acknowledged`) leaves a callback (`Waiting`), and the `Syncer`'s threads sync.
Who has an event loop lends the syncer threads without the interpreter's lock; their sync has two halves, `begin_sync`
and `end_sync`, and the lock is held from the one to the other.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple, Protocol

from foldlog.errors import FoldlogError, InvalidArgument, LockLost, LogClosed, PartitionPoisoned, StorageError
from foldlog.files.base import File, sync_fault
from foldlog.limits import SYNC_THREADS
from foldlog.log.segment import Segment

if TYPE_CHECKING:
    from foldlog.log.partition import PartitionCore

logger = logging.getLogger("foldlog.log")

OnAcknowledged = Callable[[FoldlogError | None], None]


class Waiting:
    """Callbacks by the offset they wait for. Any thread; callbacks run outside the lock, on whoever reached it.

    One that raises is logged: the others, and the thread, have nothing to do with it. Does not promise that who adds
    a callback for an offset that is just being reached is found: `Durability.on_acknowledged` looks again.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()  # a leaf: nothing else is taken under it
        self._pending: list[tuple[int, OnAcknowledged, bool]] = []

    def __bool__(self) -> bool:
        """Whether anybody waits."""
        return bool(self._pending)

    def add(self, next_offset: int, callback: OnAcknowledged, is_quick: bool = False) -> None:
        with self._lock:
            self._pending.append((next_offset, callback, is_quick))

    def reached(self, offset: int, *, only_quick: bool = False) -> bool:
        """Everything below `offset` is acknowledged. Returns whether somebody was left to be told who is not quick."""
        # Without the lock: of a callback that is added at this moment, the adder itself sees what was reached.
        if not self._pending:
            return False
        with self._lock:
            due = [one for one in self._pending if one[0] <= offset]
            ready = [one for one in due if one[2] or not only_quick]
            self._pending = [one for one in self._pending if one[0] > offset or (only_quick and not one[2])]
        for _, callback, _ in ready:
            _call(callback, None)
        return len(ready) < len(due)

    def fail(self, error: FoldlogError) -> None:
        """Nothing more will be acknowledged."""
        with self._lock:
            pending, self._pending = self._pending, []
        for _, callback, _ in pending:
            _call(callback, error)


def _call(callback: OnAcknowledged, error: FoldlogError | None) -> None:
    try:
        callback(error)
    except Exception:
        logger.exception("a callback that waited for an acknowledgement failed")


class _Turn:
    """One thread that waits: for which offset, and whether it was woken to sync."""

    __slots__ = ("leads", "next_offset", "woken")

    def __init__(self, next_offset: int) -> None:
        self.next_offset = next_offset
        self.leads = False
        # A bare lock, released by another thread, is all that it takes to sleep: an Event brings a condition and a
        # list, for each record that somebody waits for.
        self.woken = threading.Lock()
        self.woken.acquire()


class Turns:
    """Whose turn it is to sync for all who wait. Any thread.

    Who waits is woken when its offset is reached, or to run the next sync, and otherwise left asleep. A queue for the
    sync's own lock would keep those who were served standing through the next sync; a condition would wake everybody
    after each (measured with 100 threads: 3 to 5 records a sync either way).
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting: list[_Turn] = []
        self._is_taken = False

    def take(self, next_offset: int, reached: Callable[[], int]) -> bool:
        """True: the caller has to sync, and then to `pass_on`. False: everything below `next_offset` is reached."""
        with self._lock:
            # Under the lock, and `pass_on` takes it after the watermark was raised: who comes before that stands in the
            # list that it wakes, and who comes after sees the offset here. No wake-up falls between.
            if reached() >= next_offset:
                return False
            if not self._is_taken:
                self._is_taken = True
                return True
            turn = _Turn(next_offset)
            self._waiting.append(turn)
        turn.woken.acquire()
        return turn.leads

    def pass_on(self, reached_offset: int) -> None:
        """Wake those who are served, and one who is not: the next sync is its."""
        with self._lock:
            woken = [turn for turn in self._waiting if turn.next_offset <= reached_offset]
            self._waiting = [turn for turn in self._waiting if turn.next_offset > reached_offset]
            if self._waiting:
                # `_is_taken` stays set from hand to hand: a newcomer between the two would begin a second sync, and
                # both would queue for the lock. The oldest leads: whoever it does not serve has come later.
                leader = self._waiting.pop(0)
                leader.leads = True
                woken.append(leader)
            else:
                self._is_taken = False
        # Outside the lock, which the woken would otherwise find taken as the first thing they do.
        for turn in woken:
            turn.woken.release()


class Watchers:
    """Callbacks for every move of the high watermark or the log start. Must be quick; any thread."""

    def __init__(self) -> None:
        self._callbacks: tuple[Callable[[], None], ...] = ()
        self._lock = threading.Lock()

    def add(self, callback: Callable[[], None]) -> None:
        with self._lock:
            self._callbacks = (*self._callbacks, callback)

    def remove(self, callback: Callable[[], None]) -> None:
        with self._lock:
            self._callbacks = tuple(known for known in self._callbacks if known != callback)

    def tell(self) -> None:
        for callback in self._callbacks:
            try:
                callback()
            except Exception:
                logger.exception("a callback that watches a partition failed")


class Syncable(Protocol):
    """What the pool can sync; each is synced by one thread at a time."""

    def sync(self) -> None:
        """Make everything appended so far durable and tell who waits; a fault is told to them too."""
        ...

    def begin_sync(self) -> int | None:
        """As `sync`, in two halves: the descriptor to sync. None, and nothing begun, where `sync` has to do it."""
        ...

    def end_sync(self, error_number: int, is_nameless: bool, seconds: float) -> None:
        """That descriptor was synced, or could not be."""
        ...


class DescriptorThreads(Protocol):
    """`files.sync_threads.SyncThreads`: what runs the first half's sync without the interpreter's lock."""

    def submit(self, descriptor: int, ticket: int) -> None: ...

    def done(self) -> list[tuple[int, int, bool, float]]: ...

    def close(self) -> list[tuple[int, int, bool, float]]: ...


OnSynced = Callable[[float, int, int], None]
"""Seconds that a sync took, bytes and records that it made durable."""


class Syncer:
    """A small pool. Threads start with the first request and sleep without a timer when there is nothing to do.

    A partition is queued at most once, and synced by one thread at a time: what is appended while it waits for its
    turn shares the one sync, and what is appended during a sync shares the next. Of the threads that sleep the last is
    woken first: one that is enough for the work does all of it. (Measured with one busy partition: when others waited
    for its lock and took turns, a sync cost twenty futex calls.)

    Who has an event loop may lend it other threads, which sync descriptors without the interpreter's lock, and calls
    `settle` when one is through.

    `on_synced` is told of every sync of a partition, also of those that did not need the pool, on the thread that ran
    it and under the partition's lock: it must be quick.
    """

    def __init__(self, threads: int = SYNC_THREADS) -> None:
        self.on_synced: OnSynced | None = None
        self._limit = threads
        # Taken under a partition's append and sync locks: who rolls, or poisons, asks for a sync and holds them. So no
        # lock of a partition is waited for under this one; `begin_sync` only tries.
        self._lock = threading.Lock()
        self._queue: deque[Syncable] = deque()
        self._queued: set[int] = set()
        self._again: dict[int, bool] = {}  # of those that are being synced: whether that was asked for meanwhile
        self._threads: list[threading.Thread] = []
        self._asleep: list[threading.Lock] = []
        self._closed = False
        self._lent: DescriptorThreads | None = None
        self._under_way: dict[int, Syncable] = {}  # on lent threads
        self._over: deque[tuple[int, int, bool, float]] = deque()  # what they are through with, until it is settled

    def lend(self, threads: DescriptorThreads) -> bool:
        """Sync with these from now on, where that is possible, until `give_back`. Not if others are lent already."""
        with self._lock:
            if self._lent is not None:
                return False
            self._lent = threads
            return True

    def give_back(self) -> None:
        """Returns when what the lent threads do is done, and settled here; they are closed then."""
        with self._lock:
            threads, self._lent = self._lent, None
        if threads is not None:
            self._over.extend(threads.close())
            self._settle()

    def settle(self) -> None:
        """Lent threads may be through with something. Any thread, whatever locks it holds."""
        threads = self._lent
        if threads is not None:
            self._over.extend(threads.done())
            self._settle()

    def request(self, partition: Syncable) -> None:
        """Sync `partition` soon, on another thread."""
        with self._lock:
            if id(partition) in self._again:
                self._again[id(partition)] = True  # the sync that runs may not cover it
            elif id(partition) not in self._queued and not self._begin(partition):
                self._enqueue(partition)
                self._find_thread()

    def _begin(self, partition: Syncable) -> bool:
        """On a lent thread, if that can be."""
        threads = self._lent
        if threads is None:
            return False
        # Whoever asks may hold this partition's sync lock itself: then the try fails, and a thread of the pool waits
        # for the lock instead.
        descriptor = partition.begin_sync()
        if descriptor is None:
            return False
        # The ticket is the partition's id. It names no other object meanwhile, since the partition is kept here.
        self._under_way[id(partition)] = partition
        self._again[id(partition)] = False
        threads.submit(descriptor, id(partition))
        return True

    def _settle(self) -> None:
        """One after the other, by whoever comes: an interrupt in the middle loses none of the rest."""
        while self._over:
            try:
                ticket, error_number, is_nameless, seconds = self._over.popleft()
            except IndexError:
                return  # another thread was quicker
            # Whoever took it settles it. No lock is needed: a deque gives each entry to one thread, and a partition has
            # one sync under way.
            partition = self._under_way.pop(ticket)
            try:
                partition.end_sync(error_number, is_nameless, seconds)
            except Exception:
                logger.exception("a partition could not be synced")
            finally:
                # Its tail was taken when it began, so what was appended since is not covered: once more, if somebody
                # has asked. Only now: two syncs of one partition would race for its lock.
                with self._lock:
                    if self._again.pop(ticket) and not self._begin(partition):
                        self._enqueue(partition)
                        self._find_thread()

    def _enqueue(self, partition: Syncable) -> None:
        self._queued.add(id(partition))
        self._queue.append(partition)

    def _find_thread(self) -> None:
        if self._asleep:
            self._asleep.pop().release()
        elif len(self._threads) < self._limit and not self._closed:
            thread = threading.Thread(target=self._run, name=f"foldlog-sync-{len(self._threads)}", daemon=True)
            self._threads.append(thread)
            thread.start()

    def _run(self) -> None:
        woken = threading.Lock()
        woken.acquire()
        while True:
            self._lock.acquire()
            if self._queue:
                partition = self._queue.popleft()
                self._queued.discard(id(partition))
                self._again[id(partition)] = False
                self._lock.release()
                _sync(partition)
                with self._lock:
                    if self._again.pop(id(partition)) and not self._begin(partition):
                        self._enqueue(partition)  # behind the others that wait; this thread goes on with the first
            elif self._closed:
                self._lock.release()
                return
            else:
                # Under the lock, so that who asks next finds it here. It may be released before it is acquired below: a
                # lock remembers that.
                self._asleep.append(woken)
                self._lock.release()
                woken.acquire()

    def close(self) -> None:
        """Finish what is queued and end the threads."""
        self.give_back()
        with self._lock:
            self._closed = True
            for woken in self._asleep:
                woken.release()
            self._asleep = []
        for thread in self._threads:
            if thread is not threading.current_thread():
                thread.join()
        while self._queue:  # requested after the last thread looked
            _sync(self._queue.popleft())


def _sync(partition: Syncable) -> None:
    try:
        partition.sync()
    except Exception:
        # A fault of the disk is told to who waits. Whatever else it is, the other partitions need this thread.
        logger.exception("a partition could not be synced")


_SETTLE_AFTER_S = 0.005  # far longer than an event loop takes to settle a sync that is over
_INDEX_WRITE_ENTRIES = 64  # 256 KiB of small batches: what a reading process may have to walk beyond its index


class Tail(NamedTuple):
    """The end of the log as it is written, durable or not: replaced as one by the appender, so that a sync sees offset
    and file of the same moment."""

    segment: Segment
    end_offset: int
    position: int


class SyncLock:
    """Who holds it syncs the partition. A lent thread's sync holds it until somebody settles it: who waits for the
    lock does so too, and depends on no event loop that may itself be waiting."""

    def __init__(self, syncer: Syncer) -> None:
        self._syncer = syncer
        # Third in partition.py's order: taken under the append lock, and before the state lock. It has no owner: a lent
        # thread's sync is begun by one thread and settled by another.
        self._lock = threading.Lock()

    def take_at_once(self) -> bool:
        return self._lock.acquire(blocking=False)

    def release(self) -> None:
        self._lock.release()

    def __enter__(self) -> None:
        # The loop that would settle the sync may be the one that waits here, or wait for who waits here: for an append
        # lock, say. Without settling by oneself, that would be for ever.
        while not self._lock.acquire(timeout=_SETTLE_AFTER_S):
            self._syncer.settle()

    def __exit__(self, *_: object) -> None:
        self._lock.release()


class Durability:
    """What is written becomes durable here. Appenders replace `tail`; whoever holds `lock` syncs, for all who wait.

    All syncs of a partition run under the one lock: a failure is reported to one caller only, and no other sync
    may then find the pages clean and call them durable. Who waits is told without any lock of the partition held:
    a callback may append to it, and wait.
    """

    def __init__(self, core: PartitionCore, syncer: Syncer, tail: Tail) -> None:
        self._core = core
        self._syncer = syncer
        self._waiting = Waiting()
        self.tail = tail
        self.lock = SyncLock(syncer)
        self._turns = Turns()
        self.poison: PartitionPoisoned | None = None
        self.unsynced_since_ms: int | None = None
        # Part of a write that failed was cut off again, and that is not synced yet; by us, or by who ended uncleanly.
        self.has_leftovers = not core.state.clean
        self._under_way: tuple[Tail, File]
        self._lost = core.slot.lost
        # Something is due that may take long or wait: the next sync is for a thread that may, and not for a lent one.
        self._wants_thread = False

    def wrote(self, tail: Tail, now_ms: int) -> None:
        """The log now ends at `tail`. Where the topic relaxed flush.*, that may be read, and is acknowledged."""
        self.tail = tail
        if self.unsynced_since_ms is None:
            self.unsynced_since_ms = now_ms
        if self._core.config.acks_when_written:
            self._raise_watermarks(tail.end_offset)
            if tail.end_offset - self._core.state.durable_offset >= self._core.config.flush_messages:
                self._syncer.request(self)
            self._core.watchers.tell()

    def _acknowledged_offset(self) -> int:
        state = self._core.state
        return state.high_watermark if self._core.config.acks_when_written else state.durable_offset

    def wait_acknowledged(self, next_offset: int) -> None:
        """See Partition."""
        if next_offset > self.tail.end_offset:
            self.refuse_if_poisoned()
            raise InvalidArgument(f"nothing was written at offset {next_offset - 1} of {self._core.path} to wait for")
        # More than once only where a sync did not get there: it found the directory's lock lost. The next round says
        # so.
        while self._turns.take(next_offset, self._acknowledged_offset):
            try:
                with self.lock:
                    # The lock may have been a lent thread's, and that sync all that was needed.
                    if self._acknowledged_offset() < next_offset:
                        if self._core.is_closed:
                            self._core.refuse_if_closed()
                        self.refuse_if_poisoned()
                        self.sync_tail()
            finally:
                # Also where the sync failed: the next one in turn learns of it by itself.
                reached = self._acknowledged_offset()
                self._turns.pass_on(reached)
            self._tell()
            if reached >= next_offset:
                return

    def on_acknowledged(self, next_offset: int, callback: OnAcknowledged, *, is_quick: bool = False) -> None:
        """See Partition."""
        if self._acknowledged_offset() >= next_offset:
            callback(None)
            return
        # First stand in the list, then look: the other way round, a sync that ends between would tell nobody.
        self._waiting.add(next_offset, callback, is_quick)
        # Look again: a sync, a failure or a close may have come between.
        if self._core.is_closed:
            self.close()
        elif self.poison is not None or self._acknowledged_offset() >= next_offset:
            self._answer()
        else:
            self._syncer.request(self)

    def sync(self) -> None:
        """Make everything written so far durable. A failure poisons, and is told to all who wait."""
        with self.lock:
            self.sync_tail()
        self._tell()

    def _tell(self) -> None:
        self._answer()
        self._core.watchers.tell()

    def _answer(self) -> None:
        """Those who wait, as far as something is known."""
        # Before they are told, and not after: a wish that comes meanwhile must not be wiped out.
        self._wants_thread = False
        self._waiting.reached(self._acknowledged_offset())
        if self.poison is not None:
            self._waiting.fail(self.poison)

    def tell_soon(self) -> None:
        """For who synced and holds locks."""
        self._core.watchers.tell()
        if self._waiting:
            self._syncer.request(self)

    def sync_tail(self) -> None:
        """Sync, for who holds the lock, and who then tells the others."""
        # One value, taken before the sync: what is appended while it runs may be on the disk or not, and is not
        # claimed.
        tail = self._to_sync()
        if tail is None:
            self._write_indexes()
            return
        began = time.perf_counter()
        try:
            (tail.segment.held or tail.segment.log()).sync()
        except OSError as error:
            # Never sync again: the kernel may have marked the lost pages clean, and would now say all is well.
            self.poison_with(error)
            return
        seconds = time.perf_counter() - began
        # After the sync, not before: a writer that has come meanwhile may have cut what was synced here.
        lost = self._lost()
        if lost is not None:
            self._note_lost_lock(lost)
        # Also where an append noticed it while the sync was under way: that one acknowledges nothing any more.
        if not isinstance(self.poison, LockLost):
            self._synced(tail, seconds)
            self._write_indexes()

    # The two halves of a sync on a lent thread. Nothing in between may wait: the first is called by an event loop under
    # the syncer's lock, so it only tries for the lock of this partition, and the second by whoever comes. The lock is
    # held from the first to the second: no roll can seal the file under the sync, and no other sync can run beside it
    # and take pages for clean whose failure was reported to this one.
    #
    # Assumed of the kernel (Linux 4.13 and later): a write-back that failed is reported to each descriptor that was
    # open then, once. So the file stays open from the write to the sync (`Segment.held`), the descriptor that is synced
    # is the one that wrote, and there is one report, which poisons.
    #
    # Between the halves the partition is as before: it can be appended to and read, its tail moves on, and a poison
    # may come from an append. `end_sync` therefore believes only what was taken in `begin_sync`.

    def begin_sync(self) -> int | None:
        """See Syncable. The lock is held until `end_sync`."""
        if self._wants_thread or not self.lock.take_at_once():
            return None
        try:
            log = self.tail.segment.log()  # the tail's below too: no roll while the lock is held
        except (OSError, FoldlogError):
            self.lock.release()
            return None  # `sync` will say what it is
        tail = None if log.sync_descriptor is None else self._to_sync()
        if tail is None:
            self.lock.release()
            return None
        # The file, too: the descriptor must not be closed, and its number given to another file, while a thread syncs
        # it.
        self._under_way = tail, log
        return log.sync_descriptor

    def end_sync(self, error_number: int, is_nameless: bool, seconds: float) -> None:
        """See Syncable."""
        tail, _ = self._under_way
        del self._under_way
        try:
            fault = sync_fault(tail.segment.log_path, error_number, is_nameless)
            if fault is not None:
                self.poison_with(fault)  # and never sync again, as in `sync_tail`
            else:
                lost = self._lost()
                if lost is not None:
                    self._note_lost_lock(lost)
                if not isinstance(self.poison, LockLost):
                    self._synced(tail, seconds)
        finally:
            self.lock.release()
        # Outside the lock: those who are told may append, and an append may roll, which takes it. This may be the
        # loop's thread: it runs only callbacks that wait for nothing, and leaves the others, and the index, to the
        # pool. Until the pool has been there no lent thread gets another sync, or the others would be left again and
        # again.
        self._core.watchers.tell()
        if self._waiting.reached(self._acknowledged_offset(), only_quick=True) or self._are_indexes_due():
            self._wants_thread = True
            self._syncer.request(self)

    def _to_sync(self) -> Tail | None:
        """What there is to sync; None if nothing. Who asks syncs it."""
        tail = self.tail
        nothing_new = tail.end_offset <= self._core.state.durable_offset and not self.has_leftovers
        if self.poison is not None or nothing_new:
            return None
        self.unsynced_since_ms = None
        self.has_leftovers = False
        return tail

    def _synced(self, tail: Tail, seconds: float) -> None:
        if self._syncer.on_synced is not None:
            state = self._core.state
            synced_before = state.active_position if state.active_base_offset == tail.segment.base_offset else 0
            records = tail.end_offset - state.durable_offset
            self._syncer.on_synced(seconds, tail.position - synced_before, records)
        self._raise_watermarks(tail.end_offset, tail)

    def _raise_watermarks(self, high_watermark: int, synced: Tail | None = None) -> None:
        """Move them up, never down: syncs of different threads may end in any order. `synced`: up to there it is."""
        core = self._core
        try:
            with core.state_lock:
                state = core.state
                high_watermark = max(high_watermark, state.high_watermark)
                if synced is None or synced.end_offset < state.durable_offset:
                    state = replace(state, high_watermark=high_watermark, clean=False)
                else:
                    state = replace(
                        state,
                        high_watermark=high_watermark,
                        durable_offset=synced.end_offset,
                        active_base_offset=synced.segment.base_offset,
                        active_position=synced.position,
                        clean=False,
                    )
                core.slot.store(state)  # first: what a reading process cannot know is not acknowledged either
                core.state = state
        except StorageError as error:
            self.poison_with(error)  # here, and not inside: it takes the state lock as well

    def _are_indexes_due(self) -> bool:
        return self.tail.segment.unwritten_entries >= _INDEX_WRITE_ENTRIES

    def _write_indexes(self) -> None:
        if self.poison is None and self._are_indexes_due():
            segment = self.tail.segment
            try:
                segment.write_indexes()
            except (OSError, StorageError) as error:
                logger.warning("%s: index not written (%s); tried again later", segment.log_path, error)

    def refuse_if_poisoned(self) -> None:
        if self.poison is None and (lost := self._lost()) is not None:
            self._note_lost_lock(lost)
        if self.poison is not None:
            raise self.poison

    def _note_lost_lock(self, lost: LockLost) -> None:
        """Another process may be the directory's writer: nothing more is written or acknowledged. Not noted in the
        slot: what was written is whole, and the next open may keep it."""
        if self.poison is None:
            self.poison = lost
            # Soon, by the pool: who notices holds the append or the sync lock, and callbacks may want both.
            self.tell_soon()

    def poison_with(self, error: Exception) -> None:
        """Acknowledge nothing more: what is on disk since the last good sync is unknown. Any locks may be held."""
        self.poison = PartitionPoisoned(
            f"{self._core.path} could not be synced ({error}); what was sent since offset"
            f" {self._core.state.durable_offset} is not acknowledged; reading goes on, open the log again to write"
        )
        # Where the slot cannot be stored either, the next open finds an unclean one, and judges by itself.
        with suppress(StorageError):
            self._core.change(poisoned=True)
        self.tell_soon()

    def close(self) -> None:
        self._answer()
        self._waiting.fail(LogClosed(f"{self._core.path} was closed; open the log again"))
