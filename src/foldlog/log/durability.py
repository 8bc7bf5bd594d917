"""Group commit: the threads and callbacks that wait for a sync, the threads that run it, and what a failed sync means.

One sync serves all waiters. Threads that may block (`wait_acknowledged`) take turns: one syncs, the others sleep
(`Turns`). A caller that must not block (`on_acknowledged`) leaves a callback (`Waiting`), and the `Syncer`'s threads
sync. A server lends the syncer compiled threads that sync without the interpreter's lock; such a sync has two halves,
`begin_sync` and `end_sync`, and the partition's sync lock is held from the first to the second.

What is synced is the directory's journal, for all partitions at once, where the partition was given little
(`_is_for_journal`); else the partition's own file, as where there is no journal. The first raises the durable offset,
the second the synced offset, too.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple, Protocol

from foldlog.errors import FoldlogError, InvalidArgument, LockLost, LogClosed, PartitionPoisoned, StorageError
from foldlog.files.base import DurableWrite, File, sync_fault
from foldlog.limits import SYNC_THREADS
from foldlog.log.segment import Segment

if TYPE_CHECKING:
    from foldlog.log.journal.journal import Journal
    from foldlog.log.partition import PartitionCore

logger = logging.getLogger("foldlog.log")

OnAcknowledged = Callable[[FoldlogError | None], None]


class Waiting:
    """Callbacks by the offset they wait for. Any thread; they run outside the lock, on the thread that calls `reached`.

    An exception from a callback is logged and affects nothing else. A callback that is added while its offset is being
    reached may be missed: `Durability.on_acknowledged` checks again after adding.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()  # a leaf: nothing else is taken under it
        self._pending: list[tuple[int, OnAcknowledged, bool]] = []

    def __bool__(self) -> bool:
        """Whether any callback waits."""
        return bool(self._pending)

    def add(self, next_offset: int, callback: OnAcknowledged, is_quick: bool = False) -> None:
        with self._lock:
            self._pending.append((next_offset, callback, is_quick))

    def reached(self, offset: int, *, only_quick: bool = False) -> bool:
        """Run the callbacks for offsets up to `offset`. With `only_quick`, the others stay; True if any are due."""
        # Without the lock: a thread that adds a callback at this moment checks afterwards what was reached.
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
        """Run all callbacks with `error`: nothing more will be acknowledged."""
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
    """A waiting thread: what it waits for, and whether it was woken to run the next sync."""

    __slots__ = ("leads", "next_offset", "reached", "woken")

    def __init__(self, next_offset: int, reached: Callable[[], int]) -> None:
        self.next_offset = next_offset
        self.reached = reached
        self.leads = False
        # A bare lock that another thread releases is enough to sleep on. An Event would cost a condition and a list for
        # each record that is waited for.
        self.woken = threading.Lock()
        self.woken.acquire()


