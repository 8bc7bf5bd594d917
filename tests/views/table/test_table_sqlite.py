"""A table in a SQLite file keeps the promises of every view, and what is particular to files and to SQLite: readers
beside a writer, a file that is locked, gone, or no database, and swaps of tables that others depend on.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from foldlog.errors import InvalidArgument, SchemaChanged, StaleBookmark, ViewInUse, ViewUnavailable
from foldlog.views.bookmark import Bookmark
from foldlog.views.contract import Shape, View
from foldlog.views.sql.names import BOOKMARKS, TableName
from foldlog.views.table.sqlite import SqliteTable
from foldlog.views.table.table import table
from views import killed_writer
from views.table.table_cases import ExpiringCase, ExplodedCase, RowKeyCase, ValueKeyCase
from views.view_contract import (
    COLUMNS,
    START,
    ViewCase,
    ViewContract,
    at,
    delta_of,
    held,
    in_order,
    play,
    some_events,
)


class TestSqliteTable(ViewContract):
    """The contract, by a path."""

    @pytest.fixture
    def case(self, tmp_path: Path) -> ViewCase:
        return ViewCase(lambda: table(tmp_path / "views" / "live.db", "payments"))


class TestSqliteTableOfSeveralRowsPerRecord(ViewContract):
    """The contract, with rows that a newer record replaces all together."""

    @pytest.fixture
    def case(self, tmp_path: Path) -> ViewCase:
        return ExplodedCase(lambda: table(f"sqlite:///{tmp_path}/live.db", 'pay "ments', key=["tx_id", "line"]))


class TestSqliteTableWithoutRecordKey(ViewContract):
    """The contract, with a key of two columns of the value."""

    @pytest.fixture
    def case(self, tmp_path: Path) -> ViewCase:
        return ValueKeyCase(lambda: table(tmp_path / "live.db", "payments", key=["merchant", "tx_id"]))


class TestSqliteTableOfRowsWithKeysOfTheirOwn(ViewContract):
    """The contract, with rows that a newer record of the same record key leaves alone."""

    @pytest.fixture
    def case(self, tmp_path: Path) -> ViewCase:
        return RowKeyCase(lambda: table(tmp_path / "live.db", "payments", key="tx_id"))


@pytest.mark.faults
class TestSqliteTableOfRowsThatExpire(ViewContract):
    """The contract, with rows that stay for a while of the log's own time."""

    @pytest.fixture
    def case(self, tmp_path: Path) -> ViewCase:
        return ExpiringCase(lambda: table(tmp_path / "live.db", "payments", ttl=("at", "5 minutes")))


EVENTS = some_events(40)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "live.db"


@pytest.fixture
def case(path: Path) -> ViewCase:
    return ViewCase(lambda: SqliteTable(str(path), TableName("payments"), wait_ms=50))


@pytest.fixture
def view(case: ViewCase) -> Iterator[View]:
    """A table with 30 offsets in it, whose user waits for nobody for long."""
    with closing(case.open()) as view:
        view.prepare(case.shape, START)
        play(view, case, EVENTS, [30])
        yield view


@pytest.fixture
def user(path: Path, view: View) -> Iterator[sqlite3.Connection]:
    """Somebody else, in the same file as the prepared view."""
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        yield connection


def rebuilt(view: View, case: ViewCase) -> View:
    shadow = view.shadow("rebuild")
    shadow.prepare(case.shape, at(0, epoch=1), loading=True)
    play(shadow, case, EVENTS, [40], epoch=1)
    shadow.finish_loading()
    return shadow


def test_committed_means_on_disk(view: View, path: Path) -> None:
    assert isinstance(view, SqliteTable)
    with view._database.write() as connection:
        assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)
        assert connection.execute("PRAGMA synchronous").fetchone() == (2,)


