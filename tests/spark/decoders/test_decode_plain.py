"""Keys and opaque values become one column each; what does not parse has a reason, and no two spellings become one key.

The oracle for numbers is Python's own: an integer is taken if and only if it is how Python writes one.
"""

from __future__ import annotations

import pickle
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from foldlog.errors import InvalidArgument
from foldlog.spark.decoders.decoder import decoder_for, key_decoder

UTC_MICROS = pa.timestamp("us", tz="UTC")


def decoded(type_: pa.DataType, *keys: bytes | None) -> tuple[list[Any], list[str | None] | None]:
    column, reasons = key_decoder(type_).decode(pa.array(keys, pa.binary()))
    assert column.type == type_
    return column.to_pylist(), None if reasons is None else reasons.to_pylist()


@pytest.mark.parametrize(
    ("type_", "key", "value"),
    [
        (pa.binary(), b"\xff\x00", b"\xff\x00"),
        (pa.string(), "ключ".encode(), "ключ"),
        (pa.string(), b"", ""),
        (pa.int32(), b"-17", -17),
        (pa.int64(), b"9223372036854775807", 2**63 - 1),
        (pa.decimal128(10, 2), b"1.50", Decimal("1.50")),
        (pa.bool_(), b"true", True),
        (pa.bool_(), b"false", False),
        (pa.date32(), b"2024-02-29", date(2024, 2, 29)),
        (UTC_MICROS, b"2024-02-29T11:00:00Z", datetime(2024, 2, 29, 11, tzinfo=UTC)),
        (pa.timestamp("us"), b"2024-02-29T12:00:00", datetime(2024, 2, 29, 12)),  # noqa: DTZ001 it has no zone
    ],
    ids=str,
)
def test_a_key_is_parsed_from_its_text(type_: pa.DataType, key: bytes, value: object) -> None:
    assert decoded(type_, None, key, None) == ([None, value, None], None)


@pytest.mark.parametrize(
    ("type_", "key", "reason"),
    [
        (pa.string(), b"\xff", "not UTF-8"),
        (pa.int64(), b"\xff", "not UTF-8"),
        (pa.int64(), b"", "not a BIGINT"),
        (pa.int64(), b"007", "not a BIGINT"),
        (pa.int64(), b"0x7", "not a BIGINT"),
        (pa.int64(), b"+7", "not a BIGINT"),
        (pa.int64(), b" 7", "not a BIGINT"),
        (pa.int64(), b"-0", "not a BIGINT"),
        (pa.int8(), b"128", "not a TINYINT"),
        (pa.decimal128(4, 2), b"100", "not a DECIMAL(4,2)"),
        (pa.decimal128(4, 2), b"1.234", "not a DECIMAL(4,2)"),
        (pa.bool_(), b"True", "not a BOOLEAN"),
        (pa.bool_(), b"1", "not a BOOLEAN"),
        (pa.date32(), b"2024-02-30", "not a DATE"),
        (UTC_MICROS, b"now", "not a TIMESTAMP"),
    ],
    ids=str,
)
def test_a_key_that_does_not_fit_has_a_reason(type_: pa.DataType, key: bytes, reason: str) -> None:
    assert decoded(type_, None, key) == ([None, None], [None, reason])


@given(st.lists(st.one_of(st.none(), st.integers(-(2**70), 2**70).map(str), st.text("0123456789-+x ", max_size=3))))
def test_an_integer_key_is_what_python_writes(texts: list[str | None]) -> None:
    def fits(text: str) -> bool:
        return text.removeprefix("-").isdecimal() and str(int(text)) == text and -(2**63) <= int(text) < 2**63

    column, reasons = decoded(pa.int64(), *(None if text is None else text.encode() for text in texts))
    assert column == [int(text) if text is not None and fits(text) else None for text in texts]
    is_bad = [text is not None and not fits(text) for text in texts]
    assert ([reason is not None for reason in reasons] if reasons else [False] * len(texts)) == is_bad


