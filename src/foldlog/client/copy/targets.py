"""The target of a copy: its interface, and how a partition is recognized as a copy of its source.

How far an earlier copy came is read from the target itself, so that a killed one continues without duplicates: see
directory.py and cluster.py. No other process may write to the partitions meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, NamedTuple, Protocol

from foldlog.client.copy.batches import records_in
from foldlog.client.copy.offsets import CopyPoint, OffsetMap
from foldlog.client.copy.sides import Side, batches
from foldlog.errors import CopyConflict
from foldlog.limits import COPY_COMPARE_BYTES
from foldlog.records.batch import MAX_INT64
from foldlog.records.loops import Record

_FIRST_LOOK: Final = 1000
"""Offsets before the end of a partition that are compared first; more, if there are no records."""

OnProgress = Callable[[int, int], object]
"""Called with how many offsets of the source were copied since the last call, and their bytes there."""

Content = tuple[int, bytes | None, bytes | None, tuple[tuple[str, bytes | None], ...]]


class Route(NamedTuple):
    """One partition of a copy: from a topic to a topic."""

    topic: str
    to_topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.to_topic}-{self.partition}"


class CopyNumbers(NamedTuple):
    """A producer's id and epoch, and the offset of the copy at which its sequence numbers began."""

    producer_id: int
    epoch: int
    since: int


class CopySpan(NamedTuple):
    """The range of a partition to copy: [start, stop) of the source."""

    route: Route
    start: int
    stop: int


@dataclass(frozen=True, slots=True)
class Resume:
    """Where to go on: at the beginning, or after an earlier copy. `points` are the known points of that.

    `is_hollow`: the target's partition holds not a single record.
    """

    at: CopyPoint
    points: tuple[CopyPoint, ...]
    numbers: CopyNumbers | None = None
    is_hollow: bool = False


@dataclass(slots=True)
class Copied:
    """The result for one partition. `checked_from` is where to begin the comparison."""

    offsets: OffsetMap
    checked_from: CopyPoint
    records: int = 0
    size_bytes: int = 0


class Target(Protocol):
    """Receives copies. One thread uses it."""

    @property
    def side(self) -> Side: ...

    @property
    def keeps_offsets(self) -> bool:
        """Whether every record keeps its offset, whatever holes the source has."""
        ...

    def find(self, source: Side, span: CopySpan) -> Resume:
        """How far a copy of this source has come. Writes nothing. CopyConflict if the partition is no such copy."""
        ...

    def copy(self, source: Side, span: CopySpan, resume: Resume, on_progress: OnProgress) -> Copied:
        """Copy the rest. All of it is acknowledged on return."""
        ...


def nothing_yet(span: CopySpan, target_end: int) -> Resume:
    """The beginning of a copy."""
    first = CopyPoint(span.start, target_end)
    return Resume(first, (first,), is_hollow=True)


def content(record: Record) -> Content:
    """The parts of a record that a copy keeps, besides its offset."""
    return record.timestamp_ms, record.key, record.value, record.headers


def conflict(side: Side, route: Route, why: str) -> CopyConflict:
    return CopyConflict(
        f"{route} of {side.log.path} {why}; copy to a topic of another name ({route.topic}=NAME), or delete this one"
    )


def check_same_end(target: Side, source: Side, span: CopySpan, start: int, end: int, *, is_known: bool) -> bool:
    """Compare the newest records of a partition [start, end) with those at the same offsets of the source.

    False if the partition has no records at all. Raises CopyConflict if it has other records than the source; also if
    none of them is in the source any more, unless it `is_known` to be its copy: nothing else would show it.
    """
    route = span.route
    look = _FIRST_LOOK
    has_records = False
    while True:
        first = max(start, end - look)
        found = contents(target, route.to_topic, route.partition, first, end, COPY_COMPARE_BYTES)
        has_records = has_records or bool(found)
        stop = max(found, default=first - 1) + 1
        wanted = contents(source, route.topic, route.partition, max(span.start, first), stop, COPY_COMPARE_BYTES)
        shared = found.keys() & wanted.keys()
        different = min((offset for offset in shared if found[offset] != wanted[offset]), default=None)
        if different is not None:
            raise conflict(target, route, f"has another record at offset {different} than the source")
        if shared or first == start:
            break
        look *= 16
    if has_records and not shared and not is_known:
        raise conflict(target, route, "has records, of which the source has none")
    return has_records


def contents(
    side: Side, topic: str, partition: int, start: int, stop: int, enough_bytes: int = MAX_INT64
) -> dict[int, Content]:
    """The contents of the records of a range, by offset; of the first ones only, if they are over `enough_bytes`."""
    found: dict[int, Content] = {}
    size_bytes = 0
    for data, header in batches(side, topic, partition, start, stop):
        batch = data[header.position : header.position + header.size]
        found.update({record.offset: content(record) for record in records_in(batch, start, stop)})
        size_bytes += header.size
        if size_bytes >= enough_bytes:
            break
    return found
