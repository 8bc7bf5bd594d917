"""A table in PostgreSQL keeps the promises of every view, and what is particular to a server, always a real one: locks
and lost connections, settings of the database, roles, and schemas. Swaps are in test_table_postgres_swap.py.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from typing import Any

import psycopg
import pytest

from foldlog.errors import FoldlogError, InvalidArgument, SchemaChanged, ViewUnavailable
from foldlog.limits import VIEW_APPLY_LOCK_WAIT_MS
from foldlog.views.contract import View
from foldlog.views.sql.names import TableName
from foldlog.views.staging import StageRefusal, staged_of
from foldlog.views.table.postgres import PostgresTable
from foldlog.views.table.postgres_stage import PostgresStage
from foldlog.views.table.table import table
from postgres_server import PostgresServer
from views.staged_contract import StagedCase, StagedContract, reports, stage
from views.table.table_cases import ExpiringCase, ExplodedCase, RowKeyCase, ValueKeyCase
from views.view_contract import START, ViewCase, ViewContract, at, held, in_order, play, some_events


class TestPostgresTable(ViewContract):
    """The contract, by a URL."""

    @pytest.fixture
    def case(self, postgres_url: str) -> ViewCase:
        return ViewCase(lambda: table(postgres_url, "payments"))


class TestPostgresTableOfSeveralRowsPerRecord(ViewContract):
    """The contract, with rows that a newer record replaces all together."""

    @pytest.fixture
    def case(self, postgres_url: str) -> ViewCase:
        return ExplodedCase(lambda: table(postgres_url, 'pay "ments', key=["tx_id", "line"]))


class TestPostgresTableWithoutRecordKey(ViewContract):
    """The contract, with a key of two columns of the value, in a schema of its own."""

    @pytest.fixture
    def case(self, postgres_url: str) -> ViewCase:
        with psycopg.connect(postgres_url) as connection:
            connection.execute('CREATE SCHEMA "my shop"')
        return ValueKeyCase(lambda: table(postgres_url, "my shop.payments", key=["merchant", "tx_id"]))


@pytest.mark.faults  # the decisions are those of SQLite's tables
class TestPostgresTableOfRowsWithKeysOfTheirOwn(ViewContract):
    """The contract, with rows that a newer record of the same record key leaves alone."""

    @pytest.fixture
    def case(self, postgres_url: str) -> ViewCase:
        return RowKeyCase(lambda: table(postgres_url, "payments", key="tx_id"))


@pytest.mark.faults
class TestPostgresTableOfRowsThatExpire(ViewContract):
    """The contract, with rows that stay for a while of the log's own time."""

    @pytest.fixture
    def case(self, postgres_url: str) -> ViewCase:
        return ExpiringCase(lambda: table(postgres_url, "payments", ttl=("at", "5 minutes")))


STEPS = [f"foldlog.views.table.postgres.{name}" for name in ("gather", "sweep")]


class TestPostgresTableFromExecutors(StagedContract):
    """Rows that executors have copied into tables of their own."""

    @pytest.fixture
    def case(self, postgres_url: str) -> StagedCase:
        inner = ViewCase(lambda: table(postgres_url, "pay'ments"))
        return StagedCase(inner, lambda: stages_in(postgres_url), steps=STEPS)


class TestPostgresLoadFromExecutors(StagedContract):
    """Rows that executors have copied, for a shadow that is loaded."""

    @pytest.fixture
    def case(self, postgres_url: str) -> StagedCase:
        inner = ViewCase(lambda: table(postgres_url, "payments"))
        return StagedCase(inner, lambda: stages_in(postgres_url), loading=True, steps=STEPS)


def stages_in(url: str) -> list[str]:
    """The unlogged tables of a database: nothing else makes any."""
    with psycopg.connect(url) as connection:
        found = connection.execute("SELECT relname FROM pg_class WHERE relpersistence = 'u' AND relkind = 'r'")
        return [name for (name,) in found.fetchall()]


EVENTS = some_events(40)


@pytest.fixture
def case(postgres_url: str) -> ViewCase:
    return ViewCase(lambda: PostgresTable(postgres_url, TableName("payments"), wait_ms=50))


@pytest.fixture
def view(case: ViewCase) -> Iterator[View]:
    """A table with 30 offsets in it, whose user waits for nobody for long."""
    with closing(case.open()) as view:
        view.prepare(case.shape, START)
        play(view, case, EVENTS, [30])
        yield view