SPELLINGS = {
    pa.decimal128(10, 2): ("1.50", ["1.5", "01.50", "+1.50", "1.500", "15e-1", "150E-2"]),
    UTC_MICROS: (
        "2024-02-29T12:00:00.5Z",
        ["2024-02-29 12:00:00.5Z", "2024-02-29T12:00:00.50Z", "2024-02-29T17:30:00.5+05:30", "2024-02-29T12:00:00.5"],
    ),
    pa.timestamp("us"): ("2024-02-29T12:00:00", ["2024-02-29 12:00:00", "2024-02-29T12:00", "2024-02-29T12:00:00.0"]),
}


@pytest.mark.parametrize("type_", SPELLINGS, ids=str)
def test_a_value_has_one_spelling_as_a_key(type_: pa.DataType) -> None:
    """Two keys of the log that became one row would have no order, where they lie in different partitions."""
    one, others = SPELLINGS[type_]
    values, reasons = decoded(type_, one.encode(), None, *(other.encode() for other in others))
    assert values[0] is not None
    assert values[1:] == [None] * (1 + len(others))
    assert reasons is not None
    assert reasons[:2] == [None, None]
    assert all(reason is not None for reason in reasons[2:])


@given(st.decimals(min_value=-99999999, max_value=99999999, places=2))
def test_a_decimal_key_is_taken_as_python_writes_it(value: Decimal) -> None:
    value = value or abs(value)
    assert decoded(pa.decimal128(10, 2), f"{value:.2f}".encode()) == ([value], None)


@given(st.datetimes())
def test_a_timestamp_key_is_taken_as_python_writes_it(value: datetime) -> None:
    text = value.isoformat()
    text = text.rstrip("0") if "." in text else text
    assert decoded(pa.timestamp("us"), text.encode()) == ([value], None)
    assert decoded(UTC_MICROS, f"{text}Z".encode()) == ([value.replace(tzinfo=UTC)], None)


@pytest.mark.parametrize("type_", [pa.float64(), pa.list_(pa.string()), pa.timestamp("ms")], ids=str)
def test_a_key_cannot_be_of_every_type(type_: pa.DataType) -> None:
    with pytest.raises(InvalidArgument, match="a key cannot be"):
        key_decoder(type_)


def test_text_is_one_string_column_and_raw_one_binary() -> None:
    values = pa.array([b"a", None, b"\xff", b""], pa.binary())
    columns, reasons = decoder_for("text").decode(values)
    assert columns[0].to_pylist() == ["a", None, None, ""]
    assert reasons is not None
    assert reasons.to_pylist() == [None, None, "not UTF-8", None]
    columns, reasons = decoder_for("raw").decode(values)
    assert columns[0].equals(values)
    assert reasons is None


def test_the_one_column_can_have_another_name_and_no_other_type() -> None:
    assert decoder_for("text", pa.schema([pa.field("line", pa.string(), nullable=False)])).schema == pa.schema(
        [pa.field("line", pa.string())]
    )
    with pytest.raises(InvalidArgument, match="format 'text' has one column of type STRING, not line BIGINT"):
        decoder_for("text", pa.schema([("line", pa.int64())]))
    with pytest.raises(InvalidArgument, match="format 'raw' has one column of type BINARY, not a STRING, b STRING"):
        decoder_for("raw", pa.schema([("a", pa.string()), ("b", pa.string())]))


def test_what_decodes_travels() -> None:
    assert pickle.loads(pickle.dumps(key_decoder(pa.int64()))).type == pa.int64()
    assert pickle.loads(pickle.dumps(decoder_for("raw"))).schema.names == ["value"]


def test_a_format_that_does_not_exist_and_an_option_it_does_not_have_are_named() -> None:
    with pytest.raises(
        InvalidArgument, match="no format 'xml'; there are json, avro, protobuf, csv, debezium, text, raw"
    ):
        decoder_for("xml")
    with pytest.raises(InvalidArgument, match="format 'text' has no option 'mode'"):
        decoder_for("text", mode="x")
    with pytest.raises(InvalidArgument, match="format 'json' needs a schema"):
        decoder_for("json")
