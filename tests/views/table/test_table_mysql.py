"""A table in MariaDB or MySQL keeps the promises of every view, on a real server; and what is particular to engines
that commit with every definition.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from foldlog.errors import FoldlogError, InvalidArgument, SchemaChanged, ViewInUse, ViewUnavailable
from foldlog.views.contract import Shape, View
from foldlog.views.sql import mysql as database
from foldlog.views.sql.bookmarks import BookmarkTable
from foldlog.views.table.table import table
from mysql_server import MySqlServer, mysql
from views.lake.lake_cases import HistoryCase
from views.table.table_cases import ExpiringCase, ExplodedCase, RowKeyCase, ValueKeyCase
from views.view_contract import START, ViewCase, ViewContract, at, delta_of, held, in_order, play, some_events

__all__ = ["mysql"]

pytestmark = pytest.mark.faults  # the server takes seconds to start


@pytest.fixture
def mysql_url(mysql: MySqlServer) -> Iterator[str]:
    """A database of the test's own."""
    url = mysql.new_database()
    yield url
    with mysql.connect() as connection, connection.cursor() as cursor:
        cursor.execute(f"DROP DATABASE {url.rpartition('/')[2]}")


class TestMySqlTable(ViewContract):
    """The contract, by a URL."""

    @pytest.fixture
    def case(self, mysql_url: str) -> ViewCase:
        return ViewCase(lambda: table(mysql_url, "pay%ments"))


class TestMySqlTableOfSeveralRowsPerRecord(ViewContract):
    """The contract, with rows that a newer record replaces all together."""

    @pytest.fixture
    def case(self, mysql_url: str) -> ViewCase:
        return ExplodedCase(lambda: table(mysql_url, 'pay "ments`', key=["tx_id", "line"]))


class TestMySqlTableWithoutRecordKey(ViewContract):
    """The contract, with a key of two columns of the value."""

    @pytest.fixture
    def case(self, mysql_url: str) -> ViewCase:
        return ValueKeyCase(lambda: table(mysql_url, "payments", key=["merchant", "tx_id"]))


class TestMySqlTableOfRowsWithKeysOfTheirOwn(ViewContract):
    """The contract, with rows that a newer record of the same record key leaves alone."""

    @pytest.fixture
    def case(self, mysql_url: str) -> ViewCase:
        return RowKeyCase(lambda: table(mysql_url, "payments", key="tx_id"))


class TestMySqlTableOfRowsThatExpire(ViewContract):
    """The contract, with rows that stay for a while of the log's own time."""

    @pytest.fixture
    def case(self, mysql_url: str) -> ViewCase:
        return ExpiringCase(lambda: table(mysql_url, "payments", ttl=("at", "5 minutes")))


class TestMySqlHistory(ViewContract):
    """The contract, with every row kept."""

    @pytest.fixture
    def case(self, mysql_url: str) -> ViewCase:
        return HistoryCase(lambda: table(mysql_url, "payments", mode="append"))


@pytest.fixture
def connection(mysql: MySqlServer, mysql_url: str) -> Iterator[Any]:
    with mysql.connect(mysql_url.rpartition("/")[2]) as connection:
        yield connection


def run(connection: Any, statement: str) -> list[tuple[Any, ...]]:
    with connection.cursor() as cursor:
        cursor.execute(statement)
        return list(cursor.fetchall())


@pytest.fixture
def case(mysql_url: str) -> ViewCase:
    return ViewCase(lambda: table(mysql_url, "payments"))


@pytest.fixture
def view(case: ViewCase) -> Iterator[View]:
    with closing(case.open()) as view:
        view.prepare(case.shape, START)
        yield view


def test_keys_that_only_look_alike_are_different(view: View) -> None:
    """Case, accents, spaces at the end: most collations hold such texts for the same."""
    keys = ["a", "A", "á", "a ", "a  ", "a\0", "ß", "ss", "", "𝄞"]
    rows: list[dict[str, object]] = [{"tx_id": key, "amount": n, "_offset": n} for n, key in enumerate(keys)]
    view.apply(delta_of(rows, ViewCase.shape.columns, 0, 10), START, at(10))
    assert {row["tx_id"]: row["amount"] for row in held(view)} == {key: n for n, key in enumerate(keys)}
    view.apply(
        delta_of([{"tx_id": "a ", "_offset": 10, "_deleted": True}], ViewCase.shape.columns, 10, 11), at(10), at(11)
    )
    assert len(held(view)) == 9


