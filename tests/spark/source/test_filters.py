"""Filters become offsets: for any filters and any log, reading what is left and applying what was not taken gives the
rows that applying all filters to the whole log gives; with latestPerKey as well. No Spark session.
"""

from __future__ import annotations

import operator
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta, timezone
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    IsNull,
    LessThan,
    LessThanOrEqual,
    Not,
)

import foldlog
from foldlog.spark.origins.by_path import PathOrigin
from foldlog.spark.source.filters import Narrowing, narrowed, take_filters
from foldlog.spark.source.newest import newest_per_key
from foldlog.spark.source.offsets import PlannedRange, plan_batch
from foldlog.spark.source.options import batch_options

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
COMPARE = {
    EqualTo: operator.eq,
    GreaterThan: operator.gt,
    GreaterThanOrEqual: operator.ge,
    LessThan: operator.lt,
    LessThanOrEqual: operator.le,
}


class Row(NamedTuple):
    topic: str
    partition: int
    offset: int
    timestamp: datetime
    key: bytes | None


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[PathOrigin, list[PlannedRange]]]:
    """Two topics of two partitions whose records are out of order in time."""
    path = tmp_path_factory.mktemp("filters") / "log"
    with foldlog.open(path, background=False) as log:
        for topic in ("a", "b"):
            log.create_topic(topic, partitions=2)
            with log.producer() as producer:
                for number in range(20):
                    seconds = [5, 1, 9, 3][number % 4] + number
                    producer.send(
                        topic, value=b"v", key=b"%d" % (number % 5), partition=number % 2, timestamp_ms=1000 * seconds
                    )
        options = batch_options({"path": str(path), "subscribe": "a,b"})
        origin = PathOrigin.open(options.origin)
        yield origin, plan_batch(origin, options)
        origin.close()


def rows_of(origin: PathOrigin, planned: list[PlannedRange], *, latest_per_key: bool) -> list[Row]:
    columns = ["topic", "partition", "offset", "timestamp", "key"]
    found: list[Row] = []
    for one in planned:
        if latest_per_key:
            batches = newest_per_key(lambda names, wanted=one.wanted: origin.read(wanted, names), columns)  # type: ignore[misc]
        else:
            batches = origin.read(one.wanted, columns)
        found += [Row(**row) for batch in batches for row in batch.select(columns).to_pylist()]
    return found


def holds(one: Filter, row: Row) -> bool:
    match one:
        case Not(child):
            return not holds(child, row)
        case IsNotNull(attribute=(name,)):
            return getattr(row, name) is not None
        case IsNull(attribute=(name,)):
            return getattr(row, name) is None
        case In(attribute=(name,), value=values):
            return getattr(row, name) in values
        case EqualNullSafe(attribute=(name,), value=value):
            return bool(getattr(row, name) == value)
        case EqualTo() | GreaterThan() | GreaterThanOrEqual() | LessThan() | LessThanOrEqual():
            return bool(COMPARE[type(one)](getattr(row, one.attribute[0]), one.value))
    raise AssertionError(one)


comparisons = st.sampled_from(list(COMPARE))
offsets = st.builds(lambda kind, value: kind(("offset",), value), comparisons, st.integers(-1, 12))
partitions = st.builds(lambda kind, value: kind(("partition",), value), comparisons, st.integers(0, 2))
times = st.builds(
    lambda kind, at, us: kind(("timestamp",), EPOCH + timedelta(seconds=at, microseconds=us)),
    comparisons,
    st.integers(0, 30),
    st.sampled_from([0, 1, 999, -1]),
)
others = st.sampled_from(
    [
        EqualTo(("topic",), "a"),
        EqualTo(("topic",), "nothing"),
        In(("topic",), ("b", None)),
        In(("partition",), (1, 7, None)),
        In(("offset",), (1, 2)),
        EqualNullSafe(("partition",), 1),
        Not(EqualTo(("partition",), 0)),
        IsNotNull(("offset",)),
        IsNotNull(("key",)),
        IsNull(("partition",)),
    ]
)


@given(st.lists(offsets | partitions | times | others, max_size=4), st.booleans())
def test_no_filter_changes_what_a_query_finds(
    place: tuple[PathOrigin, list[PlannedRange]], filters: list[Filter], latest_per_key: bool
) -> None:
    origin, planned = place
    narrowing, left = take_filters(filters, Narrowing(), latest_per_key=latest_per_key)
    assert all(any(one is given for given in filters) for one in left)
    everything = rows_of(origin, planned, latest_per_key=latest_per_key)
    expected = [row for row in everything if all(holds(one, row) for one in filters)]
    found = rows_of(origin, narrowed(origin, planned, narrowing), latest_per_key=latest_per_key)
    assert [row for row in found if all(holds(one, row) for one in left)] == expected


def test_partitions_and_offsets_are_exact_so_spark_need_not_look_again(
    place: tuple[PathOrigin, list[PlannedRange]],
) -> None:
    origin, planned = place
    filters: list[Filter] = [
        IsNotNull(("offset",)),
        EqualTo(("topic",), "a"),
        In(("partition",), (1,)),
        GreaterThan(("offset",), 2),
        LessThanOrEqual(("offset",), 6),
    ]
    narrowing, left = take_filters(filters, Narrowing(), latest_per_key=False)
    assert left == []
    assert [tuple(one.wanted) for one in narrowed(origin, planned, narrowing)] == [("a", 1, 3, 7)]


def test_a_lower_bound_in_time_is_looked_up_and_left_to_spark(place: tuple[PathOrigin, list[PlannedRange]]) -> None:
    origin, planned = place
    bound = GreaterThanOrEqual(("timestamp",), datetime(1970, 1, 1, 1, 0, 23, tzinfo=timezone(timedelta(hours=1))))
    narrowing, left = take_filters([bound], Narrowing(), latest_per_key=False)
    assert left == [bound]
    assert narrowing.start_ms == 23_000
    assert [tuple(one.wanted) for one in narrowed(origin, planned, narrowing)] == [("a", 0, 7, 10), ("b", 0, 7, 10)]


def test_an_upper_bound_in_time_says_nothing_about_offsets() -> None:
    bound = LessThan(("timestamp",), EPOCH)
    assert take_filters([bound], Narrowing(), latest_per_key=False) == (Narrowing(), [bound])


def test_upper_bounds_do_not_make_older_records_the_newest() -> None:
    bound = LessThan(("offset",), 5)
    assert take_filters([bound], Narrowing(), latest_per_key=True) == (Narrowing(), [bound])
