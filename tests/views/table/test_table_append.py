"""Tables that append, mode="append": the contract of views, in every engine."""

from __future__ import annotations

from pathlib import Path

import pytest

from foldlog.errors import SchemaChanged, ViewUnavailable
from foldlog.views.peek import open_peek
from foldlog.views.table.table import table
from views.lake.lake_cases import HistoryCase
from views.view_contract import START, ViewCase, ViewContract, at, opened, play, some_events


@pytest.mark.faults
class TestSqliteHistory(ViewContract):
    """The contract, in a SQLite file."""

    @pytest.fixture
    def case(self, tmp_path: Path) -> ViewCase:
        return HistoryCase(lambda: table(tmp_path / "live.db", "payments", mode="append"))


@pytest.mark.faults  # the decisions are those of SQLite's tables
class TestPostgresHistory(ViewContract):
    """The contract, in PostgreSQL."""

    @pytest.fixture
    def case(self, postgres_url: str) -> ViewCase:
        return HistoryCase(lambda: table(postgres_url, "payments", mode="append"))


@pytest.mark.faults
class TestDuckdbHistory(ViewContract):
    """The contract, in a DuckDB file."""

    @pytest.fixture
    def case(self, tmp_path: Path) -> ViewCase:
        return HistoryCase(lambda: table(tmp_path / "live.duckdb", 'pay "ments', mode="append"))


@pytest.mark.parametrize("engine", ["sqlite", "duckdb", pytest.param("postgresql", marks=pytest.mark.faults)])
def test_another_process_looks_into_it_page_by_page(
    tmp_path: Path, request: pytest.FixtureRequest, engine: str
) -> None:
    places = {"sqlite": tmp_path / "live.db", "duckdb": tmp_path / "live.duckdb"}
    place = places.get(engine) or request.getfixturevalue("postgres_url")
    case = HistoryCase(lambda: table(place, "payments", mode="append"))
    with opened(case) as view:
        view.prepare(case.shape, START)
        play(view, case, some_events(5), [5])
        description = view.description()
        assert description is not None
        with open_peek(description) as peek:
            first = peek.rows(3)
            second = peek.rows(3, first.next)
            at_offset = first.columns.index("_offset")
            assert [row[at_offset] for row in (*first.rows, *second.rows)] == [4, 3, 2, 1, 0]
            assert (first.total, second.next) == (5, None)
            assert len(peek.search("tx-").rows) == 5
        view.drop()


def test_a_table_that_merges_does_not_begin_to_append(tmp_path: Path) -> None:
    case = HistoryCase(lambda: table(tmp_path / "live.db", "payments"))
    with opened(case) as view:
        view.prepare(case.shape, START)
    with (
        opened(HistoryCase(lambda: table(tmp_path / "live.db", "payments", mode="append"))) as view,
        pytest.raises(SchemaChanged, match=r"has the newest rows, mode='merge', and the fold's has every row"),
    ):
        view.prepare(case.shape, START)


def test_a_duckdb_table_of_somebody_else_is_not_taken(tmp_path: Path) -> None:
    import duckdb

    with duckdb.connect(str(tmp_path / "live.duckdb")) as connection:
        connection.execute("CREATE TABLE payments (a INT)")
    case = HistoryCase(lambda: table(tmp_path / "live.duckdb", "payments", mode="append"))
    with opened(case) as view, pytest.raises(ViewUnavailable, match="no fold made it; choose another"):
        view.prepare(case.shape, START)
    with opened(case) as view, pytest.raises(ViewUnavailable, match="it does not exist; prepare it first"):
        view.move(START, at(1))
