"""From options to offsets: which partitions, from where to where, and in how many tasks.

The rules are those of Spark's Kafka source. Two things are stricter here: an assigned partition that does not exist is
an error, and so are offsets that are not in the log, with the cause (unless failOnDataLoss is false).
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from foldlog.errors import InvalidArgument, UnknownPartition
from foldlog.spark.origins.missing import records_missing
from foldlog.spark.origins.origin import Bounds, OffsetRange, Origin, TopicFacts
from foldlog.spark.source.options import (
    EARLIEST,
    LATEST,
    Assign,
    AtOffsets,
    AtTime,
    AtTimes,
    Earliest,
    Latest,
    Limit,
    OnNoMatch,
    ReadOptions,
    Side,
    Subscribe,
    TopicChoice,
    TopicPartition,
)

_log = logging.getLogger("foldlog")


@dataclass(frozen=True, slots=True)
class Assigned:
    """The topics of a choice at one moment, and their partitions with their bounds, in order."""

    topics: Mapping[str, TopicFacts]
    bounds: Mapping[TopicPartition, Bounds]


class PlannedRange(NamedTuple):
    """The range of one task. `is_earliest`: from the log start, so that records that expire meanwhile are no loss."""

    wanted: OffsetRange
    topic_id: str
    is_earliest: bool = False


def assigned(origin: Origin, choice: TopicChoice) -> Assigned:
    """The current topics. UnknownTopic and UnknownPartition if a named one does not exist; a pattern may match none."""
    if isinstance(choice, Assign):
        names: Iterable[str] = {topic for topic, _ in choice.partitions}
    elif isinstance(choice, Subscribe):
        names = choice.names
    else:
        names = [name for name in origin.topics() if re.fullmatch(choice.pattern, name)]
    topics = {name: origin.topic(name) for name in sorted(names)}
    wanted = set(choice.partitions) if isinstance(choice, Assign) else None
    bounds: dict[TopicPartition, Bounds] = {}
    for name in topics:
        for partition, bound in sorted(origin.bounds(name).items()):
            if wanted is None or (name, partition) in wanted:
                bounds[name, partition] = bound
    for name, partition in sorted((wanted or set()) - bounds.keys()):
        raise UnknownPartition(name, partition, topics[name].partition_count)
    return Assigned(topics, bounds)


def resolve(
    origin: Origin, now: Assigned, limit: Limit, side: Side, on_no_match: OnNoMatch = "error"
) -> dict[TopicPartition, int]:
    """An offset for each partition. Given offsets are not compared with the log."""
    bounds = now.bounds
    match limit:
        case Earliest():
            return {partition: bound.start for partition, bound in bounds.items()}
        case Latest():
            return {partition: bound.end for partition, bound in bounds.items()}
        case AtOffsets(offsets):
            _require_all(f"{side}Offsets", offsets, bounds, "; -2 is the start of a partition, -1 its end")
            words = {partition: {EARLIEST: bound.start, LATEST: bound.end} for partition, bound in bounds.items()}
            return {partition: words[partition].get(offsets[partition], offsets[partition]) for partition in bounds}
        case AtTime(time_ms):
            return _at_times(origin, now, dict.fromkeys(bounds, time_ms), side, on_no_match)
        case AtTimes(times_ms):
            _require_all(f"{side}OffsetsByTimestamp", times_ms, bounds, "")
            return _at_times(origin, now, times_ms, side, on_no_match)


def _require_all(
    name: str, given: Mapping[TopicPartition, int], read: Mapping[TopicPartition, Bounds], hint: str
) -> None:
    lacking, foreign = sorted(read.keys() - given.keys()), sorted(given.keys() - read.keys())
    if lacking or foreign:
        topic, partition = (lacking or foreign)[0]
        what = "is not among them" if lacking else "is, and is not read"
        raise InvalidArgument(
            f"{name} has to name every partition that is read and no other, and {topic}-{partition} {what}{hint}"
        )


def _at_times(
    origin: Origin, now: Assigned, times_ms: Mapping[TopicPartition, int], side: Side, on_no_match: OnNoMatch
) -> dict[TopicPartition, int]:
    found: dict[TopicPartition, int] = {}
    for topic in now.topics:
        of_topic = {partition[1]: times_ms[partition] for partition in now.bounds if partition[0] == topic}
        for partition, offset in origin.offsets_at(topic, of_topic).items():
            if offset is None and side == "starting" and on_no_match == "error":
                raise InvalidArgument(
                    f"{topic}-{partition} holds no record at or after {of_topic[partition]} ms to start from; take an"
                    " earlier time, or set startingOffsetsByTimestampStrategy to 'latest'"
                )
            found[topic, partition] = now.bounds[topic, partition].end if offset is None else offset
    return {partition: found[partition] for partition in now.bounds}


def plan_batch(origin: Origin, options: ReadOptions) -> list[PlannedRange]:
    """The ranges that a batch reads of each partition, not yet split. Empty ones are left out.

    RecordsMissing if given offsets are not in the log; with failOnDataLoss=false they are left out, and their number is
    logged as a warning.
    """
    now = assigned(origin, options.topics)
    starts = resolve(origin, now, options.starting, "starting", options.on_no_match)
    stops = resolve(origin, now, options.ending, "ending")
    planned: list[PlannedRange] = []
    for (topic, partition), bound in now.bounds.items():
        wanted = OffsetRange(topic, partition, starts[topic, partition], stops[topic, partition])
        given = _given(options.starting, wanted)
        if given is not None or isinstance(options.ending, AtOffsets):
            wanted = _within(origin, wanted, bound, now.topics[topic].topic_id, fails=options.fail_on_data_loss)
        if wanted.start < wanted.stop:
            is_earliest = isinstance(options.starting, Earliest) or given == EARLIEST
            planned.append(PlannedRange(wanted, now.topics[topic].topic_id, is_earliest))
    return planned


def _given(limit: Limit, wanted: OffsetRange) -> int | None:
    return limit.offsets[wanted.topic, wanted.partition] if isinstance(limit, AtOffsets) else None


def _within(origin: Origin, wanted: OffsetRange, bound: Bounds, topic_id: str, *, fails: bool) -> OffsetRange:
    """The range as far as the log holds it. If something is missing, an error or a warning."""
    held = wanted._replace(start=max(wanted.start, bound.start), stop=min(wanted.stop, bound.end))
    is_whole = held.start == wanted.start <= bound.end and held.stop == wanted.stop
    if is_whole or wanted.start == wanted.stop:
        return wanted if is_whole else held
    if fails:
        lost = wanted.stop if held.start == wanted.start <= bound.end else wanted.start
        cause = origin.missing(wanted.topic, topic_id, wanted.partition, lost) or "expired"
        raise records_missing(wanted, cause, bound, origin.spec.location)
    skipped = max(0, wanted.stop - wanted.start) - max(0, held.stop - held.start)
    warn_skipped(wanted, skipped, f"the log holds {bound.start} to {bound.end}")
    return held


def warn_skipped(wanted: OffsetRange, count: int, why: str) -> None:
    """Log how many offsets were lost unread, as a warning of the logger "foldlog"."""
    if count > 0:
        _log.warning(
            "%d offsets of %s-%d were skipped between %d and %d: %s (failOnDataLoss=false)",
            count,
            wanted.topic,
            wanted.partition,
            wanted.start,
            wanted.stop,
            why,
        )


def split(
    planned: Sequence[PlannedRange], min_partitions: int | None = None, max_records: int | None = None
) -> list[PlannedRange]:
    """One task for each range; smaller ones if `max_records` demands it, and then more of them until there are about
    `min_partitions`, each range in proportion to its offsets, as Spark's Kafka source splits them.
    """
    pieces = [piece for piece in planned if _size(piece) > 0]
    if max_records is not None:
        pieces = [part for piece in pieces for part in _cut(piece, -(-_size(piece) // max_records))]
    if min_partitions is None or len(pieces) >= min_partitions:
        return pieces
    total = sum(map(_size, pieces))
    small = [_parts(_size(piece), total, min_partitions) == 1 for piece in pieces]
    # Ranges that are not cut are taken out of the proportion, so that the others make up for it.
    rest = sum(_size(piece) for piece, is_small in zip(pieces, small, strict=True) if not is_small)
    wanted = max(1, min_partitions - sum(small))
    return [
        part
        for piece, is_small in zip(pieces, small, strict=True)
        for part in _cut(piece, 1 if is_small else _parts(_size(piece), rest, wanted))
    ]


def _size(piece: PlannedRange) -> int:
    return piece.wanted.stop - piece.wanted.start


def _parts(size: int, total: int, wanted: int) -> int:
    """The share of `wanted`, rounded half up, at least one."""
    return max(1, (2 * size * wanted + total) // (2 * total))


def _cut(piece: PlannedRange, parts: int) -> list[PlannedRange]:
    start, left = piece.wanted.start, _size(piece)
    found: list[PlannedRange] = []
    for part in range(parts):
        size = left // (parts - part)
        if size:
            found.append(piece._replace(wanted=piece.wanted._replace(start=start, stop=start + size)))
        start, left = start + size, left - size
    return found