@pytest.fixture
def user(postgres_url: str, view: View) -> Iterator[psycopg.Connection[Any]]:
    """Somebody else, in the same database as the prepared view."""
    with psycopg.connect(postgres_url, autocommit=True, application_name="analyst") as connection:
        yield connection


def test_who_holds_a_lock_for_too_long_is_named_and_nothing_is_lost(
    case: ViewCase, view: View, user: psycopg.Connection[Any]
) -> None:
    pid = user.info.backend_pid
    for lock in ("LOCK TABLE payments", "SELECT * FROM _foldlog_bookmarks FOR UPDATE"):
        with user.transaction():
            user.execute(lock.encode())
            with pytest.raises(
                ViewUnavailable, match=rf"waited 50 ms .* process {pid} \(analyst, idle in transaction\)"
            ):
                view.apply(case.delta(EVENTS, 30, 40), at(30), at(40))
    assert view.bookmark() == at(30)
    view.apply(case.delta(EVENTS, 30, 40), at(30), at(40))
    assert held(view) == in_order(case.content(EVENTS, 40))


def test_a_locked_table_holds_up_a_runner_for_a_second_and_no_longer(
    case: ViewCase, view: View, user: psycopg.Connection[Any], postgres_url: str
) -> None:
    """Other folds wait for the same runner; the fold itself is tried again."""
    with closing(table(postgres_url, "payments")) as patient, user.transaction():
        user.execute("LOCK TABLE payments")
        with pytest.raises(ViewUnavailable, match=f"waited {VIEW_APPLY_LOCK_WAIT_MS} ms for a lock"):
            patient.apply(case.delta(EVENTS, 30, 40), at(30), at(40))
    assert VIEW_APPLY_LOCK_WAIT_MS <= 1000
    view.apply(case.delta(EVENTS, 30, 40), at(30), at(40))


def test_readers_are_not_waited_for(case: ViewCase, view: View, user: psycopg.Connection[Any]) -> None:
    with user.transaction():
        user.execute("SELECT * FROM payments")
        view.apply(case.delta(EVENTS, 30, 40), at(30), at(40))
    assert view.bookmark() == at(40)


def test_a_connection_that_is_lost_in_the_middle_leaves_nothing_behind(
    case: ViewCase, postgres_url: str, user: psycopg.Connection[Any]
) -> None:
    """The range waits for a lock when its connection is cut, so it is cut inside its transaction."""
    with closing(table(postgres_url, "payments")) as view:
        raised: list[BaseException] = []

        def apply() -> None:
            try:
                view.apply(case.delta(EVENTS, 30, 40), at(30), at(40))
            except FoldlogError as error:
                raised.append(error)

        with user.transaction():
            user.execute("LOCK TABLE payments IN SHARE MODE")
            thread = threading.Thread(target=apply)
            thread.start()
            with psycopg.connect(postgres_url, autocommit=True) as watcher:
                killed: list[Any] = []
                while not killed:
                    killed = watcher.execute(
                        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                        " WHERE application_name = 'foldlog' AND wait_event_type = 'Lock'"
                        " AND datname = current_database()"
                    ).fetchall()
            thread.join()
        assert [type(error) for error in raised] == [ViewUnavailable]
        assert "\n" not in str(raised[0])
        assert view.bookmark() == at(30)
        view.apply(case.delta(EVENTS, 30, 40), at(30), at(40))
        assert held(view) == in_order(case.content(EVENTS, 40))


def test_a_connection_that_was_lost_while_idle_is_made_again_after_one_error(
    case: ViewCase, view: View, user: psycopg.Connection[Any]
) -> None:
    user.execute(
        "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity"
        " WHERE application_name = 'foldlog' AND datname = current_database()"
    )
    with pytest.raises(ViewUnavailable, match="PostgreSQL says"):
        view.apply(case.delta(EVENTS, 30, 40), at(30), at(40))
    view.apply(case.delta(EVENTS, 30, 40), at(30), at(40))
    assert held(view) == in_order(case.content(EVENTS, 40))


def test_a_server_that_is_not_there_is_said_in_one_sentence_without_the_password(case: ViewCase) -> None:
    view = table("postgresql://shop:s3cret@127.0.0.1:1/shop", "payments")
    for action in (view.bookmark, view.drop, view.scan, lambda: view.prepare(case.shape, START)):
        with pytest.raises(
            ViewUnavailable, match=r"^table payments in postgresql://shop@127.0.0.1:1/shop cannot"
        ) as no:
            action()
        assert "s3cret" not in str(no.value)
        assert "\n" not in str(no.value)