def test_every_type_comes_back_exactly(mysql_url: str) -> None:
    columns = pa.schema(
        [("id", pa.int64()), ("flag", pa.bool_()), ("tiny", pa.int8()), ("big", pa.int64()), ("single", pa.float32()),
         ("double", pa.float64()), ("money", pa.decimal128(38, 18)), ("text", pa.string()), ("raw", pa.binary()),
         ("day", pa.date32()), ("moment", pa.timestamp("us", "UTC")), ("local", pa.timestamp("us")),
         ("tags", pa.list_(pa.string())), ("shares", pa.map_(pa.string(), pa.float64())),
         ("item", pa.struct([("price", pa.decimal128(12, 2)), ("n", pa.int64())]))]
    )  # fmt: skip
    rows: list[dict[str, object]] = [
        {"flag": True, "tiny": -128, "big": -(2**63), "single": 0.1, "double": 5e-324, "money": Decimal("1.1"),
         "text": "\\'\"%s \0\n€𝄞", "raw": b"\0\xff'\\", "day": date(1, 1, 1), "moment": datetime(1, 1, 1, tzinfo=UTC),
         "local": datetime(9999, 12, 31, 23, 59, 59, 999999), "tags": ["a", None, ""],  # noqa: DTZ001
         "shares": [("a", 0.1), ("b", None)], "item": {"price": Decimal("1.10"), "n": 2**62}},
        {"flag": False, "tiny": 127, "big": 2**63 - 1, "single": -3.4028234663852886e38,
         "double": 1.7976931348623157e308, "money": Decimal("-12345678901234567890.000000000000000001"),
         "text": "", "raw": b"", "day": date(9999, 12, 31),
         "moment": datetime(2026, 11, 18, 9, 30, 0, 1, tzinfo=UTC), "local": datetime(1969, 12, 31), "tags": [],  # noqa: DTZ001
         "shares": [], "item": {"price": None, "n": None}},
        {},
    ]  # fmt: skip
    numbered = [{**row, "id": number, "_offset": number} for number, row in enumerate(rows)]
    with closing(table(mysql_url, "kinds")) as view:
        view.prepare(Shape(columns, "id", ("id",)), START)
        view.apply(delta_of(numbered, columns, 0, 3), START, at(3))
        found = sorted(held(view), key=lambda row: str(row["id"]))
        expected = delta_of(numbered, columns, 0, 3).rows.select(columns.names).to_pylist()
        assert found == expected
        asked = pa.array([0, 2], pa.int64())
        assert view.rows_of(asked, at(3)).sort_by("id").to_pylist() == [expected[0], expected[2]]
    wide = Shape(pa.schema([("id", pa.int64()), ("n", pa.decimal128(38, 35))]), "id", ("id",))
    with closing(table(mysql_url, "digits")) as view, pytest.raises(InvalidArgument, match="30 digits after the point"):
        view.prepare(wide, START)


def test_a_key_that_is_too_long_is_told_before(view: View) -> None:
    flags = view.unheld_keys(pa.table({"tx_id": ["é" * 768, "é" * 769, None]}))
    assert flags is not None
    assert flags.to_pylist() == [False, True, False]
    assert view.unheld_keys(pa.table({"tx_id": ["short"]})) is None