def test_columns_that_another_process_added_are_known_at_the_next_range(case: ViewCase, view: View) -> None:
    """An older version of the fold goes on beside a newer one: what it replaces has nothing in the newer column."""
    grown = pa.schema([*COLUMNS, ("note", pa.string())])
    with closing(case.open()) as newer:
        newer.prepare(Shape(grown, "tx_id"), START)
        newer.apply(delta_of([{"tx_id": "a", "note": "n", "_offset": 30}], grown, 30, 31), at(30), at(31))
    view.apply(delta_of([{"tx_id": "a", "amount": 5, "_offset": 31}], COLUMNS, 31, 32), at(31), at(32))
    assert {"tx_id": "a", "merchant": None, "amount": 5, "note": None} in held(view)


def test_two_views_share_a_file_and_each_has_its_bookmark(case: ViewCase, view: View, path: Path) -> None:
    with closing(table(path, "payments too")) as other:
        assert other.bookmark() is None
        other.prepare(case.shape, START)
        play(other, case, EVENTS, [5])
        assert (view.bookmark(), other.bookmark()) == (at(30), at(5))
        other.drop()
    assert held(view) == in_order(case.content(EVENTS, 30))


def test_a_reader_is_not_waited_for_and_sees_the_range_before(
    case: ViewCase, view: View, user: sqlite3.Connection
) -> None:
    user.execute("BEGIN")
    before = user.execute("SELECT count(*), sum(amount) FROM payments").fetchall()
    view.apply(case.delta(EVENTS, 30, 40), at(30), at(40))
    assert user.execute("SELECT count(*), sum(amount) FROM payments").fetchall() == before
    user.execute("ROLLBACK")
    assert view.bookmark() == at(40)


def test_a_writer_that_does_not_end_is_told_of_and_nothing_is_lost(
    case: ViewCase, view: View, user: sqlite3.Connection
) -> None:
    user.execute("BEGIN IMMEDIATE")
    with pytest.raises(ViewUnavailable, match="somebody else has been writing to the file for 50 ms"):
        view.apply(case.delta(EVENTS, 30, 40), at(30), at(40))
    assert view.bookmark() == at(30)
    user.execute("ROLLBACK")
    view.apply(case.delta(EVENTS, 30, 40), at(30), at(40))
    assert held(view) == in_order(case.content(EVENTS, 40))


def test_a_file_that_was_deleted_is_noticed_before_the_next_range(case: ViewCase, view: View, path: Path) -> None:
    for file in path.parent.iterdir():
        file.unlink()
    assert view.bookmark() is None
    with pytest.raises(ViewUnavailable, match="there is no file"):
        view.apply(case.delta(EVENTS, 30, 40), at(30), at(40))
    assert not path.exists()
    assert view.prepare(case.shape, START) == START
    play(view, case, EVENTS, [40])
    assert held(view) == in_order(case.content(EVENTS, 40))


def test_a_file_that_was_replaced_is_the_one_that_counts(
    case: ViewCase, view: View, tmp_path: Path, path: Path
) -> None:
    with closing(table(tmp_path / "restored.db", "payments")) as other:
        other.prepare(case.shape, START)
        play(other, case, EVENTS, [12])
    for file in path.parent.glob("live.db*"):
        file.unlink()
    os.replace(tmp_path / "restored.db", path)
    with pytest.raises(StaleBookmark):
        view.apply(case.delta(EVENTS, 30, 40), at(30), at(40))
    assert view.bookmark() == at(12)


def test_what_is_no_database_or_no_file_is_said_in_one_sentence(case: ViewCase, tmp_path: Path) -> None:
    (tmp_path / "text.db").write_text("not a database, but long enough to look like one at first sight\n" * 99)
    (tmp_path / "folder.db").mkdir()
    for name, said in [
        ("text.db", "not a sound SQLite database"),
        ("folder.db", "cannot be written"),
        ("text.db/below.db", "its directory cannot be made"),
    ]:
        with closing(table(tmp_path / name, "payments")) as view:
            with pytest.raises(ViewUnavailable, match=said) as refused:
                view.prepare(case.shape, START)
            assert "\n" not in str(refused.value)


