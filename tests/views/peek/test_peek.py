"""A look into every kind of view by somebody who knows its description alone, while it is written and rebuilt.

The views are real ones, filled through their own API; a description goes through JSON, as it does in the log. What a
look must not do is tried: change a file, run what a description says, take for ever.
"""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest

from file_view import FileView
from foldlog.errors import InvalidArgument, ViewUnavailable
from foldlog.limits import PEEK_ROWS_MAX
from foldlog.views.contract import Delta, Shape, View
from foldlog.views.counters import measures as fl
from foldlog.views.counters.counters import check_aggregation, counters
from foldlog.views.lake.lake import Format, lake
from foldlog.views.peek.peek import Page, Peek, open_peek
from foldlog.views.search.search import search
from foldlog.views.table.table import table
from postgres_server import PostgresServer
from views.view_contract import START, Event, ViewCase, at, delta_of

CHAI = [Event(n, f"tx-{n:03d}", f"Chai Point {n % 3}", 100 * n) for n in range(20)]

ENGINES: dict[str, Callable[[Path], View]] = {
    "sqlite": lambda base: table(base / "live.db", "payments"),
    "tantivy": lambda base: search(base / "search", ["merchant"], "tantivy"),
    "fts5": lambda base: search(base / "search.db", ["merchant"], "fts5"),
    "delta": lambda base: lake(base / "delta"),
    "delta-merge": lambda base: lake(base / "merged", mode="merge"),
    "iceberg": lambda base: lake(base / "iceberg", "iceberg"),
    "parquet": lambda base: lake(base / "parquet", "parquet"),
}


def peek_of(view: View) -> Peek:
    """As another process opens it: from the text of the description."""
    return open_peek(json.loads(json.dumps(view.description())))


def fill(view: View, events: list[Event], start: int, stop: int) -> None:
    """Apply a range of the events."""
    case = ViewCase(lambda: view)
    if start == 0:
        view.prepare(case.shape, START)
    view.apply(case.delta(events, start, stop), START if start == 0 else at(start), at(stop))


def column(page: Page, name: str) -> list[object]:
    number = page.columns.index(name)
    return [row[number] for row in page.rows]


@pytest.fixture(params=[*ENGINES, "postgres"])
def view(request: pytest.FixtureRequest, tmp_path: Path) -> View:
    """Any view that holds rows."""
    if request.param == "postgres":
        server: PostgresServer = request.getfixturevalue("postgres")
        return table(server.new_database(), "payments")
    return ENGINES[request.param](tmp_path)


def test_the_newest_rows_come_first_and_all_are_counted_while_the_view_is_written(view: View) -> None:
    fill(view, CHAI, 0, 12)
    with closing(view), peek_of(view) as peek:
        first = peek.rows(5)
        assert (first.total, len(first.rows)) == (12, 5)
        assert set(column(first, "tx_id")) <= {event.tx_id for event in CHAI[:12]}
        fill(view, CHAI, 12, 20)
        newest = peek.rows(3)
        assert newest.total == 20
        assert sorted(map(str, column(newest, "tx_id"))) == ["tx-017", "tx-018", "tx-019"]
        assert peek.kind == view.kind


def test_a_text_is_found_wherever_it_stands(view: View) -> None:
    fill(view, CHAI, 0, 20)
    with closing(view), peek_of(view) as peek:
        found = peek.search("point 2" if view.kind != "search" else "point AND 2", 50)
        assert sorted(map(str, column(found, "tx_id"))) == [event.tx_id for event in CHAI if event.offset % 3 == 2]
        assert peek.search("coffee").rows == []


@pytest.mark.parametrize("format_", ["delta", "parquet"])
def test_columns_that_split_the_files_are_shown_and_searched(format_: Format, tmp_path: Path) -> None:
    view = lake(tmp_path / "lake", format_, partition_by="merchant")
    fill(view, CHAI, 0, 20)
    with closing(view), peek_of(view) as peek:
        assert set(column(peek.rows(20), "merchant")) == {"Chai Point 0", "Chai Point 1", "Chai Point 2"}
        assert len(peek.search("point 2", 50).rows) == len(CHAI) // 3