@pytest.mark.parametrize("step", ["CREATE TABLE", "add", "ALTER TABLE", "set_settings", "RENAME TABLE", "DROP TABLE"])
def test_who_is_killed_between_two_definitions_leaves_nothing_half(
    case: ViewCase, connection: Any, step: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each definition commits. After any of them the process ends; the next one finds a whole view, and goes on."""
    events = some_events(40)
    grown = Shape(pa.schema([*case.shape.columns, ("note", pa.string())]), "tx_id", ("tx_id",))

    def live() -> None:
        with closing(case.open()) as view:
            view.prepare(case.shape, START)
            if view.bookmark() == START:
                play(view, case, events, [40])
            view.prepare(grown, START)
            with closing(view.shadow("rebuild")) as shadow:
                shadow.drop()
                shadow.prepare(grown, at(0, epoch=1), loading=True)
                shadow.apply(case.delta(events, 0, 40), at(0, epoch=1), at(40, epoch=1))
                view.swap(shadow)
            view.drop_old()

    class Killed(BaseException):
        pass

    def at_step(times: int) -> None:
        left = [times]

        def counted() -> None:
            left[0] -= 1
            if left[0] == 0:
                raise Killed

        if step in ("add", "set_settings"):
            itself = getattr(BookmarkTable, step)

            def stepped(*arguments: Any) -> None:
                counted()
                itself(*arguments)

            monkeypatch.setattr(BookmarkTable, step, stepped)
            return
        make = database.runner

        def runner(connection: Any) -> Any:
            run = make(connection)

            def stepped(statement: str, *values: object) -> Any:
                done = run(statement, *values)
                if statement.lstrip().startswith(step):
                    counted()
                return done

            return stepped

        monkeypatch.setattr(database, "runner", runner)

    for times in (1, 2, 3):
        for name in ("payments", "payments__rebuild", "payments__old"):
            run(connection, f"DROP TABLE IF EXISTS {name}, {name}__bookmark")
        at_step(times)
        try:
            live()
        except Killed:
            pass
        monkeypatch.undo()
        live()
        with closing(case.open()) as view:
            assert view.bookmark() == at(40, epoch=1)
            found = [{name: row[name] for name in ("tx_id", "merchant", "amount")} for row in held(view)]
            assert in_order(found) == in_order(case.content(events, 40))
        assert {name for (name,) in run(connection, "SHOW TABLES")} == {"payments", "payments__bookmark"}


def test_what_a_swap_carries_over_and_what_it_refuses(case: ViewCase, view: View, connection: Any) -> None:
    events = some_events(20)

    def rebuild() -> None:
        with closing(view.shadow("rebuild")) as shadow:
            shadow.drop()
            shadow.prepare(case.shape, at(0, epoch=1), loading=True)
            play(shadow, case, events, [20], epoch=1)
            view.swap(shadow)

    run(connection, "CREATE INDEX by_merchant ON payments (merchant(20), amount DESC)")
    run(connection, "CREATE VIEW seen AS SELECT count(*) AS n FROM payments")
    rebuild()
    assert {row[2] for row in run(connection, "SHOW INDEX FROM payments")} == {"PRIMARY", "by_merchant"}
    assert run(connection, "SELECT n FROM seen") == [(len(case.content(events, 20)),)]
    run(connection, "CREATE TRIGGER watched AFTER INSERT ON payments FOR EACH ROW SET @x = 1")
    with pytest.raises(ViewInUse, match="trigger watched"):
        view.check_swap()
    with pytest.raises(ViewInUse, match="trigger watched"):
        rebuild()
    run(connection, "DROP TRIGGER watched")
    run(connection, "ALTER TABLE payments ADD COLUMN mine INT")
    with pytest.raises(ViewInUse, match="column mine"):
        rebuild()
    assert held(view) == in_order(case.content(events, 20))


def test_what_was_done_by_hand_is_noticed(case: ViewCase, view: View, connection: Any, mysql_url: str) -> None:
    run(connection, "CREATE UNIQUE INDEX one ON payments (amount)")
    with pytest.raises(ViewUnavailable, match="unique index 'one' was made by hand"):
        view.apply(case.delta(some_events(9), 0, 9), START, at(9))
    assert view.bookmark() == START
    run(connection, "DROP INDEX one ON payments")
    run(connection, "ALTER TABLE payments ENGINE=MyISAM")
    with pytest.raises(ViewUnavailable, match="its engine is MyISAM, which has no transactions"):
        view.prepare(case.shape, START)
    run(connection, "ALTER TABLE payments ENGINE=InnoDB")
    run(connection, "ALTER TABLE payments DROP COLUMN merchant")
    with pytest.raises(SchemaChanged, match="'merchant' was removed by hand"):
        view.prepare(case.shape, START)
    run(connection, "CREATE TABLE theirs (a INT)")
    with closing(table(mysql_url, "theirs")) as other, pytest.raises(ViewUnavailable, match="no fold made it"):
        other.prepare(case.shape, START)


def test_what_cannot_be_right_is_one_sentence(mysql_url: str, case: ViewCase) -> None:
    for make, told in (
        (lambda: table(mysql_url, "shop.payments"), "has a dot"),
        (lambda: table("mysql://root@127.0.0.1", "payments"), "names no database"),
        (lambda: table("mysql://root:secret@127.0.0.1:1/shop", "payments").bookmark(), "MySQL says: Can't connect"),
        (lambda: table(mysql_url + "_not", "payments").bookmark(), "Unknown database"),
    ):
        with pytest.raises(FoldlogError, match=told) as found:
            make()
        assert "secret" not in str(found.value)
