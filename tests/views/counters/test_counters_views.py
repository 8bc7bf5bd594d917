"""Counters: SQLite, PostgreSQL and DuckDB keep the contract of views, and count exactly whatever the split.

The contract's own tests run for the three engines. What only counters promise is compared with a model in plain
Python: partial results of any split of the log, merged, are the result of the whole.
"""

from __future__ import annotations

import datetime as dt
import math
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from decimal import Decimal
from itertools import pairwise
from pathlib import Path
from typing import Any
from uuid import uuid4

import duckdb
import psycopg
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from foldlog.errors import FoldError, InvalidArgument, SchemaChanged, StaleBookmark, ViewInUse, ViewUnavailable
from foldlog.views.contract import Delta, Shape
from foldlog.views.counters import measures as fl
from foldlog.views.counters.counters import check_aggregation, counters
from foldlog.views.counters.duckdb import DuckdbCounters
from foldlog.views.counters.measures import Aggregation, Measure
from foldlog.views.counters.view import CountersView
from foldlog.views.counters.windows import WINDOW_START, parse_window
from postgres_server import PostgresServer
from views.counters.counters_model import MEASURES, CountersCase, Rows, aggregated, shown
from views.view_contract import COLUMNS, START, ViewCase, ViewContract, at, held, in_order

Counters = CountersView[Any]

ENGINES = ("sqlite", "postgres", pytest.param("duckdb", marks=pytest.mark.faults))


class TestSqliteContract(ViewContract):
    @pytest.fixture
    def case(self, tmp_path: Path) -> ViewCase:
        return CountersCase(lambda: counters(tmp_path / "views" / "live.db", by=["merchant"], measures=MEASURES))


@pytest.fixture(scope="module")
def shared_database(postgres: PostgresServer) -> str:
    return postgres.new_database()


@pytest.fixture
def schema_url(shared_database: str) -> str:
    """A schema of the test's own, which is made a hundred times as quickly as a database."""
    schema = f"test_{uuid4().hex}"
    with psycopg.connect(shared_database, autocommit=True) as connection:
        connection.execute(f"CREATE SCHEMA {schema}".encode())
    return f"{shared_database}?options=-csearch_path%3D{schema}"


class TestPostgresContract(ViewContract):
    @pytest.fixture
    def case(self, schema_url: str) -> ViewCase:
        return CountersCase(lambda: counters(schema_url, by=["merchant"], measures=MEASURES))


@pytest.mark.faults
class TestDuckdbContract(ViewContract):
    @pytest.fixture
    def case(self, tmp_path: Path) -> ViewCase:
        return CountersCase(lambda: counters(tmp_path / "views" / "live.duckdb", by=["merchant"], measures=MEASURES))