class Turns:
    """Decides which of the waiting threads syncs for all of them: those of a partition, or of a journal. Any thread.

    A waiter is woken only when its offset is reached, or to run the next sync. A queue for the sync's own lock would
    keep served threads waiting through the next sync; a condition would wake all threads after each sync (measured with
    100 threads: 3 to 5 records a sync either way).
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting: list[_Turn] = []
        self._is_taken = False
        # For `gather`: how many came last time, how long their sync took, and when this one began.
        self._company = 1
        self._last_s = 0.0
        self._began_s = 0.0
        self._wanted = 0  # how many waiters the leader waits for; whoever makes them so many releases `_are_here`
        self._are_here = threading.Lock()
        self._are_here.acquire()

    def take(self, next_offset: int, reached: Callable[[], int]) -> bool:
        """True: the caller has to sync, and then to `pass_on`. False: everything below `next_offset` is reached."""
        with self._lock:
            # Checked under the lock, which `pass_on` takes after the watermark was raised: a thread that comes earlier
            # is in the list that `pass_on` wakes, one that comes later sees the offset here. No wake-up is lost.
            if reached() >= next_offset:
                return False
            if not self._is_taken:
                self._is_taken = True
                return True
            turn = _Turn(next_offset, reached)
            self._waiting.append(turn)
            if self._wanted and len(self._waiting) >= self._wanted:
                self._wanted = 0
                self._are_here.release()
        turn.woken.acquire()
        return turn.leads

    def gather(self) -> None:
        """Let the threads that the last sync woke come back with their next records; for the thread that has to sync.

        With the interpreter's lock one of them runs at a time, and a sync at once would serve the few that were first
        (measured: 4 of 100). Waits for as many as there were, while they keep coming: if half a sync passes, and the
        time they take to run, without another one, they have other things to do.
        """
        missing = self._company - 1
        if not missing:
            self._began_s = time.perf_counter()
            return
        patience_s = min(self._last_s / 2 + missing * _GATHER_EACH_S, _GATHER_MAX_S)
        while len(self._waiting) < missing:
            with self._lock:
                here = len(self._waiting)
                if here >= missing:
                    break
                self._wanted = missing
            is_complete = self._are_here.acquire(timeout=patience_s)
            with self._lock:
                if not is_complete and not self._wanted:
                    self._are_here.acquire()  # the last one came at this moment
                self._wanted = 0
                if len(self._waiting) == here:
                    break
        self._began_s = time.perf_counter()

    def pass_on(self) -> None:
        """Wake the threads whose offset is reached, and the oldest of the others to run the next sync."""
        self._last_s = time.perf_counter() - self._began_s
        with self._lock:
            self._company = len(self._waiting) + 1
            woken = self._take_reached() if self._waiting else []
            if self._waiting:
                # `_is_taken` stays set while the turn passes on: else a new thread could begin a second sync, and both
                # would queue for the lock. The oldest waiter leads; a thread that its sync does not serve came later.
                leader = self._waiting.pop(0)
                leader.leads = True
                woken.append(leader)
            else:
                self._is_taken = False
        # Outside the lock, or the woken threads could run into it.
        for turn in woken:
            turn.woken.release()

    def wake(self) -> None:
        """Wake the threads whose offset is reached, by a sync that none of them ran."""
        if not self._waiting:
            return
        with self._lock:
            woken = self._take_reached()
        for turn in woken:
            turn.woken.release()

    def _take_reached(self) -> list[_Turn]:
        reached: list[_Turn] = []
        waiting: list[_Turn] = []
        for turn in self._waiting:
            (reached if turn.reached() >= turn.next_offset else waiting).append(turn)
        self._waiting = waiting
        return reached


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
    """A partition, or a journal, as the pool sees it; synced by one thread at a time."""

    def sync(self) -> None:
        """Make all that is appended durable and run the callbacks that wait for it, with the error if it fails."""
        ...

    def begin_sync(self) -> int | DurableWrite | None:
        """First half of a sync: the descriptor to sync, or the write. None, with nothing begun, if only `sync` can do
        it."""
        ...

    def end_sync(self, error_number: int, is_nameless: bool, seconds: float) -> None:
        """Second half: that was done, or failed with `error_number`."""
        ...


class DescriptorThreads(Protocol):
    """`files.sync_threads.SyncThreads`: compiled threads that sync descriptors without the interpreter's lock."""

    def submit(self, descriptor: int, ticket: int) -> None: ...

    def submit_write(self, direct: int, plain: int, position: int, memory: memoryview, ticket: int) -> None: ...

    def done(self) -> list[tuple[int, int, bool, float]]: ...

    def close(self) -> list[tuple[int, int, bool, float]]: ...


OnSynced = Callable[[float, int, int], None]
"""Seconds that a sync took, bytes and records that it made durable."""


