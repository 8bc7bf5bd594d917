"""Search views: both engines keep the contract of views, find what they should, and refuse in one sentence.

The contract's own tests run for tantivy and for SQLite's FTS5; then what only search promises, for both of them.
"""

from __future__ import annotations

import datetime as dt
import decimal
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from foldlog.errors import InvalidArgument, SchemaChanged, StaleBookmark, ViewUnavailable
from foldlog.views.contract import Shape
from foldlog.views.search.fts import FtsSearch
from foldlog.views.search.search import search
from foldlog.views.search.tantivy import TantivySearch
from views.view_contract import COLUMNS, START, ViewCase, ViewContract, at, delta_of, held

SearchView = TantivySearch | FtsSearch


class TestTantivyContract(ViewContract):
    @pytest.fixture
    def case(self, tmp_path: Path) -> ViewCase:
        return ViewCase(lambda: search(tmp_path / "views" / "search", ["tx_id"], engine="tantivy"))


class TestFtsContract(ViewContract):
    @pytest.fixture
    def case(self, tmp_path: Path) -> ViewCase:
        return ViewCase(lambda: search(tmp_path / "views" / "search.db", ["tx_id"], engine="fts5"))


NOTES = pa.schema([("tx_id", pa.string()), ("merchant", pa.string()), ("note", pa.string())])
SHAPE = Shape(NOTES, "tx_id", ("tx_id",))


