"""Sessions and measures with a state, in every engine: however the log is split, the view is the plain recompute."""

from __future__ import annotations

import datetime as dt
import math
import random
from collections.abc import Callable, Iterator, Sequence
from decimal import Decimal
from itertools import pairwise
from pathlib import Path
from typing import Any
from uuid import uuid4

import numpy as np
import psycopg
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from foldlog.errors import InvalidArgument, SchemaChanged, ViewUnavailable
from foldlog.views.contract import Delta, Shape
from foldlog.views.counters import measures as fl
from foldlog.views.counters import merging
from foldlog.views.counters import settings as counter_settings
from foldlog.views.counters.counters import check_aggregation, counters
from foldlog.views.counters.measures import Aggregation, Measure
from foldlog.views.counters.merging import input_name, lifted, merged
from foldlog.views.counters.settings import CounterSettings
from foldlog.views.counters.states import bucket_middle, bucket_numbers, estimates, registers_of
from foldlog.views.counters.view import CountersView
from foldlog.views.counters.windows import WINDOW_END, WINDOW_START, sessions
from postgres_server import PostgresServer
from views.counters.measures_model import EPOCH, Row, counted, hyperloglog, sketched, xxhash64
from views.view_contract import START, at, held, in_order

Counters = CountersView[Any]

COLUMNS = pa.schema(
    [
        ("user", pa.string()),
        ("at", pa.timestamp("us", "UTC")),
        ("page", pa.string()),
        ("bytes", pa.int64()),
        ("cost", pa.decimal128(10, 2)),
        ("took", pa.float64()),
        ("day", pa.date32()),
    ]
)
PLAIN = {"rows": fl.count(), "bytes": fl.sum("bytes"), "least": fl.min("page"), "most": fl.max("took")}
ALL = PLAIN | {
    "cost": fl.sum("cost"),
    "pages": fl.count_distinct("page"),
    "costs": fl.count_distinct("cost"),
    "about": fl.approx_count_distinct("page", error=0.1),
    "about_bytes": fl.approx_count_distinct("bytes"),
    "median": fl.quantile("took", 0.5),
    "p99": fl.quantile("bytes", 0.99, error=0.001),
    "entry": fl.first("page", order_by="at"),
    "exit": fl.last("page", order_by="at"),
    "largest": fl.top("page", 3, order_by="bytes"),
    "days": fl.top("day", 2, order_by="cost"),
}

_row = st.fixed_dictionaries(
    {
        "user": st.sampled_from([None, "a", "b"]),
        "at": st.none() | st.integers(-40, 40).map(lambda n: EPOCH + dt.timedelta(seconds=n * 5)),
        "page": st.sampled_from([None, "", "x", "y", "é", 'z"\\']),
        "bytes": st.none() | st.integers(-(2**40), 2**40) | st.integers(-3, 3),
        "cost": st.none() | st.decimals(-9, 9, places=2),
        "took": st.none() | st.floats(allow_nan=False, width=32),
        "day": st.sampled_from([None, dt.date(2026, 1, 31), dt.date(2026, 3, 1)]),
    }
)


@pytest.fixture(scope="module")
def shared_database(postgres: PostgresServer) -> str:
    return postgres.new_database()


@pytest.fixture(params=["sqlite", "postgres", pytest.param("duckdb", marks=pytest.mark.faults)])
def make(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Callable[..., Counters]]:
    """Counters in each engine, closed at the end."""
    place = str(tmp_path / ("live.db" if request.param == "sqlite" else "live.duckdb"))
    if request.param == "postgres":
        database = request.getfixturevalue("shared_database")
        schema = f"test_{uuid4().hex}"
        with psycopg.connect(database, autocommit=True) as connection:
            connection.execute(f"CREATE SCHEMA {schema}".encode())
        place = f"{database}?options=-csearch_path%3D{schema}"
    made: list[Counters] = []

    def make(**arguments: Any) -> Counters:
        made.append(counters(place, **arguments))
        return made[-1]

    yield make
    for view in made:
        view.close()


def partial_rows(aggregation: Aggregation, rows: Sequence[Row], columns: pa.Schema = COLUMNS) -> pa.Table:
    """What tasks make of a range: the partial results of each row, merged as they are on executors."""
    raw = pa.Table.from_pylist(list(rows), schema=columns)
    for measure in aggregation.measures.values():
        if measure.column is not None and measure.state in ("registers", "buckets"):
            values = raw[measure.column].to_pylist()
            if measure.state == "registers":
                hashes = [None if one is None else xxhash64(one) for one in values]
                wide = pa.array([None if one is None else one - (one >> 63 << 64) for one in hashes], pa.int64())
            else:
                wide = pa.array([None if one is None else float(one) for one in values], pa.float64())
            name = input_name(measure, measure.column)
            raw = raw if name in raw.column_names else raw.append_column(name, wide)
    schema = check_aggregation(aggregation, columns)
    found: dict[str, Any] = {name: raw[name] for name in aggregation.by}
    if aggregation.sessions is not None:
        starts = raw[aggregation.sessions.column].to_pylist()
        gap = dt.timedelta(milliseconds=aggregation.sessions.gap_ms)
        found[WINDOW_START] = starts
        found[WINDOW_END] = [None if one is None else one + gap for one in starts]
    return merged(pa.table(found | lifted(raw, aggregation, schema), schema=schema), aggregation)