class Syncer:
    """A small pool of threads. They start with the first request and sleep without a timer when there is no work.

    A partition is queued at most once and synced by one thread at a time: what is appended while it is queued shares
    one sync, and what is appended during a sync shares the next. The thread that fell asleep last is woken first: if
    one is enough, it does all the work. (Measured with one busy partition: when others waited for its lock and took
    turns, a sync cost twenty futex calls.)

    The owner of an event loop may lend compiled threads that sync descriptors without the interpreter's lock; it calls
    `settle` when one has finished.

    `on_synced` is called for every sync of a partition, in the pool or not, on the thread that ran or settled it and
    under the partition's sync lock: it must be quick.
    """

    def __init__(self, threads: int = SYNC_THREADS) -> None:
        self.on_synced: OnSynced | None = None
        self._limit = threads
        # Taken under a partition's append and sync locks: a roll and a failure request syncs while they hold them. So
        # no lock of a partition is waited for under this one; `begin_sync` only tries. Taken again by the thread that
        # has it: a journal that begins its commit, and cannot take a partition, requests the sync of that partition.
        self._lock = threading.RLock()
        self._queue: deque[Syncable] = deque()
        self._queued: set[int] = set()
        self._again: dict[int, bool] = {}  # partitions being synced: whether another sync was requested meanwhile
        self._threads: list[threading.Thread] = []
        self._asleep: list[threading.Lock] = []
        self._closed = False
        self._lent: DescriptorThreads | None = None
        self._under_way: dict[int, Syncable] = {}  # syncs on lent threads, by ticket
        self._over: deque[tuple[int, int, bool, float]] = deque()  # results of lent threads, until settled

    def lend(self, threads: DescriptorThreads) -> bool:
        """Sync on these threads from now on where possible, until `give_back`. False if others are lent already."""
        with self._lock:
            if self._lent is not None:
                return False
            self._lent = threads
            return True

    @property
    def has_lent_threads(self) -> bool:
        return self._lent is not None

    def give_back(self) -> None:
        """Close the lent threads; returns when their syncs are done and settled."""
        with self._lock:
            threads, self._lent = self._lent, None
        if threads is not None:
            self._over.extend(threads.close())
            self._settle()

    def settle(self) -> None:
        """Settle the syncs that lent threads have finished. Any thread, whatever locks it holds."""
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
        """Begin the sync on a lent thread; False if that is not possible."""
        threads = self._lent
        if threads is None:
            return False
        # The caller may hold this partition's sync lock itself: then the try fails, and a thread of the pool waits for
        # the lock instead.
        begun = partition.begin_sync()
        if begun is None:
            return False
        # The ticket is the partition's id. It names no other object meanwhile, since the partition is kept here.
        self._under_way[id(partition)] = partition
        self._again[id(partition)] = False
        if isinstance(begun, int):
            threads.submit(begun, id(partition))
        else:
            threads.submit_write(*begun, id(partition))
        return True

    def _settle(self) -> None:
        """Settle finished syncs one by one, on any thread: an interrupt in between loses none of the others."""
        while self._over:
            try:
                ticket, error_number, is_nameless, seconds = self._over.popleft()
            except IndexError:
                return  # another thread was quicker
            # The thread that popped an entry settles it. No lock is needed: a deque gives each entry to one thread, and
            # a partition has one sync under way.
            partition = self._under_way.pop(ticket)
            try:
                partition.end_sync(error_number, is_nameless, seconds)
            except Exception:
                logger.exception("a partition could not be synced")
            finally:
                # The sync covered the tail as of its beginning, not what was appended since: sync again if that was
                # requested. Only now: two syncs of one partition would race for its lock.
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
                # Under the lock, so that the next request finds it. It may be released before it is acquired below: a
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
        # A disk failure went to the waiting callbacks. Whatever else it is, other partitions need this thread.
        logger.exception("a partition could not be synced")


_GATHER_EACH_S = 0.00002  # what a thread takes from its wake-up to its next wait, if the others let it run
_GATHER_MAX_S = 0.002
_SETTLE_AFTER_S = 0.005  # far longer than an event loop takes to settle a sync that is over
INDEX_WRITE_ENTRIES = 64  # 256 KiB of small batches: what a reading process may have to walk beyond its index