@pytest.fixture(params=["tantivy", "fts5"])
def engine(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def view(engine: str, tmp_path: Path) -> Iterator[SearchView]:
    view = search(tmp_path / "search", ["merchant", "note"], engine=engine)
    yield view
    view.close()


def fill(view: SearchView, rows: list[dict[str, object]], columns: pa.Schema = NOTES) -> None:
    numbered = [{"_offset": number, **row} for number, row in enumerate(rows)]
    view.apply(delta_of(numbered, columns, 0, len(rows)), START, at(len(rows)))


def found(view: SearchView, query: str) -> list[str]:
    return sorted(str(row["tx_id"]) for row in view.search(query))


def test_words_are_found_whatever_their_case_in_all_text_columns(view: SearchView) -> None:
    view.prepare(SHAPE, START)
    fill(
        view,
        [
            {"tx_id": "1", "merchant": "Chai Point", "note": "two cups"},
            {"tx_id": "2", "merchant": "Café Ünal", "note": "CHAI"},
            {"tx_id": "3", "merchant": None, "note": "point of sale"},
            {"tx_id": "4", "merchant": "Tea", "note": None},
        ],
    )
    assert found(view, "chai") == ["1", "2"]
    assert found(view, "chai point") == ["1"]
    assert found(view, "chai OR tea") == ["1", "2", "4"]
    assert found(view, "merchant:chai") == ["1"]
    assert found(view, '"two cups"') == ["1"]
    assert found(view, '"cups two"') == []
    assert found(view, "ÜNAL") == ["2"]
    assert view.search("cups") == [{"tx_id": "1", "merchant": "Chai Point", "note": "two cups"}]
    assert len(view.search("chai OR tea", limit=2)) == 2


def test_a_newer_record_replaces_and_a_tombstone_deletes_what_is_found(view: SearchView) -> None:
    view.prepare(SHAPE, START)
    fill(view, [{"tx_id": "1", "note": "alpha"}, {"tx_id": "2", "note": "alpha"}, {"tx_id": "1", "note": "beta"}])
    assert (found(view, "alpha"), found(view, "beta")) == (["2"], ["1"])
    newer: list[dict[str, object]] = [
        {"tx_id": "2", "_deleted": True, "_offset": 3},
        {"tx_id": "1", "note": "gamma", "_offset": 4},
    ]
    view.apply(delta_of(newer, NOTES, 3, 5), at(3), at(5))
    assert (found(view, "alpha"), found(view, "beta"), found(view, "gamma")) == ([], [], ["1"])
    assert held(view) == [{"tx_id": "1", "merchant": None, "note": "gamma"}]


def test_the_rows_of_a_keys_newest_record_replace_all_of_its_rows(view: SearchView) -> None:
    columns = pa.schema(
        [("tx_id", pa.string()), ("line", pa.int64()), ("merchant", pa.string()), ("note", pa.string())]
    )
    view.prepare(Shape(columns, "tx_id", ("tx_id", "line")), START)
    first: list[dict[str, object]] = [
        {"tx_id": "a", "line": line, "note": f"old {line}", "_offset": 0} for line in range(3)
    ]
    again: list[dict[str, object]] = [
        {"tx_id": "b", "line": 0, "note": note, "_offset": 1} for note in ("lost", "kept")
    ]
    view.apply(delta_of([*first, *again], columns, 0, 2), START, at(2))
    assert len(held(view)) == 4
    within: list[dict[str, object]] = [
        {"tx_id": "a", "line": 7, "note": "newer", "_offset": 2},
        {"tx_id": "a", "line": 1, "note": "newest", "_offset": 3},
        {"tx_id": "a", "line": 2, "note": "newest", "_offset": 3},
    ]
    view.apply(delta_of(within, columns, 2, 4), at(2), at(4))
    assert sorted((row["tx_id"], row["line"], row["note"]) for row in held(view)) == [
        ("a", 1, "newest"),
        ("a", 2, "newest"),
        ("b", 0, "kept"),
    ]
    assert view.search("old") == [] == view.search("lost")


def test_a_record_of_another_partition_is_another_record_whatever_its_offset(view: SearchView) -> None:
    columns = pa.schema(
        [("tx_id", pa.string()), ("line", pa.int64()), ("merchant", pa.string()), ("note", pa.string())]
    )
    view.prepare(Shape(columns, "tx_id", ("tx_id", "line")), START)
    rows: list[dict[str, object]] = [
        {"tx_id": "a", "line": 1, "note": "older", "_offset": 3, "_partition": 0},
        {"tx_id": "a", "line": 2, "note": "newest", "_offset": 3, "_partition": 1},
    ]
    view.apply(delta_of(rows, columns, 0, 4), START, at(4))
    assert [(row["line"], row["note"]) for row in held(view)] == [(2, "newest")]
    assert view.search("older") == []


def test_every_stored_value_comes_back_as_it_was(view: SearchView) -> None:
    columns = pa.schema(
        [
            ("tx_id", pa.string()),
            ("merchant", pa.string()),
            ("note", pa.string()),
            ("cost", pa.decimal128(38, 18)),
            ("at", pa.timestamp("us", "UTC")),
            ("raw", pa.binary()),
            ("share", pa.float64()),
            ("big", pa.int64()),
            ("tags", pa.list_(pa.string())),
        ]
    )
    row: dict[str, Any] = {
        "tx_id": 'odd "key"\0\n\\',
        "merchant": "a\0b\u2028",
        "note": "",
        "cost": decimal.Decimal("12345678901234567890.123456789012345678"),
        "at": dt.datetime(1969, 12, 31, 23, 59, 59, 999_999, dt.UTC),
        "raw": b"\0\xff",
        "share": -math.inf,
        "big": -(2**63),
        "tags": ["x", None],
    }
    view.prepare(Shape(columns, "tx_id", ("tx_id",)), START)
    fill(view, [row, {"tx_id": "empty"}], columns)
    empty = {**dict.fromkeys(columns.names), "tx_id": "empty"}
    assert sorted(held(view), key=lambda row: str(row["tx_id"])) == [empty, row]


_keys = st.one_of(
    st.text(st.characters(exclude_categories=["Cs"]), max_size=5),
    st.sampled_from(["", "\0bookmark", "\0h", "x" * 2000, "x" * 2001, "é" * 70_000, "*", "AND"]),
)


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(keys=st.lists(_keys, min_size=1, max_size=8))
def test_any_text_can_be_a_key(engine: str, tmp_path: Path, keys: list[str]) -> None:
    view = search(tmp_path / "search", ["merchant", "note"], engine=engine)
    view.drop()
    view.prepare(SHAPE, START)
    fill(view, [{"tx_id": key, "note": "before"} for key in keys])
    view.apply(delta_of([{"tx_id": keys[0], "_deleted": True, "_offset": 99}], NOTES, 99, 100), at(len(keys)), at(100))
    assert {row["tx_id"] for row in held(view)} == set(keys) - {keys[0]}
    assert view.bookmark() == at(100)
    view.close()


@pytest.mark.parametrize("kind", [pa.int64(), pa.binary()])
def test_keys_need_not_be_text(view: SearchView, kind: pa.DataType) -> None:
    columns = pa.schema([("tx_id", kind), ("merchant", pa.string()), ("note", pa.string())])
    keys: list[Any] = [-5, 7] if kind == pa.int64() else [b"\0", b"\0\0"]
    view.prepare(Shape(columns, "tx_id", ("tx_id",)), START)
    fill(
        view,
        [{"tx_id": keys[0], "note": "a"}, {"tx_id": keys[1], "note": "b"}, {"tx_id": keys[0], "note": "c"}],
        columns,
    )
    assert sorted((row["tx_id"], row["note"]) for row in held(view)) == [(keys[0], "c"), (keys[1], "b")]


@pytest.mark.parametrize("query", ['"unclosed', "(", "chai AND", "amount:5", "it's"])
def test_a_query_that_cannot_be_understood_is_refused_in_one_sentence(view: SearchView, query: str) -> None:
    view.prepare(SHAPE, START)
    with pytest.raises(InvalidArgument, match="cannot be understood") as refused:
        view.search(query)
    assert "merchant, note" in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("limit", [0, -1, 10_001, True, "5"])
def test_a_search_is_for_a_few_rows(view: SearchView, limit: Any) -> None:
    view.prepare(SHAPE, START)
    with pytest.raises(InvalidArgument, match="between 1 and 10000"):
        view.search("chai", limit=limit)


def test_the_bookmark_is_neither_found_nor_counted(view: SearchView) -> None:
    view.prepare(SHAPE, START)
    assert held(view) == []
    fill(view, [{"tx_id": "1", "note": "topic"}])
    assert found(view, "topic OR payments OR bookmark") == ["1"]
    if isinstance(view, TantivySearch):
        assert len(view.search("*")) == 1


def test_more_rows_than_a_batch_are_read_in_several(view: SearchView, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("tantivy_index", "fts"):
        monkeypatch.setattr(f"foldlog.views.search.{module}.VIEW_SCAN_ROWS", 7)
    view.prepare(SHAPE, START)
    fill(view, [{"tx_id": str(number % 60), "note": "x"} for number in range(100)])
    sizes = [batch.num_rows for batch in view.scan().batches]
    assert sum(sizes) == 60
    assert max(sizes) <= 7
    assert {row["tx_id"] for row in held(view)} == {str(number) for number in range(60)}


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (["nothing"], "text='nothing' is no column of the fold, which has tx_id, merchant, amount"),
        (["amount"], "text='amount' is int64 and no text; cast it"),
    ],
)
def test_what_cannot_be_searched_is_said_before_anything_is_made(
    engine: str, tmp_path: Path, text: list[str], sentence: str
) -> None:
    view = search(tmp_path / "search", text, engine=engine)
    with pytest.raises(InvalidArgument, match=sentence):
        view.prepare(Shape(COLUMNS, "tx_id", ("tx_id",)), START)
    assert not (tmp_path / "search").exists()