def test_a_table_that_no_fold_made_is_not_written_into(case: ViewCase, path: Path) -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE Payments (tx_id TEXT)")
    with closing(case.open()) as view:
        assert view.bookmark() is None
        with pytest.raises(ViewUnavailable, match="no fold made it"):
            view.prepare(case.shape, START)
        view.drop()
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("SELECT count(*) FROM payments").fetchone() == (0,)


def test_a_view_of_another_kind_is_not_taken_over(case: ViewCase, view: View, user: sqlite3.Connection) -> None:
    user.execute("UPDATE _foldlog_bookmarks SET kind = 'counters'")
    for action in (view.bookmark, view.drop, lambda: view.prepare(case.shape, START)):
        with pytest.raises(ViewUnavailable, match="another kind"):
            action()


def test_a_table_that_was_changed_by_hand_is_refused(case: ViewCase, view: View, user: sqlite3.Connection) -> None:
    user.execute("ALTER TABLE payments DROP COLUMN merchant")
    with pytest.raises(SchemaChanged, match="removed by hand"):
        view.prepare(case.shape, START)
    user.execute("DROP TABLE payments")
    with pytest.raises(ViewUnavailable, match="the table is not"):
        view.prepare(case.shape, START)
    view.drop()
    assert view.prepare(case.shape, START) == START


def test_a_swap_keeps_the_indexes_that_users_made(case: ViewCase, view: View, user: sqlite3.Connection) -> None:
    user.execute("CREATE INDEX by_merchant ON payments (merchant, amount DESC)")
    user.execute("CREATE INDEX large ON payments (amount) WHERE amount > 500")
    indexes = "SELECT name, sql FROM sqlite_master WHERE type = 'index' AND tbl_name = 'payments' AND sql IS NOT NULL"
    before = user.execute(indexes).fetchall()
    for _ in range(2):
        with closing(rebuilt(view, case)) as shadow:
            view.swap(shadow)
        assert user.execute(indexes).fetchall() == before
    plan = user.execute("EXPLAIN QUERY PLAN SELECT * FROM payments WHERE merchant = 'x'").fetchall()
    assert "by_merchant" in plan[0][3]
    assert held(view) == in_order(case.content(EVENTS, 40))


def test_a_fold_that_lost_a_column_is_swapped_in_unless_an_index_needs_it(view: View, user: sqlite3.Connection) -> None:
    user.execute("CREATE INDEX by_merchant ON payments (merchant)")
    narrow = Shape(pa.schema([("tx_id", pa.string()), ("amount", pa.int64())]), "tx_id")
    with closing(view.shadow("rebuild")) as shadow:
        shadow.prepare(narrow, at(0, epoch=1), loading=True)
        with pytest.raises(ViewInUse, match="index by_merchant on column merchant"):
            view.swap(shadow)
        user.execute("DROP INDEX by_merchant")
        view.swap(shadow)
    assert view.prepare(narrow, START) == at(0, epoch=1)


def test_looking_for_a_bookmark_does_not_change_somebody_s_file(case: ViewCase, path: Path) -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE theirs (x)")
    before = path.read_bytes()
    with closing(case.open()) as view:
        assert view.bookmark() is None
    assert path.read_bytes() == before
    assert [file.name for file in path.parent.iterdir()] == [path.name]


def test_a_view_stays_where_it_is_when_its_process_changes_directory(
    case: ViewCase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path)
    with closing(table("sqlite:///live.db", "payments")) as view:
        monkeypatch.chdir(tmp_path / "elsewhere")
        view.prepare(case.shape, START)
        assert view.place == f"table payments in sqlite:///{tmp_path}/live.db"
        assert (tmp_path / "live.db").exists()


