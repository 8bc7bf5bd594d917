"""The digest is the same exactly if the rows are, and a comparison finds exactly the rows that differ.

The model is plain Python: a multiset of rows, each a frozen set of its columns that are not null. Hypothesis draws
small tables from few values, so that equal and almost equal ones come up all the time.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Hashable, Iterator
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from itertools import pairwise
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from foldlog.errors import InvalidArgument
from foldlog.views.digest import Digest, compare, digest

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)

VALUES: dict[str, tuple[pa.DataType, list[Any]]] = {
    "integer": (pa.int64(), [None, 0, 1, -1, 2**63 - 1, -(2**63)]),
    "short": (pa.int8(), [None, 0, 1, -1]),
    "float": (pa.float64(), [None, 0.0, -0.0, 1.5, math.nan, math.inf]),
    "flag": (pa.bool_(), [None, False, True]),
    "text": (pa.string(), [None, "", "a", "ab", "+", "\x00"]),
    "bytes": (pa.binary(), [None, b"", b"a", b"ab", b"\x00"]),
    "price": (pa.decimal128(20, 4), [None, Decimal("1.5000"), Decimal("-1.5000"), Decimal("0.0001")]),
    "at": (pa.timestamp("us", "UTC"), [None, NOON, NOON + timedelta(microseconds=1)]),
    "day": (pa.date32(), [None, date(1969, 12, 31), date(2026, 1, 1)]),
    "list": (pa.list_(pa.string()), [None, [], [None], ["a"], ["", "a"], ["a", ""]]),
    "nested": (pa.list_(pa.list_(pa.int32())), [None, [[]], [[1], []], [[], [1]], [[1, None]]]),
    "struct": (
        pa.struct([("x", pa.int32()), ("y", pa.string())]),
        [None, {"x": None, "y": None}, {"x": 1, "y": "a"}, {"x": 1, "y": None}],
    ),
    "map": (pa.map_(pa.string(), pa.int64()), [None, [], [("a", 1)], [("a", 1), ("b", None)], [("b", None), ("a", 1)]]),
}


def said(value: object) -> Hashable:
    """What a value says, so that Python's equality is the equality of the digest."""
    if isinstance(value, float):
        return "nan" if math.isnan(value) else value + 0.0
    if isinstance(value, dict):
        return frozenset((name, said(inner)) for name, inner in value.items() if inner is not None)
    if isinstance(value, list) and value and isinstance(value[0], tuple):
        return frozenset((key, said(inner)) for key, inner in value)
    if isinstance(value, list):
        return tuple(said(inner) for inner in value)
    assert isinstance(value, Hashable)
    return value


def multiset(batches: list[pa.RecordBatch]) -> Counter[Hashable]:
    return Counter(said(row) for batch in batches for row in batch.to_pylist())


@st.composite
def tables(draw: st.DrawFn, columns: list[str] | None = None) -> pa.RecordBatch:
    names = columns or draw(st.lists(st.sampled_from(sorted(VALUES)), min_size=1, max_size=4, unique=True))
    rows = draw(st.integers(0, 6))
    return pa.record_batch(
        [
            pa.array(draw(st.lists(st.sampled_from(VALUES[name][1]), min_size=rows, max_size=rows)), VALUES[name][0])
            for name in names
        ],
        names=names,
    )


@st.composite
def pairs(draw: st.DrawFn) -> tuple[pa.RecordBatch, pa.RecordBatch]:
    """Two tables of the same columns."""
    left = draw(tables())
    return left, draw(tables(left.schema.names))


def cut(batch: pa.RecordBatch, order: list[int], edges: list[int]) -> list[pa.RecordBatch]:
    """Those rows in another order, as slices of one batch."""
    mixed = batch.take(pa.array(order, pa.int64()))
    bounds = [0, *sorted(edge % (batch.num_rows + 1) for edge in edges), batch.num_rows]
    return [mixed.slice(start, stop - start) for start, stop in pairwise(bounds)]


def of(*batches: pa.RecordBatch) -> Digest:
    return digest(iter(batches))


def column(values: list[Any], kind: pa.DataType) -> pa.RecordBatch:
    return pa.record_batch({"c": pa.array(values, kind)})


@given(st.data(), tables(), st.lists(st.integers(0, 10), max_size=3))
def test_neither_the_order_of_rows_nor_their_cut_into_batches_matters(
    data: st.DataObject, batch: pa.RecordBatch, edges: list[int]
) -> None:
    order = data.draw(st.permutations(range(batch.num_rows)))
    names = data.draw(st.permutations(batch.schema.names))
    parts = [part.select(names) for part in cut(batch, order, edges)]
    assert of(*parts) == of(batch)


@given(pairs())
def test_two_tables_have_one_digest_exactly_if_they_hold_the_same_rows(
    pair: tuple[pa.RecordBatch, pa.RecordBatch],
) -> None:
    left, right = pair
    assert (of(left) == of(right)) == (multiset([left]) == multiset([right]))


