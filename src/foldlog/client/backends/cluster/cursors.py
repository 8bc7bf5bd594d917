"""A consumer's positions in the partitions of a cluster, and whose turn it is, wherever the records come from."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from threading import Event
from typing import TYPE_CHECKING, Protocol

from foldlog.client.backends.cluster.topics import PartitionOffsets
from foldlog.client.consumer.settings import ConsumerSettings
from foldlog.client.positions import TopicPartition
from foldlog.client.serializers import Deserializer, deserialized, deserializer
from foldlog.errors import FoldlogError, InvalidArgument, NotAssigned
from foldlog.records.loops import Record

if TYPE_CHECKING:
    from foldlog.client.backends.cluster.backend import ClusterBackend


class RecordSource(Protocol):
    """Where the records of cursors come from: it moves along with them."""

    def moved(self, cursor: ClusterCursor) -> None:
        """Fetch from `cursor.position` on."""
        ...

    def paused(self, cursor: ClusterCursor) -> None:
        """Fetch nothing, or again, as `cursor.is_paused` says."""
        ...

    def refill(self, cursor: ClusterCursor) -> None:
        """`give` it what has come, if anything: all that it had was taken. Never waits."""
        ...


class PartitionNow:
    """A partition as it is at the moment of each question: every one is asked of the cluster."""

    def __init__(self, bounds: Callable[[], PartitionOffsets], at_time: Callable[[int], int | None]) -> None:
        self._bounds = bounds
        self._at_time = at_time

    @property
    def log_start_offset(self) -> int:
        return self._bounds().log_start_offset

    @property
    def high_watermark(self) -> int:
        return self._bounds().high_watermark

    def acknowledged_end(self) -> int:
        return self.high_watermark

    def offset_at_time(self, timestamp_ms: int) -> tuple[int, int] | None:
        found = self._at_time(timestamp_ms)
        return None if found is None else (found, timestamp_ms)


class ClusterCursor:
    """Reads one partition forward. Belongs to its consumer's thread; `position` and `handled` are as in `Cursor`."""

    def __init__(
        self,
        partition: TopicPartition,
        log: PartitionNow,
        position: int,
        deserializers: tuple[Deserializer | None, Deserializer | None],
        source: RecordSource,
    ) -> None:
        self.partition = partition
        self.log = log
        self.committed = -1
        self.started_at = position
        self.leader_epoch = -1
        self.problem: FoldlogError | None = None
        self._of_key, self._of_value = deserializers
        self._source = source
        self._is_paused = False
        self.position = position
        self.handled = position
        self.fetched_to = position
        self._ahead: list[Record] = []
        self._next = 0  # of those ahead

    def seek(self, offset: int) -> None:
        """Go on from `offset`. What was handed out before counts as dealt with no further than that."""
        self.position = self.handled = self.fetched_to = offset
        self._ahead, self._next = [], 0
        self.problem = None
        self._source.moved(self)

    @property
    def is_paused(self) -> bool:
        return self._is_paused

    @is_paused.setter
    def is_paused(self, is_paused: bool) -> None:
        if is_paused != self._is_paused:
            self._is_paused = is_paused
            self._source.paused(self)

    def known_position(self) -> int:
        """`position`, or what keeps it from being known."""
        if self.problem is not None and not self._has_more:
            raise self.problem
        return self.position

    def lag(self) -> int:
        """How many offsets lie between here and the end."""
        return max(0, self.log.high_watermark - self.position)

    def give(self, records: list[Record], next_offset: int) -> None:
        """What comes next, and the offset behind it. Gaps and control records there are no lag. Behind a problem
        nothing comes before a seek."""
        if self.problem is not None:
            return
        if records:
            self.leader_epoch = records[-1].leader_epoch
            if self._has_more:
                self._ahead.extend(records)
            else:
                self._ahead, self._next = records, 0
        self.fetched_to = max(self.fetched_to, next_offset)
        if not self._has_more:
            self.position = self.fetched_to

    def go_on_at(self, offset: int) -> None:
        """What comes next is there: what lay before it is gone."""
        self.fetched_to = offset
        self.give([], offset)

    @property
    def _has_more(self) -> bool:
        return self._next < len(self._ahead)

    @property
    def ahead(self) -> int:
        """How many records are there to be taken."""
        return 0 if self._is_paused else len(self._ahead) - self._next

    def take(self, limit: int) -> list[Record]:
        """Up to `limit` of what is there. A problem is raised behind what came before it."""
        if not self._has_more:
            if self.problem is not None:
                raise self.problem
            self._source.refill(self)
            if not self._has_more:
                return []
        ahead, first = self._ahead, self._next
        end = first + limit
        taken = ahead if first == 0 and end >= len(ahead) else ahead[first:end]
        if self._of_key is not None or self._of_value is not None:
            taken = deserialized(taken, self._of_key, self._of_value)
        end = first + len(taken)
        if end < len(ahead):
            self._next = end
            self.position = ahead[end].offset
        else:
            self._ahead, self._next = [], 0
            self.position = self.fetched_to
        return taken


