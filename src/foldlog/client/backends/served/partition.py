"""A partition that another process writes: the batches on their way to it, and the numbers they carry."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from threading import Event, Lock
from typing import Protocol

from foldlog.client.backends.backend import OnAppended
from foldlog.client.wire.batches import UNNUMBERED, AddressedBatch, Numbering
from foldlog.errors import FoldlogError
from foldlog.limits import PRODUCE_IN_FLIGHT_MAX
from foldlog.log.durability import OnAcknowledged
from foldlog.log.follower import FollowedPartition
from foldlog.log.partition import Appended
from foldlog.records.batch import NO_PRODUCER_ID
from foldlog.records.stamping import offset_span, stamp_producer


class Home(Protocol):
    """What a partition needs of the log it is in."""

    def submit(self, batches: Iterable[NumberedBatch]) -> None:
        """Send these after all that were submitted for the same partition before."""
        ...

    def allocate_producer_id(self) -> int: ...

    def delete_records(self, topic: str, number: int, before_offset: int) -> int: ...


class NumberedBatch:
    """One batch on its way, with whom to tell. Belongs to the link's lock once it is submitted."""

    __slots__ = ("data", "done", "numbers", "offset_count", "partition", "times_sent")

    def __init__(self, partition: RemotePartition, data: bytearray, done: OnAppended) -> None:
        self.partition = partition
        self.data = data
        self.done = done
        self.offset_count = offset_span(data)
        self.numbers = UNNUMBERED
        self.times_sent = 0  # with these numbers

    def stamp(self) -> None:
        """Put its numbers into it, before it is sent: the same each time, so that a repetition is known for one."""
        stamp_producer(self.data, *self.numbers)
        self.times_sent += 1

    @property
    def addressed(self) -> AddressedBatch:
        return AddressedBatch(self.partition.label[0], self.partition.topic_id, self.partition.label[1], self.data)


class RemotePartition:
    """A partition of another process, to append to; see `backend.DistantPartition`.

    What is sent is numbered in the order in which it was submitted. At most PRODUCE_IN_FLIGHT_MAX batches are on their
    way: the log can tell a repetition among as many. All state belongs to the link's lock.
    """

    renumbers = True
    """Whether a batch that was refused only for its numbers gets others and is sent again."""

    def __init__(self, home: Home, reader: FollowedPartition, topic_id: bytes) -> None:
        self.label = reader.label
        self.topic_id = topic_id  # a topic of the same name that has another id is another topic
        self.waiting: deque[NumberedBatch] = deque()
        self.is_ready = False  # whether it stands in the link's queue
        self._home = home
        self._reader = reader
        self._sent: deque[NumberedBatch] = deque()
        self._again: deque[NumberedBatch] = deque()
        self._has_hole = False
        self._numbering = Numbering()

    # --- what the client asks -------------------------------------------------------------------------------------

    @property
    def log_end_offset(self) -> int:
        return self._reader.log_end_offset

    def begin_append(self, buffer: bytearray, done: OnAppended) -> None:
        """See DistantPartition."""
        self._have_producer_id()
        self._home.submit([NumberedBatch(self, buffer, done)])

    def append(self, *buffers: bytearray, trusted: bool = False) -> Appended:
        """See DistantPartition. `trusted` is the writer's to decide: it looks at everything that comes from outside."""
        self._have_producer_id()
        waiter = _Waiter(len(buffers))
        self._home.submit([NumberedBatch(self, buffer, waiter.done) for buffer in buffers])
        return waiter.result()

    def wait_acknowledged(self, next_offset: int) -> None:
        """What `append` answered is durable already."""

    def on_acknowledged(self, next_offset: int, callback: OnAcknowledged) -> None:
        """What `append` answered is durable already."""
        callback(None)

    def delete_records(self, before_offset: int) -> int:
        """Move the log start to `before_offset`, for good; the new log start."""
        return self._home.delete_records(*self.label, before_offset)

    def _have_producer_id(self) -> None:
        if self._numbering.producer_id == NO_PRODUCER_ID:
            # Two threads may both do this: one id is then left unused, or used for what follows.
            self._numbering.producer_id = self._home.allocate_producer_id()

    # --- what the link asks, under its lock -----------------------------------------------------------------------

    @property
    def may_send(self) -> bool:
        return bool(self.waiting) and len(self._sent) < PRODUCE_IN_FLIGHT_MAX and not self._has_hole

    def number_next(self) -> NumberedBatch:
        """The batch that is sent next, numbered."""
        batch = self.waiting.popleft()
        batch.times_sent = 0
        batch.numbers = self._numbering.take(batch.offset_count)
        self._sent.append(batch)
        return batch

    def settled(self, batch: NumberedBatch, *, succeeded: bool, again: bool) -> None:
        """The oldest batch on its way is in the log, or refused; `again`: refused only for its numbers."""
        self._sent.remove(batch)
        if again:
            self._again.append(batch)
        self._has_hole = self._has_hole or not succeeded
        if self._has_hole and not self._sent:
            self._begin_epoch()

    def give_up(self) -> list[NumberedBatch]:
        """Forget what is on its way; what waits to be sent is the caller's to tell."""
        self._sent.clear()
        self._begin_epoch()
        waiting = list(self.waiting)
        self.waiting.clear()
        self.is_ready = False
        return waiting

    def _begin_epoch(self) -> None:
        """What was refused for its numbers alone gets others, in front of what waits. Where the id is used up, the next
        append asks for another; what was submitted before it goes without, since nobody may wait here."""
        self._has_hole = False
        self.waiting.extendleft(reversed(self._again))
        self._again.clear()
        self._numbering.begin_epoch()


class ResumablePartition(RemotePartition):
    """For batches whose numbers were decided before they are sent, and may have been sent by a process that is
    gone: they keep their numbers, or are refused. After a refusal, all that follow it are.

    Who appends waits for the first batch before it sends the second: a log that does not know the producer yet takes
    any number for its first.
    """

    renumbers = False

    def __init__(
        self, home: Home, reader: FollowedPartition, topic_id: bytes, producer_id: int, epoch: int, next_sequence: int
    ) -> None:
        super().__init__(home, reader, topic_id)
        self._numbering = Numbering(producer_id, epoch, next_sequence)

    def _begin_epoch(self) -> None:
        """Not here. The log refuses what comes after the hole, and who waits for it is told."""
        self._has_hole = False


class _Waiter:
    """Waits until all batches of one call are settled. `done` may come from any thread."""

    def __init__(self, count: int) -> None:
        self._lock = Lock()
        self._missing = count
        self._settled = Event()
        self._appended: list[Appended] = []
        self._error: FoldlogError | None = None

    def done(self, appended: Appended | None, error: FoldlogError | None) -> None:
        with self._lock:
            self._missing -= 1
            if appended is not None:
                self._appended.append(appended)
            self._error = self._error or error
            if self._missing:
                return
        self._settled.set()

    def result(self) -> Appended:
        """From the first offset of the first batch to the last of the last."""
        self._settled.wait()
        if self._error is not None:
            raise self._error.with_traceback(None)
        first, last = self._appended[0], self._appended[-1]
        return Appended(first.base_offset, last.next_offset, last.append_time_ms, False)