@given(pairs(), st.integers(0, 3))
def test_a_comparison_counts_what_only_one_side_has_and_shows_some_of_it(
    pair: tuple[pa.RecordBatch, pa.RecordBatch], limit: int
) -> None:
    left, right = pair
    found = compare(lambda: iter([left]), lambda: iter([right]), limit)
    model_left, model_right = multiset([left]), multiset([right])
    only_left, only_right = model_left - model_right, model_right - model_left
    assert (found.only_left, found.only_right) == (only_left.total(), only_right.total())
    assert found.is_equal == (model_left == model_right)
    for examples, only in ((found.examples_left, only_left), (found.examples_right, only_right)):
        assert len(examples) == min(limit, only.total())
        assert Counter(said(row) for row in examples) <= only


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (column([1, None, -7], pa.int8()), column([1, None, -7], pa.int64())),
        (column([1, 200], pa.uint8()), column([1, 200], pa.uint64())),
        (column([0.5, math.nan], pa.float32()), column([0.5, -math.nan], pa.float64())),
        (column([-0.0], pa.float64()), column([0.0], pa.float64())),
        (column(["a", None], pa.string()), column(["a", None], pa.large_string())),
        (column(["a", None], pa.string()), column(["a", None], pa.string_view())),
        (column(["a", "a"], pa.string()), column(["a", "a"], pa.dictionary(pa.int8(), pa.string()))),
        (column([b"ab"], pa.binary()), column([b"ab"], pa.binary(2))),
        (column([b"ab"], pa.large_binary()), column([b"ab"], pa.binary_view())),
        (column([Decimal("1.50")], pa.decimal128(10, 2)), column([Decimal("1.5")], pa.decimal256(40, 1))),
        (column([NOON], pa.timestamp("s", "UTC")), column([NOON], pa.timestamp("ns", "UTC"))),
        (column([NOON], pa.timestamp("us", "UTC")), column([NOON], pa.timestamp("us", "Asia/Kolkata"))),
        (column([NOON], pa.timestamp("us", "UTC")), column([NOON.replace(tzinfo=None)], pa.timestamp("us"))),
        (column([date(2026, 1, 1)], pa.date32()), column([date(2026, 1, 1)], pa.date64())),
        (column([NOON.time()], pa.time32("ms")), column([NOON.time()], pa.time64("ns"))),
        (column([timedelta(seconds=1)], pa.duration("s")), column([timedelta(seconds=1)], pa.duration("us"))),
        (column([[1, 2], None], pa.list_(pa.int8())), column([[1, 2], None], pa.large_list(pa.int64()))),
        (column([[1, 2], None], pa.list_(pa.int8())), column([[1, 2], None], pa.list_(pa.int8(), 2))),
        (column([[1, 2], None], pa.list_(pa.int8())), column([[1, 2], None], pa.list_view(pa.int8()))),
        (
            column([{"x": 1, "y": "a"}], pa.struct([("x", pa.int8()), ("y", pa.string())])),
            column([{"x": 1, "y": "a"}], pa.struct([("y", pa.large_string()), ("x", pa.int64())])),
        ),
        (column([None, None], pa.null()), column([None, None], pa.string())),
    ],
)
def test_the_same_value_in_another_type_is_the_same_value(first: pa.RecordBatch, second: pa.RecordBatch) -> None:
    assert of(first) == of(second)


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (column(["1"], pa.string()), column([1], pa.int64())),
        (column(["a"], pa.string()), column([b"a"], pa.binary())),
        (column([""], pa.string()), column([None], pa.string())),
        (column([2**64 - 1], pa.uint64()), column([-1], pa.int64())),
        (column([[]], pa.list_(pa.string())), column([None], pa.list_(pa.string()))),
        (column([[]], pa.list_(pa.string())), column([[None]], pa.list_(pa.string()))),
        (column([["ab", ""]], pa.list_(pa.string())), column([["a", "b"]], pa.list_(pa.string()))),
        (column([1, 1], pa.int64()), column([1], pa.int64())),
        (pa.record_batch({"a": ["x"], "b": [None]}), pa.record_batch({"a": [None], "b": ["x"]})),
        (pa.record_batch({"a": ["xy"], "b": ["z"]}), pa.record_batch({"a": ["x"], "b": ["yz"]})),
        (column([{"x": "1"}], pa.struct([("x", pa.string())])), column([{"y": "1"}], pa.struct([("y", pa.string())]))),
    ],
)
def test_values_that_only_look_alike_are_told_apart(first: pa.RecordBatch, second: pa.RecordBatch) -> None:
    assert of(first) != of(second)


def test_a_column_that_is_null_everywhere_is_no_difference() -> None:
    plain = pa.record_batch({"id": [1, 2]})
    grown = pa.record_batch({"id": [1, 2], "note": pa.array([None, None], pa.string())})
    assert of(plain) == of(grown)


def test_nothing_at_all_has_a_digest_too() -> None:
    assert of() == of(column([], pa.int64())) == Digest(0, "0" * 32)


def test_batches_longer_than_a_portion_are_covered_to_their_end() -> None:
    many = column(list(range(70_000)), pa.int64())
    assert of(many) == of(many.slice(40_000), many.slice(0, 40_000))
    found = compare(lambda: iter([many]), lambda: iter([many.slice(0, 69_999)]))
    assert (found.only_left, found.only_right, found.examples_left) == (1, 0, [{"c": 69_999}])


def test_a_comparison_reads_again_only_where_something_differs() -> None:
    passes: Counter[int] = Counter()

    def scan(number: int) -> Iterator[pa.RecordBatch]:
        passes[number] += 1
        yield column([number], pa.int64())

    assert compare(lambda: scan(1), lambda: scan(1)).is_equal
    assert passes == {1: 2}, "once for each side"
    assert not compare(lambda: scan(2), lambda: scan(3)).is_equal
    assert passes == {1: 2, 2: 3, 3: 3}, "sums, then counts, then examples"


def test_what_cannot_be_compared_is_said() -> None:
    with pytest.raises(InvalidArgument, match="two columns of the same name"):
        of(pa.record_batch([pa.array([1]), pa.array([2])], names=["a", "a"]))
    with pytest.raises(InvalidArgument, match="month_day_nano"):
        of(column([None], pa.month_day_nano_interval()))
    with pytest.raises(InvalidArgument, match="more than 38 digits"):
        of(column([Decimal("1e60")], pa.decimal256(70, 0)))