class CursorTurns:
    """The cursors of one consumer, which take turns, so that a busy partition cannot starve the others."""

    def __init__(self, cluster: ClusterBackend, settings: ConsumerSettings, source: RecordSource) -> None:
        self.cursors: dict[TopicPartition, ClusterCursor] = {}
        self._cluster = cluster
        self._source = source
        self._deserializers = (deserializer(settings.key_deserializer), deserializer(settings.value_deserializer))
        self._committed = settings.committed
        self._turn = 0
        self._served: ClusterCursor | None = None

    def add(self, partition: TopicPartition, position: int) -> ClusterCursor:
        cluster = self._cluster
        where = (*partition, self._committed)
        log = PartitionNow(partial(cluster.bounds_of, *where), partial(cluster.offset_at, *where))
        cursor = ClusterCursor(partition, log, position, self._deserializers, self._source)
        self.cursors[partition] = cursor
        return cursor

    def pop(self, partition: TopicPartition) -> ClusterCursor | None:
        cursor = self.cursors.pop(partition, None)
        if cursor is not None and self._served is cursor:
            self._served = None
        return cursor

    def clear(self) -> None:
        self.cursors.clear()
        self._served = None

    def cursor(self, topic: str, number: int) -> ClusterCursor:
        """The cursor of an assigned partition; NotAssigned if it is not."""
        cursor = self.cursors.get(TopicPartition(topic, number)) if type(number) is int else None
        if cursor is None:
            self._cluster.bounds_of(topic, number)  # says what is wrong, if there is no such partition
            raise NotAssigned(f"{topic}-{number} is not assigned to this consumer; assignment() shows what is")
        return cursor

    def chosen(self, partitions: list[TopicPartition]) -> list[ClusterCursor]:
        """The cursors of these partitions, or of all that are assigned if none are named."""
        if not partitions:
            return list(self.cursors.values())
        return [self.cursor(*partition) for partition in partitions]

    def take(self, limit: int) -> list[Record]:
        """Up to `limit` records that are there, beginning with the partition whose turn it is."""
        turns = list(self.cursors.values())
        taken: list[Record] = []
        for step in range(len(turns)):
            index = (self._turn + step) % len(turns)
            cursor = turns[index]
            if cursor.is_paused:
                continue
            try:
                found = cursor.take(limit)
            except FoldlogError:
                if taken:
                    self._turn = index  # raised next time
                    break
                self._turn = index + 1  # the others are read on
                raise
            if found:
                self._served = cursor
                taken = taken + found if taken else found
                limit -= len(found)
            if limit <= 0:
                self._turn = index + 1
                break
        return taken

    def count_last_as_handled(self) -> None:
        """A single record was dealt with, in a loop that takes one at a time."""
        if self._served is not None:
            self._served.handled = self._served.position


class Ending:
    """What wakes a waiting poll: only its end, as it waits for records itself. `on_close` is called then, on the thread
    that closes."""

    def __init__(self) -> None:
        self.on_close: Callable[[], None] | None = None
        self._over = Event()

    @property
    def is_closed(self) -> bool:
        return self._over.is_set()

    def wait(self, timeout_s: float) -> bool:
        """Whether it was closed meanwhile."""
        return self._over.wait(timeout_s)

    def ring(self) -> None:
        """Resuming: the next poll fetches again."""

    def close(self) -> None:
        self._over.set()
        on_close = self.on_close
        if on_close is not None:
            on_close()


def reads_nothing() -> InvalidArgument:
    """What a poll without a limit says that would wait for ever."""
    return InvalidArgument(
        "this consumer reads nothing, so it would wait for ever; subscribe() to topics or assign() partitions first"
    )