class Tail(NamedTuple):
    """The end of the log as written, durable or not. The appender replaces it as one value, so that a sync sees offset
    and file of the same moment."""

    segment: Segment
    end_offset: int
    position: int


class Part(NamedTuple):
    """What a commit of the journal takes of one partition: its bytes from the durable offset to `tail`."""

    member: Durability
    tail: Tail
    first_offset: int
    first_position: int
    data: bytes


class Membership(NamedTuple):
    """The journal of a partition's directory, and the topic's id, by which recovery finds the partition again."""

    journal: Journal
    topic_id: bytes


def _never() -> bool:
    return False


class SyncLock:
    """Held while the partition is synced, or a commit of the journal. A sync on a lent thread keeps it until it is
    settled; a thread that waits for the lock settles it itself, and so never depends on an event loop that may be
    waiting, too."""

    def __init__(self, syncer: Syncer) -> None:
        self._syncer = syncer
        # Third in partition.py's order: taken under the append lock, and before the state lock. It has no owner: a lent
        # thread's sync is begun by one thread and settled by another.
        self._lock = threading.Lock()

    def take_at_once(self) -> bool:
        return self._lock.acquire(blocking=False)

    def release(self) -> None:
        self._lock.release()

    def take_unless(self, is_done: Callable[[], bool]) -> bool:
        """Take it; or False, without it, once `is_done`: what the caller wanted to sync was synced by another."""
        # The event loop that would settle the sync may itself wait here, or for a lock (an append lock, say) that the
        # thread waiting here holds. Without settling here, that would be a deadlock.
        if self._lock.acquire(blocking=False):
            return True
        while not self._lock.acquire(timeout=_SETTLE_AFTER_S):
            self._syncer.settle()
            if is_done():
                return False
        return True

    def __enter__(self) -> None:
        self.take_unless(_never)

    def __exit__(self, *_: object) -> None:
        self._lock.release()


