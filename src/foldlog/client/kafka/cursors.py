"""A consumer's place in one partition of a cluster: what it has handed out, and what librdkafka gave it ahead."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Protocol

from foldlog.client.kafka.offsets import Bounds
from foldlog.client.positions import TopicPartition
from foldlog.client.serializers import Deserializer, deserialized
from foldlog.errors import FoldlogError
from foldlog.records.loops import Record


class Mover(Protocol):
    """What moves librdkafka along with a cursor."""

    def moved(self, cursor: KafkaCursor) -> None:
        """Fetch from `cursor.position` on."""
        ...

    def paused(self, cursor: KafkaCursor) -> None:
        """Fetch nothing, or again, as `cursor.is_paused` says."""
        ...


class PartitionNow:
    """A partition as it is at the moment of each question: every one is asked of the cluster."""

    def __init__(self, bounds: Callable[[], Bounds], at_time: Callable[[int], int | None]) -> None:
        self._bounds = bounds
        self._at_time = at_time

    @property
    def log_start_offset(self) -> int:
        return self._bounds().log_start_offset

    @property
    def high_watermark(self) -> int:
        return self._bounds().high_watermark

    def offset_at_time(self, timestamp_ms: int) -> tuple[int, int] | None:
        found = self._at_time(timestamp_ms)
        return None if found is None else (found, timestamp_ms)


class KafkaCursor:
    """Reads one partition forward. Belongs to its consumer's thread; `position` and `handled` are as in `Cursor`."""

    def __init__(
        self,
        partition: TopicPartition,
        log: PartitionNow,
        position: int,
        deserializers: tuple[Deserializer | None, Deserializer | None],
        mover: Mover,
    ) -> None:
        self.partition = partition
        self.log = log
        self.committed = -1
        self.started_at = position
        self.leader_epoch = -1
        self.problem: FoldlogError | None = None
        self._of_key, self._of_value = deserializers
        self._mover = mover
        self._is_paused = False
        self.position = position
        self.handled = position
        self.fetched_to = position
        self._ahead: deque[Record] = deque()

    def seek(self, offset: int) -> None:
        """Go on from `offset`. What was handed out before counts as dealt with no further than that."""
        self.position = self.handled = self.fetched_to = offset
        self._ahead.clear()
        self.problem = None
        self._mover.moved(self)

    @property
    def is_paused(self) -> bool:
        return self._is_paused

    @is_paused.setter
    def is_paused(self, is_paused: bool) -> None:
        if is_paused != self._is_paused:
            self._is_paused = is_paused
            self._mover.paused(self)

    def known_position(self) -> int:
        """`position`, or what keeps it from being known."""
        if self.problem is not None:
            raise self.problem
        return self.position

    def lag(self) -> int:
        """How many offsets lie between here and the end."""
        return max(0, self.log.high_watermark - self.position)

    def give(self, record: Record) -> None:
        """What librdkafka fetched next."""
        self._ahead.append(record)
        self.fetched_to = record.offset + 1
        self.leader_epoch = record.leader_epoch

    def reached_end(self, offset: int) -> None:
        """Nothing stands before `offset` but what was given already: gaps and control records are no lag."""
        self.fetched_to = max(self.fetched_to, offset)
        if not self._ahead and self.problem is None:
            self.position = self.fetched_to

    @property
    def ahead(self) -> int:
        """How many records are there to be taken."""
        return 0 if self._is_paused else len(self._ahead)

    def has_records(self) -> bool:
        return self.ahead > 0

    def take(self, limit: int) -> list[Record]:
        """Up to `limit` of what is there."""
        if self.problem is not None:
            raise self.problem
        ahead = self._ahead
        taken = [ahead[index] for index in range(min(limit, len(ahead)))]
        if self._of_key is not None or self._of_value is not None:
            taken = deserialized(taken, self._of_key, self._of_value)
        for _ in taken:
            ahead.popleft()
        self.position = ahead[0].offset if ahead else self.fetched_to
        return taken