def test_a_url_that_nobody_understands_is_the_caller_s_mistake() -> None:
    with pytest.raises(InvalidArgument, match="not a URL that PostgreSQL understands"):
        table("postgresql://db/shop?no_such_option=1", "payments").bookmark()


def test_settings_of_the_database_change_nothing(case: ViewCase, postgres_url: str) -> None:
    name = postgres_url.rpartition("/")[2]
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        for setting in (
            "timezone = 'Asia/Kolkata'",
            "datestyle = 'SQL, DMY'",
            "extra_float_digits = -10",
            "bytea_output = 'escape'",
            "synchronous_commit = off",
            "default_transaction_isolation = 'repeatable read'",
            "standard_conforming_strings = off",
        ):
            connection.execute(f"ALTER DATABASE {name} SET {setting}".encode())
    with closing(case.open()) as view:
        view.prepare(case.shape, START)
        play(view, case, EVENTS, [7, 40])
        assert held(view) == in_order(case.content(EVENTS, 40))
        view.drop()
        TestPostgresTable().test_of_two_who_apply_the_same_range_at_once_one_is_refused(case, view)
        assert isinstance(view, PostgresTable)
        with view._database.transaction() as connection:
            assert connection.execute("SHOW synchronous_commit").fetchone() == ("on",)


def test_text_that_the_database_s_encoding_has_no_letter_for_is_refused_in_one_sentence(
    case: ViewCase, postgres: PostgresServer
) -> None:
    url = postgres.new_database(options="TEMPLATE template0 ENCODING 'LATIN1' LOCALE 'C'")
    with closing(table(url, "payments")) as view:
        view.prepare(case.shape, START)
        play(view, case, EVENTS, [30])  # "Café" has a place in it
        assert held(view) == in_order(case.content(EVENTS, 30))
        strange = [EVENTS[30]._replace(merchant="茶", amount=1)]
        with pytest.raises(ViewUnavailable, match="has no equivalent in encoding"):
            view.apply(case.delta(strange, 30, 31), at(30), at(31))
        assert view.bookmark() == at(30)


def test_tables_of_the_same_name_in_two_schemas_are_two_views(case: ViewCase, view: View, postgres_url: str) -> None:
    with psycopg.connect(postgres_url) as connection:
        connection.execute("CREATE SCHEMA shop")
    with closing(table(postgres_url, "shop.payments")) as other:
        other.prepare(case.shape, START)
        play(other, case, EVENTS, [5])
        assert (view.bookmark(), other.bookmark()) == (at(30), at(5))
        other.drop()
    assert held(view) == in_order(case.content(EVENTS, 30))
    with closing(table(postgres_url, "nowhere.payments")) as lost:
        assert lost.bookmark() is None
        with pytest.raises(ViewUnavailable, match='schema "nowhere" does not exist'):
            lost.prepare(case.shape, START)


def test_a_role_without_rights_is_told_so_in_one_sentence(
    case: ViewCase, view: View, postgres: PostgresServer, postgres_url: str, user: psycopg.Connection[Any]
) -> None:
    role = "reader_" + postgres_url.rpartition("_")[2]
    user.execute(f"CREATE ROLE {role} LOGIN".encode())
    database = postgres_url.rpartition("/")[2]
    with closing(table(f"postgresql://{role}@127.0.0.1:{postgres.port}/{database}", "payments")) as theirs:
        for action in (theirs.bookmark, lambda: theirs.apply(case.delta(EVENTS, 30, 40), at(30), at(40))):
            with pytest.raises(ViewUnavailable, match="permission denied"):
                action()
    assert view.bookmark() == at(30)


def test_a_table_that_no_fold_made_is_not_written_into(case: ViewCase, postgres_url: str) -> None:
    with psycopg.connect(postgres_url) as connection:
        connection.execute("CREATE VIEW payments AS SELECT 1 AS tx_id")
    with closing(case.open()) as view:
        with pytest.raises(ViewUnavailable, match="no fold made it"):
            view.prepare(case.shape, START)
        view.drop()
        assert view.bookmark() is None


