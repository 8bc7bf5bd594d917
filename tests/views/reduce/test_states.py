"""A state is checked against its declared columns, and is what a table gives back: storing it changes nothing."""

from __future__ import annotations

import struct
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import foldlog.spark as fl
from foldlog.errors import InvalidArgument
from foldlog.views.contract import META, Delta, Shape, View
from foldlog.views.reduce.states import StateColumns, state_schema
from foldlog.views.table.table import table
from views.view_contract import START, at

DDL = (
    "flag BOOLEAN, small TINYINT, number BIGINT, single FLOAT, real DOUBLE, money DECIMAL(9, 2), day DATE, moment"
    " TIMESTAMP, local TIMESTAMP_NTZ, text STRING, data BINARY, many ARRAY<BIGINT>, by MAP<STRING, DOUBLE>, part"
    " STRUCT<a: INT, b: ARRAY<STRING>>"
)
COLUMNS = StateColumns(state_schema(DDL))

TIMES = st.datetimes(datetime(2, 1, 1), datetime(9998, 1, 1))  # noqa: DTZ001 local times
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=5)
VALUES: dict[str, st.SearchStrategy[Any]] = {
    "flag": st.booleans(),
    "small": st.integers(-128, 127),
    "number": st.integers(-(2**63), 2**63 - 1),
    "single": st.floats(width=32),
    "real": st.floats(),
    "money": st.decimals(-9_999_999, 9_999_999, places=2),
    "day": st.dates(),
    "moment": TIMES.map(lambda one: one.replace(tzinfo=timezone(timedelta(hours=5)))),
    "local": TIMES,
    "text": TEXTS,
    "data": st.binary(max_size=5),
    "many": st.lists(st.none() | st.integers(-9, 9), max_size=3),
    "by": st.dictionaries(TEXTS, st.floats(allow_nan=False), max_size=3),
    "part": st.fixed_dictionaries({"a": st.none() | st.integers(-5, 5), "b": st.lists(TEXTS, max_size=2)}),
}
STATES = st.fixed_dictionaries({name: st.none() | values for name, values in VALUES.items()})


