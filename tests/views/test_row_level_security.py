"""A view in PostgreSQL is never true in part: where a policy hides rows from the fold's role, every way into the view
fails with a sentence, and nothing is stored. A real server, with roles that are no superusers.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import psycopg
import pyarrow as pa
import pytest

from foldlog.errors import ViewUnavailable
from foldlog.views.contract import Delta, Shape, View
from foldlog.views.counters import measures as fl
from foldlog.views.counters.counters import check_aggregation, counters
from foldlog.views.peek.peek import open_peek
from foldlog.views.table.table import table
from views.view_contract import START, ViewCase, at, held, in_order, play, some_events

EVENTS = some_events(40)

FORCED = ("ALTER TABLE {} ENABLE ROW LEVEL SECURITY", "ALTER TABLE {} FORCE ROW LEVEL SECURITY")
SMALL = "CREATE POLICY small ON payments FOR ALL USING (amount < 200) WITH CHECK (true)"


@pytest.fixture
def admin(postgres_url: str) -> Iterator[psycopg.Connection[Any]]:
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        yield connection


@pytest.fixture
def role(admin: psycopg.Connection[Any]) -> Iterator[str]:
    """Who folds, and owns what folds make."""
    name = f"folder_{uuid.uuid4().hex[:8]}"
    admin.execute(f"CREATE ROLE {name} LOGIN".encode())
    admin.execute(f"GRANT ALL ON SCHEMA public TO {name}".encode())
    yield name
    admin.execute(f"DROP OWNED BY {name} CASCADE".encode())
    admin.execute(f"DROP ROLE {name}".encode())


@pytest.fixture
def url(postgres_url: str, role: str) -> str:
    scheme, _, rest = postgres_url.partition("://")
    return f"{scheme}://{role}@{rest.rpartition('@')[2]}"


@pytest.fixture
def case(url: str) -> ViewCase:
    return ViewCase(lambda: table(url, "payments"))


@pytest.fixture
def view(case: ViewCase) -> Iterator[View]:
    with closing(case.open()) as view:
        view.prepare(case.shape, START)
        play(view, case, EVENTS, [30])
        yield view


def run(admin: psycopg.Connection[Any], *statements: str) -> None:
    for statement in statements:
        admin.execute(statement.encode())


def forced(name: str) -> list[str]:
    return [statement.format(name) for statement in FORCED]


@pytest.mark.parametrize("policy", [SMALL, "CREATE POLICY theirs ON payments TO pg_monitor USING (true)"])
def test_a_hidden_row_stops_the_fold_and_nothing_is_stored(
    case: ViewCase, view: View, admin: psycopg.Connection[Any], role: str, policy: str
) -> None:
    run(admin, *forced("payments"), policy)
    sentence = (
        f"row level security of payments hides rows from the role {role}, .*"
        f"ALTER ROLE {role} BYPASSRLS, or ALTER TABLE payments NO FORCE ROW LEVEL SECURITY"
    )
    with pytest.raises(ViewUnavailable, match=sentence):
        view.apply(case.delta(EVENTS, 30, 40), at(30), at(40))
    with pytest.raises(ViewUnavailable, match=sentence):
        held(view)
    assert view.bookmark() == at(30)
    run(admin, f"ALTER ROLE {role} BYPASSRLS")
    view.apply(case.delta(EVENTS, 30, 40), at(30), at(40))
    assert held(view) == in_order(case.content(EVENTS, 40))


def test_policies_for_readers_do_not_concern_the_owner(
    case: ViewCase, view: View, admin: psycopg.Connection[Any]
) -> None:
    run(admin, "ALTER TABLE payments ENABLE ROW LEVEL SECURITY", SMALL)
    view.apply(case.delta(EVENTS, 30, 40), at(30), at(40))
    assert held(view) == in_order(case.content(EVENTS, 40))


def test_who_is_not_the_owner_is_told_to_fold_as_the_owner(
    case: ViewCase, view: View, admin: psycopg.Connection[Any]
) -> None:
    run(admin, "ALTER TABLE payments ENABLE ROW LEVEL SECURITY", SMALL, "ALTER TABLE payments OWNER TO CURRENT_USER")
    run(admin, "GRANT ALL ON payments TO PUBLIC")
    with pytest.raises(ViewUnavailable, match="fold as the owner of payments, without FORCE"):
        view.apply(case.delta(EVENTS, 30, 40), at(30), at(40))


def test_a_hidden_bookmark_is_no_missing_one(case: ViewCase, view: View, admin: psycopg.Connection[Any]) -> None:
    run(admin, *forced("_foldlog_bookmarks"), "CREATE POLICY none ON _foldlog_bookmarks USING (false)")
    for attempt in (view.bookmark, lambda: view.prepare(case.shape, START), lambda: held(view)):
        with pytest.raises(ViewUnavailable, match="row level security of _foldlog_bookmarks hides rows"):
            attempt()


def test_other_refusals_stay_in_the_servers_words(
    case: ViewCase, view: View, admin: psycopg.Connection[Any], role: str
) -> None:
    run(admin, "ALTER TABLE payments OWNER TO CURRENT_USER", f"REVOKE ALL ON payments FROM {role}")
    with pytest.raises(ViewUnavailable, match="PostgreSQL says: permission denied for table payments"):
        view.apply(case.delta(EVENTS, 30, 40), at(30), at(40))


def test_a_rebuild_carries_the_policies_over_and_the_next_run_is_told(
    case: ViewCase, view: View, admin: psycopg.Connection[Any]
) -> None:
    run(admin, *forced("payments"), SMALL)
    with closing(view.shadow("rebuild")) as shadow:
        shadow.prepare(case.shape, at(0, epoch=1), loading=True)
        play(shadow, case, EVENTS, [40], epoch=1)
        shadow.finish_loading()
        view.swap(shadow)
    found = admin.execute(
        "SELECT relrowsecurity, relforcerowsecurity, policyname FROM pg_class JOIN pg_policies ON tablename = relname"
        " WHERE relname = 'payments'"
    )
    assert found.fetchall() == [(True, True, "small")]
    with pytest.raises(ViewUnavailable, match="row level security of payments"):
        held(view)


def test_counters_are_not_counted_anew_beside_a_hidden_row(url: str, admin: psycopg.Connection[Any]) -> None:
    columns = pa.schema([("merchant", pa.string()), ("n", pa.int64())])
    rows = pa.table({"merchant": ["tea", "books"], "n": [2, 1]}, schema=columns)
    with closing(counters(url, by=["merchant"], measures={"n": fl.count()})) as view:
        view.prepare(Shape(check_aggregation(view.counted, columns), None, ("merchant",)), START)
        view.apply(Delta(rows, {0: (0, 3)}), START, at(3))
        ((stored,),) = admin.execute(
            "SELECT relname FROM pg_class WHERE relkind = 'r' AND relname LIKE 'counters%'"
        ).fetchall()
        run(admin, *forced(stored), f"CREATE POLICY tea ON {stored} USING (merchant <> 'tea') WITH CHECK (true)")
        for attempt in (lambda: view.apply(Delta(rows, {0: (3, 6)}), at(3), at(6)), lambda: held(view)):
            with pytest.raises(ViewUnavailable, match=f"row level security of {stored} hides rows"):
                attempt()
        assert view.bookmark() == at(3)


def test_a_look_shows_what_its_role_may_see(case: ViewCase, view: View, admin: psycopg.Connection[Any]) -> None:
    run(admin, *forced("payments"), SMALL)
    description = view.description()
    assert description is not None
    amounts = [int(str(row["amount"])) for row in case.content(EVENTS, 30) if row["amount"] is not None]
    assert len(open_peek(description).rows(100).rows) == sum(amount < 200 for amount in amounts) > 0
