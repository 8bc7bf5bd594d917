"""Every type that a table keeps comes back exactly, from both engines, for any values: extremes, NaN, "" beside null,
quotes, line ends, NUL where the engine can, arrays of structs of maps. And in SQL the columns are what people expect.
"""

from __future__ import annotations

import math
import sqlite3
from collections.abc import Callable
from contextlib import closing
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import psycopg
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from foldlog.errors import FoldError
from foldlog.views.contract import Shape, View
from foldlog.views.table.table import table
from views.view_contract import START, at, delta_of

TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=12)
TIMES = st.datetimes(datetime(1, 1, 1), datetime(9999, 12, 31, 23, 59, 59, 999999))  # noqa: DTZ001 no zone is meant
ITEM = pa.struct([("name", pa.string()), ("price", pa.decimal128(12, 2)), ("at", pa.timestamp("us", "UTC"))])

KINDS: dict[str, tuple[pa.DataType, st.SearchStrategy[Any]]] = {
    "flag": (pa.bool_(), st.booleans()),
    "tiny": (pa.int8(), st.integers(-(2**7), 2**7 - 1)),
    "small": (pa.int16(), st.integers(-(2**15), 2**15 - 1)),
    "normal": (pa.int32(), st.integers(-(2**31), 2**31 - 1)),
    "big": (pa.int64(), st.integers(-(2**63), 2**63 - 1)),
    "single": (pa.float32(), st.floats(width=32)),
    "double": (pa.float64(), st.floats()),
    "money": (pa.decimal128(38, 18), st.decimals(-(10**19), 10**19, places=18, allow_nan=False)),
    "text": (pa.string(), TEXT),
    "raw": (pa.binary(), st.binary(max_size=12)),
    "day": (pa.date32(), st.dates(date(1, 1, 1), date(9999, 12, 31))),
    "moment": (pa.timestamp("us", "UTC"), TIMES.map(lambda time: time.replace(tzinfo=UTC))),
    "local": (pa.timestamp("us"), TIMES),
    "tags": (pa.list_(pa.string()), st.lists(st.none() | TEXT, max_size=3)),
    "item": (
        ITEM,
        st.fixed_dictionaries(
            {
                "name": st.none() | TEXT,
                "price": st.none() | st.decimals(-(10**9), 10**9, places=2),
                "at": st.none() | TIMES.map(lambda time: time.replace(tzinfo=UTC)),
            }
        ),
    ),
    "shares": (
        pa.map_(pa.string(), pa.list_(pa.float64())),
        st.dictionaries(TEXT, st.none() | st.lists(st.floats(), max_size=2), max_size=3).map(
            lambda d: sorted(d.items())
        ),
    ),
    "days": (
        pa.map_(pa.int32(), pa.struct([("raw", pa.binary()), ("day", pa.date32())])),
        st.dictionaries(
            st.integers(-9, 99),
            st.fixed_dictionaries({"raw": st.none() | st.binary(max_size=4), "day": st.none() | st.dates()}),
            max_size=3,
        ).map(lambda d: sorted(d.items())),
    ),
}
COLUMNS = pa.schema([("id", pa.int64()), *((name, kind) for name, (kind, _) in KINDS.items())])
SHAPE = Shape(COLUMNS, "id")
ROWS = st.lists(st.fixed_dictionaries({name: st.none() | values for name, (_, values) in KINDS.items()}), max_size=6)


@pytest.fixture(params=["sqlite", "postgres"])
def make(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[str], View]:
    """A table of that name, in a database of this test."""
    if request.param == "sqlite":
        return lambda name: table(tmp_path / "types.db", name)
    url = request.getfixturevalue("postgres_url")
    return lambda name: table(url, name)


def same(left: object, right: object) -> bool:
    """As ==, but NaN is NaN, everywhere inside."""
    if isinstance(left, float) and isinstance(right, float):
        return left == right or (math.isnan(left) and math.isnan(right))
    if isinstance(left, dict) and isinstance(right, dict):
        return left.keys() == right.keys() and all(same(left[name], right[name]) for name in left)
    if isinstance(left, list | tuple) and isinstance(right, list | tuple):
        return len(left) == len(right) and all(map(same, left, right))
    return type(left) is type(right) and left == right