def test_a_topic_without_keys_cannot_be_searched(view: SearchView) -> None:
    with pytest.raises(InvalidArgument, match="record's key"):
        view.prepare(Shape(NOTES), START)


def test_a_row_without_a_key_is_refused_and_nothing_changes(view: SearchView) -> None:
    view.prepare(SHAPE, START)
    with pytest.raises(InvalidArgument, match="without 'tx_id'"):
        fill(view, [{"tx_id": "1", "note": "x"}, {"tx_id": None, "note": "y"}])
    assert (view.bookmark(), held(view)) == (START, [])


def test_other_searched_columns_need_a_rebuild(view: SearchView, engine: str, tmp_path: Path) -> None:
    view.prepare(SHAPE, START)
    other = search(tmp_path / "search", ["note"], engine=engine)
    with pytest.raises(SchemaChanged, match="searched columns were merchant, note and are now note"):
        other.prepare(SHAPE, START)
    other.close()


def test_the_view_of_the_other_engine_is_recognised(view: SearchView, engine: str, tmp_path: Path) -> None:
    view.prepare(SHAPE, START)
    other = search(tmp_path / "search", ["note"], engine="fts5" if engine == "tantivy" else "tantivy")
    for use in (other.bookmark, lambda: other.prepare(SHAPE, START), other.scan, lambda: other.search("x"), other.drop):
        with pytest.raises(ViewUnavailable, match=f"say engine='{engine}'"):
            use()
    assert view.bookmark() == START


def test_what_is_not_there_cannot_be_read(view: SearchView) -> None:
    assert view.bookmark() is None
    for use in (view.scan, lambda: view.search("x")):
        with pytest.raises(ViewUnavailable, match="run the fold"):
            use()
    view.drop()
    assert not view.drop_old()


def test_a_strange_shadow_is_not_swapped_in(view: SearchView, engine: str, tmp_path: Path) -> None:
    view.prepare(SHAPE, START)
    for shadow in (search(tmp_path / "elsewhere", ["note"], engine=engine), view):
        with pytest.raises(InvalidArgument, match="no shadow of"):
            view.swap(shadow)
    with pytest.raises(ViewUnavailable, match="to put in its place"):
        view.swap(view.shadow("rebuild"))
    assert view.bookmark() == START


@pytest.mark.parametrize("path", ["", 5, None, "postgresql://host/db", "a\0b"])
def test_a_search_view_is_at_a_path(path: Any) -> None:
    with pytest.raises(InvalidArgument, match="'views/search'"):
        search(path, ["note"])


@pytest.mark.parametrize("text", [[], None, [5], [""], 5])
def test_searched_columns_are_named(text: Any) -> None:
    with pytest.raises(InvalidArgument, match=r"\['merchant', 'note'\]"):
        search("views/search", text)


def test_searched_columns_are_named_once() -> None:
    with pytest.raises(InvalidArgument, match="twice"):
        search("views/search", ["note", "note"])


def test_without_a_word_about_it_tantivy_is_taken_where_it_is_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    assert isinstance(search("views/search", "note"), TantivySearch)
    monkeypatch.setattr("foldlog.views.search.search.find_spec", lambda _: None)
    assert isinstance(search("views/search", "note"), FtsSearch)
    with pytest.raises(InvalidArgument, match="tantivy and fts5"):
        search("views/search", "note", engine="lucene")


def test_a_stale_shadow_can_be_dropped_and_made_again(view: SearchView) -> None:
    view.prepare(SHAPE, START)
    shadow = view.shadow("rebuild")
    shadow.prepare(SHAPE, START)
    shadow.drop()
    with pytest.raises(StaleBookmark):
        shadow.apply(delta_of([], NOTES, 0, 1), START, at(1))
    assert shadow.prepare(SHAPE, at(3)) == at(3)
    assert view.bookmark() == START
    shadow.close()
