"""A swap in PostgreSQL carries over what people made of the table, in one transaction, and is refused by name where it
would leave something behind.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from typing import Any

import psycopg
import pyarrow as pa
import pytest

from foldlog.errors import InvalidArgument, ViewInUse, ViewUnavailable
from foldlog.views.contract import Shape, View
from foldlog.views.sql.names import TableName
from foldlog.views.table.postgres import PostgresTable
from foldlog.views.table.table import table
from views.view_contract import START, ViewCase, at, held, in_order, play, some_events

EVENTS = some_events(40)
Connection = psycopg.Connection[Any]


@pytest.fixture
def case(postgres_url: str) -> ViewCase:
    return ViewCase(lambda: PostgresTable(postgres_url, TableName("payments"), wait_ms=50))


@pytest.fixture
def view(case: ViewCase) -> Iterator[View]:
    with closing(case.open()) as view:
        view.prepare(case.shape, START)
        play(view, case, EVENTS, [30])
        yield view


@pytest.fixture
def user(postgres_url: str, view: View) -> Iterator[Connection]:
    with psycopg.connect(postgres_url, autocommit=True, application_name="analyst") as connection:
        yield connection


@pytest.fixture
def role(postgres_url: str, user: Connection) -> Iterator[str]:
    """Roles belong to the whole server: one of this test's own, gone with it."""
    name = "role_" + postgres_url.rpartition("_")[2]
    user.execute(f"CREATE ROLE {name}".encode())
    yield name
    user.execute(f"DROP OWNED BY {name} CASCADE".encode())
    user.execute(f"DROP ROLE {name}".encode())


def rebuilt(view: View, case: ViewCase, *, epoch: int = 1) -> View:
    shadow = view.shadow("rebuild")
    shadow.prepare(case.shape, at(0, epoch=epoch), loading=True)
    play(shadow, case, EVENTS, [40], epoch=epoch)
    shadow.finish_loading()
    return shadow


def swapped(view: View, case: ViewCase, *, epoch: int = 1) -> None:
    with closing(rebuilt(view, case, epoch=epoch)) as shadow:
        view.swap(shadow)


def indexes(user: Connection) -> list[Any]:
    return user.execute(
        "SELECT indexname, indexdef, obj_description(format('%I', indexname)::regclass)"
        " FROM pg_indexes WHERE tablename = 'payments' ORDER BY 1"
    ).fetchall()


def rights(user: Connection) -> tuple[Any, ...]:
    table_rights = user.execute(
        "SELECT pg_get_userbyid(relowner), reloptions, obj_description(oid),"
        " (SELECT array_agg(x::text ORDER BY x::text) FROM unnest(relacl) AS x)"
        " FROM pg_class WHERE oid = 'payments'::regclass"
    ).fetchall()
    column_rights = user.execute(
        "SELECT attname, attacl::text, col_description(attrelid, attnum) FROM pg_attribute"
        " WHERE attrelid = 'payments'::regclass AND attnum > 0 AND NOT attisdropped ORDER BY attname"
    ).fetchall()
    return table_rights, column_rights


def test_indexes_keep_their_names_definitions_and_comments(case: ViewCase, view: View, user: Connection) -> None:
    for statement in (
        "CREATE INDEX by_merchant ON payments (merchant, amount DESC NULLS LAST)",
        "CREATE UNIQUE INDEX once ON payments (tx_id, amount) WITH (fillfactor = 70) WHERE amount > 0",
        'CREATE INDEX "odd "" name ON it USING x" ON payments USING hash (lower(merchant || \' ON x USING y\'))',
        "CREATE INDEX included ON payments (amount) INCLUDE (merchant)",
        "COMMENT ON INDEX by_merchant IS 'for the page of a merchant''s payments'",
    ):
        user.execute(statement.encode())
    before = indexes(user)
    assert len(before) == 5
    for epoch in (1, 2):
        swapped(view, case, epoch=epoch)
        assert indexes(user) == before
    assert held(view) == in_order(case.content(EVENTS, 40))
    assert view.drop_old()
    assert indexes(user) == before


