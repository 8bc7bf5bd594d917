"""What was sent to one partition and what was promised about it; judges what is found after a fault."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from foldlog.testing.power_cuts import Violation


@dataclass(frozen=True, slots=True)
class Sent:
    """A record as it was sent."""

    key: bytes | None
    value: bytes | None
    timestamp_ms: int


@dataclass(frozen=True, slots=True)
class Found:
    """A record as it was read, with its offset."""

    offset: int
    key: bytes | None
    value: bytes | None
    timestamp_ms: int


class PartitionHistory:
    """One writer's view of one partition. Informed of each step before it begins and after it was acknowledged.

    `judge` raises Violation unless what was found is what was promised: nothing acknowledged is lost, nothing
    reordered, nothing invented, the log start where it was announced, and the newest record of every key is there.
    """

    def __init__(self) -> None:
        self.sent: list[Sent] = []
        self.acknowledged_end = 0
        self.start_at_least = 0
        self.start_at_most = 0
        self.compactable_end = 0
        self.tombstones_may_go = False
        self.version = 0

    def sending(self, records: Iterable[Sent]) -> int:
        """Records are about to be appended; returns the offset that the first of them must get."""
        first = len(self.sent)
        self.sent += records
        self.version += 1
        return first

    def acknowledged(self, next_offset: int) -> None:
        if next_offset > len(self.sent):
            raise Violation(f"acknowledged up to {next_offset}, though only {len(self.sent)} records were sent")
        self.acknowledged_end = max(self.acknowledged_end, next_offset)
        self.version += 1

    def withdrawn(self, first_offset: int) -> None:
        """The append failed and reported that nothing of it was kept: its offsets are free again."""
        del self.sent[first_offset:]
        self.version += 1

    def forget_unwritten(self, log_end_offset: int) -> None:
        """The log was reopened and ends here: records sent beyond never arrived, and their offsets are free again."""
        if log_end_offset < self.acknowledged_end:
            raise Violation(f"acknowledged up to {self.acknowledged_end}, but the log ends at {log_end_offset}")
        del self.sent[log_end_offset:]
        self.acknowledged(log_end_offset)

    def removing_below(self, offset: int) -> None:
        """Retention or a deletion is about to begin that may move the log start up to `offset`."""
        self.start_at_most = max(self.start_at_most, offset)
        self.version += 1

    def removed_below(self, log_start_offset: int) -> None:
        """The removal returned, and reported that the log now starts here."""
        if not self.start_at_least <= log_start_offset <= self.start_at_most:
            raise Violation(
                f"the log start moved to {log_start_offset}, allowed were {self.start_at_least} to {self.start_at_most}"
            )
        self.start_at_least = self.start_at_most = log_start_offset
        self.version += 1

    def compacting_below(self, offset: int, *, tombstones_may_go: bool = False) -> None:
        """From now on superseded records below `offset` may be missing."""
        self.compactable_end = max(self.compactable_end, offset)
        self.tombstones_may_go |= tombstones_may_go
        self.version += 1

    def judge(self, found: Sequence[Found], log_start_offset: int, log_end_offset: int) -> None:
        if not self.start_at_least <= log_start_offset <= self.start_at_most:
            raise Violation(
                f"the log starts at {log_start_offset}, not between {self.start_at_least} and {self.start_at_most}"
            )
        if log_end_offset < self.acknowledged_end:
            raise Violation(f"acknowledged up to {self.acknowledged_end}, but the log ends at {log_end_offset}")
        if log_end_offset > len(self.sent):
            raise Violation(f"the log ends at {log_end_offset}, though only {len(self.sent)} records were sent")
        self._judge_what_is_there(found, log_start_offset, log_end_offset)
        self._judge_what_is_missing(found, log_start_offset, log_end_offset)

    def _judge_what_is_there(self, found: Sequence[Found], start: int, end: int) -> None:
        last = start - 1
        for record in found:
            if not last < record.offset < end:
                raise Violation(f"offset {record.offset} follows {last} in a log from {start} to {end}")
            last = record.offset
            sent = self.sent[record.offset]
            if (record.key, record.value, record.timestamp_ms) != (sent.key, sent.value, sent.timestamp_ms):
                raise Violation(f"offset {record.offset} was sent as {sent} and is read as {record}")

    def _judge_what_is_missing(self, found: Sequence[Found], start: int, end: int) -> None:
        if len(found) == end - start:
            return
        there = {record.offset for record in found}
        newest_sent = {self.sent[offset].key: offset for offset in range(start, end)}
        keys_found = {record.key for record in found}
        for offset in range(start, end):
            if offset in there:
                continue
            sent = self.sent[offset]
            newest = newest_sent[sent.key]
            if offset >= self.compactable_end or sent.key is None:
                raise Violation(f"offset {offset} is missing in a log from {start} to {end}")
            if offset != newest:
                if newest not in there and sent.key in keys_found:
                    raise Violation(f"offset {newest}, the newest of {sent.key!r}, is missing, and an older one is not")
            elif sent.value is not None or not self.tombstones_may_go or sent.key in keys_found:
                raise Violation(f"offset {offset}, the newest record of key {sent.key!r}, is missing")
