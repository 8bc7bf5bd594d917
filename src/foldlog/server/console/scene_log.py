"""The log's half of the scene "Log or queue?": a real topic of this broker, read by real groups.

The topic is `__log_or_queue`, of one partition; the groups are `__log_or_queue.billing` and so on. Everything so named
is the scene's: two underscores keep it out of listings, and a reset deletes it. On a worker thread: it waits for syncs.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from foldlog.broker.bookmarks import OffsetAndMetadata
from foldlog.errors import UnknownGroup
from foldlog.records.loops import Record, pack
from foldlog.server.console.strips import bounds, next_record
from foldlog.server.console.topics import open_partition

if TYPE_CHECKING:
    from foldlog.broker.broker import Broker
    from foldlog.clock import Clock
    from foldlog.log.partition import Partition

SCENE_TOPIC: Final = "__log_or_queue"

Handle = Callable[[Record], None]
"""What a reader does with a record; it may raise, which is a crash."""


def group_of(reader: str) -> str:
    """
    >>> group_of("billing")
    '__log_or_queue.billing'
    """
    return f"{SCENE_TOPIC}.{reader}"


class SceneLog:
    """Appends to the topic and reads it with the bookmarks that the broker keeps. Nothing is remembered here."""

    def __init__(self, broker: Broker, clock: Clock) -> None:
        self._broker = broker
        self._clock = clock

    # The page shows these two methods as they stand.
    def append(self, value: str) -> int:
        offset = self._write(value)  # at the right end, never over another
        self._wait_until_durable(offset)  # on disk before anybody is told
        return offset

    def read(self, group: str, handle: Handle) -> Record | None:
        offset = self.bookmark(group)  # where this group stands
        record = self.record_at(offset)  # a look: the log stays as it is
        if record is None:
            return None  # it has caught up; more will come
        handle(record)  # a crash in here leaves the bookmark
        self._commit(group, record.offset + 1)  # all that moves
        return record

    @property
    def is_made(self) -> bool:
        return self._broker.find_topic(SCENE_TOPIC) is not None

    def make(self) -> None:
        self._broker.create_topic(SCENE_TOPIC)

    def remove(self, groups: list[str]) -> None:
        """The topic, its records and its groups; GroupNotEmpty if somebody has joined one of them from elsewhere."""
        for group in groups:
            with suppress(UnknownGroup):
                self._broker.delete_group(group)
        if self.is_made:
            self._broker.delete_topic(SCENE_TOPIC)

    def bounds(self) -> tuple[int, int]:
        """Where it starts and ends; of a topic that is not there, 0 and 0."""
        return bounds(self._partition()) if self.is_made else (0, 0)

    def bookmark(self, group: str) -> int:
        """The offset that a group reads next: what it has committed, or where the log starts."""
        start, end = self.bounds()
        committed = self._broker.committed(group).get((SCENE_TOPIC, 0))
        return start if committed is None else min(max(committed.offset, start), end)

    def record_at(self, offset: int) -> Record | None:
        """The record there, or the next after it; None at the end."""
        return next_record(self._partition(), offset) if self.is_made else None

    def _partition(self) -> Partition:
        return open_partition(self._broker, SCENE_TOPIC, 0)

    def _write(self, value: str) -> int:
        # As its own key: the log room shows keys.
        data = value.encode()
        return self._partition().append(pack([(self._clock.now_ms(), data, data, ())])).base_offset

    def _wait_until_durable(self, offset: int) -> None:
        self._partition().wait_acknowledged(offset + 1)

    def _commit(self, group: str, offset: int) -> None:
        bookmark = OffsetAndMetadata(offset, self._partition().leader_epoch)
        self._broker.commit_offsets(group, {(SCENE_TOPIC, 0): bookmark})