def test_a_table_that_was_changed_by_hand_is_refused(case: ViewCase, view: View, user: psycopg.Connection[Any]) -> None:
    user.execute("ALTER TABLE payments ADD COLUMN note text")
    assert view.prepare(case.shape, START) == at(30)  # a column of the user's own is welcome
    grown = ViewCase(lambda: view)
    shape = type(case.shape)(case.shape.columns.append(case.shape.columns.field(1).with_name("note")), "tx_id")
    with pytest.raises(SchemaChanged, match="'note' was added to it by hand"):
        grown.open().prepare(shape, START)
    user.execute("ALTER TABLE payments DROP COLUMN amount")
    with pytest.raises(SchemaChanged, match="removed by hand"):
        view.prepare(case.shape, START)
    user.execute("DROP TABLE payments")
    with pytest.raises(ViewUnavailable, match="the table is not"):
        view.prepare(case.shape, START)
    view.drop()
    assert view.prepare(case.shape, START) == START


def test_a_view_of_another_kind_is_not_taken_over(case: ViewCase, view: View, user: psycopg.Connection[Any]) -> None:
    user.execute("UPDATE _foldlog_bookmarks SET kind = 'counters'")
    for action in (view.bookmark, view.drop, lambda: view.prepare(case.shape, START)):
        with pytest.raises(ViewUnavailable, match="another kind"):
            action()


def test_a_bulk_load_leaves_the_same_table_as_applying_without_holes_and_without_what_it_needed(
    case: ViewCase, view: View, user: psycopg.Connection[Any]
) -> None:
    """Thirty versions of each key: the load has to throw away far more than it keeps."""
    versions = [event._replace(offset=n) for n, event in enumerate(some_events(100, keys=100) * 30)]
    with closing(view.shadow("rebuild")) as loaded, closing(view.shadow("verify")) as applied:
        loaded.prepare(case.shape, START, loading=True)
        applied.prepare(case.shape, START)
        cuts = [*range(100, 3000, 100), 3000]
        play(loaded, case, versions, cuts)
        with pytest.raises(ViewUnavailable, match="not loaded yet"):
            view.swap(loaded)
        loaded.close()  # whoever goes on after a crash reads what is stored
        assert loaded.prepare(case.shape, START, loading=True) == at(3000)
        with pytest.raises(ViewUnavailable, match="never finished"):
            loaded.prepare(case.shape, START)
        loaded.finish_loading()
        play(applied, case, versions, [3000])
        assert held(loaded) == held(applied) == in_order(case.content(versions, 3000))
    described = """SELECT attname, format_type(atttypid, atttypmod), attnotnull, attcollation FROM pg_attribute
                   WHERE attrelid = %s::regclass AND attnum > 0 ORDER BY attnum"""
    tables = ("payments__rebuild", "payments__verify")
    columns = [user.execute(described, (name,)).fetchall() for name in tables]
    assert columns[0] == columns[1]
    assert user.execute("SELECT to_regclass('payments__rebuild_load')").fetchone() == (None,)
    sizes = [user.execute("SELECT pg_relation_size(%s::regclass)", (name,)).fetchone() for name in tables]
    assert sizes[0] == sizes[1]
    keys = "SELECT count(*) FROM pg_index WHERE indisprimary AND indrelid = %s::regclass"
    assert user.execute(keys, (tables[0],)).fetchone() == (1,)


def test_an_executor_that_cannot_reach_the_server_says_so_without_the_password(case: ViewCase, view: View) -> None:
    place = view.stage({0: (30, 40)}, at(30))
    assert isinstance(place, PostgresStage)
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    far = replace(place, url=f"postgresql://shop:hush-hush@127.0.0.1:{port}/shop")
    rows = case.delta(EVENTS, 30, 40).rows.drop_columns(["_topic"])
    refusal, _ = staged_of(far, reports(far, rows, 0), {0: (30, 40)})
    assert isinstance(refusal, StageRefusal)
    assert refusal.is_unreachable
    assert "PostgreSQL says" in refusal.why
    assert "hush-hush" not in f"{refusal} {far!r}"


def test_rows_that_a_crash_of_the_server_took_are_missed_and_the_range_is_read_again(
    case: ViewCase, view: View, postgres_url: str
) -> None:
    staged = stage(view, case, EVENTS, 30, 40)
    assert isinstance(staged.stage, PostgresStage)
    with psycopg.connect(postgres_url) as connection:
        connection.execute(f"TRUNCATE {staged.stage.table.sql}".encode())  # as a server does when it starts again
    with pytest.raises(ViewUnavailable, match="not complete any more"):
        view.apply_staged(staged, at(30), at(40))
    assert view.bookmark() == at(30)
    view.apply_staged(stage(view, case, EVENTS, 30, 40), at(30), at(40))
    assert held(view) == in_order(case.content(EVENTS, 40))
    assert stages_in(postgres_url) == []