class Durability:
    """Makes written records durable. Appenders replace `tail`; the thread that holds `lock` syncs for all waiters.

    All syncs of a partition run under the one lock: the kernel reports a failure to one caller only, and no other sync
    may then find the pages clean and call them durable. Slow callbacks run without that lock: they may append, and
    wait.
    """

    def __init__(self, core: PartitionCore, syncer: Syncer, tail: Tail) -> None:
        self._core = core
        self._journal = None if core.membership is None else core.membership.journal
        self.topic_id = b"" if core.membership is None else core.membership.topic_id
        self._syncer = syncer
        self._waiting = Waiting()
        self.tail = tail
        self.lock = SyncLock(syncer)
        self._turns = Turns()
        self.poison: PartitionPoisoned | None = None
        self.unsynced_since_ms: int | None = None
        # A truncation after a failed write is not synced yet: our own, or that of a process that ended uncleanly.
        self.has_leftovers = not core.state.clean
        self._is_trimming = False  # a sync is under way that makes such a truncation durable
        self._under_way: tuple[Tail, File]
        self._lost = core.slot.lost
        # Slow callbacks or an index write are due: the next sync has to run on a pool thread, not on a lent one.
        self._wants_thread = False

    def wrote(self, tail: Tail, now_ms: int) -> None:
        """The log now ends at `tail`. If the topic relaxed flush.*, that is acknowledged and may be read at once."""
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
        # Repeats only if the sync did not reach the offset: it failed, or the directory's lock was lost, which the next
        # round raises; or the journal did not take it. The lock is not looked at before the sync, but after it.
        while self._acknowledged_offset() < next_offset:
            if self._core.is_closed:
                self._core.refuse_if_closed()
            if self.poison is not None:
                raise self.poison
            if self._journal is not None and self._is_for_journal():
                self._journal.wait(self, next_offset, self._acknowledged_offset)
            else:
                self._wait_for_own_sync(next_offset)

    def _wait_for_own_sync(self, next_offset: int) -> None:
        """One turn at syncing this partition's file."""
        if not self._turns.take(next_offset, self._acknowledged_offset):
            return
        try:
            self._turns.gather()
            # A lent thread may have held the lock, and its sync may have covered the offset.
            if self.lock.take_unless(lambda: self._acknowledged_offset() >= next_offset):
                try:
                    if self._acknowledged_offset() < next_offset and self.poison is None and not self._core.is_closed:
                        self.sync_tail()
                finally:
                    self.lock.release()
        finally:
            # Also if the sync failed: the next thread in turn finds that out by itself.
            self._turns.pass_on()
        self.tell()

    def on_acknowledged(self, next_offset: int, callback: OnAcknowledged, *, is_quick: bool = False) -> None:
        """See Partition."""
        if self._acknowledged_offset() >= next_offset:
            callback(None)
            return
        # First add, then check: the other way round, a sync that ends in between would miss the callback.
        self._waiting.add(next_offset, callback, is_quick)
        # Check again: a sync, a failure or a close may have come between.
        if self._core.is_closed or self.poison is not None or self._acknowledged_offset() >= next_offset:
            self._answer()
        elif self._journal is not None and self._is_for_journal():
            self._journal.ask(self)
        else:
            self._syncer.request(self)

    def sync(self) -> None:
        """Sync the file: everything written so far is durable without the journal, too. A failure poisons the partition
        and goes to all waiting callbacks."""
        with self.lock:
            if not self._core.is_closed:  # a close has synced, and left the callbacks
                self.sync_tail()
        self.tell()

    def tell(self) -> None:
        """After a sync, or a commit of the journal: run the callbacks whose offset is reached. No lock is held."""
        self._answer()
        self._core.watchers.tell()
        self._wake_journal()
        if self._journal is not None:
            self._write_indexes()

    def tell_quickly(self) -> bool:
        """As `tell`, on a thread that may not block: True if something is left that takes longer."""
        self._core.watchers.tell()
        return self._waiting.reached(self._acknowledged_offset(), only_quick=True) or self._are_indexes_due()

    def _wake_journal(self) -> None:
        if self._journal is not None:
            self._journal.turns.wake()

    def _answer(self) -> None:
        """Run the callbacks whose offset is acknowledged; if the partition is poisoned or closed, the others fail."""
        # Reset before the callbacks run, not after: a request that is made meanwhile must not be erased.
        self._wants_thread = False
        self._waiting.reached(self._acknowledged_offset())
        if self.poison is not None:
            self._waiting.fail(self.poison)
        elif self._core.is_closed:
            self._waiting.fail(LogClosed(f"{self._core.path} was closed; open the log again"))

    def tell_soon(self) -> None:
        """Call the watchers, and have the syncer run the waiting callbacks: the caller synced and holds locks."""
        self._core.watchers.tell()
        self._wake_journal()
        if self._waiting:
            self._syncer.request(self)

    def sync_tail(self) -> None:
        """Sync up to the tail. The caller holds the lock, and runs the callbacks afterwards."""
        # Taken once, before the sync: what is appended while it runs may be on the disk or not, and is not called
        # durable.
        tail = self._to_sync()
        if tail is None:
            self._write_indexes()
            return
        began = time.perf_counter()
        try:
            (tail.segment.held or tail.segment.log()).sync()
        except OSError as error:
            # Never sync again: the kernel may have marked the lost pages clean, and would now report success.
            self.poison_with(error)
            return
        seconds = time.perf_counter() - began
        # Checked after the sync, not before: another writer may meanwhile have cut what was synced here.
        lost = self._lost()
        if lost is not None:
            self.note_lost_lock(lost)
        # Also if an append noticed it while the sync ran: without the directory's lock nothing is acknowledged.
        if not isinstance(self.poison, LockLost):
            self._synced(tail, seconds)
            self._write_indexes()

    # The two halves of a sync on a lent thread. Neither may wait: an event loop calls the first under the syncer's
    # lock, so it only tries for the lock of this partition, and any thread may call the second. The lock is held from
    # the first to the second: no roll can seal the file during the sync, and no other sync can run beside it and take
    # pages for clean whose failure was reported to this one.
    #
    # Assumed of the kernel (Linux 4.13 and later): a failed write-back is reported once to each descriptor that was
    # open at the time. So the file stays open from the write to the sync (`Segment.held`), the descriptor that is
    # synced is the one that wrote, and its one report poisons the partition.
    #
    # Between the halves the partition can be appended to and read, its tail moves on, and an append may poison it.
    # `end_sync` therefore relies only on the tail that `begin_sync` took.

    def begin_sync(self) -> int | None:
        """See Syncable. The lock is held until `end_sync`."""
        if self._wants_thread or not self.lock.take_at_once():
            return None
        try:
            log = self.tail.segment.log()  # the same segment as in the tail below: no roll while the lock is held
        except (OSError, FoldlogError):
            self.lock.release()
            return None  # `sync` will meet and report the error
        tail = None if log.sync_descriptor is None else self._to_sync()
        if tail is None:
            self.lock.release()
            return None
        # The file, too: its descriptor must not be closed, and the number reused, while a thread syncs it.
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
                    self.note_lost_lock(lost)
                if not isinstance(self.poison, LockLost):
                    self._synced(tail, seconds)
        finally:
            self.lock.release()
        # Outside the lock: a callback may append, and an append may roll, which takes the lock. This may be the event
        # loop's thread: it runs only quick callbacks, and leaves the others, and the index, to the pool. Until the pool
        # has run them no lent thread gets another sync, or they would be put off again and again.
        self._wake_journal()
        if self.tell_quickly():
            self._wants_thread = True
            self._syncer.request(self)

    def _to_sync(self) -> Tail | None:
        """The tail to sync; None if there is nothing to sync. The caller has to sync it."""
        tail = self.tail
        nothing_new = tail.end_offset <= self._core.state.synced_offset and not self.has_leftovers
        if self.poison is not None or nothing_new:
            return None
        self.unsynced_since_ms = None
        self._is_trimming, self.has_leftovers = self.has_leftovers, False
        return tail

    def _synced(self, tail: Tail, seconds: float) -> None:
        state = self._core.state
        synced_before = state.active_position if state.active_base_offset == tail.segment.base_offset else 0
        size_bytes = tail.position - synced_before
        if self._syncer.on_synced is not None:
            # Records that the journal has made durable before were counted then.
            records = max(0, tail.end_offset - state.durable_offset)
            self._syncer.on_synced(seconds, size_bytes, records)
        self._raise_watermarks(tail.end_offset, tail)
        self._is_trimming = False
        if self._journal is not None:
            self._journal.note_sync(size_bytes)

    # With the journal. A commit takes what is in the file, as a reader would: nothing is kept in memory for it, and
    # appends that come one after the other are one entry. It needs none of this partition's locks but that of the
    # state: a roll or a sync of the file at the same time raises the same offsets, and never lowers them.

    @property
    def partition(self) -> int:
        return self._core.label[1]

    @property
    def leader_epoch(self) -> int:
        return self._core.state.leader_epoch

    @property
    def synced_offset(self) -> int:
        return self._core.state.synced_offset

    @property
    def pending_bytes(self) -> int:
        """What was written and is not durable. Of one moment, or nearly: a roll may come in between."""
        return self.tail.position - self._core.state.durable_position

    def _is_for_journal(self) -> bool:
        """Whether what is not durable yet may become so by a commit. Not behind a truncation that a power cut could
        undo: the bytes that it removed would follow on those of the commit."""
        journal = self._journal
        return (
            journal is not None
            and not self.has_leftovers
            and not self._is_trimming
            and not self._core.config.acks_when_written
            and journal.takes(self, self.pending_bytes)
        )

    def to_journal(self) -> Part | None:
        """What the next commit has to take; None if there is nothing, or it has to go another way."""
        # In this order: a roll changes the state first. A tail of the new segment comes with a state of it.
        tail = self.tail
        state = self._core.state
        if self.poison is not None or self._core.is_closed or tail.end_offset <= state.durable_offset:
            return None
        length = tail.position - state.durable_position
        if state.active_base_offset != tail.segment.base_offset or not self._is_for_journal():
            self._syncer.request(self)
            return None
        try:
            data = (tail.segment.held or tail.segment.log()).read(state.durable_position, length)
        except (OSError, FoldlogError):
            data = b""
        if len(data) != length:
            self._syncer.request(self)  # which will meet and report the error
            return None
        self.unsynced_since_ms = None
        return Part(self, tail, state.durable_offset, state.durable_position, data)

    def journaled(self, tail: Tail) -> None:
        """A commit has everything up to `tail`. Does nothing if the partition was closed or poisoned meanwhile."""
        core = self._core
        try:
            with core.state_lock:
                state = core.state
                # Closed: the slot may be another partition's by now.
                if core.is_closed or state.poisoned or tail.end_offset <= state.durable_offset:
                    return
                state = state._replace(
                    high_watermark=max(state.high_watermark, tail.end_offset),
                    durable_offset=tail.end_offset,
                    durable_position=tail.position,
                    clean=False,
                )
                core.slot.store(state)
                core.state = state
        except StorageError as error:
            self.poison_with(error)

    def _raise_watermarks(self, high_watermark: int, synced: Tail | None = None) -> None:
        """Raise them, never lower: syncs of several threads may end in any order. All below `synced` is in the file."""
        core = self._core
        try:
            with core.state_lock:
                state = core.state
                high_watermark = max(high_watermark, state.high_watermark)
                state = state._replace(high_watermark=high_watermark, clean=False)
                if synced is not None and synced.end_offset >= state.synced_offset:
                    state = state._replace(
                        synced_offset=synced.end_offset,
                        active_base_offset=synced.segment.base_offset,
                        active_position=synced.position,
                    )
                    if synced.end_offset >= state.durable_offset:
                        state = state._replace(durable_offset=synced.end_offset, durable_position=synced.position)
                core.slot.store(state)  # first: nothing is acknowledged that reading processes cannot see
                core.state = state
        except StorageError as error:
            self.poison_with(error)  # outside the block: it takes the state lock as well

    def _are_indexes_due(self) -> bool:
        return self.tail.segment.unwritten_entries >= INDEX_WRITE_ENTRIES

    def _write_indexes(self) -> None:
        if self.poison is None and self._are_indexes_due():
            segment = self.tail.segment
            try:
                segment.write_indexes()
            except (OSError, StorageError) as error:
                logger.warning("%s: index not written (%s); tried again later", segment.log_path, error)

    def refuse_if_poisoned(self) -> None:
        if self.poison is None and (lost := self._lost()) is not None:
            self.note_lost_lock(lost)
        if self.poison is not None:
            raise self.poison

    def note_lost_lock(self, lost: LockLost) -> None:
        """Write and acknowledge nothing more: another process may be the directory's writer. Not stored in the slot:
        what was written is whole, and the next open may keep it."""
        if self.poison is None:
            self.poison = lost
            # The pool runs the callbacks: this thread holds the append or the sync lock, and they may need both.
            self.tell_soon()

    def poison_with(self, error: Exception) -> None:
        """Stop acknowledging: the disk since the last good sync is unknown. Any lock but the state lock may be held."""
        self.poison = PartitionPoisoned(
            f"{self._core.path} could not be synced ({error}); what was sent since offset"
            f" {self._core.state.durable_offset} is not acknowledged; reading goes on, open the log again to write"
        )
        # If the slot cannot be stored either, the next open finds an unclean one, and recovers from the log.
        with suppress(StorageError):
            self._core.change(poisoned=True)
        self.tell_soon()

    def close(self) -> None:
        """Have the pool run the callbacks that are left. The closing thread may hold locks that they need: a callback
        of a user may append to the topic that is being deleted."""
        if self._waiting:
            self._wants_thread = True
            self._syncer.request(self)
