"""What a table of SQLite may stand beside: a name that others of the same file happen to use does not hold it fast.

Whether something depends on the table is SQLite's own judgement, found by renaming it inside the transaction; so the
tests are about statements that use the name for the table, and for other things.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from foldlog.errors import ViewInUse
from foldlog.views.contract import View
from foldlog.views.table.table import table
from views.view_contract import START, ViewCase, held, in_order, play, some_events

EVENTS = some_events(20)


@pytest.fixture
def case(tmp_path: Path) -> ViewCase:
    return ViewCase(lambda: table(tmp_path / "shop.db", "payments"))


@pytest.fixture
def view(case: ViewCase) -> Iterator[View]:
    with closing(case.open()) as opened:
        opened.prepare(case.shape, START)
        play(opened, case, EVENTS, [20])
        yield opened


def swap(view: View, case: ViewCase) -> None:
    shadow = view.shadow("rebuild")
    shadow.prepare(case.shape, START)
    play(shadow, case, EVENTS, [7, 20])
    with closing(shadow):
        view.swap(shadow)


@pytest.mark.parametrize(
    "statement",
    [
        "CREATE VIEW totals AS SELECT count(*) AS payments FROM other",
        'CREATE VIEW totals AS SELECT sum(n) AS "payments" FROM other AS payments_of',
        "CREATE VIEW totals AS SELECT payments.n FROM other AS payments",
        "CREATE TRIGGER noted AFTER INSERT ON other BEGIN UPDATE other SET payments = 1; END",
    ],
)
def test_a_name_that_is_used_for_something_else_hinders_no_swap(
    statement: str, view: View, case: ViewCase, tmp_path: Path
) -> None:
    with closing(sqlite3.connect(tmp_path / "shop.db")) as connection:
        connection.execute("CREATE TABLE other (n INT, payments INT)")
        connection.execute(statement)
    swap(view, case)
    assert held(view) == in_order(case.content(EVENTS, 20))
    with closing(sqlite3.connect(tmp_path / "shop.db")) as connection:
        assert statement in {sql for (sql,) in connection.execute("SELECT sql FROM sqlite_master")}


@pytest.mark.parametrize(
    ("statement", "dependent"),
    [
        ("CREATE VIEW rich AS SELECT * FROM Payments WHERE amount > 10", "view rich"),
        ("CREATE VIEW rich AS SELECT n FROM other WHERE EXISTS (SELECT 1 FROM payments)", "view rich"),
        ("CREATE VIEW rich AS SELECT n FROM other LEFT JOIN [payments] ON n = amount", "view rich"),
        ("CREATE TRIGGER noted AFTER INSERT ON other BEGIN DELETE FROM payments; END", "trigger noted"),
        ("CREATE TRIGGER noted AFTER INSERT ON payments BEGIN DELETE FROM other; END", "trigger noted"),
    ],
)
def test_what_reads_or_writes_the_table_is_named_and_nothing_is_changed(
    statement: str, dependent: str, view: View, case: ViewCase, tmp_path: Path
) -> None:
    with closing(sqlite3.connect(tmp_path / "shop.db")) as connection:
        connection.execute("CREATE TABLE other (n INT, payments INT)")
        connection.execute(statement)
    with pytest.raises(ViewInUse, match=f"depend on it: {dependent};"):
        swap(view, case)
    assert held(view) == in_order(case.content(EVENTS, 20))
    with closing(sqlite3.connect(tmp_path / "shop.db")) as connection:
        statements = {sql for (sql,) in connection.execute("SELECT sql FROM sqlite_master")}
    assert statement in statements
    assert not any(sql and "__renamed" in sql for sql in statements)


def test_beside_a_view_that_does_not_work_every_mention_counts(view: View, case: ViewCase, tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "shop.db")) as connection:
        connection.execute("CREATE VIEW broken AS SELECT payments FROM nowhere")
    with pytest.raises(ViewInUse, match="depend on it: view broken;"):
        swap(view, case)
