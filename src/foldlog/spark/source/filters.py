"""Filters that Spark offers to the source, turned into fewer offsets to read.

Exact, and so not applied again by Spark: equality and `IN` on topic and partition, comparisons on offset, and IS NOT
NULL of these. A lower bound on timestamp becomes a look-up in the time index: everything before the first record of
that time or later is older, but later records may be older as well, so Spark applies it again. An upper bound on
timestamp says nothing about offsets, as records need not be in order of time.

With latestPerKey only lower bounds are used: an upper bound on offsets would make an older record the newest.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Final

from pyspark.sql.datasource import (
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
)

from foldlog.spark.origins.origin import Origin
from foldlog.spark.source.offsets import PlannedRange

_NEVER_NULL: Final = frozenset({"topic", "partition", "offset", "timestamp", "timestampType"})
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND: Final = timedelta(milliseconds=1)


@dataclass(frozen=True, slots=True)
class Narrowing:
    """Limits on the rows that a query can want; None for no limit. `stop_offset` is exclusive."""

    topics: frozenset[str] | None = None
    partitions: frozenset[int] | None = None
    start_offset: int | None = None
    stop_offset: int | None = None
    start_ms: int | None = None

    def of_topics(self, names: Iterable[str]) -> Narrowing:
        chosen = frozenset(names)
        return replace(self, topics=chosen if self.topics is None else self.topics & chosen)

    def of_partitions(self, numbers: Iterable[int]) -> Narrowing:
        chosen = frozenset(numbers)
        return replace(self, partitions=chosen if self.partitions is None else self.partitions & chosen)

    def from_offset(self, offset: int) -> Narrowing:
        return replace(self, start_offset=offset if self.start_offset is None else max(self.start_offset, offset))

    def to_offset(self, offset: int) -> Narrowing:
        return replace(self, stop_offset=offset if self.stop_offset is None else min(self.stop_offset, offset))

    def from_time(self, time_ms: int) -> Narrowing:
        return replace(self, start_ms=time_ms if self.start_ms is None else max(self.start_ms, time_ms))


def take_filters(
    filters: Iterable[Filter], narrowing: Narrowing, *, latest_per_key: bool
) -> tuple[Narrowing, list[Filter]]:
    """The narrowing by these filters, and the filters that Spark still has to apply."""
    left: list[Filter] = []
    for one in filters:
        taken = _taken(one, narrowing, latest_per_key)
        if taken is None:
            left.append(one)
        else:
            narrowing, is_exact = taken
            if not is_exact:
                left.append(one)
    return narrowing, left


def _taken(one: Filter, narrowing: Narrowing, latest_per_key: bool) -> tuple[Narrowing, bool] | None:
    """The narrowing by one more filter, and whether it covers the filter exactly; None if not at all."""
    match one:
        case IsNotNull(attribute=(name,)) if name in _NEVER_NULL:
            return narrowing, True
        case EqualTo(attribute=("topic",), value=str(name)):
            return narrowing.of_topics([name]), True
        case In(attribute=("topic",), value=names):
            return narrowing.of_topics(name for name in names if isinstance(name, str)), True
        case EqualTo(attribute=("partition",), value=int(number)):
            return narrowing.of_partitions([number]), True
        case In(attribute=("partition",), value=numbers):
            return narrowing.of_partitions(number for number in numbers if isinstance(number, int)), True
        case _ if _is_on(one, "offset"):
            return _offset_taken(one, narrowing, latest_per_key)
        case _ if _is_on(one, "timestamp"):
            return _time_taken(one, narrowing)
        case _:
            return None


def _is_on(one: Filter, name: str) -> bool:
    return getattr(one, "attribute", None) == (name,)


def _offset_taken(one: Filter, narrowing: Narrowing, latest_per_key: bool) -> tuple[Narrowing, bool] | None:
    match one:
        case GreaterThan(value=int(offset)):
            return narrowing.from_offset(offset + 1), True
        case GreaterThanOrEqual(value=int(offset)):
            return narrowing.from_offset(offset), True
        case EqualTo(value=int(offset)) if latest_per_key:
            return narrowing.from_offset(offset), False
        case EqualTo(value=int(offset)):
            return narrowing.from_offset(offset).to_offset(offset + 1), True
        case LessThan(value=int(offset)) if not latest_per_key:
            return narrowing.to_offset(offset), True
        case LessThanOrEqual(value=int(offset)) if not latest_per_key:
            return narrowing.to_offset(offset + 1), True
        case _:
            return None


def _time_taken(one: Filter, narrowing: Narrowing) -> tuple[Narrowing, bool] | None:
    match one:
        case GreaterThan(value=datetime() as time) | GreaterThanOrEqual(value=datetime() as time):
            return narrowing.from_time(_floor_ms(time)), False
        case EqualTo(value=datetime() as time):
            return narrowing.from_time(_floor_ms(time)), False
        case _:
            return None


def _floor_ms(time: datetime) -> int:
    """The millisecond that contains a time: all records of earlier milliseconds are before it."""
    at = time if time.tzinfo is not None else time.replace(tzinfo=UTC)
    return (at - _EPOCH) // _MILLISECOND


def narrowed(origin: Origin, planned: Iterable[PlannedRange], by: Narrowing) -> list[PlannedRange]:
    """The rest of the ranges; empty ones are left out."""
    left: list[PlannedRange] = []
    for one in planned:
        topic, partition, start, stop = one.wanted
        if by.topics is not None and topic not in by.topics:
            continue
        if by.partitions is not None and partition not in by.partitions:
            continue
        if by.start_offset is not None and by.start_offset > start:
            start = by.start_offset
        if by.stop_offset is not None:
            stop = min(stop, by.stop_offset)
        if by.start_ms is not None and start < stop:
            found = origin.offsets_at(topic, {partition: by.start_ms})[partition]
            start = stop if found is None else max(start, found)
        if start < stop:
            left.append(one._replace(wanted=one.wanted._replace(start=start, stop=stop)))
    return left
