"""Where a copy goes, as the copy sees it: what it asks of a target, and how a target is told from something else.

How far an earlier copy came is read off the target itself, so that one that was killed goes on without doubling: see
directory.py and cluster.py. Nobody else may write to the partitions meanwhile.
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
"""Offsets before the end of a partition that are compared first; more, where there are no records."""

OnProgress = Callable[[int, int], object]
"""Told how many offsets of the source have been dealt with since the last time, and how many bytes they had there."""

Content = tuple[int, bytes | None, bytes | None, tuple[tuple[str, bytes | None], ...]]


class Route(NamedTuple):
    """One partition's way."""

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
    """What of a partition is copied: [start, stop) of the source."""

    route: Route
    start: int
    stop: int


@dataclass(frozen=True, slots=True)
class Resume:
    """Where to go on: at the beginning, or after what an earlier copy has done. `points` are those known of it.

    `is_hollow`: the target's partition holds not a single record.
    """

    at: CopyPoint
    points: tuple[CopyPoint, ...]
    numbers: CopyNumbers | None = None
    is_hollow: bool = False


@dataclass(slots=True)
class Copied:
    """What became of one partition. `checked_from` is where to begin to compare the two."""

    offsets: OffsetMap
    checked_from: CopyPoint
    records: int = 0
    size_bytes: int = 0


class Target(Protocol):
    """Takes copies. One thread uses it."""

    @property
    def side(self) -> Side: ...

    @property
    def keeps_offsets(self) -> bool:
        """Whether every record gets the offset that it had, whatever holes the source has."""
        ...

    def find(self, source: Side, span: CopySpan) -> Resume:
        """How far a copy of this source has come. Writes nothing; CopyConflict if the partition is not such a copy."""
        ...

    def copy(self, source: Side, span: CopySpan, resume: Resume, on_progress: OnProgress) -> Copied:
        """Copy the rest. All of it is acknowledged on return."""
        ...


def nothing_yet(span: CopySpan, target_end: int) -> Resume:
    """Where a copy begins."""
    first = CopyPoint(span.start, target_end)
    return Resume(first, (first,), is_hollow=True)


def content(record: Record) -> Content:
    """What a copy keeps of a record, beside its place."""
    return record.timestamp_ms, record.key, record.value, record.headers


def conflict(side: Side, route: Route, why: str) -> CopyConflict:
    return CopyConflict(
        f"{route} of {side.log.path} {why}; copy to a topic of another name ({route.topic}=NAME), or delete this one"
    )


def check_same_end(target: Side, source: Side, span: CopySpan, start: int, end: int, *, is_known: bool) -> bool:
    """Compare the newest records that a partition [start, end) has with those at the same offsets of the source.

    False if the partition has no records at all. CopyConflict if it has others than the source; also if it has none
    that the source has as well, unless it `is_known` to be its copy: nothing else would tell.
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
    """What the records of a range are, by offset; of the first of them, where there are more bytes than wanted."""
    found: dict[int, Content] = {}
    size_bytes = 0
    for data, header in batches(side, topic, partition, start, stop):
        batch = data[header.position : header.position + header.size]
        found.update({record.offset: content(record) for record in records_in(batch, start, stop)})
        size_bytes += header.size
        if size_bytes >= enough_bytes:
            break
    return found