def test_a_look_goes_on_across_a_rebuild(view: View) -> None:
    fill(view, CHAI, 0, 20)
    with closing(view), peek_of(view) as peek:
        before = peek.rows(1)
        shadow = view.shadow("rebuild")
        case = ViewCase(lambda: view)
        shadow.prepare(case.shape, START)
        shadow.apply(case.delta(CHAI[:4], 0, 4), START, at(4))
        view.swap(shadow)
        shadow.close()
        after = peek.rows(10)
    assert before.total == 20
    assert (after.total, len(after.rows)) == (4, 4)


def test_a_view_that_is_not_there_is_one_sentence(view: View) -> None:
    with peek_of(view) as peek:
        looks: list[Callable[[], Page]] = [peek.rows, lambda: peek.search("chai")]
        for look in looks:
            with pytest.raises(ViewUnavailable, match="run the fold"):
                look()


def test_more_rows_than_people_read_are_refused(view: View) -> None:
    with peek_of(view) as peek:
        for limit in (0, -1, PEEK_ROWS_MAX + 1):
            with pytest.raises(InvalidArgument, match="a look gives between 1 and"):
                peek.rows(limit)


@pytest.mark.parametrize("engine", ["sqlite", "postgres", "tantivy", "fts5"])
def test_page_after_page_gives_every_row_once(engine: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    made = (
        table(request.getfixturevalue("postgres").new_database(), "payments")
        if engine == "postgres"
        else ENGINES[engine](tmp_path)
    )
    fill(made, CHAI, 0, 20)
    seen: list[object] = []
    with closing(made), peek_of(made) as peek:
        place = None
        while True:
            page = peek.rows(7, place)
            seen += column(page, "tx_id")
            if page.next is None:
                break
            place = page.next
        with pytest.raises(InvalidArgument, match="is not where a page has ended"):
            peek.rows(7, "'; DROP TABLE payments; --")
    assert seen == [event.tx_id for event in reversed(CHAI)]


@pytest.mark.parametrize("engine", ["sqlite", "postgres"])
def test_odd_names_and_odd_values_are_shown_and_searched_as_they_are(
    engine: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    place = tmp_path / "odd.db" if engine == "sqlite" else request.getfixturevalue("postgres").new_database()
    made = table(place, 'pay "%s" ments')
    columns = pa.schema(
        [
            ("rowid", pa.int64()),
            ('100% "odd"', pa.string()),
            ("price", pa.decimal128(9, 2)),
            ("at", pa.timestamp("us", "UTC")),
            ("is_paid", pa.bool_()),
            ("tags", pa.list_(pa.string())),
            ("data", pa.binary()),
            ("share", pa.float64()),
        ]
    )
    row = {
        "rowid": 2**60,
        '100% "odd"': "50%_off!" + "x" * 5000,
        "price": Decimal("10.50"),
        "at": datetime(2026, 1, 15, 10, 30, tzinfo=UTC),
        "is_paid": True,
        "tags": ["a", None],
        "data": b"\xff",
        "share": float("inf"),
        "_offset": 0,
    }
    made.prepare(Shape(columns, "rowid", ("rowid",)), START)
    made.apply(delta_of([row], columns, 0, 1), START, at(1))
    with closing(made), peek_of(made) as peek:
        (found,) = peek.rows().rows
        assert [row for page in (peek.search("50%_off!"), peek.search(str(2**60))) for row in page.rows] == [found] * 2
        assert peek.search("50__off").rows == []
        assert json.loads(json.dumps(found, allow_nan=False)) == found
    text = found.pop(1)
    assert isinstance(text, str)
    assert (text[:8], len(text)) == ("50%_off!", 2001)
    assert found == [str(2**60), "10.50", "2026-01-15T10:30:00Z", True, ["a", None], {"base64": "/w=="}, "inf"]


def test_a_password_is_in_no_description_and_no_url_of_a_description_reads_files(postgres: PostgresServer) -> None:
    url = postgres.new_database().replace("postgres@", "postgres:secret@") + "?passfile=/etc/secrets&sslmode=prefer"
    made = table(url, "payments")
    assert "secret" not in json.dumps(made.description())
    fill(made, CHAI, 0, 4)
    description = {**(made.description() or {}), "name": "payments"}
    description["url"] = f"{description['url']}&service=other&sslkey=/etc/passwd"
    with closing(made), open_peek(description) as peek:
        assert peek.rows().total == 4


# --- counters -------------------------------------------------------------------------------------------------------

EPOCH = datetime(2026, 1, 15, 10, tzinfo=UTC)
ROWS = pa.schema([("merchant", pa.string()), ("at", pa.timestamp("us", "UTC")), ("paise", pa.int64())])
MEASURES = {"payments": fl.count(), "paise": fl.sum("paise"), "mean": fl.avg("paise"), "last": fl.max("merchant")}


def counted(view: View, merchants: list[str], minutes: int) -> None:
    """One payment of each merchant in each minute: of 100 paise for the first, 200 for the second, and so on."""
    aggregation = view.aggregation
    assert aggregation is not None
    columns = check_aggregation(aggregation, ROWS)
    view.prepare(Shape(columns), START)
    rows = [
        {
            "merchant": merchant,
            "window_start": EPOCH + timedelta(minutes=minute),
            "payments": 1,
            "paise": 100 * (number + 1),
            "mean__sum": 100 * (number + 1),
            "mean__count": 1,
            "last": merchant,
        }
        for minute in range(minutes)
        for number, merchant in enumerate(merchants)
    ]
    view.apply(Delta(pa.Table.from_pylist(rows, schema=columns), {0: (0, 9)}), START, at(9))


@pytest.fixture(params=["sqlite", "postgres", "duckdb"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[], str]:
    """Where counters may be."""
    if request.param == "postgres":
        server: PostgresServer = request.getfixturevalue("postgres")
        return server.new_database
    return lambda: str(tmp_path / ("live.duckdb" if request.param == "duckdb" else "live.db"))


def test_counters_show_their_newest_windows_and_a_chart_of_the_largest_groups(place: Callable[[], str]) -> None:
    made = counters(place(), by=["merchant"], window=("at", "1 minute"), measures=MEASURES)
    merchants = [f"m{number:02d}" for number in range(12)]
    counted(made, merchants, 65)
    made.close()
    with peek_of(made) as peek:
        page = peek.rows(3)
        assert page.columns == ("merchant", "window_start", "payments", "paise", "mean", "last")
        assert page.rows[0] == ["m00", "2026-01-15T11:04:00Z", 1, 100, 100.0, "m00"]
        assert (page.total, column(peek.rows(3, page.next), "merchant")) == (780, ["m03", "m04", "m05"])
        assert column(peek.search("m07", 2), "merchant") == ["m07", "m07"]
        series = peek.series("paise")
        assert series is not None
        assert [one.name for one in series] == ["m11", "m10", "m09", "m08", "m07", "m06", "m05", "m04", "4 others"]
        first_ms = int((EPOCH + timedelta(minutes=5)).timestamp() * 1000)
        assert series[0].points == [(first_ms + 60_000 * minute, 1200) for minute in range(60)]
        assert series[-1].points[0] == (first_ms, 100 + 200 + 300 + 400)
        counts = peek.series()
        assert counts is not None
        assert counts[0].points[0] == (first_ms, 1)
        with pytest.raises(InvalidArgument, match="there are payments, paise, mean"):
            peek.series("last")


def test_counters_without_a_window_have_rows_and_no_chart(place: Callable[[], str]) -> None:
    made = counters(place(), measures={"payments": fl.count()})
    columns = check_aggregation(made.counted, ROWS)
    made.prepare(Shape(columns), START)
    made.close()
    with peek_of(made) as peek:
        assert (peek.rows().total, peek.rows().columns, peek.series()) == (0, ("payments",), None)
        with pytest.raises(InvalidArgument, match="counted by nothing"):
            peek.search("x")


def test_counters_with_a_window_and_no_rows_have_an_empty_chart(place: Callable[[], str]) -> None:
    made = counters(place(), window=("at", "1 hour"), measures={"payments": fl.count()})
    made.prepare(Shape(check_aggregation(made.counted, ROWS)), START)
    made.close()
    with peek_of(made) as peek:
        assert peek.series() == []


def test_a_duckdb_file_that_its_writer_holds_is_named_with_who_holds_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = counters(tmp_path / "live.duckdb", measures={"payments": fl.count()})
    made.prepare(Shape(check_aggregation(made.counted, ROWS)), START)
    held = "import duckdb, sys; c = duckdb.connect(sys.argv[1]); print('open', flush=True); sys.stdin.read()"
    command = [sys.executable, "-c", held, str(tmp_path / "live.duckdb")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as writer, peek_of(made) as peek:
        assert writer.stdout is not None
        assert writer.stdin is not None
        writer.stdout.readline()
        with monkeypatch.context() as impatient:
            impatient.setattr("foldlog.views.peek.sources.PEEK_MS", 100)
            with pytest.raises(ViewUnavailable, match=f"process {writer.pid} has the file open"):
                peek.rows()
        writer.stdin.close()
        writer.wait()
        assert peek.rows().total == 0


# --- what a look must not do ----------------------------------------------------------------------------------------


def test_a_search_box_takes_what_somebody_types_who_is_not_done_typing(tmp_path: Path) -> None:
    for engine in ("tantivy", "fts5"):
        made = ENGINES[engine](tmp_path)
        fill(made, CHAI, 0, 4)
        with closing(made), peek_of(made) as peek:
            for text in ('"chai po', "chai (", "merchant:", "chai AND", "*", '"', "chai: point", "no_column:chai"):
                assert len(peek.search(text).rows) in (0, 4)
            assert len(peek.search('"chai point').rows) == 4


def test_a_sqlite_file_that_is_looked_into_stays_as_it_is(tmp_path: Path) -> None:
    made = ENGINES["sqlite"](tmp_path)
    fill(made, CHAI, 0, 20)
    made.close()
    before = (tmp_path / "live.db").read_bytes()
    with peek_of(made) as peek:
        peek.rows()
        peek.search("chai")
    assert (tmp_path / "live.db").read_bytes() == before
    assert sorted(os.listdir(tmp_path)) == ["live.db"] or "live.db-wal" in os.listdir(tmp_path)


def test_a_look_that_takes_too_long_ends_with_a_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("foldlog.views.peek.sources.PEEK_MS", -1)
    monkeypatch.setattr("foldlog.views.peek.sources._STEPS", 10)
    made = ENGINES["sqlite"](tmp_path)
    fill(made, CHAI, 0, 20)
    with closing(made), peek_of(made) as peek, pytest.raises(ViewUnavailable, match="took longer than"):
        peek.search("nothing like it")


def test_only_what_a_fold_made_is_shown_of_a_file(tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "secrets.db")) as connection:
        connection.execute("CREATE TABLE users (name TEXT, password TEXT)")
        connection.commit()
    path = str(tmp_path / "secrets.db")
    descriptions: list[dict[str, object]] = [
        {"kind": "table", "engine": "sqlite", "path": path, "name": "users"},
        {"kind": "counters", "engine": "sqlite", "path": path, "name": "users"},
        {"kind": "search", "engine": "fts5", "path": path},
        {"kind": "table", "engine": "sqlite", "path": "/etc/passwd", "name": "users"},
    ]
    for description in descriptions:
        with open_peek(description) as peek, pytest.raises(ViewUnavailable):
            peek.rows()


@pytest.mark.parametrize(
    "description",
    [
        {},
        {"kind": "table", "engine": "sqlite", "path": "live.db", "name": "payments"},
        {"kind": "table", "engine": "sqlite", "path": "/live.db", "name": ""},
        {"kind": "table", "engine": "sqlite", "path": ["/live.db"], "name": "payments"},
        {"kind": "table", "engine": "sqlite", "path": "/a\0b", "name": "payments"},
        {"kind": "search", "engine": "duckdb", "path": "/live.duckdb", "name": "payments"},
        {"kind": "table", "engine": "postgresql", "url": "mysql://host/db", "name": "payments"},
        {"kind": "table", "engine": "postgresql", "url": "postgresql://host/db", "name": "a.b.c"},
        {"kind": "graph", "engine": "neo4j", "path": "/graph"},
    ],
)
def test_what_describes_no_view_is_refused_before_anything_is_opened(description: dict[str, object]) -> None:
    with pytest.raises(InvalidArgument):
        open_peek(description)


def test_a_view_of_ones_own_describes_nothing_unless_it_says_so(tmp_path: Path) -> None:
    assert FileView(tmp_path / "own.json").description() is None
