"""Where readers stand: names for partitions, and what may be said instead of an offset."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Literal, NamedTuple

from foldlog.broker.bookmarks import OffsetAndMetadata
from foldlog.client.arrivals import AnyPartition
from foldlog.errors import InvalidArgument, OffsetOutOfRange

Place = int | Literal["start", "end"]
"""An offset, or a name for the log start offset or the high watermark at the moment of the call."""


class TopicPartition(NamedTuple):
    """One partition of a topic; equal to the plain tuple, which every method takes as well.

    >>> TopicPartition("orders", 0) == ("orders", 0)
    True
    """

    topic: str
    partition: int


def checked_partitions(partitions: Iterable[object]) -> list[TopicPartition]:
    """Pairs of topic and number, as TopicPartitions, each once.

    >>> checked_partitions([("orders", 0), ("orders", 0)])
    [TopicPartition(topic='orders', partition=0)]
    """
    found: dict[TopicPartition, None] = {}
    for pair in partitions:
        if not isinstance(pair, tuple) or len(pair) != 2 or not isinstance(pair[0], str) or type(pair[1]) is not int:
            raise InvalidArgument(f"{pair!r} is not a pair of topic and partition number")
        found[TopicPartition(*pair)] = None
    return list(found)


def checked_offset(offset: object, what: str = "offset") -> int:
    """
    >>> checked_offset(14)
    14
    """
    if type(offset) is int and offset >= 0:
        return offset
    raise InvalidArgument(f"{what} {offset!r} is not an offset: an int of 0 or more")


def checked_count(what: str, count: object) -> int:
    """
    >>> checked_count("max_records", 500)
    500
    """
    if type(count) is int and count >= 1:
        return count
    raise InvalidArgument(f"{what}={count!r} is not a count: an int of 1 or more")


def resolve_place(log: AnyPartition, place: object, what: str) -> int:
    """The offset that `place` means in this partition now; OffsetOutOfRange if the log does not hold it."""
    if place == "start":
        return log.log_start_offset
    if place == "end":
        return log.high_watermark
    if isinstance(place, str):
        raise InvalidArgument(f"{what}={place!r} is not an offset, 'start' or 'end'")
    offset = checked_offset(place, what)
    start, end = log.log_start_offset, log.high_watermark
    if start <= offset <= end:
        return offset
    topic, number = log.label
    why = "it has not been written yet" if offset > end else "retention, compaction or a deletion moved the log start"
    raise OffsetOutOfRange(topic, number, offset, start, end, why)


def commit_entries(
    offsets: Mapping[tuple[str, int], int | OffsetAndMetadata], metadata: str
) -> dict[TopicPartition, OffsetAndMetadata]:
    """What a caller gave to `commit`, with `metadata` for the offsets that have none of their own."""
    entries: dict[TopicPartition, OffsetAndMetadata] = {}
    for pair, given in offsets.items():
        (partition,) = checked_partitions([pair])
        if isinstance(given, OffsetAndMetadata):
            entries[partition] = given
        else:
            entries[partition] = OffsetAndMetadata(checked_offset(given), metadata=metadata)
    return entries