def stored(view: View, columns: StateColumns, states: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The states after a table has held them."""
    keys = pa.schema([("key", pa.string())])
    view.prepare(Shape(pa.schema([*keys, *columns.schema]), "key", ("key",)), START)
    names = [f"k{number:03d}" for number in range(len(states))]
    meta = {"_topic": "t", "_partition": 0, "_offset": 1, "_timestamp": datetime.now(UTC), "_deleted": False}
    arrays = {name: pa.array([meta[name]] * len(states)) for name in META}
    held = dict(zip(columns.schema.names, columns.arrays(list(states)), strict=True))
    view.apply(Delta(pa.table({"key": names, **held, **arrays}), {0: (0, 1)}), START, at(1))
    found = view.rows_of(pa.array(names), at(1)).sort_by("key")
    view.drop()
    return columns.states(found)


@pytest.mark.parametrize("engine", ["sqlite", "postgresql"])
def test_a_state_that_was_stored_is_the_state(engine: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    place = str(tmp_path / "x.db") if engine == "sqlite" else str(request.getfixturevalue("postgres_url"))
    view = table(place, "some_states")
    columns = StateColumns(COLUMNS.schema, view)

    @settings(max_examples=12, deadline=None, suppress_health_check=list(HealthCheck))
    @given(st.lists(STATES, min_size=1, max_size=8))
    def check(states: list[dict[str, Any]]) -> None:
        checked = []
        for one in states:
            try:
                checked.append(columns.checked(one))
            except ValueError as error:
                assert "NUL" in str(error)  # noqa: PT017 the only reason there is, and of one engine only
                assert engine == "postgresql"
        if checked:
            assert repr(stored(view, columns, checked)) == repr(checked)

    check()
    view.close()


WRONG: dict[str, tuple[str, object]] = {
    "a float for an integer": ("number", 1.0),
    "a bool for an integer": ("number", True),
    "too large": ("number", 2**63),
    "too many digits": ("money", Decimal("12345678.00")),
    "too many places": ("money", Decimal("0.001")),
    "no zone": ("moment", datetime(2026, 1, 1)),  # noqa: DTZ001 that is what is wrong
    "a zone": ("local", datetime(2026, 1, 1, tzinfo=UTC)),
    "a time for a date": ("day", datetime(2026, 1, 1, tzinfo=UTC)),
    "half a character": ("text", "\ud800"),
    "text for bytes": ("data", "x"),
    "another struct": ("part", {"a": 1}),
    "a text among numbers": ("many", [1, "x"]),
    "a text for a list": ("many", "abc"),
    "too large for a FLOAT": ("single", 1e39),
}


@pytest.mark.parametrize(("name", "value"), WRONG.values(), ids=WRONG)
def test_what_does_not_fit_is_refused_by_the_column(name: str, value: object) -> None:
    with pytest.raises(ValueError, match=rf"column {name!r} cannot be"):
        COLUMNS.checked(dict.fromkeys(COLUMNS.schema.names) | {name: value})


def test_a_state_has_the_declared_columns_and_no_others() -> None:
    columns = StateColumns(state_schema("a INT NOT NULL, b STRING"))
    assert columns.checked({"a": pa.scalar(3), "b": None}) == {"a": 3, "b": None}
    for given_state, why in (
        ({"a": 1}, "no 'b'"),
        ({"a": 1, "b": None, "c": 1}, "'c', which is not declared"),
        ({"a": None, "b": "x"}, "'a' is None, and declared NOT NULL"),
        ((1, 2), "a state is a dict of a, b, or None"),
    ):
        with pytest.raises(ValueError, match=why):
            columns.checked(given_state)


def test_forms_that_engines_would_change_are_one_from_the_start() -> None:
    given_state = {"single": 0.1, "real": -0.0, "money": Decimal(1), "by": {"b": 1, "a": 2}}
    state = COLUMNS.checked(dict.fromkeys(COLUMNS.schema.names) | given_state)
    assert state["single"] == struct.unpack("f", struct.pack("f", 0.1))[0]
    assert str(state["real"]) == "0.0"
    assert str(state["money"]) == "1.00"
    assert list(state["by"].items()) == [("a", 2.0), ("b", 1.0)]
    assert date(2026, 1, 2) == COLUMNS.checked(state | {"day": date(2026, 1, 2)})["day"]


def same(state: Any, rows: Any) -> Any:
    return state


REFUSED: dict[str, tuple[Callable[[], object], str]] = {
    "no state": (lambda: fl.reduce("x.db", "x", state="", step=same), "state= declares the columns"),
    "no type": (lambda: fl.reduce("x.db", "x", state="paid", step=same), "it ends where a type is expected"),
    "another type": (lambda: fl.reduce("x.db", "x", state="paid MONEY", step=same), "MONEY is not a type"),
    "twice": (lambda: fl.reduce("x.db", "x", state="a INT, A INT", step=same), "names the column 'a' twice"),
    "ours": (lambda: fl.reduce("x.db", "x", state="_offset INT", step=same), "which is foldlog's own"),
    "zero": (lambda: fl.reduce("x.db", "x", state="a INT", zero={"a": "0"}, step=same), "zero= does not fit state="),
    "no step": (lambda: fl.reduce("x.db", "x", state="a INT", step=3), "step= is a function"),  # type: ignore[arg-type]
    "tombstones": (
        lambda: fl.reduce("x.db", "x", state="a INT", step=same, tombstones="keep"),  # type: ignore[arg-type]
        "neither 'delete' nor 'step'",
    ),
    "a place": (lambda: fl.reduce("x.duckdb", "x", state="a INT", step=same), "in DuckDB only with mode=.append"),
    "no name": (lambda: fl.reduce("x.db", state="a INT", step=same), "a table has a name"),
    "each": (lambda: fl.each_row(7), "each_row\\(\\) takes a function"),  # type: ignore[arg-type]
}


@pytest.mark.parametrize(("call", "why"), REFUSED.values(), ids=REFUSED)
def test_bad_arguments_get_one_sentence(call: Callable[[], object], why: str) -> None:
    with pytest.raises(InvalidArgument, match=why) as refused:
        call()
    assert "\n" not in str(refused.value)