@pytest.mark.parametrize(
    ("statement", "name", "undo"),
    [
        ("CREATE VIEW totals AS SELECT sum(amount) FROM Payments", "view totals", "DROP VIEW totals"),
        (
            "CREATE TRIGGER watch AFTER INSERT ON payments BEGIN SELECT 1; END",
            "trigger watch",
            "DROP TRIGGER watch",
        ),
        (
            "CREATE TRIGGER copy AFTER INSERT ON other BEGIN DELETE FROM payments WHERE 0; END",
            "trigger copy",
            "DROP TRIGGER copy",
        ),
        ("CREATE TABLE child (tx TEXT REFERENCES payments(tx_id))", "foreign key of table child", "DROP TABLE child"),
        ("ALTER TABLE payments ADD COLUMN mine TEXT", "column mine", "ALTER TABLE payments DROP COLUMN mine"),
    ],
)
def test_a_swap_that_would_leave_something_behind_is_refused_by_its_name(
    case: ViewCase, view: View, user: sqlite3.Connection, statement: str, name: str, undo: str
) -> None:
    user.execute("CREATE TABLE other (x)")
    user.execute("CREATE VIEW unrelated AS SELECT 'payments' FROM other -- payments")
    user.execute(statement)
    with closing(rebuilt(view, case)) as shadow:
        with pytest.raises(ViewInUse) as refused:
            view.swap(shadow)
        assert len(refused.value.dependents) == 1
        assert refused.value.dependents[0].startswith(name)
        assert (view.bookmark(), shadow.bookmark()) == (at(30), at(40, epoch=1))
        user.execute(undo)
        view.swap(shadow)
    assert view.bookmark() == at(40, epoch=1)


def test_what_is_no_shadow_of_it_cannot_take_its_place(case: ViewCase, view: View, tmp_path: Path) -> None:
    with (
        closing(table(tmp_path / "other.db", "payments")) as other,
        pytest.raises(InvalidArgument, match="not a shadow"),
    ):
        view.swap(other)
    with pytest.raises(ViewUnavailable, match="it does not exist"):
        view.swap(view.shadow("rebuild"))
    assert held(view) == in_order(case.content(EVENTS, 30))


def test_a_first_rebuild_needs_no_table_before_it(case: ViewCase, path: Path) -> None:
    with closing(case.open()) as view, closing(rebuilt(view, case)) as shadow:
        view.swap(shadow)
        assert held(view) == in_order(case.content(EVENTS, 40))
        assert not view.drop_old()


def rows_and_bookmark_agree(place: Path, stop: int) -> None:
    """Apply one range, and look at the file as another process sees it before each statement of it and after the last:
    what a kill there would leave."""
    seen: list[tuple[int, list[dict[str, object]]]] = []
    connect = sqlite3.connect

    def look(_: str) -> None:
        with closing(connect(place)) as other:
            ((bookmark,),) = other.execute(f"SELECT bookmark FROM {BOOKMARKS}").fetchall()
            rows = other.execute("SELECT tx_id, amount, note FROM payments ORDER BY tx_id").fetchall()
        found: list[dict[str, object]] = [{"tx_id": key, "amount": amount, "note": note} for key, amount, note in rows]
        seen.append((Bookmark.from_json(bookmark).offset(0) or 0, found))

    def watched(*arguments: Any, **settings: Any) -> sqlite3.Connection:
        connection: sqlite3.Connection = connect(*arguments, **settings)
        connection.set_trace_callback(look)
        return connection

    with closing(table(str(place), "payments")) as view:
        view.prepare(killed_writer.SHAPE, killed_writer.at(0))
    with pytest.MonkeyPatch.context() as patch, closing(table(str(place), "payments")) as view:
        patch.setattr(sqlite3, "connect", watched)
        view.apply(killed_writer.delta(0, stop), killed_writer.at(0), killed_writer.at(stop))
    look("afterwards")
    assert [found for _, found in seen] == [killed_writer.content(offset) for offset, _ in seen]
    assert (seen[0][0], seen[-1][0], len(seen) > 4) == (0, stop, True)


def test_rows_and_bookmark_change_in_one_transaction_at_every_statement(tmp_path: Path) -> None:
    rows_and_bookmark_agree(tmp_path / "views.db", 250)
