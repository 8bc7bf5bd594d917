"""Views that get a column for each field that the schema does not name: the same for every split, and clear refusals.

The model is a loop in plain Python over the events; what the view holds is read from the engine.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import foldlog.spark as fl
from foldlog.errors import InvalidArgument, SchemaChanged
from foldlog.limits import FOLD_NEW_COLUMNS_MAX
from foldlog.testing import FoldTester
from foldlog.views.contract import Delta, Shape, View
from foldlog.views.growing import GrowingView
from foldlog.views.lake.lake import lake
from foldlog.views.table.table import table
from views.view_contract import START, at, delta_of

MAP = pa.map_(pa.string(), pa.string())
COLUMNS = pa.schema([("tx_id", pa.string()), ("amount", pa.int64()), ("_more", MAP)])
SHAPE = Shape(COLUMNS, "tx_id", ("tx_id",))

FIELDS = st.dictionaries(
    st.sampled_from(["tip", "note", "Note", "amount", "xmin", "_id", "to go", "seat"]),
    st.one_of(st.text(max_size=3), st.integers(), st.none(), st.booleans(), st.lists(st.integers(), max_size=2)),
    max_size=3,
)
Event = tuple[str, dict[str, Any]]
EVENTS = st.lists(st.tuples(st.sampled_from(["a", "b", "c"]), FIELDS), min_size=1, max_size=12)

ENGINES: dict[str, Callable[[Path], View]] = {
    "sqlite": lambda base: table(base / "shop.db", "payments"),
    "appending": lambda base: table(base / "shop.db", "payments", mode="append"),
    "parquet": lambda base: lake(base / "lake", "parquet"),
    "delta-merge": lambda base: lake(base / "lake", mode="merge"),
}


def delta(events: Sequence[Event], start: int, stop: int) -> Delta:
    rows: list[dict[str, object]] = []
    for offset in range(start, stop):
        key, fields = events[offset]
        more = [(name, json.dumps(value, ensure_ascii=False)) for name, value in sorted(fields.items())]
        rows.append({"tx_id": key, "amount": offset, "_more": more or None, "_offset": offset})
    return delta_of(rows, COLUMNS, start, stop)


def model(events: Sequence[Event], *, keeps_all: bool) -> list[dict[str, object]]:
    """Rows without nulls: a column that a row does not fill is null, whether the view has it or not."""
    rows: dict[object, dict[str, object]] = {}
    for offset, (key, fields) in enumerate(events):
        row: dict[str, object] = {"tx_id": key, "amount": offset}
        left = {}
        for name, value in fields.items():
            text = value if isinstance(value, str) else json.dumps(value)
            if name not in ("tip", "note", "seat"):
                left[name] = json.dumps(value, ensure_ascii=False)
            elif value is not None:
                row[name] = text
        rows[offset if keeps_all else key] = {**row, **({"_more": sorted(left.items())} if left else {})}
    return list(rows.values())


def shown(view: View) -> list[dict[str, object]]:
    rows = [row for batch in view.scan().batches for row in batch.to_pylist()]
    found = []
    for row in rows:
        more = row.get("_more")
        if isinstance(more, str):  # SQL engines have maps as JSON
            row["_more"] = sorted(json.loads(more).items())
        own = {name: value for name, value in row.items() if value is not None and name not in META}
        found.append(own)
    return found


META = ("_topic", "_partition", "_offset", "_timestamp", "_deleted")


def normal(rows: list[dict[str, object]]) -> list[str]:
    return sorted(json.dumps(row, sort_keys=True, ensure_ascii=False) for row in rows)


@pytest.mark.parametrize(
    "engine", ["sqlite", *(pytest.param(one, marks=pytest.mark.faults) for one in ENGINES if one != "sqlite")]
)
def test_every_split_gives_the_columns_and_the_rows_of_all_records(
    engine: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    @settings(max_examples=6 if engine == "sqlite" else 20, deadline=None)
    @given(events=EVENTS, data=st.data())
    def check(events: list[Event], data: st.DataObject) -> None:
        base = tmp_path_factory.mktemp("growing")
        cuts = sorted({len(events), *data.draw(st.lists(st.integers(1, len(events)), max_size=3))})
        here = 0
        view = GrowingView(ENGINES[engine](base))
        view.prepare(SHAPE, START)
        for cut in cuts:
            view.apply(delta(events, here, cut), at(here), at(cut))
            if data.draw(st.booleans()):  # the next range by a process of its own
                view.close()
                view = GrowingView(ENGINES[engine](base))
                view.prepare(SHAPE, START)
            here = cut
        view.close()
        with closing(GrowingView(ENGINES[engine](base))) as view:
            wanted = model(events, keeps_all=engine in ("appending", "parquet"))
            assert normal(shown(view)) == normal(wanted)
            shadow = view.shadow("rebuild")
            shadow.prepare(SHAPE, at(0, epoch=1), loading=True)
            shadow.apply(delta(events, 0, len(events)), at(0, epoch=1), at(len(events), epoch=1))
            shadow.finish_loading()
            view.swap(shadow)
            assert normal(shown(view)) == normal(wanted)

    check()


def test_names_that_are_data_are_refused_and_nothing_changes(tmp_path: Path) -> None:
    view = GrowingView(table(tmp_path / "shop.db", "payments"))
    view.prepare(SHAPE, START)
    events: list[Event] = [(f"k{number}", {f"user{number}": 1}) for number in range(FOLD_NEW_COLUMNS_MAX + 1)]
    with closing(view), pytest.raises(InvalidArgument, match=r"201 fields .*use on_new_column='keep'"):
        view.apply(delta(events, 0, len(events)), START, at(len(events)))
    assert view.bookmark() == START


def test_a_field_that_the_fold_now_types_needs_a_rebuild(tmp_path: Path) -> None:
    view = GrowingView(table(tmp_path / "shop.db", "payments"))
    view.prepare(SHAPE, START)
    view.apply(delta([("a", {"tip": 5})], 0, 1), START, at(1))
    typed = Shape(pa.schema([*COLUMNS, ("tip", pa.int64())]), "tx_id", ("tx_id",))
    with closing(view), pytest.raises(SchemaChanged, match="column 'tip' is string"):
        view.prepare(typed, START)


def test_mistakes_are_told_in_one_sentence(tmp_path: Path) -> None:
    topic = fl.topic("payments", key="tx_id", schema="amount BIGINT", on_new_column="add")
    other = fl.topic("orders", key="tx_id", schema="amount BIGINT")
    counters = fl.counters(tmp_path / "x.db", by="amount", measures={"n": fl.count()})
    with pytest.raises(InvalidArgument, match=r"adds columns to tables and lakes, and .* is a counters view"):
        fl.fold(topic, into=counters, name="it")(lambda rows: rows)
    with pytest.raises(InvalidArgument, match="this fold joins two; use 'keep'"):
        fl.fold(topic, other, into=fl.table(tmp_path / "x.db", "t"), name="it")(lambda rows, more: rows)
    view = GrowingView(table(tmp_path / "shop.db", "payments"))
    with pytest.raises(InvalidArgument, match=r"leaves out _more, .*on_new_column='ignore'"):
        view.prepare(Shape(pa.schema([("tx_id", pa.string())]), "tx_id", ("tx_id",)), START)


def test_the_fixture_knows_new_columns() -> None:
    topic = fl.topic("payments", key="tx_id", schema="amount BIGINT", on_new_column="add")
    fold = fl.fold(topic, into=fl.table("x.db", "t"), name="it")(lambda rows: rows)
    records = [{"tx_id": "a", "amount": 1, "tip": "x"}, {"tx_id": "b", "amount": 2, "seat": [1], "Tip": 3}]
    tester = FoldTester()
    assert tester(fold, records) == [
        {"tx_id": "a", "amount": 1, "_more": None, "seat": None, "tip": "x"},
        {"tx_id": "b", "amount": 2, "_more": [("Tip", "3")], "seat": "[1]", "tip": None},
    ]
    tester.check_law(fold, records, tries=3)
