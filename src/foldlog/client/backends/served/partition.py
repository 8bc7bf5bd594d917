"""A partition that another process writes, to append to."""

from __future__ import annotations

from collections.abc import Iterable
from threading import Event, Lock
from typing import Protocol

from foldlog.client.wire.batches import Lane, Numbering, OutgoingBatch
from foldlog.errors import FoldlogError
from foldlog.log.durability import OnAcknowledged
from foldlog.log.follower import FollowedPartition
from foldlog.log.partition import Appended, OnAppended
from foldlog.records.batch import NO_PRODUCER_ID


class Home(Protocol):
    """What a partition needs of the log it is in."""

    def submit(self, batches: Iterable[OutgoingBatch]) -> None:
        """Send these after all that were submitted for the same partition before."""
        ...

    def allocate_producer_id(self) -> int: ...

    def delete_records(self, topic: str, number: int, before_offset: int) -> int: ...


class RemotePartition:
    """A partition of another process, to append to; see `backend.DistantPartition`.

    What is sent is numbered in the order in which it was submitted. After a refusal those behind it go on: see `Lane`,
    which belongs to the link's lock.
    """

    def __init__(
        self,
        home: Home,
        reader: FollowedPartition,
        topic_id: bytes,
        decided: Numbering | None = None,
        transactional_id: str | None = None,
    ) -> None:
        """`decided`: the numbers from which the batches go on, which may have been sent by a process that is gone. They
        keep them, or are refused; after a refusal, so are all that follow it. `transactional_id`: whose transaction
        they are part of."""
        self.label = reader.label
        self.topic_id = topic_id
        self._home = home
        self._reader = reader
        self._lane = Lane(
            *reader.label,
            decided or Numbering(),
            renumbers=decided is None,
            topic_id=topic_id,
            transactional_id=transactional_id,
        )

    @property
    def log_end_offset(self) -> int:
        return self._reader.log_end_offset

    def begin_append(self, buffer: bytearray, done: OnAppended) -> None:
        """See DistantPartition."""
        self._have_producer_id()
        self._home.submit([OutgoingBatch(self._lane, buffer, done)])

    def append(self, *buffers: bytearray, trusted: bool = False) -> Appended:
        """See DistantPartition. `trusted` is the writer's to decide: it looks at everything that comes from outside."""
        self._have_producer_id()
        waiter = _Waiter(len(buffers))
        self._home.submit([OutgoingBatch(self._lane, buffer, waiter.done) for buffer in buffers])
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
        numbering = self._lane.numbering
        if numbering.producer_id == NO_PRODUCER_ID:
            # Two threads may both do this: one id is then left unused, or used for what follows.
            numbering.producer_id = self._home.allocate_producer_id()


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