def prepared(view: Counters, columns: pa.Schema = COLUMNS) -> Counters:
    view.prepare(Shape(check_aggregation(view.counted, columns), None, view.counted.group_columns()), START)
    return view


def feed(view: Counters, rows: Sequence[Row], columns: pa.Schema = COLUMNS) -> None:
    here = view.bookmark()
    assert here is not None
    offset = here.positions[0].offset
    delta = Delta(partial_rows(view.counted, rows, columns), {0: (offset, offset + 1)})
    view.apply(delta, here, at(offset + 1, epoch=here.epoch))


def pieces(rows: list[Row], cuts: list[int]) -> list[list[Row]]:
    edges = sorted({0, len(rows), *(cut for cut in cuts if cut < len(rows))})
    return [rows[start:stop] for start, stop in pairwise(edges)]


@settings(max_examples=8, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    rows=st.lists(_row, max_size=30),
    cuts=st.lists(st.integers(0, 30), max_size=5),
    by=st.sampled_from([["user"], [], ["user", "day"]]),
    window=st.sampled_from([None, sessions("at", "7 seconds")]),
    measures=st.sampled_from([PLAIN, ALL]),
)
def test_however_the_log_is_split_sessions_and_states_are_the_plain_recompute(
    make: Callable[..., Counters],
    rows: list[Row],
    cuts: list[int],
    by: list[str],
    window: Any,
    measures: dict[str, Measure],
) -> None:
    view = make(by=by, window=window, measures=measures)
    view.drop()
    prepared(view)
    for piece in pieces(rows, cuts):
        feed(view, piece)
    assert in_order(held(view)) == in_order(counted(view.counted, rows))
    view.close()


def _event(second: float, user: str | None = "a", **more: Any) -> Row:
    row: Row = dict.fromkeys(COLUMNS.names)
    return row | {"user": user, "at": EPOCH + dt.timedelta(seconds=second), "page": f"p{second}", "bytes": 1, **more}


def _spans(view: Counters) -> list[tuple[float, float, int]]:
    rows: list[dict[str, Any]] = held(view)
    return sorted(
        ((row[WINDOW_START] - EPOCH).total_seconds(), (row[WINDOW_END] - EPOCH).total_seconds(), row["rows"])
        for row in rows
    )


SESSIONS: dict[str, Any] = {"window": sessions("at", "10 seconds"), "by": ["user"], "measures": ALL}


class TestSessions:
    def test_a_late_event_joins_two_sessions_with_everything_in_them(self, make: Callable[..., Counters]) -> None:
        view = prepared(make(**SESSIONS))
        feed(view, [_event(0), _event(18)])
        assert _spans(view) == [(0, 10, 1), (18, 28, 1)]
        feed(view, [_event(9)])
        assert _spans(view) == [(0, 28, 3)]
        (row,) = held(view)
        assert (row["bytes"], row["pages"], row["entry"], row["exit"]) == (3, 3, "p0", "p18")

    def test_what_is_exactly_the_gap_apart_is_two_sessions_as_in_spark(self, make: Callable[..., Counters]) -> None:
        view = prepared(make(**SESSIONS))
        feed(view, [_event(0)])
        feed(view, [_event(10)])
        feed(view, [_event(19.999999)])
        assert _spans(view) == [(0, 10, 1), (10, 29.999999, 2)]

    def test_a_chain_of_late_events_joins_everything(self, make: Callable[..., Counters]) -> None:
        view = prepared(make(**SESSIONS))
        seconds = [n * 9.5 for n in range(30)]
        random.Random(7).shuffle(seconds)
        for number in range(0, 30, 3):
            feed(view, [_event(second, user) for second in seconds[number : number + 3] for user in ("a", None)])
        assert _spans(view) == [(0, 285.5, 30), (0, 285.5, 30)]

    def test_an_event_inside_a_long_session_is_found_there(self, make: Callable[..., Counters]) -> None:
        view = prepared(make(**SESSIONS))
        feed(view, [_event(n * 5) for n in range(20)])
        feed(view, [_event(-100), _event(200)])
        feed(view, [_event(52)])
        assert _spans(view) == [(-100, -90, 1), (0, 105, 21), (200, 210, 1)]

    def test_a_person_sees_the_sessions_in_sql(self, tmp_path: Path) -> None:
        import sqlite3

        view = prepared(counters(tmp_path / "live.db", **SESSIONS))
        feed(view, [_event(0, bytes=5), _event(4, bytes=9)])
        view.close()
        opened = sqlite3.connect(tmp_path / "live.db")
        found = opened.execute("SELECT user, window_start, window_end, pages, largest FROM counters").fetchall()
        opened.close()
        assert found == [("a", "1970-01-01 00:00:00.000000Z", "1970-01-01 00:00:14.000000Z", 2, '["p4","p0"]')]


