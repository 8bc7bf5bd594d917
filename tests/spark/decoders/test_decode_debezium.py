"""Debezium's events to rows. Events are written here as Connect's JSON converter writes them, with and without schema;
what a table holds after them is computed by replaying them into a dict.
"""

from __future__ import annotations

import base64
import json
import pickle
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from foldlog.spark.decoders.debezium import DebeziumDecoder, DebeziumKeyDecoder
from foldlog.spark.decoders.decoder import decoder_for

SCHEMA = pa.schema(
    [
        ("name", pa.string()),
        ("price", pa.decimal128(9, 2)),
        ("at", pa.timestamp("us", tz="UTC")),
        ("day", pa.date32()),
        ("tags", pa.list_(pa.string())),
    ]
)
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
LOGICAL = {
    "price": {"type": "bytes", "name": "org.apache.kafka.connect.data.Decimal", "parameters": {"scale": "2"}},
    "at": {"type": "int64", "name": "io.debezium.time.MicroTimestamp"},
    "day": {"type": "int32", "name": "io.debezium.time.Date"},
}
ROWS = st.fixed_dictionaries(
    {
        "name": st.none() | st.text(st.characters(codec="utf-8")),
        "price": st.none() | st.decimals(-9999999, 9999999, places=2),
        "at": st.none() | st.datetimes(timezones=st.just(UTC)),
        "day": st.none() | st.dates(),
        "tags": st.none() | st.lists(st.text(st.characters(codec="utf-8")), max_size=2),
    }
)


def event(op: str, after: Any = None, **more: Any) -> dict[str, Any]:
    return {"before": None, "after": after, "source": {"db": "shop"}, "op": op, "ts_ms": 5, **more}


def with_schema(payload: Any, fields: dict[str, Any] = LOGICAL, spaced: bool = False) -> bytes:
    described = [{"field": name, "optional": True, **one} for name, one in fields.items()]
    schema = {"type": "struct", "fields": [{"type": "struct", "fields": described, "field": "after"}]}
    separators = None if spaced else (",", ":")
    return json.dumps({"schema": schema, "payload": payload}, separators=separators).encode()


def precise(number: Decimal | None) -> str | None:
    if number is None:
        return None
    unscaled = int(number.scaleb(2))
    return base64.b64encode(unscaled.to_bytes(unscaled.bit_length() // 8 + 1, "big", signed=True)).decode()


def as_debezium(row: dict[str, Any]) -> dict[str, Any]:
    """As its connectors write them by default."""
    return {
        **row,
        "price": precise(row["price"]),
        "at": None if row["at"] is None else (row["at"] - EPOCH) // timedelta(microseconds=1),
        "day": None if row["day"] is None else (row["day"] - date(1970, 1, 1)).days,
        "unknown": 1,
    }


def values_of(row: dict[str, Any]) -> list[Any]:
    return [row[name] for name in SCHEMA.names]


def rows_of(columns: list[pa.Array]) -> list[tuple[Any, ...]]:
    return list(zip(*(column.to_pylist() for column in columns), strict=True))


@given(st.lists(st.tuples(ROWS, st.sampled_from("curd"), st.booleans()), max_size=6))
def test_rows_are_read_as_the_schema_of_their_events_says(events: list[tuple[dict[str, Any], str, bool]]) -> None:
    values = [with_schema(event(op, None if op == "d" else as_debezium(row)), spaced=some) for row, op, some in events]
    wanted = [(None,) * 5 + (True,) if op == "d" else (*values_of(row), False) for row, op, _ in events]
    decoder = decoder_for("debezium", SCHEMA)
    columns, reasons = decoder.decode(pa.array(values, pa.binary()))
    assert reasons is None
    assert rows_of(columns) == wanted
    again, _ = pickle.loads(pickle.dumps(decoder)).decode(pa.array(values[::-1], pa.binary()))
    assert rows_of(again) == wanted[::-1]


@given(ROWS)
def test_without_a_schema_options_say_how_numbers_are_meant(row: dict[str, Any]) -> None:
    decoder = decoder_for("debezium", SCHEMA, times="micros", decimals="precise")
    columns, reasons = decoder.decode(pa.array([json.dumps(event("u", as_debezium(row))).encode()]))
    assert reasons is None
    assert rows_of(columns) == [(*values_of(row), False)]


def test_units_of_times_and_texts_of_times_and_decimals() -> None:
    fields = {
        "ms": {"name": "io.debezium.time.Timestamp"},
        "ns": {"name": "io.debezium.time.NanoTimestamp"},
        "connect": {"name": "org.apache.kafka.connect.data.Timestamp"},
        "zoned": {"name": "io.debezium.time.ZonedTimestamp"},
        "local": {"name": "io.debezium.time.MicroTimestamp"},
        "money": {"type": "string"},
    }
    utc = pa.timestamp("us", tz="UTC")
    schema = pa.schema(
        [
            ("ms", utc),
            ("ns", utc),
            ("connect", utc),
            ("zoned", utc),
            ("local", pa.timestamp("us")),
            ("money", pa.decimal128(9, 2)),
        ]
    )
    after = {"ms": 1500, "ns": 1500000999, "connect": 1500, "zoned": "1970-01-01T05:30:01.5+05:30", "local": 1500000}
    value = with_schema(event("r", {**after, "money": "1.50"}), fields)
    columns, reasons = decoder_for("debezium", schema).decode(pa.array([value]))
    at = EPOCH + timedelta(seconds=1.5)
    assert reasons is None
    assert rows_of(columns) == [(at, at, at, at, at.replace(tzinfo=None), Decimal("1.50"), False)]


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (event("t"), "op 't': the table was truncated"),
        (event("c"), "after: no row"),
        ({"name": "tea"}, "no event of Debezium: it has no 'op'"),
        (event("c", {"at": 5}), "after.at: 5 is a number, and its unit is not known; say times='millis'"),
        (event("c", {"price": "1.505"}), 'after.price: "1.505" is not a DECIMAL(9,2)'),
        (event("c", {"tags": ["a", 1]}), "after.tags.1: 1 is not a STRING"),
        ({"schema": None, "payload": 7}, "payload: no object"),
    ],
)
def test_what_is_no_row_has_a_reason_whatever_came_before(value: Any, reason: str) -> None:
    before = with_schema(event("c", {"name": "tea"}))
    cut = with_schema(event("c", {"name": "tea"}))[:-1] + b',"x":1}'
    columns, reasons = DebeziumDecoder(SCHEMA).decode(pa.array([before, json.dumps(value).encode(), cut, None]))
    assert reasons is not None
    assert reasons[0].as_py() is None
    assert reasons[1].as_py().startswith(reason)
    assert reasons[2].as_py().startswith("no event of Debezium")
    assert reasons[3].as_py() is None
    assert columns[-1].to_pylist() == [False, None, None, None]


def test_keys_are_read_with_and_without_their_schema() -> None:
    decoder = DebeziumKeyDecoder(pa.schema([("region", pa.string()), ("id", pa.int64())]))
    wrapped = json.dumps({"schema": {"type": "struct"}, "payload": {"region": "eu", "id": 7}}).encode()
    columns, reasons = decoder.decode(pa.array([wrapped, b'{"id":7,"region":"eu"}', b"7", None]))
    assert rows_of(columns) == [("eu", 7), ("eu", 7), (None, None), (None, None)]
    assert reasons is not None
    assert reasons.to_pylist() == [None, None, "a JSON number, not an object", None]