@pytest.fixture(params=ENGINES)
def place(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Where the counters of a test are, in each engine."""
    if request.param == "postgres":
        return str(request.getfixturevalue("schema_url"))
    return str(tmp_path / ("live.db" if request.param == "sqlite" else "live.duckdb"))


Make = Callable[..., Counters]


@pytest.fixture
def make(place: str) -> Iterator[Make]:
    """Counters at the place, closed at the end."""
    made: list[Counters] = []

    def make(**arguments: Any) -> Counters:
        made.append(counters(place, **{"measures": MEASURES, **arguments}))
        return made[-1]

    yield make
    for view in made:
        view.close()


def prepared(view: Counters, columns: pa.Schema = COLUMNS) -> Counters:
    shape = Shape(check_aggregation(view.counted, columns), None, view.counted.group_columns())
    view.prepare(shape, START)
    return view


def feed(view: Counters, rows: Rows, columns: pa.Schema = COLUMNS) -> None:
    """One more range with these rows."""
    here = view.bookmark()
    assert here is not None
    offset = here.positions[0].offset
    delta = Delta(aggregated(view.counted, rows, columns), {0: (offset, offset + 1)})
    view.apply(delta, here, at(offset + 1, epoch=here.epoch))


def selected(place: str, statement: str = "SELECT * FROM counters") -> list[tuple[Any, ...]]:
    """What a person sees who opens the database with its own tool."""
    if place.startswith("postgresql"):
        with psycopg.connect(place, autocommit=True) as connection:
            cursor = connection.execute(statement.encode())
            return cursor.fetchall() if cursor.description else []
    if place.endswith(".duckdb"):
        with duckdb.connect(place) as opened:
            rows: list[tuple[Any, ...]] = opened.execute(statement).fetchall()
            return rows
    with closing(sqlite3.connect(place, isolation_level=None)) as file:
        return file.execute(statement).fetchall()


EVERYTHING = pa.schema(
    [
        ("shop", pa.string()),
        ("till", pa.int32()),
        ("price", pa.decimal128(6, 3)),
        ("paid", pa.bool_()),
        ("day", pa.date32()),
        ("raw", pa.binary()),
        ("at", pa.timestamp("us", "UTC")),
        ("pieces", pa.int64()),
        ("cost", pa.decimal128(20, 3)),
        ("weight", pa.float64()),
    ]
)
_moments = st.sampled_from(
    [dt.datetime(1969, 12, 31, 23, 59, 59, 7, dt.UTC) + dt.timedelta(seconds=9 * n) for n in range(9)]
)
_everything = st.fixed_dictionaries(
    {
        "shop": st.sampled_from([None, "", "a", "B", "é", "z'\""]),
        "till": st.sampled_from([None, -1, 7]),
        "price": st.sampled_from([None, Decimal("0.000"), Decimal("-1.500")]),
        "paid": st.sampled_from([None, True, False]),
        "day": st.sampled_from([None, dt.date(1, 1, 1), dt.date(2026, 3, 1)]),
        "raw": st.sampled_from([None, b"", b"\0\xff"]),
        "at": st.none() | _moments,
        "pieces": st.none() | st.integers(-(2**50), 2**50),
        "cost": st.none() | st.decimals(-(10**16), 10**16, places=3),
        "weight": st.none() | st.floats(allow_nan=False),
    }
)
_EVERY_MEASURE = {
    "rows": fl.count(),
    "priced": fl.count("cost"),
    "pieces": fl.sum("pieces"),
    "cost": fl.sum("cost"),
    "mean pieces": fl.avg("pieces"),
    "mean cost": fl.avg("cost"),
    **{
        f"least {name}": fl.min(name)
        for name in ("shop", "till", "price", "paid", "day", "raw", "at", "cost", "weight")
    },
    **{
        f"most {name}": fl.max(name) for name in ("shop", "till", "price", "paid", "day", "raw", "at", "cost", "weight")
    },
}


@settings(max_examples=12, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    rows=st.lists(_everything, max_size=25),
    cuts=st.lists(st.integers(0, 25), max_size=4),
    by=st.sampled_from([["shop"], ["shop", "till"], ["price", "day"], ["paid"], ["raw"], []]),
    window=st.sampled_from([None, ("at", "15 seconds")]),
)
def test_however_the_log_is_split_every_measure_of_every_type_is_exact(
    make: Make, rows: list[dict[str, Any]], cuts: list[int], by: list[str], window: tuple[str, str] | None
) -> None:
    view = make(by=by, window=window, measures=_EVERY_MEASURE, name="everything")
    view.drop()
    prepared(view, EVERYTHING)
    edges = sorted({0, len(rows), *(cut for cut in cuts if cut < len(rows))})
    for start, stop in pairwise(edges):
        feed(view, rows[start:stop], EVERYTHING)
    assert in_order(held(view)) == in_order(shown(view.counted, rows))
    view.close()


def test_strings_are_compared_as_spark_does_whatever_the_databases_language(make: Make) -> None:
    view = prepared(make(measures={"first": fl.min("tx_id"), "last": fl.max("tx_id")}))
    for key in ("b", "B", "é", "_", "z"):
        feed(view, [{"tx_id": key, "merchant": None, "amount": 1}])
    assert held(view) == [{"first": "B", "last": "é"}]


def test_not_a_number_is_the_largest_number(make: Make) -> None:
    columns = pa.schema([("weight", pa.float64())])
    view = prepared(make(measures={"least": fl.min("weight"), "most": fl.max("weight")}), columns)
    for weight in (math.nan, 1.5, math.inf):
        feed(view, [{"weight": weight}], columns)
    (row,) = held(view)
    assert row["least"] == 1.5
    assert isinstance(row["most"], float)
    assert math.isnan(row["most"])


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # sqlite3 may tell of it on top
@pytest.mark.parametrize(
    ("kind", "largest", "more"),
    [
        (pa.int64(), 2**63 - 1, 1),
        (pa.int64(), -(2**63), -1),
        (pa.decimal128(38, 2), Decimal("9" * 36 + ".99"), Decimal("0.01")),
        (pa.decimal128(38, 2), Decimal("-" + "9" * 36 + ".99"), Decimal("-0.01")),
    ],
)
def test_a_sum_that_leaves_its_type_is_refused_and_nothing_changes(
    make: Make, kind: pa.DataType, largest: Any, more: Any
) -> None:
    columns = pa.schema([("merchant", pa.string()), ("amount", kind)])
    view = prepared(make(by=["merchant"], measures={"paise": fl.sum("amount")}), columns)
    for merchant in ("a", None):
        feed(view, [{"merchant": merchant, "amount": largest}], columns)
    before = held(view)
    assert {row["paise"] for row in before} == {largest}
    for merchant in ("a", None):
        with pytest.raises(ViewUnavailable, match="a sum has grown beyond its type"):
            feed(view, [{"merchant": "new", "amount": more}, {"merchant": merchant, "amount": more}], columns)
    assert (view.bookmark(), held(view)) == (at(2), before)


def test_late_events_count_in_their_own_window(make: Make) -> None:
    columns = pa.schema([*COLUMNS, ("at", pa.timestamp("us", "UTC"))])
    view = prepared(make(by=["merchant"], window=("at", "1 minute"), measures={"payments": fl.count()}), columns)
    start = dt.datetime(2026, 3, 1, 9, 30, tzinfo=dt.UTC)
    for second in (0, 59, 60, 61, 30, 3600, 1):
        moment = start + dt.timedelta(seconds=second)
        feed(view, [{"tx_id": "x", "merchant": "Chai", "amount": 1, "at": moment}], columns)
    feed(view, [{"tx_id": "x", "merchant": "Chai", "amount": 1, "at": None}], columns)
    found = {row[WINDOW_START]: row["payments"] for row in held(view)}
    assert found == {start: 4, start + dt.timedelta(minutes=1): 2, start + dt.timedelta(hours=1): 1, None: 1}


def test_without_groups_there_is_one_row(make: Make) -> None:
    view = prepared(make(by=[]))
    assert held(view) == []
    for amount in (4, None, 8):
        feed(view, [{"tx_id": "x", "merchant": None, "amount": amount}])
    assert held(view) == [{"payments": 3, "paise": 12, "lowest": 4, "top": "x", "mean": 6.0}]


def test_a_group_without_a_value_has_none(make: Make) -> None:
    view = prepared(make(by=["merchant"]))
    feed(view, [{"tx_id": "x", "merchant": "Chai", "amount": None}])
    assert held(view) == [{"merchant": "Chai", "payments": 1, "paise": None, "lowest": None, "top": "x", "mean": None}]


def test_a_person_selects_from_the_counters_before_and_after_a_rebuild(make: Make, place: str) -> None:
    view = prepared(make(by=["merchant"]))
    feed(view, [{"tx_id": "a", "merchant": "Chai", "amount": 4}, {"tx_id": "b", "merchant": "Chai", "amount": 7}])
    assert selected(place) == [("Chai", 2, 11, 4, "b", 5.5)]
    with closing(view.shadow("rebuild")) as shadow:
        assert isinstance(shadow, CountersView)
        prepared(shadow)
        feed(shadow, [{"tx_id": "c", "merchant": "Tea", "amount": 1}])
        assert selected(place) == [("Chai", 2, 11, 4, "b", 5.5)]
        view.swap(shadow)
    assert selected(place) == [("Tea", 1, 1, 1, "c", 1.0)]
    view.drop_old()
    assert selected(place) == [("Tea", 1, 1, 1, "c", 1.0)]
    view.drop()
    with pytest.raises((sqlite3.Error, psycopg.Error, duckdb.Error)):
        selected(place)


def test_a_mean_of_decimals_is_selected_too(make: Make, place: str) -> None:
    columns = pa.schema([("cost", pa.decimal128(10, 2))])
    view = prepared(make(measures={"mean": fl.avg("cost")}), columns)
    feed(view, [{"cost": Decimal("1.00")}, {"cost": Decimal("1.01")}, {"cost": Decimal("1.00")}], columns)
    assert held(view) == [{"mean": Decimal("1.003333")}]
    ((mean,),) = selected(place)
    assert round(float(mean), 6) == 1.003333


def test_counters_of_different_names_share_a_database(make: Make, place: str) -> None:
    first = prepared(make(by=["merchant"], name="by_merchant"))
    second = prepared(make(by=[], name="by_merchant__total"))
    feed(first, [{"tx_id": "a", "merchant": "Chai", "amount": 4}])
    assert second.bookmark() == START
    assert len(selected(place, "SELECT * FROM by_merchant")) == 1
    first.drop()
    assert first.bookmark() is None
    assert held(second) == []


def test_what_somebody_else_made_under_the_name_is_left_alone(make: Make, place: str) -> None:
    selected(place, "CREATE TABLE counters (x INTEGER)")
    view = make(by=["merchant"])
    with pytest.raises(ViewUnavailable, match="counters"):
        prepared(view)
    assert selected(place) == []
    assert view.bookmark() is None


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"by": ["tx_id"]}, "counted by merchant and is now by tx_id"),
        ({"by": []}, "counted by merchant and is now by nothing"),
        ({"window": ("at", "1 hour")}, "window was 1m of at and is now 1h of at"),
        ({"window": None}, "window was 1m of at and is now none"),
        ({"measures": {**MEASURES, "more": fl.count()}}, r"measures were payments=count\(\).*more=count\(\)"),
        ({"measures": {"payments": fl.count("amount")}}, r"are now payments=count\(amount\)"),
    ],
)
def test_other_groups_windows_and_measures_need_a_rebuild(make: Make, change: dict[str, Any], sentence: str) -> None:
    columns = pa.schema([*COLUMNS, ("at", pa.timestamp("us", "UTC"))])
    settings: dict[str, Any] = {"by": ["merchant"], "window": ("at", "1 minute"), "measures": MEASURES}
    prepared(make(**settings), columns)
    with pytest.raises(SchemaChanged, match=sentence):
        prepared(make(**{**settings, **change}), columns)
    assert prepared(make(**settings), columns).bookmark() == START


def test_another_type_of_a_column_needs_a_rebuild(make: Make) -> None:
    prepared(make(by=["merchant"]))
    other = pa.schema([COLUMNS.field("tx_id"), COLUMNS.field("merchant"), ("amount", pa.decimal128(9, 2))])
    with pytest.raises(SchemaChanged, match="'paise' was int64 and is now decimal128"):
        prepared(make(by=["merchant"]), other)


def test_a_rebuild_may_change_what_is_counted(make: Make, place: str) -> None:
    prepared(make(by=["merchant"]))
    view = make(by=["tx_id"], measures={"number": fl.count()})
    with closing(view.shadow("rebuild")) as shadow:
        assert isinstance(shadow, CountersView)
        prepared(shadow)
        feed(shadow, [{"tx_id": "a", "merchant": "Chai", "amount": 4}])
        view.swap(shadow)
    assert held(view) == [{"tx_id": "a", "number": 1}]
    assert selected(place) == [("a", 1)]
    assert view.drop_old()


def test_rows_of_another_form_are_refused(make: Make) -> None:
    view = prepared(make(by=["merchant"]))
    with pytest.raises(SchemaChanged, match="a range has the columns merchant"):
        view.apply(Delta(pa.table({"merchant": ["x"]}), {0: (0, 1)}), START, at(1))
    with pytest.raises(InvalidArgument, match="counters are fed the columns merchant, payments"):
        view.prepare(Shape(COLUMNS), START)
    assert view.bookmark() == START


def test_a_strange_shadow_is_not_swapped_in(make: Make) -> None:
    view = prepared(make(by=["merchant"]))
    for shadow in (make(by=["merchant"], name="others"), view):
        with pytest.raises(InvalidArgument, match="no shadow of"):
            view.swap(shadow)
    with pytest.raises(ViewUnavailable, match="to put in its place"):
        view.swap(view.shadow("rebuild"))


def test_what_is_not_there_cannot_be_read_or_fed(make: Make) -> None:
    view = make(by=["merchant"])
    with pytest.raises(ViewUnavailable, match="run the fold"):
        view.scan()
    assert not view.drop_old()
    view.drop()
    with pytest.raises((ViewUnavailable, StaleBookmark)):
        view.apply(CountersCase(make).delta([], 0, 1), START, at(1))


class TestPostgres:
    """What is the engine's own."""

    def test_rights_and_views_of_others_live_on_through_a_rebuild(self, postgres_url: str) -> None:
        with closing(counters(postgres_url, by=["merchant"], measures=MEASURES)) as view:
            prepared(view)
            with psycopg.connect(postgres_url, autocommit=True) as connection:
                connection.execute("DROP ROLE IF EXISTS foldlog_reader")
                connection.execute("CREATE ROLE foldlog_reader")
                connection.execute("GRANT SELECT ON counters TO foldlog_reader")
                connection.execute("CREATE VIEW report AS SELECT merchant, paise FROM counters")
                self._rebuild(view, "Tea")
                assert connection.execute("SELECT * FROM report").fetchall() == [("Tea", 1)]
                assert self._may_read(connection)
                view.drop_old()
                with pytest.raises(ViewUnavailable, match="depend"):
                    view.drop()
                connection.execute("DROP OWNED BY foldlog_reader")
                connection.execute("DROP ROLE foldlog_reader")

    def test_other_columns_are_refused_while_a_view_depends_on_the_old_ones(self, postgres_url: str) -> None:
        with closing(counters(postgres_url, by=["merchant"], measures=MEASURES)) as view:
            prepared(view)
            other = counters(postgres_url, by=["merchant"], measures={"number": fl.count()})
            with psycopg.connect(postgres_url, autocommit=True) as connection, closing(other):
                connection.execute("DROP ROLE IF EXISTS foldlog_reader")
                connection.execute("CREATE ROLE foldlog_reader")
                connection.execute("GRANT SELECT ON counters TO foldlog_reader")
                connection.execute("CREATE VIEW report AS SELECT merchant, paise FROM counters")
                with pytest.raises(ViewInUse) as refused:
                    self._rebuild(other, "Tea")
                assert refused.value.dependents == ["report"]
                assert other.bookmark() == START
                connection.execute("DROP VIEW report")
                with closing(other.shadow("rebuild")) as shadow:
                    other.swap(shadow)
                assert connection.execute("SELECT * FROM counters").fetchall() == [("Tea", 1)]
                assert self._may_read(connection)
                connection.execute("DROP OWNED BY foldlog_reader")
                connection.execute("DROP ROLE foldlog_reader")

    def test_a_view_on_the_partial_results_themselves_is_named(self, postgres_url: str) -> None:
        with closing(counters(postgres_url, by=["merchant"], measures=MEASURES)) as view:
            prepared(view)
            with psycopg.connect(postgres_url, autocommit=True) as connection:
                connection.execute("CREATE VIEW deep AS SELECT mean__sum FROM counters__1")
                with pytest.raises(ViewInUse) as refused:
                    self._rebuild(view, "Tea")
                assert refused.value.dependents == ["deep"]

    def test_counters_may_stand_in_a_schema(self, postgres_url: str) -> None:
        with psycopg.connect(postgres_url, autocommit=True) as connection:
            connection.execute("CREATE SCHEMA shop")
            with closing(counters(postgres_url, by=["merchant"], measures=MEASURES, name="shop.live")) as view:
                prepared(view)
                feed(view, [{"tx_id": "a", "merchant": None, "amount": 4}])
                feed(view, [{"tx_id": "a", "merchant": None, "amount": 4}])
                assert connection.execute("SELECT merchant, paise FROM shop.live").fetchall() == [(None, 8)]
                self._rebuild(view, "Tea")
                assert connection.execute("SELECT merchant FROM shop.live").fetchall() == [("Tea",)]

    def test_text_that_the_server_cannot_store_is_refused_in_a_sentence(self, schema_url: str) -> None:
        with closing(counters(schema_url, by=["merchant"], measures=MEASURES)) as view:
            prepared(view)
            with pytest.raises(FoldError, match=r"'merchant'.* NUL"):
                feed(view, [{"tx_id": "a", "merchant": "Ch\0ai", "amount": 4}])
            assert view.bookmark() == START

    def test_the_password_is_not_shown(self) -> None:
        view = counters("postgresql://me:secret@db/shop", measures=MEASURES)
        assert view.place == "counters counters in postgresql://me@db/shop"

    @staticmethod
    def _rebuild(view: Counters, merchant: str) -> None:
        shadow = view.shadow("rebuild")
        assert isinstance(shadow, CountersView)
        with closing(shadow):
            prepared(shadow)
            feed(shadow, [{"tx_id": "a", "merchant": merchant, "amount": 1}])
            view.swap(shadow)

    @staticmethod
    def _may_read(connection: psycopg.Connection[Any]) -> bool:
        query = "SELECT has_table_privilege('foldlog_reader', 'counters', 'SELECT')"
        return connection.execute(query).fetchone() == (True,)


class TestDuckdb:
    """What is the engine's own."""

    def test_between_two_ranges_another_process_may_look(self, tmp_path: Path) -> None:
        path = tmp_path / "live.duckdb"
        view = prepared(counters(path, by=["merchant"], measures=MEASURES))
        feed(view, [{"tx_id": "a", "merchant": "Chai", "amount": 4}])
        look = "import duckdb, sys; print(duckdb.connect(sys.argv[1]).execute('SELECT paise FROM counters').fetchall())"
        seen = subprocess.run([sys.executable, "-c", look, str(path)], capture_output=True, text=True, check=True)
        assert seen.stdout.strip() == "[(4,)]"
        feed(view, [{"tx_id": "a", "merchant": "Chai", "amount": 5}])
        assert held(view)[0]["paise"] == 9

    def test_who_has_the_file_open_is_named(self, tmp_path: Path) -> None:
        path = tmp_path / "live.duckdb"
        aggregation = Aggregation(("merchant",), None, MEASURES)
        view = prepared(DuckdbCounters(str(path), aggregation, "counters", wait_ms=0))
        hold = "import duckdb, sys; opened = duckdb.connect(sys.argv[1]); print('open', flush=True); sys.stdin.read()"
        holder = subprocess.Popen(
            [sys.executable, "-c", hold, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        with holder:
            assert holder.stdout is not None
            assert holder.stdout.readline().strip() == "open"
            with pytest.raises(ViewUnavailable, match=f"process {holder.pid} has the file open"):
                view.bookmark()
        assert view.bookmark() == START

    def test_a_file_that_is_none_of_duckdbs_is_refused_in_a_line(self, tmp_path: Path) -> None:
        path = tmp_path / "live.duckdb"
        path.write_bytes(b"nothing of the kind" * 1000)
        with pytest.raises(ViewUnavailable, match="DuckDB says") as refused:
            counters(path, measures=MEASURES).bookmark()
        assert "\n" not in str(refused.value)


_INPUT = pa.schema(
    [
        *COLUMNS,
        ("at", pa.timestamp("us", "UTC")),
        ("local", pa.timestamp("us")),
        ("weight", pa.float64()),
        ("tags", pa.list_(pa.string())),
        ("cost", pa.decimal128(10, 2)),
        ("small", pa.int16()),
        ("Amount", pa.int64()),
        ("long", pa.large_string()),
    ]
)


def test_partial_results_have_the_types_that_spark_gives_them() -> None:
    measures = {
        "n": fl.count("tags"),
        "small": fl.sum("small"),
        "cost": fl.sum("cost"),
        "least": fl.min("small"),
        "mean": fl.avg("cost"),
    }
    aggregation = Aggregation(("long",), parse_window(("at", "1 minute")), measures)
    assert check_aggregation(aggregation, _INPUT) == pa.schema(
        [
            ("long", pa.string()),
            ("window_start", pa.timestamp("us", "UTC")),
            ("n", pa.int64()),
            ("small", pa.int64()),
            ("cost", pa.decimal128(20, 2)),
            ("least", pa.int16()),
            ("mean__sum", pa.decimal128(20, 2)),
            ("mean__count", pa.int64()),
        ]
    )


@pytest.mark.parametrize(
    ("by", "window", "measures", "sentence"),
    [
        (["shop"], None, {"n": fl.count()}, "by='shop' is no column of the fold, which has tx_id, merchant, amount"),
        (["weight"], None, {"n": fl.count()}, "by='weight' is double, which rows cannot be counted by"),
        (["tags"], None, {"n": fl.count()}, "by='tags' is list<"),
        ([], ("when", "1 day"), {"n": fl.count()}, "window='when' is no column"),
        ([], ("amount", "1 day"), {"n": fl.count()}, "window='amount' is int64 and no TIMESTAMP"),
        ([], ("local", "1 day"), {"n": fl.count()}, "window='local' is timestamp.* and no TIMESTAMP"),
        ([], None, {"n": fl.count("nothing")}, r"the column of measure 'n', count\(nothing\), is no column"),
        ([], None, {"n": fl.sum("weight")}, r"'n', sum\(weight\), is of floating-point numbers"),
        ([], None, {"n": fl.avg("weight")}, r"'n', avg\(weight\), is of floating-point numbers"),
        ([], None, {"n": fl.sum("merchant")}, "cannot be added up; cast it to BIGINT or DECIMAL"),
        ([], None, {"n": fl.max("tags")}, "which has no order"),
        (["merchant"], None, {"merchant": fl.count()}, "two columns 'merchant'"),
        ([], ("at", "1 day"), {"window_start": fl.count()}, "two columns 'window_start'"),
        ([], None, {"a": fl.avg("amount"), "a__sum": fl.count()}, "two columns 'a__sum'"),
        ([], None, {"n": fl.count(), "N": fl.count()}, "differ in case only"),
    ],
)
def test_what_cannot_be_counted_is_said_in_one_sentence(
    by: list[str], window: tuple[str, str] | None, measures: dict[str, Measure], sentence: str
) -> None:
    view = counters("live.db", by=by, window=window, measures=measures)
    with pytest.raises(InvalidArgument, match=sentence):
        check_aggregation(view.counted, _INPUT)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({}, "measures= says what to count"),
        ({"measures": {}}, "measures= says what to count"),
        ({"measures": {"": fl.count()}}, "a measure has a name"),
        ({"measures": {"n": "count"}}, "measure 'n' is one of fl.count"),
        ({"measures": MEASURES, "by": [3]}, r"\['merchant'\]"),
        ({"measures": MEASURES, "by": ["a", "a"]}, "twice"),
        ({"measures": MEASURES, "window": "1 minute"}, r"\('at', '1 minute'\)"),
        ({"measures": MEASURES, "name": ""}, "a table has a name"),
        ({"measures": MEASURES, "name": "x__old"}, "cannot name a view"),
        ({"measures": MEASURES, "name": "x__1"}, "cannot name counters"),
    ],
)
def test_counters_are_declared_right_or_refused(arguments: dict[str, Any], sentence: str) -> None:
    with pytest.raises(InvalidArgument, match=sentence):
        counters("live.db", **arguments)


@pytest.mark.parametrize("place", ["", 5, ":memory:", "mysql://host/db", "duckdb:///", "duckdb:///:memory:"])
def test_a_place_is_a_file_or_a_database(place: Any) -> None:
    with pytest.raises(InvalidArgument):
        counters(place, measures=MEASURES)


def test_the_engine_follows_from_the_place() -> None:
    kinds = {
        "live.db": "SqliteCounters",
        "sqlite:///views/live.db": "SqliteCounters",
        "live.duckdb": "DuckdbCounters",
        "duckdb:///views/live": "DuckdbCounters",
        "postgresql://db/shop": "PostgresCounters",
    }
    assert {place: type(counters(place, measures=MEASURES)).__name__ for place in kinds} == kinds
    view = counters("live.db", by="merchant", measures=MEASURES)
    assert (view.kind, view.adds, view.is_keyed) == ("counters", True, False)
    assert view.counted.by == ("merchant",)
