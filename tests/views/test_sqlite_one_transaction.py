"""Rows and bookmark of a SQLite view are one transaction: where the bookmark cannot be written, no row is.

The file itself refuses the bookmark, by a trigger; so it does not matter how a view writes it.
"""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from foldlog.errors import ViewUnavailable
from foldlog.views.counters.counters import counters
from foldlog.views.search.search import search
from foldlog.views.sql.names import BOOKMARKS
from foldlog.views.table.table import table
from views.counters.counters_model import MEASURES, CountersCase
from views.view_contract import START, ViewCase, at, held, in_order, some_events


def case_of(kind: str, path: Path) -> ViewCase:
    if kind == "table":
        return ViewCase(lambda: table(path, "payments"))
    if kind == "search":
        return ViewCase(lambda: search(path, ["tx_id"], engine="fts5"))
    return CountersCase(lambda: counters(path, by=["merchant"], measures=MEASURES))


@pytest.mark.parametrize("kind", ["table", "search", "counters"])
def test_a_range_whose_bookmark_is_refused_leaves_no_row(kind: str, tmp_path: Path) -> None:
    path = tmp_path / "live.db"
    case, events = case_of(kind, path), some_events(40)
    with closing(case.open()) as view, closing(sqlite3.connect(path, isolation_level=None)) as user:
        view.prepare(case.shape, START)
        view.apply(case.delta(events, 0, 10), START, at(10))
        user.execute(f"CREATE TRIGGER refusing BEFORE UPDATE ON {BOOKMARKS} BEGIN SELECT RAISE(ABORT, 'not now'); END")
        with pytest.raises(ViewUnavailable, match="not now"):
            view.apply(case.delta(events, 10, 40), at(10), at(40))
        with closing(case.open()) as other:
            assert other.bookmark() == at(10)
            assert held(other) == in_order(case.content(events, 10))
        user.execute("DROP TRIGGER refusing")
        view.apply(case.delta(events, 10, 40), at(10), at(40))
        assert held(view) == in_order(case.content(events, 40))