def test_owner_grants_comments_and_storage_parameters_are_kept(
    case: ViewCase, view: View, user: Connection, role: str
) -> None:
    for statement in (
        f"GRANT SELECT, UPDATE ON payments TO {role} WITH GRANT OPTION",
        "GRANT SELECT ON payments TO PUBLIC",
        f"GRANT UPDATE (amount, merchant) ON payments TO {role}",
        f"GRANT ALL ON SCHEMA public TO {role}",
        f"ALTER TABLE payments OWNER TO {role}",
        "ALTER TABLE payments SET (fillfactor = 80, autovacuum_enabled = false)",
        "COMMENT ON TABLE payments IS 'what people paid; it''s ours'",
        "COMMENT ON COLUMN payments.amount IS 'in paise'",
    ):
        user.execute(statement.encode())
    before = rights(user)
    swapped(view, case)
    assert rights(user) == before


def test_row_level_security_replica_identity_and_settings_of_columns_are_kept(
    case: ViewCase, view: View, user: Connection, role: str
) -> None:
    for statement in (
        "CREATE UNIQUE INDEX whole ON payments (tx_id)",
        "ALTER TABLE payments REPLICA IDENTITY USING INDEX whole",
        "ALTER TABLE payments CLUSTER ON whole",
        f"CREATE POLICY mine ON payments AS RESTRICTIVE FOR SELECT TO {role}, PUBLIC USING (merchant <> 'it''s')",
        "CREATE POLICY few ON payments FOR INSERT WITH CHECK (amount < 10)",
        "COMMENT ON POLICY mine ON payments IS 'not for everybody'",
        "ALTER TABLE payments ENABLE ROW LEVEL SECURITY",
        "ALTER TABLE payments FORCE ROW LEVEL SECURITY",
        "ALTER TABLE payments ALTER COLUMN amount SET STATISTICS 500",
        "ALTER TABLE payments ALTER COLUMN amount SET (n_distinct = 100)",
        "ALTER TABLE payments ALTER COLUMN amount SET DEFAULT 7",
        "ALTER TABLE payments ALTER COLUMN merchant SET STORAGE EXTERNAL",
    ):
        user.execute(statement.encode())
    before = protection(user)
    assert before["table"] == [(True, True, "i", 2)]
    view.check_swap()
    swapped(view, case)
    assert protection(user) == before
    user.execute("ALTER TABLE payments REPLICA IDENTITY FULL")
    before = protection(user)
    swapped(view, case, epoch=2)
    assert protection(user) == before


def protection(user: Connection) -> dict[str, list[Any]]:
    """Who sees which rows, by what a row is known, and what was set of columns."""
    questions = {
        "table": "SELECT relrowsecurity, relforcerowsecurity, relreplident::text, (SELECT count(*) FROM pg_policy WHERE"
        " polrelid = pg_class.oid) FROM pg_class WHERE oid = 'payments'::regclass",
        "policies": "SELECT policyname, permissive, roles, cmd, qual, with_check FROM pg_policies"
        " WHERE tablename = 'payments' ORDER BY 1",
        "comments": "SELECT obj_description(oid, 'pg_policy') FROM pg_policy WHERE polrelid = 'payments'::regclass"
        " ORDER BY 1",
        "indexes": "SELECT relname, indisreplident, indisclustered FROM pg_index JOIN pg_class ON pg_class.oid ="
        " indexrelid WHERE indrelid = 'payments'::regclass ORDER BY 1",
        "columns": "SELECT attname, attnotnull, attstattarget, attoptions, attstorage::text,"
        " pg_get_expr(adbin, adrelid) FROM pg_attribute LEFT JOIN pg_attrdef ON adrelid = attrelid AND adnum = attnum"
        " WHERE attrelid = 'payments'::regclass AND attnum > 0 AND NOT attisdropped ORDER BY 1",
    }
    return {about: user.execute(question.encode()).fetchall() for about, question in questions.items()}