def stored(view: View, rows: list[dict[str, Any]], shape: Shape = SHAPE) -> list[dict[str, Any]]:
    """What a view gives back of rows, by their id."""
    view.drop()
    view.prepare(shape, START)
    numbered: list[dict[str, object]] = [{**row, "id": number, "_offset": number} for number, row in enumerate(rows)]
    delta = delta_of(numbered, shape.columns, 0, len(rows))
    view.apply(delta, START, at(len(rows)))
    batches = list(view.scan().batches)
    assert all(batch.schema == shape.columns for batch in batches)
    return sorted((row for batch in batches for row in batch.to_pylist()), key=lambda row: row["id"])


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(rows=ROWS)
def test_every_value_comes_back_exactly(make: Callable[[str], View], rows: list[dict[str, Any]]) -> None:
    with closing(make("everything")) as view:
        found = stored(view, rows)
    expected = pa.Table.from_pylist([{**row, "id": number} for number, row in enumerate(rows)], schema=COLUMNS)
    for given_row, found_row in zip(expected.to_pylist(), found, strict=True):
        for name in COLUMNS.names:
            assert same(found_row[name], given_row[name]), (name, given_row[name], found_row[name])


@pytest.mark.parametrize(
    "kind", [pa.string(), pa.binary(), pa.decimal128(20, 4), pa.date32(), pa.timestamp("us", "UTC")]
)
def test_values_that_are_keys_are_found_again(make: Callable[[str], View], kind: pa.DataType) -> None:
    values: dict[str, list[object]] = {
        "string": ["", "a", "A", "ä", "a'b", "tab\t", "back\\slash", 'quo"te', "\\N", "\\.", "NULL", " a"],
        "binary": [b"", b"\0", b"\0\0", b"\xff", b"\\x00", b"a"],
        "decimal128(20, 4)": [Decimal("0.0000"), Decimal("-0.0001"), Decimal("1e15").quantize(Decimal("0.0001"))],
        "date32[day]": [date(1, 1, 1), date(1970, 1, 1), date(9999, 12, 31)],
        "timestamp[us, tz=UTC]": [datetime(1970, 1, 1, tzinfo=UTC), datetime(2024, 5, 5, 1, 2, 3, 4, tzinfo=UTC)],
    }
    keys = values[str(kind)]
    columns = pa.schema([("key", kind), ("version", pa.int32())])
    shape = Shape(columns, "key")
    with closing(make("keys")) as view:
        view.prepare(shape, START)
        for version in range(2):
            here = version * len(keys)
            rows: list[dict[str, object]] = [
                {"key": key, "version": version, "_offset": here + number} for number, key in enumerate(keys)
            ]
            view.apply(delta_of(rows, columns, here, here + len(keys)), at(here), at(here + len(keys)))
        found = [row for batch in view.scan().batches for row in batch.to_pylist()]
        assert len(found) == len(keys)
        assert all(row["version"] == 1 and row["key"] in keys for row in found)
        end = 2 * len(keys)
        gone: list[dict[str, object]] = [
            {"key": key, "_offset": end + number, "_deleted": True} for number, key in enumerate(keys)
        ]
        view.apply(delta_of(gone, columns, end, end + len(keys)), at(end), at(end + len(keys)))
        assert [batch.num_rows for batch in view.scan().batches] in ([], [0])


def test_large_and_view_types_of_arrow_are_the_same_columns(make: Callable[[str], View]) -> None:
    large = pa.schema([("id", pa.int64()), ("text", pa.large_string()), ("raw", pa.large_binary())])
    with closing(make("large")) as view:
        view.prepare(Shape(large, "id"), START)
        view.apply(delta_of([{"id": 1, "text": "x", "raw": b"y", "_offset": 0}], large, 0, 1), START, at(1))
        plain = pa.schema([("id", pa.int64()), ("text", pa.string()), ("raw", pa.binary())])
        assert view.prepare(Shape(plain, "id"), START) == at(1)
        view.apply(delta_of([{"id": 2, "text": "x", "raw": b"y", "_offset": 1}], plain, 1, 2), at(1), at(2))
        (batch,) = view.scan().batches
        assert batch.schema == plain
        assert batch["raw"].to_pylist() == [b"y", b"y"]


