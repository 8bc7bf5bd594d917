"""One partition in one share group: which records are available, acquired, acknowledged or archived. Without I/O.

Offsets from `start_offset` up to `end_offset` are in flight; below, every record is done, and at the end come those
that nobody was given yet. What is in flight is kept in runs of neighbouring offsets with the same state, so a partition
costs memory by its members' work, not by its records.

    available --acquire--> acquired --accept--> acknowledged
        ^                    |  |
        +------release-------+  +--reject, gap, or the last delivery--> archived

A lock that times out is a release. A record is acquired by one member at a time; every acquisition is counted, and one
that was delivered `delivery_count_limit` times is not available again.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import NamedTuple

from foldlog.broker.share.messages import (
    AcknowledgedBatch,
    AcknowledgeType,
    AcquiredRange,
    RecordState,
    ShareLimits,
    StateBatch,
)

NEVER_MS = float("inf")


class ReadBatches(NamedTuple):
    """What the log has from `first` up to `end`: the first and last offset of each batch, in order. Offsets between
    them have no record that a member may be given: they were compacted away, are markers, or were aborted."""

    first: int
    end: int
    spans: Sequence[tuple[int, int]]


class _Run:
    """Neighbouring offsets of one state. `member` and `deadline_ms` are those of the lock while it is acquired."""

    __slots__ = ("count", "deadline_ms", "first", "last", "member", "state")

    def __init__(
        self,
        first: int,
        last: int,
        state: RecordState,
        count: int = 0,
        member: str = "",
        deadline_ms: float = NEVER_MS,
    ) -> None:
        self.first = first
        self.last = last
        self.state = state
        self.count = count
        self.member = member
        self.deadline_ms = deadline_ms

    def __len__(self) -> int:
        return self.last - self.first + 1

    def is_like(self, other: _Run) -> bool:
        if self.state is not other.state or self.count != other.count:
            return False
        return self.member == other.member and self.deadline_ms == other.deadline_ms

    def set(self, state: RecordState, member: str = "", deadline_ms: float = NEVER_MS) -> None:
        self.state = state
        self.member = member
        self.deadline_ms = deadline_ms


class SharePartition:
    """Mutable; one owner at a time, who passes the time in and stores what `take_changes` returns.

    Promises: a record is acquired by at most one member at a time; a final state stays; `start_offset` never goes back,
    but by `SharePartition` being made anew. Does not read the log: the caller says which offsets have records.
    """

    def __init__(self, start_offset: int, batches: Iterable[StateBatch] = ()) -> None:
        """`batches` as stored, in the order of their offsets; what lies between them was never delivered."""
        self.start_offset = start_offset
        self.end_offset = start_offset
        self._runs: list[_Run] = []
        self._changed: list[tuple[int, int]] = []
        for batch in batches:
            first = max(batch.first, self.end_offset)
            if first > batch.last:
                continue
            if first > self.end_offset:
                self._runs.append(_Run(self.end_offset, first - 1, RecordState.AVAILABLE))
            self._runs.append(_Run(first, batch.last, batch.state, batch.delivery_count))
            self.end_offset = batch.last + 1
        self._settle(0, len(self._runs))
        self._changed.clear()

    # --- what is there ------------------------------------------------------------------------------------------------

    def next_fetch_offset(self) -> int:
        """Where to read next: the first record that is available again, else the first that nobody was given."""
        return next((run.first for run in self._runs if run.state is RecordState.AVAILABLE), self.end_offset)

    def unfinished_count(self) -> int:
        """Offsets in flight that are neither acknowledged nor archived."""
        return sum(len(run) for run in self._runs if not run.state.is_final)

    def acquired_count(self, member: str | None = None) -> int:
        """Records that are acquired, by one member or by any."""
        acquired = (run for run in self._runs if run.state is RecordState.ACQUIRED)
        return sum(len(run) for run in acquired if member is None or run.member == member)

    def done_count(self, first: int = 0) -> int:
        """Offsets from the start on, and from `first` on, whose delivery is complete."""
        done = (run for run in self._runs if run.state.is_final and run.last >= first)
        return sum(run.last - max(run.first, first) + 1 for run in done)

    def next_deadline_ms(self) -> float:
        return min((run.deadline_ms for run in self._runs), default=NEVER_MS)

    def may_acquire(self, limits: ShareLimits) -> bool:
        """Whether there is anything to read for: something is available again, or there is room for new records."""
        return self.next_fetch_offset() < self.end_offset or self.unfinished_count() < limits.record_locks_max

    def state_batches(self, first: int | None = None, last: int | None = None) -> list[StateBatch]:
        """The state to store, of all that is in flight or of a part. What is acquired is stored as available."""
        found: list[StateBatch] = []
        first = self.start_offset if first is None else first
        last = self.end_offset - 1 if last is None else last
        for run in self._between(first, last):
            state = RecordState.AVAILABLE if run.state is RecordState.ACQUIRED else run.state
            batch = StateBatch(max(first, run.first), min(last, run.last), state, run.count)
            if found and found[-1][2:] == batch[2:] and found[-1].last + 1 == batch.first:
                batch = found.pop()._replace(last=batch.last)
            found.append(batch)
        return found

    def take_changes(self) -> list[StateBatch]:
        """The state of everything that has changed since the last call, and is not below the start by now."""
        ranges, self._changed = sorted(self._changed), []
        merged: list[tuple[int, int]] = []
        for first, last in ranges:
            if merged and first <= merged[-1][1] + 1:
                merged[-1] = (merged[-1][0], max(last, merged[-1][1]))
            else:
                merged.append((first, last))
        clipped = ((max(first, self.start_offset), min(last, self.end_offset - 1)) for first, last in merged)
        return [batch for first, last in clipped if first <= last for batch in self.state_batches(first, last)]

    # --- what happens -------------------------------------------------------------------------------------------------

    def acquire(
        self,
        member: str,
        found: ReadBatches,
        limits: ShareLimits,
        now_ms: float,
        *,
        records_max: int,
        whole_batches: bool = False,
    ) -> list[AcquiredRange]:
        """Lock what is available of what was found in the log. Offsets without a record are archived.

        With `whole_batches` the batch in which `records_max` is reached is taken to its end, if there are locks for it.
        """
        acquired: list[AcquiredRange] = []
        deadline_ms = now_ms + limits.record_lock_duration_ms
        room = limits.record_locks_max - self.unfinished_count()
        at, taken = max(found.first, self.start_offset), 0
        for first, last in found.spans:
            if taken >= records_max:
                break
            first = max(first, at)
            if first > last:
                continue
            self._skip(at, first - 1)
            if first > self.end_offset:
                break  # there were more gaps than may be taken in now
            span_max = last - first + 1 if whole_batches else records_max - taken
            room -= self._extend(min(last, first + span_max - 1), room)
            got = self._lock(first, min(last, self.end_offset - 1), span_max, member, deadline_ms, limits)
            taken += sum(one.last - one.first + 1 for one in got)
            acquired += got
            at = last + 1
            if self.end_offset <= last:
                break
        else:
            self._skip(at, found.end - 1)
        self._trim()
        return _joined(acquired)

    def _skip(self, first: int, last: int) -> None:
        """There is no record from `first` to `last`."""
        if first > last or first > self.end_offset:
            return
        self._archive(first, min(last, self.end_offset - 1), lambda run: run.state is RecordState.AVAILABLE)
        if last >= self.end_offset:
            new = _Run(self.end_offset, last, RecordState.ARCHIVED)
            self._runs.append(new)
            self._changed.append((new.first, new.last))
            self.end_offset = last + 1

    def _extend(self, last: int, room: int) -> int:
        """Take new records into what is in flight, up to `last` and as far as there is room; how many."""
        count = max(0, min(last - self.end_offset + 1, room))
        if count:
            self._runs.append(_Run(self.end_offset, self.end_offset + count - 1, RecordState.AVAILABLE))
            self.end_offset += count
        return count

    def _lock(
        self, first: int, last: int, count_max: int, member: str, deadline_ms: float, limits: ShareLimits
    ) -> list[AcquiredRange]:
        got: list[AcquiredRange] = []
        for run in list(self._between(first, last)):
            if count_max <= 0:
                break
            if run.state is not RecordState.AVAILABLE:
                continue
            begin = max(first, run.first)
            end = min(last, run.last, begin + count_max - 1)
            if run.count >= limits.delivery_count_limit:  # the limit was lowered meanwhile
                self._apply(begin, end, lambda one: one.set(RecordState.ARCHIVED))
                continue
            got.append(AcquiredRange(begin, end, run.count + 1))
            self._apply(begin, end, lambda one: _deliver(one, member, deadline_ms))
            count_max -= end - begin + 1
        return got

    def acknowledge(
        self, member: str, batches: Sequence[AcknowledgedBatch], limits: ShareLimits, now_ms: float
    ) -> bool:
        """Take in what a member says of records that it has acquired, in the order of their offsets. All of it or
        nothing: False if one of them is not acquired by it any more. What lies below the start is done already, and
        left out."""
        before = -1
        for batch in batches:
            if not before < batch.first <= batch.last or len(batch.types) not in (1, batch.last - batch.first + 1):
                return False
            before = batch.last
            covered = self.start_offset
            for run in self._between(max(batch.first, self.start_offset), batch.last):
                covered = run.last + 1
                if run.state is not RecordState.ACQUIRED or run.member != member:
                    return False
            if covered <= batch.last and batch.last >= self.start_offset:
                return False
        for batch in batches:
            for first, last, kind in _by_type(batch):
                is_stored = kind is not AcknowledgeType.RENEW  # who has a record, and until when, is not
                self._apply(max(first, self.start_offset), last, partial(_told, kind, limits, now_ms), is_stored)
        self._trim()
        return True

    def release(self, member: str, limits: ShareLimits) -> bool:
        """The member is gone: what it has acquired is available again. Whether there was anything."""
        return self._unlock(lambda run: run.member == member, limits)

    def expire(self, limits: ShareLimits, now_ms: float) -> bool:
        """Release what was acquired for too long. Whether there was anything."""
        return self._unlock(lambda run: run.deadline_ms <= now_ms, limits)

    def _unlock(self, which: Callable[[_Run], bool], limits: ShareLimits) -> bool:
        found = [run for run in self._runs if run.state is RecordState.ACQUIRED and which(run)]
        for run in found:
            self._apply(run.first, run.last, lambda one: _release(one, limits))
        self._trim()
        return bool(found)

    def move_log_start(self, log_start_offset: int) -> None:
        """Records below are deleted: nobody can be given them any more, and who has acquired some may keep them."""
        if log_start_offset > self.start_offset:
            self._archive(self.start_offset, log_start_offset - 1, lambda run: not run.state.is_final)
            if self.end_offset < log_start_offset:
                self._skip(self.end_offset, log_start_offset - 1)
            self._trim()

    # --- runs ---------------------------------------------------------------------------------------------------------

    def _archive(self, first: int, last: int, which: Callable[[_Run], bool]) -> None:
        for run in [run for run in self._between(first, last) if which(run)]:
            self._apply(max(first, run.first), min(last, run.last), lambda one: one.set(RecordState.ARCHIVED))

    def _index(self, offset: int) -> int:
        """The run with that offset; the offset is in flight."""
        return bisect_right(self._runs, offset, key=lambda run: run.first) - 1

    def _between(self, first: int, last: int) -> Iterator[_Run]:
        if not self._runs or first > last:
            return
        for index in range(max(0, self._index(first)), len(self._runs)):
            run = self._runs[index]
            if run.first > last:
                return
            if run.last >= first:
                yield run

    def _cut(self, offset: int) -> int:
        """Let a run begin at that offset; its index."""
        if offset >= self.end_offset:
            return len(self._runs)
        index = self._index(offset)
        run = self._runs[index]
        if run.first == offset:
            return index
        self._runs.insert(index + 1, _Run(offset, run.last, run.state, run.count, run.member, run.deadline_ms))
        run.last = offset - 1
        return index + 1

    def _apply(self, first: int, last: int, change: Callable[[_Run], object], is_stored: bool = True) -> None:
        if first > last:
            return
        begin = self._cut(first)
        end = self._cut(last + 1)
        for run in self._runs[begin:end]:
            change(run)
        if is_stored:
            self._changed.append((first, last))
        self._settle(begin, end)

    def _settle(self, begin: int, end: int) -> None:
        """Join neighbours that have become alike, from one before `begin` to one behind `end`."""
        index = max(begin, 1)
        for _ in range(end + 1 - index):
            if index >= len(self._runs):
                return
            before, run = self._runs[index - 1], self._runs[index]
            if before.is_like(run):
                before.last = run.last
                del self._runs[index]
            else:
                index += 1

    def _trim(self) -> None:
        """The start goes to the first record that is not done."""
        done = next((index for index, run in enumerate(self._runs) if not run.state.is_final), len(self._runs))
        del self._runs[:done]
        self.start_offset = self._runs[0].first if self._runs else self.end_offset


def _deliver(run: _Run, member: str, deadline_ms: float) -> None:
    run.count += 1
    run.set(RecordState.ACQUIRED, member, deadline_ms)


def _release(run: _Run, limits: ShareLimits) -> None:
    is_last = run.count >= limits.delivery_count_limit
    run.set(RecordState.ARCHIVED if is_last else RecordState.AVAILABLE)


def _told(kind: AcknowledgeType, limits: ShareLimits, now_ms: float, run: _Run) -> None:
    if kind is AcknowledgeType.ACCEPT:
        run.set(RecordState.ACKNOWLEDGED)
    elif kind is AcknowledgeType.RELEASE:
        _release(run, limits)
    elif kind is AcknowledgeType.RENEW:
        run.deadline_ms = now_ms + limits.record_lock_duration_ms
    else:
        run.set(RecordState.ARCHIVED)


def _by_type(batch: AcknowledgedBatch) -> Iterator[tuple[int, int, AcknowledgeType]]:
    """Neighbouring offsets of one type."""
    if len(batch.types) == 1:
        yield batch.first, batch.last, batch.types[0]
        return
    begin = 0
    for at in range(1, len(batch.types) + 1):
        if at == len(batch.types) or batch.types[at] is not batch.types[begin]:
            yield batch.first + begin, batch.first + at - 1, batch.types[begin]
            begin = at


def _joined(ranges: Iterable[AcquiredRange]) -> list[AcquiredRange]:
    joined: list[AcquiredRange] = []
    for one in ranges:
        if joined and joined[-1].last + 1 == one.first and joined[-1].delivery_count == one.delivery_count:
            joined[-1] = joined[-1]._replace(last=one.last)
        else:
            joined.append(one)
    return joined