def test_a_rebuild_that_lacks_rights_is_refused_beforehand(
    case: ViewCase, view: View, user: Connection, role: str, postgres_url: str
) -> None:
    user.execute(f"ALTER ROLE {role} LOGIN".encode())
    user.execute(f"GRANT ALL ON ALL TABLES IN SCHEMA public TO {role}".encode())
    scheme, _, rest = postgres_url.partition("://")
    other = table(f"{scheme}://{role}@{rest.rpartition('@')[2]}", "payments")
    with closing(other), pytest.raises(ViewUnavailable, match=f"only its owner can replace it; {role} is another"):
        other.check_swap()
    user.execute(f"ALTER TABLE payments OWNER TO {role}".encode())
    user.execute(b"REVOKE CREATE ON SCHEMA public FROM PUBLIC")
    with closing(other), pytest.raises(ViewUnavailable, match="GRANT CREATE ON SCHEMA"):
        other.check_swap()


def test_default_privileges_give_a_rebuilt_table_no_more_than_it_had(
    case: ViewCase, view: View, user: Connection, role: str
) -> None:
    user.execute(f"ALTER DEFAULT PRIVILEGES GRANT ALL ON TABLES TO {role}".encode())
    before = rights(user)
    swapped(view, case)
    ((_, _, _, acl),) = rights(user)[0]
    assert not any(entry.startswith(role) for entry in acl or [])
    assert rights(user)[1] == before[1]
    user.execute(f"ALTER DEFAULT PRIVILEGES REVOKE ALL ON TABLES FROM {role}".encode())


@pytest.mark.parametrize(
    ("statement", "name", "undo"),
    [
        ("CREATE VIEW totals AS SELECT sum(amount) FROM payments", "view totals", "DROP VIEW totals"),
        (
            "CREATE MATERIALIZED VIEW daily AS SELECT count(*) FROM payments",
            "materialized view daily",
            "DROP MATERIALIZED VIEW daily",
        ),
        (
            "CREATE TABLE child (tx text REFERENCES payments (tx_id))",
            "constraint child_tx_fkey on table child",
            "DROP TABLE child",
        ),
        (
            "CREATE TRIGGER watch AFTER INSERT ON payments EXECUTE FUNCTION pg_temp.nothing()",
            "trigger watch",
            "DROP TRIGGER watch ON payments",
        ),
        ("CREATE RULE quiet AS ON DELETE TO payments DO ALSO NOTHING", "rule quiet", "DROP RULE quiet ON payments"),
        (
            "CREATE POLICY mine ON payments USING (amount = (SELECT 1))",
            "policy mine",
            "DROP POLICY mine ON payments",
        ),
        ("ALTER TABLE payments SET UNLOGGED", "being unlogged", "ALTER TABLE payments SET LOGGED"),
        (
            "ALTER TABLE payments ADD CONSTRAINT sane CHECK (amount < 1000000)",
            "constraint sane",
            "ALTER TABLE payments DROP CONSTRAINT sane",
        ),
        (
            "ALTER TABLE payments ADD COLUMN double_amount bigint GENERATED ALWAYS AS (amount * 2) STORED",
            "column double_amount",
            "ALTER TABLE payments DROP COLUMN double_amount",
        ),
        ("CREATE STATISTICS pair ON merchant, amount FROM payments", "statistics pair", "DROP STATISTICS pair"),
        ("CREATE PUBLICATION outwards FOR TABLE payments", "publication outwards", "DROP PUBLICATION outwards"),
        (
            "CREATE PUBLICATION everything FOR ALL TABLES",
            "publication everything (its subscribers are sent rows and no renames: they would keep",
            "DROP PUBLICATION everything",
        ),
        ("CREATE TABLE heir () INHERITS (payments)", "table heir", "DROP TABLE heir"),
    ],
)
def test_what_would_be_left_behind_refuses_the_swap_by_its_name(
    case: ViewCase, view: View, user: Connection, statement: str, name: str, undo: str
) -> None:
    user.execute("CREATE FUNCTION pg_temp.nothing() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RETURN NULL; END $$")
    user.execute(statement.encode())
    with pytest.raises(ViewInUse) as foreseen:
        view.check_swap()
    assert any(dependent.startswith(name) for dependent in foreseen.value.dependents), foreseen.value.dependents
    with closing(rebuilt(view, case)) as shadow:
        with pytest.raises(ViewInUse) as refused:
            view.swap(shadow)
        assert any(dependent.startswith(name) for dependent in refused.value.dependents), refused.value.dependents
        assert (view.bookmark(), shadow.bookmark()) == (at(30), at(40, epoch=1))
        assert held(view) == in_order(case.content(EVENTS, 30))
        user.execute(undo.encode())
        view.swap(shadow)
    assert view.bookmark() == at(40, epoch=1)


