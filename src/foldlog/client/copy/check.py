"""The last step of a copy: both sides are read again and compared, with counts and digests.

If the batches have the same bytes, those are compared; if not, as a broker may recompress and a copy may leave out
holes, the records are. Records that compaction or retention has meanwhile removed from one side are counted, and are no
difference. Records that an earlier copy brought to other offsets than the source's cannot be compared once the source
has lost some of them: these are counted, too.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from itertools import pairwise
from struct import Struct
from typing import Final, NamedTuple

from foldlog.client.copy.batches import count_from, records_in
from foldlog.client.copy.offsets import CopyPoint
from foldlog.client.copy.sides import Side, batches, compacts, count_records
from foldlog.client.copy.targets import Content, Copied, OnProgress, Route, content
from foldlog.limits import COPY_COMPARE_BYTES
from foldlog.records import batch as fmt
from foldlog.records.loops import BatchHeader

_DIGEST_BYTES = 16
_RECORD: Final = Struct(">qiii")
_HEADER: Final = Struct(">ii")
_SEEN_IN_RECORDS = fmt.COMPRESSION_MASK | fmt.LOG_APPEND_TIME


class ComparedBatch(NamedTuple):
    """One batch, in its own memory."""

    header: BatchHeader
    data: bytes


class CheckWindow(NamedTuple):
    """A range of the source, and the range of the target that is its copy."""

    start: CopyPoint
    stop: CopyPoint
    batches: list[ComparedBatch]  # of the source


@dataclass(slots=True)
class CopyVerdict:
    """The result of comparing one partition. Counts and digests are of records that both sides have; a digest is of the
    records' keys, values, headers and times in order, and of nothing else.

    `removed` counts records that only one side still has, since the other has compacted or expired them. `difference`
    says briefly what else differs, and where; None if nothing does. `uncompared` counts records of an earlier copy that
    can no longer be compared.
    """

    records: int = 0
    removed: int = 0
    uncompared: int = 0
    difference: str | None = None
    source_digest: str = ""
    target_digest: str = ""

    @property
    def is_same(self) -> bool:
        """Whether no difference was found, even if nothing was left to compare."""
        return self.difference is None and self.source_digest == self.target_digest

    @property
    def is_empty(self) -> bool:
        """Whether there are records, and not a single one was compared."""
        return self.records == 0 and self.removed + self.uncompared > 0


@dataclass(slots=True)
class _Both:
    """The two sides of one partition during the comparison. A side may lose records by compaction or retention."""

    source: Side
    target: Side
    route: Route
    is_kept: bool
    source_start: int
    target_start: int
    source_compacts: bool
    target_compacts: bool
    verdict: CopyVerdict = field(default_factory=CopyVerdict)


def compare(
    source: Side, target: Side, route: Route, copied: Copied, on_progress: OnProgress, since: CopyPoint | None = None
) -> CopyVerdict:
    """Compare a copy with its source, all of it or `since` a point, unless an earlier part can no longer be matched by
    counting."""
    both = _Both(
        source,
        target,
        route,
        copied.offsets.is_kept,
        source.bounds(route.topic)[route.partition][0],
        target.bounds(route.to_topic)[route.partition][0],
        compacts(source, route.topic),
        compacts(target, route.to_topic),
    )
    digest = blake2b(digest_size=_DIGEST_BYTES)
    verdict = both.verdict
    different: tuple[list[Content], list[Content]] = [], []
    for window in _windows(both, copied, since):
        found = _read(target, route.to_topic, route.partition, window.start.target, window.stop.target)
        if _same_bytes(both, window, found):
            same = [one for _, one in _contents(found, 0, fmt.MAX_INT64)]
            verdict.records += len(same)
            digest.update(canonical(same))
        else:
            shared = _shared_records(both, window, found)
            if verdict.difference is None:
                digest.update(canonical(shared[0]))
            else:
                different = shared
        on_progress(window.stop.source - window.start.source, sum(len(batch.data) for batch in window.batches))
        if verdict.difference is not None:
            break
    verdict.source_digest, verdict.target_digest = (_ended(digest, rest) for rest in different)
    return verdict


def canonical(records: Iterable[Content]) -> bytes:
    """Records as bytes, independent of batches, codecs and offsets, so that the digests of several copies can be
    compared. Every part comes with its length, -1 for null.

    >>> canonical([(7, b"k", None, (("h", b""),))]).hex(" ", -4)
    '00000000 00000007 00000001 ffffffff 00000001 6b000000 01000000 0068'
    """
    parts: list[bytes] = []
    for timestamp_ms, key, value, headers in records:
        parts.append(_RECORD.pack(timestamp_ms, _length(key), _length(value), len(headers)))
        parts.append(key or b"")
        parts.append(value or b"")
        for name, header in headers:
            encoded = name.encode("utf-8", "surrogatepass")
            parts += _HEADER.pack(len(encoded), _length(header)), encoded, header or b""
    return b"".join(parts)


def _length(data: bytes | None) -> int:
    return -1 if data is None else len(data)


def _ended(digest: blake2b, records: Iterable[Content]) -> str:
    """The digest, including records that only one of the sides has at its end."""
    whole = digest.copy()
    whole.update(canonical(records))
    return whole.hexdigest()


def _windows(both: _Both, copied: Copied, since: CopyPoint | None) -> Iterator[CheckWindow]:
    """Ranges that fit into memory; both sides of each begin and end together."""
    first, last = unchecked(copied, since), copied.offsets.end
    if copied.offsets.is_kept:
        yield from _cut(both, first, last)
        return
    resumed = max(first, copied.checked_from)
    topic, partition = both.route.topic, both.route.partition
    counted = count_records(both.source, topic, partition, first.source, resumed.source)
    if counted == resumed.target - first.target:
        yield from _cut(both, first, resumed)
    else:
        to_topic = both.route.to_topic
        both.verdict.uncompared = count_records(both.target, to_topic, partition, first.target, resumed.target)
    for start, stop in pairwise([resumed, *(point for point in copied.offsets.points if point > resumed)]):
        yield CheckWindow(start, stop, _read(both.source, topic, partition, start.source, stop.source))


def unchecked(copied: Copied, since: CopyPoint | None) -> CopyPoint:
    """Where the comparison of a copy begins, if it was compared up to a point before; its beginning, if that point is
    not in it."""
    first, last = copied.offsets.points[0], copied.offsets.end
    is_in_it = (
        since is not None
        and first.source <= since.source <= last.source
        and first.target <= since.target <= last.target
    )
    if since is None or not is_in_it:
        return first
    return since if copied.offsets.is_kept else min(since, copied.checked_from)


def _cut(both: _Both, first: CopyPoint, last: CopyPoint) -> Iterator[CheckWindow]:
    """Split the source into ranges of about COPY_COMPARE_BYTES. The target follows by offsets if they are the same,
    else by counting records."""
    topic, partition = both.route.topic, both.route.partition
    at, read, size_bytes, count = first, list[ComparedBatch](), 0, 0
    for data, header in batches(both.source, topic, partition, first.source, last.source):
        read.append(_owned(data, header))
        size_bytes += header.size
        count += count_from(data, header, at.source)
        if size_bytes >= COPY_COMPARE_BYTES and header.next_offset < last.source:
            target = header.next_offset if both.is_kept else at.target + count
            stop = CopyPoint(header.next_offset, target)
            yield CheckWindow(at, stop, read)
            at, read, size_bytes, count = stop, [], 0, 0
    if at.source < last.source:
        yield CheckWindow(at, last, read)


def _read(side: Side, topic: str, partition: int, start: int, stop: int) -> list[ComparedBatch]:
    return [_owned(data, header) for data, header in batches(side, topic, partition, start, stop)]


def _owned(data: memoryview, header: BatchHeader) -> ComparedBatch:
    return ComparedBatch(header, bytes(data[header.position : header.position + header.size]))


def _same_bytes(both: _Both, window: CheckWindow, found: Sequence[ComparedBatch]) -> bool:
    """Whether both sides have the same batches, so that they need not be decoded."""
    if len(window.batches) != len(found):
        return False
    for ours, theirs in zip(window.batches, found, strict=True):
        if ours.header.base_offset < window.start.source or ours.header.next_offset > window.stop.source:
            return False
        if both.is_kept and ours.header.base_offset != theirs.header.base_offset:
            return False
        if _meaning(ours) != _meaning(theirs):
            return False
    return True


def _meaning(batch: ComparedBatch) -> tuple[object, ...]:
    """Everything that determines the records of a batch."""
    header = batch.header
    return (
        header.record_count,
        header.last_offset_delta,
        header.base_timestamp,
        header.max_timestamp,
        header.attributes & _SEEN_IN_RECORDS,
        batch.data[fmt.RECORDS_AT :],
    )


def _shared_records(
    both: _Both, window: CheckWindow, found: Sequence[ComparedBatch]
) -> tuple[list[Content], list[Content]]:
    """The records of a window that both sides have, in the order of each; the rest goes into the verdict."""
    ours = _contents(window.batches, window.start.source, window.stop.source)
    theirs = _contents(found, window.start.target, window.stop.target)
    if both.is_kept:
        offsets = {offset for offset, _ in ours} & {offset for offset, _ in theirs}
        mine = {offset: one for offset, one in ours if offset in offsets}
        yours = {offset: one for offset, one in theirs if offset in offsets}
        shared = list(mine.values()), list(yours.values())
        where = next((offset for offset, one in mine.items() if yours[offset] != one), None)
    else:
        known, other = {one for _, one in theirs}, {one for _, one in ours}
        shared = [one for _, one in ours if one in known], [one for _, one in theirs if one in other]
        where = None if shared[0] == shared[1] else window.start.source
    _judge(both, window, len(ours) - len(shared[0]), len(theirs) - len(shared[1]), where)
    both.verdict.records += len(shared[1])
    return shared


def _judge(both: _Both, window: CheckWindow, only_ours: int, only_theirs: int, where: int | None) -> None:
    verdict, stretch = both.verdict, f"offsets {window.start.source} to {window.stop.source} of the source"
    if where is not None:
        verdict.difference = f"other records than the source from its offset {where} on"
    elif only_ours and not (both.target_compacts or window.start.target < both.target_start):
        verdict.difference = f"{only_ours} of the records at {stretch} are missing"
    elif only_theirs and not (both.source_compacts or window.start.source < both.source_start):
        verdict.difference = f"{only_theirs} records too many for {stretch}"
    verdict.removed += only_ours + only_theirs


def _contents(read: Sequence[ComparedBatch], start: int, stop: int) -> list[tuple[int, Content]]:
    return [
        (record.offset, content(record)) for batch in read for record in records_in(memoryview(batch.data), start, stop)
    ]