def test_a_table_of_nothing_but_its_key_is_a_set(make: Callable[[str], View]) -> None:
    columns = pa.schema([("id", pa.string())])
    with closing(make("only_key")) as view:
        view.prepare(Shape(columns, "id"), START)
        for number in range(2):
            rows: list[dict[str, object]] = [{"id": "a", "_offset": number}]
            view.apply(delta_of(rows, columns, number, number + 1), at(number), at(number + 1))
        assert [row for batch in view.scan().batches for row in batch.to_pylist()] == [{"id": "a"}]


def test_a_long_scan_comes_in_batches_of_bounded_size(make: Callable[[str], View]) -> None:
    columns = pa.schema([("id", pa.int64()), ("text", pa.string())])
    rows: list[dict[str, object]] = [{"id": n, "text": f"line\n{n}", "_offset": n} for n in range(40_000)]
    with closing(make("long")) as view:
        view.prepare(Shape(columns, "id"), START)
        view.apply(delta_of(rows, columns, 0, 40_000), START, at(40_000))
        sizes, found = [], 0
        for batch in view.scan().batches:
            sizes.append(batch.num_rows)
            found += sum(batch["id"].to_pylist())
        assert (sum(sizes), found) == (40_000, sum(range(40_000)))
        assert len(sizes) > 2


def test_sqlite_keeps_a_nul_character_in_text(tmp_path: Path) -> None:
    columns = pa.schema([("id", pa.int64()), ("text", pa.string()), ("tags", pa.list_(pa.string()))])
    with closing(table(tmp_path / "x.db", "nul")) as view:
        found = stored(view, [{"text": "a\0b", "tags": ["\0"]}], Shape(columns, "id"))
        assert (found[0]["text"], found[0]["tags"]) == ("a\0b", ["\0"])


@pytest.mark.parametrize("value", [{"text": "a\0b"}, {"tags": ["x", "\0"]}])
def test_postgresql_refuses_a_nul_character_by_its_offset(postgres_url: str, value: dict[str, Any]) -> None:
    columns = pa.schema([("id", pa.int64()), ("text", pa.string()), ("tags", pa.list_(pa.string()))])
    with closing(table(postgres_url, "nul")) as view:
        with pytest.raises(FoldError, match=r"offset 1 of payments-0: it has a character NUL"):
            stored(view, [{"text": "ok", "tags": ["\\u0000"]}, value], Shape(columns, "id"))
        assert view.bookmark() == START


@pytest.fixture
def row() -> dict[str, Any]:
    return {
        "flag": True,
        "double": 1.5,
        "money": Decimal("12.500000000000000000"),
        "moment": datetime(2024, 2, 29, 12, 30, 0, 5, tzinfo=UTC),
        "day": date(2024, 2, 29),
        "item": {"name": "chai", "price": Decimal("20.00"), "at": None},
        "shares": [("b", [1.0]), ("a", None)],
    }


def test_sqlite_s_own_functions_understand_what_is_stored(tmp_path: Path, row: dict[str, Any]) -> None:
    with closing(table(tmp_path / "x.db", "t")) as view:
        stored(view, [row])
    with closing(sqlite3.connect(tmp_path / "x.db")) as connection:
        query = """SELECT flag, CAST(money AS REAL), strftime('%H:%M', moment), julianday(moment) > julianday(day),
                          json_extract(item, '$.name'), json_extract(shares, '$.b[0]') FROM t"""
        assert connection.execute(query).fetchone() == (1, 12.5, "12:30", 1, "chai", 1.0)


def test_postgresql_has_the_types_that_people_expect(postgres_url: str, row: dict[str, Any]) -> None:
    with closing(table(postgres_url, "t")) as view:
        stored(view, [row])
    with psycopg.connect(postgres_url) as connection:
        query = (
            """SELECT flag, money, moment, day, item->>'name', (shares->'b'->>0)::float, pg_typeof(tags)::text FROM t"""
        )
        found = connection.execute(query).fetchone()
    assert found is not None
    assert found[:2] == (True, Decimal("12.5"))
    assert (found[2], found[3]) == (row["moment"], row["day"])
    assert found[4:] == ("chai", 1.0, "jsonb")
