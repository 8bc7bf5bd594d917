"""CSV to columns: Python's own writer is the oracle of what a value means, and every row is the same among others."""

from __future__ import annotations

import csv
import io
import pickle
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from foldlog.errors import InvalidArgument
from foldlog.spark.decoders.decoder import decoder_for

SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        pa.field("name", pa.string()),
        pa.field("price", pa.decimal128(9, 2)),
        pa.field("day", pa.date32()),
        pa.field("flag", pa.bool_()),
    ]
)
ROWS = st.tuples(
    st.integers(-(2**63), 2**63 - 1),
    st.text(st.characters(codec="utf-8"), min_size=1),
    st.none() | st.decimals(-9999999, 9999999, places=2),
    st.none() | st.dates(),
    st.none() | st.booleans(),
)


def written(row: tuple[Any, ...], delimiter: str, ends: str) -> bytes:
    stream = io.StringIO()
    texts = [str(one).lower() if isinstance(one, bool) else one for one in row]
    # Its own end of line, and then another: it quotes a field with a line break only if that could be the end.
    csv.writer(stream, delimiter=delimiter).writerow(texts)
    return (stream.getvalue().removesuffix("\r\n") + ends).encode()


@given(st.lists(ROWS, max_size=8), st.sampled_from(",;\t|é"), st.sampled_from(["", "\n", "\r\n"]))
def test_what_pythons_writer_writes_is_read_back(rows: list[tuple[Any, ...]], delimiter: str, ends: str) -> None:
    decoder = decoder_for("csv", SCHEMA, delimiter=delimiter)
    values = [written(row, delimiter, ends) for row in rows]
    columns, reasons = decoder.decode(pa.array(values, pa.binary()))
    assert reasons is None
    assert list(zip(*(column.to_pylist() for column in columns), strict=True)) == rows
    for value, row in zip(values, rows, strict=True):
        alone, why = decoder.decode(pa.array([value], pa.binary()))
        assert (tuple(column[0].as_py() for column in alone), why) == (row, None)


@given(st.lists(st.binary(max_size=20) | st.none(), max_size=6))
def test_any_bytes_give_a_row_or_a_reason_and_the_same_among_others(values: list[bytes | None]) -> None:
    decoder = decoder_for("csv", SCHEMA)
    columns, reasons = decoder.decode(pa.array(values, pa.binary()))
    for number, value in enumerate(values):
        alone, why = decoder.decode(pa.array([value], pa.binary()))
        assert [column[0] for column in alone] == [column[number] for column in columns]
        assert (why[0].as_py() if why is not None else None) == (
            reasons[number].as_py() if reasons is not None else None
        )


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (b"1,tea", "2 fields, and the schema has 5 columns"),
        (b"1,tea,,,,", "6 fields, and the schema has 5 columns"),
        (b"x,tea,,,", "id: 'x' is not a BIGINT"),
        (b",tea,,,", "id: null"),
        (b"1,tea,1.505,,", "price: '1.505' is not a DECIMAL(9,2)"),
        (b'1,"tea,,,', "a quote is not closed"),
        (b'1,"tea"x,,,', "text after a closed quote, at character 7"),
        (b'1,t"ea,,,', "a quote inside a field that does not begin with one, at character 3"),
        (b"1,tea,,,\n2,chai,,,", "more than one line"),
        (b"\xff,tea,,,", "not UTF-8 at byte 0"),
    ],
)
def test_what_does_not_fit_has_a_reason(value: bytes, reason: str) -> None:
    columns, reasons = decoder_for("csv", SCHEMA).decode(pa.array([value, b"7,chai,0.10,2024-02-29,true"]))
    assert reasons is not None
    assert reasons.to_pylist() == [reason, None]
    assert [column.to_pylist() for column in columns] == [
        [None, 7],
        [None, "chai"],
        [None, Decimal("0.10")],
        [None, date(2024, 2, 29)],
        [None, True],
    ]


def test_a_quoted_nothing_is_a_text_and_a_plain_one_is_null() -> None:
    decoder = decoder_for("csv", pa.schema([("a", pa.string()), ("b", pa.string())]))
    columns, _ = decoder.decode(pa.array([b'"",', b",x", None]))
    assert [column.to_pylist() for column in columns] == [["", None, None], [None, "x", None]]
    other = decoder_for("csv", pa.schema([("a", pa.string()), ("b", pa.string())]), null=r"\N")
    columns, _ = other.decode(pa.array([rb"\N,", rb'"\N",y']))
    assert [column.to_pylist() for column in columns] == [[None, r"\N"], ["", "y"]]


def test_times_without_a_zone_are_in_the_one_that_was_named() -> None:
    schema = pa.schema([("at", pa.timestamp("us", tz="UTC"))])
    decoder = pickle.loads(pickle.dumps(decoder_for("csv", schema, timezone="Asia/Kolkata")))
    (at,), reasons = decoder.decode(pa.array([b"2024-02-29T12:00:00", b"2024-02-29T12:00:00Z"]))
    assert reasons is None
    assert at.to_pylist() == [datetime(2024, 2, 29, 6, 30, tzinfo=UTC), datetime(2024, 2, 29, 12, tzinfo=UTC)]


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"delimiter": ""}, "delimiter='' of format 'csv' is not one character"),
        ({"quote": ","}, "are both ','"),
        ({"null": "a,b"}, "is not a text that can stand in a field"),
        ({"timezone": "Mars/Olympus"}, "there is no time zone 'Mars/Olympus'; write it as in 'Asia/Kolkata'"),
        ({"header": True}, "format 'csv' has no option 'header'"),
    ],
)
def test_what_cannot_be_meant_is_refused(options: dict[str, Any], told: str) -> None:
    with pytest.raises(InvalidArgument, match=told):
        decoder_for("csv", SCHEMA, **options)


def test_a_nested_column_is_refused() -> None:
    with pytest.raises(InvalidArgument, match="field 'tags': there is no reading"):
        decoder_for("csv", pa.schema([("tags", pa.list_(pa.string()))]))
