"""A consumer's position in one partition: what it has handed out, and what it has decoded ahead."""

from __future__ import annotations

import logging

from foldlog.client.consumer.assignments import Since
from foldlog.client.isolation import ReadablePartition, held_end
from foldlog.client.positions import TopicPartition
from foldlog.client.serializers import Deserializer, deserialized
from foldlog.errors import FoldlogError, InvalidArgument, OffsetOutOfRange
from foldlog.limits import DECODED_BYTES
from foldlog.log.checkpoint import out_of_range
from foldlog.records.loops import Record, decode

_log = logging.getLogger("foldlog")

RESETS = ("latest", "earliest", "none")


class Cursor:
    """Reads one partition forward. Belongs to its consumer's thread.

    `position` is the next offset to hand out; for auto-commit, all below `handled` is handled. A slice of the log is
    decoded whole, once, and handed out in pieces: the loop over records is compiled, the loop over polls is not.
    """

    __slots__ = (
        "_ahead",
        "_fetch_offset",
        "_next",
        "_of_key",
        "_of_value",
        "_reset",
        "committed",
        "handled",
        "is_paused",
        "log",
        "partition",
        "position",
        "problem",
        "since",
        "started_at",
        "topic_id",
    )

    def __init__(
        self,
        partition: TopicPartition,
        topic_id: str,
        log: ReadablePartition,
        position: int,
        reset: str,
        deserializers: tuple[Deserializer | None, Deserializer | None],
    ) -> None:
        self.partition = partition
        self.topic_id = topic_id  # a topic of the same name with another id is another topic
        self.log = log
        self.is_paused = False
        self.since: Since | None = None  # since when it is assigned to this member of its group
        self.committed = -1  # the last committed offset, to leave out partitions that have not moved
        self._reset = reset
        self._of_key, self._of_value = deserializers
        self.started_at = position  # nothing was handed out while the position is still this
        self.seek(position)

    def seek(self, offset: int) -> None:
        """Go on from `offset`. Handed-out records count as handled no further than that."""
        self.position = offset
        self.handled = offset
        self._fetch_offset = offset
        self._ahead: list[Record] = []
        self._next = 0
        self.problem: FoldlogError | None = None

    def known_position(self) -> int:
        """`position`; raises the problem if it is not known."""
        if self.problem is not None:
            raise self.problem
        return self.position

    def lag(self) -> int:
        """How many offsets are between here and the end of the log."""
        return max(0, self.log.acknowledged_end() - self.position)

    def is_behind(self) -> bool:
        """Whether there is something to read, after a sync of acknowledged records."""
        try:
            return self.log.acknowledged_end() > self._fetch_offset
        except FoldlogError:
            return False  # reading it reports what is wrong

    def take(self, limit: int, fetch_bytes: int) -> list[Record]:
        """Up to `limit` records from here on; none if there is nothing to read yet."""
        if self.problem is not None:
            raise self.problem
        ahead = self._ahead
        first = self._next
        if first >= len(ahead):
            if not self._fetch(fetch_bytes):
                return []
            ahead = self._ahead
            first = 0
        end = first + limit
        taken = ahead if first == 0 and end >= len(ahead) else ahead[first:end]
        if self._of_key is not None or self._of_value is not None:
            taken = deserialized(taken, self._of_key, self._of_value)
        end = first + len(taken)
        if end >= len(ahead):
            # Past the gaps that compaction and control records leave, so that a reader at the end has no lag.
            self.position = self._fetch_offset
            self._ahead = []
            self._next = 0
        else:
            self.position = ahead[end].offset
            self._next = end
        return taken

    def _fetch(self, fetch_bytes: int) -> bool:
        """Decode the next slice that holds records. False if there is none."""
        topic, number = self.partition
        while (end := self.log.high_watermark) != self._fetch_offset:
            try:
                if self._fetch_offset > end and self._fetch_offset > (end := held_end(self.log)):
                    raise out_of_range(self.partition, self._fetch_offset, self.log.log_start_offset, end)
                data, next_offset, _ = self.log.read(self._fetch_offset, fetch_bytes)
            except OffsetOutOfRange as error:
                self._leave_range(error)
                continue
            if not data:
                if next_offset == self._fetch_offset:
                    return False
                self._fetch_offset = self.position = next_offset  # behind aborted transactions
                continue
            records, decoded_to = decode(
                data,
                topic,
                number,
                start_offset=self._fetch_offset,
                decompressed_limit=self.log.decompressed_limit,
                enough_bytes=DECODED_BYTES,
            )
            self._fetch_offset = next_offset = min(next_offset, decoded_to)
            if records:
                self._ahead = records
                self._next = 0
                return True
            self.position = next_offset
        return False

    def _leave_range(self, error: OffsetOutOfRange) -> None:
        """The log no longer holds the position: move it by auto_offset_reset, or raise."""
        if self._reset == "none":
            raise error
        self.seek(self.log.log_start_offset if self._reset == "earliest" else self.log.acknowledged_end())
        _log.warning("%s; going on at %d, as auto_offset_reset=%r says", error, self.position, self._reset)


def checked_reset(reset: object) -> str:
    """
    >>> checked_reset("earliest")
    'earliest'
    """
    if isinstance(reset, str) and reset in RESETS:
        return reset
    raise InvalidArgument(f"auto_offset_reset={reset!r} is not one of {', '.join(map(repr, RESETS))}")
