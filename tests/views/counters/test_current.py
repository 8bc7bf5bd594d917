"""Counters of current rows: those of each key's newest record, as plain Python counts them, whatever the split.

The contract of views runs for both engines: its ranges are split, repeated, rewound, rebuilt and swapped.
"""

from __future__ import annotations

import datetime as dt
import random
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from decimal import Decimal
from pathlib import Path
from typing import Any

import psycopg
import pyarrow as pa
import pytest

from foldlog.errors import InvalidArgument, SchemaChanged
from foldlog.views.contract import Shape
from foldlog.views.counters import measures as fl
from foldlog.views.counters.counters import counters
from foldlog.views.counters.windows import Sessions, window
from foldlog.views.peek.peek import open_peek
from postgres_server import PostgresServer
from views.view_contract import START, Event, ViewCase, ViewContract, at, delta_of, held, in_order, some_events

MEASURES = {
    "payments": fl.count(),
    "named": fl.count("merchant"),
    "amount": fl.sum("amount"),
    "mean": fl.avg("amount"),
}


class CurrentCase(ViewCase):
    grows = False

    def content(self, events: Sequence[Event], stop: int) -> list[dict[str, object]]:
        groups: dict[str | None, list[int]] = {}
        for row in super().content(events, stop):
            groups.setdefault(row["merchant"], []).append(row["amount"])  # type: ignore[arg-type]
        return [
            {
                "merchant": merchant,
                "payments": len(amounts),
                "named": 0 if merchant is None else len(amounts),
                "amount": sum(amounts),
                "mean": sum(amounts) / len(amounts),
            }
            for merchant, amounts in groups.items()
        ]


class TestSqliteCurrent(ViewContract):
    @pytest.fixture
    def case(self, tmp_path: Path) -> ViewCase:
        place = tmp_path / "views" / "live.db"
        return CurrentCase(lambda: counters(place, by=["merchant"], measures=MEASURES, over="current"))


@pytest.mark.faults
class TestPostgresCurrent(ViewContract):
    @pytest.fixture
    def case(self, postgres: PostgresServer) -> ViewCase:
        url = postgres.new_database()
        return CurrentCase(lambda: counters(url, by=["merchant"], measures=MEASURES, over="current"))


# --- windows, decimals, nulls, and records of several rows ------------------------------------------------------------

LINES = pa.schema(
    [("order", pa.string()), ("item", pa.string()), ("price", pa.decimal128(9, 2)), ("at", pa.timestamp("us", "UTC"))]
)
BEGIN = dt.datetime(1969, 12, 31, 23, 30, tzinfo=dt.UTC)
HOUR = dt.timedelta(hours=1)
Line = tuple[str, str | None, Decimal | None, dt.datetime | None]


def orders(chance: random.Random, count: int) -> list[list[Line]]:
    """Each a record: the lines of an order; of an empty one, a tombstone."""
    found = []
    for _ in range(count):
        name = f"o{chance.randrange(5)}"
        found.append(
            [
                (
                    name,
                    chance.choice(["tea", "mug", None]),
                    chance.choice([None, Decimal("1.25"), Decimal("-0.50"), Decimal("9999999.99")]),
                    chance.choice([None, BEGIN + chance.randrange(4) * dt.timedelta(minutes=25)]),
                )
                for _ in range(chance.randrange(4))
            ]
            or [(name, "", None, None)]
        )
    return found


