"""Rows written as JSON read back as the same Arrow values, of every type that a fold can give, nested ones too."""

from __future__ import annotations

import datetime as dt
import decimal
import json
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from foldlog.errors import InvalidArgument
from foldlog.views.row_json import check_columns, decode_rows, encode_rows

UTC = dt.UTC
_moments = st.datetimes().filter(lambda moment: 1 < moment.year < 9999)
_text = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)

PLAIN: dict[pa.DataType, st.SearchStrategy[Any]] = {
    pa.bool_(): st.booleans(),
    pa.int8(): st.integers(-(2**7), 2**7 - 1),
    pa.int64(): st.integers(-(2**63), 2**63 - 1),
    pa.float32(): st.floats(width=32, allow_nan=False),
    pa.float64(): st.floats(allow_nan=False),
    pa.string(): _text,
    pa.large_string(): _text,
    pa.binary(): st.binary(max_size=12),
    pa.date32(): st.dates(),
    pa.timestamp("us", "UTC"): _moments.map(lambda moment: moment.replace(tzinfo=UTC)),
    pa.timestamp("us"): _moments,
    pa.duration("us"): st.timedeltas(dt.timedelta(-100_000), dt.timedelta(100_000)),
    pa.decimal128(38, 18): st.decimals(-(10**19), 10**19, places=18),
    pa.decimal128(5, 0): st.decimals(-99_999, 99_999, places=0),
}


def _typed() -> st.SearchStrategy[tuple[pa.DataType, st.SearchStrategy[Any]]]:
    """A type, and the values it has."""
    plain = st.sampled_from(list(PLAIN.items()))
    untyped = st.just((pa.null(), st.none()))

    def nested(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
        lists = inner.map(lambda of: (pa.list_(of[0]), st.lists(st.none() | of[1], max_size=3)))
        maps = inner.map(lambda of: (pa.map_(pa.string(), of[0]), st.lists(st.tuples(_text, of[1]), max_size=3)))
        structs = st.tuples(inner, inner).map(
            lambda two: (
                pa.struct([("a b", two[0][0]), ('"', two[1][0])]),
                st.fixed_dictionaries({"a b": st.none() | two[0][1], '"': st.none() | two[1][1]}),
            )
        )
        return lists | maps | structs

    return untyped | st.recursive(plain, nested, max_leaves=4)


@given(st.data())
def test_every_value_reads_back_as_it_was(data: st.DataObject) -> None:
    types = data.draw(st.lists(_typed(), min_size=1, max_size=4))
    count = data.draw(st.integers(0, 5))
    arrays = [
        pa.array(data.draw(st.lists(st.none() | values, min_size=count, max_size=count)), kind)
        for kind, values in types
    ]
    batch = pa.RecordBatch.from_arrays(arrays, names=[f"c{number}" for number in range(len(arrays))])
    texts = encode_rows(batch)
    assert [len(json.loads(text)) for text in texts] == [batch.num_columns] * count
    assert decode_rows(texts, batch.schema).equals(batch)
    if count:
        part = batch.slice(1)
        assert encode_rows(part) == texts[1:]


def test_not_a_number_and_infinities_are_kept() -> None:
    batch = pa.record_batch({"x": [float("nan"), float("inf"), float("-inf"), -0.0, None]})
    read = decode_rows(encode_rows(batch), batch.schema).to_pydict()["x"]
    assert [repr(value) for value in read] == ["nan", "inf", "-inf", "-0.0", "None"]


def test_a_row_from_before_a_column_was_added_is_null_there() -> None:
    old = pa.record_batch({"id": [1, 2]})
    grown = pa.schema([("id", pa.int64()), ("cost", pa.decimal128(9, 2)), ("tags", pa.list_(pa.string()))])
    new = pa.RecordBatch.from_pylist([{"id": 3, "cost": decimal.Decimal("1.50"), "tags": ["x"]}], schema=grown)
    read = decode_rows([*encode_rows(old), *encode_rows(new)], grown).to_pylist()
    assert read == [
        {"id": 1, "cost": None, "tags": None},
        {"id": 2, "cost": None, "tags": None},
        {"id": 3, "cost": decimal.Decimal("1.50"), "tags": ["x"]},
    ]


def test_a_type_without_an_exact_text_is_refused_by_its_column() -> None:
    check_columns(pa.schema([("fine", pa.list_(pa.int64()))]))
    with pytest.raises(InvalidArgument, match=r"column 'span'.*month_day_nano"):
        check_columns(pa.schema([("fine", pa.int64()), ("span", pa.month_day_nano_interval())]))
    with pytest.raises(InvalidArgument, match=r"column 'list'.*no type"):
        check_columns(pa.schema([("list", pa.list_(pa.null()))]))
    twice = pa.struct([("a", pa.int64()), ("a", pa.int64())])
    with pytest.raises(InvalidArgument, match=r"column 'pair'.*same name"):
        check_columns(pa.schema([("pair", twice)]))