def test_a_view_reads_its_settings_again_and_refuses_others(make: Callable[..., Counters]) -> None:
    view = prepared(make(**SESSIONS))
    stored = CounterSettings(view.counted, check_aggregation(view.counted, COLUMNS))
    assert CounterSettings.from_json(stored.to_json()) == stored
    prepared(make(**SESSIONS))
    with pytest.raises(SchemaChanged, match="sessions of at with a gap of 10s and is now sessions of at with a gap of"):
        prepared(make(**SESSIONS | {"window": sessions("at", "20 seconds")}))
    prepared(make(name="one", measures={"exit": fl.last("page", order_by="at")}))
    with pytest.raises(SchemaChanged, match=r"last\(page by at\) and are now exit=last\(page by bytes\)"):
        prepared(make(name="one", measures={"exit": fl.last("page", order_by="bytes")}))


def test_too_many_different_values_are_refused_and_nothing_changes(
    make: Callable[..., Counters], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(counter_settings, "DISTINCT_MAX", 2)
    view = prepared(make(measures={"pages": fl.count_distinct("page")}))
    feed(view, [_event(0), _event(1)])
    with pytest.raises(ViewUnavailable, match=r"use fl.approx_count_distinct\('page'\)"):
        feed(view, [_event(2)])
    assert held(view) == [{"pages": 2}]


def test_a_sum_that_leaves_its_type_is_refused_in_a_session_too(make: Callable[..., Counters]) -> None:
    view = prepared(make(**SESSIONS | {"measures": {"bytes": fl.sum("bytes")}}))
    feed(view, [_event(0, bytes=2**63 - 1)])
    with pytest.raises(ViewUnavailable, match="a sum has grown beyond its type"):
        feed(view, [_event(1, bytes=1)])
    assert [row["bytes"] for row in held(view)] == [2**63 - 1]


def test_not_a_number_is_the_largest_in_a_top_and_not_in_a_quantile(make: Callable[..., Counters]) -> None:
    measures = {"most": fl.max("took"), "top": fl.top("page", 2, order_by="took"), "median": fl.quantile("took", 0.5)}
    view = prepared(make(measures=measures))
    for page, took in (("one", 1.0), ("nan", math.nan), ("inf", math.inf)):
        feed(view, [_event(0, page=page, took=took)])
    (row,) = held(view)
    most = row.pop("most")
    assert isinstance(most, float)
    assert math.isnan(most)
    assert row == {"top": ["nan", "inf"], "median": bucket_middle(int(bucket_numbers(np.array([1.0]), 6)[0]), 6)}


# --- the states themselves --------------------------------------------------------------------------------------------


@settings(max_examples=40, deadline=None)
@given(st.lists(st.floats(-1e300, 1e300, allow_subnormal=False), min_size=1), st.integers(1, 12))
def test_a_bucket_is_within_the_promised_error_of_every_number(numbers: list[float], bits: int) -> None:
    found = bucket_numbers(np.array(numbers), bits)
    for number, bucket in zip(numbers, found.tolist(), strict=True):
        middle = bucket_middle(bucket, bits)
        assert middle == sketched([number], 0.5, bits)
        if math.isfinite(number) and math.isfinite(middle):
            assert abs(middle - number) <= abs(number) * 2.0 ** -(bits + 1)
    assert sorted(found.tolist()) == [bucket for _, bucket in sorted(zip(numbers, found.tolist(), strict=True))]


@pytest.mark.parametrize("count", [0, 1, 10, 500, 4000, 60_000])
@pytest.mark.parametrize("error", [0.1, 0.02])
def test_an_estimate_is_as_close_as_promised(count: int, error: float) -> None:
    bits = fl.approx_count_distinct("user", error=error).size
    words = np.random.default_rng(count).integers(-(2**63), 2**63 - 1, count, dtype=np.int64)
    twice = pa.array(np.concatenate([words, words]))
    aggregation = Aggregation((), None, {"n": Measure("approx_count_distinct", "n", size=bits)})
    rows = pa.table({"n__registers": registers_of(twice, bits).cast(pa.binary())})
    state = merged(rows, aggregation)["n__registers"].combine_chunks()
    (found,) = estimates(state, bits) if count else (0,)
    assert abs(found - count) <= 3.5 * error * count
    if count < 1000:
        assert found == hyperloglog(words.tolist(), bits)


@settings(max_examples=8, deadline=None)
@given(st.lists(_row, min_size=1, max_size=40), st.randoms(use_true_random=False))
def test_the_state_itself_is_the_same_for_any_order_and_split(rows: list[Row], chance: random.Random) -> None:
    aggregation = Aggregation(("user",), None, ALL)
    whole = partial_rows(aggregation, rows)
    shuffled = list(rows)
    chance.shuffle(shuffled)
    cuts = sorted(chance.sample(range(len(rows) + 1), min(3, len(rows))))
    parts = [partial_rows(aggregation, shuffled[a:b]) for a, b in pairwise([0, *cuts, len(rows)]) if b > a]
    chance.shuffle(parts)
    again = merged(pa.concat_tables(parts), aggregation)
    assert in_order(again.to_pylist()) == in_order(whole.to_pylist())


def test_a_wrongly_merged_session_is_caught(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted: a session is merged with the one before it only, and not with an earlier one that lasts longer."""

    def planted(codes: Any, rows: pa.Table) -> Any:
        starts, ends = (np.array(rows[name].cast(pa.int64()).to_pylist()) for name in (WINDOW_START, WINDOW_END))
        order = np.lexsort((starts, codes))
        begins = np.ones(len(codes), np.bool_)
        begins[1:] = (codes[order][1:] != codes[order][:-1]) | (starts[order][1:] >= ends[order][:-1])
        found = np.empty(len(codes), np.int64)
        found[order] = np.cumsum(begins) - 1
        return found

    monkeypatch.setattr(merging, "_session_codes", planted)
    assert _long_session(tmp_path / "planted.db") != [(0, 105, 23)]


def test_short_sessions_within_a_long_one_are_part_of_it(tmp_path: Path) -> None:
    assert _long_session(tmp_path / "live.db") == [(0, 105, 23)]


def _long_session(path: Path) -> Any:
    view = prepared(counters(path, **SESSIONS))
    feed(view, [_event(n * 5) for n in range(20)])
    feed(view, [_event(12), _event(33)])
    feed(view, [_event(51)])
    found = _spans(view)
    view.close()
    return found


@pytest.mark.parametrize(
    ("measure", "sentence"),
    [
        (lambda: fl.quantile("took", 1.5), "from 0 to 1, such as 0.99, not 1.5"),
        (lambda: fl.quantile("took", True), "from 0 to 1"),
        (lambda: fl.quantile("took", 0.5, error=0), "between 0 and 1"),
        (lambda: fl.quantile("took", 0.5, error=1e-9), "too many buckets"),
        (lambda: fl.approx_count_distinct("page", error=2), "between 0 and 1"),
        (lambda: fl.approx_count_distinct("page", error=1e-6), "too many registers"),
        (lambda: fl.top("page", 0, order_by="at"), "from 1 to 1000 values, not 0"),
        (lambda: fl.last("page", order_by=""), "a measure is of a column"),
    ],
)
def test_a_measure_is_declared_right_or_refused(measure: Callable[[], Measure], sentence: str) -> None:
    with pytest.raises(InvalidArgument, match=sentence):
        measure()


@pytest.mark.parametrize(
    ("measure", "sentence"),
    [
        (fl.quantile("page", 0.5), "which is no number"),
        (fl.count_distinct("took"), "whose values are not exact"),
        (fl.approx_count_distinct("took"), "whose values are not exact"),
        (fl.last("page", order_by="nothing"), "is no column of the fold"),
        (fl.top("tags", 2, order_by="at"), "which has no order"),
    ],
)
def test_a_measure_fits_the_columns_or_is_refused(measure: Measure, sentence: str) -> None:
    columns = COLUMNS.append(pa.field("tags", pa.list_(pa.string())))
    with pytest.raises(InvalidArgument, match=sentence):
        check_aggregation(Aggregation((), None, {"n": measure}), columns)


def test_a_state_does_not_take_the_name_of_a_group() -> None:
    with pytest.raises(InvalidArgument, match="two columns 'user'"):
        check_aggregation(Aggregation(("user",), None, {"user": fl.count_distinct("page")}), COLUMNS)


def test_decimals_are_kept_with_their_digits(make: Callable[..., Counters]) -> None:
    view = prepared(make(measures={"costs": fl.top("cost", 2, order_by="at")}))
    feed(view, [_event(0, cost=Decimal("1.50")), _event(1, cost=Decimal("-0.01"))])
    assert held(view) == [{"costs": [Decimal("-0.01"), Decimal("1.50")]}]