def counted(records: Sequence[Sequence[Line]]) -> list[dict[str, object]]:
    newest: dict[str, Sequence[Line]] = {}
    for lines in records:
        newest[lines[0][0]] = [line for line in lines if line[1] != ""]
    groups: dict[tuple[Any, Any], list[Decimal | None]] = {}
    for _, item, price, when in (line for lines in newest.values() for line in lines):
        start = None if when is None else dt.datetime.fromtimestamp(when.timestamp() // 3600 * 3600, dt.UTC)
        groups.setdefault((item, start), []).append(price)
    rows: list[dict[str, object]] = []
    for (item, start), prices in groups.items():
        known = [price for price in prices if price is not None]
        mean = (sum(known, Decimal()) / len(known)).quantize(Decimal("0.000001")) if known else None
        rows.append(
            {
                "item": item,
                "window_start": start,
                "lines": len(prices),
                "price": sum(known, Decimal()) if known else None,
                "mean": mean,
            }
        )
    return in_order(rows)


def check_lines(place: object) -> None:
    measures = {"lines": fl.count(), "price": fl.sum("price"), "mean": fl.avg("price")}
    view = counters(place, by=["item"], window=("at", "1 hour"), measures=measures, name="lines", over="current")  # type: ignore[arg-type]
    view.prepare(Shape(LINES, "order", ("order",)), START)
    chance = random.Random(18)
    records = orders(chance, 120)
    here = 0
    while here < len(records):
        stop = min(len(records), here + chance.choice([1, 3, 20]))
        rows: list[dict[str, object]] = [
            {"_offset": number, "_deleted": item == "", "order": name, "item": item, "price": price, "at": when}
            for number in range(here, stop)
            for name, item, price, when in records[number]
        ]
        view.apply(delta_of(rows, LINES, here, stop), at(here), at(stop))
        here = stop
        assert held(view) == counted(records[:here])
    view.close()


def test_lines_of_current_orders_by_window_in_sqlite(tmp_path: Path) -> None:
    check_lines(tmp_path / "live.db")


@pytest.mark.faults
def test_lines_of_current_orders_by_window_in_postgresql(postgres: PostgresServer) -> None:
    url = postgres.new_database()
    check_lines(url)
    with psycopg.connect(url) as connection:
        shown = connection.execute("SELECT sum(lines), count(*) FILTER (WHERE price IS NULL) FROM lines").fetchone()
    rows = counted(orders(random.Random(18), 120))
    assert shown == (sum(row["lines"] for row in rows), sum(row["price"] is None for row in rows))  # type: ignore[misc]


def test_readers_and_peeks_see_the_measures_alone_and_null_for_a_sum_of_nothing(tmp_path: Path) -> None:
    view = counters(tmp_path / "live.db", by=["merchant"], measures={"paise": fl.sum("amount")}, over="current")
    view.prepare(ViewCase.shape, START)
    rows: list[dict[str, object]] = [
        {"tx_id": "a", "merchant": "tea", "amount": 7},
        {"tx_id": "b", "merchant": "tea", "amount": None},
    ]
    view.apply(
        delta_of([{**row, "_offset": number} for number, row in enumerate(rows)], ViewCase.shape.columns, 0, 2),
        at(0),
        at(2),
    )
    view.apply(delta_of([{"tx_id": "a", "_offset": 2, "_deleted": True}], ViewCase.shape.columns, 2, 3), at(2), at(3))
    with closing(sqlite3.connect(tmp_path / "live.db")) as connection:
        cursor = connection.execute("SELECT * FROM counters")
        assert [one[0] for one in cursor.description] == ["merchant", "paise"]
        assert cursor.fetchall() == [("tea", None)]
    assert held(view) == [{"merchant": "tea", "paise": None}]
    description = view.description()
    assert description is not None
    peek = open_peek(description)
    assert peek.rows().columns == ("merchant", "paise")
    view.drop()
    with closing(sqlite3.connect(tmp_path / "live.db")) as connection:
        assert connection.execute("SELECT name FROM sqlite_master WHERE name LIKE 'counters%'").fetchall() == []
    view.close()


def test_what_cannot_be_withdrawn_is_refused(tmp_path: Path) -> None:
    def current(**given: Any) -> Any:
        return counters(tmp_path / "live.db", **{"measures": {"n": fl.count()}, "over": "current", **given})

    with pytest.raises(InvalidArgument, match=r"'least', min\(amount\), cannot be counted over current rows"):
        current(measures={"least": fl.min("amount")})
    with pytest.raises(InvalidArgument, match="fixed windows"):
        current(window=Sessions("at", 1000))
    with pytest.raises(InvalidArgument, match="fixed windows"):
        current(window=window("at", "1 day", zone="Asia/Kolkata"))
    with pytest.raises(InvalidArgument, match="neither 'records' nor 'current'"):
        current(over="newest")
    with pytest.raises(InvalidArgument, match="SQLite or PostgreSQL"):
        counters(tmp_path / "live.duckdb", measures={"n": fl.count()}, over="current")


def test_counters_of_records_do_not_become_counters_of_rows(tmp_path: Path) -> None:
    every = counters(tmp_path / "live.db", by=["merchant"], measures={"n": fl.count()})
    every.prepare(Shape(pa.schema([("merchant", pa.string()), ("n", pa.int64())])), START)
    every.close()
    current = counters(tmp_path / "live.db", by=["merchant"], measures={"n": fl.count()}, over="current")
    with pytest.raises(
        SchemaChanged, match="counts every record, and the fold's counts the current rows of each tx_id"
    ):
        current.prepare(ViewCase.shape, START)
    current.close()


def test_an_unchanged_row_changes_no_group(tmp_path: Path) -> None:
    view = counters(tmp_path / "live.db", by=["merchant"], measures=MEASURES, over="current")
    case = CurrentCase(lambda: view)
    events = some_events(40)
    view.prepare(case.shape, START)
    view.apply(case.delta(events, 0, 40), at(0), at(40))
    once = held(view)
    again = at(0, epoch=1)
    view.move(at(40), again)
    view.apply(case.delta(events, 0, 40), again, at(40, epoch=1))
    assert held(view) == once == in_order(case.content(events, 40))
    view.close()