def test_a_fold_that_lost_a_column_is_swapped_in_unless_an_index_needs_it(
    case: ViewCase, view: View, user: Connection, role: str
) -> None:
    user.execute("CREATE INDEX small ON payments (amount) WHERE merchant IS NULL")
    user.execute("COMMENT ON COLUMN payments.merchant IS 'who'")
    user.execute(f"GRANT SELECT (merchant, amount) ON payments TO {role}".encode())
    narrow = Shape(pa.schema([("tx_id", pa.string()), ("amount", pa.int64())]), "tx_id")
    with closing(view.shadow("rebuild")) as shadow:
        shadow.prepare(narrow, at(0, epoch=1), loading=True)
        shadow.finish_loading()
        with pytest.raises(ViewInUse, match='index "small" on column merchant'):
            view.swap(shadow)
        user.execute("DROP INDEX small")
        view.swap(shadow)
    assert view.prepare(narrow, START) == at(0, epoch=1)
    assert [(name, acl is not None) for name, acl, _ in rights(user)[1]] == [("amount", True), ("tx_id", False)]


def test_who_looks_at_the_old_one_keeps_it_from_being_dropped(case: ViewCase, view: View, user: Connection) -> None:
    swapped(view, case)
    user.execute("CREATE VIEW before AS SELECT * FROM payments__old")
    with closing(rebuilt(view, case, epoch=2)) as shadow, pytest.raises(ViewInUse, match="view before"):
        view.swap(shadow)
    with pytest.raises(ViewInUse, match=r"view before \(of public.payments__old\)"):
        view.drop_old()
    user.execute("DROP VIEW before")
    assert view.drop_old()


def test_a_view_with_dependents_is_not_dropped(view: View, user: Connection) -> None:
    user.execute("CREATE VIEW totals AS SELECT sum(amount) FROM payments")
    with pytest.raises(ViewInUse, match="view totals"):
        view.drop()
    assert view.bookmark() == at(30)


def test_a_reader_that_does_not_end_is_named_and_the_old_table_stays(
    case: ViewCase, view: View, user: Connection
) -> None:
    with closing(rebuilt(view, case)) as shadow:
        with user.transaction():
            user.execute("SELECT * FROM payments")
            with pytest.raises(ViewUnavailable, match="analyst, idle in transaction"):
                view.swap(shadow)
        assert view.bookmark() == at(30)
        view.swap(shadow)
    assert view.bookmark() == at(40, epoch=1)


def test_a_reader_sees_the_old_table_or_the_new_one_and_the_same_name(
    case: ViewCase, view: View, user: Connection
) -> None:
    epoch = "SELECT bookmark::json->>'epoch' FROM _foldlog_bookmarks WHERE view = 'payments'"
    read = f"SELECT count(*), ({epoch}) FROM payments".encode()
    before = user.execute(read).fetchone()
    assert before == (len(case.content(EVENTS, 30)), "0")
    swapped(view, case)
    assert user.execute(read).fetchone() == (len(case.content(EVENTS, 40)), "1")
    assert user.execute("SELECT count(*) FROM payments__old").fetchone() == before[:1]


def test_what_is_no_shadow_of_it_cannot_take_its_place(case: ViewCase, view: View, postgres_url: str) -> None:
    with (
        closing(table(postgres_url, "other.payments")) as stranger,
        pytest.raises(InvalidArgument, match="not a shadow"),
    ):
        view.swap(stranger)
    with closing(view.shadow("rebuild")) as missing, pytest.raises(ViewUnavailable, match="it is not there"):
        view.swap(missing)


def test_a_first_rebuild_needs_no_table_before_it(case: ViewCase) -> None:
    with closing(case.open()) as view, closing(rebuilt(view, case)) as shadow:
        view.swap(shadow)
        assert held(view) == in_order(case.content(EVENTS, 40))
        assert not view.drop_old()
